//! Open files and directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_io::job;
use sheen_types::{Errno, Fid, HashMap, HashSet, JobId};

use super::group_lock::HeldGroupLock;
use super::{Credentials, DirCookie, FileHandle, OpenFlags};
use crate::cache::{Chunk, Pin, Position};
use crate::meta::OwnOrCachedOpen;
use crate::records::{OpenRecord, Record, Recorded, Recorder};

/// Bit of a cookie that stands for a position among names of one hash.
const COLLIDED: u64 = 1 << 63;
/// The cookie of a directory's end: the largest file offset.
const END: u64 = i64::MAX as u64;

/// One open file or directory: the open file description of POSIX, which all descriptors that were duplicated share.
pub(super) struct FileDescription {
    pub(super) pin: Pin,
    pub(super) flags: OpenFlags,
    /// Who opened it: on whose behalf data is written.
    pub(super) who: Credentials,
    /// For which job.
    pub(super) job: Option<JobId>,
    /// Its handle on the MDT; a directory may be read without one.
    pub(super) open: Mutex<Option<OwnOrCachedOpen>>,
    /// How many failures of write-back were reported to it, or need not be.
    pub(super) failures_reported: Mutex<u64>,
    /// How many write-backs had failed when it was opened.
    pub(super) failed_before: u64,
    /// Whether data was written through it.
    pub(super) modified: AtomicBool,
    /// Whether its open created or truncated the file: no bytes of the file are older than this handle.
    pub(super) began_empty: bool,
    /// Whether an access through it was noted.
    pub(super) accessed: AtomicBool,
    /// The second in which an access was looked at last.
    pub(super) access_looked: AtomicI64,
    /// Whether the kernel sends no FLUSH when a descriptor of it is closed, only the last RELEASE.
    pub(super) sends_no_flush: bool,
    /// Whether its reads and writes bypass the kernel's pages.
    pub(super) bypasses_page_cache: bool,
    /// Its group lock; its group beside that, for each call to read: 0 for none.
    pub(super) group_lock: tokio::sync::Mutex<Option<HeldGroupLock>>,
    pub(super) group: AtomicU64,
    /// Whether locks that are asked for through it do not grow.
    pub(super) locks_exactly: AtomicBool,
    /// The position of reading in the directory.
    pub(super) stream: Mutex<DirStream>,
    /// For the mount's next process.
    recorded: Option<Recorded>,
}

/// A directory being read.
#[derive(Default)]
pub(super) struct DirStream {
    /// What was read last, so that reading on costs nothing even without a lock.
    pub(super) last: Option<Arc<Chunk>>,
    collided: Vec<Position>,
}

/// All open files.
#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<HashMap<FileHandle, Arc<FileDescription>>>,
    /// Those of an earlier process of the mount that could not be opened again.
    lost: RwLock<HashSet<FileHandle>>,
    last: AtomicU64,
    recorder: Recorder,
}

impl Handles {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, ..Self::default() }
    }

    pub(super) fn insert(&self, file: FileDescription) -> FileHandle {
        let handle = FileHandle(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.restore(handle, file);
        handle
    }

    /// Puts a file into the table under the handle that the kernel knows it by.
    pub(super) fn restore(&self, handle: FileHandle, mut file: FileDescription) {
        file.recorded = self.recorder.record(|| Record::Open(file.record(handle)));
        self.open.write().insert(handle, Arc::new(file));
    }

    /// The file of this handle could not be opened again.
    pub(super) fn lose(&self, handle: FileHandle) {
        self.lost.write().insert(handle);
    }

    /// New handles lie behind this one.
    pub(super) fn begin_behind(&self, handle: u64) {
        self.last.fetch_max(handle, Ordering::Relaxed);
    }

    /// The handle that was given last.
    pub(super) fn newest(&self) -> FileHandle {
        FileHandle(self.last.load(Ordering::Relaxed))
    }

    /// The error for a handle that is not in the table.
    fn absent(&self, handle: FileHandle) -> Errno {
        if self.lost.read().contains(&handle) { Errno::ESTALE } else { Errno::EBADF }
    }

    /// Whether the table's lock can be had within `limit`; waits in the thread.
    pub(super) fn is_responsive(&self, limit: Duration) -> bool {
        self.open.try_write_for(limit).is_some()
    }

    pub(super) fn get(&self, handle: FileHandle) -> Result<Arc<FileDescription>, Errno> {
        self.open.read().get(&handle).cloned().ok_or_else(|| self.absent(handle))
    }

    pub(super) fn remove(&self, handle: FileHandle) -> Result<Arc<FileDescription>, Errno> {
        let file = self.open.write().remove(&handle);
        file.ok_or_else(|| {
            let absent = self.absent(handle);
            self.lost.write().remove(&handle);
            absent
        })
    }

    /// Whether user `uid` has a file open for writing. Looks at all open files.
    pub(super) fn writes(&self, fid: Fid, uid: u32) -> bool {
        let is_theirs = |file: &Arc<FileDescription>| {
            file.pin.fid == fid && file.who.uid == uid && file.flags.writes()
        };
        self.open.read().values().any(is_theirs)
    }

    pub(super) fn take_all(&self) -> Vec<Arc<FileDescription>> {
        self.open.write().drain().map(|(_, file)| file).collect()
    }
}

impl FileDescription {
    pub(super) fn new(
        pin: Pin,
        flags: OpenFlags,
        who: &Credentials,
        open: Option<OwnOrCachedOpen>,
    ) -> Self {
        if let Some(open) = &open {
            open.mdt_open().note_owner();
        }
        let (failures_reported, failed_before) = {
            let mut state = pin.state();
            state.opens += 1;
            state.file.writers += u64::from(flags.writes());
            (state.file.failures.reported(), state.file.failures.count())
        };
        Self {
            pin,
            flags,
            who: who.clone(),
            job: job::current(),
            open: Mutex::new(open),
            failures_reported: Mutex::new(failures_reported),
            failed_before,
            modified: AtomicBool::new(false),
            began_empty: false,
            accessed: AtomicBool::new(false),
            access_looked: AtomicI64::new(0),
            sends_no_flush: false,
            bypasses_page_cache: false,
            group_lock: tokio::sync::Mutex::default(),
            group: AtomicU64::new(0),
            locks_exactly: AtomicBool::new(false),
            stream: Mutex::default(),
            recorded: None,
        }
    }

    /// What the mount's next process needs of it.
    fn record(&self, handle: FileHandle) -> OpenRecord {
        OpenRecord {
            handle: handle.0,
            node: self.pin.node(),
            flags: self.flags.0,
            owner: (self.who.uid, self.who.gid),
            pid: self.who.pid,
            sends_no_flush: self.sends_no_flush,
            bypasses_page_cache: self.bypasses_page_cache,
        }
    }

    /// From now on it bypasses the kernel's pages. Called before the kernel has the handle.
    pub(super) fn bypass_page_cache(&mut self) {
        self.bypasses_page_cache = true;
        self.pin.state().file.bypassing += 1;
    }
}

impl Drop for FileDescription {
    fn drop(&mut self) {
        let mut state = self.pin.state();
        state.opens -= 1;
        state.file.writers -= u64::from(self.flags.writes());
        state.file.bypassing -= u64::from(self.bypasses_page_cache);
        let data = (state.opens == 0).then(|| state.file.data.clone()).flatten();
        let has_moved = state.opens == 0 && state.directory.moved_to.is_some();
        drop(state);
        if has_moved {
            self.pin.note_closed();
        }
        if let Some(data) = data {
            data.idle();
        }
    }
}

impl DirStream {
    /// The position that a cookie stands for.
    pub(super) fn position(&self, cookie: DirCookie) -> Result<Position, Errno> {
        if cookie.0 & COLLIDED != 0 {
            let index = (cookie.0 & !COLLIDED) as usize;
            return self.collided.get(index).copied().ok_or(Errno::EINVAL);
        }
        Ok(match cookie.0 {
            END => Position::END,
            hash => Position { hash, done: 0 },
        })
    }

    /// A cookie for a position: its hash, or where names share a hash a number of this stream.
    pub(super) fn cookie(&mut self, position: Position) -> DirCookie {
        if position == Position::END {
            return DirCookie(END);
        }
        if position.done == 0 && position.hash & COLLIDED == 0 {
            return DirCookie(position.hash);
        }
        let known = self.collided.iter().rposition(|known| *known == position);
        let index = known.unwrap_or_else(|| {
            self.collided.push(position);
            self.collided.len() - 1
        });
        DirCookie(COLLIDED | index as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_hashes_unless_names_share_one() {
        let mut stream = DirStream::default();
        for position in [
            Position::default(),
            Position { hash: 77, done: 0 },
            Position { hash: 77, done: 2 },
            Position { hash: u64::MAX / 2 + 9, done: 0 },
            Position::END,
        ] {
            let cookie = stream.cookie(position);
            assert_eq!(stream.position(cookie), Ok(position));
            assert_eq!(stream.cookie(position), cookie);
        }
        assert_eq!(stream.cookie(Position { hash: 77, done: 0 }), DirCookie(77));
        assert_eq!(stream.position(DirCookie(COLLIDED | 9)), Err(Errno::EINVAL));
    }
}
