//! IO500: mdtest, IOR and find in the order, with the patterns and under the rules of io500.
//!
//! Each phase is a command line of [`crate::mdtest`] or [`crate::ior`], the one that io500 gives to the
//! originals, so a phase can be run by hand. The score is the root of the product of two geometric
//! means: of the phases' GiB/s, and of their kIOPS.

mod config;
mod find;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use clap::{Args, Parser};
use serde_json::json;
use sheen_types::Errno;

use crate::backend::{Backend, Shared, Worker, make_all, remove_all};
use crate::meter::Meter;
use crate::posix::Posix;
use crate::ranks::{self, Ended, Watch};
use crate::text::{failed, timestamp};
use crate::{Api, Common, Native, Rate, Surroundings, clock, ior, mdtest};
use config::Config;
use find::Find;

/// Options of io500 that are refused by name.
pub const REFUSED: &[&str] = &[
    "--verify",
    "--cleanup",
    "--dry-run",
    "--config-hash",
    "--list",
    "--list-mandatory",
    "-l",
    "-lm",
];

/// Seconds of each stonewall with `--quick`.
const QUICK_STONEWALL: u32 = 10;
/// Which version of io500 the rules are of.
const LIKE: &str = "io500-sc25";

/// Run the phases of IO500 in its order and under its rules, and compute its score
#[derive(Args, Clone, Debug)]
#[command(disable_version_flag = true, args_override_self = true)]
pub struct Options {
    /// Ini file, as io500 reads it
    #[arg(value_name = "INI")]
    ini: Option<String>,
    /// Ranks, and the way to the file system
    #[command(flatten)]
    common: Common,
    /// About two minutes: stonewalls of 10 seconds. No valid run
    #[arg(long)]
    quick: bool,
    /// Seconds of each stonewall; a valid run has 300
    #[arg(long, value_name = "SECONDS")]
    stonewall: Option<u32>,
    /// Where to work, whatever the ini file says
    #[arg(long, value_name = "DIR")]
    datadir: Option<String>,
    /// Where results go, whatever the ini file says
    #[arg(long, value_name = "DIR")]
    resultdir: Option<String>,
    /// Name of the directories for data and results
    #[arg(long, value_name = "NAME")]
    timestamp: Option<String>,
    /// Rules: only those of a standard run
    #[arg(long, value_parser = ["standard"], default_value = "standard")]
    mode: String,
    /// Write phases and score to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

impl Options {
    /// What the ini file says, and the command line instead.
    fn config(&self) -> Result<Config, String> {
        let mut config = match &self.ini {
            None => Config::default(),
            Some(path) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(|error| format!("cannot read {path}: {error}"))?;
                Config::parse(&text).map_err(|line| format!("{path}: {line}"))?
            }
        };
        if self.quick {
            config.stonewall = QUICK_STONEWALL;
        }
        config.stonewall = self.stonewall.unwrap_or(config.stonewall);
        Ok(config)
    }

    /// Whether the options and the ini file can be used.
    ///
    /// # Errors
    /// A line, if not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.config().map(drop)
    }
}

/// What a phase's score is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    None,
    /// GiB a second.
    Bandwidth,
    /// Thousands of operations a second.
    Metadata,
}

impl Group {
    fn unit(self) -> &'static str {
        if self == Self::Bandwidth { "GiB/s" } else { "kIOPS" }
    }
}

/// One phase.
struct Phase {
    name: &'static str,
    group: Group,
    /// Whether it must reach the stonewall.
    stonewall: bool,
}

impl Phase {
    /// What the benchmark calls that it is about.
    fn measured(&self) -> &'static str {
        let is_ior = self.name.starts_with("ior");
        match self.name.rsplit('-').next() {
            Some("write") if is_ior => "write",
            Some("read") if is_ior => "read",
            Some("write") => "File creation",
            Some("stat") => "File stat",
            Some("read") => "File read",
            _ => "File removal",
        }
    }
}

const fn phase(name: &'static str, group: Group, stonewall: bool) -> Phase {
    Phase { name, group, stonewall }
}

/// Directories below that of the data.
const PARTS: [&str; 4] = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"];

/// The phases of a standard run, in their order.
const PHASES: [Phase; 13] = [
    phase("ior-easy-write", Group::Bandwidth, true),
    phase("mdtest-easy-write", Group::Metadata, true),
    phase("timestamp", Group::None, false),
    phase("ior-hard-write", Group::Bandwidth, true),
    phase("mdtest-hard-write", Group::Metadata, true),
    phase("find", Group::Metadata, false),
    phase("ior-easy-read", Group::Bandwidth, false),
    phase("mdtest-easy-stat", Group::Metadata, false),
    phase("ior-hard-read", Group::Bandwidth, false),
    phase("mdtest-hard-stat", Group::Metadata, false),
    phase("mdtest-easy-delete", Group::Metadata, false),
    phase("mdtest-hard-read", Group::Metadata, false),
    phase("mdtest-hard-delete", Group::Metadata, false),
];

#[derive(Parser)]
struct MdtestLine {
    #[command(flatten)]
    options: mdtest::Options,
}

#[derive(Parser)]
struct IorLine {
    #[command(flatten)]
    options: ior::Options,
}

/// Runs IO500.
///
/// # Errors
/// What ended it. A run that is not valid is none.
pub fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    perform(options, surroundings).map(drop)
}

/// As [`run`]; answers what each phase and the whole reached.
pub(crate) fn perform(options: &Options, surroundings: &Surroundings) -> Result<Vec<Rate>, Ended> {
    let config = options.config()?;
    let name = options.timestamp.clone().unwrap_or_else(|| time_stamp(clock::wall()));
    let place = |asked: &Option<String>, told: &str, stamped: bool| {
        let place = asked.as_deref().unwrap_or(told).trim_end_matches('/');
        if stamped { format!("{place}/{name}") } else { place.to_owned() }
    };
    let mut whole = Whole {
        data: place(&options.datadir, &config.data, config.data_timestamp),
        results: place(&options.resultdir, &config.results, config.results_timestamp),
        config,
        common: &options.common,
        name,
        newer: 0,
        surroundings,
        result: String::new(),
        summary: String::new(),
        is_valid: true,
    };
    // A client stays from the first phase to the last, as a mount does.
    let backend = crate::backend(surroundings, whole.common, whole.api(), false)?;
    let backend = Shared(backend.into());
    let mut worker = backend.worker(0, 1)?;
    whole.prepare(&mut *worker)?;
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

/// io500's way to make a number of a name: what data of a phase is stamped with.
fn stamp_of(phase: &str, name: &str) -> u32 {
    let all = phase.bytes().chain(name.bytes());
    let hash = all.fold(0u32, |hash, byte| hash.rotate_left(2).wrapping_add(byte.into()));
    if matches!(hash, 0 | u32::MAX) { 4711 } else { hash }
}

/// One run.
struct Whole<'a> {
    config: Config,
    common: &'a Common,
    name: String,
    data: String,
    results: String,
    /// When the phase `timestamp` was, in seconds since 1970.
    newer: i64,
    surroundings: &'a Surroundings<'a>,
    /// What `result.txt` will be.
    result: String,
    /// What `result_summary.txt` will be.
    summary: String,
    is_valid: bool,
}

/// What a phase reached.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score {
    phase: usize,
    score: f64,
    seconds: f64,
    is_valid: bool,
}

impl Whole<'_> {
    fn ranks(&self) -> usize {
        self.common.ranks as usize
    }

    /// What the command line says, else what the ini file says.
    fn api(&self) -> Api {
        if self.common.api == Api::Native { Api::Native } else { self.config.api }
    }

    fn prepare(&mut self, worker: &mut dyn Worker) -> Result<(), Ended> {
        for part in PARTS {
            let path = format!("{}/{part}", self.data);
            match worker.stat(&path) {
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(Ended::Failed(failed("work in", &path, errno))),
                Ok(_) => {
                    let line = format!("{path} is there already: use another --datadir");
                    return Err(Ended::Failed(line));
                }
            }
        }
        let results = &self.results;
        let made = fs::create_dir_all(results);
        made.map_err(|error| format!("cannot create directory {results}: {error}"))?;
        for path in ["ior-easy", "ior-hard"].map(|part| format!("{}/{part}", self.data)) {
            let made = make_all(worker, &path);
            made.map_err(|errno| failed("create directory", &path, errno))?;
        }
        self.say(&format!("IO500 version {} (standard)", version()));
        let pairs = [
            ("procs", self.ranks().to_string()),
            ("version", version()),
            ("result-dir", self.results.clone()),
            ("mode", "standard".to_owned()),
        ];
        self.result += "[run]\n";
        pairs.iter().for_each(|(key, value)| self.pair(key, value));
        let (told, wanted) = (self.config.stonewall, self.config.seconds_min());
        if told != wanted {
            self.is_valid = false;
            self.invalid(&format!("stonewall-time {told}s != {wanted}s"));
        }
        Ok(())
    }

    /// A line of the summary, and to the user.
    fn say(&mut self, line: &str) {
        (self.surroundings.out)(&format!("{line}\n"));
        self.summary += &format!("{line}\n");
    }

    fn pair(&mut self, key: &str, value: &str) {
        self.result += &format!("{key:<15} = {value}\n");
    }

    fn invalid(&mut self, what: &str) {
        (self.surroundings.out)(&format!("ERROR INVALID {what}\n"));
        self.result += &format!("; ERROR INVALID {what}\n");
    }

    fn phases(&mut self, backend: &Shared) -> Result<Vec<Score>, Ended> {
        let mut scores = Vec::new();
        for (number, phase) in PHASES.iter().enumerate() {
            self.drop_caches(phase)?;
            self.result += &format!("\n[{}]\n", phase.name);
            if self.config.verbosity > 0 {
                let now = time_stamp(clock::wall());
                self.pair("t_start", &now);
            }
            let begin = clock::now();
            let mut is_valid = true;
            let score = self.phase(phase, backend, &mut is_valid)?;
            let seconds = clock::now() - begin;
            self.judge(phase, score, seconds, &mut is_valid);
            if phase.group != Group::None {
                self.pair("score", &format!("{score:.6}"));
            }
            self.say(&told(phase, score, seconds, is_valid));
            self.is_valid &= is_valid;
            scores.push(Score { phase: number, score, seconds, is_valid });
        }
        Ok(scores)
    }

    /// The rules that every phase is under.
    fn judge(&mut self, phase: &Phase, score: f64, seconds: f64, is_valid: &mut bool) {
        let (stonewall, least) = (self.config.stonewall, self.config.seconds_min());
        let mut faults = Vec::new();
        if phase.stonewall && seconds < f64::from(stonewall) {
            let what = format!(
                "Runtime of phase ({seconds:.6}) is below stonewall time. This shouldn't happen!"
            );
            faults.push(what);
        } else if score == 0.0 && phase.group != Group::None {
            faults.push("Resulting score shouldn't be 0.0".to_owned());
        }
        if phase.stonewall && seconds < f64::from(least) {
            faults.push("Runtime is smaller than expected minimum runtime".to_owned());
        }
        for fault in &faults {
            self.invalid(fault);
            *is_valid = false;
        }
    }

    fn drop_caches(&mut self, phase: &Phase) -> Result<(), Ended> {
        let Some(command) = self.config.drop_caches.as_ref().filter(|_| phase.group != Group::None)
        else {
            return Ok(());
        };
        let done = Command::new("sh").args(["-c", command]).status();
        match done {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Ended::Failed(format!("drop-caches-cmd: {status}"))),
            Err(error) => Err(Ended::Failed(format!("drop-caches-cmd: {error}"))),
        }
    }

    fn phase(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        if !self.config.runs(phase.name) {
            return Ok(0.0);
        }
        match phase.name {
            "timestamp" => self.timestamp().map(|()| 0.0),
            "find" => self.find(backend, is_valid),
            name if name.starts_with("ior") => self.ior(phase, backend, is_valid),
            _ => self.mdtest(phase, backend, is_valid),
        }
    }

    fn timestamp(&mut self) -> Result<(), Ended> {
        let path = format!("{}/timestampfile", self.results);
        fs::write(&path, "").map_err(|error| format!("cannot write {path}: {error}"))?;
        let mut worker = Posix::default().worker(0, 1)?;
        let stat = worker.stat(&path).map_err(|errno| failed("stat", &path, errno))?;
        self.newer = stat.modified.0;
        Ok(())
    }

    fn find(&mut self, backend: &Shared, is_valid: &mut bool) -> Result<f64, Ended> {
        let searchers = match self.config.searchers {
            0 => self.ranks(),
            asked => asked.min(self.ranks()),
        };
        let (data, results) = (&self.data, &self.results);
        let words =
            format!("pfind {data} -newer {results}/timestampfile -size 3901c -name *01* -C");
        self.pair("exe", &words);
        self.pair("nproc", &searchers.to_string());
        let find = Find::new(self.data.clone(), searchers, self.newer);
        let found = ranks::threads(
            self.ranks(),
            backend,
            Watch { stop: self.surroundings.stop, meter: None },
            &find,
        )?;
        self.pair("found", &found.matches.to_string());
        self.pair("total-files", &found.total.to_string());
        if found.matches == 0 {
            self.invalid("Find didn't find anything, this is likely invalid.");
            *is_valid = false;
        }
        Ok(found.total as f64 / found.seconds / 1000.0)
    }

    /// The command line of an IOR phase, as io500 gives it.
    fn ior_words(&self, name: &str) -> String {
        let (config, data, results) = (&self.config, &self.data, &self.results);
        let easy = name.starts_with("ior-easy");
        let part = if easy { "ior-easy" } else { "ior-hard" };
        let mut words = format!(
            "ior --dataPacketType={} -C -Q 1 -g -G {} -k -e -O stoneWallingStatusFile={results}/{part}.stonewall",
            config.packet,
            stamp_of(part, &self.name),
        );
        // Writing to a string cannot fail.
        let _ = match easy {
            true => write!(
                words,
                " -o {data}/ior-easy/ior_file_easy -t {} -b {}{}{}",
                config.easy_transfer,
                config.easy_block,
                if config.easy_unique { " -u" } else { "" },
                if config.easy_file_per_rank { " -F" } else { "" },
            ),
            false => write!(
                words,
                " -o {data}/ior-hard/file -t 47008 -b 47008 -s {}{}",
                config.hard_segments,
                if config.hard_collective { " -c" } else { "" },
            ),
        };
        words += &match name.ends_with("-write") {
            true => format!(" -w -D {} -O stoneWallingWearOut=1", config.stonewall),
            false => " -r -R".to_owned(),
        };
        words + if config.direct { " --posix.odirect" } else { "" }
    }

    /// The words about ranks and the way to the file system.
    fn common_words(&self) -> String {
        let mut words = " -a POSIX".to_owned();
        if self.api() == Api::Native {
            let Native { source, port, clients } = &self.common.native;
            words = format!(" -a NATIVE --native.clients {clients}");
            let options = [("source", source.clone()), ("port", port.map(|port| port.to_string()))];
            for (name, value) in options {
                words += &value.map_or(String::new(), |value| format!(" --native.{name} {value}"));
            }
        }
        if self.common.processes {
            words += " --processes";
        }
        words + &format!(" --ranks {}", self.ranks())
    }

    fn ior(&mut self, phase: &Phase, backend: &Shared, is_valid: &mut bool) -> Result<f64, Ended> {
        let words = self.ior_words(phase.name) + &self.common_words();
        self.pair("exe", &words);
        let line = IorLine::try_parse_from(words.split(' '));
        let options = line.map_err(|error| format!("{}: {error}", phase.name))?.options;
        let outcomes = self.captured(phase, backend, &words, |surroundings| {
            ior::perform(&options, surroundings)
        })?;
        let outcome = outcomes.first().ok_or_else(|| format!("{}: no result", phase.name))?;
        let point = outcome.point;
        if outcome.wrong > 0 {
            let what = format!(
                "Errors ({}) occured during phase in IOR. This invalidates your run.",
                outcome.wrong
            );
            self.invalid(&what);
            *is_valid = false;
        }
        if phase.stonewall {
            let stonewall = self.config.stonewall;
            if point.time < f64::from(stonewall) {
                let what = format!(
                    "Write phase needed {:.6}s instead of stonewall {stonewall}s. Stonewall was hit at {:.1}s",
                    point.time, point.stonewall_time,
                );
                self.invalid(&what);
                *is_valid = false;
            }
            let rate = (point.stonewall_mean * self.ranks() as u64) as f64 / point.stonewall_time;
            self.pair("throughput-stonewall", &format!("{:.2}", rate / GIB));
        }
        Ok(point.moved as f64 / point.time / GIB)
    }

    /// The command line of an mdtest phase, as io500 gives it.
    fn mdtest_words(&self, name: &str) -> String {
        let (config, data, results) = (&self.config, &self.data, &self.results);
        let easy = name.starts_with("mdtest-easy");
        let part = if easy { "mdtest-easy" } else { "mdtest-hard" };
        let shape = match easy {
            true => format!("-n {} -u -L", config.easy_files),
            false => format!("-n {} -t -w 3901 -e 3901", config.hard_files),
        };
        let what = match &name[part.len()..] {
            "-write" => format!("-C -Y -W {}", config.stonewall),
            "-stat" => "-T".to_owned(),
            "-read" => "-E -X".to_owned(),
            _ => "-r".to_owned(),
        };
        let stamp = stamp_of(part, &self.name);
        format!(
            "mdtest --dataPacketType={} {shape} -F -P -G {stamp} -N 1 -d {data}/{part} -x \
             {results}/{part}.stonewall {what}",
            config.packet,
        )
    }

    fn mdtest(
        &mut self,
        phase: &Phase,
        backend: &Shared,
        is_valid: &mut bool,
    ) -> Result<f64, Ended> {
        let words = self.mdtest_words(phase.name) + &self.common_words();
        self.pair("exe", &words);
        let line = MdtestLine::try_parse_from(words.split(' '));
        let options = line.map_err(|error| format!("{}: {error}", phase.name))?.options;
        let outcomes = self.captured(phase, backend, &words, |surroundings| {
            mdtest::perform(&options, surroundings)
        })?;
        let outcome = outcomes.first().ok_or_else(|| format!("{}: no result", phase.name))?;
        if outcome.wrong > 0 {
            self.invalid(&format!("{} files had wrong data", outcome.wrong));
            *is_valid = false;
        }
        if phase.stonewall {
            let rate = outcome.until_stonewall() / 1000.0;
            self.pair("rate-stonewall", &format!("{rate:.6}"));
        }
        Ok(outcome.of(phase.measured()).0 / 1000.0)
    }

    /// Runs a benchmark with its output in the phase's file.
    fn captured<T>(
        &self,
        phase: &Phase,
        backend: &Shared,
        words: &str,
        benchmark: impl FnOnce(&Surroundings) -> Result<T, Ended>,
    ) -> Result<T, Ended> {
        let (output, meter) = (parking_lot::Mutex::new(String::new()), Meter::default());
        let out = |text: &str| output.lock().push_str(text);
        let program = self.surroundings.words.first().map_or("sheen", String::as_str);
        // As another rank's process is started.
        let words: Vec<String> =
            [program, "bench"].into_iter().chain(words.split(' ')).map(str::to_owned).collect();
        let own = Surroundings {
            stop: self.surroundings.stop,
            native: &|_, _| Ok(Box::new(backend.clone())),
            out: &out,
            words: &words,
            meter: self.surroundings.meter.map(|_| &meter),
        };
        let done = benchmark(&own)?;
        if let Some(all) = self.surroundings.meter {
            all.adopt(&meter, phase.measured(), phase.name);
        }
        let path = format!("{}/{}.txt", self.results, phase.name);
        let written = fs::write(&path, output.into_inner());
        written.map_err(|error| format!("cannot write {path}: {error}"))?;
        Ok(done)
    }

    /// Removes what was made; results stay.
    fn clear(&self, worker: &mut dyn Worker) {
        for part in PARTS {
            let path = format!("{}/{part}", self.data);
            if let Err(errno) = remove_all(worker, &path) {
                eprintln!("{}", failed("remove", &path, errno));
            }
        }
        match worker.rmdir(&self.data) {
            // With something of others in it, it stays.
            Ok(()) | Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT | Errno::EBUSY) => {}
            Err(errno) => eprintln!("{}", failed("remove", &self.data, errno)),
        }
    }

    fn finish(&mut self, options: &Options, scores: &[Score]) -> Result<Vec<Rate>, Ended> {
        let bandwidth = mean_of(scores, Group::Bandwidth);
        let metadata = mean_of(scores, Group::Metadata);
        let total = (bandwidth * metadata).sqrt();
        let valid = if self.is_valid { "" } else { " [INVALID]" };
        self.result += "\n[SCORE]\n";
        self.pair("MD", &format!("{metadata:.6}"));
        self.pair("BW", &format!("{bandwidth:.6}"));
        self.pair("SCORE", &format!("{total:.6}{valid}"));
        self.say(&format!(
            "[SCORE ] Bandwidth {bandwidth:.6} GiB/s : IOPS {metadata:.6} kiops : TOTAL {total:.6}{valid}"
        ));
        let results = self.results.clone();
        let mut files = vec![
            (format!("{results}/result.txt"), self.result.clone()),
            (format!("{results}/result_summary.txt"), self.summary.clone()),
        ];
        if let Some(path) = &options.json {
            let one = |score: &Score| {
                let Phase { name, group, .. } = &PHASES[score.phase];
                json!({"name": name, "score": score.score, "unit": group.unit(),
                       "seconds": score.seconds, "valid": score.is_valid})
            };
            let phases: Vec<_> = scores.iter().map(one).collect();
            let whole = json!({"benchmark": "io500", "version": version(), "ranks": self.ranks(),
                "stonewall": self.config.stonewall, "phases": phases, "bandwidth": bandwidth,
                "metadata": metadata, "score": total, "valid": self.is_valid});
            files.push((path.clone(), format!("{whole:#}\n")));
        }
        for (path, text) in files {
            fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        }
        let line = format!("\nThe result files are stored in the directory: {results}\n");
        (self.surroundings.out)(&line);
        let rate = |name: &str, unit, value| Rate { name: name.to_owned(), unit, value };
        let phases = scores.iter().filter(|score| PHASES[score.phase].group != Group::None);
        let phases = phases.map(|score| {
            let phase = &PHASES[score.phase];
            rate(phase.name, phase.group.unit(), score.score)
        });
        let sums = [
            rate("Bandwidth", Group::Bandwidth.unit(), bandwidth),
            rate("IOPS", Group::Metadata.unit(), metadata),
            rate("TOTAL", "score", total),
        ];
        Ok(phases.chain(sums).collect())
    }
}

const GIB: f64 = 1_073_741_824.0;

fn version() -> String {
    format!("{LIKE}+sheen-{}", env!("CARGO_PKG_VERSION"))
}

/// The line of a phase in the summary.
fn told(phase: &Phase, score: f64, seconds: f64, is_valid: bool) -> String {
    let head = if phase.group == Group::None { "[      ]" } else { "[RESULT]" };
    let unit = phase.group.unit();
    let (name, score) = (phase.name, format!("{score:.6}"));
    let valid = if is_valid { "" } else { " [INVALID]" };
    format!("{head} {name:>20} {score:>15} {unit} : time {seconds:.3} seconds{valid}")
}

/// The geometric mean of a group's scores; those of 0 do not count, as in io500.
fn mean_of(scores: &[Score], group: Group) -> f64 {
    let of = scores.iter().filter(|score| PHASES[score.phase].group == group);
    let counted: Vec<f64> = of.map(|score| score.score).filter(|score| *score > 0.0).collect();
    match counted.len() {
        0 => 0.0,
        count => counted.iter().product::<f64>().powf(1.0 / count as f64),
    }
}
