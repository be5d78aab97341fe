//! The mounts of this machine, as their processes tell.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sheen_control::Client;
use sheen_types::Errno;

use crate::api::{MOUNT_INFO, MountInfo};
use crate::output::errno_of;
use crate::processes::{self, Failure, command};

/// A mount and the process behind it.
pub(super) struct Mount {
    process: Client,
    /// What it says of itself.
    pub(super) info: MountInfo,
}

impl Mount {
    /// Every mount whose process we may talk to.
    pub(super) fn all() -> Vec<Self> {
        let mount = |mut process: Client| {
            let text = command(&mut process, MOUNT_INFO, &[]).ok()?;
            Some(Self { info: serde_json::from_str(&text).ok()?, process })
        };
        processes::all().into_iter().filter_map(mount).collect()
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
        command(&mut self.process, name, arguments)
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

/// A mount may lie below another one: the longest path wins.
fn longest_prefix(mounts: &[PathBuf], path: &Path) -> Option<usize> {
    let above = (0..mounts.len()).filter(|number| path.starts_with(&mounts[*number]));
    above.max_by_key(|number| mounts[*number].components().count())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::longest_prefix;

    #[test]
    fn the_innermost_mount_is_taken() {
        let mounts = ["/mnt/l".into(), "/mnt/l/inner".into(), "/mnt/lustre".into()];
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inner/f")), Some(1));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/l/inn")), Some(0));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt/lustre")), Some(2));
        assert_eq!(longest_prefix(&mounts, Path::new("/mnt")), None);
    }
}
