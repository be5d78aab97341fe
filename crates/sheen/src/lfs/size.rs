//! Sizes and numbers as `lfs` reads and writes them.

/// Bytes in `text`: a number with one of b (512 bytes), k, m, g, t, p, e behind it or none.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "b" => 9,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        "p" | "pb" => 50,
        "e" | "eb" => 60,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `value` in eleven columns, or with one digit behind the point and a unit in nine, as
/// `lfs df -h` has it.
pub(super) fn human(value: u64, base: u32) -> String {
    let mut scaled = value as f64;
    let mut unit = None;
    let mut units = "KMGTPE".chars();
    while scaled > f64::from(base) {
        let Some(next) = units.next() else { break };
        unit = Some(next);
        scaled /= f64::from(base);
    }
    match unit {
        Some(unit) => format!("{scaled:>8.1}{unit}"),
        None => format!("{value:>11}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, parse_size};

    #[test]
    fn sizes_with_units() {
        assert_eq!(parse_size("65536"), Some(65536));
        assert_eq!(parse_size("96k"), Some(96 << 10));
        assert_eq!(parse_size("4M"), Some(4 << 20));
        assert_eq!(parse_size("4G"), Some(4 << 30));
        for bad in ["", "x", "-1", "64x", "1.5m", "16E", "k", "99999999999999999999"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(159_376 << 10, 1024), "   155.6M");
        assert_eq!(human(159_376 << 10, 1000), "   163.2M");
        assert_eq!(human(122_880, 1024), "   120.0K");
        assert_eq!(human(1024, 1024), "       1024");
        assert_eq!(human(0, 1024), "          0");
    }
}
