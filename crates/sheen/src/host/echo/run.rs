//! One test: its threads' counters, and the rates that are read from them while it runs.
//!
//! Rates are taken as Lustre's `lctl --threads N -1` takes them: each second, from what was counted since
//! the second before, and the first second only starts the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_bench::device::{Interval, Progress};
use sheen_io::{BoxFuture, Watched, World};
use sheen_types::{Errno, Instant};

/// Between two readings of the counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// A counter in a cache line of its own: only its thread writes it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A test that runs, or has ended.
pub(super) struct Run {
    counters: Vec<Counter>,
    stopped: AtomicBool,
    live: AtomicU32,
    state: Mutex<State>,
    ended: Arc<Watched<bool>>,
    world: World,
    begun: Instant,
}

#[derive(Default)]
struct State {
    intervals: Vec<Interval>,
    /// From beginning to end.
    seconds: Option<f64>,
    failed: Option<String>,
}

/// What one thread of a test has of it.
#[derive(Clone)]
pub(super) struct Thread {
    run: Arc<Run>,
    index: usize,
}

impl Thread {
    /// Which of them, from 0.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// An operation is done: yields to other tasks, then answers whether to go on.
    pub(super) async fn goes_on(&self) -> bool {
        self.run.counters[self.index].0.fetch_add(1, Ordering::Relaxed);
        sheen_io::yield_once().await;
        !self.is_stopped()
    }

    /// Whether to end early.
    pub(super) fn is_stopped(&self) -> bool {
        self.run.stopped.load(Ordering::Relaxed)
    }
}

/// What follows when all threads have ended well, within the time that is measured.
pub(super) type Finish = BoxFuture<'static, Result<(), Errno>>;

impl Run {
    /// Starts `threads` tasks of `body`, and `finish` behind them.
    pub(super) fn begin(
        world: &World,
        threads: u32,
        body: impl Fn(Thread) -> BoxFuture<'static, Result<(), Errno>>,
        finish: Finish,
    ) -> Arc<Self> {
        let run = Arc::new(Self {
            counters: (0..threads).map(|_| Counter::default()).collect(),
            stopped: AtomicBool::new(false),
            live: AtomicU32::new(threads),
            state: Mutex::default(),
            ended: Arc::new(Watched::new(false)),
            world: world.clone(),
            begun: world.clock.now(),
        });
        let finish = Arc::new(Mutex::new(Some(finish)));
        for index in 0..threads as usize {
            let thread = Thread { run: Arc::clone(&run), index };
            let (run, finish, work) = (Arc::clone(&run), Arc::clone(&finish), body(thread));
            let task = async move {
                if let Err(errno) = work.await {
                    run.fail(errno);
                }
                if run.live.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let finish = finish.lock().take();
                    run.finish(finish).await;
                }
            };
            world.tasks.spawn("survey", Box::pin(task));
        }
        world.tasks.spawn("survey", Box::pin(Arc::clone(&run).sample()));
        run
    }

    /// Makes all threads end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Completes when all have ended.
    pub(super) async fn ended(&self) {
        self.ended.until(|ended| ended).await;
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        let ended = self.ended.get();
        let state = self.state.lock();
        Progress {
            operations: self.counters.iter().map(Counter::read).sum(),
            seconds: state.seconds.unwrap_or_else(|| self.seconds()),
            intervals: state.intervals.clone(),
            ended,
            failed: state.failed.clone(),
        }
    }

    fn seconds(&self) -> f64 {
        self.world.clock.now().since(self.begun).as_secs_f64()
    }

    /// The first failure ends all threads.
    fn fail(&self, errno: Errno) {
        self.state.lock().failed.get_or_insert_with(|| errno.message().to_owned());
        self.stop();
    }

    async fn finish(&self, finish: Option<Finish>) {
        if let Some(finish) = finish.filter(|_| !self.stopped.load(Ordering::Relaxed))
            && let Err(errno) = finish.await
        {
            self.fail(errno);
        }
        self.state.lock().seconds = Some(self.seconds());
        self.ended.change(|ended| *ended = true);
    }

    async fn sample(self: Arc<Self>) {
        let clock = Arc::clone(&self.world.clock);
        let mut before: Option<(Instant, Vec<u64>)> = None;
        loop {
            let next = clock.now() + INTERVAL;
            tokio::select! {
                () = self.ended() => return,
                () = clock.sleep_until(next) => {}
            }
            let now = clock.now();
            let counts: Vec<u64> = self.counters.iter().map(Counter::read).collect();
            if let Some((then, old)) = &before {
                let interval = interval(old, &counts, now.since(*then));
                self.state.lock().intervals.push(interval);
            }
            before = Some((now, counts));
        }
    }
}

fn interval(old: &[u64], new: &[u64], time: Duration) -> Interval {
    let more = old.iter().zip(new).map(|(old, new)| new - old);
    let (active, total) = more
        .filter(|more| *more > 0)
        .fold((0, 0), |(active, total), more| (active + 1, total + more));
    Interval { active, rate: total as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_threads_that_did_something() {
        let counted = interval(&[1, 5, 9], &[11, 5, 19], Duration::from_millis(2000));
        assert_eq!(counted, Interval { active: 2, rate: 10.0 });
    }
}
