//! A file as its objects: what concerns all of them.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_layout::Component;
use sheen_types::futures;
use sheen_types::{Errno, Extent, LockMode, Timestamp, Uuid};
use sheen_wire::ost::OstId;

use super::ahead::Ahead;
use super::layout_guard::{LayoutVersion, Refusal};
use super::object::Object;
use super::{DataAttributes, DataFile, FileLayout, GroupLockedFile, IoOptions, Locking, WriteAt};
use crate::types::{Advice, Credentials, Fallocate, LockedAhead, Seek, VersionFlush};

/// One file's data. Cheap to clone: all that counts is shared.
#[derive(Clone)]
pub(super) struct File {
    pub(super) layout: Arc<FileLayout>,
    /// In the order of the layout's objects.
    pub(super) objects: Arc<[Arc<Object>]>,
    pub(super) ahead: Ahead,
    /// When the layout was read.
    pub(super) layout_version: LayoutVersion,
}

impl File {
    pub(super) fn new(
        layout: Arc<FileLayout>,
        objects: Vec<Arc<Object>>,
        layout_version: LayoutVersion,
    ) -> Self {
        Self { layout, objects: objects.into(), ahead: Ahead::default(), layout_version }
    }

    /// See [`Object::wait_for_invalidations`].
    pub(super) async fn wait_for_invalidations(&self) {
        for object in self.objects.iter() {
            object.wait_for_invalidations().await;
        }
    }

    /// Refuses what goes beyond the largest size at once: an OST could only refuse it when it is
    /// flushed.
    pub(super) fn check_end(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes_max());
        end.map(|_| ()).ok_or(Errno::EFBIG)
    }

    /// As much of `data` as the layout has components for from `offset` on.
    pub(super) fn within_layout(&self, offset: u64, data: Bytes) -> Result<Bytes, Errno> {
        match self.layout.room(offset) {
            0 if !data.is_empty() => Err(Errno::ENODATA),
            room if room < data.len() as u64 => Ok(data.slice(..room as usize)),
            _ => Ok(data),
        }
    }

    /// How often locks on the objects were lost.
    pub(super) fn losses(&self) -> u64 {
        self.objects.iter().map(|object| object.state.lock().losses).sum()
    }

    /// Glimpses all objects that no lock covers; whether there was none.
    pub(super) async fn ask_size(&self) -> Result<bool, Errno> {
        let stale: Vec<_> = self.objects.iter().filter(|object| !object.is_covered()).collect();
        let covered = stale.is_empty();
        let glimpses = stale.into_iter().map(|object| object.glimpse());
        futures::all_ok(glimpses.collect()).await?;
        Ok(covered)
    }

    pub(super) fn known_size(&self) -> u64 {
        let end = |object: &Arc<Object>| {
            let size = object.state.lock().known.size;
            object.mapping.file_size(size)
        };
        self.objects.iter().map(end).max().unwrap_or(0)
    }

    pub(super) fn known(&self, covered: bool) -> DataAttributes {
        let mut all = DataAttributes { size: self.known_size(), covered, ..Default::default() };
        for (index, object) in self.objects.iter().enumerate() {
            let state = object.state.lock();
            let known = state.known;
            all.blocks = all.blocks.saturating_add(state.blocks());
            // Whole seconds: all that the wire carries and that other clients see. The first one counts as it
            // is: all may be from before 1970.
            let latest = |all: Timestamp, one: Timestamp| match index {
                0 => Timestamp::from_seconds(one.seconds),
                _ => all.max(Timestamp::from_seconds(one.seconds)),
            };
            all.atime = latest(all.atime, known.atime);
            all.mtime = latest(all.mtime, known.mtime);
            all.ctime = latest(all.ctime, known.ctime);
        }
        all
    }

    /// The part of each object that `range` of the file covers, for calls that go to each.
    pub(super) fn parts(&self, range: Extent) -> Vec<(Arc<Object>, Extent)> {
        let part = |object: &Arc<Object>| {
            let extent = object.mapping.lock_extent(range)?;
            Some((Arc::clone(object), extent))
        };
        self.objects.iter().filter_map(part).collect()
    }

    /// The first byte from `offset` on for which there are no objects.
    fn absent_hole(&self, offset: u64) -> Option<u64> {
        let absent = |part: &&Component| part.object_count() == 0 && part.extent.end >= offset;
        let component = self.layout.components().iter().find(absent)?;
        Some(component.extent.start.max(offset))
    }

    /// Every object that has bytes behind `offset`, and where they begin in it.
    pub(super) fn starts(&self, offset: u64) -> Vec<(&Arc<Object>, u64)> {
        let rest = Extent { start: offset, end: Extent::EOF };
        let with_start = self.objects.iter();
        with_start
            .filter_map(|object| Some((object, object.mapping.object_extent(rest)?.start)))
            .collect()
    }

    /// The first place from `offset` on that one of the objects has found, each from where its bytes
    /// begin.
    pub(super) fn nearest(
        &self,
        offset: u64,
        what: Seek,
        found: Vec<(Option<u64>, &Arc<Object>, u64)>,
    ) -> Option<u64> {
        let absent = self.absent_hole(offset).filter(|_| what == Seek::Hole);
        let offsets = found.into_iter().filter_map(|(found, object, start)| {
            let at = match (found, what) {
                (Some(found), _) => found,
                // An object that ends before its part of the file begins is a hole there.
                (None, Seek::Hole) => start,
                (None, Seek::Data) => return None,
            };
            let at = object.mapping.file_offset(at).max(offset);
            // Behind its component an object says nothing about the file.
            (at <= object.mapping.extent.end).then_some(at)
        });
        offsets.chain(absent).min()
    }

    /// As [`File::parts`], with no byte that is not the file's.
    pub(super) fn parts_exactly(&self, range: Extent) -> Vec<(Arc<Object>, Extent)> {
        let part = |object: &Arc<Object>| {
            let extent = object.mapping.object_extent(range)?;
            Some((Arc::clone(object), extent))
        };
        self.objects.iter().filter_map(part).collect()
    }
}

impl DataFile for File {
    fn read(
        &self,
        offset: u64,
        length: u32,
        options: IoOptions,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, Refusal>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(Vec::new());
            }
            if !options.direct {
                // Before the bytes are read: an append that they lack will see it.
                if offset.saturating_add(length.into()) > self.known_size() {
                    self.layout_version.layout_guard.note_end_read();
                }
                // What is fetched ahead for other calls may wait for the very group lock of this call.
                if options.locking.group == 0 {
                    self.look_ahead(offset, u64::from(length), options.call_pages).await;
                }
            }
            self.read_pieces(offset, u64::from(length), options).await
        })
    }

    fn absent(&self) -> Vec<(Uuid, OstId)> {
        self.objects.iter().filter_map(|object| object.absent()).collect()
    }

    fn write<'a>(
        &'a self,
        at: WriteAt,
        data: Bytes,
        who: &'a Credentials,
        options: IoOptions,
    ) -> BoxFuture<'a, Result<u64, Refusal>> {
        Box::pin(async move {
            let owner = (who.uid, who.gid);
            match at {
                WriteAt::End(expected_end) => self.append(expected_end, data, owner, options).await,
                WriteAt::Offset(offset) if data.is_empty() => Ok(offset),
                WriteAt::Offset(offset) => {
                    let data = self.within_layout(offset, data)?;
                    self.check_end(offset, data.len() as u64)?;
                    let written = match options.is_mapped {
                        true => self.write_mapped(offset, data, owner, options).await,
                        false => self.write_pieces(offset, data, owner, options, false).await,
                    };
                    written.map(|()| offset)
                }
            }
        })
    }

    fn layout(&self) -> &FileLayout {
        &self.layout
    }

    fn is_current(&self) -> bool {
        self.layout_version.is_current()
    }

    fn with_version(&self, layout_version: LayoutVersion) -> Arc<dyn DataFile> {
        Arc::new(Self { layout_version, ..self.clone() })
    }

    fn bytes_max(&self) -> u64 {
        // The first byte that does not fit into one of the objects ends what can be written.
        let end = |object: &Arc<Object>| {
            let first_behind = object.mapping.file_offset(object.target.limits().object_bytes_max);
            if first_behind > object.mapping.extent.end { u64::MAX } else { first_behind }
        };
        self.objects.iter().map(end).min().unwrap_or(u64::MAX).min(i64::MAX as u64)
    }

    fn truncate(
        &self,
        size: u64,
        time: Timestamp,
        locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            if let Some(last) = size.checked_sub(1) {
                self.check_objects(last, 1)?;
            }
            let cut = |object: &Arc<Object>| {
                let size = object.mapping.object_size(size)?;
                let object = Arc::clone(object);
                Some(
                    async move { object.truncate(size, time, locking, &self.layout_version).await },
                )
            };
            futures::all_ok(self.objects.iter().filter_map(cut).collect()).await
        })
    }

    fn flush(&self, range: Extent) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let parts = self.parts(range);
            let all = parts.iter().map(|(object, extent)| object.flush(*extent));
            futures::all(all.collect()).await;
        })
    }

    fn sync(&self, range: Extent) -> BoxFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            let parts = self.parts(range);
            let all = parts.iter().map(|(object, extent)| object.sync(*extent));
            futures::all_ok(all.collect()).await
        })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<DataAttributes, Refusal>> {
        Box::pin(async move {
            loop {
                // Checked again each time: while pages were waited for the locks may have been revoked.
                let covered = self.ask_size().await?;
                let covered = covered || self.objects.iter().all(|object| object.is_covered());
                let known = self.known(covered);
                self.layout_version.check()?;
                if !self.has_pending_invalidations() {
                    return Ok(known);
                }
                self.wait_for_invalidations().await;
            }
        })
    }

    fn attributes_covered(&self) -> Option<DataAttributes> {
        let covered = self.objects.iter().all(|object| object.is_covered());
        let known = covered.then(|| self.known(true));
        known.filter(|_| !self.has_pending_invalidations() && self.is_current())
    }

    fn last_size(&self) -> u64 {
        self.known_size()
    }

    fn has_pending_invalidations(&self) -> bool {
        self.objects.iter().any(|object| object.has_pending_invalidations())
    }

    fn set_times(
        &self,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        ctime: Timestamp,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            self.layout_version.check()?;
            let all = self.objects.iter().map(|object| object.set_times(atime, mtime, ctime));
            Ok(futures::all_ok(all.collect()).await?)
        })
    }

    fn fallocate(
        &self,
        what: Fallocate,
        range: Extent,
        locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            if what != Fallocate::PunchHole {
                let length = range.end - range.start + 1;
                self.check_end(range.start, length)?;
                self.check_objects(range.start, length)?;
            }
            let parts = self.parts_exactly(range);
            let all = parts
                .iter()
                .map(|(object, part)| object.fallocate(what, *part, locking, &self.layout_version));
            futures::all_ok(all.collect()).await
        })
    }

    fn seek(
        &self,
        offset: u64,
        what: Seek,
        locking: Locking,
    ) -> BoxFuture<'_, Result<u64, Refusal>> {
        Box::pin(async move {
            let size = self.attributes().await?.size;
            if offset >= size {
                return Err(Errno::ENXIO.into());
            }
            let seeks = self.starts(offset).into_iter().map(|(object, start)| async move {
                let found = object.seek(start, what, locking, &self.layout_version).await?;
                Ok((found, object, start))
            });
            let found = futures::all(seeks.collect()).await.into_iter();
            let best = self.nearest(offset, what, found.collect::<Result<_, Refusal>>()?);
            match (what, best.filter(|at| *at < size)) {
                (_, Some(at)) => Ok(at),
                (Seek::Hole, None) => Ok(size),
                (Seek::Data, None) => Err(Errno::ENXIO.into()),
            }
        })
    }

    fn data_version(&self, flush: VersionFlush) -> BoxFuture<'_, Result<u64, Refusal>> {
        Box::pin(async move {
            let all = self.objects.iter().map(|object| object.data_version(flush));
            let versions = futures::all(all.collect()).await.into_iter();
            // As Lustre's clients add them up.
            let sum = versions.reduce(|sum, one| Ok(sum?.wrapping_add(one?))).unwrap_or(Ok(0))?;
            self.layout_version.check()?;
            Ok(sum)
        })
    }

    fn idle(&self) {
        self.forget_ahead();
    }

    fn close(&self, flush: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.forget_ahead();
            if flush {
                return self.flush(Extent::ALL).await;
            }
            self.objects.iter().for_each(|object| object.discard(0, u64::MAX));
        })
    }

    fn group_lock(
        &self,
        gid: u64,
        waits: bool,
    ) -> BoxFuture<'_, Result<Arc<dyn GroupLockedFile>, Refusal>> {
        Box::pin(self.group_lock_objects(gid, waits))
    }

    fn advise(&self, advice: Advice, range: Extent) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(self.advise_objects(advice, range))
    }

    fn lock_ahead(
        &self,
        range: Extent,
        mode: LockMode,
        in_background: bool,
    ) -> BoxFuture<'_, Result<LockedAhead, Refusal>> {
        Box::pin(self.lock_objects_ahead(range, mode, in_background))
    }

    fn moved_away(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.forget_ahead();
            self.flush(Extent::ALL).await;
            for object in self.objects.iter() {
                object.invalidate_pages(Extent::ALL).await;
            }
        })
    }
}
