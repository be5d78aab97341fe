//! Data that lies on an MDT (Lustre's Data-on-MDT): objects that are inodes, under inode locks.
//!
//! The `DOM` bit of an inode's lock covers all bytes of its object, their size and their times. It comes with
//! other bits in one lock, by an open or a getattr, or alone when data is asked for. So an MDT has one
//! namespace for both: this module passes the loss of all bits to the inode cache, and that of `DOM` to
//! the page cache. IO, grants and write-back are those of [`super::data_target`].
//!
//! Costs beside an OST's: none. Opening a small file to read brings its bytes along; a lock granted by an
//! open saves the request for one before the first read or write, and the question for the size.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_layout::Mapping;
use sheen_ldlm::Policy;
use sheen_types::{Errno, Extent, Fid, InodeBits, LockMode, ResourceName, Timestamp};
use sheen_wire::ost::OstId;
use tokio::sync::Notify;

use super::data_target::{CoveredData, DataTarget};
use super::object::{Object, ObjectState};
use crate::locks::{ClientNamespace, CoveredCache, LockReference, LostLock};

/// An MDT that was added to a data path.
pub struct AddedMdt {
    /// Its locks, on data and on everything else.
    pub locks: Arc<ClientNamespace>,
    /// Its data.
    pub data: Arc<dyn InodeData>,
}

/// What metadata operations have to do with data on their MDT.
pub trait InodeData: Send + Sync {
    /// A reply has brought bytes of an inode from `offset` on, under a lock that is about to be ours and that
    /// no call can find yet. They serve reads until the returned value is dropped, or the lock is revoked.
    /// `mapping` says which bytes of the file lie there.
    fn insert_inline(
        &self,
        fid: Fid,
        mapping: Mapping,
        offset: u64,
        data: Bytes,
    ) -> Option<InlineData>;

    /// Whether bytes of the inode were accepted here that the MDT has not answered for.
    fn is_dirty(&self, fid: Fid) -> bool;

    /// Times of the inode are about to be set: what is dirty was written before that, and goes to the
    /// MDT with these times. `None` if nothing is.
    fn update_times(&self, fid: Fid, times: NewTimes) -> Option<UpdatedTimes>;
}

/// Times that a program chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTimes {
    /// Last access, if it is set.
    pub atime: Option<Timestamp>,
    /// Last change of data, if it is set.
    pub mtime: Option<Timestamp>,
    /// Last change of anything.
    pub ctime: Timestamp,
}

/// Dirty bytes whose times were set.
pub struct UpdatedTimes {
    object: Arc<Object>,
    before: (Timestamp, Timestamp, Timestamp),
    /// `ObjectState::data_changes` when that was done.
    data_changes: u64,
}

impl UpdatedTimes {
    /// The MDT has not set the times after all.
    pub(crate) fn undo(self) {
        let mut state = self.object.state.lock();
        if state.data_changes == self.data_changes {
            let known = &mut state.known;
            (known.atime, known.mtime, known.ctime) = self.before;
        }
    }
}

/// Bytes that an open has brought. Keeps the object they belong to.
pub struct InlineData {
    object: Arc<Object>,
    start: u64,
    end: u64,
}

/// Bytes of a file from its beginning on, and the lock by which they may be shown.
pub(crate) struct InlineView {
    pub(crate) bytes: Bytes,
    _lock: LockReference,
}

impl InlineData {
    /// The bytes, if they begin the file and nothing has happened to them yet. A revocation of the lock waits
    /// until the view is dropped, and then invalidates the pages made of its bytes.
    pub(crate) fn view(&self) -> Option<InlineView> {
        let Object { target, resource, mapping, .. } = &*self.object;
        if mapping.file_offset(self.start) != 0 {
            return None;
        }
        let whole = Extent { start: self.start, end: self.end.checked_sub(1)? };
        let lock = target.locks().find(*resource, target.policy(whole), LockMode::Pr)?;
        let mut runs = Vec::with_capacity(1);
        let state = self.object.state.lock();
        if state.is_dirty() {
            return None;
        }
        state.clean.over(self.start, self.end, |at, run| runs.push((at, run)));
        drop(state);
        let (at, bytes) = runs.pop().filter(|_| runs.is_empty())?;
        let is_whole = at == self.start && at + bytes.len() as u64 == self.end;
        is_whole.then_some(InlineView { bytes, _lock: lock })
    }
}

impl Drop for InlineData {
    fn drop(&mut self) {
        let mut state = self.object.state.lock();
        state.inline_data -= 1;
        if state.inline_data == 0 {
            state.clean.remove(self.start, self.end);
        }
    }
}

/// The data of one MDT.
pub(super) struct MdtData(pub(super) Arc<DataTarget>);

impl MdtData {
    /// The object of an inode; the one that is in use, if it is.
    ///
    /// # Errors
    /// `EAGAIN` while bytes are flushed that were accepted when the layout was another.
    pub(super) fn object(&self, fid: Fid, mapping: Mapping) -> Result<Arc<Object>, Errno> {
        let target = &self.0;
        let resource = ResourceName::of_fid(fid);
        target.retire_unless(resource, fid, mapping)?;
        Ok(target.object_or_new(resource, |known| Object {
            target: Arc::clone(target),
            oi: OstId::of_fid(fid),
            resource,
            file: fid,
            mapping,
            state: Mutex::new(ObjectState::fresh(known)),
            progress: Notify::new(),
        }))
    }
}

impl InodeData for MdtData {
    fn insert_inline(
        &self,
        fid: Fid,
        mapping: Mapping,
        offset: u64,
        data: Bytes,
    ) -> Option<InlineData> {
        // While older bytes are flushed these may be older still: they are asked for when they are read.
        let object = self.object(fid, mapping).ok()?;
        let (start, end) = (offset, offset.checked_add(data.len() as u64)?);
        {
            let mut state = object.state.lock();
            // The MDT gives none while we may write; one that does sends what is older than ours.
            if state.is_dirty() {
                return None;
            }
            state.clean.insert(start, data);
            state.inline_data += 1;
        }
        Some(InlineData { object, start, end })
    }

    fn is_dirty(&self, fid: Fid) -> bool {
        self.0.is_dirty(ResourceName::of_fid(fid))
    }

    fn update_times(&self, fid: Fid, times: NewTimes) -> Option<UpdatedTimes> {
        let resource = ResourceName::of_fid(fid);
        let object = self.0.is_dirty(resource).then(|| self.0.object(resource))??;
        let (before, data_changes) = {
            let mut state = object.state.lock();
            let known = state.known;
            state.set_times(times);
            ((known.atime, known.mtime, known.ctime), state.data_changes)
        };
        Some(UpdatedTimes { object, before, data_changes })
    }
}

/// What an MDT's locks cover: passes the loss of one to the inode cache and the page cache.
pub(super) struct CoveredInodes {
    pub(super) pages: CoveredData,
    pub(super) inodes: Arc<dyn CoveredCache>,
}

impl CoveredInodes {
    /// Whether the loss of a lock invalidates pages: that of the last lock that covers them.
    fn loses_pages(locks: &ClientNamespace, lost: LostLock) -> bool {
        let dom = Policy::bits(InodeBits::DOM);
        let is_reader = matches!(lost.mode, LockMode::Pr | LockMode::Cr);
        lost.part.inode_bits().contains(InodeBits::DOM)
            && !(is_reader && locks.covers(lost.resource, dom, LockMode::Pr))
    }
}

impl CoveredCache for CoveredInodes {
    fn flush_and_invalidate(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        let metadata = self.inodes.flush_and_invalidate(locks, lost);
        if !Self::loses_pages(locks, lost) {
            return metadata;
        }
        let dropped = self.pages.flush_and_invalidate(locks, lost);
        Box::pin(async move {
            dropped.await;
            metadata.await;
        })
    }

    fn invalidate_evicted(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        let metadata = self.inodes.invalidate_evicted(locks, lost);
        if !lost.part.inode_bits().contains(InodeBits::DOM) {
            return metadata;
        }
        let dropped = self.pages.invalidate_evicted(locks, lost);
        Box::pin(async move {
            dropped.await;
            metadata.await;
        })
    }

    fn learn(&self, resource: ResourceName, policy: &Policy, value: &Bytes) {
        // Most locks on inodes say nothing of data.
        if !value.is_empty() {
            self.pages.learn(resource, policy, value);
        }
    }

    fn cancels_whole_lock(&self, resource: ResourceName) -> bool {
        !self.pages.is_dirty(resource) && self.inodes.cancels_whole_lock(resource)
    }

    fn is_dirty(&self, resource: ResourceName) -> bool {
        self.pages.is_dirty(resource)
    }

    fn glimpse(&self, resource: ResourceName) -> Option<Bytes> {
        self.pages.glimpse(resource)
    }
}
