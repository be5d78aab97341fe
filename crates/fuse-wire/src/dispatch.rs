//! From the number of an operation to its method (`enum fuse_opcode`).

use std::sync::Arc;

use sheen_types::Errno;

use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::input::{Input, Request, SetAttributes};
use crate::opcode::*;
use crate::reply::{ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty};
use crate::types::{FileHandle, INodeNo, KernelFlags, LockOwner, RenameFlags, WriteFlags};

/// The kernel says which open file it means (`FUSE_GETATTR_FH`).
const GETATTR_FH: u32 = 1;
/// A read is a program's call (`FUSE_READ_LOCKOWNER`).
const READ_LOCKOWNER: u32 = 1 << 1;
/// Locks of `flock(2)` go with the last descriptor (`FUSE_RELEASE_FLOCK_UNLOCK`).
const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// Data alone is synced (`FUSE_FSYNC_FDATASYNC`).
const FDATASYNC: u32 = 1;

/// Calls the method for a request. What is not as the protocol has it is `EIO`, what is not known `ENOSYS`.
pub(crate) fn dispatch(
    filesystem: &impl Filesystem,
    device: &Arc<Device>,
    request: &Request,
    input: Input<'_>,
) {
    let call = Call { filesystem, device, request, input };
    if let Err(errno) = call.dispatch() {
        tracing::debug!(opcode = request.opcode, unique = request.unique, %errno, "request refused");
        ReplyEmpty::new(device, request.unique).error(errno);
    }
}

struct Call<'a, F> {
    filesystem: &'a F,
    device: &'a Arc<Device>,
    request: &'a Request,
    input: Input<'a>,
}

/// A reply of the kind that the method wants.
macro_rules! reply {
    ($call:expr) => {
        FromRequest::of($call.device, $call.request)
    };
}

/// Made for the request that it answers.
trait FromRequest {
    fn of(device: &Arc<Device>, request: &Request) -> Self;
}

macro_rules! from_request {
    ($($name:ident,)*) => {$(
        impl FromRequest for crate::reply::$name {
            fn of(device: &Arc<Device>, request: &Request) -> Self {
                Self::new(device, request.unique)
            }
        }
    )*};
}

from_request! {
    ReplyEmpty, ReplyEntry, ReplyAttr, ReplyStatx, ReplyOpen, ReplyCreate, ReplyData, ReplyWrite, ReplyStatfs,
    ReplyXattr, ReplyLock, ReplyLseek, ReplyIoctl,
}

impl<F: Filesystem> Call<'_, F> {
    fn dispatch(self) -> Result<(), Errno> {
        let done = match self.request.opcode {
            LOOKUP | READLINK | SYMLINK | MKNOD | MKDIR | UNLINK | RMDIR | LINK | RENAME
            | RENAME2 => self.names(),
            GETATTR | STATX | SETATTR | STATFS | ACCESS => self.attributes(),
            OPEN | CREATE | READ | WRITE | FLUSH | FSYNC | RELEASE | FALLOCATE | LSEEK => {
                self.files()
            }
            OPENDIR | READDIR | READDIRPLUS | FSYNCDIR | RELEASEDIR => self.directories(),
            SETXATTR | GETXATTR | LISTXATTR | REMOVEXATTR => self.extended_attributes(),
            GETLK | SETLK | SETLKW => self.locks(),
            IOCTL => self.ioctl(),
            FORGET | BATCH_FORGET | INTERRUPT => self.unanswered(),
            // Not `FUSE_INIT` a second time, no `FUSE_BMAP`, `FUSE_POLL`, `FUSE_COPY_FILE_RANGE`, `FUSE_SYNCFS`,
            // `FUSE_TMPFILE`: the kernel does without.
            _ => return Err(Errno::ENOSYS),
        };
        done.ok_or(Errno::EIO)
    }

    /// Requests about names.
    fn names(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let node = request.node;
        match request.opcode {
            LOOKUP => to.lookup(request, node, input.text()?, reply!(self)),
            READLINK => to.readlink(request, node, reply!(self)),
            SYMLINK => to.symlink(request, node, input.text()?, input.text()?, reply!(self)),
            MKNOD => {
                let (mode, rdev, umask, _) =
                    (input.u32()?, input.u32()?, input.u32()?, input.u32()?);
                to.mknod(request, node, input.text()?, mode, umask, rdev, reply!(self));
            }
            MKDIR => {
                let (mode, umask) = (input.u32()?, input.u32()?);
                to.mkdir(request, node, input.text()?, mode, umask, reply!(self));
            }
            UNLINK => to.unlink(request, node, input.text()?, reply!(self)),
            RMDIR => to.rmdir(request, node, input.text()?, reply!(self)),
            LINK => {
                let old = INodeNo(input.u64()?);
                to.link(request, old, node, input.text()?, reply!(self));
            }
            _ => {
                let new_parent = INodeNo(input.u64()?);
                let has_flags = request.opcode == RENAME2;
                let flags = if has_flags { (input.u32()?, input.u32()?).0 } else { 0 };
                let (old, new) = (input.text()?, input.text()?);
                let flags = RenameFlags::from_bits_retain(flags);
                to.rename(request, node, old, new_parent, new, flags, reply!(self));
            }
        }
        Some(())
    }

    fn attributes(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let node = request.node;
        match request.opcode {
            SETATTR => to.setattr(request, node, SetAttributes::read(&mut input)?, reply!(self)),
            STATFS => to.statfs(request, node, reply!(self)),
            ACCESS => to.access(request, node, input.u32()?, reply!(self)),
            opcode => {
                let (flags, _, handle) = (input.u32()?, input.u32()?, FileHandle(input.u64()?));
                let opened = (flags & GETATTR_FH != 0).then_some(handle);
                match opcode {
                    STATX => to.statx(request, node, opened, reply!(self)),
                    _ => to.getattr(request, node, opened, reply!(self)),
                }
            }
        }
        Some(())
    }

    fn files(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let node = request.node;
        match request.opcode {
            OPEN => to.open(request, node, KernelFlags(input.u32()?), reply!(self)),
            READ | WRITE => return self.transfer(),
            RELEASE => {
                let (opened, _, flags) = (FileHandle(input.u64()?), input.u32()?, input.u32()?);
                let owner = LockOwner(input.u64()?);
                let owner = (flags & RELEASE_FLOCK_UNLOCK != 0).then_some(owner);
                to.release(request, node, opened, owner, reply!(self));
            }
            FSYNC => {
                let (opened, flags) = (FileHandle(input.u64()?), input.u32()?);
                to.fsync(request, node, opened, flags & FDATASYNC != 0, reply!(self));
            }
            FLUSH => {
                let (opened, _, _) = (FileHandle(input.u64()?), input.u32()?, input.u32()?);
                to.flush(request, node, opened, LockOwner(input.u64()?), reply!(self));
            }
            CREATE => {
                let (flags, mode, umask) = (KernelFlags(input.u32()?), input.u32()?, input.u32()?);
                input.u32()?;
                to.create(request, node, input.text()?, mode, umask, flags, reply!(self));
            }
            FALLOCATE => {
                let (opened, offset, length) =
                    (FileHandle(input.u64()?), input.u64()?, input.u64()?);
                to.fallocate(request, node, opened, offset, length, input.u32()?, reply!(self));
            }
            _ => {
                let (opened, offset) = (FileHandle(input.u64()?), input.i64()?);
                let whence = input.u32()?.cast_signed();
                to.lseek(request, node, opened, offset, whence, reply!(self));
            }
        }
        Some(())
    }

    /// `fuse_read_in`, and `fuse_write_in`, which has the same fields.
    fn transfer(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let (opened, offset) = (FileHandle(input.u64()?), input.u64()?);
        let (size, how, owner) = (input.u32()?, input.u32()?, LockOwner(input.u64()?));
        let (flags, _) = (KernelFlags(input.u32()?), input.u32()?);
        let node = request.node;
        if request.opcode == READ {
            let owner = (how & READ_LOCKOWNER != 0).then_some(owner);
            to.read(request, node, opened, offset, size, flags, owner, reply!(self));
            return Some(());
        }
        let (data, how) = (input.bytes(size as usize)?, WriteFlags::from_bits_retain(how));
        to.write(request, node, opened, offset, data, how, flags, reply!(self));
        Some(())
    }

    fn directories(self) -> Option<()> {
        let Self { filesystem: to, device, request, mut input } = self;
        let node = request.node;
        if request.opcode == OPENDIR {
            to.opendir(request, node, KernelFlags(input.u32()?), reply!(self));
            return Some(());
        }
        let opened = FileHandle(input.u64()?);
        match request.opcode {
            RELEASEDIR => to.releasedir(request, node, opened, reply!(self)),
            FSYNCDIR => {
                let data = input.u32()? & FDATASYNC != 0;
                to.fsyncdir(request, node, opened, data, reply!(self));
            }
            opcode => {
                let (offset, room) = (input.u64()?, input.u32()?);
                match opcode {
                    READDIR => {
                        let reply = ReplyDirectory::new(device, request.unique, room);
                        to.readdir(request, node, opened, offset, reply);
                    }
                    _ => {
                        let reply = ReplyDirectoryPlus::new(device, request.unique, room);
                        to.readdirplus(request, node, opened, offset, reply);
                    }
                }
            }
        }
        Some(())
    }

    fn extended_attributes(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let node = request.node;
        match request.opcode {
            SETXATTR => {
                let (size, flags) = (input.u32()?, input.u32()?.cast_signed());
                let (name, value) = (input.text()?, input.bytes(size as usize)?);
                to.setxattr(request, node, name, value, flags, reply!(self));
            }
            GETXATTR => {
                let (size, _) = (input.u32()?, input.u32()?);
                to.getxattr(request, node, input.text()?, size, reply!(self));
            }
            LISTXATTR => to.listxattr(request, node, input.u32()?, reply!(self)),
            _ => to.removexattr(request, node, input.text()?, reply!(self)),
        }
        Some(())
    }

    fn locks(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let (opened, owner) = (FileHandle(input.u64()?), LockOwner(input.u64()?));
        let (start, end) = (input.u64()?, input.u64()?);
        let (kind, pid) = (input.u32()?.cast_signed(), input.u32()?);
        let node = request.node;
        match request.opcode {
            GETLK => to.getlk(request, node, opened, owner, start, end, kind, pid, reply!(self)),
            opcode => {
                let waits = opcode == SETLKW;
                to.setlk(request, node, opened, owner, start, end, kind, pid, waits, reply!(self));
            }
        }
        Some(())
    }

    fn ioctl(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        let (opened, _, command) = (FileHandle(input.u64()?), input.u32()?, input.u32()?);
        let argument = input.u64()?;
        let (size, room) = (input.u32()?, input.u32()?);
        let data = input.bytes(size as usize)?;
        to.ioctl(request, request.node, opened, command, argument, data, room, reply!(self));
        Some(())
    }

    /// Requests that have no answer.
    fn unanswered(self) -> Option<()> {
        let Self { filesystem: to, request, mut input, .. } = self;
        match request.opcode {
            FORGET => to.forget(request.node, input.u64().unwrap_or_default()),
            INTERRUPT => to.interrupt(input.u64().unwrap_or_default()),
            _ => {
                let count = input.u32().unwrap_or_default();
                let _ = input.u32();
                for _ in 0..count {
                    let (Some(node), Some(lookups)) = (input.u64(), input.u64()) else { break };
                    to.forget(INodeNo(node), lookups);
                }
            }
        }
        Some(())
    }
}
