//! `lfs path2fid`: the FIDs of files and of the directories that name them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use super::fid2path::Link;
use super::mount::Mount;
use crate::output::{Fault, line_out, shown_path, worst as outcome};
use sheen_control::api::FID_TO_PATH;

/// Options of `path2fid`.
#[derive(Args)]
pub(super) struct PathToFid {
    /// Print the parent directory's FID and the name of each link
    #[arg(long)]
    parents: bool,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

pub(super) fn run(options: &PathToFid) -> Result<(), Fault> {
    let (what, many) = match options.parents {
        true => ("parent fid", options.paths.len() > 1),
        false => ("fid", options.paths.len() > 1),
    };
    let mut worst = None;
    for path in &options.paths {
        let text = match options.parents {
            true => parents(path),
            false => attributes::fid(path).map(|fid| fid.to_string().into_bytes()),
        };
        match text {
            Ok(text) if many => line_out([path.as_os_str().as_bytes(), b": ", &text].concat()),
            Ok(text) => line_out(text),
            Err(errno) => {
                eprintln!("lfs path2fid: cannot get {what} for '{}': {errno}", shown_path(path));
                worst = Some(errno);
            }
        }
    }
    outcome(worst)
}

/// `[parent]/name` for each link, a tab between them. A root has no parent: ENODATA.
fn parents(path: &Path) -> Result<Vec<u8>, Errno> {
    let fid = attributes::fid(path)?;
    let mut mount = Mount::of(path)?;
    let answer = mount.command(FID_TO_PATH, &[&fid.to_string()]).map_err(|(errno, _)| errno)?;
    let mut texts = Vec::new();
    for link in answer.lines().filter_map(Link::parse) {
        let full = mount.info.point().join(link.path());
        let (Some(parent), false) = (full.parent(), link.name().is_empty()) else { continue };
        let parent = format!("{}/", attributes::fid(parent)?).into_bytes();
        texts.push([&*parent, link.name()].concat());
    }
    if texts.is_empty() {
        return Err(Errno::ENODATA);
    }
    Ok(texts.join(&b'\t'))
}
