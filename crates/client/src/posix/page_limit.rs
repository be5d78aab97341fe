//! The limit of what the kernel keeps of files (`max_cached_mb`).
//!
//! It never delays a read or write: pages are dropped by a task beside the calls, since the kernel waits for
//! calls of ours before it releases the pages that they hold.

use std::sync::Arc;

use super::{FileSystem, Mounted, NodeId, PagesKept};

impl FileSystem {
    /// How much of files the kernel keeps, as far as can be estimated.
    #[must_use]
    pub fn pages_kept(&self) -> PagesKept {
        self.0.kernel_cache.pages_kept()
    }

    /// From now on the kernel keeps no more than so many bytes of files; more than that is dropped now.
    pub fn limit_pages(&self, bytes_max: u64) {
        if self.0.kernel_cache.limit_pages(bytes_max) {
            self.0.trim_pages();
        }
    }
}

impl Mounted {
    /// Bytes of a file came out of the kernel's pages, or go there.
    pub(super) fn note_pages_used(&self, node: NodeId, offset: u64, length: u64) {
        if self.kernel_cache.note_pages_used(node, offset, length) {
            self.trim_pages();
        }
    }

    fn trim_pages(&self) {
        let (kernel_cache, inodes) = (Arc::clone(&self.kernel_cache), Arc::clone(&self.inodes));
        let trim = async move { kernel_cache.trim(&inodes).await };
        self.targets.world.tasks.spawn("pages", Box::pin(trim));
    }
}
