//! `sheen fsck`: whether names, inodes and objects of a stopped file system agree.
//!
//! Reads the stores of all targets, changes nothing in them beyond what opening a store finishes.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_assembly::{Consistency, Findings, PlanKind};
use sheen_store_disk::{OpenOptions, StoreDisk};
use sheen_types::{Errno, TargetKind, TargetName};

use super::cluster::Cluster;
use super::target::plans;
use crate::mkfs::disk_fault;
use crate::output::{self, Fault};

/// The exit code of a file system with problems.
const PROBLEMS: u8 = 1;

/// Check that the names, inodes and objects of a stopped file system agree
#[derive(Args)]
pub(crate) struct Fsck {
    /// The directory that holds it, as for `sheen up`
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Prints a line per problem, and a summary.
pub(crate) fn fsck(options: &Fsck) -> Result<(), Fault> {
    let cluster = Cluster::open(&options.dir)?;
    let place = options.dir.display();
    let _lock = cluster.lock()?;
    if cluster.server().pid().is_some() {
        let text = format!("{place}: its server runs; stop it first (sheen down --dir {place})");
        return Err(Fault::new(Errno::EBUSY, text));
    }
    let mut mdts = Vec::new();
    let mut osts = Vec::new();
    for directory in cluster.targets() {
        for plan in plans(&directory)? {
            match plan.kind {
                PlanKind::Target(name) if name.kind == TargetKind::Mdt => {
                    mdts.push((name, plan.directory));
                }
                PlanKind::Target(name) => osts.push((name, plan.directory)),
                PlanKind::Mgs => {}
            }
        }
    }
    if mdts.is_empty() {
        return Err(Fault::new(Errno::ENOENT, format!("{place}: no file system of `sheen up`")));
    }
    let mut check = Consistency::default();
    for (name, directory) in &mdts {
        progress(&format!("{name}: names and inodes"));
        let checked = check.mdt(name, &open(directory)?);
        progress("");
        checked.map_err(|error| broken(name, &error))?;
    }
    for (name, directory) in &osts {
        progress(&format!("{name}: objects"));
        let checked = check.ost(name, &open(directory)?);
        progress("");
        checked.map_err(|error| broken(name, &error))?;
    }
    let Findings { inodes, objects, spare, survey, problems } = check.finish();
    problems.iter().for_each(output::line);
    if survey > 0 {
        output::line(format_args!(
            "{survey} files and objects of a survey that did not end; the next start removes them"
        ));
    }
    output::line(format_args!(
        "{inodes} inodes, {objects} objects in use, {spare} spare, {} problems",
        problems.len()
    ));
    match problems.len() {
        0 => Ok(()),
        _ => Err(Fault { code: PROBLEMS, text: String::new() }),
    }
}

fn open(directory: &Path) -> Result<StoreDisk, Fault> {
    StoreDisk::open(directory, &OpenOptions::default()).map_err(|error| disk_fault(&error))
}

fn broken(name: &TargetName, error: &dyn std::fmt::Display) -> Fault {
    Fault { code: PROBLEMS, text: format!("{name}: {error}") }
}

/// What is being done, for whoever watches; an empty text wipes it away.
fn progress(text: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        // Nobody misses it.
        let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    }
}
