//! Values on the command line that values of files are compared with: `N`, `+N`, `-N`, with units.

use super::layout_request::END_OF_FILE;
use super::size::parse_with_unit;

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// `N`: it, rounded up to the unit.
    Equal,
    /// `+N`: more.
    More,
    /// `-N`: less by a unit at least.
    Less,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    sign: Sign,
    limit: u64,
    unit: u64,
}

/// The sign before a text, and the rest.
fn signed(text: &str) -> (Sign, &str) {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (Sign::More, rest),
        (_, Some(rest)) => (Sign::Less, rest),
        _ => (Sign::Equal, text),
    }
}

impl Bound {
    /// A size; without a unit in `text` it counts `unit` bytes.
    pub(super) fn size(text: &str, unit: u64) -> Option<Self> {
        let (sign, text) = signed(text);
        let (limit, unit) = parse_with_unit(text, unit)?;
        Some(Self { sign, limit, unit })
    }

    /// A number.
    pub(super) fn number(text: &str) -> Option<Self> {
        let (sign, text) = signed(text);
        Some(Self { sign, limit: super::options::parse_number(text)?, unit: 1 })
    }

    /// The end of a component: a size, or `eof`; small numbers are KiB.
    pub(super) fn end(text: &str) -> Option<Self> {
        let (sign, rest) = signed(text);
        if text == "-1" {
            return Some(Self { sign: Sign::Equal, limit: END_OF_FILE, unit: 1 });
        }
        if rest.eq_ignore_ascii_case("eof") {
            return Some(Self { sign, limit: END_OF_FILE, unit: 1 });
        }
        let (limit, unit) = parse_with_unit(rest, 1)?;
        let limit = if limit < 4096 { limit << 10 } else { limit };
        Some(Self { sign, limit, unit })
    }

    /// A number of seconds since 1970 that lies so far back from `now`; see [`super::find`].
    pub(super) fn age(text: &str, now: u64) -> Option<Self> {
        let (sign, text) = signed(text);
        let (seconds, unit) = parse_seconds(text)?;
        // Older means a smaller time.
        let sign = match sign {
            Sign::Equal => Sign::Equal,
            Sign::More => Sign::Less,
            Sign::Less => Sign::More,
        };
        // Within (now - age - unit, now - age] counts as that age.
        Some(Self { sign, limit: now.saturating_sub(seconds), unit })
    }

    /// Whether a value fits.
    pub(super) fn fits(&self, value: u64) -> bool {
        let above = value.saturating_add(self.unit);
        match self.sign {
            Sign::Equal if self.limit == END_OF_FILE => value == END_OF_FILE,
            Sign::Equal => value <= self.limit && above > self.limit,
            Sign::Less if self.limit == END_OF_FILE => value != END_OF_FILE,
            Sign::Less => above <= self.limit,
            Sign::More => value > self.limit,
        }
    }
}

/// Seconds in `8h20m`, and those of the smallest unit; days if none is given.
fn parse_seconds(text: &str) -> Option<(u64, u64)> {
    const UNITS: [(char, u64); 6] =
        [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400), ('y', 365 * 86_400)];
    let (mut rest, mut sum, mut smallest) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let split = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..split].parse().ok()?;
        let unit = match rest[split..].chars().next() {
            None => 86_400,
            Some(letter) => UNITS.iter().find(|(known, _)| *known == letter)?.1,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        smallest = smallest.min(unit);
        rest = rest.get(split + 1..).unwrap_or("");
    }
    (smallest != u64::MAX).then_some((sum, smallest))
}

#[cfg(test)]
mod tests {
    use super::{Bound, END_OF_FILE};

    #[test]
    fn sizes_are_compared_within_their_unit() {
        let fits = |text: &str, value| Bound::size(text, 1).unwrap().fits(value);
        // As `lfs find -S 1M`, which takes 64 KiB, 128 KiB and 1 MiB.
        assert!(fits("1M", 65_536) && fits("1M", 1 << 20) && !fits("1M", 0));
        assert!(!fits("1M", (1 << 20) + 1));
        assert!(fits("-180K", 0) && fits("-180K", 179 << 10) && !fits("-180K", 180 << 10));
        assert!(fits("+1M", 4 << 20) && !fits("+1M", 1 << 20));
        assert!(fits("65536", 65_536) && !fits("65536", 65_535));
        assert_eq!(Bound::size("x", 1), None);
    }

    #[test]
    fn ends_know_the_end_of_the_file() {
        let fits = |text: &str, value| Bound::end(text).unwrap().fits(value);
        assert!(fits("64k", 65_536) && !fits("64k", 131_072) && fits("64", 65_536));
        assert!(fits("eof", END_OF_FILE) && fits("-1", END_OF_FILE) && !fits("EOF", 65_536));
        assert!(fits("-eof", 65_536) && !fits("-eof", END_OF_FILE) && !fits("+eof", END_OF_FILE));
        assert!(fits("+1M", END_OF_FILE));
    }

    #[test]
    fn ages_count_backwards() {
        let now = 1_000_000_000;
        let fits = |text: &str, age: u64| Bound::age(text, now).unwrap().fits(now - age);
        assert!(fits("+1", 2 * 86_400) && !fits("+1", 86_400));
        assert!(fits("-1", 86_399) && !fits("-1", 86_400));
        assert!(fits("1", 86_400) && fits("1", 2 * 86_400 - 1) && !fits("1", 2 * 86_400));
        assert!(fits("8h20m", 500 * 60) && fits("500m", 500 * 60));
        assert!(fits("-10s", 5) && !fits("+10s", 5));
        for bad in ["", "x", "1z", "h", "1.5h"] {
            assert_eq!(Bound::age(bad, now), None, "{bad}");
        }
    }
}
