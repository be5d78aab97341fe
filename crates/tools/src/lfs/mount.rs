//! The mounts of this machine, as their processes report them.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sheen_control::Client;
use sheen_types::Errno;

use crate::origins::{self, Home};
use crate::output::{Fault, errno_of};
use crate::processes::{self, Failure, command};
use sheen_control::api::{MOUNT_INFO, MountInfo};

/// How to ask a mount.
enum Way {
    /// Over the control socket of its process, which is ours, or we are root.
    Process(Client),
    /// Through the mount itself, which is another user's.
    Inside(PathBuf),
}

/// A mount and the process behind it.
pub(super) struct Mount {
    way: Way,
    /// What the process reports.
    pub(super) info: MountInfo,
}

impl Mount {
    /// Every mount that answers: those whose processes we may ask, and those of other users that we may use.
    pub(super) fn all() -> Vec<Self> {
        let mount = |mut process: Client| {
            let text = command(&mut process, MOUNT_INFO, &[]).ok()?;
            Some(Self { info: serde_json::from_str(&text).ok()?, way: Way::Process(process) })
        };
        let mut all: Vec<Self> = processes::all().into_iter().filter_map(mount).collect();
        // Root's processes answer root, and the kernel keeps root out of what a user keeps for himself.
        let is_root = rustix::process::geteuid().is_root();
        let table = if is_root {
            Vec::new()
        } else {
            std::fs::read("/proc/self/mounts").unwrap_or_default()
        };
        for path in mounted(&String::from_utf8_lossy(&table)) {
            if all.iter().all(|mount| Path::new(&mount.info.path) != path) {
                all.extend(Self::inside(path));
            }
        }
        if let Some(home) = origins::chosen() {
            all.retain(|mount| home.is(&Home::of_source(&mount.info.source)));
        }
        all
    }

    /// A mount of the file system of this name, if there is one.
    ///
    /// # Errors
    /// Several file systems have the name: which is meant.
    pub(super) fn named(command: &str, fsname: &str) -> Result<Option<Self>, Fault> {
        let mut mounts = Self::all();
        mounts.retain(|mount| mount.info.fsname == fsname);
        let homes = origins::distinct(mounts.iter_mut().map(Self::home));
        match homes.len() {
            0 | 1 => Ok(mounts.into_iter().next()),
            _ => Err(origins::ask(command, &homes)),
        }
    }

    fn home(&mut self) -> Option<Home> {
        match &mut self.way {
            Way::Process(process) => origins::home(process),
            Way::Inside(_) => Some(Home::of_source(&self.info.source)),
        }
    }

    fn inside(path: PathBuf) -> Option<Self> {
        let text = sheen_fuse::question(&path, MOUNT_INFO).ok()?;
        Some(Self { info: serde_json::from_str(&text).ok()?, way: Way::Inside(path) })
    }

    /// The mount that `path` lies on.
    ///
    /// # Errors
    /// What resolving the path met; ENODEV if it lies on no mount of ours.
    pub(super) fn of(path: &Path) -> Result<Self, Errno> {
        let path = std::fs::canonicalize(path).map_err(|error| errno_of(&error))?;
        let mut mounts = Self::all();
        let paths: Vec<PathBuf> =
            mounts.iter().map(|mount| mount.info.path.clone().into()).collect();
        let number = longest_prefix(&paths, &path).ok_or(Errno::ENODEV)?;
        Ok(mounts.swap_remove(number))
    }

    /// The mount that `path` lies on; without one, all.
    pub(super) fn chosen(path: Option<&Path>) -> Result<Vec<Self>, Errno> {
        match path {
            Some(path) => Self::of(path).map(|mount| vec![mount]),
            None => Ok(Self::all()),
        }
    }

    /// Runs a command in the mount's process.
    pub(super) fn command(&mut self, name: &str, arguments: &[&str]) -> Result<String, Failure> {
        match &mut self.way {
            Way::Process(process) => command(process, name, arguments),
            Way::Inside(path) => {
                let failed = |errno: Errno| (errno, format!("{}: {errno}", path.display()));
                let words: Vec<&str> = [name].iter().chain(arguments).copied().collect();
                sheen_fuse::question(path, &words.join(" ")).map_err(failed)
            }
        }
    }

    /// Runs a command whose answer is JSON.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        name: &str,
        arguments: &[&str],
    ) -> Result<T, Failure> {
        let text = self.command(name, arguments)?;
        let odd = |error| (Errno::EPROTO, format!("cannot read the answer to {name}: {error}"));
        serde_json::from_str(&text).map_err(odd)
    }
}

/// The mount points in `/proc/self/mounts` that may be ours: those of our type, and of older
/// versions those of FUSE whose device is `NID:/FSNAME`.
fn mounted(table: &str) -> Vec<PathBuf> {
    let point = |line: &str| {
        let mut words = line.split(' ');
        let (source, path, kind) = (words.next()?, words.next()?, words.next()?);
        let (nids, _) = source.split_once(":/")?;
        let is_ours = kind == "fuse.lustre" || kind.starts_with("fuse") && nids.contains('@');
        is_ours.then(|| unescaped(path).into())
    };
    table.lines().filter_map(point).collect()
}

/// The kernel writes what would end a word as `\040`.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

/// A mount may lie below another one: the longest path wins.
fn longest_prefix(mounts: &[PathBuf], path: &Path) -> Option<usize> {
    let above = (0..mounts.len()).filter(|number| path.starts_with(&mounts[*number]));
    above.max_by_key(|number| mounts[*number].components().count())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{longest_prefix, mounted};

    #[test]
    fn mounts_are_found_in_the_kernels_table() {
        let table = "proc /proc proc rw 0 0\nme@host:/ /mnt/ssh fuse.sshfs rw 0 0\n\
                     1@tcp:/l /mnt/my\\040files fuse rw,nosuid 0 0\nserver1:/l /mnt/l fuse.lustre rw 0 0\n";
        let found = ["/mnt/ssh", "/mnt/my files", "/mnt/l"];
        assert_eq!(mounted(table), found.map(Path::new));
    }

    #[test]
    fn the_innermost_mount_is_taken() {
        let mounts = ["/mnt/l".into(), "/mnt/l/inner".into(), "/mnt/lustre".into()];
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inner/f")), Some(1));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inn")), Some(0));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/lustre")), Some(2));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt")), None);
    }
}
