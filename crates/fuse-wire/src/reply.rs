//! Replies by kind of request. Each is sent once; one that is dropped unsent answers `EIO`, so that no caller waits for
//! ever.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_types::Errno;

use crate::device::Device;
use crate::output::{ENTRY_BYTES, FileAttr, Output, StatFs, directory_entry_bytes};
use crate::types::{FileHandle, FopenFlags, Generation, INodeNo};

/// Bytes of `fuse_out_header`.
const HEADER_BYTES: usize = 16;
/// Pieces that one system call takes (`IOV_MAX`), the header among them.
const PIECES_MAX: usize = 1024;

/// Room for the fields of any reply, of which `fuse_statx_out` has the most.
const FIELDS_BYTES: usize = 288;

/// The answer to one request, to be sent.
#[derive(Debug)]
struct Answer {
    device: Arc<Device>,
    unique: u64,
    is_sent: bool,
}

/// `fuse_out_header`.
fn header(unique: u64, error: i32, length: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let length = u32::try_from(HEADER_BYTES + length).unwrap_or(u32::MAX);
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

impl Answer {
    fn send(&mut self, error: i32, pieces: &[&[u8]]) {
        self.is_sent = true;
        let header = header(self.unique, error, pieces.iter().map(|piece| piece.len()).sum());
        let sent = match pieces {
            // Most replies: without an allocation.
            [] => self.device.send(&[IoSlice::new(&header)]),
            [one] => self.device.send(&[IoSlice::new(&header), IoSlice::new(one)]),
            pieces => {
                let all = std::iter::once(&header[..]).chain(pieces.iter().copied());
                self.device.send(&all.map(IoSlice::new).collect::<Vec<_>>())
            }
        };
        if let Err(error) = sent {
            // The caller was killed, or it is unmounted.
            tracing::debug!(unique = self.unique, %error, "no caller waits for an answer");
        }
    }

    fn output(mut self, write: impl FnOnce(&mut Output)) {
        let mut output = Output(Vec::with_capacity(FIELDS_BYTES));
        write(&mut output);
        self.send(0, &[&output.0]);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_sent {
            self.send(-i32::from(Errno::EIO.0), &[]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(Answer);

        impl $name {
            pub(crate) fn new(device: &Arc<Device>, unique: u64) -> Self {
                Self(Answer { device: Arc::clone(device), unique, is_sent: false })
            }

            /// The request failed.
            pub fn error(mut self, errno: Errno) {
                self.0.send(-i32::from(errno.0), &[]);
            }
        }
    )*};
}

replies! {
    /// To a request that asks for nothing but to be done.
    ReplyEmpty,
    /// With a name's inode.
    ReplyEntry,
    /// With attributes.
    ReplyAttr,
    /// With attributes as `statx(2)` has them.
    ReplyStatx,
    /// With an open file.
    ReplyOpen,
    /// With a new file that is open.
    ReplyCreate,
    /// With bytes.
    ReplyData,
    /// With how much was written.
    ReplyWrite,
    /// With the space that there is.
    ReplyStatfs,
    /// With an extended attribute's value, or a list of names.
    ReplyXattr,
    /// With a lock.
    ReplyLock,
    /// With a place in a file.
    ReplyLseek,
    /// With the result of a control call.
    ReplyIoctl,
}

impl ReplyEmpty {
    /// It is done.
    pub fn ok(mut self) {
        self.0.send(0, &[]);
    }
}

impl ReplyEntry {
    /// The name's inode. The kernel may keep the name and the attributes so long.
    pub fn entry(
        self,
        keep: (Duration, Duration),
        node: INodeNo,
        attributes: &FileAttr,
        generation: Generation,
    ) {
        self.0.output(|it| _ = it.entry((node, generation), keep, attributes));
    }
}

impl ReplyAttr {
    /// The attributes, and how long the kernel may keep them.
    pub fn attr(self, keep: Duration, attributes: &FileAttr) {
        self.0.output(|it| _ = it.attr_out(keep, attributes));
    }
}

impl ReplyStatx {
    /// The attributes, and how long the kernel may keep them.
    pub fn attr(self, keep: Duration, attributes: &FileAttr) {
        self.0.output(|it| _ = it.statx_out(keep, attributes));
    }
}

impl ReplyOpen {
    /// It is open.
    pub fn opened(self, handle: FileHandle, flags: FopenFlags) {
        self.0.output(|it| _ = it.open_out(handle, flags));
    }
}

impl ReplyCreate {
    /// It was made, and is open. The kernel may keep name and attributes so long.
    pub fn created(
        self,
        keep: Duration,
        (node, generation): (INodeNo, Generation),
        attributes: &FileAttr,
        handle: FileHandle,
        flags: FopenFlags,
    ) {
        let keep = (keep, keep);
        self.0.output(|it| {
            _ = it.entry((node, generation), keep, attributes).open_out(handle, flags)
        });
    }
}

impl ReplyData {
    /// The bytes.
    pub fn data(mut self, data: &[u8]) {
        self.0.send(0, &[data]);
    }

    /// The bytes, in pieces: none is copied, unless there are very many.
    pub fn pieces(mut self, pieces: &[Bytes]) {
        if pieces.len() < PIECES_MAX {
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
            return self.0.send(0, &pieces);
        }
        self.0.send(0, &[&pieces.concat()]);
    }
}

impl ReplyWrite {
    /// So many bytes were written.
    pub fn written(self, size: u32) {
        self.0.output(|it| _ = it.u32(size).u32(0));
    }
}

impl ReplyStatfs {
    /// The space.
    pub fn statfs(self, space: &StatFs) {
        self.0.output(|it| _ = it.statfs_out(space));
    }
}

impl ReplyXattr {
    /// How many bytes it has: the caller has no room, and asks for that.
    pub fn size(self, size: u32) {
        self.0.output(|it| _ = it.u32(size).u32(0));
    }

    /// The bytes.
    pub fn data(mut self, data: &[u8]) {
        self.0.send(0, &[data]);
    }
}

impl ReplyLock {
    /// The lock that conflicts, or the one that was asked for, as free.
    pub fn locked(self, (start, end): (u64, u64), kind: i32, pid: u32) {
        self.0.output(|it| _ = it.u64(start).u64(end).u32(kind.cast_unsigned()).u32(pid));
    }
}

impl ReplyLseek {
    /// The place.
    pub fn offset(self, offset: i64) {
        self.0.output(|it| _ = it.i64(offset));
    }
}

impl ReplyIoctl {
    /// The call's result, and what it returns.
    pub fn ioctl(mut self, result: i32, data: &[u8]) {
        let mut output = Output::default();
        output.u32(result.cast_unsigned()).u32(0).u32(0).u32(0);
        self.0.send(0, &[&output.0, data]);
    }
}

macro_rules! listings {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            answer: Answer,
            room: usize,
            listed: Output,
        }

        impl $name {
            pub(crate) fn new(device: &Arc<Device>, unique: u64, room: u32) -> Self {
                let answer = Answer { device: Arc::clone(device), unique, is_sent: false };
                Self { answer, room: room as usize, listed: Output::default() }
            }

            /// The request failed.
            pub fn error(mut self, errno: Errno) {
                self.answer.send(-i32::from(errno.0), &[]);
            }

            /// What was added is sent; nothing means the end.
            pub fn ok(mut self) {
                let listed = std::mem::take(&mut self.listed);
                self.answer.send(0, &[&listed.0]);
            }

            fn is_full(&self, more: usize) -> bool {
                self.listed.0.len() + more > self.room
            }
        }
    )*};
}

listings! {
    /// With names.
    ReplyDirectory,
    /// With names and what they name.
    ReplyDirectoryPlus,
}

impl ReplyDirectory {
    /// A name more; `true` if there is no room for it. `next` is where a listing goes on behind it.
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let is_full = self.is_full(directory_entry_bytes(name));
        if !is_full {
            self.listed.directory_entry((ino, next), mode, name);
        }
        is_full
    }
}

impl ReplyDirectoryPlus {
    /// Bytes that it has room for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// What a name takes of them.
    #[must_use]
    pub fn entry_bytes(name: &[u8]) -> usize {
        ENTRY_BYTES + directory_entry_bytes(name)
    }

    /// A name more; `true` if there is no room for it. An inode number of 0 names nothing that the kernel shall look
    /// at.
    #[must_use]
    pub fn add(
        &mut self,
        (node, generation): (INodeNo, Generation),
        next: u64,
        name: &[u8],
        keep: Duration,
        attributes: &FileAttr,
    ) -> bool {
        let is_full = self.is_full(Self::entry_bytes(name));
        if !is_full {
            self.listed.entry((node, generation), (keep, keep), attributes);
            self.listed.directory_entry((attributes.ino, next), attributes.mode, name);
        }
        is_full
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A device, and the kernel's end of it.
    fn device() -> (Arc<Device>, Device) {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        (Arc::new(Device(one)), Device(other))
    }

    fn received(kernel: &Device) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let length = kernel.receive(&mut buffer).expect("a message");
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn a_reply_that_is_dropped_is_an_error() {
        let (device, kernel) = device();
        drop(ReplyData::new(&device, 9));
        assert_eq!(received(&kernel), header(9, -5, 0));
        ReplyEmpty::new(&device, 10).ok();
        assert_eq!(received(&kernel), header(10, 0, 0));
        ReplyEntry::new(&device, 11).error(Errno::ENOENT);
        assert_eq!(received(&kernel), header(11, -2, 0));
    }

    #[test]
    fn bytes_in_pieces_are_one_message_however_many_there_are() {
        let (device, kernel) = device();
        for count in [0, 1, 3, PIECES_MAX, PIECES_MAX + 9] {
            let pieces: Vec<_> = (0..count).map(|it| Bytes::from(vec![it as u8; 3])).collect();
            ReplyData::new(&device, 1).pieces(&pieces);
            let message = received(&kernel);
            assert_eq!(message[..HEADER_BYTES], header(1, 0, 3 * count));
            assert_eq!(message[HEADER_BYTES..], pieces.concat());
        }
    }

    #[test]
    fn a_listing_ends_where_its_room_ends() {
        let (device, kernel) = device();
        let mut reply = ReplyDirectory::new(&device, 1, 70);
        assert!(!reply.add(5, 1, 0o040_000, b"a"));
        assert!(!reply.add(6, 2, 0o100_000, b"12345678"));
        assert!(reply.add(7, 3, 0o100_000, b"b"));
        reply.ok();
        let message = received(&kernel);
        assert_eq!(message.len(), HEADER_BYTES + 32 + 32);
        assert_eq!((message[16], message[36], message[40]), (5, 4, b'a'));
        let mut reply = ReplyDirectoryPlus::new(&device, 1, 160);
        let file = FileAttr { ino: 7, mode: 0o100_644, ..FileAttr::default() };
        let (node, never) = ((INodeNo(3), Generation(4)), Duration::ZERO);
        assert!(!reply.add(node, 1, b"a", never, &file));
        assert!(reply.add(node, 1, b"b", never, &file));
        reply.ok();
        let message = received(&kernel);
        assert_eq!((message.len(), message[16], message[24]), (HEADER_BYTES + 160, 3, 4));
        assert_eq!((message[16 + ENTRY_BYTES], message[16 + ENTRY_BYTES + 20]), (7, 8));
    }
}
