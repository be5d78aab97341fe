//! The words of the client half: needs, replies, actions.

use std::time::Duration;

use sheen_types::{Errno, InodeBits, LockHandle, LockMode, ResourceName};

use super::privilege::CachePolicy;
use crate::{LockDesc, LockFlags, Policy};

/// How a namespace is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Makes our handles differ from those of the mount before: random.
    pub seed: u64,
    /// Unused locks kept (`lru_size`).
    pub lru_size: usize,
    /// How long an unused lock is kept (`lru_max_age`).
    pub lru_max_age: Duration,
}

/// The lock that a caller needs, to find a cached one that will do.
#[derive(Clone, Copy, Debug)]
pub struct MatchRequest {
    /// On what.
    pub resource: ResourceName,
    /// What part: a lock that covers more will do.
    pub policy: Policy,
    /// Which mode: a lock that allows more (PW for PR, EX for all) will do.
    pub mode: LockMode,
}

/// A granted lock that was found, with a reference in its own mode taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// Its handle here.
    pub handle: LockHandle,
    /// The lock's mode; pass it to `Namespace::release`.
    pub mode: LockMode,
    /// What it covers.
    pub policy: Policy,
}

/// What a server's enqueue reply says about the lock.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Its handle at the server.
    pub remote_handle: LockHandle,
    /// As granted or waiting; an intent may have changed resource and mode.
    pub desc: LockDesc,
    /// `lock_flags` of the reply: `AST_SENT`, `BLOCK_*`...
    pub flags: LockFlags,
    /// Which connection it came over, as counted for [`super::Namespace::begin_replay`].
    pub connection: u32,
}

/// A lock that this client loses, or a part of one: it is cancelled or converted, because it was revoked or by the
/// client itself, or an eviction has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLock {
    /// On what.
    pub resource: ResourceName,
    /// The mode it was granted in: below PW nothing is dirty. NL for a lock that is void already, after an eviction or
    /// where the server refused its replay: what is dirty cannot be written.
    pub mode: LockMode,
    /// The part that is no longer covered: for a conversion only the bits being dropped.
    pub part: Policy,
    /// Dirty data need not be written.
    pub discard: bool,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The lock may be used: wake its waiters.
    Granted {
        /// Its handle here.
        handle: LockHandle,
        /// As granted.
        desc: LockDesc,
    },
    /// The lock will never be granted: wake its waiters.
    Failed {
        /// Its handle here.
        handle: LockHandle,
        /// Why: `EDEADLK`, `EINTR` (cancelled), `EIO` (evicted).
        errno: Errno,
    },
    /// This part covers nothing any more: flush dirty data (or discard it), drop what is cached of
    /// it, then call `Namespace::covered_dropped`.
    DropCovered {
        /// Its handle here.
        handle: LockHandle,
        /// What ends.
        lost: LostLock,
    },
    /// Inform the server (`LDLM_CANCEL`, several in one request where they come together). The lock
    /// is gone here already.
    Cancel {
        /// Its handle here.
        handle: LockHandle,
        /// Its handle at the server.
        remote_handle: LockHandle,
    },
    /// Inform the server (`LDLM_CONVERT`) that these bits are free; then `Namespace::converted`.
    Convert {
        /// Its handle here.
        handle: LockHandle,
        /// Its handle at the server.
        remote_handle: LockHandle,
        /// The bits dropped.
        drop: InodeBits,
        /// The bits kept.
        keep: InodeBits,
    },
    /// The lock is void (eviction, a refused replay): drop everything cached under it, send nothing.
    Void {
        /// Its handle here.
        handle: LockHandle,
        /// What ends.
        lost: LostLock,
    },
}

/// A callback or reply named a lock that is not here: answer a callback with `EINVAL`-like status
/// (Lustre: `-ESTALE`/`-EINVAL`), forget a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLock;

/// One lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Its handle here.
    pub handle: LockHandle,
    /// Its handle at the server; 0 while in flight.
    pub remote_handle: LockHandle,
    /// Resource, policy, modes.
    pub desc: LockDesc,
    /// References by PR, CR and NL users.
    pub readers: u32,
    /// References by users of the other modes.
    pub writers: u32,
    /// Whether a blocking callback has come for it.
    pub is_revoked: bool,
}

/// One lock to be replayed to a server that has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedLock {
    /// Its handle here, by which the server knows the lock again.
    pub handle: LockHandle,
    /// Its handle at the server before its restart.
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
    /// How long an unused one is kept (`lru_max_age`).
    pub lru_max_age: Duration,
    /// Unused ones with privilege (`lock_unused_priv_count`).
    pub privileged: usize,
    /// Which unused ones go first (`lock_cache_policy`).
    pub policy: CachePolicy,
    /// The score above which a lock is privileged (`lru_priv_score_threshold`).
    pub privilege_threshold: i32,
    /// The share of privileged locks from which on there are too many, in percent
    /// (`lru_priv_ratio_limit`).
    pub privilege_ratio: u32,
    /// See `Namespace::set_dirty_age`.
    pub dirty_age_max: Duration,
    /// Requests answered by a cached lock, ever.
    pub hits: u64,
    /// Those of them that were privileged.
    pub privileged_hits: u64,
    /// Locks asked from the server, ever.
    pub misses: u64,
}
