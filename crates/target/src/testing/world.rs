//! A world in virtual time: one thread, seeded randomness, no network.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sheen_io::{BoxFuture, Clock, Connection, Listener, Network, Random, Tasks, World};
use sheen_types::{Instant, Timestamp};

/// How long a store's own thread may take before virtual time goes on without it.
const OUTSIDE_WAIT: Duration = Duration::from_millis(3);
/// How long it may take when there is nothing else to do at all.
const OUTSIDE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Where the calendar starts: 2026-11-21.
const WALL_START_SECONDS: i64 = 1_795_219_200;

/// Runs tasks in virtual time. Cheap to clone.
#[derive(Clone)]
pub struct TestWorld {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<WorldState>,
    woken: Condvar,
}

struct WorldState {
    now: Instant,
    ready: VecDeque<Arc<Task>>,
    timers: BTreeMap<(Instant, u64), Waker>,
    timer_number: u64,
    random: u64,
    disk_time: Duration,
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    inner: Arc<Inner>,
    queued: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let inner = Arc::clone(&self.inner);
            inner.state.lock().ready.push_back(self);
            inner.woken.notify_one();
        }
    }
}

impl TestWorld {
    /// A world with its own random numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = WorldState {
            now: Instant(1_000_000_000),
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            timer_number: 0,
            random: seed,
            disk_time: Duration::ZERO,
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), woken: Condvar::new() }) }
    }

    /// The world as roles see it.
    #[must_use]
    pub fn world(&self) -> World {
        let this = Arc::new(self.clone());
        World { clock: this.clone(), random: this.clone(), tasks: this.clone(), network: this }
    }

    /// Runs `future` and everything it starts until `future` is done; time passes only when
    /// nothing else is left to do.
    ///
    /// # Panics
    /// If `future` waits for something that will not happen.
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let slot = Arc::new(Mutex::new(None));
        let place = Arc::clone(&slot);
        self.spawn(
            "test",
            Box::pin(async move {
                let value = future.await;
                *place.lock() = Some(value);
            }),
        );
        loop {
            if let Some(value) = slot.lock().take() {
                return value;
            }
            self.step();
        }
    }

    /// From now on whatever waits for the disk waits so long; at first not at all.
    #[cfg(test)]
    pub(crate) fn set_disk_time(&self, time: Duration) {
        self.inner.state.lock().disk_time = time;
    }

    /// Lets time pass, with all that happens in it.
    pub async fn sleep(&self, time: Duration) {
        let deadline = self.now() + time;
        self.sleep_until(deadline).await;
    }

    /// Lets everything run that is ready, without time passing.
    pub async fn settle(&self) {
        for _ in 0..50 {
            let mut again = true;
            poll_fn(|context| {
                if std::mem::take(&mut again) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
        }
    }

    fn step(&self) {
        let task = self.inner.state.lock().ready.pop_front();
        if let Some(task) = task {
            task.queued.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(&task));
            let mut future = task.future.lock();
            if let Some(running) = future.as_mut()
                && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *future = None;
            }
            return;
        }
        let mut state = self.inner.state.lock();
        if !state.ready.is_empty() {
            return;
        }
        let wait = if state.timers.is_empty() { OUTSIDE_WAIT_MAX } else { OUTSIDE_WAIT };
        if !self.inner.woken.wait_for(&mut state, wait).timed_out() || !state.ready.is_empty() {
            return;
        }
        let Some(((time, _), waker)) = state.timers.pop_first() else {
            panic!("nothing left to do: the test waits for what will not happen");
        };
        state.now = state.now.max(time);
        drop(state);
        waker.wake();
    }
}

impl Clock for TestWorld {
    fn now(&self) -> Instant {
        self.inner.state.lock().now
    }

    fn wall(&self) -> Timestamp {
        let passed = self.now().0;
        Timestamp {
            seconds: WALL_START_SECONDS + (passed / 1_000_000_000) as i64,
            nanoseconds: (passed % 1_000_000_000) as u32,
        }
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let world = self.clone();
        let mut timer = None;
        Box::pin(poll_fn(move |context| {
            let mut state = world.inner.state.lock();
            if let Some(key) = timer.take() {
                state.timers.remove(&key);
            }
            if state.now >= deadline {
                return Poll::Ready(());
            }
            state.timer_number += 1;
            let key = (deadline, state.timer_number);
            state.timers.insert(key, context.waker().clone());
            timer = Some(key);
            Poll::Pending
        }))
    }
}

impl Random for TestWorld {
    /// SplitMix64.
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.inner.state.lock();
        for chunk in bytes.chunks_mut(8) {
            state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut number = state.random;
            number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            number ^= number >> 31;
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

impl Tasks for TestWorld {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        let task = Task {
            future: Mutex::new(Some(task)),
            inner: Arc::clone(&self.inner),
            queued: AtomicBool::new(false),
        };
        Arc::new(task).wake();
    }

    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        let (world, time) = (self.clone(), self.inner.state.lock().disk_time);
        Box::pin(async move {
            if !time.is_zero() {
                world.sleep(time).await;
            }
        })
    }
}

impl Network for TestWorld {
    fn connect(
        &self,
        _local: SocketAddrV4,
        _peer: SocketAddrV4,
        _privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn listen(&self, _local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}
