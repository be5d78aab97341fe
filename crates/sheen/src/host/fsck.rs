//! `sheen fsck`: checks whether names, inodes, layouts, objects and data of a stopped file system agree, and
//! repairs what can be repaired.
//!
//! Without `-y` it changes nothing: what opening a store finishes after a crash is done in a copy of all but the data,
//! in `run`, which is removed. With `-y` it checks, repairs, and checks again: what
//! is still wrong then was not repaired. Bytes that are lost are never made up: they stay errors.
//!
//! All MDTs are looked at together, as names lead from one to another. What any of them lacks of a change over several is
//! redone first, as their next start does: without `-y` in the copies. Their names are repaired where all of them are there; a store
//! that is not the one which other MDTs know by its identity is reported, and counts as missing.

use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use sheen_assembly::{
    CheckError, Consistency, Depth, Findings, Problem, ProblemKind, StoreContents, TargetLabel,
};
use sheen_mds::{Obstacle, Redone, RedonePart, RefusedPart};
use sheen_store::{Store, StoreError};
use sheen_store_disk::{Config, DiskError, OpenOptions, StoreDisk};
use sheen_types::text::shell_word;
use sheen_types::{Fid, HashSet, MdtIndex, Nid, TargetKind, TargetName};

use super::cluster::{Cluster, PATIENCE};
use super::folders::{folder_of, is_there, refuse_doubles};
use super::private;
use super::salvage::{held, now};
use super::target::{is_registered, plans};
use sheen_tools::interrupt;
use sheen_tools::mkfs::disk_fault;
use sheen_tools::output::{self, Fault, shown_path};

/// Exit codes as fsck(8) has them; the first two add up.
const CORRECTED: u8 = 1;
const LEFT: u8 = 4;
const FAILED: u8 = 8;
const CANCELLED: u8 = 32;
/// Objects and bytes between two lines of progress.
const OBJECTS_STEP: u64 = 128;
const BYTES_STEP: u64 = 16 << 20;
/// Between two lines of progress where it is not shown on a terminal.
const PERIOD: Duration = Duration::from_secs(10);
/// What the names of copies of stores begin with.
const COPY: &str = "fsck-";
/// As messages name the MGT.
const MGS: &str = "MGS";

/// Check that the names, inodes, layouts, objects and data of a stopped file system agree
///
/// Exit codes, as of fsck(8): 0 no errors, 1 all errors corrected, 4 errors left uncorrected (5 if other errors
/// were corrected), 8 operational error, 16 usage error, 32 canceled.
#[derive(Args)]
pub(crate) struct Fsck {
    /// Directory of the file system, as for `sheen up`
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Check only, repair nothing (default)
    #[arg(short = 'n', conflicts_with = "repair")]
    look: bool,
    /// Repair what can be repaired: names, link counts, lists of objects and copies of configurations; files
    /// without a name go to /lost+found
    #[arg(short = 'y')]
    repair: bool,
    /// Do not read the data to verify checksums: check only presence and length
    #[arg(long)]
    no_checksums: bool,
}

/// A target and its store's directory.
type Place = (TargetName, PathBuf);
/// An MDT, its store, and what is in it.
type OpenMdt<'a> = (&'a TargetName, Arc<StoreDisk>, StoreContents);

struct Places<'a> {
    cluster: &'a Cluster,
    /// Nothing is to be changed.
    only_looks: bool,
    mgts: Vec<PathBuf>,
    /// Targets that have registered with them.
    registered: Vec<TargetName>,
    mdts: Vec<Place>,
    osts: Vec<Place>,
}

/// Prints a line per problem, and a summary.
pub(crate) fn fsck(options: &Fsck) -> Result<(), Fault> {
    let code = check(options);
    progress("");
    match code.map_err(|fault| Fault { code: code_of(&fault), ..fault })? {
        0 => Ok(()),
        code => Err(Fault { code, text: String::new() }),
    }
}

/// The exit code: one for all errors that kept it from checking.
fn code_of(fault: &Fault) -> u8 {
    if fault.code == CANCELLED { CANCELLED } else { FAILED }
}

fn check(options: &Fsck) -> Result<u8, Fault> {
    let cluster = Cluster::open(&options.dir)?;
    let place = shown_path(&options.dir);
    check_place(&cluster)?;
    let _lock = cluster.lock()?;
    let server = cluster.server().settled(PATIENCE).map_err(|fault| failed(fault.text))?;
    if cluster.is_served_elsewhere() {
        return Err(failed(cluster.served_elsewhere().text));
    }
    if server.is_some() {
        return Err(failed(format!(
            "{place}: its server is running; stop it first (sheen down --dir {place})"
        )));
    }
    let places = find(&cluster, !options.repair)?;
    let lacks = match (places.mgts.is_empty(), places.mdts.is_empty()) {
        (true, true) if places.osts.is_empty() => return Err(failed(no_targets(&place))),
        (true, _) => Some("mgt"),
        (false, true) => Some("mdt0000"),
        (false, false) => None,
    };
    if let Some(name) = lacks {
        return Err(failed(cluster.gone(name).text));
    }
    let stop = interrupt::listen()?;
    let depth = if options.no_checksums { Depth::Sizes } else { Depth::Checksums };
    remove_copies(&cluster.run());
    let redone = if options.repair { places.redo()? } else { 0 };
    let found = places.look(depth, stop)?;
    if !options.repair || found.problems.is_empty() {
        found.problems.iter().for_each(output::line);
        return Ok(summary(&found, found.problems.len(), redone));
    }
    places.repair(&found.problems)?;
    let again = places.look(Depth::Sizes, stop)?;
    Ok(report_repaired(&found, &again, redone))
}

/// Refuses a directory that has no targets in it, and says what to type. Has `run` in it then, for the lock.
fn check_place(cluster: &Cluster) -> Result<(), Fault> {
    let place = &cluster.directory;
    if is_there(place) {
        let name = plans(place)?.last().map_or(String::new(), |plan| format!(", {}", plan.kind));
        let above = place.parent().unwrap_or(place);
        return Err(failed(format!(
            "{}: a target itself{name}: a file system is checked as a whole, in the directory that its targets lie in: \
             sheen fsck --dir {}",
            shown_path(place),
            shell_word(above.as_os_str().as_bytes())
        )));
    }
    if cluster.stores().is_empty() && cluster.fsname().is_none() {
        return Err(failed(no_targets(&shown_path(place))));
    }
    private::directory(&cluster.run())
}

fn no_targets(place: &str) -> String {
    format!(
        "{place}: no targets in it: --dir is the directory of `sheen up`, or one in which all targets of mkfs.lustre lie, \
         each in a directory of its own"
    )
}

fn find(cluster: &Cluster, only_looks: bool) -> Result<Places<'_>, Fault> {
    let (mgts, registered, mdts, osts) = Default::default();
    let mut places = Places { cluster, only_looks, mgts, registered, mdts, osts };
    cluster.report_copies();
    cluster.check_targets()?;
    let mut all = Vec::new();
    for directory in cluster.stores() {
        all.extend(plans(&directory)?);
    }
    refuse_doubles(&all)?;
    for plan in all {
        if let TargetLabel::Target(name) = &plan.kind
            && is_registered(&plan.directory)?
        {
            places.registered.push(name.clone());
        }
        match plan.kind {
            TargetLabel::Target(name) if name.kind == TargetKind::Mdt => {
                places.mdts.push((name, plan.directory));
            }
            TargetLabel::Target(name) => places.osts.push((name, plan.directory)),
            TargetLabel::Mgs => places.mgts.push(plan.directory),
        }
    }
    Ok(places)
}

/// Each problem with what became of it. What is lost of data is so still: that is not read again.
fn report_repaired(found: &Findings, again: &Findings, redone: usize) -> u8 {
    let is_data = |problem: &&Problem| problem.kind == ProblemKind::Data;
    let still: HashSet<&Problem> = again.problems.iter().filter(|p| !is_data(p)).collect();
    let before: HashSet<&Problem> = found.problems.iter().collect();
    let (mut repaired, mut left) = (0, 0);
    for problem in &found.problems {
        let is_left = is_data(&problem) || still.contains(problem);
        *(if is_left { &mut left } else { &mut repaired }) += 1;
        let outcome = if is_left { "not repaired" } else { "repaired" };
        output::line(format_args!("{problem}: {outcome}"));
    }
    for problem in again.problems.iter().filter(|p| !is_data(p) && !before.contains(p)) {
        left += 1;
        output::line(format_args!("{problem}: not repaired"));
    }
    output::line(format_args!("{repaired} problems repaired"));
    summary(again, left, repaired + redone)
}

/// Prints the counts; the exit code.
fn summary(found: &Findings, left: usize, repaired: usize) -> u8 {
    let Findings { inodes, objects, unused, given_up, survey, incomplete, orphans, .. } = found;
    let Findings { elsewhere, to_redo, .. } = found;
    if *given_up > 0 {
        output::line(format_args!(
            "{given_up} objects of files whose creation was lost in a crash; the next start removes them"
        ));
    }
    if *survey > 0 {
        output::line(format_args!(
            "{survey} files and objects of a survey that did not end; the next start removes them"
        ));
    }
    if *incomplete > 0 {
        output::line(format_args!(
            "{incomplete} changes over several metadata targets are not complete; the next start completes them"
        ));
    }
    if *to_redo > 0 {
        output::line(format_args!(
            "{to_redo} parts of changes over several metadata targets were lost in a crash; the next start redoes them"
        ));
    }
    if *orphans > 0 {
        output::line(format_args!("{orphans} inodes without a name; the next start removes them"));
    }
    if *elsewhere > 0 {
        output::line(format_args!(
            "{elsewhere} names, inodes and objects belong together with ones of metadata targets that are not here"
        ));
    }
    output::line(format_args!(
        "{inodes} inodes, {objects} objects in use, {unused} unused, {left} problems"
    ));
    u8::from(repaired > 0) * CORRECTED + u8::from(left > 0) * LEFT
}

impl Places<'_> {
    fn look(&self, depth: Depth, stop: &AtomicBool) -> Result<Findings, Fault> {
        let mut check = Consistency::default();
        let mut stray = Vec::new();
        for directory in &self.mgts {
            progress("MGS: configuration logs");
            stray.extend(lost_copy(MGS, directory)?);
            stray.extend(self.look_at_logs(directory)?);
        }
        for (name, directory) in &self.mdts {
            stray.extend(lost_copy(&name.to_string(), directory)?);
            stray.extend(self.lost_mark(&name.to_string(), directory)?);
        }
        let (mdts, to_redo) = self.open_mdts()?;
        if let Some((name, ..)) = mdts.first() {
            let at_rest = mdts.iter().map(|(name, store, held)| (*name, &**store as _, held));
            check.mdts(&at_rest.collect::<Vec<_>>()).map_err(|error| of(name, error))?;
        }
        for (name, store, _) in &mdts {
            let watch = &mut |objects, bytes| on(name, "data", stop, objects, bytes);
            check.mdt_data(name, &**store, depth, watch).map_err(|error| of(name, error))?;
            stray.extend(strays(name, store)?);
        }
        drop(mdts);
        for (name, directory) in &self.osts {
            progress(&format!("{name}: objects"));
            stray.extend(lost_copy(&name.to_string(), directory)?);
            stray.extend(self.lost_mark(&name.to_string(), directory)?);
            let store = self.open(directory)?;
            let held = held(&store).map_err(|error| broken(name, &error))?;
            let watch = &mut |objects, bytes| on(name, "objects", stop, objects, bytes);
            check.ost(name, &store, &held, depth, watch).map_err(|error| of(name, error))?;
            stray.extend(strays(name, &store)?);
        }
        progress("");
        let mut found = check.finish();
        found.to_redo = to_redo as u64;
        found.problems.extend(stray);
        Ok(found)
    }

    /// Opens the stores of all MDTs. Where nothing is to be changed, what these are copies of lacks of changes over several
    /// MDTs is redone in them, which destroys no inode and so touches no data; how many parts.
    fn open_mdts(&self) -> Result<(Vec<OpenMdt<'_>>, usize), Fault> {
        let mut stores = Vec::new();
        for (name, directory) in &self.mdts {
            progress(&format!("{name}: names and inodes"));
            stores.push((name, Arc::new(self.open(directory)?)));
        }
        let lacked = if self.only_looks { self.redo_in(&stores)?.parts.len() } else { 0 };
        let mut mdts = Vec::new();
        for (name, store) in stores {
            let held = held(&store).map_err(|error| broken(name, &error))?;
            if held.objects.is_empty() && !self.registered.contains(name) {
                progress("");
                output::line(format_args!("{name}: it was never started, there is nothing in it"));
                continue;
            }
            mdts.push((name, store, held));
        }
        Ok((mdts, lacked))
    }

    fn look_at_logs(&self, directory: &Path) -> Result<Vec<Problem>, Fault> {
        let mut found: Vec<Problem> = self.lost_mark(MGS, directory)?.into_iter().collect();
        let store = self.open(directory)?;
        let broken = |error: StoreError| failed(format!("{MGS}: {error}"));
        let held = held(&store).map_err(broken)?;
        let checked = sheen_mgs::check(&store, &held.indexes, &self.registered).map_err(broken)?;
        let problem = |fault: String| Problem {
            target: MGS.to_owned(),
            text: format!("{}: {fault}; restore the MGT from a backup", shown_path(directory)),
            kind: ProblemKind::Contradiction,
        };
        found.extend(checked.faults.into_iter().map(problem));
        found.extend(checked.named.iter().filter_map(|(name, nids)| self.lost(name, nids)));
        Ok(found)
    }

    /// That a target is gone which clients are to find at this file system's address.
    fn lost(&self, name: &TargetName, nids: &[Nid]) -> Option<Problem> {
        let (nid, _) = self.cluster.address()?;
        let is_here = self.mdts.iter().chain(&self.osts).any(|(here, _)| here == name);
        if is_here || !nids.contains(&nid) {
            return None;
        }
        let folder = folder_of(name);
        let (target, text) = (name.to_string(), self.cluster.gone(&folder).text);
        Some(Problem { target, text, kind: ProblemKind::Contradiction })
    }

    /// Whether the mark of what was acknowledged as durable is lost: opening the store makes the mark again, of
    /// what is there.
    fn lost_mark(&self, name: &str, directory: &Path) -> Result<Option<Problem>, Fault> {
        let lacks = StoreDisk::lacks_mark(directory).map_err(|error| disk_fault(&error))?;
        let when = if self.only_looks { "the next start recreates it" } else { "it is recreated" };
        Ok(lacks.then(|| Problem {
            target: name.to_owned(),
            text: format!(
                "{}: missing or damaged: cannot verify that all that was acknowledged as durable is there; {when}",
                shown_path(directory.join("committed"))
            ),
            kind: ProblemKind::Contradiction,
        }))
    }

    /// Opens a store to check it.
    fn open(&self, directory: &Path) -> Result<StoreDisk, Fault> {
        if !self.only_looks {
            return open(directory);
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let copy = self.cluster.run().join(format!("{COPY}{name}"));
        let opened = StoreDisk::open_to_look(directory, &copy, &OpenOptions::default());
        opened.map_err(|error| disk_fault(&error))
    }

    /// The directories of all stores.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        let targets = self.mdts.iter().chain(&self.osts).map(|(_, directory)| directory);
        self.mgts.iter().chain(targets).map(PathBuf::as_path)
    }

    /// Why names are not repaired: an MDT to which they may lead is not here, of those that the MGS lists or that MDTs know,
    /// or another one's store is in its place.
    fn obstacle(&self, here: &[sheen_mds::MdtAtRest<'_>]) -> Result<Option<Obstacle>, Fault> {
        let known = sheen_mds::repair_obstacle(here).map_err(|error| failed(error.to_string()))?;
        if known.is_some() {
            return Ok(known);
        }
        for directory in &self.mgts {
            let logs = open(directory)?;
            let broken = |error: StoreError| failed(format!("{MGS}: {error}"));
            let held = held(&logs).map_err(broken)?;
            let checked =
                sheen_mgs::check(&logs, &held.indexes, &self.registered).map_err(broken)?;
            let mdts = checked.named.iter().filter(|(name, _)| name.kind == TargetKind::Mdt);
            let is_missing = |mdt: &u16| here.iter().all(|it| it.mdt.0 != *mdt);
            if let Some(mdt) = mdts.map(|(name, _)| name.index).find(is_missing) {
                return Ok(Some(Obstacle::Missing(mdt.into())));
            }
        }
        Ok(None)
    }

    /// Redoes in these stores what any of them lacks of changes over several.
    fn redo_in(&self, stores: &[(&TargetName, Arc<StoreDisk>)]) -> Result<Redone, Fault> {
        if stores.len() < 2 {
            return Ok(Redone::default());
        }
        progress("changes over several metadata targets");
        let shared = stores
            .iter()
            .map(|(name, store)| (MdtIndex(name.index), Arc::clone(store) as Arc<dyn Store>));
        let done = sheen_mds::redo_offline(&shared.collect::<Vec<_>>());
        done.map_err(|error| failed(error.to_string()))
    }

    /// Redoes what any MDT lacks of changes over several; how many parts.
    fn redo(&self) -> Result<usize, Fault> {
        let mut stores = Vec::new();
        for (name, directory) in self.mdts.iter().filter(|_| self.mdts.len() > 1) {
            stores.push((name, Arc::new(open(directory)?)));
        }
        let done = self.redo_in(&stores)?;
        progress("");
        let name_of = |mdt: MdtIndex| {
            let found = self.mdts.iter().find(|(name, _)| name.index == mdt.0);
            found.map(|(name, _)| name.to_string()).unwrap_or_default()
        };
        for RedonePart { mdt, change } in &done.parts {
            output::line(format_args!("{}: its part of change {change} was redone", name_of(*mdt)));
        }
        for RefusedPart { mdt, change, inodes, errno } in &done.refused {
            let inodes: Vec<_> = inodes.iter().map(Fid::to_string).collect();
            output::line(format_args!(
                "{}: its part of change {change} cannot be redone: {errno}; it is about {}",
                name_of(*mdt),
                inodes.join(" ")
            ));
        }
        Ok(done.parts.len())
    }

    /// OSTs first: what they have is made files of. Each change is a transaction, and all are durable at
    /// the end.
    fn repair(&self, problems: &[Problem]) -> Result<(), Fault> {
        for directory in self.directories() {
            write_copy(directory).map_err(|error| disk_fault(&error))?;
        }
        for (name, directory) in &self.osts {
            progress(&format!("{name}: repairing"));
            let store = open(directory)?;
            let held = held(&store).map_err(|error| broken(name, &error))?;
            sheen_oss::rebuild(&store, &held.objects).map_err(|error| broken(name, &error))?;
            set_aside(name, &store)?;
        }
        let unclaimed = |problem: &Problem| match problem.kind {
            ProblemKind::Unclaimed(ost, object) => Some((ost, object)),
            _ => None,
        };
        let unclaimed: Vec<(u16, Fid)> = problems.iter().filter_map(unclaimed).collect();
        self.repair_names(&unclaimed)?;
        progress("");
        Ok(())
    }

    /// Those of all MDTs together, as one's may lead to another's.
    fn repair_names(&self, unclaimed: &[(u16, Fid)]) -> Result<(), Fault> {
        let mut stores = Vec::new();
        for (name, directory) in &self.mdts {
            progress(&format!("{name}: repairing"));
            stores.push((name, open(directory)?));
        }
        let none: Vec<_> = stores.iter().map(|(name, store)| (*name, store, None)).collect();
        if let Some(obstacle) = self.obstacle(&at_rest(&none))? {
            // Names that lead there it would take for faults.
            output::line(format_args!("names are not repaired: {obstacle}"));
        } else {
            put_in_order(&stores, unclaimed)?;
        }
        for (name, store) in &stores {
            set_aside(name, store)?;
        }
        Ok(())
    }
}

/// What is wrong with the copy of a store's configuration, which is needed where that is damaged.
fn lost_copy(target: &str, directory: &Path) -> Result<Option<Problem>, Fault> {
    let fault = Config::copy_fault(directory).map_err(|error| disk_fault(&error))?;
    let (target, kind) = (target.to_owned(), ProblemKind::Contradiction);
    Ok(fault.map(|text| Problem { target, text, kind }))
}

/// Writes that copy again, if something is wrong with it.
fn write_copy(directory: &Path) -> Result<(), DiskError> {
    match Config::copy_fault(directory)? {
        Some(_) => Config::load(directory)?.save(directory),
        None => Ok(()),
    }
}

/// As a check of the MDTs takes them.
fn at_rest<'a>(
    mdts: &[(&TargetName, &'a StoreDisk, Option<&'a StoreContents>)],
) -> Vec<sheen_mds::MdtAtRest<'a>> {
    let at_rest =
        |(name, store, held): &(&TargetName, &'a StoreDisk, Option<&'a StoreContents>)| {
            let (objects, indexes) =
                held.map_or((&[][..], &[][..]), |held| (&held.objects[..], &held.indexes[..]));
            sheen_mds::MdtAtRest { mdt: MdtIndex(name.index), store: *store, objects, indexes }
        };
    mdts.iter().map(at_rest).collect()
}

/// Makes files of objects that no file has, on the first MDT, and puts the names of all in order.
fn put_in_order(
    stores: &[(&TargetName, StoreDisk)],
    unclaimed: &[(u16, Fid)],
) -> Result<(), Fault> {
    let first = stores.iter().find(|(name, _)| name.index == 0);
    if let Some((name, store)) = first {
        sheen_mds::adopt(store, unclaimed, now()).map_err(|error| broken(name, &error))?;
    }
    let mut contents = Vec::new();
    for (name, store) in stores {
        contents.push(held(store).map_err(|error| broken(name, &error))?);
    }
    let all: Vec<_> = stores
        .iter()
        .zip(&contents)
        .map(|((name, store), held)| (*name, store, Some(held)))
        .collect();
    let done = match (&stores, &contents[..]) {
        ([(name, store)], [held]) => {
            let done = sheen_mds::rebuild(store, &held.objects, &held.indexes, now());
            vec![done.map_err(|error| broken(name, &error))?]
        }
        _ => sheen_mds::rebuild_all(&at_rest(&all), now())
            .map_err(|error| failed(error.to_string()))?,
    };
    for ((name, _), done) in stores.iter().zip(&done) {
        for fid in &done.put_back {
            output::line(format_args!("{name}: {}: name put back", done.place(*fid)));
        }
        super::salvage::report_names(&name.to_string(), done);
    }
    Ok(())
}

/// Files of data that no object has.
fn strays(name: &TargetName, store: &StoreDisk) -> Result<Vec<Problem>, Fault> {
    let files = store.data_files().map_err(|error| broken(name, &error))?;
    let stray = files.into_iter().filter(|file| file.object.is_none()).map(|file| Problem {
        target: name.to_string(),
        text: format!("{}: data file that belongs to no object", shown_path(&file.path)),
        kind: ProblemKind::Contradiction,
    });
    Ok(stray.collect())
}

fn set_aside(name: &TargetName, store: &StoreDisk) -> Result<(), Fault> {
    let moved = store.set_strays_aside().map_err(|error| broken(name, &error))?;
    if moved > 0 {
        let place = store.dir().join("lost+found");
        output::line(format_args!("{name}: {moved} files of data are in {}", shown_path(&place)));
    }
    Ok(())
}

/// Removes copies that a killed `fsck` left.
fn remove_copies(run: &Path) {
    for entry in std::fs::read_dir(run).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(COPY) {
            // Where that fails, making the copy again does, and says so.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn open(directory: &Path) -> Result<StoreDisk, Fault> {
    StoreDisk::open(directory, &OpenOptions::default()).map_err(|error| disk_fault(&error))
}

fn failed(text: String) -> Fault {
    Fault { code: FAILED, text }
}

fn broken(name: &TargetName, error: &dyn std::fmt::Display) -> Fault {
    progress("");
    failed(format!("{name}: {error}"))
}

fn of(name: &TargetName, error: CheckError) -> Fault {
    match error {
        CheckError::Store(error) => broken(name, &error),
        CheckError::OfMdt(failed) => {
            broken(&TargetName { index: failed.mdt.0, ..name.clone() }, &failed.error)
        }
        CheckError::Cancelled => Fault { code: CANCELLED, text: format!("{name}: cancelled") },
    }
}

/// Shows progress now and then; returns whether to go on.
fn on(name: &TargetName, what: &str, stop: &AtomicBool, objects: u64, bytes: u64) -> bool {
    if objects.is_multiple_of(OBJECTS_STEP) || bytes % BYTES_STEP < BYTES_STEP / 8 {
        progress(&format!("{name}: {what}: {objects}, {} MiB", bytes >> 20));
    }
    !stop.load(Ordering::Relaxed)
}

/// Shows what is being done: always anew on a terminal, where an empty text erases it; otherwise a line now and then.
#[expect(clippy::disallowed_methods, reason = "a tool that shows what it does")]
fn progress(text: &str) {
    static PACE: Mutex<Pace> = Mutex::new(Pace { next: None });
    let mut err = std::io::stderr().lock();
    // Progress is not worth a failure.
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    } else if PACE.lock().is_due(text, Instant::now()) {
        let _ = writeln!(err, "{text}");
    }
}

/// When a line of progress is written where there is no terminal: the first after one period.
struct Pace {
    next: Option<Instant>,
}

impl Pace {
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let next = *self.next.get_or_insert(now + PERIOD);
        let is_due = now >= next && !text.is_empty();
        if is_due {
            self.next = Some(now + PERIOD);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn a_log_gets_a_line_of_progress_every_period() {
        let (mut pace, start) = (Pace { next: None }, Instant::now());
        assert!(!pace.is_due("short", start));
        assert!(!pace.is_due("short", start + PERIOD / 2));
        assert!(!pace.is_due("", start + PERIOD), "nothing to write");
        assert!(pace.is_due("long", start + PERIOD));
        assert!(!pace.is_due("long", start + PERIOD * 3 / 2));
        assert!(pace.is_due("longer", start + PERIOD * 2));
    }
}
