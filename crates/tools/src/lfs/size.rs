//! Sizes and numbers as `lfs` reads and writes them.

/// Bytes in `text`: a number with one of b (512 bytes), c (1 byte), k, m, g, t, p, e behind it or
/// none.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    parse_with_unit(text, 1).map(|(size, _)| size)
}

/// Bytes in `text`, and how many of them its unit stands for. Without a unit that is `unit`.
/// Numbers are decimal, with digits behind a point, or hexadecimal with 0x.
pub(super) fn parse_with_unit(text: &str, unit: u64) -> Option<(u64, u64)> {
    let hexadecimal = text.strip_prefix("0x");
    let digits = hexadecimal.unwrap_or(text);
    let is_digit = |letter: char| match hexadecimal {
        Some(_) => {
            letter.is_ascii_hexdigit() && !matches!(letter, 'b' | 'c' | 'e' | 'B' | 'C' | 'E')
        }
        None => letter.is_ascii_digit() || letter == '.',
    };
    let split = digits.find(|letter: char| !is_digit(letter)).unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(split);
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => unit,
        "c" => 1,
        "b" => 1 << 9,
        "k" | "kb" | "ki" | "kib" => 1 << 10,
        "m" | "mb" | "mi" | "mib" => 1 << 20,
        "g" | "gb" | "gi" | "gib" => 1 << 30,
        "t" | "tb" | "ti" | "tib" => 1 << 40,
        "p" | "pb" | "pi" | "pib" => 1 << 50,
        "e" | "eb" | "ei" | "eib" => 1 << 60,
        _ => return None,
    };
    if hexadecimal.is_some() {
        return Some((u64::from_str_radix(number, 16).ok()?.checked_mul(unit)?, unit));
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return Some((whole, unit)).filter(|_| !number.ends_with('.'));
    }
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit) / scale;
    Some((whole.checked_add(u64::try_from(part).ok()?)?, unit))
}

/// `value` in eleven columns, or with one digit behind the point and a unit in nine, as
/// `lfs df -h` has it.
#[must_use]
pub fn human(value: u64, base: u32) -> String {
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
    use super::{human, parse_size, parse_with_unit};

    #[test]
    fn sizes_with_units() {
        assert_eq!(parse_size("65536"), Some(65536));
        assert_eq!(parse_size("96k"), Some(96 << 10));
        assert_eq!(parse_size("4M"), Some(4 << 20));
        assert_eq!(parse_size("4G"), Some(4 << 30));
        assert_eq!(parse_size("1.5m"), Some(3 << 19));
        assert_eq!(parse_size("0x100k"), Some(256 << 10));
        assert_eq!(parse_with_unit("3", 512), Some((1536, 512)));
        assert_eq!(parse_with_unit("3c", 512), Some((3, 1)));
        for bad in ["", "x", "-1", "64x", "1.", ".5m", "1.5.m", "16E", "k", "99999999999999999999"]
        {
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
