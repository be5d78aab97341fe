//! A file as its objects: cutting calls into pieces, putting answers together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_types::{Errno, Extent, LockMode, Timestamp};

use super::ahead::Ahead;
use super::object::{Debt, Lease, Object};
use super::read::{trim, zeros};
use super::{DataAttributes, DataFile, FileLayout, How, WriteAt};
use crate::join;
use crate::posix::{Credentials, Fallocate, Seek};

/// One file's data.
pub(super) struct File {
    pub(super) layout: Arc<FileLayout>,
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) ahead: Ahead,
    /// Appends of this client queue here: each needs to see where the one before it ended.
    append: tokio::sync::Mutex<()>,
    /// Whether a read may have brought the kernel the page in which the file ends, since an append
    /// last had it dropped.
    end_was_read: AtomicBool,
}

impl File {
    pub(super) fn new(layout: Arc<FileLayout>, objects: Vec<Arc<Object>>) -> Self {
        let ahead = Ahead::default();
        let (append, end_was_read) = (tokio::sync::Mutex::new(()), AtomicBool::new(false));
        Self { layout, objects, ahead, append, end_was_read }
    }

    /// Reads without looking ahead.
    pub(super) async fn read_pieces(
        &self,
        offset: u64,
        length: u64,
        how: How,
    ) -> Result<Vec<Bytes>, Errno> {
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
    ) -> Result<(Vec<Bytes>, u64), Errno> {
        let cut: Vec<_> = self.layout.raid0.pieces(offset, length).collect();
        let one = |piece: &sheen_layout::Piece| {
            let object = Arc::clone(&self.objects[piece.stripe as usize]);
            let (start, end) = (piece.object_offset, piece.object_offset + piece.length);
            async move { object.read(start, end, how).await }
        };
        let read = match &cut[..] {
            [piece] => vec![one(piece).await],
            pieces => join::all(pieces.iter().map(one).collect()).await,
        };
        let mut out = Vec::new();
        let mut sure = length;
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

    async fn write_pieces(
        &self,
        offset: u64,
        data: Bytes,
        owner: (u32, u32),
        how: How,
        is_leased: bool,
    ) -> Result<(), Errno> {
        let cut: Vec<_> = self.layout.raid0.pieces(offset, data.len() as u64).collect();
        let one = |piece: &sheen_layout::Piece| {
            let object = Arc::clone(&self.objects[piece.stripe as usize]);
            let from = (piece.file_offset - offset) as usize;
            let part = data.slice(from..from + piece.length as usize);
            let at = piece.object_offset;
            async move {
                match is_leased {
                    true => object.write_leased(at, part, owner, how).await,
                    false => object.write(at, part, owner, how).await,
                }
            }
        };
        match &cut[..] {
            [piece] => one(piece).await,
            pieces => join::all_ok(pieces.iter().map(one).collect()).await,
        }
    }

    /// Locks everything from where the file may end on, writes there.
    ///
    /// The kernel does not put these bytes into its pages. It drops the page in which it believes them
    /// to be before it asks, but a read beside this call may have brought that page back, with zeros in
    /// their place, under the very lock that is used here.
    async fn append(
        &self,
        thought: u64,
        data: Bytes,
        owner: (u32, u32),
        how: How,
    ) -> Result<u64, Errno> {
        let turn = self.append.lock().await;
        let pages = Extent::of_length(thought, data.len() as u64);
        let losses = self.losses();
        let leases = self.lease_all(Extent::ALL, LockMode::Pw, pages).await?;
        for object in &self.objects {
            let is_told = object.state.lock().is_told;
            if !is_told {
                object.glimpse().await?;
            }
        }
        let offset = self.known_size();
        self.check_end(offset, data.len() as u64)?;
        let length = data.len() as u64;
        // From when the size counts these bytes until such a page is gone.
        let debts: Vec<Debt> = self.objects.iter().map(Debt::new).collect();
        self.write_pieces(offset, data, owner, how, true).await?;
        let end_was_read = self.end_was_read.swap(false, Ordering::AcqRel);
        let dropped = end_was_read || offset != thought || losses != self.losses();
        let (first, last) = (offset.min(thought), offset.max(thought));
        let wrong = Extent::of_length(first, last - first + length).filter(|_| dropped);
        for (object, part) in wrong.map(|wrong| self.parts(wrong)).unwrap_or_default() {
            object.drop_pages(part).await;
        }
        drop((debts, leases, turn));
        if dropped {
            self.pages_given_up().await;
        }
        Ok(offset)
    }

    /// See [`Object::owes_pages`].
    fn owes_pages(&self) -> bool {
        self.objects.iter().any(|object| object.owes_pages())
    }

    /// See [`Object::pages_given_up`].
    async fn pages_given_up(&self) {
        for object in &self.objects {
            object.pages_given_up().await;
        }
    }

    /// Refuses what goes beyond the largest size at once: an OST could only refuse it when it is
    /// written back.
    fn check_end(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes_max());
        end.map(|_| ()).ok_or(Errno::EFBIG)
    }

    /// How often locks on the objects were lost.
    fn losses(&self) -> u64 {
        self.objects.iter().map(|object| object.state.lock().losses).sum()
    }

    /// `pages`: those that the kernel holds until the caller is done.
    async fn lease_all(
        &self,
        extent: Extent,
        mode: LockMode,
        pages: Option<Extent>,
    ) -> Result<Vec<Lease>, Errno> {
        let mut leases = Vec::with_capacity(self.objects.len());
        // In stripe order: two appenders that each hold what the other waits for would never end.
        for object in &self.objects {
            if let Some(range) = self.layout.raid0.object_extent(object.stripe, extent) {
                let part = |pages| self.layout.raid0.object_extent(object.stripe, pages);
                leases.push(object.lease(range, mode, pages.and_then(part)).await?);
            }
        }
        Ok(leases)
    }

    /// Glimpses all objects that no lock covers; whether there was none.
    async fn ask_size(&self) -> Result<bool, Errno> {
        let stale: Vec<_> = self.objects.iter().filter(|object| !object.is_covered()).collect();
        let covered = stale.is_empty();
        let glimpses = stale.into_iter().map(|object| object.glimpse());
        join::all_ok(glimpses.collect()).await?;
        Ok(covered)
    }

    fn known_size(&self) -> u64 {
        let end = |object: &Arc<Object>| {
            let size = object.state.lock().known.size;
            self.layout.raid0.file_size(object.stripe, size)
        };
        self.objects.iter().map(end).max().unwrap_or(0)
    }

    fn known(&self, covered: bool) -> DataAttributes {
        let mut all = DataAttributes { size: self.known_size(), covered, ..Default::default() };
        for (index, object) in self.objects.iter().enumerate() {
            let state = object.state.lock();
            let known = state.known;
            let blocks = known.blocks.saturating_add(state.dirty.bytes().div_ceil(512));
            all.blocks = all.blocks.saturating_add(blocks);
            // Whole seconds: all that the wire carries and that others see. The first one counts as
            // it is: all may be from before 1970.
            let later = |all: Timestamp, one: Timestamp| match index {
                0 => Timestamp::from_seconds(one.seconds),
                _ => all.max(Timestamp::from_seconds(one.seconds)),
            };
            all.atime = later(all.atime, known.atime);
            all.mtime = later(all.mtime, known.mtime);
            all.ctime = later(all.ctime, known.ctime);
        }
        all
    }

    /// The part of each object that `range` of the file covers, for calls that go to each.
    pub(super) fn parts(&self, range: Extent) -> Vec<(Arc<Object>, Extent)> {
        let part = |object: &Arc<Object>| {
            let extent = self.layout.raid0.object_extent(object.stripe, range)?;
            Some((Arc::clone(object), extent))
        };
        self.objects.iter().filter_map(part).collect()
    }

    async fn each<F>(
        &self,
        range: Extent,
        call: impl Fn(Arc<Object>, Extent) -> F,
    ) -> Result<(), Errno>
    where
        F: Future<Output = Result<(), Errno>>,
    {
        let calls = self.parts(range).into_iter().map(|(object, extent)| call(object, extent));
        join::all_ok(calls.collect()).await
    }
}

impl DataFile for File {
    fn read(&self, offset: u64, length: u32, how: How) -> BoxFuture<'_, Result<Vec<Bytes>, Errno>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(Vec::new());
            }
            if !how.direct {
                // Before the bytes are looked at: an append that they lack will see it.
                if offset.saturating_add(length.into()) > self.known_size() {
                    self.end_was_read.store(true, Ordering::Release);
                }
                self.look_ahead(offset, u64::from(length)).await;
            }
            self.read_pieces(offset, u64::from(length), how).await
        })
    }

    fn write<'a>(
        &'a self,
        at: WriteAt,
        data: Bytes,
        who: &'a Credentials,
        how: How,
    ) -> BoxFuture<'a, Result<u64, Errno>> {
        Box::pin(async move {
            let owner = (who.uid, who.gid);
            match at {
                WriteAt::End(thought) => self.append(thought, data, owner, how).await,
                WriteAt::Offset(offset) if data.is_empty() => Ok(offset),
                WriteAt::Offset(offset) => {
                    self.check_end(offset, data.len() as u64)?;
                    self.write_pieces(offset, data, owner, how, false).await.map(|()| offset)
                }
            }
        })
    }

    fn bytes_max(&self) -> u64 {
        // The first byte that does not fit into one of the objects ends what can be written.
        let end = |object: &Arc<Object>| {
            let first_behind = object.osc.terms().object_bytes_max;
            self.layout.raid0.file_offset(object.stripe, first_behind)
        };
        self.objects.iter().map(end).min().unwrap_or(u64::MAX).min(i64::MAX as u64)
    }

    fn truncate(&self, size: u64, time: Timestamp) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let cut = |object: &Arc<Object>| {
                let object = Arc::clone(object);
                let size = self.layout.raid0.object_size(object.stripe, size);
                async move { object.truncate(size, time).await }
            };
            join::all_ok(self.objects.iter().map(cut).collect()).await
        })
    }

    fn flush(&self, range: Extent) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let parts = self.parts(range);
            let all = parts.iter().map(|(object, extent)| object.drain(*extent));
            join::all(all.collect()).await;
        })
    }

    fn sync(&self, range: Extent) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(self.each(range, |object, extent| async move { object.sync(extent).await }))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<DataAttributes, Errno>> {
        Box::pin(async move {
            let covered = self.ask_size().await?;
            loop {
                let covered = covered || self.objects.iter().all(|object| object.is_covered());
                let known = self.known(covered);
                if !self.owes_pages() {
                    return Ok(known);
                }
                self.pages_given_up().await;
            }
        })
    }

    fn attributes_covered(&self) -> Option<DataAttributes> {
        let covered = self.objects.iter().all(|object| object.is_covered());
        let known = covered.then(|| self.known(true));
        known.filter(|_| !self.owes_pages())
    }

    fn set_times(
        &self,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        ctime: Timestamp,
    ) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(self.each(Extent::ALL, move |object, _| async move {
            object.set_times(atime, mtime, ctime).await
        }))
    }

    fn fallocate(
        &self,
        what: Fallocate,
        offset: u64,
        length: u64,
    ) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            if what != Fallocate::PunchHole {
                self.check_end(offset, length)?;
            }
            let range = Extent::of_length(offset, length).ok_or(Errno::EFBIG)?;
            self.each(range, |object, extent| async move { object.fallocate(what, extent).await })
                .await
        })
    }

    fn seek(&self, offset: u64, what: Seek) -> BoxFuture<'_, Result<u64, Errno>> {
        Box::pin(async move {
            let size = self.attributes().await?.size;
            if offset >= size {
                return Err(Errno::ENXIO);
            }
            let range = Extent { start: offset, end: Extent::EOF };
            let parts = self.parts(range);
            let seeks = parts.iter().map(|(object, extent)| object.seek(extent.start, what));
            let mut best = None;
            for ((object, extent), found) in parts.iter().zip(join::all(seeks.collect()).await) {
                let found = match (found?, what) {
                    (Some(found), _) => found,
                    // An object that ends before its part of the file begins is a hole there.
                    (None, Seek::Hole) => extent.start,
                    (None, Seek::Data) => continue,
                };
                let place = self.layout.raid0.file_offset(object.stripe, found).max(offset);
                best = Some(best.map_or(place, |best: u64| best.min(place)));
            }
            match (what, best.filter(|place| *place < size)) {
                (_, Some(place)) => Ok(place),
                (Seek::Hole, None) => Ok(size),
                (Seek::Data, None) => Err(Errno::ENXIO),
            }
        })
    }

    fn idle(&self) {
        self.forget_ahead();
    }

    fn close(&self, write_back: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.forget_ahead();
            if write_back {
                return self.flush(Extent::ALL).await;
            }
            self.objects.iter().for_each(|object| object.discard(0, u64::MAX));
        })
    }
}
