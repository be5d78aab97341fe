//! One rank's work: files created, worked on first in, first out, and removed.
//!
//! Each rank has directories of its own, the data sets. In the benchmark it looks at, reads and removes the
//! oldest file of data sets of ranks before it, and creates the newest one in those of ranks behind it: so
//! a data set always has as many files, which one rank made and another removes.

use std::fmt::Write as _;
use std::time::Duration;

use sheen_types::Errno;

use super::options::Options;
use super::report::{self, Phase, Report};
use super::tally::{Operation, Tally};
use crate::backend::{Buffer, File, Open, Worker};
use crate::clock;
use crate::pattern::{Packet, Pattern};
use crate::ranks::{Ended, Job, Rank};
use crate::text::failed;

/// Seconds below which a wait spins: to sleep would take longer.
const SPIN_MAX: f64 = 0.01;

/// A run of md-workbench.
pub(super) struct Run<'o> {
    pub(super) options: &'o Options,
    pub(super) packet: Packet,
    /// Seed of the data unless asked for; rank 0's counts.
    pub(super) seed: u32,
    /// Number of the oldest file; rank 0's counts.
    pub(super) oldest: u64,
    /// Where rank 0 writes to.
    pub(super) out: &'o (dyn Fn(&str) + Sync),
}

/// What rank 0 answers.
pub(super) struct Answer {
    pub(super) reports: Vec<Report>,
    /// Number of the oldest file at the end.
    pub(super) oldest: u64,
}

impl Job for Run<'_> {
    type Answer = Answer;

    fn run(&self, rank: &mut Rank, worker: &mut dyn Worker) -> Result<Answer, Ended> {
        let options = self.options;
        let given = rank.exchange(&[self.seed.into(), self.oldest])?;
        let seed = options.data_seed.unwrap_or(given[0][0] as u32);
        let buffer = Buffer::new(options.bytes)?;
        let pattern = Pattern { packet: self.packet, seed };
        let mut part = Part {
            options,
            out: self.out,
            hands: Hands { worker, buffer, pattern, verifies: options.verify_read },
            names: Names { root: options.path().to_owned(), path: String::new() },
            oldest: given[0][1],
            waiting: 0.0,
            tally: Tally::default(),
            reports: Vec::new(),
            rank,
        };
        let [precreate, benchmark, cleanup] = options.phases();
        if precreate {
            part.phase(Phase::Precreate, Part::precreate)?;
        }
        for _ in 0..if benchmark { options.iterations } else { 0 } {
            for waiting in options.waits() {
                part.waiting = waiting;
                part.phase(Phase::Benchmark, Part::benchmark)?;
            }
        }
        part.waiting = 0.0;
        if cleanup {
            part.phase(Phase::Cleanup, Part::cleanup)?;
        }
        Ok(Answer { reports: part.reports, oldest: part.oldest })
    }
}

/// Paths of data sets and files, in one buffer.
struct Names {
    root: String,
    path: String,
}

impl Names {
    fn set(&mut self, owner: u64, set: u64) -> &str {
        self.path.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{}/{owner}_{set}", self.root);
        &self.path
    }

    fn file(&mut self, owner: u64, set: u64, number: u64) -> &str {
        self.set(owner, set);
        let _ = write!(self.path, "/file-{number}");
        &self.path
    }
}

/// What files are worked on with.
struct Hands<'r> {
    worker: &'r mut dyn Worker,
    buffer: Buffer,
    pattern: Pattern,
    verifies: bool,
}

impl Hands<'_> {
    /// Creates a file with the data of `owner` for `item`; answers whether all was taken.
    fn create(&mut self, path: &str, owner: u64, item: u64) -> Result<bool, Errno> {
        let file = self.worker.open(path, Open::Create)?;
        self.pattern.fill(&mut self.buffer, owner as usize);
        self.pattern.stamp(&mut self.buffer, owner as usize, item);
        let written = match self.buffer.len() {
            0 => Ok(0),
            _ => self.worker.write_at(file, 0, &self.buffer),
        };
        self.worker.close(file)?;
        Ok(written? == self.buffer.len())
    }

    /// Reads a file; answers whether it is as long as it should be, and right if that is looked at.
    fn read(&mut self, path: &str, owner: u64, item: u64) -> Result<bool, Errno> {
        let file = self.worker.open(path, Open::Read)?;
        // What is not read must not look right.
        if let Some(first) = self.buffer.first_mut() {
            *first = !*first;
        }
        let filled = self.fill(file);
        self.worker.close(file)?;
        let is_whole = filled? == self.buffer.len();
        let is_wrong = self.verifies
            && is_whole
            && self.pattern.wrong(&self.buffer, owner as usize, item).is_some();
        Ok(is_whole && !is_wrong)
    }

    fn fill(&mut self, file: File) -> Result<usize, Errno> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            match self.worker.read_at(file, filled as u64, &mut self.buffer[filled..])? {
                0 => break,
                more => filled += more,
            }
        }
        Ok(filled)
    }
}

/// One rank's state.
struct Part<'r, 'a> {
    options: &'r Options,
    out: &'r (dyn Fn(&str) + Sync),
    hands: Hands<'r>,
    names: Names,
    oldest: u64,
    /// How many times as long as an operation to wait behind it.
    waiting: f64,
    tally: Tally,
    reports: Vec<Report>,
    rank: &'r mut Rank<'a>,
}

/// A file: whose, of which data set, with which number.
#[derive(Clone, Copy)]
struct Place {
    owner: u64,
    set: u64,
    number: u64,
}

impl<'r, 'a> Part<'r, 'a> {
    /// A phase of all ranks, and what it came to.
    fn phase(
        &mut self,
        phase: Phase,
        work: impl FnOnce(&mut Self, f64) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        self.tally = Tally::default();
        self.rank.barrier()?;
        let of_each = match phase {
            Phase::Precreate | Phase::Cleanup => self.options.precreated,
            Phase::Benchmark => self.options.objects * report::in_turn(self.options),
        };
        let total = of_each.saturating_mul(self.options.sets * self.rank.size as u64);
        self.rank.begin(phase.name(), total, 0);
        work(self, clock::now())?;
        let ranks = self.rank.exchange(&self.tally.to_words())?;
        self.rank.end();
        let ranks: Vec<Tally> = ranks.iter().map(|words| Tally::from_words(words)).collect();
        let report = Report { phase, waiting: self.waiting, all: Tally::sum(&ranks), ranks };
        self.say(&report.lines(self.options));
        self.reports.push(report);
        Ok(())
    }

    /// Rank 0 writes it.
    fn say(&self, text: &str) {
        if self.rank.number == 0 {
            self.rank.hide_progress();
            (self.out)(text);
        }
    }

    /// One operation on a file, timed.
    fn operation<T>(
        &mut self,
        operation: Operation,
        place: Place,
        work: impl FnOnce(&mut Hands, &str) -> Result<T, Errno>,
    ) -> Result<Result<T, Errno>, Ended> {
        let path = self.names.file(place.owner, place.set, place.number);
        let step = self.rank.step()?;
        let begin = clock::nanoseconds();
        let done = work(&mut self.hands, path);
        let time = clock::nanoseconds().saturating_sub(begin);
        self.rank.done(step);
        self.tally.time(operation, time);
        wait(time as f64 / 1e9 * self.waiting);
        Ok(done)
    }

    fn item(&self, place: Place) -> u64 {
        place.number.wrapping_mul(self.options.sets).wrapping_add(place.set)
    }

    fn create(&mut self, place: Place) -> Result<(), Ended> {
        let item = self.item(place);
        let done = self.operation(Operation::Create, place, |hands, path| {
            hands.create(path, place.owner, item)
        })?;
        let ignores = self.options.ignore_precreate_errors;
        match done {
            Err(errno) if !ignores => return Err(self.failed("create file", errno)),
            Ok(false) if !ignores => {
                let (rank, path) = (self.rank.number, &self.names.path);
                return Err(Ended::Failed(format!("rank {rank}: wrote only a part of {path}")));
            }
            done => self.tally.count(Operation::Create, done == Ok(true)),
        }
        Ok(())
    }

    fn precreate(&mut self, begin: f64) -> Result<(), Ended> {
        let (owner, options) = (self.rank.number as u64, self.options);
        for set in 0..options.sets {
            let path = self.names.set(owner, set);
            let made = self.hands.worker.mkdir(path);
            self.tally.count(Operation::SetCreate, made.is_ok());
            match made {
                Err(errno) if !options.ignore_precreate_errors => {
                    return Err(self.failed("create directory", errno));
                }
                _ => {}
            }
        }
        for number in self.oldest..self.oldest + options.precreated {
            for set in 0..options.sets {
                self.create(Place { owner, set, number })?;
            }
            self.tally.repeats += 1;
        }
        self.tally.seconds = clock::now() - begin;
        Ok(())
    }

    fn benchmark(&mut self, mut begin: f64) -> Result<(), Ended> {
        let options = self.options;
        let (mut wanted, mut before) = (options.objects, 0.0);
        let mut is_armed = options.stonewall > 0;
        while self.tally.repeats < wanted {
            for set in 0..options.sets {
                self.turn(set, self.oldest + self.tally.repeats)?;
            }
            self.tally.repeats += 1;
            let seconds = clock::now() - begin;
            if is_armed && seconds >= f64::from(options.stonewall) {
                is_armed = false;
                before = seconds;
                wanted = self.stonewall(seconds)?;
                // A rank's wait for other ranks does not count.
                begin = clock::now();
            }
        }
        self.tally.seconds = clock::now() - begin + before;
        if is_armed {
            self.meet_at_stonewall()?;
        }
        if !options.read_only {
            self.oldest += self.tally.repeats;
        }
        Ok(())
    }

    /// Time is over: how far all ranks have to go.
    fn stonewall(&mut self, seconds: f64) -> Result<u64, Ended> {
        if self.options.verbose > 0 {
            let rank = self.rank.number;
            eprintln!("{rank}: stonewall runtime {seconds:.6}s ({}s)", self.options.stonewall);
        }
        let wanted = self.meet_at_stonewall()?;
        self.say(&format!("stonewall wear out {seconds:.6}s ({wanted} iter)\n"));
        Ok(wanted)
    }

    fn meet_at_stonewall(&mut self) -> Result<u64, Ended> {
        let all = self.rank.gather(self.tally.repeats)?;
        self.tally.stonewall = all.into_iter().max().unwrap_or(0);
        Ok(self.tally.stonewall)
    }

    /// One file of a data set: the oldest is looked at, read and removed, and another created.
    fn turn(&mut self, set: u64, number: u64) -> Result<(), Ended> {
        let (own, size, options) = (self.rank.number as u64, self.rank.size as u64, self.options);
        let shift = (options.offset % size) * ((set + 1) % size) % size;
        let place = Place { owner: (own + size - shift) % size, set, number };
        let found =
            self.operation(Operation::Stat, place, |hands, path| hands.worker.stat(path))?;
        self.tally.count(Operation::Stat, found.is_ok());
        match found {
            Ok(_) => {}
            // The rank that is to create it has not come so far.
            Err(Errno::ENOENT) if options.verbose == 0 => return Ok(()),
            Err(errno) => return Err(self.failed("stat", errno)),
        }
        let item = self.item(place);
        let read = self
            .operation(Operation::Read, place, |hands, path| hands.read(path, place.owner, item))?;
        let is_right = read.map_err(|errno| self.failed("read", errno))?;
        if !is_right && self.tally.failed(Operation::Read) == 0 {
            eprintln!("rank {}: wrong data in {}", self.rank.number, self.names.path);
        }
        self.tally.count(Operation::Read, is_right);
        if options.read_only {
            return Ok(());
        }
        let gone =
            self.operation(Operation::Delete, place, |hands, path| hands.worker.unlink(path))?;
        gone.map_err(|errno| self.failed("remove", errno))?;
        self.tally.count(Operation::Delete, true);
        self.create(Place { owner: (own + shift) % size, set, number: number + options.precreated })
    }

    fn cleanup(&mut self, begin: f64) -> Result<(), Ended> {
        let (owner, options) = (self.rank.number as u64, self.options);
        for set in 0..options.sets {
            for number in self.oldest..self.oldest + options.precreated {
                let place = Place { owner, set, number };
                let gone = self
                    .operation(Operation::Delete, place, |hands, path| hands.worker.unlink(path))?;
                match gone {
                    Ok(()) | Err(Errno::ENOENT) => {
                        self.tally.count(Operation::Delete, gone.is_ok())
                    }
                    Err(errno) => return Err(self.failed("remove", errno)),
                }
            }
            let path = self.names.set(owner, set);
            let gone = self.hands.worker.rmdir(path);
            self.tally.count(Operation::SetDelete, gone.is_ok());
            if let Err(errno) = gone {
                let path = &self.names.path;
                eprintln!("rank {owner}: {}", failed("remove directory", path, errno));
            }
        }
        self.tally.repeats = options.precreated;
        self.tally.seconds = clock::now() - begin;
        Ok(())
    }

    /// What failed at the path that was formed last.
    fn failed(&self, what: &str, errno: Errno) -> Ended {
        let path = &self.names.path;
        Ended::Failed(format!("rank {}: {}", self.rank.number, failed(what, path, errno)))
    }
}

/// Waits, but not at all if there is nothing to wait for.
#[expect(clippy::disallowed_methods, reason = "a host: the user asked for a pause")]
fn wait(seconds: f64) {
    if seconds <= 0.0 {
        return;
    }
    if seconds >= SPIN_MAX {
        return std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    let end = clock::now() + seconds;
    while clock::now() < end {
        std::hint::spin_loop();
    }
}
