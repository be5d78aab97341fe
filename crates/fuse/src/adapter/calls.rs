//! One method for each kind of request: unpack, call the facade, answer. A module for each family of them.
//!
//! What is around the call of the facade, in this order. Before it, on the thread that read the request:
//!
//! 1. `credentials_of`: whose call it is; all but those by an open handle alone. It also ends the wait of
//!    `crate::pending_sizes` for the thread's earlier calls.
//! 2. `PendingSizes::note_reply`: a reply that may bring the kernel a size is to come; creates and links.
//! 3. `mark_busy`: the kernel holds the locks of these directories until the guard is dropped; calls about names, listings,
//!    and attributes of directories. `known_child` finds those that the call names.
//! 4. `order`, `order_of_all`: where the call stands among the kernel's write-backs; what uses bytes of a file.
//! 5. `Waits::call`: which signals end the wait for the call; all but releases.
//! 6. `Resent::of`: whether the kernel sends it once more; what cannot be executed twice.
//! 7. `counted`, or `drive` for what no statistics count: runs what follows.
//!
//! In the future: `after_earlier` waits for earlier write-backs, the facade is called, `Resent` judges the result, the guard
//! of the busy directories is dropped, the answer is sent. `late` goes on with a call whose wait a signal has ended, and
//! releases what it brings.

use sheen_fuse_wire::{Filesystem, INodeNo, KernelConfig};

use super::Adapter;
use crate::special::node;

mod attributes;
mod directories;
mod exported;
mod files;
mod locks;
mod names;
mod xattrs;

impl Filesystem for Adapter {
    fn init(&self, config: &mut KernelConfig) {
        config.take(self.wanted(config.offered()));
    }

    fn interrupt(&self, unique: u64) {
        self.waits.interrupt(unique);
    }

    fn forget(&self, number: INodeNo, lookups: u64) {
        self.files.forget(node(number), lookups);
    }
}
