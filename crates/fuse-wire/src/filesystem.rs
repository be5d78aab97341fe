//! What a file system answers: one method for each kind of request, in one trait for each family of them.
#![allow(clippy::too_many_arguments, reason = "as many as the kernel sends")]

use std::ffi::OsStr;

use sheen_types::Errno;

use crate::agreement::KernelConfig;
use crate::input::{Request, SetAttributes};
use crate::reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
use crate::types::{FileHandle, INodeNo, LockOwner, OpenFlags, RenameFlags, WriteFlags};

/// Methods that answer with `ENOSYS` where a file system has none of its own: the kernel does without from then on.
macro_rules! optional {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*; $reply:ty);)*) => {$(
        $(#[$doc])*
        fn $name(&self, request: &Request, $($argument: $kind,)* reply: $reply) {
            let _ = (request, $($argument,)*);
            reply.error(Errno::ENOSYS);
        }
    )*};
}

/// A file system. Methods run on the threads that read from the kernel, so they must not wait: they answer by their
/// reply, now or later.
pub trait Filesystem:
    NameCalls
    + AttributeCalls
    + XattrCalls
    + FileCalls
    + DirectoryCalls
    + LockCalls
    + Send
    + Sync
    + 'static
{
    /// What to agree on with the kernel, before anything else.
    fn init(&self, config: &mut KernelConfig) {
        let _ = config;
    }

    /// The kernel forgets an inode that it was given so often.
    fn forget(&self, node: INodeNo, lookups: u64) {
        let _ = (node, lookups);
    }

    /// The caller of the request `unique` got a signal while it waited. It goes on waiting until that is answered.
    fn interrupt(&self, unique: u64) {
        let _ = unique;
    }
}

/// Calls about names in a directory.
pub trait NameCalls {
    optional! {
        /// `FUSE_LOOKUP`.
        fn lookup(parent: INodeNo, name: &OsStr; ReplyEntry);
        /// `FUSE_READLINK`.
        fn readlink(node: INodeNo; ReplyData);
        /// `FUSE_MKNOD`.
        fn mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32; ReplyEntry);
        /// `FUSE_MKDIR`.
        fn mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32; ReplyEntry);
        /// `FUSE_SYMLINK`.
        fn symlink(parent: INodeNo, name: &OsStr, target: &OsStr; ReplyEntry);
        /// `FUSE_UNLINK`.
        fn unlink(parent: INodeNo, name: &OsStr; ReplyEmpty);
        /// `FUSE_RMDIR`.
        fn rmdir(parent: INodeNo, name: &OsStr; ReplyEmpty);
        /// `FUSE_RENAME2`, and `FUSE_RENAME` without flags.
        fn rename(
            parent: INodeNo, name: &OsStr, new_parent: INodeNo, new_name: &OsStr, flags: RenameFlags; ReplyEmpty
        );
        /// `FUSE_LINK`.
        fn link(node: INodeNo, parent: INodeNo, name: &OsStr; ReplyEntry);
    }
}

/// Calls about the attributes of an inode, and of the file system.
pub trait AttributeCalls {
    optional! {
        /// `FUSE_GETATTR`.
        fn getattr(node: INodeNo, opened: Option<FileHandle>; ReplyAttr);
        /// `FUSE_STATX`: attributes with the time of birth.
        fn statx(node: INodeNo, opened: Option<FileHandle>; ReplyStatx);
        /// `FUSE_SETATTR`.
        fn setattr(node: INodeNo, changes: SetAttributes; ReplyAttr);
        /// `FUSE_ACCESS`: `mask` as of `access(2)`.
        fn access(node: INodeNo, mask: u32; ReplyEmpty);
        /// `FUSE_STATFS`.
        fn statfs(node: INodeNo; ReplyStatfs);
    }
}

/// Calls about extended attributes.
pub trait XattrCalls {
    optional! {
        /// `FUSE_SETXATTR`; flags as of `setxattr(2)`.
        fn setxattr(node: INodeNo, name: &OsStr, value: &[u8], flags: i32; ReplyEmpty);
        /// `FUSE_GETXATTR`; the caller has room for `size` bytes, and asks for the size if that is 0.
        fn getxattr(node: INodeNo, name: &OsStr, size: u32; ReplyXattr);
        /// `FUSE_LISTXATTR`; as [`XattrCalls::getxattr`].
        fn listxattr(node: INodeNo, size: u32; ReplyXattr);
        /// `FUSE_REMOVEXATTR`.
        fn removexattr(node: INodeNo, name: &OsStr; ReplyEmpty);
    }
}

/// Calls about files, most of them by an open handle.
pub trait FileCalls {
    optional! {
        /// `FUSE_OPEN`.
        fn open(node: INodeNo, flags: OpenFlags; ReplyOpen);
        /// `FUSE_CREATE`.
        fn create(
            parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: OpenFlags; ReplyCreate
        );
        /// `FUSE_READ`. There is an owner if it is a program's call, and none if it fills pages.
        fn read(
            node: INodeNo, opened: FileHandle, offset: u64, size: u32, flags: OpenFlags, owner: Option<LockOwner>;
            ReplyData
        );
        /// `FUSE_WRITE`.
        fn write(
            node: INodeNo, opened: FileHandle, offset: u64, data: &[u8], how: WriteFlags, flags: OpenFlags;
            ReplyWrite
        );
        /// `FUSE_FLUSH`: a descriptor is closed.
        fn flush(node: INodeNo, opened: FileHandle, owner: LockOwner; ReplyEmpty);
        /// `FUSE_RELEASE`: the last descriptor was closed; the owner of locks of `flock(2)`, if there are any.
        fn release(node: INodeNo, opened: FileHandle, owner: Option<LockOwner>; ReplyEmpty);
        /// `FUSE_FSYNC`; of the data alone, or of attributes, too.
        fn fsync(node: INodeNo, opened: FileHandle, data: bool; ReplyEmpty);
        /// `FUSE_FALLOCATE`; mode as of `fallocate(2)`.
        fn fallocate(node: INodeNo, opened: FileHandle, offset: u64, length: u64, mode: u32; ReplyEmpty);
        /// `FUSE_LSEEK`, to data or holes.
        fn lseek(node: INodeNo, opened: FileHandle, offset: i64, whence: i32; ReplyLseek);
        /// `FUSE_IOCTL`; the argument may be a pointer into the caller's memory, and `room` is for what it returns.
        fn ioctl(
            node: INodeNo, opened: FileHandle, command: u32, argument: u64, data: &[u8], room: u32; ReplyIoctl
        );
    }
}

/// Calls about the listing of a directory.
pub trait DirectoryCalls {
    optional! {
        /// `FUSE_OPENDIR`.
        fn opendir(node: INodeNo, flags: OpenFlags; ReplyOpen);
        /// `FUSE_READDIR`.
        fn readdir(node: INodeNo, opened: FileHandle, offset: u64; ReplyDirectory);
        /// `FUSE_READDIRPLUS`.
        fn readdirplus(node: INodeNo, opened: FileHandle, offset: u64; ReplyDirectoryPlus);
        /// `FUSE_RELEASEDIR`.
        fn releasedir(node: INodeNo, opened: FileHandle; ReplyEmpty);
        /// `FUSE_FSYNCDIR`.
        fn fsyncdir(node: INodeNo, opened: FileHandle, data: bool; ReplyEmpty);
    }
}

/// Calls about the locks of `fcntl(2)` and `flock(2)`.
pub trait LockCalls {
    optional! {
        /// `FUSE_GETLK`; kinds as of `fcntl(2)`.
        fn getlk(
            node: INodeNo, opened: FileHandle, owner: LockOwner, start: u64, end: u64, kind: i32, pid: u32; ReplyLock
        );
        /// `FUSE_SETLK`, and `FUSE_SETLKW`, which waits.
        fn setlk(
            node: INodeNo, opened: FileHandle, owner: LockOwner, start: u64, end: u64, kind: i32, pid: u32,
            waits: bool; ReplyEmpty
        );
    }
}
