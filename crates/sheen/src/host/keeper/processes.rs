//! The processes of a mount, seen from outside.

use std::path::{Path, PathBuf};

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::KEEPER;

/// `PIDFD_THREAD`: of one thread. It is readable when that has ended, whatever the other threads do; but that of the first
/// thread not before the last one has.
pub(super) const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// Closes the connections of a process that was killed and whose files are open for as long as a thread of it waits in
/// the kernel: servers and the next process would take it for alive. The call that it waits for is one that the next
/// process answers.
pub(super) fn hang_up(pid: Pid) {
    let threads = format!("/proc/{}/task", pid.as_raw_nonzero());
    for thread in numbers(Path::new(&threads)).filter_map(Pid::from_raw).filter(|it| *it != pid) {
        // Each of them may end meanwhile.
        let Ok(descriptor) = pidfd_open(thread, PIDFD_THREAD) else { continue };
        let files = PathBuf::from(format!("{threads}/{}/fd", thread.as_raw_nonzero()));
        for number in numbers(&files) {
            let target = std::fs::read_link(files.join(number.to_string())).unwrap_or_default();
            if !target.to_string_lossy().starts_with("socket:") {
                continue;
            }
            let socket = pidfd_getfd(&descriptor, number, PidfdGetfdFlags::empty());
            _ = socket.map(|socket| shutdown(socket, Shutdown::Both));
        }
    }
}

/// The numbers by which the entries of a folder are called.
fn numbers(folder: &Path) -> impl Iterator<Item = i32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The process that serves the mount whose keeper `pid` is; that itself if it keeps none.
pub(in super::super) fn served_by(pid: Pid) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero());
    let children = std::fs::read_to_string(children).unwrap_or_default();
    // One that was killed may not have ended.
    let child = children.split_whitespace().next_back().and_then(|word| word.parse().ok());
    child.and_then(Pid::from_raw).unwrap_or(pid)
}

/// The keeper of the mount that `pid` serves; that itself if it has none.
pub(in super::super) fn keeper_of(pid: Pid) -> Pid {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    let environment = environment.unwrap_or_default();
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(KEEPER.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()?.parse().ok()
    });
    value.and_then(Pid::from_raw).unwrap_or(pid)
}
