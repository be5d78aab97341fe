//! Tasks on one thread, and the clock that jumps.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{BoxFuture, Clock, Oneshot, Tasks};
use sheen_types::{HashMap, Instant, Timestamp};

use crate::SeededRandom;

/// 2026-01-01, so that times look like times.
const WALL_SECONDS_AT_START: i64 = 1_767_225_600;
/// Longer takes no test.
const TIME_MAX: Duration = Duration::from_secs(86_400);
/// The task that [`Executor::run`] waits for.
const MAIN: u64 = 0;
/// The scope of what is never ended.
pub(crate) const WORLD: u64 = 0;
/// How long a job waits for a disk that is well.
const DISK_WAIT: Duration = Duration::from_micros(50);

/// What happens at a moment. Runs without any lock held.
type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Agenda {
    now: Instant,
    next: u64,
    /// By time, then by when they were entered.
    events: BTreeMap<(Instant, u64), Event>,
    tasks: HashMap<u64, Task>,
    /// Scopes that live, with the longest wait of their disks.
    scopes: BTreeMap<u64, Duration>,
}

struct Task {
    scope: u64,
    waker: Arc<TaskWaker>,
    /// Absent while it runs.
    future: Option<BoxFuture<'static, ()>>,
}

/// Which tasks were woken; apart, so that anyone may wake at any time.
#[derive(Default)]
struct Ready(Mutex<Vec<u64>>);

struct TaskWaker {
    task: u64,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.0.lock().push(self.task);
        }
    }
}

/// See the module.
pub(crate) struct Executor {
    agenda: Mutex<Agenda>,
    ready: Arc<Ready>,
    random: Arc<SeededRandom>,
    trace: AtomicU64,
}

impl Executor {
    pub(crate) fn new(random: Arc<SeededRandom>) -> Arc<Self> {
        let mut agenda = Agenda { next: MAIN + 1, ..Agenda::default() };
        agenda.scopes.insert(WORLD, DISK_WAIT);
        let (ready, trace) = (Arc::default(), AtomicU64::new(0));
        Arc::new(Self { agenda: Mutex::new(agenda), ready, random, trace })
    }

    pub(crate) fn time(&self) -> Instant {
        self.agenda.lock().now
    }

    /// Folds what has happened into the trace.
    pub(crate) fn note(&self, what: u64) {
        let before = self.trace.load(Ordering::Relaxed);
        let mixed = (before.rotate_left(5) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.trace.store(mixed, Ordering::Relaxed);
    }

    /// What has happened so far, as one number.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    /// A scope of tasks that can be ended together.
    pub(crate) fn new_scope(&self) -> u64 {
        let mut agenda = self.agenda.lock();
        agenda.next += 1;
        let scope = agenda.next;
        agenda.scopes.insert(scope, DISK_WAIT);
        scope
    }

    /// Jobs of the scope wait at most so long for their disk, before and after.
    pub(crate) fn set_disk_wait(&self, scope: u64, longest: Duration) {
        if let Some(wait) = self.agenda.lock().scopes.get_mut(&scope) {
            *wait = longest;
        }
    }

    /// Ends all tasks of a scope where they stand, and lets none begin.
    pub(crate) fn end_scope(&self, scope: u64) {
        let mut agenda = self.agenda.lock();
        agenda.scopes.remove(&scope);
        let mut ended: Vec<u64> = agenda
            .tasks
            .iter()
            .filter(|(_, task)| task.scope == scope)
            .map(|(id, _)| *id)
            .collect();
        ended.sort_unstable();
        let ended: Vec<_> = ended.iter().filter_map(|id| agenda.tasks.remove(id)).collect();
        drop(agenda);
        // What they held may wake and spawn when it goes.
        for task in ended {
            drop(task);
        }
    }

    /// Has `event` happen at `moment`, or now if that is past.
    pub(crate) fn at(&self, moment: Instant, event: Event) {
        let mut agenda = self.agenda.lock();
        let moment = moment.max(agenda.now);
        agenda.next += 1;
        let key = (moment, agenda.next);
        agenda.events.insert(key, event);
    }

    pub(crate) fn spawn(&self, scope: u64, future: BoxFuture<'static, ()>) {
        let mut agenda = self.agenda.lock();
        if !agenda.scopes.contains_key(&scope) {
            drop(agenda);
            drop(future);
            return;
        }
        agenda.next += 1;
        let id = agenda.next;
        let waker = self.waker(id);
        let task = Task { scope, waker: Arc::clone(&waker), future: Some(future) };
        agenda.tasks.insert(id, task);
        drop(agenda);
        waker.wake();
    }

    /// Runs `job` in the scope as a thread would, and reports when it is done.
    pub(crate) fn blocking(
        self: &Arc<Self>,
        scope: u64,
        job: Box<dyn FnOnce() + Send>,
    ) -> BoxFuture<'static, ()> {
        let longest = self.agenda.lock().scopes.get(&scope).copied().unwrap_or_default();
        let pause = || Duration::from_nanos(1 + self.random.below(longest.as_nanos() as u64 + 1));
        let (before, after) = (pause(), pause());
        let done = Oneshot::new();
        let (executor, ring) = (Arc::clone(self), Arc::clone(&done));
        let work = async move {
            executor.sleep_until(executor.time() + before).await;
            job();
            executor.sleep_until(executor.time() + after).await;
            ring.put(());
        };
        self.spawn(scope, Box::pin(work));
        Box::pin(async move { done.wait().await })
    }

    pub(crate) fn run<T: 'static>(&self, seed: u64, work: impl Future<Output = T> + 'static) -> T {
        let mut work = Box::pin(work);
        let end = self.time() + TIME_MAX;
        let main = self.waker(MAIN);
        main.wake_by_ref();
        loop {
            let Some(task) = self.pick() else {
                let moved = self.advance();
                assert!(moved, "seed {seed}: nothing can go on");
                assert!(self.time() < end, "seed {seed}: a day has passed");
                continue;
            };
            if task != MAIN {
                self.step(task);
                continue;
            }
            main.queued.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&main));
            if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
        }
    }

    /// Drops all tasks and events.
    pub(crate) fn clear(&self) {
        let mut agenda = self.agenda.lock();
        agenda.scopes.clear();
        let tasks = std::mem::take(&mut agenda.tasks);
        let events = std::mem::take(&mut agenda.events);
        drop(agenda);
        drop((tasks, events));
    }

    fn waker(&self, task: u64) -> Arc<TaskWaker> {
        let queued = AtomicBool::new(false);
        Arc::new(TaskWaker { task, queued, ready: Arc::clone(&self.ready) })
    }

    /// Any of the tasks that are ready.
    fn pick(&self) -> Option<u64> {
        let mut ready = self.ready.0.lock();
        match ready.len() {
            0 => None,
            1 => ready.pop(),
            count => {
                let index = self.random.below(count as u64) as usize;
                Some(ready.swap_remove(index))
            }
        }
    }

    fn step(&self, id: u64) {
        // Out of the table while it runs: it may spawn.
        let (mut future, waker) = {
            let mut agenda = self.agenda.lock();
            let Some(task) = agenda.tasks.get_mut(&id) else { return };
            let Some(future) = task.future.take() else { return };
            (future, Arc::clone(&task.waker))
        };
        self.note(id);
        waker.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(waker);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut agenda = self.agenda.lock();
        if done {
            agenda.tasks.remove(&id);
        } else if let Some(task) = agenda.tasks.get_mut(&id) {
            task.future = Some(future);
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
        self.note(moment.0);
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
        let alarm = Oneshot::new();
        let ring = Arc::clone(&alarm);
        self.at(deadline, Box::new(move || ring.put(())));
        Box::pin(async move { alarm.wait().await })
    }
}

/// The tasks of one scope.
pub(crate) struct Scoped {
    pub(crate) executor: Arc<Executor>,
    pub(crate) scope: u64,
}

impl Tasks for Scoped {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        self.executor.spawn(self.scope, task);
    }

    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.executor.blocking(self.scope, job)
    }
}
