//! What each job of the clients has asked for (Lustre's `job_stats`): the role's counters once
//! more, by the job that a request names.
//!
//! Owns the table of jobs. A request that names one costs a shared lock to find it, a clock, and
//! the same additions as the target's own counters; none is held while anything else is done. Jobs
//! that have asked for nothing for long are forgotten, at the latest when there are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_types::{
    CounterLine, Counters, Errno, HashMap, Histogram, Instant, Samples, Timestamp, Unit,
};
use sheen_wire::text::Chars;

/// Bytes of a job's name with its NUL (`LUSTRE_JOBID_SIZE`).
pub(crate) const JOB_NAME_BYTES: usize = 32;
/// Jobs that a target remembers at once, at some 3 KiB each. Lustre has no limit; a client may name
/// as many as it likes.
const JOBS_MAX: usize = 10_000;
/// How long a job is remembered after its last request (`job_cleanup_interval`).
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// A job's name as requests carry it.
pub(crate) type JobName = Chars<JOB_NAME_BYTES>;

/// One job, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// As its clients call it: any bytes but NUL.
    pub name: Vec<u8>,
    /// When it first asked for something.
    pub first: Timestamp,
    /// When it last did.
    pub latest: Timestamp,
    /// All counters of the role, and for those of bytes how often which magnitude occurred.
    pub lines: Vec<(Samples, Option<[u64; Histogram::CLASSES]>)>,
}

struct Job {
    /// The order in which jobs are shown.
    number: u64,
    first: Timestamp,
    latest: Mutex<(Instant, Timestamp)>,
    counters: Counters,
    sizes: Vec<Option<Histogram>>,
}

impl Job {
    fn new(number: u64, lines: &'static [CounterLine], now: (Instant, Timestamp)) -> Self {
        let size = |line: &CounterLine| (line.unit == Unit::Bytes).then(Histogram::default);
        Self {
            number,
            first: now.1,
            latest: Mutex::new(now),
            counters: Counters::new(lines),
            sizes: lines.iter().map(size).collect(),
        }
    }

    fn view(&self, name: &JobName) -> JobView {
        let sizes = self.sizes.iter().map(|size| size.as_ref().map(Histogram::counts));
        JobView {
            name: name.as_bytes().to_vec(),
            first: self.first,
            latest: self.latest.lock().1,
            lines: self.counters.all_samples().into_iter().zip(sizes).collect(),
        }
    }
}

/// The jobs of a target.
pub(crate) struct Jobs {
    lines: &'static [CounterLine],
    jobs: RwLock<HashMap<JobName, Arc<Job>>>,
    made: AtomicU64,
    /// Seconds; with 0 no job is forgotten.
    interval: AtomicU64,
    /// Nanoseconds of the clock at which old jobs were last looked for.
    cleaned: AtomicU64,
}

impl Jobs {
    pub(crate) fn new(lines: &'static [CounterLine]) -> Self {
        Self {
            lines,
            jobs: RwLock::default(),
            made: AtomicU64::new(0),
            interval: AtomicU64::new(CLEANUP_INTERVAL.as_secs()),
            cleaned: AtomicU64::new(0),
        }
    }

    /// Counts a sample for the job of this name; none for requests without.
    pub(crate) fn count(
        &self,
        name: &JobName,
        now: impl FnOnce() -> (Instant, Timestamp),
        counter: usize,
        value: u64,
    ) {
        if name.as_bytes().is_empty() || self.lines.is_empty() {
            return;
        }
        let now = now();
        let known = self.jobs.read().get(name).cloned();
        let job = known.unwrap_or_else(|| self.begin(name, now));
        *job.latest.lock() = now;
        job.counters.add(counter, value);
        if let Some(Some(sizes)) = job.sizes.get(counter) {
            sizes.add_magnitude(value);
        }
        self.forget_old(now.0);
    }

    fn begin(&self, name: &JobName, now: (Instant, Timestamp)) -> Arc<Job> {
        let mut jobs = self.jobs.write();
        if let Some(job) = jobs.get(name) {
            return Arc::clone(job);
        }
        if jobs.len() >= JOBS_MAX {
            forget_older_half(&mut jobs);
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let job = Arc::new(Job::new(number, self.lines, now));
        jobs.insert(name.clone(), Arc::clone(&job));
        job
    }

    /// Forgets jobs that have been idle for the interval; looks twice an interval, as Lustre.
    pub(crate) fn forget_old(&self, now: Instant) {
        let interval = Duration::from_secs(self.interval.load(Ordering::Relaxed));
        let cleaned = self.cleaned.load(Ordering::Relaxed);
        let is_due = !interval.is_zero() && now.since(Instant(cleaned)) >= interval / 2;
        let order = Ordering::Relaxed;
        if !is_due || self.cleaned.compare_exchange(cleaned, now.0, order, order).is_err() {
            return;
        }
        self.jobs.write().retain(|_, job| now.since(job.latest.lock().0) < interval);
    }

    pub(crate) fn view(&self) -> Vec<JobView> {
        let jobs = self.jobs.read();
        let mut jobs: Vec<_> =
            jobs.iter().map(|(name, job)| (name.clone(), Arc::clone(job))).collect();
        jobs.sort_by_key(|(_, job)| job.number);
        jobs.iter().map(|(name, job)| job.view(name)).collect()
    }

    pub(crate) fn clear(&self) {
        self.jobs.write().clear();
    }

    pub(crate) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        let is_legal = !name.is_empty() && name.len() < JOB_NAME_BYTES;
        let removed = is_legal && self.jobs.write().remove(&JobName::new(name)).is_some();
        removed.then_some(()).ok_or(Errno::EINVAL)
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs(self.interval.load(Ordering::Relaxed))
    }

    pub(crate) fn set_interval(&self, interval: Duration, now: Instant) {
        self.interval.store(interval.as_secs(), Ordering::Relaxed);
        self.cleaned.store(0, Ordering::Relaxed);
        self.forget_old(now);
    }
}

/// Too many names: those that have been idle for longest make room.
fn forget_older_half(jobs: &mut HashMap<JobName, Arc<Job>>) {
    let mut ages: Vec<Instant> = jobs.values().map(|job| job.latest.lock().0).collect();
    ages.sort_unstable();
    let middle = ages[ages.len() / 2];
    let mut spare = jobs.len() / 2;
    jobs.retain(|_, job| {
        let goes = spare > 0 && job.latest.lock().0 <= middle;
        spare -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    static LINES: [CounterLine; 2] = [CounterLine::time("open"), CounterLine::bytes("write_bytes")];

    fn at(second: u64) -> (Instant, Timestamp) {
        let clock = Instant(second * 1_000_000_000);
        (clock, Timestamp::from_seconds(1000 + second as i64))
    }

    fn count(jobs: &Jobs, name: &str, second: u64, counter: usize, value: u64) {
        jobs.count(&JobName::new(name), || at(second), counter, value);
    }

    fn names(jobs: &Jobs) -> Vec<String> {
        let name = |job: &JobView| String::from_utf8_lossy(&job.name).into_owned();
        jobs.view().iter().map(name).collect()
    }

    #[test]
    fn a_job_has_all_lines_of_the_role_and_sizes_of_its_bytes() {
        let jobs = Jobs::new(&LINES);
        count(&jobs, "", 1, 0, 5);
        assert!(jobs.view().is_empty(), "a request without a job counts for none");
        count(&jobs, "dd.0", 1, 1, 131_072);
        count(&jobs, "dd.0", 3, 1, 4096);
        let shown = jobs.view().remove(0);
        assert_eq!((shown.first, shown.latest), (at(1).1, at(3).1));
        let (open, write) = (&shown.lines[0], &shown.lines[1]);
        assert_eq!((open.0.count, open.0.min, open.1), (0, 0, None));
        assert_eq!((write.0.count, write.0.sum), (2, 135_168));
        let sizes = write.1.unwrap();
        assert_eq!((sizes[12], sizes[17]), (1, 1));
    }

    #[test]
    fn jobs_are_forgotten_when_idle_or_when_asked() {
        let jobs = Jobs::new(&LINES);
        count(&jobs, "old", 0, 0, 1);
        count(&jobs, "b", 500, 0, 1);
        count(&jobs, "a", 501, 0, 1);
        assert_eq!(names(&jobs), ["old", "b", "a"], "in the order of their coming");
        count(&jobs, "b", 1000, 0, 1);
        assert_eq!(names(&jobs), ["b", "a"]);
        assert_eq!(jobs.remove(b"c"), Err(Errno::EINVAL));
        assert_eq!(jobs.remove(&[b'x'; 40]), Err(Errno::EINVAL));
        assert_eq!(jobs.remove(b"a"), Ok(()));
        jobs.set_interval(Duration::ZERO, at(1000).0);
        count(&jobs, "c", 9_000, 0, 1);
        assert_eq!(names(&jobs), ["b", "c"], "with no interval no job is forgotten");
        jobs.set_interval(Duration::from_secs(60), at(9_001).0);
        assert_eq!(names(&jobs), ["c"]);
        jobs.clear();
        assert!(jobs.view().is_empty());
    }

    #[test]
    fn no_client_can_make_us_remember_names_without_end() {
        let jobs = Jobs::new(&LINES);
        jobs.set_interval(Duration::ZERO, at(0).0);
        for number in 0..2 * JOBS_MAX {
            count(&jobs, &format!("job{number}"), number as u64, 0, 1);
        }
        let names = names(&jobs);
        assert!(names.len() <= JOBS_MAX);
        assert_eq!(names.last().map(String::as_str), Some("job19999"));
    }
}
