//! One inode and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sheen_types::{Fid, HashMap, InodeBits, ResourceName, Timestamp};
use tokio::sync::Notify;

use super::changes::Changes;
use super::covered::CoveredState;
use super::directory::DirectoryState;
use super::file::FileState;
use super::inode_names::InodeNames;
use super::names::CacheEpoch;
use super::own_changes::OwnChanges;
use super::rights::Rights;
use crate::data::FileLayout;
use crate::records::{Record, Recorded, Recorder};
use crate::types::{Attributes, FileType, NodeId};

/// All extended attributes of an inode that the server lets us see.
pub(crate) type Xattrs = HashMap<Box<[u8]>, Bytes>;

/// What is known of a file's layout.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum LayoutState {
    /// The file has no objects: nothing was ever written, or it is no regular file.
    Empty,
    /// It has objects, or will have them where it is written, in a way we can read.
    Placed(Arc<FileLayout>),
    /// It has a layout that this client cannot read.
    Foreign,
}

/// An inode. Lives while the kernel has looked it up or opened it, a call uses it, or a notice about it is on its way
/// to the kernel.
pub(crate) struct Inode {
    /// Which object.
    pub(crate) fid: Fid,
    /// Its number at the facade: see [`Self::node`].
    node: AtomicU64,
    state: Mutex<InodeState>,
    /// The kernel's size was raised, or not; a write through the kernel's pages has ended.
    pub(crate) changed: Notify,
}

/// What is known. Current is only what [`InodeState::covered`] has, or vouches for.
#[derive(Default)]
pub(crate) struct InodeState {
    /// Lookups not forgotten yet.
    pub(crate) lookups: u64,
    /// Open handles and calls under way that need the inode.
    pub(crate) pins: u64,
    /// What locks cover, and which bits that are.
    pub(super) covered: CoveredState,
    /// Attributes as the MDT last gave them, current or not; size and blocks of a file with objects are a hint.
    pub(super) last_attributes: Option<Attributes>,
    /// Its access control list, and the names that the kernel may keep because of it.
    pub(super) rights: Rights,
    /// The names by which it was looked up, and those that the kernel keeps.
    pub(crate) names: InodeNames,
    /// How often a lock on it was lost.
    pub(super) losses: u32,
    /// Open handles.
    pub(crate) opens: u64,
    /// What only a directory has.
    pub(crate) directory: DirectoryState,
    /// What only a file has.
    pub(crate) file: FileState,
    /// The last changes of this client to it.
    pub(crate) changes: Changes,
    /// Those of its attributes under locks that stay.
    own_changes: OwnChanges,
    /// This client has just made it, and its attributes were not asked for, nor was it written or flushed
    /// since: the next getattr is part of the call that made it.
    pub(crate) just_created: bool,
    /// Symbolic link: its target, which never changes.
    pub(crate) target: Option<Bytes>,
    /// For the mount's next process.
    recorded: Option<Recorded>,
}

impl Inode {
    pub(super) fn new(fid: Fid, node: NodeId, recorder: &Recorder) -> Self {
        let recorded = recorder.record(|| Record::Inode { node, fid, lookups: 0 });
        let state = Mutex::new(InodeState { recorded, ..InodeState::default() });
        Self { fid, node: AtomicU64::new(node.0), state, changed: Notify::new() }
    }

    /// Its number at the facade. What takes the place of a directory takes its number over, too
    /// ([`super::InodeTable::note_moved`]).
    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Acquire))
    }

    /// From now on `former` is known here as this inode, by its number: what the kernel has looked up is this one.
    /// Both states are locked by the caller.
    pub(super) fn take_over(
        &self,
        state: &mut InodeState,
        (former, former_state): (&Self, &mut InodeState),
        recorder: &Recorder,
    ) {
        let (node, fid, lookups) = (former.node(), self.fid, former_state.lookups);
        self.node.store(node.0, Ordering::Release);
        // The record of the former one is dropped after this one is there.
        let recorded = recorder.record(|| Record::Inode { node, fid, lookups });
        state.recorded = recorded;
        former_state.recorded = None;
        state.lookups = std::mem::take(&mut former_state.lookups);
    }

    /// The kernel has looked it up so often more. Counted before it has the answer.
    pub(crate) fn count_lookups(&self, state: &mut InodeState, more: u64) {
        state.lookups += more;
        Self::keep_lookups(state);
    }

    /// The number of lookups was changed.
    pub(super) fn keep_lookups(state: &InodeState) {
        if let Some(recorded) = &state.recorded {
            recorded.set_lookups(state.lookups);
        }
    }

    /// What is known. Never held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// The resource of locks on it.
    pub(crate) fn resource(&self) -> ResourceName {
        ResourceName::of_fid(self.fid)
    }

    /// Its type, if it is known at all: that never changes.
    pub(crate) fn file_type(&self) -> Option<FileType> {
        self.state().file_type()
    }
}

impl InodeState {
    /// As if locks had covered `bits` and were lost.
    #[cfg(test)]
    pub(crate) fn lose_bits(&mut self, bits: InodeBits) {
        self.covered.uncover(bits);
    }

    /// As if a lock covered `bits`.
    #[cfg(test)]
    pub(crate) fn cover_bits(&mut self, bits: InodeBits) {
        self.covered.cover(bits);
    }

    /// The attributes, to be changed whether locks cover them or not.
    #[cfg(test)]
    pub(crate) fn attributes_mut(&mut self) -> Option<&mut Attributes> {
        self.last_attributes.as_mut()
    }

    /// The attributes as the MDT last gave them, current or not; size and blocks of a file with objects are a hint.
    pub(crate) fn last_attributes(&self) -> Option<&Attributes> {
        self.last_attributes.as_ref()
    }

    /// The attributes, to be changed by a guess; `None` also if a lock covers them: they need no guess.
    pub(crate) fn guessed_attributes(&mut self) -> Option<&mut Attributes> {
        if self.attributes_covered() { None } else { self.last_attributes.as_mut() }
    }

    /// As [`Inode::file_type`].
    pub(crate) fn file_type(&self) -> Option<FileType> {
        self.last_attributes.as_ref().map(Attributes::file_type)
    }

    /// What is known of it, current or not, with the time of access that the MDT may not have yet.
    pub(crate) fn attributes_shown(&self) -> Option<Attributes> {
        let mut known = self.last_attributes.clone()?;
        known.atime = self.accessed_since(known.atime);
        Some(known)
    }

    /// The later of a time of access and the one that was noted here: any time may be from before 1970.
    pub(crate) fn accessed_since(&self, known: Timestamp) -> Timestamp {
        self.file.accessed.map_or(known, |accessed| known.max(accessed))
    }

    /// Whether locks cover all attributes that the MDT keeps.
    pub(crate) fn attributes_covered(&self) -> bool {
        self.attributes_locked()
            && self.covered.update.get().is_some_and(|it| it.has_attributes)
            && self.last_attributes.is_some()
    }

    /// The state to compare with when the answer to a question has arrived.
    pub(crate) fn epoch(&self) -> CacheEpoch {
        CacheEpoch {
            losses: self.losses,
            covered: self.covered.update.is_covered(),
            names: self.directory.own_changes(),
            attributes: self.own_changes.seen(),
        }
    }

    /// Whether what was asked at `asked` is still current: `UPDATE` was covered all the time, and no change of
    /// ours overlapped it.
    pub(crate) fn unbroken_since(&self, asked: &CacheEpoch) -> bool {
        let covered = asked.covered && self.covered.update.is_covered();
        covered && asked.losses == self.losses && self.undisturbed_since(asked)
    }

    /// Whether no change of ours overlapped a question sent at `asked`, to a directory's names or to attributes.
    pub(super) fn undisturbed_since(&self, asked: &CacheEpoch) -> bool {
        self.directory.undisturbed_since(asked) && self.own_changes_undisturbed_since(asked)
    }

    /// Whether no change of ours to attributes overlapped a question sent at `asked`.
    pub(super) fn own_changes_undisturbed_since(&self, asked: &CacheEpoch) -> bool {
        self.own_changes.undisturbed_since(asked.attributes)
    }

    /// This client is about to send a change of attributes, and keeps its locks. What is known of them is stale from
    /// now on. Returns with what the answer must be compared.
    pub(crate) fn begin_own_change(&mut self) -> CacheEpoch {
        let before = self.epoch();
        self.own_changes.begin();
        if let Some(update) = self.covered.update.get_mut() {
            update.has_attributes = false;
        }
        if let Some(perm) = self.covered.perm.get_mut() {
            perm.has_rights = false;
        }
        CacheEpoch { attributes: before.attributes.but_one(), ..before }
    }

    /// Its answer is here.
    pub(crate) fn end_own_change(&mut self) {
        self.own_changes.end();
    }

    /// A lock that covered `bits` was lost.
    pub(super) fn note_lock_lost(&mut self, bits: InodeBits) {
        self.losses = self.losses.wrapping_add(1);
        if bits.contains(InodeBits::UPDATE) {
            self.directory.lock_lost();
        }
    }

    /// Whether locks cover the attributes, current or not.
    pub(crate) fn attributes_locked(&self) -> bool {
        self.covered.update.is_covered() && self.rights_locked()
    }

    /// Whether a lock covers mode, owner, group and access control list, current or not. A lock on a name of another MDT
    /// does not.
    pub(crate) fn rights_locked(&self) -> bool {
        let CoveredState { lookup, perm, .. } = &self.covered;
        perm.is_covered() || lookup.is_covered()
    }

    /// The layout, if it is known and a lock covers it.
    pub(crate) fn layout(&self) -> Option<&LayoutState> {
        self.covered.layout.get()?.as_ref()
    }

    /// Whether size and blocks are known without asking the objects.
    pub(crate) fn size_covered(&self) -> bool {
        self.attributes_covered() && self.covered.update.get().is_some_and(|it| it.has_size)
    }

    /// The MDT does not know the size any more: this client writes the file, or moves its bytes.
    pub(crate) fn ask_osts_for_size(&mut self) {
        if let Some(update) = self.covered.update.get_mut() {
            update.has_size = false;
        }
    }

    /// Whether it is known to have no extended attributes but those that the MDT sets.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        self.covered.xattr.get().is_some_and(|it| it.absent)
    }

    /// Whether the MDT can have removed it though a process here uses it: the MDT knows that a directory is
    /// open only if the open was sent to it, and never that it is a working directory.
    pub(crate) fn is_removed_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
            && (self.opens > 0 || self.directory.removed || self.directory.former_opens > 0)
    }

    /// Whether the inode has no lookups and no pins.
    pub(super) fn is_idle(&self) -> bool {
        self.lookups == 0 && self.pins == 0 && self.file.open_cache.is_empty()
    }
}
