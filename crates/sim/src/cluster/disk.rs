//! A target's disk: a store in memory that commits like a disk, and fails like one.
//!
//! Transactions become durable about a second after they were applied, in groups, or when a request waits for
//! them. What the death of the process or of the machine leaves is the seed's choice within the promises of
//! `sheen_store`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::World;
use sheen_store::{Sequence, Store};
use sheen_store_mem::{Commits, Errors, Flaky, MemOptions, StoreMem};
use sheen_types::futures::race;
use sheen_vnet::SeededRandom;

/// How long a group of transactions is gathered, at most.
const GROUP: Duration = Duration::from_secs(1);
/// How long it may take until it is noticed that a group is wanted.
const NOTICED_MAX: Duration = Duration::from_millis(5);

/// A disk's contents; the machine that uses it may change.
pub(crate) struct Disk {
    store: Mutex<Arc<StoreMem>>,
    /// Of the process that uses it now.
    errors: Mutex<Arc<Mutex<Errors>>>,
}

impl Disk {
    /// An empty disk of `bytes` bytes.
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let options =
            MemOptions { commits: Commits::Manual, capacity_bytes: bytes, ..MemOptions::default() };
        Self { store: Mutex::new(Arc::new(StoreMem::new(options))), errors: Mutex::default() }
    }

    /// What lies on it now.
    pub(crate) fn store(&self) -> Arc<StoreMem> {
        Arc::clone(&self.store.lock())
    }

    /// An older copy takes the place of what lies on it.
    pub(crate) fn restore(&self, copy: StoreMem) {
        *self.store.lock() = Arc::new(copy);
    }

    /// For the process that mounts it; commits in `world` until that ends.
    pub(crate) fn open(&self, world: &World) -> Arc<dyn Store> {
        let store = self.store();
        world.tasks.spawn("commit", Box::pin(commit(Arc::clone(&store), world.clone())));
        let errors = Arc::default();
        *self.errors.lock() = Arc::clone(&errors);
        Arc::new(Flaky { store, random: Arc::clone(&world.random), errors })
    }

    /// Lets jobs of the process that uses it fail so often.
    pub(crate) fn set_errors(&self, errors: Errors) {
        *self.errors.lock().lock() = errors;
    }

    /// A commit fails: nothing is changed any more until the process has been started again.
    pub(crate) fn fail_commit(&self) {
        self.store().fail();
    }

    /// The process that used it has died: what it wrote is there, and more or fewer transactions beyond those
    /// reported durable.
    pub(crate) fn killed(&self, random: &SeededRandom) {
        let mut store = self.store.lock();
        commit_some(&store, random);
        *store = Arc::new(store.kill());
    }

    /// The process that used it has closed it.
    pub(crate) fn stopped(&self) {
        let mut store = self.store.lock();
        if !store.has_failed() {
            store.commit_through(store.applied());
        }
        *store = Arc::new(store.kill());
    }

    /// The machine that used it has lost power: of what was not synced, sectors are there or not.
    pub(crate) fn lost_power(&self, random: &SeededRandom) {
        let mut store = self.store.lock();
        commit_some(&store, random);
        *store = Arc::new(store.crash_torn(&mut || random.draw()));
    }
}

/// A commit may have been under way.
fn commit_some(store: &StoreMem, random: &SeededRandom) {
    let (committed, applied) = (store.committed().0, store.applied().0);
    if random.below(2) == 0 {
        store.commit_through(Sequence(committed + random.below(applied - committed + 1)));
    }
}

async fn commit(store: Arc<StoreMem>, world: World) {
    let clock = &world.clock;
    loop {
        let gathered = clock.sleep_until(clock.now() + GROUP);
        race(poll_fn(|context| store.poll_commit_wanted(context)), gathered).await;
        let pause = Duration::from_nanos(world.random.number() % NOTICED_MAX.as_nanos() as u64);
        clock.sleep_until(clock.now() + pause).await;
        if store.has_failed() {
            return;
        }
        let (store, sequence) = (Arc::clone(&store), store.applied());
        if sequence > store.committed() {
            let job = move || store.commit_through(sequence);
            world.tasks.blocking(Box::new(job)).await;
        }
    }
}
