//! The fields of a request, as they lie in the kernel's message: native byte order, strings that end in a zero.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use sheen_types::Timestamp;

use crate::types::{FileHandle, INodeNo};

/// Whose request it is (`fuse_in_header`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: INodeNo,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Request {
    /// Its number: no two that are under way have the same.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The caller's user, for access to files (`fsuid`).
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The caller's group (`fsgid`).
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The calling thread; 0 if the process that mounted cannot see it, as from another PID namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The header at the beginning of a message, and what comes behind it; `None` if the message is no request.
    pub(crate) fn split(message: &[u8]) -> Option<(Self, Input<'_>)> {
        let mut input = Input(message);
        let length = input.u32()?;
        if length as usize != message.len() {
            return None;
        }
        let opcode = input.u32()?;
        let (unique, node) = (input.u64()?, INodeNo(input.u64()?));
        let (uid, gid, pid) = (input.u32()?, input.u32()?, input.u32()?);
        // Total length of extensions, of which none was agreed on.
        input.u32()?;
        Some((Self { opcode, unique, node, uid, gid, pid }, input))
    }
}

/// What of a message was not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_ne_bytes)
    }

    /// A string up to its zero.
    pub(crate) fn text(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(OsStr::from_bytes(text))
    }

    /// So many bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the present.
    Now,
    /// To this.
    To(Timestamp),
}

/// What a `FUSE_SETATTR` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size, in bytes.
    pub size: Option<u64>,
    /// The last access.
    pub atime: Option<SetTime>,
    /// The last change of data.
    pub mtime: Option<SetTime>,
    /// The last change of anything.
    pub ctime: Option<Timestamp>,
    /// The open file by which it is changed.
    pub opened: Option<FileHandle>,
    /// By a caller whose cut of the file takes set-id bits.
    pub kill_set_id: bool,
}

/// Which fields of `fuse_setattr_in` are meant (`FATTR_*`).
mod valid {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const FH: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const CTIME: u32 = 1 << 10;
    pub(super) const KILL_SUIDGID: u32 = 1 << 11;
}

impl SetAttributes {
    /// From a `fuse_setattr_in`.
    pub(crate) fn read(input: &mut Input<'_>) -> Option<Self> {
        let valid = input.u32()?;
        input.u32()?;
        let (opened, size) = (FileHandle(input.u64()?), input.u64()?);
        // The owner of locks that a truncation would meet.
        input.u64()?;
        let seconds = [input.i64()?, input.i64()?, input.i64()?];
        let nanoseconds = [input.u32()?, input.u32()?, input.u32()?];
        let mode = input.u32()?;
        input.u32()?;
        let (uid, gid) = (input.u32()?, input.u32()?);
        let has = |bit: u32| valid & bit != 0;
        let time = |at: usize| Timestamp { seconds: seconds[at], nanoseconds: nanoseconds[at] };
        let set = |now: u32, at: usize| if has(now) { SetTime::Now } else { SetTime::To(time(at)) };
        Some(Self {
            mode: has(valid::MODE).then_some(mode),
            uid: has(valid::UID).then_some(uid),
            gid: has(valid::GID).then_some(gid),
            size: has(valid::SIZE).then_some(size),
            atime: has(valid::ATIME).then(|| set(valid::ATIME_NOW, 0)),
            mtime: has(valid::MTIME).then(|| set(valid::MTIME_NOW, 1)),
            ctime: has(valid::CTIME).then(|| time(2)),
            opened: has(valid::FH).then_some(opened),
            kill_set_id: has(valid::KILL_SUIDGID),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of `fuse_in_header`.
    const HEADER_BYTES: usize = 40;

    #[test]
    fn a_message_of_another_length_than_it_says_is_no_request() {
        let mut message = [0u8; HEADER_BYTES];
        assert!(Request::split(&message).is_none());
        message[0] = HEADER_BYTES as u8;
        message[8..16].copy_from_slice(&7u64.to_ne_bytes());
        let (request, rest) = Request::split(&message).expect("a request");
        assert_eq!((request.unique(), rest.0.len()), (7, 0));
        assert!(Request::split(&message[..39]).is_none());
    }

    #[test]
    fn strings_end_at_their_zero_and_nowhere_else() {
        let mut input = Input(b"a\0bc\0d");
        assert_eq!((input.text(), input.text()), (Some(OsStr::new("a")), Some(OsStr::new("bc"))));
        assert_eq!((input.text(), input.u32(), input.0), (None, None, &b"d"[..]));
    }

    #[test]
    fn only_what_is_valid_is_set_and_times_before_1970_are_as_the_kernel_means_them() {
        let mut message = Vec::new();
        let valid = valid::SIZE | valid::ATIME | valid::MTIME | valid::MTIME_NOW | valid::CTIME;
        message.extend(u64::from(valid).to_ne_bytes());
        for word in [9u64, 4096, 0, (-7i64).cast_unsigned(), 5, i64::MIN.cast_unsigned()] {
            message.extend(word.to_ne_bytes());
        }
        for half in [1u32, 2, 3, 0o644, 0, 10, 20, 0] {
            message.extend(half.to_ne_bytes());
        }
        let set = SetAttributes::read(&mut Input(&message)).expect("whole");
        let wanted = SetAttributes {
            size: Some(4096),
            atime: Some(SetTime::To(Timestamp { seconds: -7, nanoseconds: 1 })),
            mtime: Some(SetTime::Now),
            ctime: Some(Timestamp { seconds: i64::MIN, nanoseconds: 3 }),
            ..SetAttributes::default()
        };
        assert_eq!(set, wanted);
        assert!(SetAttributes::read(&mut Input(&message[..80])).is_none());
    }
}
