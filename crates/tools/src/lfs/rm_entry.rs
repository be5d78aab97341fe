//! `lfs rm_entry`: names go whose inode is lost, or lies on an MDT that is gone for good.
//!
//! The MDT looks at the name alone, as Lustre's does. This looks before: what can be accessed is more often meant to be removed with
//! all that is in it. Lustre's own scripts remove names of sound inodes in this way, so those go, with a line that says what
//! stays; a directory with names in it goes with `--force` only, as without its name they could no longer be reached.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::text::shell_word;
use sheen_types::{Errno, Fid, Name};

use super::attributes;
use super::layout_source::folder_of;
use super::mdt_of::MdtsOf;
use super::permission::{Refused, reason};
use crate::output::{Fault, errno_of, shown_path, worst};

/// Names to remove.
#[derive(Args)]
pub(super) struct RemoveEntry {
    /// Remove also the name of a directory that can be accessed and is not empty; what is in it stays, without a name
    #[arg(long)]
    force: bool,
    /// Names whose inodes are lost
    #[arg(required = true, value_name = "NAME")]
    names: Vec<PathBuf>,
}

/// What a name leads to that can be accessed.
struct Accessible {
    fid: Fid,
    /// A directory with names in it.
    has_names: bool,
}

/// Removes names without their inodes.
///
/// # Errors
/// As Lustre's command: the first errno.
pub(super) fn run(options: &RemoveEntry) -> Result<(), Fault> {
    let mut first = None;
    for path in &options.names {
        if let Err(errno) = remove(path, options.force) {
            first = first.or(Some(errno));
        }
    }
    worst(first)
}

fn remove(path: &Path, is_forced: bool) -> Result<(), Errno> {
    let shown = shown_path(path);
    let failed = |errno: Errno, why: &str| {
        eprintln!("lfs rm_entry: remove dir entry '{shown}' failed: {errno}{why}");
        errno
    };
    let found = accessible(path);
    if let Some(Accessible { fid, has_names: true, .. }) = found
        && !is_forced
    {
        let why = format!(
            ": {fid} can be accessed and has entries, which would be left without a path; '{}' removes it with them, \
             --force its name alone",
            with_rm(path)
        );
        return Err(failed(Errno::ENOTEMPTY, &why));
    }
    let removed = path.file_name().ok_or(Errno::EINVAL).and_then(|name| {
        let name = Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
        let parent = File::open(folder_of(path)).map_err(|error| errno_of(&error))?;
        sheen_fuse::remove_entry(&parent, &name)
    });
    match (removed, found) {
        (Ok(()), Some(Accessible { fid, .. })) => eprintln!(
            "lfs rm_entry: warning: '{shown}' led to {fid}, which stays, with its space, without this name: root finds it as \
             .lustre/fid/{fid}, and where nothing else leads to it `sheen fsck -y` has it in /lost+found"
        ),
        (Ok(()), None) => {}
        (Err(errno), _) => {
            let why = match errno {
                Errno::EPERM => format!(": {}", reason(Refused::RemoveEntry)),
                _ => String::new(),
            };
            return Err(failed(errno, &why));
        }
    }
    Ok(())
}

/// The command that removes a directory with all that is in it.
fn with_rm(path: &Path) -> String {
    format!("rm -r {}", shell_word(path.as_os_str().as_bytes()))
}

/// What a name leads to. `None` if that is not known: where an MDT is away, which may be its MDT, nothing is looked at, as that would
/// wait for it.
fn accessible(path: &Path) -> Option<Accessible> {
    let mdts = MdtsOf::at(folder_of(path)).ok()?;
    if mdts.all().iter().any(|mdt| !mdt.active) {
        return None;
    }
    let is_directory = std::fs::symlink_metadata(path).ok()?.is_dir();
    let fid = attributes::fid_of_link(path).ok()?;
    let mut names = is_directory.then(|| std::fs::read_dir(path).ok()).flatten();
    let has_names = names.as_mut().is_some_and(|names| names.next().is_some());
    Some(Accessible { fid, has_names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_removes_a_directory_with_its_names_can_be_pasted() {
        assert_eq!(with_rm(Path::new("/mnt/a b")), "rm -r '/mnt/a b'");
        assert_eq!(with_rm(Path::new("-f")), "rm -r ./-f");
    }
}
