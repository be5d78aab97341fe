//! A request on its way, and all of them; those that wait to be sent.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sheen_types::{HashMap, Instant, MatchBits, Transno, Xid};
use sheen_wire::messages::Reply;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::PtlrpcBody;

use super::Action;
use crate::channel::{Call, CallKind};
use crate::limits;

/// What gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightOwner {
    /// A call, by the node's key.
    Caller(u64),
    /// The state machine, to connect.
    Connect,
    /// The state machine, to see whether the target is there.
    Ping,
    /// Replay of the request with this transaction; `again` if the target may have seen one.
    Replay { transno: Transno, again: bool },
    /// The state machine: the last message of recovery, which says that all is replayed and is answered when the recovery of the target is over.
    FinalPing,
    /// The caller that closes the import.
    Disconnect,
    /// The state machine, to give up the connection for a while.
    Suspend,
}

/// Where a flight stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Sent; no answer yet, or its bulk is missing.
    Sent,
    /// To be sent again when the connection is back.
    Resend,
    /// To be sent again then: the target was busy.
    Delayed(Instant),
}

/// A request that has an xid.
pub(super) struct Flight {
    pub(super) owner: FlightOwner,
    pub(super) call: Call,
    pub(super) phase: Phase,
    /// Slot of a modifying request.
    pub(super) tag: u16,
    /// Its caller has given it up, and it is not sent again ([`Call::ends_with_caller`]).
    pub(super) has_ended: bool,
    /// Whether it counts against the requests in flight.
    pub(super) counted: bool,
    pub(super) is_lock_replay: bool,
    /// Tries before this one under the same xid.
    pub(super) tries: u32,
    /// How often the target was busy.
    pub(super) busy: u32,
    /// Match bits of the last part of its bulk, in this try.
    pub(super) bits: MatchBits,
    /// Match bits of its reply, in this try.
    pub(super) reply_bits: MatchBits,
    /// Whether early replies may come.
    pub(super) early: bool,
    /// Seconds we gave the target.
    pub(super) timeout: u32,
    pub(super) sent: Instant,
    pub(super) deadline: Instant,
    /// The answer, while bulk is missing.
    pub(super) answer: Option<Box<(PtlrpcBody, Reply)>>,
    /// Parts of the sink that came.
    pub(super) parts: Vec<Option<Bytes>>,
}

impl Flight {
    pub(super) fn new(owner: FlightOwner, call: Call) -> Self {
        Self {
            owner,
            call,
            phase: Phase::Sent,
            tag: 0,
            has_ended: false,
            counted: false,
            is_lock_replay: false,
            tries: 0,
            busy: 0,
            bits: MatchBits(0),
            reply_bits: MatchBits(0),
            early: false,
            timeout: 0,
            sent: Instant(0),
            deadline: Instant(0),
            answer: None,
            parts: Vec::new(),
        }
    }

    /// Whether it waits for the next connection when this one breaks.
    pub(super) fn survives_disconnect(&self) -> bool {
        matches!(self.owner, FlightOwner::Caller(_))
            && matches!(
                self.call.kind,
                CallKind::Normal | CallKind::Modifying | CallKind::Idempotent
            )
    }
}

/// Requests by xid, from their first sending to their end.
pub(super) struct Flights {
    pub(super) by_xid: BTreeMap<Xid, Flight>,
    /// Xids of those that callers wait for, by the node's key.
    pub(super) by_key: HashMap<u64, Xid>,
    /// How many count against the limit.
    pub(super) counted: usize,
    pub(super) counted_max: usize,
    /// When deadlines are looked at next.
    pub(super) next_scan: Instant,
}

impl Flights {
    pub(super) fn new(now: Instant, counted_max: usize) -> Self {
        Self {
            by_xid: BTreeMap::new(),
            by_key: HashMap::default(),
            counted: 0,
            counted_max,
            next_scan: now,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_xid.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_xid.is_empty()
    }

    pub(super) fn get(&self, xid: Xid) -> Option<&Flight> {
        self.by_xid.get(&xid)
    }

    pub(super) fn get_mut(&mut self, xid: Xid) -> Option<&mut Flight> {
        self.by_xid.get_mut(&xid)
    }

    /// Xids of those that match.
    pub(super) fn xids(&self, matches: impl Fn(&Flight) -> bool) -> Vec<Xid> {
        let all = self.by_xid.iter().filter(|(_, flight)| matches(flight));
        all.map(|(xid, _)| *xid).collect()
    }

    /// Below this xid all replies have come.
    pub(super) fn known_replied(&self) -> Xid {
        self.by_xid.first_key_value().map_or(Xid(0), |(xid, _)| Xid(xid.0 - 1))
    }

    /// The request that a message under these bits belongs to.
    pub(super) fn find(&self, bits: MatchBits) -> Option<Xid> {
        let base = Xid(limits::base_of(bits.0));
        if self.by_xid.contains_key(&base) {
            return Some(base);
        }
        // A request that was sent again has bits of its own; there are few of those.
        let mut all = self.by_xid.iter();
        let found = all.find(|(_, flight)| limits::base_of(flight.bits.0) == base.0);
        found.map(|(xid, _)| *xid)
    }
}

/// What waits to be sent, by the node's keys.
#[derive(Default)]
pub(super) struct Waiting {
    /// For the import to become FULL.
    pub(super) connects: Vec<u64>,
    /// For nothing else.
    pub(super) uncounted: VecDeque<(u64, Box<Call>)>,
    /// For a place among the requests in flight.
    pub(super) calls: VecDeque<(u64, Box<Call>)>,
    /// For a slot.
    pub(super) modifying: VecDeque<(u64, Box<Call>)>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.connects.is_empty() && self.calls() == 0
    }

    /// How many calls.
    pub(super) fn calls(&self) -> usize {
        self.uncounted.len() + self.calls.len() + self.modifying.len()
    }

    /// Gives up a call.
    pub(super) fn remove(&mut self, key: u64) {
        self.uncounted.retain(|(waiting, _)| *waiting != key);
        self.calls.retain(|(waiting, _)| *waiting != key);
        self.modifying.retain(|(waiting, _)| *waiting != key);
    }

    /// The keys of all calls, which do not wait any more.
    pub(super) fn drain_calls(&mut self) -> impl Iterator<Item = u64> {
        let uncounted = self.uncounted.drain(..);
        let counted = self.calls.drain(..).chain(self.modifying.drain(..));
        uncounted.chain(counted).map(|(key, _)| key)
    }

    /// Where the first close is among the modifying calls.
    pub(super) fn first_close(&self) -> Option<usize> {
        let mut calls = self.modifying.iter();
        calls.position(|(_, call)| call.request.format().opcode == Opcode::MDS_CLOSE)
    }
}

pub(super) fn forget(xid: Xid, flight: &Flight, actions: &mut Vec<Action>) {
    let base = MatchBits(limits::base_of(flight.bits.0));
    actions.push(Action::Forget(base));
    if base.0 != xid.0 {
        actions.push(Action::Forget(MatchBits(xid.0)));
    }
}
