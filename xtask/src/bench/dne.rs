//! `cargo xtask bench dne`: what more MDTs are good for, in virtual time, as docs/bench/dne shows it.
//!
//! Two real cores cannot show what 16 servers do. The simulator can: there each request takes its MDT the same time.

mod cpu;
mod report;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::machine::commit;
use crate::shell::{self, Outcome, root};
use report::Report;

/// Who makes directories on other MDTs: each change waits for a group commit of its MDT, so that more ranks are needed to
/// keep MDTs busy.
const REMOTE_RANKS: u16 = 24;
/// How many each makes.
const REMOTE_ITEMS: u64 = 12;

/// How much to measure, and where to.
#[derive(Args)]
pub(super) struct Options {
    /// Numbers of MDTs, five at most
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
    mdts: Vec<u16>,
    /// Clients
    #[arg(long, default_value_t = 32)]
    clients: u16,
    /// Ranks of each client
    #[arg(long, default_value_t = 12)]
    ranks: u16,
    /// Files of each rank
    #[arg(long, default_value_t = 40)]
    items: u64,
    /// Microseconds that each request takes its MDT, one after the other
    #[arg(long, default_value_t = 50)]
    request_cost: u64,
    /// Microseconds that each message is on the way
    #[arg(long, default_value_t = 100)]
    network_delay: u64,
    /// Where plots, numbers and README go
    #[arg(long, value_name = "DIR", default_value = "docs/bench/dne")]
    out: PathBuf,
    /// Instead of all that: so many turns of creates in real time, on one MDT and on four, for what they cost the servers
    #[arg(long, value_name = "N")]
    cpu_turns: Option<u32>,
    /// Files of a turn
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "cpu_turns")]
    cpu_files: u64,
}

/// A phase with some MDTs, as the simulator prints it (`sheen_sim::scaling::Row`).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    mdts: u16,
    place: String,
    phase: String,
    rate: f64,
    rate_of_all: f64,
    requests: f64,
    kinds: std::collections::BTreeMap<String, f64>,
    unevenness: f64,
}

pub(super) fn run(options: &Options) -> Outcome {
    if let Some(turns) = options.cpu_turns {
        return cpu::run(turns, options.cpu_files, &root().join(&options.out), &commit());
    }
    if options.mdts.len() > sheen_bench::plot::COLORS.len() {
        return Err(format!("{} numbers of MDTs are too many for a plot", options.mdts.len()));
    }
    let simulator = shell::build_simulator()?;
    let mut rows = Vec::new();
    let files = ["--places", "unique,shared"].map(str::to_owned);
    let amount = |ranks: u16, items: u64| {
        ["--ranks".to_owned(), ranks.to_string(), "--items".to_owned(), items.to_string()]
    };
    let of_files = [&files[..], &amount(options.ranks, options.items)].concat();
    rows.extend(measure(&simulator, options, &options.mdts, &of_files)?);
    let remote = ["--places", "remote"].map(str::to_owned);
    let of_remote = [&remote[..], &amount(REMOTE_RANKS, REMOTE_ITEMS)].concat();
    // With one MDT no other one takes part.
    let several: Vec<u16> = options.mdts.iter().copied().filter(|mdts| *mdts > 1).collect();
    if !several.is_empty() {
        rows.extend(measure(&simulator, options, &several, &of_remote)?);
    }
    let report = Report { options, rows };
    println!("{}", report.tables());
    report.write(&root().join(&options.out), &commit())
}

/// Runs the simulator; its rows.
fn measure(
    simulator: &Path,
    options: &Options,
    mdts: &[u16],
    what: &[String],
) -> Result<Vec<Row>, String> {
    let mut command = shell::command(simulator);
    let mdts: Vec<String> = mdts.iter().map(u16::to_string).collect();
    command.args(["scaling", "--mdts", &mdts.join(",")]);
    command.args(["--clients", &options.clients.to_string()]);
    command.args(["--request-cost", &options.request_cost.to_string()]);
    command.args(["--network-delay", &options.network_delay.to_string()]);
    command.args(what).stdout(Stdio::piped());
    let shown = shell::show(&command);
    eprintln!("$ {shown}");
    let mut child = command.spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("{shown}: {error}"))?;
        let row: Row = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        eprintln!("{}, {} with {}: {:.0} a second", row.place, row.phase, row.mdts, row.rate);
        rows.push(row);
    }
    let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(rows) } else { Err(format!("{shown}: {status}")) }
}
