//! IO500's find: every name below a directory is looked at, and files with `01` in their names are counted; where
//! a time stamp is asked for, only those of 3901 bytes that are not older.
//!
//! Ranks take directories from one list, which they lock once for each directory; a file's attributes are
//! asked for only if its name fits and they matter.

use parking_lot::{Condvar, Mutex};

use crate::backend::Worker;
use crate::clock;
use crate::ranks::{Ended, Job, Rank};
use crate::text::failed;

/// Size and part of the name of what is searched for.
const SIZE: u64 = 3901;
const PART: &str = "01";

/// One search.
pub(super) struct Find {
    work: Mutex<Work>,
    changed: Condvar,
    searchers: usize,
    /// Seconds since 1970; none if the name is enough.
    newer: Option<i64>,
}

struct Work {
    directories: Vec<String>,
    /// Ranks that list a directory, and may find more.
    busy: usize,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) matches: u64,
    pub(super) total: u64,
    pub(super) seconds: f64,
}

impl Find {
    pub(super) fn new(root: String, searchers: usize, newer: Option<i64>) -> Self {
        let work = Mutex::new(Work { directories: vec![root], busy: 0 });
        Self { work, changed: Condvar::new(), searchers, newer }
    }

    /// The next directory; nothing when there will be none.
    fn take(&self) -> Option<String> {
        let mut work = self.work.lock();
        loop {
            if let Some(directory) = work.directories.pop() {
                work.busy += 1;
                return Some(directory);
            }
            if work.busy == 0 {
                return None;
            }
            self.changed.wait(&mut work);
        }
    }

    fn done(&self, more: Vec<String>) {
        let mut work = self.work.lock();
        work.directories.extend(more);
        work.busy -= 1;
        self.changed.notify_all();
    }

    fn list(
        &self,
        rank: &mut Rank,
        worker: &mut dyn Worker,
        directory: &str,
        found: &mut [u64; 2],
    ) -> Result<Vec<String>, Ended> {
        let (mut below, mut fitting) = (Vec::new(), Vec::new());
        let listed = worker.readdir(directory, &mut |name, is_directory| {
            found[1] += 1;
            if is_directory {
                below.push(format!("{directory}/{name}"));
            } else if name.contains(PART) {
                fitting.push(format!("{directory}/{name}"));
            }
        });
        listed.map_err(|errno| failed("list", directory, errno))?;
        let Some(newer) = self.newer else {
            found[0] += fitting.len() as u64;
            return Ok(below);
        };
        for path in fitting {
            let begun = rank.step()?;
            let stat = worker.stat(&path).map_err(|errno| failed("stat", &path, errno))?;
            rank.done(begun);
            // In whole seconds, of which Lustre keeps no part: made in the same one is not older.
            found[0] += u64::from(stat.size == SIZE && stat.modified.0 >= newer);
        }
        Ok(below)
    }
}

impl Job for Find {
    type Answer = Found;

    fn run(&self, rank: &mut Rank, worker: &mut dyn Worker) -> Result<Found, Ended> {
        rank.barrier()?;
        rank.begin("find", 0, 0);
        let begin = clock::now();
        let mut found = [0, 0];
        while rank.number < self.searchers
            && let Some(directory) = self.take()
        {
            let listed = self.list(rank, worker, &directory, &mut found);
            // Others must not wait for what will not come.
            self.done(listed.as_ref().cloned().unwrap_or_default());
            listed?;
        }
        let all = rank.exchange(&found)?;
        rank.end();
        let sum = |number: usize| all.iter().map(|words| words[number]).sum();
        Ok(Found { matches: sum(0), total: sum(1), seconds: clock::now() - begin })
    }
}
