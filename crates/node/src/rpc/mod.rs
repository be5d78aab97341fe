//! RPC for a node: imports to targets, services for targets, over one [`LNet`].
//!
//! [`RpcNode`] owns the engines of `sheen-rpc`, one lock each, and performs what they decide; no lock
//! is held while anything is called or awaited. One timer task serves all engines.
//!
//! Costs of one request without bulk, both ends together, besides LNet's:
//! - client: the caller's boxed future, the boxed call, the wait cell, the message, one tree node, two
//!   hash entries (the key, the route of the reply); two short locks of the import to send and two to
//!   take the reply, one of the routes' shard each; one wakeup, of the caller, by the task that read
//!   the reply;
//! - server: the list of buffers, the request's structures, the task, the handler's boxed future, the
//!   boxed replier, the message; four locks of the client's service (arrive, first wait, finish, next); one task
//!   switch, from the reader to the handler.
//!
//! Measured with `examples/rpc_speed.rs` (OBD_PING round trips over loopback TCP, both ends in one
//! process, two threads on two shared cores, November 2026), the kernel's share included: 7.2 us of
//! CPU per round trip with one caller (138,000/s), 13 us with 8, 12 us with 64 (138,000/s).

mod bulk;
mod call;
mod import;
mod routes;
mod server;
mod timer;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_io::World;
use sheen_rpc::budget::ServiceBudget;
use sheen_rpc::import::{Config, Event, Traffic};
use sheen_rpc::service::{Service, Stats};
use sheen_rpc::{
    BULK_PORTALS, Call, CallKind, Channel, Counters, Handler, Import, ImportOwner, ImportState,
    NoOwner, OwnTimes, REPLY_PORTALS, RpcError, StateChange, Time, Timing, Xids, limits,
};
use sheen_types::{HashSet, Instant, Nid, ObdHandle, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;
use sheen_wire::messages::ObdPing;

use crate::net::LNet;
use import::NodeImport;
use routes::Routes;
use server::{Arrived, Registered};
use timer::Timer;

pub use sheen_rpc::ImportConfig;
pub use sheen_rpc::import::ImportKind;

/// Into how many parts the services' bookkeeping is divided.
const SERVICES: usize = 8;

/// An import as operators see it (`lctl get_param *.*.import`, `*.state`, `*.timeouts`).
#[derive(Clone, Debug)]
pub struct ImportReport {
    /// The target.
    pub target: Uuid,
    /// Who we are to it.
    pub client: Uuid,
    /// The state.
    pub state: ImportState,
    /// The states before, oldest first.
    pub history: Vec<StateChange>,
    /// The node talked to.
    pub peer: Nid,
    /// What both sides agreed on.
    pub data: ObdConnectData,
    /// What it has done.
    pub counters: Counters,
    /// Times of its own.
    pub own_times: OwnTimes,
    /// How long an unused connection is kept; for ever if zero.
    pub idle_timeout: Duration,
    /// Whether a lost connection is made again though no caller asks for anything.
    pub auto_reconnects: bool,
    /// Whether operators want the import to be used.
    pub is_active: bool,
    /// Requests on the wire at once (`max_rpcs_in_flight`).
    pub requests_in_flight_max: usize,
    /// Its requests.
    pub traffic: Traffic,
}

/// A node's RPC. Shared; lives until [`RpcNode::shutdown`].
pub struct RpcNode {
    world: World,
    lnet: Arc<LNet>,
    xids: Arc<Xids>,
    timing: Arc<Timing>,
    routes: Routes,
    imports: Mutex<Vec<Weak<NodeImport>>>,
    /// Replaced as a whole, so that handlers are asked with no lock held.
    targets: RwLock<Arc<Vec<Registered>>>,
    callbacks: RwLock<Option<Arc<dyn Handler>>>,
    /// Divided by client, so that clients do not wait for each other.
    services: [Mutex<Service<Box<Arrived>>>; SERVICES],
    /// What each client may use up.
    budget: Arc<ServiceBudget>,
    rooms: Arc<bulk::Rooms>,
    /// Exports whose clients await replies under match bits of their own (`REP_MBITS`).
    exports_by_bits: RwLock<HashSet<ObdHandle>>,
    timer: Timer,
    /// Requests that could not be decoded, or that no target serves.
    refused: AtomicU64,
    /// Requests that were dropped because their client has too many, or takes no answers.
    over_budget: AtomicU64,
}

impl fmt::Debug for RpcNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RpcNode({})", self.lnet.nid())
    }
}

impl RpcNode {
    /// Starts: takes replies and bulk from `lnet`, and waits for nothing.
    pub fn start(world: World, lnet: Arc<LNet>) -> Arc<Self> {
        let now = world.clock.now();
        let wall = world.clock.wall();
        let seconds = u64::try_from(wall.seconds).unwrap_or(0);
        let since_1970 = Duration::new(seconds, wall.nanoseconds);
        let timing = Arc::<Timing>::default();
        let budget = Arc::<ServiceBudget>::default();
        let node = Arc::new(Self {
            xids: Arc::new(Xids::new(limits::first_xid(since_1970))),
            routes: Routes::default(),
            imports: Mutex::default(),
            targets: RwLock::default(),
            callbacks: RwLock::default(),
            services: std::array::from_fn(|_| {
                let (budget, timing) = (Arc::clone(&budget), Arc::clone(&timing));
                let service = Service::new(now, budget, world.tasks.workers(), timing);
                Mutex::new(service.compacting(server::compact))
            }),
            rooms: bulk::Rooms::new(Arc::clone(&budget)),
            budget,
            exports_by_bits: RwLock::default(),
            timer: Timer::default(),
            refused: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
            timing,
            lnet,
            world,
        });
        for portal in REPLY_PORTALS.into_iter().chain(BULK_PORTALS) {
            node.lnet.serve(portal, Arc::new(routes::ReplyReceiver(Arc::downgrade(&node))));
        }
        let weak = Arc::downgrade(&node);
        node.lnet.watch_peer_down(Arc::new(move |nid| {
            if let Some(node) = weak.upgrade() {
                node.each_import(|import| import.handle(Event::PeerDown(nid)));
            }
        }));
        let weak = Arc::downgrade(&node);
        let useful = move |nid| weak.upgrade().is_none_or(|node: Arc<Self>| node.is_used_by(nid));
        node.lnet.close_unless(Arc::new(useful));
        let task = timer::run(Arc::downgrade(&node), node.world.clock.clone());
        node.world.tasks.spawn("rpc timer", Box::pin(task));
        node
    }

    /// The LNet below.
    #[must_use]
    pub fn lnet(&self) -> &Arc<LNet> {
        &self.lnet
    }

    /// Makes an import; it connects when asked to. The import lives as long as it is held.
    pub fn import(self: &Arc<Self>, config: ImportConfig) -> Arc<dyn Import> {
        let requests_in_flight = match config.requests_in_flight {
            0 => limits::REQUESTS_IN_FLIGHT,
            count => count,
        };
        let handle = ObdHandle(self.world.random.number() | 1);
        let engine = Config {
            target: config.target,
            client: config.client,
            nids: config.nids,
            kind: config.kind,
            data: config.data,
            handle,
            requests_in_flight,
        };
        self.add(engine, config.owner)
    }

    /// The reverse import from a server to a client, for lock callbacks: `handle` is what the client called
    /// its import in its connect, `data` what both sides agreed on there.
    pub fn reverse(
        self: &Arc<Self>,
        client: Uuid,
        nid: Nid,
        handle: ObdHandle,
        data: ObdConnectData,
    ) -> Arc<dyn Channel> {
        let engine = Config {
            target: client.clone(),
            client,
            nids: vec![nid],
            kind: ImportKind::Reverse,
            data,
            handle,
            requests_in_flight: usize::MAX,
        };
        self.add(engine, Arc::new(NoOwner))
    }

    fn add(self: &Arc<Self>, config: Config, owner: Arc<dyn ImportOwner>) -> Arc<NodeImport> {
        let import = NodeImport::new(self, config, owner);
        let mut imports = self.imports.lock();
        imports.retain(|import| import.strong_count() > 0);
        imports.push(Arc::downgrade(&import));
        import
    }

    /// From now on `handler` executes requests to `target` at `portals`.
    pub fn register(self: &Arc<Self>, target: Uuid, handler: Arc<dyn Handler>, portals: &[Portal]) {
        let mut targets = self.targets.write();
        let all = Arc::make_mut(&mut targets);
        all.retain(|registered| registered.target != target);
        let own_times = OwnTimes::default();
        all.push(Registered { target, handler, portals: portals.to_vec(), own_times });
        drop(targets);
        self.answer_at(portals);
    }

    /// Requests to these portals are answered from now on, and be it with ENODEV, though none of
    /// their targets may be there yet: who connects while targets start asks again soon, instead of
    /// waiting for an answer that never comes.
    pub fn answer_at(self: &Arc<Self>, portals: &[Portal]) {
        for portal in portals {
            self.lnet.serve(*portal, Arc::new(server::RequestReceiver(Arc::downgrade(self))));
        }
    }

    /// Requests to `target` are answered with ENODEV from now on; those that run go on.
    pub fn unregister(&self, target: &Uuid) {
        let mut targets = self.targets.write();
        Arc::make_mut(&mut targets).retain(|registered| registered.target != *target);
    }

    /// From now on `handler` executes lock callbacks.
    pub fn register_callbacks(self: &Arc<Self>, handler: Arc<dyn Handler>) {
        *self.callbacks.write() = Some(handler);
        let receiver = Arc::new(server::RequestReceiver(Arc::downgrade(self)));
        self.lnet.serve(Portal::LDLM_CB_REQUEST, receiver);
    }

    /// All imports of clients, for `lctl`.
    #[must_use]
    pub fn imports(&self) -> Vec<ImportReport> {
        let mut reports = Vec::new();
        self.each_import(|import| reports.extend(import.report()));
        reports
    }

    /// The import to one target.
    #[must_use]
    pub fn import_of(&self, target: &Uuid) -> Option<ImportReport> {
        let mut report = None;
        self.each_import_to(target, |import| report = import.report());
        report
    }

    /// The import that `client` has to one target: of the MDTs of a process each has its own to an OST.
    #[must_use]
    pub fn import_between(&self, client: &Uuid, target: &Uuid) -> Option<ImportReport> {
        let mut found = None;
        self.each_import_to(target, |import| {
            found = import.report().filter(|report| report.client == *client).or(found.take());
        });
        found
    }

    /// From now on the imports to `target` have at most so many requests on the wire
    /// (`lctl set_param *.*.max_rpcs_in_flight`).
    pub fn limit_requests(&self, target: &Uuid, requests: usize) {
        self.each_import_to(target, |import| import.handle(Event::Limit(requests)));
    }

    /// As [`Self::limit_requests`], of modifying requests (`lctl set_param mdc.*.max_mod_rpcs_in_flight`).
    pub fn limit_modifying(&self, target: &Uuid, requests: usize) {
        self.each_import_to(target, |import| import.handle(Event::LimitModifying(requests)));
    }

    /// What this process waits for whom, in seconds.
    #[must_use]
    pub fn time(&self, time: Time) -> u32 {
        self.timing.of(time)
    }

    /// Sets one of these times, for all that is under way, too (`lctl set_param timeout=...`).
    pub fn set_time(&self, time: Time, seconds: u32) {
        self.timing.set(time, seconds);
        self.each_import(|import| import.handle(Event::TimingChanged));
    }

    /// From now on the imports to `target` have these times of their own
    /// (`lctl set_param *.*.at_min`).
    pub fn set_own_times(&self, target: &Uuid, times: OwnTimes) {
        self.each_import_to(target, |import| import.handle(Event::OwnTimes(times)));
    }

    /// The times that a target of this process has of its own.
    #[must_use]
    pub fn target_times(&self, target: &Uuid) -> OwnTimes {
        let targets = self.targets.read();
        let own = targets.iter().find(|registered| registered.target == *target);
        own.map_or_else(OwnTimes::default, |registered| registered.own_times)
    }

    /// Sets them, for requests that come from now on (`lctl set_param mdt.*.at_min`).
    pub fn set_target_times(&self, target: &Uuid, times: OwnTimes) {
        let mut targets = self.targets.write();
        let own = Arc::make_mut(&mut targets).iter_mut();
        own.filter(|registered| registered.target == *target)
            .for_each(|registered| registered.own_times = times);
    }

    /// The imports to `target` disconnect when they were not used for `time`, and nothing is held there;
    /// never if it is zero (`lctl set_param osc.*.idle_timeout`).
    pub fn limit_idleness(&self, target: &Uuid, time: Duration) {
        self.each_import_to(target, |import| import.handle(Event::IdleTimeout(time)));
    }

    /// Whether the imports to `target` connect again when they lost their connection and no caller asks for
    /// anything (`lctl set_param *.*.pinger_recov`).
    pub fn set_auto_reconnect(&self, target: &Uuid, on: bool) {
        self.each_import_to(target, |import| import.handle(Event::AutoReconnect(on)));
    }

    /// Whether the imports to `target` are to be used at all: without, what is cached is lost, and calls
    /// end with `EIO` (`lctl set_param *.*.active`).
    pub fn activate(&self, target: &Uuid, on: bool) {
        self.each_import_to(target, |import| import.handle(Event::Activate(on)));
    }

    /// The imports to `target` count their requests anew (`lctl set_param *.*.stats=clear`).
    pub fn clear_traffic(&self, target: &Uuid) {
        self.each_import_to(target, |import| import.handle(Event::ClearStats));
    }

    /// The imports to `target` drop their connection and make a new one
    /// (`lctl set_param *.*.import=recover`).
    pub fn reconnect(&self, target: &Uuid) {
        self.each_import_to(target, |import| import.handle(Event::Reconnect));
    }

    /// Asks the target whether it is there (`*.*.ping`).
    ///
    /// # Errors
    /// If it is not.
    pub async fn ping_target(&self, target: &Uuid) -> Result<(), RpcError> {
        let mut found = None;
        self.each_import_to(target, |import| found = Some(Arc::clone(import)));
        let import = found.ok_or(RpcError::Disconnected)?;
        let kind = CallKind::NoDelay;
        import.call(Call { kind, ..Call::new(ObdPing::default()) }).await.map(|_| ())
    }

    fn each_import_to(&self, target: &Uuid, mut visit: impl FnMut(&Arc<NodeImport>)) {
        self.each_import(|import| {
            if import.leads_to(target) {
                visit(import);
            }
        });
    }

    /// What the services have done.
    #[must_use]
    pub fn service_stats(&self) -> Stats {
        let mut stats = Stats::default();
        for service in &self.services {
            stats += service.lock().stats();
        }
        stats
    }

    /// What the services have done with requests to each portal, in no order.
    #[must_use]
    pub fn service_stats_by_portal(&self) -> Vec<(Portal, Stats)> {
        let mut all: Vec<(Portal, Stats)> = Vec::new();
        for (portal, stats) in self.services.iter().flat_map(|one| one.lock().stats_by_portal()) {
            match all.iter_mut().find(|known| known.0 == portal) {
                Some(known) => known.1 += stats,
                None => all.push((portal, stats)),
            }
        }
        all
    }

    /// Requests running and waiting now.
    #[must_use]
    pub fn service_load(&self) -> (usize, usize) {
        let loads = self.services.iter().map(|service| service.lock().load());
        loads.fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1))
    }

    /// What each client may use up of this node's services.
    #[must_use]
    pub fn budget(&self) -> &ServiceBudget {
        &self.budget
    }

    /// Requests that could not be decoded or that no target serves.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Requests that were dropped because their client has too many, or takes no answers.
    #[must_use]
    pub fn over_budget(&self) -> u64 {
        self.over_budget.load(Ordering::Relaxed)
    }

    /// Closes all imports without a word, and takes no more requests.
    pub fn shutdown(&self) {
        self.each_import(|import| import.handle(Event::Close));
        let targets = std::mem::take(&mut *self.targets.write());
        for registered in targets.iter() {
            for portal in &registered.portals {
                self.lnet.unserve(*portal);
            }
        }
        *self.callbacks.write() = None;
        self.lnet.unserve(Portal::LDLM_CB_REQUEST);
        self.timer.stop();
    }

    /// Whether a peer has an export here, or leads to a target of ours.
    fn is_used_by(&self, nid: Nid) -> bool {
        let targets = Arc::clone(&self.targets.read());
        let mut is_used = targets.iter().any(|registered| registered.handler.has_client_at(nid));
        if !is_used {
            self.each_import(|import| is_used |= import.peer() == nid);
        }
        is_used
    }

    /// Calls with no lock held.
    fn each_import(&self, mut visit: impl FnMut(&Arc<NodeImport>)) {
        let imports: Vec<_> = self.imports.lock().iter().filter_map(Weak::upgrade).collect();
        imports.iter().for_each(&mut visit);
    }

    fn now(&self) -> Instant {
        self.world.clock.now()
    }

    /// Does what time demands; answers when to be called again.
    fn tick(self: &Arc<Self>) -> Option<Instant> {
        let now = self.now();
        let mut next: Option<Instant> = None;
        self.each_import(|import| {
            let wake = import.tick(now);
            next = next.into_iter().chain(wake).min();
        });
        for service in &self.services {
            let (routes, wake) = {
                let mut service = service.lock();
                (service.tick(now), service.next_wake())
            };
            for route in routes {
                self.send_early_reply(&route);
            }
            next = next.into_iter().chain(wake).min();
        }
        next
    }
}
