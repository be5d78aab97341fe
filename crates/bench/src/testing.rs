//! What the tests share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::Errno;

use crate::Surroundings;
use crate::backend::{Backend, File, Open, Space, Stat, Worker};
use crate::posix::Posix;
use crate::ranks::Ended;

/// Phases that began in this thread, which is rank 0's, and what happens at one of them.
#[derive(Default)]
struct Begins {
    names: Vec<String>,
    at: Option<(usize, Box<dyn Fn()>)>,
}

thread_local! {
    static BEGINS: RefCell<Begins> = RefCell::default();
}

/// Rank 0 begins a phase.
pub(crate) fn begins(phase: &str) {
    BEGINS.with_borrow_mut(|begins| {
        if let Some((_, happens)) = begins.at.as_ref().filter(|at| at.0 == begins.names.len()) {
            happens();
        }
        begins.names.push(phase.to_owned());
    });
}

/// From now on phases are noted, and at the beginning of that of this number something happens.
pub(crate) fn watch(at: Option<usize>, happens: impl Fn() + 'static) {
    let happens: Box<dyn Fn()> = Box::new(happens);
    BEGINS.set(Begins { names: Vec::new(), at: at.map(|number| (number, happens)) });
}

/// The phases that began since.
pub(crate) fn begun() -> Vec<String> {
    BEGINS.take().names
}

/// A folder of one test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("sheen-bench-{name}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the folder");
    }
}

/// System calls, counted; one of them may go wrong.
#[derive(Clone, Default)]
pub(crate) struct Counting(Arc<Counts>);

#[derive(Default)]
struct Counts {
    by_name: Mutex<BTreeMap<&'static str, u64>>,
    /// Change the data of this read.
    corrupt: Mutex<Option<u64>>,
    /// Fail this call.
    fail: Mutex<Option<(&'static str, u64, Errno)>>,
    /// Take or give only half of this transfer.
    short: Mutex<Option<(&'static str, u64)>>,
    /// This call takes so long.
    slow: Mutex<Option<(&'static str, u64, Duration)>>,
    /// With this call so many seconds have passed for its rank, without a wait.
    late: Mutex<Option<(&'static str, u64, f64)>>,
    /// Calls of ranks with a path, or with a place in a file, in their order.
    log: Mutex<Vec<(usize, &'static str, String)>>,
    /// Set the flag at this many calls of all.
    interrupt: Mutex<Option<(u64, &'static AtomicBool)>>,
}

impl Counting {
    /// How often `name` was called.
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.0.by_name.lock().get(name).copied().unwrap_or(0)
    }

    /// The `number`th read, from 0, brings a wrong byte.
    pub(crate) fn corrupt(&self, number: u64) {
        *self.0.corrupt.lock() = Some(number);
    }

    /// The `number`th call of `name`, from 0, fails.
    pub(crate) fn fail(&self, name: &'static str, number: u64, errno: Errno) {
        *self.0.fail.lock() = Some((name, number, errno));
    }

    /// The `number`th `name`, a read or a write, from 0, moves half of what it should.
    pub(crate) fn cut_short(&self, name: &'static str, number: u64) {
        *self.0.short.lock() = Some((name, number));
    }

    /// The `number`th `name`, from 0, takes so long.
    pub(crate) fn slow(&self, name: &'static str, number: u64, time: Duration) {
        *self.0.slow.lock() = Some((name, number, time));
    }

    /// With the `number`th `name`, a read or a write, from 0, so many seconds have passed for its rank.
    pub(crate) fn pass(&self, name: &'static str, number: u64, seconds: f64) {
        // Rank 0 may be the test's own thread, which was ahead before.
        crate::clock::AHEAD.set(0.0);
        *self.0.late.lock() = Some((name, number, seconds));
    }

    #[expect(clippy::disallowed_methods, reason = "a slow file system, in real time")]
    fn wait(&self, name: &'static str, number: u64) {
        let slow = *self.0.slow.lock();
        if let Some((_, _, time)) = slow.filter(|slow| (slow.0, slow.1) == (name, number)) {
            std::thread::sleep(time);
        }
        let late = *self.0.late.lock();
        if let Some((_, _, seconds)) = late.filter(|late| (late.0, late.1) == (name, number)) {
            crate::clock::AHEAD.set(seconds);
        }
    }

    /// What `name` was called with, in the order of calls: paths, or offsets of reads and writes.
    pub(crate) fn calls(&self, name: &str) -> Vec<String> {
        let log = self.0.log.lock();
        log.iter().filter(|(_, call, _)| *call == name).map(|(_, _, what)| what.clone()).collect()
    }

    /// The same of one rank.
    pub(crate) fn calls_of(&self, rank: usize, name: &str) -> Vec<String> {
        let log = self.0.log.lock();
        let own = log.iter().filter(|(by, call, _)| (*by, *call) == (rank, name));
        own.map(|(_, _, what)| what.clone()).collect()
    }

    /// How many of `length` bytes the `number`th call moves.
    fn moved(&self, name: &'static str, number: u64, length: usize) -> usize {
        if *self.0.short.lock() == Some((name, number)) { length / 2 } else { length }
    }

    /// After so many calls the user wants an end.
    pub(crate) fn interrupt(&self, calls: u64, stop: &'static AtomicBool) {
        *self.0.interrupt.lock() = Some((calls, stop));
    }

    /// With the next call the user wants an end.
    pub(crate) fn interrupt_soon(&self, stop: &'static AtomicBool) {
        let sum: u64 = self.0.by_name.lock().values().sum();
        self.interrupt(sum, stop);
    }

    fn count(&self, name: &'static str) -> Result<u64, Errno> {
        let mut counts = self.0.by_name.lock();
        let sum: u64 = counts.values().sum();
        if let Some((calls, stop)) = *self.0.interrupt.lock()
            && sum >= calls
        {
            stop.store(true, Ordering::Relaxed);
        }
        let count = counts.entry(name).or_default();
        *count += 1;
        match *self.0.fail.lock() {
            Some((fails, number, errno)) if fails == name && *count == number + 1 => Err(errno),
            _ => Ok(*count - 1),
        }
    }
}

impl Backend for Counting {
    fn name(&self) -> &'static str {
        "NATIVE"
    }

    fn nodes(&self, size: usize, _processes: bool) -> usize {
        size
    }

    fn worker(&self, rank: usize, size: usize) -> Result<Box<dyn Worker>, String> {
        Ok(Box::new(Counted(self.clone(), Posix::default().worker(rank, size)?, rank)))
    }
}

struct Counted(Counting, Box<dyn Worker>, usize);

impl Counted {
    fn log(&self, name: &'static str, what: impl ToString) {
        self.0.0.log.lock().push((self.2, name, what.to_string()));
    }
}

impl Worker for Counted {
    fn open(&mut self, path: &str, how: Open) -> Result<File, Errno> {
        let name = if how == Open::Create { "create" } else { "open" };
        self.0.count(name)?;
        self.log(name, path);
        self.1.open(path, how)
    }

    fn write_at(&mut self, file: File, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let number = self.0.count("write")?;
        self.log("write", offset);
        self.0.wait("write", number);
        self.1.write_at(file, offset, &data[..self.0.moved("write", number, data.len())])
    }

    fn read_at(&mut self, file: File, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let number = self.0.count("read")?;
        self.log("read", offset);
        self.0.wait("read", number);
        let wanted = self.0.moved("read", number, into.len());
        let read = self.1.read_at(file, offset, &mut into[..wanted])?;
        if *self.0.0.corrupt.lock() == Some(number) {
            into[read / 2] ^= 1;
        }
        Ok(read)
    }

    fn fsync(&mut self, file: File) -> Result<(), Errno> {
        self.0.count("fsync")?;
        self.1.fsync(file)
    }

    fn close(&mut self, file: File) -> Result<(), Errno> {
        self.0.count("close")?;
        self.1.close(file)
    }

    fn stat(&mut self, path: &str) -> Result<Stat, Errno> {
        self.0.count("stat")?;
        self.log("stat", path);
        self.1.stat(path)
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        self.0.count("unlink")?;
        self.log("unlink", path);
        self.1.unlink(path)
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        self.0.count("mkdir")?;
        self.log("mkdir", path);
        self.1.mkdir(path)
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        self.0.count("rmdir")?;
        self.1.rmdir(path)
    }

    fn readdir(&mut self, path: &str, each: &mut dyn FnMut(&str, bool)) -> Result<(), Errno> {
        self.0.count("readdir")?;
        self.1.readdir(path, each)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        self.0.count("rename")?;
        self.1.rename(from, to)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Errno> {
        self.0.count("truncate")?;
        self.1.truncate(path, size)
    }

    fn statfs(&mut self, path: &str) -> Result<Space, Errno> {
        self.1.statfs(path)
    }

    fn sync(&mut self, path: &str) -> Result<(), Errno> {
        self.0.count("sync")?;
        self.1.sync(path)
    }
}

/// Every file below `path` with its size, directories as `None`.
pub(crate) fn tree(path: &str) -> BTreeMap<String, Option<u64>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![PathBuf::from(path)];
    while let Some(folder) = ahead.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let shown = entry.path().strip_prefix(path).expect("below").display().to_string();
            let metadata = entry.metadata().expect("metadata");
            found.insert(shown, metadata.is_file().then_some(metadata.len()));
            if metadata.is_dir() {
                ahead.push(entry.path());
            }
        }
    }
    found
}

/// Options of a benchmark, of a line of words.
pub(crate) fn options<T: clap::Args>(words: &str) -> T {
    #[derive(clap::Parser)]
    struct Line<T: clap::Args> {
        #[command(flatten)]
        options: T,
    }
    let words = words.split(' ').filter(|word| !word.is_empty());
    let line = <Line<T> as clap::Parser>::try_parse_from(std::iter::once("bench").chain(words));
    line.expect("options that exist").options
}

/// Runs a benchmark on a counting backend; answers how it ended and what it wrote.
pub(crate) fn run(
    words: &str,
    counting: &Counting,
    stop: &AtomicBool,
    benchmark: impl FnOnce(&Surroundings) -> Result<(), Ended>,
) -> (Result<(), Ended>, String) {
    let written = Mutex::new(String::new());
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let surroundings = Surroundings {
        stop,
        native: &|_, _| Ok(Box::new(counting.clone())),
        out: &|text| written.lock().push_str(text),
        words: &words,
        meter: None,
    };
    let ended = benchmark(&surroundings);
    (ended, written.into_inner())
}
