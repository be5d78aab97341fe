//! The facade's words and the kernel's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, INodeNo, TimeOrNow};
use sheen_client::posix::{Attributes, FileType, Keep, NodeId, SetTime};
use sheen_types::{Errno, Name, NameError, Timestamp};

/// "Until told otherwise": longer than any mount.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// A tick of the kernel's clock, in which it counts: long enough to look at what it has asked for.
pub(crate) const SHORTEST: Duration = Duration::from_nanos(1);

/// How long the kernel may keep something.
pub(crate) fn time_to_live(keep: bool) -> Duration {
    if keep { FOR_EVER } else { Duration::ZERO }
}

/// For answers that have one time for the name and the attributes.
pub(crate) fn joint_time_to_live(keep: Keep) -> Duration {
    time_to_live(keep.entry && keep.attributes)
}

/// An errno as fuser takes it.
pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(i32::from(errno.0))
}

/// A legal name; `.` and `..` never come from the kernel.
pub(crate) fn name(text: &OsStr) -> Result<Name, Errno> {
    Name::new(text.as_bytes()).map_err(|error| match error {
        NameError::TooLong => Errno::ENAMETOOLONG,
        NameError::Empty => Errno::ENOENT,
        NameError::Illegal => Errno::EINVAL,
    })
}

/// Attributes with the inode number that the kernel knows the node by.
pub(crate) fn attributes(node: NodeId, from: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(node.0),
        size: from.size,
        blocks: from.blocks,
        atime: system_time(from.atime),
        mtime: system_time(from.mtime),
        ctime: system_time(from.ctime),
        crtime: system_time(from.btime),
        kind: kind(from.file_type()),
        perm: (from.mode & 0o7777) as u16,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: from.block_size,
        flags: 0,
    }
}

/// What the kernel takes for "there is no such name": an entry with inode number 0.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// A file's type.
pub(crate) fn kind(from: FileType) -> fuser::FileType {
    match from {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// A time as the standard library has it.
pub(crate) fn system_time(from: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(from.seconds.unsigned_abs());
    let base = match from.seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    let fraction = Duration::from_nanos(u64::from(from.nanoseconds));
    base.and_then(|time| time.checked_add(fraction)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time from the standard library.
pub(crate) fn timestamp(from: SystemTime) -> Timestamp {
    match from.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp { seconds, nanoseconds: 0 },
                below => Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - below },
            }
        }
    }
}

/// A new time of a setattr.
pub(crate) fn set_time(from: TimeOrNow) -> SetTime {
    match from {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-7, 1)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
