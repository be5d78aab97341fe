//! The tables of known and open files, and the operations on data.

use std::{
    io::IoSlice,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, ftruncate, seek},
    io::{Errno, pread, pwritev},
};
use sheen_store::StoreError;

use super::{File, Files, Name, SHARDS, file::Known, store_error};
use crate::{limits, usage::Usage};

/// Known files in one shard of the table.
const KNOWN_MAX: usize = limits::KNOWN_FILES_MAX / SHARDS;

impl Files {
    pub(super) fn objects(&self) -> &OwnedFd {
        &self.objects
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    fn shard(&self, (fid, incarnation): Name) -> usize {
        ((fid.seq ^ u64::from(fid.oid) ^ incarnation).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60)
            as usize
            % SHARDS
    }

    /// The one [`File`] of this name.
    pub(crate) fn file(&self, name: Name) -> Arc<File> {
        let mut known = self.known[self.shard(name)].lock();
        if let Some(file) = known.get(&name) {
            return file.clone();
        }
        if known.len() >= KNOWN_MAX {
            // Nobody else has these, and what is known of them is on the disk; whatever was
            // written stays in the list of dirty names.
            known.retain(|name, file| {
                Arc::strong_count(file) > 1
                    || file.used.swap(false, Ordering::Relaxed)
                    || self.let_slip(*name)
            });
            if known.len() > KNOWN_MAX / 2 {
                known.retain(|name, file| Arc::strong_count(file) > 1 || self.let_slip(*name));
            }
        }
        let has_none = name.1 >= self.no_file_from.load(Ordering::Relaxed);
        let file = Arc::new(File::new(name, if has_none { Known::NoFile } else { Known::Nothing }));
        known.insert(name, file.clone());
        file
    }

    /// Before the table forgets a file that may have data; says whether it is kept: no.
    fn let_slip(&self, (_, incarnation): Name) -> bool {
        self.no_file_from.fetch_max(incarnation + 1, Ordering::Relaxed);
        false
    }

    pub(super) fn forget(&self, name: Name) {
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

    /// Short at the end; empty if there is no file.
    pub(crate) fn read(
        &self,
        file: &Arc<File>,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, StoreError> {
        let end = self.end(file)?;
        let length = usize::try_from(end.saturating_sub(offset)).map_or(length, |l| l.min(length));
        if length == 0 {
            return Ok(Bytes::new());
        }
        let Some(descriptor) = self.descriptor(file, false)? else { return Ok(Bytes::new()) };
        let mut buffer = Vec::with_capacity(length);
        while buffer.len() < length {
            let at = offset + buffer.len() as u64;
            match pread(&descriptor, spare_capacity(&mut buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(store_error("read", errno)),
            }
        }
        buffer.truncate(length);
        Ok(buffer.into())
    }

    /// Runs `change` on the file, making it as needed, and keeps size, usage and dirt in step.
    fn change(
        &self,
        file: &Arc<File>,
        change: impl FnOnce(&OwnedFd) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(descriptor) = self.descriptor(file, true)? else {
            return Err(StoreError::Io("a file that was made is not there".to_owned()));
        };
        self.note_counted(file)?;
        let outcome = change(&descriptor);
        // After the change: a sync that cleared the mark before it must not hide it.
        if !file.dirty.swap(true, Ordering::AcqRel) {
            self.note_dirty(file.name);
        }
        self.count_usage(file)?;
        outcome
    }

    /// Grows as needed.
    pub(crate) fn write(
        &self,
        file: &Arc<File>,
        offset: u64,
        pieces: &[Bytes],
    ) -> Result<(), StoreError> {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes_max());
        let end = end.ok_or(StoreError::TooLarge)?;
        let missing = || self.missing(file, offset, end);
        let _room = self.ask_again(|| self.usage.reserve(length, missing))?;
        self.change(file, |descriptor| {
            let shrinks = file.state.lock().shrinks;
            let outcome = write_pieces(descriptor, offset, pieces);
            match outcome {
                Ok(()) => file.note_written(offset..end, shrinks),
                // Some of it may be there.
                Err(_) => file.note_shrink(),
            }
            outcome.map_err(|errno| store_error("write", errno))
        })?;
        self.note_written(length);
        Ok(())
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
        self.change(file, |descriptor| {
            file.note_shrink();
            let outcome = ftruncate(descriptor, size);
            file.note_shrink();
            outcome.map_err(|errno| store_error("truncate", errno))
        })
    }

    pub(crate) fn punch(
        &self,
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> Result<(), StoreError> {
        let end = self.end(file)?;
        let length = length.min(end.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.change(file, |descriptor| {
            let outcome = fallocate(descriptor, flags, offset, length);
            file.note_shrink();
            outcome.map_err(|errno| store_error("punch", errno))
        })
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
        self.change(file, |descriptor| {
            let outcome = fallocate(descriptor, flags, offset, length);
            file.note_shrink();
            outcome.map_err(|errno| store_error("allocate", errno))
        })
    }

    /// The next data or hole; `None` at or beyond the end, or if there is none.
    pub(crate) fn seek(
        &self,
        file: &Arc<File>,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        let Some(descriptor) = self.descriptor(file, false)? else { return Ok(None) };
        let from = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        match seek(&*descriptor, from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(store_error("seek", errno)),
        }
    }

    /// Makes the bytes of a file, and its name, durable.
    pub(crate) fn sync(&self, file: &Arc<File>) -> Result<(), StoreError> {
        let failed = |errno| {
            file.dirty.store(true, Ordering::Release);
            self.note_dirty(file.name);
            store_error("sync an object's file", errno)
        };
        // Before the sync: what is written meanwhile marks it again.
        file.forget_dirty();
        match self.descriptor(file, false) {
            Ok(Some(descriptor)) => fdatasync(descriptor).map_err(failed)?,
            // Never written, or destroyed since.
            Ok(None) | Err(StoreError::NoObject(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        if !file.named.load(Ordering::Acquire) {
            self.sync_name(file.name).map_err(failed)?;
            file.named.store(true, Ordering::Release);
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
