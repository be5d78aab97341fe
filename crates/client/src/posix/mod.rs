//! The facade: what FUSE and native benchmarks call.
//!
//! Every call names who asks ([`Credentials`]) and answers a POSIX [`Errno`]. An inode is known by
//! its [`NodeId`] from the lookup that found it until as many lookups have been forgotten; an open
//! file by its [`FileHandle`] until released. Answers say what the kernel may [`Keep`]: exactly what
//! a held lock covers; [`Invalidate`] is told when that lock goes.
//!
//! A call may be dropped at any await (an interrupted system call): a change that has been sent
//! happens or not, a lock request is taken back.
//!
//! Costs, in RPCs: the module of each operation in [`crate::meta`] says; at most one for each
//! metadata operation, none where a lock covers the answer.

mod invalidate;
mod types;

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::{Errno, Name};

pub use invalidate::{Invalidate, Stale};
pub use types::{
    Attributes, Credentials, DirCookie, DirEntry, DirEntryPlus, Entry, Fallocate, FileHandle,
    FileLock, FileLockMode, FileType, FsStat, Keep, LockOwner, Lookup, NewNode, NodeId, OpenFlags,
    Opened, RenameMode, Seek, SetAttributes, SetTime, Stat, TYPE_MASK, XattrMode,
};

/// A mounted file system. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct FileSystem {}

impl FileSystem {
    /// Whom to tell when what was answered with [`Keep`] goes stale. Until someone watches, nothing
    /// may be kept and every answer says so.
    pub fn watch(&self, observer: Arc<dyn Invalidate>) {
        let _ = observer;
    }

    /// Finds `name` in `parent`. A name found counts as one lookup of its node.
    ///
    /// # Errors
    /// As `stat(2)`, but a name that is not there is no error.
    pub async fn lookup(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<Lookup, Errno> {
        Err(Errno::ENOSYS)
    }

    /// The directory that holds `node`, for `..` of a directory handed out over NFS.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub async fn lookup_parent(&self, who: &Credentials, node: NodeId) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Takes back `lookups` lookups of `node`.
    pub fn forget(&self, node: NodeId, lookups: u64) {}

    /// Attributes. Size, blocks and times are those of the moment: from the MDT, merged with those
    /// of the file's objects where someone may be writing.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub async fn getattr(&self, who: &Credentials, node: NodeId) -> Result<Stat, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes; a size change needs write permission or a handle open for writing.
    ///
    /// # Errors
    /// As `chmod(2)`, `chown(2)`, `truncate(2)`, `utimensat(2)`.
    pub async fn setattr(
        &self,
        who: &Credentials,
        node: NodeId,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> Result<Stat, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory, symbolic link, device, pipe, socket or closed regular file. Counts as one
    /// lookup. `mode` has permission bits only; the umask of `who` is applied.
    ///
    /// # Errors
    /// As `mkdir(2)`, `symlink(2)`, `mknod(2)`.
    pub async fn make(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub async fn readlink(&self, who: &Credentials, node: NodeId) -> Result<Bytes, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Gives `node` another name. Counts as one lookup.
    ///
    /// # Errors
    /// As `link(2)`.
    pub async fn link(
        &self,
        who: &Credentials,
        node: NodeId,
        parent: NodeId,
        name: &Name,
    ) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub async fn unlink(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub async fn rmdir(&self, who: &Credentials, parent: NodeId, name: &Name) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub async fn rename(
        &self,
        who: &Credentials,
        from: (NodeId, &Name),
        to: (NodeId, &Name),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file, or a directory to list it ([`OpenFlags::DIRECTORY`]). Truncates if asked to.
    ///
    /// # Errors
    /// As `open(2)`.
    pub async fn open(
        &self,
        who: &Credentials,
        node: NodeId,
        flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Opens the file `name`, creating it if absent, in one RPC. Counts as one lookup.
    ///
    /// # Errors
    /// As `open(2)` with `O_CREAT`; `EEXIST` with [`OpenFlags::EXCLUSIVE`] if the name is there;
    /// `ELOOP`, `EISDIR` and the like if it names no regular file.
    pub async fn create(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Reads at most `length` bytes; fewer only at the end of the file. The pieces lie one behind the
    /// other and share memory with the cache or the network.
    ///
    /// # Errors
    /// As `pread(2)`.
    pub async fn read(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Bytes>, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Writes all of `data`, at the end for a handle opened with [`OpenFlags::APPEND`]. Answers how
    /// much was written.
    ///
    /// # Errors
    /// As `pwrite(2)`. What fails after the answer is reported by the next flush or fsync.
    pub async fn write(&self, handle: FileHandle, offset: u64, data: Bytes) -> Result<u32, Errno> {
        Err(Errno::ENOSYS)
    }

    /// One descriptor of the open file is closed: reports errors of earlier writes, gives back the
    /// owner's `fcntl(2)` locks.
    ///
    /// # Errors
    /// As `close(2)`.
    pub async fn flush(&self, handle: FileHandle, owner: LockOwner) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor is closed. The handle is gone, whatever the answer; `flock` is the owner
    /// whose `flock(2)` locks end with it.
    ///
    /// # Errors
    /// What the MDT answered; nobody is there to hear it.
    pub async fn release(&self, handle: FileHandle, flock: Option<LockOwner>) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Returns when the file (data only, or attributes too) or directory is durable on its servers.
    ///
    /// # Errors
    /// As `fsync(2)`.
    pub async fn fsync(&self, handle: FileHandle, data_only: bool) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Allocates or frees space.
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub async fn fallocate(
        &self,
        handle: FileHandle,
        what: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Where the next data or hole from `offset` begins.
    ///
    /// # Errors
    /// `ENXIO` behind the end.
    pub async fn seek(&self, handle: FileHandle, offset: u64, what: Seek) -> Result<u64, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Names of an open directory from `from` on, at least one and at most `limit`; none at the end.
    ///
    /// # Errors
    /// As `getdents(2)`.
    pub async fn readdir(
        &self,
        handle: FileHandle,
        from: DirCookie,
        limit: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        Err(Errno::ENOSYS)
    }

    /// As [`FileSystem::readdir`], and looks each name up. Names that the caller has no room for in
    /// the end must be forgotten like any lookup.
    ///
    /// # Errors
    /// As `getdents(2)`.
    pub async fn readdir_plus(
        &self,
        who: &Credentials,
        handle: FileHandle,
        from: DirCookie,
        limit: usize,
    ) -> Result<Vec<DirEntryPlus>, Errno> {
        Err(Errno::ENOSYS)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As `getxattr(2)`: `ENODATA` if there is none.
    pub async fn getxattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
    ) -> Result<Bytes, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Names of the extended attributes, each with a NUL behind it.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub async fn listxattr(&self, who: &Credentials, node: NodeId) -> Result<Bytes, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub async fn setxattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    pub async fn removexattr(
        &self,
        who: &Credentials,
        node: NodeId,
        name: &[u8],
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Takes, changes or gives back a file lock. With `wait`, waits for others to give theirs back;
    /// dropping the future takes the request back.
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
        Err(Errno::ENOSYS)
    }

    /// A lock of another owner that is in the way of `lock`, if there is one.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub async fn get_lock(
        &self,
        handle: FileHandle,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<Option<FileLock>, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Space and inodes of the whole file system.
    ///
    /// # Errors
    /// As `statfs(2)`.
    pub async fn statfs(&self) -> Result<FsStat, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Writes everything back, gives all locks and handles back, and leaves all targets.
    pub async fn unmount(&self) {}
}
