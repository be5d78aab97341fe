//! Which names a directory has, as far as that is known under its `UPDATE` lock, and which changes of this
//! client are under way to it.
//!
//! Names are kept as hashes, counted. What always holds: a name that is there is counted at least
//! once as long as the knowledge is whole, so a hash that is not there proves that the name is
//! absent. Hence a name is counted before the request that makes it is sent, and given up only when
//! its removal was answered; whatever is unsure stays counted and costs a question.
//!
//! The lock on a directory is held through this client's own changes, so what was read while one of them was
//! under way is uncertain: [`CacheEpoch`] detects that.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sheen_types::{HashMap, HashSet};
use sheen_wire::dir::HASH_END;

use super::limits::{NAMES_KNOWN_MAX, PATIENCE_MAX};
use super::own_changes::{OwnChanges, OwnChangesSeen};

/// Requests that the loss of a lock costs: the callback and the cancel.
const LOSS_COST: u32 = 2;

/// A name's hash under the mount's own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameHash(u64);

/// What all directories of a mount have in common.
pub(crate) struct NameHasher {
    key: u64,
    known: AtomicUsize,
}

impl NameHasher {
    /// Hashes that cannot be predicted without `key`.
    pub(crate) fn new(key: u64) -> Arc<Self> {
        Arc::new(Self { key, known: AtomicUsize::new(0) })
    }

    /// The hash of a name.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write_u64(self.key);
        hasher.write(name);
        NameHash(hasher.finish())
    }

    /// Room for one more name, unless the mount knows too many.
    fn take_room(&self) -> bool {
        let more = |known: usize| (known < NAMES_KNOWN_MAX).then_some(known + 1);
        self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// Hashes are hashed already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Counted hashes. A name costs some 15 bytes.
struct NameSet {
    hasher: Arc<NameHasher>,
    once: HashSet<u64, BuildHasherDefault<IdentityHasher>>,
    /// How often beyond once, for the few that were counted again.
    more: HashMap<u64, u32>,
}

impl NameSet {
    fn new(hasher: &Arc<NameHasher>) -> Self {
        Self { hasher: Arc::clone(hasher), once: HashSet::default(), more: HashMap::default() }
    }

    /// Counts a name; false if there is no room.
    fn add(&mut self, name: NameHash) -> bool {
        if self.once.contains(&name.0) {
            *self.more.entry(name.0).or_default() += 1;
            return true;
        }
        let room = self.hasher.take_room();
        if room {
            self.once.insert(name.0);
        }
        room
    }

    fn remove(&mut self, name: NameHash) {
        if let Some(count) = self.more.get_mut(&name.0) {
            *count -= 1;
            if *count == 0 {
                self.more.remove(&name.0);
            }
        } else if self.once.remove(&name.0) {
            self.hasher.known.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for NameSet {
    fn drop(&mut self) {
        self.hasher.known.fetch_sub(self.once.len(), Ordering::Relaxed);
    }
}

/// What the cache knew of an inode when a question was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheEpoch {
    /// How often locks on the inode had been lost.
    pub(super) losses: u32,
    /// Whether a lock covered the inode's `UPDATE`.
    pub(super) covered: bool,
    /// Our own changes of a directory's names.
    pub(super) names: OwnChangesSeen,
    /// Our own changes of attributes.
    pub(super) attributes: OwnChangesSeen,
}

impl CacheEpoch {
    /// For an inode that was not known when the question was sent.
    pub(crate) const UNKNOWN: Self = Self {
        losses: 0,
        covered: false,
        names: OwnChangesSeen::NONE,
        attributes: OwnChangesSeen::NONE,
    };
}

/// A change of ours that has begun.
#[derive(Debug)]
#[must_use]
pub(crate) struct NameChange {
    generation: u64,
    was_whole: bool,
    adds: Option<NameHash>,
    removes: Option<NameHash>,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeOutcome {
    /// The name to be made was surely not made.
    pub(crate) not_added: bool,
    /// The name to be removed surely is.
    pub(crate) removed: bool,
}

/// The right to record what a part of the directory that is about to be read contains.
#[derive(Debug)]
pub(crate) struct DirectoryRead {
    generation: u64,
}

/// What was read under one unbroken lock.
struct KnownNames {
    names: NameSet,
    /// Names of smaller directory hashes are counted; [`HASH_END`] when all are.
    next: u64,
}

/// What reading a directory costs and what knowing its names saves, in requests.
#[derive(Default)]
struct ReadCost {
    /// Lookups that found nothing, since the last reading they paid for.
    misses: u32,
    /// Spent on this knowledge.
    spent: u32,
    /// Saved by it.
    saved: u32,
    /// Readings that did not pay, so far: each doubles the price of the next.
    failures: u32,
}

/// The names of one directory.
#[derive(Default)]
pub(crate) struct DirectoryNames {
    /// Changes of ours.
    own: OwnChanges,
    /// What those under way make.
    adding: Vec<NameHash>,
    /// Changes with every beginning and end of `knowledge`.
    generation: u64,
    knowledge: Option<KnownNames>,
    effort: ReadCost,
}

impl DirectoryNames {
    /// Our own changes, now.
    pub(super) fn own(&self) -> &OwnChanges {
        &self.own
    }

    /// A change of ours is about to be sent.
    pub(super) fn begin(
        &mut self,
        adds: Option<NameHash>,
        removes: Option<NameHash>,
    ) -> NameChange {
        self.own.begin();
        if let Some(name) = adds {
            self.adding.push(name);
            self.count(name);
        }
        NameChange { generation: self.generation, was_whole: self.is_whole(), adds, removes }
    }

    /// A change of ours was answered.
    pub(crate) fn end(&mut self, change: &NameChange, done: ChangeOutcome) {
        self.own.end();
        if let Some(name) = change.adds
            && let Some(at) = self.adding.iter().position(|adding| *adding == name)
        {
            self.adding.swap_remove(at);
        }
        if change.generation != self.generation {
            return;
        }
        let Some(knowledge) = &mut self.knowledge else { return };
        if let Some(name) = change.adds.filter(|_| done.not_added) {
            knowledge.names.remove(name);
        }
        // What was removed while the directory was being read may never have been counted.
        if let Some(name) = change.removes.filter(|_| done.removed && change.was_whole) {
            knowledge.names.remove(name);
        }
    }

    /// A piece of the directory from the directory hash `from` on is about to be read, with the lock
    /// held. `None` if what it holds would not add to what is known.
    pub(super) fn begin_reading(
        &mut self,
        hasher: &Arc<NameHasher>,
        from: u64,
    ) -> Option<DirectoryRead> {
        match &self.knowledge {
            Some(knowledge) if from > knowledge.next || self.is_whole() => return None,
            Some(_) => {}
            None if from > 0 => return None,
            None => {
                self.generation += 1;
                self.knowledge = Some(KnownNames { names: NameSet::new(hasher), next: 0 });
                // Whether the reading sees these depends on the order at the server.
                for name in self.adding.clone() {
                    self.count(name);
                }
            }
        }
        Some(DirectoryRead { generation: self.generation })
    }

    /// The piece was read: names with their directory hashes, in order, up to the hash `end`.
    pub(crate) fn read<'a>(
        &mut self,
        hasher: &NameHasher,
        reading: &DirectoryRead,
        names: impl Iterator<Item = (u64, &'a [u8])>,
        end: u64,
    ) {
        let Some(next) = self.knowledge.as_ref().map(|knowledge| knowledge.next) else { return };
        if reading.generation != self.generation || end <= next {
            return;
        }
        for (_, name) in names.filter(|(hash, _)| *hash >= next) {
            self.count(hasher.hash(name));
        }
        if let Some(knowledge) = &mut self.knowledge {
            knowledge.next = end;
        }
    }

    /// Whether the name is known to be absent. Counts as a question saved if so.
    pub(super) fn is_absent(&mut self, name: NameHash) -> bool {
        let Some(knowledge) = &self.knowledge else { return false };
        let absent = knowledge.next == HASH_END && !knowledge.names.once.contains(&name.0);
        self.effort.saved = self.effort.saved.saturating_add(absent.into());
        absent
    }

    /// A lookup that had to be asked found nothing. Where reading is to go on, if reading is worth
    /// while now: as many requests as `cost` for as many lookups before, and twice as many for each
    /// time that it did not pay.
    pub(super) fn note_missed(&mut self, cost: u32) -> Option<u64> {
        let next = self.knowledge.as_ref().map_or(0, |knowledge| knowledge.next);
        if next == HASH_END {
            return None;
        }
        let effort = &mut self.effort;
        effort.misses = effort.misses.saturating_add(1);
        if effort.misses < cost << effort.failures {
            return None;
        }
        effort.misses = 0;
        effort.spent = effort.spent.saturating_add(cost);
        Some(next)
    }

    /// Whether the lock on this directory was revoked before it was of use, because other clients work in it.
    pub(super) fn is_contended(&self) -> bool {
        self.effort.failures > 0
    }

    /// Nothing covers the names any more.
    pub(super) fn lock_lost(&mut self) {
        self.forget();
        let effort = &mut self.effort;
        if effort.spent > 0 {
            effort.failures = match effort.saved < effort.spent + LOSS_COST {
                true => (effort.failures + 1).min(PATIENCE_MAX),
                false => effort.failures.saturating_sub(1),
            };
        }
        *effort = ReadCost { failures: effort.failures, ..ReadCost::default() };
    }

    fn is_whole(&self) -> bool {
        self.knowledge.as_ref().is_some_and(|knowledge| knowledge.next == HASH_END)
    }

    fn count(&mut self, name: NameHash) {
        let Some(knowledge) = &mut self.knowledge else { return };
        if !knowledge.names.add(name) {
            self.forget();
            self.effort.failures = PATIENCE_MAX;
        }
    }

    fn forget(&mut self) {
        self.knowledge = None;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        hasher: Arc<NameHasher>,
        names: DirectoryNames,
    }

    impl Fixture {
        fn new() -> Self {
            Self { hasher: NameHasher::new(7), names: DirectoryNames::default() }
        }

        fn hash(&self, name: &str) -> NameHash {
            self.hasher.hash(name.as_bytes())
        }

        fn absent(&mut self, name: &str) -> bool {
            let hash = self.hash(name);
            self.names.is_absent(hash)
        }

        fn begin(&mut self, adds: Option<&str>, removes: Option<&str>) -> NameChange {
            let [adds, removes] = [adds, removes].map(|name| name.map(|name| self.hash(name)));
            self.names.begin(adds, removes)
        }

        fn reading(&mut self, from: u64) -> Option<DirectoryRead> {
            self.names.begin_reading(&self.hasher, from)
        }

        fn read(&mut self, reading: &DirectoryRead, names: &[(u64, &str)], end: u64) {
            let names = names.iter().map(|(hash, name)| (*hash, name.as_bytes()));
            self.names.read(&self.hasher, reading, names, end);
        }

        fn read_all(&mut self, names: &[(u64, &str)]) {
            let reading = self.reading(0).unwrap();
            self.read(&reading, names, HASH_END);
        }
    }

    const REMOVED: ChangeOutcome = ChangeOutcome { not_added: false, removed: true };
    const NOT_ADDED: ChangeOutcome = ChangeOutcome { not_added: true, removed: false };

    #[test]
    fn what_was_not_read_is_absent_once_all_was_read() {
        let mut fixture = Fixture::new();
        let first = fixture.reading(0).unwrap();
        fixture.read(&first, &[(5, "a"), (6, "b")], 9);
        assert!(!fixture.absent("x"), "the rest is unknown");
        assert!(fixture.reading(10).is_none(), "that would leave a hole");
        let second = fixture.reading(9).unwrap();
        fixture.read(&second, &[(9, "c")], HASH_END);
        assert!(fixture.absent("x"));
        assert!(!["a", "b", "c"].iter().any(|name| fixture.absent(name)));
        fixture.names.lock_lost();
        assert!(!fixture.absent("x"));
    }

    #[test]
    fn own_changes_are_counted_before_they_are_sent_and_given_up_when_they_are_answered() {
        let mut fixture = Fixture::new();
        fixture.read_all(&[(5, "a")]);
        let make = fixture.begin(Some("x"), None);
        assert!(!fixture.absent("x"));
        fixture.names.end(&make, ChangeOutcome::default());
        assert!(!fixture.absent("x"));
        let remove = fixture.begin(None, Some("x"));
        assert!(!fixture.absent("x"));
        fixture.names.end(&remove, REMOVED);
        assert!(fixture.absent("x"));
        let refused = fixture.begin(Some("a"), None);
        fixture.names.end(&refused, NOT_ADDED);
        assert!(!fixture.absent("a"), "it was there before");
        let moved = fixture.begin(Some("b"), Some("a"));
        fixture.names.end(&moved, REMOVED);
        assert!(fixture.absent("a") && !fixture.absent("b"));
    }

    #[test]
    fn a_change_that_overlaps_the_reading_is_never_missed() {
        let mut fixture = Fixture::new();
        // Begun before, executed after the page was read.
        let before = fixture.begin(Some("x"), None);
        let reading = fixture.reading(0).unwrap();
        // Removed before the page was read, made again and removed once more while it is read.
        let gone = fixture.begin(None, Some("y"));
        let again = fixture.begin(Some("y"), None);
        fixture.read(&reading, &[(5, "a")], HASH_END);
        fixture.names.end(&again, ChangeOutcome::default());
        fixture.names.end(&gone, REMOVED);
        fixture.names.end(&before, ChangeOutcome::default());
        assert!(!fixture.absent("x") && !fixture.absent("y") && fixture.absent("z"));
    }

    #[test]
    fn a_reading_that_outlives_its_lock_counts_for_nothing() {
        let mut fixture = Fixture::new();
        let reading = fixture.reading(0).unwrap();
        fixture.names.lock_lost();
        fixture.read(&reading, &[], HASH_END);
        assert!(!fixture.absent("x"));
        let second = fixture.reading(0).unwrap();
        fixture.read(&reading, &[], HASH_END);
        assert!(!fixture.absent("x"));
        fixture.read(&second, &[], HASH_END);
        assert!(fixture.absent("x"));
    }

    #[test]
    fn a_change_given_up_keeps_its_name_counted_for_ever() {
        let mut fixture = Fixture::new();
        let _ = fixture.begin(Some("x"), None);
        fixture.names.lock_lost();
        fixture.read_all(&[]);
        assert!(!fixture.absent("x") && fixture.absent("y"));
        let seen = fixture.names.own().seen();
        assert!(!fixture.names.own().undisturbed_since(seen));
    }

    #[test]
    fn reading_is_paid_for_by_misses_and_dearer_where_it_did_not_pay() {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.names.note_missed(2), None);
        assert_eq!(fixture.names.note_missed(2), Some(0));
        fixture.read_all(&[]);
        fixture.names.lock_lost();
        assert!(fixture.names.is_contended());
        let misses = |names: &mut DirectoryNames| (1..99).find(|_| names.note_missed(2).is_some());
        assert_eq!(misses(&mut fixture.names), Some(4));
        fixture.read_all(&[]);
        fixture.names.lock_lost();
        assert_eq!(misses(&mut fixture.names), Some(8));
        fixture.read_all(&[]);
        for number in 0..4 {
            assert!(fixture.absent(&format!("n{number}")));
        }
        fixture.names.lock_lost();
        assert_eq!(misses(&mut fixture.names), Some(4), "it has paid this time");
    }

    #[test]
    fn a_mount_knows_only_so_many_names() {
        let mut fixture = Fixture::new();
        fixture.read_all(&[(5, "a"), (6, "b")]);
        assert_eq!(fixture.hasher.known.load(Ordering::Relaxed), 2);
        fixture.hasher.known.store(NAMES_KNOWN_MAX, Ordering::Relaxed);
        let change = fixture.begin(Some("c"), None);
        fixture.names.end(&change, ChangeOutcome::default());
        assert!(!fixture.absent("x"), "forgotten for lack of room");
        assert_eq!(fixture.hasher.known.load(Ordering::Relaxed), NAMES_KNOWN_MAX - 2);
    }
}
