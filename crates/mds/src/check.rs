//! A check of the whole namespace, for tests after crashes and for operators.
//!
//! Changes nothing. Memory: a record per name.

use std::fmt;

use sheen_layout::LayoutError;
use sheen_layout::stored::Stored;
use sheen_store::{Attributes, FileKind, Store, StoreError};
use sheen_types::{Fid, HashMap, HashSet, Transno};
use sheen_wire::md::LinkEa;
use sheen_wire::ost::OstId;

use crate::directory::{self, Child, parse_key, parse_value};
use crate::echo::ECHO;
use crate::placement::destroys;
use crate::{orphans, placement, sequences, xattrs};

/// Entries read at a time.
const STEP: usize = 1024;
/// Directories of a path at most that a report names.
const DEPTH_MAX: usize = 4096;

/// An inode, or a name, that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    /// The inode.
    pub fid: Fid,
    /// Where it lies.
    pub path: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}): {}", self.path, self.fid, self.what)
    }
}

/// An object on an OST that a layout names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedObject {
    /// The OST.
    pub ost: u16,
    /// The object.
    pub object: OstId,
    /// The file.
    pub file: Fid,
}

/// The first name of each inode: parent and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(HashMap<Fid, (Fid, Vec<u8>)>);

impl Paths {
    /// A path of an inode from the root of the file system; what cannot be shown in a line is escaped.
    #[must_use]
    pub fn of(&self, fid: Fid) -> String {
        let (mut parts, mut at) = (Vec::new(), fid);
        while at != Fid::ROOT && parts.len() < DEPTH_MAX {
            match self.0.get(&at) {
                Some((ECHO, _)) => break,
                Some((parent, name)) => {
                    parts.push(shown(name));
                    at = *parent;
                }
                None if parts.is_empty() => return "(no name)".to_owned(),
                None => {
                    parts.push("(no name)".to_owned());
                    break;
                }
            }
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    fn within(&self, directory: Fid, name: &[u8]) -> String {
        let above = self.of(directory);
        format!("{}/{}", above.trim_end_matches('/'), shown(name))
    }
}

/// A name that cannot look like another line, nor steer a terminal.
fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for char in String::from_utf8_lossy(name).chars() {
        match char.is_control() {
            true => text.extend(char.escape_default()),
            false => text.push(char),
        }
    }
    text
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Inodes reached from the root, and orphans.
    pub inodes: u64,
    /// What contradicts what; empty in a sound namespace.
    pub faults: Vec<Fault>,
    /// Objects of all files.
    pub objects: Vec<UsedObject>,
    /// Objects that wait to be destroyed.
    pub dying: Vec<(u16, OstId)>,
    /// Inodes without a name.
    pub orphans: Vec<Fid>,
    /// Files of a survey that did not end; the server removes them when it starts.
    pub survey: u64,
    /// The last id used on each OST: what lies above it was created ahead, or a crash took the file.
    pub last_used: Vec<(u16, u64)>,
    /// The newest transaction.
    pub transno: Transno,
    /// Where the inodes lie.
    pub paths: Paths,
}

/// Walks the namespace in `store`: every name has an inode of its type, link counts and link EAs
/// agree with the names, no object belongs to two files.
///
/// # Errors
/// Those of the store.
pub fn check(store: &dyn Store) -> Result<Report, StoreError> {
    check_all(store, &[], &[])
}

/// As [`check`], and whether a name leads to each of `objects`, which are all in the store, and whether
/// each of `indexes`, which are all that have keys, is that of a directory.
///
/// # Errors
/// Those of the store.
pub fn check_all(
    store: &dyn Store,
    objects: &[Fid],
    indexes: &[Fid],
) -> Result<Report, StoreError> {
    let mut walk = Walk { store, report: Report::default(), names: HashMap::default() };
    walk.tree()?;
    walk.orphans()?;
    walk.nameless(objects)?;
    walk.ownerless(indexes)?;
    walk.sequences(objects)?;
    walk.counts()?;
    walk.objects()?;
    Ok(walk.report)
}

struct Walk<'a> {
    store: &'a dyn Store,
    report: Report,
    /// Names found of each inode, and subdirectories of each directory.
    names: HashMap<Fid, Names>,
}

#[derive(Default)]
struct Names {
    names: Vec<(Fid, Vec<u8>)>,
    subdirectories: u32,
}

impl Walk<'_> {
    fn fault(&mut self, fid: Fid, what: impl Into<String>) {
        let path = self.report.paths.of(fid);
        self.report.faults.push(Fault { fid, path, what: what.into() });
    }

    /// A fault of an entry, which need not be the name by which its inode is reported.
    fn entry_fault(&mut self, directory: Fid, name: &[u8], fid: Fid, what: impl Into<String>) {
        let path = self.report.paths.within(directory, name);
        self.report.faults.push(Fault { fid, path, what: what.into() });
    }

    fn tree(&mut self) -> Result<(), StoreError> {
        self.below(Fid::ROOT)?;
        let reached = self.names.len() as u64;
        // A survey's directories have names in an index that is no directory itself.
        self.below(ECHO)?;
        self.names.remove(&ECHO);
        self.report.survey = self.names.len() as u64 - reached;
        Ok(())
    }

    fn below(&mut self, root: Fid) -> Result<(), StoreError> {
        self.names.entry(root).or_default();
        let mut waiting = vec![root];
        while let Some(directory) = waiting.pop() {
            for (name, child) in self.entries(directory)? {
                self.name(directory, name, child, &mut waiting)?;
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        directory: Fid,
        name: Vec<u8>,
        child: Child,
        waiting: &mut Vec<Fid>,
    ) -> Result<(), StoreError> {
        let known = self.names.entry(child.fid).or_default();
        let is_first = known.names.is_empty() && child.fid != Fid::ROOT;
        known.names.push((directory, name.clone()));
        if is_first {
            self.report.paths.0.insert(child.fid, (directory, name.clone()));
        }
        if child.kind == FileKind::Directory {
            self.names.entry(directory).or_default().subdirectories += 1;
            match is_first {
                true => waiting.push(child.fid),
                false => self.entry_fault(directory, &name, child.fid, "a directory's second name"),
            }
        }
        match self.store.recorded_attributes(child.fid) {
            Ok(attributes) if attributes.kind == child.kind => {}
            Ok(_) => self.entry_fault(directory, &name, child.fid, "its name has another type"),
            Err(StoreError::NoObject(_)) => {
                self.entry_fault(directory, &name, child.fid, "a name of an inode that is missing");
            }
            Err(error) => self.entry_fault(directory, &name, child.fid, error.to_string()),
        }
        Ok(())
    }

    fn entries(&mut self, directory: Fid) -> Result<Vec<(Vec<u8>, Child)>, StoreError> {
        let mut found = Vec::new();
        let mut from = Vec::new();
        loop {
            let entries = self.store.scan(directory, &from, STEP)?;
            let Some(last) = entries.last() else { return Ok(found) };
            from = [&last.key[..], &[0]].concat();
            for entry in entries {
                let name = parse_key(&entry.key).map(|(_, name)| name);
                let name = name.filter(|name| directory::key(name) == entry.key);
                match (name, parse_value(&entry.value)) {
                    (Some(name), Some(child)) => found.push((name.to_vec(), child)),
                    _ => self.fault(directory, "an entry of it cannot be read"),
                }
            }
        }
    }

    /// Inodes that nothing leads to.
    fn nameless(&mut self, objects: &[Fid]) -> Result<(), StoreError> {
        for fid in objects.iter().filter(|fid| fid.is_normal()) {
            if self.names.contains_key(fid) {
                continue;
            }
            self.fault(*fid, "no name leads to it");
            self.objects_of(*fid, &self.store.recorded_attributes(*fid)?)?;
        }
        Ok(())
    }

    /// Names in a directory that is none.
    fn ownerless(&mut self, indexes: &[Fid]) -> Result<(), StoreError> {
        for fid in indexes.iter().filter(|fid| fid.is_namespace()) {
            match self.store.recorded_attributes(*fid) {
                Ok(attributes) if attributes.kind == FileKind::Directory => {}
                // A name that is left of it reports the same.
                Err(StoreError::NoObject(_)) if self.names.contains_key(fid) => {}
                Ok(_) | Err(StoreError::NoObject(_)) => {
                    self.fault(*fid, "it has entries and is no directory");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What would be given out a second time.
    fn sequences(&mut self, objects: &[Fid]) -> Result<(), StoreError> {
        let Some(next) = sequences::next(self.store)? else { return Ok(()) };
        for fid in objects.iter().filter(|fid| fid.seq >= next) {
            self.fault(*fid, "its sequence was never given out, and would be given out again");
        }
        Ok(())
    }

    fn orphans(&mut self) -> Result<(), StoreError> {
        for fid in orphans::list(self.store)? {
            if self.names.contains_key(&fid) {
                self.fault(fid, "it is in the list of orphans and has a name");
            }
            self.names.entry(fid).or_default();
            self.report.orphans.push(fid);
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<(), StoreError> {
        let mut names: Vec<_> = std::mem::take(&mut self.names).into_iter().collect();
        names.sort_unstable_by_key(|(fid, _)| *fid);
        for (fid, known) in names {
            self.report.inodes += 1;
            let attributes = match self.store.recorded_attributes(fid) {
                Ok(attributes) => attributes,
                Err(StoreError::NoObject(_)) if fid != Fid::ROOT => continue,
                Err(error) => return Err(error),
            };
            let is_orphan = known.names.is_empty() && fid != Fid::ROOT;
            let links = match (is_orphan, attributes.kind) {
                (true, _) => 0,
                (false, FileKind::Directory) => 2 + known.subdirectories,
                (false, _) => known.names.len() as u32,
            };
            if attributes.links != links {
                self.fault(fid, format!("it has {links} links and says {}", attributes.links));
            }
            if !is_orphan && fid != Fid::ROOT {
                self.links(fid, known.names)?;
            }
            self.objects_of(fid, &attributes)?;
        }
        Ok(())
    }

    fn objects_of(&mut self, file: Fid, attributes: &Attributes) -> Result<(), StoreError> {
        if attributes.kind != FileKind::Regular {
            return Ok(());
        }
        let Some(layout) = self.store.xattr(file, xattrs::LOV)? else { return Ok(()) };
        match Stored::decode(&layout) {
            Ok(stored) => {
                let used = stored.objects().into_iter();
                let used = used.map(|(ost, object)| UsedObject { ost, object, file });
                self.report.objects.extend(used);
            }
            // Of another file system; there are no objects here.
            Err(LayoutError::Unsupported(_)) => {}
            Err(error) => self.fault(file, format!("its layout cannot be read: {error}")),
        }
        Ok(())
    }

    fn links(&mut self, fid: Fid, mut names: Vec<(Fid, Vec<u8>)>) -> Result<(), StoreError> {
        let value = self.store.xattr(fid, xattrs::LINK)?.unwrap_or_default();
        let Ok(ea) = LinkEa::decode(&value) else {
            self.fault(fid, "it has no link EA");
            return Ok(());
        };
        let entries = ea.entries.iter().map(|entry| (entry.parent, entry.name.to_vec()));
        let mut recorded: Vec<_> = entries.collect();
        recorded.sort();
        names.sort();
        for (parent, name) in recorded.iter().filter(|recorded| !names.contains(recorded)) {
            let name = shown(name);
            self.fault(fid, format!("its link EA names {name} in {parent}, which is none"));
        }
        for (parent, name) in names.iter().filter(|name| !recorded.contains(name)) {
            if ea.overflow_time == 0 {
                let name = shown(name);
                self.fault(fid, format!("its link EA does not name {name} in {parent}"));
            }
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), StoreError> {
        let dying = destroys(self.store)
            .map_err(|errno| StoreError::Io(format!("the ost_updates: {errno}")))?;
        let mut seen: HashMap<_, Fid> = HashMap::default();
        for UsedObject { ost, object, file } in self.report.objects.clone() {
            if let Some(other) = seen.insert((ost, object), file) {
                let (name, other) = (named(ost, object), self.report.paths.of(other));
                self.fault(file, format!("{name} is in the layout of {other}, too"));
            }
        }
        let mut waiting: HashSet<_> = HashSet::default();
        for (ost, object) in &dying {
            let name = named(*ost, *object);
            if let Some(file) = seen.get(&(*ost, *object)) {
                self.fault(*file, format!("{name} of it waits to be destroyed"));
            } else if !waiting.insert((*ost, *object)) {
                self.fault(Fid::ROOT, format!("{name} waits to be destroyed twice"));
            }
        }
        self.report.dying = dying;
        self.report.last_used = placement::last_used(self.store)?;
        self.report.transno = sheen_target::transno_at_rest(self.store)?;
        Ok(())
    }
}

fn named(ost: u16, object: OstId) -> String {
    match object.fid(ost) {
        Some(fid) => format!("object {fid} of OST{ost:04x}"),
        None => format!("object {object:?} of OST{ost:04x}"),
    }
}
