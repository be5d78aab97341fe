//! One benchmark on several file systems, set beside each other.
//!
//! Runs are interleaved, and who comes first changes with each round, so that whatever else the machine does
//! hits all alike: A B C, then B C A. Numbers are medians of rounds; a ratio is the median of the ratios within
//! rounds. Each run works in a directory of its own, which is removed behind it, and what it left to be written
//! is written before the next begins.

mod html;
mod report;
mod run;
mod table;
mod target;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use clap::Args;

use crate::machine::Machine;
use crate::ranks::Ended;
use crate::text::date;
use crate::{Surroundings, clock};
pub(crate) use report::{Report, Spread};
use run::Workload;
use target::ComparedFs;

/// Targets of one comparison: as many as plots have colors.
const TARGETS_MAX: usize = crate::plot::COLORS.len();

/// Run one benchmark on several file systems in turn, and compare the results
#[derive(Args, Clone, Debug)]
#[command(disable_version_flag = true)]
pub(crate) struct Options {
    /// File system to compare, under a name of your choice: a directory on it, or
    /// native:MGSNID[:MGSNID...]:/FSNAME[/DIR]; each further one is compared with the first
    #[arg(long = "target", value_name = "NAME=PLACE", required = true)]
    targets: Vec<String>,
    /// Number of times to run it on each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write all that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write a report with plots to this file, for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Port of the servers of native targets
    #[arg(long = "native.port", value_name = "PORT")]
    port: Option<u16>,
    /// Number of independent clients that the ranks share on native targets
    #[arg(long = "native.clients", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Benchmark and its options: mdtest, ior or io500, without those for the place to work in
    #[arg(value_name = "BENCHMARK", last = true, required = true)]
    words: Vec<String>,
}

/// Runs the comparison.
///
/// # Errors
/// What ended it; before anything is run, what of the targets or the options is wrong.
pub(crate) fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    let workload = Workload::new(&options.words)?;
    let targets = targets(options)?;
    for target in &targets {
        target.check(surroundings)?;
        workload.check(target)?;
    }
    for path in options.json.iter().chain(&options.html) {
        writable(path)?;
    }
    let begun = clock::wall();
    let rounds = rounds(options.rounds, &targets, &workload, surroundings)?;
    let report = Report {
        title: options.title.clone().unwrap_or_else(|| title(&options.words, &targets)),
        version: format!("sheen {}", env!("CARGO_PKG_VERSION")),
        machine: Machine::here(),
        began: date(begun),
        finished: date(clock::wall()),
        command_line: command_line(surroundings.words),
        benchmark: options.words.clone(),
        rounds: options.rounds,
        targets: targets.iter().map(ComparedFs::report).collect(),
        phases: report::phases(&targets, &rounds),
    };
    (surroundings.out)(&table::table(&report));
    if let Some(path) = &options.json {
        // Of texts and numbers, so it can be written.
        write(path, &format!("{}\n", serde_json::to_string_pretty(&report).unwrap_or_default()))?;
    }
    if let Some(path) = &options.html {
        write(path, &html::page(&report))?;
    }
    Ok(())
}

fn targets(options: &Options) -> Result<Vec<ComparedFs>, String> {
    let all =
        options.targets.iter().map(|text| ComparedFs::parse(text, options.port, options.clients));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    if !(2..=TARGETS_MAX).contains(&all.len()) {
        return Err(format!("--target: a comparison needs 2 to {TARGETS_MAX} targets"));
    }
    for (number, target) in all.iter().enumerate() {
        if all[..number].iter().any(|other| other.name == target.name) {
            return Err(format!("--target: two are named '{}'", target.name));
        }
    }
    Ok(all)
}

/// The words of the user, the program without where it lies.
fn command_line(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut()
        && let Some(name) = Path::new(program.as_str()).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

fn title(words: &[String], targets: &[ComparedFs]) -> String {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    format!("{} on {}", words.first().map_or("", String::as_str), names.join(", "))
}

fn writable(path: &str) -> Result<(), String> {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_there = folder.is_none_or(Path::is_dir) && !Path::new(path).is_dir();
    if is_there { Ok(()) } else { Err(format!("cannot write {path}: no such directory")) }
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))
}

/// All rounds: for each what each target reached, in the order of targets.
fn rounds(
    count: u32,
    targets: &[ComparedFs],
    workload: &Workload,
    surroundings: &Surroundings,
) -> Result<Vec<Vec<run::Reached>>, Ended> {
    let mut rounds = Vec::new();
    for round in 0..count as usize {
        let mut reached: Vec<Option<run::Reached>> = targets.iter().map(|_| None).collect();
        for turn in 0..targets.len() {
            let number = (round + turn) % targets.len();
            let target = &targets[number];
            run::print_running(round + 1, count, &target.name);
            let done = run::once(workload, target, surroundings).map_err(|ended| match ended {
                Ended::Failed(line) => Ended::Failed(format!("target '{}': {line}", target.name)),
                Ended::Interrupted => Ended::Interrupted,
            })?;
            reached[number] = Some(done);
        }
        rounds.push(reached.into_iter().flatten().collect());
    }
    Ok(rounds)
}
