//! A check of the whole namespace, on however many MDTs it lies, for tests after crashes and for operators.
//!
//! A name may lead to an inode of another MDT; links are counted over all of them. Where the store of an MDT is missing, what
//! leads there is counted, and is no fault. So it is where another MDT's store lies in its place, which is a fault. Changes nothing. Memory: a record per name.
//!
//! The names of a striped directory lie in its stripes, which may be of other MDTs (`stripes`).

mod mdts;
mod mismatches;
mod stripes;

use std::fmt;

use sheen_layout::LayoutError;
use sheen_layout::stored::Stored;
use sheen_store::{Attributes, FileKind, Store, StoreError};
use sheen_types::{ChangeId, Fid, HashMap, HashSet, MdtIndex, Transno};
use sheen_wire::md::LinkEa;
use sheen_wire::ost::OstId;

pub use self::mdts::MdtAtRest;

pub(crate) use self::mdts::{Home, Mdts};

pub use self::mdts::FailedStore;
pub(crate) use self::mdts::Reading;
use self::mdts::Said;
pub(crate) use self::mismatches::{IdentityMismatch, matching, mismatches};
use self::stripes::Striped;
pub(crate) use self::stripes::{SHARED_XATTRS, agree, layout_of, other_stripe, rights};
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
    /// The MDT that shows it: where a name lies, or an inode.
    pub mdt: MdtIndex,
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
    /// The MDT of the file.
    pub mdt: MdtIndex,
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
    /// Of each inode its parent and name.
    pub(crate) fn new(names: HashMap<Fid, (Fid, Vec<u8>)>) -> Self {
        Self(names)
    }

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

    /// The path of a name in a directory.
    pub(crate) fn within(&self, directory: Fid, name: &[u8]) -> String {
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
    /// Inodes without a name, and their MDTs.
    pub orphans: Vec<(MdtIndex, Fid)>,
    /// Files of a survey that did not end; the server removes them when it starts.
    pub survey: u64,
    /// How far each MDT has come.
    pub progress: Vec<Progress>,
    /// Changes over several MDTs of which a participant lacks its part, or may lack it, as its store is not here. A start of all
    /// MDTs completes them. Records that are kept of complete changes do not count.
    pub incomplete: Vec<ChangeId>,
    /// Whether any of them knows an MDT whose store was not among those that were checked.
    pub some_missing: bool,
    /// Names that lead to an MDT whose store was not among those that were checked, and inodes whose names lie there.
    pub elsewhere: u64,
    /// Where the inodes lie.
    pub paths: Paths,
}

/// How far an MDT has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Which MDT.
    pub mdt: MdtIndex,
    /// Its newest transaction.
    pub transno: Transno,
    /// The last id used on each OST: what lies above it was created ahead, or a crash took the file.
    pub last_used: Vec<(u16, u64)>,
}

/// Walks the namespace in `store`, that of MDT0000: every name has an inode of its type, link counts and link EAs
/// agree with the names, no object belongs to two files.
///
/// # Errors
/// Those of the store.
pub fn check(store: &dyn Store) -> Result<Report, StoreError> {
    check_many(&[(MdtIndex(0), store)])
}

/// As [`check`], over the stores of several MDTs, all of a file system or some: names may lead from one to another, ranges
/// of sequences agree, and no change is on some of them alone.
///
/// # Errors
/// Those of the stores.
pub fn check_many(stores: &[(MdtIndex, &dyn Store)]) -> Result<Report, StoreError> {
    let at_rest = |(mdt, store): &(MdtIndex, _)| MdtAtRest {
        mdt: *mdt,
        store: *store,
        objects: &[],
        indexes: &[],
    };
    Ok(check_all(&stores.iter().map(at_rest).collect::<Vec<_>>())?)
}

/// As [`check_many`], and whether a name leads to each of their objects, and whether each index that has keys is that of a
/// directory.
///
/// # Errors
/// Those of the stores.
pub fn check_all(stores: &[MdtAtRest<'_>]) -> Result<Report, FailedStore> {
    let reading = Reading::default();
    checked(stores, &reading).map_err(|error| FailedStore { mdt: reading.mdt(), error })
}

fn checked(stores: &[MdtAtRest<'_>], reading: &Reading) -> Result<Report, StoreError> {
    let mismatches = mismatches(stores, reading)?;
    let stores = matching(stores, &mismatches);
    let (mdts, said) = Mdts::load(&stores, reading)?;
    let some_missing = mdts.are_some_missing() || !mismatches.is_empty();
    let report = Report { some_missing, ..Report::default() };
    let (names, striped, orphans) = Default::default();
    let mut walk = Walk { mdts, report, names, striped, orphans };
    walk.report(mismatches.iter().map(IdentityMismatch::said).collect());
    walk.report(said);
    walk.tree()?;
    walk.orphans()?;
    walk.below_missing()?;
    walk.nameless()?;
    walk.ownerless()?;
    walk.sequences()?;
    walk.changes()?;
    walk.stripes()?;
    walk.counts()?;
    walk.objects()?;
    Ok(walk.report)
}

struct Walk<'a> {
    mdts: Mdts<'a>,
    report: Report,
    /// Names found of each inode, and subdirectories of each directory.
    names: HashMap<Fid, Names>,
    striped: Striped,
    /// What their link EAs say is past.
    orphans: HashSet<Fid>,
}

/// A name in a directory of the MDT at a place.
struct Entry {
    at: usize,
    directory: Fid,
    name: Vec<u8>,
    child: Child,
}

#[derive(Default)]
struct Names {
    names: Vec<(Fid, Vec<u8>)>,
    subdirectories: u32,
}

impl Walk<'_> {
    fn fault(&mut self, at: usize, fid: Fid, what: impl Into<String>) {
        let path = self.report.paths.of(fid);
        self.report.faults.push(Fault { mdt: self.mdt(at), fid, path, what: what.into() });
    }

    /// A fault of an entry, which need not be the name by which its inode is reported.
    fn entry_fault(&mut self, entry: &Entry, what: impl Into<String>) {
        let Entry { at, directory, name, child } = entry;
        let path = self.report.paths.within(self.seen_parent(*directory), name);
        let (mdt, what) = (self.mdt(*at), what.into());
        self.report.faults.push(Fault { mdt, fid: child.fid, path, what });
    }

    /// What programs see as the directory of the names in one: of a stripe's, the master.
    fn seen_parent(&self, directory: Fid) -> Fid {
        let above = self.report.paths.0.get(&directory).map(|(above, _)| *above);
        let master =
            above.filter(|it| self.striped.is_stripe(directory) && self.striped.is_master(*it));
        master.unwrap_or(directory)
    }

    /// Faults that are none of names.
    fn report(&mut self, said: Vec<Said>) {
        for (mdt, fid, what) in said {
            let path = self.report.paths.of(fid);
            self.report.faults.push(Fault { mdt, fid, path, what });
        }
    }

    fn mdt(&self, at: usize) -> MdtIndex {
        self.mdts.all[at].mdt
    }

    /// The store that has an inode, or should have it.
    fn store_of(&self, fid: Fid) -> Option<(usize, &dyn Store)> {
        match self.mdts.home(fid) {
            Home::Here(at) => Some((at, self.mdts.store(at))),
            Home::Missing => None,
        }
    }

    fn tree(&mut self) -> Result<(), StoreError> {
        if let Home::Here(at) = self.mdts.home(Fid::ROOT) {
            self.below(at, Fid::ROOT)?;
        }
        for at in 0..self.mdts.all.len() {
            let reached = self.names.len() as u64;
            // A survey's directories have names in an index that is no directory itself, one on each MDT.
            self.below(at, ECHO)?;
            self.names.remove(&ECHO);
            self.report.survey += self.names.len() as u64 - reached;
        }
        Ok(())
    }

    /// Directories whose names lie on an MDT that is missing.
    fn below_missing(&mut self) -> Result<(), StoreError> {
        if !self.mdts.are_some_missing() {
            return Ok(());
        }
        for at in 0..self.mdts.all.len() {
            for fid in self.mdts.all[at].objects.iter().filter(|fid| fid.is_normal()) {
                let attributes = self.mdts.store(at).recorded_attributes(*fid)?;
                let is_directory = attributes.kind == FileKind::Directory;
                if is_directory && self.names_on_missing(*fid)? > 0 && !self.names.contains_key(fid)
                {
                    self.report.elsewhere += 1;
                    self.below(at, *fid)?;
                }
            }
        }
        Ok(())
    }

    /// How many names an inode says it has on MDTs that are missing.
    fn names_on_missing(&self, fid: Fid) -> Result<u32, StoreError> {
        if !self.mdts.are_some_missing() || self.orphans.contains(&fid) {
            return Ok(0);
        }
        let Some((_, store)) = self.store_of(fid) else { return Ok(0) };
        let value = store.xattr(fid, xattrs::LINK)?.unwrap_or_default();
        let links = LinkEa::decode(&value).unwrap_or_default();
        let is_missing = |parent| self.mdts.home(parent) == Home::Missing;
        Ok(links.entries.iter().filter(|entry| is_missing(entry.parent)).count() as u32)
    }

    fn below(&mut self, at: usize, root: Fid) -> Result<(), StoreError> {
        self.names.entry(root).or_default();
        let mut waiting = vec![(at, root)];
        while let Some((at, directory)) = waiting.pop() {
            let entries = self.entries(at, directory)?;
            self.striping(at, directory, &entries)?;
            for (name, child) in entries {
                self.name(Entry { at, directory, name, child }, &mut waiting)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, entry: Entry, waiting: &mut Vec<(usize, Fid)>) -> Result<(), StoreError> {
        let Entry { at, directory, ref name, child } = entry;
        if child.kind == FileKind::Directory {
            self.names.entry(directory).or_default().subdirectories += 1;
        }
        let Some((home, _)) = self.store_of(child.fid) else {
            self.report.elsewhere += 1;
            return Ok(());
        };
        let known = self.names.entry(child.fid).or_default();
        let is_first = known.names.is_empty() && child.fid != Fid::ROOT;
        known.names.push((directory, name.clone()));
        if is_first {
            let parent = self.seen_parent(directory);
            self.report.paths.0.insert(child.fid, (parent, name.clone()));
        }
        if child.kind == FileKind::Directory {
            match is_first {
                true => waiting.push((home, child.fid)),
                false => self.entry_fault(&entry, "a directory's second name"),
            }
        }
        match self.mdts.store(home).recorded_attributes(child.fid) {
            Ok(attributes) if attributes.kind == child.kind => {}
            Ok(_) => self.entry_fault(&entry, "its name has another type"),
            Err(StoreError::NoObject(_)) if home == at => {
                self.entry_fault(&entry, "a name of an inode that is missing");
            }
            Err(StoreError::NoObject(_)) => {
                let text =
                    format!("a name of an inode that is missing on MDT{:04x}", self.mdt(home));
                self.entry_fault(&entry, text);
            }
            Err(error) => self.entry_fault(&entry, error.to_string()),
        }
        Ok(())
    }

    fn entries(&mut self, at: usize, directory: Fid) -> Result<Vec<(Vec<u8>, Child)>, StoreError> {
        let mut found = Vec::new();
        let mut from = Vec::new();
        loop {
            let entries = self.mdts.store(at).scan(directory, &from, STEP)?;
            let Some(last) = entries.last() else { return Ok(found) };
            from = [&last.key[..], &[0]].concat();
            for entry in entries {
                let name = parse_key(&entry.key).map(|(_, name)| name);
                let name = name.filter(|name| directory::key(name) == entry.key);
                match (name, parse_value(&entry.value)) {
                    (Some(name), Some(child)) => found.push((name.to_vec(), child)),
                    _ => self.fault(at, directory, "an entry of it cannot be read"),
                }
            }
        }
    }

    /// Inodes that nothing leads to, or that lie where they may not.
    fn nameless(&mut self) -> Result<(), StoreError> {
        for at in 0..self.mdts.all.len() {
            for fid in self.mdts.all[at].objects.iter().filter(|fid| fid.is_normal()) {
                if let Some(text) = self.mdts.misplaced(at, *fid) {
                    self.fault(at, *fid, text);
                }
                if self.names.contains_key(fid) {
                    continue;
                }
                if self.names_on_missing(*fid)? > 0 {
                    self.report.elsewhere += 1;
                    self.names.entry(*fid).or_default();
                    continue;
                }
                self.fault(at, *fid, "no name leads to it");
                let attributes = self.mdts.store(at).recorded_attributes(*fid)?;
                self.objects_of(at, *fid, &attributes)?;
            }
        }
        Ok(())
    }

    /// Names in a directory that is none.
    fn ownerless(&mut self) -> Result<(), StoreError> {
        for at in 0..self.mdts.all.len() {
            for fid in self.mdts.all[at].indexes.iter().filter(|fid| fid.is_of_mdt()) {
                match self.mdts.store(at).recorded_attributes(*fid) {
                    Ok(attributes) if attributes.kind == FileKind::Directory => {}
                    // A name that is left of it reports the same, where its inode would be.
                    Err(StoreError::NoObject(_))
                        if self.names.contains_key(fid)
                            && !matches!(self.mdts.home(*fid), Home::Here(home) if home != at) => {}
                    Ok(_) | Err(StoreError::NoObject(_)) => {
                        self.fault(at, *fid, "it has entries and is no directory");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// What would be given out a second time.
    fn sequences(&mut self) -> Result<(), StoreError> {
        for at in 0..self.mdts.all.len() {
            let Some(next) = sequences::next(self.mdts.store(at))? else { continue };
            for fid in self.mdts.all[at].objects.iter().filter(|fid| fid.seq >= next) {
                let text = "its sequence was never given out, and would be given out again";
                self.fault(at, *fid, text);
            }
        }
        Ok(())
    }

    /// Changes over several MDTs that are not complete.
    fn changes(&mut self) -> Result<(), StoreError> {
        let (incomplete, said) = self.mdts.changes()?;
        self.report.incomplete = incomplete.into_iter().collect();
        self.report(said);
        Ok(())
    }

    fn orphans(&mut self) -> Result<(), StoreError> {
        for at in 0..self.mdts.all.len() {
            for fid in orphans::list(self.mdts.store(at))? {
                if self.names.contains_key(&fid) {
                    self.fault(at, fid, "it is in the list of orphans and has a name");
                }
                self.names.entry(fid).or_default();
                self.orphans.insert(fid);
                self.report.orphans.push((self.mdt(at), fid));
            }
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<(), StoreError> {
        let mut names: Vec<_> = std::mem::take(&mut self.names).into_iter().collect();
        names.sort_unstable_by_key(|(fid, _)| *fid);
        for (fid, known) in names {
            self.report.inodes += 1;
            let Home::Here(at) = self.mdts.home(fid) else { continue };
            let attributes = match self.mdts.store(at).recorded_attributes(fid) {
                Ok(attributes) => attributes,
                Err(StoreError::NoObject(_)) => {
                    if fid == Fid::ROOT {
                        self.fault(at, fid, "the root directory is missing");
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let elsewhere = self.names_on_missing(fid)?;
            let found = known.names.len() as u32 + elsewhere;
            let is_orphan = found == 0 && fid != Fid::ROOT;
            let links = match (is_orphan, attributes.kind) {
                (true, _) => 0,
                // Its stripes are no subdirectories; those in them are counted there.
                (false, FileKind::Directory) if self.striped.is_master(fid) => 2,
                (false, FileKind::Directory) => 2 + known.subdirectories,
                (false, _) => found,
            };
            if attributes.links != links {
                self.fault(at, fid, format!("it has {links} links and says {}", attributes.links));
            }
            if !is_orphan && fid != Fid::ROOT {
                self.links(at, fid, known.names)?;
            }
            self.objects_of(at, fid, &attributes)?;
        }
        Ok(())
    }

    fn objects_of(
        &mut self,
        at: usize,
        file: Fid,
        attributes: &Attributes,
    ) -> Result<(), StoreError> {
        if attributes.kind != FileKind::Regular {
            return Ok(());
        }
        let Some(layout) = self.mdts.store(at).xattr(file, xattrs::LOV)? else { return Ok(()) };
        match Stored::decode(&layout) {
            Ok(stored) => {
                let (used, mdt) = (stored.objects().into_iter(), self.mdt(at));
                let used = used.map(|(ost, object)| UsedObject { mdt, ost, object, file });
                self.report.objects.extend(used);
            }
            // Of another file system; there are no objects here.
            Err(LayoutError::Unsupported(_)) => {}
            Err(error) => self.fault(at, file, format!("its layout cannot be read: {error}")),
        }
        Ok(())
    }

    fn links(
        &mut self,
        at: usize,
        fid: Fid,
        mut names: Vec<(Fid, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let value = self.mdts.store(at).xattr(fid, xattrs::LINK)?.unwrap_or_default();
        let Ok(ea) = LinkEa::decode(&value) else {
            self.fault(at, fid, "it has no link EA");
            return Ok(());
        };
        let entries = ea.entries.iter().map(|entry| (entry.parent, entry.name.to_vec()));
        let is_here = |parent: Fid| self.mdts.home(parent) != Home::Missing;
        let mut recorded: Vec<_> = entries.filter(|(parent, _)| is_here(*parent)).collect();
        recorded.sort();
        names.sort();
        for (parent, name) in recorded.iter().filter(|recorded| !names.contains(recorded)) {
            let name = shown(name);
            self.fault(at, fid, format!("its link EA names {name} in {parent}, which is none"));
        }
        for (parent, name) in names.iter().filter(|name| !recorded.contains(name)) {
            if ea.overflow_time == 0 {
                let name = shown(name);
                self.fault(at, fid, format!("its link EA does not name {name} in {parent}"));
            }
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), StoreError> {
        let mut seen: HashMap<_, (MdtIndex, Fid)> = HashMap::default();
        for UsedObject { mdt, ost, object, file } in self.report.objects.clone() {
            if let Some((_, other)) = seen.insert((ost, object), (mdt, file)) {
                let (name, other) = (named(ost, object), self.report.paths.of(other));
                let text = format!("{name} is in the layout of {other}, too");
                self.report(vec![(mdt, file, text)]);
            }
        }
        let mut waiting: HashSet<_> = HashSet::default();
        for at in 0..self.mdts.all.len() {
            let (mdt, store) = (self.mdt(at), self.mdts.store(at));
            let dying = destroys(store)
                .map_err(|errno| StoreError::Io(format!("the ost_updates: {errno}")))?;
            for (ost, object) in &dying {
                let name = named(*ost, *object);
                if let Some((mdt, file)) = seen.get(&(*ost, *object)) {
                    let text = format!("{name} of it waits to be destroyed");
                    self.report(vec![(*mdt, *file, text)]);
                } else if !waiting.insert((*ost, *object)) {
                    self.fault(at, Fid::ROOT, format!("{name} waits to be destroyed twice"));
                }
            }
            self.report.dying.extend(dying);
            let (transno, last_used) =
                (sheen_target::transno_at_rest(store)?, placement::last_used(store)?);
            self.report.progress.push(Progress { mdt, transno, last_used });
        }
        Ok(())
    }
}

fn named(ost: u16, object: OstId) -> String {
    match object.fid(ost) {
        Some(fid) => format!("object {fid} of OST{ost:04x}"),
        None => format!("object {object:?} of OST{ost:04x}"),
    }
}
