//! `cargo xtask bench layouts`: layouts beside each other, on a file system of its own.
//!
//! The machine may be busy with other things: so what is compared is measured in turns, several
//! rounds, and each number is a median of rounds, each ratio one of ratios within rounds. Counts of
//! requests and CPU time say more than seconds.

mod cluster;
mod isolation;
mod plot;
pub(super) mod sample;
mod shared;
mod small;
mod work;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::machine::{load, machine};
use crate::setup;
use crate::shell::{self, Outcome, Profile, root};
use cluster::Cluster;
pub(super) use work::Job;

/// Rounds of a run that counts, and of a quick one.
const ROUNDS: u32 = 3;
/// One file system with so many OSTs: fewer than the writers of a shared file.
const OSTS: &str = "2";

/// How much to measure, and where to.
#[derive(Args)]
pub(super) struct Options {
    /// Folder on the local file system to measure in [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// TCP port of the servers
    #[arg(long, default_value = "9931")]
    port: String,
    /// Less of everything: two minutes
    #[arg(long)]
    quick: bool,
    /// How often to measure everything
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_value = "small,shared,isolation")]
    parts: Vec<Part>,
    /// Also write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the plots into this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Small files on the MDT and on an OST
    Small,
    /// One file of several writers, with more and more stripes
    Shared,
    /// A stream beside a writer of small files
    Isolation,
}

/// How much one round does.
#[derive(Debug, Clone, Copy)]
struct Amount {
    rounds: u32,
    quick: bool,
}

pub(super) fn run(options: &Options) -> Outcome {
    setup::for_mount()?;
    shell::build_program(Profile::Release)?;
    let folder = options.dir.clone().unwrap_or_else(|| root().join("target/bench"));
    let folder = std::path::absolute(&folder).map_err(|error| error.to_string())?;
    let folder = folder.join(format!("layouts-{}", std::process::id()));
    let outcome = measure(options, &folder);
    // Only below the folder of this run; what remains does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn measure(options: &Options, folder: &Path) -> Outcome {
    let amount = Amount { rounds: options.rounds.max(1), quick: options.quick };
    let load_before = load();
    let mut cluster = Cluster::start(folder, &["--osts", OSTS, "--port", &options.port])?;
    let wanted = |part| options.parts.contains(&part);
    let small = wanted(Part::Small).then(|| small::measure(&cluster, amount)).transpose()?;
    if wanted(Part::Shared) || wanted(Part::Isolation) {
        cluster.mount_again()?;
    }
    let shared = wanted(Part::Shared).then(|| shared::measure(&cluster, amount)).transpose()?;
    let isolation =
        wanted(Part::Isolation).then(|| isolation::measure(&cluster, amount)).transpose()?;
    cluster.stop()?;
    let machine = format!(
        "{}. Load of the machine {load_before} before and {} at the end; medians of {} rounds.",
        machine(),
        load(),
        amount.rounds
    );
    println!("{machine}\n");
    let tables = [
        small.as_ref().map(|small| small.markdown()),
        shared.as_ref().map(|shared| shared.markdown()),
        isolation.as_ref().map(|isolation| isolation.markdown()),
    ];
    tables.into_iter().flatten().for_each(|table| println!("{table}"));
    if let Some(folder) = &options.plots {
        let folder = root().join(folder);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        small.as_ref().map_or(Ok(()), |small| small.plot(&folder))?;
        shared.as_ref().map_or(Ok(()), |shared| shared.plot(&folder))?;
        isolation.as_ref().map_or(Ok(()), |isolation| isolation.plot(&folder))?;
    }
    let Some(path) = &options.json else { return Ok(()) };
    let all = json!({
        "machine": machine, "small": small, "shared": shared, "isolation": isolation,
    });
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
