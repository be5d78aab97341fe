//! File locks of processes: merged and cut per owner, never revoked, refused when waiting would
//! close a circle.

use std::ops::ControlFlow;

use sheen_types::{Errno, Extent, LockHandle, LockMode};

use super::flocks::Flocks;
use super::grant::ShardLocks;
use super::shard::{Lock, LockState, WantedLock};
use super::types::{Enqueue, Enqueued};
use super::waits::FlockOwner;
use crate::flock::{OwnLock, Plan, neighbourhood, plan};
use crate::{LockFlags, Policy};

impl ShardLocks<'_> {
    /// Answers `fcntl` locks, unlocks (mode NL) and tests, and `flock` on the whole file.
    pub(super) fn enqueue_flock(&mut self, resource: u32, request: &Enqueue) -> Enqueued {
        let wanted = WantedLock { policy: request.policy, mode: request.mode, spares: None };
        let who = FlockOwner::of(request.owner, &request.policy);
        let blocker = self.first_blocker(resource, &wanted, who);
        if request.flags.intersects(LockFlags::TEST_LOCK | LockFlags::INTENT_ONLY) {
            return Enqueued::Tested(blocker.map(|slot| self.shard.desc(slot)));
        }
        if let Some(blocker) = blocker {
            return self.wait_for(resource, request, who, blocker);
        }
        if request.mode == LockMode::Nl {
            self.cancel_waiting_equal(resource, who, &request.policy);
        }
        let Some(slot) = self.add_asked(resource, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        let answer = self.granted(slot);
        if self.merge_flock(slot) {
            self.reprocess(resource, false);
        }
        Enqueued::Granted(answer)
    }

    fn wait_for(
        &mut self,
        resource: u32,
        request: &Enqueue,
        who: FlockOwner,
        blocker: u32,
    ) -> Enqueued {
        if request.flags.contains(LockFlags::TRY) {
            return Enqueued::WouldBlock;
        }
        if request.flags.intersects(LockFlags::BLOCK_NOWAIT | LockFlags::SPECULATIVE) {
            return Enqueued::Denied(Errno::EAGAIN);
        }
        if self.shard.resource(resource).flocks.as_ref().is_some_and(|flocks| !flocks.may_wait(who))
        {
            return Enqueued::Denied(Errno::ENOLCK);
        }
        let Some(slot) = self.add_asked(resource, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        let handle = self.shard.handle(slot, self.handles);
        let blocker = self.owner_of(blocker);
        if !self.waits.wait(who, handle, blocker) {
            self.shard.free(slot);
            return Enqueued::Denied(Errno::EDEADLK);
        }
        self.shard.queue(slot);
        self.flocks(resource).set_blocker(who, slot, blocker);
        self.waiting(slot)
    }

    fn owner_of(&self, slot: u32) -> FlockOwner {
        let lock = self.shard.lock(slot);
        FlockOwner::of(lock.owner, &lock.policy)
    }

    fn flocks(&mut self, resource: u32) -> &mut Flocks {
        self.shard.resources[resource as usize].flocks.get_or_insert_default()
    }

    /// The first in the file of the conflicting granted locks of other owners, which is what
    /// `F_GETLK` returns.
    fn first_blocker(&self, resource: u32, wanted: &WantedLock, who: FlockOwner) -> Option<u32> {
        let mut first: Option<(u64, u32)> = None;
        let range = wanted.policy.range();
        let _ = self.shard.resource(resource).incompatible(wanted.mode, &mut |tree, _| {
            let _ = tree.visit(range, &mut |held, slot| {
                if self.owner_of(slot) == who {
                    return ControlFlow::Continue(());
                }
                if first.is_none_or(|(start, _)| held.start < start) {
                    first = Some((held.start, slot));
                }
                ControlFlow::Break(())
            });
            ControlFlow::Continue(())
        });
        first.map(|(_, slot)| slot)
    }

    /// An unlock also ends the waiting for exactly the same range (`F_CANCELLK`).
    fn cancel_waiting_equal(&mut self, resource: u32, who: FlockOwner, policy: &Policy) {
        let Some(flocks) = &self.shard.resource(resource).flocks else { return };
        let mut waiting = flocks.waiting_of(who);
        let equal = waiting.find(|&slot| self.shard.lock(slot).policy.range() == policy.range());
        drop(waiting);
        if let Some(slot) = equal {
            self.complete(slot, Some(LockFlags::AST_SENT));
            self.remove(slot);
        }
    }

    /// Grants a flock that is in no queue, among its owner's other flocks; the slot is free
    /// afterwards if it became part of another or was an unlock. Returns whether bytes became free
    /// for other owners.
    pub(super) fn merge_flock(&mut self, slot: u32) -> bool {
        let lock = self.shard.lock(slot);
        let (resource, mode, range) = (lock.resource, lock.requested, lock.policy.range());
        let who = FlockOwner::of(lock.owner, &lock.policy);
        let plan = plan(&self.own_flocks(resource, who, mode, range), mode, range);
        for (id, _) in &plan.resized {
            let other = self.shard.lock_mut(*id);
            other.is_mixed |= other.asked.overlaps(&range);
        }
        let is_free = mode == LockMode::Nl || plan.merged_into.is_some();
        let (freed, is_mixed) = (plan.freed, plan.freed && !is_free);
        self.apply(plan);
        if is_free {
            self.shard.free(slot);
        } else {
            self.shard.lock_mut(slot).is_mixed = is_mixed;
            self.shard.add_granted(slot);
        }
        self.shard.gauges.grants += u64::from(mode != LockMode::Nl);
        freed
    }

    /// Does to an owner's flocks what was planned for them.
    fn apply(&mut self, plan: Plan) {
        if let Some((id, rest)) = plan.split {
            self.split(id, rest);
        }
        for id in plan.gone {
            self.remove(id);
        }
        for (id, range) in plan.resized {
            self.resize(id, range);
        }
    }

    /// Cancels a granted flock by its handle, which a client does whose user gave up waiting for it in the moment in which it
    /// was granted: the bytes that were asked for then are unlocked. Nothing where those are not that request's alone: the
    /// owner may rely on them, and unlocks what it has when it is done. Returns whether anything was cancelled.
    pub(super) fn cancel_flock(&mut self, slot: u32) -> bool {
        let lock = self.shard.lock(slot);
        let (asked, mode, range) = (lock.asked, lock.mode, lock.policy.range());
        if lock.is_mixed {
            return false;
        }
        if asked == range {
            self.remove(slot);
            return true;
        }
        // Further locks of the owner, next to it, are part of it.
        self.apply(plan(&[OwnLock { id: slot, mode, range }], LockMode::Nl, asked));
        self.shard.lock_mut(slot).is_mixed = true;
        self.shard.gauges.cancels += 1;
        true
    }

    fn own_flocks(
        &self,
        resource: u32,
        who: FlockOwner,
        mode: LockMode,
        range: Extent,
    ) -> Vec<OwnLock> {
        let Some(flocks) = &self.shard.resource(resource).flocks else { return Vec::new() };
        let own = flocks.of_owner(who, neighbourhood(mode, range));
        // What is entered for an owner and is not its own lock would be another one's that is cut or removed here.
        let own = own.filter(|&(_, id)| self.is_held_flock(id, resource, who));
        own.map(|(range, id)| OwnLock { id, mode: self.shard.lock(id).mode, range }).collect()
    }

    /// Whether a slot is a granted flock of this owner on this resource.
    fn is_held_flock(&self, slot: u32, resource: u32, who: FlockOwner) -> bool {
        let lock = self.shard.lock(slot);
        let is_granted_here = lock.state == LockState::Granted && lock.resource == resource;
        is_granted_here && lock.flock_owner() == Some(who)
    }

    fn resize(&mut self, slot: u32, range: Extent) {
        self.shard.remove_granted(slot);
        if let Policy::Flock { start, end, .. } = &mut self.shard.lock_mut(slot).policy {
            (*start, *end) = (range.start, range.end);
        }
        self.shard.add_granted(slot);
    }

    /// A second lock like `slot`, over `range`: the owner knows it by no handle.
    fn split(&mut self, slot: u32, range: Extent) {
        let lock = self.shard.lock(slot);
        let mut policy = lock.policy;
        if let Policy::Flock { start, end, .. } = &mut policy {
            (*start, *end) = (range.start, range.end);
        }
        let wanted = WantedLock { policy, mode: lock.mode, spares: None };
        let none = LockHandle(0);
        let twin = Lock::asked(lock.resource, &wanted, lock.owner, none, LockFlags::NONE);
        // A full shard loses the piece, which errs towards admitting other owners to an unlocked
        // file.
        if let Some(twin) = self.shard.add(twin) {
            self.shard.add_granted(twin);
        }
    }

    /// Grants waiting flocks that can be; those that cannot may close a circle by now. Only those are looked at
    /// that waited for an owner which released something, unless it is to be `all`.
    pub(super) fn reprocess_flocks(&mut self, resource: u32, all: bool) {
        let mut all = all;
        loop {
            for slot in self.flocks(resource).take_changed(std::mem::take(&mut all)) {
                self.reprocess_flock(resource, slot);
            }
            if !self.flocks(resource).is_changed() {
                break;
            }
        }
        self.shard.drop_if_unused(resource);
    }

    /// Grants a waiting flock, or finds the owner that it waits for now.
    fn reprocess_flock(&mut self, resource: u32, slot: u32) {
        let lock = self.shard.lock(slot);
        if self.recovering && lock.flags.contains(LockFlags::REPLAY) {
            return;
        }
        let who = FlockOwner::of(lock.owner, &lock.policy);
        let blocker = self.first_blocker(resource, &lock.wanted(), who);
        let handle = self.shard.handle(slot, self.handles);
        let Some(blocker) = blocker.map(|slot| self.owner_of(slot)) else {
            self.waits.done(who, handle);
            self.shard.unqueue(slot);
            self.complete_flock(slot);
            self.merge_flock(slot);
            return;
        };
        if self.waits.wait(who, handle, blocker) {
            self.flocks(resource).set_blocker(who, slot, blocker);
        } else {
            self.complete(slot, Some(LockFlags::FLOCK_DEADLOCK));
            self.remove(slot);
        }
    }

    /// The completion of a flock that is about to be merged, so that its handle still lives.
    fn complete_flock(&mut self, slot: u32) {
        let before = self.actions.len();
        self.complete(slot, None);
        let mode = self.shard.lock(slot).requested;
        for action in &mut self.actions[before..] {
            if let super::types::Action::Completion { desc, .. }
            | super::types::Action::LocalGranted { desc, .. } = action
            {
                desc.granted = Some(mode);
            }
        }
    }
}
