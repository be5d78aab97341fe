//! The processes of a mount, seen from outside.

use std::path::{Path, PathBuf};

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::super::daemon;
use super::{KEEPER, is_live};

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

/// The connection to the kernel that the process `pid` of a mount, or the one that it keeps, has open.
pub(in super::super) struct Connection {
    /// `MAJOR:MINOR` of the device that the kernel made for it (Linux 6.16 says it).
    pub(in super::super) device: Option<String>,
}

/// The connection that a mount's keeper `pid`, or the process that it keeps, has to the kernel; `None` if it has none, or
/// the kernel has ended it, as it does when the mount is gone, or this user may not see it.
pub(in super::super) fn connection_of(pid: Pid) -> Option<Connection> {
    let processes = [Some(pid), Some(served_by(pid)).filter(|it| *it != pid)];
    processes.into_iter().flatten().find_map(live_connection)
}

fn live_connection(pid: Pid) -> Option<Connection> {
    let place = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    numbers(&place.join("fd")).find_map(|number| {
        let target = std::fs::read_link(place.join(format!("fd/{number}"))).ok()?;
        if target.file_name()? != "fuse" {
            return None;
        }
        let device = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
        let is_live = is_live(&device);
        let said =
            std::fs::read_to_string(place.join(format!("fdinfo/{number}"))).unwrap_or_default();
        is_live.then(|| Connection { device: device_in(&said) })
    })
}

/// The device in what the kernel says of a descriptor.
fn device_in(fdinfo: &str) -> Option<String> {
    let minor = fdinfo.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some(format!("0:{}", minor.trim().parse::<u32>().ok()?))
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
    let keeper = daemon::variable(pid, KEEPER).and_then(|value| value.to_str()?.parse().ok());
    keeper.and_then(Pid::from_raw).unwrap_or(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_a_connection_is_read_as_the_kernel_shows_it() {
        let said = "pos:\t0\nflags:\t02100002\nmnt_id:\t63\nfuse_connection:\t42\n";
        assert_eq!(device_in(said).as_deref(), Some("0:42"));
        assert_eq!(device_in("pos:\t0\nflags:\t02100002\n"), None);
    }

    #[test]
    fn a_process_without_a_mount_has_no_connection() {
        assert!(connection_of(rustix::process::getpid()).is_none());
    }
}
