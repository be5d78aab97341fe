//! Conversions between the facade's types and the kernel's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use sheen_client::posix::{
    Attributes, Entry, FileLock, FileLockMode, FileType, NAME_TIMEOUT, NodeId, SetTime,
};
use sheen_fuse_wire::FileAttr;
use sheen_types::{Errno, Extent, Name, NameError};

/// "Until invalidated": longer than any mount.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// How long the kernel may keep something.
pub(crate) fn time_to_live(keep: bool) -> Duration {
    if keep { FOR_EVER } else { Duration::ZERO }
}

/// How long the kernel may keep the name of an inode.
pub(crate) fn name_time_to_live(entry: &Entry) -> Duration {
    match entry.attributes.file_type() {
        FileType::Directory if entry.keep.entry => NAME_TIMEOUT,
        _ => time_to_live(entry.keep.entry),
    }
}

/// For answers that have one time for the name and the attributes.
pub(crate) fn joint_time_to_live(entry: &Entry) -> Duration {
    name_time_to_live(entry).min(time_to_live(entry.keep.attributes))
}

/// An errno as the kernel passes it on. `ENOSYS` is none: the kernel would never ask the mount for
/// such a call again, and let `fsync` succeed.
pub(crate) fn errno(errno: Errno) -> Errno {
    let shown = match errno.shown() {
        Errno::ENOSYS => Errno::EOPNOTSUPP,
        shown => shown,
    };
    tracing::debug!(%errno, "the kernel is answered with an error");
    shown
}

/// A legal name. `.` and `..` are none: `adapter::calls::exported` takes them.
pub(crate) fn name(text: &OsStr) -> Result<Name, Errno> {
    Name::new(text.as_bytes()).map_err(|error| match error {
        NameError::TooLong => Errno::ENAMETOOLONG,
        NameError::Empty => Errno::ENOENT,
        NameError::Illegal => Errno::EINVAL,
    })
}

/// Attributes with the inode number that the kernel knows the node by. A directory that has moved has the number of what it is
/// now, and the kernel's node of what it was.
///
/// # Errors
/// `EIO` for what the kernel accepts from no file system, and would mark the inode bad for: a mode without a
/// type, a size below zero.
pub(crate) fn attributes(node: NodeId, from: &Attributes) -> Result<FileAttr, Errno> {
    if FileType::from_mode(from.mode).is_none() || i64::try_from(from.size).is_err() {
        tracing::warn!(node = node.0, mode = from.mode, size = from.size, "absurd attributes");
        return Err(Errno::EIO);
    }
    let is_directory = from.file_type() == FileType::Directory;
    Ok(FileAttr {
        ino: if is_directory { from.ino } else { node.0 },
        size: from.size,
        blocks: from.blocks,
        atime: from.atime,
        mtime: from.mtime,
        ctime: from.ctime,
        btime: from.btime,
        mode: from.file_type().mode_bits() | from.mode & 0o7777,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: from.block_size,
    })
}

/// A new time of a setattr.
pub(crate) fn set_time(from: sheen_fuse_wire::SetTime) -> SetTime {
    match from {
        sheen_fuse_wire::SetTime::Now => SetTime::Now,
        sheen_fuse_wire::SetTime::To(time) => SetTime::To(time),
    }
}

/// A lock from the kernel: an end at the largest offset means "to the end".
pub(crate) fn lock(
    start: u64,
    end: u64,
    kind: i32,
    (pid, uid): (u32, u32),
) -> Result<FileLock, Errno> {
    const READ: i32 = 0;
    const WRITE: i32 = 1;
    const UNLOCK: i32 = 2;
    let mode = match kind {
        READ => FileLockMode::Read,
        WRITE => FileLockMode::Write,
        UNLOCK => FileLockMode::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    let end = if end >= i64::MAX as u64 { Extent::EOF } else { end };
    Ok(FileLock { start, end, mode, pid, uid, is_flock: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel takes it (`fuse_invalid_attr`); of a node that it has it would make a bad inode.
    fn is_taken(attributes: &FileAttr) -> bool {
        attributes.size <= i64::MAX as u64
    }

    #[test]
    fn the_kernel_takes_every_error_that_a_server_may_answer() {
        // Any other value it refuses with EINVAL to us, and leaves the calling program waiting for ever.
        for number in 0..=u16::MAX {
            let code = i32::from(errno(Errno(number)).0);
            assert!((1..512).contains(&code) && code != i32::from(Errno::ENOSYS.0), "{number}");
        }
        for (status, shown) in [(-2, Errno::ENOENT), (-524, Errno::EOPNOTSUPP), (-301, Errno::EIO)]
        {
            let from_wire = Errno::from_status(status).map(errno);
            assert_eq!(from_wire, Some(shown));
        }
    }

    #[test]
    fn the_kernel_takes_all_attributes_that_are_sent() {
        // Numbers from a seed, and those at the edges.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut number = |round: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(round | 1);
            let edges = [0, 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX, seed, seed >> 32];
            edges[(seed >> 40) as usize % edges.len()]
        };
        let (mut taken, mut refused) = (0, 0);
        for round in 0..10_000 {
            let mut from = Attributes::blank(sheen_types::Fid::new(7, 7));
            from.mode = number(round) as u32;
            from.size = number(round);
            from.nlink = number(round) as u32;
            let time = |seconds: u64| sheen_types::Timestamp {
                seconds: seconds.cast_signed(),
                nanoseconds: seconds as u32,
            };
            (from.atime, from.mtime) = (time(number(round)), time(number(round)));
            match attributes(NodeId(7), &from) {
                Ok(attributes) => {
                    assert!(is_taken(&attributes), "{from:?}");
                    assert!(FileType::from_mode(from.mode).is_some(), "{from:?}");
                    taken += 1;
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::EIO);
                    refused += 1;
                }
            }
        }
        assert!(taken > 100 && refused > 100, "{taken} {refused}");
    }
}
