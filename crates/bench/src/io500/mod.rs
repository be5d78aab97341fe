//! IO500: mdtest, IOR, md-workbench and find in the order, with the patterns and under the rules of io500.
//!
//! Each phase is a command line of [`crate::mdtest`], [`crate::ior`] or [`crate::workbench`], the one that io500
//! gives to the originals, so a phase can be run by hand. The score is the root of the product of two geometric
//! means: of the phases' GiB/s, and of their kIOPS. The extended mode has more phases and a second score, with
//! those.

mod benchmarks;
#[cfg(test)]
mod beside;
mod config;
mod find;
mod ini;
mod phases;
mod score;
#[cfg(test)]
mod tests;
mod whole;

use std::fs;

use clap::Args;

use crate::backend::{Backend, Shared};
use crate::ranks::Ended;
use crate::text::timestamp;
use crate::{Api, Common, Rate, Surroundings, clock};
use config::Config;
use whole::Whole;

/// Options of io500 that are refused by name.
pub(crate) const REFUSED: &[&str] = &[
    "--verify",
    "--cleanup",
    "--dry-run",
    "--list",
    "--list-mandatory",
    "--verbose",
    "-l",
    "-lm",
    "-v",
];

/// Seconds of each stonewall with `--quick`.
const QUICK_STONEWALL: u32 = 10;
/// Which version of io500 the rules are of.
const LIKE: &str = "io500-isc26_v2-26-g02091cf";

/// Run the phases of IO500 in its order and under its rules, and compute its score
#[derive(Args, Clone, Debug)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Options {
    /// Ini file, as io500 reads it
    #[arg(value_name = "INI")]
    ini: Option<String>,
    /// Ranks, and the way to the file system
    #[command(flatten)]
    common: Common,
    /// Take about two minutes, with stonewalls of 10 seconds; not a valid run
    #[arg(long)]
    quick: bool,
    /// Seconds of each stonewall; a valid run needs 300
    #[arg(long, value_name = "SECONDS")]
    stonewall: Option<u32>,
    /// Directory for data, instead of the one in the ini file
    #[arg(long, value_name = "DIR")]
    datadir: Option<String>,
    /// Directory for results, instead of the one in the ini file
    #[arg(long, value_name = "DIR")]
    resultdir: Option<String>,
    /// Name of the subdirectories for data and results
    #[arg(long, value_name = "NAME")]
    timestamp: Option<String>,
    /// Phases to run: those of a standard run, or all
    #[arg(long, value_parser = ["standard", "extended"], default_value = "standard")]
    mode: String,
    /// Print the hash of the configuration and exit
    #[arg(long)]
    config_hash: bool,
    /// Write phases and score to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

impl Options {
    /// What the ini file says, and the command line instead; and the ini file.
    fn config(&self) -> Result<(Config, String), String> {
        let extended = self.mode == "extended";
        let (mut config, text) = match &self.ini {
            None => (Config::parse("", extended)?, String::new()),
            Some(path) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(|error| format!("cannot read {path}: {error}"))?;
                let config = Config::parse(&text, extended);
                (config.map_err(|line| format!("{path}: {line}"))?, text)
            }
        };
        if let Some(seconds) = self.stonewall.or(self.quick.then_some(QUICK_STONEWALL)) {
            config.stonewall = seconds;
            config.say("debug", "stonewall-time", &seconds.to_string());
        }
        if let Some(path) = &self.datadir {
            config.data.clone_from(path);
            config.say("global", "datadir", path);
        }
        if let Some(path) = &self.resultdir {
            config.results.clone_from(path);
            config.say("global", "resultdir", path);
        }
        if self.common.api == Api::Native {
            config.say("global", "api", "NATIVE");
        }
        Ok((config, text))
    }

    /// Whether the options and the ini file can be used.
    ///
    /// # Errors
    /// A line, if not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.config().map(drop)
    }
}

/// Runs IO500.
///
/// # Errors
/// What ended it. A run that is not valid is none.
pub(crate) fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    perform(options, surroundings).map(drop)
}

/// As [`run`]; answers what each phase and the whole reached.
pub(crate) fn perform(options: &Options, surroundings: &Surroundings) -> Result<Vec<Rate>, Ended> {
    let (config, original) = options.config()?;
    if options.config_hash {
        (surroundings.out)(&format!("{:<15} = {:X}\n", "config-hash", ini::hash(&config)));
        return Ok(Vec::new());
    }
    let name = options.timestamp.clone().unwrap_or_else(|| time_stamp(clock::wall()));
    let place = |given: &str, stamped: bool| {
        let place = given.trim_end_matches('/');
        if stamped { format!("{place}/{name}") } else { place.to_owned() }
    };
    let mut whole = Whole {
        data: place(&config.data, config.data_timestamp),
        results: place(&config.results, config.results_timestamp),
        config,
        made: Vec::new(),
        common: &options.common,
        name,
        newer: 0,
        surroundings,
        result: String::new(),
        summary: String::new(),
        is_valid: true,
        is_valid_extended: true,
        easy_rate: 0.0,
    };
    // A client stays from the first phase to the last, as a mount does.
    let backend = crate::backend(surroundings, whole.common, whole.api(), false)?;
    let backend = Shared(backend.into());
    let mut worker = backend.worker(0, 1)?;
    whole.prepare(&mut *worker, &original)?;
    let scores = whole.phases(&backend);
    whole.clear(&mut *worker);
    let scores = scores?;
    whole.finish(options, &scores)
}

/// `2026.03.19-17.42.44`.
fn time_stamp(seconds: i64) -> String {
    let text = timestamp(seconds);
    let (date, time) = text.split_once(' ').unwrap_or((&text, ""));
    let (month_day, year) = date.rsplit_once('/').unwrap_or((date, ""));
    format!("{year}.{}-{}", month_day.replace('/', "."), time.replace(':', "."))
}

/// `2026-03-19 17:42:44`.
fn time_text(seconds: i64) -> String {
    let text = timestamp(seconds);
    let (date, time) = text.split_once(' ').unwrap_or((&text, ""));
    let (month_day, year) = date.rsplit_once('/').unwrap_or((date, ""));
    format!("{year}-{} {time}", month_day.replace('/', "-"))
}

/// io500's way to make a number of a name: what data of a phase is stamped with.
fn stamp_of(phase: &str, name: &str) -> u32 {
    let hash = hash_of(phase, name);
    if matches!(hash, 0 | u32::MAX) { 4711 } else { hash }
}

/// io500's hash of a name and a value, whose bytes are C's, with a sign. Those of several are combined with XOR.
fn hash_of(name: &str, value: &str) -> u32 {
    let add =
        |hash: u32, byte: u8| hash.rotate_left(2).wrapping_add_signed(byte.cast_signed().into());
    name.bytes().chain(value.bytes()).fold(0, add)
}

fn version() -> String {
    format!("{LIKE}+sheen-{}", env!("CARGO_PKG_VERSION"))
}
