//! How far the kernel reads ahead on a mount.
//!
//! The kernel begins with 128 KiB for every device and takes from the answer to `FUSE_INIT` only what
//! is less. A buffered sequential read then comes as requests of 128 KiB, each with its own wake-ups and
//! answer; with more, as requests of a whole write's size. Only the device's own parameter can raise it,
//! which root may write; for others, and where `/sys` is read-only, the kernel's 128 KiB stay and
//! nothing is wrong but the number of requests.

use std::path::Path;

use crate::mount::mounts;

/// Has the kernel read `bytes` ahead on what is mounted at `path` (canonical). After `FUSE_INIT`, whose
/// answer would lower it again.
pub(crate) fn raise(path: &Path, bytes: u32) {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(device) = device_of(&text, path) else { return };
    let parameter = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&parameter, format!("{}", bytes >> 10)) {
        tracing::debug!(parameter, %error, "the kernel reads ahead as far as it does by itself");
    }
}

/// `MAJOR:MINOR` of the newest mount at `path`.
fn device_of(mountinfo: &str, path: &Path) -> Option<String> {
    let found = mounts(mountinfo).filter(|(_, point)| point == path).last();
    found.map(|(device, _)| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
40 22 0:35 / /mnt/my\\040files rw - fuse.sheen one rw
41 22 0:36 / /mnt/my\\040files rw - fuse.sheen two rw
42 22 0:37 / /mnt/my rw - fuse.sheen three rw
";

    #[test]
    fn the_newest_mount_of_a_place_is_the_one_that_is_seen() {
        let device = |path: &str| device_of(MOUNTS, Path::new(path));
        assert_eq!(device("/mnt/my files").as_deref(), Some("0:36"));
        assert_eq!(device("/mnt/my").as_deref(), Some("0:37"));
        assert_eq!(device("/").as_deref(), Some("254:1"));
        assert_eq!(device("/mnt"), None);
        assert_eq!(device_of("nonsense\n\n", Path::new("/")), None);
    }
}
