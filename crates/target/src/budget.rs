//! What each client may have of this target, as operators have set it, and how often one wanted more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sheen_types::{Errno, Instant};

use crate::export::Export;
use crate::limits;
use crate::target::Target;

/// What a client may have only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Exports at one NID.
    Exports,
    /// Locks of one export.
    Locks,
    /// Open files of one export.
    Opens,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exports, Self::Locks, Self::Opens];
}

/// The limits of each client of a target.
#[derive(Debug)]
pub struct Budget {
    limits: [AtomicUsize; Limit::ALL.len()],
    refused: [AtomicU64; Limit::ALL.len()],
}

impl Default for Budget {
    fn default() -> Self {
        let limits = Limit::ALL.map(|limit| match limit {
            Limit::Exports => limits::EXPORTS_PER_NID,
            Limit::Locks => limits::LOCKS_PER_EXPORT,
            Limit::Opens => limits::OPENS_PER_EXPORT,
        });
        Self { limits: limits.map(AtomicUsize::new), refused: Default::default() }
    }
}

impl Budget {
    /// So much a client may have.
    #[must_use]
    pub fn of(&self, limit: Limit) -> usize {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// From now on a client may have so much; what it has stays.
    pub fn set(&self, limit: Limit, value: usize) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
    }

    /// A client wanted more and was refused.
    pub fn refuse(&self, limit: Limit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    #[must_use]
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }
}

/// What is known of how many locks an export has.
#[derive(Debug, Default)]
pub(crate) struct LockCount {
    /// Requests for a lock since they were counted.
    asked: AtomicU32,
    /// As they were counted, 0 unless they are near the limit.
    known: AtomicUsize,
    reclaimed: Mutex<Option<Instant>>,
}

impl Target {
    /// What each client may have of this target.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether a client may have one more lock. Where it nears its limit, the oldest are called back.
    ///
    /// # Errors
    /// [`Errno::EINPROGRESS`] as Lustre has it for too many locks: the client asks again a little later.
    pub(crate) fn admit_lock(self: &Arc<Self>, export: &Export) -> Result<(), Errno> {
        let count = export.lock_count();
        let asked = count.asked.fetch_add(1, Ordering::Relaxed);
        // Near the limit each request counts.
        let is_near = count.known.load(Ordering::Relaxed) > 0;
        if !is_near && !asked.is_multiple_of(limits::LOCKS_COUNTED_EVERY) {
            return Ok(());
        }
        let most = self.budget.of(Limit::Locks);
        let has = self.locks.count_of(export.handle().0);
        let reclaims = has >= most / 8 * limits::LOCKS_RECLAIMED_FROM;
        count.known.store(if reclaims { has } else { 0 }, Ordering::Relaxed);
        if reclaims {
            self.reclaim_locks(export);
        }
        if has < most {
            return Ok(());
        }
        self.budget.refuse(Limit::Locks);
        let (client, nid) = (export.uuid(), export.nid());
        tracing::warn!(target = self.name(), %client, %nid, has, "a client has too many locks");
        Err(Errno::EINPROGRESS)
    }

    /// Calls back the locks that a client has had for longest; evicted if it does not let go of them.
    fn reclaim_locks(self: &Arc<Self>, export: &Export) {
        let now = self.now();
        {
            let mut last = export.lock_count().reclaimed.lock();
            if last.is_some_and(|last| now.since(last) < limits::LOCKS_RECLAIM_PAUSE) {
                return;
            }
            *last = Some(now);
        }
        let mut actions = Vec::new();
        self.locks.reclaim(now, export.handle().0, limits::LOCKS_RECLAIMED, &mut actions);
        self.carry_out(actions);
        self.lock_timer_changed();
    }
}
