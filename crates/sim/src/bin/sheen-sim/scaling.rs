//! `sheen-sim scaling`: rates with more and more MDTs, one JSON object a line.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sheen_sim::scaling::{self, Options, Place};

/// What to measure.
#[derive(Args)]
pub(super) struct Arguments {
    /// Numbers of MDTs
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u16).range(1..=32))]
    mdts: Vec<u16>,
    /// Where ranks work
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unique,shared,remote")]
    places: Vec<ChosenPlace>,
    /// Clients
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=500))]
    clients: u16,
    /// Ranks of each client
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=100))]
    ranks: u16,
    /// Files, or directories, of each rank
    #[arg(long, default_value_t = 40)]
    items: u64,
    /// Microseconds that each request takes its MDT, one after the other
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    request_cost: u64,
    /// Microseconds that each message is on the way
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    network_delay: u64,
    /// Decides the order of what happens at once
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// What `--places` takes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ChosenPlace {
    /// Each in a directory of its own, which lie on the MDTs in turn
    Unique,
    /// All in one directory with a stripe on each MDT
    Shared,
    /// Each makes directories in one of its own, on the MDT behind that of their parent
    Remote,
}

/// Measures, and prints each row as soon as it is known.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    for place in &arguments.places {
        for mdts in &arguments.mdts {
            let options = Options {
                seed: arguments.seed,
                mdts: *mdts,
                clients: arguments.clients,
                ranks: arguments.ranks,
                items: arguments.items,
                request_cost: Duration::from_micros(arguments.request_cost),
                network_delay: Duration::from_micros(arguments.network_delay),
                place: match place {
                    ChosenPlace::Unique => Place::Unique,
                    ChosenPlace::Shared => Place::Shared,
                    ChosenPlace::Remote => Place::Remote,
                },
            };
            let rows = match scaling::run(options) {
                Ok(rows) => rows,
                Err(text) => {
                    eprintln!("{place:?} with {mdts} MDTs: {text}");
                    return ExitCode::FAILURE;
                }
            };
            for row in rows {
                match serde_json::to_string(&row) {
                    Ok(line) => println!("{line}"),
                    Err(error) => {
                        eprintln!("{error}");
                        return ExitCode::FAILURE;
                    }
                }
            }
        }
    }
    ExitCode::SUCCESS
}
