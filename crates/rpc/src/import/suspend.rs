//! Connections that are not there on purpose: unused ones, and those that operators do without.
//!
//! To suspend is to disconnect for a while. An unused connection is given up so, once the owner says that it holds nothing there:
//! no lock, and hence nothing cached. Nothing is kept for replay then, so that the next request finds the
//! target as a new client does (Lustre's IDLE). One that operators turn off ends in the same way, but what
//! the owner has is lost, as with an eviction.
//!
//! What always holds: while a disconnect of ours may be on its way no other connection is made, and calls
//! wait.

use std::time::Duration;

use sheen_types::{Errno, Instant};

use super::flight::{Flight, FlightOwner};
use super::kept::KeptRequests;
use super::state::{Connecting, Disconn, EngineState};
use super::{Action, Engine};
use crate::channel::{Call, RpcError};
use crate::limits;

/// What calls end with while operators have the import deactivated.
const DEACTIVATED: RpcError = RpcError::Errno(Errno::EIO);

/// What decides whether there is to be a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionPolicy {
    /// How long an unused one is kept; for ever if zero.
    pub(super) idle_timeout: Duration,
    /// Whether a lost one is made again though no caller asks for anything (Lustre's `pinger_recov`).
    pub(super) auto_reconnects: bool,
    /// Whether there is to be one at all.
    pub(super) active: bool,
}

impl Default for ConnectionPolicy {
    fn default() -> Self {
        Self { idle_timeout: Duration::ZERO, auto_reconnects: true, active: true }
    }
}

impl Engine {
    /// A caller asks for something.
    pub(super) fn note_use(&mut self, now: Instant) {
        if let EngineState::Full(full) = &mut self.state {
            full.used_at = now;
        }
    }

    /// When the owner is to be asked whether it needs the connection.
    pub(super) fn idle_deadline(&self) -> Option<Instant> {
        let EngineState::Full(full) = &self.state else { return None };
        let may = !self.policy.idle_timeout.is_zero() && !self.is_reverse();
        may.then(|| full.used_at + self.policy.idle_timeout)
    }

    pub(super) fn ask_unused(&mut self, now: Instant, actions: &mut Vec<Action>) {
        // Asked again as late, unless it goes.
        self.note_use(now);
        if self.is_drained() {
            actions.push(Action::AskUnused(self.connects.connection));
        } else {
            // The answer to a ping reports what is durable.
            self.ping_by(now + limits::SCAN_INTERVAL);
        }
    }

    /// Whether nothing is under way, waits, or would have to be replayed.
    fn is_drained(&self) -> bool {
        self.flights.is_empty() && !self.has_callers() && self.kept.is_empty()
    }

    fn has_callers(&self) -> bool {
        !self.waiting.is_empty() || !self.flights.by_key.is_empty()
    }

    pub(super) fn unused(
        &mut self,
        now: Instant,
        connection: u32,
        is_so: bool,
        actions: &mut Vec<Action>,
    ) {
        let is_this = self.state.is_full() && connection == self.connects.connection;
        if is_so && is_this && self.is_drained() && !self.policy.idle_timeout.is_zero() {
            self.suspend(now, actions);
        }
    }

    /// Disconnects for a while.
    fn suspend(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let request = self.disconnect_request();
        self.enter(now, EngineState::Connecting(Connecting::Suspending), actions);
        self.start_flight(now, Flight::new(FlightOwner::Suspend, Call::new(request)), actions);
        self.negotiated.forget_target();
    }

    /// The target has answered that disconnect, or will not.
    pub(super) fn suspended(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let state = match self.refusal() {
            Some(error) => EngineState::Disconn(Disconn::Denied(error)),
            None => EngineState::Idle,
        };
        self.enter(now, state, actions);
        if self.has_callers() {
            self.wake(now, actions);
        }
    }

    /// A caller asks for something while there is no connection: if none is being made, one is.
    pub(super) fn wake(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_idle = matches!(self.state, EngineState::Idle);
        if self.policy.active && (is_idle || self.state.awaits_caller()) {
            self.connects.waking = is_idle;
            self.connect(now, actions);
        }
    }

    /// Whether a lost connection is to be made again now.
    pub(super) fn should_reconnect(&self) -> bool {
        self.policy.active && (self.policy.auto_reconnects || self.has_callers())
    }

    /// What calls end with, if none are let in.
    pub(super) fn refusal(&self) -> Option<RpcError> {
        match &self.state {
            EngineState::Disconn(Disconn::Denied(error)) => Some(error.clone()),
            _ if !self.policy.active => Some(DEACTIVATED),
            _ => None,
        }
    }

    pub(super) fn limit_idleness(
        &mut self,
        now: Instant,
        time: Duration,
        actions: &mut Vec<Action>,
    ) {
        self.policy.idle_timeout = time;
        self.note_use(now);
        if time.is_zero() {
            self.wake(now, actions);
        }
    }

    pub(super) fn set_auto_reconnect(&mut self, now: Instant, on: bool, actions: &mut Vec<Action>) {
        self.policy.auto_reconnects = on;
        if on && matches!(self.state, EngineState::Disconn(_)) {
            self.wake(now, actions);
        }
    }

    /// Operators want the import to be used, or not.
    pub(super) fn activate(&mut self, now: Instant, on: bool, actions: &mut Vec<Action>) {
        if self.policy.active == on || self.is_reverse() || self.state.is_over() {
            return;
        }
        self.policy.active = on;
        if on {
            self.connects.tries = 0;
            // While the good-bye is on its way, nothing: callers are looked for once it is answered.
            self.connect(now, actions);
        } else {
            self.deactivate(now, actions);
        }
    }

    fn deactivate(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.fail_all(&DEACTIVATED, actions);
        self.discard_replays();
        actions.push(Action::VoidAll);
        if self.state.is_full() {
            self.suspend(now, actions);
        } else {
            self.negotiated.forget_target();
            self.enter(now, EngineState::Disconn(Disconn::Denied(DEACTIVATED)), actions);
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(DEACTIVATED)));
        }
    }

    /// Discards what would have been replayed.
    pub(super) fn discard_replays(&mut self) {
        self.kept = KeptRequests::default();
        self.slots.clear();
        self.negotiated.has_state_there = false;
    }

    /// Whether calls of all kinds wait, for a connection that is given up or made on purpose.
    pub(super) fn queues_all_calls(&self) -> bool {
        matches!(self.state, EngineState::Idle)
            || self.state.is_suspending()
            || self.connects.waking
    }
}
