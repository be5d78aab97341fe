//! Whether a mount answers, and the end of one that does not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use crate::place::Place;

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

/// Has the kernel end the connection of a mount: every call that waits there gets an error, every later one
/// `ENOTCONN`. Touches no file of the mount.
///
/// # Errors
/// `ENOENT` if it is not mounted; what the kernel says, if it has no `fusectl` or the mount is another user's.
pub fn abort(place: &Place) -> io::Result<()> {
    let minor = place.minor().ok_or(io::ErrorKind::NotFound)?;
    let place = PathBuf::from(CONNECTIONS);
    if fs::read_dir(&place)?.next().is_none() {
        // Without root it has to be there already.
        _ = mount("fusectl", &place, "fusectl", MountFlags::empty(), None);
    }
    fs::write(place.join(minor).join("abort"), "1")
}
