//! One stat-ahead (Lustre's `ll_statahead_info`): names of a directory that were asked for and not yet used, in a window
//! that grows with every hit.
//!
//! What always holds: at most as many names are asked ahead as the window has room for. What is not used is dropped
//! when the run ends: with its listing, at [`Run::end`], where too few of its names are used, or when none has been used
//! for `statahead_timeout`.
//!
//! Cost of a name that is used: one lock. The task that asks ahead is woken once for the names of a request, not for each
//! that is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::Clock;
use sheen_types::futures::{self, First};
use sheen_types::{HashMap, Instant, Name};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::cache::{Pin, Position};
use crate::posix::{FileHandle, NodeId};

/// Misses in a row after which a run ends (`sa_low_hit`).
const MISSES_MAX: u64 = 32;

/// A request under way, or answered, for some names of a run.
#[derive(Default)]
pub(super) struct Flight {
    found: Mutex<Vec<Option<Pin>>>,
    is_done: AtomicBool,
    done: Notify,
}

/// A name that is, or was, asked for.
pub(super) struct AheadName {
    flight: Arc<Flight>,
    place: usize,
}

/// See the module's documentation.
pub(super) struct Run {
    /// Where its names are.
    pub(super) directory: NodeId,
    /// For which process.
    pub(super) pid: u32,
    /// What lists them, if they are not guessed.
    pub(super) handle: Option<FileHandle>,
    state: Mutex<RunState>,
    changed: Notify,
    /// How often names that were used have woken the task that asks ahead.
    #[cfg(test)]
    wakes: std::sync::atomic::AtomicU64,
}

struct RunState {
    names: HashMap<Name, AheadName>,
    window: usize,
    /// Names that the next request is to have.
    batch: usize,
    hits: u64,
    misses: u64,
    misses_in_a_row: u64,
    /// When a name was used last, or looked up that it had not asked for.
    last_use: Instant,
    /// Where the names begin that a listing has not given out.
    listed: Position,
    is_exhausted: bool,
    is_over: bool,
    /// It ends because too few of its names were used.
    is_wrong: bool,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunCounts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) is_wrong: bool,
}

impl Flight {
    /// The answers, in the order of its names; those behind the last have none.
    pub(super) fn finish(&self, found: Vec<Option<Pin>>) {
        *self.found.lock() = found;
        self.is_done.store(true, Ordering::Release);
        self.done.notify_waiters();
    }

    async fn wait(&self) {
        loop {
            let done = self.done.notified();
            if self.is_done.load(Ordering::Acquire) {
                return;
            }
            done.await;
        }
    }
}

impl AheadName {
    /// What it stands for; `None` if it is not there, or not known by `until`.
    pub(super) async fn wait(self, clock: &dyn Clock, until: Instant) -> Option<Pin> {
        if !self.flight.is_done.load(Ordering::Acquire) {
            futures::race(self.flight.wait(), clock.sleep_until(until)).await;
        }
        self.flight.found.lock().get_mut(self.place)?.take()
    }
}

impl Run {
    pub(super) fn new(
        directory: NodeId,
        pid: u32,
        handle: Option<FileHandle>,
        window: usize,
    ) -> Arc<Self> {
        let state = RunState {
            names: HashMap::default(),
            window,
            batch: 1,
            hits: 0,
            misses: 0,
            misses_in_a_row: 0,
            last_use: Instant(0),
            listed: Position::default(),
            is_exhausted: false,
            is_over: false,
            is_wrong: false,
        };
        let (state, changed) = (Mutex::new(state), Notify::new());
        Arc::new(Self {
            directory,
            pid,
            handle,
            state,
            changed,
            #[cfg(test)]
            wakes: Default::default(),
        })
    }

    /// Waits until so many names, or half the window, may be asked for more; how many may be. `None` when the run is over,
    /// or no name was used for `patience`.
    pub(super) async fn room(
        &self,
        batch: usize,
        clock: &dyn Clock,
        patience: Duration,
    ) -> Option<usize> {
        let begin = clock.now();
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                state.batch = batch;
                if state.is_over || state.is_exhausted {
                    return None;
                }
                if let Some(free) = state.free() {
                    return Some(free);
                }
            }
            if self.is_forgotten(changed, begin, clock, patience).await {
                return None;
            }
        }
    }

    /// Waits until all its names are used, it is over, or none was used for `patience`.
    pub(super) async fn all_used(&self, clock: &dyn Clock, patience: Duration) {
        let begin = clock.now();
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                if state.is_over || state.names.is_empty() {
                    return;
                }
            }
            if self.is_forgotten(changed, begin, clock, patience).await {
                return;
            }
        }
    }

    /// Waits for a change, or until no name may have been used for `patience`, from `begin` on; whether none was.
    async fn is_forgotten(
        &self,
        changed: Notified<'_>,
        begin: Instant,
        clock: &dyn Clock,
        patience: Duration,
    ) -> bool {
        let until = || self.state.lock().last_use.max(begin) + patience;
        let is_late = futures::race(changed, clock.sleep_until(until())).await == First::Right(());
        is_late && until() <= clock.now()
    }

    /// These names are about to be asked for.
    pub(super) fn note_asked(&self, names: impl Iterator<Item = Name>) -> Arc<Flight> {
        let flight = Arc::new(Flight::default());
        let mut state = self.state.lock();
        if !state.is_over {
            for (place, name) in names.enumerate() {
                state.names.insert(name, AheadName { flight: Arc::clone(&flight), place });
            }
        }
        flight
    }

    /// Takes a name out that is about to be used.
    pub(super) fn take(&self, name: &Name) -> Option<AheadName> {
        self.state.lock().names.remove(name)
    }

    /// A name that it asked for was used, and was known if `hit`: the window grows up to `max`, or it was in vain.
    pub(super) fn note_used(&self, now: Instant, hit: bool, max: usize) {
        let mut state = self.state.lock();
        state.last_use = now;
        if hit {
            state.hits += 1;
            state.misses_in_a_row = 0;
            state.window = (state.window * 2).min(max).max(1);
        } else {
            state.miss();
        }
        let wakes = state.wakes();
        drop(state);
        self.wake(wakes);
    }

    /// Its process looked a name up that it had not asked for.
    pub(super) fn note_missed(&self, now: Instant) {
        let wakes = {
            let mut state = self.state.lock();
            state.last_use = now;
            state.miss();
            state.wakes()
        };
        self.wake(wakes);
    }

    /// Wakes the task that asks ahead.
    fn wake(&self, wakes: bool) {
        if wakes {
            #[cfg(test)]
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    /// The listing has given out all names before `position`.
    pub(super) fn listed_to(&self, position: Position) {
        let mut state = self.state.lock();
        state.listed = position;
    }

    /// Where names begin that the listing has not given out.
    pub(super) fn listed(&self) -> Position {
        self.state.lock().listed
    }

    /// There are no further names.
    pub(super) fn exhaust(&self) {
        self.state.lock().is_exhausted = true;
        self.changed.notify_waiters();
    }

    /// Whether all its names were asked for.
    pub(super) fn is_exhausted(&self) -> bool {
        self.state.lock().is_exhausted
    }

    /// It is to end.
    pub(super) fn stop(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_waiters();
    }

    /// Whether it asks for names of this directory for this process.
    pub(super) fn is_of(&self, directory: NodeId, pid: u32) -> bool {
        self.directory == directory && self.pid == pid && !self.is_over()
    }

    /// It is over: what was not used is dropped.
    pub(super) fn end(&self) -> RunCounts {
        let (names, counts) = {
            let mut state = self.state.lock();
            state.is_over = true;
            let RunState { hits, misses, is_wrong, .. } = *state;
            (std::mem::take(&mut state.names), RunCounts { hits, misses, is_wrong })
        };
        drop(names);
        self.changed.notify_waiters();
        counts
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }
}

impl RunState {
    /// How many names may be asked for more; `None` if they are too few to be worth a request.
    fn free(&self) -> Option<usize> {
        let free = self.window.saturating_sub(self.names.len());
        (free >= self.batch.min(self.window.div_ceil(2)).max(1)).then_some(free)
    }

    /// Whether the task that asks ahead has something to do.
    fn wakes(&self) -> bool {
        self.is_over || self.names.is_empty() || !self.is_exhausted && self.free().is_some()
    }

    fn miss(&mut self) {
        self.misses += 1;
        self.misses_in_a_row += 1;
        let is_low = self.hits > MISSES_MAX && self.hits < 4 * self.misses;
        if is_low || self.misses_in_a_row > MISSES_MAX {
            self.is_wrong = true;
            self.is_over = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<usize>) -> impl Iterator<Item = Name> {
        range.map(|number| Name::new(format!("file.{number}").as_bytes()).expect("a name"))
    }

    #[test]
    fn names_that_are_used_wake_the_asking_task_once_for_each_request() {
        const NAMES: usize = 6400;
        let run = Run::new(NodeId(2), 1, None, 256);
        run.state.lock().batch = 64;
        let mut asked = 256;
        drop(run.note_asked(names(0..asked)));
        for name in names(0..NAMES) {
            run.take(&name).expect("it was asked for");
            let before = run.wakes.load(Ordering::Relaxed);
            run.note_used(Instant(0), true, 256);
            if run.wakes.load(Ordering::Relaxed) == before {
                continue;
            }
            drop(run.note_asked(names(asked..NAMES.min(asked + 64))));
            asked += 64;
            if asked == NAMES {
                run.exhaust();
            }
        }
        // The last one says that all are used.
        assert_eq!(run.wakes.load(Ordering::Relaxed) as usize, (NAMES - 256) / 64 + 1);
    }
}
