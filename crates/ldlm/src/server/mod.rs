//! The server's half: decides who holds what on one target.
//!
//! [`Namespace`] is sharded by resource; a call takes one shard's mutex, and never holds it on
//! return. Calls append to a list of [`Action`]s what is to be sent or woken; the caller carries
//! them out in order, without waiting for one before the next.

use std::time::Duration;

use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use crate::{LockDesc, LockFlags, LockKind, Owner, Policy};

/// How a namespace is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Makes the cookies hard to guess and different from those before a restart: random.
    pub seed: u64,
    /// How long a holder may take to cancel after a blocking callback, before it is evicted.
    pub callback_timeout: Duration,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Enqueue {
    /// What it is on.
    pub resource: ResourceName,
    /// What part of it.
    pub policy: Policy,
    /// What for.
    pub mode: LockMode,
    /// How.
    pub flags: LockFlags,
    /// For whom.
    pub owner: Owner,
    /// The client's own cookie of this lock, under which callbacks reach it; 0 for local locks.
    pub remote_handle: LockHandle,
}

/// The answer to an [`Enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The lock is held. A flock that was merged into another of its owner, or that was an unlock,
    /// is granted too, but its handle names nothing any more.
    Granted(Granted),
    /// The lock waits: [`Action::Completion`] or [`Action::LocalGranted`] will follow.
    Waiting {
        /// Our cookie.
        handle: LockHandle,
        /// For the reply: `BLOCK_GRANTED`/`BLOCK_WAIT` and `NO_TIMEOUT` as Lustre sets them.
        flags: LockFlags,
    },
    /// With [`LockFlags::TRY`]: somebody is in the way, nothing was changed.
    WouldBlock,
    /// Refused: `EAGAIN`, `EDEADLK`, `EPROTO` (a request that makes no sense), `ENOLCK`-like limits.
    Denied(Errno),
    /// Answer to [`LockFlags::TEST_LOCK`] or [`LockFlags::INTENT_ONLY`]: one lock that is in the
    /// way, or `None` if the lock could be had.
    Tested(Option<LockDesc>),
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Our cookie.
    pub handle: LockHandle,
    /// The mode held.
    pub mode: LockMode,
    /// What it covers: the extent as expanded, the bits with those that were tried and free.
    pub policy: Policy,
    /// For the reply: `LOCK_CHANGED` if more or less than asked for is covered, `AST_SENT` if
    /// somebody waits for it already.
    pub flags: LockFlags,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send `LDLM_BL_CALLBACK` to the holder; its deadline runs from now.
    Blocking {
        /// The lock that is in the way.
        handle: LockHandle,
        /// Its holder's export.
        export: u64,
        /// Its holder's cookie of it.
        remote_handle: LockHandle,
        /// The lock that cannot be granted because of it.
        wanted: LockDesc,
        /// `DISCARD_DATA` if so asked.
        flags: LockFlags,
    },
    /// Send `LDLM_CP_CALLBACK`: the lock that waited has been granted (or, for a flock, has failed:
    /// `desc.granted` is `None`).
    Completion {
        /// The lock.
        handle: LockHandle,
        /// Its owner's export.
        export: u64,
        /// Its owner's cookie of it.
        remote_handle: LockHandle,
        /// As granted.
        desc: LockDesc,
        /// `AST_SENT`: somebody waits for it already and the deadline runs. `FLOCK_DEADLOCK`: it
        /// was not granted. `AST_SENT` with no granted mode: a waiting flock that was cancelled.
        flags: LockFlags,
    },
    /// A local lock that waited has been granted: wake its task.
    LocalGranted {
        /// The lock.
        handle: LockHandle,
        /// As granted.
        desc: LockDesc,
    },
    /// The holder let the deadline of a blocking callback pass: evict the export (which ends in
    /// [`Namespace::cancel_owner`]).
    Evict {
        /// Who.
        export: u64,
        /// For which lock.
        handle: LockHandle,
    },
}

/// Why a call about an existing lock was refused. All are the peer's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// No lock has this cookie (any more): `ESTALE`.
    Unknown,
    /// It belongs to somebody else: `ESTALE` to the peer, who must not learn more.
    Foreign,
    /// The lock is of another kind or state than the call needs: `EINVAL`.
    Unfit,
}

impl LockError {
    /// The status of a reply.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Unknown | Self::Foreign => Errno::ESTALE,
            Self::Unfit => Errno::EINVAL,
        }
    }
}

/// One lock, for replies, resends and dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Our cookie.
    pub handle: LockHandle,
    /// Resource, policy, modes.
    pub desc: LockDesc,
    /// Whose.
    pub owner: Owner,
    /// Its owner's cookie; 0 for local locks.
    pub remote_handle: LockHandle,
    /// Whether somebody waits for it and its holder knows.
    pub blocked: bool,
    /// When its holder is evicted if it does not let go.
    pub deadline: Option<Instant>,
}

/// What [`Namespace::prolong`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prolonged {
    /// Locks of the export that cover the range.
    pub locks: usize,
    /// Those of them that are being called back.
    pub blocked: usize,
}

/// A lock whose holder may know a newer size: ask it with `LDLM_GL_CALLBACK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlimpseTarget {
    /// The lock.
    pub handle: LockHandle,
    /// Its holder's export.
    pub export: u64,
    /// Its holder's cookie of it.
    pub remote_handle: LockHandle,
    /// As held.
    pub desc: LockDesc,
}

/// Counts for the parameter tree (`ldlm.namespaces.*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Resources with a lock.
    pub resources: u64,
    /// Locks held, in the order of [`LockKind::ALL`].
    pub granted: [u64; 4],
    /// Locks waiting, in the order of [`LockKind::ALL`].
    pub waiting: [u64; 4],
    /// Locks ever granted.
    pub grants: u64,
    /// Locks ever cancelled.
    pub cancels: u64,
    /// Holders whose deadline has passed.
    pub timeouts: u64,
}

/// All locks of one target.
pub struct Namespace {
    config: Config,
}

impl Namespace {
    /// An empty one.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Asks for a lock. Blocking callbacks to those in the way, completions of others (a flock may
    /// free what somebody waits for) go to `actions`.
    pub fn enqueue(&self, now: Instant, request: Enqueue, actions: &mut Vec<Action>) -> Enqueued {
        let _ = (now, request, actions, self.config);
        todo!()
    }

    /// Gives bits of a granted inodebits lock back and keeps the rest; returns the rest. Without a
    /// rest the lock is cancelled.
    pub fn convert(
        &self,
        now: Instant,
        owner: Owner,
        handle: LockHandle,
        drop: InodeBits,
        actions: &mut Vec<Action>,
    ) -> Result<InodeBits, LockError> {
        let _ = (now, owner, handle, drop, actions);
        todo!()
    }

    /// Gives locks back, granted or waiting. Cookies that are unknown or of another owner are
    /// skipped; returns how many were cancelled (0 of some: answer `ESTALE`).
    pub fn cancel(
        &self,
        now: Instant,
        owner: Owner,
        handles: &[LockHandle],
        actions: &mut Vec<Action>,
    ) -> usize {
        let _ = (now, owner, handles, actions);
        todo!()
    }

    /// Takes all locks of an export away: disconnect or eviction.
    pub fn cancel_owner(&self, now: Instant, export: u64, actions: &mut Vec<Action>) {
        let _ = (now, export, actions);
        todo!()
    }

    /// Weakens a granted local lock (PW to PR, say), so that others may share. `Unfit` if `mode`
    /// would be stronger.
    pub fn downgrade(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) -> Result<(), LockError> {
        let _ = (now, handle, mode, actions);
        todo!()
    }

    /// Makes a granted local lock the client's, to be named in the reply of an intent. If somebody
    /// waits for it already, the answer carries `AST_SENT` and the deadline runs.
    pub fn hand_over(
        &self,
        now: Instant,
        handle: LockHandle,
        export: u64,
        remote_handle: LockHandle,
    ) -> Result<Granted, LockError> {
        let _ = (now, handle, export, remote_handle);
        todo!()
    }

    /// The lock that an export knows under its own cookie; for re-sent intents. Walks the export's
    /// locks.
    #[must_use]
    pub fn find(&self, export: u64, remote_handle: LockHandle) -> Option<LockInfo> {
        let _ = (export, remote_handle);
        todo!()
    }

    /// A lock by our cookie. O(1).
    #[must_use]
    pub fn lock(&self, handle: LockHandle) -> Option<LockInfo> {
        let _ = handle;
        todo!()
    }

    /// The holder shows progress: if a deadline runs, it is now at least `timeout` away. Whether
    /// one runs.
    pub fn touch(&self, now: Instant, handle: LockHandle, timeout: Duration) -> bool {
        let _ = (now, handle, timeout);
        todo!()
    }

    /// The same for all extent locks of an export that overlap `extent`: it reads or writes there.
    pub fn prolong(
        &self,
        now: Instant,
        export: u64,
        resource: ResourceName,
        extent: Extent,
        timeout: Duration,
    ) -> Prolonged {
        let _ = (now, export, resource, extent, timeout);
        todo!()
    }

    /// Changes the time that blocking callbacks from now on leave.
    pub fn set_callback_timeout(&self, timeout: Duration) {
        let _ = timeout;
        todo!()
    }

    /// Yields [`Action::Evict`] for each holder whose deadline has come, once.
    pub fn poll(&self, now: Instant, actions: &mut Vec<Action>) {
        let _ = (now, actions);
        todo!()
    }

    /// When to call [`Namespace::poll`] next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// The holders that may know a larger size than the object has: of each export the granted
    /// PW lock (and a DOM lock for inodebits) that reaches highest, highest first.
    #[must_use]
    pub fn glimpse_targets(&self, resource: ResourceName) -> Vec<GlimpseTarget> {
        let _ = resource;
        todo!()
    }

    /// Recovery is over: waiting locks that were replayed are granted as far as possible, and
    /// those in their way are called back.
    pub fn recovery_done(&self, now: Instant, actions: &mut Vec<Action>) {
        let _ = (now, actions);
        todo!()
    }

    /// The counts. Visits every shard.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        todo!()
    }

    /// All locks of a resource, granted first, then waiting in order.
    #[must_use]
    pub fn dump(&self, resource: ResourceName) -> Vec<LockInfo> {
        let _ = resource;
        todo!()
    }

    /// All resources with a lock, with their kind.
    #[must_use]
    pub fn resources(&self) -> Vec<(ResourceName, LockKind)> {
        todo!()
    }
}
