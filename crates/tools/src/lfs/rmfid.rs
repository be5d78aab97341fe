//! `lfs rmfid`: removes files by their FIDs, under all their names.

use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::{Errno, Fid};

use super::attributes;
use super::fid2path::Link;
use super::mount::Mount;
use crate::output::{Fault, errno_of, worst as outcome};
use sheen_control::api::FID_TO_PATH;

/// Options of `rmfid`.
#[derive(Args)]
pub(super) struct RemoveFid {
    /// Name of the file system, or a path on it
    #[arg(value_name = "FSNAME|ROOTPATH")]
    root: String,
    /// FIDs
    #[arg(required = true, value_name = "FID")]
    fids: Vec<String>,
}

/// The first failure is the command's, as in Lustre; the other files are removed all the same.
pub(super) fn run(options: &RemoveFid) -> Result<(), Fault> {
    let mount = match options.root.starts_with(['/', '.']) {
        true => Mount::of(Path::new(&options.root)),
        false => Mount::named("lfs rmfid", &options.root)?.ok_or(Errno::ENODEV),
    };
    let mut mount = mount.map_err(|errno| {
        let text = format!("lfs rmfid: error opening '{}': {errno}", options.root);
        Fault::new(errno, text)
    })?;
    let mut worst = None;
    for text in &options.fids {
        let removed = match text.parse::<Fid>() {
            Ok(fid) => remove(&mut mount, fid),
            Err(_) => {
                eprintln!("lfs rmfid: invalid FID '{text}'");
                worst = worst.or(Some(Errno::EINVAL));
                continue;
            }
        };
        if let Err(errno) = removed {
            eprintln!("lfs rmfid: cannot remove {text}: {errno}");
            worst = worst.or(Some(errno));
        }
    }
    outcome(worst)
}

/// Removes all names of a file. A directory is none (`EISDIR`).
fn remove(mount: &mut Mount, fid: Fid) -> Result<(), Errno> {
    let answer = mount.command(FID_TO_PATH, &[&fid.to_string()]).map_err(|(errno, _)| errno)?;
    let root = mount.info.point();
    let paths: Vec<PathBuf> =
        answer.lines().filter_map(Link::parse).map(|link| root.join(link.path())).collect();
    if paths.is_empty() {
        return Err(Errno::ENOENT);
    }
    for path in paths {
        let found = std::fs::symlink_metadata(&path).map_err(|error| errno_of(&error))?;
        if found.is_dir() {
            return Err(Errno::EISDIR);
        }
        // Another file may have the name by now.
        if attributes::fid_of_link(&path)? != fid {
            return Err(Errno::ENOENT);
        }
        std::fs::remove_file(&path).map_err(|error| errno_of(&error))?;
    }
    Ok(())
}
