//! Names and inodes that changes over several MDTs exclude, until their coordinators release them (Lustre: locks of
//! remote PDO).
//!
//! An entry may last as long as its coordinator is down, so it keeps no shard of [`crate::exclusion`]: it is entered while the
//! shards of what it names are held, and these are released. An operation that holds its shards looks here, and if what it is
//! about is excluded it releases its shards, waits, and begins anew ([`crate::hold`]).
//!
//! What always holds: while shards are held under which an entry conflicts, no such entry comes. Operations that change
//! something wait from the exclusion on; those that read wait from the apply on, until the release.
//!
//! Cost for an operation while no change over several MDTs is under way: one load.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sheen_target::{Incarnation, LockGuard, Wait, while_waiting};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name, Uuid};
use tokio::sync::Notify;

/// Numbers of a coordinator's exclusions of which it is known that they are released, one by one.
const RELEASED_MAX: usize = 4096;

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Name(Fid, Name),
    Inode(Fid),
    /// The way of all directories to the root.
    Renames,
}

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRef<'a> {
    Name(Fid, &'a [u8]),
    Inode(Fid),
    /// All names of a directory: what a listing shows.
    Listing(Fid),
    Renames,
}

/// What an operation does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It shows it to a client.
    Reads,
    /// It relies on it.
    Keeps,
    Changes,
}

/// What clients have to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// Listings of a directory, and that names are absent.
    Listing(Fid),
    Inode(Fid, InodeBits),
}

/// One coordinator's exclusion.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) coordinator: Incarnation,
    pub(crate) number: u64,
    /// Each with whether it is excluded alone, or kept as it is.
    pub(crate) keys: Vec<(Key, bool)>,
    pub(crate) revoked: Vec<Revoked>,
    /// Whose listings are not revoked, if it has agreed to correct them.
    pub(crate) client: Uuid,
    /// The part is applied, or about to be.
    pub(crate) is_applied: bool,
}

/// Why there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// Another one conflicts.
    Busy,
    /// It was released before it came, or its coordinator has started anew.
    Late,
}

/// What is known of a coordinator's numbers.
#[derive(Default)]
struct Numbers {
    /// Of which start.
    starts: u32,
    /// All below are released.
    floor: u64,
    released: BTreeSet<u64>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    numbers: BTreeMap<MdtIndex, Numbers>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct RemoteExclusions {
    /// Entries, and of these those that are applied: looked at without the lock.
    entered: AtomicUsize,
    applied: AtomicUsize,
    state: Mutex<State>,
    released: Notify,
}

impl Key {
    fn is(&self, other: KeyRef<'_>) -> bool {
        match (self, other) {
            (Self::Name(directory, name), KeyRef::Name(of, other)) => {
                *directory == of && name.as_bytes() == other
            }
            (Self::Inode(fid), KeyRef::Inode(other)) => *fid == other,
            (Self::Name(directory, _) | Self::Inode(directory), KeyRef::Listing(of)) => {
                *directory == of
            }
            (Self::Renames, KeyRef::Renames) => true,
            _ => false,
        }
    }

    pub(crate) fn borrowed(&self) -> KeyRef<'_> {
        match self {
            Self::Name(directory, name) => KeyRef::Name(*directory, name.as_bytes()),
            Self::Inode(fid) => KeyRef::Inode(*fid),
            Self::Renames => KeyRef::Renames,
        }
    }
}

impl Entry {
    fn is_of(&self, coordinator: Incarnation, number: u64) -> bool {
        (self.coordinator, self.number) == (coordinator, number)
    }

    fn conflicts(&self, key: KeyRef<'_>, how: Use) -> bool {
        self.keys.iter().any(|(own, alone)| {
            own.is(key)
                && match how {
                    Use::Reads => *alone && self.is_applied,
                    Use::Keeps => *alone,
                    Use::Changes => true,
                }
        })
    }

    /// Whether a key is excluded, alone or not.
    pub(crate) fn has(&self, key: KeyRef<'_>) -> bool {
        self.keys.iter().any(|(own, _)| own.is(key))
    }

    /// Whether a key is excluded alone.
    pub(crate) fn has_alone(&self, key: KeyRef<'_>) -> bool {
        self.keys.iter().any(|(own, alone)| *alone && own.is(key))
    }
}

impl Numbers {
    fn is_late(&self, starts: u32, number: u64) -> bool {
        starts < self.starts
            || starts == self.starts && (number < self.floor || self.released.contains(&number))
    }

    fn note_start(&mut self, starts: u32) {
        if starts > self.starts {
            *self = Self { starts, ..Self::default() };
        }
    }

    fn note_released(&mut self, starts: u32, number: u64) {
        self.note_start(starts);
        if starts < self.starts || number < self.floor {
            return;
        }
        self.released.insert(number);
        if self.released.len() > RELEASED_MAX
            && let Some(least) = self.released.pop_first()
        {
            self.floor = least + 1;
        }
    }
}

impl State {
    fn conflicts<'a>(&self, uses: impl IntoIterator<Item = (KeyRef<'a>, Use)>) -> bool {
        let is_free = |(key, how): (KeyRef<'_>, Use)| {
            self.entries.iter().all(|entry| !entry.conflicts(key, how))
        };
        !uses.into_iter().all(is_free)
    }
}

impl RemoteExclusions {
    /// Whether no operation need wait for any entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entered.load(Ordering::Acquire) == 0
    }

    /// Whether nothing conflicts with what an operation is about; asked under the shards of all that it changes or keeps.
    pub(crate) fn are_free<'a, I>(&self, uses: impl FnOnce() -> I) -> bool
    where
        I: IntoIterator<Item = (KeyRef<'a>, Use)>,
    {
        self.is_empty() || !self.state.lock().conflicts(uses())
    }

    /// Completes when nothing conflicts with it, for a moment. Never called by an operation that holds something: what
    /// would release it may wait for that.
    pub(crate) async fn until_free<'a, I>(&self, uses: impl Fn() -> I)
    where
        I: IntoIterator<Item = (KeyRef<'a>, Use)>,
    {
        while_waiting(Wait::Operation, async {
            loop {
                let mut released = pin!(self.released.notified());
                // What is released between the look and the wait counts.
                released.as_mut().enable();
                if self.are_free(&uses) {
                    return;
                }
                released.await;
            }
        })
        .await;
    }

    /// Whether it is something that readers wait for.
    pub(crate) fn hides(&self, key: KeyRef<'_>) -> bool {
        self.applied.load(Ordering::Acquire) > 0 && self.state.lock().conflicts([(key, Use::Reads)])
    }

    /// Completes when a reader may see it. As [`Self::until_free`].
    pub(crate) async fn until_visible(&self, key: KeyRef<'_>) {
        if self.hides(key) {
            self.until_free(|| [(key, Use::Reads)]).await;
        }
    }

    /// What `read` reads as a client may see it: as it was before a part was applied here, or when all are.
    pub(crate) async fn shown<T>(&self, key: KeyRef<'_>, read: impl Fn() -> T) -> T {
        loop {
            self.until_visible(key).await;
            let shown = read();
            // What is applied is hidden first, so what was read is of before.
            if !self.hides(key) {
                return shown;
            }
        }
    }

    /// As [`Self::shown`], under a lock that a client is to get.
    pub(crate) async fn lock_shown<F>(
        &self,
        key: KeyRef<'_>,
        lock: impl Fn() -> F,
    ) -> Result<LockGuard, Errno>
    where
        F: Future<Output = Result<LockGuard, Errno>>,
    {
        loop {
            self.until_visible(key).await;
            let guard = lock().await?;
            if !self.hides(key) {
                return Ok(guard);
            }
        }
    }

    /// Whether the exclusion is there.
    pub(crate) fn has(&self, coordinator: Incarnation, number: u64) -> bool {
        self.state.lock().entries.iter().any(|entry| entry.is_of(coordinator, number))
    }

    /// Enters an exclusion. Called under the shards of its keys.
    pub(crate) fn enter(&self, entry: Entry) -> Result<(), NotEntered> {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = entry.coordinator;
        let numbers = state.numbers.entry(mdt).or_default();
        numbers.note_start(starts);
        if numbers.is_late(starts, entry.number) {
            return Err(NotEntered::Late);
        }
        let how = |alone: &bool| if *alone { Use::Changes } else { Use::Keeps };
        if state.conflicts(entry.keys.iter().map(|(key, alone)| (key.borrowed(), how(alone)))) {
            return Err(NotEntered::Busy);
        }
        state.entries.push(entry);
        self.entered.store(state.entries.len(), Ordering::Release);
        Ok(())
    }

    /// An exclusion as it was entered.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if it is not there.
    pub(crate) fn entry(&self, coordinator: Incarnation, number: u64) -> Result<Entry, Errno> {
        let state = self.state.lock();
        let entry = state.entries.iter().find(|entry| entry.is_of(coordinator, number));
        entry.cloned().ok_or(Errno::ESTALE)
    }

    /// An exclusion of this MDT's, of whatever start, that has all of these keys as a part needs them.
    pub(crate) fn covering(&self, coordinator: MdtIndex, keys: &[(Key, bool)]) -> Option<Entry> {
        let state = self.state.lock();
        let covers =
            |entry: &&Entry| entry.coordinator.mdt == coordinator && entry.covers_all(keys);
        state.entries.iter().find(covers).cloned()
    }

    /// Which MDTs have exclusions here.
    pub(crate) fn coordinators(&self) -> BTreeSet<MdtIndex> {
        let state = self.state.lock();
        state.entries.iter().map(|entry| entry.coordinator.mdt).collect()
    }

    /// The part is about to be applied: readers wait.
    pub(crate) fn note_applied(&self, coordinator: Incarnation, number: u64) {
        let mut state = self.state.lock();
        let entry = state.entries.iter_mut().find(|entry| entry.is_of(coordinator, number));
        entry.into_iter().for_each(|entry| entry.is_applied = true);
        self.count_applied(&state);
    }

    /// An exclusion ends, or is not going to be.
    pub(crate) fn release(&self, coordinator: Incarnation, number: u64) {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = coordinator;
        state.numbers.entry(mdt).or_default().note_released(starts, number);
        state.entries.retain(|entry| !entry.is_of(coordinator, number));
        self.note_removed(state);
    }

    /// All exclusions of earlier starts of a coordinator end.
    pub(crate) fn release_earlier(&self, coordinator: Incarnation) {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = coordinator;
        state.numbers.entry(mdt).or_default().note_start(starts);
        let is_earlier = |of: Incarnation| of.mdt == mdt && of.starts < starts;
        state.entries.retain(|entry| !is_earlier(entry.coordinator));
        self.note_removed(state);
    }

    fn note_removed(&self, state: parking_lot::MutexGuard<'_, State>) {
        self.count_applied(&state);
        self.entered.store(state.entries.len(), Ordering::Release);
        drop(state);
        self.released.notify_waiters();
    }

    fn count_applied(&self, state: &State) {
        let applied = state.entries.iter().filter(|entry| entry.is_applied).count();
        self.applied.store(applied, Ordering::Release);
    }
}
