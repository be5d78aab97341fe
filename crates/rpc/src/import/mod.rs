//! The client's end of a connection to one target, as a state machine (Lustre's import).
//!
//! Owns the requests of one import from [`Event::Submit`] to [`Action::Complete`], the connection's
//! state, what is kept for replay, the slots of modifying requests, and the timeouts. The node
//! (`sheen_node`'s `NodeImport`) owns clock, network and tasks: it feeds the [`Engine`] events and performs its
//! actions, in their order. Roles see none of this but the traits of `channel`.
//!
//! What means something in one state alone is in that variant of `state::EngineState`; what outlives it is in a struct
//! of its subject: connects, what was negotiated, requests under way and waiting, slots, requests kept, estimates.
//!
//! What always holds:
//! - every submitted call is completed exactly once, unless it was given up;
//! - a modifying request that was sent is sent again, with the same xid and slot, until it is
//!   answered or the target has evicted us; a target that keeps reply data executes it once;
//! - a request whose transaction may be lost is kept, and replayed in order of transactions;
//! - nothing but connects, recovery and disconnects leaves while the state is not FULL, until RECOVER resends what
//!   has no answer: in that same step it becomes FULL.
//!
//! Per request: one tree node, one encoding of the message; the request's structures are moved,
//! into what is kept for replay too, and cloned only for a replay.

mod connect;
mod connects;
mod estimates;
mod events;
mod flight;
mod kept;
mod outgoing;
mod recovery;
mod reply;
mod slots;
mod state;
mod stats;
mod submit;
mod suspend;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sheen_types::{Instant, Nid, ObdHandle, Transno, Uuid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};

pub use crate::import_state::ImportKind;
use crate::import_state::{Counters, ImportState, StateChange};
use crate::limits;
use crate::timing::{Bounds, OwnTimes, Timing};
use crate::xids::Xids;

pub use crate::adaptive::Expected;
pub use events::{Action, Event, Message};
pub use outgoing::{EARLY_REPLY_BYTES, Outgoing, OutgoingBulk};
pub use stats::{Answered, NidTries, Traffic};

use connects::{Connects, Negotiated};
use estimates::Estimates;
use flight::{Flights, Waiting};
use kept::KeptRequests;
use slots::Slots;
use state::{EngineState, Full};
use stats::Stats;
use suspend::ConnectionPolicy;

/// What the engine must know of what an import is to be: a [`crate::ImportConfig`] without its owner, and with a handle.
#[derive(Clone, Debug)]
pub struct Config {
    /// The target.
    pub target: Uuid,
    /// Who we are.
    pub client: Uuid,
    /// Nodes that serve the target, the best first; at least one.
    pub nids: Vec<Nid>,
    /// The target's kind.
    pub kind: ImportKind,
    /// What we offer in a connect.
    pub data: ObdConnectData,
    /// Our handle of this import: the target names it in callbacks. For [`ImportKind::Reverse`], the
    /// client's handle, which it gave in its connect.
    pub handle: ObdHandle,
    /// Requests on the wire at once.
    pub requests_in_flight: usize,
}

/// What an import is, for as long as it lives: also to which MDT, once one has said who it is.
struct Identity {
    target: Uuid,
    client: Uuid,
    kind: ImportKind,
    offered: ObdConnectData,
    handle: ObdHandle,
}

/// An import.
pub struct Engine {
    identity: Identity,
    xids: Arc<Xids>,
    timing: Arc<Timing>,
    own_times: OwnTimes,
    state: EngineState,
    history: VecDeque<StateChange>,
    stats: Stats,
    connects: Connects,
    negotiated: Negotiated,
    /// What decides whether there is to be a connection.
    policy: ConnectionPolicy,
    waiting: Waiting,
    flights: Flights,
    slots: Slots,
    kept: KeptRequests,
    estimates: Estimates,
}

impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} at {}", self.identity.target, self.state(), self.peer())
    }
}

impl Engine {
    /// An import that will connect when asked to; a reverse one is FULL at once.
    #[must_use]
    pub fn new(now: Instant, config: Config, xids: Arc<Xids>, timing: Arc<Timing>) -> Self {
        let reverse = config.kind == ImportKind::Reverse;
        let full = Full { next_ping: now, used_at: now };
        let state = if reverse { EngineState::Full(full) } else { EngineState::New };
        Self {
            negotiated: Negotiated {
                export: if reverse { config.handle } else { ObdHandle(0) },
                data: config.data.clone(),
                has_state_there: false,
            },
            connects: Connects::new(config.nids),
            flights: Flights::new(now, config.requests_in_flight),
            identity: Identity {
                target: config.target,
                client: config.client,
                kind: config.kind,
                offered: config.data,
                handle: config.handle,
            },
            xids,
            timing,
            own_times: OwnTimes::default(),
            history: VecDeque::from([StateChange { at: now, state: state.shown() }]),
            state,
            stats: Stats::default(),
            policy: ConnectionPolicy::default(),
            waiting: Waiting::default(),
            slots: Slots::new(1),
            kept: KeptRequests::default(),
            estimates: Estimates::new(now),
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> ImportState {
        self.state.shown()
    }

    /// What the import leads to.
    #[must_use]
    pub fn kind(&self) -> ImportKind {
        self.identity.kind
    }

    /// Whether it is an MDT's, to another one.
    #[must_use]
    pub fn is_between_mdts(&self) -> bool {
        self.identity.offered.flags.contains(ConnectFlags::MDS_MDS)
    }

    /// Whether the target is another MDT than ours, or has refused us because its objects are those of another MDT.
    #[must_use]
    pub fn has_wrong_identity(&self) -> bool {
        self.connects.has_wrong_identity
    }

    /// Whether the target takes no new clients before its recovery has ended.
    #[must_use]
    pub fn is_refused_in_recovery(&self) -> bool {
        self.connects.refused_in_recovery.is_some()
    }

    /// The states it went through.
    #[must_use]
    pub fn history(&self) -> Vec<StateChange> {
        self.history.iter().copied().collect()
    }

    /// How many requests may be on the wire at once.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.flights.counted_max
    }

    /// What both sides agreed on.
    #[must_use]
    pub fn connect_data(&self) -> &ObdConnectData {
        &self.negotiated.data
    }

    /// The export, as the target knows it.
    #[must_use]
    pub fn export(&self) -> ObdHandle {
        self.negotiated.export
    }

    /// The number of the connection.
    #[must_use]
    pub fn connection(&self) -> u32 {
        self.connects.connection
    }

    /// The node it talks to.
    #[must_use]
    pub fn peer(&self) -> Nid {
        self.connects.peer()
    }

    /// The nodes that serve the target, as far as they are known.
    #[must_use]
    pub fn nids(&self) -> &[Nid] {
        &self.connects.nids
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Uuid {
        &self.identity.target
    }

    /// How far the target's history is durable.
    #[must_use]
    pub fn last_committed(&self) -> Transno {
        self.kept.committed
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            in_flight: self.flights.len() as u64,
            waiting: self.waiting.calls() as u64,
            kept: self.kept.len() as u64,
            service_estimate: self.service_estimate(),
            ..self.stats.counters
        }
    }

    /// What operators see of its requests. Walks all that is kept for replay.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let (network, service) = self.estimates.expected(&self.bounds());
        Traffic {
            modifying_now: self.slots.taken(),
            modifying_max: self.slots.usable(),
            unstable_bytes: self.kept.unstable_bytes(),
            last_replay: self.kept.replayed,
            committed: self.kept.committed,
            nids: self.connects.by_nid(),
            network,
            service,
            ..self.stats.traffic()
        }
    }

    /// When [`Event::Tick`] is due; `None` while nothing is.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let scan = (!self.flights.is_empty()).then_some(self.flights.next_scan);
        let times = [scan, self.ping_at(), self.state.next_connect(), self.idle_deadline()];
        times.into_iter().flatten().min()
    }

    /// Takes an event; `actions` gets what is to be done, in order.
    pub fn handle(&mut self, now: Instant, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Submit(key, call) => self.submit(now, key, call, actions),
            Event::GiveUp(key) => self.give_up(now, key, actions),
            Event::Message(message) => self.message(now, &message, actions),
            Event::Connect(key) => self.connect_wanted(now, key, actions),
            Event::Disconnect(key) => self.disconnect(now, key, actions),
            Event::Close => self.close(now, actions),
            Event::Reconnect => self.reconnect(now, actions),
            Event::AddNid(nid) => self.connects.add_nid(nid),
            Event::PeerDown(nid) => self.peer_down(now, nid, actions),
            Event::LocksReplayed(connection, whole) => {
                self.locks_replayed(now, connection, whole, actions);
            }
            Event::AllVoided => self.all_voided(now, actions),
            Event::Prepared(transno, request) => self.prepared(now, transno, *request, actions),
            Event::Release(xid) => self.kept.release(xid),
            Event::Limit(requests) => {
                self.flights.counted_max = requests;
                self.pump(now, actions);
            }
            Event::LimitModifying(requests) => {
                self.slots.max = requests;
                self.pump(now, actions);
            }
            Event::ClearStats => self.stats.clear(),
            Event::OwnTimes(times) => self.own_times = times,
            // A ping that is due later than it would be by now comes earlier.
            Event::TimingChanged => self.ping_by(now + self.timing.ping_intervals().0),
            Event::Unused(connection, is_so) => self.unused(now, connection, is_so, actions),
            Event::IdleTimeout(time) => self.limit_idleness(now, time, actions),
            Event::AutoReconnect(on) => self.set_auto_reconnect(now, on, actions),
            Event::Activate(on) => self.activate(now, on, actions),
            Event::Tick => self.tick(now, actions),
        }
    }

    /// How long an unused connection is kept; for ever if zero.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        self.policy.idle_timeout
    }

    /// Whether a lost connection is made again though no caller asks for anything.
    #[must_use]
    pub fn auto_reconnects(&self) -> bool {
        self.policy.auto_reconnects
    }

    /// Whether operators want the import to be used.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.policy.active
    }

    /// The times that the import has of its own.
    #[must_use]
    pub fn own_times(&self) -> OwnTimes {
        self.own_times
    }

    fn bounds(&self) -> Bounds {
        self.own_times.over(&self.timing)
    }

    /// Seconds that the target is expected to take.
    fn service_estimate(&self) -> u32 {
        self.estimates.service_estimate(&self.bounds())
    }

    fn enter(&mut self, now: Instant, state: EngineState, actions: &mut Vec<Action>) {
        let before = std::mem::replace(&mut self.state, state);
        let state = self.state.shown();
        if before.shown() == state {
            return;
        }
        if self.history.len() == limits::HISTORY_STATES {
            self.history.pop_front();
        }
        self.history.push_back(StateChange { at: now, state });
        actions.push(Action::State(state));
    }

    fn is_reverse(&self) -> bool {
        self.identity.kind == ImportKind::Reverse
    }

    /// When this import pings if it has nothing else to say.
    fn ping_at(&self) -> Option<Instant> {
        match &self.state {
            EngineState::Full(full) if !self.is_reverse() => Some(full.next_ping),
            _ => None,
        }
    }

    /// When the next ping is due if something is sent now.
    fn ping_after(&self, now: Instant) -> Instant {
        let (usual, short) = self.timing.ping_intervals();
        now + if self.kept.awaits_commit() { short } else { usual }
    }

    /// Something was sent: the next ping is due that much later.
    fn postpone_ping(&mut self, now: Instant) {
        let next = self.ping_after(now);
        if let EngineState::Full(full) = &mut self.state {
            full.next_ping = next;
        }
    }

    /// The next ping is due at `time` at the latest.
    fn ping_by(&mut self, time: Instant) {
        if let EngineState::Full(full) = &mut self.state {
            full.next_ping = full.next_ping.min(time);
        }
    }

    /// What has become due.
    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.state.next_connect().is_some_and(|at| at <= now) {
            self.connect(now, actions);
        }
        if self.flights.next_scan <= now && !self.flights.is_empty() {
            self.flights.next_scan = now + limits::SCAN_INTERVAL;
            self.scan(now, actions);
        }
        if self.idle_deadline().is_some_and(|at| at <= now) {
            self.ask_unused(now, actions);
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.ping(now, actions);
        }
    }
}
