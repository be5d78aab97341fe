//! One rank's work: the phases of each iteration, in mdtest's order.
//!
//! Tree made; directories created, stated, "read", renamed, removed; files created, stated, read, removed;
//! tree removed. A phase is timed from behind the barrier before it to behind the barrier at its end.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::plan::{Kind, Names, Plan, test_directory};
use super::{Measured, Options, Phase};
use crate::backend::{Buffer, File, Open, Worker, room};
use crate::clock;
use crate::pattern::{Chance, Pattern};
use crate::ranks::{Ended, Job, Rank};
use crate::text::failed;
use sheen_types::Errno;

/// A run of mdtest.
pub(super) struct Run<'o> {
    pub(super) options: &'o Options,
    pub(super) plan: &'o Plan,
    /// Seed of random orders and of the data, as far as not asked for; rank 0's counts.
    pub(super) seed: u32,
    /// Ranks by which each phase is shifted from the one before.
    pub(super) stride: u64,
}

/// What rank 0 answers.
pub(super) struct Answer {
    /// For each iteration, for each rank.
    pub(super) measured: Vec<Vec<Measured>>,
    /// Reads that found wrong data, of all ranks.
    pub(super) wrong: u64,
    /// Lines about stonewalls.
    pub(super) lines: Vec<String>,
}

impl Job for Run<'_> {
    type Answer = Answer;

    fn run(&self, rank: &mut Rank, worker: &mut dyn Worker) -> Result<Answer, Ended> {
        let (options, plan) = (self.options, self.plan);
        let seed = rank.broadcast(self.seed.into())? as u32;
        let random = options.random.map(|given| options.random_seed.unwrap_or(given));
        let random = random.map(|given| u64::from(if given == 0 { seed } else { given }));
        let pattern = Pattern { packet: plan.packet, seed: options.data_seed.unwrap_or(seed) };
        let mut write = Buffer::new(options.write_bytes)?;
        pattern.fill(&mut write, rank.number);
        let order = |seed: u64| {
            let mut numbers = room(plan.items)?;
            numbers.extend(plan.first_item..plan.first_item + plan.items);
            Chance::new(plan.first_item ^ seed).shuffle(&mut numbers);
            Ok::<_, String>(numbers)
        };
        let mut part = Part {
            options,
            plan,
            pattern,
            write,
            read: Buffer::new(options.read_bytes)?,
            walk: plan.walk()?,
            order: None,
            path: plan.paths[rank.number % plan.paths.len()].clone(),
            stride: self.stride,
            items: plan.items,
            wrong: 0,
            lines: Vec::new(),
            measured: Measured::default(),
            rank,
            worker,
        };
        let mut measured = Vec::new();
        for iteration in 0..options.iterations {
            part.measured = Measured::default();
            part.items = plan.items;
            part.order = random.map(order).transpose()?;
            part.iteration(iteration)?;
            let all = part.rank.gather_reals(&part.measured.to_reals())?;
            measured.push(all.iter().map(|reals| Measured::from_reals(reals)).collect());
        }
        let wrong = part.rank.gather(part.wrong)?.iter().sum();
        Ok(Answer { measured, wrong, lines: part.lines })
    }
}

/// In which order items are worked on.
#[derive(Clone, Copy)]
enum Order {
    /// Directory by directory, down before across.
    Walk,
    /// By their numbers.
    Plain,
    /// As [`Part::order`] says.
    Random,
}

/// One rank's state.
struct Part<'r, 'a> {
    options: &'r Options,
    plan: &'r Plan,
    pattern: Pattern,
    write: Buffer,
    read: Buffer,
    /// Directories with items, in the order of creation.
    walk: Vec<u64>,
    /// Items in a random order, if that was asked for.
    order: Option<Vec<u64>>,
    path: String,
    stride: u64,
    /// Items of this rank in one tree, in this iteration.
    items: u64,
    wrong: u64,
    lines: Vec<String>,
    measured: Measured,
    rank: &'r mut Rank<'a>,
    worker: &'r mut dyn Worker,
}

impl<'r> Part<'r, '_> {
    fn iteration(&mut self, iteration: u32) -> Result<(), Ended> {
        if self.plan.create {
            self.test_directories(iteration, true)?;
            self.tree(iteration, true)?;
        }
        if self.plan.directories {
            self.delay();
            self.rank.barrier()?;
            self.directories(iteration)?;
        }
        if self.plan.files {
            self.delay();
            self.rank.barrier()?;
            self.files(iteration)?;
        }
        self.rank.barrier()?;
        if self.plan.remove {
            self.tree(iteration, false)?;
            self.test_directories(iteration, false)?;
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a host: the user asked for a pause")]
    fn delay(&self) {
        if self.rank.number == 0 {
            std::thread::sleep(Duration::from_secs(self.options.delay.into()));
        }
    }

    /// Makes or removes the directories that hold the trees.
    fn test_directories(&mut self, iteration: u32, make: bool) -> Result<(), Ended> {
        if self.rank.number < self.plan.paths.len() {
            for tree in 0..self.plan.trees {
                let path = test_directory(&self.path, iteration, tree);
                let there = self.worker.stat(&path).is_ok();
                if make && !there {
                    let made = self.worker.mkdir(&path);
                    made.map_err(|errno| self.failed("create test directory", &path, errno))?;
                } else if !make && there {
                    let gone = self.worker.rmdir(&path);
                    gone.map_err(|errno| self.failed("remove test directory", &path, errno))?;
                }
            }
        }
        self.rank.barrier()
    }

    /// Makes or removes the directories of the trees.
    fn tree(&mut self, iteration: u32, make: bool) -> Result<(), Ended> {
        let phase = if make { Phase::TreeCreate } else { Phase::TreeRemove };
        self.rank.begin(phase.name(), 0, 0);
        let own = self.options.unique.then_some(self.rank.number);
        let begin = clock::now();
        if own.is_some() || self.rank.number == 0 {
            let plan = self.plan;
            let mut names = Names::new(plan, Kind::Directory, own, 0);
            for tree in 0..plan.trees {
                names.enter(&self.path, iteration, tree);
                for step in 0..plan.tree_directories {
                    // Children are numbered above their parents.
                    let last = plan.tree_directories - 1;
                    let path = names.directory(if make { step } else { last - step });
                    let begun = self.rank.step()?;
                    let (done, what) = match make {
                        true => (self.worker.mkdir(path), "create tree directory"),
                        false => (self.worker.rmdir(path), "remove tree directory"),
                    };
                    done.map_err(|errno| self.failed(what, path, errno))?;
                    self.rank.done(begun);
                }
            }
        }
        self.rank.barrier()?;
        self.rank.end();
        let time = clock::now() - begin;
        self.measured.set(phase, self.plan.tree_directories * self.plan.trees, time, time);
        Ok(())
    }

    /// The items that this rank works on `shift` strides away from those it created.
    fn names(&self, kind: Kind, shift: u64) -> Names<'r> {
        let shifted = |shift: u64| {
            let size = self.rank.size as u64;
            ((self.rank.number as u64 + shift * (self.stride % size)) % size) as usize
        };
        // Rank r's items lie in the tree of the rank one stride further.
        let tree = self.options.unique.then(|| shifted(shift + 1));
        Names::new(self.plan, kind, tree, shifted(shift))
    }

    fn directories(&mut self, iteration: u32) -> Result<(), Ended> {
        let plan = self.plan;
        if plan.create {
            self.timed(Phase::DirCreate, |part| {
                let names = part.names(Kind::Directory, 0);
                part.each(iteration, names, Order::Walk, |part, path, _| {
                    let made = part.worker.mkdir(path);
                    made.map_err(|errno| part.failed("create directory", path, errno))
                })
            })?;
        }
        if plan.stat {
            self.timed(Phase::DirStat, |part| part.stat_all(iteration, Kind::Directory))?;
        }
        if plan.rename && self.items > 1 {
            self.timed(Phase::DirRename, |part| part.rename_all(iteration))?;
        }
        if plan.remove {
            self.timed(Phase::DirRemove, |part| {
                let names = part.names(Kind::Directory, 3);
                part.each(iteration, names, Order::Walk, |part, path, _| {
                    let gone = part.worker.rmdir(path);
                    gone.map_err(|errno| part.failed("remove directory", path, errno))
                })
            })?;
        }
        Ok(())
    }

    fn files(&mut self, iteration: u32) -> Result<(), Ended> {
        let plan = self.plan;
        match plan.create {
            true => self.timed(Phase::FileCreate, |part| part.create_all(iteration))?,
            false => self.take_status()?,
        }
        if plan.stat {
            self.timed(Phase::FileStat, |part| part.stat_all(iteration, Kind::File))?;
        }
        if plan.read {
            self.timed(Phase::FileRead, |part| {
                let (names, order) = (part.names(Kind::File, 2), part.order());
                part.each(iteration, names, order, Self::read_file)
            })?;
        }
        if plan.remove {
            self.timed(Phase::FileRemove, |part| {
                let names = part.names(Kind::File, 3);
                part.each(iteration, names, Order::Walk, |part, path, _| {
                    let gone = part.worker.unlink(path);
                    gone.map_err(|errno| part.failed("remove file", path, errno))
                })
            })?;
        }
        Ok(())
    }

    /// A phase with its barriers. `work` works on all items.
    fn timed(
        &mut self,
        phase: Phase,
        work: impl FnOnce(&mut Self) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        let barriers = self.options.no_barriers == 0;
        command(self.options.before_phase.as_deref())?;
        if barriers {
            self.rank.barrier()?;
        }
        let total = self.items * self.plan.trees * self.rank.size as u64;
        self.rank.begin(phase.name(), total, 0);
        let mut begin = clock::now();
        if self.options.unique && matches!(phase, Phase::DirCreate | Phase::FileCreate) {
            self.rank.barrier()?;
            if !self.options.time_unique_overhead {
                begin = clock::now();
            }
        }
        work(self)?;
        let before = clock::now();
        if self.options.call_sync {
            let synced = self.worker.sync(&self.path);
            synced.map_err(|errno| self.failed("sync the file system of", &self.path, errno))?;
        }
        command(self.options.after_phase.as_deref())?;
        if barriers {
            self.rank.barrier()?;
        }
        let items = self.items * self.plan.trees;
        self.measured.set(phase, items, clock::now() - begin, before - begin);
        self.rank.end();
        Ok(())
    }

    fn order(&self) -> Order {
        if self.order.is_some() { Order::Random } else { Order::Plain }
    }

    /// The number of the item that comes at `place` of a tree.
    #[inline]
    fn number(&self, order: Order, place: u64) -> u64 {
        let in_each = self.plan.items_per_directory;
        match (order, &self.order) {
            (Order::Walk, _) => self.walk[(place / in_each) as usize] * in_each + place % in_each,
            (Order::Random, Some(order)) => order[place as usize],
            _ => self.plan.first_item + place,
        }
    }

    /// Does `work` to every item of every tree.
    fn each(
        &mut self,
        iteration: u32,
        mut names: Names,
        order: Order,
        work: impl Fn(&mut Self, &str, u64) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        for tree in 0..self.plan.trees {
            names.enter(&self.path, iteration, tree);
            for place in 0..self.items {
                let number = self.number(order, place);
                let path = names.item(number);
                let begun = self.rank.step()?;
                work(self, path, number)?;
                self.rank.done(begun);
            }
        }
        Ok(())
    }

    fn stat_all(&mut self, iteration: u32, kind: Kind) -> Result<(), Ended> {
        let (names, order) = (self.names(kind, 1), self.order());
        self.each(iteration, names, order, |part, path, _| {
            let stat = part.worker.stat(path);
            stat.map(drop).map_err(|errno| part.failed("stat", path, errno))
        })
    }

    /// Gives each directory the name of the one before it, the first one a name aside, and that the name
    /// that is left: there are as many renames as directories, and as many names as before.
    fn rename_all(&mut self, iteration: u32) -> Result<(), Ended> {
        let mut names = self.names(Kind::Directory, 1);
        let (mut aside, mut free, mut from) = (String::new(), String::new(), String::new());
        for tree in 0..self.plan.trees {
            names.enter(&self.path, iteration, tree);
            for place in 0..self.items {
                from.clear();
                if place + 1 == self.items {
                    from.push_str(&aside);
                } else {
                    from.push_str(names.item(self.number(Order::Plain, place)));
                }
                if place == 0 {
                    aside = format!("{from}-XX");
                    free.clone_from(&aside);
                }
                let begun = self.rank.step()?;
                let renamed = self.worker.rename(&from, &free);
                renamed.map_err(|errno| self.failed("rename", &from, errno))?;
                self.rank.done(begun);
                std::mem::swap(&mut free, &mut from);
            }
        }
        Ok(())
    }

    fn create_all(&mut self, iteration: u32) -> Result<(), Ended> {
        let names = self.names(Kind::File, 0);
        if self.options.stonewall == 0 {
            self.each(iteration, names, Order::Walk, Self::create_file)?;
            return self.keep_status(self.items);
        }
        self.create_until(iteration, names)
    }

    /// Creates until the time is over, and then until this rank has as many as the fastest.
    fn create_until(&mut self, iteration: u32, mut names: Names) -> Result<(), Ended> {
        names.enter(&self.path, iteration, 0);
        let (begin, limit) = (clock::now(), f64::from(self.options.stonewall));
        let mut create = |part: &mut Self, place: u64| {
            let number = part.number(Order::Walk, place);
            let path = names.item(number);
            let begun = part.rank.step()?;
            part.create_file(path, number)?;
            part.rank.done(begun);
            Ok::<(), Ended>(())
        };
        let mut done = 0;
        while done < self.items && clock::now() - begin <= limit {
            create(self, done)?;
            done += 1;
        }
        let all = self.rank.gather(done)?;
        let time = clock::now() - begin;
        let (most, least) = (all.iter().copied().max(), all.iter().copied().min());
        let (most, least, sum) = (most.unwrap_or(0), least.unwrap_or(0), all.iter().sum::<u64>());
        let size = self.rank.size as u64;
        self.measured.stonewall = [time, sum as f64, (least * size) as f64];
        if self.items != sum / size {
            let mean = sum as f64 / size as f64;
            let line = format!("Continue stonewall hit min: {least} max: {most} avg: {mean:.1} \n");
            self.lines.push(line);
        }
        for place in done..most {
            create(self, place)?;
        }
        self.use_only(most);
        self.keep_status(most)
    }

    /// From now on a tree has so many items.
    fn use_only(&mut self, items: u64) {
        self.items = items;
        let end = self.plan.first_item + items;
        if let Some(order) = &mut self.order {
            order.retain(|number| *number < end);
        }
    }

    fn keep_status(&self, items: u64) -> Result<(), Ended> {
        let Some(path) = self.options.status_file.as_ref().filter(|_| self.rank.number == 0) else {
            return Ok(());
        };
        let written = std::fs::write(path, items.to_string());
        written.map_err(|error| Ended::Failed(format!("cannot write {path}: {error}")))
    }

    /// How many items an earlier run has created.
    fn take_status(&mut self) -> Result<(), Ended> {
        let Some(path) = &self.options.status_file else { return Ok(()) };
        let mut given = 0;
        if self.rank.number == 0 {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let items = text.trim().parse().ok().filter(|items| *items <= self.plan.items);
            let line =
                || format!("{path} does not hold a number of items up to {}", self.plan.items);
            given = items.ok_or_else(|| Ended::Failed(line()))?;
        }
        let items = self.rank.broadcast(given)?;
        self.use_only(items);
        Ok(())
    }

    fn create_file(&mut self, path: &str, number: u64) -> Result<(), Ended> {
        let opened = self.worker.open(path, Open::Create);
        let file = opened.map_err(|errno| self.failed("create file", path, errno))?;
        if !self.write.is_empty() {
            self.pattern.stamp(&mut self.write, self.rank.number, number);
            let written = self.worker.write_at(file, 0, &self.write);
            match written {
                Ok(length) if length == self.write.len() => {}
                Ok(length) => {
                    let line =
                        format!("rank {}: wrote only {length} bytes to {path}", self.rank.number);
                    return Err(Ended::Failed(line));
                }
                Err(errno) => return Err(self.failed("write", path, errno)),
            }
            if self.options.sync_file {
                let synced = self.worker.fsync(file);
                synced.map_err(|errno| self.failed("fsync", path, errno))?;
            }
            if self.options.verify_write {
                let mut buffer = std::mem::take(&mut self.write);
                buffer[0] = !buffer[0];
                let read = self.read_into(file, path, &mut buffer);
                self.verify(path, &buffer, self.rank.number, number);
                self.pattern.fill(&mut buffer, self.rank.number);
                self.write = buffer;
                read?;
            }
        }
        let closed = self.worker.close(file);
        closed.map_err(|errno| self.failed("close", path, errno))
    }

    fn read_file(&mut self, path: &str, number: u64) -> Result<(), Ended> {
        let opened = self.worker.open(path, Open::Read);
        let file = opened.map_err(|errno| self.failed("open", path, errno))?;
        if !self.read.is_empty() {
            let mut buffer = std::mem::take(&mut self.read);
            buffer[0] = !buffer[0];
            let read = self.read_into(file, path, &mut buffer);
            if self.options.verify_read && read.is_ok() {
                let size = self.rank.size as u64;
                let writer = (self.rank.number as u64 + 2 * (self.stride % size)) % size;
                self.verify(path, &buffer, writer as usize, number);
            }
            self.read = buffer;
            read?;
        }
        let closed = self.worker.close(file);
        closed.map_err(|errno| self.failed("close", path, errno))
    }

    fn read_into(&mut self, file: File, path: &str, buffer: &mut [u8]) -> Result<(), Ended> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = self.worker.read_at(file, filled as u64, &mut buffer[filled..]);
            match read.map_err(|errno| self.failed("read", path, errno))? {
                0 => {
                    let line = format!("rank {}: {path} ends at {filled}", self.rank.number);
                    return Err(Ended::Failed(line));
                }
                more => filled += more,
            }
        }
        Ok(())
    }

    /// Counts wrong data, and reports the first of a rank.
    fn verify(&mut self, path: &str, data: &[u8], writer: usize, number: u64) {
        let Some(offset) = self.pattern.wrong(data, writer, number) else { return };
        if self.wrong == 0 {
            eprintln!("rank {}: wrong data in {path} at offset {offset}", self.rank.number);
        }
        self.wrong += 1;
    }

    fn failed(&self, what: &str, path: &str, errno: Errno) -> Ended {
        Ended::Failed(format!("rank {}: {}", self.rank.number, failed(what, path, errno)))
    }
}

/// Runs what the user wants beside a phase.
fn command(command: Option<&str>) -> Result<(), Ended> {
    let Some(command) = command else { return Ok(()) };
    // Of a rank that is a process standard input is the way to the other ranks.
    match Command::new("sh").args(["-c", command]).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Ended::Failed(format!("'{command}': {status}"))),
        Err(error) => Err(Ended::Failed(format!("'{command}': {error}"))),
    }
}
