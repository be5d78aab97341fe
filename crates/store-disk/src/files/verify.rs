//! Looking through the data of an object: is it there, how long is it, is it what was written.
//!
//! A step reads one chunk, under the lock of changes: writers of that file wait for a MiB. Holes are
//! skipped, unless something is known of them. What has no certain checksum gets one.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::fs::{AtFlags, fstat, statat};
use sheen_store::{Damage, Finding, StoreError, Verified};

use super::{
    DataFileId, File, Files,
    checked::read_at,
    entries, is_file, parse_name, path_of, store_error,
    sums::{BLOCK_BYTES, Block, CHUNK_BLOCKS, CHUNK_BYTES},
};
use rustix::io::Errno;

impl Files {
    /// One step, from `offset` on.
    pub(crate) fn verify(&self, file: &Arc<File>, offset: u64) -> Result<Verified, StoreError> {
        self.load(file)?;
        let _turn = file.changes.lock();
        let mut verified = Verified::default();
        if offset == 0
            && let Some(damage) = self.of_name_or_length(file)?
        {
            let is_lost = matches!(damage, Damage::Lost | Damage::NoFile);
            verified.findings.push(self.found(file, damage));
            if is_lost {
                return Ok(verified);
            }
        }
        let Some(descriptor) = self.descriptor(file, false)? else { return Ok(verified) };
        let Some(start) = self.next_of_interest(file, &descriptor, offset)? else {
            return Ok(verified);
        };
        // What was put behind its end is no data: a checksum would make it some.
        let left = file.sums.lock().length().end().saturating_sub(start);
        if left == 0 {
            return Ok(verified);
        }
        let bytes = read_at(&descriptor, start, left.min(CHUNK_BYTES) as usize)?;
        verified.bytes = bytes.len() as u64;
        verified.next = Some(start + CHUNK_BYTES);
        self.compare_all(file, start, &bytes, &mut verified)?;
        Ok(verified)
    }

    fn found(&self, file: &File, damage: Damage) -> Finding {
        match self.damaged(file, damage) {
            StoreError::Damaged(finding) => *finding,
            other => unreachable!("{other}"),
        }
    }

    /// What is wrong with the file's name or length; asks the host, whatever is known.
    fn of_name_or_length(&self, file: &Arc<File>) -> Result<Option<Damage>, StoreError> {
        let failed = |errno| store_error("stat an object's file", errno);
        let (has_file, length) = {
            let sums = file.sums.lock();
            (sums.has_file, sums.length())
        };
        let named = match statat(self.objects(), path_of(file.name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let Some(named) = named else {
            return Ok((has_file && !file.is_dead()).then_some(Damage::Lost));
        };
        if !is_file(&named) {
            return Ok(Some(Damage::NoFile));
        }
        // Another file under its name: what is written goes to the one without.
        if let Some(open) = self.descriptor(file, false)?
            && fstat(&*open).map_err(failed)?.st_ino != named.st_ino
        {
            return Ok(Some(Damage::Lost));
        }
        Ok(length.wrong(named.st_size.cast_unsigned()))
    }

    /// The chunk at or behind `offset` that has data or checksums.
    fn next_of_interest(
        &self,
        file: &Arc<File>,
        descriptor: &OwnedFd,
        offset: u64,
    ) -> Result<Option<u64>, StoreError> {
        use rustix::fs::{SeekFrom, seek};
        let data = match seek(descriptor, SeekFrom::Data(offset)) {
            Ok(data) => Some(data),
            Err(Errno::NXIO) => None,
            Err(errno) => return Err(store_error("seek", errno)),
        };
        self.load_behind(file, offset / BLOCK_BYTES)?;
        let known = file.sums.lock().next_known(offset / BLOCK_BYTES);
        let known = known.map(|block| block * BLOCK_BYTES);
        let next = [data, known].into_iter().flatten().min();
        Ok(next.map(|next| (next / CHUNK_BYTES * CHUNK_BYTES).max(offset)))
    }

    /// Compares a chunk; adopts what has no certain checksum.
    fn compare_all(
        &self,
        file: &Arc<File>,
        start: u64,
        bytes: &[u8],
        verified: &mut Verified,
    ) -> Result<(), StoreError> {
        let first = start / BLOCK_BYTES;
        self.load_chunks(file, first, first)?;
        let adopts = self.has_checksums();
        let mut adopted = Vec::new();
        let (mut checked, mut failed) = (0, 0);
        for number in first..first + CHUNK_BLOCKS {
            let block = file.sums.lock().block(number);
            let from = ((number - first) * BLOCK_BYTES) as usize;
            let until = (from + BLOCK_BYTES as usize).min(bytes.len());
            let data = bytes.get(from..until).unwrap_or(&[]);
            let is_certain = block.is_known() && !block.uncertain;
            if is_certain {
                checked += 1;
                if !block.matches(data) {
                    failed += 1;
                    let damage = Damage::Checksum { offset: number * BLOCK_BYTES };
                    verified.findings.push(self.found(file, damage));
                }
            }
            let covers = usize::from(block.length) == data.len();
            if adopts && !(is_certain && (covers || !block.matches(data))) && !data.is_empty() {
                adopted.push((number, Block::of(data)));
            }
        }
        self.counts.add_checked(checked, failed);
        if !adopted.is_empty() {
            self.note(file, |sums| {
                sums.grow(start + bytes.len() as u64);
                adopted.into_iter().for_each(|(number, block)| sums.set(number, block));
            });
        }
        Ok(())
    }

    /// All data files, with the names that they say; without those that were passed over.
    pub(crate) fn all(&self) -> Result<Vec<(String, Option<DataFileId>)>, StoreError> {
        let failed = |error: Errno| store_error("read the directory of objects", error);
        let passed_over = self.passed_over.lock();
        let mut found = Vec::new();
        for directory in entries(self.objects(), ".").map_err(failed)? {
            for entry in entries(self.objects(), &directory).map_err(failed)? {
                let name = parse_name(&entry);
                if name.is_some_and(|name| passed_over.contains(&name)) {
                    continue;
                }
                found.push((format!("objects/{directory}/{entry}"), name));
            }
        }
        Ok(found)
    }
}
