//! What keeps the process of a mount that is not mounted here any more: programs that used it when it was unmounted
//! (`umount -l`), other mount namespaces that have a copy of it, files that it has to close on servers.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::process::Pid;
use sheen_fuse::{KernelMount, table_of};
use sheen_types::Errno;

use super::cluster::Cluster;
use super::daemon::{self, Daemon};
use super::keeper;
use super::liveness::{is_to_serve, number};
use sheen_tools::output::{Fault, shown_path};

/// Processes that are named: one of each mount namespace, and so many programs.
const NAMED_MAX: usize = 4;

/// The error for a mount whose process runs while nothing is mounted at its mount point.
pub(super) fn elsewhere(cluster: &Cluster, mount: &KernelMount) -> Fault {
    let pid = number(&cluster.mount());
    let (path, keeps) = (shown_path(mount.path()), keeps(cluster, mount));
    let end = if waits_to_leave(cluster) { "run `sheen up`" } else { "end those" };
    let text = format!(
        "{path} is not mounted here, but its mount process, pid {pid}, runs: {keeps}; {end}, or run \
         `sheen down --force`"
    );
    Fault::new(Errno::EBUSY, text)
}

/// The error for a mount of which `down` has left copies in other mount namespaces.
pub(super) fn left(cluster: &Cluster, mount: &KernelMount) -> Fault {
    let pid = number(&cluster.mount());
    let (path, keeps) = (shown_path(mount.path()), keeps(cluster, mount));
    let text = format!(
        "{path} is not mounted here any more and its servers are stopped, but its mount process, pid {pid}, runs: \
         {keeps}; what uses that waits until the servers run again; end those, or run `sheen down --force`"
    );
    Fault::new(Errno::EBUSY, text)
}

/// Whether the process has no mount anywhere and no servers: it has files to close there and perhaps bytes to write.
pub(super) fn waits_to_leave(cluster: &Cluster) -> bool {
    cluster.server().pid().is_none() && has_left(cluster)
}

/// Whether the process runs though the kernel has ended its mount, wherever that was.
pub(super) fn has_left(cluster: &Cluster) -> bool {
    if cluster.kernel_mount().found().is_some() {
        return false;
    }
    let pid = cluster.mount().pid();
    pid.is_some_and(|pid| {
        !is_to_serve(keeper::served_by(pid)) && keeper::connection_of(pid).is_none()
    })
}

/// Whether the process serves a mount that is not here: some program or mount namespace has it.
pub(super) fn is_detached(cluster: &Cluster) -> bool {
    let pid = cluster.mount().pid();
    cluster.kernel_mount().found().is_none()
        && pid.is_some_and(|pid| keeper::connection_of(pid).is_some())
}

/// Whether other mount namespaces have the mount, and that is why its process runs: any user can make one.
pub(super) fn is_copied(cluster: &Cluster, mount: &KernelMount) -> bool {
    if !is_detached(cluster) {
        return false;
    }
    let seen = Seen::of(&cluster.mount(), mount);
    // Of a namespace that is kept without a process no process is seen.
    !seen.copies.is_empty() || seen.programs.is_empty()
}

/// What keeps a mount process that has no mount here.
pub(super) fn keeps(cluster: &Cluster, mount: &KernelMount) -> String {
    if waits_to_leave(cluster) {
        return "for its servers, which are stopped: it closes its files there, and writes back what it holds".to_owned();
    }
    Seen::of(&cluster.mount(), mount).in_words()
}

/// What can be seen of that.
struct Seen {
    copies: Vec<(Pid, String)>,
    /// Those in a namespace that has a copy go with that.
    programs: Vec<(Pid, String)>,
    /// There is no process that this user may not look at.
    is_all: bool,
}

impl Seen {
    fn of(daemon: &Daemon, mount: &KernelMount) -> Self {
        let copies = namespaces(daemon, mount);
        let programs = programs(mount, &copies);
        let copies = copies.into_values().take(NAMED_MAX).collect();
        Self { copies, programs, is_all: sees_all() }
    }

    fn in_words(&self) -> String {
        let copies = format!(
            "for other mount namespaces that hold a copy of the mount: those of {}",
            in_words(&self.copies)
        );
        let programs = format!(
            "for programs that used it when it was unmounted: {}",
            in_words(&self.programs)
        );
        let seen = match (self.copies.is_empty(), self.programs.is_empty()) {
            (true, true) => "for another mount namespace, for programs that used it when it was unmounted, or to \
                             write back what it holds"
                .to_owned(),
            (true, false) => programs,
            (false, true) => copies,
            (false, false) => format!("{copies}, and {programs}"),
        };
        let unseen = match self.is_all {
            true => "",
            false => {
                " (there may be programs and mount namespaces of other users, which only root can see)"
            }
        };
        format!("{seen}{unseen}")
    }
}

fn in_words(processes: &[(Pid, String)]) -> String {
    let names: Vec<String> =
        processes.iter().map(|(pid, name)| format!("pid {pid} ({name})")).collect();
    names.join(", ")
}

/// A process of each other mount namespace that has the mount, as far as this user may look.
pub(super) fn copies(daemon: &Daemon, mount: &KernelMount) -> Vec<(Pid, String)> {
    namespaces(daemon, mount).into_values().take(NAMED_MAX).collect()
}

/// All of these namespaces.
fn namespaces(daemon: &Daemon, mount: &KernelMount) -> BTreeMap<PathBuf, (Pid, String)> {
    let (own, here) = (daemon.pid(), fs::read_link("/proc/self/ns/mnt").ok());
    let mut found = BTreeMap::new();
    for pid in daemon::all().filter(|pid| Some(*pid) != own) {
        let of = PathBuf::from(format!("/proc/{pid}"));
        let Ok(namespace) = fs::read_link(of.join("ns/mnt")) else { continue };
        if Some(&namespace) == here.as_ref() || found.contains_key(&namespace) {
            continue;
        }
        if mount.is_in(&table_of(&pid.as_raw_nonzero().to_string())) {
            found.insert(namespace, (pid, name_of(&of)));
        }
    }
    found
}

/// Programs that have files of the mount open, or work in a directory of it, as far as this user may look, and are in
/// none of the namespaces `apart`.
fn programs(mount: &KernelMount, apart: &BTreeMap<PathBuf, (Pid, String)>) -> Vec<(Pid, String)> {
    let Some(device) = mount.live_device() else { return Vec::new() };
    let found = daemon::all().filter_map(|pid| {
        let of = PathBuf::from(format!("/proc/{pid}"));
        if fs::read_link(of.join("ns/mnt")).is_ok_and(|namespace| apart.contains_key(&namespace)) {
            return None;
        }
        let files = fs::read_dir(of.join("fd")).into_iter().flatten().flatten();
        let links = ["cwd", "root", "exe"].map(|name| of.join(name));
        let mut links = links.into_iter().chain(files.map(|file| file.path()));
        links.any(|link| is_on(&link, device)).then(|| (pid, name_of(&of)))
    });
    found.take(NAMED_MAX).collect()
}

/// Whether this user may look at all processes. With `hidepid` those of other users are not even listed.
fn sees_all() -> bool {
    let is_closed = |pid: Pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        files.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    Path::new("/proc/1").exists() && !daemon::all().any(is_closed)
}

/// Whether what a link of `/proc` leads to is of `device`. Asks no file system.
fn is_on(link: &Path, device: &str) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, link, flags, StatxFlags::empty());
    found.is_ok_and(|it| format!("{}:{}", it.stx_dev_major, it.stx_dev_minor) == device)
}

/// A process's name. Any user chooses that, and root's terminal shows it: control characters become `?`.
fn name_of(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    // The kernel ends it with a newline; any other newline is part of the name.
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
    name.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_keeps_a_mount_is_named_and_what_may_not_be_seen() {
        let process = |pid, name: &str| (Pid::from_raw(pid).expect("no 0"), name.to_owned());
        let words = |copies: &[(Pid, String)], programs: &[(Pid, String)], is_all| {
            let (copies, programs) = (copies.to_vec(), programs.to_vec());
            Seen { copies, programs, is_all }.in_words()
        };
        let (copy, program) = ([process(7, "sleep")], [process(8, "cat"), process(9, "less")]);
        let copied =
            "for other mount namespaces that hold a copy of the mount: those of pid 7 (sleep)";
        let used = "for programs that used it when it was unmounted: pid 8 (cat), pid 9 (less)";
        assert_eq!(words(&copy, &[], true), copied);
        assert_eq!(words(&[], &program, true), used);
        assert_eq!(words(&copy, &program, true), format!("{copied}, and {used}"));
        for found in [&[][..], &program] {
            let words = [true, false].map(|is_all| words(&[], found, is_all));
            assert!(!words[0].contains("only root"), "{}", words[0]);
            assert!(words[1].starts_with(&words[0]) && words[1].contains("only root can see"));
        }
    }

    #[test]
    fn a_name_that_is_shown_commands_no_terminal() {
        let set = rustix::thread::set_name(c"a\x1b[2J\nb\x7f");
        set.expect("a thread has a name");
        let own = format!("/proc/self/task/{}", rustix::thread::gettid().as_raw_nonzero());
        assert_eq!(name_of(Path::new(&own)), "a?[2J?b?");
    }

    #[test]
    fn what_a_process_has_open_is_found_by_its_device() {
        let found = rustix::fs::statx(CWD, "/proc/self/exe", AtFlags::empty(), StatxFlags::empty());
        let found = found.expect("this program");
        let device = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
        let link = Path::new("/proc/self/exe");
        assert!(is_on(link, &device) && !is_on(link, "0:999999"));
        assert!(!is_on(Path::new("/proc/self/no-such-link"), &device));
    }
}
