//! One object of a file: what of it is cached, and under which locks.
//!
//! Bytes are *dirty* (accepted, not sent), *writing* (sent, not answered), written *through* (sent without
//! having been dirty, not answered) or *clean* (read ahead, not asked for yet). What was read or written is kept
//! by the kernel, not here.
//!
//! What always holds: dirty and clean bytes lie under a lock of ours, or under one that an eviction took while their
//! write was under way, which takes another before it is answered; two writes of the same byte are never under way
//! at once; an older write never follows a newer one.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_layout::Mapping;
use sheen_types::{Errno, Extent, Fid, LockMode, PAGE_BYTES, ResourceName, Timestamp, Uuid};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ost::{Obdo, OstId, OstLvb};
use tokio::sync::Notify;

use super::IoOptions;
use super::ahead::LockAhead;
use super::data_target::{DataTarget, DataTargetKind};
use super::extents::Extents;
use super::layout_guard::{LayoutVersion, Refusal};
use super::lock_loss::{CancellingExtent, LockUse};
use super::mdt::NewTimes;
use super::waiting_calls::CallPages;
use super::writes_during_reads::ReadsInFlight;
use super::writes_through::WritesThrough;
use crate::locks::LockRequest;
use crate::records::Recorded;
use crate::types::Stale;

/// An object in use.
pub(super) struct Object {
    pub(super) target: Arc<DataTarget>,
    pub(super) oi: OstId,
    pub(super) resource: ResourceName,
    /// Whose object it is, and which bytes of the file it has.
    pub(super) file: Fid,
    pub(super) mapping: Mapping,
    pub(super) state: Mutex<ObjectState>,
    /// Notified when fewer bytes are being written, a use of a lock that is being cancelled has ended, a lock that was
    /// asked for ahead is here or refused, or the kernel has dropped pages: what waits for one of these looks again.
    pub(super) progress: Notify,
}

/// What is known and held.
#[derive(Default)]
pub(super) struct ObjectState {
    pub(super) dirty: Extents,
    pub(super) writing: Extents,
    /// There while any byte is dirty or writing.
    unflushed: Option<Recorded>,
    pub(super) clean: Extents,
    /// The writes in flight that go past the dirty bytes.
    pub(super) through: WritesThrough,
    /// The reads in flight, which need the bytes of each write.
    pub(super) reads: ReadsInFlight,
    /// Counts what made bytes of this object other ones: writes, truncates, punches, bytes that were lost. A read ahead
    /// keeps what it brings only if this is as it was when it was sent.
    pub(super) data_changes: u64,
    pub(super) known: KnownAttributes,
    /// Counts changes of `known`. A glimpse keeps what it brings only if this is as it was when it was sent.
    pub(super) known_version: u64,
    /// Whether the OST said last that it has no such object.
    pub(super) is_absent: bool,
    /// Whether `known` came from the OST. A lock does not prove that: it may be older than this object.
    pub(super) is_from_ost: bool,
    /// Whether it came with a lock that covers the object's end, and none was revoked since that was the last:
    /// whatever else arrives may be older.
    pub(super) is_vouched: bool,
    /// Who is charged for new blocks (quota).
    pub(super) owner: (u32, u32),
    /// Counts changes that the OST has answered and may not have on its disk.
    unsynced_until: u64,
    /// Up to which of them a sync was answered that was sent after them.
    synced_to: u64,
    /// How many opens have brought clean bytes that are kept for them.
    pub(super) inline_data: usize,
    /// It is in the OST's queue of objects to be flushed.
    pub(super) is_queued: bool,
    pub(super) cancelling: Vec<Arc<CancellingExtent>>,
    pub(super) lock_ahead: LockAhead,
    /// Where the last byte ends that was written here under a lock that we still have, 0 if there is
    /// none: what the OST said before it got that byte cannot make the object smaller.
    pub(super) sure_size: u64,
    /// How often a lock was lost.
    pub(super) losses: u64,
    /// How many invalidations of the kernel's pages are pending: their lock was cancelled, or an append
    /// bypassed them.
    pending_invalidations: usize,
}

impl ObjectState {
    /// With the attributes that the OST sent for an earlier object of the same resource, if a lock has
    /// covered them ever since. What that object wrote may not be durable yet.
    pub(super) fn fresh(known: Option<KnownAttributes>) -> Self {
        let is_from_ost = known.is_some();
        let known = known.unwrap_or_default();
        Self { unsynced_until: 1, is_from_ost, is_vouched: is_from_ost, known, ..Self::default() }
    }

    /// The OST has changed the object: a sync that was sent before may not have made that durable.
    pub(super) fn note_unsynced(&mut self) {
        self.unsynced_until += 1;
    }

    /// What a sync that is sent now makes durable, for [`ObjectState::note_synced`]; `None` if all is.
    pub(super) fn unsynced(&self) -> Option<u64> {
        (self.synced_to < self.unsynced_until).then_some(self.unsynced_until)
    }

    /// The OST has answered a sync of the whole object that was sent when `until` was unsynced.
    pub(super) fn note_synced(&mut self, until: u64) {
        self.synced_to = self.synced_to.max(until);
    }

    /// The size counts bytes that are lost: the OST must be asked.
    pub(super) fn distrust_size(&mut self) {
        self.sure_size = 0;
        (self.is_from_ost, self.is_vouched) = (false, false);
    }

    /// Bytes became dirty, or fewer are dirty or writing: the mount's next process must know whether any is.
    pub(super) fn record_unflushed(&mut self, record: impl FnOnce() -> Option<Recorded>) {
        let is_unflushed = !self.dirty.is_empty() || !self.writing.is_empty();
        match (is_unflushed, &self.unflushed) {
            (true, None) => self.unflushed = record(),
            (false, Some(_)) => self.unflushed = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether any byte was written here that the OST has not answered.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.writing.is_empty() || !self.through.is_empty()
    }

    /// Whether that is so of any byte of `start..end`.
    pub(super) fn has_unwritten(&self, start: u64, end: u64) -> bool {
        self.dirty.overlaps(start, end)
            || self.writing.overlaps(start, end)
            || self.through.overlaps(start, end, self.through.last())
    }

    /// Where the last of these bytes ends; 0 if there is none.
    pub(super) fn unwritten_end(&self) -> u64 {
        self.dirty.end().max(self.writing.end()).max(self.through.end())
    }

    /// Blocks of 512 bytes: those that the OST has counted, and what is dirty. What is dirty may lie in blocks that
    /// are counted already, so it makes no more of them than a file without holes has.
    pub(super) fn blocks(&self) -> u64 {
        let counted = self.known.blocks;
        let without_holes = self.known.size.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES / 512);
        let with_dirty = counted.saturating_add(self.dirty.bytes().div_ceil(512));
        with_dirty.min(without_holes.max(counted))
    }

    /// A lock on `extent` under which bytes may have been written is ours no more.
    pub(super) fn distrust_size_after_lock(&mut self, extent: Extent) {
        let last = self.sure_size.checked_sub(1);
        if last.is_some_and(|last| extent.start <= last && last <= extent.end) {
            self.sure_size = 0;
        }
    }

    /// A program has chosen times.
    pub(super) fn set_times(&mut self, times: NewTimes) {
        self.known_version += 1;
        self.known.atime = times.atime.unwrap_or(self.known.atime);
        self.known.mtime = times.mtime.unwrap_or(self.known.mtime);
        self.known.ctime = times.ctime;
    }
}

/// Size and times, as the OST and our own writes say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownAttributes {
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

impl KnownAttributes {
    /// What a lock value block says; `None` if it is none.
    pub(super) fn from_lvb(value: &Bytes) -> Option<Self> {
        let lvb = OstLvb::decode(&mut Reader::new(value, ByteOrder::Little)).ok()?;
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        Some(Self {
            size: lvb.size,
            blocks: lvb.blocks,
            atime: time(lvb.atime, lvb.atime_ns),
            mtime: time(lvb.mtime, lvb.mtime_ns),
            ctime: time(lvb.ctime, lvb.ctime_ns),
        })
    }
}

/// An invalidation of kernel pages is pending until this is dropped.
pub(super) struct PendingInvalidation(Arc<Object>);

impl PendingInvalidation {
    pub(super) fn new(object: &Arc<Object>) -> Self {
        object.state.lock().pending_invalidations += 1;
        Self(Arc::clone(object))
    }
}

impl Drop for PendingInvalidation {
    fn drop(&mut self) {
        self.0.state.lock().pending_invalidations -= 1;
        self.0.progress.notify_waiters();
    }
}

impl Object {
    /// A lock on `extent`: a cached one, or a new one. No RPC for the former. `options` say what the
    /// kernel holds until the caller is done, and which locks it takes; `layout_version` is the layout by which the
    /// object is the file's.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if the layout may have changed before the lock was there.
    pub(super) async fn use_lock(
        self: &Arc<Self>,
        extent: Extent,
        mode: LockMode,
        options: IoOptions,
        layout_version: &LayoutVersion,
    ) -> Result<LockUse, Refusal> {
        let lock = match options.locking.group {
            0 => self.use_lock_unchecked(extent, mode, options).await?,
            group => self.use_group_lock(group).await?,
        };
        layout_version.check()?;
        Ok(lock)
    }

    async fn use_lock_unchecked(
        self: &Arc<Self>,
        extent: Extent,
        mode: LockMode,
        options: IoOptions,
    ) -> Result<LockUse, Errno> {
        let policy = self.target.policy(extent);
        if let Some(lock) = self.target.locks().find(self.resource, policy, mode) {
            return Ok(LockUse::Held(lock));
        }
        if let Some(cancelling) = self.use_cancelling(extent, mode) {
            return Ok(LockUse::Cancelling { _use: cancelling });
        }
        let flags = self.target.growth_flags(options.locking)?;
        let request = LockRequest { resource: self.resource, policy, mode, flags };
        let waiting_call = options
            .call_pages
            .map(|call_pages| self.target.shared.waiting_calls.enter(self.file, call_pages));
        let lock = match (self.target.kind, mode) {
            // A PR lock of ours on the same inode is sure to conflict.
            (DataTargetKind::Mdt, LockMode::Pw) => {
                self.target.locks().enqueue_with_early_cancel(request).await
            }
            _ => self.target.locks().enqueue(request).await,
        };
        let lock = self.note_presence(lock)?;
        drop(waiting_call);
        Ok(LockUse::Held(lock))
    }

    /// Whether locks of ours keep other clients from changing size and times.
    pub(super) fn is_covered(&self) -> bool {
        let size = {
            let state = self.state.lock();
            if !state.is_vouched {
                return false;
            }
            state.known.size
        };
        self.target.covers_end(self.resource, size)
    }

    /// Takes over a lock value block; what we have not written yet counts on top. An OST that cannot read the
    /// object grants a lock without one: what was known is stale then, though the lock is ours.
    ///
    /// `covers_end` says whether the block's lock keeps the end of an object of this size where it is. If not, and
    /// another lock does or did a moment ago, the block may be older than what came with that.
    pub(super) fn learn(&self, value: &Bytes, covers_end: impl FnOnce(u64) -> bool) {
        let lvb = KnownAttributes::from_lvb(value);
        let covers_end = covers_end(lvb.map_or(0, |lvb| lvb.size));
        let mut state = self.state.lock();
        if state.is_vouched && !covers_end {
            return;
        }
        state.is_from_ost = lvb.is_some();
        state.is_vouched = lvb.is_some() && covers_end;
        state.known_version += 1;
        let Some(lvb) = lvb else {
            drop(state);
            return self.note_bad_value(value);
        };
        let ours = state.unwritten_end();
        let lvb = KnownAttributes { size: lvb.size.max(ours).max(state.sure_size), ..lvb };
        let has_ours = ours > 0;
        let before = state.known;
        state.known = lvb;
        if has_ours {
            state.known.mtime = lvb.mtime.max(before.mtime);
            state.known.ctime = lvb.ctime.max(before.ctime);
        }
    }

    /// A lock came with a value block that is none. Of an empty one the target has said why in its own log.
    fn note_bad_value(&self, value: &Bytes) {
        if !value.is_empty() {
            let (target, bytes) = (self.target.channel.target_uuid(), value.len());
            tracing::warn!(%target, file = %self.file, bytes, "a lock value block cannot be read");
        }
    }

    /// Notes what the OST says of whether it has the object.
    pub(super) fn note_presence<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        self.state.lock().is_absent = matches!(answer, Err(Errno::ENOENT));
        answer
    }

    /// Target and object, where the target has none of that name.
    pub(super) fn absent(&self) -> Option<(Uuid, OstId)> {
        let is_absent = self.state.lock().is_absent;
        is_absent.then(|| (self.target.channel.target_uuid(), self.oi))
    }

    /// Takes over what a reply to a data RPC says: the object's blocks.
    pub(super) fn learn_blocks(&self, oa: &Obdo) {
        self.state.lock().known.blocks = oa.blocks;
    }

    /// The reply to a glimpse; `None` if the OST knows better. The size only as far as our locks cover it:
    /// another client may have truncated what lies behind.
    pub(super) fn lock_value(&self) -> Option<Bytes> {
        let is_covered = self.is_covered();
        let state = self.state.lock();
        if !state.is_from_ost && !state.is_dirty() {
            return None;
        }
        let known = state.known;
        let ours = state.sure_size.max(state.unwritten_end());
        let value = OstLvb {
            size: if is_covered { known.size } else { ours },
            mtime: known.mtime.seconds,
            atime: known.atime.seconds,
            ctime: known.ctime.seconds,
            blocks: state.blocks(),
            mtime_ns: known.mtime.nanoseconds,
            atime_ns: known.atime.nanoseconds,
            ctime_ns: known.ctime.nanoseconds,
            padding: 0,
        };
        drop(state);
        let mut writer = Writer::with_capacity(OstLvb::SIZE);
        value.encode(&mut writer);
        Some(writer.into_bytes())
    }

    /// Has the kernel drop pages into which it has put bytes of a write that is done now, because they
    /// may be wrong there: it dropped them with a lost lock while the write was on its way, and a read
    /// may have brought the old bytes back. Called before the write is answered, until when the kernel
    /// holds `call_pages`; the next read gets the new bytes from us.
    pub(super) async fn drop_pages(self: &Arc<Self>, part: Extent, call_pages: Option<CallPages>) {
        let _waiting_call = call_pages
            .map(|call_pages| self.target.shared.waiting_calls.enter(self.file, call_pages));
        self.invalidate_pages(part).await;
    }

    /// Has the kernel drop pages of bytes that are lost. Not waited for: a write that holds one of them may
    /// wait for those that are under way to end.
    pub(super) fn invalidate_lost_pages(self: &Arc<Self>, part: Extent) {
        let Some(events) = self.target.shared.events() else { return };
        let Some(range) = self.mapping.file_extent(part) else { return };
        let invalidation = events.invalidate(self.file, Stale::Pages(range));
        self.defer_invalidation(Box::pin(async move { _ = invalidation.await.done().await }));
    }

    /// The kernel has dropped the pages when `invalidation` is done.
    pub(super) fn defer_invalidation(self: &Arc<Self>, invalidation: BoxFuture<'static, ()>) {
        let pending = PendingInvalidation::new(self);
        let task = async move {
            invalidation.await;
            drop(pending);
        };
        self.target.shared.world.tasks.spawn("pages in use", Box::pin(task));
    }

    /// Whether the kernel still has pages that are to be invalidated. With a size that counts bytes which
    /// these pages lack, the kernel would show zeros: a caller that reports a size reads the size first and
    /// this then.
    pub(super) fn has_pending_invalidations(&self) -> bool {
        self.state.lock().pending_invalidations > 0
    }

    /// Waits until no invalidation of the kernel's pages is pending.
    pub(super) async fn wait_for_invalidations(&self) {
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            if !self.has_pending_invalidations() {
                return;
            }
            progress.await;
        }
    }

    /// Bytes that a write has reported as accepted are lost.
    pub(super) fn note_failure(&self, errno: Errno) {
        // The object is not there: an fsync reports that as lost bytes, not as a missing name.
        let errno = if errno == Errno::ENOENT { Errno::EIO } else { errno };
        if let Some(events) = self.target.shared.events() {
            events.failed(self.file, errno);
        }
    }

    /// Discards dirty and clean bytes.
    pub(super) fn discard(&self, start: u64, end: u64) {
        let mut state = self.state.lock();
        let dropped = state.dirty.release(start, end);
        state.record_unflushed(|| None);
        state.clean.remove(start, end);
        state.data_changes += 1;
        drop(state);
        self.target.return_discarded(dropped);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let dirty = state.dirty.cost();
        let known = Some(state.known).filter(|_| state.is_vouched && dirty == 0);
        self.target.return_discarded(dirty);
        self.target.release_object(self.resource, known);
    }
}
