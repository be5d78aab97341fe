//! One inode and what is known of it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sheen_types::{Extent, Fid, HashMap, InodeBits, Name, ResourceName, Timestamp, Transno};
use tokio::sync::Notify;

use super::covered::{CoveredState, UnderUpdate};
use super::failures::Failures;
use super::heat::Heat;
use super::kept::Opens;
use super::kernel_size::KernelSize;
use super::limits::{ABSENT_NAMES_MAX, KEPT_NAMES_MAX};
use super::names::{
    CacheEpoch, ChangeOutcome, DirectoryNames, DirectoryRead, NameChange, NameHash, NameHasher,
};
use super::rights::Rights;
use crate::data::{DataFile, FileLayout, LayoutGuard};
use crate::types::{Attributes, FileType, NodeId};

/// All extended attributes of an inode that the server lets us see.
pub(crate) type Xattrs = HashMap<Box<[u8]>, Bytes>;

/// What is known of a file's layout.
#[derive(Clone)]
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
    /// Its number at the facade.
    pub(crate) node: NodeId,
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
    pub(crate) covered: CoveredState,
    /// Attributes as the MDT last gave them, current or not; size and blocks of a file with objects are a hint.
    pub(crate) last_attributes: Option<Attributes>,
    /// Its access control list, and the names that the kernel may keep because of it.
    pub(super) rights: Rights,
    /// This client has renamed it, and its new name was not looked up since: the kernel, which moved the name
    /// without a lookup, may hold a name that another client has replaced already.
    pub(crate) moved_here: bool,
    /// Names by which it was looked up, there still or not.
    pub(crate) names: Vec<(NodeId, Name)>,
    /// Those of them that the kernel may keep, at most [`KEPT_NAMES_MAX`] and what we have renamed.
    kept_names: Vec<KeptName>,
    /// Directory: names looked up in it. Each is valid while the child's `LOOKUP` is covered.
    pub(crate) children: HashMap<Name, Fid>,
    /// Directory: its names, and our changes of them. None before the first.
    names_within: Option<Box<DirectoryNames>>,
    /// How often a lock on it was lost.
    losses: u32,
    /// Directory: this client has removed it. A process that still has it open, or works in it, sees a link
    /// count of 0.
    pub(crate) removed: bool,
    /// Directory: whether we ourselves have changed its names since its attributes were last asked.
    pub(crate) changed_here: bool,
    /// File: its data, by the layout that was seen last.
    pub(crate) data: Option<Arc<dyn DataFile>>,
    /// File: what its data keeps when the layout changes.
    pub(crate) layout_guard: Arc<LayoutGuard>,
    /// File: open handles.
    pub(crate) opens: u64,
    /// File: how many of them may write.
    pub(crate) writers: u64,
    /// File: how many of them bypass the kernel's pages.
    pub(crate) bypassing: u64,
    /// How often it was opened, and what is kept open for later.
    pub(crate) kept: Opens,
    /// File: when it was last read through this client, as far as that was noted.
    pub(crate) accessed: Option<Timestamp>,
    /// File: how much it is used lately, once that was counted or its counting turned off.
    pub(crate) heat: Option<Box<Heat>>,
    /// File: the pages of writes through the kernel's pages that are not accepted yet.
    pub(crate) page_writes: Vec<Extent>,
    /// File: the size that the kernel has.
    pub(crate) kernel_size: KernelSize,
    /// File: write-back that failed.
    pub(crate) failures: Failures,
    /// The last change of this client to it that the MDT has not reported as durable.
    pub(crate) transno: Transno,
    /// This client has just made it, and its attributes were not asked for, nor was it written or flushed
    /// since: the next getattr is part of the call that made it.
    pub(crate) just_created: bool,
    /// Symbolic link: its target, which never changes.
    pub(crate) target: Option<Bytes>,
}

impl KeptName {
    fn is(&self, parent: NodeId, name: &Name) -> bool {
        self.parent == parent && self.name == *name
    }
}

impl Inode {
    pub(super) fn new(fid: Fid, node: NodeId) -> Self {
        Self { fid, node, state: Mutex::default(), changed: Notify::new() }
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
        self.state().last_attributes.as_ref().map(Attributes::file_type)
    }
}

/// A name that the kernel may use until it is notified.
struct KeptName {
    parent: NodeId,
    name: Name,
    /// How often a lock on the inode had been lost when the kernel got it.
    since: u32,
}

impl InodeState {
    /// What is known of it, with the time of access that the MDT may not have yet.
    pub(crate) fn attributes_shown(&self) -> Option<Attributes> {
        let mut known = self.last_attributes.clone()?;
        known.atime = self.accessed_since(known.atime);
        Some(known)
    }

    /// The later of a time of access and the one that was noted here: any time may be from before 1970.
    pub(crate) fn accessed_since(&self, known: Timestamp) -> Timestamp {
        self.accessed.map_or(known, |accessed| known.max(accessed))
    }

    /// Whether locks cover all attributes that the MDT keeps.
    pub(crate) fn attributes_covered(&self) -> bool {
        self.attributes_locked()
            && self.covered.update.get().is_some_and(|it| it.has_attributes)
            && self.last_attributes.is_some()
    }

    /// The state to compare with when the answer to a question has arrived.
    pub(crate) fn epoch(&self) -> CacheEpoch {
        let covered = self.covered.update.is_held();
        match &self.names_within {
            Some(names) => names.epoch(self.losses, covered),
            None => CacheEpoch { losses: self.losses, covered, ..CacheEpoch::UNKNOWN },
        }
    }

    /// Whether no change of ours to the directory's names overlapped a question sent at `asked`.
    pub(crate) fn undisturbed_since(&self, asked: &CacheEpoch) -> bool {
        self.names_within.as_ref().is_none_or(|names| names.undisturbed_since(asked))
    }

    /// Whether in addition `UPDATE` was covered all the time: the answer is still current.
    pub(crate) fn unbroken_since(&self, asked: &CacheEpoch) -> bool {
        let covered = asked.covered && self.covered.update.is_held();
        covered && asked.losses == self.losses && self.undisturbed_since(asked)
    }

    /// Whether locks cover the attributes, current or not.
    pub(crate) fn attributes_locked(&self) -> bool {
        let CoveredState { lookup, update, perm, .. } = &self.covered;
        update.is_held() && (perm.is_held() || lookup.is_held())
    }

    /// This client is about to send a change of names. What is known of the directory's attributes and pages
    /// is stale from now on, even under this client's lock.
    pub(crate) fn begin_change(
        &mut self,
        adds: Option<NameHash>,
        removes: Option<NameHash>,
    ) -> NameChange {
        self.changed_here = true;
        if let Some(update) = self.covered.update.get_mut() {
            (update.has_attributes, update.pages) = (false, None);
        }
        self.names_within.get_or_insert_default().begin(adds, removes)
    }

    /// A change of names of ours was answered.
    pub(crate) fn end_change(&mut self, change: &NameChange, done: ChangeOutcome) {
        self.names_within.get_or_insert_default().end(change, done);
    }

    /// See [`DirectoryNames::begin_reading`]. Nothing can be learnt without the lock.
    pub(crate) fn begin_reading(
        &mut self,
        hasher: &Arc<NameHasher>,
        from: u64,
    ) -> Option<DirectoryRead> {
        let covered = self.covered.update.is_held();
        let names = covered.then(|| self.names_within.get_or_insert_default())?;
        names.begin_reading(hasher, from)
    }

    /// See [`DirectoryNames::read`].
    pub(crate) fn read_names<'a>(
        &mut self,
        hasher: &NameHasher,
        reading: &DirectoryRead,
        names: impl Iterator<Item = (u64, &'a [u8])>,
        end: u64,
    ) {
        self.names_within.get_or_insert_default().read(hasher, reading, names, end);
    }

    /// Whether all names of the directory are known and this one is not among them.
    pub(crate) fn knows_absent(&mut self, name: NameHash) -> bool {
        let covered = self.covered.update.is_held();
        covered && self.names_within.as_mut().is_some_and(|names| names.is_absent(name))
    }

    /// See [`DirectoryNames::missed`]: a page costs a request, and the lock another.
    pub(crate) fn missed(&mut self) -> Option<u64> {
        let cost = if self.covered.update.is_held() { 1 } else { 2 };
        self.names_within.get_or_insert_default().missed(cost)
    }

    /// Whether other clients change the directory's names so often that its lock is soon revoked.
    pub(crate) fn is_contended(&self) -> bool {
        self.names_within.as_ref().is_some_and(|names| names.is_contended())
    }

    /// A lock that covered `bits` was lost.
    pub(super) fn note_lock_lost(&mut self, bits: InodeBits) {
        self.losses = self.losses.wrapping_add(1);
        if bits.contains(InodeBits::UPDATE)
            && let Some(names) = &mut self.names_within
        {
            names.lock_lost();
        }
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

    /// Whether it is known to have no capabilities: nothing new has.
    pub(crate) fn has_no_capability(&self) -> bool {
        self.covered.xattr.get().is_some_and(|it| it.made_here)
    }

    /// Whether a lock covers its names.
    pub(crate) fn names_covered(&self) -> bool {
        self.covered.lookup.is_held()
    }

    /// Whether it is the inode that `name` in `parent` stands for, as locks guarantee.
    pub(crate) fn is_named(&self, parent: NodeId, name: &Name) -> bool {
        let is_it = |(node, known): &(NodeId, Name)| *node == parent && known == name;
        self.covered.lookup.get().is_some_and(|it| it.names.iter().any(is_it))
    }

    /// Whether the MDT can have removed it though a process here uses it: the MDT knows that a directory is
    /// open only if the open was sent to it, and never that it is a working directory.
    pub(crate) fn is_removed_directory(&self) -> bool {
        let kind = self.last_attributes.as_ref().map(Attributes::file_type);
        kind == Some(FileType::Directory) && (self.opens > 0 || self.removed)
    }

    /// Notes a name that was seen now. It is sure only if the caller still holds the lock under which it saw
    /// the name.
    pub(crate) fn see_name(&mut self, parent: NodeId, name: &Name) {
        self.moved_here = false;
        let sure = self.covered.lookup.get_mut().map(|it| &mut it.names);
        for names in [Some(&mut self.names), sure].into_iter().flatten() {
            if !names.iter().any(|(node, known)| *node == parent && known == name) {
                names.push((parent, name.clone()));
            }
        }
    }

    /// The kernel may keep this name from now on, if a lock covers it and not too many names of this inode
    /// are kept: revoking the lock costs a notification for each.
    pub(crate) fn keep_name(&mut self, parent: NodeId, name: &Name) -> bool {
        let is_kept = self.names_covered()
            && (self.kept_names.len() < KEPT_NAMES_MAX || self.keeps_name(parent, name));
        if is_kept {
            self.name_was_kept(parent, name);
        }
        is_kept
    }

    /// The kernel has this name already: it moved its entry to the new place itself.
    pub(crate) fn name_was_kept(&mut self, parent: NodeId, name: &Name) {
        self.kept_names.retain(|kept| !kept.is(parent, name));
        self.kept_names.push(KeptName { parent, name: name.clone(), since: self.losses });
    }

    fn keeps_name(&self, parent: NodeId, name: &Name) -> bool {
        self.kept_names.iter().any(|kept| kept.is(parent, name))
    }

    /// The names that the kernel keeps and that must be invalidated because the lock that covered them was
    /// lost; and the argument of [`InodeState::kept_names_invalidated`] after that.
    pub(super) fn kept_names(&self) -> (impl Iterator<Item = (NodeId, Name)>, u32) {
        let kept = self.kept_names.iter().map(|kept| (kept.parent, kept.name.clone()));
        (kept, self.losses)
    }

    /// Those that were kept before the loss of that number are not kept any more, unless the kernel got them
    /// again since.
    pub(super) fn kept_names_invalidated(&mut self, loss: u32) {
        self.kept_names.retain(|kept| loss.wrapping_sub(kept.since).cast_signed() <= 0);
    }

    /// Notes that the inode does not have this name any more.
    pub(crate) fn lose_name(&mut self, parent: NodeId, name: &Name) {
        self.kept_names.retain(|kept| !kept.is(parent, name));
        let sure = self.covered.lookup.get_mut().map(|it| &mut it.names);
        for names in [Some(&mut self.names), sure].into_iter().flatten() {
            names.retain(|(node, known)| *node != parent || known != name);
        }
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

    /// Whether the inode has no lookups and no pins.
    pub(super) fn is_idle(&self) -> bool {
        self.lookups == 0 && self.pins == 0 && self.kept.is_empty()
    }
}
