//! Taking out of the kernel what a lock no longer covers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use sheen_client::posix::{Invalidate, NodeId, Stale};
use sheen_types::{Extent, Name};

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// How long a lock may be kept for pages that the kernel does not let go. A page under a read that
/// itself waits for the server stays locked until then; the read brings fresh data, so going on
/// without it shows nobody old bytes.
const PAGES_WAIT: Duration = Duration::from_secs(2);

/// The kernel's side of the mount.
pub(crate) struct Kernel {
    notifier: OnceLock<Notifier>,
    runtime: tokio::runtime::Handle,
}

impl Kernel {
    pub(crate) fn new(runtime: tokio::runtime::Handle) -> Self {
        Self { notifier: OnceLock::new(), runtime }
    }

    /// From here on the kernel can be told; nothing was kept before.
    pub(crate) fn attach(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    fn tell(
        &self,
        tell: impl FnOnce(&Notifier) -> std::io::Result<()> + Send + 'static,
    ) -> BoxFuture<()> {
        let Some(notifier) = self.notifier.get().cloned() else { return Box::pin(async {}) };
        let told = self.runtime.spawn_blocking(move || {
            // The kernel answers ENOENT for what it does not keep: as good as told.
            if let Err(error) = tell(&notifier) {
                tracing::trace!(%error, "the kernel kept nothing");
            }
        });
        Box::pin(async move {
            let _ = told.await;
        })
    }
}

impl Invalidate for Kernel {
    /// Sent off and not waited for: the kernel takes the directory's lock for it, which a create or
    /// lookup in that directory holds while it waits for the very server that wants our lock back.
    /// A lookup of the name meanwhile finds the kernel's old entry for the length of that call.
    fn entry(&self, parent: NodeId, name: &Name) -> BoxFuture<()> {
        let name = name.clone();
        drop(self.tell(move |kernel| {
            kernel.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name.as_bytes()))
        }));
        Box::pin(async {})
    }

    fn inode(&self, node: NodeId, stale: Stale) -> BoxFuture<()> {
        let (offset, length) = match stale {
            Stale::Attributes => {
                // A negative offset means attributes only: no page is touched, nothing can wait,
                // so no other thread is needed for it.
                if let Some(kernel) = self.notifier.get() {
                    let _ = kernel.inval_inode(INodeNo(node.0), -1, 0);
                }
                return Box::pin(async {});
            }
            Stale::Pages(extent) => kernel_range(extent),
        };
        let told = self.tell(move |kernel| kernel.inval_inode(INodeNo(node.0), offset, length));
        Box::pin(async move {
            if tokio::time::timeout(PAGES_WAIT, told).await.is_err() {
                tracing::debug!(node = node.0, "pages under IO outlive their lock");
            }
        })
    }
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
}
