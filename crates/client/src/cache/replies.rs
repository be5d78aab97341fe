//! What a reply, and the lock that came with it, change in what is known of an inode.

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::{Fid, InodeBits, MdtIndex, Timestamp};
use sheen_wire::md::{MdtBody, Valid};

use super::dir_pages::DirPages;
use super::inode::{Inode, InodeState, LayoutState, Xattrs};
use super::inode_number;
use super::names::CacheEpoch;
use crate::locks::LockReference;
use crate::types::{Attributes, FileType, TYPE_MASK};

/// Preferred IO size: one bulk RPC.
const BLOCK_SIZE_FILE: u32 = 4 << 20;
/// Preferred IO size of what is no regular file: what Lustre shows.
const BLOCK_SIZE_OTHER: u32 = 1 << 20;

impl Inode {
    /// Notes what a reply says of an inode. `held` is the lock that came with it, if any: the bits it has are
    /// covered from now on. Without a lock, what a lock covers already is left alone, because replies may
    /// overtake each other. `asked` is when the question was sent: what overlaps a change of this client does
    /// not count as covered.
    pub(crate) fn apply_reply(
        &self,
        attributes: &ReplyAttributes<'_>,
        held: Option<&LockReference>,
        asked: &CacheEpoch,
    ) {
        let ReplyAttributes { body, layout: ea, acl } = *attributes;
        let held = held.filter(|held| held.resource() == self.resource());
        let bits = held.map_or(InodeBits(0), LockReference::bits);
        let mut state = self.state();
        if bits.intersects(InodeBits::UPDATE) || !state.attributes_covered() {
            state.apply_body(self.fid, body, acl, bits);
        }
        if let Some(held) = held {
            state.covered.note_granted(held);
        }
        let has_layout = body.valid.contains(Valid::EASIZE) && !ea.is_empty();
        if bits.contains(InodeBits::LAYOUT)
            && let Some(layout) = state.covered.layout.get_mut()
        {
            *layout = Some(read_layout(has_layout.then_some(ea)));
        }
        if bits.contains(InodeBits::UPDATE) {
            let undisturbed = state.undisturbed_since(asked);
            state.directory.changed_here &= !undisturbed;
            // This lock does not cover the size of data on the MDT.
            let vouched = body.valid.contains(Valid::SIZE | Valid::BLOCKS)
                && !body.valid.contains(Valid::DOM_SIZE);
            if let Some(update) = state.covered.update.get_mut() {
                update.has_attributes = undisturbed;
                // The size of a file without objects is covered by the layout's lock.
                update.has_size = has_layout && vouched;
            }
        }
        if bits.contains(InodeBits::XATTR) && body.xattr_absent & MdtBody::NO_XATTRS != 0 {
            state.note_no_xattrs();
        }
        let is_current = state.own_changes_undisturbed_since(asked);
        if bits.contains(InodeBits::PERM)
            && let Some(perm) = state.covered.perm.get_mut()
        {
            perm.has_rights = is_current;
        }
    }

    /// Notes what the answer to a change of ours says, under locks that stayed. It counts if `UPDATE` was covered all the
    /// time and no other change of ours overlapped it.
    pub(crate) fn apply_own_change(&self, attributes: &ReplyAttributes<'_>, asked: &CacheEpoch) {
        let mut state = self.state();
        let is_whole = attributes.body.valid.contains(Valid::ACL);
        let unbroken = state.unbroken_since(asked) && is_whole;
        if unbroken || !state.attributes_covered() {
            state.apply_body(self.fid, attributes.body, attributes.acl, InodeBits(0));
        }
        if !unbroken {
            return;
        }
        if let Some(update) = state.covered.update.get_mut() {
            update.has_attributes = true;
        }
        state.directory.changed_here = false;
        // Covered all the time, as no lock was lost.
        if let Some(perm) = state.covered.perm.get_mut() {
            perm.has_rights = true;
        }
    }

    /// Notes the lock on a name that came from the MDT that has the name, but not the inode.
    pub(crate) fn note_remote_name(&self, mdt: MdtIndex, held: &LockReference) {
        if held.resource() == self.resource() && held.bits().contains(InodeBits::LOOKUP) {
            self.state().covered.cover_remote_names(mdt);
        }
    }

    /// Notes what a reply without a lock says of an inode whose attributes locks cover: it counts
    /// if they covered it all the time.
    pub(crate) fn apply_unlocked_reply(
        &self,
        attributes: &ReplyAttributes<'_>,
        asked: &CacheEpoch,
    ) {
        let mut state = self.state();
        let unbroken = state.unbroken_since(asked);
        if unbroken || !state.attributes_covered() {
            state.apply_body(self.fid, attributes.body, attributes.acl, InodeBits(0));
        }
        if unbroken && let Some(update) = state.covered.update.get_mut() {
            update.has_attributes = true;
            state.directory.changed_here = false;
        }
    }
}

impl Attributes {
    /// The attributes of an object of which nothing is known yet.
    #[must_use]
    pub fn blank(fid: Fid) -> Self {
        let never = Timestamp::default();
        Self {
            fid,
            ino: inode_number(fid),
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_size: BLOCK_SIZE_OTHER,
            atime: never,
            mtime: never,
            ctime: never,
            btime: never,
            flags: 0,
            projid: 0,
        }
    }
}

/// What a reply says of an inode.
#[derive(Clone, Copy)]
pub(crate) struct ReplyAttributes<'a> {
    pub(crate) body: &'a MdtBody,
    pub(crate) layout: &'a Bytes,
    pub(crate) acl: &'a Bytes,
}

impl InodeState {
    /// A lock came without anything that it covers.
    pub(crate) fn cover(&mut self, held: &LockReference) {
        self.covered.note_granted(held);
    }

    /// A layout came with a lock.
    pub(crate) fn note_layout(&mut self, held: &LockReference, layout: LayoutState) {
        self.covered.note_granted(held);
        if let Some(known) = self.covered.layout.get_mut() {
            *known = Some(layout);
        }
    }

    /// All extended attributes came with a lock.
    pub(crate) fn note_xattrs(&mut self, held: &LockReference, xattrs: Arc<Xattrs>) {
        self.covered.note_granted(held);
        if let Some(known) = self.covered.xattr.get_mut() {
            known.all = Some(xattrs);
        }
    }

    /// The inode has no extended attributes, which a lock covers: the MDT says so.
    fn note_no_xattrs(&mut self) {
        if let Some(known) = self.covered.xattr.get_mut() {
            known.absent = true;
        }
    }

    /// All extended attributes, if they were read and a lock covers them.
    pub(crate) fn xattrs(&self) -> Option<&Arc<Xattrs>> {
        self.covered.xattr.get()?.all.as_ref()
    }

    /// The directory's pages, to read and to keep; `None` if no lock covers them.
    pub(crate) fn dir_pages(&mut self) -> Option<&Arc<DirPages>> {
        Some(self.covered.update.get_mut()?.pages.get_or_insert_default())
    }

    /// Whether a lock covers `UPDATE`: times and size, and the names in a directory.
    pub(crate) fn update_covered(&self) -> bool {
        self.covered.update.is_covered()
    }

    /// Takes attributes over, but for those that decide about access where another lock than the one
    /// of this reply, with `bits`, covers them.
    fn apply_body(&mut self, fid: Fid, body: &MdtBody, acl: &Bytes, bits: InodeBits) {
        let covered = self.rights_covered() && !bits.contains(InodeBits::PERM);
        let old =
            self.last_attributes.as_ref().filter(|_| covered).map(|it| (it.mode, it.uid, it.gid));
        self.apply_attributes(fid, body);
        match (old, &mut self.last_attributes) {
            (Some(old), Some(now)) => (now.mode, now.uid, now.gid) = old,
            _ => self.apply_acl(fid, body, acl),
        }
    }

    fn apply_attributes(&mut self, fid: Fid, body: &MdtBody) {
        let mut attributes = self.last_attributes.take().unwrap_or_else(|| Attributes::blank(fid));
        let valid = body.valid;
        let old_type = attributes.mode & TYPE_MASK;
        if valid.contains(Valid::MODE) {
            attributes.mode = old_type | body.mode & !TYPE_MASK;
        }
        if valid.contains(Valid::TYPE) {
            attributes.mode = attributes.mode & !TYPE_MASK | body.mode & TYPE_MASK;
        }
        set(valid, Valid::NLINK, &mut attributes.nlink, body.nlink);
        set(valid, Valid::UID, &mut attributes.uid, body.uid);
        set(valid, Valid::GID, &mut attributes.gid, body.gid);
        set(valid, Valid::RDEV, &mut attributes.rdev, body.rdev);
        set(valid, Valid::FLAGS, &mut attributes.flags, body.flags);
        set(valid, Valid::PROJID, &mut attributes.projid, body.projid);
        set(valid, Valid::ATIME, &mut attributes.atime, Timestamp::from_seconds(body.atime));
        set(valid, Valid::MTIME, &mut attributes.mtime, Timestamp::from_seconds(body.mtime));
        set(valid, Valid::CTIME, &mut attributes.ctime, Timestamp::from_seconds(body.ctime));
        set(valid, Valid::BTIME, &mut attributes.btime, Timestamp::from_seconds(body.btime));
        set(valid, Valid::SIZE, &mut attributes.size, body.size);
        set(valid, Valid::BLOCKS, &mut attributes.blocks, body.blocks);
        if !valid.contains(Valid::SIZE) {
            set(valid, Valid::LAZYSIZE, &mut attributes.size, body.size);
            set(valid, Valid::LAZYBLOCKS, &mut attributes.blocks, body.blocks);
        }
        attributes.block_size = match attributes.file_type() {
            FileType::Regular => BLOCK_SIZE_FILE,
            _ => BLOCK_SIZE_OTHER,
        };
        self.last_attributes = Some(attributes);
    }
}

fn set<T>(valid: Valid, bit: Valid, field: &mut T, value: T) {
    if valid.contains(bit) {
        *field = value;
    }
}

/// What the bytes of a layout mean; `None` if the MDT sent none.
pub(crate) fn read_layout(ea: Option<&Bytes>) -> LayoutState {
    let Some(ea) = ea else { return LayoutState::Empty };
    match sheen_layout::parse(ea) {
        Ok(Some(layout)) => LayoutState::Placed(Arc::new(layout)),
        Ok(None) => LayoutState::Empty,
        Err(error) => {
            tracing::debug!(%error, "file cannot be read or written");
            LayoutState::Foreign
        }
    }
}
