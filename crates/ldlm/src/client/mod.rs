//! The client's half: caches the locks that one target has granted to us.
//!
//! One [`Namespace`] belongs to one import. A lock lives through: in flight ([`Namespace::begin`]),
//! waiting or granted ([`Namespace::replied`], [`Namespace::completion`]), used and unused
//! (references), leaving ([`Action::Flush`], then [`Namespace::flushed`]), gone ([`Action::Cancel`]).
//! Only a lock that is granted and not leaving is found by [`Namespace::find`].

use std::time::Duration;

use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use crate::{LockDesc, LockFlags, Policy};

/// How a namespace is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Makes our cookies differ from those of the mount before: random.
    pub seed: u64,
    /// Unused locks kept (`lru_size`).
    pub lru_size: usize,
    /// How long an unused lock is kept (`lru_max_age`).
    pub lru_max_age: Duration,
}

/// What is needed under a lock.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// On what.
    pub resource: ResourceName,
    /// What part: a lock that covers more will do.
    pub policy: Policy,
    /// Which mode: a lock that allows more (PW for PR, EX for all) will do.
    pub mode: LockMode,
    /// Whether to join a lock that is still waiting to be granted.
    pub or_waiting: bool,
}

/// A lock found, with a reference in its own mode taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// Our cookie.
    pub handle: LockHandle,
    /// The lock's mode; pass it to [`Namespace::dec_ref`].
    pub mode: LockMode,
    /// What it covers.
    pub policy: Policy,
    /// Whether it may be used now; else [`Action::Granted`] or [`Action::Failed`] will come.
    pub granted: bool,
}

/// What a server's enqueue reply says about the lock.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The server's cookie.
    pub remote_handle: LockHandle,
    /// As granted or waiting; an intent may have changed resource and mode.
    pub desc: LockDesc,
    /// `lock_flags` of the reply: `AST_SENT`, `BLOCK_*`...
    pub flags: LockFlags,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The lock may be used: wake who waits for it.
    Granted {
        /// Our cookie.
        handle: LockHandle,
        /// As granted.
        desc: LockDesc,
    },
    /// The lock will never be granted: wake who waits for it.
    Failed {
        /// Our cookie.
        handle: LockHandle,
        /// Why: `EDEADLK`, `EINTR` (cancelled), `EIO` (evicted).
        errno: Errno,
    },
    /// Protection of this part ends: write dirty data back (or throw it away), drop what is cached
    /// of it, then call [`Namespace::flushed`].
    Flush {
        /// Our cookie.
        handle: LockHandle,
        /// On what.
        resource: ResourceName,
        /// The mode held: below PW there is nothing dirty.
        mode: LockMode,
        /// The part that goes: for a conversion only the bits being dropped.
        part: Policy,
        /// Dirty data need not be written.
        discard: bool,
    },
    /// Tell the server (`LDLM_CANCEL`, several in one request where they come together). The lock
    /// is gone here already.
    Cancel {
        /// Our cookie.
        handle: LockHandle,
        /// The server's.
        remote_handle: LockHandle,
    },
    /// Tell the server (`LDLM_CONVERT`) that these bits are free; then [`Namespace::converted`].
    Convert {
        /// Our cookie.
        handle: LockHandle,
        /// The server's.
        remote_handle: LockHandle,
        /// The bits dropped.
        drop: InodeBits,
        /// The bits kept.
        keep: InodeBits,
    },
    /// The lock is void (eviction): throw everything cached under it away, tell nobody.
    Invalidate {
        /// Our cookie.
        handle: LockHandle,
        /// On what.
        resource: ResourceName,
        /// What it covered.
        policy: Policy,
    },
}

/// A callback or reply named a lock that is not here: answer a callback with `EINVAL`-like status
/// (Lustre: `-ESTALE`/`-EINVAL`), forget a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLock;

/// One lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Our cookie.
    pub handle: LockHandle,
    /// The server's; 0 while in flight.
    pub remote_handle: LockHandle,
    /// Resource, policy, modes.
    pub desc: LockDesc,
    /// References by PR, CR and NL users.
    pub readers: u32,
    /// References by users of the other modes.
    pub writers: u32,
    /// Whether a blocking callback has come for it.
    pub blocked: bool,
}

/// One lock to be replayed to a server that has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Our cookie, by which the server knows the lock again.
    pub handle: LockHandle,
    /// The server's cookie before its restart.
    pub remote_handle: LockHandle,
    /// As held.
    pub desc: LockDesc,
    /// `REPLAY` and `BLOCK_GRANTED` or `BLOCK_WAIT`.
    pub flags: LockFlags,
}

/// Counts for the parameter tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Resources with a lock (`resource_count`).
    pub resources: usize,
    /// Locks (`lock_count`).
    pub locks: usize,
    /// Unused ones (`lock_unused_count`).
    pub unused: usize,
    /// The limit of unused ones (`lru_size`).
    pub lru_size: usize,
    /// Requests answered by a cached lock, ever.
    pub hits: u64,
    /// Locks asked from the server, ever.
    pub misses: u64,
}

/// The locks that one target has granted to us.
pub struct Namespace {
    config: Config,
}

impl Namespace {
    /// An empty one.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// A cached lock that covers what is wanted, with a reference taken (`ldlm_lock_match`).
    #[must_use]
    pub fn find(&self, want: &Want) -> Option<Matched> {
        let _ = (want, self.config);
        todo!()
    }

    /// The same without a reference: is it cached?
    #[must_use]
    pub fn peek(&self, want: &Want) -> Option<Matched> {
        let _ = want;
        todo!()
    }

    /// A lock is about to be asked for: makes it, in flight, with one reference in `mode`. The
    /// cookie goes into the request.
    pub fn begin(
        &self,
        now: Instant,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> LockHandle {
        let _ = (now, resource, policy, mode, flags);
        todo!()
    }

    /// The server's answer with a lock, held or waiting (by `desc.granted`). Callbacks that came
    /// before it take effect here. The new description, as later callbacks may have changed it.
    pub fn replied(
        &self,
        now: Instant,
        handle: LockHandle,
        reply: &Reply,
        actions: &mut Vec<Action>,
    ) -> Result<LockInfo, UnknownLock> {
        let _ = (now, handle, reply, actions);
        todo!()
    }

    /// The request failed, or the server gave no lock: it is forgotten, references and all.
    pub fn failed(&self, handle: LockHandle, errno: Errno, actions: &mut Vec<Action>) {
        let _ = (handle, errno, actions);
        todo!()
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
        let _ = (now, handle, desc, flags, actions);
        todo!()
    }

    /// `LDLM_BL_CALLBACK`: somebody wants what `wanted` says; let go when the last user is done.
    pub fn blocking(
        &self,
        now: Instant,
        handle: LockHandle,
        wanted: &LockDesc,
        flags: LockFlags,
        actions: &mut Vec<Action>,
    ) -> Result<(), UnknownLock> {
        let _ = (now, handle, wanted, flags, actions);
        todo!()
    }

    /// One more user of a lock that the caller has a reference of. Whether the lock is there.
    pub fn add_ref(&self, handle: LockHandle, mode: LockMode) -> bool {
        let _ = (handle, mode);
        todo!()
    }

    /// A user is done. The last one lets a blocked lock go; others stay cached.
    pub fn dec_ref(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) {
        let _ = (now, handle, mode, actions);
        todo!()
    }

    /// A user is done and the lock shall not be kept (`ldlm_lock_decref_and_cancel`).
    pub fn dec_ref_and_cancel(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) {
        let _ = (now, handle, mode, actions);
        todo!()
    }

    /// The upper layer has done what [`Action::Flush`] asked for.
    pub fn flushed(&self, now: Instant, handle: LockHandle, actions: &mut Vec<Action>) {
        let _ = (now, handle, actions);
        todo!()
    }

    /// The server's answer to [`Action::Convert`]; after a failure the whole lock is let go.
    pub fn converted(
        &self,
        now: Instant,
        handle: LockHandle,
        result: Result<(), Errno>,
        actions: &mut Vec<Action>,
    ) {
        let _ = (now, handle, result, actions);
        todo!()
    }

    /// Lets all unused locks of a resource go that conflict with an operation in `mode` on `bits`
    /// which we are about to send (early lock cancel): their flushes go to `actions`; when those
    /// are done pass the returned handles to [`Namespace::take_cancelled`] and send the cookies
    /// with the operation.
    pub fn cancel_early(
        &self,
        resource: ResourceName,
        mode: LockMode,
        bits: InodeBits,
        actions: &mut Vec<Action>,
    ) -> Vec<LockHandle> {
        let _ = (resource, mode, bits, actions);
        todo!()
    }

    /// Forgets flushed locks and returns the server's cookies of them, for a request's cancel list.
    pub fn take_cancelled(&self, handles: &[LockHandle]) -> Vec<LockHandle> {
        let _ = handles;
        todo!()
    }

    /// Lets unused locks go until the limits of number and age hold, at most `batch` of them,
    /// oldest first. Call it from time to time and after an enqueue.
    pub fn shrink(&self, now: Instant, batch: usize, actions: &mut Vec<Action>) {
        let _ = (now, batch, actions);
        todo!()
    }

    /// Lets all unused locks go (`lru_size=clear`, unmount).
    pub fn clear_unused(&self, actions: &mut Vec<Action>) {
        let _ = actions;
        todo!()
    }

    /// Changes the limits of unused locks.
    pub fn set_limits(&self, lru_size: usize, lru_max_age: Duration) {
        let _ = (lru_size, lru_max_age);
        todo!()
    }

    /// A lock by our cookie: for glimpse callbacks, which the upper layer answers.
    #[must_use]
    pub fn lock(&self, handle: LockHandle) -> Option<LockInfo> {
        let _ = handle;
        todo!()
    }

    /// A lock by the server's cookie.
    #[must_use]
    pub fn lock_by_remote(&self, remote_handle: LockHandle) -> Option<LockInfo> {
        let _ = remote_handle;
        todo!()
    }

    /// The size known to be right under the locks other than `handle`: `kms`, the known minimum
    /// size, or what the remaining locks still cover of it (`ldlm_extent_shift_kms`).
    #[must_use]
    pub fn shift_kms(&self, handle: LockHandle, kms: u64) -> u64 {
        let _ = (handle, kms);
        todo!()
    }

    /// Whether any granted lock of the resource covers the byte range in a mode for reading.
    #[must_use]
    pub fn covers(&self, resource: ResourceName, extent: Extent, mode: LockMode) -> bool {
        let _ = (resource, extent, mode);
        todo!()
    }

    /// All locks to be replayed to a restarted server.
    #[must_use]
    pub fn replay_list(&self) -> Vec<Replay> {
        todo!()
    }

    /// The server's new cookie of a replayed lock, from the reply.
    pub fn replayed(&self, handle: LockHandle, remote_handle: LockHandle) {
        let _ = (handle, remote_handle);
        todo!()
    }

    /// We were evicted: all locks are void.
    pub fn evict(&self, actions: &mut Vec<Action>) {
        let _ = actions;
        todo!()
    }

    /// The counts.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        todo!()
    }

    /// All locks of a resource.
    #[must_use]
    pub fn dump(&self, resource: ResourceName) -> Vec<LockInfo> {
        let _ = resource;
        todo!()
    }
}
