//! The run folder: a directory of one user, closed to all other users.
//!
//! A process that can write into it can offer sockets in the name of our processes. So it is made with mode 700,
//! one that is wider is closed, and one that another user made first, or that is a symbolic link, is not
//! used. Sockets are reached through its descriptor, so that their paths are short however long its own is
//! (a socket's path has at most 107 bytes).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The mode of what is one user's alone.
const PRIVATE: u32 = 0o700;

/// Makes `folder` if it is not there, and closes it to other users if it is open; a line on stderr says so.
///
/// # Errors
/// It cannot be made, is no directory, or belongs to another user.
pub fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(PRIVATE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mode = check_owner(folder)?;
    if mode & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(PRIVATE))?;
        eprintln!(
            "{} was open to other users (mode {mode:o}): closed (mode 700)",
            folder.display()
        );
    }
    Ok(())
}

/// Whether `path` is a directory of ours and no link to one; answers its mode.
///
/// # Errors
/// It is not, or not to be looked at.
pub fn check_owner(path: &Path) -> io::Result<u32> {
    let found = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = match (found.is_dir(), found.uid()) {
        (true, uid) if uid == own => return Ok(found.mode() & 0o7777),
        (true, uid) => format!("it belongs to uid {uid}, not to uid {own}"),
        (false, _) => "it is no directory".to_owned(),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, wrong))
}

/// A short path to a socket, good while the descriptor is open.
pub(crate) fn short_path(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let (folder, name) = (path.parent().unwrap_or(Path::new(".")), path.file_name());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(folder, flags, Mode::empty())?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    Ok((descriptor, place.join(name.unwrap_or(OsStr::new("")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_closed_or_refused() {
        let top = std::env::temp_dir().join(format!("sheen-run-folder-{}", std::process::id()));
        let folder = top.join("run");
        make_private(&folder).unwrap();
        assert_eq!(check_owner(&folder).unwrap(), 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(check_owner(&folder).unwrap(), 0o700);
        std::os::unix::fs::symlink(&folder, top.join("link")).unwrap();
        assert!(make_private(&top.join("link")).is_err(), "a link that another user may have laid");
        fs::write(top.join("file"), "").unwrap();
        assert!(make_private(&top.join("file")).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(12_001), None).unwrap();
            let error = make_private(&folder).unwrap_err().to_string();
            assert_eq!(error, "it belongs to uid 12001, not to uid 0");
        }
        fs::remove_dir_all(top).unwrap();
    }
}
