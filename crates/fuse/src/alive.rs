//! Whether a mount answers, and the end of one that does not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::MountFlags;

use sheen_client::posix::FileSystem;
use tokio::time::timeout;

use crate::kernel::Kernel;
use crate::kernel_mount::KernelMount;

/// An extended attribute that no file has. Asked for it, a mount says so on the thread that reads calls.
pub(crate) const ATTRIBUTE: &str = "system.sheen_alive";

/// Another one: what is stuck in a mount, as [`look`] finds it.
pub(crate) const STATE: &str = "system.sheen_state";

/// How long the facade's locks may be taken, each.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// How long a thread may take to begin to look at them, and to look.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// How long a notice may take before it is reported: one waits for a page as long as its read waits for a
/// server.
const NOTICE_WAIT: Duration = Duration::from_secs(5);

/// Bytes of an answer to [`STATE`].
const STATE_BYTES: usize = 1024;

/// What calls of a mount wait for, as the mount reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StuckCalls {
    /// What calls cannot get past; nothing: there is no such thing.
    pub hangs: String,
    /// What is late and may come.
    pub late: String,
}

impl StuckCalls {
    /// From the value of [`STATE`]: a line for each.
    fn of(text: &str) -> Self {
        let (hangs, late) = text.split_once('\n').unwrap_or((text, ""));
        Self { hangs: hangs.to_owned(), late: late.to_owned() }
    }
}

/// Looks at what calls need beside the servers; to be asked for by a task of the runtime, so that any answer
/// shows that its workers run. Two lines, as [`StuckCalls`].
pub(crate) async fn look(files: FileSystem, kernel: Arc<Kernel>) -> String {
    let locks = tokio::task::spawn_blocking(move || files.stuck_lock(LOCK_WAIT));
    let hangs = match timeout(LOOK_WAIT, locks).await {
        Ok(Ok(None)) => String::new(),
        Ok(Ok(Some(lock))) => format!("a call stands still with the lock of {lock}"),
        Err(_) => "the mount's threads for work that waits are all taken".to_owned(),
        Ok(Err(error)) => format!("the look at the mount's locks failed: {error}"),
    };
    let late = kernel.oldest().filter(|(_, time)| *time >= NOTICE_WAIT);
    let late = late.map_or_else(String::new, |(kind, time)| {
        format!("notifications of {kind} to the kernel are stuck for {} s", time.as_secs())
    });
    format!("{hangs}\n{late}")
}

/// Where the kernel shows its FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Asks the mount at `path` for a sign of life. Waits for ever if its process does not read, and may not be
/// killable then: to be called where no one waits for the caller.
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

/// Asks the mount at `path` what is stuck in it, as a call that its workers answer. Waits for ever if these
/// do not, as [`ask`] does.
///
/// # Errors
/// As [`ask`].
pub fn state(path: &Path) -> io::Result<StuckCalls> {
    use rustix::io::Errno;
    let mut buffer = [0u8; STATE_BYTES];
    match rustix::fs::getxattr(path, STATE, &mut buffer[..]) {
        Err(error @ (Errno::NOTCONN | Errno::CONNABORTED)) => Err(error.into()),
        Ok(length) => Ok(StuckCalls::of(&String::from_utf8_lossy(&buffer[..length]))),
        // As there.
        Err(_) => Ok(StuckCalls::default()),
    }
}

/// Has the kernel end the connection of a mount: every call that waits there gets an error, every later one
/// `ENOTCONN`. Touches no file of the mount.
///
/// # Errors
/// `ENOENT` if it is not mounted and its connection has ended; what the kernel says, if it has no `fusectl` or the mount is another user's.
pub fn abort(mount: &KernelMount) -> io::Result<()> {
    let minor = mount.minor().ok_or(io::ErrorKind::NotFound)?;
    let connections = PathBuf::from(CONNECTIONS);
    if fs::read_dir(&connections)?.next().is_none() {
        // Without root it has to be there already.
        _ = rustix::mount::mount("fusectl", &connections, "fusectl", MountFlags::empty(), None);
    }
    fs::write(connections.join(minor).join("abort"), "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_not_taken_for_what_hangs() {
        let said = |hangs: &str, late: &str| StuckCalls { hangs: hangs.into(), late: late.into() };
        assert_eq!(StuckCalls::of("\n"), StuckCalls::default());
        assert_eq!(
            (StuckCalls::of("a\nb"), StuckCalls::of("\nb")),
            (said("a", "b"), said("", "b"))
        );
    }
}
