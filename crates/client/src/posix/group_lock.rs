//! The group lock of an open file (`LL_IOC_GROUP_LOCK`): programs of one group, on any client, read and write a file
//! together, and all other users of it wait.
//!
//! It is the open file's, not the process's: it ends when it is released, or with the last descriptor. As in Lustre an
//! open file has one at most, and one that was lost with an eviction is released as any other.
//!
//! The kernel's pages that the group has used are dropped when the lock ends; a read of this mount that finds one before
//! that is not asked about, as Lustre's fast reads are not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sheen_types::Errno;

use super::handles::FileDescription;
use super::permission::owns;
use super::{Credentials, FileHandle, FileSystem, FileType, Mounted, OpenFlags};
use crate::boxed;
use crate::data::{DataFile, GroupLockedFile, Locking};

/// What an open file holds.
pub(super) struct HeldGroupLock {
    gid: u64,
    /// None of a file without objects.
    _objects: Option<Arc<dyn GroupLockedFile>>,
}

impl FileSystem {
    /// Acquires the file's group lock for the group `gid`. Waits for other groups and other users of the file, unless
    /// it was opened with `O_NONBLOCK`. One RPC to each object's OST.
    ///
    /// # Errors
    /// `EINVAL` for group 0 and where the open file has such a lock, `EAGAIN` where it would wait and must not,
    /// `ENOTTY` for what is no regular file, `EPERM` where `who` may not keep the file's other users out.
    #[boxed]
    pub async fn group_lock(
        &self,
        who: &Credentials,
        handle: FileHandle,
        gid: u64,
    ) -> Result<(), Errno> {
        let file = self.regular(handle)?;
        if gid == 0 {
            return Err(Errno::EINVAL);
        }
        self.0.may_keep_out(who, &file).await?;
        let waits = !file.flags.has(OpenFlags::NONBLOCK);
        // Also while it waits for servers: of two calls on one open file the second finds the lock of the first.
        let mut held = match waits {
            true => file.group_lock.lock().await,
            false => file.group_lock.try_lock().map_err(|_| Errno::EAGAIN)?,
        };
        if held.is_some() {
            return Err(Errno::EINVAL);
        }
        let lock = |data: Arc<dyn DataFile>| async move { data.group_lock(gid, waits).await };
        let objects = self.0.with_data(&file.who, &file.pin, lock).await?;
        *held = Some(HeldGroupLock { gid, _objects: objects });
        file.group.store(gid, Ordering::Release);
        Ok(())
    }

    /// Releases it; what was written under it is flushed. No RPC is waited for.
    ///
    /// # Errors
    /// `EINVAL` where the open file has no lock of this group.
    #[boxed]
    pub async fn group_unlock(&self, handle: FileHandle, gid: u64) -> Result<(), Errno> {
        let file = self.regular(handle)?;
        let mut held = file.group_lock.lock().await;
        if held.as_ref().is_none_or(|held| held.gid != gid) {
            return Err(Errno::EINVAL);
        }
        file.group.store(0, Ordering::Release);
        *held = None;
        Ok(())
    }

    /// An open regular file. Lustre knows these calls for no other.
    pub(super) fn regular(&self, handle: FileHandle) -> Result<Arc<FileDescription>, Errno> {
        let file = self.0.handles.get(handle)?;
        match file.pin.file_type() {
            Some(FileType::Regular) => Ok(file),
            _ => Err(Errno::ENOTTY),
        }
    }
}

impl Mounted {
    /// Whether a group lock through `file` is for `who` to take: it keeps all other users out for as long as it is held,
    /// root's reads too, and no server revokes it. Who only reads could not change the file otherwise; the owner could
    /// take every right on it away.
    async fn may_keep_out(&self, who: &Credentials, file: &FileDescription) -> Result<(), Errno> {
        if file.flags.writes() {
            return Ok(());
        }
        self.refresh(who, &file.pin).await?;
        let owner = file.pin.state().last_attributes().ok_or(Errno::EIO)?.uid;
        if owns(owner, who) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

impl FileDescription {
    /// Which locks calls through it take.
    pub(super) fn locking(&self) -> Locking {
        Locking {
            is_exact: self.locks_exactly.load(Ordering::Relaxed),
            group: self.group.load(Ordering::Acquire),
        }
    }

    /// The last descriptor is closed.
    pub(super) async fn end_group_lock(&self) {
        if self.group.swap(0, Ordering::AcqRel) != 0 {
            *self.group_lock.lock().await = None;
        }
    }
}
