//! The file system that is measured, and what work costs it.
#![allow(clippy::disallowed_methods, reason = "it waits for other programs")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Job;
use super::sample::Sample;
use super::work::Act;
use crate::bench::cost::Cost;
use crate::bench::crew::{self, Done, Task};
use crate::bench::place::{Kind, Place};
use crate::shell::Outcome;

/// Requests of earlier work are over when so long none came, where none is sent late.
const LULL: Duration = Duration::from_millis(150);
/// How many of these at most.
const LULLS_MAX: u32 = 100;

/// A file system with one or two mounts.
pub(super) struct Cluster {
    place: Place,
    tops: Vec<PathBuf>,
}

/// When to look at what work has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// What is dirty is written.
    Written,
    /// Closes are answered; nothing is dirty.
    Closed,
}

impl Cluster {
    /// Starts and mounts it.
    pub(super) fn start(folder: &Path, options: &[&str]) -> Result<Self, String> {
        let place = Place::open_with(Kind::Sheen, folder, options)?;
        Ok(Self { tops: vec![place.top().to_owned()], place })
    }

    pub(super) fn mount_again(&mut self) -> Outcome {
        self.tops.push(self.place.mount_again()?);
        Ok(())
    }

    /// Where the mount is with this number; after the last comes the first.
    pub(super) fn top(&self, number: u64) -> &Path {
        &self.tops[number as usize % self.tops.len()]
    }

    pub(super) fn stop(self) -> Outcome {
        self.place.close()
    }

    /// Runs `sheen WORDS`, which must succeed.
    pub(super) fn must(&self, words: &[&str]) -> Outcome {
        let output = self.place.sheen(words).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("sheen {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
    }

    /// A new folder below the first mount, whose files have this layout.
    pub(super) fn folder(&self, name: &str, layout: &[&str]) -> Outcome {
        let path = self.top(0).join(name);
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut words = vec!["lfs", "setstripe"];
        words.extend(layout);
        let path = path.to_string_lossy();
        words.push(&path);
        self.must(&words)
    }

    /// Removes a folder of the first mount, and what is in it.
    pub(super) fn remove(&self, name: &str) -> Outcome {
        let path = self.top(0).join(name);
        std::fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Clients give all locks back that are not in use, and with them all that they keep.
    pub(super) fn forget(&self) -> Outcome {
        self.must(&["lctl", "set_param", "-n", "ldlm.namespaces.*.lru_size=clear"])?;
        self.rest(Until::Closed).map(drop)
    }

    /// Does the jobs at once: what they cost, until all of it is done.
    pub(super) fn spend(&self, jobs: Vec<Job>, until: Until, bytes: u64) -> Result<Sample, String> {
        let before = self.place.cost()?;
        let (seconds, done) = crew::run(jobs.into_iter().map(Task::Job))?;
        let spent = self.rest(until)?.since(&before);
        let operations = done.iter().map(|done| done.operations).sum();
        Ok(Sample { seconds, operations, bytes, spent })
    }

    /// Does the jobs at once; answers how each went.
    pub(super) fn race(&self, jobs: Vec<Job>) -> Result<Vec<Done>, String> {
        Ok(crew::run(jobs.into_iter().map(Task::Job))?.1)
    }

    fn rest(&self, until: Until) -> Result<Cost, String> {
        if until == Until::Written {
            return self.place.cost_at_rest();
        }
        let mut cost = self.place.cost()?;
        for _ in 0..LULLS_MAX {
            let before = cost.requests;
            std::thread::sleep(LULL);
            cost = self.place.cost()?;
            if cost.requests == before {
                break;
            }
        }
        Ok(cost)
    }
}

/// A job of one process.
pub(super) fn job(path: PathBuf, act: Act) -> Job {
    Job { act, path }
}

/// Writes back what the machine's kernel keeps, so that no measurement pays for another.
pub(super) fn settle() {
    rustix::fs::sync();
}
