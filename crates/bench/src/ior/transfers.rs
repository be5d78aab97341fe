//! The transfers of one access of one rank: until the end, a stonewall, or what the fastest has reached.
//!
//! A transfer costs, beside itself, the arithmetic of its place, the stamps of its data and a step of the
//! rank's counter; under a stonewall also a look at the clock. Verifying reads every byte.

use std::time::Duration;

use super::course::Course;
use super::job::{Access, Part};
use super::params::Format;
use crate::backend::File;
use crate::clock;
use crate::ranks::Ended;

/// Wrong transfers that one rank reports.
const REPORTED_MAX: u64 = 8;

/// What a rank has transferred.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    /// Transfers.
    pub(super) done: u64,
    /// The most transfers of any rank if there is a wear-out, else this rank's.
    pub(super) pairs: u64,
    pub(super) wrong: u64,
    pub(super) stonewall_time: f64,
    pub(super) stonewall_mean: u64,
}

impl Part<'_, '_> {
    /// All transfers of an access, or those until the stonewall.
    pub(super) fn transfers(
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
        let mut course = Course::new(params, whose, self.seed, size, access.writes())?;
        let name = if access.writes() { "write" } else { "read" };
        let total = course.transfers() * params.tasks as u64;
        self.rank.begin(name, total, params.transfer);
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
        self.rank.end();
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
        let offset = course.offset(moved.done);
        if access.writes() {
            self.pattern.stamp(&mut self.buffer, whose, offset);
        } else if access.checks() {
            // What is not read must not look right.
            self.buffer[0] = !self.buffer[0];
        }
        let begun = self.rank.step()?;
        self.move_all(file, path, offset, access)?;
        self.rank.done(begun);
        if access.checks()
            && let Some(at) = self.pattern.wrong(&self.buffer, whose, offset)
        {
            moved.wrong += 1;
            if moved.wrong <= REPORTED_MAX {
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
