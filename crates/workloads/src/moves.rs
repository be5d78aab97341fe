//! A file that two mounts write, cut and read in turn while it moves from layout to layout, compared with
//! bytes in memory after each step.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

use crate::bytes::{Random, fill};
use crate::{Context, Outcome, ensure};

/// Bytes of the file at most: over the borders of all the layouts.
const BYTES_MAX: u64 = 6 << 20;
/// Bytes of one write at most.
const WRITE_MAX: u64 = 300_000;
/// Steps between two moves, if they are not made beside.
const STEPS_BETWEEN: u64 = 5;
/// Steps that a fault shows.
const SHOWN: usize = 12;

/// Layouts, as `lfs setstripe` and `lfs migrate` take them.
const LAYOUTS: [&[&str]; 8] = [
    &["-c", "1"],
    &["-c", "-1", "-S", "64K"],
    &["-C", "5", "-S", "128K"],
    &["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1"],
    &["-E", "1M", "-L", "mdt", "-E", "2M", "-c", "1", "-E", "-1", "-c", "-1", "-S", "256K"],
    &["-E", "128K", "-c", "1", "-E", "1M", "-c", "2", "-S", "64K", "-E", "-1", "-C", "4"],
    &["-E", "4M", "-c", "1", "-E", "-1", "-c", "2"],
    &["-E", "1M", "-C", "3", "-S", "64K", "-E", "-1", "-c", "1"],
];

/// What one step does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write { at: u64, length: u64 },
    Append { length: u64 },
    Cut { size: u64 },
    Read { at: u64, length: u64 },
}

/// Any of the layouts.
pub fn layout(random: &mut Random) -> &'static [&'static str] {
    LAYOUTS[random.below(LAYOUTS.len() as u64) as usize]
}

/// Does `steps` steps on `name` below the two tops, which show the same directory, while `migrate` moves
/// that file by the command line it is given (`lfs migrate` without its name and the file's), as
/// often as it can. Answers how often that was.
///
/// # Errors
/// With the last steps, when a mount shows other bytes than were written.
pub fn run_beside(
    tops: [&Path; 2],
    name: &str,
    seed: u64,
    steps: u64,
    migrate: impl Fn(&[&str], &Path) -> Outcome + Sync,
) -> Outcome<u64> {
    let paths = tops.map(|top| top.join(name));
    File::create(&paths[0]).context("create")?;
    let ends = AtomicBool::new(false);
    // A kernel that hears of lost pages while it asks for the size leaves the answer out, and reads up to
    // the end that it knew before (docs/SEMANTICS.md). Beside a mover that happens; the mount itself must
    // be right all the same.
    let past_pages = OFlags::DIRECT;
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| move_about(&paths, seed, &ends, &migrate));
        let outcome = Subject::new(&paths, past_pages, seed)
            .and_then(|mut subject| (0..steps).try_for_each(|number| subject.step(number)));
        ends.store(true, Ordering::Relaxed);
        let moved = mover.join().map_err(|_panic| "the mover panicked".to_owned())?;
        outcome.map_err(|fault| format!("seed {seed}: {fault}"))?;
        moved
    })
}

/// As [`run_beside`], with a move after every few steps instead.
///
/// # Errors
/// As [`run_beside`].
pub fn run_between(
    tops: [&Path; 2],
    name: &str,
    seed: u64,
    steps: u64,
    migrate: impl Fn(&[&str], &Path) -> Outcome,
) -> Outcome {
    let paths = tops.map(|top| top.join(name));
    File::create(&paths[0]).context("create")?;
    let mut subject = Subject::new(&paths, OFlags::empty(), seed)?;
    let mut random = Random::new(seed ^ 0x6d6f_7665);
    for number in 0..steps {
        subject.step(number).map_err(|fault| format!("seed {seed}: {fault}"))?;
        if random.below(STEPS_BETWEEN) == 0 {
            let (to, mount) = (layout(&mut random), random.below(2) as usize);
            migrate(to, &paths[mount])?;
            subject.done.push(format!("moved by mount {mount} to {}", to.join(" ")));
            let whole = subject.whole().map_err(|fault| subject.failure(&fault));
            whole.map_err(|fault| format!("seed {seed}: {fault}"))?;
        }
    }
    Ok(())
}

fn move_about(
    paths: &[PathBuf; 2],
    seed: u64,
    ends: &AtomicBool,
    migrate: &impl Fn(&[&str], &Path) -> Outcome,
) -> Outcome<u64> {
    let mut random = Random::new(seed ^ 0x6d6f_7665);
    let mut moves = 0;
    while !ends.load(Ordering::Relaxed) {
        let path = &paths[random.below(2) as usize];
        migrate(layout(&mut random), path)?;
        moves += 1;
    }
    Ok(moves)
}

/// The file on both mounts, and what it must hold.
struct Subject {
    files: [File; 2],
    /// The file, opened to append.
    ends: [File; 2],
    /// The file, opened to read.
    readers: [File; 2],
    bytes: Vec<u8>,
    random: Random,
    seed: u64,
    /// What was done: a failure lists the last of it.
    done: Vec<String>,
}

impl Subject {
    fn new(paths: &[PathBuf; 2], reading: OFlags, seed: u64) -> Outcome<Self> {
        let open = |path: &PathBuf| {
            OpenOptions::new().read(true).write(true).open(path).context(path.display())
        };
        let flags = reading.bits().cast_signed();
        let reader = |path: &PathBuf| {
            OpenOptions::new().read(true).custom_flags(flags).open(path).context(path.display())
        };
        let append =
            |path: &PathBuf| OpenOptions::new().append(true).open(path).context(path.display());
        let files = [open(&paths[0])?, open(&paths[1])?];
        let ends = [append(&paths[0])?, append(&paths[1])?];
        let readers = [reader(&paths[0])?, reader(&paths[1])?];
        Ok(Self {
            files,
            ends,
            readers,
            bytes: Vec::new(),
            random: Random::new(seed),
            seed,
            done: Vec::new(),
        })
    }

    fn draw(&mut self) -> Act {
        let size = self.bytes.len() as u64;
        let length = 1 + self.random.below(WRITE_MAX);
        match self.random.below(10) {
            0..4 => {
                let at = self.random.below(BYTES_MAX - WRITE_MAX);
                // Mostly near what is there: a file of holes shows little.
                let at = if self.random.below(3) > 0 { at % (size + 1) } else { at };
                Act::Write { at, length }
            }
            4..6 if size + length <= BYTES_MAX => Act::Append { length },
            4..7 => Act::Cut { size: self.random.below(BYTES_MAX) },
            _ => Act::Read { at: self.random.below(size + 1), length },
        }
    }

    fn step(&mut self, number: u64) -> Outcome {
        let mount = self.random.below(2) as usize;
        let act = self.draw();
        self.done.push(format!("step {number} by mount {mount}: {act:?}"));
        let outcome = self.perform(number, mount, act).and_then(|()| {
            let other = 1 - mount;
            self.same_size(mount).and_then(|()| self.same_size(other))
        });
        outcome.map_err(|fault| self.failure(&fault))
    }

    fn perform(&mut self, number: u64, mount: usize, act: Act) -> Outcome {
        let file = &self.files[mount];
        match act {
            Act::Write { at, length } => {
                let data = self.data(number, length);
                file.write_all_at(&data, at).context("write")?;
                self.put(at, &data);
            }
            Act::Append { length } => {
                let data = self.data(number, length);
                // Not by a seek to the end: where another mount changes the file at that moment the kernel may
                // take an old one for it (docs/SEMANTICS.md).
                (&self.ends[mount]).write_all(&data).context("append")?;
                self.put(self.bytes.len() as u64, &data);
            }
            Act::Cut { size } => {
                file.set_len(size).context("cut")?;
                self.bytes.resize(size as usize, 0);
            }
            Act::Read { at, length } => self.compare(mount, at, length)?,
        }
        Ok(())
    }

    fn data(&self, number: u64, length: u64) -> Vec<u8> {
        let mut data = vec![0; length as usize];
        fill(&mut data, self.seed ^ number << 20, 0);
        data
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (at, end) = (at as usize, at as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
    }

    fn compare(&self, mount: usize, at: u64, length: u64) -> Outcome {
        let mut read = vec![0; length as usize];
        let mut got = 0;
        while got < read.len() {
            match self.readers[mount].read_at(&mut read[got..], at + got as u64).context("read")? {
                0 => break,
                count => got += count,
            }
        }
        let at = at as usize;
        let wanted = &self.bytes[at..self.bytes.len().min(at + length as usize)];
        ensure(got == wanted.len(), || {
            format!("mount {mount} read {got} bytes at {at}, not {}", wanted.len())
        })?;
        let wrong = read[..got].iter().zip(wanted).position(|(read, wanted)| read != wanted);
        ensure(wrong.is_none(), || {
            let first = at + wrong.unwrap_or(0);
            format!("mount {mount} shows another byte at {first}")
        })
    }

    fn same_size(&self, mount: usize) -> Outcome {
        let size = self.files[mount].metadata().context("stat")?.len();
        let wanted = self.bytes.len() as u64;
        ensure(size == wanted, || format!("mount {mount} shows {size} bytes, not {wanted}"))
    }

    /// Both mounts show all of the file.
    fn whole(&self) -> Outcome {
        (0..2).try_for_each(|mount| {
            self.same_size(mount)?;
            self.compare(mount, 0, self.bytes.len() as u64)
        })
    }

    fn failure(&self, fault: &str) -> String {
        let from = self.done.len().saturating_sub(SHOWN);
        format!("{fault}, after\n  {}", self.done[from..].join("\n  "))
    }
}
