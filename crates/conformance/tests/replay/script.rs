//! What a client and its servers said in a capture, as a script to play again.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use sheen_conformance::pcap::packets;
use sheen_conformance::rpc::{Meaning, Rpc, Tracker, match_bits};
use sheen_conformance::session::{Event, LnetMessage, Said, events};
use sheen_types::{HashMap, HashSet, Nid};
use sheen_wire::lnet::{LnetCommand, Portal};
use sheen_wire::messages::{Reply, Request};

use crate::common::server_nid;
use crate::outages;
use crate::player::TargetId;

/// A request with all that belongs to it.
pub(crate) struct Exchange {
    /// The request.
    pub(crate) request: Box<Rpc<Request>>,
    /// Where it went.
    pub(crate) portal: Portal,
    /// The match bits it was sent with.
    pub(crate) bits: u64,
    /// The answer, and how it was sent; none if the capture ends first.
    pub(crate) reply: Option<(Box<Rpc<Reply>>, Sent)>,
    /// Bulk data, by match bits, in the order sent.
    pub(crate) bulk: Vec<(u64, Bytes)>,
    /// How long the answer took.
    pub(crate) took: Duration,
    /// When it was sent.
    pub(crate) sent: Duration,
    /// The number of the packet.
    pub(crate) packet: usize,
    /// Capture and packet.
    pub(crate) place: String,
    /// Whether a part of it, or of its data, was not captured.
    pub(crate) is_cut: bool,
    /// Whether it is a part of a batch: see [`crate::answering`].
    pub(crate) is_part: bool,
    /// Of which of a node's mounts, if that matters.
    pub(crate) mount: Option<usize>,
}

/// How a message was addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) portal: Portal,
    pub(crate) offset: u32,
}

/// One move in the order of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client sends this request.
    Send(usize),
    /// The answer to this request arrives.
    Answer(usize),
    /// What the target does from here on will be lost when it stops.
    Remember(TargetId),
    /// The target stops, as the client with this handle finds.
    Stop(TargetId, u64),
    /// It starts, and the client with this handle connects.
    Start(TargetId, u64),
    /// The client with this handle is evicted.
    Evict(TargetId, u64),
}

/// A whole capture.
#[derive(Default)]
pub(crate) struct Script {
    /// What the client asked.
    pub(crate) exchanges: Vec<Exchange>,
    /// The order.
    pub(crate) steps: Vec<Step>,
    /// What the client answered when a server asked what it knew under a lock, by the client's
    /// handle of the lock.
    pub(crate) glimpses: HashMap<u64, VecDeque<Bytes>>,
    /// What servers said when a lock that had waited was granted, by the client's handle of it.
    /// Behind how many requests that was comes with it.
    pub(crate) completions: HashMap<u64, (usize, Box<Rpc<Request>>)>,
    /// Locks that servers revoked: behind how many requests, and the call.
    pub(crate) revoked: Vec<(usize, Box<Rpc<Request>>)>,
    /// Whether all locks are revoked that were, so that a lock waits for those in front of it.
    pub(crate) revokes: bool,
    /// Clients, by their handles, that connect again to a target that has started or has evicted them.
    pub(crate) returning: HashSet<(TargetId, u64)>,
}

impl Script {
    /// Goes on as another capture does.
    pub(crate) fn add(&mut self, next: Self) {
        let before = self.exchanges.len();
        self.exchanges.extend(next.exchanges);
        let completions = next.completions.into_iter();
        let moved = completions.map(|(lock, (at, call))| (lock, (before + at, call)));
        self.completions.extend(moved);
        self.revoked.extend(next.revoked.into_iter().map(|(at, call)| (before + at, call)));
    }

    pub(crate) fn put_before(&mut self, place: Step, steps: Vec<Step>) {
        let at = self.steps.iter().position(|step| *step == place).unwrap_or(0);
        self.steps.splice(at..at, steps);
    }

    pub(crate) fn put_behind(&mut self, place: Step, new: Step) {
        let at = self.steps.iter().position(|step| *step == place);
        self.steps.insert(at.map_or(0, |at| at + 1), new);
    }
}

/// Reads the script of all clients from a capture.
pub(crate) fn read(path: &Path) -> Script {
    let file = std::fs::read(path).expect("a capture").into();
    let packets = packets(&file).expect("a capture");
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut reader = Reading { name, ..Reading::default() };
    for event in events(&packets) {
        if let Said::Message(lnet) = &event.what {
            let meaning = reader.tracker.understand(lnet);
            reader.message(&event, lnet, meaning);
        }
    }
    outages::insert(&mut reader.script);
    reader.script
}

#[derive(Default)]
struct Reading {
    name: String,
    tracker: Tracker,
    script: Script,
    by_xid: HashMap<(Nid, u64), usize>,
    by_bulk: HashMap<(Nid, u64), usize>,
    /// Glimpses under way: the client's handles of the locks.
    asked: HashMap<u64, u64>,
    /// GETs of servers: what the client will send, by the handle the answer names.
    gets: HashMap<(u64, u64), u64>,
}

impl Reading {
    fn message(&mut self, event: &Event, lnet: &LnetMessage, meaning: Meaning) {
        let bits = match_bits(lnet);
        let (source, destination) = (lnet.header.source, lnet.header.destination);
        match (&lnet.header.command, meaning) {
            (LnetCommand::Put(put), Meaning::Request(request)) if source != server_nid() => {
                let bulk = match request.body.match_bits.0 {
                    0 => bits,
                    bulk => bulk,
                };
                let index = self.script.exchanges.len();
                self.by_xid.insert((source, bits), index);
                // Where the answer comes, if that was agreed at connect.
                self.by_xid.insert((source, bulk), index);
                self.by_bulk.insert((source, bulk), index);
                self.script.steps.push(Step::Send(index));
                self.script.exchanges.push(Exchange {
                    request,
                    portal: put.portal,
                    bits,
                    reply: None,
                    bulk: Vec::new(),
                    took: Duration::ZERO,
                    sent: event.time,
                    packet: event.packet + 1,
                    place: format!("{}, packet {}", self.name, event.packet + 1),
                    is_cut: lnet.missing > 0,
                    is_part: false,
                    mount: None,
                });
            }
            (LnetCommand::Put(put), Meaning::Reply(reply)) if destination != server_nid() => {
                let Some(index) = self.by_xid.get(&(destination, bits)) else { return };
                let sent = Sent { portal: put.portal, offset: put.offset };
                let exchange = &mut self.script.exchanges[*index];
                exchange.is_cut |= lnet.missing > 0;
                exchange.took = event.time.saturating_sub(exchange.sent);
                exchange.reply = Some((reply, sent));
                self.script.steps.push(Step::Answer(*index));
            }
            (LnetCommand::Put(_), Meaning::Request(request)) => self.callback(bits, request),
            (LnetCommand::Put(_), Meaning::Reply(_)) => {
                if let Some(lock) = self.asked.remove(&bits) {
                    let answers = self.script.glimpses.entry(lock).or_default();
                    answers.push_back(lnet.payload.clone());
                }
            }
            (LnetCommand::Get(get), _) => {
                let handle = (get.reply_handle.interface, get.reply_handle.object);
                self.gets.insert(handle, bits);
            }
            (LnetCommand::Reply(reply), Meaning::Bulk(_, data)) => {
                let handle = (reply.handle.interface, reply.handle.object);
                if let Some(bits) = self.gets.get(&handle).copied() {
                    self.bulk((source, bits), data, lnet.missing);
                }
            }
            (LnetCommand::Put(_), Meaning::Bulk(_, data)) => {
                self.bulk((destination, bits), data, lnet.missing);
            }
            _ => {}
        }
    }

    /// A server calls.
    fn callback(&mut self, bits: u64, request: Box<Rpc<Request>>) {
        match &request.typed {
            Request::LdlmGlCallback(call) => {
                if let Some(lock) = call.dlm_req.handles.first() {
                    self.asked.insert(bits, lock.0);
                }
            }
            Request::LdlmCpCallback(call) => {
                if let Some(lock) = call.dlm_req.handles.first() {
                    let behind = self.script.exchanges.len();
                    self.script.completions.insert(lock.0, (behind, request));
                }
            }
            Request::LdlmBlCallback(_) => {
                self.script.revoked.push((self.script.exchanges.len(), request));
            }
            _ => {}
        }
    }

    /// The bits of a part are at most 63 below those that the request names.
    fn bulk(&mut self, (client, bits): (Nid, u64), data: Bytes, missing: usize) {
        let index = (bits..bits + 64).find_map(|bits| self.by_bulk.get(&(client, bits)));
        if let Some(index) = index {
            let exchange = &mut self.script.exchanges[*index];
            exchange.is_cut |= missing > 0;
            exchange.bulk.push((bits, data));
        }
    }
}
