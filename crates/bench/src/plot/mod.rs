//! Plots as SVG: bars beside each other, times of operations, rates over time.
//!
//! Each is one element that stands in a page or alone in a file, with a title and a description for who does
//! not see it. Its text has the color of the page's; kinds have colors that people with any kind of sight
//! //! distinguish,
//! apart, on white and on black.

mod bars;
mod lines;
mod percentiles;
mod svg;

pub use bars::Bars;
pub use lines::Lines;
pub use percentiles::{Percentiles, Row};
pub use svg::escaped;

/// Colors of kinds (Okabe and Ito): so many kinds one plot can have.
pub const COLORS: [&str; 5] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"];

/// The color of a kind.
pub(crate) fn color(kind: usize) -> &'static str {
    COLORS[kind % COLORS.len()]
}

/// A number with as many places as it needs to differ from its neighbours: `12,345`, `12.3`, `0.0123`.
#[must_use]
pub fn number(number: f64) -> String {
    let places = match number.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{number:.places$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(whole.len() - whole.trim_start_matches('-').len());
    let mut grouped = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Nanoseconds as people say them: `850 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`.
#[must_use]
pub fn duration(nanoseconds: u64) -> String {
    let time = nanoseconds as f64;
    match time {
        time if time < 1e3 => format!("{} ns", number(time)),
        time if time < 1e6 => format!("{} µs", number(time / 1e3)),
        time if time < 1e9 => format!("{} ms", number(time / 1e6)),
        time => format!("{} s", number(time / 1e9)),
    }
}

/// Marks on an axis from 0 to `most`: round numbers, some six.
fn marks(most: f64) -> Vec<f64> {
    let rough = (most / 6.0).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    let fits = |step: &f64| *step * power >= rough * 0.999;
    let step = [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0) * power;
    (0..=8).map(|count| f64::from(count) * step).take_while(|mark| *mark <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        let written = [0.0, 1_234_567.8, 999.5, 12.34, 1.234, 0.1234, 0.01234, -1234.0].map(number);
        let wanted = ["0", "1,234,568", "1,000", "12.3", "1.23", "0.123", "0.0123", "-1,234"];
        assert_eq!(written, wanted);
        let written = [850, 12_300, 4_560_000, 1_230_000_000].map(duration);
        assert_eq!(written, ["850 ns", "12.3 µs", "4.56 ms", "1.23 s"]);
    }

    #[test]
    fn marks_are_round_and_some_six() {
        assert_eq!(marks(6.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(marks(1300.0), [0.0, 500.0, 1000.0]);
        assert!(marks(0.0).len() > 1 || marks(0.0) == [0.0]);
        for most in [0.3, 7.7, 42.0, 99.0, 123_456.0] {
            assert!((3..=8).contains(&marks(most).len()), "{most}: {:?}", marks(most));
        }
    }
}
