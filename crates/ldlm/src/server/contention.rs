//! Objects that many clients want at once: a request that says so (`DENY_ON_CONTENTION`) is refused a lock on a short
//! range of such an object, and its client reads or writes there without a lock of its own.
//!
//! An object is contended from when a request conflicts with more locks than operators say (`contended_locks`), for so
//! long (`contention_seconds`); "short" is `max_nolock_bytes`, 0 by default. No current client asks so.
//!
//! Cost: nothing for a request without conflicts; else one look at each, which are announced anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_types::{Extent, Instant, LockMode};

use super::grant::ShardLocks;
use super::shard::Lock;
use super::types::Enqueue;
use crate::{LockFlags, LockKind};

/// By default (`NS_DEFAULT_CONTENDED_LOCKS`, `NS_DEFAULT_CONTENTION_SECONDS`).
const LOCKS: u64 = 32;
const SECONDS: u64 = 2;

/// What operators set of one namespace.
#[derive(Debug)]
pub struct ContentionLimits {
    /// More conflicting locks than this make an object contended (`contended_locks`).
    pub locks: AtomicU64,
    /// How long it is so, in seconds (`contention_seconds`).
    pub seconds: AtomicU64,
    /// Up to which range a lock is refused (`max_nolock_bytes`).
    pub nolock_bytes: AtomicU64,
}

impl Default for ContentionLimits {
    fn default() -> Self {
        Self {
            locks: AtomicU64::new(LOCKS),
            seconds: AtomicU64::new(SECONDS),
            nolock_bytes: AtomicU64::new(0),
        }
    }
}

/// Whether a lock that conflicts with a request for `asked` counts: one that only its growth has made conflict does not,
/// and glimpses do not.
fn counts(theirs: &Lock, asked: &Extent) -> bool {
    let is_glimpse = theirs.requested == LockMode::Pr && theirs.asked == Extent::ALL;
    !is_glimpse && theirs.asked.overlaps(asked)
}

impl ShardLocks<'_> {
    /// Notes that a request has these conflicts; whether it is refused for them.
    pub(super) fn is_denied_for_contention(
        &mut self,
        resource: u32,
        request: &Enqueue,
        conflicts: impl Iterator<Item = u32>,
    ) -> bool {
        if request.policy.kind() != LockKind::Extent {
            return false;
        }
        let asked = request.policy.range();
        let count = conflicts.filter(|slot| counts(self.shard.lock(*slot), &asked)).count();
        let limits = self.contention;
        let resource = &mut self.shard.resources[resource as usize];
        if count as u64 > limits.locks.load(Ordering::Relaxed) {
            resource.contended = Some(self.now);
        }
        let memory = Duration::from_secs(limits.seconds.load(Ordering::Relaxed));
        let is_contended =
            resource.contended.is_some_and(|since: Instant| self.now < since + memory);
        is_contended
            && request.flags.contains(LockFlags::DENY_ON_CONTENTION)
            && request.mode != LockMode::Group
            && asked.end.saturating_sub(asked.start) <= limits.nolock_bytes.load(Ordering::Relaxed)
    }
}
