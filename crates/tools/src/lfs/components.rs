//! `lfs setstripe --component-add`, `--component-del` and `--component-set`.
//!
//! Each costs reading the layout, to say by name what is wrong with it, and one setting of an
//! extended attribute: `lustre.lov.add`, `lustre.lov.del` or `lustre.lov.set.flags`.

use std::path::Path;

use sheen_types::Errno;
use sheen_wire::lov::{
    CompFlags, LovCompEntry, LovComponent, LovEa, LovMagic, LovMd, LovMdHeader, LovPattern,
};

use super::attributes::{self, Change};
use super::layout_request::{ANY_OST, END_OF_FILE, composite, fault_of};
use crate::output::{Fault, shown_path};

/// Exit code of Lustre's tool for what its library refused.
pub(super) const LIBRARY_CODE: u8 = 1;
/// The largest component id (`LCME_ID_MAX`).
const ID_MAX: u32 = 0x7fff_ffff;

/// Names of flags as Lustre's tools read them.
const NAMES: &[(&str, CompFlags)] = &[
    ("init", CompFlags::INIT),
    ("stale", CompFlags::STALE),
    ("prefer", CompFlags(CompFlags::PREF_RD.0 | CompFlags::PREF_WR.0)),
    ("prefrd", CompFlags::PREF_RD),
    ("prefwr", CompFlags::PREF_WR),
    ("offline", CompFlags::OFFLINE),
    ("nosync", CompFlags::NOSYNC),
    ("extension", CompFlags::EXTENSION),
    ("parity", CompFlags::PARITY),
    ("compress", CompFlags::COMPRESS),
    ("nocompr", CompFlags::NOCOMPR),
];

/// Flags that are to be there, and flags that are not (behind a `^`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// With these.
    pub(super) set: CompFlags,
    /// Without these.
    pub(super) clear: CompFlags,
}

impl Flags {
    /// Reads `init,^stale`; the wrong word if there is one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut flags = Self::default();
        for word in text.split(',') {
            let name = word.strip_prefix('^').unwrap_or(word);
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, flag) = known.ok_or_else(|| word.to_owned())?;
            match name == word {
                true => flags.set |= *flag,
                false => flags.clear |= *flag,
            }
        }
        Ok(flags)
    }

    /// Whether a component's flags fit.
    pub(super) fn fit(&self, flags: CompFlags) -> bool {
        flags.contains(self.set) && flags.0 & self.clear.0 == 0
    }
}

/// Reads a component's id.
pub(super) fn parse_id(text: &str) -> Option<u32> {
    let id = super::options::parse_number(text)?;
    u32::try_from(id).ok().filter(|id| (1..=ID_MAX).contains(id))
}

fn refused(text: String) -> Fault {
    Fault { code: LIBRARY_CODE, text }
}

/// Adds components behind the last one. True if the file has no layout yet: then the components
/// are to become its layout.
///
/// # Errors
/// A fault with Lustre's exit codes.
pub(super) fn add(path: &Path, request: &LovEa) -> Result<bool, Fault> {
    let name = shown_path(path);
    let failed = |errno: Errno| {
        refused(format!("lfs setstripe: Add layout component(s) to {name} failed. {errno}"))
    };
    let LovEa::Composite(new) = request else { return Err(failed(Errno::EINVAL)) };
    let mut all = match attributes::layout(path).map_err(failed)? {
        None => return Ok(true),
        Some(LovEa::Composite(existing)) => existing.components,
        Some(_) => {
            let text = format!("lfs setstripe: invalid layout: '{name}' not a composite file");
            return Err(Fault::new(Errno::EINVAL, text));
        }
    };
    let mut added = new.components.clone();
    if let (Some(last), Some(first)) = (all.last(), added.first_mut()) {
        first.entry.start = last.entry.end;
    }
    let first = all.len();
    all.extend(added.iter().cloned());
    if let Some(what) = fault_of(&all) {
        let errno = Errno::EINVAL;
        let text = format!("Invalid layout: {what}: {errno}");
        return Err(refused(format!("lfs setstripe: cannot add to '{name}': {text}")));
    }
    let request = composite(all.split_off(first));
    attributes::change_layout(path, Change::Add, &request).map_err(failed)?;
    Ok(false)
}

/// Deletes the component of that id, or those whose flags fit.
pub(super) fn delete(path: &Path, id: Option<u32>, flags: Flags) -> Result<(), Fault> {
    let wrong = |text: &str| Err(Fault::new(Errno::EINVAL, format!("lfs setstripe: {text}")));
    let flags = match (flags.set.0, flags.clear.0) {
        (0, 0) => CompFlags::default(),
        (_, 0) => flags.set,
        (0, _) => flags.clear | CompFlags::NEG,
        _ => return wrong("cannot specify both positive and negative flags"),
    };
    match (id, flags.0) {
        (Some(_), 0) | (None, 1..) => {}
        (Some(_), _) => return wrong("cannot specify component ID and flags at the same time"),
        (None, 0) => return wrong("neither flags nor component ID is specified"),
    }
    let id = id.unwrap_or(0);
    let entry = LovCompEntry { id, flags, end: END_OF_FILE, ..LovCompEntry::default() };
    attributes::change_layout(path, Change::Delete, &named(vec![entry])).map_err(|errno| {
        let id = if id == 0 { "0".to_owned() } else { format!("{id:#x}") };
        let name = shown_path(path);
        refused(format!("lfs setstripe: cannot delete component {id} from '{name}': {errno}"))
    })
}

/// Sets and clears flags of the component of that id.
pub(super) fn set(path: &Path, id: u32, flags: Flags) -> Result<(), Fault> {
    let (name, both) = (shown_path(path), flags.set | flags.clear);
    if flags.clear.contains(CompFlags::STALE) {
        let text = "cannot clear 'stale' flags from component: that takes a resync of mirrors, \
            which Sheen does not support yet";
        return Err(Fault::new(Errno::EINVAL, format!("lfs setstripe: {text}")));
    }
    let failed = |errno: Errno| {
        let flags = format!("{:x} / ^({:x})", flags.set.0, flags.clear.0);
        let text = format!("component '{id:#x}' of file '{name}': {flags}: {errno}");
        refused(format!("lfs setstripe: cannot change the flags of {text}"))
    };
    if both.contains(CompFlags::INIT) {
        return Err(failed(Errno::EINVAL));
    }
    let entry = |flags| LovCompEntry { id, flags, end: END_OF_FILE, ..LovCompEntry::default() };
    let mut entries = Vec::new();
    if flags.set.0 != 0 {
        entries.push(entry(flags.set));
    }
    if flags.clear.0 != 0 {
        entries.push(entry(flags.clear | CompFlags::NEG));
    }
    if entries.is_empty() {
        return Ok(());
    }
    attributes::change_layout(path, Change::SetFlags, &named(entries)).map_err(failed)
}

/// A layout whose components are only named, by id or flags.
fn named(entries: Vec<LovCompEntry>) -> LovEa {
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::RAID0,
        layout_gen: ANY_OST,
        ..LovMdHeader::default()
    };
    let layout = LovMd { header, ..LovMd::default() };
    composite(
        entries.into_iter().map(|entry| LovComponent { entry, layout: layout.clone() }).collect(),
    )
}

#[cfg(test)]
mod tests {
    use sheen_wire::lov::CompFlags;

    use super::{Flags, parse_id};

    #[test]
    fn flags_are_read_with_their_absence() {
        let flags = Flags::parse("init,^stale,prefer").unwrap();
        assert_eq!((flags.set.0, flags.clear.0), (0x16, 0x1));
        assert!(flags.fit(CompFlags(0x56)) && !flags.fit(CompFlags(0x17)));
        assert!(!flags.fit(CompFlags::INIT));
        assert_eq!(Flags::parse("init,bogus"), Err("bogus".to_owned()));
        assert_eq!(Flags::parse(""), Err(String::new()));
    }

    #[test]
    fn ids_are_numbers_from_one() {
        assert_eq!((parse_id("0x63"), parse_id("131073")), (Some(99), Some(131_073)));
        assert_eq!((parse_id("0"), parse_id("x"), parse_id("0x80000000")), (None, None, None));
    }
}
