//! IO500's find: every name below a directory is looked at, its files are counted, and those with `01` in their
//! names; where a time stamp is asked for, of these only those of 3901 bytes that are not older.
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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) matches: u64,
    /// Files, but no directories, as pfind counts.
    pub(super) total: u64,
    pub(super) seconds: f64,
    /// Of each rank that searched: matches, files, names.
    ranks: Vec<[u64; 3]>,
}

impl Found {
    /// The table that io500 writes of pfind. Our ranks send each other nothing, and a search with an error is none.
    pub(super) fn table(&self) -> String {
        let rate = self.total as f64 / self.seconds;
        let mut table = format!(
            "runtime: {:.6} rate: {rate:.6}\nrank, errors, unknown, found, total, checked, job steal msgs received, \
             work items send, job steal msgs send, work items stolen, time spend in job stealing in s, \
             number of completion tokens send\n",
            self.seconds
        );
        for (rank, [matches, total, names]) in self.ranks.iter().enumerate() {
            table += &format!("{rank}, 0, 0, {matches}, {total}, {names}, 0, 0, 0, 0, 0.000s, 0\n");
        }
        table
    }
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
        found: &mut [u64; 3],
    ) -> Result<Vec<String>, Ended> {
        // By name alone, whole trees go by without a step.
        rank.check()?;
        let (mut below, mut fitting) = (Vec::new(), Vec::new());
        let listed = worker.readdir(directory, &mut |name, is_directory| {
            found[2] += 1;
            found[1] += u64::from(!is_directory);
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
        let mut found = [0, 0, 0];
        while rank.number < self.searchers
            && let Some(directory) = self.take()
        {
            let listed = self.list(rank, worker, &directory, &mut found);
            // Other ranks must not wait for what will not come.
            self.done(listed.as_ref().cloned().unwrap_or_default());
            listed?;
        }
        rank.check()?;
        let all = rank.exchange(&found)?;
        rank.end();
        let sum = |number: usize| all.iter().map(|words| words[number]).sum();
        let seconds = clock::now() - begin;
        let searchers = all.iter().take(self.searchers);
        let ranks = searchers.map(|words| [words[0], words[1], words[2]]).collect();
        Ok(Found { matches: sum(0), total: sum(1), seconds, ranks })
    }
}
