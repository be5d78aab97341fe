//! One rank's work: in each repetition the files are written, checked, read and removed, as asked.
//!
//! Each access is timed from the first open to the last close over all ranks, as IOR does it. A transfer
//! costs, beside itself, the arithmetic of its place, the stamps of its data and a step of the rank's counter;
//! under a stonewall also a look at the clock. Verifying reads every byte.

use std::time::Duration;

use sheen_types::Errno;

use super::course::Course;
use super::params::{Format, Params};
use super::report::{self, Row};
use crate::backend::{Buffer, File, Open, Worker};
use crate::clock;
use crate::pattern::{Chance, Pattern};
use crate::ranks::{Ended, Job, Rank};
use crate::text::{date, failed};

/// Wrong transfers that one rank tells of.
const TOLD_MAX: u64 = 8;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    Read,
    CheckWrite,
    CheckRead,
}

impl Access {
    fn writes(self) -> bool {
        self == Self::Write
    }

    fn checks(self) -> bool {
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
            buffer: Buffer::new(params.transfer as usize),
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

struct Part<'r, 'a> {
    run: &'r Run<'r>,
    params: &'r Params,
    pattern: Pattern,
    /// Decides random offsets.
    seed: u32,
    buffer: Buffer,
    /// Transfers after which to stop; 0 for none.
    iterations: u64,
    answer: Answer,
    rank: &'r mut Rank<'a>,
    worker: &'r mut dyn Worker,
}

impl Part<'_, '_> {
    fn say(&self, text: &str) {
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
        let minutes = f64::from(params.max_minutes) * 60.0;
        let late = minutes > 0.0 && clock::now() - begin >= minutes;
        let go = self.rank.broadcast(u64::from(!late))? == 1;
        let mut wrong = 0;
        if params.write && go {
            self.write(repetition)?;
        }
        if params.check_write && go {
            wrong += self.check(repetition)?;
        }
        if (params.read || params.check_read) && go {
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
            // With files of other repetitions or of others in it, it stays.
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
            let mut told = 0;
            if self.rank.number == 0 {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let line = || format!("{path} holds no number of transfers");
                told = text.trim().parse().map_err(|_| line())?;
            }
            self.iterations = self.rank.broadcast(told)?;
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
        let point = self.told(access, &times, &moved, repetition)?;
        Ok((point, moved.wrong))
    }

    /// Tells if more or less was moved than asked for, or if the files are of another size.
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
    fn told(
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
        self.row(Row::Access {
            writes: access.writes(),
            bandwidth: bytes / total,
            operations: (bytes / self.params.transfer as f64).floor() / transfers,
            latency: latency.fold(f64::INFINITY, f64::min),
            open: last(1) - first(0),
            transfers,
            close: last(5) - first(4),
            total,
            repetition,
        });
        self.tell_outliers(&all);
        Ok(Point {
            time: total,
            moved: bytes as u64,
            stonewall_time: moved.stonewall_time,
            stonewall_mean: moved.stonewall_mean,
            pairs: moved.pairs,
        })
    }

    fn tell_outliers(&self, all: &[Vec<f64>]) {
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

    fn failed(&self, what: &str, path: &str, errno: Errno) -> Ended {
        Ended::Failed(format!("rank {}: {}", self.rank.number, failed(what, path, errno)))
    }
}

/// What a rank has transferred.
#[derive(Default)]
struct Moved {
    bytes: u64,
    /// Transfers.
    done: u64,
    /// The most transfers of any rank if there is a wear-out, else this rank's.
    pairs: u64,
    wrong: u64,
    stonewall_time: f64,
    stonewall_mean: u64,
}

impl Part<'_, '_> {
    /// All transfers of an access, or those until the stonewall.
    fn transfers(
        &mut self,
        file: File,
        path: &str,
        whose: usize,
        access: Access,
    ) -> Result<Moved, Ended> {
        let params = self.params;
        let size = match params.random_offset > 1 && !access.writes() {
            true => {
                let stat = self.worker.stat(path);
                stat.map_err(|errno| self.failed("stat", path, errno))?.size
            }
            false => 0,
        };
        let mut course = Course::new(params, whose, self.seed, size, access.writes());
        let name = if access.writes() { "write" } else { "read" };
        self.rank.begin(name, course.transfers() * params.tasks as u64);
        let mut moved = Moved::default();
        let begin = clock::now();
        let all = course.transfers();
        loop {
            let round = moved.done;
            while moved.done - round < all {
                self.transfer(file, path, whose, access, &mut course, &mut moved)?;
                if self.hit(begin, moved.done)? {
                    break;
                }
            }
            let short = clock::now() - begin < f64::from(params.min_seconds);
            if !short || all == 0 || self.is_at_limit(moved.done) {
                break;
            }
        }
        moved.pairs = moved.done;
        if params.wear_out {
            self.wear_out(begin, &mut moved)?;
            while moved.done < moved.pairs && all > 0 {
                self.transfer(file, path, whose, access, &mut course, &mut moved)?;
            }
        }
        Ok(moved)
    }

    fn is_at_limit(&self, done: u64) -> bool {
        self.iterations != 0 && done >= self.iterations
    }

    /// Whether to stop here.
    #[inline]
    fn hit(&mut self, begin: f64, done: u64) -> Result<bool, Ended> {
        if self.params.deadline == 0 {
            return Ok(self.is_at_limit(done));
        }
        let late = clock::now() - begin > f64::from(self.params.deadline);
        let hit = late || self.is_at_limit(done);
        match self.params.collective {
            true => Ok(self.rank.broadcast(u64::from(hit))? == 1),
            false => Ok(hit),
        }
    }

    /// Behind the stonewall: how far the fastest rank is.
    fn wear_out(&mut self, begin: f64, moved: &mut Moved) -> Result<(), Ended> {
        let all = self.rank.exchange(&[moved.done, moved.bytes])?;
        moved.stonewall_time = clock::now() - begin;
        let (done, bytes) = (all.iter().map(|words| words[0]), all.iter().map(|words| words[1]));
        let (least, most) = (done.clone().min().unwrap_or(0), done.max().unwrap_or(0));
        moved.pairs = most;
        moved.stonewall_mean = bytes.clone().sum::<u64>() / self.params.tasks as u64;
        if self.params.format == Format::Default {
            let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
            self.say(&format!(
                "stonewalling pairs accessed min: {least} max: {most} -- min data: {:.1} GiB mean \
                 data: {:.1} GiB time: {:.1}s\n",
                gib(bytes.min().unwrap_or(0)),
                gib(moved.stonewall_mean),
                moved.stonewall_time,
            ));
        }
        Ok(())
    }

    #[inline]
    fn transfer(
        &mut self,
        file: File,
        path: &str,
        whose: usize,
        access: Access,
        course: &mut Course,
        moved: &mut Moved,
    ) -> Result<(), Ended> {
        self.rank.step()?;
        let offset = course.offset(moved.done);
        if access.writes() {
            self.pattern.stamp(&mut self.buffer, whose, offset);
        } else if access.checks() {
            // What is not read must not look right.
            self.buffer[0] = !self.buffer[0];
        }
        self.move_all(file, path, offset, access)?;
        if access.checks()
            && let Some(at) = self.pattern.wrong(&self.buffer, whose, offset)
        {
            moved.wrong += 1;
            if moved.wrong <= TOLD_MAX {
                eprintln!(
                    "rank {}: wrong data in {path} at offset {}, which rank {whose} wrote",
                    self.rank.number,
                    offset + at as u64,
                );
            }
        }
        moved.done += 1;
        moved.bytes += self.params.transfer;
        self.pause();
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a host: the user asked for a pause")]
    fn pause(&self) {
        if self.params.transfer_delay > 0 {
            std::thread::sleep(Duration::from_micros(self.params.transfer_delay));
        }
    }

    /// One transfer, in as many calls as the file system takes it.
    fn move_all(
        &mut self,
        file: File,
        path: &str,
        offset: u64,
        access: Access,
    ) -> Result<(), Ended> {
        let what = if access.writes() { "write" } else { "read" };
        let mut done = 0;
        while done < self.buffer.len() {
            let at = offset + done as u64;
            let moved = match access.writes() {
                true => self.worker.write_at(file, at, &self.buffer[done..]),
                false => self.worker.read_at(file, at, &mut self.buffer[done..]),
            };
            let moved = moved.map_err(|errno| self.failed(what, path, errno))?;
            done += moved;
            if moved == 0 || (done < self.buffer.len() && self.params.single_attempt) {
                let rank = self.rank.number;
                let line =
                    format!("rank {rank}: {what} of {path} ended at offset {}", at + moved as u64);
                return Err(Ended::Failed(line));
            }
        }
        if access.writes() && self.params.fsync_per_write {
            let synced = self.worker.fsync(file);
            synced.map_err(|errno| self.failed("fsync", path, errno))?;
        }
        Ok(())
    }
}
