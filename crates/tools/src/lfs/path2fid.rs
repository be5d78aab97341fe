//! `lfs path2fid`: the FIDs of files and of the directories that name them.

use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use super::fid2path::Link;
use super::mount::Mount;
use crate::output::{Fault, line, worst as outcome};
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
            false => attributes::fid(path).map(|fid| fid.to_string()),
        };
        match text {
            Ok(text) if many => line(format_args!("{}: {text}", path.display())),
            Ok(text) => line(text),
            Err(errno) => {
                eprintln!("lfs path2fid: cannot get {what} for '{}': {errno}", path.display());
                worst = Some(errno);
            }
        }
    }
    outcome(worst)
}

/// `[parent]/name` for each link, a tab between them. A root has no parent: ENODATA.
fn parents(path: &Path) -> Result<String, Errno> {
    let fid = attributes::fid(path)?;
    let mut mount = Mount::of(path)?;
    let answer = mount.command(FID_TO_PATH, &[&fid.to_string()]).map_err(|(errno, _)| errno)?;
    let mut texts = Vec::new();
    for link in answer.lines().filter_map(Link::parse) {
        let full = Path::new(&mount.info.path).join(link.path);
        let (Some(parent), false) = (full.parent(), link.path.is_empty()) else { continue };
        texts.push(format!("{}/{}", attributes::fid(parent)?, link.name()));
    }
    if texts.is_empty() {
        return Err(Errno::ENODATA);
    }
    Ok(texts.join("\t"))
}
