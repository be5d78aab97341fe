//! Reads and writes, cut into pieces for each object; appends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_layout::{Place, PlacedPiece};
use sheen_types::{Errno, Extent, LockMode};

use super::How;
use super::asked::Asking;
use super::course::Refusal;
use super::file::File;
use super::object::{Debt, Lease, Object};
use super::read::{trim, zeros};
use crate::join;

impl File {
    /// Reads without looking ahead.
    pub(super) async fn read_pieces(
        &self,
        offset: u64,
        length: u64,
        how: How,
    ) -> Result<Vec<Bytes>, Refusal> {
        let (mut out, got) = self.read_once(offset, length, how).await?;
        // Lustre's servers fill the last page up: what comes from behind the end is no data.
        let sure = got.min(self.known_size().saturating_sub(offset));
        if sure == length {
            return Ok(out);
        }
        // What an object does not have is a hole, unless the file ends before it, or it was written
        // since: what a size counts that was told before is there for a second read.
        // Not waiting for pages that the kernel owes, as attributes do: it holds those of this read.
        self.ask_size().await?;
        // Objects that are another file's by now tell nothing.
        self.seen.check()?;
        let length = self.known_size().saturating_sub(offset).min(length);
        if length > sure {
            (out, _) = self.read_once(offset, length, how).await?;
        }
        trim(&mut out, usize::try_from(length).map_err(|_| Errno::EOVERFLOW)?);
        Ok(out)
    }

    /// The range with zeros for what the objects do not have, and how many bytes come before the first
    /// of these.
    async fn read_once(
        &self,
        offset: u64,
        length: u64,
        how: How,
    ) -> Result<(Vec<Bytes>, u64), Refusal> {
        let cut: Vec<_> = self.layout.pieces(offset, length).collect();
        let one = |piece: &PlacedPiece| {
            let object = self.object_of(piece).cloned();
            let (start, end) = (piece.object_offset, piece.object_offset + piece.length);
            async move {
                match object {
                    Some(object) => object.read(start, end, how, &self.seen).await,
                    // A hole, if the file goes on behind it.
                    None => Ok(Vec::new()),
                }
            }
        };
        let read = match &cut[..] {
            [piece] => vec![one(piece).await],
            pieces => {
                // As while several objects are written: see there. Pages for which a lock went before
                // the last piece came are dropped when the kernel has them.
                let held = self.asking(offset, length as usize);
                let read = join::all(pieces.iter().map(one).collect()).await;
                drop(held);
                read
            }
        };
        let mut out = Vec::new();
        // Behind the last component there is nothing to ask.
        let mut sure: u64 = cut.iter().map(|piece| piece.length).sum();
        for (piece, read) in cut.iter().zip(read) {
            let read = read?;
            let got: u64 = read.iter().map(|part| part.len() as u64).sum();
            out.extend(read);
            if got < piece.length {
                sure = sure.min(piece.file_offset - offset + got);
            }
            out.extend(zeros(piece.length - got));
        }
        Ok((out, sure))
    }

    fn object_of(&self, piece: &PlacedPiece) -> Option<&Arc<Object>> {
        match piece.place {
            Place::Object(index) => self.objects.get(index),
            Place::Absent => None,
        }
    }

    /// Writes all of `data`. The caller has all leases if `is_leased`.
    ///
    /// The kernel holds the pages of all pieces until the last is written, and that one may wait for
    /// a lock. Meanwhile the lock of one that is written may go, and must not wait for its pages: the
    /// client that wants it may hold what this call waits for, as two that write blocks across the
    /// same border of stripes do.
    pub(super) async fn write_pieces(
        &self,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        how: How,
        is_leased: bool,
    ) -> Result<(), Refusal> {
        self.check_objects(offset, data.len() as u64)?;
        let cut: Vec<_> = self.layout.pieces(offset, data.len() as u64).collect();
        let one = |piece: &PlacedPiece| {
            let object = self.object_of(piece).cloned();
            let from = (piece.file_offset - offset) as usize;
            let part = data.slice(from..from + piece.length as usize);
            let at = piece.object_offset;
            async move {
                let object = object.ok_or(Errno::EIO)?;
                match is_leased {
                    true => Ok(object.write_leased(at, part, owner, how).await?),
                    false => object.write(at, part, owner, how, &self.seen).await,
                }
            }
        };
        match &cut[..] {
            [piece] => one(piece).await,
            pieces => {
                let losses = self.losses();
                let held = self.asking(offset, data.len());
                let written = join::all_ok(pieces.iter().map(one).collect()).await;
                drop(held);
                if !is_leased && self.losses() != losses {
                    self.drop_pages(offset, data.len() as u64).await;
                }
                written
            }
        }
    }

    /// See [`Object::drop_pages`]: of all that a call has written.
    async fn drop_pages(&self, offset: u64, length: u64) {
        let range = Extent::of_length(offset, length);
        for (object, part) in range.map(|range| self.parts(range)).unwrap_or_default() {
            object.drop_pages(part).await;
        }
    }

    /// The kernel holds pages of this range of the file for a call that may have to wait for locks.
    fn asking(&self, offset: u64, length: usize) -> Option<Asking<'_>> {
        let (object, range) = (self.objects.first()?, Extent::of_length(offset, length as u64)?);
        Some(object.osc.shared.asked.ask(object.file, range))
    }

    /// Refuses bytes for which there are no objects, now or ever.
    pub(super) fn check_objects(&self, offset: u64, length: u64) -> Result<(), Refusal> {
        let Some(extent) = Extent::of_length(offset, length) else { return Ok(()) };
        if extent.end > self.layout.last_byte() {
            return Err(Errno::ENODATA.into());
        }
        match self.layout.lacks_objects(extent) {
            true => Err(Refusal::NoObjects(extent)),
            false => Ok(()),
        }
    }

    /// Locks everything from where the file may end on, writes there.
    ///
    /// The kernel does not put these bytes into its pages. It drops the page in which it believes them
    /// to be before it asks, but a read beside this call may have brought that page back, with zeros in
    /// their place, under the very lock that is used here.
    pub(super) async fn append(
        &self,
        thought: u64,
        data: Bytes,
        owner: (u32, u32),
        how: How,
    ) -> Result<u64, Refusal> {
        let turn = self.seen.course.append.lock().await;
        let losses = self.losses();
        let held = self.asking(thought, data.len());
        let leases = self.lease_all(Extent::ALL, LockMode::Pw).await?;
        drop(held);
        for object in self.objects.iter() {
            let is_told = object.state.lock().is_told;
            if !is_told {
                object.glimpse().await?;
            }
        }
        let offset = self.known_size();
        let data = self.within_layout(offset, data)?;
        let length = data.len() as u64;
        self.check_end(offset, length)?;
        self.check_objects(offset, length)?;
        // From when the size counts these bytes until such a page is gone.
        let debts: Vec<Debt> = self.objects.iter().map(Debt::new).collect();
        self.write_pieces(offset, data, owner, how, true).await?;
        let end_was_read = self.seen.course.end_was_read.swap(false, Ordering::AcqRel);
        let dropped = end_was_read || offset != thought || losses != self.losses();
        let (first, last) = (offset.min(thought), offset.max(thought));
        if dropped {
            self.drop_pages(first, last - first + length).await;
        }
        drop((debts, leases, turn));
        if dropped {
            self.pages_given_up().await;
        }
        Ok(offset)
    }

    async fn lease_all(&self, extent: Extent, mode: LockMode) -> Result<Vec<Lease>, Refusal> {
        let mut leases = Vec::with_capacity(self.objects.len());
        // In stripe order: two appenders that each hold what the other waits for would never end.
        for object in self.objects.iter() {
            if let Some(range) = object.mapping.lock_extent(extent) {
                leases.push(object.lease(range, mode, None, &self.seen).await?);
            }
        }
        Ok(leases)
    }
}
