//! Counters as Lustre's `stats` files show them: samples of something, with their least, most, sum
//! and sum of squares.
//!
//! Adding is five relaxed additions and no lock; a reader may see a sample half added.

use std::sync::atomic::{AtomicU64, Ordering};

/// What samples are measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds that it took.
    Microseconds,
    /// Bytes that were moved.
    Bytes,
    /// Nothing: only their number is of interest.
    Requests,
    /// Requests that wait or run at that moment.
    Depth,
    /// Seconds.
    Seconds,
    /// The same of pages.
    Pages,
    /// Pages at a time.
    PageSums,
}

impl Unit {
    /// As it stands in brackets behind the number of samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "usecs",
            Self::Bytes => "bytes",
            Self::Requests | Self::Depth => "reqs",
            Self::Seconds => "secs",
            Self::Pages | Self::PageSums => "pages",
        }
    }
}

/// One counter's name and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterLine {
    /// As Lustre calls it.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
}

impl CounterLine {
    /// For tables: counts how long something took.
    #[must_use]
    pub const fn time(name: &'static str) -> Self {
        Self { name, unit: Unit::Microseconds }
    }

    /// For tables: counts bytes.
    #[must_use]
    pub const fn bytes(name: &'static str) -> Self {
        Self { name, unit: Unit::Bytes }
    }
}

/// What one counter has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// What.
    pub line: CounterLine,
    /// How many.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
    /// Their sum.
    pub sum: u64,
    /// The sum of their squares.
    pub squared: u64,
}

impl Samples {
    /// Samples from several places, those of the same line together, in the order of their first
    /// coming.
    #[must_use]
    pub fn joined(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for samples in all.into_iter().filter(|samples| samples.count > 0) {
            match sums.iter_mut().find(|sum| sum.line == samples.line) {
                None => sums.push(samples),
                Some(sum) => {
                    sum.count += samples.count;
                    sum.min = sum.min.min(samples.min);
                    sum.max = sum.max.max(samples.max);
                    sum.sum += samples.sum;
                    sum.squared += samples.squared;
                }
            }
        }
        sums
    }
}

struct Cell {
    count: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    squared: AtomicU64,
}

impl Cell {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            squared: AtomicU64::new(0),
        }
    }

    fn samples(&self, line: CounterLine) -> Samples {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let count = read(&self.count);
        Samples {
            line,
            count,
            min: if count == 0 { 0 } else { read(&self.min) },
            max: read(&self.max),
            sum: read(&self.sum),
            squared: read(&self.squared),
        }
    }
}

/// A counter for each line of a table.
pub struct Counters {
    lines: &'static [CounterLine],
    cells: Box<[Cell]>,
}

impl Counters {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(lines: &'static [CounterLine]) -> Self {
        Self { lines, cells: lines.iter().map(|_| Cell::new()).collect() }
    }

    /// Counts one more sample for the line at `place`; a place behind the table counts nothing.
    pub fn add(&self, place: usize, value: u64) {
        let Some(cell) = self.cells.get(place) else { return };
        cell.count.fetch_add(1, Ordering::Relaxed);
        cell.min.fetch_min(value, Ordering::Relaxed);
        cell.max.fetch_max(value, Ordering::Relaxed);
        cell.sum.fetch_add(value, Ordering::Relaxed);
        cell.squared.fetch_add(value.saturating_mul(value), Ordering::Relaxed);
    }

    /// Counts so many more samples of 1 for the line at `place`; none is none.
    pub fn add_many(&self, place: usize, count: u64) {
        let Some(cell) = self.cells.get(place).filter(|_| count > 0) else { return };
        cell.count.fetch_add(count, Ordering::Relaxed);
        cell.min.fetch_min(1, Ordering::Relaxed);
        cell.max.fetch_max(1, Ordering::Relaxed);
        cell.sum.fetch_add(count, Ordering::Relaxed);
        cell.squared.fetch_add(count, Ordering::Relaxed);
    }

    /// The lines that have samples, in the table's order.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        let all = self.lines.iter().zip(&self.cells).map(|(line, cell)| cell.samples(*line));
        all.filter(|samples| samples.count > 0).collect()
    }

    /// All lines of the table; those without samples have zeros.
    #[must_use]
    pub fn all_samples(&self) -> Vec<Samples> {
        self.lines.iter().zip(&self.cells).map(|(line, cell)| cell.samples(*line)).collect()
    }

    /// Starts all counts anew.
    pub fn clear(&self) {
        for cell in &self.cells {
            for number in [&cell.count, &cell.max, &cell.sum, &cell.squared] {
                number.store(0, Ordering::Relaxed);
            }
            cell.min.store(u64::MAX, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CounterLine, Counters};

    #[test]
    fn samples_are_summed_up_line_by_line() {
        static LINES: [CounterLine; 2] =
            [CounterLine::bytes("read_bytes"), CounterLine::time("open")];
        let counters = Counters::new(&LINES);
        counters.add(0, 5);
        counters.add(0, 2);
        counters.add(7, 1);
        let samples = counters.samples();
        assert_eq!(samples.len(), 1);
        let first = samples[0];
        assert_eq!((first.line.name, first.line.unit.name()), ("read_bytes", "bytes"));
        assert_eq!((first.count, first.min, first.max, first.sum, first.squared), (2, 2, 5, 7, 29));
        counters.add_many(1, 0);
        counters.add_many(1, 3);
        assert_eq!((counters.samples()[1].count, counters.samples()[1].sum), (3, 3));
        counters.clear();
        assert!(counters.samples().is_empty());
        let all = counters.all_samples();
        assert_eq!((all.len(), all[1].line.name, all[1].min), (2, "open", 0));
    }
}
