//! mdtest: creating, looking at and removing many files and directories.
//!
//! Costs for each operation beside the operation itself: its name, formatted into a buffer of the rank's
//! own; one step of the rank's counter; under a stonewall a look at the clock. With `-R` each rank keeps 8
//! bytes for each of its items, and always 8 for each directory of the tree.

#[cfg(test)]
mod effects;
mod options;
mod phases;
mod plan;
mod report;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use sheen_types::Errno;

use crate::backend::{Backend, Space, Worker, remove_all};
use crate::ranks::process::{self, Part};
use crate::ranks::{self, Ended};
use crate::text::{append, failed, timestamp};
use crate::{LIKE, Rate, Surroundings, clock};
pub(crate) use options::{Options, REFUSED};
use phases::{Answer, Run};
use plan::{Plan, test_directory};

/// What is measured, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    DirCreate,
    DirStat,
    DirRename,
    DirRemove,
    FileCreate,
    FileStat,
    FileRead,
    FileRemove,
    TreeCreate,
    TreeRemove,
}

impl Phase {
    const COUNT: usize = 10;
    const ALL: [Self; Self::COUNT] = [
        Self::DirCreate,
        Self::DirStat,
        Self::DirRename,
        Self::DirRemove,
        Self::FileCreate,
        Self::FileStat,
        Self::FileRead,
        Self::FileRemove,
        Self::TreeCreate,
        Self::TreeRemove,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::DirCreate => "Directory creation",
            Self::DirStat => "Directory stat",
            Self::DirRename => "Directory rename",
            Self::DirRemove => "Directory removal",
            Self::FileCreate => "File creation",
            Self::FileStat => "File stat",
            Self::FileRead => "File read",
            Self::FileRemove => "File removal",
            Self::TreeCreate => "Tree creation",
            Self::TreeRemove => "Tree removal",
        }
    }

    fn is_tree(self) -> bool {
        matches!(self, Self::TreeCreate | Self::TreeRemove)
    }

    fn is_of_files(self) -> bool {
        (Self::FileCreate as usize..=Self::FileRemove as usize).contains(&(self as usize))
    }
}

/// What one rank measured in one iteration. Phases that did not run have no items and took no time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Measured {
    items: [u64; Phase::COUNT],
    /// Seconds to the end of the barrier behind the phase.
    time: [f64; Phase::COUNT],
    /// Seconds to the end of this rank's own work.
    before: [f64; Phase::COUNT],
    /// Seconds to the stonewall, items of all ranks until then, and the least of any rank times the ranks.
    stonewall: [f64; 3],
}

impl Measured {
    fn set(&mut self, phase: Phase, items: u64, time: f64, before: f64) {
        let number = phase as usize;
        (self.items[number], self.time[number], self.before[number]) = (items, time, before);
    }

    fn to_reals(&self) -> Vec<f64> {
        let items = self.items.iter().map(|items| f64::from_bits(*items));
        items.chain(self.time).chain(self.before).chain(self.stonewall).collect()
    }

    fn from_reals(reals: &[f64]) -> Self {
        let mut reals = reals.iter().copied();
        let mut next = || reals.next().unwrap_or(0.0);
        Self {
            items: std::array::from_fn(|_| next().to_bits()),
            time: std::array::from_fn(|_| next()),
            before: std::array::from_fn(|_| next()),
            stonewall: std::array::from_fn(|_| next()),
        }
    }
}

/// Runs mdtest.
///
/// # Errors
/// What ended it, or that data was wrong.
pub(crate) fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    let outcomes = perform(options, surroundings)?;
    match outcomes.iter().map(|outcome| outcome.wrong).sum() {
        0 => Ok(()),
        wrong => Err(Ended::Failed(format!("wrong data was read {wrong} times"))),
    }
}

/// What one test reached in its first iteration.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    measured: Vec<Measured>,
    /// Reads that found wrong data.
    pub(crate) wrong: u64,
    /// What the table shows of phases that ran, means of all iterations.
    pub(crate) rates: Vec<Rate>,
}

impl Outcome {
    /// Items of all ranks a second, and seconds, of the phase of files with this name.
    pub(crate) fn of(&self, name: &str) -> (f64, f64) {
        let number = Phase::ALL.iter().position(|phase| phase.name() == name).unwrap_or(0);
        let items: u64 = self.measured.iter().map(|rank| rank.items[number]).sum();
        let time = self.measured.iter().map(|rank| rank.time[number]).fold(0.0, f64::max);
        (if items == 0 { 0.0 } else { items as f64 / time }, time)
    }

    /// Files a second until the stonewall.
    pub(crate) fn until_stonewall(&self) -> f64 {
        let wall = self.measured.first().map_or([0.0; 3], |rank| rank.stonewall);
        if wall[0] > 0.0 { wall[1] / wall[0] } else { 0.0 }
    }
}

/// Runs all tests; children answer none.
pub(crate) fn perform(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<Vec<Outcome>, Ended> {
    let sizes = sizes(options)?;
    let plans = sizes.iter().map(|size| Plan::new(options, *size));
    let plans = plans.collect::<Result<Vec<Plan>, String>>()?;
    let common = &options.common;
    let backend = crate::backend(surroundings, common, common.api, false)?;
    let seed = clock::wall() as u32;
    let job = |test: usize| {
        let size = sizes[test];
        let nodes = backend.nodes(size, options.common.processes);
        let in_each = if nodes > 1 { size.div_ceil(nodes) as u64 } else { 1 };
        Run { options, plan: &plans[test], seed, stride: options.stride.saturating_mul(in_each) }
    };
    if let Some(part) = Part::of_this_process().filter(|part| part.test < plans.len()) {
        return process::child(part, &*backend, surroundings.stop, &job(part.test))
            .map(|_| Vec::new());
    }
    if let Some(path) = &options.ranks_file {
        std::fs::write(path, report::ranks_header())
            .map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    let (mut results, mut outcomes) = (Vec::new(), Vec::new());
    let mut wrong = 0;
    let begun = clock::wall();
    let out = surroundings.out;
    let root = Root::prepare(&*backend, &plans[0], options)?;
    out(&header(options, surroundings, &*backend, sizes[sizes.len() - 1], begun, root.space));
    for (test, plan) in plans.iter().enumerate() {
        let size = sizes[test];
        out(&format!("{}\n", plan.description(size)));
        let made = match options.common.processes {
            true => {
                let words = surroundings.child_words();
                process::processes((size, test), words, &*backend, surroundings.watch(), &job(test))
            }
            false => ranks::threads(size, &*backend, surroundings.watch(), &job(test)),
        };
        let answer = made.inspect_err(|_| root.clear(&*backend, plan, options))?;
        out(&report(options, plan, &answer));
        wrong += answer.wrong;
        if let Some(path) = &options.ranks_file {
            append(path, &report::ranks(plan.items, &answer.measured))?;
        }
        let mut result = report::json(plan, &answer.measured);
        result["ranks"] = json!(size);
        results.push(result);
        let ranks = (sizes.len() > 1).then_some(size);
        let rates = report::rates(plan, &answer.measured, ranks);
        let measured = answer.measured.into_iter().next().unwrap_or_default();
        outcomes.push(Outcome { measured, wrong: answer.wrong, rates });
    }
    root.leave(&*backend, &plans[0])?;
    let ended = clock::wall();
    out(&format!("-- finished at {} --\n\n", timestamp(ended)));
    if let Some(path) = &options.json {
        let whole = whole(surroundings, &*backend, (begun, ended), wrong, results);
        let written = std::fs::write(path, format!("{whole:#}\n"));
        written.map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok(outcomes)
}

impl Options {
    /// Whether the options go together.
    ///
    /// # Errors
    /// A line, if not.
    pub(crate) fn check(&self) -> Result<(), String> {
        sizes(self)?.into_iter().try_for_each(|size| Plan::new(self, size).map(drop))
    }
}

/// The numbers of ranks to run with, one after the other.
fn sizes(options: &Options) -> Result<Vec<usize>, String> {
    let (first, last) = match options.last {
        0 => (options.common.ranks, options.common.ranks),
        last => (options.first, last),
    };
    if first > last {
        return Err("process number: first > last doesn't make sense".to_owned());
    }
    if last > options.common.ranks {
        return Err("process number: last > number of ranks doesn't make sense".to_owned());
    }
    Ok((first..=last).step_by(options.rank_stride as usize).map(|size| size as usize).collect())
}

fn report(options: &Options, plan: &Plan, answer: &Answer) -> String {
    let mut text = String::new();
    answer.lines.iter().for_each(|line| text.push_str(line));
    if options.level() > 0 {
        text += &report::verbose(plan, &answer.measured);
    }
    text += &report::tables(options, plan, &answer.measured);
    if answer.wrong > 0 {
        text += &format!(
            "\nERROR: verifying the data on read ({} errors)! Take the performance values with care!\n\n",
            answer.wrong
        );
    }
    text
}

fn header(
    options: &Options,
    surroundings: &Surroundings,
    backend: &dyn Backend,
    size: usize,
    begun: i64,
    space: Space,
) -> String {
    let nodes = backend.nodes(size, options.common.processes);
    let mut words = surroundings.words.iter();
    let name = words.next().map_or("mdtest", String::as_str);
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let mut text = format!(
        "-- started at {} --\n\nmdtest-{LIKE}+sheen-{} was launched with {size} total task(s) on {nodes} \
         node(s)\nCommand line used: {name} {}\n",
        timestamp(begun),
        env!("CARGO_PKG_VERSION"),
        words.join(" "),
    );
    let reads = options.read_only
        || !(options.create_only || options.stat_only || options.remove_only || options.rename);
    if reads && options.read_bytes == 0 {
        text += "WARNING: Read bytes is 0, thus, a read test will actually just open/close\n";
    }
    text += &crate::text::space(options.paths().first().map_or("", String::as_str), space);
    let in_each = size.div_ceil(nodes);
    let map = (0..size).map(|rank| if rank / in_each == 0 { '1' } else { '0' });
    text += &format!("Nodemap: {}\n", map.collect::<String>());
    text
}

fn whole(
    surroundings: &Surroundings,
    backend: &dyn Backend,
    (begun, ended): (i64, i64),
    wrong: u64,
    tests: Vec<Value>,
) -> Value {
    json!({
        "benchmark": "mdtest",
        "version": format!("{LIKE}+sheen-{}", env!("CARGO_PKG_VERSION")),
        "command_line": surroundings.words,
        "api": backend.name(),
        "began": begun,
        "finished": ended,
        "wrong_data": wrong,
        "tests": tests,
    })
}

/// The directories that were asked for, and what was in them before.
struct Root {
    /// Those that did not exist.
    made: Vec<String>,
    /// Test directories of earlier runs: not ours to remove.
    older: Vec<String>,
    space: Space,
}

impl Root {
    fn prepare(backend: &dyn Backend, plan: &Plan, options: &Options) -> Result<Self, Ended> {
        let mut worker = backend.worker(0, 1)?;
        let mut root = Self { made: Vec::new(), older: Vec::new(), space: Space::default() };
        for path in &plan.paths {
            match worker.stat(path) {
                Ok(stat) if stat.is_directory => {}
                Ok(_) => return Err(Ended::Failed(failed("work in", path, Errno::ENOTDIR))),
                Err(Errno::ENOENT) if plan.create => {
                    let made = worker.mkdir(path);
                    made.map_err(|errno| failed("create directory", path, errno))?;
                    root.made.push(path.clone());
                }
                Err(errno) => return Err(Ended::Failed(failed("work in", path, errno))),
            }
            for path in tests_of(plan, options, path) {
                if worker.stat(&path).is_ok() {
                    root.older.push(path);
                }
            }
        }
        let space = worker.statfs(&plan.paths[0]);
        root.space = space.map_err(|errno| failed("statfs", &plan.paths[0], errno))?;
        Ok(root)
    }

    /// After a run that did not end well: removes what it made.
    fn clear(&self, backend: &dyn Backend, plan: &Plan, options: &Options) {
        if !plan.create {
            return;
        }
        let Ok(mut worker) = backend.worker(0, 1) else { return };
        for path in &plan.paths {
            for path in tests_of(plan, options, path).filter(|path| !self.older.contains(path)) {
                clear(&mut *worker, &path);
            }
        }
        self.made.iter().for_each(|path| clear(&mut *worker, path));
    }

    /// At the end: as mdtest, removes the directories that were made for it if it removes at all.
    fn leave(&self, backend: &dyn Backend, plan: &Plan) -> Result<(), Ended> {
        if !plan.remove {
            return Ok(());
        }
        let mut worker = backend.worker(0, 1)?;
        for path in &self.made {
            let gone = worker.rmdir(path);
            gone.map_err(|errno| failed("remove directory", path, errno))?;
        }
        Ok(())
    }
}

fn clear(worker: &mut dyn Worker, path: &str) {
    if let Err(errno) = remove_all(worker, path) {
        eprintln!("{}", failed("remove", path, errno));
    }
}

fn tests_of<'a>(
    plan: &'a Plan,
    options: &'a Options,
    path: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let trees =
        move |iteration| (0..plan.trees).map(move |tree| test_directory(path, iteration, tree));
    (0..options.iterations).flat_map(trees)
}
