//! What is known of an inode only while a lock covers it: one value for each bit of the lock.
//!
//! What always holds: a value can be read only while its bit is covered, and is dropped in the same step as the
//! bit, [`CoveredState::uncover`]. So what a lock covered before a gap is never taken for what the next one covers.
//!
//! Two bits are not here: `OPEN` covers handles on the MDT ([`OpenCache`](super::open_cache::OpenCache)), `DOM` the bytes of
//! [`crate::data`].

use std::sync::Arc;

use sheen_types::{HashSet, InodeBits, MdtIndex, Name};

use super::dir_pages::DirPages;
use super::inode::{LayoutState, Xattrs};
use crate::locks::LockReference;
use crate::types::Dentry;

/// A value that one bit covers.
#[derive(Default)]
pub(super) struct Covered<T> {
    is_covered: bool,
    value: T,
}

/// What locks cover of an inode. Those of its own MDT, but for `remote_names`.
#[derive(Default)]
pub(super) struct CoveredState {
    pub(super) lookup: Covered<UnderLookup>,
    pub(super) update: Covered<UnderUpdate>,
    pub(super) perm: Covered<UnderPerm>,
    /// File: its layout, if it was read.
    pub(super) layout: Covered<Option<LayoutState>>,
    pub(super) xattr: Covered<UnderXattr>,
    /// By which MDT `LOOKUP` is covered that has names of the inode, but not the inode. Such a lock covers those names and
    /// nothing else.
    pub(super) remote_names: Vec<(MdtIndex, UnderLookup)>,
}

/// What `LOOKUP` covers.
#[derive(Default)]
pub(super) struct UnderLookup {
    /// The names that were seen under this lock, or one before it without a gap. Another name may be gone though
    /// the inode is covered.
    pub(super) names: Vec<Dentry>,
}

/// What `UPDATE` covers.
#[derive(Default)]
pub(super) struct UnderUpdate {
    /// Whether the attributes came under this lock.
    pub(super) has_attributes: bool,
    /// File with objects: the MDT vouched for the size in the attributes, so no OST need be asked. False once this
    /// client has opened it for writing.
    pub(super) has_size: bool,
    /// Directory: its pages.
    pub(super) pages: Option<Arc<DirPages>>,
    /// Directory: names known to be absent.
    pub(super) absent: HashSet<Name>,
}

/// What `PERM` covers.
#[derive(Default)]
pub(super) struct UnderPerm {
    /// Whether mode, owner, group and access control list came under this lock.
    pub(super) has_rights: bool,
}

/// What `XATTR` covers.
#[derive(Default)]
pub(super) struct UnderXattr {
    /// All of them, if they were read.
    pub(super) all: Option<Arc<Xattrs>>,
    /// The MDT said that there are none but those that it sets itself.
    pub(super) absent: bool,
}

impl<T: Default> Covered<T> {
    /// Whether a lock covers the bit.
    pub(super) fn is_covered(&self) -> bool {
        self.is_covered
    }

    /// The value; `None` if no lock covers it.
    pub(super) fn get(&self) -> Option<&T> {
        self.is_covered.then_some(&self.value)
    }

    /// The value, to be changed; `None` if no lock covers it.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.is_covered.then_some(&mut self.value)
    }

    /// No lock covers it any more. Returns what was known.
    fn uncover(&mut self) -> T {
        std::mem::take(self).value
    }
}

impl CoveredState {
    /// This lock on the inode covers its bits from now on. What another lock covered already stays.
    pub(super) fn note_granted(&mut self, lock: &LockReference) {
        self.cover(lock.bits());
    }

    /// As [`CoveredState::note_granted`], by bits. Only tests call it without a lock.
    pub(super) fn cover(&mut self, bits: InodeBits) {
        self.lookup.is_covered |= bits.contains(InodeBits::LOOKUP);
        self.update.is_covered |= bits.contains(InodeBits::UPDATE);
        self.perm.is_covered |= bits.contains(InodeBits::PERM);
        self.layout.is_covered |= bits.contains(InodeBits::LAYOUT);
        self.xattr.is_covered |= bits.contains(InodeBits::XATTR);
    }

    /// A lock of an MDT that has names of the inode, but not the inode, covers them from now on.
    pub(super) fn cover_remote_names(&mut self, mdt: MdtIndex) {
        if !self.remote_names.iter().any(|(known, _)| *known == mdt) {
            self.remote_names.push((mdt, UnderLookup::default()));
        }
    }

    /// None does any more. Returns whether one did.
    pub(super) fn uncover_remote_names(&mut self, mdt: MdtIndex) -> bool {
        let before = self.remote_names.len();
        self.remote_names.retain(|(known, _)| *known != mdt);
        self.remote_names.len() < before
    }

    /// The names that a lock of an MDT covers: of the inode's own for `None`.
    pub(super) fn names_mut(&mut self, remote: Option<MdtIndex>) -> Option<&mut UnderLookup> {
        match remote {
            None => self.lookup.get_mut(),
            Some(mdt) => {
                let of_mdt = self.remote_names.iter_mut().find(|(known, _)| *known == mdt);
                of_mdt.map(|(_, names)| names)
            }
        }
    }

    /// All names that some lock covers.
    pub(super) fn all_names(&self) -> impl Iterator<Item = &UnderLookup> {
        self.lookup.get().into_iter().chain(self.remote_names.iter().map(|(_, names)| names))
    }

    /// As [`Self::all_names`], to be changed.
    pub(super) fn all_names_mut(&mut self) -> impl Iterator<Item = &mut UnderLookup> {
        let remote = self.remote_names.iter_mut().map(|(_, names)| names);
        self.lookup.get_mut().into_iter().chain(remote)
    }

    /// No lock covers `gone` any more: drops what they covered. Returns the names that were known to be absent,
    /// which the kernel may keep.
    pub(super) fn uncover(&mut self, gone: InodeBits) -> HashSet<Name> {
        if gone.contains(InodeBits::LOOKUP) {
            self.lookup.uncover();
        }
        if gone.contains(InodeBits::PERM) {
            self.perm.uncover();
        }
        if gone.contains(InodeBits::LAYOUT) {
            self.layout.uncover();
        }
        if gone.contains(InodeBits::XATTR) {
            self.xattr.uncover();
        }
        match gone.contains(InodeBits::UPDATE) {
            true => self.update.uncover().absent,
            false => HashSet::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_only_while_its_bit_is_covered() {
        let mut covered = CoveredState::default();
        assert!(covered.update.get_mut().is_none(), "nothing can be noted without a lock");
        covered.cover(InodeBits::UPDATE | InodeBits::XATTR);
        covered.update.get_mut().expect("covered").has_attributes = true;
        covered.xattr.get_mut().expect("covered").absent = true;
        // A second lock on the same bit.
        covered.cover(InodeBits::UPDATE);
        assert!(covered.update.get().is_some_and(|it| it.has_attributes));
        covered.uncover(InodeBits::UPDATE | InodeBits::LOOKUP);
        assert!(covered.update.get().is_none());
        assert!(covered.xattr.get().is_some_and(|it| it.absent), "another bit");
        covered.cover(InodeBits::UPDATE);
        assert!(covered.update.get().is_some_and(|it| !it.has_attributes), "there was a gap");
    }
}
