//! Values that `lctl set_param` brings, and what is wrong with them: Lustre's errno for each.

use sheen_mds::DomLock;
use sheen_types::Errno;
use sheen_types::access::RootSquash;

/// Sets one of the two parameters of root squash.
pub(super) type SetSquash = fn(&mut RootSquash, &str) -> Result<(), Errno>;

/// Bytes of a mebibyte.
pub(super) const MIB: u64 = 1 << 20;

/// A number, nothing else.
pub(super) fn number(text: &str) -> Result<u64, Errno> {
    text.trim().parse().map_err(|_| Errno::EINVAL)
}

/// A number from `low` to `high`.
pub(super) fn number_within(text: &str, low: u64, high: u64) -> Result<u64, Errno> {
    within(number(text)?, low, high)
}

/// `value`, if it lies from `low` to `high`.
pub(super) fn within(value: u64, low: u64, high: u64) -> Result<u64, Errno> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(Errno::ERANGE) }
}

/// Bytes from a number with a unit (`4M`, `512k`, `1GiB`), or in units of `unit` bytes without one.
pub(super) fn bytes(text: &str, unit: u64) -> Result<u64, Errno> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let value: u64 = text[..digits].parse().map_err(|_| Errno::EINVAL)?;
    let unit = match text[digits..].trim_end_matches("iB").trim_end_matches('B') {
        "" => unit,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return Err(Errno::EINVAL),
    };
    value.checked_mul(unit).ok_or(Errno::ERANGE)
}

/// What the kernel takes for true and false.
pub(super) fn switch(text: &str) -> Result<bool, Errno> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "y" | "on" | "t" => Ok(true),
        "0" | "n" | "off" | "f" => Ok(false),
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

/// Milliseconds from a number with a unit (`600s`, `10m`), or in milliseconds without one.
pub(super) fn milliseconds(text: &str) -> Result<u64, Errno> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let value: u64 = text[..digits].parse().map_err(|_| Errno::EINVAL)?;
    let unit = match &text[digits..] {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(Errno::EINVAL),
    };
    value.checked_mul(unit).ok_or(Errno::ERANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_limits() {
        assert_eq!(bytes("4M", 1), Ok(4 << 20));
        assert_eq!(bytes("24", MIB), Ok(24 << 20));
        assert_eq!(bytes("1GiB", MIB), Ok(1 << 30));
        assert_eq!(bytes("-1", MIB), Err(Errno::EINVAL));
        assert_eq!(bytes("99999999999999T", MIB), Err(Errno::ERANGE));
        assert_eq!(number_within("0", 1, 512), Err(Errno::ERANGE));
        assert_eq!(number_within("abc", 1, 512), Err(Errno::EINVAL));
        assert_eq!(milliseconds("600s"), Ok(600_000));
        assert_eq!((switch("1"), switch("2")), (Ok(true), Err(Errno::EINVAL)));
        assert_eq!(dom_lock("always\n").map(dom_lock_text), Ok("trylock"));
        assert_eq!((dom_lock("0"), dom_lock("3")), (Ok(DomLock::Never), Err(Errno::EINVAL)));
    }
}
