//! The client's locks and the lists that find them: by handle, by resource, by age.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sheen_types::{Extent, HashMap, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use super::flock_users::{FlockCounts, FlockUser};
use super::types::{LockInfo, MatchRequest, Matched};
use crate::handles::{LockHandles, LockLocation, SLOTS_MAX};
use crate::hash::SeededBuildHasher;
use crate::interval::IntervalTree;
use crate::{LockDesc, LockFlags, LockKind, Policy};

/// No slot, no resource.
pub(super) const NONE: u32 = u32::MAX;

/// Where in its life a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The slot has no lock.
    Free,
    /// Asked for, not answered.
    InFlight,
    /// On the server's waiting list.
    Waiting,
    /// Held.
    Held,
    /// The upper layer flushes and invalidates what these bits cover (or all of it, if none are named). `early`:
    /// the cancel goes with another request (early lock cancel).
    DroppingCovered { drop: InodeBits, early: bool },
    /// It covers nothing any more, and is to be named in another request.
    CoveredDropped,
    /// The server is informed that bits are free, which the policy no longer has.
    Converting,
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    generation: u32,
    pub(super) phase: Phase,
    pub(super) resource: u32,
    pub(super) policy: Policy,
    pub(super) requested: LockMode,
    pub(super) mode: LockMode,
    pub(super) flags: LockFlags,
    pub(super) remote_handle: LockHandle,
    pub(super) readers: u32,
    pub(super) writers: u32,
    /// To be cancelled when the last user is done; no longer found by new users.
    pub(super) is_revoked: bool,
    pub(super) discard: bool,
    /// The bits that blocking callbacks wanted, and whether one wanted the whole lock.
    pub(super) wanted_bits: InodeBits,
    pub(super) wanted_whole: bool,
    /// A completion callback that overtook the reply.
    pub(super) overtaking: Option<(LockDesc, LockFlags)>,
    /// Where in its resource's list it is.
    place: u32,
    /// Whether it is in a list of unused locks, and its neighbours there; `next` also chains
    /// free slots.
    unused: bool,
    /// Which of the lists is its own.
    pub(super) privileged: bool,
    /// The server has restarted and the lock was not replayed to it: the server need not be
    /// informed when the lock goes.
    pub(super) is_forgone: bool,
    /// How often it was used again, for that.
    pub(super) score: u8,
    /// Of a flock: for whom it was asked, and as how many it counts of that user's.
    user: u32,
    counted: u8,
    /// Its bytes are not its request's alone, as it changed other locks of its owner, or took them in.
    pub(super) is_mixed: bool,
    /// Whether it counts as one of the user's that may have to wait.
    waits: bool,
    /// When it was asked for, became unused, or was revoked.
    pub(super) since: Instant,
    previous: u32,
    next: u32,
}

#[derive(Clone, Debug)]
struct Resource {
    name: ResourceName,
    slots: Vec<u32>,
    /// Extent locks that are held and not leaving.
    extents: IntervalTree,
    /// Held flocks, by owner and first byte: those of one owner never overlap.
    flocks: BTreeMap<(u64, u64), u32>,
}

pub(super) struct Table {
    locks: Vec<Lock>,
    free: u32,
    resources: Vec<Resource>,
    free_resources: Vec<u32>,
    by_name: HashMap<ResourceName, u32, SeededBuildHasher>,
    handles: LockHandles,
    /// Unused locks, without and with privilege.
    unused: [Unused; 2],
    count: usize,
    /// A flock that is held counts once; one that is asked for as what it may come to, for it may cut another one in two
    /// when it is granted.
    pub(super) flock_counts: FlockCounts,
    /// Of each resource the flocks that may have to wait.
    flock_waits: HashMap<ResourceName, FlockCounts, SeededBuildHasher>,
    #[cfg(test)]
    pub(super) flocks_looked_at: std::cell::Cell<usize>,
}

/// A list of unused locks.
#[derive(Clone, Copy)]
struct Unused {
    oldest: u32,
    newest: u32,
    count: usize,
}

/// Whether a lock of mode `held` allows all that one of mode `needed` does.
pub(super) fn implies(held: LockMode, needed: LockMode) -> bool {
    let group = LockMode::Group;
    if held == group || needed == group {
        return held == needed;
    }
    LockMode::ALL.into_iter().all(|other| !held.compatible(other) || needed.compatible(other))
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            locks: Vec::new(),
            free: NONE,
            resources: Vec::new(),
            free_resources: Vec::new(),
            by_name: HashMap::with_hasher(SeededBuildHasher(seed)),
            handles: LockHandles::new(seed),
            unused: [Unused { oldest: NONE, newest: NONE, count: 0 }; 2],
            count: 0,
            flock_counts: FlockCounts::default(),
            flock_waits: HashMap::with_hasher(SeededBuildHasher(seed)),
            #[cfg(test)]
            flocks_looked_at: std::cell::Cell::default(),
        }
    }

    pub(super) fn lock(&self, slot: u32) -> &Lock {
        &self.locks[slot as usize]
    }

    pub(super) fn lock_mut(&mut self, slot: u32) -> &mut Lock {
        &mut self.locks[slot as usize]
    }

    pub(super) fn name(&self, slot: u32) -> ResourceName {
        self.resources[self.lock(slot).resource as usize].name
    }

    pub(super) fn resource_count(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn lock_count(&self) -> usize {
        self.count
    }

    pub(super) fn unused_count(&self) -> usize {
        self.unused.iter().map(|list| list.count).sum()
    }

    /// Unused locks with privilege.
    pub(super) fn privileged(&self) -> usize {
        self.unused[1].count
    }

    pub(super) fn slot(&self, handle: LockHandle) -> Option<u32> {
        let location = self.handles.location(handle);
        let lock = self.locks.get(location.slot as usize)?;
        let lives = location.shard == 0
            && lock.phase != Phase::Free
            && lock.generation == location.generation;
        lives.then_some(location.slot)
    }

    pub(super) fn handle(&self, slot: u32) -> LockHandle {
        let generation = self.lock(slot).generation;
        let (shard, slot) = (slot / SLOTS_MAX, slot % SLOTS_MAX);
        self.handles.handle(LockLocation { shard, slot, generation })
    }

    /// A new lock in flight.
    pub(super) fn add(
        &mut self,
        name: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> u32 {
        let mut lock = Lock {
            generation: 1,
            phase: Phase::InFlight,
            resource: NONE,
            policy,
            requested: mode,
            mode,
            flags,
            remote_handle: LockHandle(0),
            readers: 0,
            writers: 0,
            is_revoked: false,
            discard: false,
            wanted_bits: InodeBits(0),
            wanted_whole: false,
            overtaking: None,
            place: 0,
            unused: false,
            privileged: false,
            is_forgone: false,
            score: 0,
            user: 0,
            counted: 0,
            is_mixed: false,
            waits: false,
            since: Instant(0),
            previous: NONE,
            next: NONE,
        };
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.locks.len()).expect("2^32 locks fit no memory");
            self.locks.push(lock);
            slot
        } else {
            let slot = self.free;
            let old = &mut self.locks[slot as usize];
            self.free = old.next;
            lock.generation = old.generation;
            *old = lock;
            slot
        };
        self.count += 1;
        self.enter(slot, name);
        slot
    }

    /// Forgets a lock in whatever phase.
    pub(super) fn remove(&mut self, slot: u32) {
        self.remove_matchable(slot);
        self.count_flock(slot, 0);
        self.count_wait(slot, false);
        self.leave(slot);
        let free = self.free;
        let lock = self.lock_mut(slot);
        lock.phase = Phase::Free;
        lock.generation = lock.generation.wrapping_add(1).max(1);
        lock.next = free;
        self.free = slot;
        self.count -= 1;
    }

    /// An intent made the lock one of another resource.
    pub(super) fn rename(&mut self, slot: u32, name: ResourceName) {
        if self.name(slot) != name {
            let waits = self.lock(slot).waits;
            self.count_wait(slot, false);
            self.leave(slot);
            self.enter(slot, name);
            self.count_wait(slot, waits);
        }
    }

    fn enter(&mut self, slot: u32, name: ResourceName) {
        let index = match self.by_name.get(&name) {
            Some(&index) => index,
            None => {
                let index = self.free_resources.pop().unwrap_or_else(|| {
                    let (extents, flocks) = (IntervalTree::default(), BTreeMap::new());
                    self.resources.push(Resource { name, slots: Vec::new(), extents, flocks });
                    self.resources.len() as u32 - 1
                });
                self.resources[index as usize].name = name;
                self.by_name.insert(name, index);
                index
            }
        };
        let slots = &mut self.resources[index as usize].slots;
        slots.push(slot);
        let place = slots.len() as u32 - 1;
        let lock = self.lock_mut(slot);
        (lock.resource, lock.place) = (index, place);
    }

    fn leave(&mut self, slot: u32) {
        let (index, place) = (self.lock(slot).resource, self.lock(slot).place);
        let resource = &mut self.resources[index as usize];
        resource.slots.swap_remove(place as usize);
        if let Some(&moved) = resource.slots.get(place as usize) {
            self.locks[moved as usize].place = place;
        } else if resource.slots.is_empty() {
            self.by_name.remove(&resource.name);
            self.free_resources.push(index);
        }
    }

    /// Makes a lock one that [`Self::find`] finds, if it is of a kind that is looked for. A flock shares no byte with
    /// another one of its owner.
    pub(super) fn add_matchable(&mut self, slot: u32) {
        let lock = &mut self.locks[slot as usize];
        lock.phase = Phase::Held;
        let resource = &mut self.resources[lock.resource as usize];
        match lock.policy {
            Policy::Extent { extent, .. } => resource.extents.insert(extent, slot),
            Policy::Flock { owner, start, .. } => {
                resource.flocks.insert((owner, start), slot);
            }
            Policy::Plain | Policy::InodeBits { .. } => {}
        }
    }

    /// Has a lock no longer found, if it was, nor unused. Its phase stays: the caller sets the next.
    pub(super) fn remove_matchable(&mut self, slot: u32) {
        self.take_unused(slot);
        let lock = &self.locks[slot as usize];
        if lock.phase != Phase::Held {
            return;
        }
        let resource = &mut self.resources[lock.resource as usize];
        match lock.policy {
            Policy::Extent { extent, .. } => {
                resource.extents.remove(extent, slot);
            }
            Policy::Flock { owner, start, .. } => {
                if resource.flocks.get(&(owner, start)) == Some(&slot) {
                    resource.flocks.remove(&(owner, start));
                }
            }
            Policy::Plain | Policy::InodeBits { .. } => {}
        }
    }

    /// A held flock covers these bytes from now on, which no other one of its owner has.
    pub(super) fn resize_flock(&mut self, slot: u32, range: Extent) {
        self.remove_matchable(slot);
        if let Policy::Flock { start, end, .. } = &mut self.lock_mut(slot).policy {
            (*start, *end) = (range.start, range.end);
        }
        self.add_matchable(slot);
    }

    /// A flock that is asked for is this user's, counts as so many, and may have to wait.
    pub(super) fn count_for(&mut self, slot: u32, user: u32, count: u8, waits: bool) {
        self.count_flock(slot, 0);
        self.count_wait(slot, false);
        self.lock_mut(slot).user = user;
        self.count_flock(slot, count);
        self.count_wait(slot, waits);
    }

    fn count_wait(&mut self, slot: u32, waits: bool) {
        let name = self.name(slot);
        let lock = &mut self.locks[slot as usize];
        let before = std::mem::replace(&mut lock.waits, waits);
        if before == waits {
            return;
        }
        let counts = self.flock_waits.entry(name).or_default();
        counts.change(lock.user, before.into(), waits.into());
        if counts.is_empty() {
            self.flock_waits.remove(&name);
        }
    }

    /// Whether one more flock of a user may wait on a resource.
    pub(super) fn may_wait(&self, name: ResourceName, user: FlockUser) -> bool {
        self.flock_waits.get(&name).is_none_or(|counts| counts.may_wait(user))
    }

    fn count_flock(&mut self, slot: u32, count: u8) {
        let lock = &mut self.locks[slot as usize];
        let before = std::mem::replace(&mut lock.counted, count);
        if before != count {
            self.flock_counts.change(lock.user, before.into(), count.into());
        }
    }

    /// A flock that was counted when it was asked for is held: it is one, and waits no more.
    pub(super) fn count_held(&mut self, slot: u32) {
        self.count_flock(slot, self.lock(slot).counted.min(1));
        self.count_wait(slot, false);
    }

    /// A flock was cut in two: both are of the same user.
    pub(super) fn count_twin(&mut self, twin: u32, slot: u32) {
        let lock = self.lock(slot);
        self.count_for(twin, lock.user, lock.counted, false);
    }

    /// Whether an owner holds one flock with bytes on both sides of `range`.
    pub(super) fn cuts_flock(&self, name: ResourceName, owner: u64, range: Extent) -> bool {
        let first = self.flocks_of(name, owner, range).next();
        first
            .map(|slot| self.lock(slot).policy.range())
            .is_some_and(|held| held.start < range.start && held.end > range.end)
    }

    /// The held flocks of an owner that share a byte with `range`, by rising start. No other lock is looked at, but
    /// for one before them.
    pub(super) fn flocks_of(
        &self,
        name: ResourceName,
        owner: u64,
        range: Extent,
    ) -> impl Iterator<Item = u32> + '_ {
        let index = self.by_name.get(&name);
        let flocks = index.map(|&index| &self.resources[index as usize].flocks);
        let overlaps = move |slot: &u32| {
            #[cfg(test)]
            self.flocks_looked_at.set(self.flocks_looked_at.get() + 1);
            self.lock(*slot).policy.range().overlaps(&range)
        };
        let flocks = flocks.filter(|_| range.start <= range.end);
        flocks.into_iter().flat_map(move |flocks| {
            let below = flocks.range((owner, 0)..(owner, range.start)).next_back();
            let below = below.map(|(_, slot)| *slot).filter(overlaps);
            let within = flocks.range((owner, range.start)..=(owner, range.end));
            below.into_iter().chain(within.map(|(_, slot)| *slot).filter(overlaps))
        })
    }

    /// The owners of held flocks of a process, each once, by rising number. Looks at all held flocks of the resource.
    pub(super) fn flock_owners(&self, name: ResourceName, process: u32) -> Vec<u64> {
        let index = self.by_name.get(&name);
        let flocks = index.map(|&index| &self.resources[index as usize].flocks);
        let is_its = |slot: u32| matches!(self.lock(slot).policy, Policy::Flock { pid, .. } if pid == process);
        let its = flocks.into_iter().flatten().filter(|(_, slot)| is_its(**slot));
        let mut owners: Vec<u64> = its.map(|((owner, _), _)| *owner).collect();
        owners.dedup();
        owners
    }

    /// Enters a lock as the newest unused one of its list.
    pub(super) fn put_unused(&mut self, slot: u32, now: Instant) {
        self.take_unused(slot);
        self.lock_mut(slot).since = now;
        self.enter_unused(slot);
    }

    fn enter_unused(&mut self, slot: u32) {
        let lock = &mut self.locks[slot as usize];
        let list = &mut self.unused[usize::from(lock.privileged)];
        let newest = std::mem::replace(&mut list.newest, slot);
        list.count += 1;
        (lock.unused, lock.previous, lock.next) = (true, newest, NONE);
        match newest {
            NONE => list.oldest = slot,
            newest => self.lock_mut(newest).next = slot,
        }
    }

    pub(super) fn take_unused(&mut self, slot: u32) {
        let lock = &mut self.locks[slot as usize];
        if !std::mem::take(&mut lock.unused) {
            return;
        }
        let (previous, next, list) = (lock.previous, lock.next, usize::from(lock.privileged));
        match previous {
            NONE => self.unused[list].oldest = next,
            previous => self.lock_mut(previous).next = next,
        }
        match next {
            NONE => self.unused[list].newest = previous,
            next => self.lock_mut(next).previous = previous,
        }
        self.unused[list].count -= 1;
    }

    /// The privileged lock that has been unused longest loses its privilege, and needs to be used
    /// more often again. Returns whether there was one.
    pub(super) fn demote(&mut self) -> bool {
        let slot = self.unused[1].oldest;
        if slot == NONE {
            return false;
        }
        self.take_unused(slot);
        let lock = self.lock_mut(slot);
        (lock.privileged, lock.score) = (false, lock.score >> 2);
        self.enter_unused(slot);
        true
    }

    /// The lock that has been unused longest of those with privilege or of those without, and since
    /// when.
    pub(super) fn oldest_unused(&self, privileged: bool) -> Option<(u32, Instant)> {
        let oldest = self.unused[usize::from(privileged)].oldest;
        let slot = (oldest != NONE).then_some(oldest)?;
        Some((slot, self.lock(slot).since))
    }

    /// All unused locks.
    pub(super) fn all_unused(&self) -> Vec<u32> {
        let mut slots = self.all();
        slots.retain(|slot| self.lock(*slot).unused);
        slots
    }

    /// Whether the lock is unused, and since when.
    pub(super) fn unused_since(&self, slot: u32) -> Option<Instant> {
        let lock = self.lock(slot);
        lock.unused.then_some(lock.since)
    }

    /// A lock that covers what is wanted.
    pub(super) fn find(&self, want: &MatchRequest) -> Option<u32> {
        let resource = &self.resources[*self.by_name.get(&want.resource)? as usize];
        let Policy::Extent { extent, .. } = want.policy else {
            let covers =
                |slot: &u32| self.lock(*slot).phase == Phase::Held && self.covers(*slot, want);
            return resource.slots.iter().copied().find(covers);
        };
        let mut found = None;
        // A lock that covers it also covers its first byte.
        let first = Extent { start: extent.start, end: extent.start };
        let _ = resource.extents.visit(first, &mut |_, slot| {
            if self.covers(slot, want) {
                found = Some(slot);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        found
    }

    fn covers(&self, slot: u32, want: &MatchRequest) -> bool {
        let lock = self.lock(slot);
        !lock.is_revoked
            && implies(lock.mode, want.mode)
            && match (&lock.policy, &want.policy) {
                (Policy::Plain, Policy::Plain) => true,
                (Policy::Extent { extent, gid }, Policy::Extent { extent: wants, gid: group }) => {
                    extent.contains(wants) && (lock.mode != LockMode::Group || gid == group)
                }
                (
                    Policy::InodeBits { bits, gid, .. },
                    Policy::InodeBits { bits: wants, gid: group, .. },
                ) => bits.contains(*wants) && (lock.mode != LockMode::Group || gid == group),
                _ => false,
            }
    }

    pub(super) fn matched(&self, slot: u32) -> Matched {
        let lock = self.lock(slot);
        Matched { handle: self.handle(slot), mode: lock.mode, policy: lock.policy }
    }

    pub(super) fn desc(&self, slot: u32) -> LockDesc {
        let lock = self.lock(slot);
        let held = !matches!(lock.phase, Phase::InFlight | Phase::Waiting);
        LockDesc {
            resource: self.name(slot),
            policy: lock.policy,
            requested: lock.requested,
            granted: held.then_some(lock.mode),
        }
    }

    pub(super) fn info(&self, slot: u32) -> LockInfo {
        let lock = self.lock(slot);
        LockInfo {
            handle: self.handle(slot),
            remote_handle: lock.remote_handle,
            desc: self.desc(slot),
            readers: lock.readers,
            writers: lock.writers,
            is_revoked: lock.is_revoked,
        }
    }

    /// All locks of a resource.
    pub(super) fn of_resource(&self, name: ResourceName) -> &[u32] {
        let index = self.by_name.get(&name);
        index.map_or(&[], |&index| &self.resources[index as usize].slots)
    }

    /// Every lock there is.
    pub(super) fn all(&self) -> Vec<u32> {
        let live = |slot: &u32| self.lock(*slot).phase != Phase::Free;
        (0..self.locks.len() as u32).filter(live).collect()
    }
}

impl Lock {
    pub(super) fn is_used(&self) -> bool {
        self.readers > 0 || self.writers > 0
    }

    /// The count of users of a mode's kind.
    pub(super) fn users(&mut self, mode: LockMode) -> &mut u32 {
        match mode {
            LockMode::Nl | LockMode::Cr | LockMode::Pr => &mut self.readers,
            LockMode::Ex | LockMode::Pw | LockMode::Cw | LockMode::Group => &mut self.writers,
        }
    }

    pub(super) fn is_flock(&self) -> bool {
        self.policy.kind() == LockKind::Flock
    }
}
