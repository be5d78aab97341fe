//! One object of a file: what of it is cached, and under which locks.
//!
//! Bytes are *dirty* (accepted, not sent), *writing* (sent, not answered) or *clean* (read ahead, not
//! asked for yet). What was read or written is kept by the kernel, not here.
//!
//! What always holds: dirty and clean bytes lie under a lock of ours; two writes of the same byte are
//! never under way at once; an older write never follows a newer one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::Raid0;
use sheen_ldlm::{LockFlags, Policy};
use sheen_types::{Errno, Extent, Fid, LockMode, ResourceName, Timestamp};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ost::{Obdo, OstId, OstLvb};
use tokio::sync::Notify;

use super::extents::Extents;
use super::osc::Osc;
use crate::locks::{Ask, Held};

/// An object in use.
pub(super) struct Object {
    pub(super) osc: Arc<Osc>,
    pub(super) oi: OstId,
    pub(super) resource: ResourceName,
    /// Whose object it is, and which stripe.
    pub(super) file: Fid,
    pub(super) stripe: u32,
    pub(super) raid0: Raid0,
    pub(super) state: Mutex<State>,
    /// Writing bytes became fewer, or a guest left.
    pub(super) changed: Notify,
}

/// What is known and held.
#[derive(Default)]
pub(super) struct State {
    pub(super) dirty: Extents,
    pub(super) writing: Extents,
    pub(super) clean: Extents,
    pub(super) known: Known,
    /// Who pays for new blocks.
    pub(super) owner: (u32, u32),
    /// Something was written since the last sync.
    pub(super) unsynced: bool,
    /// The first failure of write-back nobody has heard of.
    pub(super) error: Option<Errno>,
    /// A write-back of all that is dirty is going to happen.
    pub(super) scheduled: bool,
    leaving: Vec<Arc<Leaving>>,
    /// What writes that wait for a lock are about to write: the kernel holds those pages.
    claims: Vec<Extent>,
}

/// Size and times, as the OST and our own writes say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

/// A lock on its way back. The kernel gives up its pages of this range; reads and writes that hold
/// such pages must end first, and may use the lock until then.
struct Leaving {
    extent: Extent,
    is_writer: bool,
    guests: AtomicUsize,
}

/// Pages are aligned to this; a stripe begins and ends with a page.
const PAGE_BYTES: u64 = 4096;

/// A write that waits for its lock.
struct Claim<'a> {
    object: &'a Object,
    extent: Extent,
}

impl<'a> Claim<'a> {
    fn new(object: &'a Object, extent: Extent) -> Self {
        let start = extent.start / PAGE_BYTES * PAGE_BYTES;
        let end = extent.end | (PAGE_BYTES - 1);
        let extent = Extent { start, end };
        object.state.lock().claims.push(extent);
        Self { object, extent }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let claims = &mut self.object.state.lock().claims;
        if let Some(index) = claims.iter().position(|claim| *claim == self.extent) {
            claims.swap_remove(index);
        }
    }
}

/// `extent` without the parts that are claimed, and those parts.
fn divide(extent: Extent, claims: &[Extent]) -> (Vec<Extent>, Vec<Extent>) {
    let mut claimed: Vec<Extent> = claims
        .iter()
        .filter(|claim| claim.overlaps(&extent))
        .map(|claim| Extent {
            start: claim.start.max(extent.start),
            end: claim.end.min(extent.end),
        })
        .collect();
    claimed.sort_unstable_by_key(|claim| claim.start);
    let mut free = Vec::with_capacity(claimed.len() + 1);
    let mut from = Some(extent.start);
    for claim in &claimed {
        if let Some(start) = from.filter(|start| *start < claim.start) {
            free.push(Extent { start, end: claim.start - 1 });
        }
        from = from.and_then(|start| claim.end.checked_add(1).map(|next| next.max(start)));
    }
    if let Some(start) = from.filter(|start| *start <= extent.end) {
        free.push(Extent { start, end: extent.end });
    }
    (free, claimed)
}

/// The right to touch a range: a lock in use, or a seat under one that leaves.
pub(super) enum Lease {
    /// A lock.
    Held { _lock: Held },
    /// A seat.
    Guest(Guest),
}

/// A seat under a lock that leaves.
pub(super) struct Guest {
    object: Arc<Object>,
    leaving: Arc<Leaving>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.leaving.guests.fetch_sub(1, Ordering::AcqRel);
        self.object.changed.notify_waiters();
    }
}

impl Object {
    /// A lock on `extent`: one that we have, or a new one. No RPC for the first.
    pub(super) async fn lease(
        self: &Arc<Self>,
        extent: Extent,
        mode: LockMode,
    ) -> Result<Lease, Errno> {
        let policy = Policy::extent(extent);
        if let Some(lock) = self.osc.locks().find(self.resource, policy, mode) {
            return Ok(Lease::Held { _lock: lock });
        }
        if let Some(guest) = self.guest(extent, mode) {
            return Ok(Lease::Guest(guest));
        }
        let ask = Ask { resource: self.resource, policy, mode, flags: LockFlags::NONE };
        let claim = (mode == LockMode::Pw).then(|| Claim::new(self, extent));
        let (lock, value) = self.osc.locks().enqueue(ask).await?;
        drop(claim);
        self.learn(&value);
        Ok(Lease::Held { _lock: lock })
    }

    fn guest(self: &Arc<Self>, extent: Extent, mode: LockMode) -> Option<Guest> {
        let state = self.state.lock();
        let fits = |leaving: &&Arc<Leaving>| {
            leaving.extent.contains(&extent) && (leaving.is_writer || mode == LockMode::Pr)
        };
        let leaving = Arc::clone(state.leaving.iter().find(fits)?);
        leaving.guests.fetch_add(1, Ordering::AcqRel);
        drop(state);
        Some(Guest { object: Arc::clone(self), leaving })
    }

    /// Whether locks of ours keep others from changing size and times.
    pub(super) fn is_covered(&self) -> bool {
        let size = self.state.lock().known.size;
        let extent = Extent { start: size, end: Extent::EOF };
        self.osc.locks().covers(self.resource, Policy::extent(extent), LockMode::Pr)
    }

    /// Takes over a lock value block; what we have not written yet counts on top.
    pub(super) fn learn(&self, value: &Bytes) {
        let Ok(lvb) = OstLvb::decode(&mut Reader::new(value, ByteOrder::Little)) else { return };
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let mut state = self.state.lock();
        let ours = state.dirty.end().max(state.writing.end());
        let told = Known {
            size: lvb.size.max(ours),
            blocks: lvb.blocks,
            atime: time(lvb.atime, lvb.atime_ns),
            mtime: time(lvb.mtime, lvb.mtime_ns),
            ctime: time(lvb.ctime, lvb.ctime_ns),
        };
        let has_ours = ours > 0;
        let before = state.known;
        state.known = told;
        if has_ours {
            state.known.mtime = told.mtime.max(before.mtime);
            state.known.ctime = told.ctime.max(before.ctime);
        }
    }

    /// Takes over what a reply to a data RPC says: the object's blocks.
    pub(super) fn learn_blocks(&self, oa: &Obdo) {
        self.state.lock().known.blocks = oa.blocks;
    }

    /// What we know, to answer a glimpse.
    pub(super) fn lock_value(&self) -> Bytes {
        let state = self.state.lock();
        let known = state.known;
        let value = OstLvb {
            size: known.size,
            mtime: known.mtime.seconds,
            atime: known.atime.seconds,
            ctime: known.ctime.seconds,
            blocks: known.blocks + state.dirty.bytes().div_ceil(512),
            mtime_ns: known.mtime.nanoseconds,
            atime_ns: known.atime.nanoseconds,
            ctime_ns: known.ctime.nanoseconds,
            padding: 0,
        };
        drop(state);
        let mut writer = Writer::with_capacity(OstLvb::SIZE);
        value.encode(&mut writer);
        writer.into_bytes()
    }

    /// A lock on `extent` goes: the kernel gives its pages up first (writing what it changed), then
    /// what is dirty is written, then what was read ahead is dropped.
    pub(super) async fn lose(self: &Arc<Self>, extent: Extent, is_writer: bool, discard: bool) {
        let leaving = Arc::new(Leaving { extent, is_writer, guests: AtomicUsize::new(0) });
        self.state.lock().leaving.push(Arc::clone(&leaving));
        self.tell_uncovered(extent).await;
        self.see_off(&leaving).await;
        let end = extent.end.saturating_add(1);
        if discard {
            self.discard(extent.start, end);
        } else if is_writer {
            // A failure is kept for the next flush or fsync of the file.
            let _ = self.flush(extent).await;
        }
        self.state.lock().clean.remove(extent.start, end);
    }

    /// Has the kernel give up its pages of `extent`, and waits; but not for those under a write of
    /// ours that itself waits for a lock, perhaps for this very one to go (a read lock from a stat).
    /// Of such pages it lets go as soon as that write is done.
    async fn tell_uncovered(&self, extent: Extent) {
        let Some(events) = self.osc.shared.events() else { return };
        let (free, claimed) = divide(extent, &self.state.lock().claims);
        let uncovered = |extent: &Extent| {
            let range = self.raid0.file_extent(self.stripe, *extent);
            events.uncovered(self.file, range)
        };
        for told in claimed.iter().map(uncovered) {
            self.osc.shared.world.tasks.spawn("pages under a write", told);
        }
        for told in free.iter().map(uncovered).collect::<Vec<_>>() {
            told.await;
        }
    }

    /// No more guests, and waits for those that are there.
    async fn see_off(&self, leaving: &Arc<Leaving>) {
        self.state.lock().leaving.retain(|other| !Arc::ptr_eq(other, leaving));
        loop {
            let left = self.changed.notified();
            if leaving.guests.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }

    /// Throws dirty and clean bytes away.
    pub(super) fn discard(&self, start: u64, end: u64) {
        let mut state = self.state.lock();
        let dropped = state.dirty.remove(start, end);
        state.clean.remove(start, end);
        drop(state);
        // Nobody used the grant: it is ours again.
        self.osc.settle(dropped, dropped);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let dirty = self.state.get_mut().dirty.bytes();
        self.osc.settle(dirty, dirty);
        self.osc.forget(self.resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_told_apart() {
        let extent = |start, end| Extent { start, end };
        let all = Extent::ALL;
        assert_eq!(divide(all, &[]), (vec![all], vec![]));
        assert_eq!(
            divide(all, &[extent(8192, 12287), extent(0, 4095), extent(4096, 9000)]),
            (
                vec![extent(12288, all.end)],
                vec![extent(0, 4095), extent(4096, 9000), extent(8192, 12287)]
            )
        );
        assert_eq!(
            divide(extent(4096, 20479), &[extent(8192, 12287), extent(40960, 45055)]),
            (vec![extent(4096, 8191), extent(12288, 20479)], vec![extent(8192, 12287)])
        );
        assert_eq!(divide(extent(4096, 8191), &[all]), (vec![], vec![extent(4096, 8191)]));
    }
}
