//! The processes: servers, mounts, and a whole file system on one machine.
//!
//! `server` hosts targets, `mount` a client with its FUSE mount; each runs in the foreground and says
//! `ready` on its standard output when it is in use. `up`, `down` and `status` run both in the
//! background and keep what they need to know in the file system's directory.

mod addresses;
mod cluster;
mod daemon;
mod echo;
mod fsck;
mod metrics;
mod mount;
mod native;
mod parameters;
mod server;
mod target;

pub(crate) use cluster::{Down, Status, Up, down, processes_of, status, up};
pub(crate) use fsck::{Fsck, fsck};
pub(crate) use mount::{Mount, run as mount};
pub(crate) use native::NativeClient;
pub(crate) use server::{Server, run as server};

use std::path::{Path, PathBuf};

use sheen_control::run_folder;
use sheen_types::Errno;

use crate::output::{Fault, errno_of};

/// Lustre's port.
pub(crate) const PORT: u16 = 988;

/// Where this user's processes have their control sockets.
pub(crate) fn sockets() -> PathBuf {
    let user = rustix::process::geteuid();
    run_folder(user.is_root(), user.as_raw())
}

/// Logs to standard error: warnings, or what `SHEEN_LOG` says (`debug`, `sheen_mds=trace`, ...).
pub(crate) fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("SHEEN_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where the log cannot be written, because its disk is full, that cannot be told either: the attempt
    // would panic, and whoever logged would never end.
    let log = log.log_internal_errors(false);
    // A second start in one process keeps the first.
    let _ = log.with_ansi(false).try_init();
}

/// What was asked for makes no sense.
pub(crate) fn invalid(text: impl Into<String>) -> Fault {
    Fault::new(Errno::EINVAL, text)
}

/// The system refused something about a file.
pub(crate) fn io_fault(path: &Path, error: &std::io::Error) -> Fault {
    let errno = errno_of(error);
    Fault::new(errno, format!("{}: {errno}", path.display()))
}
