//! The client's end of a connection to one target, as a state machine (Lustre's import).
//!
//! Owns the requests of one import from [`Event::Submit`] to [`Action::Complete`], the connection's
//! state, what is kept for replay, the slots of modifying requests, and the timeouts. The node
//! (`sheen_node`'s `NodeImport`) owns clock, network and tasks: it feeds the [`Engine`] events and performs its
//! actions, in their order.
//!
//! What always holds:
//! - every submitted call is completed exactly once, unless it was given up;
//! - a modifying request that was sent is sent again, with the same xid and slot, until it is
//!   answered or the target has evicted us; a target that keeps reply data executes it once;
//! - a request whose transaction may be lost is kept, and replayed in order of transactions;
//! - nothing but connects, recovery and disconnects leaves while the state is not FULL.
//!
//! Per request: one tree node, one encoding of the message; the request's structures are moved,
//! into what is kept for replay too, and cloned only for a replay.

mod connect;
mod estimates;
mod events;
mod flight;
mod kept;
mod outgoing;
mod park;
mod recovery;
mod reply;
mod slots;
mod stats;
mod submit;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sheen_types::{HashMap, Instant, Nid, ObdHandle, Transno, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;

use crate::channel::RpcError;
use crate::limits;
use crate::state::{Counters, ImportState, StateChange};
use crate::timing::{Bounds, OwnTimes, Timing};
use crate::xids::Xids;

pub use crate::adaptive::Expected;
pub use events::{Action, Event, Message};
pub use outgoing::{EARLY_REPLY_BYTES, Outgoing, OutgoingBulk};
pub use stats::{Answered, NidTries, Traffic};

use estimates::Estimates;
use flight::{Flights, Waiting};
use kept::KeptRequests;
use park::Policy;
use slots::Slots;
use stats::Stats;

/// What an import leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// Management: configuration.
    Mgs,
    /// Metadata.
    Mds,
    /// Objects.
    Ost,
    /// The other way: from a server to a client, for lock callbacks (Lustre's reverse import). Needs no
    /// connect and recovers nothing.
    Reverse,
}

impl ImportKind {
    /// Where the target takes most requests.
    #[must_use]
    pub fn portal(self) -> Portal {
        match self {
            Self::Mgs => Portal::MGS_REQUEST,
            Self::Mds => Portal::MDS_REQUEST,
            Self::Ost => Portal::OST_REQUEST,
            Self::Reverse => Portal::LDLM_CB_REQUEST,
        }
    }
}

/// What an import is to be.
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

/// An import.
pub struct Engine {
    config: Config,
    xids: Arc<Xids>,
    timing: Arc<Timing>,
    own_times: OwnTimes,
    state: ImportState,
    history: VecDeque<StateChange>,
    stats: Stats,
    /// The export's handle as the target gave it; 0 before the first connect.
    remote: ObdHandle,
    /// Connections are numbered, from the first connect on (Lustre's `imp_conn_cnt`).
    connection: u32,
    agreed: ObdConnectData,
    /// Whether the target ever granted us something that an eviction would take from us.
    used: bool,
    /// Which of the nodes.
    nid: usize,
    /// Whether we are to be connected at all.
    wanted: bool,
    /// What decides whether there is to be a connection.
    policy: Policy,
    /// The target refused us for good.
    denied: Option<RpcError>,
    /// The node at which the target answered our last connect with `EBUSY`: it recovers.
    put_off: Option<Nid>,
    /// Tries to connect since the last success.
    tries: u32,
    next_connect: Option<Instant>,
    next_ping: Instant,
    waiting: Waiting,
    flights: Flights,
    slots: Slots,
    tried: HashMap<Nid, NidTries>,
    kept: KeptRequests,
    /// The stage of recovery to resume after a reconnect in the midst of it.
    replay_stage: ImportState,
    /// The next replay repeats one that the target may have seen.
    replay_again: bool,
    estimates: Estimates,
}

impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} at {}", self.config.target, self.state, self.peer())
    }
}

impl Engine {
    /// An import that will connect when asked to; a reverse one is FULL at once.
    #[must_use]
    pub fn new(now: Instant, config: Config, xids: Arc<Xids>, timing: Arc<Timing>) -> Self {
        assert!(!config.nids.is_empty(), "an import knows at least one node");
        let reverse = config.kind == ImportKind::Reverse;
        let state = if reverse { ImportState::Full } else { ImportState::New };
        Self {
            agreed: config.data.clone(),
            remote: if reverse { config.handle } else { ObdHandle(0) },
            config,
            xids,
            timing,
            own_times: OwnTimes::default(),
            state,
            history: VecDeque::from([StateChange { at: now, state }]),
            stats: Stats::default(),
            connection: 0,
            used: false,
            nid: 0,
            wanted: false,
            policy: Policy::default(),
            denied: None,
            put_off: None,
            tries: 0,
            next_connect: None,
            next_ping: now,
            waiting: Waiting::default(),
            flights: Flights::new(now),
            slots: Slots::new(1),
            tried: HashMap::default(),
            kept: KeptRequests::default(),
            replay_stage: ImportState::Replay,
            replay_again: false,
            estimates: Estimates::new(now),
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> ImportState {
        self.state
    }

    /// Whether the target takes no new clients before its recovery has ended.
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        self.put_off.is_some()
    }

    /// The states it went through.
    #[must_use]
    pub fn history(&self) -> Vec<StateChange> {
        self.history.iter().copied().collect()
    }

    /// How many requests may be on the wire at once.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.config.requests_in_flight
    }

    /// What both sides agreed on.
    #[must_use]
    pub fn connect_data(&self) -> &ObdConnectData {
        &self.agreed
    }

    /// The number of the connection.
    #[must_use]
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// The node it talks to.
    #[must_use]
    pub fn peer(&self) -> Nid {
        self.config.nids[self.nid]
    }

    /// The nodes that serve the target, as far as they are known.
    #[must_use]
    pub fn nids(&self) -> &[Nid] {
        &self.config.nids
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Uuid {
        &self.config.target
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
            service_estimate: self.service(),
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
            nids: self.config.nids.iter().map(|nid| (*nid, self.tries_of(*nid))).collect(),
            network,
            service,
            ..self.stats.traffic()
        }
    }

    fn tries_of(&self, nid: Nid) -> NidTries {
        self.tried.get(&nid).copied().unwrap_or_default()
    }

    /// When [`Event::Tick`] is due; `None` while nothing is.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let scan = (!self.flights.is_empty()).then_some(self.flights.next_scan);
        let ping = self.pings().then_some(self.next_ping);
        [scan, ping, self.next_connect, self.idle_at()].into_iter().flatten().min()
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
            Event::AddNid(nid) => self.add_nid(nid),
            Event::PeerDown(nid) => self.peer_down(now, nid, actions),
            Event::LocksReplayed(connection, whole) => {
                self.locks_replayed(now, connection, whole, actions);
            }
            Event::Invalidated => self.invalidated(now, actions),
            Event::Prepared(transno, request) => self.prepared(now, transno, *request, actions),
            Event::Release(xid) => self.kept.release(xid),
            Event::Limit(requests) => {
                self.config.requests_in_flight = requests;
                self.pump(now, actions);
            }
            Event::LimitModifying(requests) => {
                self.slots.max = requests;
                self.pump(now, actions);
            }
            Event::ClearStats => self.stats.clear(),
            Event::OwnTimes(times) => self.own_times = times,
            // A ping that is due later than it would be by now comes earlier.
            Event::TimingChanged => {
                self.next_ping = self.next_ping.min(now + self.timing.ping_intervals().0);
            }
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
    fn service(&self) -> u32 {
        self.estimates.service(&self.bounds())
    }

    fn add_nid(&mut self, nid: Nid) {
        if !self.config.nids.contains(&nid) {
            self.config.nids.push(nid);
        }
    }

    fn enter(&mut self, now: Instant, state: ImportState, actions: &mut Vec<Action>) {
        if self.state == state {
            return;
        }
        self.state = state;
        if self.history.len() == limits::HISTORY_STATES {
            self.history.pop_front();
        }
        self.history.push_back(StateChange { at: now, state });
        actions.push(Action::State(state));
    }

    fn is_reverse(&self) -> bool {
        self.config.kind == ImportKind::Reverse
    }

    /// Whether this import pings when it has nothing else to say.
    fn pings(&self) -> bool {
        self.state == ImportState::Full && !self.is_reverse()
    }

    /// Something was sent: the next ping is due that much later.
    fn postpone_ping(&mut self, now: Instant) {
        let (usual, short) = self.timing.ping_intervals();
        self.next_ping = now + if self.kept.awaits_commit() { short } else { usual };
    }

    /// What has become due.
    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.next_connect.is_some_and(|at| at <= now) {
            self.connect(now, actions);
        }
        if self.flights.next_scan <= now && !self.flights.is_empty() {
            self.flights.next_scan = now + limits::SCAN_INTERVAL;
            self.scan(now, actions);
        }
        if self.idle_at().is_some_and(|at| at <= now) {
            self.ask_unused(now, actions);
        }
        if self.pings() && self.next_ping <= now {
            self.ping(now, actions);
        }
    }
}
