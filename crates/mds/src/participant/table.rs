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
//! Cost for an operation while no change over several MDTs is under way: one load; else a look for each key that it is about,
//! whatever else is excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sheen_target::{Incarnation, LockGuard, Wait, while_waiting};
use sheen_types::{Errno, Fid, HashMap, InodeBits, MdtIndex, Name, Uuid};
use tokio::sync::Notify;

/// Numbers of a coordinator's exclusions of which it is known that they are released, one by one.
const RELEASED_MAX: usize = 4096;
/// How many such numbers are kept while an earlier exclusion waits, of which only that shows that it is not released: some MiB.
const RELEASED_MAX_BEHIND_WAITING: usize = 1 << 17;

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
pub(crate) enum Access {
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

/// Exclusions of all MDTs together: more wait until earlier ones are released.
const EXCLUSIONS_MAX: usize = 16_384;

/// By its coordinator and that one's start and number.
type EntryId = (MdtIndex, u32, u64);

/// Why there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// Another one conflicts.
    Busy,
    /// There is no room for it: [`DistributedExclusions::until_room`].
    Full,
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
    /// Those that wait to be entered, by how many requests.
    waiting: BTreeMap<u64, usize>,
}

/// Which entries are about one key.
#[derive(Default)]
struct Holders {
    alone: BTreeSet<EntryId>,
    shared: BTreeSet<EntryId>,
}

impl Holders {
    fn of(&mut self, alone: bool) -> &mut BTreeSet<EntryId> {
        if alone { &mut self.alone } else { &mut self.shared }
    }

    fn is_empty(&self) -> bool {
        self.alone.is_empty() && self.shared.is_empty()
    }
}

/// Which entries are about a FID.
#[derive(Default)]
struct OfFid {
    /// About the inode itself.
    inode: Holders,
    /// About each name, if it is a directory.
    names: HashMap<Box<[u8]>, Holders>,
    /// Of all of these keys those that readers wait for: held alone, of a part that is applied.
    hidden: usize,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<EntryId, Entry>,
    by_fid: HashMap<Fid, OfFid>,
    renames: Holders,
    /// By inode the exclusions that wait to have it alone: what would share it comes behind them. Else they would never have a
    /// directory in which names are made without a pause.
    awaited: HashMap<Fid, BTreeSet<EntryId>>,
    /// Entries whose parts are applied.
    applied: usize,
    numbers: BTreeMap<MdtIndex, Numbers>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct DistributedExclusions {
    /// Entries, and of these those that are applied: looked at without the lock.
    entered: AtomicUsize,
    applied: AtomicUsize,
    state: Mutex<State>,
    released: Notify,
}

/// An exclusion that waits to be entered.
pub(crate) struct WaitingNumber<'a> {
    table: &'a DistributedExclusions,
    coordinator: Incarnation,
    number: u64,
}

impl Drop for WaitingNumber<'_> {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        if state.await_no_more(id_of(self.coordinator, self.number)) {
            self.table.released.notify_waiters();
        }
        let Some(numbers) = state.numbers.get_mut(&self.coordinator.mdt) else { return };
        if numbers.starts != self.coordinator.starts {
            // Those of that start went with it.
            return;
        }
        if let Some(requests) = numbers.waiting.get_mut(&self.number) {
            *requests -= 1;
            if *requests == 0 {
                numbers.waiting.remove(&self.number);
            }
        }
    }
}

impl Key {
    fn is(&self, other: KeyRef<'_>) -> bool {
        match (self, other) {
            (Self::Name(directory, name), KeyRef::Name(of, other)) => {
                *directory == of && name.as_bytes() == other
            }
            (Self::Inode(fid), KeyRef::Inode(other)) => *fid == other,
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
    fn id(&self) -> EntryId {
        id_of(self.coordinator, self.number)
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
        while let Some(least) = self.released.first().copied() {
            let is_behind = self.waiting.range(..least).next().is_some();
            let most = if is_behind { RELEASED_MAX_BEHIND_WAITING } else { RELEASED_MAX };
            if self.released.len() <= most {
                return;
            }
            self.released.pop_first();
            self.floor = least + 1;
        }
    }
}

fn id_of(coordinator: Incarnation, number: u64) -> EntryId {
    (coordinator.mdt, coordinator.starts, number)
}

impl State {
    /// Whether an entry conflicts with one of the accesses, but for one that is the operation's own.
    fn conflicts<'a>(
        &self,
        accesses: impl IntoIterator<Item = (KeyRef<'a>, Access)>,
        own: Option<EntryId>,
    ) -> bool {
        accesses.into_iter().any(|(key, how)| self.conflicts_one(key, how, own))
    }

    fn conflicts_one(&self, key: KeyRef<'_>, how: Access, own: Option<EntryId>) -> bool {
        if let (KeyRef::Listing(directory), Access::Reads) = (key, how) {
            return self.by_fid.get(&directory).is_some_and(|of| of.hidden > 0);
        }
        let Some(holders) = self.holders(key) else { return false };
        let is_applied = |id: &EntryId| self.entries.get(id).is_some_and(|it| it.is_applied);
        let is_other = |id: &&EntryId| Some(**id) != own;
        let mut alone = holders.alone.iter().filter(is_other);
        match how {
            Access::Reads => alone.any(is_applied),
            Access::Keeps => alone.next().is_some(),
            Access::Changes => alone.chain(holders.shared.iter().filter(is_other)).next().is_some(),
        }
    }

    /// The entries about a name, an inode, or the way of all directories.
    fn holders(&self, key: KeyRef<'_>) -> Option<&Holders> {
        match key {
            KeyRef::Name(directory, name) => self.by_fid.get(&directory)?.names.get(name),
            KeyRef::Inode(fid) | KeyRef::Listing(fid) => Some(&self.by_fid.get(&fid)?.inode),
            KeyRef::Renames => Some(&self.renames),
        }
    }

    /// Whether an exclusion cannot be entered now: another one conflicts, or waits to have alone what this one would share.
    fn keeps_out(&self, keys: &[(Key, bool)], id: EntryId) -> bool {
        let is_awaited = |(key, alone): &(Key, bool)| match key {
            Key::Inode(fid) if !alone => {
                let waiting = self.awaited.get(fid);
                waiting.is_some_and(|waiting| waiting.iter().any(|other| *other != id))
            }
            _ => false,
        };
        let how = |alone: bool| if alone { Access::Changes } else { Access::Keeps };
        let accesses = keys.iter().map(|(key, alone)| (key.borrowed(), how(*alone)));
        keys.iter().any(is_awaited) || self.conflicts(accesses, None)
    }

    /// An exclusion waits for the inodes that it is to have alone and that are shared now.
    fn await_inodes(&mut self, keys: &[(Key, bool)], id: EntryId) {
        for (key, _) in keys.iter().filter(|(_, alone)| *alone) {
            let is_shared = self.holders(key.borrowed()).is_some_and(|it| !it.shared.is_empty());
            if let (Key::Inode(fid), true) = (key, is_shared) {
                self.awaited.entry(*fid).or_default().insert(id);
            }
        }
    }

    /// It does not wait any more; whether it did.
    fn await_no_more(&mut self, id: EntryId) -> bool {
        let mut has_waited = false;
        self.awaited.retain(|_, waiting| {
            has_waited |= waiting.remove(&id);
            !waiting.is_empty()
        });
        has_waited
    }

    fn insert(&mut self, entry: Entry) {
        let id = entry.id();
        for (key, alone) in &entry.keys {
            let holders = match key {
                Key::Name(directory, name) => {
                    let of = self.by_fid.entry(*directory).or_default();
                    of.names.entry(name.as_bytes().into()).or_default()
                }
                Key::Inode(fid) => &mut self.by_fid.entry(*fid).or_default().inode,
                Key::Renames => &mut self.renames,
            };
            holders.of(*alone).insert(id);
        }
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: EntryId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.applied -= usize::from(entry.is_applied);
        for (key, alone) in &entry.keys {
            let (Key::Name(fid, _) | Key::Inode(fid)) = key else {
                self.renames.of(*alone).remove(&id);
                continue;
            };
            let Some(of) = self.by_fid.get_mut(fid) else { continue };
            of.hidden -= usize::from(*alone && entry.is_applied);
            match key {
                Key::Name(_, name) => {
                    if let Some(holders) = of.names.get_mut(name.as_bytes()) {
                        holders.of(*alone).remove(&id);
                        if holders.is_empty() {
                            of.names.remove(name.as_bytes());
                        }
                    }
                }
                _ => _ = of.inode.of(*alone).remove(&id),
            }
            if of.inode.is_empty() && of.names.is_empty() {
                self.by_fid.remove(fid);
            }
        }
    }

    /// From now on readers wait for what the entry holds alone.
    fn hide(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.is_applied) else {
            return;
        };
        entry.is_applied = true;
        self.applied += 1;
        for (key, _) in entry.keys.iter().filter(|(_, alone)| *alone) {
            if let Key::Name(fid, _) | Key::Inode(fid) = key
                && let Some(of) = self.by_fid.get_mut(fid)
            {
                of.hidden += 1;
            }
        }
    }
}

impl DistributedExclusions {
    /// Whether no operation need wait for any entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entered.load(Ordering::Acquire) == 0
    }

    /// Whether nothing conflicts with what an operation is about; asked under the shards of all that it changes or keeps.
    pub(crate) fn are_free<'a, I>(&self, accesses: impl FnOnce() -> I) -> bool
    where
        I: IntoIterator<Item = (KeyRef<'a>, Access)>,
    {
        self.are_free_within(None, accesses)
    }

    /// As [`Self::are_free`], for an operation that has excluded some of it itself.
    pub(crate) fn are_free_within<'a, I>(
        &self,
        own: Option<(Incarnation, u64)>,
        accesses: impl FnOnce() -> I,
    ) -> bool
    where
        I: IntoIterator<Item = (KeyRef<'a>, Access)>,
    {
        let own = own.map(|(coordinator, number)| id_of(coordinator, number));
        self.is_empty() || !self.state.lock().conflicts(accesses(), own)
    }

    /// Completes when nothing conflicts with it, for a moment. Never called by an operation that holds something: what
    /// would release it may wait for that.
    pub(crate) async fn until_free<'a, I>(&self, accesses: impl Fn() -> I)
    where
        I: IntoIterator<Item = (KeyRef<'a>, Access)>,
    {
        self.until_free_or(|| false, accesses).await;
    }

    /// As [`Self::until_free`], for an operation that has excluded some of it itself.
    pub(crate) async fn until_free_within<'a, I>(
        &self,
        own: Option<(Incarnation, u64)>,
        accesses: impl Fn() -> I,
    ) where
        I: IntoIterator<Item = (KeyRef<'a>, Access)>,
    {
        self.until_free_or(|| self.are_free_within(own, &accesses), &accesses).await;
    }

    /// As [`Self::until_free`], and ends as well where `is_said` holds when an exclusion was entered or ended.
    pub(crate) async fn until_free_or<'a, I>(
        &self,
        is_said: impl Fn() -> bool,
        accesses: impl Fn() -> I,
    ) where
        I: IntoIterator<Item = (KeyRef<'a>, Access)>,
    {
        while_waiting(Wait::Operation, async {
            loop {
                let mut released = pin!(self.released.notified());
                // What is released between the look and the wait counts.
                released.as_mut().enable();
                if self.are_free(&accesses) || is_said() {
                    return;
                }
                released.await;
            }
        })
        .await;
    }

    /// An exclusion waits: what would share the inodes that it is to have alone waits behind it, until it is entered, or
    /// [`Self::step_aside`], or its [`WaitingNumber`] is dropped. No cycle comes of that: what waits on an MDT has excluded nothing there,
    /// nor on those behind it in the order.
    pub(crate) fn keep_back(&self, coordinator: Incarnation, number: u64, keys: &[(Key, bool)]) {
        self.state.lock().await_inodes(keys, id_of(coordinator, number));
    }

    /// What waits behind an exclusion that waits goes on: what that waits for may take long, as its coordinator is away.
    pub(crate) fn step_aside(&self, coordinator: Incarnation, number: u64) {
        if self.state.lock().await_no_more(id_of(coordinator, number)) {
            self.released.notify_waiters();
        }
    }

    /// Completes when an exclusion may be entered, for a moment, or is entered by the same request that came twice.
    pub(crate) async fn until_enterable(
        &self,
        coordinator: Incarnation,
        number: u64,
        keys: &[(Key, bool)],
    ) {
        let id = id_of(coordinator, number);
        while_waiting(Wait::Operation, async {
            loop {
                let mut released = pin!(self.released.notified());
                // What is released between the look and the wait counts.
                released.as_mut().enable();
                let is_over = {
                    let state = self.state.lock();
                    !state.keeps_out(keys, id) || state.entries.contains_key(&id)
                };
                if is_over {
                    return;
                }
                released.await;
            }
        })
        .await;
    }

    /// Whether it is something that readers wait for.
    pub(crate) fn hides(&self, key: KeyRef<'_>) -> bool {
        self.applied.load(Ordering::Acquire) > 0
            && self.state.lock().conflicts([(key, Access::Reads)], None)
    }

    /// Completes when a reader may see it. As [`Self::until_free`].
    pub(crate) async fn until_visible(&self, key: KeyRef<'_>) {
        if self.hides(key) {
            self.until_free(|| [(key, Access::Reads)]).await;
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
        self.state.lock().entries.contains_key(&id_of(coordinator, number))
    }

    /// Enters an exclusion. Called under the shards of its keys, unless its part is here already.
    pub(crate) fn enter(&self, entry: Entry) -> Result<(), NotEntered> {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = entry.coordinator;
        let numbers = state.numbers.entry(mdt).or_default();
        numbers.note_start(starts);
        if numbers.is_late(starts, entry.number) {
            return Err(NotEntered::Late);
        }
        if state.entries.len() >= EXCLUSIONS_MAX {
            return Err(NotEntered::Full);
        }
        let id = entry.id();
        if state.keeps_out(&entry.keys, id) {
            return Err(NotEntered::Busy);
        }
        state.await_no_more(id);
        state.insert(entry);
        self.entered.store(state.entries.len(), Ordering::Release);
        drop(state);
        // The same one may wait a second time.
        self.released.notify_waiters();
        Ok(())
    }

    /// An exclusion is going to wait until it can be entered: as long as the guard lives it is not taken for a released one,
    /// however many later ones are released.
    pub(crate) fn wait_with(&self, coordinator: Incarnation, number: u64) -> WaitingNumber<'_> {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = coordinator;
        let numbers = state.numbers.entry(mdt).or_default();
        numbers.note_start(starts);
        if numbers.starts == starts {
            *numbers.waiting.entry(number).or_default() += 1;
        }
        WaitingNumber { table: self, coordinator, number }
    }

    /// An exclusion as it was entered.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if it is not there.
    pub(crate) fn entry(&self, coordinator: Incarnation, number: u64) -> Result<Entry, Errno> {
        let state = self.state.lock();
        state.entries.get(&id_of(coordinator, number)).cloned().ok_or(Errno::ESTALE)
    }

    /// Completes when there is room for another one, for a moment.
    pub(crate) async fn until_room(&self) {
        while_waiting(Wait::Operation, async {
            loop {
                let mut released = pin!(self.released.notified());
                released.as_mut().enable();
                if self.entered.load(Ordering::Acquire) < EXCLUSIONS_MAX {
                    return;
                }
                released.await;
            }
        })
        .await;
    }

    /// An exclusion of this MDT's, of whatever start, that has all of these keys as a part needs them. None for a part that
    /// needs none.
    pub(crate) fn covering(&self, coordinator: MdtIndex, keys: &[(Key, bool)]) -> Option<Entry> {
        let state = self.state.lock();
        // What it needs alone one entry has at most.
        let (first, _) = keys.iter().max_by_key(|(_, alone)| *alone)?;
        let holders = state.holders(first.borrowed())?;
        let its =
            holders.alone.iter().chain(&holders.shared).filter(|(mdt, ..)| *mdt == coordinator);
        let mut entries = its.filter_map(|id| state.entries.get(id));
        entries.find(|entry| entry.covers_all(keys)).cloned()
    }

    /// Which MDTs have exclusions here.
    pub(crate) fn coordinators(&self) -> BTreeSet<MdtIndex> {
        let state = self.state.lock();
        state.entries.keys().map(|(mdt, ..)| *mdt).collect()
    }

    /// The part is about to be applied: readers wait.
    pub(crate) fn note_applied(&self, coordinator: Incarnation, number: u64) {
        let mut state = self.state.lock();
        state.hide(id_of(coordinator, number));
        self.count_applied(&state);
    }

    /// An exclusion ends, or is not going to be.
    pub(crate) fn release(&self, coordinator: Incarnation, number: u64) {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = coordinator;
        state.numbers.entry(mdt).or_default().note_released(starts, number);
        state.remove(id_of(coordinator, number));
        self.note_removed(state);
    }

    /// All exclusions of earlier starts of a coordinator end.
    pub(crate) fn release_earlier(&self, coordinator: Incarnation) {
        let mut state = self.state.lock();
        let Incarnation { mdt, starts } = coordinator;
        state.numbers.entry(mdt).or_default().note_start(starts);
        let earlier = state.entries.range((mdt, 0, 0)..(mdt, starts, 0));
        let earlier: Vec<EntryId> = earlier.map(|(id, _)| *id).collect();
        earlier.into_iter().for_each(|id| state.remove(id));
        self.note_removed(state);
    }

    fn note_removed(&self, state: parking_lot::MutexGuard<'_, State>) {
        self.count_applied(&state);
        self.entered.store(state.entries.len(), Ordering::Release);
        drop(state);
        self.released.notify_waiters();
    }

    fn count_applied(&self, state: &State) {
        self.applied.store(state.applied, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: Fid = Fid::new(0x2_0000_0401, 1);
    const M1: Incarnation = Incarnation { mdt: MdtIndex(1), starts: 3 };

    fn name(at: u64) -> Name {
        Name::new(format!("n{at}").as_bytes()).expect("a name")
    }

    fn entry(coordinator: Incarnation, number: u64) -> Entry {
        let keys = vec![
            (Key::Name(DIRECTORY, name(number)), true),
            (Key::Inode(DIRECTORY), false),
            (Key::Inode(Fid::new(0x2_0000_0402, number as u32)), true),
        ];
        let (revoked, client) = (Vec::new(), Uuid::default());
        Entry { coordinator, number, keys, revoked, client, is_applied: false }
    }

    /// F36.
    #[test]
    fn exclusions_are_found_by_their_keys_however_many_there_are_and_are_no_more_than_a_limit() {
        let table = DistributedExclusions::default();
        for number in 1..=EXCLUSIONS_MAX as u64 {
            assert_eq!(table.enter(entry(M1, number)), Ok(()));
        }
        assert_eq!(table.enter(entry(M1, 99_999)), Err(NotEntered::Full));
        let of = |at| KeyRef::Inode(Fid::new(0x2_0000_0402, at));
        let is_free = |key, how| table.are_free(|| [(key, how)]);
        let last = EXCLUSIONS_MAX as u32;
        assert!(!is_free(of(last), Access::Keeps) && is_free(of(last + 1), Access::Changes));
        assert!(is_free(KeyRef::Inode(DIRECTORY), Access::Keeps));
        assert!(!is_free(KeyRef::Inode(DIRECTORY), Access::Changes));
        // One look costs the same beside 16,384 exclusions as beside none: a linear one would be seen here.
        for _ in 0..200_000 {
            assert!(!is_free(of(last), Access::Changes));
        }
        assert!(!table.hides(KeyRef::Listing(DIRECTORY)));
        table.note_applied(M1, 7);
        table.note_applied(M1, 7);
        assert!(
            table.hides(KeyRef::Listing(DIRECTORY)) && table.hides(of(7)) && !table.hides(of(8))
        );
        table.release(M1, 7);
        assert!(!table.hides(KeyRef::Listing(DIRECTORY)));
        assert_eq!(table.enter(entry(M1, 99_999)), Ok(()));
        table.release_earlier(Incarnation { starts: 4, ..M1 });
        let state = table.state.lock();
        assert!(state.entries.is_empty() && state.by_fid.is_empty() && state.applied == 0);
        drop(state);
        assert!(table.is_empty());
    }

    #[test]
    fn what_shares_an_inode_comes_behind_what_waits_to_have_it_alone() {
        let table = DistributedExclusions::default();
        let alone =
            |number| Entry { keys: vec![(Key::Inode(DIRECTORY), true)], ..entry(M1, number) };
        table.enter(entry(M1, 1)).expect("it is free");
        let waiting = table.wait_with(M1, 2);
        assert_eq!(table.enter(alone(2)), Err(NotEntered::Busy));
        table.keep_back(M1, 2, &alone(2).keys);
        assert_eq!(table.enter(entry(M1, 3)), Err(NotEntered::Busy), "behind it");
        assert!(
            table.are_free(|| [(KeyRef::Inode(DIRECTORY), Access::Keeps)]),
            "what holds goes on"
        );
        table.release(M1, 1);
        assert_eq!(table.enter(entry(M1, 3)), Err(NotEntered::Busy), "behind it still");
        assert_eq!(table.enter(alone(2)), Ok(()));
        drop(waiting);
        table.release(M1, 2);
        assert_eq!(table.enter(entry(M1, 3)), Ok(()));
        // One that has waited for long, or waits no more, stops none.
        let waiting = table.wait_with(M1, 4);
        table.keep_back(M1, 4, &alone(4).keys);
        assert_eq!(table.enter(entry(M1, 5)), Err(NotEntered::Busy));
        table.step_aside(M1, 4);
        assert_eq!(table.enter(entry(M1, 5)), Ok(()));
        table.keep_back(M1, 4, &alone(4).keys);
        assert_eq!(table.enter(entry(M1, 6)), Err(NotEntered::Busy));
        drop(waiting);
        assert_eq!(table.enter(entry(M1, 6)), Ok(()));
        assert!(table.state.lock().awaited.is_empty());
    }

    #[test]
    fn an_exclusion_of_an_earlier_start_covers_a_part_and_none_covers_nothing() {
        let table = DistributedExclusions::default();
        table.enter(entry(M1, 5)).expect("it is free");
        let keys = [(Key::Inode(DIRECTORY), false), (Key::Name(DIRECTORY, name(5)), true)];
        let found =
            |mdt, keys: &[(Key, bool)]| table.covering(MdtIndex(mdt), keys).map(|it| it.number);
        assert_eq!((found(1, &keys), found(2, &keys)), (Some(5), None));
        assert_eq!(found(1, &[(Key::Inode(DIRECTORY), true)]), None, "it only stays");
        assert_eq!(found(1, &[(Key::Name(DIRECTORY, name(6)), true)]), None);
        assert_eq!(found(1, &[]), None);
        assert_eq!(table.coordinators(), BTreeSet::from([MdtIndex(1)]));
    }

    #[test]
    fn an_exclusion_that_waits_is_not_late_whatever_is_released_meanwhile() {
        let table = DistributedExclusions::default();
        let waiting = table.wait_with(M1, 5);
        (6..6 + 2 * RELEASED_MAX as u64).for_each(|number| table.release(M1, number));
        assert_eq!(
            table.enter(entry(M1, 6)),
            Err(NotEntered::Late),
            "a copy of one that was released"
        );
        assert_eq!(table.enter(entry(M1, 5)), Ok(()));
        drop(waiting);
        table.release(M1, 5);
        assert_eq!(table.enter(entry(M1, 5)), Err(NotEntered::Late));
        // Nothing waits any more: only so many are known one by one.
        (0..2 * RELEASED_MAX as u64).for_each(|number| table.release(M1, 20_000 + number));
        let state = table.state.lock();
        assert_eq!(state.numbers[&MdtIndex(1)].released.len(), RELEASED_MAX);
    }
}
