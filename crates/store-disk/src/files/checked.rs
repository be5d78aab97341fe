//! Data with its checksums: what is read is compared, what is written is noted, and what is noted goes
//! to the database with the next group.
//!
//! What always holds of a file:
//!
//! - The database never claims what a crash could make untrue: before bytes change of which something is
//!   claimed, that is unknown in memory and the file's bucket marked ([`super::marks`]); the new
//!   checksum enters when the bytes are written and listed for the next sync.
//! - Changes of one file come one after the other, under its lock of changes, as in the kernel. Readers
//!   take no such lock: what does not match is read again under it before it counts as damaged.
//! - No damage is laundered: of a block that is overwritten in part the rest is compared first.
//!
//! Cost of a write: one pass over its bytes outside of all locks, and one `pread` for each end that lies
//! within a block of which more is known; of a read one pass, which the caller gets the checksum of.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    io::{Errno, pread},
};
use sheen_store::{BlockSum, Damage, Finding, StoreError, joined};

use super::{
    DataFileId, File, Files, path_of, store_error,
    sums::{BLOCK_BYTES, Block, CHUNK_BLOCKS, Sums, Trust},
};
use crate::{limits, record::name_key};

/// The database, as far as checksums lie in it.
pub(crate) trait SumsSource: Send + Sync {
    /// The value of a key.
    fn sums(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
    /// Keys with this beginning, and their values.
    fn sums_of(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError>;
}

/// Nothing is kept.
#[cfg(test)]
pub(super) struct NoSums;

#[cfg(test)]
impl SumsSource for NoSums {
    fn sums(&self, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    fn sums_of(&self, _: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        Ok(Vec::new())
    }
}

/// The key of what [`super::trust`] keeps.
pub(crate) const EPOCHS: &[u8] = b"epochs";

/// Checksums on their way into the database.
#[derive(Default)]
pub(crate) struct SumsGroup {
    /// Keys with their new values; `None` removes one.
    pub(crate) changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Kept in memory until it is there.
    files: Vec<(Arc<File>, bool)>,
}

fn chunk_key(name: DataFileId, chunk: u64) -> Vec<u8> {
    let mut key = name_key(name).to_vec();
    key.extend(chunk.to_be_bytes());
    key
}

/// Up to `length` bytes at `offset`; fewer only at the end of the file.
pub(super) fn read_at(
    descriptor: &OwnedFd,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, StoreError> {
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let at = offset + buffer.len() as u64;
        match pread(descriptor, spare_capacity(&mut buffer), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(store_error("read", errno)),
        }
    }
    buffer.truncate(length);
    Ok(buffer)
}

impl Files {
    /// Whether blocks have checksums.
    pub(crate) fn has_checksums(&self) -> bool {
        self.checksums.load(Ordering::Relaxed)
    }

    pub(super) fn damaged(&self, file: &File, damage: Damage) -> StoreError {
        let path = self.dir.join("objects").join(path_of(file.name)).display().to_string();
        self.counts.count(&damage);
        StoreError::Damaged(Box::new(Finding { object: file.name.0, path, damage }))
    }

    /// Reads what the database holds of a file, once.
    pub(super) fn load(&self, file: &File) -> Result<(), StoreError> {
        if file.sums.lock().loaded {
            return Ok(());
        }
        let kept = self.kept.sums(&name_key(file.name))?;
        let mut sums = file.sums.lock();
        if std::mem::replace(&mut sums.loaded, true) {
            return Ok(());
        }
        let Some(kept) = kept else { return Ok(()) };
        sums.load(&kept, |header| Trust {
            data: self.trust.holds(header.epoch),
            synced: self.trust.is_synced(header.epoch),
            sizes: !self.marks.is_uncertain(file.name, header.epoch),
        })
    }

    /// Reads the chunks of blocks `first..=last` that are not in memory.
    pub(super) fn load_chunks(&self, file: &File, first: u64, last: u64) -> Result<(), StoreError> {
        for chunk in first / CHUNK_BLOCKS..=last / CHUNK_BLOCKS {
            if !file.sums.lock().lacks(chunk) {
                continue;
            }
            let kept = self.kept.sums(&chunk_key(file.name, chunk))?;
            self.take_chunk(file, chunk, kept.as_deref())?;
        }
        Ok(())
    }

    fn take_chunk(&self, file: &File, chunk: u64, kept: Option<&[u8]>) -> Result<(), StoreError> {
        let holds = |epoch| self.trust.holds(epoch) && !self.marks.is_uncertain(file.name, epoch);
        file.sums.lock().load_chunk(chunk, kept, holds)
    }

    /// Reads all chunks from this block on that the database has.
    pub(super) fn load_behind(&self, file: &File, block: u64) -> Result<(), StoreError> {
        let from = block / CHUNK_BLOCKS;
        if file.sums.lock().kept.chunks <= from.max(1) {
            return Ok(());
        }
        let name = name_key(file.name);
        for (key, value) in self.kept.sums_of(&name)? {
            let Ok(number) = key[name.len()..].try_into().map(u64::from_be_bytes) else { continue };
            if number >= from && file.sums.lock().lacks(number) {
                self.take_chunk(file, number, Some(&value))?;
            }
        }
        Ok(())
    }

    /// Lists a file for the next group; `sums` are its own.
    pub(super) fn pend(&self, file: &Arc<File>, sums: &mut Sums) {
        if sums.dirty && !sums.gone && !std::mem::replace(&mut sums.pending, true) {
            self.pending.lock().push(file.clone());
        }
    }

    /// Compares `bytes`, which begin with a block's first, with what is known of them.
    pub(super) fn compare(
        &self,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Compared, StoreError> {
        if bytes.is_empty() {
            return Ok(Compared::default());
        }
        let first = offset / BLOCK_BYTES;
        let last = (offset + bytes.len() as u64 - 1) / BLOCK_BYTES;
        self.load_chunks(file, first, last)?;
        let known: Vec<Block> = {
            let sums = file.sums.lock();
            (first..=last).map(|block| sums.block(block)).collect()
        };
        let mut compared = Compared::default();
        for (block, data) in known.into_iter().zip(bytes.chunks(BLOCK_BYTES as usize)) {
            let sum = crc32c::crc32c(data);
            let is_same = match usize::from(block.length) {
                0 => true,
                length if length == data.len() => block.sum == sum,
                _ => block.matches(data),
            };
            compared.add(block, is_same, sum, data.len());
        }
        self.counts.add(&compared);
        Ok(compared)
    }

    /// The first `length` bytes of a block, compared; `None` if nothing is known of it, or nothing certain
    /// and it differs.
    pub(super) fn beginning(
        &self,
        file: &File,
        descriptor: &OwnedFd,
        number: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let block = file.sums.lock().block(number);
        let length = length.max(block.length.into());
        let offset = number * BLOCK_BYTES;
        let mut bytes = read_at(descriptor, offset, length)?;
        let is_same = block.matches(&bytes);
        if block.is_known() && !is_same && !block.uncertain {
            self.counts.fail(1);
            return Err(self.damaged(file, Damage::Checksum { offset }));
        }
        bytes.resize(length, 0);
        Ok((block.is_known() && is_same).then_some(bytes))
    }

    /// The block when a part of it is written, from what is known of it before.
    fn merged(
        &self,
        file: &File,
        descriptor: &OwnedFd,
        part: BlockSum,
    ) -> Result<Block, StoreError> {
        let old = file.sums.lock().block(part.block);
        let (start, length) = (usize::from(part.start), usize::from(part.length));
        let end = start + length;
        let join =
            |first: u32, second: u32, bytes: usize| crc32c::crc32c_combine(first, second, bytes);
        let block = |sum, length: usize| Block { sum, length: length as u16, uncertain: false };
        if start == 0 && usize::from(old.length) <= end {
            return Ok(block(part.sum, end));
        }
        if !old.is_known() {
            return Ok(Block::UNKNOWN);
        }
        if start == usize::from(old.length) && !old.uncertain {
            return Ok(block(join(old.sum, part.sum, length), end));
        }
        let Some(before) = self.beginning(file, descriptor, part.block, start)? else {
            return Ok(Block::UNKNOWN);
        };
        let sum = join(crc32c::crc32c(&before[..start]), part.sum, length);
        match before.get(end..).filter(|rest| !rest.is_empty()) {
            None => Ok(block(sum, end)),
            Some(rest) => Ok(block(join(sum, crc32c::crc32c(rest), rest.len()), before.len())),
        }
    }

    /// What is known of the blocks of `parts` when they are written. Under the lock of changes.
    pub(super) fn blocks_of(
        &self,
        file: &File,
        descriptor: &OwnedFd,
        parts: &[BlockSum],
    ) -> Result<Vec<(u64, Block)>, StoreError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(Vec::new());
        };
        self.load_chunks(file, first.block, last.block)?;
        let whole = BLOCK_BYTES as u16;
        let block = |part: &BlockSum| match part.length == whole {
            true => Ok(Block { sum: part.sum, length: whole, uncertain: false }),
            false => self.merged(file, descriptor, *part),
        };
        parts.iter().map(|part| Ok((part.block, block(part)?))).collect()
    }

    /// Before `change` makes untrue what is known of a file: `change` takes that out of memory and says
    /// whether it was anything. Durable, if need be, when this returns.
    pub(super) fn announce(
        &self,
        file: &Arc<File>,
        change: impl FnOnce(&mut Sums) -> bool,
    ) -> Result<(), StoreError> {
        let epoch = self.trust.epoch();
        let mut sums = file.sums.lock();
        sums.note_change(epoch);
        let matters = change(&mut sums) && sums.kept.epoch > 0;
        let joins = matters && !std::mem::replace(&mut sums.holds_mark, true);
        self.pend(file, &mut sums);
        drop(sums);
        if matters {
            self.marks.mark(file.name, joins)?;
        }
        Ok(())
    }

    /// After a change, when the file is listed for the next sync: what is known now.
    pub(super) fn note(&self, file: &Arc<File>, change: impl FnOnce(&mut Sums)) {
        let epoch = self.trust.epoch();
        let mut sums = file.sums.lock();
        sums.note_change(epoch);
        change(&mut sums);
        self.pend(file, &mut sums);
    }

    /// After a sync that began at a size and a version of what is known.
    pub(super) fn note_sync(&self, file: &Arc<File>, size: u64, version: u64) {
        let mut sums = file.sums.lock();
        sums.note_synced(size, version);
        self.pend(file, &mut sums);
    }

    /// What the next group takes into the database, less what it destroys.
    pub(crate) fn take_sums(&self, destroyed: &[DataFileId]) -> Result<SumsGroup, StoreError> {
        let mut group = SumsGroup::default();
        let swept = std::mem::take(&mut *self.swept.lock());
        for name in destroyed.iter().chain(&swept) {
            self.drop_sums(*name, &mut group)?;
        }
        let pending = std::mem::take(&mut *self.pending.lock());
        for file in pending {
            let mut sums = file.sums.lock();
            sums.pending = false;
            let left = std::mem::take(&mut sums.holds_mark);
            if !sums.gone {
                // Under the lock: what is written later is of a later epoch, or the same.
                let kept = sums.encode(self.trust.epoch(), |epoch| self.trust.is_synced(epoch));
                group.changes.extend(kept.into_iter().map(|(chunk, value)| match chunk {
                    None => (name_key(file.name).to_vec(), value),
                    Some(chunk) => (chunk_key(file.name, chunk), value),
                }));
            }
            drop(sums);
            group.files.push((file, left));
        }
        if let Some(epochs) = self.trust.encode() {
            group.changes.push((EPOCHS.to_vec(), Some(epochs)));
        }
        Ok(group)
    }

    /// A file goes, and what is kept of it.
    fn drop_sums(&self, name: DataFileId, group: &mut SumsGroup) -> Result<(), StoreError> {
        let file = self.file(name);
        {
            let mut sums = file.sums.lock();
            sums.gone = true;
            if sums.loaded && sums.kept.epoch == 0 {
                return Ok(());
            }
        }
        if file.was_never_made() {
            return Ok(());
        }
        let keys = self.kept.sums_of(&name_key(name))?;
        group.changes.extend(keys.into_iter().map(|(key, _)| (key.to_vec(), None)));
        Ok(())
    }

    /// The database has them.
    pub(crate) fn sums_are_kept(&self, group: SumsGroup) {
        let mut chunks = 0;
        for (file, left) in group.files {
            if left {
                self.marks.leave(file.name);
            }
            chunks += file.sums.lock().chunks();
        }
        self.marks.clear(false);
        if chunks > 0
            && self.chunks_seen.fetch_add(chunks, Ordering::Relaxed) > limits::SUM_CHUNKS_MAX
        {
            self.chunks_seen.store(0, Ordering::Relaxed);
            self.trim();
        }
    }

    /// Forgets chunks that the database has.
    fn trim(&self) {
        for shard in &self.known {
            for file in shard.lock().values() {
                file.sums.lock().trim();
            }
        }
    }

    /// All is in the database, durably: nothing is being overwritten.
    pub(crate) fn clear_marks(&self) {
        self.marks.clear(true);
    }
}

/// What a comparison found.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) checked: u64,
    pub(super) unknown: u64,
    /// Number of the first block that is damaged, from the first that was compared.
    pub(super) failed: Option<u64>,
    pub(super) failures: u64,
    /// CRC-32C of all the bytes.
    pub(super) sum: u32,
    blocks: u64,
}

impl Compared {
    fn add(&mut self, block: Block, is_same: bool, sum: u32, bytes: usize) {
        let proves = block.is_known() && (is_same || !block.uncertain);
        *(if proves { &mut self.checked } else { &mut self.unknown }) += 1;
        if proves && !is_same {
            self.failed.get_or_insert(self.blocks);
            self.failures += 1;
        }
        self.sum = match self.blocks {
            0 => sum,
            _ => joined(self.sum, sum, bytes),
        };
        self.blocks += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_blocks_are_the_sum_of_all() {
        let bytes: Vec<u8> = (0..3 * 4096 + 77_u32).map(|at| ((at * at) >> 3) as u8).collect();
        let mut compared = Compared::default();
        for data in bytes.chunks(4096) {
            compared.add(Block::UNKNOWN, true, crc32c::crc32c(data), data.len());
        }
        assert_eq!(compared.sum, crc32c::crc32c(&bytes));
        assert_eq!((compared.unknown, compared.checked, compared.failures), (4, 0, 0));
    }
}
