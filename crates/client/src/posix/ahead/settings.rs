//! What operators set of stat-ahead (`llite.*.statahead_*`), and what it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_types::Setting;

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
    /// Names that a run is ahead at most (`statahead_max`); with 0 nothing is asked ahead, and names are listed without a
    /// look at what they stand for.
    pub max: Setting<usize>,
    /// Names that a run is ahead at first (`statahead_min`).
    pub min: Setting<usize>,
    /// Names in one request at most (`statahead_batch_max`); with 0 or 1 each has its own.
    pub batch_max: Setting<usize>,
    /// Runs at once at most (`statahead_running_max`).
    pub running_max: Setting<usize>,
    /// A run ends when none of its names was used for so many seconds (`statahead_timeout`).
    pub timeout: Setting<u64>,
    /// Whether OSTs are asked for sizes, too (`statahead_agl`).
    pub asks_sizes: Setting<bool>,
    /// Whether names are guessed that count on (`enable_statahead_fname`).
    pub guesses_names: Setting<bool>,
    /// After so many numbered names it is looked whether they are in order (`statahead_fname_predict_hit`).
    pub predict_hit: Setting<u32>,
    /// After so many in order the next are guessed (`statahead_fname_match_hit`).
    pub match_hit: Setting<u32>,
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
            max: Setting::new(MAX),
            min: Setting::new(MIN),
            batch_max: Setting::new(BATCH_MAX),
            running_max: Setting::new(RUNNING_MAX),
            timeout: Setting::new(TIMEOUT),
            asks_sizes: Setting::new(true),
            guesses_names: Setting::new(true),
            predict_hit: Setting::new(FNAME_PREDICT_HIT),
            match_hit: Setting::new(FNAME_MATCH_HIT),
            counts: Counters::default(),
        }
    }
}

impl AheadSettings {
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.get())
    }

    pub(super) fn thresholds(&self) -> Option<Thresholds> {
        let (seen, in_order) = (self.predict_hit.get(), self.match_hit.get());
        self.guesses_names.get().then_some(Thresholds { seen, in_order })
    }

    /// A run was begun, of a listing or of guesses.
    pub(super) fn begun(&self, is_of_listing: bool) {
        let counts = &self.counts;
        counts.total.fetch_add(1, Ordering::Relaxed);
        counts.agl.fetch_add(u64::from(self.asks_sizes.get()), Ordering::Relaxed);
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
