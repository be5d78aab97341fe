//! The processes: servers, mounts, and a whole file system on one machine.
//!
//! `server` hosts targets, `mount` a client with its FUSE mount; each runs in the foreground and writes
//! `ready` to its standard output when it is. `up`, `down` and `status` run both in the
//! background and keep what they need to know in the file system's directory. A mount's process has a keeper
//! beside it, which starts another one when it ends.

mod addresses;
mod cluster;
mod daemon;
mod down;
mod echo;
mod first_layout;
mod folders;
mod fsck;
mod holders;
mod keeper;
mod liveness;
mod log;
mod missing;
mod mount;
mod mount_helper;
mod mount_options;
mod mount_parameters;
mod mount_service;
mod mount_source;
mod native;
mod notify;
mod origin;
mod orphans;
mod other_mounts;
mod private;
mod progress;
mod rediscovery;
mod remount;
mod salvage;
mod scrub;
mod server;
mod server_control;
mod server_state;
mod status;
mod store_memory;
mod target;
mod undo;
mod unmount_helper;
mod up;
mod upgrade;

pub(crate) use cluster::processes_of;
pub(crate) use down::{Down, down};
pub(crate) use fsck::{Fsck, fsck};
pub(crate) use liveness::{Sign, ask as sign};
pub(crate) use mount::{Mount, run as mount, run_as_helper as mount_as_helper};
pub(crate) use native::NativeClient;
pub(crate) use private::set_umask;
pub(crate) use salvage::{Salvage, salvage};
pub(crate) use server::{Server, run as server};
pub(crate) use status::{Status, status};
pub(crate) use unmount_helper::{Unmount, run as unmount};
pub(crate) use up::{Up, up};
pub(crate) use upgrade::{Upgrade, upgrade};

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sheen_control::run_folder;
use sheen_types::Errno;

use sheen_tools::output::{Fault, errno_of, shown_path};

/// Lustre's port.
pub(crate) const PORT: u16 = 988;

/// Where this user's processes have their control sockets.
pub(crate) fn sockets() -> PathBuf {
    let user = rustix::process::geteuid();
    run_folder(user.is_root(), user.as_raw())
}

/// Files that a process keeps for itself: its threads', its log, its sockets and tools that ask.
const FILES_OF_A_PROCESS: u64 = 64;
/// Files that each target needs: those of objects and of its database's tables, 64 each, journals, and some to spare.
const FILES_OF_A_TARGET: u64 = 160;

/// Lets this process have as many files open as it may: a connection is a file, and a process has 1,024 unless it
/// says that it wants more.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot have more files open than by default");
    }
}

/// How many of this process's files may be connections beside `targets`: peers that connect are to cost no target
/// its files.
fn connections_max(targets: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = connections_of(files, targets);
    tracing::info!("{files} files may be open here, {most} of them connections of peers");
    most
}

fn connections_of(files: u64, targets: usize) -> usize {
    let kept = FILES_OF_A_PROCESS + FILES_OF_A_TARGET * targets as u64;
    usize::try_from(files - kept.min(files / 2)).unwrap_or(usize::MAX)
}

/// An invalid argument.
pub(crate) fn invalid(text: impl Into<String>) -> Fault {
    Fault::new(Errno::EINVAL, text)
}

/// As [`io_fault`], of a folder of ours; what was found wrong with it says the error itself.
fn folder_fault(path: &Path, error: &std::io::Error) -> Fault {
    match error.raw_os_error() {
        Some(_) => io_fault(path, error),
        None => Fault::new(Errno::EPERM, format!("{}: {error}", shown_path(path))),
    }
}

/// The system refused something about a file.
pub(crate) fn io_fault(path: &Path, error: &std::io::Error) -> Fault {
    let errno = errno_of(error);
    Fault::new(errno, format!("{}: {errno}", shown_path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_keep_their_files_beside_connections() {
        assert_eq!(connections_of(1_048_576, 6), 1_048_576 - 1_024);
        assert_eq!(connections_of(1_024, 1), 800);
        assert_eq!(connections_of(1_024, 6), 512, "half at least");
        assert_eq!(connections_of(0, 1), 0);
        assert_eq!(connections_of(u64::MAX, 1) as u64, u64::MAX - 224);
    }
}
