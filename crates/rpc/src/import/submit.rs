//! Calls from their submission to their end: limits, sending, deadlines, the end of a connection.

use sheen_types::{Instant, Xid};
use sheen_wire::messages::ObdPing;
use sheen_wire::opcode::Opcode;

use super::flight::{Flight, FlightOwner, Phase, forget};
use super::state::EngineState;
use super::{Action, Engine, ImportKind};
use crate::adaptive::timeout_of;
use crate::channel::{Answer, Call, CallKind, RpcError};
use crate::limits;
use crate::portals;
use crate::timing::Time;

/// Whether a call takes one of the places of requests in flight, if it has no slot.
fn is_counted(call: &Call) -> bool {
    !call.is_awaited && !portals::is_exempt(call.request.format().opcode)
}

impl Engine {
    pub(super) fn submit(
        &mut self,
        now: Instant,
        key: u64,
        call: Box<Call>,
        actions: &mut Vec<Action>,
    ) {
        let refusal = match (&self.state, call.kind) {
            (EngineState::Closed, _) => Some(RpcError::Shutdown),
            (EngineState::Full(_), _) => None,
            (state, CallKind::Recovery) if state.shown().is_connected() => {
                self.start(now, key, *call, actions);
                return;
            }
            (_, CallKind::NoDelay) if self.queues_all_calls() => self.refusal(),
            (_, CallKind::NoDelay | CallKind::Recovery) => Some(RpcError::Disconnected),
            _ => self.refusal(),
        };
        if let Some(error) = refusal {
            actions.push(Action::Complete(key, Err(error), None));
            return;
        }
        let opcode = call.request.format().opcode;
        if opcode != Opcode::OBD_PING {
            self.note_use(now);
        }
        match call.kind {
            CallKind::Modifying => self.waiting.modifying.push_back((key, call)),
            _ if !is_counted(&call) => self.waiting.uncounted.push_back((key, call)),
            _ => self.waiting.calls.push_back((key, call)),
        }
        self.wake(now, actions);
        self.pump(now, actions);
    }

    /// Sends what waits, as far as the limits allow.
    pub(super) fn pump(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.state.is_full() {
            let Some((key, call)) = self.waiting.uncounted.pop_front() else { break };
            self.start(now, key, *call, actions);
        }
        while self.state.is_full() && !self.waiting.modifying.is_empty() {
            let Some((tag, (key, call))) = self.next_modifying() else { break };
            self.stats.modifies(self.slots.taken());
            let flight = Flight { tag, ..Flight::new(FlightOwner::Caller(key), *call) };
            self.start_flight(now, flight, actions);
        }
        while self.state.is_full() && self.flights.counted < self.flights.counted_max {
            let Some((key, call)) = self.waiting.calls.pop_front() else { break };
            self.start(now, key, *call, actions);
        }
    }

    /// What may go out of the modifying requests, and in which slot: the first; if there is no slot, the
    /// first close.
    fn next_modifying(&mut self) -> Option<(u16, (u64, Box<Call>))> {
        if self.slots.is_one_free() {
            let tag = self.slots.take()?;
            return self.waiting.modifying.pop_front().map(|first| (tag, first));
        }
        let close = self.waiting.first_close()?;
        let tag = self.slots.take_closing()?;
        self.waiting.modifying.remove(close).map(|call| (tag, call))
    }

    fn start(&mut self, now: Instant, key: u64, call: Call, actions: &mut Vec<Action>) {
        let counted = call.kind != CallKind::Recovery && is_counted(&call);
        let is_lock_replay =
            call.kind == CallKind::Recovery && matches!(self.state, EngineState::ReplayLocks);
        self.flights.counted += usize::from(counted);
        let flight =
            Flight { counted, is_lock_replay, ..Flight::new(FlightOwner::Caller(key), call) };
        self.start_flight(now, flight, actions);
    }

    /// Gives a flight its xid and sends it.
    pub(super) fn start_flight(&mut self, now: Instant, flight: Flight, actions: &mut Vec<Action>) {
        let xid = self.xids.next();
        if let FlightOwner::Caller(key) = flight.owner {
            self.flights.by_key.insert(key, xid);
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
            FlightOwner::Connect => self.timing.connect_timeout(),
            FlightOwner::Disconnect | FlightOwner::Suspend => {
                limits::DISCONNECT_TIMEOUT.as_secs() as u32
            }
            _ if self.bounds().adapts() => timeout_of(self.service_estimate()),
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
            self.flights.next_scan = now + limits::SCAN_INTERVAL;
        }
        self.flights.by_xid.insert(xid, flight);
        actions.push(Action::Send(Box::new(outgoing)));
    }

    /// Takes a flight out of those under way; nothing that answers it is expected any more.
    pub(super) fn take_flight(&mut self, xid: Xid, actions: &mut Vec<Action>) -> Option<Flight> {
        let flight = self.flights.by_xid.remove(&xid)?;
        if flight.phase == Phase::Sent {
            forget(xid, &flight, actions);
        }
        if let FlightOwner::Caller(key) = flight.owner {
            self.flights.by_key.remove(&key);
            self.flights.counted -= usize::from(flight.counted);
            if flight.call.kind == CallKind::Modifying {
                self.slots.free(flight.tag);
            }
        }
        Some(flight)
    }

    /// Ends a call without an answer.
    pub(super) fn fail(&mut self, xid: Xid, error: RpcError, actions: &mut Vec<Action>) {
        let Some(flight) = self.take_flight(xid, actions) else { return };
        if let FlightOwner::Caller(key) = flight.owner {
            actions.push(Action::Complete(key, Err(error), None));
        }
    }

    /// Ends all calls without an answer.
    pub(super) fn fail_all(&mut self, error: &RpcError, actions: &mut Vec<Action>) {
        for xid in self.flights.xids(|_| true) {
            self.fail(xid, error.clone(), actions);
        }
        for key in self.waiting.drain_calls() {
            actions.push(Action::Complete(key, Err(error.clone()), None));
        }
    }

    /// There was no connection when it was tried: calls that may not wait for another try do not.
    pub(super) fn fail_impatient(&mut self, actions: &mut Vec<Action>) {
        for queue in [&mut self.waiting.uncounted, &mut self.waiting.calls] {
            queue.retain(|(key, call)| {
                let stays = call.kind != CallKind::NoDelay;
                if !stays {
                    actions.push(Action::Complete(*key, Err(RpcError::Disconnected), None));
                }
                stays
            });
        }
    }

    /// The caller lost interest. What was sent and may change the target stays, so that it is kept
    /// for replay and its slot is not given to another while the target may still work on it; but for what ends with its caller,
    /// which stays until it is answered or this connection breaks.
    pub(super) fn give_up(&mut self, now: Instant, key: u64, actions: &mut Vec<Action>) {
        let Some(xid) = self.flights.by_key.get(&key).copied() else {
            self.waiting.remove(key);
            return;
        };
        let Some(flight) = self.flights.get_mut(xid) else { return };
        flight.has_ended = flight.call.ends_with_caller;
        let stays = match flight.phase {
            Phase::Sent => flight.call.kind.may_modify(),
            Phase::Resend | Phase::Delayed(_) => flight.call.kind.may_modify() && !flight.has_ended,
        };
        if !stays {
            self.take_flight(xid, actions);
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
        for xid in self.flights.xids(due) {
            // An expired flight before may have changed everything.
            let Some(flight) = self.flights.get(xid) else { continue };
            match flight.phase {
                Phase::Delayed(_) => self.retry_busy(now, xid, actions),
                Phase::Sent if flight.deadline <= now => self.expire(now, xid, actions),
                Phase::Sent | Phase::Resend => {}
            }
        }
    }

    fn retry_busy(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        if !self.state.is_full() {
            return;
        }
        // A new xid, so that the target does not take it for a resend of what it refused.
        if let Some(flight) = self.flights.by_xid.remove(&xid) {
            self.start_flight(now, Flight { tries: 0, ..flight }, actions);
        }
    }

    fn expire(&mut self, now: Instant, xid: Xid, actions: &mut Vec<Action>) {
        let Some(flight) = self.flights.get(xid) else { return };
        self.stats.counters.timeouts += 1;
        let owner = flight.owner;
        let fails = matches!(owner, FlightOwner::Caller(_))
            && (!flight.survives_disconnect() || self.identity.kind == ImportKind::Reverse);
        if fails {
            self.fail(xid, RpcError::TimedOut, actions);
        }
        match owner {
            FlightOwner::Disconnect => self.close(now, actions),
            FlightOwner::Suspend => {
                self.take_flight(xid, actions);
                self.suspended(now, actions);
            }
            _ if self.identity.kind == ImportKind::Reverse => {}
            FlightOwner::Connect => {
                self.take_flight(xid, actions);
                self.connect_failed(now, actions);
            }
            _ => self.disconnected(now, actions),
        }
    }

    /// The connection broke: what may is sent again on the next, the rest ends.
    pub(super) fn abandon_flights(&mut self, actions: &mut Vec<Action>) {
        for xid in self.flights.xids(|_| true) {
            let Some(flight) = self.flights.get_mut(xid) else { continue };
            let ends = flight.has_ended || !flight.survives_disconnect();
            if self.identity.kind == ImportKind::Reverse || ends {
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
        for xid in self.flights.xids(|flight| flight.phase == Phase::Resend) {
            if let Some(flight) = self.flights.by_xid.remove(&xid) {
                self.stats.counters.resent += 1;
                self.transmit(now, xid, flight, actions);
            }
        }
    }

    pub(super) fn ping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let flight = Flight::new(FlightOwner::Ping, Call::new(ObdPing::default()));
        self.start_flight(now, flight, actions);
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
        let FlightOwner::Caller(key) = flight.owner else { return };
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
