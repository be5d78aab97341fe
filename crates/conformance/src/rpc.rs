//! What LNet messages mean: requests, replies and their bulk data.
//!
//! A [`Tracker`] remembers requests by who asked and the request's xid, so that replies and bulk
//! data, which do not say what they answer, can be read.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_types::{HashMap, MatchBits, Nid};
use sheen_wire::DecodeError;
use sheen_wire::lnet::{LnetCommand, PING_MATCH_BITS, PingInfo, Portal, WireHandle};
use sheen_wire::messages::{Format, FormatFlags, Reply, Request, TABLE, find_format};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{Message, MsgType, PtlrpcBody};

use crate::session::LnetMessage;

/// Match bits that one bulk may span: a part has one megabyte, and Lustre offers 64 at most.
const BULK_PARTS_MAX: u64 = 64;

/// A request or reply.
#[derive(Clone, Debug)]
pub struct Rpc<T> {
    /// Header and buffers.
    pub message: Message,
    /// The body.
    pub body: PtlrpcBody,
    /// The table's entry.
    pub format: &'static Format,
    /// The typed buffers behind the body.
    pub typed: T,
}

/// What an LNet message means.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A request.
    Request(Box<Rpc<Request>>),
    /// A reply.
    Reply(Box<Rpc<Reply>>),
    /// Data of a request, or of an unknown one if it was sent before the capture.
    Bulk(Option<&'static Format>, Bytes),
    /// The offer or demand of data; the data come in another message.
    Get(Option<&'static Format>),
    /// The answer to a ping, or an unasked one.
    Ping(PingInfo),
    /// A question for a [`Meaning::Ping`].
    PingRequest,
    /// LNet's own acknowledgement.
    Ack,
    /// A reply to a request from before the capture: readable as far as its body.
    Orphan(Box<Message>, Box<PtlrpcBody>),
    /// A message that our structures do not describe.
    Unknown(&'static str, DecodeError),
}

/// Remembers what was asked.
#[derive(Debug, Default)]
pub struct Tracker {
    requests: HashMap<(Nid, u64), &'static Format>,
    bulks: BTreeMap<(Nid, u64), &'static Format>,
    gets: HashMap<(Nid, u64, u64), Asked>,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Ping,
    Bulk(Option<&'static Format>),
}

impl Tracker {
    /// Says what `lnet` means. Messages must come in the order in which they were sent.
    pub fn understand(&mut self, lnet: &LnetMessage) -> Meaning {
        let header = &lnet.header;
        match &header.command {
            LnetCommand::Ack(_) => Meaning::Ack,
            LnetCommand::Hello(_) => Meaning::Unknown(
                "LNet HELLO",
                DecodeError::Illegal { what: "lnet_msg_type", value: 4 },
            ),
            LnetCommand::Put(put) => match put.portal {
                Portal::RESERVED if put.match_bits == PING_MATCH_BITS => ping(lnet),
                Portal::OST_BULK | Portal::MDS_BULK | Portal::MGS_BULK => {
                    let format = self.bulk(header.destination, put.match_bits);
                    Meaning::Bulk(format, lnet.payload.clone())
                }
                _ => self.rpc(lnet),
            },
            LnetCommand::Get(get) => {
                let handle = handle_key(header.source, &get.reply_handle);
                if get.portal == Portal::RESERVED {
                    self.gets.insert(handle, Asked::Ping);
                    return Meaning::PingRequest;
                }
                let format = self.bulk(header.destination, get.match_bits);
                self.gets.insert(handle, Asked::Bulk(format));
                Meaning::Get(format)
            }
            LnetCommand::Reply(reply) => {
                match self.gets.remove(&handle_key(header.destination, &reply.handle)) {
                    Some(Asked::Ping) => ping(lnet),
                    Some(Asked::Bulk(format)) => Meaning::Bulk(format, lnet.payload.clone()),
                    None => Meaning::Bulk(None, lnet.payload.clone()),
                }
            }
        }
    }

    /// The request whose bulk has these match bits; the bits that the request names are its
    /// last part's.
    fn bulk(&self, client: Nid, bits: MatchBits) -> Option<&'static Format> {
        let last = bits.0.saturating_add(BULK_PARTS_MAX);
        self.bulks.range((client, bits.0)..(client, last)).next().map(|(_, format)| *format)
    }

    /// Reads a request or reply; of one that was cut, what is missing counts as zeros.
    fn rpc(&mut self, lnet: &LnetMessage) -> Meaning {
        let mut payload = lnet.payload.clone();
        if lnet.missing > 0 {
            let mut filled = payload.to_vec();
            filled.resize(payload.len() + lnet.missing, 0);
            payload = filled.into();
        }
        let message = match Message::decode(&payload) {
            Ok(message) => message,
            Err(error) => return Meaning::Unknown("message", error),
        };
        let body = match message.body() {
            Ok(body) => body,
            Err(error) => return Meaning::Unknown("ptlrpc_body", error),
        };
        match body.kind {
            MsgType::REQUEST => self.request(lnet, message, body),
            _ => self.reply(lnet, message, body),
        }
    }

    fn request(&mut self, lnet: &LnetMessage, message: Message, body: PtlrpcBody) -> Meaning {
        let client = lnet.header.source;
        let xid = match_bits(lnet);
        let Some(format) = find_format(body.opcode, &message) else {
            let value = body.opcode.0.into();
            return Meaning::Unknown("opcode", DecodeError::Illegal { what: "pb_opc", value });
        };
        self.requests.insert((client, xid), format);
        if format.flags.intersects(FormatFlags::BULK_READ | FormatFlags::BULK_WRITE) {
            let bits = if body.match_bits.0 == 0 { xid } else { body.match_bits.0 };
            self.bulks.insert((client, bits), format);
        }
        match Request::decode(body.opcode, &message) {
            Ok(typed) => Meaning::Request(Box::new(Rpc { message, body, format, typed })),
            Err(error) => Meaning::Unknown(format.name, error),
        }
    }

    fn reply(&mut self, lnet: &LnetMessage, message: Message, body: PtlrpcBody) -> Meaning {
        let client = lnet.header.destination;
        let known = self.requests.get(&(client, match_bits(lnet))).copied();
        let Some(format) = known.or_else(|| only_format(body.opcode)) else {
            return Meaning::Orphan(Box::new(message), Box::new(body));
        };
        match Reply::decode(format.kind, &message) {
            Ok(typed) => Meaning::Reply(Box::new(Rpc { message, body, format, typed })),
            Err(error) => Meaning::Unknown(format.name, error),
        }
    }
}

/// The format of an opcode that has but one.
fn only_format(opcode: Opcode) -> Option<&'static Format> {
    let mut formats = TABLE.iter().filter(|format| format.opcode == opcode);
    formats.next().filter(|_| formats.next().is_none())
}

/// The match bits of a PUT: the request's xid, in requests and in replies.
#[must_use]
pub fn match_bits(lnet: &LnetMessage) -> u64 {
    match &lnet.header.command {
        LnetCommand::Put(put) => put.match_bits.0,
        LnetCommand::Get(get) => get.match_bits.0,
        LnetCommand::Ack(ack) => ack.match_bits.0,
        LnetCommand::Reply(_) | LnetCommand::Hello(_) => 0,
    }
}

fn handle_key(owner: Nid, handle: &WireHandle) -> (Nid, u64, u64) {
    (owner, handle.interface, handle.object)
}

fn ping(lnet: &LnetMessage) -> Meaning {
    match PingInfo::decode(&lnet.payload) {
        Ok(info) => Meaning::Ping(info),
        Err(error) => Meaning::Unknown("lnet_ping_info", error),
    }
}
