//! What comes back: early replies, replies, bulk.

use std::time::Duration;

use bytes::Bytes;
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{Errno, Instant, Transno, Xid};
use sheen_wire::messages::Reply;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{Message as Wire, MsgType, PtlrpcBody};

use super::flight::{Flight, FlightOwner, Phase};
use super::outgoing::parts_of;
use super::{Action, Engine, Message};
use crate::channel::{Answer, Bulk, CallKind, RpcError};
use crate::import_state::ImportState;
use crate::portals::{BULK_PORTALS, bulk_portal};

impl Engine {
    pub(super) fn message(&mut self, now: Instant, message: &Message, actions: &mut Vec<Action>) {
        let Some(xid) = self.flights.find(message.bits) else { return };
        let Some(flight) = self.flights.get(xid) else { return };
        // Bits alone could be guessed; only the node we asked may answer.
        let expected = message.from == self.peer() || message.from.is_loopback();
        if !expected || flight.phase != Phase::Sent {
            return;
        }
        if BULK_PORTALS.contains(&message.portal) {
            self.bulk_part(now, xid, message, actions);
        } else if message.bits == flight.reply_bits && flight.answer.is_none() {
            self.reply(now, xid, message, actions);
        }
    }

    fn reply(&mut self, now: Instant, xid: Xid, message: &Message, actions: &mut Vec<Action>) {
        let decoded = Wire::decode(&message.payload).and_then(|wire| {
            let body = wire.body()?;
            Ok((wire, body))
        });
        let (wire, body) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                return self.unreadable(now, xid, format!("undecodable reply: {error}"), actions);
            }
        };
        let Some(flight) = self.flights.get(xid) else { return };
        if flight.early && message.offset == 0 && body.kind != MsgType::ERR {
            self.early_reply(xid, &body);
            return;
        }
        self.stats.counters.replies += 1;
        self.stats.last_reply = Some(now);
        self.measure(now, xid, &body);
        let kind = flight_kind(&self.flights.by_xid[&xid]);
        // How far another MDT that came in this one's place is durable says nothing about our requests, and only the
        // connect's own handling shows whether it is another one.
        if kind != FlightOwner::Connect {
            self.kept.commit(body.last_committed);
        }
        match kind {
            FlightOwner::Connect => self.connect_reply(now, xid, &wire, &body, actions),
            FlightOwner::Disconnect => self.close(now, actions),
            FlightOwner::Suspend => {
                self.take_flight(xid, actions);
                self.suspended(now, actions);
            }
            _ if self.is_refusal_of_connection(&body) && !self.is_of_former_export(xid) => {
                self.unknown_to_target(now, actions);
            }
            _ if self.is_busy(xid, &body) => self.delay(now, xid, actions),
            _ => match Reply::decode(self.flights.by_xid[&xid].call.request.kind(), &wire) {
                Ok(reply) => self.replied(now, xid, body, reply, actions),
                Err(error) => {
                    let text = format!("undecodable reply to {:?}: {error}", body.opcode);
                    self.unreadable(now, xid, text, actions);
                }
            },
        }
    }

    /// An answer that says nothing ends what it answers: calls fail, a connect is tried again, and what was replayed is
    /// taken for refused, so that the next one follows.
    fn unreadable(&mut self, now: Instant, xid: Xid, text: String, actions: &mut Vec<Action>) {
        let Some(owner) = self.flights.get(xid).map(flight_kind) else { return };
        if owner == FlightOwner::Disconnect {
            return self.close(now, actions);
        }
        self.fail(xid, RpcError::Protocol(text), actions);
        match owner {
            FlightOwner::Caller(_) | FlightOwner::Ping => self.pump(now, actions),
            FlightOwner::Connect if self.state() == ImportState::Connecting => {
                self.connect_failed(now, actions);
            }
            FlightOwner::Connect | FlightOwner::Disconnect => {}
            FlightOwner::Suspend => self.suspended(now, actions),
            FlightOwner::Replay { transno, .. } => self.one_replay_ended(now, transno, actions),
            FlightOwner::FinalPing => self.recovery_ended(now, actions),
        }
    }

    /// The target works on it and asks for time.
    fn early_reply(&mut self, xid: Xid, body: &PtlrpcBody) {
        self.stats.counters.early_replies += 1;
        let bounds = self.bounds();
        let patience = self.estimates.patience(bounds.capped(body.timeout), &bounds);
        if let Some(flight) = self.flights.get_mut(xid) {
            flight.deadline = flight.deadline.max(flight.sent + patience);
        }
    }

    /// Learns from a reply how long the target and the network take.
    fn measure(&mut self, now: Instant, xid: Xid, body: &PtlrpcBody) {
        let Some(flight) = self.flights.get(xid) else { return };
        let waited = now.since(flight.sent);
        self.stats.add(&flight.call.request, waited);
        let bounds = self.bounds();
        self.estimates.measure(now, waited, body, &bounds);
    }

    /// The target does not know our handle, or is gone from its node.
    fn is_refusal_of_connection(&self, body: &PtlrpcBody) -> bool {
        let recoverable = [Errno::ENOTCONN.status(), Errno::ENODEV.status()];
        body.kind == MsgType::ERR && recoverable.contains(&body.status) && !self.is_reverse()
    }

    /// Whether the request was about an earlier process's export: that this is not known says nothing of ours.
    fn is_of_former_export(&self, xid: Xid) -> bool {
        self.flights.by_xid[&xid].call.body.former.is_some()
    }

    /// Whether the target cannot do it now: it is tried again until it can, or has evicted us. `EAGAIN`
    /// says so of data (from a target that recovers, say), whose callers never ask not to wait; of a lock it
    /// is an answer.
    fn is_busy(&self, xid: Xid, body: &PtlrpcBody) -> bool {
        let waits = |flight: &Flight| {
            matches!(flight.owner, FlightOwner::Caller(_))
                && !matches!(flight.call.kind, CallKind::NoResend | CallKind::NoDelay)
        };
        let is_of_data = |flight: &Flight| moves_data(flight.call.request.format().opcode);
        let Some(flight) = self.flights.get(xid).filter(|flight| waits(flight)) else {
            return false;
        };
        body.status == Errno::EINPROGRESS.status()
            || body.status == Errno::EAGAIN.status() && is_of_data(flight)
    }

    /// Tries again a little later, each time later by a second.
    fn delay(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        if self.flights.get(xid).is_some_and(|flight| flight.has_ended) {
            self.take_flight(xid, actions);
            return self.pump(now, actions);
        }
        let Some(mut flight) = self.flights.by_xid.remove(&xid) else { return };
        super::flight::forget(xid, &flight, actions);
        flight.busy += 1;
        let pause = Duration::from_secs(u64::from(flight.busy.min(flight.timeout)));
        flight.phase = Phase::Delayed(now + pause);
        self.flights.by_xid.insert(xid, flight);
    }

    fn replied(
        &mut self,
        now: Instant,
        xid: Xid,
        body: PtlrpcBody,
        reply: Reply,
        actions: &mut Vec<Action>,
    ) {
        let grants = matches!(body.opcode, Opcode::LDLM_ENQUEUE | Opcode::MDS_BATCH);
        if body.transno != Transno(0) || grants {
            self.negotiated.has_state_there = true;
        }
        if let Some(flight) = self.flights.get_mut(xid) {
            flight.answer = Some(Box::new((body, reply)));
        }
        self.try_finish(now, xid, actions);
    }

    /// One part of a sink arrived.
    fn bulk_part(&mut self, now: Instant, xid: Xid, message: &Message, actions: &mut Vec<Action>) {
        let Some(flight) = self.flights.get_mut(xid) else { return };
        let Bulk::Sink(length) = flight.call.bulk else { return };
        let count = parts_of(&flight.call.bulk);
        let first = flight.bits.0 + 1 - count as u64;
        let Some(part) = message.bits.0.checked_sub(first).map(|part| part as usize) else {
            return;
        };
        let opcode = flight.call.request.format().opcode;
        let room = length.saturating_sub(part * LNET_PAYLOAD_BYTES_MAX).min(LNET_PAYLOAD_BYTES_MAX);
        if part >= count || message.portal != bulk_portal(opcode) || message.payload.len() > room {
            return;
        }
        flight.parts.resize(count, None);
        flight.parts[part] = Some(message.payload.clone());
        self.try_finish(now, xid, actions);
    }

    /// Ends a flight whose answer and bulk are here.
    fn try_finish(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        let is_whole = |flight: &Flight| {
            flight.answer.as_ref().is_some_and(|answer| has_bulk(flight, &answer.0))
        };
        if !self.flights.get(xid).is_some_and(is_whole) {
            return;
        }
        let Some(mut flight) = self.take_flight(xid, actions) else { return };
        let Some(boxed) = flight.answer.take() else { return };
        let (body, reply) = *boxed;
        let bulk: Vec<Bytes> =
            flight.parts.drain(..).flatten().filter(|part| !part.is_empty()).collect();
        let answer = Answer { xid, body, reply, bulk, connection: self.connects.connection };
        match flight.owner {
            FlightOwner::Caller(_) => self.answer(now, xid, flight, answer, actions),
            FlightOwner::Replay { transno, .. } => {
                self.replay_answered(now, transno, answer, actions)
            }
            FlightOwner::FinalPing => self.recovery_ended(now, actions),
            FlightOwner::Ping
            | FlightOwner::Connect
            | FlightOwner::Disconnect
            | FlightOwner::Suspend => {}
        }
    }
}

/// Whether a request reads or changes what objects hold.
fn moves_data(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::OST_READ
            | Opcode::OST_WRITE
            | Opcode::OST_PUNCH
            | Opcode::OST_SYNC
            | Opcode::OST_FALLOCATE
            | Opcode::OST_SEEK
            | Opcode::OST_SETATTR
    )
}

fn flight_kind(flight: &Flight) -> FlightOwner {
    flight.owner
}

/// Whether all the bulk is here that a reply promises. A refusal promises none; the status of a
/// read says how much; otherwise every part comes, and a short one is the last.
fn has_bulk(flight: &Flight, body: &PtlrpcBody) -> bool {
    let Bulk::Sink(length) = flight.call.bulk else { return true };
    if body.status < 0 || body.kind == MsgType::ERR || length == 0 {
        return true;
    }
    let count = parts_of(&flight.call.bulk);
    let came = |part: usize| flight.parts.get(part).and_then(Option::as_ref);
    if body.opcode == Opcode::OST_READ {
        let mut left = body.status as usize;
        for part in 0..count {
            let needed = left.min(LNET_PAYLOAD_BYTES_MAX);
            if needed > 0 && came(part).is_none_or(|bytes| bytes.len() < needed) {
                return false;
            }
            left -= needed;
        }
        return true;
    }
    for part in 0..count {
        let Some(bytes) = came(part) else { return false };
        if bytes.len() < (length - part * LNET_PAYLOAD_BYTES_MAX).min(LNET_PAYLOAD_BYTES_MAX) {
            return true;
        }
    }
    true
}
