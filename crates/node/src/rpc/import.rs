//! An import's engine with the world around it.
//!
//! [`NodeImport`] owns the engine of one import (`sheen_rpc::import::Engine`, which decides), feeds it events and
//! performs its actions with this node's clock, network and tasks. Roles hold it as a [`Channel`], or as an
//! [`Import`] if they also say when it connects.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sheen_io::Oneshot;
use sheen_rpc::import::{Action, Config, Engine, Event, ImportKind, Outgoing, OutgoingBulk};
use sheen_rpc::{
    Answer, BoxFuture, Call, Channel, Counters, FormerExport, Import, ImportOwner, ImportState,
    OnAnswer, RequestHook, RpcError, StateChange,
};
use sheen_types::{HashMap, Instant, MatchBits, Nid, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;

use super::call::{CallFuture, PendingAnswer, Waiter, for_current_job};
use super::{ImportReport, RpcNode};
use crate::net::Offer;

/// Where it will be said how a connect or disconnect ended.
type Settled = Arc<Oneshot<Result<(), RpcError>>>;

/// The engine, and what it decided that is not performed yet.
struct Inner {
    engine: Engine,
    actions: VecDeque<Action>,
    /// Kept for its memory.
    fresh: Vec<Action>,
    /// A thread performs actions: they are performed in their order, by one at a time.
    performing: bool,
}

/// An import of this node, or a reverse one.
pub(super) struct NodeImport {
    me: Weak<NodeImport>,
    node: Arc<RpcNode>,
    client: Uuid,
    target: Uuid,
    is_reverse: bool,
    is_mgs: bool,
    inner: Mutex<Inner>,
    calls: Mutex<HashMap<u64, Waiter>>,
    settling: Mutex<HashMap<u64, Settled>>,
    /// Bulk sources by the match bits of the try that needs them.
    offers: Mutex<HashMap<u64, Vec<Offer>>>,
    keys: AtomicU64,
    /// In use, or lost without a line in the log about that.
    has_connection: AtomicBool,
    owner: Arc<dyn ImportOwner>,
}

impl NodeImport {
    pub(super) fn new(
        node: &Arc<RpcNode>,
        config: Config,
        owner: Arc<dyn ImportOwner>,
    ) -> Arc<Self> {
        let (client, target) = (config.client.clone(), config.target.clone());
        let is_reverse = config.kind == ImportKind::Reverse;
        let is_mgs = config.kind == ImportKind::Mgs;
        let engine =
            Engine::new(node.now(), config, Arc::clone(&node.xids), Arc::clone(&node.timing));
        let inner =
            Inner { engine, actions: VecDeque::new(), fresh: Vec::new(), performing: false };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            node: Arc::clone(node),
            client,
            target,
            is_reverse,
            is_mgs,
            inner: Mutex::new(inner),
            calls: Mutex::default(),
            settling: Mutex::default(),
            offers: Mutex::default(),
            keys: AtomicU64::new(1),
            has_connection: AtomicBool::new(false),
            owner,
        })
    }

    /// Feeds the engine, and performs what it decides, unless another thread does already.
    pub(super) fn handle(&self, event: Event) {
        let wake = self.feed(self.node.now(), event);
        self.node.timer.want(wake);
    }

    pub(super) fn tick(&self, now: Instant) -> Option<Instant> {
        self.feed(now, Event::Tick)
    }

    fn feed(&self, now: Instant, event: Event) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let Inner { engine, actions, fresh, .. } = &mut *inner;
        engine.handle(now, event, fresh);
        actions.extend(fresh.drain(..));
        if inner.performing {
            return inner.engine.next_wake();
        }
        inner.performing = true;
        while let Some(action) = inner.actions.pop_front() {
            drop(inner);
            self.perform(action);
            inner = self.inner.lock();
        }
        inner.performing = false;
        inner.engine.next_wake()
    }

    fn perform(&self, action: Action) {
        match action {
            Action::Send(outgoing) => self.send(*outgoing),
            Action::Forget(bits) => {
                self.node.routes.remove(bits);
                // Bound, so that the offers are dropped with no lock held.
                let offers = self.offers.lock().remove(&bits.0);
                drop(offers);
            }
            Action::Complete(key, result, hook) => self.complete(key, result, hook),
            Action::Settled(key, result) => {
                let settled = self.settling.lock().remove(&key);
                if let Some(settled) = settled {
                    settled.put(result);
                }
            }
            Action::State(state) => self.state_changed(state),
            Action::VoidAll => self.void_all(),
            Action::WrongIdentity => self.log_wrong_identity(),
            Action::WentBack(reported, claimed) => self.log_went_back(reported, claimed),
            Action::AskUnused(connection) => {
                let is_unused = self.owner.is_unused();
                self.handle(Event::Unused(connection, is_unused));
            }
            Action::ReplayLocks(connection) => self.replay_locks(connection),
            Action::Prepare(transno, hook, mut request, answer) => {
                hook.before_replay(&mut request, &answer);
                self.handle(Event::Prepared(transno, request));
            }
            Action::Replayed(hook, answer) => hook.replayed(&answer),
        }
    }

    fn send(&self, outgoing: Outgoing) {
        let node = &self.node;
        node.routes.add(outgoing.route, &self.me);
        if outgoing.second_route != outgoing.route {
            node.routes.add(outgoing.second_route, &self.me);
        }
        if let OutgoingBulk::Offer(portal, first, parts) = outgoing.bulk {
            let offer = |(part, pieces)| {
                let bits = MatchBits(first.0 + part as u64);
                node.lnet.offer_get(outgoing.to, portal, bits, pieces)
            };
            let offers = parts.into_iter().enumerate().map(offer).collect();
            self.offers.lock().insert(outgoing.route.0, offers);
        }
        let (to, portal, bits) = (outgoing.to, outgoing.portal, outgoing.bits);
        // Another call's task may be what sends it.
        tracing::debug!(parent: None, target = %self.target, %to, xid = bits.0, ?portal, "request sent");
        let message = vec![outgoing.message];
        match (self.is_reverse, outgoing.may_linger) {
            (true, _) => node.lnet.put(to, portal, bits, 0, message),
            (false, true) => node.lnet.put_lingering(to, portal, bits, message),
            (false, false) => node.lnet.put_request(to, portal, bits, message),
        }
    }

    fn complete(
        &self,
        key: u64,
        result: Result<Answer, RpcError>,
        hook: Option<Arc<dyn RequestHook>>,
    ) {
        if let Err(error @ RpcError::Protocol(_)) = &result {
            // Its caller sees `EPROTO` alone.
            tracing::warn!(target = %self.target, %error, "an answer breaks the protocol");
        }
        if let (Some(hook), Ok(answer)) = (hook, &result)
            && !hook.keep_until_release(answer)
        {
            self.handle(Event::Release(answer.xid));
        }
        let waiter = self.calls.lock().remove(&key);
        if let Some(waiter) = waiter {
            waiter.finish(result);
        }
    }

    fn state_changed(&self, state: ImportState) {
        let (data, target, peer, export) = {
            let inner = self.inner.lock();
            let engine = &inner.engine;
            let export = FormerExport { handle: engine.export(), connection: engine.connection() };
            (engine.connect_data().clone(), engine.target().clone(), engine.peer(), export)
        };
        match state {
            // It keeps no clients over a restart, and nothing is lost: what it has said is read anew.
            ImportState::Evicted if self.is_mgs => {
                tracing::info!(%target, %peer, "the MGS has restarted: the configuration is read again");
            }
            ImportState::Evicted => {
                tracing::error!(%target, %peer, "this client was evicted; operations under way fail");
            }
            _ if self.is_reverse => {
                tracing::debug!(client = %target, %peer, %state, "reverse import")
            }
            ImportState::Full => {
                self.has_connection.store(true, Ordering::Relaxed);
                tracing::info!(%target, %peer, "connected");
                self.owner.exported(&target, export);
            }
            // One line for each target that does not answer, not one for each try.
            ImportState::Disconn if self.has_connection.swap(false, Ordering::Relaxed) => {
                tracing::info!(%target, %peer, "connection lost: operations wait until it is restored");
            }
            ImportState::Replay => {
                tracing::info!(%target, %peer, "the target has restarted: replaying what it may have lost");
            }
            _ => tracing::debug!(%target, %peer, %state, "import"),
        }
        self.owner.state_changed(state, &data);
    }

    fn log_wrong_identity(&self) {
        let (target, peer, kind, is_between_mdts) = {
            let engine = &self.inner.lock().engine;
            (engine.target().clone(), engine.peer(), engine.kind(), engine.is_between_mdts())
        };
        if is_between_mdts {
            tracing::error!(%target, %peer,
                "{target} refuses this node: it knows another MDT of its number. Its log says more");
            return;
        }
        if kind == ImportKind::Mds {
            tracing::error!(%target, %peer,
                "another MDT is in the place of {target}: names and open files of this client are of the one before. \
                 Operations wait until that one is back, or end with this mount (umount -f)");
            return;
        }
        tracing::error!(%target, %peer,
            "{target} refuses this node: it holds the objects of another MDT. Its log says which, and what to do");
    }

    /// The wording is searched for by scripts that watch over Lustre's clients.
    fn log_went_back(&self, reported: Transno, claimed: Transno) {
        let (target, peer) = {
            let inner = self.inner.lock();
            (inner.engine.target().clone(), inner.engine.peer())
        };
        tracing::error!(%target, %peer,
            "{target} went back in time: it had reported that transaction {reported} was durable, and now \
             claims {claimed}. What lies between is lost on it: check its store and its log");
    }

    /// This client's locks at the target, and what they cover, are void. After an eviction the engine goes on when
    /// the locks are dropped and the dropping of what they cover has begun: tasks go on with that.
    fn void_all(&self) {
        let Some(import) = self.me.upgrade() else { return };
        let task = async move {
            let channel: Arc<dyn Channel> = import.clone();
            import.owner.void_all(&channel);
            import.handle(Event::AllVoided);
        };
        self.node.world.tasks.spawn("rpc invalidation", Box::pin(task));
    }

    fn replay_locks(&self, connection: u32) {
        let Some(import) = self.me.upgrade() else { return };
        let task = async move {
            import.owner.before_lock_replay().await;
            // Another connect may have been made meanwhile, which replays all again.
            if !import.inner.lock().engine.awaits_locks(connection) {
                return;
            }
            let locks = import.owner.replay_locks(connection);
            let mut sent: Vec<_> = Vec::with_capacity(locks.len());
            for lock in locks {
                sent.push((Box::pin(CallFuture::new(Arc::clone(&import), lock.call)), lock.done));
            }
            let mut whole = true;
            // The batches go one after the other. Within one the first poll of each sends it.
            while !sent.is_empty() {
                let rest = sent.split_off(sent.len().min(REPLAYED_AT_ONCE));
                let batch = std::mem::replace(&mut sent, rest);
                whole &= replay_batch(batch).await;
            }
            import.handle(Event::LocksReplayed(connection, whole));
        };
        self.node.world.tasks.spawn("rpc lock replay", Box::pin(task));
    }

    /// A new call's key and where its answer will be.
    pub(super) fn new_call(&self) -> (u64, PendingAnswer) {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let answer = Oneshot::new();
        self.calls.lock().insert(key, Waiter::Caller(Arc::clone(&answer)));
        (key, answer)
    }

    pub(super) fn forget_call(&self, key: u64) {
        self.calls.lock().remove(&key);
    }

    /// What it leads to: a target, or the client that a reverse import leads to.
    pub(super) fn target(&self) -> &Uuid {
        &self.target
    }

    /// Whether it leads from a server to a client.
    pub(super) fn is_reverse(&self) -> bool {
        self.is_reverse
    }

    /// Whether it is a client's import of this target.
    pub(super) fn leads_to(&self, target: &Uuid) -> bool {
        !self.is_reverse && self.inner.lock().engine.target() == target
    }

    /// What operators see; nothing of reverse imports.
    pub(super) fn report(&self) -> Option<ImportReport> {
        if self.is_reverse {
            return None;
        }
        let inner = self.inner.lock();
        Some(ImportReport {
            target: inner.engine.target().clone(),
            client: self.client.clone(),
            state: inner.engine.state(),
            history: inner.engine.history(),
            peer: inner.engine.peer(),
            data: inner.engine.connect_data().clone(),
            counters: inner.engine.counters(),
            own_times: inner.engine.own_times(),
            idle_timeout: inner.engine.idle_timeout(),
            auto_reconnects: inner.engine.auto_reconnects(),
            is_active: inner.engine.is_active(),
            requests_in_flight_max: inner.engine.requests_in_flight(),
            traffic: inner.engine.traffic(),
        })
    }

    fn settle(
        &self,
        event: impl FnOnce(u64) -> Event + Send + 'static,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        let Some(import) = self.me.upgrade() else {
            return Box::pin(async { Err(RpcError::Shutdown) });
        };
        Box::pin(async move {
            let key = import.keys.fetch_add(1, Ordering::Relaxed);
            let settled = Oneshot::new();
            import.settling.lock().insert(key, Arc::clone(&settled));
            import.handle(event(key));
            settled.wait().await
        })
    }
}

/// Locks replayed to a restarted target at once.
const REPLAYED_AT_ONCE: usize = 64;

type LockCall = (std::pin::Pin<Box<CallFuture>>, Box<dyn FnOnce(Result<Answer, RpcError>) + Send>);

/// Waits for all calls; false if one of them lost its connection.
async fn replay_batch(batch: Vec<LockCall>) -> bool {
    let mut waiting: Vec<_> = batch.into_iter().map(|(call, done)| (call, Some(done))).collect();
    let mut whole = true;
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (call, done) in &mut waiting {
            if done.is_none() {
                continue;
            }
            match std::future::Future::poll(call.as_mut(), context) {
                std::task::Poll::Ready(result) => {
                    whole &= !matches!(result, Err(RpcError::Disconnected | RpcError::TimedOut));
                    if let Some(done) = done.take() {
                        done(result);
                    }
                }
                std::task::Poll::Pending => pending = true,
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    whole
}

impl Channel for NodeImport {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        match self.me.upgrade() {
            Some(import) => Box::pin(CallFuture::new(import, call)),
            None => Box::pin(async { Err(RpcError::Shutdown) }),
        }
    }

    fn call_detached(&self, call: Call, then: OnAnswer) -> BoxFuture<'static, ()> {
        let (import, call) = (self.me.upgrade(), Box::new(for_current_job(call)));
        Box::pin(async move {
            let Some(import) = import else { return then(Err(RpcError::Shutdown)) };
            let key = import.keys.fetch_add(1, Ordering::Relaxed);
            import.calls.lock().insert(key, Waiter::Unawaited(then));
            import.handle(Event::Submit(key, call));
        })
    }

    fn state(&self) -> ImportState {
        self.inner.lock().engine.state()
    }

    fn has_wrong_identity(&self) -> bool {
        self.inner.lock().engine.has_wrong_identity()
    }

    fn is_refused_in_recovery(&self) -> bool {
        self.inner.lock().engine.is_refused_in_recovery()
    }

    fn connect_data(&self) -> ObdConnectData {
        self.inner.lock().engine.connect_data().clone()
    }

    fn connection(&self) -> u32 {
        self.inner.lock().engine.connection()
    }

    fn peer(&self) -> Nid {
        self.inner.lock().engine.peer()
    }

    fn is_served_by(&self, nid: Nid) -> bool {
        let is_own = self.node.lnet.is_own(nid);
        let inner = self.inner.lock();
        let nids = inner.engine.nids();
        nids.iter().any(|known| *known == nid || is_own && self.node.lnet.is_own(*known))
    }

    fn target_uuid(&self) -> Uuid {
        self.inner.lock().engine.target().clone()
    }

    fn last_committed(&self) -> Transno {
        self.inner.lock().engine.last_committed()
    }

    fn release(&self, xid: Xid) {
        self.handle(Event::Release(xid));
    }
}

impl Import for NodeImport {
    fn connect(&self) -> BoxFuture<'static, Result<(), RpcError>> {
        self.settle(Event::Connect)
    }

    fn disconnect(&self) -> BoxFuture<'static, ()> {
        // It is not lost, it is no longer wanted.
        self.has_connection.store(false, Ordering::Relaxed);
        let settled = self.settle(Event::Disconnect);
        Box::pin(async move {
            // It is closed either way.
            let _ = settled.await;
        })
    }

    fn close(&self) {
        self.handle(Event::Close);
    }

    fn reconnect(&self) {
        self.handle(Event::Reconnect);
    }

    fn add_nid(&self, nid: Nid) {
        self.handle(Event::AddNid(nid));
    }

    fn history(&self) -> Vec<StateChange> {
        self.inner.lock().engine.history()
    }

    fn counters(&self) -> Counters {
        self.inner.lock().engine.counters()
    }
}
