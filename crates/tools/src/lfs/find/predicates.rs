//! What a file is tested for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use rustix::fs::{FileType, Statx};
use sheen_types::Errno;
use sheen_wire::lmv::LmvHash;
use sheen_wire::lov::{CompFlags, LovEa, LovMd, LovPattern};

use super::hashes::Hashes;
use super::values::{attributes, file_type, id, layouts, newer, permissions, pool, targets};
use super::{BAD_VALUE_CODE, bad, times};
use crate::lfs::attributes::Xattr;
use crate::lfs::compare::Bound;
use crate::lfs::components::Flags;
use crate::lfs::layout_request::END_OF_FILE;
use crate::output::{Fault, USAGE_CODE};
use sheen_types::glob::matches;

/// Exit code where Lustre's tool gives the errno.
pub(super) const EINVAL_CODE: u8 = 22;
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
    MdtCount(Bound),
    MdtHash(Hashes),
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
            "mdt-count" => Self::MdtCount(number("mdt-count", BAD_VALUE_CODE)?),
            "mdt-hash" => {
                let wrong = || bad(EINVAL_CODE, format!("invalid mdt_hash value '{value}'"));
                Self::MdtHash(Hashes::read(value).ok_or_else(wrong)?)
            }
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
            | Self::MdtCount(_)
            | Self::MdtHash(_)
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
    /// The stripes of a directory: how many, and the hash by which names choose one.
    fn stripes(&self) -> Result<(u64, LmvHash), Errno>;
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
            // What is asked of directories no other file has, turned round or not.
            let is_of_directories = matches!(test, Test::MdtCount(_) | Test::MdtHash(_));
            if is_of_directories && file.kind()? != FileType::Directory
                || fits(test, file)? == *negated
            {
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
        Test::MdtCount(bound) => bound.fits(file.stripes()?.0),
        Test::MdtHash(hashes) => hashes.fit(file.stripes()?.1),
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

#[cfg(test)]
#[path = "predicates_tests.rs"]
mod tests;
