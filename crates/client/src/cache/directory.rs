//! What is known of a directory, beside what every inode has.

use std::sync::Arc;

use sheen_types::{Fid, HashMap, Name};

use super::InodeState;
use super::covered::UnderUpdate;
use super::limits::ABSENT_NAMES_MAX;
use super::names::{CacheEpoch, DirectoryNames, DirectoryRead, NameChange, NameHash, NameHasher};
use super::own_changes::OwnChangesSeen;
use super::striping::{DefaultStriping, Striping};
use crate::types::{FileType, NodeId};

/// What only a directory has.
#[derive(Default)]
pub(crate) struct DirectoryState {
    /// Names looked up in it. Each is valid while the child's `LOOKUP` is covered.
    pub(crate) children: HashMap<Name, Fid>,
    /// Its names, and our changes of them. None before the first.
    names: Option<Box<DirectoryNames>>,
    /// This client has removed it. A process that still has it open, or works in it, sees a link count of 0.
    pub(crate) removed: bool,
    /// Whether we ourselves have changed its names since its attributes were last asked.
    pub(crate) changed_here: bool,
    /// How it lies on MDTs.
    pub(crate) striping: Striping,
    /// Whether locks have covered that it lies in one piece since an MDT said so.
    pub(crate) is_whole_covered: bool,
    /// It lay in one piece until the last lock that covered that was lost.
    pub(crate) was_whole: bool,
    /// The inode that took its place.
    pub(crate) moved_to: Option<Fid>,
    /// The inode whose place it took was open.
    pub(crate) was_open: bool,
    /// By which name it was seen last, there still or not.
    pub(crate) last_name: Option<Box<(NodeId, Name)>>,
    /// How those are to lie that are made in it.
    pub(crate) default: DefaultStriping,
    /// Whether a lock covers that.
    pub(crate) is_default_covered: bool,
}

impl DirectoryState {
    /// Notes a name of the directory itself.
    pub(super) fn note_name(&mut self, parent: NodeId, name: &Name) {
        let is_known = self.last_name.as_ref().is_some_and(|it| it.0 == parent && it.1 == *name);
        if !is_known {
            self.last_name = Some(Box::new((parent, name.clone())));
        }
    }

    /// Our own changes of its names, now.
    pub(super) fn own_changes(&self) -> OwnChangesSeen {
        self.names.as_ref().map_or(OwnChangesSeen::NONE, |names| names.own().seen())
    }

    /// Whether no change of ours to its names overlapped a question sent at `asked`.
    pub(crate) fn undisturbed_since(&self, asked: &CacheEpoch) -> bool {
        self.names.as_ref().is_none_or(|names| names.own().undisturbed_since(asked.names))
    }

    /// `UPDATE` was lost.
    pub(super) fn lock_lost(&mut self) {
        if let Some(names) = &mut self.names {
            names.lock_lost();
        }
    }

    /// Its names, and our changes of them.
    pub(crate) fn names_mut(&mut self) -> &mut DirectoryNames {
        self.names.get_or_insert_default()
    }

    /// Whether other clients change its names so often that its lock is soon revoked.
    pub(crate) fn is_contended(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.is_contended())
    }
}

impl InodeState {
    /// Whether the kernel knows it as a directory of this name, and no other inode has taken its place as far as is known.
    pub(super) fn may_have_moved_from(&self, parent: NodeId, name: &Name) -> bool {
        self.lookups > 0
            && self.file_type() == Some(FileType::Directory)
            && !self.directory.removed
            && self.directory.moved_to.is_none()
            && self.directory.last_name.as_ref().is_some_and(|it| it.0 == parent && it.1 == *name)
    }

    /// It takes the place of the directory `former`, with what the kernel keeps of that: it is notified when a lock on either is
    /// lost.
    pub(super) fn follow(&mut self, former: &mut Self) {
        self.directory.children = std::mem::take(&mut former.directory.children);
        self.directory.was_open |= former.opens > 0 || former.directory.was_open;
        if self.directory.last_name.is_none() {
            self.directory.last_name.clone_from(&former.directory.last_name);
        }
        self.names.follow(&former.names, self.losses);
        self.rights.follow(&former.rights);
    }

    /// What these names of it were last seen to be.
    pub(super) fn children_of(&self, names: &[Name]) -> Vec<Fid> {
        names.iter().filter_map(|name| self.directory.children.get(name).copied()).collect()
    }

    /// This client is about to send a change of names. What is known of the directory's attributes and pages
    /// is stale from now on, even under this client's lock.
    pub(crate) fn begin_change(
        &mut self,
        adds: Option<NameHash>,
        removes: Option<NameHash>,
    ) -> NameChange {
        self.directory.changed_here = true;
        if let Some(update) = self.covered.update.get_mut() {
            (update.has_attributes, update.pages) = (false, None);
        }
        self.directory.names_mut().begin(adds, removes)
    }

    /// See [`DirectoryNames::begin_reading`]. Nothing can be learnt without the lock.
    pub(crate) fn begin_reading(
        &mut self,
        hasher: &Arc<NameHasher>,
        from: u64,
    ) -> Option<DirectoryRead> {
        let covered = self.covered.update.is_covered();
        let names = covered.then(|| self.directory.names_mut())?;
        names.begin_reading(hasher, from)
    }

    /// Whether all names of the directory are known and this one is not among them.
    pub(crate) fn knows_absent(&mut self, name: NameHash) -> bool {
        let covered = self.covered.update.is_covered();
        covered && self.directory.names.as_mut().is_some_and(|names| names.is_absent(name))
    }

    /// See [`DirectoryNames::missed`]: a page costs a request, and the lock another.
    pub(crate) fn note_missed(&mut self) -> Option<u64> {
        let cost = if self.covered.update.is_covered() { 1 } else { 2 };
        self.directory.names_mut().note_missed(cost)
    }

    /// Notes a name known to be absent; whether it may be kept.
    pub(crate) fn keep_absent(&mut self, name: &Name) -> bool {
        let has_room = |it: &&mut UnderUpdate| it.absent.len() < ABSENT_NAMES_MAX;
        let Some(update) = self.covered.update.get_mut().filter(has_room) else { return false };
        update.absent.insert(name.clone());
        true
    }

    /// Whether a name is known to be absent now.
    pub(crate) fn is_absent(&self, name: &Name) -> bool {
        self.covered.update.get().is_some_and(|it| it.absent.contains(name))
    }

    /// Forgets that a name is absent: this client is about to make it.
    pub(crate) fn forget_absent(&mut self, name: &Name) {
        if let Some(update) = self.covered.update.get_mut() {
            update.absent.remove(name);
        }
    }
}
