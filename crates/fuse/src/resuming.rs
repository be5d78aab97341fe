//! Going on with a connection to the kernel that an earlier process of the mount began.
//!
//! What the kernel has of the earlier process it is asked to forget, and to send again:
//!
//! - names: all at once (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16, without which there is no going on);
//! - calls that the earlier process had read and not answered (`FUSE_NOTIFY_RESEND`, Linux 6.9): they come with a
//!   mark, since it may have executed them ([`crate::adapter::resent`]);
//! - attributes and pages: of each inode, on a thread: a page of a call that waits is waited for.

use std::io;
use std::os::fd::OwnedFd;

use sheen_client::posix::NodeId;
use sheen_fuse_wire::{Agreement, Config, INodeNo, InitFlags, Notifier, Session};

use crate::adapter::Adapter;
use crate::threads::Threads;

/// The minor version of the protocol from which on a connection can be gone on with.
pub(crate) const PROTOCOL_MIN: u32 = 44;

/// What calls are answered for alike whether it was agreed on or not: earlier versions did not take it.
const EITHER_WAY: InitFlags = InitFlags::HANDLE_KILLPRIV_V2;

/// A session on the kernel's `device`, with what was agreed on when it was mounted.
///
/// # Errors
/// This program wants to agree on something else than the earlier one.
pub(crate) fn session(
    adapter: Adapter,
    device: OwnedFd,
    config: Config,
    agreement: Agreement,
) -> io::Result<Session<Adapter>> {
    let wanted = adapter.wanted(InitFlags::from_bits_retain(agreement.offered));
    if !are_same_terms(wanted, InitFlags::from_bits_retain(agreement.taken)) {
        return Err(io::Error::other(
            "this version agrees on other terms with the kernel than the one that mounted: unmount, and mount again",
        ));
    }
    Ok(Session::resume(adapter, device, config, agreement))
}

/// Has the kernel forget names, send again what has no answer, and forget what it has of `nodes`. The session is
/// served by now.
///
/// # Errors
/// The kernel knows no such notification.
pub(crate) fn go_on(notifier: Notifier, nodes: Vec<NodeId>, threads: &Threads) -> io::Result<()> {
    notifier.inc_epoch()?;
    notifier.resend()?;
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

fn are_same_terms(wanted: InitFlags, taken: InitFlags) -> bool {
    let but_either_way = |flags: InitFlags| flags.difference(EITHER_WAY);
    but_either_way(wanted) == but_either_way(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_a_version_that_left_set_id_bits_to_the_kernel_is_gone_on_with() {
        let old = InitFlags::ASYNC_READ | InitFlags::INIT_EXT;
        assert!(are_same_terms(old | InitFlags::HANDLE_KILLPRIV_V2, old));
        assert!(!are_same_terms(old | InitFlags::POSIX_ACL, old));
    }
}
