//! Stores a small file's bytes in the kernel's pages with the open that brought them: the kernel serves the
//! reads that follow itself.
//!
//! The kernel copies the bytes into its pages while we wait. It would wait for us in turn if another call
//! held one of these pages that itself needs a thread of ours: a read. So this is done for a file that has no
//! other open handle, before the kernel has the new handle, and another open of the file waits until it is
//! done.
//!
//! The client does not see these reads, and the open counts as the access.
//!
//! Cost: no RPC, one system call in place of the first read's two and the two switches between the
//! caller's thread and ours; one lock of the mount, held for that call; no copy but the kernel's.

use bytes::Bytes;
use parking_lot::Mutex;

use super::handles::FileDescription;
use super::{FileSystem, Mounted, Opened};

/// A guard that lives while the kernel takes bytes.
#[derive(Default)]
pub(crate) struct PageHandoff(Mutex<()>);

impl FileSystem {
    /// If the open of `opened` brought the file's bytes, calls `give` with them, which stores them in the
    /// kernel's pages from the file's beginning on and returns whether it could. The pages may be kept then.
    pub fn hand_off_pages(&self, opened: Opened, give: impl FnOnce(&Bytes) -> bool) -> Opened {
        let handed = || {
            // Closed by now: there are no pages to fill.
            let file = self.0.handles.get(opened.handle).ok()?;
            let view = file.open.lock().as_ref()?.mdt_open().view()?;
            let handing_off = self.0.page_handoff.0.lock();
            if file.pin.state().opens > 1 {
                return None;
            }
            file.pin.state().file.layout_guard.note_end_read();
            let is_given = give(&view.bytes);
            if is_given {
                self.0.note_pages_used(file.pin.node(), 0, view.bytes.len() as u64);
            }
            drop((handing_off, view));
            // Otherwise reads arrive here and are noted.
            is_given.then(|| self.0.note_access(&file, file.data().as_deref()))
        };
        if opened.bypasses_page_cache || !self.0.kernel_cache.has_notifier() || handed().is_none() {
            return opened;
        }
        Opened { keep_pages: true, ..opened }
    }
}

impl Mounted {
    /// The kernel must not have a handle of a file, and read it, while it stores bytes of the file.
    pub(super) fn wait_for_handoff(&self, file: &FileDescription) {
        if file.pin.state().opens > 1 {
            drop(self.page_handoff.0.lock());
        }
    }
}
