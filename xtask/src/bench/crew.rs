//! Processes that work at once.
//!
//! Each says that it is ready, waits for the word to go, works, and says how it went; the time is from
//! the word to the last end.
#![allow(clippy::disallowed_methods, reason = "measuring is reading the clock")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::layouts::Job;
use super::mount::Phase;
use crate::shell::Outcome;

/// What one process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Task {
    /// A phase of `bench mount`.
    Phase(Phase),
    /// A job of `bench layouts`.
    Job(Job),
}

/// How it went.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// How often the process did what it does.
    pub(super) operations: u64,
    /// From its begin to its end.
    pub(super) seconds: f64,
    /// Seconds of the one and of the other thing, of a process that does two in turns.
    pub(super) turns: [f64; 2],
}

impl Done {
    /// Operations per second.
    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// Does the tasks at once. Answers the seconds from the word to the last end, and how each went.
pub(super) fn run(tasks: impl IntoIterator<Item = Task>) -> Result<(f64, Vec<Done>), String> {
    let workers = tasks.into_iter().map(|task| Worker::start(&task));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.wait_ready()?;
    }
    let start = Instant::now();
    for worker in &mut workers {
        worker.go();
    }
    let done = workers.into_iter().map(Worker::end).collect::<Result<Vec<_>, _>>()?;
    Ok((start.elapsed().as_secs_f64(), done))
}

struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(task: &Task) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let job = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command.args(["bench", "worker", &job]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("a worker: {error}"))?;
        let output = child.stdout.take().ok_or("a worker without output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line)
    }

    fn wait_ready(&mut self) -> Outcome {
        match self.line()?.as_str() {
            "ready\n" => Ok(()),
            _ => Err("a worker did not start".to_owned()),
        }
    }

    fn go(&mut self) {
        drop(self.child.stdin.take());
    }

    fn end(mut self) -> Result<Done, String> {
        let said = self.line()?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("a worker: {status}"));
        }
        serde_json::from_str(&said).map_err(|error| format!("a worker said {said:?}: {error}"))
    }
}

/// A worker that is dropped before its end is of no use any more.
impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may have ended this moment.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The worker process: does its task when its input ends.
pub(super) fn work(job: &str) -> Outcome {
    let task: Task = serde_json::from_str(job).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout();
    let text = |error: std::io::Error| error.to_string();
    out.write_all(b"ready\n").and_then(|()| out.flush()).map_err(text)?;
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(text)?;
    let start = Instant::now();
    let (operations, turns) = match &task {
        Task::Phase(phase) => (phase.work()?, [0.0; 2]),
        Task::Job(job) => job.work()?,
    };
    let done = Done { operations, seconds: start.elapsed().as_secs_f64(), turns };
    println!("{}", serde_json::to_string(&done).map_err(|error| error.to_string())?);
    Ok(())
}
