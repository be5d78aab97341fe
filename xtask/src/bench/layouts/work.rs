//! What a process of the measurement does.
#![allow(clippy::disallowed_methods, reason = "measuring is reading the clock")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Bytes of one direct read of a stream.
const STREAM_BLOCK: usize = 1 << 20;
/// Direct reads go to memory that begins with a page.
const PAGE: usize = 4096;

/// One kind of work, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(super) act: Act,
    /// Folder of small files, or the file itself.
    pub(super) path: PathBuf,
}

/// Which of several processes' files.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Files {
    /// What their names begin with: the number of the process.
    pub(super) writer: u64,
    pub(super) count: u64,
    pub(super) bytes: usize,
}

/// A kind of work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Act {
    /// Create, write and close each.
    Create(Files),
    /// Open, read and close each.
    Read(Files),
    /// Ask for the attributes of each.
    Stat(Files),
    /// Write so many blocks, one `step` after the other, and sync the file.
    Blocks { first: u64, step: u64, count: u64, bytes: usize },
    /// Create, write, close, and `fsync` before if so asked, for so long.
    CreateFor { seconds: f64, bytes: usize, sync: bool },
    /// What is done with files of two folders below, some in the one, some in the other, in turns.
    Turns { what: Turn, files: Files },
    /// Read the file past all caches of this machine's kernel, again and again, for so long.
    StreamFor { seconds: f64 },
}

/// What is done in turns.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Turn {
    Create,
    Read,
    Stat,
}

/// The folders of what is done in turns.
pub(super) const TURNS: [&str; 2] = ["one", "other"];
/// Files of one turn.
const TURN: u64 = 20;

impl Job {
    /// Does it; answers how many operations that were, and the seconds of what was done in turns.
    pub(crate) fn work(&self) -> std::result::Result<(u64, [f64; 2]), String> {
        let mut turns = [0.0; 2];
        let done = match self.act {
            Act::Create(files) => files.all(Turn::Create, &self.path),
            Act::Read(files) => files.all(Turn::Read, &self.path),
            Act::Stat(files) => files.all(Turn::Stat, &self.path),
            Act::Turns { what, files } => files.in_turns(what, &self.path, &mut turns),
            Act::Blocks { first, step, count, bytes } => {
                blocks(&self.path, (first, step), count, bytes)
            }
            Act::CreateFor { seconds, bytes, sync } => until(seconds, |number| {
                create(&self.path.join(format!("{number:07}")), bytes, sync)
            }),
            Act::StreamFor { seconds } => stream(&self.path, seconds),
        };
        let failure = |error| format!("{:?} in {}: {error}", self.act, self.path.display());
        done.map(|operations| (operations, turns)).map_err(failure)
    }
}

impl Files {
    fn all(self, what: Turn, folder: &Path) -> Result<u64> {
        (0..self.count).try_for_each(|number| self.one(what, folder, number))?;
        Ok(self.count)
    }

    fn in_turns(self, what: Turn, folder: &Path, seconds: &mut [f64; 2]) -> Result<u64> {
        let folders = TURNS.map(|name| folder.join(name));
        for first in (0..self.count).step_by(TURN as usize) {
            for (folder, seconds) in folders.iter().zip(&mut *seconds) {
                let start = Instant::now();
                let numbers = first..self.count.min(first + TURN);
                numbers.into_iter().try_for_each(|number| self.one(what, folder, number))?;
                *seconds += start.elapsed().as_secs_f64();
            }
        }
        Ok(2 * self.count)
    }

    fn one(self, what: Turn, folder: &Path, number: u64) -> Result<()> {
        let name = folder.join(format!("{}-{number:06}", self.writer));
        match what {
            Turn::Create => create(&name, self.bytes, false),
            Turn::Read => read(&name, self.bytes),
            Turn::Stat => expect(name.metadata()?.len() == self.bytes as u64, "another size"),
        }
    }
}

fn create(name: &Path, bytes: usize, sync: bool) -> Result<()> {
    let mut file = File::create_new(name)?;
    file.write_all(&vec![0x5a; bytes])?;
    if sync { file.sync_all() } else { Ok(()) }
}

fn read(name: &Path, bytes: usize) -> Result<()> {
    let mut found = Vec::with_capacity(bytes + 1);
    // One read of all, as `cat` does it, and one that finds the end.
    File::open(name)?.read_to_end(&mut found)?;
    expect(found.len() == bytes && found.iter().all(|byte| *byte == 0x5a), "other bytes")
}

fn expect(holds: bool, otherwise: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(std::io::Error::other(otherwise)) }
}

fn blocks(path: &Path, (first, step): (u64, u64), count: u64, bytes: usize) -> Result<u64> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let block = vec![0x5a; bytes];
    for number in 0..count {
        file.write_all_at(&block, first + number * step)?;
    }
    file.sync_all()?;
    Ok(count)
}

fn stream(path: &Path, seconds: f64) -> Result<u64> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
    let blocks = (file.metadata()?.len() / STREAM_BLOCK as u64).max(1);
    let mut memory = vec![0; STREAM_BLOCK + PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let block = &mut memory[start..start + STREAM_BLOCK];
    until(seconds, |number| file.read_exact_at(block, number % blocks * STREAM_BLOCK as u64))
}

/// Does it again and again for so long.
fn until(seconds: f64, mut act: impl FnMut(u64) -> Result<()>) -> Result<u64> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut number = 0;
    while Instant::now() < end {
        act(number)?;
        number += 1;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let folder = std::env::temp_dir().join(format!("sheen-xtask-work-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let files = Files { writer: 3, count: 4, bytes: 5000 };
        let job = |act| Job { act, path: folder.clone() };
        for act in [Act::Create(files), Act::Read(files), Act::Stat(files)] {
            assert_eq!(job(act).work(), Ok((4, [0.0; 2])));
        }
        for name in TURNS {
            std::fs::create_dir(folder.join(name)).expect("a folder");
        }
        for what in [Turn::Create, Turn::Read] {
            let files = Files { count: 30, ..files };
            let (operations, seconds) = job(Act::Turns { what, files }).work().expect("turns");
            assert!(operations == 60 && seconds.iter().all(|seconds| *seconds > 0.0));
        }
        let more = Files { bytes: 4999, ..files };
        job(Act::Read(more)).work().expect_err("it is longer");
        job(Act::Stat(more)).work().expect_err("it is longer");
        let path = folder.join("shared");
        for writer in 0..2 {
            let act = Act::Blocks { first: writer * 10, step: 20, count: 3, bytes: 10 };
            assert_eq!(Job { act, path: path.clone() }.work(), Ok((3, [0.0; 2])));
        }
        assert_eq!(std::fs::read(&path).expect("a file"), [0x5a; 60]);
        let act = Act::CreateFor { seconds: 0.0, bytes: 1, sync: true };
        assert_eq!(job(act).work(), Ok((0, [0.0; 2])));
        std::fs::remove_dir_all(&folder).expect("a folder");
    }
}
