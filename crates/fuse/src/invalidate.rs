//! Taking out of the kernel what a lock no longer covers.

use std::ffi::OsStr;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use sheen_client::posix::{Invalidate, NodeId, Stale};
use sheen_types::{Errno, Extent, Name};

use crate::busy::Busy;

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// How long a lock may be kept for pages that the kernel does not let go. A page under a read that
/// itself waits for the server stays locked until then; the read brings fresh data, so going on
/// without it shows nobody old bytes.
const PAGES_WAIT: Duration = Duration::from_secs(2);

/// How long a lock may be kept for a name that the kernel does not let go though no call that we know
/// of holds its directory.
const NAME_WAIT: Duration = Duration::from_millis(500);

/// How much longer for each of many names of one directory.
const EACH_NAME_WAIT: Duration = Duration::from_micros(20);

/// What the kernel answers if it does not have the name (`ENOENT`).
const NOT_KEPT: i32 = Errno::ENOENT.0 as i32;

/// The kernel's side of the mount.
pub(crate) struct Kernel {
    side: OnceLock<Arc<Side>>,
    runtime: tokio::runtime::Handle,
    busy: Arc<Busy>,
}

/// The ways to tell the kernel something.
struct Side {
    notifier: Notifier,
    /// The session's device, for what fuser has no words for.
    device: File,
}

impl Side {
    /// The name is looked up again when it is used next. What it names keeps its place in the kernel's
    /// tree meanwhile: of one that is dropped, `getcwd(2)` and `/proc/PID/fd` say that it is gone.
    fn expire_entry(&self, parent: NodeId, name: &Name) -> io::Result<()> {
        (&self.device).write_all(&expire_message(parent.0, name.as_bytes()))
    }
}

/// A `FUSE_NOTIFY_INVAL_ENTRY` with `FUSE_EXPIRE_ONLY` (Linux 6.2; older ones drop the name).
fn expire_message(parent: u64, name: &[u8]) -> Vec<u8> {
    const HEAD_BYTES: usize = 16 + 16;
    const NOTIFY_INVAL_ENTRY: i32 = 3;
    const EXPIRE_ONLY: u32 = 1;
    let length = HEAD_BYTES + name.len() + 1;
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(NOTIFY_INVAL_ENTRY.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend(parent.to_ne_bytes());
    message.extend((name.len() as u32).to_ne_bytes());
    message.extend(EXPIRE_ONLY.to_ne_bytes());
    message.extend(name);
    message.push(0);
    message
}

/// What stands before the bytes of a `FUSE_NOTIFY_STORE` from the beginning of a file on.
fn store_head(node: u64, length: u32) -> [u8; 40] {
    const NOTIFY_STORE: i32 = 4;
    let mut head = [0; 40];
    head[..4].copy_from_slice(&(40 + length).to_ne_bytes());
    head[4..8].copy_from_slice(&NOTIFY_STORE.to_ne_bytes());
    head[16..24].copy_from_slice(&node.to_ne_bytes());
    head[32..36].copy_from_slice(&length.to_ne_bytes());
    head
}

impl Kernel {
    /// Lays bytes into the kernel's pages, from the beginning of a file on that nobody has open; whether
    /// it took them. Waits for the kernel: one system call.
    pub(crate) fn store(&self, node: NodeId, bytes: &[u8]) -> bool {
        let (Some(side), Ok(length)) = (self.side.get(), u32::try_from(bytes.len())) else {
            return false;
        };
        let head = store_head(node.0, length);
        let message = [IoSlice::new(&head), IoSlice::new(bytes)];
        (&side.device).write_vectored(&message).is_ok()
    }

    pub(crate) fn new(runtime: tokio::runtime::Handle, busy: Arc<Busy>) -> Self {
        Self { side: OnceLock::new(), runtime, busy }
    }

    /// From here on the kernel can be told; nothing was kept before.
    pub(crate) fn attach(&self, notifier: Notifier, device: File) {
        let _ = self.side.set(Arc::new(Side { notifier, device }));
    }

    fn tell(&self, tell: impl FnOnce(&Side) -> io::Result<()> + Send + 'static) -> BoxFuture<()> {
        let Some(side) = self.side.get().cloned() else { return Box::pin(async {}) };
        let told = self.runtime.spawn_blocking(move || {
            // The kernel answers ENOENT for what it does not keep: as good as told.
            if let Err(error) = tell(&side) {
                tracing::trace!(%error, "the kernel kept nothing");
            }
        });
        Box::pin(async move {
            let _ = told.await;
        })
    }
}

impl Invalidate for Kernel {
    /// The kernel takes the directory's lock for it, which a create or lookup in that directory holds
    /// while it waits for the very server that wants our lock back: while there is such a call this is
    /// not waited for. A lookup of the name then finds the kernel's old entry until that call ends.
    fn entry(&self, parent: NodeId, name: &Name, is_in_use: bool) -> BoxFuture<()> {
        let name = name.clone();
        let told = self.tell(move |kernel| match is_in_use {
            true => kernel.expire_entry(parent, &name),
            false => {
                let name = OsStr::from_bytes(name.as_bytes());
                kernel.notifier.inval_entry(INodeNo(parent.0), name)
            }
        });
        let busy = Arc::clone(&self.busy);
        Box::pin(async move {
            let wait = either(told, busy.until_busy(parent.0));
            if tokio::time::timeout(NAME_WAIT, wait).await.is_err() {
                tracing::debug!(parent = parent.0, "a name outlives its lock");
            }
        })
    }

    /// As [`Kernel::entry`], one after the other: each takes the directory's lock.
    fn children(&self, node: NodeId, names: Vec<Name>) -> BoxFuture<()> {
        let most = NAME_WAIT + EACH_NAME_WAIT * u32::try_from(names.len()).unwrap_or(u32::MAX);
        let told = self.tell(move |kernel| {
            for name in &names {
                match kernel.expire_entry(node, name) {
                    Err(error) if error.raw_os_error() != Some(NOT_KEPT) => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        let busy = Arc::clone(&self.busy);
        Box::pin(async move {
            let wait = either(told, busy.until_busy(node.0));
            if tokio::time::timeout(most, wait).await.is_err() {
                tracing::debug!(directory = node.0, "names outlive the right to search for them");
            }
        })
    }

    fn inode(&self, node: NodeId, stale: Stale) -> BoxFuture<()> {
        let (offset, length) = match stale {
            // Attributes only. It touches no page, but may be the last to let go of an inode that was
            // removed meanwhile, whose end waits for reads that are under way: for us, that is.
            Stale::Attributes => (-1, 0),
            Stale::Pages(extent) => kernel_range(extent),
        };
        let told =
            self.tell(move |kernel| kernel.notifier.inval_inode(INodeNo(node.0), offset, length));
        Box::pin(async move {
            if tokio::time::timeout(PAGES_WAIT, told).await.is_err() {
                tracing::debug!(node = node.0, "pages under IO outlive their lock");
            }
        })
    }
}

/// Returns when one of both is done.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await;
}

/// Offset and length as the kernel takes them; length 0 means to the end.
fn kernel_range(extent: Extent) -> (i64, i64) {
    let start = i64::try_from(extent.start).unwrap_or(i64::MAX);
    let length = i64::try_from(extent.end - extent.start).ok().and_then(|last| last.checked_add(1));
    (start, length.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_file_is_from_0_to_the_end() {
        assert_eq!(kernel_range(Extent::ALL), (0, 0));
        assert_eq!(kernel_range(Extent { start: 4096, end: 8191 }), (4096, 4096));
    }

    #[test]
    fn bytes_to_keep_are_told_as_the_kernel_reads_it() {
        let head = store_head(7, 100);
        assert_eq!(head[..4], 140u32.to_ne_bytes());
        assert_eq!(head[4..8], 4i32.to_ne_bytes());
        assert_eq!(
            (&head[8..16], &head[24..32], &head[36..]),
            (&[0; 8][..], &[0; 8][..], &[0; 4][..])
        );
        assert_eq!(head[16..24], 7u64.to_ne_bytes());
        assert_eq!(head[32..36], 100u32.to_ne_bytes());
    }

    #[test]
    fn a_name_that_expires_is_told_as_the_kernel_reads_it() {
        let message = expire_message(7, b"ab");
        assert_eq!(message.len(), 35);
        assert_eq!(message[..4], 35u32.to_ne_bytes());
        assert_eq!(message[16..24], 7u64.to_ne_bytes());
        assert_eq!(message[24..28], 2u32.to_ne_bytes());
        assert_eq!(message[32..], *b"ab\0");
    }
}
