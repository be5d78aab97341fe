//! IOR: moving much data, in one file that all ranks share or in one for each.
//!
//! What a transfer costs beside itself is said in `transfers`. A rank has one buffer of a transfer's size.

mod course;
#[cfg(test)]
mod effects;
mod job;
mod options;
mod params;
mod report;
#[cfg(test)]
mod tests;
mod transfers;

use std::fs::File;
use std::io::Write as _;

use parking_lot::Mutex;
use sheen_types::Errno;

use crate::backend::{Backend, Space};
use crate::ranks::process::{self, Part};
use crate::ranks::{self, Ended};
use crate::text::{date, failed};
use crate::{LIKE, Rate, Surroundings, clock, text};
pub(crate) use job::Point;
use job::{Answer, Run};
pub(crate) use options::{Options, REFUSED};
use params::{Format, Params};
use report::{Json, Nodes};

/// Runs IOR.
///
/// # Errors
/// What ended it, or that data was wrong.
pub(crate) fn run(options: &Options, surroundings: &Surroundings) -> Result<(), Ended> {
    match perform(options, surroundings)?.iter().map(|outcome| outcome.wrong).sum::<u64>() {
        0 => Ok(()),
        wrong => Err(Ended::Failed(format!("{wrong} transfers had wrong data"))),
    }
}

/// What one test reached in its first repetition.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Of the write, or of the read if nothing was written.
    pub(crate) point: Point,
    /// Transfers with wrong data.
    pub(crate) wrong: u64,
    /// Of writes and reads, means of all repetitions.
    pub(crate) rates: Vec<Rate>,
}

/// Runs all tests; children answer none.
pub(crate) fn perform(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<Vec<Outcome>, Ended> {
    let tests = options.tests()?;
    let first = tests.first().ok_or_else(|| "the script runs no test".to_owned())?;
    if let Some(part) = Part::of_this_process() {
        let test = tests.get(part.test).ok_or_else(|| "no such test".to_owned())?;
        let backend = backend(options, surroundings, test)?;
        let (run, _) = job(options, test, &*backend, &|_| {});
        return process::child(part, &*backend, surroundings.stop, &run).map(|_| Vec::new());
    }
    let sink = Sink::open(first, surroundings)?;
    for path in tests.iter().filter_map(|test| test.ranks_file.as_ref()) {
        std::fs::write(path, report::RANKS_HEADER)
            .map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    let out = |text: &str| sink.write(text);
    let (head, all, open) = (Vec::new(), Vec::new(), Vec::new());
    let mut report = Report { format: first.format, out: &out, head, tests: all, open };
    report.header(surroundings, first);
    let mut done: Vec<(usize, Nodes, Answer)> = Vec::new();
    for (number, test) in tests.iter().enumerate() {
        let backend = backend(options, surroundings, test)?;
        let (run, nodes) = job(options, test, &*backend, &out);
        report.begin(number, test, nodes, space(&*backend, test)?);
        let older = older(&*backend, test)?;
        let answer = match options.common.processes {
            true => {
                let size = (test.tasks, number);
                let words = surroundings.child_words();
                process::processes(size, words, &*backend, surroundings.watch(), &run)
            }
            false => ranks::threads(test.tasks, &*backend, surroundings.watch(), &run),
        };
        let answer = answer.inspect_err(|_| clear(&*backend, test, &older))?;
        report.end(number, test, nodes, &answer);
        done.push((number, nodes, answer));
    }
    report.finish(&tests, &done);
    sink.close()?;
    let outcome = |(number, _, answer): &(usize, Nodes, Answer)| {
        let point = answer.writes.first().or(answer.reads.first()).copied().unwrap_or_default();
        let rates = report::rates(answer, (tests.len() > 1).then_some(*number));
        Outcome { point, wrong: answer.wrong, rates }
    };
    Ok(done.iter().map(outcome).collect())
}

fn backend(
    options: &Options,
    surroundings: &Surroundings,
    test: &Params,
) -> Result<Box<dyn Backend>, String> {
    crate::backend(surroundings, &options.common, test.api, test.direct)
}

fn job<'o>(
    options: &Options,
    test: &'o Params,
    backend: &dyn Backend,
    out: &'o (dyn Fn(&str) + Sync),
) -> (Run<'o>, Nodes) {
    let in_each = match test.tasks_per_node {
        0 => test.tasks.div_ceil(backend.nodes(test.tasks, options.common.processes)),
        given => given.min(test.tasks),
    };
    let count = test.tasks.div_ceil(in_each);
    let now = clock::wall() as u32;
    let run = Run { params: test, in_each_node: in_each, nodes: count, now, out };
    (run, Nodes { count, in_each })
}

fn space(backend: &dyn Backend, test: &Params) -> Result<Space, Ended> {
    let path = test.file_of(0, 0);
    let mut worker = backend.worker(0, 1)?;
    let path = match test.directory_of(0) {
        // It is not there yet, and nor is its file.
        Some(directory) => directory,
        None => path,
    };
    Ok(worker.statfs(&path).map_err(|errno| failed("work on", &path, errno))?)
}

fn files(test: &Params) -> impl Iterator<Item = String> {
    let ranks = if test.file_per_rank { test.tasks } else { 1 };
    let repetitions = if test.multi_file { test.repetitions } else { 1 };
    let all =
        (0..repetitions).flat_map(move |repetition| (0..ranks).map(move |rank| (rank, repetition)));
    all.map(|(rank, repetition)| test.file_of(rank, repetition))
}

/// Files of the test that are there before it: if it does not end well, they stay.
fn older(backend: &dyn Backend, test: &Params) -> Result<Vec<String>, Ended> {
    let mut worker = backend.worker(0, 1)?;
    Ok(files(test).filter(|path| worker.stat(path).is_ok()).collect())
}

/// After a test that did not end well: removes what it made.
fn clear(backend: &dyn Backend, test: &Params, older: &[String]) {
    let Ok(mut worker) = backend.worker(0, 1) else { return };
    if !test.write {
        return;
    }
    for path in files(test).filter(|path| !older.contains(path)) {
        match worker.unlink(&path) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => eprintln!("{}", failed("remove", &path, errno)),
        }
    }
    for directory in (0..test.tasks).filter_map(|rank| test.directory_of(rank)) {
        // With other files in it, it stays.
        let _ = worker.rmdir(&directory);
    }
}

/// A file for results, and the first failure of writing it.
struct SummaryFile {
    path: String,
    file: Mutex<(File, Option<String>)>,
}

/// Where results go: standard output, or the summary file.
struct Sink<'a> {
    file: Option<SummaryFile>,
    surroundings: &'a Surroundings<'a>,
}

impl<'a> Sink<'a> {
    fn open(first: &Params, surroundings: &'a Surroundings) -> Result<Self, Ended> {
        let file = match &first.summary_file {
            None => None,
            Some(path) => {
                let file = File::create(path);
                let file = file.map_err(|error| format!("cannot write {path}: {error}"))?;
                (surroundings.out)(&format!("Writing output to {path}\n"));
                Some(SummaryFile { path: path.clone(), file: Mutex::new((file, None)) })
            }
        };
        Ok(Self { file, surroundings })
    }

    fn write(&self, text: &str) {
        let Some(summary) = &self.file else { return (self.surroundings.out)(text) };
        let mut file = summary.file.lock();
        if let Err(error) = file.0.write_all(text.as_bytes()) {
            file.1.get_or_insert(error.to_string());
        }
    }

    fn close(&self) -> Result<(), String> {
        let Some(summary) = &self.file else { return Ok(()) };
        match &summary.file.lock().1 {
            Some(error) => Err(format!("cannot write {}: {error}", summary.path)),
            None => Ok(()),
        }
    }
}

/// Writes what is known as it becomes known; JSON at the end.
struct Report<'o> {
    format: Format,
    out: &'o dyn Fn(&str),
    /// Members of the JSON that come before the tests, and those of each test.
    head: Vec<(&'static str, Json)>,
    tests: Vec<Json>,
    open: Vec<(&'static str, Json)>,
}

impl Report<'_> {
    fn header(&mut self, surroundings: &Surroundings, first: &Params) {
        let version = format!("{LIKE}+sheen-{}", env!("CARGO_PKG_VERSION"));
        let uname = rustix::system::uname();
        let shown = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let mut machine = format!("{} {}", shown(uname.sysname()), shown(uname.nodename()));
        if first.verbose > 1 {
            let more = [uname.release(), uname.version(), uname.machine()].map(shown);
            machine += &format!(" {}", more.join(" "));
        }
        self.head = vec![
            ("Began", date(clock::wall()).into()),
            ("Command line", surroundings.words.join(" ").into()),
            ("Machine", machine.into()),
        ];
        if self.format == Format::Default {
            (self.out)(&format!("IOR-{version}: MPI Coordinated Test of Parallel I/O\n"));
            self.lines(&self.head);
        }
        self.head.insert(0, ("Version", version.into()));
    }

    fn lines(&self, all: &[(&'static str, Json)]) {
        all.iter().for_each(|(key, value)| (self.out)(&report::line(key, value)));
    }

    fn begin(&mut self, number: usize, test: &Params, nodes: Nodes, space: Space) {
        let path = test.file_of(0, 0);
        self.open = vec![("TestID", number.into()), ("StartTime", date(clock::wall()).into())];
        let options = report::options(test, nodes);
        if self.format == Format::Default {
            self.lines(&self.open);
            (self.out)(&text::space(&path, space));
            if test.verbose > 0 {
                (self.out)(&report::line("Participating tasks", &test.tasks.into()));
            }
            (self.out)("\nOptions: \n");
            self.lines(&options);
            (self.out)("\nResults: \n");
        }
        self.open.extend(report::capacity(&path, space));
        self.open.push(("Parameters", report::parameters(test, number, nodes)));
        self.open.push(("Options", Json::Object(options)));
    }

    fn end(&mut self, number: usize, test: &Params, nodes: Nodes, answer: &Answer) {
        if self.format == Format::Default {
            match test.summary_always {
                true => {
                    (self.out)(report::SUMMARY_HEADER);
                    (self.out)(&report::summary_rows(test, answer, number, nodes));
                }
                false => (self.out)(&report::best_lines(test, answer)),
            }
        }
        self.open.extend(report::results(test, answer));
        self.tests.push(Json::Object(std::mem::take(&mut self.open)));
    }

    fn finish(&mut self, tests: &[Params], done: &[(usize, Nodes, Answer)]) {
        let all = || tests.iter().zip(done);
        let finished = Json::from(date(clock::wall()));
        match self.format {
            Format::Csv => {}
            Format::Default => {
                (self.out)("\nSummary of all tests:");
                (self.out)(report::SUMMARY_HEADER);
                for (test, (number, nodes, answer)) in all() {
                    (self.out)(&report::summary_rows(test, answer, *number, *nodes));
                }
                self.lines(&[("Finished", finished)]);
            }
            Format::Json => {
                let summaries = all().flat_map(|(test, (number, nodes, answer))| {
                    report::summaries(test, answer, *number, *nodes)
                });
                let mut whole = std::mem::take(&mut self.head);
                whole.push(("tests", Json::Array(std::mem::take(&mut self.tests))));
                whole.push(("summary", Json::Array(summaries.collect())));
                whole.push(("Finished", finished));
                // Of texts and numbers, so it can be written.
                let whole = serde_json::to_string_pretty(&Json::Object(whole));
                (self.out)(&format!("{}\n", whole.unwrap_or_default()));
            }
        }
    }
}
