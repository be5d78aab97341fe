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
}

impl Unit {
    /// As it stands in brackets behind the number of samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "usecs",
            Self::Bytes => "bytes",
            Self::Requests => "reqs",
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

    /// One more sample for the line at `place`; a place behind the table counts nothing.
    pub fn add(&self, place: usize, value: u64) {
        let Some(cell) = self.cells.get(place) else { return };
        cell.count.fetch_add(1, Ordering::Relaxed);
        cell.min.fetch_min(value, Ordering::Relaxed);
        cell.max.fetch_max(value, Ordering::Relaxed);
        cell.sum.fetch_add(value, Ordering::Relaxed);
        cell.squared.fetch_add(value.saturating_mul(value), Ordering::Relaxed);
    }

    /// The lines that have samples, in the table's order.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let used = self.lines.iter().zip(&self.cells).filter(|(_, cell)| read(&cell.count) > 0);
        let samples = used.map(|(line, cell)| Samples {
            line: *line,
            count: read(&cell.count),
            min: read(&cell.min),
            max: read(&cell.max),
            sum: read(&cell.sum),
            squared: read(&cell.squared),
        });
        samples.collect()
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
        counters.clear();
        assert!(counters.samples().is_empty());
    }
}
