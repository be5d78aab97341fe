//! Parsing of the values of `lctl set_param`, with Lustre's errno for each that is refused.

use std::num::IntErrorKind;

use sheen_mds::DomLock;
use sheen_types::Errno;
use sheen_types::access::RootSquash;

/// Sets one of the two parameters of root squash.
pub(super) type SetSquash = fn(&mut RootSquash, &str) -> Result<(), Errno>;

/// The most that a number of 32 bits can be.
pub(super) const U32_MAX: u64 = u32::MAX as u64;

/// Bytes of a mebibyte.
pub(super) const MIB: u64 = 1 << 20;

/// A number, nothing else.
pub(super) fn number(text: &str) -> Result<u64, Errno> {
    plain(text, 10)
}

/// A number in decimal, or in hexadecimal behind `0x`, or in octal behind `0`: what some parameters take.
pub(super) fn number_of_any_base(text: &str) -> Result<u64, Errno> {
    let (digits, base) = based(text.trim());
    plain(digits, base)
}

/// A number in any of these bases, with a sign.
pub(super) fn signed_of_any_base(text: &str) -> Result<i64, Errno> {
    match text.trim().strip_prefix('-') {
        Some(rest) if !rest.starts_with('+') => {
            let value = number_of_any_base(rest)?;
            0i64.checked_sub_unsigned(value).ok_or(Errno::ERANGE)
        }
        _ => i64::try_from(number_of_any_base(text)?).map_err(|_| Errno::ERANGE),
    }
}

fn based(text: &str) -> (&str, u32) {
    let bare = text.strip_prefix('+').unwrap_or(text);
    let rest = bare.strip_prefix("0x").or_else(|| bare.strip_prefix("0X"));
    match rest {
        Some(rest) if rest.starts_with(|digit: char| digit.is_ascii_hexdigit()) => (rest, 16),
        None if bare.len() > 1 && bare.starts_with('0') => (bare, 8),
        _ => (text, 10),
    }
}

fn plain(text: &str, base: u32) -> Result<u64, Errno> {
    u64::from_str_radix(text.trim(), base).map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => Errno::ERANGE,
        _ => Errno::EINVAL,
    })
}

/// A number from `low` to `high`.
pub(super) fn number_within(text: &str, low: u64, high: u64) -> Result<u64, Errno> {
    within(number(text)?, low, high)
}

/// `value`, if it lies from `low` to `high`.
pub(super) fn within(value: u64, low: u64, high: u64) -> Result<u64, Errno> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(Errno::ERANGE) }
}

/// Bytes from a number with a unit (`4M`, `1.5GiB`, `200kB`), or in units of `unit` bytes without one. As
/// in Lustre, units with `B` alone behind them are decimal, and there is only one of small letters.
pub(super) fn bytes(text: &str, unit: u64) -> Result<u64, Errno> {
    sized(text.trim(), unit, None)
}

/// As [`bytes`], or a percentage of `total`; never more than that.
pub(super) fn bytes_of(text: &str, unit: u64, total: u64) -> Result<u64, Errno> {
    within(sized(text.trim(), unit, Some(total))?, 0, total)
}

fn sized(text: &str, unit: u64, total: Option<u64>) -> Result<u64, Errno> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    // More would not fit into Lustre's 32 bits.
    if fraction.len() >= 10 {
        return Err(Errno::EOVERFLOW);
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(Errno::EINVAL);
    }
    let number = |digits: &str| match digits {
        "" => Ok(0),
        digits => digits.parse::<u64>().map(u128::from).map_err(|_| Errno::EOVERFLOW),
    };
    let (whole, fraction, scale) =
        (number(whole)?, number(fraction)?, 10u128.pow(fraction.len() as u32));
    let of = |unit: u64| whole * u128::from(unit) + u128::from(unit) * fraction / scale;
    let bytes = match (rest, total) {
        ("%", Some(_)) if whole * scale + fraction > 100 * scale => return Err(Errno::ERANGE),
        ("%", Some(total)) => of(total) / 100,
        ("" | "B", _) if fraction > 0 && (unit == 1 || rest == "B") => return Err(Errno::EINVAL),
        ("", _) => of(unit),
        (name, _) => of(unit_of(name).ok_or(Errno::EINVAL)?),
    };
    u64::try_from(bytes).map_err(|_| Errno::EOVERFLOW)
}

/// The digits that a text begins with, and the rest of it.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

/// Bytes of a unit by its name.
fn unit_of(name: &str) -> Option<u64> {
    const POWERS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    let power =
        |letter: &str| POWERS.iter().position(|power| *power == letter).map(|at| at as u32 + 1);
    match name.strip_suffix("iB") {
        Some(letter) => power(letter).map(|power| 1024u64.pow(power)),
        None if name == "B" => Some(1),
        None if name == "kB" => Some(1000),
        None => match name.strip_suffix('B') {
            Some("K") => None,
            Some(letter) => power(letter).map(|power| 1000u64.pow(power)),
            None => power(name).map(|power| 1024u64.pow(power)),
        },
    }
}

/// What the kernel takes for true and false: it looks at the first letter, at a second where two words
/// begin alike.
pub(super) fn switch(text: &str) -> Result<bool, Errno> {
    let mut letters = text.trim().bytes().map(|letter| letter.to_ascii_lowercase());
    match (letters.next(), letters.next()) {
        (Some(b'1' | b'y' | b't'), _) | (Some(b'o'), Some(b'n')) => Ok(true),
        (Some(b'0' | b'n' | b'f'), _) | (Some(b'o'), Some(b'f')) => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// When an open brings the lock on data of an MDT: by name or by Lustre's number. As there, `always` is
/// taken for `trylock`.
pub(super) fn dom_lock(text: &str) -> Result<DomLock, Errno> {
    match text.trim() {
        "never" | "0" => Ok(DomLock::Never),
        "trylock" | "always" | "1" | "2" => Ok(DomLock::Try),
        _ => Err(Errno::EINVAL),
    }
}

/// The name of it.
pub(super) fn dom_lock_text(lock: DomLock) -> &'static str {
    match lock {
        DomLock::Never => "never",
        DomLock::Try => "trylock",
    }
}

/// Milliseconds from a number of seconds (`600s`) or of milliseconds (`600000`, `600000ms`); whatever stands
/// behind the unit does not matter, as in Lustre.
pub(super) fn milliseconds(text: &str) -> Result<u64, Errno> {
    let (digits, unit) = match (text.find("ms"), text.find('s')) {
        (Some(at), _) => (&text[..at], 1),
        (None, Some(at)) => (&text[..at], 1000),
        (None, None) => (text, 1),
    };
    // Not ERANGE, as in Lustre, for what is no number at all to it.
    let value = number(digits).map_err(|_| Errno::EINVAL)?;
    value.checked_mul(unit).ok_or(Errno::ERANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bases_and_limits() {
        assert_eq!(number_within("0", 1, 512), Err(Errno::ERANGE));
        assert_eq!(number_within("abc", 1, 512), Err(Errno::EINVAL));
        let refused = ["0x10", "", "-1", "1 2", "0x"].map(number);
        assert_eq!(refused, [Err(Errno::EINVAL); 5]);
        assert_eq!((number("010"), number("+7\n")), (Ok(10), Ok(7)));
        let taken = ["0x10", "010", "+0X1f", "0", "12"].map(number_of_any_base);
        assert_eq!(taken, [Ok(16), Ok(8), Ok(31), Ok(0), Ok(12)]);
        assert_eq!(["0x", "09", "0x-1", "x"].map(number_of_any_base), [Err(Errno::EINVAL); 4]);
        assert_eq!(number("18446744073709551616"), Err(Errno::ERANGE));
        let taken =
            ["-1", "-0x10", "3", "9223372036854775808", "--1", "-+1"].map(signed_of_any_base);
        let (range, inval) = (Err(Errno::ERANGE), Err(Errno::EINVAL));
        assert_eq!(taken, [Ok(-1), Ok(-16), Ok(3), range, inval, inval]);
    }

    #[test]
    fn bytes_have_lustres_units() {
        let taken = ["4M", "24", "1GiB", "1.5G", ".25K", "200kB", "3MB", "7B", "5."];
        let taken = taken.map(|text| bytes(text, MIB).unwrap());
        let wanted = [4 << 20, 24 << 20, 1 << 30, 3 << 29, 256, 200_000, 3_000_000, 7, 5 << 20];
        assert_eq!(taken, wanted);
        let refused = ["-1", "", ".", "5k", "5KB", "1.5B", "50%", "4Mx", "4 M", "1Z", "B"];
        assert_eq!(refused.map(|text| bytes(text, MIB)), [Err(Errno::EINVAL); 11]);
        assert_eq!(bytes("1.5", 1), Err(Errno::EINVAL));
        let large = ["99999999999999T", "1.0000000000M", "18446744073709551616"];
        assert_eq!(large.map(|text| bytes(text, 1)), [Err(Errno::EOVERFLOW); 3]);
        let taken = ["50%", "12.5%", "100%", "1K"].map(|text| bytes_of(text, MIB, 8000));
        assert_eq!(taken, [Ok(4000), Ok(1000), Ok(8000), Ok(1024)]);
        assert_eq!(
            ["101%", "100.1%", "1"].map(|text| bytes_of(text, MIB, 8000)),
            [Err(Errno::ERANGE); 3]
        );
    }

    #[test]
    fn words_and_times_are_lustres() {
        assert_eq!(
            ["600s", "600", "7ms", "2s\n"].map(milliseconds),
            [Ok(600_000), Ok(600), Ok(7), Ok(2000)]
        );
        assert_eq!(["10m", "x", "-1s"].map(milliseconds), [Err(Errno::EINVAL); 3]);
        assert_eq!(["1", "Yes", "true", "oN\n"].map(switch), [Ok(true); 4]);
        assert_eq!(["0", "No", "false", "off"].map(switch), [Ok(false); 4]);
        assert_eq!(["2", "enable", "o", ""].map(switch), [Err(Errno::EINVAL); 4]);
        assert_eq!(dom_lock("always\n").map(dom_lock_text), Ok("trylock"));
        assert_eq!((dom_lock("0"), dom_lock("3")), (Ok(DomLock::Never), Err(Errno::EINVAL)));
    }
}
