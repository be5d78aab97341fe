//! Which locks conflict: the compatibility rules of plain, extent and inodebits locks.

use std::ops::ControlFlow;

use sheen_types::{Extent, InodeBits, LockMode};

use super::shard::{Group, Lock, Resource, Shard, WantedLock, tree_of};
use super::types::{Spared, SparedLocks};
use crate::interval::IntervalTree;
use crate::{Owner, Policy};

impl Shard {
    /// Visits the granted locks that conflict with `wanted`.
    pub(super) fn granted_conflicts<F>(
        &self,
        resource: u32,
        wanted: &WantedLock,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(u32) -> ControlFlow<()>,
    {
        let resource = self.resource(resource);
        match wanted.policy {
            Policy::Plain | Policy::InodeBits { .. } => {
                for group in &resource.groups {
                    if group.blocks(wanted) {
                        let members = group.members.iter().copied();
                        members
                            .filter(|slot| !self.is_spared(*slot, wanted))
                            .try_for_each(&mut *visit)?;
                    }
                }
                ControlFlow::Continue(())
            }
            Policy::Extent { .. } => self.tree_conflicts(resource, wanted, visit),
            Policy::Flock { .. } => resource.incompatible(wanted.mode, &mut |tree, _| {
                tree.visit(wanted.policy.range(), &mut |_, slot| visit(slot))
            }),
        }
    }

    /// The granted plain or inodebits locks that conflict with `wanted` and whose groups are not yet
    /// `visited`; a group is noted as visited if none of its members is spared.
    pub(super) fn conflicts_by_group(
        &self,
        resource: u32,
        wanted: &WantedLock,
        visited: &mut [bool],
    ) -> Vec<u32> {
        let mut found = Vec::new();
        let groups = self.resource(resource).groups.iter().zip(visited);
        for (group, visited) in groups.filter(|(group, visited)| !**visited && group.blocks(wanted))
        {
            let before = found.len();
            let members = group.members.iter().copied();
            found.extend(members.filter(|slot| !self.is_spared(*slot, wanted)));
            *visited = found.len() - before == group.members.len();
        }
        found
    }

    /// Whether a lock, once granted, does not conflict because of whose it is. While it waits it
    /// keeps its turn: a stream of changes would never let its own client read.
    pub(super) fn is_spared(&self, slot: u32, wanted: &WantedLock) -> bool {
        let Some(Spared { export, locks }) = wanted.spares else { return false };
        let lock = self.lock(slot);
        let is_spared_mode = match lock.requested {
            LockMode::Pr => true,
            LockMode::Cr | LockMode::Cw | LockMode::Pw => locks == SparedLocks::ReadersAndWriters,
            _ => false,
        };
        is_spared_mode && lock.owner == Owner::Export(export)
    }

    fn tree_conflicts<F>(
        &self,
        resource: &Resource,
        wanted: &WantedLock,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(u32) -> ControlFlow<()>,
    {
        let Some(trees) = &resource.trees else { return ControlFlow::Continue(()) };
        for mode in LockMode::ALL {
            let tree = &trees[tree_of(mode)];
            let grouped = mode == LockMode::Group;
            if tree.is_empty() || (!grouped && mode.compatible(wanted.mode)) {
                continue;
            }
            if grouped && wanted.mode == LockMode::Nl {
                continue;
            }
            if grouped {
                // All granted group locks are of one group. They conflict with other locks on every
                // byte, whatever range they name (Lustre's clients name all of it).
                let first = tree.first(Extent::ALL).map(|(_, slot)| slot);
                let gid = first.map(|slot| self.lock(slot).policy.gid());
                if wanted.mode == LockMode::Group && gid == Some(wanted.policy.gid()) {
                    continue;
                }
            }
            let whole = grouped || wanted.mode == LockMode::Group;
            let range = if whole { Extent::ALL } else { wanted.policy.range() };
            tree.visit(range, &mut |_, slot| visit(slot))?;
        }
        ControlFlow::Continue(())
    }

    /// Whether it is a group lock and its group has one already: then it overtakes all that wait.
    pub(super) fn joins_group(&self, resource: u32, wanted: &WantedLock) -> bool {
        if wanted.mode != LockMode::Group {
            return false;
        }
        let resource = self.resource(resource);
        let gid = wanted.policy.gid();
        let held = resource.tree(LockMode::Group).and_then(|tree| tree.first(Extent::ALL));
        held.is_some_and(|(_, slot)| self.lock(slot).policy.gid() == gid)
            || resource.groups.iter().any(|group| {
                let same = group.mode == LockMode::Group && group.gid == gid;
                same && !group.members.is_empty()
            })
    }

    /// Visits the waiting locks, up to `before` if that is among them, that are to be granted
    /// before `wanted`.
    pub(super) fn waiting_conflicts<F>(
        &self,
        resource: u32,
        wanted: &WantedLock,
        before: u32,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(u32) -> ControlFlow<()>,
    {
        if self.joins_group(resource, wanted) {
            return ControlFlow::Continue(());
        }
        for &slot in &self.resource(resource).waiting {
            if slot == before {
                break;
            }
            let lock = self.lock(slot);
            if precedes(lock, wanted) {
                visit(slot)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The bits of `wanted.try_bits` that no lock holds or waits for in a conflicting mode.
    pub(super) fn free_try_bits(
        &self,
        resource: u32,
        wanted: &WantedLock,
        before: u32,
    ) -> InodeBits {
        let Policy::InodeBits { try_bits, .. } = wanted.policy else { return InodeBits(0) };
        let resource = self.resource(resource);
        let mut bits = try_bits;
        for group in &resource.groups {
            if bits.is_empty() {
                return bits;
            }
            if !group.members.is_empty() && !group.mode.compatible(wanted.mode) {
                bits = bits.without(group.bits);
            }
        }
        for &slot in resource.waiting.iter().take_while(|&&slot| slot != before) {
            let lock = self.lock(slot);
            let Policy::InodeBits { bits: theirs, try_bits, .. } = lock.policy else { continue };
            if !lock.requested.compatible(wanted.mode) {
                bits = bits.without(theirs | try_bits);
            }
        }
        bits
    }

    /// Bits that another lock needs are no longer tried for by those that wait.
    pub(super) fn strip_try_bits(&mut self, resource: u32, wanted: &WantedLock) {
        let needed = wanted.policy.inode_bits();
        let Self { resources, locks, .. } = self;
        for &slot in &resources[resource as usize].waiting {
            let lock = &mut locks[slot as usize];
            let incompatible = !lock.requested.compatible(wanted.mode);
            if let Policy::InodeBits { try_bits, .. } = &mut lock.policy
                && incompatible
            {
                *try_bits = try_bits.without(needed);
            }
        }
    }
}

/// Whether a waiting lock must be granted before `wanted` may be. A group lock overtakes all
/// that are not group locks, but the server's own: those wait for no group. Flocks overtake each other.
pub(super) fn precedes(lock: &Lock, wanted: &WantedLock) -> bool {
    let group = LockMode::Group;
    let is_ahead_of_groups = lock.owner == Owner::Local;
    let parts_meet = match (&lock.policy, &wanted.policy) {
        (Policy::Plain, Policy::Plain) => true,
        (Policy::Extent { .. }, Policy::Extent { .. }) => {
            lock.requested == group
                || (is_ahead_of_groups && wanted.mode == group)
                || lock.policy.range().overlaps(&wanted.policy.range())
        }
        (Policy::InodeBits { bits, .. }, Policy::InodeBits { bits: wanted, .. }) => {
            bits.intersects(*wanted)
        }
        _ => false,
    };
    let modes_clash = match (lock.requested == group, wanted.mode == group) {
        (true, true) => lock.policy.gid() != wanted.policy.gid(),
        (false, true) if !is_ahead_of_groups => false,
        _ => !lock.requested.compatible(wanted.mode),
    };
    parts_meet && modes_clash
}

impl Group {
    fn blocks(&self, wanted: &WantedLock) -> bool {
        let group = LockMode::Group;
        let other_group =
            self.mode == group && wanted.mode == group && self.gid != wanted.policy.gid();
        let plain = matches!(wanted.policy, Policy::Plain);
        (other_group || !self.mode.compatible(wanted.mode))
            && (plain || self.bits.intersects(wanted.policy.inode_bits()))
    }
}

impl Resource {
    /// Calls `visit` with each tree of a mode that clashes with `mode`, unless it is empty.
    pub(super) fn incompatible<F>(&self, mode: LockMode, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(&IntervalTree, LockMode) -> ControlFlow<()>,
    {
        let Some(trees) = &self.trees else { return ControlFlow::Continue(()) };
        for held in LockMode::ALL {
            let tree = &trees[tree_of(held)];
            if !tree.is_empty() && !held.compatible(mode) {
                visit(tree, held)?;
            }
        }
        ControlFlow::Continue(())
    }
}
