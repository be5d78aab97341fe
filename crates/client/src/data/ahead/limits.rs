//! What a mount reads ahead at most, and what it counts of it.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_types::{CounterLine, Counters, PAGE_BYTES as PAGE, Samples, Unit};

use super::streams::{CHUNK, ReadSample};

/// Bytes ahead of a stream at most, by default.
const WINDOW_MAX: u64 = 16 << 20;
/// Bytes on their way ahead of all streams of a mount at most, by default.
const TOTAL_MAX: u64 = 256 << 20;
/// Bytes of a file that is read whole at its second read in order, by default.
const WHOLE_MAX: u64 = 2 << 20;

const fn pages(name: &'static str) -> CounterLine {
    CounterLine { name, unit: Unit::Pages }
}

/// What is counted, of Lustre's lines those that can be true here.
static LINES: [CounterLine; 7] = [
    pages("hits"),
    pages("misses"),
    pages("readpage_not_consecutive"),
    pages("read_but_discarded"),
    pages("zero_size_window"),
    pages("readahead_to_eof"),
    pages("hit_max_readahead_issue"),
];
const HIT: usize = 0;
const MISS: usize = 1;
const DISTANT: usize = 2;
pub(super) const DISCARDED: usize = 3;
const ZERO_WINDOW: usize = 4;
const TO_THE_END: usize = 5;
const TOO_MUCH: usize = 6;

/// What a mount reads ahead at most (`max_read_ahead_mb`, `max_read_ahead_per_file_mb`,
/// `max_read_ahead_whole_mb`), and what it counts of it (`read_ahead_stats`).
pub struct Limits {
    total: AtomicU64,
    per_file: AtomicU64,
    whole: AtomicU64,
    /// Bytes on their way now.
    loading: AtomicU64,
    pub(super) counters: Counters,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(TOTAL_MAX),
            per_file: AtomicU64::new(WINDOW_MAX),
            whole: AtomicU64::new(WHOLE_MAX),
            loading: AtomicU64::new(0),
            counters: Counters::new(&LINES),
        }
    }
}

impl Limits {
    /// Bytes on their way ahead of all streams together, at most.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// From now on so many bytes together; 0 turns read-ahead off.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Bytes ahead of one stream, at most.
    #[must_use]
    pub fn per_file(&self) -> u64 {
        self.per_file.load(Ordering::Relaxed)
    }

    /// From now on so many bytes ahead of one stream.
    pub fn set_per_file(&self, bytes: u64) {
        self.per_file.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of a file that is read ahead whole as soon as it is read in order, at most.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    /// From now on files of so many bytes.
    pub fn set_whole(&self, bytes: u64) {
        self.whole.store(bytes, Ordering::Relaxed);
    }

    /// Bytes on their way now.
    #[must_use]
    pub fn loading(&self) -> u64 {
        self.loading.load(Ordering::Relaxed)
    }

    /// What was counted.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        self.counters.samples()
    }

    /// Counts anew.
    pub fn clear(&self) {
        self.counters.clear();
    }

    /// One more chunk would be too many.
    pub(super) fn refused(&self) {
        self.counters.add_many(TOO_MUCH, CHUNK / PAGE);
    }

    pub(super) fn count(&self, read: &ReadSample) {
        let Self { counters, .. } = self;
        counters.add_many(HIT, read.hit.div_ceil(PAGE));
        counters.add_many(MISS, read.missed.div_ceil(PAGE));
        for (line, is_so) in [
            (DISTANT, read.is_distant),
            (ZERO_WINDOW, read.has_no_window),
            (TO_THE_END, read.is_to_the_end),
        ] {
            counters.add_many(line, u64::from(is_so));
        }
    }

    /// Whether one more chunk may be on its way; it is, then, until [`Limits::loaded`].
    pub(super) fn may_load(&self) -> bool {
        let before = self.loading.fetch_add(CHUNK, Ordering::Relaxed);
        let fits = before + CHUNK <= self.total();
        if !fits {
            self.loaded();
        }
        fits
    }

    pub(super) fn loaded(&self) {
        self.loading.fetch_sub(CHUNK, Ordering::Relaxed);
    }
}
