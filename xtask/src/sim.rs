//! `cargo xtask sim`: whole clusters in one process and in virtual time, from seeds.
#![allow(clippy::disallowed_methods, reason = "the clock gives a seed")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::shell::{self, Outcome};

/// Seeds that the tests run, and with `--long`, and how many virtual minutes each has: more file systems show more than
/// longer lives of fewer.
const SEEDS: [u64; 2] = [1000, 4000];
const MINUTES: [u64; 2] = [4, 10];
/// Seeds that are run twice, to see that they go the same way.
const TWICE: u64 = 12;
/// How many seeds have so many MDTs; half of them move directories, too.
const SEVERAL_MDTS: [(u16, u64); 3] = [(2, 280), (3, 240), (4, 180)];
/// Virtual minutes of each of these: the last faults begin 150 s before the end, the first ones 15 to 75 s after the start.
const SEVERAL_MINUTES: u64 = 4;
/// How many times as many seeds with several MDTs there are, and with `--long`.
const SEVERAL_TIMES: [u64; 2] = [1, 4];
/// How long they may take in all, and with `--long`.
const SECONDS: [u64; 2] = [900, 1200];
/// Operations that the reference model is compared over, and with `--long`; `unit` does fewer. Sequences
/// have lengths of their own, so that some are left: 100,000 are wanted.
const MODEL_OPERATIONS: [u64; 2] = [110_000, 400_000];

/// Which seeds.
#[derive(Args)]
pub(crate) struct Options {
    /// The first seed; 0, or any for the model
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Virtual minutes of work of each
    #[arg(long, default_value_t = MINUTES[1])]
    minutes: u64,
    /// Let nothing fail
    #[arg(long)]
    calm: bool,
    /// Which faults there are beside those that all seeds have: damage, hostile, restored, stops, or none
    #[arg(long, value_name = "FAULTS")]
    with: Option<String>,
    /// MDTs of the file system; seeds with several go other ways than those with one
    #[arg(long, default_value_t = 1)]
    mdts: u16,
    /// Run each seed twice, and fail where it does not go the same way
    #[arg(long)]
    twice: bool,
    /// Instead: hold two clients to a file system in memory, over about so many operations
    #[arg(long, value_name = "OPERATIONS", conflicts_with_all = ["count", "twice"])]
    model: Option<u64>,
    /// Show every operation and fault; `RUST_LOG` shows what the nodes log
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(options: &Options) -> Outcome {
    if let Some(operations) = options.model {
        let mut command = built()?;
        command.arg("--model").arg(operations.to_string());
        if let Some(seed) = options.seed {
            // One job, as the replay of a failure needs it.
            command.args(["--jobs", "1", "--seed", &seed.to_string()]);
        }
        return shell::run(command);
    }
    let mut command = program(options.seed.unwrap_or(0), options.count, options.minutes)?;
    if options.calm {
        command.arg("--calm");
    }
    if let Some(with) = &options.with {
        command.args(["--with", with]);
    }
    command.args(["--mdts", &options.mdts.to_string()]);
    if options.twice {
        command.arg("--twice");
    }
    if options.verbose {
        command.arg("--verbose");
    }
    shell::run(command)
}

/// Seeds that show faults which docs/CONFORMANCE.md names and that are not mended yet.
const KNOWN: &[u64] = &[];
/// The same of seeds with several MDTs, by their number of MDTs; those that move directories.
const KNOWN_SEVERAL: &[(u16, u64)] = &[(3, 127)];

/// As many seeds as fit; what was reached is printed.
pub(crate) fn test(long: bool) -> Outcome {
    let (seeds, minutes) = (SEEDS[usize::from(long)], MINUTES[usize::from(long)]);
    let mut twice = program(0, TWICE, minutes)?;
    twice.arg("--twice");
    run_naming(twice)?;
    several_mdts(long)?;
    let mut command = program(0, seeds, minutes)?;
    command.args(["--within", &SECONDS[usize::from(long)].to_string()]);
    for seed in KNOWN {
        command.args(["--known", &seed.to_string()]);
    }
    run_naming(command)?;
    // One that no run had before, beside those that all have; the model's are random by themselves.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = since.as_micros() as u64;
    println!("a random seed: cargo xtask sim --seed {seed} --minutes {minutes}");
    run_naming(program(seed, 1, minutes)?)
}

/// Seeds with two MDTs and more.
fn several_mdts(long: bool) -> Outcome {
    for (mdts, seeds) in SEVERAL_MDTS {
        let count = seeds * SEVERAL_TIMES[usize::from(long)] / 2;
        let known = KNOWN_SEVERAL.iter().filter(|(of, _)| *of == mdts);
        let known: Vec<_> = known.map(|(_, seed)| seed.to_string()).collect();
        let mdts = mdts.to_string();
        for (first, moves) in [(0, &[][..]), (count, &["--moves"])] {
            let mut command = program(first, count, SEVERAL_MINUTES)?;
            command.args(["--mdts", &mdts]).args(moves);
            for seed in known.iter().filter(|_| !moves.is_empty()) {
                command.args(["--known", seed]);
            }
            run_naming(command)?;
        }
    }
    Ok(())
}

/// Runs the simulator and shows its output; an error names the seeds that failed, for the end of a run.
fn run_naming(mut command: Command) -> Outcome {
    let shown = shell::show(&command);
    eprintln!("$ {shown}");
    command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut failed = Vec::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("{shown}: {error}"))?;
        let line = String::from_utf8_lossy(&line).into_owned();
        // Our own output is closed: then no reader misses the line.
        let _ = writeln!(std::io::stdout(), "{line}");
        failed.extend(failed_seed(&line).map(str::to_owned));
    }
    let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    match (status.success(), failed.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("{shown}: {status}")),
        (false, false) => Err(format!("seeds {} failed", failed.join(", "))),
    }
}

/// The seed in a line that says that it failed.
fn failed_seed(line: &str) -> Option<&str> {
    let (seed, _) = line.strip_prefix("seed ")?.split_once(" failed;")?;
    seed.bytes().all(|digit| digit.is_ascii_digit()).then_some(seed)
}

/// A whole cluster in one process against a file system in memory.
pub(crate) fn model(long: bool) -> Outcome {
    let mut command = built()?;
    command.arg("--model").arg(MODEL_OPERATIONS[usize::from(long)].to_string());
    shell::run(command)
}

/// The simulator, for some seeds.
fn program(seed: u64, count: u64, minutes: u64) -> Result<Command, String> {
    let mut command = built()?;
    for (name, value) in [("--seed", seed), ("--count", count), ("--minutes", minutes)] {
        command.arg(name).arg(value.to_string());
    }
    Ok(command)
}

fn built() -> Result<Command, String> {
    shell::build_simulator().map(shell::command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_failed_is_read_from_its_line() {
        let line = "seed 717 failed; replay: cargo xtask sim --seed 717";
        assert_eq!(failed_seed(line), Some("717"));
        assert_eq!(failed_seed("seed 717 failed, as is known; replay: cargo"), None);
        assert_eq!(
            failed_seed("1000 of 1000 seeds of 10 virtual minutes, in 299.0 s: 1 failed"),
            None
        );
    }
}
