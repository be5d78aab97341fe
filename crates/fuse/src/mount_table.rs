//! The kernel's table of mounts, as `/proc` shows it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use sheen_types::text::{bytes_of_shown, shown, with_octal};

/// The type that the kernel's tables show, by which mount(8) finds `mount.fuse.lustre`.
pub(crate) const KIND: &str = "fuse.lustre";
/// Whether the kernel lists `path` as a mount point in this process's namespace; compares names, asks no file
/// system.
#[must_use]
pub fn is_mount_point(path: &Path) -> bool {
    mounts(&table_of("self")).any(|(_, point)| point == path)
}

/// The `mountinfo` of a process: empty if it may not be read. A mount point may have any bytes, whichever user mounts there:
/// what is no UTF-8 is octal.
#[must_use]
pub fn table_of(process: &str) -> String {
    let table = std::fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    with_octal(&table)
}

/// Device (`MAJOR:MINOR`) and mount point of each line of a `mountinfo`.
pub(crate) fn mounts(mountinfo: &str) -> impl Iterator<Item = (&str, PathBuf)> {
    mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        Some((fields.next()?, OsString::from_vec(bytes_of_shown(fields.nth(1)?.as_bytes())).into()))
    })
}

/// A path as messages have it.
pub(crate) fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}
