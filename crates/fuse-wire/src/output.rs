//! The fields of a reply, as they lie in the message to the kernel.

use std::time::Duration;

use sheen_types::Timestamp;

use crate::types::{FileHandle, FopenFlags, Generation, INodeNo};

/// The attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttr {
    /// The number that programs see.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// The last access.
    pub atime: Timestamp,
    /// The last change of data.
    pub mtime: Timestamp,
    /// The last change of anything.
    pub ctime: Timestamp,
    /// When it was made; goes with `statx(2)` alone.
    pub btime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device that a special file stands for, as the kernel encodes it for FUSE (`new_encode_dev`).
    pub rdev: u32,
    /// Bytes of a good request.
    pub blksize: u32,
}

/// What `statfs(2)` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks of `frsize` bytes.
    pub blocks: u64,
    /// Of them, those that are free.
    pub bfree: u64,
    /// Those that are free for users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Inodes that are free.
    pub ffree: u64,
    /// Bytes of a good request.
    pub bsize: u32,
    /// Bytes of a name, at most.
    pub namelen: u32,
    /// Bytes of a block.
    pub frsize: u32,
}

/// What `fuse_statx_out` says is there: everything but a mount's number (`STATX_BASIC_STATS | STATX_BTIME`).
const STATX_MASK: u32 = 0xfff;

/// A message that grows.
#[derive(Debug, Default)]
pub(crate) struct Output(pub(crate) Vec<u8>);

impl Output {
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.u64(value.cast_unsigned())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// `fuse_attr`.
    pub(crate) fn attributes(&mut self, of: &FileAttr) -> &mut Self {
        self.u64(of.ino).u64(of.size).u64(of.blocks);
        let times = [of.atime, of.mtime, of.ctime];
        times.iter().for_each(|time| _ = self.i64(time.seconds));
        times.iter().for_each(|time| _ = self.u32(time.nanoseconds));
        self.u32(of.mode).u32(of.nlink).u32(of.uid).u32(of.gid).u32(of.rdev).u32(of.blksize).u32(0)
    }

    /// `fuse_entry_out`.
    pub(crate) fn entry(
        &mut self,
        (node, generation): (INodeNo, Generation),
        (entry, attributes): (Duration, Duration),
        of: &FileAttr,
    ) -> &mut Self {
        self.u64(node.0).u64(generation.0).u64(entry.as_secs()).u64(attributes.as_secs());
        self.u32(entry.subsec_nanos()).u32(attributes.subsec_nanos()).attributes(of)
    }

    /// `fuse_attr_out`.
    pub(crate) fn attr_out(&mut self, keep: Duration, of: &FileAttr) -> &mut Self {
        self.u64(keep.as_secs()).u32(keep.subsec_nanos()).u32(0).attributes(of)
    }

    /// `fuse_open_out`.
    pub(crate) fn open_out(&mut self, handle: FileHandle, flags: FopenFlags) -> &mut Self {
        self.u64(handle.0).u32(flags.bits()).u32(0)
    }

    /// `fuse_statx_out`.
    pub(crate) fn statx_out(&mut self, keep: Duration, of: &FileAttr) -> &mut Self {
        self.u64(keep.as_secs()).u32(keep.subsec_nanos()).u32(0).u64(0).u64(0);
        self.u32(STATX_MASK).u32(of.blksize).u64(0).u32(of.nlink).u32(of.uid).u32(of.gid);
        self.u16(of.mode as u16).u16(0).u64(of.ino).u64(of.size).u64(of.blocks).u64(0);
        for time in [of.atime, of.btime, of.ctime, of.mtime] {
            self.i64(time.seconds).u32(time.nanoseconds).u32(0);
        }
        let (major, minor) = device_parts(of.rdev);
        self.u32(major).u32(minor).u32(0).u32(0);
        (0..14).for_each(|_| _ = self.u64(0));
        self
    }

    /// `fuse_kstatfs`.
    pub(crate) fn statfs_out(&mut self, of: &StatFs) -> &mut Self {
        self.u64(of.blocks).u64(of.bfree).u64(of.bavail).u64(of.files).u64(of.ffree);
        self.u32(of.bsize).u32(of.namelen).u32(of.frsize).u32(0);
        (0..6).for_each(|_| _ = self.u32(0));
        self
    }

    /// `fuse_dirent` and its name, up to a multiple of 8 bytes. `mode` has the file's type.
    pub(crate) fn directory_entry(&mut self, (ino, next): (u64, u64), mode: u32, name: &[u8]) {
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.u64(ino).u64(next).u32(length).u32((mode >> 12) & 15).bytes(name);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

/// Bytes that [`Output::directory_entry`] takes.
pub(crate) fn directory_entry_bytes(name: &[u8]) -> usize {
    (24 + name.len()).next_multiple_of(8)
}

/// Bytes of a `fuse_entry_out`.
pub(crate) const ENTRY_BYTES: usize = 128;

/// Major and minor number of what [`FileAttr::rdev`] has.
fn device_parts(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FileAttr {
        FileAttr {
            ino: 7,
            size: 10,
            mode: 0o100_644,
            rdev: 0x0012_3456,
            btime: Timestamp { seconds: -3, nanoseconds: 5 },
            ..FileAttr::default()
        }
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let length = |write: fn(&mut Output)| {
            let mut output = Output::default();
            write(&mut output);
            output.0.len()
        };
        let lengths = [
            length(|it| _ = it.attributes(&file())),
            length(|it| {
                it.entry((INodeNo(1), Generation(1)), (Duration::ZERO, Duration::ZERO), &file());
            }),
            length(|it| _ = it.attr_out(Duration::ZERO, &file())),
            length(|it| _ = it.open_out(FileHandle(1), FopenFlags::empty())),
            length(|it| _ = it.statx_out(Duration::ZERO, &file())),
            length(|it| _ = it.statfs_out(&StatFs::default())),
            length(|it| it.directory_entry((1, 2), 0o100_000, b"abc")),
        ];
        assert_eq!(lengths, [88, ENTRY_BYTES, 104, 16, 288, 80, directory_entry_bytes(b"abc")]);
    }

    #[test]
    fn a_birth_time_and_a_device_lie_where_the_kernel_reads_them() {
        let mut output = Output::default();
        output.statx_out(Duration::from_secs(9), &file());
        let word =
            |at: usize| u32::from_ne_bytes(output.0[at..at + 4].try_into().expect("four bytes"));
        // Behind 32 bytes of the reply's own: mask 0, mode 28, ino 32, size 40, btime 80, rdev 128.
        assert_eq!((word(0), word(32), word(60)), (9, STATX_MASK, 0o100_644));
        assert_eq!((word(64), word(72), word(32 + 88)), (7, 10, 5));
        assert_eq!(
            (word(32 + 80).cast_signed(), word(32 + 128), word(32 + 132)),
            (-3, 0x234, 0x156)
        );
    }
}
