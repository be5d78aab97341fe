//! The work that is measured, done by one or two processes at once.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bench::crew::{self, Task};
use crate::bench::place::drop_caches;
use crate::bench::{bytes, plural};

/// What one phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Create and close files with so many bytes.
    Create,
    /// Look at each, caches dropped.
    Stat,
    /// Look at each once more.
    StatAgain,
    /// Remove each.
    Unlink,
    /// Write a file from its beginning in blocks, and sync it.
    Write,
    /// Read it in blocks, caches dropped.
    Read,
    /// Read it once more.
    ReadAgain,
    /// Read blocks at random places, caches dropped.
    ReadRandom,
    /// Write blocks at random places, and sync the file.
    WriteRandom,
}

/// An act, by so many processes, so many times each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(super) act: Act,
    pub(super) processes: u64,
    /// Operations of each process.
    pub(super) count: u64,
    /// Bytes of each file or block.
    pub(super) bytes: usize,
    folder: PathBuf,
}

impl Phase {
    pub(super) fn new(act: Act, processes: u64, count: u64, bytes: usize, folder: &str) -> Self {
        Self { act, processes, count, bytes, folder: folder.into() }
    }

    /// As the report shows it.
    pub(super) fn name(&self) -> String {
        let what = match self.act {
            Act::Create => "create",
            Act::Stat => "stat",
            Act::StatAgain => "stat again",
            Act::Unlink => "unlink",
            Act::Write => "sequential write",
            Act::Read => "sequential read",
            Act::ReadAgain => "sequential read again",
            Act::ReadRandom => "random read",
            Act::WriteRandom => "random write",
        };
        let processes = plural(self.processes, "process", "processes");
        format!("{what}, {}, {processes}", bytes(self.bytes as u64))
    }

    /// Operations of all processes.
    pub(super) fn operations(&self) -> u64 {
        self.count * self.processes
    }

    /// Whether the number is one of bytes and not of operations.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.act, Act::Write | Act::Read | Act::ReadAgain)
    }

    /// Does it below `top`; answers the seconds it took.
    pub(super) fn run(&self, top: &Path) -> Result<f64, String> {
        if matches!(self.act, Act::Stat | Act::Read | Act::ReadRandom) {
            drop_caches();
        }
        let mut tasks = Vec::new();
        for number in 0..self.processes {
            let folder = top.join(&self.folder).join(number.to_string());
            std::fs::create_dir_all(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            tasks.push(Task::Phase(Self { folder, ..self.clone() }));
        }
        Ok(crew::run(tasks)?.0)
    }

    /// What a worker does; answers how many operations it did.
    pub(crate) fn work(&self) -> Result<u64, String> {
        let failure = |error| format!("{} in {}: {error}", self.name(), self.folder.display());
        act(self).map_err(failure)?;
        Ok(self.count)
    }
}

fn act(phase: &Phase) -> std::io::Result<()> {
    let block = vec![0x5a; phase.bytes];
    let name = |number: u64| phase.folder.join(format!("file-{number:07}"));
    let stream = phase.folder.join("stream");
    match phase.act {
        Act::Create => (0..phase.count).try_for_each(|number| {
            let mut file = File::create_new(name(number))?;
            if block.is_empty() { Ok(()) } else { file.write_all(&block) }
        }),
        Act::Stat | Act::StatAgain => {
            (0..phase.count).try_for_each(|number| name(number).metadata().map(drop))
        }
        Act::Unlink => (0..phase.count).try_for_each(|number| std::fs::remove_file(name(number))),
        Act::Write => {
            let mut file = File::create(stream)?;
            (0..phase.count).try_for_each(|_| file.write_all(&block))?;
            file.sync_all()
        }
        Act::Read | Act::ReadAgain => {
            let mut file = File::open(stream)?;
            let mut block = block;
            (0..phase.count).try_for_each(|_| file.read_exact(&mut block))
        }
        Act::ReadRandom | Act::WriteRandom => random(phase, &stream),
    }
}

fn random(phase: &Phase, path: &Path) -> std::io::Result<()> {
    let writes = phase.act == Act::WriteRandom;
    let file = OpenOptions::new().read(true).write(writes).open(path)?;
    let blocks = file.metadata()?.len() / phase.bytes as u64;
    let mut block = vec![0xa5; phase.bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..phase.count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state % blocks) * phase.bytes as u64;
        if writes { file.write_all_at(&block, at)? } else { file.read_exact_at(&mut block, at)? }
    }
    if writes { file.sync_all() } else { Ok(()) }
}
