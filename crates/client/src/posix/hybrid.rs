//! Which writers bypass the kernel's pages without having asked for it (`hybrid_io`).
//!
//! The kernel admits one writer at a time to the pages of a file; the other writers wait for the one that
//! copies, and burn processor time; then it copies a second time, to us. With 8 writers of one file on two
//! mounts of a machine with two processors, their calls cost twice as much as those of writers with files of
//! their own. Bypassing the pages, each writer's bytes are copied once, by us, and writers within the file's
//! size do not wait for each other.
//!
//! The price is that what was written so is not in the kernel's pages, and reading it here asks the OSTs
//! once. A program that makes a file and reads it back, or keeps a database, does not pay it. Lustre decides
//! it by each call's size, as it comes; through FUSE it can only be decided for a handle, when it is opened.
//!
//! A read through the pages while such a write is under way may bring the old bytes into them. Newer kernels
//! drop these pages when the write is answered; the client does it before, for all kernels.
//!
//! Cost: two short locks for each such write; where the file is open through pages, or has some, one
//! system call more.

use std::sync::Arc;

use sheen_types::Extent;

use super::handles::FileDescription;
use super::{FileHandle, FileSystem, Mounted, Stale};
use crate::cache::{Inode, InodeState, LayoutState};
use crate::data::FileLayout;

impl Mounted {
    /// Whether writes to the file, just opened, bypass the kernel's pages: if two of these hold. It cannot be
    /// read through this handle; it has several objects, and had them before it was opened, empty or not;
    /// another handle here writes it.
    pub(super) fn writes_bypass_page_cache(&self, file: &FileDescription, is_new: bool) -> bool {
        if !file.flags.writes() || !self.settings.hybrid_io.get() {
            return false;
        }
        let state = file.pin.state();
        let is_striped = !is_new && has_stripes(&state);
        let signs = [!file.flags.reads(), is_striped, state.file.writers > 1];
        signs.into_iter().filter(|sign| *sign).count() >= 2
    }

    /// Bytes were written that bypassed the kernel's pages: the old ones are dropped from there.
    pub(super) async fn drop_bypassed_pages(&self, inode: &Arc<Inode>, offset: u64, length: u64) {
        let Some(range) = Extent::of_length(offset, length) else { return };
        let has_other_handles = || {
            let state = inode.state();
            state.opens > state.file.bypassing
        };
        if has_other_handles() || self.kernel_cache.has_pages(inode.node()) {
            self.kernel_cache.invalidate_inode(inode, Stale::Pages(range)).await.done().await;
        }
    }
}

impl FileSystem {
    /// Whether reads and writes of an open file bypass the kernel's pages.
    #[must_use]
    pub fn bypasses_page_cache(&self, handle: FileHandle) -> bool {
        self.0.handles.get(handle).is_ok_and(|file| file.bypasses_page_cache)
    }
}

fn has_stripes(state: &InodeState) -> bool {
    let is_striped =
        |layout: &FileLayout| layout.components().iter().any(|it| it.stripes().len() > 1);
    matches!(state.layout(), Some(LayoutState::Placed(layout)) if is_striped(layout))
}
