//! md-workbench: many small files that one rank creates and other ranks look at, read and remove.
//!
//! What an operation costs beside itself: its name, formatted into a buffer of the rank's own; two looks at the
//! clock; a step of a histogram and of a counter of the rank's own. A rank keeps 40 KiB, whatever the number of
//! files.

mod options;
mod phases;
mod report;
mod tally;
#[cfg(test)]
mod tests;

use std::fs;

use serde_json::{Value, json};
use sheen_types::Errno;

use crate::backend::{Backend, remove_all};
use crate::pattern::Packet;
use crate::ranks::process::{self, Part};
use crate::ranks::{self, Ended};
use crate::text::{failed, timestamp};
use crate::{LIKE, Surroundings, clock};
pub(crate) use options::{Options, REFUSED};
use phases::{Answer, Run};

/// Runs md-workbench.
///
/// # Errors
/// What ended it, or that operations failed.
pub(crate) fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    let errors = perform(options, surroundings)?.map_or(0, |outcome| outcome.errors);
    match errors {
        0 => Ok(()),
        errors => Err(Ended::Failed(format!("{errors} operations failed or read wrong data"))),
    }
}

/// What a phase reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reached {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Seconds of the longest operation on a file.
    pub(crate) longest: f64,
}

/// What a run reached.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Phases in the order in which they ran.
    pub(crate) phases: Vec<Reached>,
    /// Operations that failed and reads of wrong data.
    pub(crate) errors: u64,
}

/// Runs all phases; children answer nothing.
pub(crate) fn perform(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<Option<Outcome>, Ended> {
    let common = &options.common;
    let packet = Packet::named(&options.data)?;
    let backend = crate::backend(surroundings, common, common.api, false)?;
    let (size, out) = (common.ranks as usize, surroundings.out);
    let begun = clock::wall();
    let mut run = Run { options, packet, seed: begun as u32, oldest: 0, out };
    if let Some(part) = Part::of_this_process() {
        return process::child(part, &*backend, surroundings.stop, &run).map(|_| None);
    }
    run.oldest = oldest(options)?;
    let root = Root::prepare(&*backend, options)?;
    out(&header(options, surroundings, run.oldest, begun));
    let answer = match common.processes {
        true => {
            let words = surroundings.child_words();
            process::processes((size, 0), words, &*backend, surroundings.watch(), &run)
        }
        false => ranks::threads(size, &*backend, surroundings.watch(), &run),
    };
    let answer = answer.inspect_err(|_| root.clear(&*backend, options))?;
    root.leave(&*backend, options, &answer)?;
    let ended = clock::wall();
    if !options.quiet {
        out(&format!("Total runtime: {}s time: {}\n", ended - begun, date(ended)));
    }
    if let Some(path) = &options.json {
        let whole = whole(options, surroundings, &*backend, (begun, ended), &answer);
        let written = fs::write(path, format!("{whole:#}\n"));
        written.map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    let reached = answer.reports.iter();
    let reached =
        reached.map(|report| Reached { rate: report.rate(options), longest: report.all.longest() });
    let errors = answer.reports.iter().map(|report| report.all.errors()).sum();
    Ok(Some(Outcome { phases: reached.collect(), errors }))
}

/// Number of the oldest file that is there, or will be.
fn oldest(options: &Options) -> Result<u64, String> {
    let [precreate, _, _] = options.phases();
    if options.start > 0 || precreate {
        return Ok(options.start);
    }
    let path = &options.run_info_file;
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let position =
        text.trim().strip_prefix("pos:").and_then(|position| position.trim().parse().ok());
    position.ok_or_else(|| format!("{path} does not say which files an earlier run left behind"))
}

/// `2026-03-19 17:42:44`.
fn date(seconds: i64) -> String {
    let text = timestamp(seconds);
    let (date, time) = text.split_once(' ').unwrap_or((&text, ""));
    let (month_day, year) = date.rsplit_once('/').unwrap_or((date, ""));
    format!("{year}-{} {time}", month_day.replace('/', "-"))
}

fn header(options: &Options, surroundings: &Surroundings, oldest: u64, begun: i64) -> String {
    let (size, sets) = (u64::from(options.common.ranks), options.sets);
    let mut text = String::new();
    if !options.quiet {
        let mut words = surroundings.words.iter();
        let name = words.next().map_or("md-workbench", String::as_str);
        let words: String = words.map(|word| format!(" \"{word}\"")).collect();
        let of_set = u128::from(options.objects) * u128::from(options.iterations)
            + u128::from(options.precreated);
        let total = of_set * u128::from(sets) * u128::from(size);
        let bytes = (size * sets) as f64 * options.precreated as f64 * options.bytes as f64;
        text += &format!("Args: {name}{words}\n");
        if options.start > 0 {
            text += &format!("Using start position {oldest}\n");
        }
        text += &format!(
            "MD-Workbench total objects: {total} workingset size: {:.3} MiB (version: {LIKE}+sheen-{}) time: {}\n",
            bytes / 1_048_576.0,
            env!("CARGO_PKG_VERSION"),
            date(begun),
        );
        if options.objects > options.precreated {
            text += "WARNING: num > precreate, this may cause the situation that no objects are \
                     available to read\n";
        }
        if options.detailed {
            text += report::DETAILS;
        }
    }
    text
}

fn whole(
    options: &Options,
    surroundings: &Surroundings,
    backend: &dyn Backend,
    (begun, ended): (i64, i64),
    answer: &Answer,
) -> Value {
    let phases: Vec<Value> = answer.reports.iter().map(|report| report.json(options)).collect();
    json!({
        "benchmark": "md-workbench",
        "version": format!("{LIKE}+sheen-{}", env!("CARGO_PKG_VERSION")),
        "command_line": surroundings.words,
        "api": backend.name(),
        "ranks": options.common.ranks,
        "began": begun,
        "finished": ended,
        "errors": answer.reports.iter().map(|report| report.all.errors()).sum::<u64>(),
        "phases": phases,
    })
}

/// The directory that was asked for, and what was in it before.
struct Root {
    is_made: bool,
    /// Data sets of an earlier run: not ours to remove.
    older: Vec<String>,
}

impl Root {
    fn prepare(backend: &dyn Backend, options: &Options) -> Result<Self, Ended> {
        let mut worker = backend.worker(0, 1)?;
        let mut root = Self { is_made: false, older: Vec::new() };
        let [precreate, _, _] = options.phases();
        let path = options.path();
        match worker.stat(path) {
            Ok(stat) if stat.is_directory && precreate => {
                root.older = sets(options).filter(|path| worker.stat(path).is_ok()).collect();
            }
            Ok(stat) if stat.is_directory => {}
            Ok(_) => return Err(Ended::Failed(failed("work in", path, Errno::ENOTDIR))),
            Err(Errno::ENOENT) if precreate => {
                let made = worker.mkdir(path);
                made.map_err(|errno| failed("create directory", path, errno))?;
                root.is_made = true;
            }
            Err(errno) => return Err(Ended::Failed(failed("work in", path, errno))),
        }
        Ok(root)
    }

    /// After a run that did not end well: removes what it made.
    fn clear(&self, backend: &dyn Backend, options: &Options) {
        let Ok(mut worker) = backend.worker(0, 1) else { return };
        let [precreate, _, _] = options.phases();
        let ours = sets(options).filter(|path| precreate && !self.older.contains(path));
        let top = self.is_made.then(|| options.path().to_owned());
        for path in ours.chain(top) {
            if let Err(errno) = remove_all(&mut *worker, &path) {
                eprintln!("{}", failed("remove", &path, errno));
            }
        }
    }

    /// At the end: removes the directory, or keeps which files are in it for a later run.
    fn leave(
        &self,
        backend: &dyn Backend,
        options: &Options,
        answer: &Answer,
    ) -> Result<(), Ended> {
        let [precreate, _, cleanup] = options.phases();
        if !cleanup {
            let path = &options.run_info_file;
            let written = fs::write(path, format!("pos: {}\n", answer.oldest));
            return written.map_err(|error| Ended::Failed(format!("cannot write {path}: {error}")));
        }
        if answer.reports.iter().any(|report| report.all.errors() > 0) {
            // Files that no rank came to are still there.
            self.clear(backend, options);
        } else if self.is_made || !precreate {
            let path = options.path();
            if backend.worker(0, 1)?.rmdir(path).is_err() {
                // As the original: other programs may have put something there.
                eprintln!("Unable to remove directory {path}");
            }
        }
        Ok(())
    }
}

/// The data sets of all ranks.
fn sets(options: &Options) -> impl Iterator<Item = String> {
    let of =
        move |rank| (0..options.sets).map(move |set| format!("{}/{rank}_{set}", options.path()));
    (0..options.common.ranks).flat_map(of)
}
