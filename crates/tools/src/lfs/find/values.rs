//! Parsing of the values of tests.

use rustix::fs::FileType;
use sheen_types::TargetName;
use sheen_wire::lov::LovPattern;

use super::predicates::{EINVAL_CODE, Test, Time};
use super::{BAD_VALUE_CODE, bad, times};
use crate::lfs::options::parse_number;
use crate::output::{Fault, USAGE_CODE};

/// `XY REFERENCE`: X of the file against Y of the reference, `t` for a time in words. Other letters are no option.
pub(super) fn newer(value: &str) -> Result<Test, Fault> {
    let wrong = |text: String| bad(EINVAL_CODE, text);
    let (kinds, reference) = value.split_at_checked(2).unwrap_or(("mm", value));
    let time = |letter: Option<char>| match letter {
        Some('a') => Some(Time::Access),
        Some('b' | 'B') => Some(Time::Birth),
        Some('c') => Some(Time::Change),
        Some('m') => Some(Time::Modification),
        _ => None,
    };
    let mut letters = kinds.chars();
    let unknown = || bad(USAGE_CODE, format!("unrecognized option '-newer{kinds}'"));
    let own = time(letters.next()).ok_or_else(unknown)?;
    let other = letters.next();
    if other == Some('t') {
        let than = times::parse(reference);
        let than = than.ok_or_else(|| wrong(format!("bad time '{reference}'")))?;
        return Ok(Test::Newer(own, than));
    }
    let other = time(other).ok_or_else(unknown)?;
    let found = times::status(reference.as_ref(), false).map_err(|errno| {
        Fault::new(errno, format!("lfs find: cannot stat '{reference}': {errno}"))
    })?;
    let than = times::of(&found, other);
    let unknown = || wrong(format!("the birth time of '{reference}' is not known"));
    Ok(Test::Newer(own, than.ok_or_else(unknown)?))
}

/// Attributes as `statx` has them: letter, name, bit.
pub(super) const ATTRIBUTES: &[(char, &str, u64)] = &[
    ('c', "Compressed", 0x4),
    ('i', "Immutable", 0x10),
    ('a', "Append_Only", 0x20),
    ('d', "No_Dump", 0x40),
    ('E', "Encrypted", 0x800),
    ('M', "Automount", 0x1000),
];

pub(super) fn attributes(value: &str) -> Result<Test, Fault> {
    let (mut set, mut clear) = (0, 0);
    for word in value.split(',') {
        let name = word.strip_prefix('^').unwrap_or(word);
        let known = ATTRIBUTES.iter().find(|(letter, long, _)| {
            long.eq_ignore_ascii_case(name) || name.len() == 1 && name.starts_with(*letter)
        });
        let wrong = || bad(BAD_VALUE_CODE, format!("bad attribute name '{name}'"));
        let (_, _, bit) = known.ok_or_else(wrong)?;
        *(if name == word { &mut set } else { &mut clear }) |= bit;
    }
    Ok(Test::Attributes(set, clear))
}

pub(super) fn permissions(value: &str) -> Result<Test, Fault> {
    let (make, text): (fn(u32) -> Test, &str) = match value.as_bytes().first() {
        Some(b'/') => (Test::PermAny, &value[1..]),
        Some(b'-') => (Test::PermAll, &value[1..]),
        _ => (Test::PermExact, value),
    };
    let octal = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    let mode = octal.or_else(|| symbolic(text));
    mode.map(make).ok_or_else(|| bad(BAD_VALUE_CODE, format!("invalid mode '{value}'")))
}

/// `u+rw,g=rx`, from nothing.
pub(super) fn symbolic(text: &str) -> Option<u32> {
    let mut mode = 0;
    for part in text.split(',') {
        let at = part.find(['+', '-', '='])?;
        let (who, what) = part.split_at(at);
        let mut mask = 0;
        for letter in who.chars() {
            mask |= match letter {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return None,
            };
        }
        let mask = if who.is_empty() { 0o7777 } else { mask };
        let mut bits = 0;
        for letter in what[1..].chars() {
            bits |= match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => return None,
            };
        }
        match &what[..1] {
            "-" => mode &= !(bits & mask),
            "=" => mode = mode & !mask | bits & mask,
            _ => mode |= bits & mask,
        }
    }
    Some(mode)
}

/// A number, or the number of a name in `/etc/passwd` or `/etc/group`.
pub(super) fn id(table: &str, value: &str, what: &str) -> Result<u32, Fault> {
    let named = || crate::lfs::find::times::id_of(table, value);
    let number = value.parse::<u32>().ok();
    let wrong = || bad(BAD_VALUE_CODE, format!("invalid {what} '{value}'"));
    named().or(number).ok_or_else(wrong)
}

pub(super) fn file_type(value: &str) -> Result<FileType, Fault> {
    Ok(match value {
        "b" => FileType::BlockDevice,
        "c" => FileType::CharacterDevice,
        "d" => FileType::Directory,
        "f" => FileType::RegularFile,
        "l" => FileType::Symlink,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => return Err(bad(USAGE_CODE, format!("bad type '{value}'"))),
    })
}

/// Targets by index, range of indexes, or name.
pub(super) fn targets(kind: &str, value: &str) -> Result<Vec<u32>, Fault> {
    let mut indexes = Vec::new();
    for word in value.split(',') {
        let wrong = || bad(EINVAL_CODE, format!("unknown {kind} '{word}'"));
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        if let (Some(first), Some(last)) = (parse_number(first), parse_number(last)) {
            let last = u32::try_from(last).ok().filter(|last| *last <= u32::from(u16::MAX));
            let last = last.ok_or_else(wrong)?;
            indexes.extend(u32::try_from(first).map_err(|_| wrong())?..=last);
            continue;
        }
        let full = if word.starts_with(kind) { format!("x-{word}") } else { word.to_owned() };
        let name: TargetName = full.parse().map_err(|_| wrong())?;
        indexes.push(name.index.into());
    }
    Ok(indexes)
}

pub(super) fn pool(value: &str) -> Result<String, Fault> {
    match value.len() {
        0..=15 => Ok(value.to_owned()),
        _ => Err(bad(BAD_VALUE_CODE, format!("pool name '{value}' is too long"))),
    }
}

pub(super) fn layouts(value: &str) -> Result<LovPattern, Fault> {
    let mut wanted = LovPattern::NONE;
    for word in value.split(',') {
        wanted = wanted.union(match word {
            "mdt" => LovPattern::MDT,
            "raid0" => LovPattern::RAID0,
            "released" => LovPattern::RELEASED,
            "overstriped" => LovPattern::OVERSTRIPING,
            _ => {
                let text = format!("layout '{word}' is unknown: use mdt, raid0 or released");
                return Err(bad(EINVAL_CODE, text));
            }
        });
    }
    Ok(wanted)
}
