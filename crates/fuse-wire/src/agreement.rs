//! What kernel and file system agree on when they meet (`FUSE_INIT`).

use crate::types::InitFlags;

/// What was agreed on: for the life of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// What the kernel offered ([`InitFlags`]).
    pub offered: u64,
    /// The minor version of the kernel's protocol.
    pub protocol: u32,
    /// What of the offer is used.
    pub taken: u64,
}

/// What the kernel offers, for a file system to choose from.
#[derive(Clone, Copy, Debug)]
pub struct KernelConfig(pub(crate) Agreement);

impl KernelConfig {
    /// What the kernel has.
    #[must_use]
    pub fn offered(&self) -> InitFlags {
        InitFlags::from_bits_retain(self.0.offered)
    }

    /// The minor version of the kernel's protocol.
    #[must_use]
    pub fn protocol(&self) -> u32 {
        self.0.protocol
    }

    /// Uses these, as far as they are offered.
    pub fn take(&mut self, wanted: InitFlags) {
        self.0.taken |= (wanted & self.offered()).bits();
    }
}
