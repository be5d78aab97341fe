//! One rank's work: in each repetition the files are written, checked, read and removed, as asked.
//!
//! Each access is timed from the first open to the last close over all ranks, as IOR does it.

use std::time::Duration;

use sheen_types::Errno;

use super::params::{Format, Params};
use super::report::{self, Reached, Row};
use super::transfers::Moved;
use crate::backend::{Buffer, File, Open, Worker};
use crate::clock;
use crate::pattern::{Chance, Pattern};
use crate::ranks::{Ended, Job, Rank};
use crate::text::{append, date, failed};

/// One test.
pub(super) struct Run<'o> {
    pub(super) params: &'o Params,
    pub(super) in_each_node: usize,
    pub(super) nodes: usize,
    /// The time of the run; rank 0's counts.
    pub(super) now: u32,
    /// Where rank 0 writes to.
    pub(super) out: &'o (dyn Fn(&str) + Sync),
}

/// What an access of one repetition reached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Seconds from the first open to the last close.
    pub(crate) time: f64,
    /// Bytes that were moved.
    pub(crate) moved: u64,
    /// Seconds to the stonewall.
    pub(crate) stonewall_time: f64,
    /// Mean of the bytes that a rank had moved by then.
    pub(crate) stonewall_mean: u64,
    /// The most transfers of any rank.
    pub(crate) pairs: u64,
}

/// What rank 0 answers.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) writes: Vec<Point>,
    pub(super) reads: Vec<Point>,
    pub(super) rows: Vec<Row>,
    /// Transfers with wrong data, of all ranks.
    pub(super) wrong: u64,
}

/// What a rank does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Write,
    Read,
    CheckWrite,
    CheckRead,
}

impl Access {
    pub(super) fn writes(self) -> bool {
        self == Self::Write
    }

    pub(super) fn checks(self) -> bool {
        matches!(self, Self::CheckWrite | Self::CheckRead)
    }
}

/// When a rank opened, transferred and closed: begin and end of each.
type Times = [f64; 6];

impl Job for Run<'_> {
    type Answer = Answer;

    fn run(&self, rank: &mut Rank, worker: &mut dyn Worker) -> Result<Answer, Ended> {
        let params = self.params;
        let seed = rank.broadcast(params.random_seed.unwrap_or(self.now).into())? as u32;
        let pattern = Pattern { packet: params.packet, seed: params.signature };
        let mut part = Part {
            run: self,
            params,
            pattern,
            seed,
            buffer: Buffer::new(params.transfer)?,
            iterations: params.wear_out_iterations,
            answer: Answer::default(),
            rank,
            worker,
        };
        part.warn_of_existing()?;
        let begin = clock::now();
        for repetition in 0..params.repetitions {
            part.repetition(repetition, begin)?;
        }
        Ok(part.answer)
    }
}

/// One rank's state.
pub(super) struct Part<'r, 'a> {
    run: &'r Run<'r>,
    pub(super) params: &'r Params,
    pub(super) pattern: Pattern,
    /// Decides random offsets.
    pub(super) seed: u32,
    pub(super) buffer: Buffer,
    /// Transfers after which to stop; 0 for none.
    pub(super) iterations: u64,
    answer: Answer,
    pub(super) rank: &'r mut Rank<'a>,
    pub(super) worker: &'r mut dyn Worker,
}

impl Part<'_, '_> {
    /// Rank 0 writes it.
    pub(super) fn say(&self, text: &str) {
        if self.rank.number == 0 {
            self.rank.hide_progress();
            (self.run.out)(text);
        }
    }

    fn warn_of_existing(&mut self) -> Result<(), Ended> {
        let (params, own) = (self.params, self.rank.number);
        let mut there = 0;
        if (params.write || params.check_write) && (params.file_per_rank || own == 0) {
            let path = params.file_of(own, 0);
            there = u64::from(self.worker.stat(&path).is_ok());
        }
        let all = self.rank.gather(there)?;
        for number in (0..all.len()).filter(|number| all[*number] > 0) {
            let what = if params.existing_file { "overwritten" } else { "deleted" };
            let path = params.file_of(number, 0);
            self.warn(&format!("The file \"{path}\" exists already and will be {what}"));
        }
        Ok(())
    }

    fn warn(&self, text: &str) {
        if self.params.format == Format::Default {
            self.say(&format!("WARNING: {text}\n"));
        }
    }

    fn repetition(&mut self, repetition: u32, begin: f64) -> Result<(), Ended> {
        let params = self.params;
        if params.signature == 0 {
            self.pattern.seed = self.rank.broadcast(clock::wall().unsigned_abs())? as u32;
        }
        if repetition == 0 {
            self.say(report::table_header(params.format));
        }
        self.pattern.fill(&mut self.buffer, self.rank.number);
        let mut wrong = 0;
        if params.write && self.is_in_time(begin)? {
            self.write(repetition)?;
        }
        if params.check_write && self.is_in_time(begin)? {
            wrong += self.check(repetition)?;
        }
        if (params.read || params.check_read) && self.is_in_time(begin)? {
            wrong += self.read(repetition)?;
        }
        self.answer.wrong += wrong;
        self.rank.barrier()?;
        let keep = params.keep || (wrong > 0 && params.keep_with_error);
        if !keep {
            let begin = clock::now();
            self.remove(repetition)?;
            self.rank.barrier()?;
            self.row(Row::Remove { time: clock::now() - begin, repetition });
        }
        Ok(())
    }

    /// Whether another access may begin, which rank 0 decides: the run has lasted for less than `-T` minutes.
    fn is_in_time(&mut self, begin: f64) -> Result<bool, Ended> {
        let seconds = f64::from(self.params.max_minutes) * 60.0;
        if seconds == 0.0 {
            return Ok(true);
        }
        let late = clock::now() - begin >= seconds;
        Ok(self.rank.broadcast(u64::from(!late))? == 1)
    }

    fn row(&mut self, row: Row) {
        self.say(&report::row(self.params, &row));
        self.answer.rows.push(row);
    }

    #[expect(clippy::disallowed_methods, reason = "a host: the user asked for a pause")]
    fn delay(&self) {
        if self.rank.number == 0 {
            std::thread::sleep(Duration::from_secs(self.params.delay.into()));
        }
    }

    fn remove(&mut self, repetition: u32) -> Result<(), Ended> {
        if !self.params.file_per_rank && self.rank.number != 0 {
            return Ok(());
        }
        let path = self.params.file_of(self.rank.number, repetition);
        match self.worker.unlink(&path) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(self.failed("remove", &path, errno)),
        }
        match self.params.directory_of(self.rank.number).map(|path| self.worker.rmdir(&path)) {
            // With files of other repetitions or programs in it, it stays.
            None | Some(Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST)) => Ok(()),
            Some(Err(errno)) => Err(self.failed("remove directory of", &path, errno)),
        }
    }

    fn write(&mut self, repetition: u32) -> Result<(), Ended> {
        let params = self.params;
        self.delay();
        if !params.existing_file {
            self.remove(repetition)?;
        }
        if let Some(directory) = params.directory_of(self.rank.number) {
            match self.worker.mkdir(&directory) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(self.failed("create directory", &directory, errno)),
            }
        }
        self.iterations = params.wear_out_iterations;
        self.rank.barrier()?;
        let own = self.rank.number;
        let point = self.timed(Access::Write, own, repetition)?.0;
        if params.deadline > 0 {
            self.iterations = point.pairs;
        }
        if params.wear_out && self.rank.number == 0 {
            match &params.status_file {
                Some(path) => std::fs::write(path, point.pairs.to_string())
                    .map_err(|error| format!("cannot write {path}: {error}"))?,
                None => self.say(&report::pairs(params.format, point.pairs)),
            }
        }
        self.answer.writes.push(point);
        Ok(())
    }

    /// Reads back what was written and compares it; not timed.
    fn check(&mut self, repetition: u32) -> Result<u64, Ended> {
        self.rank.barrier()?;
        if self.params.verbose > 0 && self.params.format == Format::Default {
            let now = date(clock::wall());
            self.say(&format!("Verifying contents of the file(s) just written.\n{now}\n\n"));
        }
        let offset = self.params.reorder.node_offset.saturating_add(1);
        let shift = if self.params.reorder.constant { self.nodes_further(offset) } else { 0 };
        let whose = (self.rank.number + shift) % self.params.tasks;
        let path = self.path(whose, repetition);
        let file = self.open(&path, Access::CheckWrite)?;
        let moved = self.transfers(file, &path, whose, Access::CheckWrite)?;
        self.close(file, &path)?;
        self.count_wrong(moved.wrong, "write")
    }

    fn read(&mut self, repetition: u32) -> Result<u64, Ended> {
        if let Some(path) = &self.params.status_file
            && !self.params.write
        {
            let mut found = 0;
            if self.rank.number == 0 {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let line = || format!("{path} does not hold a number of transfers");
                found = text.trim().parse().map_err(|_| line())?;
            }
            self.iterations = self.rank.broadcast(found)?;
        }
        let whose = (self.rank.number + self.reordered(repetition)) % self.params.tasks;
        self.delay();
        self.rank.barrier()?;
        let access = if self.params.check_read { Access::CheckRead } else { Access::Read };
        let (point, wrong) = self.timed(access, whose, repetition)?;
        self.answer.reads.push(point);
        match self.params.check_read {
            true => self.count_wrong(wrong, "read"),
            false => Ok(0),
        }
    }

    /// Ranks to the same place so many nodes further.
    fn nodes_further(&self, nodes: i64) -> usize {
        let (each, tasks) = (self.run.in_each_node as i64, self.params.tasks as i64);
        nodes.wrapping_mul(each).rem_euclid(tasks) as usize
    }

    /// How many ranks further the file or block lies that this rank reads.
    fn reordered(&self, repetition: u32) -> usize {
        let (reorder, tasks) = (self.params.reorder, self.params.tasks);
        let seed = match reorder.seed {
            seed if seed < 0 => seed.unsigned_abs() + u64::from(repetition),
            seed => seed.unsigned_abs(),
        };
        match reorder.random {
            0 if reorder.constant => self.nodes_further(reorder.node_offset),
            0 => 0,
            1 => {
                let nodes = reorder.node_offset.clamp(0, self.run.nodes as i64 - 1) as usize;
                let least = nodes * self.run.in_each_node;
                let mut chance = Chance::new(seed << 32 | self.rank.number as u64);
                least + chance.below(tasks.saturating_sub(least).max(1) as u64) as usize
            }
            _ => {
                let mut order: Vec<u64> = (0..tasks as u64).collect();
                Chance::new(seed).shuffle(&mut order);
                (order[self.rank.number] as usize + tasks - self.rank.number) % tasks
            }
        }
    }

    fn path(&self, whose: usize, repetition: u32) -> String {
        self.params.file_of(whose, repetition)
    }

    fn open(&mut self, path: &str, access: Access) -> Result<File, Ended> {
        let how = if access.writes() { Open::Create } else { Open::Read };
        let what = if access.writes() { "create" } else { "open" };
        self.worker.open(path, how).map_err(|errno| self.failed(what, path, errno))
    }

    fn close(&mut self, file: File, path: &str) -> Result<(), Ended> {
        self.worker.close(file).map_err(|errno| self.failed("close", path, errno))
    }

    /// A whole access, its row, and how many transfers of this rank were wrong.
    fn timed(
        &mut self,
        access: Access,
        whose: usize,
        repetition: u32,
    ) -> Result<(Point, u64), Ended> {
        let params = self.params;
        let path = self.path(whose, repetition);
        let mut times = Times::default();
        times[0] = clock::now();
        let file = self.open(&path, access)?;
        times[1] = clock::now();
        if params.barriers {
            self.rank.barrier()?;
        }
        if params.verbose > 0 && params.format == Format::Default {
            let what = if access.writes() { "write" } else { "read" };
            let now = date(clock::wall());
            self.say(&format!("Commencing {what} performance test: {now}\n"));
        }
        times[2] = clock::now();
        let moved = self.transfers(file, &path, whose, access)?;
        if access.writes() && params.fsync {
            let synced = self.worker.fsync(file);
            synced.map_err(|errno| self.failed("fsync", &path, errno))?;
        }
        times[3] = clock::now();
        if params.barriers {
            self.rank.barrier()?;
        }
        times[4] = clock::now();
        self.close(file, &path)?;
        times[5] = clock::now();
        self.rank.barrier()?;
        self.check_size(&path, moved.bytes)?;
        let point = self.reached(access, &times, &moved, repetition)?;
        Ok((point, moved.wrong))
    }

    /// Warns if more or less was moved than asked for, or if the files are of another size.
    fn check_size(&mut self, path: &str, moved: u64) -> Result<(), Ended> {
        let stat = self.worker.stat(path);
        let stat = stat.map_err(|errno| self.failed("stat", path, errno))?;
        let all = self.rank.exchange(&[stat.size, moved])?;
        let moved: u64 = all.iter().map(|words| words[1]).sum();
        let size: u64 = match self.params.file_per_rank {
            true => all.iter().map(|words| words[0]).sum(),
            false => all[0][0],
        };
        let expected = self.params.total();
        if expected != moved || size != moved {
            self.warn(&format!("Expected aggregate file size       = {expected}"));
            self.warn(&format!("Stat() of aggregate file size      = {size}"));
            self.warn(&format!("Using actual aggregate bytes moved = {moved}"));
            if self.params.deadline > 0 {
                self.warn("Maybe caused by deadlineForStonewalling");
            }
        }
        Ok(())
    }

    /// Puts the ranks' times together.
    fn reached(
        &mut self,
        access: Access,
        times: &Times,
        moved: &Moved,
        repetition: u32,
    ) -> Result<Point, Ended> {
        let mut own = times.to_vec();
        // Exact: these are numbers of bytes far below 2^53.
        own.extend([moved.bytes as f64, moved.done as f64]);
        let all = self.rank.gather_reals(&own)?;
        let column = |number: usize| all.iter().map(move |reals| reals[number]);
        let first = |number: usize| column(number).fold(f64::INFINITY, f64::min);
        let last = |number: usize| column(number).fold(0.0, f64::max);
        let bytes: f64 = column(6).sum();
        let total = last(5) - first(0);
        let transfers = last(3) - first(2);
        let latency = all.iter().map(|reals| (reals[3] - reals[2]) / moved.pairs.max(1) as f64);
        self.row(Row::Access(Reached {
            writes: access.writes(),
            bandwidth: bytes / total,
            operations: (bytes / self.params.transfer as f64).floor() / transfers,
            latency: latency.fold(f64::INFINITY, f64::min),
            open: last(1) - first(0),
            transfers,
            close: last(5) - first(4),
            total,
            repetition,
        }));
        self.report_outliers(&all);
        if let Some(path) = self.params.ranks_file.as_ref().filter(|_| self.rank.number == 0) {
            append(path, &report::ranks(access.writes(), &all, bytes))?;
        }
        Ok(Point {
            time: total,
            moved: bytes as u64,
            stonewall_time: moved.stonewall_time,
            stonewall_mean: moved.stonewall_mean,
            pairs: moved.pairs,
        })
    }

    fn report_outliers(&self, all: &[Vec<f64>]) {
        if self.params.outlier == 0 {
            return;
        }
        // Where the two times of each stand.
        let spans =
            [("elapsed create time", 0), ("elapsed transfer time", 2), ("elapsed close time", 4)];
        for (name, first) in spans {
            let span = |times: &Vec<f64>| times[first + 1] - times[first];
            let mean = all.iter().map(span).sum::<f64>() / all.len() as f64;
            for (rank, times) in all.iter().enumerate() {
                let time = span(times);
                if (time - mean).abs() > f64::from(self.params.outlier) {
                    self.warn(&format!("task {rank}, {name} is {time:.6} (mean={mean:.6})"));
                }
            }
        }
    }

    fn count_wrong(&mut self, own: u64, what: &str) -> Result<u64, Ended> {
        let all: u64 = self.rank.gather(own)?.iter().sum();
        if all > 0 {
            self.warn(&format!("Incorrect data on {what} ({all} errors found)."));
            let seed = self.pattern.seed;
            self.warn(&format!("Used Time Stamp {seed} ({seed:#x}) for Data Signature"));
        }
        Ok(all)
    }

    pub(super) fn failed(&self, what: &str, path: &str, errno: Errno) -> Ended {
        Ended::Failed(format!("rank {}: {}", self.rank.number, failed(what, path, errno)))
    }
}
