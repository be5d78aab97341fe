//! What the kernel keeps of what the facade answered: who notifies it, and how many pages of files it keeps, by
//! estimate.

use std::sync::Arc;

use parking_lot::RwLock;
use sheen_types::Name;
use sheen_types::access::Audience;

use super::kernel_notifier::KernelNotifier;
use super::page_estimates::{PageEstimates, PagesKept};
use super::{Inode, InodeTable, SizeRaise};
use crate::types::{Invalidated, NodeId, Stale, StaleName};

/// The kernel's copies. At most one notifier is attached.
#[derive(Default)]
pub(crate) struct KernelCache {
    notifier: RwLock<Option<(Arc<dyn KernelNotifier>, Audience)>>,
    pages: PageEstimates,
}

impl KernelCache {
    /// From now on `notifier` is notified; `audience` is who uses what it keeps.
    pub(crate) fn attach_notifier(&self, notifier: Arc<dyn KernelNotifier>, audience: Audience) {
        *self.notifier.write() = Some((notifier, audience));
    }

    /// Whether anything may be kept at all.
    pub(crate) fn has_notifier(&self) -> bool {
        self.notifier.read().is_some()
    }

    fn notifier(&self) -> Option<Arc<dyn KernelNotifier>> {
        self.notifier.read().as_ref().map(|(notifier, _)| Arc::clone(notifier))
    }

    /// Who uses what is kept; `None` if nothing is.
    pub(crate) fn audience(&self) -> Option<Audience> {
        self.notifier.read().as_ref().map(|(_, audience)| *audience)
    }

    /// Notifies that no path walk may use `names` of a directory without a lookup, and waits. Returns whether the kernel
    /// has processed all, as [`KernelNotifier::expire_names`].
    pub(crate) async fn expire_names(
        &self,
        node: NodeId,
        names: Vec<Name>,
        files: Vec<NodeId>,
    ) -> bool {
        match self.notifier().filter(|_| !names.is_empty()) {
            Some(notifier) => notifier.expire_names(node, names, files).await,
            None => true,
        }
    }

    /// As [`KernelNotifier::prune`].
    pub(crate) async fn prune(&self, files: Vec<NodeId>) {
        if let Some(notifier) = self.notifier().filter(|_| !files.is_empty()) {
            notifier.prune(files).await;
        }
    }

    /// Notifies of names, all at once, and waits.
    pub(crate) async fn invalidate_names(&self, names: Vec<StaleName>) {
        let Some(notifier) = self.notifier() else { return };
        // All are sent before the first is waited for.
        let notified: Vec<_> = names.iter().map(|stale| notifier.invalidate_name(stale)).collect();
        for notified in notified {
            notified.await;
        }
    }

    /// Notifies of an inode, and waits as far as [`KernelNotifier::invalidate_inode`] does.
    pub(crate) async fn invalidate_inode(&self, inode: &Arc<Inode>, stale: Stale) -> Invalidated {
        if let Stale::Pages(range) = stale {
            self.pages.dropped(inode.node(), range);
        }
        self.raise_and_invalidate(inode, stale).await
    }

    /// Notifies of the attributes of an inode whose size stays, and waits. No size need be raised.
    pub(crate) async fn invalidate_attributes_but_size(&self, node: NodeId) {
        if let Some(notifier) = self.notifier() {
            notifier.invalidate_inode(node, Stale::Attributes).await.done().await;
        }
    }

    async fn raise_and_invalidate(&self, inode: &Arc<Inode>, stale: Stale) -> Invalidated {
        let Some(notifier) = self.notifier() else { return Invalidated::Done };
        if let Some(raise) = inode.begin_invalidation() {
            notifier.raise_size(raise).await;
        }
        notifier.invalidate_inode(inode.node(), stale).await
    }

    /// Has the kernel's size raised to that of a reply about to be sent, and waits.
    pub(crate) async fn raise_size(&self, raise: SizeRaise) {
        if let Some(notifier) = self.notifier() {
            notifier.raise_size(raise).await;
        }
    }

    /// Bytes of a file came out of pages that are kept, or go there. Returns whether the caller must run
    /// [`KernelCache::trim`], which must not delay the answer.
    pub(crate) fn note_pages_used(&self, node: NodeId, offset: u64, length: u64) -> bool {
        self.has_notifier() && self.pages.note_used(node, offset, length)
    }

    /// Whether pages of the inode are kept, as far as can be estimated.
    pub(crate) fn has_pages(&self, node: NodeId) -> bool {
        self.has_notifier() && self.pages.has(node)
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
                self.raise_and_invalidate(&inode, Stale::Pages(range)).await.done().await;
            }
        }
    }
}
