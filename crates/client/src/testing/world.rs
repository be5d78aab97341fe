//! A world in virtual time: one thread, seeded randomness, no network.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use sheen_io::{BoxFuture, Clock, Connection, Listener, Network, Random, Tasks, World};
use sheen_types::{Instant, Timestamp};

#[derive(Clone)]
pub(crate) struct TestWorld(Arc<Mutex<WorldState>>);

struct WorldState {
    now: Instant,
    ready: VecDeque<Arc<Task>>,
    timers: BTreeMap<(Instant, u64), Waker>,
    count: u64,
    random: u64,
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    world: TestWorld,
    queued: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let world = self.world.clone();
            world.0.lock().ready.push_back(self);
        }
    }
}

impl TestWorld {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(WorldState {
            now: Instant(1_000_000_000),
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            count: 0,
            random: seed,
        })))
    }

    pub(crate) fn world(&self) -> World {
        let this = Arc::new(self.clone());
        World { clock: this.clone(), random: this.clone(), tasks: this.clone(), network: this }
    }

    /// Runs `future` and everything it starts until `future` is done and nothing is ready any more;
    /// time passes only when nothing else is left to do.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let slot = Arc::new(Mutex::new(None));
        let place = Arc::clone(&slot);
        self.spawn("test", Box::pin(async move { *place.lock() = Some(future.await) }));
        loop {
            self.settle();
            if let Some(value) = slot.lock().take() {
                return value;
            }
            let next = self.0.lock().timers.pop_first();
            let ((time, _), waker) = next.expect("the test waits for what will not happen");
            let mut state = self.0.lock();
            state.now = state.now.max(time);
            drop(state);
            waker.wake();
        }
    }

    /// Runs everything that is ready.
    pub(crate) fn settle(&self) {
        loop {
            let task = self.0.lock().ready.pop_front();
            let Some(task) = task else { return };
            task.queued.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(&task));
            let mut future = task.future.lock();
            let Some(running) = future.as_mut() else { continue };
            if running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *future = None;
            }
        }
    }
}

impl Clock for TestWorld {
    fn now(&self) -> Instant {
        self.0.lock().now
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_seconds(1_795_219_200 + (self.now().0 / 1_000_000_000) as i64)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let world = self.clone();
        Box::pin(poll_fn(move |context| {
            let mut state = world.0.lock();
            if state.now >= deadline {
                return Poll::Ready(());
            }
            state.count += 1;
            let key = (deadline, state.count);
            state.timers.insert(key, context.waker().clone());
            Poll::Pending
        }))
    }
}

impl Random for TestWorld {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock();
        for byte in bytes {
            state.random = state.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state.random >> 33) as u8;
        }
    }
}

impl Tasks for TestWorld {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        let task = Task {
            future: Mutex::new(Some(task)),
            world: self.clone(),
            queued: AtomicBool::new(false),
        };
        Arc::new(task).wake();
    }

    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        Box::pin(std::future::ready(()))
    }
}

impl Network for TestWorld {
    fn connect(
        &self,
        _local: SocketAddrV4,
        _peer: SocketAddrV4,
        _privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    fn listen(&self, _local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}
