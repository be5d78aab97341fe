//! The words of the server half: requests, answers, actions.

use std::time::Duration;

use sheen_types::{Errno, Instant, LockHandle, LockMode, ResourceName};

use crate::{LockDesc, LockFlags, Owner, Policy};

/// How a namespace is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Makes the handles hard to guess and different from those before a restart: random.
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
    /// The client's export.
    pub owner: Owner,
    /// The lock's handle at the client, under which callbacks reach it there; 0 for local locks.
    pub remote_handle: LockHandle,
    /// The client that asked for what this lock is taken for, if it corrects what it knows by itself.
    pub spares: Option<Spared>,
}

/// A client whose granted locks do not conflict with the lock that is taken for a change of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// Its export.
    pub export: u64,
    /// Which of its locks.
    pub locks: SparedLocks,
}

/// Which locks of a client stay through its own change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparedLocks {
    /// `PR`.
    Readers,
    /// `CR`, `CW`, `PR` and `PW`.
    ReadersAndWriters,
}

/// The answer to an [`Enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The lock is held. A flock that was merged into another of its owner, or that was an unlock,
    /// is granted too, but its handle names nothing any more.
    Granted(Granted),
    /// The lock waits: [`Action::Completion`] or [`Action::LocalGranted`] will follow.
    Waiting {
        /// Its handle here.
        handle: LockHandle,
        /// For the reply: `BLOCK_GRANTED`/`BLOCK_WAIT` and `NO_TIMEOUT` as Lustre sets them.
        flags: LockFlags,
    },
    /// With [`LockFlags::TRY`]: a lock conflicts, nothing was changed.
    WouldBlock,
    /// Refused: `EAGAIN`, `EDEADLK`, `EPROTO` (a request that makes no sense), `ESTALE` (a replayed
    /// lock that another client holds), `ENOMEM` (67 million locks in one shard).
    Denied(Errno),
    /// Answer to [`LockFlags::TEST_LOCK`] or `LockFlags::INTENT_ONLY`: one conflicting lock, or
    /// `None` if the lock could be had.
    Tested(Option<LockDesc>),
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its handle here.
    pub handle: LockHandle,
    /// The mode held.
    pub mode: LockMode,
    /// What it covers: the extent as expanded, the bits with those that were tried and free.
    pub policy: Policy,
    /// For the reply: `LOCK_CHANGED` if more or less than asked for is covered, `AST_SENT` if
    /// another lock waits for it already.
    pub flags: LockFlags,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send `LDLM_BL_CALLBACK` to the holder; its deadline runs from now.
    Blocking {
        /// The conflicting lock.
        handle: LockHandle,
        /// Its holder's export.
        export: u64,
        /// Its handle at the client that holds it.
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
        /// Its handle at the client that owns it.
        remote_handle: LockHandle,
        /// As granted.
        desc: LockDesc,
        /// `AST_SENT`: another lock waits for it already and the deadline runs. `FLOCK_DEADLOCK`:
        /// it was not granted. `AST_SENT` with no granted mode: a waiting flock that was cancelled.
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
    /// `Namespace::cancel_owner`).
    Evict {
        /// The owner.
        export: u64,
        /// For which lock.
        handle: LockHandle,
    },
}

/// Why a call about an existing lock was refused. All are the peer's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// No lock has this handle (any more): `ESTALE`.
    Unknown,
    /// It belongs to another client: `ESTALE` to the peer, which must not learn more.
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
    /// Its handle here.
    pub handle: LockHandle,
    /// Resource, policy, modes.
    pub desc: LockDesc,
    /// Whose.
    pub owner: Owner,
    /// Its handle at the client that owns it; 0 for local locks.
    pub remote_handle: LockHandle,
    /// Whether another lock waits for it and its holder knows.
    pub is_waited_for: bool,
    /// When its holder is evicted if it does not cancel.
    pub deadline: Option<Instant>,
}

/// What `Namespace::prolong` found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prolonged {
    /// Locks of the export that cover the range.
    pub locks: usize,
    /// Those of them that are being revoked.
    pub revoked: usize,
}

/// A lock whose holder may know a newer size: ask it with `LDLM_GL_CALLBACK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlimpseTarget {
    /// The lock.
    pub handle: LockHandle,
    /// Its holder's export.
    pub export: u64,
    /// Its handle at the client that holds it.
    pub remote_handle: LockHandle,
    /// As held.
    pub desc: LockDesc,
}

/// Counts for the parameter tree (`ldlm.namespaces.*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Resources with a lock.
    pub resources: u64,
    /// Locks held, in the order of `LockKind::ALL`.
    pub granted: [u64; 4],
    /// Locks waiting, in the order of `LockKind::ALL`.
    pub waiting: [u64; 4],
    /// Locks ever granted.
    pub grants: u64,
    /// Locks ever cancelled.
    pub cancels: u64,
    /// Holders whose deadline has passed.
    pub timeouts: u64,
}
