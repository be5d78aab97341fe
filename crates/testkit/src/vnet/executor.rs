//! Tasks on one thread, and the clock that jumps.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{BoxFuture, Clock, Tasks};
use sheen_types::{Instant, Timestamp};

use super::Dice;

/// 2026-01-01, so that times look like times.
const WALL_SECONDS_AT_START: i64 = 1_767_225_600;
/// Longer takes no test.
const TIME_MAX: Duration = Duration::from_secs(86_400);
/// The task that [`Executor::run`] waits for.
const MAIN: u64 = 0;

/// What happens at a moment. Runs without any lock held.
type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Agenda {
    now: Instant,
    next: u64,
    /// By time, then by when they were entered.
    events: BTreeMap<(Instant, u64), Event>,
    tasks: HashMap<u64, Option<BoxFuture<'static, ()>>>,
}

/// Which tasks were woken; apart, so that anyone may wake at any time.
#[derive(Default)]
struct Ready(Mutex<Vec<u64>>);

struct TaskWaker {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.0.lock();
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

/// See the module.
pub(super) struct Executor {
    agenda: Mutex<Agenda>,
    ready: Arc<Ready>,
    dice: Arc<Dice>,
}

impl Executor {
    pub(super) fn new(dice: Arc<Dice>) -> Arc<Self> {
        let agenda = Agenda { next: MAIN + 1, ..Agenda::default() };
        Arc::new(Self { agenda: Mutex::new(agenda), ready: Arc::default(), dice })
    }

    pub(super) fn time(&self) -> Instant {
        self.agenda.lock().now
    }

    /// Has `event` happen at `moment`, or now if that is past.
    pub(super) fn at(&self, moment: Instant, event: Event) {
        let mut agenda = self.agenda.lock();
        let moment = moment.max(agenda.now);
        agenda.next += 1;
        let key = (moment, agenda.next);
        agenda.events.insert(key, event);
    }

    pub(super) fn run<T: 'static>(&self, seed: u64, work: impl Future<Output = T> + 'static) -> T {
        let mut work = Box::pin(work);
        let end = self.time() + TIME_MAX;
        self.ready.0.lock().push(MAIN);
        loop {
            let Some(task) = self.pick() else {
                let moved = self.advance();
                assert!(moved, "seed {seed}: nothing can go on");
                assert!(self.time() < end, "seed {seed}: a day has passed");
                continue;
            };
            let waker = Waker::from(Arc::new(TaskWaker { task, ready: Arc::clone(&self.ready) }));
            let mut context = Context::from_waker(&waker);
            if task != MAIN {
                self.step(task, &mut context);
            } else if let Poll::Ready(value) = work.as_mut().poll(&mut context) {
                return value;
            }
        }
    }

    /// Drops all tasks and events.
    pub(super) fn clear(&self) {
        let mut agenda = self.agenda.lock();
        let tasks = std::mem::take(&mut agenda.tasks);
        let events = std::mem::take(&mut agenda.events);
        drop(agenda);
        drop((tasks, events));
    }

    /// Any of the tasks that are ready.
    fn pick(&self) -> Option<u64> {
        let mut ready = self.ready.0.lock();
        if ready.is_empty() {
            return None;
        }
        let index = self.dice.below(ready.len() as u64) as usize;
        Some(ready.swap_remove(index))
    }

    fn step(&self, task: u64, context: &mut Context<'_>) {
        // Out of the table while it runs: it may spawn.
        let future = self.agenda.lock().tasks.get_mut(&task).and_then(Option::take);
        let Some(mut future) = future else { return };
        let done = future.as_mut().poll(context).is_ready();
        let mut agenda = self.agenda.lock();
        if done {
            agenda.tasks.remove(&task);
        } else {
            agenda.tasks.insert(task, Some(future));
            return;
        }
        drop(agenda);
        drop(future);
    }

    /// Lets the next event happen.
    fn advance(&self) -> bool {
        let mut agenda = self.agenda.lock();
        let Some(((moment, _), event)) = agenda.events.pop_first() else { return false };
        agenda.now = moment;
        drop(agenda);
        event();
        true
    }
}

impl Clock for Executor {
    fn now(&self) -> Instant {
        self.time()
    }

    fn wall(&self) -> Timestamp {
        let now = self.time().0;
        Timestamp {
            seconds: WALL_SECONDS_AT_START + (now / 1_000_000_000) as i64,
            nanoseconds: (now % 1_000_000_000) as u32,
        }
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let alarm = Arc::new(Mutex::new((false, None::<Waker>)));
        let ring = Arc::clone(&alarm);
        let event = move || {
            let mut alarm = ring.lock();
            alarm.0 = true;
            if let Some(waker) = alarm.1.take() {
                waker.wake();
            }
        };
        self.at(deadline, Box::new(event));
        Box::pin(std::future::poll_fn(move |context| {
            let mut alarm = alarm.lock();
            alarm.1 = Some(context.waker().clone());
            if alarm.0 { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

impl Tasks for Executor {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        let mut agenda = self.agenda.lock();
        agenda.next += 1;
        let id = agenda.next;
        agenda.tasks.insert(id, Some(task));
        drop(agenda);
        self.ready.0.lock().push(id);
    }

    /// The job is done at once, and the caller hears of it a little later, as from a thread.
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        let pause = Duration::from_micros(1 + self.dice.below(100));
        self.sleep_until(self.time() + pause)
    }
}
