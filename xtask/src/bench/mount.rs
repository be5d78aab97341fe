//! `cargo xtask bench mount`: the mount beside the local file system, and beside it through FUSE.
//!
//! The reference for what FUSE costs is bindfs over the same local file system. Every number is a
//! rate of a whole phase, syncing what was written included; reads come after all caches that can
//! be dropped were dropped, except where the row says `again`.

mod load;
mod report;

use std::path::PathBuf;

use clap::Args;

use super::cost;
use super::place::{self, Place};
use crate::setup;
use crate::shell::{self, Outcome, Profile, root};
use load::Act;
pub(super) use load::Phase;
use report::{Report, Row};

/// How much to measure, and where.
#[derive(Args)]
pub(super) struct Options {
    /// Folder on the local file system to measure in [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Files per process
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// MiB of the sequential file
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Random reads and writes
    #[arg(long, default_value_t = 10_000)]
    random: u64,
    /// Files in one directory before the memory of the processes is read
    #[arg(long, default_value_t = 50_000)]
    memory_files: u64,
    /// Also write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Outcome {
    setup::for_bench()?;
    shell::build_program(Profile::Release)?;
    let folder = options.dir.clone().unwrap_or_else(|| root().join("target/bench"));
    let folder = folder.join(std::process::id().to_string());
    let outcome = measure(options, &folder);
    // Only below the folder of this run; what remains does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn measure(options: &Options, folder: &std::path::Path) -> Outcome {
    let mut report = Report::new();
    let phases = phases(options);
    for kind in place::KINDS {
        let place = Place::open(*kind, &folder.join(kind.name()))?;
        for phase in &phases {
            eprintln!("{}: {}", kind.name(), phase.name());
            let before = place.cost()?;
            let seconds = phase.run(place.top())?;
            // What a phase leaves to be done later is its own, not the next one's.
            let spent = place.cost_at_rest()?.since(&before);
            let operations = phase.operations();
            report.add(Row {
                phase: phase.clone(),
                place: kind.name(),
                seconds,
                operations,
                spent,
            });
        }
        if let Some(processes) = place.processes()? {
            let many = Phase::new(Act::Create, 1, options.memory_files, 0, "many");
            many.run(place.top())?;
            report.memory(cost::resident(&processes)?, options.memory_files);
        }
        place.close()?;
    }
    println!("{}", report.markdown());
    match &options.json {
        None => Ok(()),
        Some(path) => std::fs::write(path, report.json()?)
            .map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// All that is measured, in order: each phase finds what the one before left.
fn phases(options: &Options) -> Vec<Phase> {
    let mut phases = Vec::new();
    for processes in [1, 2] {
        for bytes in [0, 4096] {
            let acts = [Act::Create, Act::Stat, Act::StatAgain, Act::Unlink];
            let folder = format!("files-{processes}-{bytes}");
            let phase = |act| Phase::new(act, processes, options.files, bytes, &folder);
            phases.extend(acts.map(phase));
        }
    }
    for act in [Act::Write, Act::Read, Act::ReadAgain] {
        phases.push(Phase::new(act, 1, options.mib, 1 << 20, "data"));
    }
    for act in [Act::ReadRandom, Act::WriteRandom] {
        phases.push(Phase::new(act, 1, options.random, 4096, "data"));
    }
    phases
}
