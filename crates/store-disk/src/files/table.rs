//! The tables of known and open files, and the operations on data.

use std::{
    io::IoSlice,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, fdatasync, ftruncate, seek},
    io::{Errno, pwritev},
};
use sheen_store::{BlockSums, Damage, DataAdvice, StoreError};

use super::{
    DataFileId, File, Files, SHARDS,
    checked::{Compared, read_at},
    file::KnownSize,
    store_error,
    sums::{BLOCK_BYTES, Block, Sums},
};
use crate::{limits, usage::Usage};

/// Where the size of a file comes from before it is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SizeFrom {
    /// What is known of it: no system call. A write over what another hand has cut off leaves a gap that
    /// the checksums find.
    Memory,
    /// The host: the change could make zeros of what is lost, and the loss could not be detected
    /// afterwards.
    Disk,
}

/// Known files in one shard of the table.
const KNOWN_MAX: usize = limits::KNOWN_FILES_MAX / SHARDS;

impl Files {
    pub(super) fn objects(&self) -> &OwnedFd {
        &self.objects
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    fn shard(&self, (fid, generation): DataFileId) -> usize {
        ((fid.seq ^ u64::from(fid.oid) ^ generation).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60)
            as usize
            % SHARDS
    }

    /// The one [`File`] of this name.
    pub(crate) fn file(&self, name: DataFileId) -> Arc<File> {
        let mut known = self.known[self.shard(name)].lock();
        if let Some(file) = known.get(&name) {
            return file.clone();
        }
        if known.len() >= KNOWN_MAX {
            // No other reference to these is held, and what is known of them is on the disk;
            // whatever was written stays in the list of unsynced names.
            known.retain(|name, file| {
                Arc::strong_count(file) > 1
                    || file.used.swap(false, Ordering::Relaxed)
                    || self.before_evict(*name)
            });
            if known.len() > KNOWN_MAX / 2 {
                known.retain(|name, file| Arc::strong_count(file) > 1 || self.before_evict(*name));
            }
        }
        let has_none = name.1 >= self.no_file_from.load(Ordering::Relaxed);
        let file = Arc::new(File::new(
            name,
            if has_none { KnownSize::NoFile } else { KnownSize::Nothing },
        ));
        known.insert(name, file.clone());
        file
    }

    /// Before the table forgets a file that may have data; says whether it is kept: no.
    fn before_evict(&self, (_, generation): DataFileId) -> bool {
        self.no_file_from.fetch_max(generation + 1, Ordering::Relaxed);
        false
    }

    pub(super) fn forget(&self, name: DataFileId) {
        self.known[self.shard(name)].lock().remove(&name);
    }

    /// Adds a file to the open ones and closes one that was not used for a while.
    pub(super) fn note_open(&self, file: &Arc<File>) {
        let mut closing = Vec::new();
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(file));
        let mut chances = open.len();
        while open.len() > self.open_max {
            let Some(oldest) = open.pop_front() else { break };
            let Some(oldest) = oldest.upgrade() else { continue };
            if chances > 0 && oldest.used.swap(false, Ordering::Relaxed) {
                chances -= 1;
                open.push_back(Arc::downgrade(&oldest));
            } else {
                closing.push(oldest);
            }
        }
        drop(open);
        closing.iter().for_each(|file| file.close());
    }

    /// Short at the end; empty if there is no file. With the CRC-32C of the bytes if it was worked out.
    pub(crate) fn read(
        &self,
        file: &Arc<File>,
        offset: u64,
        length: usize,
    ) -> Result<(Bytes, Option<u32>), StoreError> {
        let end = self.end(file)?;
        let length = usize::try_from(end.saturating_sub(offset)).map_or(length, |l| l.min(length));
        if length == 0 {
            return Ok((Bytes::new(), None));
        }
        let Some(descriptor) = self.descriptor(file, false)? else {
            return self.nothing(file).map(|()| (Bytes::new(), None));
        };
        // Whole blocks, so that they can be compared.
        let (before, behind) = match self.has_checksums() {
            true => {
                let reach = (offset + length as u64).next_multiple_of(BLOCK_BYTES).min(end);
                (offset % BLOCK_BYTES, reach - (offset + length as u64))
            }
            false => (0, 0),
        };
        let (start, whole) = (offset - before, length + (before + behind) as usize);
        let mut bytes = read_at(&descriptor, start, whole)?;
        let mut sum = None;
        if bytes.len() < whole || self.has_checksums() {
            let compared = self.compare_if_on(file, start, &bytes)?;
            sum = compared.as_ref().map(|compared| compared.sum);
            if bytes.len() < whole || compared.is_some_and(|compared| compared.failed.is_some()) {
                (bytes, sum) = self.read_again(file, &descriptor, start, whole)?;
            }
        }
        let exact = (before, behind) == (0, 0);
        let bytes = Bytes::from(bytes);
        let from = (before as usize).min(bytes.len());
        let until = (from + length).min(bytes.len());
        Ok((bytes.slice(from..until), sum.filter(|_| exact)))
    }

    fn compare_if_on(
        &self,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<Compared>, StoreError> {
        match self.has_checksums() {
            true => self.compare(file, offset, bytes).map(Some),
            false => Ok(None),
        }
    }

    /// What was read did not match: once more, while no writer changes the file.
    fn read_again(
        &self,
        file: &File,
        descriptor: &OwnedFd,
        offset: u64,
        length: usize,
    ) -> Result<(Vec<u8>, Option<u32>), StoreError> {
        let _turn = file.changes.lock();
        let bytes = read_at(descriptor, offset, length)?;
        if bytes.len() < length {
            file.note_shrink();
            self.length_now(file)?;
        }
        let compared = self.compare_if_on(file, offset, &bytes)?;
        if let Some(failed) = compared.as_ref().and_then(|compared| compared.failed) {
            self.counts.fail(compared.as_ref().map_or(0, |compared| compared.failures));
            let offset = offset + failed * BLOCK_BYTES;
            return Err(self.damaged(file, Damage::Checksum { offset }));
        }
        Ok((bytes, compared.map(|compared| compared.sum)))
    }

    /// There is no file: whether that may be.
    fn nothing(&self, file: &File) -> Result<(), StoreError> {
        self.load(file)?;
        match file.sums.lock().has_file && !file.is_dead() {
            false => Ok(()),
            true => Err(self.damaged(file, Damage::Lost)),
        }
    }

    /// Runs `change` on the file, making it as needed, and keeps size, usage and dirt in step; then `note`
    /// notes what is known of it now.
    fn change<T>(
        &self,
        file: &Arc<File>,
        size_from: SizeFrom,
        change: impl FnOnce(&OwnedFd) -> Result<T, StoreError>,
        note: impl FnOnce(&mut Sums, T),
    ) -> Result<(), StoreError> {
        let ended = self.ended.read();
        if *ended {
            return Err(StoreError::Closed);
        }
        self.load(file)?;
        let _turn = file.changes.lock();
        let end = match size_from {
            SizeFrom::Memory => self.end_now(file)?,
            SizeFrom::Disk => self.length_now(file)?.0,
        };
        let has_file = {
            let mut sums = file.sums.lock();
            sums.settle(end);
            sums.has_file
        };
        let Some(descriptor) = self.descriptor(file, !has_file)? else {
            self.nothing(file)?;
            return Err(StoreError::Io("a file that was made is not there".to_owned()));
        };
        self.note_counted(file)?;
        let outcome = change(&descriptor);
        // After the change: a sync that cleared the mark before it must not hide it.
        if !file.unsynced.swap(true, Ordering::AcqRel) {
            self.note_unsynced(file.name);
        }
        // And after that: what is kept as synced was listed before.
        let outcome = match outcome {
            Ok(done) => {
                self.note(file, |sums| note(sums, done));
                Ok(())
            }
            Err(error) => {
                self.note_failure(file);
                Err(error)
            }
        };
        self.count_usage(file)?;
        outcome
    }

    /// A change failed: some of it may be there.
    fn note_failure(&self, file: &Arc<File>) {
        let found = self.ask_size(file, &mut file.state.lock());
        self.note(file, |sums| match found {
            Ok((size, _)) => sums.grow(size),
            Err(_) => sums.unsettle(),
        });
    }

    /// Grows as needed. `sums` are those of the bytes, if the caller has them.
    pub(crate) fn write(
        &self,
        file: &Arc<File>,
        offset: u64,
        pieces: &[Bytes],
        sums: Option<BlockSums>,
    ) -> Result<(), StoreError> {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes_max());
        let end = end.ok_or(StoreError::TooLarge)?;
        let missing = || self.missing(file, offset, end);
        let _room = self.ask_again(|| self.usage.reserve(length, missing))?;
        let parts = match (self.has_checksums(), sums) {
            (false, _) => Vec::new(),
            (true, Some(sums)) => sums.blocks,
            (true, None) => BlockSums::of(offset, pieces).blocks,
        };
        let write = |descriptor: &OwnedFd| {
            let blocks = self.blocks_of(file, descriptor, &parts)?;
            self.distrust_blocks(file, offset, end)?;
            let shrinks = file.state.lock().shrinks;
            let outcome = write_pieces(descriptor, offset, pieces);
            match outcome {
                Ok(()) => file.note_written(offset..end, shrinks),
                // Some of it may be there.
                Err(_) => file.note_shrink(),
            }
            outcome.map_err(|errno| store_error("write", errno)).map(|()| blocks)
        };
        let size_from = match self.has_checksums() {
            true => SizeFrom::Memory,
            false => SizeFrom::Disk,
        };
        self.change(file, size_from, write, |sums, blocks| {
            blocks.into_iter().for_each(|(number, block)| sums.set(number, block));
            sums.grow(end);
        })?;
        self.count_written(length);
        Ok(())
    }

    /// Before bytes are overwritten: what is known of their blocks is so no more.
    fn distrust_blocks(&self, file: &Arc<File>, offset: u64, end: u64) -> Result<(), StoreError> {
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        self.load_chunks(file, first, last)?;
        self.announce(file, |sums| {
            let mut matters = false;
            for number in first..=last {
                let start = offset.saturating_sub(number * BLOCK_BYTES);
                if start < sums.block(number).length.into() {
                    sums.set(number, Block::UNKNOWN);
                    matters = true;
                }
            }
            matters
        })
    }

    /// Bytes of holes in a range: what filling it would use.
    fn missing(&self, file: &Arc<File>, offset: u64, end: u64) -> Result<u64, StoreError> {
        let (mut at, mut missing) = (offset, 0);
        while at < end {
            let data = self.seek(file, at, false)?.unwrap_or(end).min(end);
            missing += data - at;
            at = match self.seek(file, data, true)? {
                Some(hole) if data < end => hole,
                _ => end,
            };
        }
        Ok(missing)
    }

    pub(crate) fn truncate(&self, file: &Arc<File>, size: u64) -> Result<(), StoreError> {
        if size > self.bytes_max() {
            return Err(StoreError::TooLarge);
        }
        let truncate = |descriptor: &OwnedFd| {
            let tail = self.cut(file, descriptor, size)?;
            file.note_shrink();
            let outcome = ftruncate(descriptor, size);
            file.note_shrink();
            outcome.map_err(|errno| store_error("truncate", errno)).map(|()| tail)
        };
        self.change(file, SizeFrom::Disk, truncate, |sums, tail| {
            tail.into_iter().for_each(|(number, block)| sums.set(number, block));
            sums.grow(size);
        })
    }

    /// Before a file is cut: what is known of it ends there. Returns what its last block will be.
    fn cut(
        &self,
        file: &Arc<File>,
        descriptor: &OwnedFd,
        size: u64,
    ) -> Result<Option<(u64, Block)>, StoreError> {
        let (last, left) = (size / BLOCK_BYTES, (size % BLOCK_BYTES) as usize);
        self.load_chunks(file, last, last)?;
        self.load_behind(file, last)?;
        let old = file.sums.lock().block(last);
        let tail = match left < old.length.into() {
            true if left > 0 => {
                let bytes = self.beginning(file, descriptor, last, left)?;
                bytes.map(|bytes| (last, Block::of(&bytes[..left])))
            }
            _ => None,
        };
        self.announce(file, |sums| {
            let matters = size < sums.size;
            let first = if left < old.length.into() { last } else { last + 1 };
            sums.forget(first, u64::MAX);
            sums.cut(size.min(sums.size));
            matters
        })?;
        Ok(tail)
    }

    pub(crate) fn punch(
        &self,
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> Result<(), StoreError> {
        let (end, _) = self.size_on_disk(file)?;
        let length = length.min(end.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = |descriptor: &OwnedFd| {
            let edges = self.clear(file, descriptor, offset, offset + length)?;
            let outcome = fallocate(descriptor, flags, offset, length);
            file.note_shrink();
            outcome.map_err(|errno| store_error("punch", errno)).map(|()| edges)
        };
        self.change(file, SizeFrom::Disk, punch, |sums, edges| {
            edges.into_iter().for_each(|(number, block)| sums.set(number, block));
        })
    }

    /// Before bytes become zeros: nothing is known of whole blocks. Returns what the other blocks
    /// will be.
    fn clear(
        &self,
        file: &Arc<File>,
        descriptor: &OwnedFd,
        offset: u64,
        end: u64,
    ) -> Result<Vec<(u64, Block)>, StoreError> {
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        self.load_chunks(file, first, first)?;
        self.load_chunks(file, last, last)?;
        self.load_behind(file, first)?;
        let mut edges = Vec::new();
        for number in [Some(first), (last > first).then_some(last)].into_iter().flatten() {
            let base = number * BLOCK_BYTES;
            let (from, until) = (offset.saturating_sub(base), (end - base).min(BLOCK_BYTES));
            let covered = u64::from(file.sums.lock().block(number).length);
            if covered == 0 || (from == 0 && covered <= until) {
                continue;
            }
            if let Some(mut bytes) = self.beginning(file, descriptor, number, 0)? {
                let until = (until as usize).min(bytes.len());
                let from = (from as usize).min(until);
                bytes[from..until].fill(0);
                edges.push((number, Block::of(&bytes)));
            }
        }
        self.announce(file, |sums| {
            let matters = sums.next_known(first).is_some_and(|known| known <= last);
            sums.forget(first, last + 1);
            matters
        })?;
        Ok(edges)
    }

    pub(crate) fn allocate(
        &self,
        file: &Arc<File>,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), StoreError> {
        if length == 0 {
            return Ok(());
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes_max());
        let end = end.ok_or(StoreError::TooLarge)?;
        let missing = || self.missing(file, offset, end);
        let _room = self.ask_again(|| self.usage.reserve(length, missing))?;
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let allocate = |descriptor: &OwnedFd| {
            let outcome = fallocate(descriptor, flags, offset, length);
            file.note_shrink();
            outcome.map_err(|errno| store_error("allocate", errno))
        };
        self.change(file, SizeFrom::Disk, allocate, |sums, ()| {
            sums.grow(if keep_size { 0 } else { end })
        })
    }

    /// The next data or hole; `None` at or beyond the end, or if there is none. What another hand has cut off
    /// is neither.
    pub(crate) fn seek(
        &self,
        file: &Arc<File>,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        let Some(descriptor) = self.descriptor(file, false)? else {
            return self.nothing(file).map(|()| None);
        };
        let from = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        let found = match seek(&*descriptor, from) {
            Ok(found) => Some(found),
            Err(Errno::NXIO) => None,
            Err(errno) => return Err(store_error("seek", errno)),
        };
        // After the answer: it is of a file that had its length then, or not.
        self.size_on_disk(file)?;
        Ok(found)
    }

    /// Has the kernel read pages ahead, or drop those that are written. It reads as much at once as one request
    /// of the disk takes, and that is at least a piece.
    pub(crate) fn advise(
        &self,
        file: &Arc<File>,
        (offset, length): (u64, u64),
        advice: DataAdvice,
    ) -> Result<(), StoreError> {
        const PIECE: u64 = 128 << 10;
        let Some(descriptor) = self.descriptor(file, false)? else { return self.nothing(file) };
        let advise = |at, length, advice| {
            fadvise(&*descriptor, at, NonZeroU64::new(length), advice)
                .map_err(|errno| store_error("advise about an object's file", errno))
        };
        let end = offset.saturating_add(length).min(i64::MAX as u64);
        match advice {
            DataAdvice::DontNeed if offset < end => advise(offset, end - offset, Advice::DontNeed),
            DataAdvice::DontNeed => Ok(()),
            DataAdvice::WillRead => (offset..end)
                .step_by(PIECE as usize)
                .try_for_each(|at| advise(at, PIECE.min(end - at), Advice::WillNeed)),
        }
    }

    /// Makes the bytes of a file, and its name, durable.
    pub(crate) fn sync(&self, file: &Arc<File>) -> Result<(), StoreError> {
        let failed = |errno| {
            file.unsynced.store(true, Ordering::Release);
            self.note_unsynced(file.name);
            store_error("sync an object's file", errno)
        };
        self.load(file)?;
        // Before the sync: what is written meanwhile marks it again.
        file.forget_unsynced();
        let shrinks = file.state.lock().shrinks;
        let (size, version) = {
            let sums = file.sums.lock();
            (sums.size, sums.version)
        };
        match self.descriptor(file, false) {
            Ok(Some(descriptor)) => {
                fdatasync(&*descriptor).map_err(failed)?;
                // Removed by another hand: what is in it goes with the descriptor.
                let links = rustix::fs::fstat(&*descriptor).map_err(failed)?.st_nlink;
                if links == 0 && !file.is_dead() {
                    return Err(self.damaged(file, Damage::Lost));
                }
            }
            // Never written, or destroyed since.
            Ok(None) => return self.nothing(file),
            Err(StoreError::NoObject(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        if !file.named.load(Ordering::Acquire) {
            self.sync_name(file.name).map_err(failed)?;
            file.named.store(true, Ordering::Release);
        }
        if file.state.lock().shrinks == shrinks {
            self.note_sync(file, size, version);
        }
        Ok(())
    }
}

fn write_pieces(descriptor: &OwnedFd, offset: u64, pieces: &[Bytes]) -> Result<(), Errno> {
    let mut slices: Vec<IoSlice<'_>> =
        pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| IoSlice::new(piece)).collect();
    let (mut left, mut at) = (&mut slices[..], offset);
    while !left.is_empty() {
        let count = left.len().min(limits::SLICES_MAX);
        match pwritev(descriptor, &left[..count], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                at += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
