//! Going on with a connection to the kernel that an earlier process of the mount began.
//!
//! The kernel greets (`FUSE_INIT`) only once, and fuser serves nothing that was not greeted. So fuser is greeted
//! over a pair of sockets with what the kernel said then, and afterwards gets the kernel's device in the place of
//! its socket. What the kernel has of the earlier process it then is asked to forget, and to send again:
//!
//! - names: all at once (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16, without which there is no going on);
//! - calls that the earlier process had read and not answered (`FUSE_NOTIFY_RESEND`, Linux 6.9): they come with a
//!   mark, since it may have executed them ([`crate::adapter::resent`]);
//! - attributes and pages: of each inode, on a thread: a page of a call that waits is waited for.
#![allow(unsafe_code, reason = "a descriptor is replaced while another owns it")]

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use fuser::{Config, INodeNo, InitFlags, Notifier, Session};
use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use sheen_client::posix::NodeId;

use crate::adapter::Adapter;
use crate::memory::Agreement;
use crate::threads::Threads;

/// The minor version of the protocol from which on a connection can be gone on with.
pub(crate) const PROTOCOL_MIN: u32 = 44;

const NOTIFY_RESEND: i32 = 7;
const NOTIFY_INC_EPOCH: i32 = 8;

/// A session on the kernel's `device`, with what was agreed on when it was mounted.
///
/// # Errors
/// This program wants to agree on something else than the earlier one.
pub(crate) fn session(
    adapter: Adapter,
    device: &OwnedFd,
    config: Config,
    agreement: Agreement,
) -> io::Result<Session<Adapter>> {
    let wanted = adapter.wanted(InitFlags::from_bits_retain(agreement.offered)).bits();
    if wanted != agreement.taken {
        return Err(io::Error::other(
            "this version agrees on other terms with the kernel than the one that mounted: unmount, and mount again",
        ));
    }
    let (socket, kernel) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    send(&kernel, &init_message(agreement), SendFlags::empty())?;
    let session = Session::from_fd(adapter, socket, config.acl, config)?;
    // SAFETY: the session has the descriptor open, and goes on to own it: this owner is never dropped.
    let mut own = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(session.as_fd().as_raw_fd()) });
    rustix::io::dup3(device, &mut own, DupFlags::CLOEXEC)?;
    Ok(session)
}

/// A `FUSE_INIT` as the kernel sent it.
fn init_message(agreement: Agreement) -> [u8; 104] {
    const INIT: u32 = 26;
    const MAJOR: u32 = 7;
    const READ_AHEAD: u32 = 1 << 20;
    let mut message = [0; 104];
    let mut put = |at: usize, value: u32| message[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(0, 104);
    put(4, INIT);
    put(8, 1);
    put(40, MAJOR);
    put(44, agreement.protocol);
    put(48, READ_AHEAD);
    // With the word behind it.
    let extended = InitFlags::FUSE_INIT_EXT.bits();
    put(52, (agreement.offered | extended) as u32);
    put(56, (agreement.offered >> 32) as u32);
    message
}

/// A notification that has a code and nothing else.
fn notification(code: i32) -> [u8; 16] {
    let mut message = [0; 16];
    message[..4].copy_from_slice(&16u32.to_ne_bytes());
    message[4..8].copy_from_slice(&code.to_ne_bytes());
    message
}

/// Has the kernel forget names, send again what has no answer, and forget what it has of `nodes`. The session is
/// served by now.
///
/// # Errors
/// The kernel knows no such notification.
pub(crate) fn go_on(
    device: &File,
    notifier: Notifier,
    nodes: Vec<NodeId>,
    threads: &Threads,
) -> io::Result<()> {
    let mut device = device;
    device.write_all(&notification(NOTIFY_INC_EPOCH))?;
    device.write_all(&notification(NOTIFY_RESEND))?;
    let forget = move || {
        for node in nodes {
            // The kernel answers ENOENT for what it does not keep: as good as invalidated.
            if let Err(error) = notifier.inval_inode(INodeNo(node.0), 0, 0) {
                tracing::trace!(%error, "the kernel kept nothing");
            }
        }
        tracing::debug!("attributes and pages of before are invalidated");
    };
    threads.start("fuse-forget", Box::new(forget))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_the_kernels() {
        let agreement = Agreement { offered: 0x89ab_cdef_4123_4567, protocol: 45, taken: 0 };
        let message = init_message(agreement);
        let word =
            |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(4), word(40), word(44)), (104, 26, 7, 45));
        assert_eq!((word(52), word(56)), (0x4123_4567, 0x89ab_cdef));
        assert_eq!(notification(7)[..8], [16, 0, 0, 0, 7, 0, 0, 0]);
    }
}
