//! Names that a program gives a file before it renames it, and names of backups: `crush` puts them where the name is
//! that they stand for, so that the rename stays on one MDT (Lustre: `lu_name_is_temp_file`, `lu_name_is_backup_file`).
//!
//! - `.NAME.XXXXXX`, as rsync and mktemp have it, and `NAME.XXXXXXXX`: if the last part looks random;
//! - `NAME~`, `NAME.bak`, `NAME.sav`, `NAME.orig`.
//!
//! What looks random is part of the protocol, with its faults: peers must find a name in the same stripe.

/// What counts as a random suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuffixRule {
    /// Digits alone, too, and any other character.
    Crush,
    /// Letters and digits only.
    Crush2,
}

/// Bytes of a random suffix behind a name that begins with a dot, and of one behind any other.
const HIDDEN_SUFFIX: usize = 6;
const SUFFIX: usize = 8;

const BACKUPS: [&[u8]; 3] = [b".bak", b".sav", b".orig"];

/// What is hashed of a name.
pub(super) fn hashed_part(name: &[u8], rule: SuffixRule) -> &[u8] {
    if let Some(hidden) = name.strip_prefix(b".")
        && let Some(target) = without_random_suffix(hidden, HIDDEN_SUFFIX, rule)
    {
        return target;
    }
    without_random_suffix(name, SUFFIX, rule).unwrap_or_else(|| without_backup_suffix(name))
}

/// What is before the dot, if `length` bytes follow it that look random.
fn without_random_suffix(name: &[u8], length: usize, rule: SuffixRule) -> Option<&[u8]> {
    let (target, suffix) = name.split_at_checked(name.len().checked_sub(length)?)?;
    let target = target.strip_suffix(b".").filter(|target| !target.is_empty())?;
    looks_random(suffix, rule).then_some(target)
}

fn looks_random(suffix: &[u8], rule: SuffixRule) -> bool {
    let count = |is: fn(&u8) -> bool| suffix.iter().filter(|byte| is(byte)).count();
    let (lower, upper, digits) = (count(is_lower), count(is_upper), count(u8::is_ascii_digit));
    if lower == suffix.len() || upper == suffix.len() {
        return false;
    }
    // Versions, dates and ranks have digits but for one byte at most. The old rule has it the wrong way round.
    let is_numbered = digits + 1 >= suffix.len();
    let begins_with_digit = suffix.first().is_some_and(u8::is_ascii_digit);
    match rule {
        SuffixRule::Crush => !is_numbered || begins_with_digit,
        SuffixRule::Crush2 => {
            lower + upper + digits == suffix.len() && !(is_numbered && begins_with_digit)
        }
    }
}

/// As Linux's kernel classifies bytes: those of Latin-1, too.
fn is_lower(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || matches!(byte, 0xdf..=0xf6 | 0xf8..=0xff)
}

/// As [`is_lower`].
fn is_upper(byte: &u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, 0xc0..=0xd6 | 0xd8..=0xde)
}

fn without_backup_suffix(name: &[u8]) -> &[u8] {
    if let [rest @ .., before, b'~'] = name
        && *before != b'.'
    {
        return &name[..=rest.len()];
    }
    let target = |suffix: &[u8]| {
        let (target, last) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
        (last.eq_ignore_ascii_case(suffix) && !target.is_empty()).then_some(target)
    };
    BACKUPS.iter().find_map(|suffix| target(suffix)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(name: &str) -> [&str; 2] {
        [SuffixRule::Crush, SuffixRule::Crush2].map(|rule| {
            std::str::from_utf8(hashed_part(name.as_bytes(), rule)).expect("cut between characters")
        })
    }

    #[test]
    fn temporary_names_lie_with_what_they_become() {
        for (name, target) in [
            (".file.Ab3xYz", "file"),
            (".a.Ab3xYz", "a"),
            (".with.dots.aB9xYz", "with.dots"),
            ("file.Ab3xYz12", "file"),
            (".file.Ab3xYz12", ".file"),
            ("a.aaaaaaaB", "a"),
        ] {
            assert_eq!(both(name), [target, target], "{name}");
        }
    }

    #[test]
    fn other_names_are_hashed_whole() {
        let short = ["", ".", "..", "~", ".~", "a.~", "file", ".file", ".bak", ".orig", "bak"];
        let suffixes = ["..Ab3xYz", ".Ab3xYz12", "file.Ab3xYz", ".file.abcdef", "file.ABCDEFGH"];
        for name in short.into_iter().chain(suffixes) {
            assert_eq!(both(name), [name, name], "{name}");
        }
    }

    #[test]
    fn the_two_rules_differ_where_digits_or_other_characters_are() {
        for (name, crush, crush2) in [
            // All digits, or all but one.
            ("file.20260101", "file", "file.20260101"),
            ("file.1234567x", "file", "file.1234567x"),
            ("file.x1234567", "file.x1234567", "file"),
            (".file.123456", "file", ".file.123456"),
            // A dot in the right place of a name that is not temporary.
            ("mdtest.12.12345", "mdtest", "mdtest.12.12345"),
            ("output.6334.log", "output", "output.6334.log"),
        ] {
            assert_eq!(both(name), [crush, crush2], "{name}");
        }
    }

    #[test]
    fn letters_of_latin_1_are_letters() {
        let lower = b"file.\xe4\xf6\xfc\xdf\xe4\xf6\xfc\xe4";
        assert_eq!(hashed_part(lower, SuffixRule::Crush2), lower, "all of them small");
        let mixed = b"file.\xc4\xf6\xfc\xdf\xe4\xf6\xfc\xe4";
        assert_eq!(hashed_part(mixed, SuffixRule::Crush2), b"file");
        let signs = b"file.\xd7\xf7\xfc\xdf\xe4\xf6\xfc\xe4";
        assert_eq!(hashed_part(signs, SuffixRule::Crush2), signs, "two are no letters");
        assert_eq!(hashed_part(signs, SuffixRule::Crush), b"file");
    }

    #[test]
    fn backups_lie_with_what_they_are_of() {
        for (name, target) in [
            ("file~", "file"),
            ("file.c~", "file.c"),
            ("file.bak", "file"),
            ("file.BAK", "file"),
            ("a.sav", "a"),
            ("file.Orig", "file"),
        ] {
            assert_eq!(both(name), [target, target], "{name}");
        }
    }
}
