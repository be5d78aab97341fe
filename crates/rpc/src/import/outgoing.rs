//! From a call to the bytes of its request.

use std::fmt;

use bytes::Bytes;
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{MatchBits, Nid, Transno, Xid};
use sheen_wire::codec::Wire;
use sheen_wire::lnet::Portal;
use sheen_wire::messages::Request;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{
    HeaderFlags, MessageHeader, MsgFlags, MsgType, OpFlags, PtlrpcBody, round8,
};

use super::Engine;
use super::flight::{Flight, FlightOwner};
use crate::channel::split_parts;
use crate::channel::{Bulk, Call};
use crate::limits::{self, BULK_PARTS_MAX};
use crate::portals;

/// A request to send.
pub struct Outgoing {
    /// To whom.
    pub to: Nid,
    /// To which portal.
    pub portal: Portal,
    /// Under which bits.
    pub bits: MatchBits,
    /// Messages that answer it have these bits, or the ones that follow up to the next request's.
    pub route: MatchBits,
    /// And perhaps these.
    pub second_route: MatchBits,
    /// The message.
    pub message: Bytes,
    /// Whether it may be sent a moment later, with the next one.
    pub may_linger: bool,
    /// Data beside it, to be set up before it is sent.
    pub bulk: OutgoingBulk,
}

/// Bulk to be set up: one entry per part, with consecutive bits.
#[derive(Clone, Default)]
pub enum OutgoingBulk {
    /// None, or the target sends: that needs nothing but the route.
    #[default]
    None,
    /// The target fetches these parts, the first under these bits.
    Offer(Portal, MatchBits, Vec<Vec<Bytes>>),
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "x{} to {} {:?}, {} bytes", self.bits, self.to, self.portal, self.message.len())
    }
}

/// How many parts a call's bulk has; a call without has room for one reply.
pub(super) fn parts_of(bulk: &Bulk) -> usize {
    bulk.length().div_ceil(LNET_PAYLOAD_BYTES_MAX).clamp(1, BULK_PARTS_MAX as usize)
}

/// Bytes of the largest reply we expect.
fn reply_bytes(request: &Request, room: usize) -> u32 {
    let format = request.format();
    let fixed: usize = format.reply.iter().map(|field| round8(field.size)).sum();
    let header = 32 + round8((format.reply.len() + 1) * 4) + PtlrpcBody::SIZE;
    (header + fixed + room) as u32
}

/// Says that we take early replies, and how their checksum is to be computed.
const EARLY_FLAGS: HeaderFlags = HeaderFlags::AT_SUPPORT.union(HeaderFlags::CKSUM_INCOMPAT18);

/// Bytes of an early reply: replies proper lie behind this room in the client's buffer.
pub const EARLY_REPLY_BYTES: u32 = 32 + 8 + PtlrpcBody::SIZE as u32;

impl Engine {
    /// Encodes one try of a flight, and notes the bits that answer it.
    pub(super) fn encode(&self, xid: Xid, flight: &mut Flight) -> Outgoing {
        let call = &flight.call;
        let opcode = call.request.format().opcode;
        let is_connect = matches!(flight.owner, FlightOwner::Connect);
        let bulk_bits = self.negotiated.has_bulk_bits() && !is_connect;
        let parts = parts_of(&call.bulk) as u64;
        let base = if flight.tries > 0 && bulk_bits { self.xids.next() } else { xid };
        let bits = MatchBits(base.0 + parts - 1);
        let wire_xid = if bulk_bits || is_connect { xid.0 } else { bits.0 };
        let by_bits = self.negotiated.has_reply_bits() && !is_connect;
        flight.bits = bits;
        flight.reply_bits = if by_bits { bits } else { MatchBits(wire_xid) };
        let mut body = self.body(xid, flight, opcode);
        if !matches!(call.bulk, Bulk::None) || by_bits {
            body.match_bits = bits;
        }
        let adapts = self.negotiated.adapts() && self.bounds().adapts();
        let early = adapts && !is_connect;
        flight.early = early;
        let header = MessageHeader {
            repsize: reply_bytes(&flight.call.request, flight.call.reply_room),
            flags: if early { EARLY_FLAGS } else { HeaderFlags::NONE },
            ..MessageHeader::default()
        };
        Outgoing {
            to: self.peer(),
            portal: portals::request_portal(&flight.call.request, self.identity.kind.portal()),
            bits: MatchBits(wire_xid),
            route: MatchBits(limits::base_of(bits.0)),
            second_route: MatchBits(limits::base_of(wire_xid)),
            message: flight.call.request.to_bytes(&header, &body),
            // In the last slot it would hold up the next change, which cannot take it along.
            may_linger: flight.call.may_linger && flight.tries == 0 && self.slots.is_one_free(),
            bulk: outgoing_bulk(&flight.call, opcode, base),
        }
    }

    fn body(&self, xid: Xid, flight: &Flight, opcode: Opcode) -> PtlrpcBody {
        let extras = &flight.call.body;
        let mut body = PtlrpcBody {
            handle: extras.former.map_or(self.negotiated.export, |former| former.handle),
            kind: MsgType::REQUEST,
            version: portals::version(opcode),
            opcode,
            last_xid: self.flights.known_replied().min(Xid(xid.0 - 1)),
            tag: flight.tag,
            projid: extras.projid,
            flags: extras.flags,
            conn_cnt: extras.former.map_or(self.connects.connection, |it| it.connection),
            timeout: flight.timeout,
            pre_versions: extras.pre_versions,
            uid: extras.uid,
            gid: extras.gid,
            jobid: extras.jobid.clone(),
            ..PtlrpcBody::default()
        };
        if flight.tries > 0 {
            body.flags |= MsgFlags::RESENT;
        }
        match &flight.owner {
            FlightOwner::Connect => {
                body.service_time = self.service_estimate();
                body.last_xid = Xid(0);
                // Lustre's targets do not look at it in a request; ours see whether they have lost it.
                body.last_committed = self.kept.committed;
                if self.negotiated.export.0 == 0 {
                    body.op_flags |= OpFlags::CONNECT_INITIAL;
                }
                if self.kept.first() != Transno(0) {
                    body.op_flags |= OpFlags::CONNECT_TRANSNO;
                }
            }
            FlightOwner::Replay { transno, again } => {
                body.transno = *transno;
                body.flags |= MsgFlags::REPLAY;
                body.last_xid = Xid(0);
                if *again {
                    body.flags |= MsgFlags::RESENT;
                }
            }
            FlightOwner::FinalPing => {
                let done = MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE;
                body.flags |= done;
            }
            // Not REPLAY, which with no transaction would be executed at once: the target is to
            // hold it back until the changes of all clients are replayed, for those take locks
            // that this one must not block.
            FlightOwner::Caller(_) if flight.is_lock_replay => {
                body.flags |= MsgFlags::REQ_REPLAY_DONE;
            }
            FlightOwner::Caller(_)
            | FlightOwner::Ping
            | FlightOwner::Disconnect
            | FlightOwner::Suspend => {}
        }
        body
    }
}

fn outgoing_bulk(call: &Call, opcode: Opcode, base: Xid) -> OutgoingBulk {
    match &call.bulk {
        Bulk::Source(pieces) => OutgoingBulk::Offer(
            portals::bulk_portal(opcode),
            MatchBits(base.0),
            split_parts(pieces.clone()),
        ),
        Bulk::None | Bulk::Sink(_) => OutgoingBulk::None,
    }
}
