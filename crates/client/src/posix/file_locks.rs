//! File locks, and which closes the kernel must report for their sake.
//!
//! A process that closes any descriptor of a file loses its `fcntl(2)` locks on it, so the kernel sends FLUSH
//! for each close and waits for the answer. As long as no lock was ever taken on the mount, a descriptor that
//! can only read has no locks to lose: the reply to its open turns FLUSH off (`FOPEN_NOFLUSH`), and a file
//! that is opened, read and closed costs one call less. The locks that such a descriptor's close should
//! release, taken after its open, are released when its last copy is closed.

use std::sync::atomic::{AtomicBool, Ordering};

use sheen_types::{Errno, Fid};

use super::file_lock_owners::{FileLockOwner, FileLockOwners};
use super::handles::FileDescription;
use super::{FileHandle, FileLock, FileLockMode, FileSystem, FileType, LockOwner, Mounted};
use crate::boxed;
use crate::meta::FlockWait;
use crate::records::{FileLockOwnerRecord, Recorder};

/// Which file locks were taken.
pub(crate) struct FileLocksTaken {
    /// Whether any ever was.
    any: AtomicBool,
    file_lock_owners: FileLockOwners,
}

impl FileLocksTaken {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { any: AtomicBool::new(false), file_lock_owners: FileLockOwners::new(recorder) }
    }

    /// An earlier process of the mount had locks taken through an open file.
    pub(super) fn restore(&self, fid: Fid, locker: &FileLockOwnerRecord) {
        self.note();
        self.file_lock_owners.restore(fid, locker);
    }

    /// One is taken now.
    pub(super) fn note(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A FLUSH has released what `owner` had.
    pub(super) fn flushed(&self, file: &FileDescription, handle: FileHandle, owner: LockOwner) {
        if self.any() {
            self.file_lock_owners.forget(file.pin.fid, handle, owner);
        }
    }
}

impl FileSystem {
    /// Acquires, changes or releases a file lock. With `wait`, waits for other owners to release theirs;
    /// dropping the future withdraws the request. One RPC.
    ///
    /// # Errors
    /// As `fcntl(2)` and `flock(2)`: `EAGAIN` if another lock conflicts, `EDEADLK`; `ENOLCK` if the user has the share of
    /// the mount's locks that one may have, or that of its waits for locks on the file.
    #[boxed]
    pub async fn set_lock(
        &self,
        handle: FileHandle,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> Result<(), Errno> {
        let file = self.0.handles.get(handle)?;
        self.0.file_locks_taken.note();
        if lock.mode != FileLockMode::Unlock {
            let newest = self.0.handles.newest();
            let locker = FileLockOwner { handle, owner, is_flock: lock.is_flock, newest };
            self.0.file_locks_taken.file_lock_owners.note(file.pin.fid, locker).await;
        }
        let wait = if wait { FlockWait::Wait } else { FlockWait::Try };
        self.0.meta.set_lock(&file.pin, owner, checked(lock)?, wait).await
    }

    /// A lock of another owner that conflicts with `lock`, if there is one. One RPC.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    #[boxed]
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
    pub(super) fn needs_no_flush(&self, file: &FileDescription) -> bool {
        !file.flags.writes()
            && file.pin.file_type() == Some(FileType::Regular)
            && !self.file_locks_taken.any()
    }

    /// Releases every lock that `owner` has on the file; no RPC if there is none.
    pub(super) async fn unlock_all(
        &self,
        file: &FileDescription,
        owner: LockOwner,
    ) -> Result<(), Errno> {
        if !self.meta.may_have_locks(&file.pin, owner) {
            return Ok(());
        }
        let everything = FileLock {
            start: 0,
            end: FileLock::END_MAX,
            mode: FileLockMode::Unlock,
            pid: file.who.pid,
            uid: file.who.uid,
            is_flock: false,
        };
        self.meta.set_lock(&file.pin, owner, everything, FlockWait::Try).await
    }

    /// Releases the locks that end with the last close of a file: those of the open file description itself
    /// (`flock(2)`, whose owner is `flock`, and `F_OFD_SETLK`, of whose end FUSE reports nothing else); and where
    /// closes are not reported, those that were taken through it, and those of the process that opened it.
    pub(super) async fn unlock_closed(
        &self,
        handle: FileHandle,
        file: &FileDescription,
        flock: Option<LockOwner>,
    ) -> Result<(), Errno> {
        if flock.is_none() && !self.file_locks_taken.any() {
            return Ok(());
        }
        let of_process = match file.sends_no_flush {
            true => self.meta.lock_owners(&file.pin, file.who.pid),
            false => Vec::new(),
        };
        let mut unlocked = Ok(());
        let file_lock_owners = &self.file_locks_taken.file_lock_owners;
        let unlocking = file_lock_owners.close(file.pin.fid, handle, flock, of_process);
        for owner in &unlocking.owners {
            unlocked = unlocked.and(self.unlock_all(file, *owner).await);
        }
        unlocked
    }
}

fn checked(lock: FileLock) -> Result<FileLock, Errno> {
    let end = lock.end.min(FileLock::END_MAX);
    if lock.start > end { Err(Errno::EINVAL) } else { Ok(FileLock { end, ..lock }) }
}
