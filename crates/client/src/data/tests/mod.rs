//! The data path against scripted OSTs, in virtual time.

mod advice;
mod ahead;
mod evictions;
mod inodes;
mod layouts;
mod locks;
mod mapped;
mod ost;
mod reading;
mod sizes;
mod syncing;
mod tuning;
mod writing;
mod writing_through;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{BoxFuture, Clock};
use sheen_layout::{Layout, Raid0, Stripe};
use sheen_rpc::Channel;
use sheen_types::{Errno, Extent, Fid, ResourceName};
use sheen_wire::ost::OstId;

use super::{
    CallPages, DataEvents, DataFile, DataPath, DataTargets, IoOptions, LayoutGuard, Locking,
    Refusal, WriteAt,
};
use crate::locks::ClientNamespace;
use crate::testing::{TestWorld, lock_config};
use crate::types::{Credentials, Invalidated, Stale};
use ost::FakeOst;
use tokio::sync::Notify;

const FILE: Fid = Fid::new(0x2_0000_0401, 7);
const STRIPE: u32 = 1 << 20;
const GROWING: Locking = Locking { is_exact: false, group: 0 };
const CACHED: IoOptions =
    IoOptions { direct: false, sync: false, call_pages: None, is_mapped: false, locking: GROWING };
const DIRECT: IoOptions = IoOptions { direct: true, ..CACHED };

/// A client's data path with two OSTs.
struct Fixture {
    world: TestWorld,
    osts: Arc<DataTargets>,
    fakes: Vec<Arc<FakeOst>>,
    locks: Vec<Arc<ClientNamespace>>,
    events: Arc<Events>,
    layout_guard: Arc<LayoutGuard>,
}

/// How a call treats the cache for which the kernel fills these pages.
fn filling(offset: u64, length: u64) -> IoOptions {
    let call_pages = Extent::of_length(offset, length).map(CallPages::of);
    IoOptions { call_pages, ..CACHED }
}

/// The same of one that writes these bytes out of its pages.
fn through(offset: u64, length: u64) -> IoOptions {
    let call_pages = Extent::of_length(offset, length).and_then(CallPages::written);
    IoOptions { call_pages, ..CACHED }
}

/// Notes which ranges are no longer covered, and what failed.
#[derive(Default)]
struct Events {
    invalidated: Mutex<Vec<Extent>>,
    /// The ranges of which the kernel has dropped all pages.
    dropped: Arc<Mutex<Vec<Extent>>>,
    /// The pages that the kernel does not release.
    held: Arc<Mutex<Option<Extent>>>,
    /// It has been blocked on them for two seconds.
    is_long: Arc<Notify>,
    /// The kernel takes notices of this range when this is notified.
    late: Mutex<Option<(Extent, Arc<Notify>)>>,
    failed: Mutex<Vec<Errno>>,
}

impl Events {
    /// Whether the kernel has dropped all pages of this range.
    fn has_dropped(&self, range: Extent) -> bool {
        let mut dropped = self.dropped.lock().clone();
        dropped.sort_by_key(|it| it.start);
        let mut next = Some(range.start);
        for it in dropped {
            if next.is_some_and(|next| it.start <= next && next <= it.end) {
                next = it.end.checked_add(1);
            }
        }
        next.is_none_or(|next| next > range.end)
    }
}

impl DataEvents for Events {
    fn invalidate(&self, fid: Fid, stale: Stale) -> BoxFuture<'static, Invalidated> {
        assert_eq!(fid, FILE);
        let Stale::Pages(range) = stale else {
            return Box::pin(std::future::ready(Invalidated::Done));
        };
        self.invalidated.lock().push(range);
        let (held, late) = (Arc::clone(&self.held), self.late.lock().clone());
        let (dropped, is_long) = (Arc::clone(&self.dropped), Arc::clone(&self.is_long));
        Box::pin(async move {
            if let Some((_, late)) = late.filter(|(late, _)| *late == range) {
                late.notified().await;
            }
            let held = *held.lock();
            if held.is_some_and(|held| held.start <= range.end && range.start <= held.end) {
                return Invalidated::Blocked(Box::pin(async move {
                    is_long.notified().await;
                    false
                }));
            }
            dropped.lock().push(range);
            Invalidated::Done
        })
    }

    fn failed(&self, fid: Fid, errno: Errno) {
        assert_eq!(fid, FILE);
        self.failed.lock().push(errno);
    }
}

fn object_fid(ost: u32) -> Fid {
    Fid::new(0x2_4000_0400 + u64::from(ost), 9)
}

/// What locks on the object on this OST are on.
fn resource(ost: u32) -> ResourceName {
    OstId::of_fid(object_fid(ost)).resource()
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| (at * 7 + at / 251 + 1) as u8 | 1).collect::<Vec<_>>().into()
}

impl Fixture {
    /// Each OST has promised `grant` bytes.
    fn new(grant: u32) -> Self {
        let world = TestWorld::new(11);
        let osts = DataTargets::new(world.world());
        let events = Arc::new(Events::default());
        osts.watch(Arc::clone(&events) as Arc<dyn DataEvents>);
        let fakes = vec![FakeOst::new(), FakeOst::new()];
        let mut locks = Vec::new();
        for (index, fake) in (0..).zip(&fakes) {
            let channel = Arc::clone(fake) as Arc<dyn Channel>;
            locks.push(osts.add(index, format!("fs-OST{index:04x}"), channel, lock_config()));
            osts.connected(index, &FakeOst::agreed(grant));
        }
        Self { world, osts, fakes, locks, events, layout_guard: Arc::default() }
    }

    fn layout(stripes: u32) -> Arc<Layout> {
        let raid0 = Raid0::new(STRIPE, stripes).expect("a legal layout");
        let stripe = |ost| Stripe { ost, object: object_fid(ost) };
        Arc::new(Layout::plain(1, raid0, (0..stripes).map(stripe).collect()))
    }

    fn file(&self, stripes: u32) -> Arc<dyn DataFile> {
        self.file_by(Self::layout(stripes))
    }

    fn file_by(&self, layout: Arc<Layout>) -> Arc<dyn DataFile> {
        self.osts.file(FILE, layout, self.layout_guard.version()).expect("a file")
    }

    fn ost(&self) -> &Arc<FakeOst> {
        &self.fakes[0]
    }

    /// Runs what is ready, and what becomes ready within this time.
    fn wait(&self, time: Duration) {
        let world = self.world.clone();
        let until = world.now() + time;
        self.world.run(async move { world.sleep_until(until).await });
    }

    /// Calls `call` on the file and runs everything until it is done.
    fn run<T, F>(&self, file: &Arc<dyn DataFile>, call: impl FnOnce(Arc<dyn DataFile>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.world.run(call(Arc::clone(file)))
    }

    /// Begins `call` on the file and runs what is ready.
    fn begin<T, F>(
        &self,
        file: &Arc<dyn DataFile>,
        call: impl FnOnce(Arc<dyn DataFile>) -> F,
    ) -> BegunCall<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (call, begun) = (call(Arc::clone(file)), BegunCall::default());
        let (outcome, killed) = (Arc::clone(&begun.outcome), Arc::clone(&begun.killed));
        let task = async move {
            let done = sheen_types::futures::before(call, killed.notified()).await;
            *outcome.lock() = done;
        };
        self.world.world().tasks.spawn("call", Box::pin(task));
        self.world.settle();
        begun
    }

    fn begin_write(
        &self,
        file: &Arc<dyn DataFile>,
        offset: u64,
        data: Bytes,
        options: IoOptions,
    ) -> BegunCall<Outcome<u64>> {
        self.begin(file, |file| async move {
            let at = WriteAt::Offset(offset);
            file.write(at, data, &Credentials::root(), options).await.map_err(errno)
        })
    }

    fn begin_sync(&self, file: &Arc<dyn DataFile>) -> BegunCall<Outcome<()>> {
        self.begin(file, |file| async move { file.sync(Extent::ALL).await })
    }

    fn write(
        &self,
        file: &Arc<dyn DataFile>,
        at: WriteAt,
        data: Bytes,
        options: IoOptions,
    ) -> Outcome<u64> {
        self.run(file, |file| async move {
            file.write(at, data, &Credentials::root(), options).await.map_err(errno)
        })
    }

    fn read(
        &self,
        file: &Arc<dyn DataFile>,
        offset: u64,
        length: u32,
        options: IoOptions,
    ) -> Outcome<Bytes> {
        self.run(file, |file| async move {
            let read = file.read(offset, length, options).await.map_err(errno);
            read.map(|pieces| pieces.concat().into())
        })
    }

    fn sync(&self, file: &Arc<dyn DataFile>) -> Outcome<()> {
        self.run(file, |file| async move { file.sync(Extent::ALL).await })
    }

    /// The failures of write-back since the last call.
    fn failures(&self) -> Vec<Errno> {
        std::mem::take(&mut *self.events.failed.lock())
    }

    fn size(&self, file: &Arc<dyn DataFile>) -> u64 {
        let known = self.run(file, |file| async move { file.attributes().await });
        known.expect("attributes").size
    }

    /// Another client wants everything that we hold of OST 0: until all is cancelled.
    fn lose_locks(&self) {
        let callbacks = self.ost().blocking();
        for callback in callbacks {
            // A lock that went back meanwhile is not known any more.
            let _ = self.locks[0].on_blocking(&callback);
        }
        self.world.settle();
    }
}

/// A call that was begun.
struct BegunCall<T> {
    /// `None` until it is done.
    outcome: Arc<Mutex<Option<T>>>,
    killed: Arc<Notify>,
}

impl<T> Default for BegunCall<T> {
    fn default() -> Self {
        Self { outcome: Arc::default(), killed: Arc::default() }
    }
}

impl<T> BegunCall<T> {
    /// What it has ended with, once.
    fn outcome(&self) -> Option<T> {
        self.outcome.lock().take()
    }

    /// Its caller is killed: the call is dropped where it is.
    fn kill(self, fixture: &Fixture) {
        self.killed.notify_one();
        fixture.world.settle();
    }
}

type Outcome<T> = Result<T, sheen_types::Errno>;

/// What a call that was not refused for its layout failed with.
fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Errno(errno) => errno,
        other => panic!("{other}"),
    }
}

#[test]
fn callers_that_race_share_one_object() {
    let fixture = Fixture::new(1 << 20);
    let path = Arc::clone(&fixture.osts);
    for _ in 0..200 {
        let gate = std::sync::Barrier::new(4);
        let objects: Vec<_> = std::thread::scope(|scope| {
            let open = || {
                gate.wait();
                path.file_on(FILE, Fixture::layout(1), fixture.layout_guard.version())
                    .expect("a file")
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let first = &objects[0].objects[0];
        assert!(objects.iter().all(|file| Arc::ptr_eq(&file.objects[0], first)));
    }
}
