//! A check of the whole namespace, for tests after crashes and for operators.

use sheen_store::{FileKind, Store, StoreError};
use sheen_types::{Fid, HashMap, HashSet};
use sheen_wire::md::LinkEa;
use sheen_wire::ost::OstId;

use crate::directory::{Child, parse_key, parse_value};
use crate::echo::ECHO;
use crate::placement::{destroys, last_used, objects_of};
use crate::{orphans, xattrs};

/// Entries read at a time.
const STEP: usize = 1024;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Inodes reached from the root, and orphans.
    pub inodes: u64,
    /// What contradicts what; empty in a sound namespace.
    pub faults: Vec<String>,
    /// Objects of all files: OST and object.
    pub objects: Vec<(u16, OstId)>,
    /// Objects that wait to be destroyed.
    pub dying: Vec<(u16, OstId)>,
    /// The last object given to a file, or about to be, on each OST: its id. What lies above it
    /// on the OST was created ahead.
    pub last_used: Vec<(u16, u64)>,
    /// Inodes without a name.
    pub orphans: Vec<Fid>,
    /// Files of a survey that did not end; the server removes them when it starts.
    pub survey: u64,
}

/// Walks the namespace in `store`: every name has an inode of its type, link counts and link EAs
/// agree with the names, no object belongs to two files.
///
/// # Errors
/// Those of the store.
pub fn check(store: &dyn Store) -> Result<Report, StoreError> {
    let mut walk = Walk { store, report: Report::default(), names: HashMap::default() };
    walk.tree()?;
    walk.orphans()?;
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
    fn fault(&mut self, text: String) {
        self.report.faults.push(text);
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
                let known = self.names.entry(child.fid).or_default();
                known.names.push((directory, name));
                let is_first = known.names.len() == 1;
                if child.kind == FileKind::Directory {
                    self.names.entry(directory).or_default().subdirectories += 1;
                    if is_first {
                        waiting.push(child.fid);
                    } else {
                        self.fault(format!("directory {} has two names", child.fid));
                    }
                }
                self.kind(directory, &child);
            }
        }
        Ok(())
    }

    fn kind(&mut self, directory: Fid, child: &Child) {
        match self.store.attributes(child.fid) {
            Ok(attributes) if attributes.kind == child.kind => {}
            Ok(_) => self.fault(format!("{} in {directory} has another type", child.fid)),
            Err(error) => self.fault(format!("{} in {directory}: {error}", child.fid)),
        }
    }

    fn entries(&mut self, directory: Fid) -> Result<Vec<(Vec<u8>, Child)>, StoreError> {
        let mut found = Vec::new();
        let mut from = Vec::new();
        loop {
            let entries = self.store.scan(directory, &from, STEP)?;
            let Some(last) = entries.last() else { return Ok(found) };
            from = [&last.key[..], &[0]].concat();
            for entry in entries {
                match (parse_key(&entry.key), parse_value(&entry.value)) {
                    (Some((_, name)), Some(child)) => found.push((name.to_vec(), child)),
                    _ => self.fault(format!("an entry of {directory} cannot be read")),
                }
            }
        }
    }

    fn orphans(&mut self) -> Result<(), StoreError> {
        for fid in orphans::list(self.store)? {
            if self.names.contains_key(&fid) {
                self.fault(format!("orphan {fid} has a name"));
            }
            self.names.entry(fid).or_default();
            self.report.orphans.push(fid);
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<(), StoreError> {
        for (fid, known) in std::mem::take(&mut self.names) {
            self.report.inodes += 1;
            let Ok(attributes) = self.store.attributes(fid) else { continue };
            let is_orphan = known.names.is_empty() && fid != Fid::ROOT;
            let links = match (is_orphan, attributes.kind) {
                (true, _) => 0,
                (false, FileKind::Directory) => 2 + known.subdirectories,
                (false, _) => known.names.len() as u32,
            };
            if attributes.links != links {
                self.fault(format!("{fid} has {links} links and says {}", attributes.links));
            }
            if !is_orphan && fid != Fid::ROOT {
                self.links(fid, known.names)?;
            }
            if attributes.kind == FileKind::Regular
                && let Some(layout) = self.store.xattr(fid, xattrs::LOV)?
            {
                self.report.objects.extend(objects_of(&layout));
            }
        }
        Ok(())
    }

    fn links(&mut self, fid: Fid, mut names: Vec<(Fid, Vec<u8>)>) -> Result<(), StoreError> {
        let value = self.store.xattr(fid, xattrs::LINK)?.unwrap_or_default();
        let Ok(ea) = LinkEa::decode(&value) else {
            self.fault(format!("{fid} has no link EA"));
            return Ok(());
        };
        let entries = ea.entries.iter().map(|entry| (entry.parent, entry.name.to_vec()));
        let mut told: Vec<_> = entries.collect();
        told.sort();
        names.sort();
        if told != names && ea.overflow_time == 0 {
            self.fault(format!("{fid}: the link EA says {told:?}, names are {names:?}"));
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), StoreError> {
        let dying =
            destroys(self.store).map_err(|errno| StoreError::Io(format!("the chores: {errno}")))?;
        self.report.dying = dying;
        self.report.last_used = last_used(self.store)?;
        let mut seen: HashSet<_> = HashSet::default();
        let objects = self.report.objects.clone();
        for object in objects.iter().chain(&self.report.dying.clone()) {
            if !seen.insert(*object) {
                self.fault(format!("object {object:?} belongs to two files"));
            }
        }
        Ok(())
    }
}
