//! One method for each kind of request: unpack, call the facade, answer. A module for each family of them.

use sheen_fuse_wire::{Filesystem, INodeNo, KernelConfig};

use super::Adapter;
use crate::special::node;

mod attributes;
mod directories;
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
