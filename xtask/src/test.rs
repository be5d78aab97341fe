//! `cargo xtask test`: everything that must hold, in the order in which it is cheapest to know.
#![allow(clippy::disallowed_methods, reason = "the summary shows how long each step took")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

use crate::executables::{self, Executable, Finished};
use crate::faults::Faults;
use crate::halved::Halved;
use crate::shell::{self, Outcome, Profile, cargo, program};
use crate::{again, beneath, demo, dist, setup, sim, tidy};

/// What to run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Full sizes: 10,000 transactions per database, a 4 GiB file, more rounds and more kills; and new inputs
    /// for property tests, which are the same each time otherwise
    #[arg(long)]
    long: bool,
    /// One step (tidy, build, unit, golden, hostile, sim, e2e, model, suites, demo, dist), or the tests whose
    /// name holds this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// The tests so often, built once; each round is a line of `target/repeats/NAME.tsv`
    #[arg(long, value_name = "ROUNDS", requires = "only")]
    repeat: Option<u32>,
    /// The tests with half of the machine's processor time, by a control group; refused where that cannot be
    #[arg(long)]
    halved: bool,
    /// One step after the other, instead of what computes beneath the end-to-end tests, which wait
    #[arg(long)]
    apart: bool,
    /// Fail if a test is skipped because something that it needs is not here
    #[arg(long)]
    complete: bool,
    /// Only these tests, by their whole names
    #[arg(skip)]
    exactly: Vec<String>,
}

/// How many tests of a step passed and failed, and a line for each that failed or was skipped.
#[derive(Default)]
struct Count {
    passed: u32,
    failed: u32,
    faults: Vec<String>,
    skipped: Vec<String>,
    /// What failed beside other tests and passed by itself, with what it said.
    unsteady: Vec<String>,
}

impl Count {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(()) => Self { passed: 1, ..Self::default() },
            Err(error) => {
                eprintln!("xtask: {error}");
                Self { failed: 1, faults: vec![error.clone()], ..Self::default() }
            }
        }
    }

    /// What an executable's output reports.
    fn of_output(one: &Finished) -> Self {
        let (mut count, mut faults) = (Self::default(), Faults::default());
        for line in one.output.lines() {
            faults.read(line);
            if let Some(result) = parse_result(line) {
                count.add(result);
            }
        }
        count.faults.extend(faults.lines());
        if !one.is_success && count.failed == 0 {
            count.failed = 1;
            count.faults.push(format!("{}: failed", one.path.display()));
        }
        count
    }

    fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.faults.extend(more.faults);
        self.skipped.extend(more.skipped);
        self.unsteady.extend(more.unsteady);
    }
}

/// Random inputs of property tests come from this seed, so that a change that broke nothing does not fail
/// for an input that was never tried before; `--long` has new ones each time.
const INPUTS: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// End-to-end tests that run at once, whatever the number of processors.
const E2E_AT_ONCE: &str = "6";

/// So many of the slowest are shown.
const SLOWEST: usize = 30;

type Step = (&'static str, fn(&Options) -> Count);

const STEPS: &[Step] = &[
    ("build", |_| Count::of(&build())),
    ("tidy", |_| Count::of(&tidy::run(&tidy::Options { quick: false }))),
    ("unit", unit),
    ("golden", golden),
    ("hostile", hostile),
    ("sim", |options| Count::of(&sim::test(options.long))),
    ("e2e", e2e),
    ("model", |options| Count::of(&sim::model(options.long))),
    ("suites", suites),
    ("demo", |_| Count::of(&demo::check())),
    ("dist", |_| Count::of(&dist::check())),
];

pub(crate) fn run(options: &Options) -> Outcome {
    setup::for_test()?;
    let Some(rounds) = options.repeat else {
        // Nothing is built in vain: it is tried, and left again.
        options.halved.then(Halved::begin).transpose().map(drop)?;
        return run_once(options, |step| options.wants(step)).1;
    };
    let record = Record::begin(options.only.as_deref().unwrap_or_default(), options.halved)?;
    options.halved.then(Halved::begin).transpose().map(drop)?;
    if options.wants("build") {
        run_once(options, |step| step == "build").1?;
    }
    let mut failed = 0;
    for round in 1..=rounds {
        let begun = Instant::now();
        let (sum, outcome) =
            run_once(options, |step| !BUILDS.contains(&step) && options.wants(step));
        record.add(round, &sum, begun.elapsed().as_secs())?;
        failed += u32::from(outcome.is_err());
    }
    println!("{rounds} rounds, {failed} failed: {}", record.path.display());
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {rounds} rounds failed")),
    }
}

/// Steps that test nothing.
const BUILDS: [&str; 2] = ["build", "tidy"];

/// The end-to-end tests, once they are built.
static E2E: OnceLock<Vec<Executable>> = OnceLock::new();

/// Builds all that runs from the beginning on: no step then waits while another one builds, which has the lock of the
/// folder of what is built.
fn build() -> Outcome {
    shell::build_simulator()?;
    e2e_executables().map(drop)
}

fn e2e_executables() -> Result<&'static [Executable], String> {
    if let Some(built) = E2E.get() {
        return Ok(built);
    }
    let built = executables::build(&["--workspace", "--test", "e2e"])?;
    Ok(E2E.get_or_init(|| built))
}

/// What is kept of repeated tests.
struct Record {
    path: PathBuf,
}

impl Record {
    /// A new one; that of an earlier run goes.
    fn begin(name: &str, is_halved: bool) -> Result<Self, String> {
        let half = if is_halved { "-halved" } else { "" };
        let folder = shell::root().join("target/repeats");
        let path = folder.join(format!("{}{half}.tsv", name.replace(['/', ':'], "-")));
        let record = Self { path };
        let begun = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&record.path, "round\tpassed\tfailed\tseconds\tfaults\n"));
        begun.map_err(|error| format!("{}: {error}", record.path.display()))?;
        Ok(record)
    }

    /// One round more, at once: what is stopped leaves what it has.
    fn add(&self, round: u32, sum: &Count, seconds: u64) -> Outcome {
        let (passed, failed, faults) = (sum.passed, sum.failed, sum.faults.join("; "));
        let line = format!("{round}\t{passed}\t{failed}\t{seconds}\t{faults}\n");
        let file = fs::OpenOptions::new().append(true).open(&self.path);
        let added = file.and_then(|mut file| file.write_all(line.as_bytes()));
        added.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// The steps that are `wanted`, once. When the programs are built, what computes is run beneath `e2e`, whose tests wait
/// more than they compute; with half of the processors, and at full sizes, one step after the other.
fn run_once(options: &Options, wanted: impl Fn(&str) -> bool) -> (Count, Outcome) {
    let start = Instant::now();
    let wanted: Vec<Step> = STEPS.iter().copied().filter(|(name, _)| wanted(name)).collect();
    let run = |steps: &[Step]| -> Vec<Done> {
        steps.iter().map(|step| Done::run(options, step)).collect()
    };
    let (first, rest): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(name, _)| *name == "build");
    let (e2e, computing): (Vec<_>, Vec<_>) =
        rest.iter().copied().partition(|(name, _)| *name == "e2e");
    let mut done = run(&first);
    if e2e.is_empty() || options.halved || options.long || options.apart {
        done.extend(run(&rest));
    } else {
        let (one, other) = beneath::run(|| run(&e2e), || run(&computing));
        done.extend(one.into_iter().chain(other));
    }
    if !options.halved {
        done.iter_mut().for_each(|step| step.run_again(options));
    }
    let mut table = String::new();
    let mut sum = Count::default();
    for Done { name, seconds, count } in done {
        let (passed, failed, skipped) = (count.passed, count.failed, count.skipped.len());
        let _ = writeln!(table, "{name:8} {seconds:6} s {passed:6} {failed:6} {skipped:6}");
        let named = |lines: &[String]| lines.iter().map(|it| format!("{name}: {it}")).collect();
        let (faults, skipped) = (named(&count.faults), named(&count.skipped));
        let unsteady = named(&count.unsteady);
        sum.add(Count { faults, skipped, unsteady, ..count });
    }
    println!(
        "\nstep         time   pass   fail   skip\n{table}all      {:6} s",
        start.elapsed().as_secs()
    );
    sum.faults.iter().for_each(|fault| println!("failed: {fault}"));
    sum.skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
    sum.unsteady.iter().for_each(|fault| println!("unsteady, passed by itself: {fault}"));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped.len());
    let outcome = verdict(options, &sum);
    (sum, outcome)
}

/// A step that was run.
struct Done {
    name: &'static str,
    seconds: u64,
    count: Count,
}

impl Done {
    fn run(options: &Options, (name, step): &Step) -> Self {
        eprintln!("== {name}");
        let begun = Instant::now();
        let is_halved = options.halved && !BUILDS.contains(name);
        let count = match is_halved.then(Halved::begin).transpose() {
            // It is left when the step is done.
            Ok(_half) => step(options),
            Err(error) => Count::of(&Err(error)),
        };
        let seconds = begun.elapsed().as_secs();
        eprintln!("== {name}: {seconds} s");
        Self { name, seconds, count }
    }
}

impl Done {
    /// Runs what failed once more, where that may be a chance (see [`again`]).
    fn run_again(&mut self, options: &Options) {
        let step = STEPS.iter().find(|(name, _)| *name == self.name && AGAIN.contains(name));
        let failed = again::may_be_run(self.count.failed, &self.count.faults);
        let (Some((name, step)), Some(failed)) = (step, failed) else { return };
        let exactly: Vec<String> = failed.iter().map(|test| test.name.clone()).collect();
        eprintln!("== {name} again: {}", exactly.join(" "));
        let Options { long, complete, .. } = *options;
        let count = step(&Options { long, complete, exactly, ..Options::default() });
        if count.failed > 0 || count.passed != self.count.failed {
            return;
        }
        self.count.unsteady.append(&mut self.count.faults);
        self.count.passed += count.passed;
        self.count.failed = 0;
    }
}

/// Steps whose tests are run again.
const AGAIN: [&str; 2] = ["unit", "e2e"];

/// Whether what was counted is a success.
fn verdict(options: &Options, sum: &Count) -> Outcome {
    match (sum.passed, sum.failed, sum.skipped.len()) {
        (0, 0, 0) => Err("no test has this name".to_owned()),
        (_, 0, skipped @ 1..) if options.complete => Err(format!("{skipped} skipped")),
        (_, 0, _) => Ok(()),
        (_, failed, _) => Err(format!("{failed} failed")),
    }
}

impl Options {
    /// Whether the step is to run. A name that is no step's means tests, for which e2e needs a
    /// build.
    fn wants(&self, step: &str) -> bool {
        match self.only.as_deref() {
            // What was captured is among all tests, see `unit`.
            None if step == "golden" => false,
            // They take minutes: with them all would take over half an hour.
            None => self.long || step != "suites",
            Some(only) if is_step(only) => only == step || (step == "build" && needs_build(only)),
            Some(_) => ["build", "unit", "hostile", "e2e"].contains(&step),
        }
    }

    /// The part of a test's name that was asked for.
    fn filter(&self) -> Option<&str> {
        self.only.as_deref().filter(|only| !is_step(only))
    }

    /// What a test executable is given for that.
    fn choice(&self) -> Vec<&str> {
        let exactly = (!self.exactly.is_empty()).then_some("--exact");
        self.filter()
            .into_iter()
            .chain(exactly)
            .chain(self.exactly.iter().map(String::as_str))
            .collect()
    }
}

fn is_step(name: &str) -> bool {
    STEPS.iter().any(|(step, _)| *step == name)
}

fn needs_build(step: &str) -> bool {
    ["e2e", "suites", "demo", "dist"].contains(&step)
}

/// All that is no step of its own, built in one go: packages that are tested alone ask for other features
/// of what they stand on, and all below them would be built once more.
fn unit(options: &Options) -> Count {
    let mut count =
        side_by_side(options, &["--workspace"]).unwrap_or_else(|error| Count::of(&Err(error)));
    if options.exactly.is_empty() {
        count.add(tests(options, &["--workspace", "--doc"]));
    }
    count
}

/// The test executables that `arguments` choose, one more at once than there are processors: they wait for disks, too.
fn side_by_side(options: &Options, arguments: &[&str]) -> Result<Count, String> {
    let all = executables::build(arguments)?;
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let list = beside("skipped");
    let prepare = |command: &mut Command| {
        command.args(options.choice()).env("SHEEN_TEST_SKIPPED", &list);
        surround(command, options);
    };
    let mut count = Count::default();
    executables::run(all, at_once, prepare, |one| count.add(Count::of_output(&one)));
    count.skipped.extend(listed(&list));
    Ok(count)
}

/// What was captured, alone.
fn golden(options: &Options) -> Count {
    let package = ["--package", "sheen-conformance", "--lib"];
    tests(options, &[&package[..], &["--test", "golden", "--test", "replay"]].concat())
}

/// A million operations, which take 20 minutes without optimisation, and less than one with it.
fn hostile(options: &Options) -> Count {
    let mut command = test_command(options, &["--workspace", "--test", "hostile"]);
    command.args(["--nocapture"]).env("SHEEN_TEST_LONG", "1");
    counted(command).unwrap_or_else(|error| Count::of(&Err(error)))
}

fn e2e(options: &Options) -> Count {
    let sheen = program(Profile::Gate);
    if !sheen.is_file() {
        return Count::of(&Err(format!("{}: not built, so not tested", sheen.display())));
    }
    let suites = match setup::suites(&[setup::PJDFSTEST]) {
        Ok(bin) => bin,
        Err(error) => return Count::of(&Err(error)),
    };
    let executables = match e2e_executables() {
        Ok(built) => built,
        Err(error) => return Count::of(&Err(error)),
    };
    let mut count = Count::default();
    for executable in executables {
        // They wait more than they compute: for lock callbacks, evictions, syncs.
        let mut command = executable.command();
        command.args(options.choice());
        surround(&mut command, options);
        // Where it is named, the browser must be there: what `setup` installs is not left out by mistake.
        if std::env::var_os("SHEEN_CHROMIUM").is_none() {
            command.env("SHEEN_CHROMIUM", "chromium");
        }
        let at_once = if options.exactly.is_empty() { E2E_AT_ONCE } else { "1" };
        command.args(["--test-threads", at_once]).env("SHEEN_SUITES", &suites);
        count.add(counted(command).unwrap_or_else(|error| Count::of(&Err(error))));
    }
    count
}

/// The suites of other projects, one after the other: each takes all it can get.
fn suites(options: &Options) -> Count {
    let bin = match setup::suites(&[setup::FSX]) {
        Ok(bin) => bin,
        Err(error) => return Count::of(&Err(error)),
    };
    let mut command = test_command(options, &["--workspace", "--test", "suites"]);
    command.args(["--test-threads", "1", "--nocapture"]).env("SHEEN_SUITES", bin);
    counted(command).unwrap_or_else(|error| Count::of(&Err(error)))
}

/// `cargo test` with `arguments`; shows its output and counts what it reports.
fn tests(options: &Options, arguments: &[&str]) -> Count {
    let command = test_command(options, arguments);
    counted(command).unwrap_or_else(|error| Count::of(&Err(error)))
}

/// Of the whole workspace where it can be: alone, a package would have the libraries below it built with other features,
/// once more.
fn test_command(options: &Options, arguments: &[&str]) -> Command {
    let test = cargo(&["test", "--no-fail-fast", "--profile", Profile::Gate.name()]);
    let mut command = shell::with_default_signals(&test);
    command.args(arguments).arg("--").args(options.choice());
    surround(&mut command, options);
    command
}

/// The environment of tests.
fn surround(command: &mut Command, options: &Options) {
    command.env("SHEEN_BIN", program(Profile::Gate));
    match options.long {
        true => _ = command.env("SHEEN_TEST_LONG", "1"),
        false if std::env::var_os(INPUTS.0).is_none() => _ = command.env(INPUTS.0, INPUTS.1),
        false => {}
    }
}

/// A file of this run for what tests say beside their output.
fn beside(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    shell::root().join(format!("target/{name}-{}-{number}", std::process::id()))
}

/// The lines of such a file, which goes. There is none where no test had anything to say.
fn listed(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text.lines().map(str::to_owned).collect()
}

fn counted(mut command: Command) -> Result<Count, String> {
    let shown = shell::show(&command);
    eprintln!("$ {shown}");
    let (list, durations) = (beside("skipped"), beside("durations"));
    command.env("SHEEN_TEST_SKIPPED", &list).env("SHEEN_TEST_DURATIONS", &durations);
    command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
    let output = child.stdout.take().ok_or("no output")?;
    let (mut count, mut faults) = (Count::default(), Faults::default());
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("{shown}: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        // Our own output is closed: then no reader misses the line.
        let _ = writeln!(std::io::stdout(), "{line}");
        faults.read(&line);
        if let Some(result) = parse_result(&line) {
            count.add(result);
        }
    }
    count.faults.extend(faults.lines());
    count.skipped.extend(listed(&list));
    show_slowest(&listed(&durations));
    let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    if !status.success() && count.failed == 0 {
        eprintln!("xtask: {shown}: {status}");
        count.failed = 1;
        count.faults.push(format!("{shown}: {status}"));
    }
    Ok(count)
}

/// The tests on whole file systems that took longest: where a shorter run would come from.
fn show_slowest(durations: &[String]) {
    let mut all: Vec<(u64, &str)> = durations
        .iter()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(took, test)| Some((took.parse().ok()?, test)))
        .collect();
    all.sort_unstable_by(|left, right| right.cmp(left));
    let sum: u64 = all.iter().map(|(took, _)| took).sum();
    for (took, test) in all.iter().take(SLOWEST) {
        println!("{:6.1} s {test}", *took as f64 / 1000.0);
    }
    if !all.is_empty() {
        println!("{:6.1} s {} tests", sum as f64 / 1000.0, all.len());
    }
}

/// The counts in `test result: ok. 8 passed; 0 failed; ...`.
fn parse_result(line: &str) -> Option<Count> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        let part = rest.split(';').find_map(|part| part.trim().strip_suffix(word))?;
        part.trim().parse().ok()
    };
    let (passed, failed) = (number("passed")?, number("failed")?);
    Some(Count { passed, failed, ..Count::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let line =
            "test result: FAILED. 8 passed; 2 failed; 0 ignored; 0 measured; 27 filtered out";
        let count = parse_result(line).expect("a result");
        assert_eq!((count.passed, count.failed), (8, 2));
        assert!(parse_result("test a ... ok").is_none());
    }

    #[test]
    fn property_tests_have_the_same_inputs_unless_all_are_asked_for() {
        let seed = |long| {
            let command = test_command(&Options { long, ..Options::default() }, &[]);
            command.get_envs().any(|(name, _)| name == INPUTS.0)
        };
        assert_eq!((seed(false), seed(true)), (std::env::var_os(INPUTS.0).is_none(), false));
    }

    #[test]
    fn a_test_that_is_skipped_is_counted_and_fails_a_complete_run() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'a: no root' >> $SHEEN_TEST_SKIPPED"]);
        let count = counted(command).expect("sh runs");
        assert_eq!((count.skipped, count.failed), (vec!["a: no root".to_owned()], 0));
        let outcome = |complete| {
            let sum =
                Count { passed: 1, skipped: vec!["a: no root".to_owned()], ..Count::default() };
            verdict(&Options { complete, ..Options::default() }, &sum)
        };
        assert!(outcome(false).is_ok() && outcome(true).is_err());
    }

    #[test]
    fn rounds_are_recorded_one_after_the_other() {
        let record = Record::begin(&format!("record-{}", std::process::id()), true);
        let record = record.expect("a place to write");
        let faults = vec!["a: b".to_owned()];
        let fault = Count { passed: 3, failed: 1, faults, ..Count::default() };
        record.add(1, &Count { passed: 4, ..Count::default() }, 12).expect("added");
        record.add(2, &fault, 13).expect("added");
        let text = fs::read_to_string(&record.path).expect("written");
        fs::remove_file(&record.path).expect("there");
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(lines, ["1\t4\t0\t12\t", "2\t3\t1\t13\ta: b"]);
    }

    #[test]
    fn a_name_selects_a_step_or_tests() {
        let asked = |name: &str| Options { only: Some(name.to_owned()), ..Options::default() };
        assert!(asked("e2e").wants("build") && !asked("e2e").wants("unit"));
        assert!(asked("e2e").filter().is_none());
        assert!(asked("kills").wants("e2e") && !asked("kills").wants("tidy"));
        assert_eq!(asked("kills").filter(), Some("kills"));
    }
}
