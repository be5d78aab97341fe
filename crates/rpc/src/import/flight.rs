//! Requests on their way: submission, limits, sending, deadlines, the end of a connection.

use bytes::Bytes;
use sheen_types::{Instant, MatchBits, Transno, Xid};
use sheen_wire::messages::{ObdPing, Reply};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::PtlrpcBody;

use super::{Action, Engine, ImportKind};
use crate::adaptive::timeout_of;
use crate::channel::{Answer, Call, CallKind, RpcError};
use crate::limits;
use crate::portals;
use crate::state::ImportState;
use crate::timing::Time;

/// Who wants the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A call, by the node's key.
    Caller(u64),
    /// The state machine, to connect.
    Connect,
    /// The state machine, to see whether the target is there.
    Ping,
    /// Replay of the request with this transaction.
    Replay(Transno),
    /// The state machine, to say that replay is over.
    ReplayDone,
    /// The caller that closes the import, by the node's key.
    Disconnect(u64),
    /// The state machine, to give up the connection for a while.
    Park,
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
    pub(super) owner: Owner,
    pub(super) call: Call,
    pub(super) phase: Phase,
    /// Slot of a modifying request.
    pub(super) tag: u16,
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
    pub(super) fn new(owner: Owner, call: Call) -> Self {
        Self {
            owner,
            call,
            phase: Phase::Sent,
            tag: 0,
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
    fn survives(&self) -> bool {
        matches!(self.owner, Owner::Caller(_))
            && matches!(
                self.call.kind,
                CallKind::Normal | CallKind::Modifying | CallKind::Idempotent
            )
    }
}

impl Engine {
    pub(super) fn submit(
        &mut self,
        now: Instant,
        key: u64,
        call: Box<Call>,
        actions: &mut Vec<Action>,
    ) {
        let refusal = match (self.state, call.kind) {
            (ImportState::Closed, _) => Some(RpcError::Shutdown),
            (ImportState::Full, _) => None,
            (state, CallKind::Recovery) if state.is_connected() => {
                self.start(now, key, *call, actions);
                return;
            }
            (_, CallKind::NoDelay) if self.is_resting() => self.denied.clone(),
            (_, CallKind::NoDelay | CallKind::Recovery) => Some(RpcError::Disconnected),
            _ => self.denied.clone(),
        };
        if let Some(error) = refusal {
            actions.push(Action::Complete(key, Err(error), None));
            return;
        }
        let opcode = call.request.format().opcode;
        if opcode != Opcode::OBD_PING {
            self.use_now(now);
        }
        match call.kind {
            CallKind::Modifying => self.waiting_modifying.push_back((key, call)),
            _ if self.state == ImportState::Full && portals::is_exempt(opcode) => {
                self.start(now, key, *call, actions);
                return;
            }
            _ => self.waiting.push_back((key, call)),
        }
        self.wake(now, actions);
        self.pump(now, actions);
    }

    /// Sends what waits, as far as the limits allow.
    pub(super) fn pump(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.state == ImportState::Full && !self.waiting_modifying.is_empty() {
            let Some((tag, (key, call))) = self.next_modifying() else { break };
            self.stats.modifies(self.slots.taken());
            let flight = Flight { tag, ..Flight::new(Owner::Caller(key), *call) };
            self.launch(now, flight, actions);
        }
        while self.state == ImportState::Full && self.active < self.config.requests_in_flight {
            let Some((key, call)) = self.waiting.pop_front() else { break };
            self.start(now, key, *call, actions);
        }
    }

    /// What may go out of the modifying requests, and in which slot: the first; if there is no slot, the
    /// first close.
    fn next_modifying(&mut self) -> Option<(u16, (u64, Box<Call>))> {
        if self.has_free_slot() {
            let tag = self.slots.take()?;
            return self.waiting_modifying.pop_front().map(|first| (tag, first));
        }
        let is_close =
            |(_, call): &(u64, Box<Call>)| call.request.format().opcode == Opcode::MDS_CLOSE;
        let close = self.waiting_modifying.iter().position(is_close)?;
        let tag = self.slots.take_closing()?;
        self.waiting_modifying.remove(close).map(|call| (tag, call))
    }

    /// Whether one more modifying request may be under way.
    pub(super) fn has_free_slot(&self) -> bool {
        self.slots.taken() < self.slots.count().min(self.modifying_max)
    }

    fn start(&mut self, now: Instant, key: u64, call: Call, actions: &mut Vec<Action>) {
        let opcode = call.request.format().opcode;
        let counted = call.kind != CallKind::Recovery && !portals::is_exempt(opcode);
        let is_lock_replay =
            call.kind == CallKind::Recovery && self.state == ImportState::ReplayLocks;
        self.active += usize::from(counted);
        let flight = Flight { counted, is_lock_replay, ..Flight::new(Owner::Caller(key), call) };
        self.launch(now, flight, actions);
    }

    /// Gives a flight its xid and sends it.
    pub(super) fn launch(&mut self, now: Instant, flight: Flight, actions: &mut Vec<Action>) {
        let xid = self.xids.next();
        if let Owner::Caller(key) = flight.owner {
            self.by_key.insert(key, xid);
        }
        self.transmit(now, xid, flight, actions);
    }

    /// Sends a flight, for the first time or again.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        xid: Xid,
        mut flight: Flight,
        actions: &mut Vec<Action>,
    ) {
        flight.timeout = match flight.owner {
            Owner::Connect => self.timing.connect_timeout(),
            Owner::Disconnect(_) | Owner::Park => limits::DISCONNECT_TIMEOUT.as_secs() as u32,
            _ if self.bounds().adapts() => timeout_of(self.service()),
            _ => self.timing.of(Time::Timeout),
        };
        flight.phase = Phase::Sent;
        flight.sent = now;
        flight.deadline = now + self.estimates.patience(flight.timeout, &self.bounds());
        flight.answer = None;
        flight.parts.clear();
        if let Some(hook) = &flight.call.hook {
            hook.before_send(&mut flight.call.request);
        }
        let outgoing = self.encode(xid, &mut flight);
        self.stats.counters.sent += 1;
        self.stats.last_sent = Some(now);
        self.stats.sent(self.flights.len() + 1);
        self.postpone_ping(now);
        if self.flights.is_empty() {
            self.next_scan = now + limits::SCAN_INTERVAL;
        }
        self.flights.insert(xid, flight);
        actions.push(Action::Send(Box::new(outgoing)));
    }

    /// Takes a flight out; nothing that answers it is expected any more.
    pub(super) fn land(&mut self, xid: Xid, actions: &mut Vec<Action>) -> Option<Flight> {
        let flight = self.flights.remove(&xid)?;
        if flight.phase == Phase::Sent {
            forget(xid, &flight, actions);
        }
        if let Owner::Caller(key) = flight.owner {
            self.by_key.remove(&key);
            self.active -= usize::from(flight.counted);
            if flight.call.kind == CallKind::Modifying {
                self.slots.free(flight.tag);
            }
        }
        Some(flight)
    }

    /// Ends a call without an answer.
    pub(super) fn fail(&mut self, xid: Xid, error: RpcError, actions: &mut Vec<Action>) {
        let Some(flight) = self.land(xid, actions) else { return };
        if let Owner::Caller(key) = flight.owner {
            actions.push(Action::Complete(key, Err(error), None));
        }
    }

    /// Ends all calls without an answer.
    pub(super) fn fail_all(&mut self, error: &RpcError, actions: &mut Vec<Action>) {
        let xids: Vec<Xid> = self.flights.keys().copied().collect();
        for xid in xids {
            self.fail(xid, error.clone(), actions);
        }
        let waiting = self.waiting.drain(..).chain(self.waiting_modifying.drain(..));
        for (key, _) in waiting {
            actions.push(Action::Complete(key, Err(error.clone()), None));
        }
    }

    /// There was no connection when it was tried: calls that may not wait for another try do not.
    pub(super) fn fail_impatient(&mut self, actions: &mut Vec<Action>) {
        let calls = std::mem::take(&mut self.waiting);
        for (key, call) in calls {
            if call.kind == CallKind::NoDelay {
                actions.push(Action::Complete(key, Err(RpcError::Disconnected), None));
            } else {
                self.waiting.push_back((key, call));
            }
        }
    }

    /// The caller lost interest. What was sent and may change the target stays, so that it is kept
    /// for replay and its slot is not given to another while the target may still work on it.
    pub(super) fn give_up(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        let Some(xid) = self.by_key.get(&key).copied() else {
            self.waiting.retain(|(waiting, _)| *waiting != key);
            self.waiting_modifying.retain(|(waiting, _)| *waiting != key);
            return;
        };
        let modifies = |flight: &Flight| flight.call.kind.may_modify();
        if !self.flights.get(&xid).is_some_and(modifies) {
            self.land(xid, actions);
            self.pump(now, actions);
        }
    }

    /// Looks at all deadlines.
    pub(super) fn scan(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let due = |flight: &Flight| match flight.phase {
            Phase::Sent => flight.deadline <= now,
            Phase::Delayed(until) => until <= now,
            Phase::Resend => false,
        };
        let xids: Vec<Xid> =
            self.flights.iter().filter(|(_, flight)| due(flight)).map(|(xid, _)| *xid).collect();
        for xid in xids {
            // An expired flight before may have changed everything.
            let Some(flight) = self.flights.get(&xid) else { continue };
            match flight.phase {
                Phase::Delayed(_) => self.retry_busy(now, xid, actions),
                Phase::Sent if flight.deadline <= now => self.expire(now, xid, actions),
                Phase::Sent | Phase::Resend => {}
            }
        }
    }

    fn retry_busy(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        if self.state != ImportState::Full {
            return;
        }
        // A new xid, so that the target does not take it for a resend of what it refused.
        if let Some(flight) = self.flights.remove(&xid) {
            self.launch(now, Flight { tries: 0, ..flight }, actions);
        }
    }

    fn expire(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        let Some(flight) = self.flights.get(&xid) else { return };
        self.stats.counters.timeouts += 1;
        let owner = flight.owner;
        let fails = matches!(owner, Owner::Caller(_))
            && (!flight.survives() || self.config.kind == ImportKind::Reverse);
        if fails {
            self.fail(xid, RpcError::TimedOut, actions);
        }
        match owner {
            Owner::Disconnect(_) => self.close(now, actions),
            Owner::Park => {
                self.land(xid, actions);
                self.parked(now, actions);
            }
            _ if self.config.kind == ImportKind::Reverse => {}
            Owner::Connect => {
                self.land(xid, actions);
                self.connect_failed(now, actions);
            }
            _ => self.disconnected(now, actions),
        }
    }

    /// The connection broke: what may is sent again on the next, the rest ends.
    pub(super) fn abandon_flights(&mut self, actions: &mut Vec<Action>) {
        let xids: Vec<Xid> = self.flights.keys().copied().collect();
        for xid in xids {
            let Some(flight) = self.flights.get_mut(&xid) else { continue };
            if self.config.kind == ImportKind::Reverse || !flight.survives() {
                self.fail(xid, RpcError::Disconnected, actions);
                continue;
            }
            if flight.phase == Phase::Sent {
                forget(xid, flight, actions);
                flight.tries += 1;
                flight.phase = Phase::Resend;
                flight.answer = None;
                flight.parts.clear();
            }
        }
    }

    /// Sends again what the last connection lost.
    pub(super) fn resend(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let xids: Vec<Xid> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.phase == Phase::Resend)
            .map(|(xid, _)| *xid)
            .collect();
        for xid in xids {
            if let Some(flight) = self.flights.remove(&xid) {
                self.stats.counters.resent += 1;
                self.transmit(now, xid, flight, actions);
            }
        }
    }

    pub(super) fn ping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let flight = Flight::new(Owner::Ping, Call::new(ObdPing::default()));
        self.launch(now, flight, actions);
    }

    /// Ends a call with its answer.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        xid: Xid,
        flight: Flight,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let Owner::Caller(key) = flight.owner else { return };
        let as_answer = flight.call.refusal_as_answer;
        let hook = self.keep(now, xid, flight.tag, flight.call, &answer.body);
        let refused = sheen_types::Errno::from_status(answer.body.status);
        let result = match refused {
            Some(errno) if !as_answer => Err(RpcError::Errno(errno)),
            _ => Ok(answer),
        };
        actions.push(Action::Complete(key, result, hook));
        self.pump(now, actions);
    }
}

pub(super) fn forget(xid: Xid, flight: &Flight, actions: &mut Vec<Action>) {
    let base = MatchBits(limits::base_of(flight.bits.0));
    actions.push(Action::Forget(base));
    if base.0 != xid.0 {
        actions.push(Action::Forget(MatchBits(xid.0)));
    }
}
