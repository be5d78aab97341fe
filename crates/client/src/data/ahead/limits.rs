//! What a mount reads ahead at most, and what it counts of it.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_types::{CounterLine, Counters, PAGE_BYTES as PAGE, Samples, Unit};

use super::streams::ReadSample;

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
static LINES: [CounterLine; 9] = [
    pages("hits"),
    pages("misses"),
    pages("readpage_not_consecutive"),
    pages("failed_lock_match"),
    pages("read_but_discarded"),
    pages("zero_size_window"),
    pages("readahead_to_eof"),
    pages("hit_max_readahead_issue"),
    CounterLine { name: "readahead_pages", unit: Unit::PageSums },
];
const HIT: usize = 0;
const MISS: usize = 1;
const DISTANT: usize = 2;
const NO_LOCK: usize = 3;
const DISCARDED: usize = 4;
const ZERO_WINDOW: usize = 5;
const TO_THE_END: usize = 6;
const TOO_MUCH: usize = 7;
const ASKED: usize = 8;

/// What a mount reads ahead at most (`max_read_ahead_mb`, `max_read_ahead_per_file_mb`,
/// `max_read_ahead_whole_mb`), and what it counts of it (`read_ahead_stats`).
pub struct Limits {
    total: AtomicU64,
    per_file: AtomicU64,
    whole: AtomicU64,
    /// Bytes on their way now.
    loading: AtomicU64,
    counters: Counters,
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

    /// Sets the bytes on their way ahead of all streams together; 0 turns read-ahead off.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Bytes ahead of one stream, at most.
    #[must_use]
    pub fn per_file(&self) -> u64 {
        self.per_file.load(Ordering::Relaxed)
    }

    /// Sets the bytes ahead of one stream.
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

    /// So many more bytes would be too many.
    pub(super) fn refused(&self, bytes: u64) {
        self.counters.add_many(TOO_MUCH, bytes.div_ceil(PAGE));
    }

    pub(super) fn count(&self, read: ReadSample) {
        for (line, is_so) in [
            (DISTANT, read.is_distant),
            (ZERO_WINDOW, read.has_no_window),
            (TO_THE_END, read.is_to_the_end),
        ] {
            self.counters.add_many(line, u64::from(is_so));
        }
    }

    /// A read through the kernel's pages found so many bytes that were read ahead, and asked for so many.
    pub(in crate::data) fn count_read(&self, found: u64, asked_for: u64) {
        self.counters.add_many(HIT, found.div_ceil(PAGE));
        self.counters.add_many(MISS, asked_for.div_ceil(PAGE));
    }

    /// So many bytes that were read ahead were dropped: no read has asked for them.
    pub(super) fn discarded(&self, bytes: u64) {
        self.counters.add_many(DISCARDED, bytes.div_ceil(PAGE));
    }

    /// So many bytes were not read ahead: another client may have a lock that conflicts.
    pub(in crate::data) fn no_lock(&self, bytes: u64) {
        self.counters.add_many(NO_LOCK, bytes.div_ceil(PAGE));
    }

    /// Whether so many more bytes may be on their way; they are, then, until [`Limits::loaded`].
    pub(super) fn may_load(&self, bytes: u64) -> bool {
        let before = self.loading.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.total();
        match fits {
            true => self.counters.add(ASKED, bytes.div_ceil(PAGE)),
            false => self.loaded(bytes),
        }
        fits
    }

    pub(super) fn loaded(&self, bytes: u64) {
        self.loading.fetch_sub(bytes, Ordering::Relaxed);
    }
}
