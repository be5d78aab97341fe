//! What a file is tested for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use rustix::fs::{FileType, Statx};
use sheen_types::{Errno, TargetName};
use sheen_wire::lov::{CompFlags, LovEa, LovMd, LovPattern};

use super::{BAD_VALUE_CODE, bad, times};
use crate::lfs::attributes::Xattr;
use crate::lfs::compare::Bound;
use crate::lfs::components::Flags;
use crate::lfs::options::parse_number;
use crate::lfs::wish::END_OF_FILE;
use crate::output::{Fault, USAGE_CODE};

/// Exit code where Lustre's tool gives the errno.
const EINVAL_CODE: u8 = 22;
/// Exit code where Lustre's tool forgets that something was wrong.
const FORGOTTEN_CODE: u8 = 0;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 512;

/// One of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Access,
    Birth,
    Change,
    Modification,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Age(Time, Bound),
    Newer(Time, i128),
    Attributes(u64, u64),
    Blocks(Bound),
    Size(Bound),
    Links(Bound),
    PermExact(u32),
    PermAll(u32),
    PermAny(u32),
    Group(u32),
    User(u32),
    Name(String),
    Type(FileType),
    StripeCount(Bound),
    StripeSize(Bound),
    Osts(Vec<u32>),
    Mdts(Vec<u32>),
    Pool(String),
    Layout(LovPattern),
    ComponentCount(Bound),
    ComponentStart(Bound),
    ComponentEnd(Bound),
    ComponentFlags(Flags),
    ExtensionSize(Bound),
    Xattr(Expression, Option<Expression>),
}

/// A regular expression for all of a text.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    text: String,
    expression: Regex,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Expression {
    fn read(text: &str) -> Option<Self> {
        let expression = Regex::builder()
            .configure(Regex::config().utf8_empty(false))
            .syntax(syntax::Config::new().utf8(false).unicode(false).dot_matches_new_line(true))
            .build(&format!("^(?:{text})$"));
        Some(Self { text: text.to_owned(), expression: expression.ok()? })
    }

    fn fits(&self, bytes: &[u8]) -> bool {
        self.expression.is_match(bytes)
    }
}

/// What a test costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// Nothing: it came with the directory.
    Name,
    /// A `stat`.
    Attributes,
    /// An extended attribute.
    Layout,
}

impl Test {
    /// Reads an option's value.
    ///
    /// # Errors
    /// A fault with the exit code that Lustre's tool has for it.
    pub(super) fn read(name: &str, value: &str, spelled: &str) -> Result<Self, Fault> {
        let size = |what: &str, unit| {
            let wrong = || bad(EINVAL_CODE, format!("bad {what} '{value}'"));
            Bound::size(value, unit).ok_or_else(wrong)
        };
        let number = |what: &str, code| {
            let wrong = || bad(code, format!("bad {what} '{value}'"));
            Bound::number(value).ok_or_else(wrong)
        };
        let age = |time| {
            let wrong = || bad(BAD_VALUE_CODE, format!("bad {name} '{value}'"));
            Ok(Self::Age(time, Bound::age(value, times::now()).ok_or_else(wrong)?))
        };
        Ok(match name {
            "atime" => age(Time::Access)?,
            "btime" => age(Time::Birth)?,
            "ctime" => age(Time::Change)?,
            "mtime" => age(Time::Modification)?,
            "newer" => newer(value)?,
            "attrs" => attributes(value)?,
            "blocks" => Self::Blocks(size("blocks", BLOCK_BYTES)?),
            "size" => Self::Size(size("file size", BLOCK_BYTES)?),
            "links" => Self::Links(number("link count", BAD_VALUE_CODE)?),
            "perm" => permissions(value)?,
            "gid" | "group" => Self::Group(id("/etc/group", value, "group/GID")?),
            "uid" | "user" => Self::User(id("/etc/passwd", value, "username/UID")?),
            "name" => Self::Name(value.to_owned()),
            "type" => Self::Type(file_type(value)?),
            "stripe-count" => Self::StripeCount(number("stripe_count", BAD_VALUE_CODE)?),
            "stripe-size" => Self::StripeSize(size("stripe_size", 1)?),
            "stripe-index" | "ost" => Self::Osts(targets("OST", value)?),
            "mdt-index" => Self::Mdts(targets("MDT", value)?),
            "pool" => Self::Pool(pool(value)?),
            "layout" => Self::Layout(layouts(value)?),
            "component-count" => Self::ComponentCount(number("component count", FORGOTTEN_CODE)?),
            "component-start" => {
                let wrong = || bad(FORGOTTEN_CODE, format!("bad component start '{value}'"));
                Self::ComponentStart(Bound::size(value, 1).ok_or_else(wrong)?)
            }
            "component-end" => {
                let wrong = || bad(FORGOTTEN_CODE, format!("bad component end '{value}'"));
                Self::ComponentEnd(Bound::end(value).ok_or_else(wrong)?)
            }
            "component-flags" => {
                let wrong = |_| bad(FORGOTTEN_CODE, format!("bad component flags '{value}'"));
                Self::ComponentFlags(Flags::parse(value).map_err(wrong)?)
            }
            "extension-size" => Self::ExtensionSize(size("ext-size", 1)?),
            "xattr" => {
                let (name, value) = match value.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (value, None),
                };
                let read = |text: &str| {
                    let wrong = || bad(EINVAL_CODE, format!("bad regular expression '{text}'"));
                    Expression::read(text).ok_or_else(wrong)
                };
                Self::Xattr(read(name)?, value.map(read).transpose()?)
            }
            _ => return Err(bad(USAGE_CODE, format!("unrecognized option '{spelled}'"))),
        })
    }

    fn cost(&self) -> Cost {
        match self {
            Self::Name(_) | Self::Type(_) => Cost::Name,
            Self::StripeCount(_)
            | Self::StripeSize(_)
            | Self::Osts(_)
            | Self::Pool(_)
            | Self::Layout(_)
            | Self::ComponentCount(_)
            | Self::ComponentStart(_)
            | Self::ComponentEnd(_)
            | Self::ComponentFlags(_)
            | Self::ExtensionSize(_)
            | Self::Xattr(..) => Cost::Layout,
            _ => Cost::Attributes,
        }
    }

    fn is_of_component(&self) -> bool {
        matches!(self, Self::ComponentStart(_) | Self::ComponentEnd(_) | Self::ComponentFlags(_))
    }

    /// Whether another test of this kind takes this one's place.
    fn is_replaced_by(&self, other: &Self) -> bool {
        let twice = matches!(self, Self::Age(..) | Self::Newer(..) | Self::Xattr(..));
        !twice && std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A file as far as it is known.
pub(super) trait File {
    /// The last part of its path.
    fn name(&self) -> &OsStr;
    /// Its type.
    fn kind(&self) -> Result<FileType, Errno>;
    /// Its attributes.
    fn attributes(&self) -> Result<&Statx, Errno>;
    /// Its layout, a directory's default; `None` if it has none.
    fn layout(&self) -> Result<Option<&LovEa>, Errno>;
    /// Its extended attributes, names and values.
    fn xattrs(&self) -> Result<Vec<Xattr>, Errno>;
    /// The MDT it lies on.
    fn mdt(&self) -> Result<u32, Errno>;
}

/// All tests, each as it is or turned round.
#[derive(Clone, Debug, Default)]
pub(super) struct Tests(Vec<(Test, bool)>);

impl Tests {
    /// Adds a test; of a kind the last one counts.
    pub(super) fn add(&mut self, test: Test, negated: bool) {
        self.0.retain(|(known, _)| !known.is_replaced_by(&test));
        self.0.push((test, negated));
        self.0.sort_by_key(|(test, _)| test.cost());
    }

    /// Whether the file passes.
    ///
    /// # Errors
    /// What asking for its attributes or layout met.
    pub(super) fn fit(&self, file: &dyn File) -> Result<bool, Errno> {
        for (test, negated) in self.0.iter().filter(|(test, _)| !test.is_of_component()) {
            if fits(test, file)? == *negated {
                return Ok(false);
            }
        }
        self.some_component_fits(file)
    }

    /// What is asked of components must hold for one of them.
    fn some_component_fits(&self, file: &dyn File) -> Result<bool, Errno> {
        let tests: Vec<_> = self.0.iter().filter(|(test, _)| test.is_of_component()).collect();
        if tests.is_empty() {
            return Ok(true);
        }
        let is_file = file.kind()? == FileType::RegularFile;
        let whole = if is_file { CompFlags::INIT } else { CompFlags::default() };
        let components: Vec<(u64, u64, CompFlags)> = match file.layout()? {
            Some(LovEa::Composite(all)) => {
                let part = |part: &sheen_wire::lov::LovComponent| {
                    (part.entry.start, part.entry.end, part.entry.flags)
                };
                all.components.iter().map(part).collect()
            }
            Some(LovEa::Foreign(_)) => Vec::new(),
            _ => vec![(0, END_OF_FILE, whole)],
        };
        let fits = |(start, end, flags): &(u64, u64, CompFlags), test: &Test| match test {
            Test::ComponentStart(bound) => bound.fits(*start),
            Test::ComponentEnd(bound) => bound.fits(*end),
            Test::ComponentFlags(wanted) => wanted.fit(*flags),
            _ => true,
        };
        Ok(components
            .iter()
            .any(|part| tests.iter().all(|(test, negated)| fits(part, test) != *negated)))
    }
}

fn fits(test: &Test, file: &dyn File) -> Result<bool, Errno> {
    let attributes = || file.attributes();
    Ok(match test {
        Test::Name(pattern) => matches(pattern.as_bytes(), file.name().as_bytes()),
        Test::Type(kind) => file.kind()? == *kind,
        Test::Age(time, bound) => {
            let nanoseconds = times::of(attributes()?, *time).ok_or(Errno::EOPNOTSUPP)?;
            bound.fits(u64::try_from(nanoseconds / times::NANOSECONDS).unwrap_or(0))
        }
        Test::Newer(time, than) => times::of(attributes()?, *time).is_some_and(|own| own > *than),
        Test::Attributes(set, clear) => {
            let own = attributes()?.stx_attributes.bits();
            own & set == *set && own & clear == 0
        }
        Test::Blocks(bound) => bound.fits(attributes()?.stx_blocks * BLOCK_BYTES),
        Test::Size(bound) => bound.fits(attributes()?.stx_size),
        Test::Links(bound) => bound.fits(attributes()?.stx_nlink.into()),
        Test::PermExact(mode) => u32::from(attributes()?.stx_mode) & 0o7777 == *mode,
        Test::PermAll(mode) => u32::from(attributes()?.stx_mode) & mode == *mode,
        Test::PermAny(mode) => u32::from(attributes()?.stx_mode) & mode != 0,
        Test::Group(id) => attributes()?.stx_gid == *id,
        Test::User(id) => attributes()?.stx_uid == *id,
        Test::Xattr(name, value) => {
            let fits = |(own, content): &Xattr| {
                name.fits(own) && value.as_ref().is_none_or(|value| value.fits(content))
            };
            file.xattrs()?.iter().any(fits)
        }
        Test::Mdts(indexes) => indexes.contains(&file.mdt()?),
        _ => fits_layout(test, file.layout()?),
    })
}

/// The plain layouts that hold data: those of components that have objects.
fn made(layout: Option<&LovEa>) -> Vec<&LovMd> {
    match layout {
        Some(LovEa::Plain(plain)) => vec![plain],
        Some(LovEa::Composite(all)) => {
            let made = all.components.iter().filter(|part| {
                part.entry.flags.contains(CompFlags::INIT)
                    && !part.entry.flags.contains(CompFlags::EXTENSION)
            });
            made.map(|part| &part.layout).collect()
        }
        _ => Vec::new(),
    }
}

fn fits_layout(test: &Test, layout: Option<&LovEa>) -> bool {
    let last = made(layout).last().map(|plain| plain.header.clone()).unwrap_or_default();
    match test {
        Test::StripeCount(bound) => bound.fits(last.stripe_count.into()),
        Test::StripeSize(bound) => bound.fits(last.stripe_size.into()),
        Test::Osts(indexes) => {
            let lies = |plain: &&LovMd| {
                plain.stripes.iter().any(|stripe| indexes.contains(&stripe.ost_idx))
            };
            made(layout).iter().any(lies)
        }
        Test::Pool(name) => match layout {
            // What has no layout lies in no pool.
            None => name.is_empty(),
            _ => made(layout).iter().any(|plain| in_pool(plain, name)),
        },
        Test::Layout(wanted) => match layout {
            Some(LovEa::Plain(plain)) => plain.header.pattern.intersects(*wanted),
            Some(LovEa::Composite(all)) => {
                all.components.iter().any(|part| part.layout.header.pattern.intersects(*wanted))
            }
            _ => false,
        },
        Test::ComponentCount(bound) => match layout {
            Some(LovEa::Composite(all)) => bound.fits(all.components.len() as u64),
            Some(LovEa::Foreign(_)) => false,
            _ => bound.fits(0),
        },
        Test::ExtensionSize(bound) => match layout {
            Some(LovEa::Composite(all)) => all.components.iter().any(|part| {
                let size = u64::from(part.layout.header.stripe_size) << 10;
                part.entry.flags.contains(CompFlags::EXTENSION) && bound.fits(size)
            }),
            _ => false,
        },
        _ => true,
    }
}

fn in_pool(plain: &LovMd, name: &str) -> bool {
    match (name, plain.pool.is_empty()) {
        ("", none) => none,
        ("*", none) => !none,
        (name, _) => plain.pool.as_bytes() == name.as_bytes(),
    }
}

/// `XY REFERENCE`: X of the file against Y of the reference, `t` for a time in words.
fn newer(value: &str) -> Result<Test, Fault> {
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
    let own = time(letters.next());
    let own = own.ok_or_else(|| wrong(format!("-newer{kinds}: X must be a, b, c or m")))?;
    let other = letters.next();
    if other == Some('t') {
        let than = times::parse(reference);
        let than = than.ok_or_else(|| wrong(format!("bad time '{reference}'")))?;
        return Ok(Test::Newer(own, than));
    }
    let other = time(other);
    let other = other.ok_or_else(|| wrong(format!("-newer{kinds}: Y must be a, b, c, m or t")))?;
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

fn attributes(value: &str) -> Result<Test, Fault> {
    let (mut set, mut clear) = (0, 0);
    for word in value.split(',') {
        let name = word.strip_prefix('^').unwrap_or(word);
        let known = ATTRIBUTES.iter().find(|(letter, long, _)| {
            long.eq_ignore_ascii_case(name) || name.len() == 1 && name.starts_with(*letter)
        });
        let wrong = || bad(EINVAL_CODE, format!("unknown attribute '{name}'"));
        let (_, _, bit) = known.ok_or_else(wrong)?;
        *(if name == word { &mut set } else { &mut clear }) |= bit;
    }
    Ok(Test::Attributes(set, clear))
}

fn permissions(value: &str) -> Result<Test, Fault> {
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
fn symbolic(text: &str) -> Option<u32> {
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
fn id(table: &str, value: &str, what: &str) -> Result<u32, Fault> {
    let named = || crate::lfs::find::times::id_of(table, value);
    let number = value.parse::<u32>().ok();
    let wrong = || bad(BAD_VALUE_CODE, format!("invalid {what} '{value}'"));
    named().or(number).ok_or_else(wrong)
}

fn file_type(value: &str) -> Result<FileType, Fault> {
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
fn targets(kind: &str, value: &str) -> Result<Vec<u32>, Fault> {
    let mut indexes = Vec::new();
    for word in value.split(',') {
        let wrong = || bad(EINVAL_CODE, format!("'{word}' is no {kind}"));
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

fn pool(value: &str) -> Result<String, Fault> {
    match value.len() {
        0..=15 => Ok(value.to_owned()),
        _ => Err(bad(BAD_VALUE_CODE, format!("pool name '{value}' is too long"))),
    }
}

fn layouts(value: &str) -> Result<LovPattern, Fault> {
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

/// Whether a name is like a pattern (`fnmatch`): `*`, `?`, `[a-z]`, `[!a]`, and `\` before those.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        b'*' => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        b'?' => !name.is_empty() && matches(rest, &name[1..]),
        b'[' => match (name.split_first(), class(rest)) {
            (Some((letter, name)), Some((is_in, rest))) => is_in(*letter) && matches(rest, name),
            (Some((b'[', name)), None) => matches(rest, name),
            _ => false,
        },
        b'\\' if !rest.is_empty() => {
            name.first() == rest.first() && matches(&rest[1..], &name[1..])
        }
        letter => name.first() == Some(&letter) && matches(rest, &name[1..]),
    }
}

type IsIn<'a> = Box<dyn Fn(u8) -> bool + 'a>;

/// A class of letters behind its `[`, and what follows its `]`.
fn class(pattern: &[u8]) -> Option<(IsIn<'_>, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A bracket at the beginning stands for itself.
    let end = pattern.iter().skip(start + 1).position(|letter| *letter == b']')? + start + 1;
    let letters = &pattern[start..end];
    let is_in = move |letter: u8| {
        let (mut place, mut found) = (0, false);
        while place < letters.len() {
            if letters.get(place + 1) == Some(&b'-') && place + 2 < letters.len() {
                found |= (letters[place]..=letters[place + 2]).contains(&letter);
                place += 3;
            } else {
                found |= letters[place] == letter;
                place += 1;
            }
        }
        found != negated
    };
    Some((Box::new(is_in), &pattern[end + 1..]))
}

#[cfg(test)]
#[path = "predicates_tests.rs"]
mod tests;
