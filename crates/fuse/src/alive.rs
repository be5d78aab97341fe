//! Whether a mount answers, and the end of one that does not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use crate::mount::mounts;

/// An extended attribute that no file has. Asked for it, a mount says so without asking any server.
pub(crate) const ATTRIBUTE: &str = "system.sheen_alive";

/// Where the kernel shows its FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Asks the mount at `path` for a sign of life. Waits for ever if its process does not read, and may not
/// be killable then: to be called where nobody waits for the caller.
///
/// # Errors
/// `ENOTCONN` or `ECONNABORTED`: its connection has ended.
pub fn ask(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::getxattr(path, ATTRIBUTE, &mut [0u8; 1][..]) {
        Err(error @ (Errno::NOTCONN | Errno::CONNABORTED)) => Err(error.into()),
        // Any other answer is one: another user's mount refuses, what is no mount of ours knows nothing.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Has the kernel end the connection of the mount at `path` (canonical): every call that waits there
/// gets an error, every later one `ENOTCONN`. Touches no file of the mount.
///
/// # Errors
/// `ENOENT` if nothing is mounted there; what the kernel says, if it has no `fusectl` or the mount is
/// another user's.
pub fn abort(path: &Path) -> io::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let minor = minor_of(&table, path).ok_or(io::ErrorKind::NotFound)?;
    let place = PathBuf::from(CONNECTIONS);
    if fs::read_dir(&place)?.next().is_none() {
        // Without root it has to be there already.
        _ = mount("fusectl", &place, "fusectl", MountFlags::empty(), None);
    }
    fs::write(place.join(minor).join("abort"), "1")
}

/// The number of the connection of the newest mount at `path`.
fn minor_of(mountinfo: &str, path: &Path) -> Option<String> {
    let found = mounts(mountinfo).filter(|(_, point)| point == path).last();
    found.and_then(|(device, _)| Some(device.split_once(':')?.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_by_its_mount_point() {
        const TABLE: &str = "\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
40 22 0:35 / /mnt/my\\040files rw - fuse.sheen one rw
41 22 0:36 / /mnt/my\\040files rw - fuse.sheen two rw
";
        let minor = |path: &str| minor_of(TABLE, Path::new(path));
        assert_eq!(minor("/mnt/my files").as_deref(), Some("36"));
        assert_eq!(minor("/mnt"), None);
    }
}
