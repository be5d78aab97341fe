//! The loss of a lock: what becomes of the bytes that it covers, and which calls may use it until then.
//!
//! A lock that is being cancelled (revoked, or not worth keeping) is used, until the kernel has dropped its pages, by
//! the calls that the kernel has to make for that; what they write is flushed with the rest before the cancel is sent. A lock that an eviction
//! has taken is used by no call any more. What is dirty under it is discarded and reported in one step, before the
//! kernel's pages are waited for: so what is accepted while they are is accepted under another lock, and stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sheen_io::BoxFuture;
use sheen_types::{Errno, Extent, LockMode};

use super::data_target::DataTargetKind;
use super::group_lock::GroupLockOfCall;
use super::object::Object;
use crate::locks::LockReference;

/// Why a lock is lost, which decides what becomes of the bytes that are dirty under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockLoss {
    /// It is cancelled, because it was revoked or by this client itself: they are flushed.
    Cancelled,
    /// It is revoked because the object is about to be destroyed: no program misses them.
    Discarded,
    /// The target has evicted us, or does not grant the lock again in recovery: they cannot be flushed, and the
    /// program is notified.
    Evicted,
}

/// A range whose lock is being cancelled. The kernel drops its pages of this range; reads and writes that hold
/// such pages must end first, and may use the lock until then.
pub(super) struct CancellingExtent {
    extent: Extent,
    is_writer: bool,
    /// The calls that use the lock since the cancel began.
    users: AtomicUsize,
    /// Whether there was ever one.
    was_used: AtomicBool,
}

/// The use of a lock on a range by one call: of one that is held, or of one that is being cancelled and waits for
/// its users.
pub(super) enum LockUse {
    /// A lock that is held.
    Held(LockReference),
    /// A group lock for this call alone.
    Group(GroupLockOfCall),
    /// A lock that is being cancelled.
    Cancelling { _use: CancellingLockUse },
}

impl LockUse {
    /// Whether an eviction has taken the lock since the call began to use it.
    pub(super) fn is_evicted(&self) -> bool {
        match self {
            Self::Held(lock) => !lock.is_alive(),
            Self::Group(lock) => !lock.is_alive(),
            Self::Cancelling { .. } => false,
        }
    }
}

/// The use of a lock that is being cancelled: its cancel is sent after the end of this.
pub(super) struct CancellingLockUse {
    object: Arc<Object>,
    cancelling: Arc<CancellingExtent>,
}

impl Drop for CancellingLockUse {
    fn drop(&mut self) {
        self.cancelling.users.fetch_sub(1, Ordering::AcqRel);
        self.object.progress.notify_waiters();
    }
}

impl Object {
    /// The use of a lock on `extent` that is being cancelled, if there is one.
    pub(super) fn use_cancelling(
        self: &Arc<Self>,
        extent: Extent,
        mode: LockMode,
    ) -> Option<CancellingLockUse> {
        let state = self.state.lock();
        let fits = |cancelling: &&Arc<CancellingExtent>| {
            cancelling.extent.contains(&extent) && (cancelling.is_writer || mode == LockMode::Pr)
        };
        let cancelling = Arc::clone(state.cancelling.iter().find(fits)?);
        cancelling.users.fetch_add(1, Ordering::AcqRel);
        cancelling.was_used.store(true, Ordering::Release);
        drop(state);
        Some(CancellingLockUse { object: Arc::clone(self), cancelling })
    }

    /// A lock on `extent` is lost. Acts when it is called on what an eviction takes; the future does what takes time.
    pub(super) fn drop_covered(
        self: Arc<Self>,
        extent: Extent,
        mode: LockMode,
        loss: LockLoss,
    ) -> BoxFuture<'static, ()> {
        if loss == LockLoss::Evicted {
            self.discard_evicted(extent);
            return Box::pin(async move { self.invalidate_pages(extent).await });
        }
        let is_writer = matches!(mode, LockMode::Pw | LockMode::Ex | LockMode::Group);
        Box::pin(async move { self.flush_and_invalidate(extent, is_writer, loss).await })
    }

    /// The lock on `extent` is not ours any more, and the OST takes nothing that was written under it.
    fn discard_evicted(&self, extent: Extent) {
        let end = extent.end.saturating_add(1);
        let is_covered = self.is_covered();
        let (lost_any, discarded) = {
            let mut state = self.state.lock();
            state.losses += 1;
            state.data_changes += 1;
            state.is_from_ost &= self.target.kind == DataTargetKind::Ost;
            state.is_vouched &= state.is_from_ost && is_covered;
            state.distrust_size_after_lock(extent);
            // One that was being cancelled is lost with the rest.
            state.cancelling.retain(|cancelling| !extent.contains(&cancelling.extent));
            state.clean.remove(extent.start, end);
            let lost_any = state.dirty.overlaps(extent.start, end);
            if lost_any {
                state.distrust_size();
            }
            (lost_any, state.dirty.release(extent.start, end))
        };
        self.target.return_discarded(discarded);
        if lost_any {
            tracing::warn!(file = %self.file, "the target has forgotten us: written data was lost");
            self.note_failure(Errno::EIO);
        }
    }

    /// A lock on `extent` is cancelled: the kernel drops its pages first (writing what it changed), then what
    /// is dirty is written, then what was read ahead is dropped.
    async fn flush_and_invalidate(
        self: &Arc<Self>,
        extent: Extent,
        is_writer: bool,
        loss: LockLoss,
    ) {
        let (users, was_used) = (AtomicUsize::new(0), AtomicBool::new(false));
        let cancelling = Arc::new(CancellingExtent { extent, is_writer, users, was_used });
        {
            let mut state = self.state.lock();
            state.losses += 1;
            // A lock on an inode may be granted by a reply that says nothing of its data.
            state.is_from_ost &= self.target.kind == DataTargetKind::Ost;
            state.is_vouched &= state.is_from_ost;
            state.cancelling.push(Arc::clone(&cancelling));
        }
        self.invalidate_pages(extent).await;
        self.end_use_of_cancelling(&cancelling).await;
        if cancelling.was_used.load(Ordering::Acquire) {
            // Their reads may have filled pages of the kernel after it dropped the rest.
            self.invalidate_pages(extent).await;
        }
        let end = extent.end.saturating_add(1);
        if loss == LockLoss::Discarded {
            self.discard(extent.start, end);
        } else if is_writer {
            self.flush(extent).await;
        }
        // The lock is not found any more, though its cancel is not sent yet.
        let is_covered = self.is_covered();
        let mut state = self.state.lock();
        state.is_vouched &= is_covered;
        state.clean.remove(extent.start, end);
        if is_writer {
            state.distrust_size_after_lock(extent);
        }
    }

    /// From now on no call may use the lock that is being cancelled; waits for those that do.
    async fn end_use_of_cancelling(&self, cancelling: &Arc<CancellingExtent>) {
        self.state.lock().cancelling.retain(|other| !Arc::ptr_eq(other, cancelling));
        loop {
            let left = self.progress.notified();
            if cancelling.users.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}
