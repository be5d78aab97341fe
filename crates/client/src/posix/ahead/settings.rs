//! What operators set of stat-ahead (`llite.*.statahead_*`), and what it counts.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// `LL_SA_REQ_MAX_DEF`.
const MAX: usize = 128;
/// `LL_SA_BATCH_DEF`.
const BATCH_MAX: usize = 64;

/// The settings of one mount.
pub struct AheadSettings {
    max: AtomicUsize,
    batch_max: AtomicUsize,
    asks_sizes: AtomicBool,
    counts: [AtomicU64; 3],
}

/// What was looked up ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadCounts {
    /// Parts of directories listed with what their names stand for.
    pub listings: u64,
    /// Names whose attributes came along, under locks that let the kernel keep them.
    pub hits: u64,
    /// Names whose attributes must not be kept, or that were gone.
    pub misses: u64,
}

impl Default for AheadSettings {
    fn default() -> Self {
        Self {
            max: AtomicUsize::new(MAX),
            batch_max: AtomicUsize::new(BATCH_MAX),
            asks_sizes: AtomicBool::new(true),
            counts: Default::default(),
        }
    }
}

impl AheadSettings {
    /// Names asked ahead at most (`statahead_max`); with 0, names are listed without a look at what they stand for.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// From now on so many.
    pub fn set_max(&self, count: usize) {
        self.max.store(count, Ordering::Relaxed);
    }

    /// Names in one request at most (`statahead_batch_max`); with 0 or 1 each has its own.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.batch_max.load(Ordering::Relaxed)
    }

    /// From now on so many.
    pub fn set_batch_max(&self, count: usize) {
        self.batch_max.store(count, Ordering::Relaxed);
    }

    /// Whether OSTs are asked for sizes, too (`statahead_agl`).
    #[must_use]
    pub fn asks_sizes(&self) -> bool {
        self.asks_sizes.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_asks_sizes(&self, on: bool) {
        self.asks_sizes.store(on, Ordering::Relaxed);
    }

    /// Part of a directory was listed with so many names, of which so many are kept.
    pub(in crate::posix) fn listed(&self, names: usize, kept: usize) {
        let counts = [1, kept as u64, names.saturating_sub(kept) as u64];
        for (counter, count) in self.counts.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What was looked up ahead (`statahead_stats`).
    #[must_use]
    pub fn counts(&self) -> AheadCounts {
        let [listings, hits, misses] = [0, 1, 2].map(|at| self.counts[at].load(Ordering::Relaxed));
        AheadCounts { listings, hits, misses }
    }

    /// Counts anew.
    pub fn clear_counts(&self) {
        self.counts.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}
