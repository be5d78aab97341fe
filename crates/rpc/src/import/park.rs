//! Connections that are not there on purpose: unused ones, and those that operators do without.
//!
//! An unused connection is given up with a disconnect, once the owner says that it holds nothing there:
//! no lock, and hence nothing cached. Nothing is kept for replay then, so that the next request finds the
//! target as a new client does (Lustre's IDLE). One that operators turn off ends in the same way, but what
//! the owner has is lost, as with an eviction.
//!
//! What always holds: while a disconnect of ours may be on its way no other connection is made, and calls
//! wait.

use std::time::Duration;

use sheen_types::{Errno, Instant, ObdHandle};

use super::flight::{Flight, Owner};
use super::kept::KeptRequests;
use super::{Action, Engine};
use crate::channel::{Call, RpcError};
use crate::limits;
use crate::state::ImportState;

/// What decides whether there is to be a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// How long an unused one is kept; for ever if zero.
    pub(super) idle_timeout: Duration,
    /// When a caller asked for anything last, or the owner said that it needs the connection.
    used_at: Instant,
    /// Whether a lost one is made again though no caller asks for anything (Lustre's `pinger_recov`).
    pub(super) auto_reconnects: bool,
    /// Whether there is to be one at all.
    pub(super) active: bool,
    /// The disconnect is on its way.
    parking: bool,
    /// A connection that was given up is made again.
    waking: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::ZERO,
            used_at: Instant(0),
            auto_reconnects: true,
            active: true,
            parking: false,
            waking: false,
        }
    }
}

impl Engine {
    /// A caller asks for something.
    pub(super) fn use_now(&mut self, now: Instant) {
        self.policy.used_at = now;
    }

    /// When the owner is to be asked whether it needs the connection.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        let may = !self.policy.idle_timeout.is_zero()
            && self.state == ImportState::Full
            && !self.is_reverse();
        may.then(|| self.policy.used_at + self.policy.idle_timeout)
    }

    pub(super) fn ask_unused(&mut self, now: Instant, actions: &mut Vec<Action>) {
        // Asked again as late, unless it goes.
        self.policy.used_at = now;
        if self.is_unburdened() {
            actions.push(Action::AskUnused(self.connection));
        } else {
            // The answer to a ping reports what is durable.
            self.next_ping = self.next_ping.min(now + limits::SCAN_INTERVAL);
        }
    }

    /// Whether nothing is under way, waits, or would have to be replayed.
    fn is_unburdened(&self) -> bool {
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
        let is_this = self.state == ImportState::Full && connection == self.connection;
        if is_so && is_this && self.is_unburdened() && !self.policy.idle_timeout.is_zero() {
            self.park(now, actions);
        }
    }

    /// Says good-bye.
    fn park(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.policy.parking = true;
        let request = self.disconnect_request();
        self.enter(now, ImportState::Connecting, actions);
        self.launch(now, Flight::new(Owner::Park, Call::new(request)), actions);
        self.forget_target();
    }

    /// From here on the target is as one that never knew us.
    pub(super) fn forget_target(&mut self) {
        self.remote = ObdHandle(0);
        self.used = false;
    }

    /// The target has answered the good-bye, or will not.
    pub(super) fn parked(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.policy.parking = false;
        let state = if self.policy.active { ImportState::Idle } else { ImportState::Disconn };
        self.enter(now, state, actions);
        if self.has_callers() {
            self.wake(now, actions);
        }
    }

    /// A caller asks for something while there is no connection: if none is being made, one is.
    pub(super) fn wake(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let rests = match self.state {
            ImportState::Idle => true,
            ImportState::Disconn => self.wanted && self.next_connect.is_none(),
            _ => false,
        };
        if rests && self.policy.active {
            self.wanted = true;
            self.policy.waking = self.state == ImportState::Idle;
            self.connect(now, actions);
        }
    }

    /// The try to connect has ended.
    pub(super) fn tried_to_connect(&mut self) {
        self.policy.waking = false;
    }

    /// Whether a good-bye is on its way.
    pub(super) fn is_parking(&self) -> bool {
        self.policy.parking
    }

    /// Whether a lost connection is to be made again now.
    pub(super) fn seeks_connection(&self) -> bool {
        self.wanted && self.policy.active && (self.policy.auto_reconnects || self.has_callers())
    }

    pub(super) fn limit_idleness(
        &mut self,
        now: Instant,
        time: Duration,
        actions: &mut Vec<Action>,
    ) {
        self.policy.idle_timeout = time;
        self.use_now(now);
        if time.is_zero() {
            self.wake(now, actions);
        }
    }

    pub(super) fn set_auto_reconnect(&mut self, now: Instant, on: bool, actions: &mut Vec<Action>) {
        self.policy.auto_reconnects = on;
        if on && self.state == ImportState::Disconn {
            self.wake(now, actions);
        }
    }

    /// Operators want the import to be used, or not.
    pub(super) fn activate(&mut self, now: Instant, on: bool, actions: &mut Vec<Action>) {
        if self.policy.active == on || self.is_reverse() || self.state == ImportState::Closed {
            return;
        }
        self.policy.active = on;
        if on {
            self.denied = None;
            self.tries = 0;
            self.wanted = true;
            // Otherwise once the good-bye is answered.
            if !self.policy.parking {
                self.connect(now, actions);
            }
            return;
        }
        let error = RpcError::Errno(Errno::EIO);
        self.next_connect = None;
        self.denied = Some(error.clone());
        let parking = std::mem::take(&mut self.policy.parking);
        self.fail_all(&error, actions);
        self.lose_all();
        actions.push(Action::Invalidate);
        if self.state == ImportState::Full && !parking {
            self.park(now, actions);
        } else {
            self.forget_target();
            self.enter(now, ImportState::Disconn, actions);
        }
        for key in self.waiting.connects.drain(..) {
            actions.push(Action::Settled(key, Err(error.clone())));
        }
    }

    /// What would have been replayed is not.
    pub(super) fn lose_all(&mut self) {
        self.kept = KeptRequests::default();
        self.slots.clear();
        self.used = false;
    }

    /// Whether calls of all kinds wait for a connection that is given up or made on purpose.
    pub(super) fn is_resting(&self) -> bool {
        self.state == ImportState::Idle || self.policy.parking || self.policy.waking
    }
}
