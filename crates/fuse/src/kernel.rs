//! Invalidates in the kernel what a lock no longer covers.

use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sheen_client::posix::{
    Invalidated, KernelNotifier, NameInvalidation, NodeId, SizeRaise, Stale, StaleName,
};
use sheen_fuse_wire::{INodeNo, Notifier};
use sheen_types::futures::{First, race};
use sheen_types::{Extent, Name};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::blocked::{ASLEEP, SleepWatch};
use crate::busy::BusyDirectories;
use crate::notices::{Deliver, Notice, Notices, Subject};
use crate::raise::{self, Unreadable};
use crate::raise_threads::{RaiseThreads, Raised};
use crate::threads::Threads;

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// How long a lock may be kept for one page on which the kernel is blocked. A page under a read that itself
/// waits for the server stays locked until then; the read brings fresh data, so going on without it shows old
/// bytes to no program. The pages behind it are invalidated by notices of their own then.
const PAGES_WAIT: Duration = Duration::from_secs(2);

/// How long a lock may be kept for a name that the kernel does not drop though no call that we know of holds
/// its directory.
const NAME_WAIT: Duration = Duration::from_millis(500);

/// How much longer for each of many names of one directory.
const EACH_NAME_WAIT: Duration = Duration::from_micros(20);

/// Threads that prune.
const PRUNERS_MAX: usize = 4;

/// The kernel's side of the mount.
pub(crate) struct Kernel {
    notices: OnceLock<Arc<Notices<NotifyHandles>>>,
    busy: Arc<BusyDirectories>,
    runtime: Handle,
    raises: RaiseThreads,
    pruners: Arc<Semaphore>,
}

/// What it takes to notify the kernel.
struct NotifyHandles {
    notifier: Notifier,
    /// The session's device, to which sizes are raised.
    device: File,
    /// What sizes are raised with; `None` if there was no memory for it.
    unreadable: Option<Unreadable>,
}

impl NotifyHandles {
    fn raise(&self, raise: SizeRaise) {
        let Some(unreadable) = &self.unreadable else { return };
        if raise::raise(&self.device, unreadable, raise.node().0, raise.size()) {
            raise.done();
        }
    }
}

impl Deliver for NotifyHandles {
    fn deliver(&self, notice: &Notice, by: NameInvalidation) {
        let notified = match notice {
            Notice::Name(parent, name) if by == NameInvalidation::Expire => {
                self.notifier.expire_entry(INodeNo(*parent), name.as_bytes())
            }
            Notice::Name(parent, name) => {
                self.notifier.inval_entry(INodeNo(*parent), name.as_bytes())
            }
            Notice::Pages(node, offset, length) => {
                self.notifier.inval_inode(INodeNo(*node), *offset, *length)
            }
            // It touches no page, but may drop the last reference on an inode that was
            // removed in the meantime, and eviction of the inode waits for reads that are under way: for us,
            // that is.
            Notice::Attributes(node) => self.notifier.inval_inode(INodeNo(*node), -1, 0),
        };
        // The kernel answers ENOENT for what it does not keep: as good as invalidated.
        if let Err(error) = notified {
            tracing::trace!(%error, "the kernel kept nothing");
        }
    }
}

impl Kernel {
    /// Stores bytes in the kernel's pages, from the beginning of a file that is not open; returns whether the
    /// kernel took them. Waits for the kernel: one system call.
    pub(crate) fn store(&self, node: NodeId, bytes: &[u8]) -> bool {
        let Some(notices) = self.notices.get() else { return false };
        notices.kernel().notifier.store(INodeNo(node.0), bytes).is_ok()
    }

    pub(crate) fn new(runtime: Handle, busy: Arc<BusyDirectories>) -> Self {
        let raises = RaiseThreads::new(runtime.clone());
        let pruners = Arc::new(Semaphore::new(PRUNERS_MAX));
        Self { notices: OnceLock::new(), busy, runtime, raises, pruners }
    }

    /// As [`Notices::oldest`].
    pub(crate) fn oldest(&self) -> Option<(&'static str, Duration)> {
        self.notices.get()?.oldest()
    }

    /// From here on the kernel can be notified; nothing was kept before.
    pub(crate) fn attach(&self, notifier: Notifier, device: File) {
        let unreadable = Unreadable::new();
        if let Err(error) = &unreadable {
            tracing::warn!(%error, "no memory for a page: sizes cannot be raised in the kernel");
        }
        let side = NotifyHandles { notifier, device, unreadable: unreadable.ok() };
        let threads = Threads::new(self.runtime.clone());
        let _ = self.notices.set(Notices::new(side, Arc::clone(&self.busy), threads));
    }

    /// Notifies of names in a directory. Ends when the kernel has processed all, after `patience`, or as soon
    /// as a call holds the directory: the server may wait for our lock before it answers that call. Returns whether
    /// it has processed all.
    fn names(
        &self,
        parent: NodeId,
        names: impl IntoIterator<Item = (Name, NameInvalidation)>,
        patience: Duration,
    ) -> BoxFuture<bool> {
        let Some(notices) = self.notices.get() else { return Box::pin(async { true }) };
        let notified = notices.names(parent.0, names);
        let until = tokio::time::Instant::now() + patience;
        let busy = Arc::clone(&self.busy);
        Box::pin(async move {
            let wait = race(notified, busy.until_busy(parent.0));
            match tokio::time::timeout_at(until, wait).await {
                Ok(First::Left(_)) => true,
                Ok(First::Right(())) => false,
                Err(_) => {
                    tracing::debug!(directory = parent.0, "names outlive their lock");
                    false
                }
            }
        })
    }
}

impl Kernel {
    /// Has the kernel drop files with all their names, and waits for it as long as for names. It may have to wait for
    /// pages of a file that it was reading ahead: that is on one of a few threads.
    fn pruning(&self) -> impl FnOnce(Vec<NodeId>) -> BoxFuture<()> + use<> {
        let (notices, pruners) = (self.notices.get().cloned(), Arc::clone(&self.pruners));
        move |files| {
            let prune = async move {
                let Some(notices) = notices.filter(|_| !files.is_empty()) else { return };
                let Ok(turn) = pruners.acquire_owned().await else { return };
                let (done, is_done) = oneshot::channel::<()>();
                let nodes: Vec<_> = files.into_iter().map(|node| INodeNo(node.0)).collect();
                let side = Arc::clone(&notices);
                let work = move || {
                    if let Err(error) = side.kernel().notifier.prune(&nodes) {
                        tracing::debug!(%error, "the kernel prunes nothing");
                    }
                    drop((turn, done));
                };
                if let Err(error) = notices.threads().start("fuse-prune", Box::new(work)) {
                    tracing::warn!(%error, "no thread to prune with");
                }
                _ = is_done.await;
            };
            Box::pin(async move { _ = tokio::time::timeout(NAME_WAIT, prune).await })
        }
    }
}

impl KernelNotifier for Kernel {
    /// The kernel takes the directory's lock for it, which a create or lookup in that directory holds while
    /// it waits for the very server that is revoking our lock: while there is such a call this is not waited
    /// for. A lookup of the name then finds the kernel's old entry until that call ends.
    fn invalidate_name(&self, stale: &StaleName) -> BoxFuture<()> {
        let StaleName { parent, name, by } = stale.clone();
        let notified = self.names(parent, [(name, by)], NAME_WAIT);
        Box::pin(async { _ = notified.await })
    }

    /// As [`Kernel::invalidate_name`], one after the other: each takes the directory's lock.
    fn expire_names(&self, node: NodeId, names: Vec<Name>, files: Vec<NodeId>) -> BoxFuture<bool> {
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let names = names.into_iter().map(|name| (name, NameInvalidation::Expire));
        let notified = self.names(node, names, NAME_WAIT + EACH_NAME_WAIT * count);
        let pruning = self.pruning();
        Box::pin(async move {
            let is_notified = notified.await;
            if !is_notified {
                pruning(files).await;
            }
            is_notified
        })
    }

    fn prune(&self, files: Vec<NodeId>) -> BoxFuture<()> {
        self.pruning()(files)
    }

    /// On a thread of its own, see [`RaiseThreads`]. Ends when the kernel has the size, which it raises before it
    /// waits for anything; without that after [`PAGES_WAIT`], if too many other threads are stuck: the kernel
    /// may then use the previous size until its next question for attributes, whose reply raises it.
    fn raise_size(&self, raise: SizeRaise) -> BoxFuture<()> {
        let Some(notices) = self.notices.get().cloned() else { return Box::pin(async {}) };
        let node = raise.node();
        let raised = self.raises.raise(move || notices.kernel().raise(raise), PAGES_WAIT);
        Box::pin(async move {
            match raised.await {
                Raised::Done => {}
                Raised::Blocked => {
                    tracing::debug!(
                        node = node.0,
                        "the page of a size that was raised is under IO"
                    );
                }
                Raised::NotBegun => {
                    tracing::warn!(node = node.0, "no thread to raise a size with in time");
                }
            }
        })
    }

    fn invalidate_inode(&self, node: NodeId, stale: Stale) -> BoxFuture<Invalidated> {
        let Some(notices) = self.notices.get().cloned() else {
            return Box::pin(async { Invalidated::Done });
        };
        // Sent at once: a caller with many sends all before it waits for the first.
        let (subject, mut notified) = match stale {
            Stale::Attributes => (Subject::Attributes(node.0), notices.attributes(node.0)),
            Stale::Pages(extent) => {
                let (offset, length) = kernel_range(extent);
                let notified = notices.pages(node.0, offset, length);
                (Subject::Pages(node.0, offset, length), notified)
            }
        };
        Box::pin(async move {
            let looks = Arc::clone(&notices);
            let mut watch = SleepWatch::new(move || looks.sleep(subject));
            if watch.notified(&mut notified, ASLEEP, PAGES_WAIT).await || stale == Stale::Attributes
            {
                return Invalidated::Done;
            }
            // An earlier notice of the same pages may be what is blocked, and was of earlier attributes.
            let mut dropped = notices.attributes(node.0);
            let attributes = Subject::Attributes(node.0);
            let mut attributes = SleepWatch::new(|| notices.sleep(attributes));
            attributes.notified(&mut dropped, ASLEEP, PAGES_WAIT).await;
            Invalidated::Blocked(Box::pin(async move {
                let is_notified = watch.notified(&mut notified, PAGES_WAIT, PAGES_WAIT).await;
                if !is_notified {
                    tracing::debug!(node = node.0, "a page under IO outlives its lock");
                }
                is_notified
            }))
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
