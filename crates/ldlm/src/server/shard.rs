//! One shard's data: a slab of locks, the resources they are on, and the lists that find them.
//!
//! Slots, resources and groups are reused, so that a lock that comes and goes allocates nothing.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sheen_types::{Extent, HashMap, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use super::demand::RecentDemand;
use super::flocks::Flocks;
use super::types::{Gauges, LockInfo, Spared};
use super::waits::FlockOwner;
use crate::handles::{LockHandles, LockLocation, SLOTS_MAX};
use crate::hash::SeededBuildHasher;
use crate::interval::IntervalTree;
use crate::{LockDesc, LockFlags, LockKind, Owner, Policy};

/// No slot, no resource.
pub(super) const NONE: u32 = u32::MAX;
/// Empty groups that a resource keeps for reuse.
const EMPTY_GROUPS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    Free,
    Waiting,
    Granted,
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) generation: u32,
    pub(super) state: LockState,
    pub(super) resource: u32,
    pub(super) policy: Policy,
    /// The bytes asked for, before expansion.
    pub(super) asked: Extent,
    pub(super) requested: LockMode,
    /// The mode held, once granted.
    pub(super) mode: LockMode,
    pub(super) owner: Owner,
    pub(super) remote_handle: LockHandle,
    pub(super) flags: LockFlags,
    /// See [`WantedLock::spares`].
    spares: Option<Spared>,
    /// Another lock waits for this one and its holder has been informed, or will be with the grant.
    pub(super) is_waited_for: bool,
    /// Its dirty data need not be written back.
    pub(super) discard: bool,
    pub(super) deadline: Option<Instant>,
    /// [`super::Namespace::late_holders`] has named its holder since the deadline runs.
    pub(super) is_late: bool,
    /// Neighbours in the list of the export's locks; `next` also chains free slots.
    previous: u32,
    next: u32,
    /// Neighbours among the locks that the export calls by the same handle: hardly ever any.
    older: u32,
    newer: u32,
    /// Where in its group it is.
    place: u32,
}

/// What a lock wants, before it has a slot or while it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedLock {
    pub(super) policy: Policy,
    pub(super) mode: LockMode,
    /// The client whose granted locks do not count.
    pub(super) spares: Option<Spared>,
}

/// The locks of one export.
#[derive(Clone, Copy, Debug)]
struct ExportLocks {
    /// The newest, which leads to the older ones.
    first: u32,
    count: u32,
    /// Those of them that are flocks.
    flocks: u32,
    /// Those of these that wait: each may cut another one in two when it is granted.
    waiting_flocks: u32,
}

impl Default for ExportLocks {
    fn default() -> Self {
        Self { first: NONE, count: 0, flocks: 0, waiting_flocks: 0 }
    }
}

/// Granted locks of the same mode, bits and group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) mode: LockMode,
    pub(super) bits: InodeBits,
    pub(super) gid: u64,
    pub(super) members: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) name: ResourceName,
    pub(super) kind: LockKind,
    /// Granted plain and inodebits locks.
    pub(super) groups: Vec<Group>,
    /// Granted extent locks and flocks, by mode.
    pub(super) trees: Option<Box<[IntervalTree; 7]>>,
    /// Flocks by owner, granted and waiting.
    pub(super) flocks: Option<Box<Flocks>>,
    /// In order of arrival, group locks first.
    pub(super) waiting: Vec<u32>,
    /// What revoked locks had been asked for.
    pub(super) demand: RecentDemand,
    /// When a request last conflicted with too many locks.
    pub(super) contended: Option<Instant>,
    /// Granted and waiting locks.
    pub(super) locks: u32,
}

pub(super) struct Shard {
    number: u32,
    pub(super) locks: Vec<Lock>,
    free: u32,
    pub(super) resources: Vec<Resource>,
    free_resources: Vec<u32>,
    pub(super) by_name: HashMap<ResourceName, u32, SeededBuildHasher>,
    /// The newest of each export's locks, and how many it has.
    exports: HashMap<u64, ExportLocks, SeededBuildHasher>,
    /// The newest lock that an export knows by a handle of its own.
    by_remote_handle: HashMap<(u64, LockHandle), u32, SeededBuildHasher>,
    pub(super) deadlines: BTreeSet<(Instant, u32)>,
    pub(super) gauges: Gauges,
}

/// The index of a mode's tree.
pub(super) const fn tree_of(mode: LockMode) -> usize {
    (mode as u32).trailing_zeros() as usize
}

/// The index of a kind in [`LockKind::ALL`].
pub(super) const fn index_of(kind: LockKind) -> usize {
    kind as usize - LockKind::Plain as usize
}

#[cfg(test)]
thread_local! {
    /// How many locks were looked at, for tests that count.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Shard {
    pub(super) fn new(number: u32, key: u64) -> Self {
        Self {
            number,
            locks: Vec::new(),
            free: NONE,
            resources: Vec::new(),
            free_resources: Vec::new(),
            by_name: HashMap::with_hasher(SeededBuildHasher(key)),
            exports: HashMap::with_hasher(SeededBuildHasher(key)),
            by_remote_handle: HashMap::with_hasher(SeededBuildHasher(key)),
            deadlines: BTreeSet::new(),
            gauges: Gauges::default(),
        }
    }

    pub(super) fn lock(&self, slot: u32) -> &Lock {
        #[cfg(test)]
        LOOKED_AT.with(|count| count.set(count.get() + 1));
        &self.locks[slot as usize]
    }

    pub(super) fn lock_mut(&mut self, slot: u32) -> &mut Lock {
        &mut self.locks[slot as usize]
    }

    pub(super) fn resource(&self, resource: u32) -> &Resource {
        &self.resources[resource as usize]
    }

    /// The slot of the lock that lies there, if it still lives.
    pub(super) fn find(&self, location: LockLocation) -> Option<u32> {
        let lock = self.locks.get(location.slot as usize)?;
        let lives = lock.state != LockState::Free && lock.generation == location.generation;
        lives.then_some(location.slot)
    }

    pub(super) fn handle(&self, slot: u32, handles: &LockHandles) -> LockHandle {
        let generation = self.lock(slot).generation;
        handles.handle(LockLocation { shard: self.number, slot, generation })
    }

    pub(super) fn desc(&self, slot: u32) -> LockDesc {
        let lock = self.lock(slot);
        LockDesc {
            resource: self.resource(lock.resource).name,
            policy: lock.policy,
            requested: lock.requested,
            granted: (lock.state == LockState::Granted).then_some(lock.mode),
        }
    }

    pub(super) fn info(&self, slot: u32, handles: &LockHandles) -> LockInfo {
        let lock = self.lock(slot);
        LockInfo {
            handle: self.handle(slot, handles),
            desc: self.desc(slot),
            owner: lock.owner,
            remote_handle: lock.remote_handle,
            is_waited_for: lock.is_waited_for,
            deadline: lock.deadline,
        }
    }

    /// The resource of that name, made if there is none; `None` if it is of another kind.
    pub(super) fn resource_for(&mut self, name: ResourceName, kind: LockKind) -> Option<u32> {
        if let Some(&found) = self.by_name.get(&name) {
            return (self.resource(found).kind == kind).then_some(found);
        }
        let index = match self.free_resources.pop() {
            Some(index) => {
                let resource = &mut self.resources[index as usize];
                (resource.name, resource.kind) = (name, kind);
                index
            }
            None => {
                self.resources.push(Resource {
                    name,
                    kind,
                    groups: Vec::new(),
                    trees: None,
                    flocks: None,
                    waiting: Vec::new(),
                    demand: RecentDemand::default(),
                    contended: None,
                    locks: 0,
                });
                self.resources.len() as u32 - 1
            }
        };
        self.by_name.insert(name, index);
        Some(index)
    }

    /// Forgets a resource on which no lock is left.
    pub(super) fn drop_if_unused(&mut self, index: u32) {
        let resource = &mut self.resources[index as usize];
        if resource.locks == 0 && self.by_name.get(&resource.name) == Some(&index) {
            self.by_name.remove(&resource.name);
            resource.demand.forget();
            resource.contended = None;
            resource.flocks = None;
            self.free_resources.push(index);
        }
    }

    /// A slot for a new lock, waiting but not yet in the queue; `None` when the shard is full.
    pub(super) fn add(&mut self, mut lock: Lock) -> Option<u32> {
        let (resource, owner) = (lock.resource, lock.owner);
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.locks.len()).ok().filter(|&slot| slot < SLOTS_MAX)?;
            self.locks.push(lock);
            slot
        } else {
            let slot = self.free;
            let old = &mut self.locks[slot as usize];
            self.free = old.next;
            lock.generation = old.generation;
            lock.next = NONE;
            *old = lock;
            slot
        };
        self.resources[resource as usize].locks += 1;
        self.link(slot, owner);
        Some(slot)
    }

    /// Frees the slot of a lock that is neither held nor queued.
    pub(super) fn free(&mut self, slot: u32) {
        self.clear_deadline(slot);
        self.unlink(slot);
        let free = self.free;
        let lock = self.lock_mut(slot);
        lock.state = LockState::Free;
        lock.generation = lock.generation.wrapping_add(1).max(1);
        lock.next = free;
        let resource = lock.resource;
        self.free = slot;
        self.resources[resource as usize].locks -= 1;
    }

    /// Enters a lock in its export's list, and under its handle there.
    pub(super) fn link(&mut self, slot: u32, owner: Owner) {
        let Owner::Export(export) = owner else { return };
        let is_flock = self.lock(slot).policy.kind() == LockKind::Flock;
        let of = self.exports.entry(export).or_default();
        let head = std::mem::replace(&mut of.first, slot);
        of.count += 1;
        of.flocks += u32::from(is_flock);
        let lock = self.lock_mut(slot);
        (lock.owner, lock.previous, lock.next) = (owner, NONE, head);
        let handle = lock.remote_handle;
        if head != NONE {
            self.lock_mut(head).previous = slot;
        }
        let older = self.by_remote_handle.insert((export, handle), slot).unwrap_or(NONE);
        let lock = self.lock_mut(slot);
        (lock.older, lock.newer) = (older, NONE);
        if older != NONE {
            self.lock_mut(older).newer = slot;
        }
    }

    /// Removes a lock from those that its export calls by the same handle.
    fn remove_remote_handle(&mut self, slot: u32, export: u64) {
        let lock = self.lock(slot);
        let (handle, older, newer) = (lock.remote_handle, lock.older, lock.newer);
        if older != NONE {
            self.lock_mut(older).newer = newer;
        }
        match (newer, older) {
            (NONE, NONE) => drop(self.by_remote_handle.remove(&(export, handle))),
            (NONE, older) => drop(self.by_remote_handle.insert((export, handle), older)),
            (newer, older) => self.lock_mut(newer).older = older,
        }
    }

    /// The newest of the locks that an export calls by this handle.
    pub(super) fn newest_by_remote_handle(
        &self,
        export: u64,
        remote_handle: LockHandle,
    ) -> Option<u32> {
        self.by_remote_handle.get(&(export, remote_handle)).copied()
    }

    fn unlink(&mut self, slot: u32) {
        let lock = self.lock(slot);
        let Owner::Export(export) = lock.owner else { return };
        let (previous, next) = (lock.previous, lock.next);
        let is_flock = lock.policy.kind() == LockKind::Flock;
        self.remove_remote_handle(slot, export);
        if next != NONE {
            self.lock_mut(next).previous = previous;
        }
        if previous != NONE {
            self.lock_mut(previous).next = next;
        }
        let Some(of) = self.exports.get_mut(&export) else { return };
        of.count -= 1;
        of.flocks -= u32::from(is_flock);
        if previous == NONE {
            of.first = next;
        }
        if of.count == 0 {
            self.exports.remove(&export);
        }
    }

    /// How many locks an export has, or will have when all that wait are granted.
    pub(super) fn count_of(&self, export: u64) -> usize {
        self.exports.get(&export).map_or(0, |of| of.count as usize + of.waiting_flocks as usize)
    }

    /// How many flocks an export has, granted or waiting.
    pub(super) fn flocks_of(&self, export: u64) -> usize {
        self.exports.get(&export).map_or(0, |of| of.flocks as usize + of.waiting_flocks as usize)
    }

    /// A flock of an owner begins to wait (1), or waits no longer (-1).
    fn count_waiting_flock(&mut self, owner: Owner, change: i32) {
        let Owner::Export(export) = owner else { return };
        if let Some(of) = self.exports.get_mut(&export) {
            of.waiting_flocks = of.waiting_flocks.saturating_add_signed(change);
        }
    }

    /// All locks of an export.
    pub(super) fn of_export(&self, export: u64) -> impl Iterator<Item = u32> + '_ {
        let mut slot = self.exports.get(&export).map_or(NONE, |of| of.first);
        std::iter::from_fn(move || {
            let current = (slot != NONE).then_some(slot)?;
            slot = self.lock(current).next;
            Some(current)
        })
    }

    pub(super) fn set_deadline(&mut self, slot: u32, deadline: Instant) {
        if let Some(earlier) = self.lock_mut(slot).deadline.replace(deadline) {
            self.deadlines.remove(&(earlier, slot));
        }
        self.deadlines.insert((deadline, slot));
    }

    pub(super) fn clear_deadline(&mut self, slot: u32) {
        let lock = self.lock_mut(slot);
        lock.is_late = false;
        if let Some(deadline) = lock.deadline.take() {
            self.deadlines.remove(&(deadline, slot));
        }
    }

    /// Enters a lock among the granted ones.
    pub(super) fn add_granted(&mut self, slot: u32) {
        let lock = &mut self.locks[slot as usize];
        lock.state = LockState::Granted;
        let resource = &mut self.resources[lock.resource as usize];
        self.gauges.granted[index_of(resource.kind)] += 1;
        match lock.policy {
            Policy::Extent { .. } | Policy::Flock { .. } => {
                let trees = resource.trees.get_or_insert_default();
                trees[tree_of(lock.mode)].insert(lock.policy.range(), slot);
                if let (Some(who), range) = (lock.flock_owner(), lock.policy.range()) {
                    resource.flocks.get_or_insert_default().add(who, range, slot);
                }
            }
            Policy::Plain | Policy::InodeBits { .. } => lock.place = resource.join(lock, slot),
        }
    }

    /// Takes a lock out of the granted ones.
    pub(super) fn remove_granted(&mut self, slot: u32) {
        let lock = &self.locks[slot as usize];
        let resource = &mut self.resources[lock.resource as usize];
        self.gauges.granted[index_of(resource.kind)] -= 1;
        match lock.policy {
            Policy::Extent { .. } | Policy::Flock { .. } => {
                let trees = resource.trees.get_or_insert_default();
                let found = trees[tree_of(lock.mode)].remove(lock.policy.range(), slot);
                debug_assert!(found, "a granted lock is in its mode's tree");
                if let (Some(who), range) = (lock.flock_owner(), lock.policy.range()) {
                    resource.flocks.get_or_insert_default().remove(who, range, slot);
                }
            }
            Policy::Plain | Policy::InodeBits { .. } => {
                let place = lock.place;
                if let Some(moved) = resource.leave(lock) {
                    self.locks[moved as usize].place = place;
                }
            }
        }
    }

    /// Puts a lock into the queue: group locks before all other locks but the server's own, those of a group together.
    pub(super) fn queue(&mut self, slot: u32) {
        let lock = &self.locks[slot as usize];
        let resource = &self.resources[lock.resource as usize];
        let at = if lock.requested == LockMode::Group {
            let gid = lock.policy.gid();
            let mate = resource.waiting.iter().rposition(|&other| {
                let other = &self.locks[other as usize];
                other.requested == LockMode::Group && other.policy.gid() == gid
            });
            let own = |&other: &u32| self.locks[other as usize].owner == Owner::Local;
            let after_own = resource.waiting.iter().rposition(own).map_or(0, |at| at + 1);
            let newer = resource.waiting[after_own..]
                .iter()
                .position(|&other| self.locks[other as usize].requested != LockMode::Group);
            let last = resource.waiting.len();
            mate.map(|at| at + 1).unwrap_or(newer.map_or(last, |at| after_own + at))
        } else {
            resource.waiting.len()
        };
        let (index, kind, who) = (lock.resource, resource.kind, lock.flock_owner());
        let resource = &mut self.resources[index as usize];
        resource.waiting.insert(at, slot);
        if let Some(who) = who {
            resource.flocks.get_or_insert_default().queue(who, slot);
            self.count_waiting_flock(who.owner, 1);
        }
        self.gauges.waiting[index_of(kind)] += 1;
    }

    /// Takes a lock out of the queue.
    pub(super) fn unqueue(&mut self, slot: u32) {
        let lock = self.lock(slot);
        let (resource, who) = (lock.resource, lock.flock_owner());
        let resource = &mut self.resources[resource as usize];
        if let (Some(who), Some(flocks)) = (who, &mut resource.flocks) {
            flocks.unqueue(who, slot);
        }
        if let Some(at) = resource.waiting.iter().position(|&other| other == slot) {
            resource.waiting.remove(at);
            self.gauges.waiting[index_of(resource.kind)] -= 1;
            if let Some(who) = who {
                self.count_waiting_flock(who.owner, -1);
            }
        }
    }

    /// Every granted lock of a resource.
    pub(super) fn granted(&self, resource: u32) -> Vec<u32> {
        let resource = self.resource(resource);
        let mut slots: Vec<u32> =
            resource.groups.iter().flat_map(|group| group.members.iter().copied()).collect();
        for tree in resource.trees.iter().flat_map(|trees| trees.iter()) {
            let _ = tree.visit(Extent::ALL, &mut |_, slot| {
                slots.push(slot);
                ControlFlow::Continue(())
            });
        }
        slots
    }
}

impl Group {
    fn is_of(&self, lock: &Lock) -> bool {
        (self.mode, self.bits, self.gid) == (lock.mode, lock.policy.inode_bits(), lock.policy.gid())
    }
}

impl Resource {
    /// Adds a lock to its group; where in it.
    fn join(&mut self, lock: &Lock, slot: u32) -> u32 {
        let found = self.groups.iter().position(|group| group.is_of(lock));
        let at = found.or_else(|| self.groups.iter().position(|group| group.members.is_empty()));
        let at = at.unwrap_or_else(|| {
            let (mode, bits, gid) = (lock.mode, InodeBits(0), 0);
            self.groups.push(Group { mode, bits, gid, members: Vec::new() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        (group.mode, group.bits, group.gid) =
            (lock.mode, lock.policy.inode_bits(), lock.policy.gid());
        group.members.push(slot);
        group.members.len() as u32 - 1
    }

    /// Removes a lock from its group; the lock that took its place there.
    fn leave(&mut self, lock: &Lock) -> Option<u32> {
        // Empty groups keep their old name, and a lock's group is never empty.
        let at = self
            .groups
            .iter()
            .position(|group| group.is_of(lock) && (lock.place as usize) < group.members.len())?;
        let group = &mut self.groups[at];
        group.members.swap_remove(lock.place as usize);
        let moved = group.members.get(lock.place as usize).copied();
        if group.members.is_empty() && self.groups.len() > EMPTY_GROUPS_MAX {
            self.groups.swap_remove(at);
        }
        moved
    }

    /// The granted locks of a mode, by range.
    pub(super) fn tree(&self, mode: LockMode) -> Option<&IntervalTree> {
        self.trees.as_ref().map(|trees| &trees[tree_of(mode)])
    }
}

impl Lock {
    /// A lock as it is asked for, to be given a slot by [`Shard::add`].
    pub(super) fn asked(
        resource: u32,
        wanted: &WantedLock,
        owner: Owner,
        remote_handle: LockHandle,
        flags: LockFlags,
    ) -> Self {
        Self {
            generation: 1,
            state: LockState::Waiting,
            resource,
            policy: wanted.policy,
            asked: wanted.policy.range(),
            requested: wanted.mode,
            mode: wanted.mode,
            owner,
            remote_handle,
            flags,
            spares: wanted.spares,
            is_waited_for: false,
            discard: false,
            deadline: None,
            is_late: false,
            previous: NONE,
            next: NONE,
            older: NONE,
            newer: NONE,
            place: 0,
        }
    }

    pub(super) fn flock_owner(&self) -> Option<FlockOwner> {
        let is_flock = matches!(self.policy, Policy::Flock { .. });
        is_flock.then(|| FlockOwner::of(self.owner, &self.policy))
    }

    pub(super) fn wanted(&self) -> WantedLock {
        WantedLock { policy: self.policy, mode: self.requested, spares: self.spares }
    }
}
