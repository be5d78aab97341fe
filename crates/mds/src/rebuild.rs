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

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind, Sequence, Store, StoreError, Transaction};
use sheen_types::{Fid, HashMap, HashSet, Timestamp, fid_seq};
use sheen_wire::md::{LinkEa, LinkEntry};

use crate::directory::{self, Child, parse_key, parse_value};
use crate::echo::ECHO;
use crate::inode::DIRECTORY_BYTES;
use crate::vouched_sizes::forget_era;
use crate::{dot_lustre, links, orphans, placement, sequences, xattrs};

/// Where goes what nothing leads to.
const LOST_AND_FOUND: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 3, ver: 0 };
const LOST_AND_FOUND_NAME: &[u8] = b"lost+found";
/// Entries read at a time.
const STEP: usize = 1024;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Inodes that are there now.
    pub inodes: u64,
    /// Directories made again, their owner and mode unknown.
    pub directories: Vec<Fid>,
    /// Names put back from the inodes that know them.
    pub names: u64,
    /// Inodes that went to `lost+found`.
    pub found: Vec<Fid>,
    /// Names of which nothing else is left, with their directories: they are gone.
    pub lost: Vec<(Fid, String)>,
    /// Link counts and link EAs that were corrected.
    pub corrected: u64,
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
    let mut work = Rebuild { store, now, done: Rebuilt::default(), inodes: HashMap::default() };
    work.directory(Fid::ROOT)?;
    for fid in objects.iter().filter(|fid| fid.is_namespace()) {
        let attributes = store.recorded_attributes(*fid)?;
        work.inodes.insert(*fid, Inode { kind: attributes.kind, names: Vec::new() });
    }
    for index in indexes.iter().filter(|fid| fid.is_namespace()) {
        work.directory(*index)?;
    }
    let orphans: HashSet<Fid> = orphans::list(store)?.into_iter().collect();
    work.inodes_of_names()?;
    work.names_of_inodes()?;
    work.attach(&orphans)?;
    work.counts(&orphans)?;
    work.counters()?;
    // What was lost may have been that a file was written.
    forget_era(store)?;
    store.commit()?;
    work.done.inodes = work.inodes.len() as u64;
    Ok(work.done)
}

struct Inode {
    kind: FileKind,
    /// The names found: parent, name.
    names: Vec<(Fid, Bytes)>,
}

struct Rebuild<'a> {
    store: &'a dyn Store,
    now: Timestamp,
    done: Rebuilt,
    inodes: HashMap<Fid, Inode>,
}

impl Rebuild<'_> {
    fn apply(&self, change: impl FnOnce(&mut Transaction)) -> Result<Sequence, StoreError> {
        let mut transaction = Transaction::new();
        change(&mut transaction);
        self.store.apply(transaction)
    }

    fn kind(&self, fid: Fid) -> Option<FileKind> {
        self.inodes.get(&fid).map(|inode| inode.kind)
    }

    /// Makes a directory, unless an inode of that name is there.
    fn directory(&mut self, fid: Fid) -> Result<(), StoreError> {
        if self.inodes.contains_key(&fid) {
            return Ok(());
        }
        self.inodes.insert(fid, Inode { kind: FileKind::Directory, names: Vec::new() });
        match self.store.recorded_attributes(fid) {
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
        self.apply(|change| {
            change.create(fid, attributes);
        })?;
        if fid != LOST_AND_FOUND {
            self.done.directories.push(fid);
        }
        Ok(())
    }

    /// Looks at all names: directories that they name are made again, names of nothing go.
    fn inodes_of_names(&mut self) -> Result<(), StoreError> {
        let is_directory =
            |(fid, inode): (&Fid, &Inode)| (inode.kind == FileKind::Directory).then_some(*fid);
        let mut waiting: Vec<Fid> = self.inodes.iter().filter_map(is_directory).collect();
        waiting.sort_unstable();
        waiting.push(ECHO);
        while let Some(parent) = waiting.pop() {
            let mut from = Vec::new();
            loop {
                let entries = self.store.scan(parent, &from, STEP)?;
                let Some(last) = entries.last() else { break };
                from = [&last.key[..], &[0]].concat();
                for entry in &entries {
                    // A salvage takes what no checksum proves: a name has to fit its hash.
                    let named = parse_key(&entry.key).filter(|(_, name)| {
                        directory::parse_name(name).is_ok() && directory::key(name) == entry.key
                    });
                    let parsed = named.zip(parse_value(&entry.value));
                    let Some(((_, name), child)) = parsed else {
                        self.remove_lost_name(parent, &entry.key, "an entry that cannot be read")?;
                        continue;
                    };
                    let is_new = self.name(parent, &entry.key, name, child)?;
                    waiting.extend(is_new.then_some(child.fid));
                }
            }
        }
        Ok(())
    }

    /// Notes a name. True if a directory was made for it, which may have entries.
    fn name(
        &mut self,
        parent: Fid,
        key: &Bytes,
        name: Bytes,
        child: Child,
    ) -> Result<bool, StoreError> {
        let known = self.kind(child.fid);
        let is_made = known.is_none() && child.kind == FileKind::Directory;
        if is_made && child.fid.is_namespace() {
            self.directory(child.fid)?;
        }
        let Some(kind) = self.kind(child.fid) else {
            self.remove_lost_name(parent, key, &String::from_utf8_lossy(&name))?;
            return Ok(false);
        };
        let has_other = self.inodes[&child.fid].names.iter().any(|(other, _)| *other != ECHO);
        if kind == FileKind::Directory && (has_other || child.fid == Fid::ROOT) {
            return self.second_name(parent, key, name, child.fid).map(|()| false);
        }
        if kind != child.kind {
            let value = directory::value(Child { kind, ..child });
            self.apply(|change| {
                change.put(parent, key.clone(), value);
            })?;
            self.done.corrected += 1;
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
        self.apply(|change| {
            change.delete(gone.0, gone.1);
        })?;
        self.done.corrected += 1;
        Ok(())
    }

    fn remove_lost_name(&mut self, parent: Fid, key: &Bytes, name: &str) -> Result<(), StoreError> {
        self.apply(|change| {
            change.delete(parent, key.clone());
        })?;
        self.done.lost.push((parent, name.to_owned()));
        Ok(())
    }

    fn links(&self, fid: Fid) -> Result<LinkEa, StoreError> {
        let value = self.store.xattr(fid, xattrs::LINK)?.unwrap_or_default();
        Ok(LinkEa::decode(&value).unwrap_or_default())
    }

    /// Restores the names that inodes record and no directory has.
    fn names_of_inodes(&mut self) -> Result<(), StoreError> {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        fids.sort_unstable();
        for fid in fids.into_iter().filter(|fid| *fid != Fid::ROOT) {
            for LinkEntry { parent, name } in self.links(fid)?.entries {
                let has_one = !self.inodes[&fid].names.is_empty();
                let is_directory = self.kind(fid) == Some(FileKind::Directory);
                if !parent.is_namespace() || parent == fid || has_one && is_directory {
                    continue;
                }
                self.directory(parent)?;
                if self.kind(parent) == Some(FileKind::Directory) {
                    self.put_name(parent, name, fid)?;
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
        if let Some(taken) = self.store.lookup(parent, &key)? {
            return Ok(parse_value(&taken).is_some_and(|child| child.fid == fid));
        }
        let Some(inode) = self.inodes.get_mut(&fid) else { return Ok(false) };
        inode.names.push((parent, name));
        let value = directory::value(Child { fid, kind: inode.kind });
        self.apply(|change| {
            change.insert(parent, key, value);
        })?;
        self.done.names += 1;
        Ok(true)
    }

    /// Whatever cannot be reached from the root goes to `lost+found`.
    fn attach(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        // Directories first: what lies below them comes with them.
        fids.sort_unstable_by_key(|fid| (self.kind(*fid) != Some(FileKind::Directory), *fid));
        let is_root =
            |fid: Fid| fid == Fid::ROOT || fid == LOST_AND_FOUND || dot_lustre::is_dot_lustre(fid);
        for fid in fids.into_iter().filter(|fid| !is_root(*fid) && !orphans.contains(fid)) {
            if let Some(top) = self.unreached(fid) {
                self.put_into_lost_and_found(top)?;
            }
        }
        Ok(())
    }

    /// Where the way up from an inode ends, unless it leads to the root or to a survey: at what has no
    /// name, or in a circle.
    fn unreached(&self, fid: Fid) -> Option<Fid> {
        let (mut at, mut passed): (Fid, HashSet<Fid>) = (fid, HashSet::default());
        while passed.insert(at) {
            match self.inodes.get(&at).and_then(|inode| inode.names.first()) {
                Some((Fid::ROOT | ECHO, _)) => return None,
                Some((parent, _)) => at = *parent,
                None => return Some(at),
            }
        }
        Some(at)
    }

    fn put_into_lost_and_found(&mut self, fid: Fid) -> Result<(), StoreError> {
        self.directory(LOST_AND_FOUND)?;
        if self.inodes[&LOST_AND_FOUND].names.is_empty() {
            let name = Bytes::from_static(LOST_AND_FOUND_NAME);
            if !self.put_name(Fid::ROOT, name, LOST_AND_FOUND)? {
                // A user has made something of that name.
                let name = Bytes::from(format!("lost+found-{LOST_AND_FOUND}"));
                self.put_name(Fid::ROOT, name, LOST_AND_FOUND)?;
            }
        }
        let stale = match self.inodes.get_mut(&fid) {
            Some(inode) if inode.kind == FileKind::Directory => std::mem::take(&mut inode.names),
            _ => Vec::new(),
        };
        for (parent, name) in stale {
            self.apply(|change| {
                change.delete(parent, directory::key(&name));
            })?;
        }
        let name = Bytes::from(fid.to_string());
        if self.put_name(LOST_AND_FOUND, name, fid)? {
            self.done.found.push(fid);
        }
        Ok(())
    }

    /// Link counts and link EAs follow the names.
    fn counts(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let mut subdirectories: HashMap<Fid, u32> = HashMap::default();
        for inode in self.inodes.values().filter(|inode| inode.kind == FileKind::Directory) {
            let parents = inode.names.iter().map(|(parent, _)| *parent);
            parents.for_each(|parent| *subdirectories.entry(parent).or_default() += 1);
        }
        for (fid, inode) in &self.inodes {
            if orphans.contains(fid) && !inode.names.is_empty() {
                let key = orphans::fid_key(*fid);
                self.apply(|change| {
                    change.delete(orphans::ORPHANS, key);
                })?;
            }
            let links = match (inode.names.len() as u32, inode.kind) {
                (0, _) if *fid != Fid::ROOT && *fid != Fid::DOT_LUSTRE => 0,
                (_, FileKind::Directory) => 2 + subdirectories.get(fid).copied().unwrap_or(0),
                (names, _) => names,
            };
            self.done.corrected += u64::from(self.correct(*fid, inode, links)?);
        }
        Ok(())
    }

    /// Whether something was not as it should be.
    fn correct(&self, fid: Fid, inode: &Inode, links: u32) -> Result<bool, StoreError> {
        let now = self.store.recorded_attributes(fid)?;
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
        self.apply(|change| {
            change.patch(fid, AttributePatch { links_added, ..AttributePatch::default() });
            if !agrees {
                change.set_xattr(fid, xattrs::LINK, links::of(&names));
            }
        })?;
        Ok(true)
    }

    /// Nothing that is in use is given out again.
    fn counters(&self) -> Result<(), StoreError> {
        let highest = self.inodes.keys().filter(|fid| fid.is_normal()).map(|fid| fid.seq).max();
        let mut used: HashMap<u16, u64> = placement::last_used(self.store)?.into_iter().collect();
        for fid in self.inodes.keys() {
            let layout = self.store.xattr(*fid, xattrs::LOV)?.unwrap_or_default();
            for (ost, object) in placement::objects_of(&layout) {
                let id = object.fid(ost).map_or(0, |fid| u64::from(fid.oid));
                let known = used.entry(ost).or_default();
                *known = id.max(*known);
            }
        }
        self.apply(|change| {
            for (ost, id) in used {
                placement::put_used(change, ost, id);
            }
        })?;
        highest.map_or(Ok(()), |highest| sequences::note_used(self.store, highest))
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
mod tests {
    use sheen_store_mem::{MemOptions, StoreMem};

    use super::*;
    use crate::check;

    const A: Fid = Fid::new(fid_seq::NORMAL + 1, 1);
    const B: Fid = Fid::new(fid_seq::NORMAL + 1, 2);
    const C: Fid = Fid::new(fid_seq::NORMAL + 1, 3);
    const F: Fid = Fid::new(fid_seq::NORMAL + 7, 4);
    const G: Fid = Fid::new(fid_seq::NORMAL + 1, 5);

    struct TestTree {
        store: StoreMem,
    }

    impl TestTree {
        /// `/a/b/c`, the file `/a/b/f` that is `/g` as well, the file `/a/g`.
        fn new() -> Self {
            let tree = Self { store: StoreMem::new(MemOptions::default()) };
            let config = crate::MdtConfig::new("lustre", 0, Timestamp::default(), [0; 16]);
            crate::root::format(&tree.store, &config).expect("a root is made");
            tree.make(A, FileKind::Directory, &[(Fid::ROOT, "a")]);
            tree.make(B, FileKind::Directory, &[(A, "b")]);
            tree.make(C, FileKind::Directory, &[(B, "c")]);
            tree.make(F, FileKind::Regular, &[(B, "f"), (Fid::ROOT, "g")]);
            tree.make(G, FileKind::Regular, &[(A, "g")]);
            assert_eq!(tree.faults(), []);
            tree
        }

        fn apply(&self, change: impl FnOnce(&mut Transaction)) {
            let mut transaction = Transaction::new();
            change(&mut transaction);
            self.store.apply(transaction).expect("apply works");
        }

        fn make(&self, fid: Fid, kind: FileKind, names: &[(Fid, &'static str)]) {
            let links = if kind == FileKind::Directory { 2 } else { names.len() as u32 };
            let names = names.iter().map(|(parent, name)| (*parent, Bytes::from(*name)));
            let names: Vec<_> = names.collect();
            self.apply(|change| {
                change.create(fid, Attributes { kind, links, ..Attributes::default() });
                change.set_xattr(fid, xattrs::LINK, links::of(&names));
                for (parent, name) in names {
                    let value = directory::value(Child { fid, kind });
                    change.insert(parent, directory::key(&name), value);
                    if kind == FileKind::Directory {
                        let links_added = 1;
                        let patch = AttributePatch { links_added, ..AttributePatch::default() };
                        change.patch(parent, patch);
                    }
                }
            });
        }

        fn unname(&self, parent: Fid, name: &'static str) {
            self.apply(|change| {
                change.delete(parent, directory::key(name.as_bytes()));
            });
        }

        fn destroy(&self, fid: Fid) {
            self.apply(|change| {
                change.destroy(fid);
            });
        }

        fn faults(&self) -> Vec<crate::Fault> {
            check(&self.store).expect("the check runs").faults
        }

        fn rebuild(&self) -> Rebuilt {
            let all = [Fid::ROOT, A, B, C, F, G];
            let is_there = |fid: &Fid| self.store.attributes(*fid).is_ok();
            let objects: Vec<Fid> = all.into_iter().filter(is_there).collect();
            let has_keys = |fid: &Fid| !self.store.scan(*fid, &[], 1).expect("scan").is_empty();
            let indexes: Vec<Fid> = all.into_iter().filter(has_keys).collect();
            let done = rebuild(&self.store, &objects, &indexes, Timestamp::default());
            let done = done.expect("rebuild works");
            let report = check(&self.store).expect("the check runs");
            assert_eq!(report.faults, [], "{done:?}");
            assert_eq!(report.inodes, done.inodes, "the root leads to all");
            done
        }

        fn at(&self, path: &str) -> Option<Fid> {
            path.split('/').try_fold(Fid::ROOT, |at, name| {
                let found = directory::find(&self.store, at, name.as_bytes());
                found.expect("lookup works").map(|child| child.fid)
            })
        }
    }

    #[test]
    fn what_is_in_order_stays_as_it_is() {
        let tree = TestTree::new();
        let done = tree.rebuild();
        assert_eq!(done, Rebuilt { inodes: 6, ..Rebuilt::default() });
    }

    #[test]
    fn names_come_back_from_the_inodes_that_know_them() {
        let tree = TestTree::new();
        for (parent, name) in [(Fid::ROOT, "a"), (B, "c"), (B, "f"), (Fid::ROOT, "g"), (A, "g")] {
            tree.unname(parent, name);
        }
        let done = tree.rebuild();
        assert_eq!((done.names, done.found.len(), done.lost.len()), (5, 0, 0));
        assert_eq!((tree.at("a/b/f"), tree.at("g")), (Some(F), Some(F)));
        assert_eq!((tree.at("a/b/c"), tree.at("a/g")), (Some(C), Some(G)));
    }

    #[test]
    fn a_directory_that_is_lost_is_made_again_of_those_that_name_it() {
        let tree = TestTree::new();
        // With them go their entries: only those below say where they lay.
        tree.destroy(B);
        tree.destroy(A);
        tree.unname(Fid::ROOT, "a");
        let done = tree.rebuild();
        assert_eq!((done.directories.len(), done.lost.len()), (2, 0));
        // Nothing records what they were called.
        assert_eq!(done.found, [A, B]);
        assert_eq!(tree.at(&format!("lost+found/{B}/c")), Some(C));
        assert_eq!(tree.at(&format!("lost+found/{A}/g")), Some(G));
        assert_eq!(tree.at("g"), Some(F));
    }

    #[test]
    fn what_nothing_names_is_found_and_names_of_nothing_go() {
        let tree = TestTree::new();
        tree.unname(A, "g");
        tree.apply(|change| {
            change.remove_xattr(G, xattrs::LINK);
        });
        tree.destroy(F);
        tree.unname(Fid::ROOT, "a");
        tree.apply(|change| {
            change.remove_xattr(A, xattrs::LINK);
        });
        let done = tree.rebuild();
        assert_eq!(done.found, [A, G]);
        let lost: Vec<_> = done.lost.iter().map(|(parent, name)| (*parent, &name[..])).collect();
        assert_eq!(lost.len(), 2);
        assert!(lost.contains(&(B, "f")) && lost.contains(&(Fid::ROOT, "g")), "{lost:?}");
        assert_eq!(tree.at(&format!("lost+found/{A}/b/c")), Some(C));
    }

    #[test]
    fn an_entry_that_is_not_where_its_name_belongs_gives_way_to_the_name_of_its_inode() {
        let tree = TestTree::new();
        tree.unname(A, "g");
        let key = directory::key(b"g").to_vec();
        let key: Bytes = [&key[..8], b"w"].concat().into();
        let value = directory::value(Child { fid: G, kind: FileKind::Regular });
        tree.apply(|change| {
            change.insert(A, key, value);
        });
        let done = tree.rebuild();
        assert_eq!((done.names, done.lost.len()), (1, 1));
        assert_eq!(tree.at("a/g"), Some(G));
    }

    #[test]
    fn a_circle_of_directories_is_opened_and_a_second_name_taken() {
        let tree = TestTree::new();
        let value = |fid| directory::value(Child { fid, kind: FileKind::Directory });
        tree.unname(Fid::ROOT, "a");
        tree.apply(|change| {
            change.insert(C, directory::key(b"up"), value(A));
            change.insert(Fid::ROOT, directory::key(b"b-too"), value(B));
            let names = [(C, Bytes::from("up"))];
            change.set_xattr(A, xattrs::LINK, links::of(&names));
        });
        // The check within finds one name of each directory, and a way from the root to all.
        let done = tree.rebuild();
        assert_eq!((done.inodes, done.lost.len()), (7, 0), "with lost+found");
        assert_eq!(tree.at("g"), Some(F));
    }

    /// All files of an OST were lost, and the record of the last object with them.
    #[test]
    fn objects_of_an_ost_that_nothing_is_known_of_are_passed_over_too() {
        let tree = TestTree::new();
        let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(tree.store);
        let load = || crate::sequences::Sequences::load(std::sync::Arc::clone(&store), 0);
        let range = load().unwrap().of(3, sheen_wire::fld::SeqRangeFlags::OST).unwrap();
        let mut change = Transaction::new();
        placement::put_used(&mut change, 5, 70);
        store.apply(change).unwrap();
        skip_used_objects(&*store).unwrap();
        let mut used = placement::last_used(&*store).unwrap();
        used.sort_unstable();
        assert_eq!(used, [(3, SKIPPED_IDS), (5, SKIPPED_IDS + 70)]);
        assert_eq!(load().unwrap().of(3, sheen_wire::fld::SeqRangeFlags::OST).unwrap(), range);
    }

    #[test]
    fn no_sequence_or_object_in_use_is_given_out_again() {
        let tree = TestTree::new();
        tree.rebuild();
        let next = tree
            .store
            .lookup(Fid::new(fid_seq::LOCAL_FILE, 0x200), b"\xff\xff\xff\xff\xff\xff\xff\xffnext");
        let next = next.expect("lookup works").expect("it is noted");
        assert_eq!(u64::from_le_bytes(next[..].try_into().expect("a number")), F.seq + 1);
    }
}
