//! Writes through the kernel's pages, and reads that fill these pages again before the write is answered.
//!
//! The kernel copies a write's bytes into its pages and sends it to us then. While it is here, waiting for a
//! lock, for grant or for a server that died, these pages may be dropped from the kernel: by a revocation, by
//! another writer that bypasses the pages, for lack of memory. A read that fills them again gets what the
//! file held before, as the write is not in our cache yet; and when the write is answered nothing would drop
//! those pages again: its own writer would read the old bytes. So such a read waits for writes that were here
//! before it.
//!
//! No write waits for a read: the kernel releases a page that a read is to fill before it copies a write's
//! bytes into it. While a read waits here, a revocation does not wait for its pages.
//!
//! Cost: two short locks of the inode for each write through the pages and one for each read, no RPC.

use std::pin::pin;
use std::sync::Arc;

use sheen_types::Extent;

use super::Mounted;
use crate::cache::Inode;
use crate::data::CallPages;

/// A write through the pages, until it is accepted or has failed.
pub(super) struct PageWrite {
    inode: Arc<Inode>,
    pages: Extent,
}

impl Drop for PageWrite {
    fn drop(&mut self) {
        let mut state = self.inode.state();
        if let Some(at) = state.file.page_writes.iter().position(|pages| *pages == self.pages) {
            state.file.page_writes.swap_remove(at);
        }
        drop(state);
        self.inode.changed.notify_waiters();
    }
}

fn is_written(inode: &Inode, pages: Extent) -> bool {
    let overlaps = |it: &Extent| it.start <= pages.end && pages.start <= it.end;
    inode.state().file.page_writes.iter().any(overlaps)
}

impl Mounted {
    /// A write of these bytes has come, out of the kernel's pages.
    pub(super) fn begin_page_write(&self, inode: &Arc<Inode>, range: Extent) -> PageWrite {
        let pages = range.whole_pages();
        inode.state().file.page_writes.push(pages);
        PageWrite { inode: Arc::clone(inode), pages }
    }

    /// Returns when no write that may lack in what a read of these bytes brings is under way.
    pub(super) async fn after_page_writes(&self, inode: &Inode, range: Extent) {
        let pages = range.whole_pages();
        if !is_written(inode, pages) {
            return;
        }
        let _waiting_call = self.data.enter_waiting_call(inode.fid, CallPages::of(pages));
        loop {
            let mut changed = pin!(inode.changed.notified());
            changed.as_mut().enable();
            if !is_written(inode, pages) {
                return;
            }
            changed.await;
        }
    }
}
