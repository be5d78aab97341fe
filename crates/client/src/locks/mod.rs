//! The locks that one target has granted to this client, and the exchange of messages about them.
//!
//! A [`ClientNamespace`] joins ldlm's [`Namespace`] (the engine, which decides) with the target's channel
//! (which sends) and a [`CoveredCache`] (which holds what the locks cover: the inode cache, the page cache).
//! It owns no cached data itself. What always holds: a lock is cancelled only after what
//! [`CoveredCache::flush_and_invalidate`] began has ended for all it covered, and never while a [`LockReference`] to it lives.
//!
//! Costs: a lock found costs no RPC and no allocation; an enqueue one RPC; cancels that come
//! together go in one RPC, and those of an operation go in the operation's own request.

mod batch;
mod callbacks;
mod reference;
mod replay;
mod router;
mod send;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{BoxFuture, TaskQueue, World};
use sheen_ldlm::client::{Action, Config, FlockUser, MatchRequest};
use sheen_ldlm::{LockDesc, LockFlags, Policy};
use sheen_rpc::{Call, Channel};
use sheen_types::futures;
use sheen_types::{Errno, HashMap, InodeBits, LockHandle, LockMode, ResourceName, limits};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::messages::{LdlmCancel, LdlmConvert, LdlmEnqueue};
use tokio::sync::oneshot;

pub(crate) use batch::{BatchAnswer, PendingBatch};
pub use reference::{LockReference, PendingLock};
pub use router::CallbackRouter;
pub use sheen_ldlm::client::{CachePolicy, Gauges, LostLock, Namespace};

use crate::call;

/// Cancels in one request: what `LDLM_CANCEL` fits into a page, as Lustre limits it.
const CANCELS_IN_REQUEST_MAX: usize = 500;
/// Unused locks cancelled at once when there are too many, by default.
const SHRINK_BATCH: usize = 64;

/// How long `lru_size=clear` waits for what a target that is away keeps dirty.
const CLEARED_WITHIN: Duration = Duration::from_secs(10);

/// Holds what locks cover. Its implementors:
///
/// | of the locks of | | they cover |
/// |---|---|---|
/// | an OST | `data::data_target::CoveredData` | pages, dirty bytes, sizes of objects |
/// | an MDT | `data::mdt::CoveredInodes` | the next for all bits, and `CoveredData` for `DOM` |
/// | | `cache::CoveredByMdt` | names, attributes, layouts, cached opens |
/// | the MGS | `config::follow::CoveredConfiguration` | configuration logs |
pub trait CoveredCache: Send + Sync {
    /// A lock is about to be cancelled: flushes what is dirty, drops what no other lock of `locks` covers, and
    /// invalidates the kernel's copies. Acts when it is called, not only when the future is polled: metadata that no
    /// lock covers any more is dropped when this returns. The future does what takes time, and the lock is cancelled
    /// when it is done.
    fn flush_and_invalidate(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()>;

    /// The target has evicted us: everything cached under this is invalid, and nothing can be written. As
    /// [`CoveredCache::flush_and_invalidate`] acts when it is called.
    fn invalidate_evicted(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()>;

    /// A lock on `resource` that covers `policy` was granted with this value block, or with an empty one.
    /// Called before any call can find the lock: its users may rely on the value. Values of locks that were
    /// enqueued at the same time come in any order.
    fn learn(&self, resource: ResourceName, policy: &Policy, value: &Bytes) {
        let _ = (resource, policy, value);
    }

    /// Another client wants a part of a lock under which data may be written. Returns whether this client
    /// needs no part of it, so that the other client need not have the rest revoked separately.
    fn cancels_whole_lock(&self, resource: ResourceName) -> bool {
        let _ = resource;
        false
    }

    /// Whether something under a lock on `resource` is not written yet.
    fn is_dirty(&self, resource: ResourceName) -> bool {
        let _ = resource;
        false
    }

    /// Another client asks for size and times of an object that we may be changing: the lock value
    /// block to answer with, if we know better than the server.
    fn glimpse(&self, resource: ResourceName) -> Option<Bytes>;
}

/// The lock to enqueue.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest {
    /// On what.
    pub resource: ResourceName,
    /// Which part.
    pub policy: Policy,
    /// How.
    pub mode: LockMode,
    /// Flags of the request.
    pub flags: LockFlags,
}

/// One target's locks.
pub struct ClientNamespace {
    name: String,
    world: World,
    channel: Arc<dyn Channel>,
    engine: Namespace,
    cache: Arc<dyn CoveredCache>,
    waiting: Mutex<HashMap<LockHandle, Waiter>>,
    uncertain_flocks: Mutex<UncertainFlocks>,
    /// Handles of locks that are dropped here and whose cancels are not sent yet.
    cancels: TaskQueue<LockHandle>,
    shrink_batch: AtomicUsize,
    flocks_granted: AtomicUsize,
    cancels_early: AtomicBool,
    forgoes_unused: AtomicBool,
}

/// Owners of flocks whose callers have gone before the answer: the target may have granted what is not known here, and has then
/// merged it with what the owner has.
#[derive(Default)]
struct UncertainFlocks {
    /// The number of the last.
    last: u64,
    /// The last of each owner on a resource.
    of: HashMap<(ResourceName, u64), u64>,
}

/// A caller that waits for a lock; stays until its [`PendingLock`] is done.
struct Waiter {
    /// Taken when there is an answer.
    answer: Option<oneshot::Sender<Result<LockDesc, Errno>>>,
    /// Its completion callback came, perhaps before the reply: the reply's value is older then.
    is_completed: bool,
}

/// What locks cover that an operation cancels early, still to be dropped. If the operation is dropped before they are done, they
/// go on by themselves.
struct EarlyCancels<'a> {
    namespace: &'a Arc<ClientNamespace>,
    actions: Vec<Action>,
}

fn is_drop(action: &Action) -> bool {
    matches!(action, Action::DropCovered { .. })
}

impl Drop for EarlyCancels<'_> {
    fn drop(&mut self) {
        self.namespace.perform(std::mem::take(&mut self.actions));
    }
}

impl ClientNamespace {
    /// The locks of the target behind `channel`; `name` is for operators.
    #[must_use]
    pub fn new(
        name: String,
        world: World,
        channel: Arc<dyn Channel>,
        config: Config,
        cache: Arc<dyn CoveredCache>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            world,
            channel,
            engine: Namespace::new(config),
            cache,
            waiting: Mutex::default(),
            uncertain_flocks: Mutex::default(),
            cancels: TaskQueue::default(),
            shrink_batch: AtomicUsize::new(SHRINK_BATCH),
            flocks_granted: AtomicUsize::new(limits::FLOCKS_PER_CLIENT),
            cancels_early: AtomicBool::new(true),
            forgoes_unused: AtomicBool::new(true),
        })
    }

    /// The namespace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine, for counts and limits.
    #[must_use]
    pub fn engine(&self) -> &Namespace {
        &self.engine
    }

    /// The clock and tasks.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// The target.
    #[must_use]
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// A cached lock that covers this; `None` if it must be enqueued.
    #[must_use]
    pub fn find(
        self: &Arc<Self>,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
    ) -> Option<LockReference> {
        let matched = self.engine.find(&MatchRequest { resource, policy, mode })?;
        Some(LockReference::new(
            self,
            resource,
            matched.handle,
            (matched.mode, matched.mode),
            matched.policy,
        ))
    }

    /// Whether a cached lock covers this now.
    #[must_use]
    pub fn covers(&self, resource: ResourceName, policy: Policy, mode: LockMode) -> bool {
        self.engine.peek(&MatchRequest { resource, policy, mode }).is_some()
    }

    /// Which of `bits` of an inode locks of ours cover, each by some lock.
    #[must_use]
    pub(crate) fn covered_bits(&self, resource: ResourceName, bits: InodeBits) -> InodeBits {
        let single = (0..8).map(|bit| InodeBits(1 << bit)).filter(|bit| bits.contains(*bit));
        single
            .filter(|bit| self.covers(resource, Policy::bits(*bit), LockMode::Cr))
            .fold(InodeBits(0), InodeBits::union)
    }

    /// Enqueues a lock without an intent and waits until it is granted. One RPC.
    ///
    /// # Errors
    /// `EAGAIN` if it would wait and must not, `EDEADLK`; what the target answers.
    pub async fn enqueue(self: &Arc<Self>, request: LockRequest) -> Result<LockReference, Errno> {
        self.enqueue_with(|| Ok(self.begin(request)), Vec::new()).await
    }

    /// Enqueues a flock for one of the users, and waits until it is granted. One RPC.
    ///
    /// # Errors
    /// As [`ClientNamespace::enqueue`], and `ENOLCK` if the user has the share of this client's that one may have, or waits
    /// for that of those on the file that this client may wait for.
    pub(crate) async fn enqueue_flock(
        self: &Arc<Self>,
        request: LockRequest,
        user: FlockUser,
    ) -> Result<LockReference, Errno> {
        self.enqueue_with(|| self.begin_flock(request, user), Vec::new()).await
    }

    /// The target may have granted a flock of this owner that is not known here.
    pub(super) fn note_uncertain_flock(&self, resource: ResourceName, owner: u64) {
        let mut uncertain = self.uncertain_flocks.lock();
        uncertain.last += 1;
        let number = uncertain.last;
        uncertain.of.insert((resource, owner), number);
    }

    /// Whether the owner has flocks on the resource, or may have.
    pub(crate) fn may_have_flocks(&self, resource: ResourceName, owner: u64) -> bool {
        self.engine.has_flocks(resource, owner) || self.uncertain_flock(resource, owner).is_some()
    }

    /// The number of the last flock of the owner that the target may have granted unknown to this client.
    pub(crate) fn uncertain_flock(&self, resource: ResourceName, owner: u64) -> Option<u64> {
        self.uncertain_flocks.lock().of.get(&(resource, owner)).copied()
    }

    /// All that the owner had on the resource is unlocked, and that flock was the last then that the target may have granted.
    pub(crate) fn note_unlocked(&self, resource: ResourceName, owner: u64, last: Option<u64>) {
        let mut uncertain = self.uncertain_flocks.lock();
        if last.is_some() && uncertain.of.get(&(resource, owner)).copied() == last {
            uncertain.of.remove(&(resource, owner));
        }
    }

    /// As [`ClientNamespace::enqueue`], cancelling our own unused conflicting locks with the same request:
    /// the target need not revoke them first.
    ///
    /// # Errors
    /// As [`ClientNamespace::enqueue`].
    pub(crate) async fn enqueue_with_early_cancel(
        self: &Arc<Self>,
        request: LockRequest,
    ) -> Result<LockReference, Errno> {
        let early = self
            .cancel_early(&[(request.resource, request.mode, request.policy.inode_bits())])
            .await;
        self.enqueue_with(|| Ok(self.begin(request)), early).await
    }

    async fn enqueue_with(
        self: &Arc<Self>,
        begin: impl Fn() -> Result<PendingLock, Errno>,
        mut early: Vec<LockHandle>,
    ) -> Result<LockReference, Errno> {
        loop {
            let pending = begin()?;
            let dlm_req = pending.plain_request(std::mem::take(&mut early));
            let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
            let (pending, answer) =
                pending.send::<LdlmEnqueue>(&self.channel, Call::new(request)).await?;
            let reply = call::need(answer.reply.dlm_rep)?;
            let is_lock = reply.handle != LockHandle(0);
            let value = &answer.reply.dlm_lvb;
            match pending.granted_with(&reply, value, answer.connection).await? {
                Some(held) => return Ok(held),
                // The target has restarted and knows nothing of it.
                None if is_lock => {}
                None => return Err(Errno::EPROTO),
            }
        }
    }

    /// Begins to enqueue a lock; its request is sent with an intent of the caller's.
    #[must_use]
    pub fn begin(self: &Arc<Self>, request: LockRequest) -> PendingLock {
        let LockRequest { resource, policy, mode, flags } = request;
        let now = self.world.clock.now();
        PendingLock::new(self, request, self.engine.begin(now, resource, policy, mode, flags))
    }

    fn begin_flock(
        self: &Arc<Self>,
        request: LockRequest,
        user: FlockUser,
    ) -> Result<PendingLock, Errno> {
        let LockRequest { resource, policy, mode, flags } = request;
        let now = self.world.clock.now();
        let begun = self.engine.begin_flock(now, resource, policy, mode, flags, user);
        let Some(handle) = begun else {
            let (namespace, has) = (self.name(), self.engine.flocks_of_user(user.uid));
            tracing::warn!(
                namespace,
                uid = user.uid,
                has,
                "a user has too many file locks, or waits for too many"
            );
            return Err(Errno::ENOLCK);
        };
        Ok(PendingLock::new(self, request, handle))
    }

    /// Prepares the cancels that an operation carries: all unused locks that conflict with `mode` on these
    /// bits of these resources. What they cover is dropped when this is done. The cookies go into the
    /// operation's request.
    pub(crate) async fn cancel_early(
        self: &Arc<Self>,
        wanted: &[(ResourceName, LockMode, InodeBits)],
    ) -> Vec<LockHandle> {
        let wants_some = wanted.iter().any(|(.., bits)| !bits.is_empty());
        match self.cancels_early() && wants_some {
            true => self.cancel_now(wanted).await,
            false => Vec::new(),
        }
    }

    /// Cancels early for an operation that another target executes: the cancels are sent to this one, and not waited
    /// for.
    pub(crate) async fn cancel_early_alone(
        self: &Arc<Self>,
        wanted: &[(ResourceName, LockMode, InodeBits)],
    ) {
        let handles = self.cancel_early(wanted).await;
        if !handles.is_empty() {
            self.cancel(handles);
        }
    }

    /// Whether operations carry the cancels of conflicting locks (`early_lock_cancel`); if not, the target
    /// revokes them.
    #[must_use]
    pub fn cancels_early(&self) -> bool {
        self.cancels_early.load(Ordering::Relaxed)
    }

    /// Sets whether operations carry the cancels of conflicting locks (`early_lock_cancel`).
    pub fn set_cancels_early(&self, on: bool) {
        self.cancels_early.store(on, Ordering::Relaxed);
    }

    /// Whether unused locks are dropped instead of being replayed to a restarted target
    /// (`cancel_unused_locks_before_replay`).
    pub fn set_forgoes_unused(&self, on: bool) {
        self.forgoes_unused.store(on, Ordering::Relaxed);
    }

    /// Drops what locks cover and the locks with it, each in a task. Nothing is sent by what is returned: it is closed
    /// by the last of them, or when `limit` has passed.
    fn begin_drops(
        self: &Arc<Self>,
        drops: Vec<Action>,
        name: &'static str,
        limit: Duration,
    ) -> oneshot::Receiver<()> {
        let (ended, end) = oneshot::channel::<()>();
        let (done, dropped) = oneshot::channel::<()>();
        let done = Arc::new(done);
        for action in drops {
            let Action::DropCovered { handle, lost } = action else { continue };
            let (namespace, done) = (Arc::clone(self), Arc::clone(&done));
            let task = async move {
                namespace.drop_covered(handle, lost).await;
                drop(done);
            };
            self.world.tasks.spawn(name, Box::pin(task));
        }
        drop(done);
        let late = self.world.clock.sleep_until(self.world.clock.now() + limit);
        let task = async move {
            futures::race(async { drop(dropped.await) }, late).await;
            drop(ended);
        };
        self.world.tasks.spawn("end of drops", Box::pin(task));
        end
    }

    async fn cancel_now(
        self: &Arc<Self>,
        wanted: &[(ResourceName, LockMode, InodeBits)],
    ) -> Vec<LockHandle> {
        let mut actions = Vec::new();
        let mut handles = Vec::new();
        for (resource, mode, bits) in wanted {
            handles.extend(self.engine.cancel_early(*resource, *mode, *bits, &mut actions));
        }
        let (mine, rest): (Vec<_>, Vec<_>) = actions.into_iter().partition(
            |action| matches!(action, Action::DropCovered { handle, .. } if handles.contains(handle)),
        );
        self.perform(rest);
        let mut cancels = EarlyCancels { namespace: self, actions: mine };
        while let Some(Action::DropCovered { lost, .. }) = cancels.actions.last() {
            self.cache.flush_and_invalidate(self, *lost).await;
            cancels.actions.pop();
        }
        self.engine.take_cancelled(&handles)
    }

    /// Cancels all unused locks on these resources, after flushing what they covered, in as few requests as
    /// possible.
    pub(crate) async fn cancel_unused_on(self: &Arc<Self>, resources: &[ResourceName]) {
        let all = |resource: &ResourceName| (*resource, LockMode::Ex, InodeBits(u64::MAX));
        let wanted: Vec<_> = resources.iter().map(all).collect();
        let handles = self.cancel_now(&wanted).await;
        self.cancel(handles);
    }

    /// Cancels all unused locks, each after what it covered was flushed. What is returned is closed when nothing is
    /// cached below them any more, or after ten seconds where a target is away; it need not be waited for.
    pub fn cancel_unused(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let mut actions = Vec::new();
        self.engine.clear_unused(&mut actions);
        let (drops, rest): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_drop);
        self.perform(rest);
        self.begin_drops(drops, "lock revocation", CLEARED_WITHIN)
    }

    /// From now on at most so many unused locks are kept, and for so long (`lru_size`, `lru_max_age`); what
    /// is beyond it now is cancelled.
    pub fn limit_unused(self: &Arc<Self>, lru_size: usize, lru_max_age: Duration) {
        self.engine.set_limits(lru_size, lru_max_age);
        self.cancel_aged();
    }

    /// Cancels unused locks that are too many or too old, however many there are.
    pub(crate) fn cancel_aged(self: &Arc<Self>) {
        let mut actions = Vec::new();
        self.engine.shrink(self.world.clock.now(), usize::MAX, &mut actions);
        self.perform(actions);
    }

    /// How many unused locks are cancelled at once when there are too many (`lru_cancel_batch`).
    #[must_use]
    pub fn shrink_batch(&self) -> usize {
        self.shrink_batch.load(Ordering::Relaxed)
    }

    /// Sets how many unused locks are cancelled at once (`lru_cancel_batch`); as Lustre takes it, 0 is no
    /// limit.
    pub fn set_shrink_batch(&self, count: usize) {
        self.shrink_batch.store(if count == 0 { usize::MAX } else { count }, Ordering::Relaxed);
    }

    /// How many flocks the target grants this client, if it has such a limit (`flocks_per_client`): what users' shares are
    /// of. The target does not say it.
    #[must_use]
    pub fn flocks_granted(&self) -> usize {
        self.flocks_granted.load(Ordering::Relaxed)
    }

    /// Sets how many flocks the target grants this client (`flocks_per_client`). What users have is not less
    /// for that.
    pub fn set_flocks_granted(&self, count: usize) {
        self.flocks_granted.store(count, Ordering::Relaxed);
    }

    /// Cancels unused locks if there are too many or they are too old.
    fn shrink(self: &Arc<Self>) {
        let mut actions = Vec::new();
        self.engine.shrink(self.world.clock.now(), self.shrink_batch(), &mut actions);
        self.perform(actions);
    }

    /// Performs what the engine has decided. Waits for nothing: what takes time becomes a task.
    fn perform(self: &Arc<Self>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Granted { handle, desc } => self.wake(handle, Ok(desc)),
                Action::Failed { handle, errno } => self.wake(handle, Err(errno)),
                Action::DropCovered { handle, lost } => {
                    let namespace = Arc::clone(self);
                    let task = async move { namespace.drop_covered(handle, lost).await };
                    self.world.tasks.spawn("lock revocation", Box::pin(task));
                }
                Action::Cancel { remote_handle, .. } => self.cancel([remote_handle]),
                Action::Convert { handle, remote_handle, drop, keep } => {
                    self.convert(handle, remote_handle, drop, keep);
                }
                Action::Void { lost, .. } => {
                    let invalidated = self.cache.invalidate_evicted(self, lost);
                    self.world.tasks.spawn("lock invalidation", invalidated);
                }
            }
        }
    }

    fn wake(&self, handle: LockHandle, result: Result<LockDesc, Errno>) {
        let answer = self.waiting.lock().get_mut(&handle).and_then(|waiter| waiter.answer.take());
        if let Some(answer) = answer {
            // The waiter may have been dropped; its `PendingLock` has cancelled the lock then.
            let _ = answer.send(result);
        }
    }

    async fn drop_covered(self: &Arc<Self>, handle: LockHandle, lost: LostLock) {
        self.cache.flush_and_invalidate(self, lost).await;
        let mut actions = Vec::new();
        self.engine.covered_dropped(self.world.clock.now(), handle, &mut actions);
        self.perform(actions);
    }

    /// Queues cancels; one task at a time sends what has come together.
    fn cancel(self: &Arc<Self>, remote_handles: impl IntoIterator<Item = LockHandle>) {
        if !self.cancels.push(remote_handles) {
            return;
        }
        let namespace = Arc::clone(self);
        self.world
            .tasks
            .spawn("lock cancel", Box::pin(async move { namespace.send_cancels().await }));
    }

    async fn send_cancels(&self) {
        let take = |waiting: &mut VecDeque<LockHandle>| -> Vec<LockHandle> {
            let count = waiting.len().min(CANCELS_IN_REQUEST_MAX);
            waiting.drain(..count).collect()
        };
        while let Some(handles) = self.cancels.serve(take) {
            let request =
                LdlmCancel { dlm_req: LdlmRequest::cancel(handles), ..LdlmCancel::default() };
            // A target that did not get it revokes the lock again, or has evicted us.
            if let Err(errno) = call::call::<LdlmCancel>(&*self.channel, Call::new(request)).await {
                tracing::debug!(namespace = self.name, %errno, "a cancel did not arrive");
            }
        }
    }

    fn convert(
        self: &Arc<Self>,
        handle: LockHandle,
        remote_handle: LockHandle,
        drop: InodeBits,
        keep: InodeBits,
    ) {
        let Some(desc) = self.engine.lock(handle).map(|lock| lock.desc) else { return };
        let namespace = Arc::clone(self);
        let task = async move {
            let dlm_req = callbacks::convert_request(remote_handle, desc, drop, keep);
            let request = LdlmConvert { dlm_req, ..LdlmConvert::default() };
            let answer = call::call::<LdlmConvert>(&*namespace.channel, Call::new(request)).await;
            let mut actions = Vec::new();
            let now = namespace.world.clock.now();
            namespace.engine.converted(now, handle, answer.map(|_| ()), &mut actions);
            namespace.perform(actions);
        };
        self.world.tasks.spawn("lock convert", Box::pin(task));
    }
}
