//! Reads and writes, cut into pieces for each object; appends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_layout::{Place, PlacedPiece};
use sheen_types::futures;
use sheen_types::{Errno, Extent, LockMode};

use super::file::File;
use super::layout_guard::Refusal;
use super::lock_loss::LockUse;
use super::object::{Object, PendingInvalidation};
use super::read::{trim, zeros};
use super::waiting_calls::{CallPages, WaitingCall};
use super::{IoOptions, Locking};

impl File {
    /// Reads without looking ahead.
    pub(super) async fn read_pieces(
        &self,
        offset: u64,
        length: u64,
        options: IoOptions,
    ) -> Result<Vec<Bytes>, Refusal> {
        let losses = self.losses();
        let (mut out, got) = self.read_once(offset, length, options, false).await?;
        // Lustre's servers fill the last page up: what comes from behind the end is no data.
        let sure = got.min(self.known_size().saturating_sub(offset));
        if sure == length {
            return Ok(out);
        }
        // What an object does not have is a hole, unless the file ends before it, or it was written since:
        // what a reported size counts is there for a second read. This does not wait for pending
        // invalidations, as attributes do: the kernel holds the pages of this read.
        let waiting_call = options.call_pages.map(|call_pages| self.enter_waiting_call(call_pages));
        self.ask_size().await?;
        // Objects that belong to another file by now say nothing.
        self.layout_version.check()?;
        let there = self.known_size().saturating_sub(offset).min(length);
        if there > sure {
            (out, _) = self.read_once(offset, there, options, false).await?;
        }
        drop(waiting_call);
        // From here on a revocation waits for the pages again; one that did not wait is counted.
        if let Some(call_pages) = options.call_pages
            && self.losses() != losses
        {
            return self.read_again(offset, length, (options, call_pages)).await;
        }
        trim(&mut out, there);
        Ok(out)
    }

    /// Reads once more what was read under a lock that was revoked without the pages which the kernel holds
    /// for this read, under locks that are held until all has come. The size is asked for before: with such
    /// locks in use this waits for no server of other bytes.
    async fn read_again(
        &self,
        offset: u64,
        length: u64,
        (options, call_pages): (IoOptions, CallPages),
    ) -> Result<Vec<Bytes>, Refusal> {
        let range = Extent::of_length(offset, length).ok_or(Errno::EOVERFLOW)?;
        let waiting_call = self.enter_waiting_call(call_pages);
        self.ask_size().await?;
        let locks = self.use_locks(range, LockMode::Pr, options.locking).await?;
        let (mut out, _) = self.read_once(offset, length, options, true).await?;
        let there = self.known_size().saturating_sub(offset).min(length);
        drop(waiting_call);
        drop(locks);
        self.layout_version.check()?;
        trim(&mut out, there);
        Ok(out)
    }

    /// The range with zeros for what the objects do not have, and how many bytes come before the first
    /// of these. The caller uses locks on all if `is_locked`.
    async fn read_once(
        &self,
        offset: u64,
        length: u64,
        options: IoOptions,
        is_locked: bool,
    ) -> Result<(Vec<Bytes>, u64), Refusal> {
        let cut: Vec<_> = self.layout.pieces(offset, length).collect();
        let range = Extent::of_length(offset, length).filter(|_| !is_locked);
        let read = match (&cut[..], range) {
            ([piece], _) => vec![self.read_piece(piece, options, is_locked).await],
            (pieces, Some(range)) => self.read_together(pieces, range, options).await?,
            (pieces, None) => {
                let all = pieces.iter().map(|piece| self.read_piece(piece, options, is_locked));
                futures::all(all.collect()).await
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

    /// Pieces of several objects, from `range` of the file.
    ///
    /// The kernel holds the pages of all until the last has come, and that one may wait for a lock. As while
    /// several objects are written, the lock of another may be revoked in the meantime, without its pages:
    /// what was read under it must not fill them. Then all is read once more, under locks that are held until
    /// all has come.
    async fn read_together(
        &self,
        pieces: &[PlacedPiece],
        range: Extent,
        options: IoOptions,
    ) -> Result<Vec<Result<Vec<Bytes>, Refusal>>, Refusal> {
        let all = |is_locked| pieces.iter().map(move |it| self.read_piece(it, options, is_locked));
        let losses = self.losses();
        let waiting_call = options.call_pages.map(|call_pages| self.enter_waiting_call(call_pages));
        let read = futures::all(all(false).collect()).await;
        drop(waiting_call);
        // From here on a lock that goes waits for the pages again; one that has not is counted.
        let (Some(call_pages), false) = (options.call_pages, self.losses() == losses) else {
            return Ok(read);
        };
        let waiting_call = self.enter_waiting_call(call_pages);
        let locks = self.use_locks(range, LockMode::Pr, options.locking).await?;
        let read = futures::all(all(true).collect()).await;
        drop(waiting_call);
        drop(locks);
        Ok(read)
    }

    /// One of them; the caller uses a lock on it if `is_locked`.
    async fn read_piece(
        &self,
        piece: &PlacedPiece,
        options: IoOptions,
        is_locked: bool,
    ) -> Result<Vec<Bytes>, Refusal> {
        // A hole, if the file goes on behind it.
        let Some(object) = self.object_of(piece) else { return Ok(Vec::new()) };
        let (start, end) = (piece.object_offset, piece.object_offset + piece.length);
        match is_locked {
            true => Ok(object.read_locked(start, end, options).await?),
            false => object.read(start, end, options, &self.layout_version).await,
        }
    }

    pub(super) fn object_of(&self, piece: &PlacedPiece) -> Option<&Arc<Object>> {
        match piece.place {
            Place::Object(index) => self.objects.get(index),
            Place::Absent => None,
        }
    }

    /// Writes all of `data`. The caller uses locks on all if `is_locked`.
    ///
    /// The kernel holds the pages of all pieces until the last is written, and that one may wait for a lock.
    /// In the meantime the lock of one that is written may be revoked, and must not wait for its pages: the
    /// client that wants it may hold what this call waits for, as two that write blocks across the same
    /// border of stripes do.
    pub(super) async fn write_pieces(
        &self,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        options: IoOptions,
        is_locked: bool,
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
                match is_locked {
                    true => Ok(object.write_locked(at, part, owner, options).await?),
                    false => object.write(at, part, owner, options, &self.layout_version).await,
                }
            }
        };
        match &cut[..] {
            [piece] => one(piece).await,
            pieces => {
                let losses = self.losses();
                let _waiting_call =
                    options.call_pages.map(|call_pages| self.enter_waiting_call(call_pages));
                let written = futures::all_ok(pieces.iter().map(one).collect()).await;
                if !is_locked && self.losses() != losses {
                    self.drop_pages(offset, data.len() as u64).await;
                }
                written
            }
        }
    }

    /// See [`Object::drop_pages`]: of all that a call has written; the call knows what the kernel holds.
    pub(super) async fn drop_pages(&self, offset: u64, length: u64) {
        let range = Extent::of_length(offset, length);
        for (object, part) in range.map(|range| self.parts(range)).unwrap_or_default() {
            object.drop_pages(part, None).await;
        }
    }

    /// The kernel holds these pages for a call that may have to wait for locks.
    pub(super) fn enter_waiting_call(&self, call_pages: CallPages) -> Option<WaitingCall<'_>> {
        let object = self.objects.first()?;
        Some(object.target.shared.waiting_calls.enter(object.file, call_pages))
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
    /// The kernel does not put these bytes into its pages. It drops the page in which it believes them to be
    /// before it sends them, but a read beside this call may have brought that page back, with zeros in their
    /// place, under the very lock that is used here.
    pub(super) async fn append(
        &self,
        expected_end: u64,
        data: Bytes,
        owner: (u32, u32),
        options: IoOptions,
    ) -> Result<u64, Refusal> {
        let append_guard = self.layout_version.layout_guard.append.lock().await;
        let losses = self.losses();
        let locks = self.use_locks(Extent::ALL, LockMode::Pw, options.locking).await?;
        for object in self.objects.iter() {
            let is_vouched = object.state.lock().is_vouched;
            if !is_vouched {
                object.glimpse().await?;
            }
        }
        let offset = self.known_size();
        let data = self.within_layout(offset, data)?;
        let length = data.len() as u64;
        self.check_end(offset, length)?;
        self.check_objects(offset, length)?;
        // From when the size counts these bytes until such a page is gone.
        let pending: Vec<PendingInvalidation> =
            self.objects.iter().map(PendingInvalidation::new).collect();
        self.write_pieces(offset, data, owner, options, true).await?;
        let end_was_read =
            self.layout_version.layout_guard.end_was_read.swap(false, Ordering::AcqRel);
        let dropped = end_was_read || offset != expected_end || losses != self.losses();
        let (first, last) = (offset.min(expected_end), offset.max(expected_end));
        if dropped {
            self.drop_pages(first, last - first + length).await;
        }
        drop((pending, locks, append_guard));
        if dropped {
            self.wait_for_invalidations().await;
        }
        Ok(offset)
    }

    pub(super) async fn use_locks(
        &self,
        extent: Extent,
        mode: LockMode,
        locking: Locking,
    ) -> Result<Vec<LockUse>, Refusal> {
        let options = IoOptions { locking, ..IoOptions::default() };
        let mut locks = Vec::with_capacity(self.objects.len());
        // In stripe order: two appenders that each hold what the other waits for would never end.
        for object in self.objects.iter() {
            if let Some(range) = object.mapping.lock_extent(extent) {
                locks.push(object.use_lock(range, mode, options, &self.layout_version).await?);
            }
        }
        Ok(locks)
    }
}
