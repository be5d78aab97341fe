//! File locks.

use sheen_types::Errno;

use super::{FileHandle, FileLock, FileSystem, LockOwner};
use crate::meta::FlockAsk;

/// The last byte that a file lock can cover: the largest file offset.
pub(super) const END_MAX: u64 = i64::MAX as u64;

impl FileSystem {
    /// Takes, changes or gives back a file lock. With `wait`, waits for others to give theirs back;
    /// dropping the future takes the request back. One RPC.
    ///
    /// # Errors
    /// As `fcntl(2)` and `flock(2)`: `EAGAIN` if another is in the way, `EDEADLK`.
    pub async fn set_lock(
        &self,
        handle: FileHandle,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> Result<(), Errno> {
        let file = self.0.handles.get(handle)?;
        let wait = if wait { FlockAsk::Wait } else { FlockAsk::Try };
        self.0.meta.set_lock(&file.pin, owner, checked(lock)?, wait).await
    }

    /// A lock of another owner that is in the way of `lock`, if there is one. One RPC.
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

fn checked(lock: FileLock) -> Result<FileLock, Errno> {
    let end = lock.end.min(END_MAX);
    if lock.start > end { Err(Errno::EINVAL) } else { Ok(FileLock { end, ..lock }) }
}
