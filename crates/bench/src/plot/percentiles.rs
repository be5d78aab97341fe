//! How long operations took: a row for each kind, from the median to the longest, on an axis of powers of ten.

use super::svg::{Anchor, Svg};
use super::{color, duration};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const LENGTH: f64 = 710.0;
const TOP: f64 = 26.0;
const HEIGHT_OF_ROW: f64 = 26.0;
const HEIGHT_OF_AXIS: f64 = 24.0;

/// Times in nanoseconds of one kind: p50, p90, p99, p99.9 and the longest.
pub type Row = [u64; 5];

/// What the marks of a row are.
pub(crate) const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

/// Rows beside each other.
#[derive(Clone, Debug)]
pub struct Percentiles {
    title: String,
    rows: Vec<(usize, String, Row)>,
}

impl Percentiles {
    /// Without any row yet.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    /// The row of a kind.
    pub fn add(&mut self, kind: usize, name: &str, row: Row) {
        self.rows.push((kind, name.to_owned(), row));
    }

    fn described(&self) -> String {
        let row = |(_, name, row): &(usize, String, Row)| {
            let times =
                NAMES.iter().zip(row).map(|(name, time)| format!("{name} {}", duration(*time)));
            format!("{name}: {}.", times.collect::<Vec<_>>().join(", "))
        };
        self.rows.iter().map(row).collect::<Vec<_>>().join(" ")
    }

    /// The picture.
    #[must_use]
    pub fn draw(&self) -> String {
        let bottom = TOP + HEIGHT_OF_ROW * self.rows.len() as f64;
        let mut svg = Svg::new((WIDTH, bottom + HEIGHT_OF_AXIS), &self.title, &self.described());
        svg.text((12.0, 16.0), Anchor::Start, &self.title);
        let all = || self.rows.iter().flat_map(|(_, _, row)| row.iter().copied());
        let first = all().min().unwrap_or(1).max(1).ilog10();
        let last = (all().max().unwrap_or(1).max(1).ilog10() + 1).max(first + 1);
        let decades = f64::from(last - first);
        let x =
            |time: u64| LEFT + LENGTH * ((time.max(1) as f64).log10() - f64::from(first)) / decades;
        for power in first..=last {
            let mark = 10u64.pow(power);
            svg.line((x(mark), TOP), (x(mark), bottom), 0.15);
            svg.text((x(mark), bottom + 16.0), Anchor::Middle, &duration(mark));
        }
        let mut y = TOP + HEIGHT_OF_ROW / 2.0;
        for (kind, name, row) in &self.rows {
            svg.text((LEFT - 10.0, y + 4.0), Anchor::End, name);
            svg.path(&[(x(row[0]), y), (x(row[4]), y)], color(*kind), 3.0, 0.5);
            svg.circle((x(row[0]), y), 5.5, color(*kind));
            for time in &row[1..4] {
                svg.rect((x(*time) - 1.5, y - 6.0), (3.0, 12.0), color(*kind));
            }
            svg.circle((x(row[4]), y), 3.0, color(*kind));
            y += HEIGHT_OF_ROW;
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_goes_from_the_median_to_the_longest() {
        let mut plot = Percentiles::new("File creation");
        plot.add(0, "a", [100_000, 200_000, 300_000, 400_000, 1_000_000]);
        plot.add(1, "b", [1_000_000, 2_000_000, 3_000_000, 4_000_000, 9_999_999]);
        let text = plot.draw();
        // From 100 µs on the left to 10 ms on the right.
        assert!(text.contains("points=\"110.0,39.0 465.0,39.0\""), "{text}");
        assert!(text.contains(">100 µs</text>") && text.contains(">10.0 ms</text>"), "{text}");
        assert!(text.contains("a: p50 100 µs, p90 200 µs, p99 300 µs, p99.9 400 µs, max 1.00 ms."));
        // Nothing measured, and one time for all, are drawn too.
        plot.add(2, "c", [0; 5]);
        assert!(!plot.draw().contains("NaN"));
    }
}
