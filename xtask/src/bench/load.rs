//! The work that is measured, done by one or two processes at once.
//!
//! Each process says that it is ready, waits for the word to go, and ends; the time is from the
//! word to the last end.
#![allow(clippy::disallowed_methods, reason = "measuring is reading the clock")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::shell::Outcome;

/// What one phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Act {
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
pub(super) struct Phase {
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
        let size = match self.bytes {
            0 => "0".to_owned(),
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes => format!("{} KiB", bytes >> 10),
        };
        let plural = if self.processes == 1 { "" } else { "es" };
        format!("{what}, {size}, {} process{plural}", self.processes)
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
        let mut workers = Vec::new();
        for number in 0..self.processes {
            let folder = top.join(&self.folder).join(number.to_string());
            std::fs::create_dir_all(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            workers.push(Worker::start(&Self { folder, ..self.clone() })?);
        }
        for worker in &mut workers {
            worker.wait_ready()?;
        }
        let start = Instant::now();
        for worker in &mut workers {
            worker.go()?;
        }
        for worker in workers {
            worker.end()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

struct Worker {
    child: Child,
}

impl Worker {
    fn start(phase: &Phase) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let phase = serde_json::to_string(phase).map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command.args(["bench", "--worker", &phase]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self { child: command.spawn().map_err(|error| format!("a worker: {error}"))? })
    }

    fn wait_ready(&mut self) -> Outcome {
        let output = self.child.stdout.take().ok_or("a worker without output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if line == "ready\n" { Ok(()) } else { Err("a worker did not start".to_owned()) }
    }

    fn go(&mut self) -> Outcome {
        drop(self.child.stdin.take());
        Ok(())
    }

    fn end(mut self) -> Outcome {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a worker: {status}")) }
    }
}

/// The worker process: does its phase when its input ends.
pub(super) fn work(phase: &str) -> Outcome {
    let phase: Phase = serde_json::from_str(phase).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout();
    let ready = out.write_all(b"ready\n").and_then(|()| out.flush());
    let mut rest = Vec::new();
    ready
        .and_then(|()| std::io::stdin().read_to_end(&mut rest))
        .and_then(|_| act(&phase))
        .map_err(|error| format!("{} in {}: {error}", phase.name(), phase.folder.display()))
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

/// Drops the kernel's clean caches; without root they stay, for every place alike.
fn drop_caches() {
    rustix::fs::sync();
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}
