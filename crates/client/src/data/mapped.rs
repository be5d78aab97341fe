//! What programs changed through mappings, as the kernel writes it back: whole pages.
//!
//! Lustre's client acquires a write lock when a program first stores into a page of a mapping. FUSE reports no such
//! store, so a page may be changed under a lock for reading alone, which other clients share. When one of these is to
//! write, the lock is revoked and the kernel sends the page; a write lock for it is ours only after that client has
//! written, and the page would then put back what it has of before.
//!
//! So of a page for which there is no write lock only those bytes are written that the program has changed: those that
//! differ from what the object has, which is read while the lock for reading is still ours. And none beyond the end of
//! the file: a mapping makes no file longer, but another client may have cut it meanwhile.
//!
//! Cost: two looks for a lock where a write lock is held. Else one read of the pages, from what is cached or from the
//! OST, a comparison, and a piece of dirty bytes for each run of changed ones.

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::{Errno, Extent, LockMode};

use super::IoOptions;
use super::file::File;
use super::layout_guard::Refusal;
use super::lock_loss::LockUse;
use super::object::Object;

impl File {
    /// Writes those bytes of whole pages that a mapping has changed.
    pub(super) async fn write_mapped(
        &self,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        options: IoOptions,
    ) -> Result<(), Refusal> {
        let losses = self.losses();
        let Some(changed) = self.changed_ranges(offset, &data, options).await? else {
            return self.write_pieces(offset, data, owner, options, false).await;
        };
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else { return Ok(()) };
        let span = Extent { start: first.start, end: last.end };
        let waiting = || options.call_pages.map(|pages| self.enter_waiting_call(pages));
        let waiting_call = waiting();
        let mut locks = self.use_locks(span, LockMode::Pw, options.locking).await?;
        drop(waiting_call);
        // Under these locks it stays where it is, if it lies among the changed bytes or before them.
        self.ask_size().await?;
        let size = self.known_size();
        for range in changed.iter().filter(|range| range.start < size) {
            let end = (range.end + 1).min(size);
            let part = data.slice((range.start - offset) as usize..(end - offset) as usize);
            self.write_pieces(range.start, part, owner, options, true).await?;
        }
        if self.losses() != losses {
            let waiting_call = waiting();
            self.drop_pages(offset, data.len() as u64).await;
            // What became dirty after an eviction took a lock is covered again before the write is answered.
            while locks.iter().any(LockUse::is_evicted) {
                drop(locks);
                locks = self.use_locks(span, LockMode::Pw, options.locking).await?;
            }
            drop(waiting_call);
        }
        drop(locks);
        Ok(())
    }

    /// The ranges of the file in which `data` differs from what it has; `None` if locks of ours keep other clients from
    /// writing there, or nothing keeps them.
    async fn changed_ranges(
        &self,
        offset: u64,
        data: &Bytes,
        options: IoOptions,
    ) -> Result<Option<Vec<Extent>>, Errno> {
        let (mut changed, mut is_shared) = (Vec::new(), false);
        for piece in self.layout.pieces(offset, data.len() as u64) {
            let from = (piece.file_offset - offset) as usize;
            let part = &data[from..from + piece.length as usize];
            let range = Extent::of_length(piece.object_offset, piece.length).ok_or(Errno::EFBIG)?;
            let before = match self.object_of(&piece) {
                Some(object) => object.read_shared(range, options).await?,
                None => None,
            };
            is_shared |= before.is_some();
            match before {
                Some(before) => differences(piece.file_offset, part, &before, &mut changed),
                None => changed.extend(Extent::of_length(piece.file_offset, piece.length)),
            }
        }
        Ok(is_shared.then_some(changed))
    }
}

impl Object {
    /// What the object has of `extent`, if a lock of ours for reading alone covers it, which may be one that is being
    /// cancelled.
    async fn read_shared(
        self: &Arc<Self>,
        extent: Extent,
        options: IoOptions,
    ) -> Result<Option<Vec<Bytes>>, Errno> {
        let Some(lock) = self.use_shared_lock(extent, options) else { return Ok(None) };
        let options = IoOptions { direct: false, ..options };
        let before = self.read_locked(extent.start, extent.end + 1, options).await?;
        drop(lock);
        Ok(Some(before))
    }

    fn use_shared_lock(self: &Arc<Self>, extent: Extent, options: IoOptions) -> Option<LockUse> {
        let held = |mode| {
            let policy = self.target.policy(extent);
            self.target.locks().find(self.resource, policy, mode).map(LockUse::Held)
        };
        let cancelling = |mode| {
            let lock = self.use_cancelling(extent, mode)?;
            Some(LockUse::Cancelling { _use: lock })
        };
        let is_ours_alone = || held(LockMode::Pw).or_else(|| cancelling(LockMode::Pw)).is_some();
        if options.locking.group != 0 || is_ours_alone() {
            return None;
        }
        held(LockMode::Pr).or_else(|| cancelling(LockMode::Pr))
    }
}

/// Adds the ranges, counted from `at`, in which `now` differs from `before`; what that lacks at its end was zeros.
fn differences(at: u64, now: &[u8], before: &[Bytes], changed: &mut Vec<Extent>) {
    let before = before.iter().flat_map(|part| part.iter()).copied();
    let before = before.chain(std::iter::repeat(0));
    let mut open: Option<Extent> = None;
    for (index, (now, before)) in now.iter().zip(before).enumerate() {
        let place = at + index as u64;
        open = match (open, *now != before) {
            (Some(range), true) => Some(Extent { end: place, ..range }),
            (None, true) => Some(Extent { start: place, end: place }),
            (open, false) => {
                changed.extend(open);
                None
            }
        };
    }
    changed.extend(open);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found_to_the_byte() {
        let found = |now: &[u8], before: &[&'static [u8]]| {
            let before: Vec<_> = before.iter().map(|part| Bytes::from_static(part)).collect();
            let mut changed = Vec::new();
            differences(100, now, &before, &mut changed);
            changed.into_iter().map(|it| (it.start, it.end)).collect::<Vec<_>>()
        };
        assert_eq!(found(b"abcdef", &[b"abc", b"def"]), []);
        assert_eq!(found(b"aXcdYZ", &[b"abc", b"def"]), [(101, 101), (104, 105)]);
        assert_eq!(found(b"XY\0\0Z", &[b"ab"]), [(100, 101), (104, 104)]);
        assert_eq!(found(b"abZ", &[b"abc"]), [(102, 102)]);
    }
}
