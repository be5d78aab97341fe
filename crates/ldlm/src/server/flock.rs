//! File locks of processes: merged and cut per owner, never called back, refused when waiting
//! would close a circle.

use std::ops::ControlFlow;

use sheen_types::{Errno, Extent, LockHandle, LockMode};

use super::shard::{Lock, Wanted};
use super::turn::Turn;
use super::types::{Enqueue, Enqueued};
use super::waits::FlockOwner;
use crate::flock::{Own, neighbourhood, plan};
use crate::{LockFlags, Policy};

impl Turn<'_> {
    /// Answers `fcntl` locks, unlocks (mode NL) and tests, and `flock` on the whole file.
    pub(super) fn enqueue_flock(&mut self, resource: u32, request: &Enqueue) -> Enqueued {
        let wanted = Wanted { policy: request.policy, mode: request.mode, spares: None };
        let who = FlockOwner::of(request.owner, &request.policy);
        let blockers = self.blockers(resource, &wanted, who);
        if request.flags.intersects(LockFlags::TEST_LOCK | LockFlags::INTENT_ONLY) {
            // Of several the first in the file, which is what `F_GETLK` tells.
            let found = blockers.iter().map(|slot| self.shard.desc(*slot));
            return Enqueued::Tested(found.min_by_key(|desc| desc.policy.range().start));
        }
        if !blockers.is_empty() {
            return self.wait_for(resource, request, who, &blockers);
        }
        if request.mode == LockMode::Nl {
            self.cancel_waiting_equal(resource, who, &request.policy);
        }
        let Some(slot) = self.add_asked(resource, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        let answer = self.granted(slot);
        if self.settle_flock(slot) {
            self.reprocess(resource, false);
        }
        Enqueued::Granted(answer)
    }

    fn wait_for(
        &mut self,
        resource: u32,
        request: &Enqueue,
        who: FlockOwner,
        blockers: &[u32],
    ) -> Enqueued {
        if request.flags.contains(LockFlags::TRY) {
            return Enqueued::WouldBlock;
        }
        if request.flags.intersects(LockFlags::BLOCK_NOWAIT | LockFlags::SPECULATIVE) {
            return Enqueued::Denied(Errno::EAGAIN);
        }
        let Some(slot) = self.add_asked(resource, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        let handle = self.shard.cookie(slot, self.cookies);
        if !self.waits.wait(who, handle, self.owners(blockers)) {
            self.shard.free(slot);
            return Enqueued::Denied(Errno::EDEADLK);
        }
        self.shard.queue(slot);
        self.waiting(slot)
    }

    fn owners(&self, slots: &[u32]) -> Vec<FlockOwner> {
        let mut owners: Vec<FlockOwner> = Vec::new();
        for &slot in slots {
            let lock = self.shard.lock(slot);
            let owner = FlockOwner::of(lock.owner, &lock.policy);
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        owners
    }

    /// Others' granted locks in the way.
    fn blockers(&self, resource: u32, wanted: &Wanted, who: FlockOwner) -> Vec<u32> {
        let mut found = Vec::new();
        let _ = self.shard.granted_conflicts(resource, wanted, &mut |slot| {
            let lock = self.shard.lock(slot);
            if FlockOwner::of(lock.owner, &lock.policy) != who {
                found.push(slot);
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// An unlock also ends the waiting for exactly the same range (`F_CANCELLK`).
    fn cancel_waiting_equal(&mut self, resource: u32, who: FlockOwner, policy: &Policy) {
        let equal = self.shard.resource(resource).waiting.iter().copied().find(|&slot| {
            let lock = self.shard.lock(slot);
            FlockOwner::of(lock.owner, &lock.policy) == who && lock.policy.range() == policy.range()
        });
        if let Some(slot) = equal {
            self.complete(slot, Some(LockFlags::AST_SENT));
            self.remove(slot);
        }
    }

    /// Grants a flock that is in no queue, among its owner's others; the slot is free afterwards
    /// if it became part of another or was an unlock. Whether bytes became free for others.
    pub(super) fn settle_flock(&mut self, slot: u32) -> bool {
        let lock = self.shard.lock(slot);
        let (resource, mode, range) = (lock.resource, lock.requested, lock.policy.range());
        let who = FlockOwner::of(lock.owner, &lock.policy);
        let plan = plan(&self.own_flocks(resource, who, mode, range), mode, range);
        if let Some((id, rest)) = plan.split {
            self.split(id, rest);
        }
        for id in plan.gone {
            self.remove(id);
        }
        for (id, range) in plan.resized {
            self.resize(id, range);
        }
        if mode == LockMode::Nl || plan.merged_into.is_some() {
            self.shard.free(slot);
        } else {
            self.shard.hold(slot);
        }
        self.shard.gauges.grants += u64::from(mode != LockMode::Nl);
        plan.freed
    }

    fn own_flocks(
        &self,
        resource: u32,
        who: FlockOwner,
        mode: LockMode,
        range: Extent,
    ) -> Vec<Own> {
        let mut own = Vec::new();
        for mode_held in LockMode::ALL {
            let Some(tree) = self.shard.resource(resource).tree(mode_held) else { break };
            let _ = tree.visit(neighbourhood(mode, range), &mut |range, id| {
                let lock = self.shard.lock(id);
                if FlockOwner::of(lock.owner, &lock.policy) == who {
                    own.push(Own { id, mode: mode_held, range });
                }
                ControlFlow::Continue(())
            });
        }
        own
    }

    fn resize(&mut self, slot: u32, range: Extent) {
        self.shard.unhold(slot);
        if let Policy::Flock { start, end, .. } = &mut self.shard.lock_mut(slot).policy {
            (*start, *end) = (range.start, range.end);
        }
        self.shard.hold(slot);
    }

    /// A second lock like `slot`, over `range`: the owner knows it by no cookie.
    fn split(&mut self, slot: u32, range: Extent) {
        let lock = self.shard.lock(slot);
        let mut policy = lock.policy;
        if let Policy::Flock { start, end, .. } = &mut policy {
            (*start, *end) = (range.start, range.end);
        }
        let wanted = Wanted { policy, mode: lock.mode, spares: None };
        let none = LockHandle(0);
        let twin = Lock::asked(lock.resource, &wanted, lock.owner, none, LockFlags::NONE);
        // A full shard loses the piece, which errs towards letting others in on an unlocked file.
        if let Some(twin) = self.shard.add(twin) {
            self.shard.hold(twin);
        }
    }

    /// Grants waiting flocks that can be; those that cannot may close a circle by now.
    pub(super) fn reprocess_flocks(&mut self, resource: u32) {
        let mut again = true;
        while std::mem::take(&mut again) {
            let mut at = 0;
            while let Some(&slot) = self.shard.resource(resource).waiting.get(at) {
                let lock = self.shard.lock(slot);
                if self.recovering && lock.flags.contains(LockFlags::REPLAY) {
                    at += 1;
                    continue;
                }
                let who = FlockOwner::of(lock.owner, &lock.policy);
                let blockers = self.blockers(resource, &lock.wanted(), who);
                let handle = self.shard.cookie(slot, self.cookies);
                if blockers.is_empty() {
                    self.waits.done(who, handle);
                    self.shard.unqueue(slot);
                    self.complete_flock(slot);
                    again |= self.settle_flock(slot);
                } else if self.waits.wait(who, handle, self.owners(&blockers)) {
                    at += 1;
                } else {
                    self.complete(slot, Some(LockFlags::FLOCK_DEADLOCK));
                    self.remove(slot);
                }
            }
        }
        self.shard.drop_if_unused(resource);
    }

    /// The completion of a flock that is about to be settled, so that its cookie still lives.
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
