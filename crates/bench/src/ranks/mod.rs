//! Ranks: what MPI is to the originals, on one machine.
//!
//! The ranks of a team are threads of one process, or processes of which the first is rank 0
//! ([`process`]). They meet in [`Rank::exchange`], out of which barriers, sums and maxima are made; between
//! two meetings they share nothing that is written. The first rank that fails ends the run: all other ranks find
//! out at their next operation or meeting.

mod meeting;
pub(crate) mod process;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use meeting::{Link, Meeting, Seat};

use crate::backend::{Backend, Worker};
use crate::clock;
use crate::meter::{Meter, Recorder};
use crate::progress::{Counter, Progress};

/// Why a run ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Something failed; the line for the user.
    Failed(String),
    /// The user asked for it.
    Interrupted,
}

impl From<String> for Ended {
    fn from(line: String) -> Self {
        Self::Failed(line)
    }
}

/// Under what a team works.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Set when the run is to end.
    pub stop: &'a AtomicBool,
    /// What measures latencies and rates over time, if they are asked for.
    pub meter: Option<&'a Meter>,
}

/// When an operation began, where that is measured.
#[derive(Clone, Copy, Debug)]
#[must_use = "an operation that is not done is not measured"]
pub(crate) struct Step(u64);

/// One rank of a running team.
pub(crate) struct Rank<'a> {
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub size: usize,
    link: Box<dyn Link + 'a>,
    stop: &'a AtomicBool,
    counter: &'a Counter,
    progress: &'a Progress<'a>,
    recorder: Option<Recorder>,
}

impl Rank<'_> {
    /// Before each operation: counts it, and says whether the run goes on.
    ///
    /// # Errors
    /// The run has ended.
    #[inline]
    pub(crate) fn step(&self) -> Result<Step, Ended> {
        self.counter.count();
        self.check()?;
        Ok(Step(if self.recorder.is_some() { clock::nanoseconds() } else { 0 }))
    }

    /// Whether the run goes on, where nothing is counted.
    ///
    /// # Errors
    /// It has ended.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Ended> {
        if self.stop.load(Ordering::Relaxed) { Err(Ended::Interrupted) } else { Ok(()) }
    }

    /// Behind each operation that counts.
    #[inline]
    pub(crate) fn done(&mut self, step: Step) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(clock::nanoseconds().saturating_sub(step.0));
        }
    }

    /// Every rank's words, in the order of ranks. All ranks must call it, and wait for each other.
    ///
    /// # Errors
    /// The run has ended.
    pub(crate) fn exchange(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>, Ended> {
        self.link.exchange(own)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// The run has ended.
    pub(crate) fn barrier(&mut self) -> Result<(), Ended> {
        self.exchange(&[]).map(drop)
    }

    /// Rank 0's number.
    ///
    /// # Errors
    /// The run has ended.
    pub(crate) fn broadcast(&mut self, own: u64) -> Result<u64, Ended> {
        Ok(self.exchange(&[own])?[0][0])
    }

    /// Every rank's number, in the order of ranks.
    ///
    /// # Errors
    /// The run has ended.
    pub(crate) fn gather(&mut self, own: u64) -> Result<Vec<u64>, Ended> {
        Ok(self.exchange(&[own])?.into_iter().map(|words| words[0]).collect())
    }

    /// Every rank's numbers, in the order of ranks.
    ///
    /// # Errors
    /// The run has ended.
    pub(crate) fn gather_reals(&mut self, own: &[f64]) -> Result<Vec<Vec<f64>>, Ended> {
        let bits: Vec<u64> = own.iter().map(|real| real.to_bits()).collect();
        let all = self.exchange(&bits)?;
        Ok(all.into_iter().map(|words| words.into_iter().map(f64::from_bits).collect()).collect())
    }

    /// Takes the progress line away, so that something else can be written.
    pub(crate) fn hide_progress(&self) {
        self.progress.hide();
    }

    /// A phase of `total` operations of all ranks begins, each of so many bytes if that is its purpose. Rank 0
    /// prints the progress line.
    pub(crate) fn begin(&mut self, phase: &str, total: u64, bytes_each: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(phase);
        }
        if self.number == 0 {
            #[cfg(test)]
            crate::testing::begins(phase);
            self.progress.begin(phase, total, bytes_each);
        }
    }

    /// The phase has ended for this rank; with rank 0 it ends for the progress line.
    pub(crate) fn end(&self) {
        if self.number == 0 {
            self.progress.end();
        }
    }
}

/// What a team does.
pub(crate) trait Job: Sync {
    /// What a rank answers; that of rank 0 counts.
    type Answer: Send;

    /// One rank's part.
    ///
    /// # Errors
    /// Why the run ends here.
    fn run(&self, rank: &mut Rank, worker: &mut dyn Worker) -> Result<Self::Answer, Ended>;
}

/// Runs `job` with a team of `size` threads, and answers what rank 0 does.
///
/// # Errors
/// What the first rank that failed said, or that it was interrupted.
pub(crate) fn threads<J: Job>(
    size: usize,
    backend: &dyn Backend,
    watch: Watch,
    job: &J,
) -> Result<J::Answer, Ended> {
    let meeting = Meeting::new(size, watch.stop);
    let progress = Progress::new(size, size, watch.meter);
    team(&meeting, &progress, |scope, meeting| {
        for number in 1..size {
            let progress = &progress;
            scope.spawn(move || {
                let seat = Seat { meeting, number };
                // What it met stands in the meeting.
                let _ = sit(seat, size, backend, progress, number, job);
            });
        }
        sit(Seat { meeting, number: 0 }, size, backend, &progress, 0, job)
    })
}

/// Runs `lead` beside the progress line, and ends the meeting if it did not go well.
fn team<'e, T>(
    meeting: &'e Meeting<'e>,
    progress: &'e Progress<'e>,
    lead: impl for<'s> FnOnce(&'s thread::Scope<'s, 'e>, &'e Meeting<'e>) -> Result<T, Ended>,
) -> Result<T, Ended> {
    let done = AtomicBool::new(false);
    let done = &done;
    thread::scope(|outer| {
        let shown = outer.spawn(move || progress.show(done));
        let sampled = outer.spawn(move || progress.sample(done));
        let led = thread::scope(|scope| lead(scope, meeting));
        done.store(true, Ordering::Relaxed);
        shown.thread().unpark();
        sampled.thread().unpark();
        match meeting.ended() {
            Some(ended) => Err(ended),
            None => led,
        }
    })
}

/// One rank's whole part, in this thread; the other ranks get what ended it.
fn sit<J: Job>(
    seat: Seat,
    size: usize,
    backend: &dyn Backend,
    progress: &Progress,
    counter: usize,
    job: &J,
) -> Result<J::Answer, Ended> {
    let (meeting, number) = (seat.meeting, seat.number);
    let mut rank = Rank {
        number,
        size,
        link: Box::new(seat),
        stop: meeting.stop(),
        counter: progress.counter(counter),
        progress,
        recorder: progress.meter().map(|_| Recorder::default()),
    };
    let guard = meeting.guard(number);
    let done = backend
        .worker(number, size)
        .map_err(Ended::Failed)
        .and_then(|mut worker| job.run(&mut rank, &mut *worker));
    if let Err(ended) = &done {
        meeting.end(ended.clone());
    }
    if let (Some(meter), Some(recorder)) = (progress.meter(), &rank.recorder) {
        meter.add(recorder.latencies());
    }
    guard.leave();
    done
}

#[cfg(test)]
mod tests;
