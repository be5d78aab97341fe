//! Which parts of the store are being overwritten: `marks`, durable before the bytes are.
//!
//! Bytes are overwritten in place, and their checksum follows with the next group. A crash between them
//! must not make good bytes look damaged, so before a block is overwritten whose checksum the database has,
//! or a file is cut, the *bucket* of its object is marked, durably; what lies in buckets that are still
//! marked when the store is opened after a crash is uncertain (dm-integrity's bitmap, md's write-intent
//! bitmap). Neighbours share a bucket, and a mark stays for [`limits::MARK_AGE_MIN`] after its last use:
//! rewriting many files, or one again and again, costs few syncs. New files and appends need none.
//!
//! The file holds for each bucket whether it is marked, and the last epoch that a crash made uncertain.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use parking_lot::Mutex;
use sheen_store::StoreError;

use super::{
    DataFileId,
    sums::{DURABLE, Epoch},
};
use crate::{DiskError, limits};

const MAGIC: &[u8; 8] = b"marks 1\n";
/// A bucket is a flag and an epoch.
const ENTRY_BYTES: usize = 9;
const FILE_BYTES: usize = MAGIC.len() + ENTRY_BYTES * limits::MARKS;

#[derive(Default)]
struct Bucket {
    marked: AtomicBool,
    /// Files that were changed under the mark and whose header is not in the database yet.
    users: AtomicU32,
    /// Seconds since the store was opened.
    used: AtomicU64,
    /// What is of this epoch or an older one is uncertain.
    uncertain_until: Epoch,
}

/// See the module's documentation.
pub(super) struct Marks {
    buckets: Vec<Bucket>,
    /// What the file says, under the lock that its writers hold.
    file: Mutex<File>,
    opened: Instant,
    /// Syncs that marks have cost, for tests.
    syncs: AtomicU64,
}

impl Marks {
    /// Opens or makes the file in `dir`. `has_crashed`: what is marked becomes uncertain up to `last`. A
    /// store that had marks and has lost the file is uncertain as a whole.
    pub(super) fn open(
        dir: &Path,
        has_crashed: bool,
        had_marks: bool,
        last: Epoch,
    ) -> Result<Self, DiskError> {
        let path = dir.join("marks");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(DiskError::io("open", &path))?;
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        file.read_to_end(&mut bytes).map_err(DiskError::io("read", &path))?;
        let known = parse(&bytes);
        if known.is_none() && had_marks {
            tracing::warn!(path = %path.display(), "the marks of what was overwritten are lost");
        }
        let lost = if had_marks { last } else { 0 };
        let known = known.unwrap_or_else(|| vec![(false, lost); limits::MARKS]);
        let bucket = |(marked, until): (bool, Epoch)| Bucket {
            uncertain_until: if marked && has_crashed { last } else { until },
            ..Bucket::default()
        };
        let buckets: Vec<_> = known.into_iter().map(bucket).collect();
        let encoded = encode(&buckets);
        if encoded != bytes {
            let write =
                file.write_all_at(&encoded, 0).and_then(|()| file.set_len(FILE_BYTES as u64));
            write.and_then(|()| file.sync_all()).map_err(DiskError::io("write", &path))?;
            crate::directory::sync_directory(dir)?;
        }
        let opened = Instant::now();
        Ok(Self { buckets, file: Mutex::new(file), opened, syncs: AtomicU64::new(0) })
    }

    fn bucket(&self, name: DataFileId) -> &Bucket {
        &self.buckets[self.index(name)]
    }

    fn index(&self, (fid, _): DataFileId) -> usize {
        let neighbours = u64::from(fid.oid) / limits::MARK_OBJECTS;
        let mixed = (fid.seq ^ neighbours.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % limits::MARKS
    }

    /// Whether a crash has made uncertain what was kept of this file in `epoch`.
    pub(super) fn is_uncertain(&self, name: DataFileId, epoch: Epoch) -> bool {
        epoch & !DURABLE <= self.bucket(name).uncertain_until
    }

    /// Before a file is overwritten or cut: durable when this returns. `joins`: it is a new user,
    /// which [`Self::leave`]s. No system call if the bucket is marked already.
    pub(super) fn mark(&self, name: DataFileId, joins: bool) -> Result<(), StoreError> {
        let bucket = self.bucket(name);
        if joins {
            bucket.users.fetch_add(1, Ordering::SeqCst);
        }
        bucket.used.store(self.opened.elapsed().as_secs(), Ordering::Relaxed);
        if bucket.marked.load(Ordering::SeqCst) {
            return Ok(());
        }
        let file = self.file.lock();
        if bucket.marked.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut bytes = encode(&self.buckets);
        bytes[MAGIC.len() + ENTRY_BYTES * self.index(name)] = 1;
        let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_data());
        written.map_err(|error| StoreError::Io(format!("mark what is overwritten: {error}")))?;
        // Only now: a writer that sees it goes on at once.
        bucket.marked.store(true, Ordering::SeqCst);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The file's header is in the database.
    pub(super) fn leave(&self, name: DataFileId) {
        self.bucket(name).users.fetch_sub(1, Ordering::SeqCst);
    }

    /// Removes marks that have been unused for a while; all if the store is closed. Not synced: a mark
    /// too many does no harm.
    pub(super) fn clear(&self, all: bool) {
        let now = self.opened.elapsed().as_secs();
        let is_old = |bucket: &&Bucket| {
            all || bucket.used.load(Ordering::Relaxed) + limits::MARK_AGE_MIN.as_secs() < now
        };
        let marked = |bucket: &&Bucket| bucket.marked.load(Ordering::Relaxed);
        if !self.buckets.iter().any(|bucket| marked(&bucket) && is_old(&bucket)) {
            return;
        }
        let file = self.file.lock();
        for bucket in self.buckets.iter().filter(marked).filter(is_old) {
            bucket.marked.store(false, Ordering::SeqCst);
            // A writer that comes now waits for the file, or was here before and is seen.
            if bucket.users.load(Ordering::SeqCst) > 0 {
                bucket.marked.store(true, Ordering::SeqCst);
            }
        }
        if let Err(error) = file.write_all_at(&encode(&self.buckets), 0) {
            tracing::debug!(%error, "marks stay");
        }
    }

    /// Syncs so far.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

fn encode(buckets: &[Bucket]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FILE_BYTES);
    out.extend(MAGIC);
    for bucket in buckets {
        out.push(bucket.marked.load(Ordering::SeqCst).into());
        out.extend(bucket.uncertain_until.to_le_bytes());
    }
    out
}

fn parse(bytes: &[u8]) -> Option<Vec<(bool, Epoch)>> {
    let rest = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() == FILE_BYTES)?;
    let entry = |bytes: &[u8]| {
        let (marked, epoch) = bytes.split_first()?;
        Some((*marked != 0, u64::from_le_bytes(epoch.try_into().ok()?)))
    };
    rest.chunks(ENTRY_BYTES).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;

    use super::*;

    #[test]
    fn a_mark_is_there_after_a_crash_and_gone_after_a_close() {
        let dir = std::env::temp_dir().join(format!("sheen-marks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let (name, far) = ((Fid::new(7, 1), 1), (Fid::new(99, 1 << 20), 1));
        let open = |has_crashed, last| Marks::open(&dir, has_crashed, true, last).expect("opens");
        std::fs::remove_file(dir.join("marks")).unwrap_or_default();
        let marks = Marks::open(&dir, false, false, 0).expect("opens");
        marks.mark(name, true).expect("marked");
        marks.mark((Fid::new(7, 2), 1), true).expect("its neighbour is");
        assert_eq!(marks.syncs(), 1);
        drop(marks);
        let marks = open(true, 5);
        assert!(marks.is_uncertain(name, 5) && !marks.is_uncertain(name, 6));
        assert!(!marks.is_uncertain(far, 5));
        marks.mark(far, true).expect("marked");
        marks.clear(true);
        assert!(marks.buckets.iter().any(|b| b.marked.load(Ordering::Relaxed)), "it is in use");
        marks.leave(far);
        marks.clear(true);
        drop(marks);
        let marks = open(true, 9);
        assert!(!marks.is_uncertain(far, 9) && marks.is_uncertain(name, 5));
        drop(marks);
        std::fs::write(dir.join("marks"), b"short").expect("damaged");
        assert!(open(false, 9).is_uncertain(far, 9), "nothing is known any more");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
