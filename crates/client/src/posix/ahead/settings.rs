//! What operators set of stat-ahead (`llite.*.statahead_*`), and what it counts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::numbers::Thresholds;
use super::run::RunCounts;

/// `LL_SA_REQ_MAX_DEF`.
const MAX: usize = 128;
/// `LL_SA_REQ_MIN_DEF`.
const MIN: usize = 8;
/// `LL_SA_BATCH_DEF`.
const BATCH_MAX: usize = 64;
/// `LL_SA_RUNNING_DEF`.
const RUNNING_MAX: usize = 16;
/// `LL_SA_TIMEOUT_DEF`, in seconds.
const TIMEOUT: u64 = 30;
/// `LSA_FN_PREDICT_HIT_DEF`.
const FNAME_PREDICT_HIT: u32 = 2;
/// `LSA_FN_MATCH_HIT_DEF`.
const FNAME_MATCH_HIT: u32 = 4;

/// The settings of one mount.
pub struct AheadSettings {
    max: AtomicUsize,
    min: AtomicUsize,
    batch_max: AtomicUsize,
    running_max: AtomicUsize,
    timeout: AtomicU64,
    asks_sizes: AtomicBool,
    guesses_names: AtomicBool,
    predict_hit: AtomicU32,
    match_hit: AtomicU32,
    counts: Counters,
}

#[derive(Default)]
struct Counters {
    total: AtomicU64,
    wrong: AtomicU64,
    agl: AtomicU64,
    list: AtomicU64,
    fname: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What was looked up ahead (`statahead_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadCounts {
    /// Runs that were begun.
    pub total: u64,
    /// Those that ended because too few of their names were used.
    pub wrong: u64,
    /// Those that asked for sizes, too.
    pub agl: u64,
    /// Those that followed a listing.
    pub list: u64,
    /// Those that followed numbers.
    pub fname: u64,
    /// Names that were known when they were looked up, of runs that have ended.
    pub hits: u64,
    /// Names that were not.
    pub misses: u64,
}

impl Default for AheadSettings {
    fn default() -> Self {
        Self {
            max: AtomicUsize::new(MAX),
            min: AtomicUsize::new(MIN),
            batch_max: AtomicUsize::new(BATCH_MAX),
            running_max: AtomicUsize::new(RUNNING_MAX),
            timeout: AtomicU64::new(TIMEOUT),
            asks_sizes: AtomicBool::new(true),
            guesses_names: AtomicBool::new(true),
            predict_hit: AtomicU32::new(FNAME_PREDICT_HIT),
            match_hit: AtomicU32::new(FNAME_MATCH_HIT),
            counts: Counters::default(),
        }
    }
}

impl AheadSettings {
    /// Names that a run is ahead at most (`statahead_max`); with 0 nothing is asked ahead, and names are listed without a
    /// look at what they stand for.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets the names that a run is ahead at most (`statahead_max`).
    pub fn set_max(&self, count: usize) {
        self.max.store(count, Ordering::Relaxed);
    }

    /// Names that a run is ahead at first (`statahead_min`).
    #[must_use]
    pub fn min(&self) -> usize {
        self.min.load(Ordering::Relaxed)
    }

    /// Sets the names that a run is ahead at first (`statahead_min`).
    pub fn set_min(&self, count: usize) {
        self.min.store(count, Ordering::Relaxed);
    }

    /// Names in one request at most (`statahead_batch_max`); with 0 or 1 each has its own.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.batch_max.load(Ordering::Relaxed)
    }

    /// Sets the names in one request at most (`statahead_batch_max`).
    pub fn set_batch_max(&self, count: usize) {
        self.batch_max.store(count, Ordering::Relaxed);
    }

    /// Runs at once at most (`statahead_running_max`).
    #[must_use]
    pub fn running_max(&self) -> usize {
        self.running_max.load(Ordering::Relaxed)
    }

    /// Sets the runs at once at most (`statahead_running_max`).
    pub fn set_running_max(&self, count: usize) {
        self.running_max.store(count, Ordering::Relaxed);
    }

    /// A run ends when none of its names was used for so many seconds (`statahead_timeout`).
    #[must_use]
    pub fn timeout(&self) -> u64 {
        self.timeout.load(Ordering::Relaxed)
    }

    /// Sets after how many seconds without a use a run ends (`statahead_timeout`).
    pub fn set_timeout(&self, seconds: u64) {
        self.timeout.store(seconds, Ordering::Relaxed);
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout())
    }

    /// Whether OSTs are asked for sizes, too (`statahead_agl`).
    #[must_use]
    pub fn asks_sizes(&self) -> bool {
        self.asks_sizes.load(Ordering::Relaxed)
    }

    /// Sets whether OSTs are asked for sizes, too (`statahead_agl`).
    pub fn set_asks_sizes(&self, on: bool) {
        self.asks_sizes.store(on, Ordering::Relaxed);
    }

    /// Whether names are guessed that count on (`enable_statahead_fname`).
    #[must_use]
    pub fn guesses_names(&self) -> bool {
        self.guesses_names.load(Ordering::Relaxed)
    }

    /// Sets whether names are guessed that count on (`enable_statahead_fname`).
    pub fn set_guesses_names(&self, on: bool) {
        self.guesses_names.store(on, Ordering::Relaxed);
    }

    /// After so many numbered names it is looked whether they are in order (`statahead_fname_predict_hit`).
    #[must_use]
    pub fn predict_hit(&self) -> u32 {
        self.predict_hit.load(Ordering::Relaxed)
    }

    /// Sets after how many numbered names it is looked whether they are in order
    /// (`statahead_fname_predict_hit`).
    pub fn set_predict_hit(&self, count: u32) {
        self.predict_hit.store(count, Ordering::Relaxed);
    }

    /// After so many in order the next are guessed (`statahead_fname_match_hit`).
    #[must_use]
    pub fn match_hit(&self) -> u32 {
        self.match_hit.load(Ordering::Relaxed)
    }

    /// Sets after how many names in order the next are guessed (`statahead_fname_match_hit`).
    pub fn set_match_hit(&self, count: u32) {
        self.match_hit.store(count, Ordering::Relaxed);
    }

    pub(super) fn thresholds(&self) -> Option<Thresholds> {
        let (seen, in_order) = (self.predict_hit(), self.match_hit());
        self.guesses_names().then_some(Thresholds { seen, in_order })
    }

    /// A run was begun, of a listing or of guesses.
    pub(super) fn begun(&self, is_of_listing: bool) {
        let counts = &self.counts;
        counts.total.fetch_add(1, Ordering::Relaxed);
        counts.agl.fetch_add(u64::from(self.asks_sizes()), Ordering::Relaxed);
        let by = if is_of_listing { &counts.list } else { &counts.fname };
        by.fetch_add(1, Ordering::Relaxed);
    }

    /// A run has ended.
    pub(super) fn ended(&self, run: RunCounts) {
        let counts = &self.counts;
        counts.wrong.fetch_add(u64::from(run.is_wrong), Ordering::Relaxed);
        counts.hits.fetch_add(run.hits, Ordering::Relaxed);
        counts.misses.fetch_add(run.misses, Ordering::Relaxed);
    }

    /// What was looked up ahead (`statahead_stats`).
    #[must_use]
    pub fn counts(&self) -> AheadCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { total, wrong, agl, list, fname, hits, misses } = &self.counts;
        AheadCounts {
            total: of(total),
            wrong: of(wrong),
            agl: of(agl),
            list: of(list),
            fname: of(fname),
            hits: of(hits),
            misses: of(misses),
        }
    }

    /// Counts anew.
    pub fn clear_counts(&self) {
        let Counters { total, wrong, agl, list, fname, hits, misses } = &self.counts;
        for counter in [total, wrong, agl, list, fname, hits, misses] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
