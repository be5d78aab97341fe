//! What a target counts: requests by kind, with their times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_wire::messages::{Kind, TABLE};

/// One kind of request (a line of Lustre's `stats` files, in microseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationStats {
    /// Which kind.
    pub kind: Kind,
    /// How many were answered.
    pub count: u64,
    /// How many of these with an error.
    pub errors: u64,
    /// Sum of the times from arrival to answer, in microseconds.
    pub time_us: u64,
    /// Shortest time.
    pub time_us_min: u64,
    /// Longest time.
    pub time_us_max: u64,
    /// Sum of the squared times.
    pub time_us_squared: u64,
}

/// All counts of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Kinds that came at least once, in the order of the message table.
    pub operations: Vec<OperationStats>,
    /// Requests answered from a record of their answer.
    pub reconstructed: u64,
    /// Requests dropped because they came over a connection that was replaced.
    pub dropped: u64,
    /// Clients evicted.
    pub evictions: u64,
    /// Callbacks sent to clients.
    pub callbacks: u64,
}

struct OperationCounters {
    count: AtomicU64,
    errors: AtomicU64,
    time: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    squared: AtomicU64,
}

/// The counters themselves: six relaxed additions per request, no lock.
pub(crate) struct Stats {
    cells: Vec<OperationCounters>,
    pub(crate) reconstructed: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) callbacks: AtomicU64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let cell = || OperationCounters {
            count: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            time: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            squared: AtomicU64::new(0),
        };
        Self {
            cells: TABLE.iter().map(|_| cell()).collect(),
            reconstructed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            callbacks: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, kind: Kind, time: Duration, failed: bool) {
        let cell = &self.cells[kind as usize];
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        cell.count.fetch_add(1, Ordering::Relaxed);
        cell.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        cell.time.fetch_add(time, Ordering::Relaxed);
        cell.min.fetch_min(time, Ordering::Relaxed);
        cell.max.fetch_max(time, Ordering::Relaxed);
        cell.squared.fetch_add(time.saturating_mul(time), Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> TargetStats {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let operations = TABLE.iter().zip(&self.cells).filter(|(_, cell)| read(&cell.count) > 0);
        TargetStats {
            operations: operations
                .map(|(format, cell)| OperationStats {
                    kind: format.kind,
                    count: read(&cell.count),
                    errors: read(&cell.errors),
                    time_us: read(&cell.time),
                    time_us_min: read(&cell.min),
                    time_us_max: read(&cell.max),
                    time_us_squared: read(&cell.squared),
                })
                .collect(),
            reconstructed: read(&self.reconstructed),
            dropped: read(&self.dropped),
            evictions: read(&self.evictions),
            callbacks: read(&self.callbacks),
        }
    }

    /// Starts all counts anew.
    pub(crate) fn clear(&self) {
        for cell in &self.cells {
            for number in [&cell.count, &cell.errors, &cell.time, &cell.max, &cell.squared] {
                number.store(0, Ordering::Relaxed);
            }
            cell.min.store(u64::MAX, Ordering::Relaxed);
        }
    }
}
