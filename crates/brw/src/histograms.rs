//! How bulk IO reached the store, in Lustre's classes (`osd-*.*.brw_stats`): what each transfer was made
//! of, how large the accesses to the store were, how long they took and how many ran at once.
//!
//! A transfer costs five relaxed additions for itself and four and two clocks for each access; no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_io::Clock;
use sheen_types::{Histogram, PAGE_BYTES};

use crate::transfer::Transfer;
const NANOSECONDS_OF_MILLISECOND: u64 = 1_000_000;

/// Counts of one histogram by class.
pub type Counts = [u64; Histogram::CLASSES];

/// The histograms of reads or of writes, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Transfers by their pages, as powers of two.
    pub pages: Counts,
    /// Transfers by how often one piece did not begin where the one before ended.
    pub gaps: Counts,
    /// Transfers by how many accesses to the store they took.
    pub accesses: Counts,
    /// Accesses by how many ran at once, this one included.
    pub in_flight: Counts,
    /// Accesses by milliseconds, as powers of two.
    pub milliseconds: Counts,
    /// Accesses by bytes, as powers of two.
    pub bytes: Counts,
}

/// The histograms of one direction.
#[derive(Default)]
pub(crate) struct Direction {
    pages: Histogram,
    gaps: Histogram,
    accesses: Histogram,
    in_flight: Histogram,
    milliseconds: Histogram,
    bytes: Histogram,
    running: AtomicU64,
}

impl Direction {
    /// A transfer that was carried out in so many accesses.
    pub(crate) fn transferred(&self, transfer: &Transfer, accesses: usize) {
        let pages = |offset: u64, end: u64| end.div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        let (mut count, mut gaps, mut next) = (0, 0, None);
        for piece in &transfer.pieces {
            let end = piece.offset + u64::from(piece.len);
            count += pages(piece.offset, end);
            gaps += u64::from(next.is_some_and(|next| next != piece.offset));
            next = Some(end);
        }
        self.pages.add_magnitude(count);
        self.gaps.add(gaps);
        self.accesses.add(accesses as u64);
    }

    /// Runs one access to the store to so many bytes.
    pub(crate) fn access<T>(&self, clock: &dyn Clock, bytes: usize, run: impl FnOnce() -> T) -> T {
        self.in_flight.add(self.running.fetch_add(1, Ordering::Relaxed) + 1);
        let start = clock.now();
        let done = run();
        let time = u64::try_from(clock.now().since(start).as_nanos()).unwrap_or(u64::MAX);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.milliseconds.add_magnitude(time / NANOSECONDS_OF_MILLISECOND);
        self.bytes.add_magnitude(bytes as u64);
        done
    }

    fn all(&self) -> [&Histogram; 6] {
        let Self { pages, gaps, accesses, in_flight, milliseconds, bytes, running: _ } = self;
        [pages, gaps, accesses, in_flight, milliseconds, bytes]
    }

    pub(crate) fn view(&self) -> Transfers {
        let [pages, gaps, accesses, in_flight, milliseconds, bytes] =
            self.all().map(Histogram::counts);
        Transfers { pages, gaps, accesses, in_flight, milliseconds, bytes }
    }

    pub(crate) fn clear(&self) {
        self.all().into_iter().for_each(Histogram::clear);
    }
}
