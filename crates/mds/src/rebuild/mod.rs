//! Puts the names, inodes and counters of a salvaged store in order again, as far as they describe
//! each other (Lustre: LFSCK's namespace part).
//!
//! An inode knows its names (link EA) and a directory its entries, so each can restore the other: a
//! directory that is lost is made again, under its own FID, of what names it or says it lies in it;
//! a name that is lost is put back from the link EA. What nothing leads to goes to `lost+found` in
//! the root, named by its FID. What no inode and no object is left of loses its name, and is
//! reported. A directory that is made again belongs to root alone.
//!
//! It only adds and corrects what contradicts what: where an older version of a name came back with
//! the salvage, the name stays. Memory: a record per name. The target must not run.
//!
//! Of several MDTs all must be there, and each must be the one that the other MDTs know by its identity: each name is put where its directory lies, each count and link EA where its inode does,
//! and `lost+found` is MDT0000's, with names for inodes of other MDTs, too. That is several transactions; a repair that ended
//! in between is made whole by the next one. Where their tables of sequences contradict each other nothing is done. An inode
//! that lies where its FID does not belong stays as it is, and so do the names that lead to it.
//!
//! Names of striped directories are put into the stripe that they hash to (`stripes`).

mod changes;
mod lost_and_found;
mod obstacle;
mod report;
mod stripes;

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind, Sequence, Store, StoreError, Transaction};
use sheen_types::{Fid, HashMap, HashSet, MdtIndex, Timestamp};
use sheen_wire::md::{LinkEa, LinkEntry};
use sheen_wire::ost::OstId;

use self::lost_and_found::LOST_AND_FOUND;
pub use self::obstacle::{Obstacle, repair_obstacle};
pub use self::report::{LostName, WhyLost};
use self::stripes::Striped;
use crate::check::{FailedStore, Home, MdtAtRest, Mdts, Paths, Reading};
use crate::directory::{self, Child, parse_key, parse_value};
use crate::echo::ECHO;
use crate::inode::DIRECTORY_BYTES;
use crate::vouched_sizes::forget_era;
use crate::{links, orphans, placement, sequences, xattrs};

/// Entries read at a time.
const STEP: usize = 1024;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Inodes that are there now.
    pub inodes: u64,
    /// Directories made again, their owner and mode unknown.
    pub directories: Vec<Fid>,
    /// Stripes of directories made again: of the names that were in them those are there which inodes know.
    pub stripes: Vec<Fid>,
    /// Names put back from the inodes that know them, and names in `lost+found`.
    pub names: u64,
    /// The inodes of the former, once for each name.
    pub put_back: Vec<Fid>,
    /// Names of striped directories put into the stripe that they hash to.
    pub moved: u64,
    /// Inodes that went to `lost+found`.
    pub found: Vec<Fid>,
    /// Names that were removed.
    pub lost: Vec<LostName>,
    /// Link counts and link EAs that were corrected.
    pub corrected: u64,
    /// Where the inodes and directories lie that are named here, but those in `lost+found`.
    pub paths: Paths,
}

/// Rebuilds the namespace in `store`, which holds `objects` and has keys in `indexes`. What it cannot
/// put in order [`crate::check`] reports afterwards.
///
/// # Errors
/// Those of the store.
pub fn rebuild(
    store: &dyn Store,
    objects: &[Fid],
    indexes: &[Fid],
    now: Timestamp,
) -> Result<Rebuilt, StoreError> {
    let (all, reading) =
        ([MdtAtRest { mdt: MdtIndex(0), store, objects, indexes }], Reading::default());
    let mut done = rebuild_here(&all, Mdts::unknown(&all, &reading), now)?;
    Ok(done.pop().unwrap_or_default())
}

/// Rebuilds all MDTs of a file system; what was done on each of them. Parts of changes over several MDTs that one lacks
/// and that could not be redone ([`crate::redo_offline`]) are given up: the names are put in order without them.
///
/// Nothing is done, and nothing returned, where there is an [`Obstacle`].
///
/// # Errors
/// Those of the stores; then some of it may be done, and another run does the rest.
pub fn rebuild_all(mdts: &[MdtAtRest<'_>], now: Timestamp) -> Result<Vec<Rebuilt>, FailedStore> {
    let reading = Reading::default();
    let done = rebuild_known(mdts, &reading, now);
    done.map_err(|error| FailedStore { mdt: reading.mdt(), error })
}

fn rebuild_known(
    mdts: &[MdtAtRest<'_>],
    reading: &Reading,
    now: Timestamp,
) -> Result<Vec<Rebuilt>, StoreError> {
    if obstacle::obstacle(mdts, reading)?.is_some() {
        return Ok(Vec::new());
    }
    let (known, _) = Mdts::load(mdts, reading)?;
    // Durably, and first: names that were put in order could make a part fit, and the next start would redo it over them.
    changes::give_up(mdts, reading)?;
    rebuild_here(mdts, known, now)
}

fn rebuild_here(
    all: &[MdtAtRest<'_>],
    mdts: Mdts<'_>,
    now: Timestamp,
) -> Result<Vec<Rebuilt>, StoreError> {
    let done = vec![Rebuilt::default(); all.len()];
    let (inodes, misplaced, striped) = Default::default();
    let mut work = Rebuild { all, mdts, now, done, inodes, misplaced, striped };
    work.directory(Fid::ROOT)?;
    for (at, mdt) in all.iter().enumerate() {
        for fid in mdt.objects.iter().filter(|fid| fid.is_of_mdt()) {
            if work.at(*fid) != at {
                continue;
            }
            let kind = work.mdts.store(at).recorded_attributes(*fid)?.kind;
            work.inodes.entry(*fid).or_insert(Inode { kind, names: Vec::new() });
        }
    }
    for (at, mdt) in all.iter().enumerate() {
        for index in mdt.indexes.iter().filter(|fid| fid.is_of_mdt()) {
            if work.at(*index) == at {
                work.directory(*index)?;
            }
        }
    }
    let mut orphans = HashSet::default();
    for at in 0..all.len() {
        orphans.extend(orphans::list(work.mdts.store(at))?);
    }
    work.settle_stripes(&orphans)?;
    work.inodes_of_names()?;
    work.names_in_stripes()?;
    work.names_of_inodes(&orphans)?;
    work.attach(&orphans)?;
    work.counts(&orphans)?;
    work.counters()?;
    work.note_paths();
    for at in 0..all.len() {
        // What was lost may have been that a file was written.
        forget_era(work.mdts.store(at))?;
        work.mdts.store(at).commit()?;
    }
    for fid in work.inodes.keys() {
        let at = work.at(*fid);
        work.done[at].inodes += 1;
    }
    Ok(work.done)
}

struct Inode {
    kind: FileKind,
    /// The names found: parent, name.
    names: Vec<(Fid, Bytes)>,
}

struct Rebuild<'a> {
    all: &'a [MdtAtRest<'a>],
    mdts: Mdts<'a>,
    now: Timestamp,
    /// Of each MDT.
    done: Vec<Rebuilt>,
    inodes: HashMap<Fid, Inode>,
    /// How many names of misplaced directories a directory has.
    misplaced: HashMap<Fid, u32>,
    striped: Striped,
}

impl Rebuild<'_> {
    /// Changes the store of the MDT at a place.
    fn apply(
        &self,
        at: usize,
        change: impl FnOnce(&mut Transaction),
    ) -> Result<Sequence, StoreError> {
        let mut transaction = Transaction::new();
        change(&mut transaction);
        self.mdts.store(at).apply(transaction)
    }

    fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The place of the MDT that an inode belongs to.
    fn at(&self, fid: Fid) -> usize {
        match self.mdts.home(fid) {
            Home::Here(at) if self.are_several() => at,
            _ => 0,
        }
    }

    /// The place of the MDT that a name lies on. A survey's lie beside their inodes.
    fn at_name(&self, parent: Fid, child: Fid) -> usize {
        self.at(if parent == ECHO { child } else { parent })
    }

    fn store(&self, fid: Fid) -> &dyn Store {
        self.mdts.store(self.at(fid))
    }

    fn kind(&self, fid: Fid) -> Option<FileKind> {
        self.inodes.get(&fid).map(|inode| inode.kind)
    }

    /// Whether the store of an MDT that an inode does not belong to has it.
    fn is_misplaced(&self, fid: Fid) -> Result<bool, StoreError> {
        let home = self.at(fid);
        for at in (0..self.all.len()).filter(|at| *at != home && fid.is_normal()) {
            match self.mdts.store(at).recorded_attributes(fid) {
                Ok(_) => return Ok(true),
                Err(StoreError::NoObject(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Makes a directory, unless an inode of that name is there, or none of the MDTs may have one.
    fn directory(&mut self, fid: Fid) -> Result<(), StoreError> {
        let at = self.at(fid);
        let may_not = self.are_several() && self.mdts.misplaced(at, fid).is_some();
        if self.inodes.contains_key(&fid) || may_not || self.is_misplaced(fid)? {
            return Ok(());
        }
        self.inodes.insert(fid, Inode { kind: FileKind::Directory, names: Vec::new() });
        match self.store(fid).recorded_attributes(fid) {
            Ok(_) => return Ok(()),
            Err(StoreError::NoObject(_)) => {}
            Err(error) => return Err(error),
        }
        let attributes = Attributes {
            kind: FileKind::Directory,
            permissions: if fid == Fid::ROOT { 0o755 } else { 0o700 },
            links: 2,
            size: DIRECTORY_BYTES,
            blocks: DIRECTORY_BYTES / 512,
            accessed: self.now,
            modified: self.now,
            changed: self.now,
            born: self.now,
            ..Attributes::default()
        };
        self.apply(at, |change| {
            change.create(fid, attributes);
        })?;
        if fid != LOST_AND_FOUND {
            self.done[at].directories.push(fid);
        }
        Ok(())
    }

    /// Looks at all names: directories that they name are made again, names of nothing go.
    fn inodes_of_names(&mut self) -> Result<(), StoreError> {
        let is_directory =
            |(fid, inode): (&Fid, &Inode)| (inode.kind == FileKind::Directory).then_some(*fid);
        let mut waiting: Vec<Fid> = self.inodes.iter().filter_map(is_directory).collect();
        waiting.sort_unstable();
        let mut waiting: Vec<_> = waiting.into_iter().map(|fid| (self.at(fid), fid)).collect();
        // Each MDT has one of its own.
        waiting.extend((0..self.all.len()).map(|at| (at, ECHO)));
        while let Some((at, parent)) = waiting.pop() {
            let mut from = Vec::new();
            loop {
                let entries = self.mdts.store(at).scan(parent, &from, STEP)?;
                let Some(last) = entries.last() else { break };
                from = [&last.key[..], &[0]].concat();
                for entry in &entries {
                    // A salvage takes what no checksum proves: a name has to fit its hash.
                    let named = parse_key(&entry.key).filter(|(_, name)| {
                        directory::parse_name(name).is_ok() && directory::key(name) == entry.key
                    });
                    let parsed = named.zip(parse_value(&entry.value));
                    let Some(((_, name), child)) = parsed else {
                        let (name, why) = (String::new(), WhyLost::Unreadable);
                        let lost = LostName { parent, name, fid: None, why };
                        self.remove_lost_name(at, &entry.key, lost)?;
                        continue;
                    };
                    if self.name(at, parent, &entry.key, name, child)? {
                        waiting.push((self.at(child.fid), child.fid));
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes a name. True if a directory was made for it, which may have entries.
    fn name(
        &mut self,
        at: usize,
        parent: Fid,
        key: &Bytes,
        name: Bytes,
        child: Child,
    ) -> Result<bool, StoreError> {
        let known = self.kind(child.fid);
        let is_made = known.is_none() && child.kind == FileKind::Directory;
        if is_made && child.fid.is_of_mdt() {
            self.directory(child.fid)?;
        }
        let Some(kind) = self.kind(child.fid) else {
            if self.is_misplaced(child.fid)? {
                let is_directory = child.kind == FileKind::Directory;
                *self.misplaced.entry(parent).or_default() += u32::from(is_directory);
                return Ok(false);
            }
            let name = String::from_utf8_lossy(&name).into_owned();
            let lost = LostName { parent, name, fid: Some(child.fid), why: WhyLost::NoInode };
            self.remove_lost_name(at, key, lost)?;
            return Ok(false);
        };
        let has_other = self.inodes[&child.fid].names.iter().any(|(other, _)| *other != ECHO);
        if kind == FileKind::Directory && (has_other || child.fid == Fid::ROOT) {
            return self.second_name(parent, key, name, child.fid).map(|()| false);
        }
        if kind != child.kind {
            let value = directory::value(Child { kind, ..child });
            self.apply(at, |change| {
                change.put(parent, key.clone(), value);
            })?;
            self.done[at].corrected += 1;
        }
        let inode = self.inodes.get_mut(&child.fid);
        inode.into_iter().for_each(|inode| inode.names.push((parent, name.clone())));
        Ok(is_made)
    }

    /// A directory has one name: that of its link EA, if that is one of the two.
    fn second_name(
        &mut self,
        parent: Fid,
        key: &Bytes,
        name: Bytes,
        fid: Fid,
    ) -> Result<(), StoreError> {
        let links = self.links(fid)?;
        let is_recorded = |(parent, name): &(Fid, Bytes)| {
            links.entries.iter().any(|entry| entry.parent == *parent && entry.name == *name)
        };
        let new = (parent, name);
        let Some(inode) = self.inodes.get_mut(&fid) else { return Ok(()) };
        let gone = match inode.names.first() {
            Some(old) if is_recorded(&new) && !is_recorded(old) => {
                let (parent, name) = std::mem::replace(&mut inode.names[0], new);
                (parent, directory::key(&name))
            }
            _ => (parent, key.clone()),
        };
        let at = self.at_name(gone.0, fid);
        self.apply(at, |change| {
            change.delete(gone.0, gone.1);
        })?;
        self.done[at].corrected += 1;
        Ok(())
    }

    fn remove_lost_name(
        &mut self,
        at: usize,
        key: &Bytes,
        lost: LostName,
    ) -> Result<(), StoreError> {
        self.apply(at, |change| {
            change.delete(lost.parent, key.clone());
        })?;
        self.done[at].lost.push(lost);
        Ok(())
    }

    fn links(&self, fid: Fid) -> Result<LinkEa, StoreError> {
        let value = self.store(fid).xattr(fid, xattrs::LINK)?.unwrap_or_default();
        Ok(LinkEa::decode(&value).unwrap_or_default())
    }

    /// Restores the names that inodes record and no directory has. Of several MDTs an orphan stays one: the next start
    /// removes it.
    fn names_of_inodes(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        fids.retain(|fid| !self.are_several() || !orphans.contains(fid));
        fids.sort_unstable();
        // The name `.lustre` is in no index.
        let has_none = |fid: Fid| fid == Fid::ROOT || fid == Fid::DOT_LUSTRE;
        for fid in fids.into_iter().filter(|fid| !has_none(*fid)) {
            for LinkEntry { parent, name } in self.links(fid)?.entries {
                let has_one = !self.inodes[&fid].names.is_empty();
                let is_directory = self.kind(fid) == Some(FileKind::Directory);
                if !parent.is_of_mdt() || parent == fid || has_one && is_directory {
                    continue;
                }
                let Some(parent) = self.place_of_name(parent, &name) else { continue };
                self.directory(parent)?;
                if self.kind(parent) != Some(FileKind::Directory) {
                    continue;
                }
                let (at, before) = (self.at(parent), self.inodes[&fid].names.len());
                self.put_name(parent, name, fid)?;
                if self.inodes[&fid].names.len() > before {
                    self.done[at].put_back.push(fid);
                }
            }
        }
        Ok(())
    }

    /// Gives an inode a name, if nothing else has it. Whether it has it now.
    fn put_name(&mut self, parent: Fid, name: Bytes, fid: Fid) -> Result<bool, StoreError> {
        if directory::parse_name(&name).is_err() {
            return Ok(false);
        }
        let key = directory::key(&name);
        if let Some(taken) = self.store(parent).lookup(parent, &key)? {
            return Ok(parse_value(&taken).is_some_and(|child| child.fid == fid));
        }
        let Some(inode) = self.inodes.get_mut(&fid) else { return Ok(false) };
        inode.names.push((parent, name));
        let value = directory::value(Child { fid, kind: inode.kind });
        let at = self.at(parent);
        self.apply(at, |change| {
            change.insert(parent, key, value);
        })?;
        self.done[at].names += 1;
        Ok(true)
    }

    /// Link counts and link EAs follow the names.
    fn counts(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let mut subdirectories: HashMap<Fid, u32> = HashMap::default();
        for inode in self.inodes.values().filter(|inode| inode.kind == FileKind::Directory) {
            let parents = inode.names.iter().map(|(parent, _)| *parent);
            parents.for_each(|parent| *subdirectories.entry(parent).or_default() += 1);
        }
        for (parent, names) in &self.misplaced {
            *subdirectories.entry(*parent).or_default() += names;
        }
        let mut corrected = vec![0; self.all.len()];
        for (fid, inode) in &self.inodes {
            if orphans.contains(fid) && !inode.names.is_empty() {
                let key = orphans::fid_key(*fid);
                self.apply(self.at(*fid), |change| {
                    change.delete(orphans::ORPHANS, key);
                })?;
            }
            let links = match (inode.names.len() as u32, inode.kind) {
                (0, _) if *fid != Fid::ROOT && *fid != Fid::DOT_LUSTRE => 0,
                (_, FileKind::Directory) if self.striped.is_master(*fid) => 2,
                (_, FileKind::Directory) => 2 + subdirectories.get(fid).copied().unwrap_or(0),
                (names, _) => names,
            };
            corrected[self.at(*fid)] += u64::from(self.correct(*fid, inode, links)?);
        }
        self.done.iter_mut().zip(corrected).for_each(|(done, more)| done.corrected += more);
        Ok(())
    }

    /// Whether something was not as it should be.
    fn correct(&self, fid: Fid, inode: &Inode, links: u32) -> Result<bool, StoreError> {
        let now = self.store(fid).recorded_attributes(fid)?;
        let links_added = links.cast_signed().saturating_sub_unsigned(now.links);
        let recorded = self.links(fid)?;
        let pairs = recorded.entries.iter().map(|entry| (entry.parent, entry.name.clone()));
        let mut pairs: Vec<_> = pairs.collect();
        let mut names = inode.names.clone();
        pairs.sort();
        names.sort();
        let agrees = pairs == names || fid == Fid::ROOT || names.is_empty();
        if agrees && links_added == 0 {
            return Ok(false);
        }
        self.apply(self.at(fid), |change| {
            change.patch(fid, AttributePatch { links_added, ..AttributePatch::default() });
            if !agrees {
                change.set_xattr(fid, xattrs::LINK, links::of(&names));
            }
        })?;
        Ok(true)
    }

    /// Nothing that is in use is given out again.
    fn counters(&self) -> Result<(), StoreError> {
        let mut used: Vec<HashMap<u16, u64>> = Vec::new();
        for at in 0..self.all.len() {
            used.push(placement::last_used(self.mdts.store(at))?.into_iter().collect());
        }
        for fid in self.inodes.keys() {
            let layout = self.store(*fid).xattr(*fid, xattrs::LOV)?.unwrap_or_default();
            for (ost, object) in placement::objects_of(&layout) {
                if let Some(used) = self.creator(&object).and_then(|at| used.get_mut(at)) {
                    let id = object.fid(ost).map_or(0, |fid| u64::from(fid.oid));
                    let known = used.entry(ost).or_default();
                    *known = id.max(*known);
                }
            }
        }
        for (at, used) in used.into_iter().enumerate() {
            self.apply(at, |change| {
                for (ost, id) in used {
                    placement::put_used(change, ost, id);
                }
            })?;
            let own = self.inodes.keys().filter(|fid| fid.is_normal() && self.at(**fid) == at);
            if let Some(highest) = own.map(|fid| fid.seq).max() {
                sequences::note_used(self.mdts.store(at), highest)?;
            }
        }
        Ok(())
    }

    /// The place of the MDT that has had an object created: each has its own sequence on an OST.
    fn creator(&self, object: &OstId) -> Option<usize> {
        if !self.are_several() {
            return Some(0);
        }
        let mdt = sequences::mdt_of_objects(object)?;
        self.all.iter().position(|it| it.mdt == mdt)
    }
}

/// Ids of objects that a salvaged MDT passes over on each OST: more than can have been given to files between
/// what was read of it and its end.
const SKIPPED_IDS: u64 = 1 << 20;

/// Sees to it that no OST destroys the objects of files that were lost with a part of the MDT's store.
///
/// The last id used on an OST is written with the newest files, and lost with them. An MDT that sends an OST a
/// smaller one has it remove those above that hold no data, and one of Lustre's all of them. So the MDT goes on behind all
/// that it can have used; `sheen fsck` finds the objects that belong to no file. The target must not run.
///
/// OSTs are those that a layout or a record names, and those that have a range of sequences: of one without, the
/// MDT takes a new range, in which nothing can be destroyed.
///
/// # Errors
/// Those of the store.
pub fn skip_used_objects(store: &dyn Store) -> Result<(), StoreError> {
    let mut change = Transaction::new();
    let mut used: HashMap<u16, u64> = placement::last_used(store)?.into_iter().collect();
    for ost in sequences::osts(store)? {
        used.entry(ost).or_default();
    }
    for (ost, id) in used {
        placement::put_used(&mut change, ost, id.saturating_add(SKIPPED_IDS));
    }
    store.apply(change)?;
    store.commit().map(|_| ())
}

#[cfg(test)]
mod tests;
