//! What belongs to one user: directories and files that are closed to all other users, whatever the umask.
//!
//! Who can write where our processes read decides what they do: whom `down` kills, what it unmounts, where a
//! client looks for its servers. So what another user owns is refused by name, also for root, who would do
//! with a user's directory what that user wants.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sheen_control::{check_owner, make_private};
use sheen_types::Errno;

use super::{folder_fault, io_fault};
use sheen_tools::output::{Fault, shown_path};

/// What this process makes from now on is its user's alone.
pub(crate) fn set_umask() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Makes the directory if it is not there, closed to other users; closes it, with a line, if it is open.
pub(crate) fn directory(path: &Path) -> Result<(), Fault> {
    make_private(path).map_err(|error| folder_fault(path, &error))
}

/// The directory of `up`: made closed if it is not there. What was there stays open to readers, as
/// the mount point may lie in it, but no other user may exchange what lies in it.
pub(crate) fn top(path: &Path) -> Result<(), Fault> {
    const STICKY: u32 = 0o1000;
    const WRITE: u32 = 0o022;
    let Ok(found) = fs::metadata(path) else { return directory(path) };
    let (mode, owner) = (found.mode() & 0o7777, found.uid());
    let own = rustix::process::geteuid();
    if owner != own.as_raw() && owner != 0 {
        return Err(foreign(
            path,
            &format!("it belongs to uid {owner}, not to uid {}", own.as_raw()),
        ));
    }
    if mode & WRITE == 0 || mode & STICKY != 0 {
        return Ok(());
    }
    let closed = mode & !WRITE;
    fs::set_permissions(path, fs::Permissions::from_mode(closed))
        .map_err(|error| io_fault(path, &error))?;
    let place = shown_path(path);
    eprintln!("{place} was writable by other users (mode {mode:o}): closed (mode {closed:o})");
    Ok(())
}

/// That the directory is ours, if it is there.
pub(super) fn check(path: &Path) -> Result<(), Fault> {
    match check_owner(path) {
        Err(error) if error.raw_os_error().is_none() => Err(foreign(path, &error.to_string())),
        _ => Ok(()),
    }
}

fn foreign(path: &Path, why: &str) -> Fault {
    let text = format!(
        "{}: {why}: run this as its owner, or use a directory of your own",
        shown_path(path)
    );
    Fault::new(Errno::EPERM, text)
}

/// Opens a log to append to, closed to other users.
pub(super) fn log(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file =
        File::options().create(true).append(true).mode(0o600).custom_flags(flags).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// What is in a file of ours; `None` if it is another user's, no file, or not there.
pub(super) fn text(path: &Path) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file =
        File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_ours = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    is_ours.then(|| std::io::read_to_string(file).ok()).flatten()
}
