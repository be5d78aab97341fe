//! Durability: one thread takes groups down, the callers that wait share them.
//!
//! A group goes down when it is full, a second old, or asked for. [`Committer::run`] is the only
//! writer of the database: rotate, write and sync one batch, retire, notify. While it works the next
//! group fills; only if that one overfills, too, do callers of `apply` wait.
//!
//! If a batch fails, its durability is unknown: the group stays visible in memory, the store
//! refuses every further change, and every later caller gets the reason.
//!
//! Lock order: `state` alone; `rounds` alone. Neither is held while the disk works.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::{Condvar, Mutex};
use sheen_store::{CommitHook, Sequence, StoreError};

use crate::{Core, files::DataFileId, limits, record::DataGeneration};

#[derive(Debug, Default)]
struct CommitterState {
    /// Commit at least up to here, at once.
    wanted: u64,
    /// When the active group got its first transaction.
    since: Option<Instant>,
    full: bool,
    stop: bool,
    /// Checksums wait for a group, whether or not there are transactions.
    sums: bool,
}

/// Rounds of syncing data: one at a time, each for all callers that came before it.
#[derive(Debug, Default)]
struct SyncRounds {
    started: u64,
    finished: u64,
    running: bool,
}

/// See the module's documentation.
pub(crate) struct Committer {
    state: Mutex<CommitterState>,
    work: Condvar,
    done: Condvar,
    committed: AtomicU64,
    /// Objects of lower generations were created durably.
    created: AtomicU64,
    /// The active group has a transaction and the committer knows. Written and read in one order
    /// with the newest sequence (`SeqCst`), so that either the committer sees the transaction, or
    /// the caller that applied it sees that it must wake the committer.
    group_begun: AtomicBool,
    failed: OnceLock<StoreError>,
    hooks: Mutex<Vec<Arc<CommitHook>>>,
    rounds: Mutex<SyncRounds>,
    round_done: Condvar,
}

impl Committer {
    pub(crate) fn new(sequence: Sequence, generations: DataGeneration) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            committed: AtomicU64::new(sequence.0),
            created: AtomicU64::new(generations),
            group_begun: AtomicBool::new(false),
            failed: OnceLock::new(),
            hooks: Mutex::default(),
            rounds: Mutex::default(),
            round_done: Condvar::new(),
        }
    }

    pub(crate) fn committed(&self) -> Sequence {
        Sequence(self.committed.load(Ordering::Acquire))
    }

    pub(crate) fn is_created_durably(&self, generation: DataGeneration) -> bool {
        generation < self.created.load(Ordering::Acquire)
    }

    pub(crate) fn add_hook(&self, hook: CommitHook) {
        self.hooks.lock().push(Arc::new(hook));
    }

    /// The error of an earlier failure, if there was one.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Closes the store: from now on every change is refused. False if the store had failed before.
    pub(crate) fn close(&self) -> bool {
        self.failed.set(StoreError::Closed).is_ok()
    }

    /// From now on every change is refused.
    pub(crate) fn fail(&self, what: &str, error: &StoreError) {
        let error = StoreError::Io(format!("the store is read-only: {what} failed: {error}"));
        tracing::error!(%error, "nothing more is changed until the target starts again: free space if its disk is full, \
            then restart its server");
        let is_first = self.failed.set(error.clone()).is_ok();
        {
            // Under the lock, so that no thread is between looking and waiting.
            let _state = self.state.lock();
            self.done.notify_all();
        }
        if is_first {
            let hooks = self.hooks.lock().clone();
            hooks.iter().for_each(|hook| hook(Err(error.clone())));
        }
    }

    /// Waits while the active group is overfull. Called before a transaction is applied.
    pub(crate) fn wait_for_room(&self, active_bytes: usize, core: &Core) -> Result<(), StoreError> {
        self.check()?;
        if active_bytes < core.group_bytes * limits::GROUP_OVERFILL {
            return Ok(());
        }
        let mut state = self.state.lock();
        while core.overlay.active_bytes() >= core.group_bytes * limits::GROUP_OVERFILL {
            state.full = true;
            self.work.notify_one();
            self.done.wait(&mut state);
            self.check()?;
        }
        Ok(())
    }

    /// Notes that a transaction was applied: two loads, unless the group is new or full.
    pub(crate) fn applied(&self, active_bytes: usize, group_bytes: usize) {
        if !self.group_begun.load(Ordering::SeqCst)
            && !self.group_begun.swap(true, Ordering::SeqCst)
        {
            self.state.lock().since.get_or_insert_with(Instant::now);
            self.work.notify_one();
        }
        if active_bytes >= group_bytes {
            let mut state = self.state.lock();
            if !std::mem::replace(&mut state.full, true) {
                self.work.notify_one();
            }
        }
    }

    /// Asks for a commit up to `sequence`.
    pub(crate) fn want(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        if sequence.0 > state.wanted && sequence > self.committed() {
            state.wanted = sequence.0;
            self.work.notify_one();
        }
    }

    /// Waits until `sequence` is durable.
    pub(crate) fn wait(&self, sequence: Sequence) -> Result<Sequence, StoreError> {
        self.want(sequence);
        let mut state = self.state.lock();
        while self.committed() < sequence {
            self.check()?;
            self.done.wait(&mut state);
        }
        drop(state);
        self.check()?;
        Ok(self.committed())
    }

    /// Waits until all data written before the call is durable.
    pub(crate) fn sync_data(&self, core: &Core) -> Result<(), StoreError> {
        let mut rounds = self.rounds.lock();
        let mine = rounds.started + 1;
        while rounds.finished < mine {
            if rounds.running {
                self.round_done.wait(&mut rounds);
                continue;
            }
            rounds.running = true;
            rounds.started += 1;
            let round = rounds.started;
            drop(rounds);
            if let Err(error) = core.files.sync_all() {
                self.fail("a sync of data", &error);
            }
            rounds = self.rounds.lock();
            rounds.running = false;
            rounds.finished = round;
            self.round_done.notify_all();
        }
        drop(rounds);
        self.check()
    }

    /// Asks for a commit of checksums; does not wait.
    pub(crate) fn keep_sums(&self) {
        self.state.lock().sums = true;
        self.work.notify_one();
    }

    /// Ends [`Self::run`] after a last commit.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_one();
    }

    /// The committer's thread: until [`Self::stop`], or a failure. Destroyed objects' files go to
    /// `reap` once that is durable.
    pub(crate) fn run(&self, core: &Core, reap: &std::sync::mpsc::Sender<Vec<DataFileId>>) {
        while let Some(last_time) = self.wait_for_work(core) {
            // A database that panics (on a full disk, say) is a commit that failed: the callers that
            // wait for it must get the error.
            let commit = AssertUnwindSafe(|| self.commit_group(core, reap));
            let panicked = |_| Err(StoreError::Io("the metadata database panicked".to_owned()));
            if let Err(error) = catch_unwind(commit).unwrap_or_else(panicked) {
                self.fail("a commit", &error);
                return;
            }
            if last_time {
                return;
            }
        }
    }

    /// Whether this is the last commit; `None` if there is none to do any more.
    fn wait_for_work(&self, core: &Core) -> Option<bool> {
        let mut state = self.state.lock();
        loop {
            let pending = core.overlay.applied() > self.committed();
            if !pending && state.since.take().is_some() {
                // A caller that has applied since, and found it set, is seen in the next round.
                self.group_begun.store(false, Ordering::SeqCst);
                continue;
            }
            if pending && state.since.is_none() {
                state.since = Some(Instant::now());
            }
            let aged = state.since.is_some_and(|since| since.elapsed() >= limits::GROUP_AGE_MAX);
            if state.stop {
                return pending.then_some(true);
            }
            if state.sums {
                return Some(false);
            }
            if pending && (aged || state.full || state.wanted > self.committed().0) {
                return Some(false);
            }
            match state.since {
                Some(since) if !aged => {
                    self.work.wait_until(&mut state, since + limits::GROUP_AGE_MAX);
                }
                _ => {
                    self.work.wait(&mut state);
                }
            }
        }
    }

    fn commit_group(
        &self,
        core: &Core,
        reap: &std::sync::mpsc::Sender<Vec<DataFileId>>,
    ) -> Result<(), StoreError> {
        {
            let mut state = self.state.lock();
            state.full = false;
            state.sums = false;
            state.since = None;
        }
        // Before the rotation: a caller that applies behind it marks the next group.
        self.group_begun.store(false, Ordering::SeqCst);
        let group = core.overlay.rotate();
        let destroyed: Vec<DataFileId> =
            group.parts.iter().flat_map(|part| part.destroyed.iter().copied()).collect();
        let sums = core.files.take_sums(&destroyed)?;
        core.database.commit(group.parts.iter().map(|part| &**part), &sums, group.last)?;
        core.files.sums_are_kept(sums);
        self.created.store(group.generations, Ordering::Release);
        // Before any waiting caller goes on: one that asked for the commit may look at what they
        // keep.
        let hooks = self.hooks.lock().clone();
        for hook in hooks {
            hook(Ok(group.last));
        }
        {
            // Under the lock, so that no thread is between looking and waiting.
            let _state = self.state.lock();
            self.committed.store(group.last.0, Ordering::Release);
            self.done.notify_all();
        }
        core.overlay.retire(&group);
        core.usage.set_metadata(core.database.bytes());
        core.files.check_host();
        if !destroyed.is_empty() || core.files.has_unsynced() || core.usage.has_refused() {
            // The reaper lives as long as this thread; without it the next open sweeps.
            let _gone = reap.send(destroyed);
        }
        Ok(())
    }
}
