//! What is run on each target, and one run of it.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use sheen_types::Errno;

use super::target::ComparedFs;
use crate::backend::{Worker, remove_all};
use crate::meter::{Latencies, Meter, Series};
use crate::ranks::Ended;
use crate::text::failed;
use crate::{Rate, Surroundings, io500, ior, mdtest};

/// The benchmarks that can be compared.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true)]
enum Benchmark {
    Mdtest(Box<mdtest::Options>),
    Ior(Box<ior::Options>),
    Io500(Box<io500::Options>),
}

/// Options that say where, which the target does: their names in the parser and on the command line.
const PLACES: [(&str, &str); 9] = [
    ("directories", "-d"),
    ("file", "-o"),
    ("script", "-f"),
    ("datadir", "--datadir"),
    ("resultdir", "--resultdir"),
    ("timestamp", "--timestamp"),
    ("api", "-a"),
    ("source", "--native.source"),
    ("port", "--native.port"),
];

/// A benchmark's command line without the place.
pub(super) struct Workload {
    words: Vec<String>,
    /// Where IO500's results of a run go: they are read from memory, so no file is needed.
    results: String,
}

/// What one run reached.
pub(super) struct Reached {
    pub(super) rates: Vec<Rate>,
    pub(super) latencies: Latencies,
    pub(super) series: Vec<Series>,
}

impl Workload {
    /// # Errors
    /// A line: what of the benchmark's command line is wrong.
    pub(super) fn new(words: &[String]) -> Result<Self, String> {
        let matches = Benchmark::command().try_get_matches_from(words).map_err(line_of)?;
        let asked = matches.subcommand().map(|(_, matches)| matches);
        let given = |id: &str| {
            let source = asked.filter(|all| all.try_contains_id(id).is_ok());
            source.and_then(|all| all.value_source(id)) == Some(ValueSource::CommandLine)
        };
        match PLACES.iter().find(|(id, _)| given(id)) {
            Some((_, option)) => {
                Err(format!("option '{option}' says where to work, and so does --target"))
            }
            None => Ok(Self { words: words.to_vec(), results: results() }),
        }
    }

    /// The whole command line for a target.
    fn words(&self, target: &ComparedFs) -> Vec<String> {
        let folder = target.work_directory();
        let mut words = self.words.clone();
        words.extend(match words.first().map(String::as_str) {
            Some("mdtest") => vec!["-d".to_owned(), format!("{folder}/mdtest")],
            Some("ior") => vec!["-o".to_owned(), format!("{folder}/ior")],
            _ => vec![format!("--datadir={folder}"), format!("--resultdir={}", self.results)],
        });
        words.extend(target.words());
        words
    }

    fn parsed(&self, target: &ComparedFs) -> Result<Benchmark, String> {
        let matches = Benchmark::command().try_get_matches_from(self.words(target));
        let parsed = matches.and_then(|matches| Benchmark::from_arg_matches(&matches));
        parsed.map_err(line_of)
    }

    /// Whether the benchmark works there and nowhere else, as far as its options say.
    ///
    /// # Errors
    /// A line, if not.
    pub(super) fn check(&self, target: &ComparedFs) -> Result<(), String> {
        match self.parsed(target)? {
            Benchmark::Mdtest(options) => options.check(),
            Benchmark::Ior(options) => {
                options.check(target.api, &format!("{}/ior", target.work_directory()))
            }
            Benchmark::Io500(options) => options.check(),
        }
    }
}

/// The first line of what the parser says.
fn line_of(error: clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// A place that no other comparison uses.
fn results() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("sheen-compare-{}-{number}", std::process::id());
    std::env::temp_dir().join(name).display().to_string()
}

/// Prints to a terminal what runs now.
pub(super) fn print_running(round: usize, rounds: u32, target: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("round {round} of {rounds}: {target}");
    }
}

/// Runs it once, in a directory that is made for it and removed.
pub(super) fn once(
    workload: &Workload,
    target: &ComparedFs,
    surroundings: &Surroundings,
) -> Result<Reached, Ended> {
    let folder = target.work_directory();
    {
        let backend = target.backend(surroundings)?;
        let made = backend.worker(0, 1)?.mkdir(&folder);
        made.map_err(|errno| failed("create directory", &folder, errno))?;
    }
    let done = measure(workload, target, surroundings);
    let cleared = clear(target, surroundings, &folder, &workload.results);
    let reached = done?;
    cleared?;
    Ok(reached)
}

fn measure(
    workload: &Workload,
    target: &ComparedFs,
    surroundings: &Surroundings,
) -> Result<Reached, Ended> {
    let meter = Meter::default();
    let program = surroundings.words.first().map_or("sheen", String::as_str);
    // As another rank's process is started.
    let words: Vec<String> = [program.to_owned(), "bench".to_owned()]
        .into_iter()
        .chain(workload.words(target))
        .collect();
    let own = Surroundings {
        stop: surroundings.stop,
        native: surroundings.native,
        out: &|_| {},
        words: &words,
        meter: Some(&meter),
    };
    let (rates, wrong) = match workload.parsed(target)? {
        Benchmark::Mdtest(options) => {
            joined(mdtest::perform(&options, &own)?.into_iter().map(|one| (one.rates, one.wrong)))
        }
        Benchmark::Ior(options) => {
            joined(ior::perform(&options, &own)?.into_iter().map(|one| (one.rates, one.wrong)))
        }
        Benchmark::Io500(options) => (io500::perform(&options, &own)?, 0),
    };
    if wrong > 0 {
        return Err(Ended::Failed(format!("wrong data was read {wrong} times")));
    }
    let (latencies, series) = meter.into_parts();
    Ok(Reached { rates, latencies, series })
}

fn joined(outcomes: impl Iterator<Item = (Vec<Rate>, u64)>) -> (Vec<Rate>, u64) {
    outcomes.fold((Vec::new(), 0), |(mut all, sum), (rates, wrong)| {
        all.extend(rates);
        (all, sum + wrong)
    })
}

/// Removes what a run left, and has the target write what the next run would wait for.
fn clear(
    target: &ComparedFs,
    surroundings: &Surroundings,
    folder: &str,
    results: &str,
) -> Result<(), String> {
    match std::fs::remove_dir_all(results) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {results}: {error}"));
        }
        _ => {}
    }
    let backend = target.backend(surroundings)?;
    let mut worker: Box<dyn Worker> = backend.worker(0, 1)?;
    let cleared = remove_all(&mut *worker, folder);
    cleared.map_err(|errno: Errno| failed("remove", folder, errno))?;
    let top = if target.directory.is_empty() { "/" } else { &target.directory };
    worker.sync(top).map_err(|errno| failed("sync the file system of", top, errno))
}
