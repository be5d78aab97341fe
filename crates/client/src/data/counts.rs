//! What one OSC counts of its bulk RPCs, as Lustre's `osc.*.rpc_stats`, `io_latency_stats` and `stats`
//! show it.
//!
//! Cost: two looks at the clock and some ten relaxed additions for each bulk RPC; no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_types::{CounterLine, Counters, Histogram, PAGE_BYTES as PAGE, Samples};

/// Sizes of RPCs by which latencies are counted: a page, two, four and so on.
const SIZES: usize = 16;

static READ: [CounterLine; 1] = [CounterLine::bytes("read_bytes")];
static WRITE: [CounterLine; 1] = [CounterLine::bytes("write_bytes")];

/// RPCs in one direction.
pub struct Direction {
    under_way: AtomicU64,
    /// As many as may be on the wire: further ones wait for their turn.
    most: AtomicU64,
    /// By the magnitude of their pages.
    pub pages: Histogram,
    /// How many were under way when one was sent, that one included.
    pub in_flight: Histogram,
    /// By the magnitude of their first page's number, counted from 1.
    pub offsets: Histogram,
    /// By the magnitude of the microseconds until the answer.
    pub latency: Histogram,
    /// The same, by the magnitude of their pages.
    pub latency_by_size: [Histogram; SIZES],
    bytes: Counters,
}

impl Direction {
    fn new(lines: &'static [CounterLine]) -> Self {
        Self {
            under_way: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            pages: Histogram::default(),
            in_flight: Histogram::default(),
            offsets: Histogram::default(),
            latency: Histogram::default(),
            latency_by_size: std::array::from_fn(|_| Histogram::default()),
            bytes: Counters::new(lines),
        }
    }

    /// RPCs on the wire now.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.on_the_wire(self.under_way.load(Ordering::Relaxed))
    }

    /// Of so many, those that need not wait: one that waited goes when it is the last of them.
    fn on_the_wire(&self, under_way: u64) -> u64 {
        under_way.min(self.most.load(Ordering::Relaxed))
    }

    /// An RPC that begins at `offset` of its object is sent.
    pub(super) fn begin(&self, offset: u64, length: u64) -> UnderWay<'_> {
        let pages = length.div_ceil(PAGE);
        self.pages.add_magnitude(pages);
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight.add(self.on_the_wire(under_way));
        self.offsets.add_magnitude(offset / PAGE + 1);
        UnderWay { direction: self, pages }
    }

    fn clear(&self) {
        [&self.pages, &self.in_flight, &self.offsets].iter().for_each(|one| one.clear());
        self.clear_latency();
    }

    fn clear_latency(&self) {
        self.latency.clear();
        self.latency_by_size.iter().for_each(Histogram::clear);
    }
}

/// An RPC under way, until it is dropped.
pub(super) struct UnderWay<'a> {
    direction: &'a Direction,
    pages: u64,
}

impl UnderWay<'_> {
    /// It was answered after `time`, and moved so many bytes.
    pub(super) fn answered(&self, time: Duration, bytes: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let size = self.pages.max(1).next_power_of_two().trailing_zeros() as usize;
        self.direction.latency.add_magnitude(micros);
        self.direction.latency_by_size[size.min(SIZES - 1)].add_magnitude(micros);
        self.direction.bytes.add(0, bytes);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.direction.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All bulk RPCs of an OSC.
pub struct IoCounts {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    direct: AtomicU64,
}

impl Default for IoCounts {
    fn default() -> Self {
        let (read, write) = (Direction::new(&READ), Direction::new(&WRITE));
        Self { read, write, direct: AtomicU64::new(0) }
    }
}

impl IoCounts {
    /// Sets how many RPCs may be on the wire at once (`max_rpcs_in_flight`); the import enforces that.
    pub fn limit(&self, most: u64) {
        [&self.read, &self.write].iter().for_each(|one| one.most.store(most, Ordering::Relaxed));
    }

    /// Reads and writes under way now that bypass the caches.
    #[must_use]
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// A read or write that bypasses the caches begins; it ends when this is dropped.
    pub(super) fn begin_direct(&self) -> Direct<'_> {
        self.direct.fetch_add(1, Ordering::Relaxed);
        Direct(&self.direct)
    }

    /// Bytes of answered RPCs: `read_bytes` and `write_bytes`, what there is of them.
    #[must_use]
    pub fn bytes(&self) -> Vec<Samples> {
        [&self.read, &self.write].iter().flat_map(|one| one.bytes.samples()).collect()
    }

    /// Counts bytes anew.
    pub fn clear_bytes(&self) {
        [&self.read, &self.write].iter().for_each(|one| one.bytes.clear());
    }

    /// Counts RPCs anew.
    pub fn clear(&self) {
        self.read.clear();
        self.write.clear();
    }

    /// Counts latencies anew.
    pub fn clear_latency(&self) {
        self.read.clear_latency();
        self.write.clear_latency();
    }
}

/// A call that bypasses the caches, until it is dropped.
pub(super) struct Direct<'a>(&'a AtomicU64);

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpcs_are_counted_by_size_place_and_time() {
        let counts = IoCounts::default();
        let first = counts.write.begin(0, 5);
        let second = counts.write.begin(3 * PAGE, 4 << 20);
        assert_eq!((counts.write.under_way(), counts.read.under_way()), (2, 0));
        counts.limit(2);
        let waits = counts.write.begin(0, 5);
        assert_eq!(counts.write.under_way(), 2);
        drop(waits);
        first.answered(Duration::from_micros(7611), 5);
        drop((first, second));
        assert_eq!(counts.write.under_way(), 0);
        assert_eq!(counts.write.pages.counts()[..11], [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(counts.write.in_flight.counts()[..4], [0, 1, 2, 0]);
        assert_eq!(counts.write.offsets.counts()[..3], [2, 0, 1]);
        assert_eq!(counts.write.latency.counts()[13], 1);
        assert_eq!(counts.write.latency_by_size[0].counts()[13], 1);
        let bytes = counts.bytes();
        assert_eq!((bytes.len(), bytes[0].line.name, bytes[0].sum), (1, "write_bytes", 5));
        counts.clear();
        counts.clear_bytes();
        assert_eq!(counts.write.pages.counts().iter().sum::<u64>(), 0);
        assert!(counts.bytes().is_empty());
    }
}
