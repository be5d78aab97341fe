//! The client's half: caches the locks that one target has granted to us.
//!
//! One [`Namespace`] belongs to one import. A lock lives through: in flight ([`Namespace::begin`]),
//! waiting or granted ([`Namespace::replied`], [`Namespace::completion`]), used and unused
//! (references), leaving ([`Action::DropCovered`], then [`Namespace::covered_dropped`]), gone ([`Action::Cancel`]).
//! Only a lock that is not leaving and not revoked is found by [`Namespace::find`].
//!
//! What always holds: a lock with users is not cancelled; a lock that was revoked gets no new
//! users; what a lock covers is flushed before the server is informed that it is free.
//!
//! Flocks are not cached for later users: their users hold them, an unlock is an enqueue of mode
//! NL, and [`Namespace::release`] does not cancel them.
//!
//! Costs: one mutex per target, held for well under a microsecond; finding a lock is one hash
//! look-up and O(log n) of the resource's extent locks, a change of a flock O(log n) of the resource's flocks and what
//! it changes; no allocation once the tables have grown but for flocks.

mod flock_users;
mod privilege;
mod table;
#[cfg(test)]
mod tests;
mod transitions;
mod types;

use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

pub use self::flock_users::FlockUser;
pub use self::privilege::CachePolicy;
use self::privilege::Privilege;
use self::table::Table;
use self::transitions::NamespaceInner;
pub use self::types::{
    Action, Config, Gauges, LockInfo, LostLock, MatchRequest, Matched, ReplayedLock, Reply,
    UnknownLock,
};
use crate::flock::neighbourhood;
use crate::{LockDesc, LockFlags, Policy};

/// How long an unused lock is worth keeping in part, by default (`LDLM_DIRTY_AGE_LIMIT`).
const DIRTY_AGE_MAX: Duration = Duration::from_secs(10);

/// The locks that one target has granted to us.
pub struct Namespace {
    state: Mutex<NamespaceInner>,
}

impl Namespace {
    /// An empty one.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let state = NamespaceInner {
            table: Table::new(config.seed),
            lru_size: config.lru_size,
            lru_max_age: config.lru_max_age,
            convert: false,
            privilege: Privilege::default(),
            dirty_age_max: DIRTY_AGE_MAX,
            hits: 0,
            privileged_hits: 0,
            misses: 0,
            replayed_over: 0,
        };
        Self { state: Mutex::new(state) }
    }

    /// Whether the server takes `LDLM_CONVERT` (`OBD_CONNECT2_LOCK_CONVERT` negotiated): then a
    /// callback for some bits costs only those. Off at first.
    pub fn set_convert(&self, convert: bool) {
        self.state.lock().convert = convert;
    }

    /// A cached lock that covers what is wanted, with a reference taken (`ldlm_lock_match`).
    #[must_use]
    pub fn find(&self, want: &MatchRequest) -> Option<Matched> {
        let mut state = self.state.lock();
        let slot = state.table.find(want)?;
        state.hits += 1;
        let is_privileged_hit =
            state.table.lock(slot).privileged && state.table.unused_since(slot).is_some();
        state.privileged_hits += u64::from(is_privileged_hit);
        state.table.take_unused(slot);
        let matched = state.table.matched(slot);
        *state.table.lock_mut(slot).users(matched.mode) += 1;
        Some(matched)
    }

    /// The cached lock that a call could use, if there is one; no reference is taken.
    #[must_use]
    pub fn peek(&self, want: &MatchRequest) -> Option<Matched> {
        let state = self.state.lock();
        state.table.find(want).map(|slot| state.table.matched(slot))
    }

    /// A lock is about to be asked for: makes it, in flight, with one reference in `mode`. The
    /// handle goes into the request.
    pub fn begin(
        &self,
        now: Instant,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> LockHandle {
        let mut state = self.state.lock();
        let slot = state.begin(now, resource, policy, mode, flags);
        state.table.handle(slot)
    }

    /// The same for a flock of a user's, with a reference taken; `None` if that user has no right to one more, to one more
    /// that may have to wait on this resource, or to what an unlock leaves of one that it cuts in two. It counts as the
    /// user's until it is gone, however that comes.
    pub fn begin_flock(
        &self,
        now: Instant,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
        user: FlockUser,
    ) -> Option<LockHandle> {
        let mut state = self.state.lock();
        let count = match (mode, policy) {
            (LockMode::Nl, Policy::Flock { owner, .. }) => {
                u8::from(state.table.cuts_flock(resource, owner, policy.range()))
            }
            _ => 2,
        };
        if count > 0 && !state.table.flock_counts.may_have_more(user) {
            return None;
        }
        let waits = mode != LockMode::Nl && !flags.contains(LockFlags::BLOCK_NOWAIT);
        if waits && !state.table.may_wait(resource, user) {
            return None;
        }
        let slot = state.begin(now, resource, policy, mode, flags);
        state.table.count_for(slot, user.uid, count, waits);
        Some(state.table.handle(slot))
    }

    /// How many flocks a user holds and asks for.
    #[must_use]
    pub fn flocks_of_user(&self, uid: u32) -> usize {
        self.state.lock().table.flock_counts.of(uid)
    }

    /// The server's answer with a lock, held or waiting (by `desc.granted`). Callbacks that came
    /// before it take effect here. Returns the new description, as later callbacks may have changed
    /// it; `None` if the server has restarted since the answer came and the lock was not replayed
    /// to it: it is forgotten, references and all.
    pub fn replied(
        &self,
        now: Instant,
        handle: LockHandle,
        reply: &Reply,
        actions: &mut Vec<Action>,
    ) -> Result<Option<LockInfo>, UnknownLock> {
        let mut state = self.state.lock();
        let slot = state.table.slot(handle).ok_or(UnknownLock)?;
        if state.is_lost(slot, reply) {
            state.table.remove(slot);
            return Ok(None);
        }
        state.replied(now, slot, reply, actions).map(Some)
    }

    /// The request failed, or the server gave no lock: it is forgotten, references and all.
    pub fn failed(&self, handle: LockHandle, errno: Errno, actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            actions.push(Action::Failed { handle, errno });
            state.table.remove(slot);
        }
    }

    /// `LDLM_CP_CALLBACK`: the lock that waited is granted, or a flock has failed.
    pub fn completion(
        &self,
        now: Instant,
        handle: LockHandle,
        desc: &LockDesc,
        flags: LockFlags,
        actions: &mut Vec<Action>,
    ) -> Result<(), UnknownLock> {
        let mut state = self.state.lock();
        let slot = state.table.slot(handle).ok_or(UnknownLock)?;
        state.complete(now, slot, desc, flags, actions);
        Ok(())
    }

    /// `LDLM_BL_CALLBACK`: another client wants what `wanted` describes; the lock is cancelled when
    /// the last user is done.
    pub fn blocking(
        &self,
        now: Instant,
        handle: LockHandle,
        wanted: &LockDesc,
        flags: LockFlags,
        actions: &mut Vec<Action>,
    ) -> Result<(), UnknownLock> {
        let mut state = self.state.lock();
        let slot = state.table.slot(handle).ok_or(UnknownLock)?;
        state.blocking(now, slot, wanted, flags, actions);
        Ok(())
    }

    /// A user is done (`ldlm_lock_decref`). With the last one a revoked lock is cancelled; any other stays cached.
    pub fn release(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.release(now, slot, mode, false, actions);
        }
    }

    /// A user is done and the lock shall not be kept (`ldlm_lock_decref_and_cancel`).
    pub fn release_and_cancel(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.release(now, slot, mode, true, actions);
        }
    }

    /// The upper layer has done what [`Action::DropCovered`] asked for.
    pub fn covered_dropped(&self, now: Instant, handle: LockHandle, actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.covered_dropped(now, slot, actions);
        }
    }

    /// The server's answer to [`Action::Convert`]; after a failure the whole lock is cancelled.
    pub fn converted(
        &self,
        now: Instant,
        handle: LockHandle,
        result: Result<(), Errno>,
        actions: &mut Vec<Action>,
    ) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.converted(now, slot, result, actions);
        }
    }

    /// Cancels all unused locks of a resource that conflict with an operation in `mode` on `bits`
    /// which we are about to send (early lock cancel): what drops their caches goes to `actions`; when that
    /// is done pass the returned handles to [`Namespace::take_cancelled`] and send what that returns
    /// with the operation.
    pub fn cancel_early(
        &self,
        resource: ResourceName,
        mode: LockMode,
        bits: InodeBits,
        actions: &mut Vec<Action>,
    ) -> Vec<LockHandle> {
        let mut state = self.state.lock();
        let slots: Vec<u32> = state.table.of_resource(resource).to_vec();
        let mut handles = Vec::new();
        for slot in slots {
            if state.conflicts_with(slot, mode, bits) {
                handles.push(state.table.handle(slot));
                state.begin_cancel(slot, true, actions);
            }
        }
        handles
    }

    /// Forgets locks that [`Namespace::cancel_early`] named and under which the caller has dropped all that they covered
    /// ([`Namespace::covered_dropped`] may be left out for them); returns their handles at the server, for a request's
    /// cancel list.
    pub fn take_cancelled(&self, handles: &[LockHandle]) -> Vec<LockHandle> {
        self.state.lock().take_cancelled(handles)
    }

    /// Cancels unused locks until the limits of number and age hold, at most `batch` of them,
    /// oldest first. Call it from time to time and after an enqueue.
    pub fn shrink(&self, now: Instant, batch: usize, actions: &mut Vec<Action>) {
        self.state.lock().shrink(now, batch, actions);
    }

    /// Cancels all unused locks (`lru_size=clear`, unmount).
    pub fn clear_unused(&self, actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        for privileged in [false, true] {
            while let Some((slot, _)) = state.table.oldest_unused(privileged) {
                state.begin_cancel(slot, false, actions);
            }
        }
        state.privilege.restart();
    }

    /// Changes which unused locks go first (`lock_cache_policy`).
    pub fn set_policy(&self, policy: CachePolicy) {
        let mut state = self.state.lock();
        if state.privilege.set_policy(policy) && policy == CachePolicy::Lru {
            while state.table.demote() {}
        }
    }

    /// A lock that was used more often than that is privileged (`lru_priv_score_threshold`). As locks
    /// are used the number changes.
    pub fn set_privilege_threshold(&self, score: i32) {
        self.state.lock().privilege.set_threshold(score);
    }

    /// The share of the unused locks, in percent, from which on privileges end (`lru_priv_ratio_limit`).
    pub fn set_privilege_ratio(&self, percent: u32) {
        self.state.lock().privilege.set_ratio_limit(percent);
    }

    /// A lock that was unused for longer is cancelled whole when a part of it is revoked, and one
    /// for writing when another client asks what is under it (`dirty_age_limit`).
    pub fn set_dirty_age(&self, most: Duration) {
        self.state.lock().dirty_age_max = most;
    }

    /// A glimpse callback for the lock was answered.
    pub fn glimpsed(&self, now: Instant, handle: LockHandle, actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.glimpsed(now, slot, actions);
        }
    }

    /// Changes the limits of unused locks.
    pub fn set_limits(&self, lru_size: usize, lru_max_age: Duration) {
        let mut state = self.state.lock();
        (state.lru_size, state.lru_max_age) = (lru_size, lru_max_age);
    }

    /// A lock by its handle here: for glimpse callbacks, which the upper layer answers.
    #[must_use]
    pub fn lock(&self, handle: LockHandle) -> Option<LockInfo> {
        let state = self.state.lock();
        state.table.slot(handle).map(|slot| state.table.info(slot))
    }

    /// All locks to be replayed to a restarted server over this connection; connections are counted
    /// by the caller, which makes them, and [`Reply::connection`] says over which one a lock came.
    ///
    /// A lock in flight is not among them: its request is sent again, or its answer has come and
    /// waits for its task to run. That lock the server does not know; [`Namespace::replied`]
    /// recognizes it by the older connection.
    #[must_use]
    pub fn begin_replay(&self, connection: u32) -> Vec<ReplayedLock> {
        let mut state = self.state.lock();
        state.replayed_over = connection;
        for slot in state.table.all() {
            state.table.lock_mut(slot).is_forgone = false;
        }
        state.replays()
    }

    /// All unused locks, before [`Namespace::forgo`].
    #[must_use]
    pub fn unused(&self) -> Vec<LockInfo> {
        let state = self.state.lock();
        state.table.all_unused().into_iter().map(|slot| state.table.info(slot)).collect()
    }

    /// The server has restarted: gives up those of these locks that are still unused. One that is
    /// flushed before [`Namespace::begin_replay`] is simply gone; the rest is replayed as if it
    /// stayed.
    pub fn forgo(&self, handles: &[LockHandle], actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        for handle in handles {
            if let Some(slot) = state.table.slot(*handle) {
                state.forgo(slot, actions);
            }
        }
    }

    /// Whether locks were replayed after that connection: what came over it and is not known yet is
    /// not the server's any more.
    #[must_use]
    pub fn has_replayed_since(&self, connection: u32) -> bool {
        connection < self.state.lock().replayed_over
    }

    /// All locks that would be replayed: those the server should know.
    #[must_use]
    pub fn replay_list(&self) -> Vec<ReplayedLock> {
        self.state.lock().replays()
    }

    /// The new handle at the server of a replayed lock, from the reply. Whether the lock is still here: if not,
    /// the server must be informed that it is free.
    #[must_use]
    pub fn replayed(&self, handle: LockHandle, remote_handle: LockHandle) -> bool {
        let mut state = self.state.lock();
        let slot = state.table.slot(handle);
        if let Some(slot) = slot {
            state.table.lock_mut(slot).remote_handle = remote_handle;
        }
        slot.is_some()
    }

    /// The restarted server does not grant a replayed lock: it is void, as another client may have
    /// what it covers.
    pub fn refused(&self, handle: LockHandle, actions: &mut Vec<Action>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.table.slot(handle) {
            state.drop_unknown(slot, actions);
        }
    }

    /// We were evicted: all locks are void.
    pub fn evict(&self, actions: &mut Vec<Action>) {
        self.state.lock().evict(actions);
    }

    /// The counts.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let state = self.state.lock();
        Gauges {
            resources: state.table.resource_count(),
            locks: state.table.lock_count(),
            unused: state.table.unused_count(),
            lru_size: state.lru_size,
            lru_max_age: state.lru_max_age,
            privileged: state.table.privileged(),
            policy: state.privilege.policy(),
            privilege_threshold: state.privilege.threshold(),
            privilege_ratio: state.privilege.ratio_limit(),
            dirty_age_max: state.dirty_age_max,
            hits: state.hits,
            privileged_hits: state.privileged_hits,
            misses: state.misses,
        }
    }

    /// All locks.
    #[must_use]
    pub fn dump_all(&self) -> Vec<LockInfo> {
        let state = self.state.lock();
        state.table.all().into_iter().map(|slot| state.table.info(slot)).collect()
    }

    /// The flocks that an owner holds which share a byte with `range` or are next to it: all that a change of `range` may
    /// have changed.
    #[must_use]
    pub fn flocks_near(&self, resource: ResourceName, owner: u64, range: Extent) -> Vec<LockInfo> {
        let state = self.state.lock();
        let near = neighbourhood(LockMode::Pw, range);
        let slots = state.table.flocks_of(resource, owner, near);
        slots.map(|slot| state.table.info(slot)).collect()
    }

    /// Whether an owner holds a flock on a resource.
    #[must_use]
    pub fn has_flocks(&self, resource: ResourceName, owner: u64) -> bool {
        let everything = Extent { start: 0, end: u64::MAX };
        self.state.lock().table.flocks_of(resource, owner, everything).next().is_some()
    }

    /// The owners of flocks on a resource that a process holds, each once, by rising number.
    #[must_use]
    pub fn flock_owners(&self, resource: ResourceName, process: u32) -> Vec<u64> {
        self.state.lock().table.flock_owners(resource, process)
    }

    /// All locks of a resource.
    #[must_use]
    pub fn dump(&self, resource: ResourceName) -> Vec<LockInfo> {
        let state = self.state.lock();
        state.table.of_resource(resource).iter().map(|&slot| state.table.info(slot)).collect()
    }
}
