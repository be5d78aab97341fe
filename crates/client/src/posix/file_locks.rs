//! File locks, and which closes the kernel must report for their sake.
//!
//! A process that closes any descriptor of a file loses its `fcntl(2)` locks on it, so the kernel sends FLUSH
//! for each close and waits for the answer. As long as no lock was ever taken on the mount, a descriptor that
//! can only read has no locks to lose: the reply to its open turns FLUSH off (`FOPEN_NOFLUSH`), and a file
//! that is opened, read and closed costs one call less. The locks that such a descriptor's close should
//! release, taken after its open, are released when its last copy is closed.

use std::sync::atomic::{AtomicBool, Ordering};

use sheen_types::Errno;

use super::handles::OpenFile;
use super::{FileHandle, FileLock, FileLockMode, FileSystem, FileType, LockOwner, Mounted};
use crate::meta::FlockWait;

/// The last byte that a file lock can cover: the largest file offset.
pub(super) const END_MAX: u64 = i64::MAX as u64;

/// Whether any file lock was ever taken.
#[derive(Default)]
pub(crate) struct FileLocksTaken(AtomicBool);

impl FileLocksTaken {
    /// One is taken now.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl FileSystem {
    /// Acquires, changes or releases a file lock. With `wait`, waits for other owners to release theirs;
    /// dropping the future withdraws the request. One RPC.
    ///
    /// # Errors
    /// As `fcntl(2)` and `flock(2)`: `EAGAIN` if another lock conflicts, `EDEADLK`.
    pub async fn set_lock(
        &self,
        handle: FileHandle,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> Result<(), Errno> {
        let file = self.0.handles.get(handle)?;
        self.0.file_locks_taken.note();
        file.note_locker(owner);
        let wait = if wait { FlockWait::Wait } else { FlockWait::Try };
        self.0.meta.set_lock(&file.pin, owner, checked(lock)?, wait).await
    }

    /// A lock of another owner that conflicts with `lock`, if there is one. One RPC.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub async fn get_lock(
        &self,
        handle: FileHandle,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<Option<FileLock>, Errno> {
        let file = self.0.handles.get(handle)?;
        self.0.meta.get_lock(&file.pin, owner, checked(lock)?).await
    }
}

impl Mounted {
    /// Whether the close of a descriptor that is being opened can have nothing to do: see above.
    pub(super) fn needs_no_flush(&self, file: &OpenFile) -> bool {
        !file.flags.writes()
            && file.pin.file_type() == Some(FileType::Regular)
            && !self.file_locks_taken.0.load(Ordering::Relaxed)
    }

    /// Releases every lock that `owner` has on the file; no RPC if there is none.
    pub(super) async fn unlock_all(&self, file: &OpenFile, owner: LockOwner) -> Result<(), Errno> {
        if !self.meta.has_locks(&file.pin, owner)? {
            return Ok(());
        }
        let everything = FileLock {
            start: 0,
            end: END_MAX,
            mode: FileLockMode::Unlock,
            pid: file.who.pid,
            is_flock: false,
        };
        self.meta.set_lock(&file.pin, owner, everything, FlockWait::Try).await
    }

    /// Releases the locks that no FLUSH has released: those of the open file description itself
    /// (`F_OFD_SETLK`), of whose end FUSE reports nothing else; and where closes are not reported, those that were
    /// taken through it, and those of the process that opened it.
    pub(super) async fn unlock_at_release(&self, file: &OpenFile) -> Result<(), Errno> {
        if !self.file_locks_taken.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut owners = std::mem::take(&mut *file.lockers.lock());
        if file.sends_no_flush {
            owners.extend(self.meta.lock_owners(&file.pin, file.who.pid)?);
        }
        for owner in owners {
            self.unlock_all(file, owner).await?;
        }
        Ok(())
    }
}

impl OpenFile {
    fn note_locker(&self, owner: LockOwner) {
        let mut lockers = self.lockers.lock();
        if !lockers.contains(&owner) {
            lockers.push(owner);
        }
    }

    /// A FLUSH has released what `owner` had.
    pub(super) fn forget_locker(&self, owner: LockOwner) {
        self.lockers.lock().retain(|locker| *locker != owner);
    }
}

fn checked(lock: FileLock) -> Result<FileLock, Errno> {
    let end = lock.end.min(END_MAX);
    if lock.start > end { Err(Errno::EINVAL) } else { Ok(FileLock { end, ..lock }) }
}
