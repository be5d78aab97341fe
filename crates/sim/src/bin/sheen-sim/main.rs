//! Runs seeds, some at a time, and says what went wrong with which; or holds clients to the reference
//! model. One program, because what links all of the product whole takes minutes.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand, ValueEnum};
use sheen_model::Home;
use sheen_sim::{Extras, Failure, Options, Report, run};

mod scaling;

/// A whole cluster in one process and in virtual time, from a seed
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// The first seed; 0, or any for the model
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Virtual minutes of work of each
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// How many run at once
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Begin no seed after so many seconds
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Seeds that fail by faults that are known and not mended: they are run and shown, and do not count
    #[arg(long, value_name = "SEEDS", value_delimiter = ',')]
    known: Vec<u64>,
    /// Let nothing fail
    #[arg(long)]
    calm: bool,
    /// Which faults there are beside those that all seeds have, instead of what each seed says (one in four
    /// has each): any of damage, hostile, restored and stops, or none
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    with: Vec<Extra>,
    /// Move files to other layouts, too
    #[arg(long)]
    moves: bool,
    /// MDTs of the file system
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4))]
    mdts: u16,
    /// Run each seed twice, and fail where it does not go the same way
    #[arg(long)]
    twice: bool,
    /// Instead: hold two clients to a file system in memory, over about so many operations
    #[arg(long, value_name = "OPERATIONS", conflicts_with_all = ["count", "within", "twice"])]
    model: Option<u64>,
    /// Show every operation and fault; `RUST_LOG` shows what the nodes log
    #[arg(short, long)]
    verbose: bool,
}

/// What to do instead of seeds.
#[derive(Subcommand)]
enum Instead {
    /// Rates of metadata operations with more and more MDTs, where each request costs an MDT the same time
    Scaling(scaling::Arguments),
}

/// What `--with` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Extra {
    /// No other faults
    None,
    /// Data is lost, cut or changed on disks
    Damage,
    /// A node sends whatever a hostile client could
    Hostile,
    /// An OST comes back with an older copy of its store, or after a long time
    Restored,
    /// Servers are stopped in order while they recover
    Stops,
}

fn extras(chosen: &[Extra]) -> Option<Extras> {
    let has = |extra| chosen.contains(&extra);
    (!chosen.is_empty()).then(|| Extras {
        damage: has(Extra::Damage),
        hostile: has(Extra::Hostile),
        restored: has(Extra::Restored),
        stops: has(Extra::Stops),
    })
}

fn replay_with(chosen: &[Extra]) -> String {
    let names = chosen.iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
    if names.is_empty() { String::new() } else { format!(" --with {}", names.join(",")) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
    }
    if let Some(Instead::Scaling(arguments)) = &arguments.instead {
        return scaling::run(arguments);
    }
    match arguments.model {
        Some(operations) => hold_to_model(&arguments, operations),
        None => simulate(&arguments),
    }
}

/// Each job does its part with a seed of its own.
#[expect(clippy::disallowed_methods, reason = "shows how long it takes")]
fn hold_to_model(arguments: &Arguments, operations: u64) -> ExitCode {
    let begun = Instant::now();
    let first = arguments.seed.unwrap_or_else(|| RandomState::new().hash_one("model") >> 32);
    let jobs = arguments.jobs.max(1);
    let part = operations.div_ceil(jobs);
    let run = move |seed: u64| {
        let home = [Home::Osts, Home::Mdt, Home::Stripes][(seed % 3) as usize];
        let outcome = sheen_model::run_many(seed, home, part);
        if let Err(failure) = &outcome {
            println!("{failure}\nreplay: cargo xtask sim --model {part} --seed {seed}\n");
        }
        outcome
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..jobs).map(|job| scope.spawn(move || run(first.wrapping_add(job)))).collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let done: usize = outcomes.iter().flatten().flatten().sum();
    let failed = outcomes.iter().filter(|outcome| !matches!(outcome, Ok(Ok(_)))).count();
    println!(
        "{done} operations as the model has them, from seed {first} on, in {:.1} s: {failed} failed",
        begun.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "shows how long seeds take")]
fn simulate(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let (done, failed, operations) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let late = arguments.within.is_some_and(|it| begun.elapsed().as_secs() >= it);
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if late || number >= arguments.count {
                        return;
                    }
                    let seed = arguments.seed.unwrap_or(0) + number;
                    let options = Options {
                        seed,
                        minutes: arguments.minutes,
                        faults: !arguments.calm,
                        mdts: arguments.mdts,
                        extras: extras(&arguments.with),
                        moves: arguments.moves,
                        verbose: arguments.verbose,
                    };
                    let mut outcome = run(options);
                    if arguments.twice {
                        outcome = same_again(options, outcome);
                    }
                    match outcome {
                        Ok(report) => {
                            if arguments.verbose {
                                println!("seed {seed}: trace {:016x}", report.trace);
                            }
                            operations.fetch_add(report.operations, Ordering::Relaxed);
                            if arguments.known.contains(&seed) {
                                println!("seed {seed} is a known failure, and passes now\n");
                            }
                        }
                        Err(failure) => {
                            operations.fetch_add(failure.operations, Ordering::Relaxed);
                            let is_known = arguments.known.contains(&seed);
                            failed.fetch_add(u64::from(!is_known), Ordering::Relaxed);
                            let moves = if arguments.moves { " --moves" } else { "" };
                            let with = replay_with(&arguments.with);
                            let mdts = match arguments.mdts {
                                1 => String::new(),
                                mdts => format!(" --mdts {mdts}"),
                            };
                            let known = if is_known { ", as is known" } else { "" };
                            println!("{failure}\nseed {seed} failed{known}; replay: cargo xtask sim --seed {seed}{mdts}{moves}{with}\n");
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (done, failed) = (done.into_inner(), failed.into_inner());
    println!(
        "{done} of {} seeds of {} virtual minutes, {} operations, in {:.1} s: {failed} failed",
        arguments.count,
        arguments.minutes,
        operations.into_inner(),
        begun.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a seed once more, and says so when it ends otherwise than before.
fn same_again(
    options: Options,
    first: Result<Report, Box<Failure>>,
) -> Result<Report, Box<Failure>> {
    let again = run(Options { verbose: false, ..options });
    if first == again {
        return first;
    }
    let text = format!("two ways of one seed: {first:?}, and {again:?}");
    Err(Box::new(Failure { text, log: Vec::new(), operations: 0 }))
}
