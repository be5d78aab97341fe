//! The flocks of one resource by their owners, so that no owner's flocks are searched for among those of
//! other owners.
//!
//! What always holds: a granted flock is in `held`; one that waits is in `waiting` of its owner, and in
//! `blocked` under an owner that has conflicting granted locks, or under `None` if it was not looked at
//! yet.

use std::collections::{BTreeMap, BTreeSet};

use sheen_types::Extent;

use super::waits::FlockOwner;
use crate::Owner;
use crate::limits::{FLOCKS_WAITING_PER_CLIENT, FLOCKS_WAITING_PER_OWNER};

/// How a flock waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingFlock {
    /// Flocks are granted in this order.
    arrival: u64,
    blocker: Option<FlockOwner>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Flocks {
    /// By owner and first byte: those of one owner never overlap.
    held: BTreeMap<(FlockOwner, u64), (Extent, u32)>,
    waiting: BTreeMap<FlockOwner, BTreeMap<u32, WaitingFlock>>,
    blocked: BTreeMap<Option<FlockOwner>, BTreeSet<(u64, u32)>>,
    /// How many of a client's flocks wait.
    of_client: BTreeMap<Owner, usize>,
    /// Owners that have released something since waiting flocks were looked at.
    freed: BTreeSet<FlockOwner>,
    arrivals: u64,
}

impl Flocks {
    pub(super) fn add(&mut self, who: FlockOwner, range: Extent, slot: u32) {
        self.held.insert((who, range.start), (range, slot));
    }

    pub(super) fn remove(&mut self, who: FlockOwner, range: Extent, slot: u32) {
        if self.held.get(&(who, range.start)) == Some(&(range, slot)) {
            self.held.remove(&(who, range.start));
        }
        if self.blocked.contains_key(&Some(who)) {
            self.freed.insert(who);
        }
    }

    /// The granted flocks of an owner that share a byte with `range`, by rising start.
    pub(super) fn of_owner(
        &self,
        who: FlockOwner,
        range: Extent,
    ) -> impl Iterator<Item = (Extent, u32)> + '_ {
        let below = self.held.range((who, 0)..(who, range.start)).next_back();
        let below = below.filter(move |(_, (held, _))| held.overlaps(&range));
        let within = self.held.range((who, range.start)..=(who, range.end));
        below.into_iter().chain(within).map(|(_, found)| *found)
    }

    /// Whether an owner holds one flock with bytes on both sides of `range`. One that ends before it begins, which is
    /// refused later, cuts nothing.
    pub(super) fn would_split(&self, who: FlockOwner, range: Extent) -> bool {
        if range.start > range.end {
            return false;
        }
        let first = self.of_owner(who, range).next();
        first.is_some_and(|(held, _)| held.start < range.start && held.end > range.end)
    }

    /// Whether one more flock of an owner may wait.
    pub(super) fn may_wait(&self, who: FlockOwner) -> bool {
        self.waiting.get(&who).map_or(0, BTreeMap::len) < FLOCKS_WAITING_PER_OWNER
            && self.of_client.get(&who.owner).copied().unwrap_or(0) < FLOCKS_WAITING_PER_CLIENT
    }

    pub(super) fn queue(&mut self, who: FlockOwner, slot: u32) {
        self.arrivals += 1;
        let place = WaitingFlock { arrival: self.arrivals, blocker: None };
        self.waiting.entry(who).or_default().insert(slot, place);
        self.blocked.entry(None).or_default().insert((place.arrival, slot));
        *self.of_client.entry(who.owner).or_default() += 1;
    }

    pub(super) fn unqueue(&mut self, who: FlockOwner, slot: u32) {
        let Some(waiting) = self.waiting.get_mut(&who) else { return };
        let Some(place) = waiting.remove(&slot) else { return };
        if waiting.is_empty() {
            self.waiting.remove(&who);
        }
        self.unblock(place, slot);
        if let Some(count) = self.of_client.get_mut(&who.owner) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&who.owner);
            }
        }
    }

    fn unblock(&mut self, place: WaitingFlock, slot: u32) {
        if let Some(slots) = self.blocked.get_mut(&place.blocker) {
            slots.remove(&(place.arrival, slot));
            if slots.is_empty() {
                self.blocked.remove(&place.blocker);
            }
        }
    }

    /// Notes whose locks a waiting flock conflicts with.
    pub(super) fn set_blocker(&mut self, who: FlockOwner, slot: u32, blocker: FlockOwner) {
        let Some(place) = self.waiting.get_mut(&who).and_then(|slots| slots.get_mut(&slot)) else {
            return;
        };
        let old = *place;
        place.blocker = Some(blocker);
        self.unblock(old, slot);
        self.blocked.entry(Some(blocker)).or_default().insert((old.arrival, slot));
    }

    /// The flocks that an owner waits for, in no order.
    pub(super) fn waiting_of(&self, who: FlockOwner) -> impl Iterator<Item = u32> + '_ {
        self.waiting.get(&who).into_iter().flat_map(|slots| slots.keys().copied())
    }

    /// The waiting flocks that may be granted since the last call, in order of arrival; or all.
    pub(super) fn take_changed(&mut self, all: bool) -> Vec<u32> {
        let freed = std::mem::take(&mut self.freed);
        let mut slots: Vec<(u64, u32)> = match all {
            true => self.blocked.values().flatten().copied().collect(),
            false => {
                let freed = freed.into_iter().map(Some).chain([None]);
                freed.filter_map(|owner| self.blocked.get(&owner)).flatten().copied().collect()
            }
        };
        slots.sort_unstable();
        slots.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Whether an owner has released something that another one waits for.
    pub(super) fn is_changed(&self) -> bool {
        !self.freed.is_empty()
    }
}
