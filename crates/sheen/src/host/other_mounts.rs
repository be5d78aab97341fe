//! Mounts on this machine of a file system of `sheen up`, beside the one that `up` made: `sheen mount` made them, and
//! `down` leaves them as they are.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use sheen_fuse::{KernelMount, table_of};

use super::cluster::Cluster;
use super::{daemon, keeper, rediscovery};

/// Where they are mounted, with the process that serves each, as far as this user may look.
pub(super) fn mounted(cluster: &Cluster) -> Vec<(Pid, PathBuf)> {
    let sources = sources(cluster);
    let of_another = |pid: &Pid| !rediscovery::is_mount_of_up(*pid, &cluster.directory);
    let mut all: Vec<_> = daemon::all()
        .filter_map(|pid| Some((pid, point_of(pid, &sources)?)))
        // A keeper has the same words as the process that serves the mount.
        .filter(|(pid, _)| keeper::served_by(*pid) == *pid && of_another(pid))
        .filter(|(pid, point)| has_mount(*pid, point))
        .collect();
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all
}

/// A process of another mount than that of `up` that has none, as it is being unmounted.
pub(super) fn leaving(cluster: &Cluster) -> impl Iterator<Item = Pid> {
    let sources = sources(cluster);
    let is_leaving = move |pid: &Pid| {
        point_of(*pid, &sources).is_some_and(|point| !has_mount(*pid, &point))
            && !rediscovery::is_mount_of_up(*pid, &cluster.directory)
    };
    daemon::all().filter(is_leaving)
}

/// What mounts name that are of it: its directory, and its MGS with its name.
fn sources(cluster: &Cluster) -> Vec<OsString> {
    let named = cluster.address().zip(cluster.fsname());
    let named = named.map(|((nid, _), fsname)| format!("{nid}:/{fsname}").into());
    [cluster.directory.clone().into_os_string()].into_iter().chain(named).collect()
}

/// Where a process mounts one of `sources`, if it is one of a mount.
fn point_of(pid: Pid, sources: &[OsString]) -> Option<PathBuf> {
    let words = daemon::runs_as(pid, "mount").then(|| daemon::words(pid)).flatten()?;
    point_in(&words, sources)
}

/// Where a process with this command line mounts one of `sources`, if it is one of a mount.
fn point_in(words: &[OsString], sources: &[OsString]) -> Option<PathBuf> {
    let is_below = |word: &OsStr, source: &OsStr| {
        let below = word.as_bytes().strip_prefix(source.as_bytes());
        below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
    };
    let is_of = |word: &OsString| sources.iter().any(|source| is_below(word, source));
    let (point, before) = words.split_last()?;
    // The kernel ends a command line with an empty word.
    let (point, before) = if point.is_empty() { before.split_last()? } else { (point, before) };
    before.iter().skip(2).any(is_of).then(|| PathBuf::from(point))
}

/// Whether something is mounted at `point` where the process is.
fn has_mount(pid: Pid, point: &Path) -> bool {
    KernelMount::new(point, None).is_in(&table_of(&pid.as_raw_nonzero().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_file_system_name_its_directory_or_its_servers() {
        let sources = ["/data/fs", "127.1.2.3@tcp:/sheen"].map(OsString::from);
        let point = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            point_in(&words, &sources).map(|point| point.display().to_string())
        };
        let mounted = Some("/mnt/a".to_owned());
        assert_eq!(point("sheen mount --foreground -o  /data/fs /mnt/a "), mounted);
        assert_eq!(point("sheen mount --foreground -o  127.1.2.3@tcp:/sheen/sub /mnt/a "), mounted);
        assert_eq!(point("sheen mount --foreground -o  /data/fs2 /mnt/a "), None);
        assert_eq!(point("sheen mount --foreground -o  127.1.2.3@tcp:/sheen2 /mnt/a "), None);
        assert_eq!(point("sheen mount --foreground -o  /data/other /data/fs/mnt "), None);
    }
}
