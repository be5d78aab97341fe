//! Messages that the kernel did not ask for: what it shall forget, keep, or send again.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::device::Device;
use crate::output::Output;
use crate::types::INodeNo;

/// `enum fuse_notify_code`.
mod code {
    pub(super) const INVAL_INODE: u32 = 2;
    pub(super) const INVAL_ENTRY: u32 = 3;
    pub(super) const STORE: u32 = 4;
    pub(super) const RESEND: u32 = 7;
    pub(super) const INC_EPOCH: u32 = 8;
    pub(super) const PRUNE: u32 = 9;
}

/// A name is looked up again when it is used next, and keeps its place until then (Linux 6.2).
const EXPIRE_ONLY: u32 = 1;

/// Inodes in one message.
const PRUNED_AT_ONCE: usize = 4096;

/// Notifies the kernel. Each call is one system call, which waits for what it concerns: locks of directories, pages
/// under IO. All answer `ENOENT` for what the kernel does not keep.
#[derive(Clone, Debug)]
pub struct Notifier(pub(crate) Arc<Device>);

impl Notifier {
    fn send(&self, code: u32, pieces: &[&[u8]]) -> io::Result<()> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let length = u32::try_from(16 + length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut header = Output::default();
        header.u32(length).u32(code).u64(0);
        let all = std::iter::once(&header.0[..]).chain(pieces.iter().copied());
        self.0.send(&all.map(IoSlice::new).collect::<Vec<_>>())
    }

    /// Drops the attributes of an inode, and of its pages those of `length` bytes from `offset` on: to the end if it
    /// is 0, none if `offset` is negative.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn inval_inode(&self, node: INodeNo, offset: i64, length: i64) -> io::Result<()> {
        let mut output = Output::default();
        output.u64(node.0).i64(offset).i64(length);
        self.send(code::INVAL_INODE, &[&output.0])
    }

    /// Drops a name.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn inval_entry(&self, parent: INodeNo, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Lets a name expire: it is looked up again when it is used next. What it names keeps its place in the kernel's
    /// tree in the meantime; of one that is dropped, `getcwd(2)` and `/proc/PID/fd` say that it is gone.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn expire_entry(&self, parent: INodeNo, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: INodeNo, name: &[u8], flags: u32) -> io::Result<()> {
        let length = u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut output = Output::default();
        output.u64(parent.0).u32(length).u32(flags);
        self.send(code::INVAL_ENTRY, &[&output.0, name, &[0]])
    }

    /// Stores bytes in the kernel's pages, from the beginning of a file on.
    ///
    /// # Errors
    /// See [`Notifier`].
    pub fn store(&self, node: INodeNo, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut output = Output::default();
        output.u64(node.0).u64(0).u32(length).u32(0);
        self.send(code::STORE, &[&output.0, bytes])
    }

    /// Has requests sent again that were read and not answered (Linux 6.9). They come with the topmost bit of their
    /// number set.
    ///
    /// # Errors
    /// The kernel does not know it.
    pub fn resend(&self) -> io::Result<()> {
        self.send(code::RESEND, &[])
    }

    /// Drops all names of these inodes that nothing uses, and with the last one the inode (Linux 6.18). Takes no lock of
    /// a directory.
    ///
    /// # Errors
    /// The kernel does not know it.
    pub fn prune(&self, nodes: &[INodeNo]) -> io::Result<()> {
        for some in nodes.chunks(PRUNED_AT_ONCE) {
            let count = u32::try_from(some.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut output = Output::default();
            output.u32(count).u32(0).u64(0);
            some.iter().for_each(|node| _ = output.u64(node.0));
            self.send(code::PRUNE, &[&output.0])?;
        }
        Ok(())
    }

    /// Drops all names (Linux 6.16), each when it is used next: mounts on them, too.
    ///
    /// # Errors
    /// The kernel does not know it.
    pub fn inc_epoch(&self) -> io::Result<()> {
        self.send(code::INC_EPOCH, &[])
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn notices_are_sent_as_the_kernel_reads_them() {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        let (notifier, kernel) = (Notifier(Arc::new(Device(one))), Device(other));
        let node = INodeNo(7);
        let sent = |notify: &dyn Fn() -> io::Result<()>| {
            notify().expect("sent");
            let mut buffer = [0; 256];
            let length = kernel.receive(&mut buffer).expect("a message");
            assert_eq!(buffer[..4], (length as u32).to_ne_bytes());
            assert_eq!(buffer[8..16], [0; 8]);
            let words = buffer[16..length].chunks(8);
            let words = words.map(|word| {
                let mut whole = [0; 8];
                whole[..word.len()].copy_from_slice(word);
                u64::from_ne_bytes(whole)
            });
            (buffer[4], words.collect::<Vec<_>>())
        };
        let name = u64::from(u16::from_ne_bytes(*b"ab"));
        assert_eq!(sent(&|| notifier.inval_inode(node, -1, 9)), (2, vec![7, u64::MAX, 9]));
        assert_eq!(sent(&|| notifier.inval_entry(node, b"ab")), (3, vec![7, 2, name]));
        assert_eq!(sent(&|| notifier.expire_entry(node, b"ab")), (3, vec![7, 2 | 1 << 32, name]));
        assert_eq!(sent(&|| notifier.store(node, b"ab")), (4, vec![7, 0, 2, name]));
        assert_eq!(sent(&|| notifier.resend()), (7, vec![]));
        assert_eq!(sent(&|| notifier.inc_epoch()), (8, vec![]));
        let pruned = [node, INodeNo(8)];
        assert_eq!(sent(&|| notifier.prune(&pruned)), (9, vec![2, 0, 7, 8]));
    }
}
