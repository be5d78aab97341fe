//! What no name leads to goes to `lost+found` in the root, under its FID, or `FID.1` and so on where something else is called so.

use bytes::Bytes;
use sheen_store::{FileKind, StoreError};
use sheen_types::{Fid, HashSet, fid_seq};

use super::Rebuild;
use crate::echo::ECHO;
use crate::{directory, dot_lustre};

/// Where goes what nothing leads to.
pub(super) const LOST_AND_FOUND: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 3, ver: 0 };
const LOST_AND_FOUND_NAME: &str = "lost+found";

impl Rebuild<'_> {
    /// Whatever cannot be reached from the root goes to `lost+found`.
    pub(super) fn attach(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        // Directories first: what lies below them comes with them.
        fids.sort_unstable_by_key(|fid| (self.kind(*fid) != Some(FileKind::Directory), *fid));
        let is_root =
            |fid: Fid| fid == Fid::ROOT || fid == LOST_AND_FOUND || dot_lustre::is_dot_lustre(fid);
        for fid in fids.into_iter().filter(|fid| !is_root(*fid) && !orphans.contains(fid)) {
            if self.unreached(fid).is_none() {
                continue;
            }
            self.reach_lost_and_found()?;
            // It may have been in there.
            if let Some(top) = self.unreached(fid) {
                self.put_into_lost_and_found(top)?;
            }
        }
        Ok(())
    }

    /// Where the way up from an inode ends, unless it leads to the root or to a survey: at what has no
    /// name, or in a circle. A stripe stays in its master.
    fn unreached(&self, fid: Fid) -> Option<Fid> {
        self.end_of_way(fid).map(|end| self.striped.seen(end))
    }

    fn end_of_way(&self, fid: Fid) -> Option<Fid> {
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

    /// `lost+found` is there, and the root leads to it: by another name if a user has made something of that name.
    fn reach_lost_and_found(&mut self) -> Result<(), StoreError> {
        self.directory(LOST_AND_FOUND)?;
        if self.unreached(LOST_AND_FOUND).is_none() {
            return Ok(());
        }
        self.forget_names(LOST_AND_FOUND)?;
        let mut name = Bytes::from_static(LOST_AND_FOUND_NAME.as_bytes());
        if self.is_taken(Fid::ROOT, &name)? {
            let longer = format!("{LOST_AND_FOUND_NAME}-{LOST_AND_FOUND}");
            name = self.free_name(Fid::ROOT, &longer)?;
        }
        self.put_name(Fid::ROOT, name, LOST_AND_FOUND).map(drop)
    }

    fn put_into_lost_and_found(&mut self, fid: Fid) -> Result<(), StoreError> {
        if self.kind(fid) == Some(FileKind::Directory) {
            self.forget_names(fid)?;
        }
        let name = self.free_name(LOST_AND_FOUND, &fid.to_string())?;
        if self.put_name(LOST_AND_FOUND, name, fid)? {
            let at = self.at(fid);
            self.done[at].found.push(fid);
        }
        Ok(())
    }

    /// A name, or that with the first number behind it by which nothing is called there.
    fn free_name(&self, parent: Fid, name: &str) -> Result<Bytes, StoreError> {
        let (mut free, mut number) = (Bytes::from(name.to_owned()), 0_u64);
        while self.is_taken(parent, &free)? {
            number += 1;
            free = Bytes::from(format!("{name}.{number}"));
        }
        Ok(free)
    }

    fn is_taken(&self, parent: Fid, name: &[u8]) -> Result<bool, StoreError> {
        Ok(self.store(parent).lookup(parent, &directory::key(name))?.is_some())
    }

    /// Takes all names from a directory that nothing leads to.
    fn forget_names(&mut self, fid: Fid) -> Result<(), StoreError> {
        let inode = self.inodes.get_mut(&fid);
        let stale = inode.map(|inode| std::mem::take(&mut inode.names)).unwrap_or_default();
        for (parent, name) in stale {
            self.apply(self.at_name(parent, fid), |change| {
                change.delete(parent, directory::key(&name));
            })?;
        }
        Ok(())
    }
}
