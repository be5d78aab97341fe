//! How far the kernel reads ahead on a mount.
//!
//! The kernel begins with 128 KiB for every device and takes from the answer to `FUSE_INIT` only what is
//! less. A buffered sequential read then comes as requests of 128 KiB, each with its own wake-ups and answer;
//! with more, as requests of a whole write's size. Only the device's own parameter can raise it, which root
//! may write; for other users, and where `/sys` is read-only, the kernel's 128 KiB stay, and only the number
//! of requests suffers.

use std::path::Path;

use crate::kernel_mount::newest_at;
use crate::mount_table::table_of;

/// Has the kernel read `bytes` ahead on what is mounted at `path` (canonical). After `FUSE_INIT`, whose
/// answer would lower it again.
pub(crate) fn raise(path: &Path, bytes: u32) {
    let Some(device) = newest_at(&table_of("self"), path) else { return };
    let parameter = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&parameter, format!("{}", bytes >> 10)) {
        tracing::debug!(parameter, %error, "the kernel reads ahead as far as it does by itself");
    }
}
