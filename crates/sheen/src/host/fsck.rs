//! `sheen fsck`: whether names, inodes and objects of a stopped file system agree.
//!
//! Reads the stores of all targets, changes nothing in them beyond what opening a store finishes.
//! Memory: a record per object of the largest OST and per object of all files.

use std::collections::{BTreeMap, HashSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_assembly::PlanKind;
use sheen_store_disk::{OpenOptions, StoreDisk};
use sheen_types::{Errno, Fid, TargetKind, TargetName};
use sheen_wire::ost::OstId;

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

/// What the MDTs say of the objects of one OST.
#[derive(Debug, Default)]
struct Expected {
    /// In files.
    used: HashSet<Fid>,
    /// To be destroyed when servers run again.
    dying: HashSet<Fid>,
    /// What lies above was created ahead; `None` if no file ever lay here.
    last_used: Option<u64>,
}

/// What was looked at, and what is wrong.
#[derive(Debug, Default)]
struct Tally {
    inodes: u64,
    objects: u64,
    /// Objects that no file has and that hold nothing.
    spare: u64,
    problems: u64,
}

impl Tally {
    fn problem(&mut self, target: &TargetName, text: &str) {
        self.problems += 1;
        output::line(format_args!("{target}: {text}"));
    }
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
    let mut tally = Tally::default();
    let expected = check_mdts(&mdts, &mut tally)?;
    check_osts(&osts, expected, &mut tally)?;
    let Tally { inodes, objects, spare, problems } = tally;
    output::line(format_args!(
        "{inodes} inodes, {objects} objects in use, {spare} spare, {problems} problems"
    ));
    match problems {
        0 => Ok(()),
        _ => Err(Fault { code: PROBLEMS, text: String::new() }),
    }
}

fn check_mdts(
    mdts: &[(TargetName, PathBuf)],
    tally: &mut Tally,
) -> Result<BTreeMap<u16, Expected>, Fault> {
    let mut expected: BTreeMap<u16, Expected> = BTreeMap::new();
    for (name, directory) in mdts {
        progress(&format!("{name}: names and inodes"));
        let store = open(directory)?;
        let report = sheen_mds::check(&store).map_err(|error| broken(name, &error))?;
        progress("");
        tally.inodes += report.inodes;
        for fault in &report.faults {
            tally.problem(name, fault);
        }
        for orphan in &report.orphans {
            tally.problem(name, &format!("{orphan} has no name and was not released"));
        }
        let fid = |(ost, object): &(u16, OstId)| object.fid(*ost).map(|fid| (*ost, fid));
        for (ost, object) in report.objects.iter().filter_map(fid) {
            expected.entry(ost).or_default().used.insert(object);
        }
        for (ost, object) in report.dying.iter().filter_map(fid) {
            expected.entry(ost).or_default().dying.insert(object);
        }
        for (ost, last) in report.last_used {
            expected.entry(ost).or_default().last_used = Some(last);
        }
    }
    Ok(expected)
}

fn check_osts(
    osts: &[(TargetName, PathBuf)],
    mut expected: BTreeMap<u16, Expected>,
    tally: &mut Tally,
) -> Result<(), Fault> {
    for (name, directory) in osts {
        progress(&format!("{name}: objects"));
        let store = open(directory)?;
        let objects = sheen_oss::list_objects(&store).map_err(|error| broken(name, &error))?;
        progress("");
        let mut known = expected.remove(&name.index).unwrap_or_default();
        for object in objects {
            if known.used.remove(&object.fid) {
                tally.objects += 1;
            } else if known.dying.contains(&object.fid) || is_spare(&object, known.last_used) {
                tally.spare += 1;
            } else {
                let bytes = object.attributes.size;
                let text = format!("object {} ({bytes} bytes) belongs to no file", object.fid);
                tally.problem(name, &text);
            }
        }
        for object in &known.used {
            tally.problem(name, &format!("object {object} of a file is missing"));
        }
    }
    for (ost, known) in expected {
        if let Some(object) = known.used.iter().next() {
            let count = known.used.len();
            let text =
                format!("OST{ost:04x} is missing with {count} objects, {object} one of them");
            output::line(text);
            tally.problems += 1;
        }
    }
    Ok(())
}

/// Created ahead; or its number was taken for a file that a crash kept from being made, in which
/// case nobody can have written to it.
fn is_spare(object: &sheen_oss::ObjectRecord, last_used: Option<u64>) -> bool {
    let is_ahead = last_used.is_none_or(|last| u64::from(object.fid.oid) > last);
    is_ahead || object.attributes.blocks == 0 && object.attributes.size == 0
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
