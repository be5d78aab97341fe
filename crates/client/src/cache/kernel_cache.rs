//! What the kernel keeps of what the facade answered: who notifies it, and how many pages of files it keeps, by
//! estimate.

use std::sync::Arc;

use parking_lot::RwLock;
use sheen_types::Name;
use sheen_types::access::Audience;

use super::kernel_notifier::KernelNotifier;
use super::page_estimates::{PageEstimates, PagesKept};
use super::{Inode, InodeTable, SizeRaise};
use crate::types::{Invalidated, NodeId, Stale};

/// The kernel's copies. There is at most one observer of them.
#[derive(Default)]
pub(crate) struct KernelCache {
    observer: RwLock<Option<(Arc<dyn KernelNotifier>, Audience)>>,
    pages: PageEstimates,
}

impl KernelCache {
    /// From now on `observer` is notified; `audience` is who uses what it keeps.
    pub(crate) fn watch(&self, observer: Arc<dyn KernelNotifier>, audience: Audience) {
        *self.observer.write() = Some((observer, audience));
    }

    /// Whether anything may be kept at all.
    pub(crate) fn watched(&self) -> bool {
        self.observer.read().is_some()
    }

    fn observer(&self) -> Option<Arc<dyn KernelNotifier>> {
        self.observer.read().as_ref().map(|(observer, _)| Arc::clone(observer))
    }

    /// Who uses what is kept; `None` if nothing is.
    pub(crate) fn audience(&self) -> Option<Audience> {
        self.observer.read().as_ref().map(|(_, audience)| *audience)
    }

    /// Notifies that no path walk may use `names` of a directory without a lookup, and waits. Returns whether the kernel
    /// has processed all, as [`KernelNotifier::children`].
    pub(crate) async fn children(
        &self,
        node: NodeId,
        names: Vec<Name>,
        files: Vec<NodeId>,
    ) -> bool {
        match self.observer().filter(|_| !names.is_empty()) {
            Some(observer) => observer.children(node, names, files).await,
            None => true,
        }
    }

    /// As [`KernelNotifier::prune`].
    pub(crate) async fn prune(&self, files: Vec<NodeId>) {
        if let Some(observer) = self.observer().filter(|_| !files.is_empty()) {
            observer.prune(files).await;
        }
    }

    /// Notifies of names, and whether what they named is in use, all at once, and waits.
    pub(crate) async fn entries(&self, names: Vec<(NodeId, Name, bool)>) {
        let Some(observer) = self.observer() else { return };
        // All are sent before the first is waited for.
        let notify = |(node, name, is_in_use): &_| observer.entry(*node, name, *is_in_use);
        let notified: Vec<_> = names.iter().map(notify).collect();
        for notified in notified {
            notified.await;
        }
    }

    /// Notifies of an inode, and waits as far as [`KernelNotifier::inode`] does.
    pub(crate) async fn inode(&self, inode: &Arc<Inode>, stale: Stale) -> Invalidated {
        if let Stale::Pages(range) = stale {
            self.pages.dropped(inode.node, range);
        }
        self.invalidate(inode, stale).await
    }

    /// Notifies of a directory's attributes, and waits. No size need be raised: nothing depends on a
    /// directory's.
    pub(crate) async fn directory(&self, node: NodeId) {
        if let Some(observer) = self.observer() {
            observer.inode(node, Stale::Attributes).await.done().await;
        }
    }

    async fn invalidate(&self, inode: &Arc<Inode>, stale: Stale) -> Invalidated {
        let Some(observer) = self.observer() else { return Invalidated::Done };
        if let Some(raise) = inode.begin_invalidation() {
            observer.raise(raise).await;
        }
        observer.inode(inode.node, stale).await
    }

    /// Has the kernel's size raised to that of a reply about to be sent, and waits.
    pub(crate) async fn raise(&self, raise: SizeRaise) {
        if let Some(observer) = self.observer() {
            observer.raise(raise).await;
        }
    }

    /// Bytes of a file came out of pages that are kept, or go there. Returns whether the caller must run
    /// [`KernelCache::trim`], which must not delay the answer.
    pub(crate) fn note_pages_used(&self, node: NodeId, offset: u64, length: u64) -> bool {
        self.watched() && self.pages.note_used(node, offset, length)
    }

    /// Whether pages of the inode are kept, as far as can be estimated.
    pub(crate) fn has_pages(&self, node: NodeId) -> bool {
        self.watched() && self.pages.has(node)
    }

    /// Forgets what pages the kernel has of the inode: it keeps none any more.
    pub(crate) fn forget_pages(&self, node: NodeId) {
        self.pages.forget(node);
    }

    /// The file was truncated to this size.
    pub(crate) fn truncate_pages(&self, node: NodeId, size: u64) {
        self.pages.cut(node, size);
    }

    /// From now on pages of so many bytes may be kept. As [`KernelCache::note_pages_used`].
    pub(crate) fn limit_pages(&self, bytes_max: u64) -> bool {
        self.pages.limit(bytes_max)
    }

    /// How much is kept, as far as can be estimated.
    pub(crate) fn pages_kept(&self) -> PagesKept {
        self.pages.kept()
    }

    /// Has pages dropped until the rest fits. Locks stay: what is needed again is read again.
    pub(crate) async fn trim(&self, inodes: &Arc<InodeTable>) {
        while let Some((node, ranges)) = self.pages.victim() {
            let Some(inode) = inodes.pin_node(node) else { continue };
            for range in ranges.into_iter().flatten() {
                self.invalidate(&inode, Stale::Pages(range)).await.done().await;
            }
        }
    }
}
