//! The names by which an inode was looked up: what `LOOKUP` covers of them, and which of them the kernel keeps.

use sheen_types::{MdtIndex, Name};

use super::InodeState;
use super::limits::KEPT_NAMES_MAX;
use crate::types::{Dentry, FileType, NodeId};

/// The names of an inode.
#[derive(Default)]
pub(crate) struct InodeNames {
    /// By which it was looked up, there still or not.
    pub(crate) seen: Vec<Dentry>,
    /// Those of them that the kernel may keep, at most [`KEPT_NAMES_MAX`] and what we have renamed.
    kept: Vec<KeptName>,
    /// This client has renamed it, and its new name was not looked up since: the kernel, which moved the name
    /// without a lookup, may hold a name that another client has replaced already.
    pub(crate) moved_here: bool,
}

/// A name that the kernel may use until it is notified.
#[derive(Clone)]
struct KeptName {
    dentry: Dentry,
    /// How often a lock on the inode had been lost when the kernel got it.
    since: u32,
}

impl InodeNames {
    /// What takes the place of a directory keeps the names that the kernel has of that.
    pub(super) fn follow(&mut self, former: &Self, losses: u32) {
        let kept = former.kept.iter();
        self.kept.extend(kept.map(|kept| KeptName { since: losses, ..kept.clone() }));
    }
}

impl InodeState {
    /// Whether it is the inode that `name` in `parent` stands for, as locks guarantee.
    pub(crate) fn is_named(&self, parent: NodeId, name: &Name) -> bool {
        self.covered.all_names().any(|it| it.names.iter().any(|known| known.is(parent, name)))
    }

    /// Notes a name that was seen now, and with which MDT it is unless that is the inode's. It is sure only if the
    /// caller still holds the lock under which it saw the name.
    pub(crate) fn note_seen_name(&mut self, parent: NodeId, name: &Name, remote: Option<MdtIndex>) {
        self.names.moved_here = false;
        if self.file_type() == Some(FileType::Directory) {
            self.directory.note_name(parent, name);
        }
        let sure = self.covered.names_mut(remote).map(|it| &mut it.names);
        for names in [Some(&mut self.names.seen), sure].into_iter().flatten() {
            if !names.iter().any(|known| known.is(parent, name)) {
                names.push(Dentry::new(parent, name));
            }
        }
    }

    /// The kernel may keep this name from now on, if it was seen under the lock that covers it now and not too many
    /// names of this inode are kept: revoking the lock costs a notification for each.
    pub(crate) fn keep_name(&mut self, parent: NodeId, name: &Name) -> bool {
        let is_kept = self.is_named(parent, name)
            && (self.names.kept.len() < KEPT_NAMES_MAX || self.keeps_name(parent, name));
        if is_kept {
            self.note_name_moved_by_kernel(parent, name);
        }
        is_kept
    }

    /// Notes that the kernel has this name already: it moved its entry to the new place itself.
    pub(crate) fn note_name_moved_by_kernel(&mut self, parent: NodeId, name: &Name) {
        self.names.kept.retain(|kept| !kept.dentry.is(parent, name));
        self.names.kept.push(KeptName { dentry: Dentry::new(parent, name), since: self.losses });
    }

    /// Whether the kernel keeps this name, as far as is known.
    pub(crate) fn keeps_name(&self, parent: NodeId, name: &Name) -> bool {
        self.names.kept.iter().any(|kept| kept.dentry.is(parent, name))
    }

    /// The names that the kernel keeps and that must be invalidated because the lock that covered them was
    /// lost; and the argument of [`InodeState::kept_names_invalidated`] after that.
    pub(super) fn kept_names(&self) -> (impl Iterator<Item = Dentry>, u32) {
        let kept = self.names.kept.iter().map(|kept| kept.dentry.clone());
        (kept, self.losses)
    }

    /// Those that were kept before the loss of that number are not kept any more, unless the kernel got them
    /// again since.
    pub(super) fn kept_names_invalidated(&mut self, loss: u32) {
        self.names.kept.retain(|kept| loss.wrapping_sub(kept.since).cast_signed() <= 0);
    }

    /// Notes that the inode does not have this name any more, by a call of the kernel's that has changed the name there,
    /// too.
    pub(crate) fn note_name_removed(&mut self, parent: NodeId, name: &Name) {
        self.names.kept.retain(|kept| !kept.dentry.is(parent, name));
        self.note_name_absent(parent, name);
    }

    /// Notes that by a reply the inode does not have this name. The reply may be older than what is known, and the
    /// kernel may never hear of it: a name that it keeps it keeps until the lock is lost.
    pub(crate) fn note_name_absent(&mut self, parent: NodeId, name: &Name) {
        let sure = self.covered.all_names_mut().map(|it| &mut it.names);
        for names in std::iter::once(&mut self.names.seen).chain(sure) {
            names.retain(|known| !known.is(parent, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{Fid, InodeBits};

    use super::super::{InodeTable, NamePlace};
    use super::*;

    const ROOT: Fid = Fid::ROOT;
    const FILE: Fid = Fid::new(0x2_0000_0401, 7);

    #[test]
    fn a_reply_does_not_undo_that_the_kernel_keeps_a_name() {
        let inodes = InodeTable::new(ROOT);
        let (root, file, other) =
            (inodes.pin(ROOT), inodes.pin(FILE), inodes.pin(Fid::new(0x2_0000_0401, 8)));
        let name = Name::new(b"f").expect("a name");
        file.state().covered.cover(InodeBits::LOOKUP);
        inodes.remember_name(&NamePlace::whole(&root), &name, &file);
        assert!(file.state().keep_name(root.node(), &name));
        // Answers to questions that were sent earlier: one that it is absent, and one that it is another file.
        inodes.note_name_absent(&root, &name);
        inodes.remember_name(&NamePlace::whole(&root), &name, &other);
        assert_eq!(file.state().kept_names().0.count(), 1);
        assert!(!file.state().is_named(root.node(), &name), "it is asked for");
        // The kernel's own call has removed it there.
        inodes.remember_name(&NamePlace::whole(&root), &name, &file);
        inodes.forget_name(&root, &name);
        assert_eq!(file.state().kept_names().0.count(), 0);
    }

    #[test]
    fn the_kernel_keeps_no_name_that_was_seen_before_a_gap() {
        let inodes = InodeTable::new(ROOT);
        let (root, file) = (inodes.pin(ROOT), inodes.pin(FILE));
        let name = Name::new(b"f").expect("a name");
        file.state().covered.cover(InodeBits::LOOKUP);
        inodes.remember_name(&NamePlace::whole(&root), &name, &file);
        file.state().covered.uncover(InodeBits::LOOKUP);
        // Another name has brought a lock.
        file.state().covered.cover(InodeBits::LOOKUP);
        assert!(!file.state().keep_name(root.node(), &name));
    }
}
