//! The core of the lock manager, in one shard: locks are granted, wait, are revoked and cancelled.

use std::ops::ControlFlow;
use std::time::Duration;

use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode};

use super::contention::ContentionLimits;
use super::earlier::EarlierWaiting;
use super::expand;
use super::ranges::RangeSet;
use super::shard::{Lock, LockState, NONE, Shard, WantedLock};
use super::types::{Action, Enqueue, Enqueued, Granted};
use super::waits::{FlockOwner, WaitGraph};
use crate::handles::LockHandles;
use crate::limits::LOCKS_WAITING_PER_CLIENT;
use crate::{LockDesc, LockFlags, LockKind, Owner, Policy};

/// The locks of a shard, with everything that a call brings along to change them.
pub(super) struct ShardLocks<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) now: Instant,
    pub(super) timeout: Duration,
    pub(super) recovering: bool,
    pub(super) handles: &'a LockHandles,
    pub(super) waits: &'a WaitGraph,
    pub(super) contention: &'a ContentionLimits,
    pub(super) actions: &'a mut Vec<Action>,
}

/// What keeps a request from being granted at once.
#[derive(Default)]
struct Conflicts {
    granted: Vec<u32>,
    waiting: Vec<u32>,
}

impl Conflicts {
    fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    fn first(&self) -> Option<u32> {
        self.granted.first().or(self.waiting.first()).copied()
    }

    fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.granted.iter().chain(&self.waiting).copied()
    }
}

fn wanted_by(request: &Enqueue) -> WantedLock {
    WantedLock { policy: request.policy, mode: request.mode, spares: request.spares }
}

impl ShardLocks<'_> {
    /// Answers a request on a resource of its kind.
    pub(super) fn enqueue(&mut self, resource: u32, request: &Enqueue) -> Enqueued {
        if request.flags.contains(LockFlags::REPLAY)
            && request.flags.intersects(LockFlags::BLOCK_GRANTED | LockFlags::BLOCK_WAIT)
        {
            return self.replay(resource, request);
        }
        if request.policy.kind() == LockKind::Flock {
            return self.enqueue_flock(resource, request);
        }
        let mut wanted = wanted_by(request);
        if let Policy::InodeBits { bits, .. } = wanted.policy {
            let free = self.shard.free_try_bits(resource, &wanted, NONE);
            if bits.is_empty() && free.is_empty() {
                return Enqueued::WouldBlock;
            }
            if let Policy::InodeBits { try_bits, .. } = &mut wanted.policy {
                *try_bits = free;
            }
        }
        let conflicts = self.conflicts(resource, &wanted);
        if request.flags.intersects(LockFlags::TEST_LOCK | LockFlags::INTENT_ONLY) {
            return Enqueued::Tested(conflicts.first().map(|slot| self.shard.desc(slot)));
        }
        if let Some(refusal) = self.refusal(request, &conflicts) {
            return refusal;
        }
        if !conflicts.is_empty() && self.has_too_many_waiting(resource, request.owner) {
            return Enqueued::Denied(Errno::EAGAIN);
        }
        if !conflicts.is_empty()
            && self.is_denied_for_contention(resource, request, conflicts.all())
        {
            return Enqueued::Denied(Errno::EUSERS);
        }
        self.shard.strip_try_bits(resource, &wanted);
        let Some(slot) = self.add(resource, &wanted, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        if conflicts.is_empty() {
            self.grant(slot);
            return Enqueued::Granted(self.granted(slot));
        }
        self.shard.queue(slot);
        self.revoke_conflicting(slot, &conflicts);
        self.waiting(slot)
    }

    fn add(&mut self, resource: u32, wanted: &WantedLock, request: &Enqueue) -> Option<u32> {
        let lock =
            Lock::asked(resource, wanted, request.owner, request.remote_handle, request.flags);
        self.shard.add(lock)
    }

    /// A slot for a flock request.
    pub(super) fn add_asked(&mut self, resource: u32, request: &Enqueue) -> Option<u32> {
        self.add(resource, &wanted_by(request), request)
    }

    /// Lustre's clients take a lock for one that waits if its flags have `BLOCK_GRANTED` or `BLOCK_WAIT`
    /// (`LDLM_FL_BLOCKED_MASK`); Lustre's servers set the first in the reply to an enqueue.
    pub(super) fn waiting(&self, slot: u32) -> Enqueued {
        let kind = self.shard.lock(slot).policy.kind();
        let patient = LockFlags::NO_TIMEOUT.when(kind == LockKind::Extent);
        let flags = LockFlags::BLOCK_GRANTED | patient;
        Enqueued::Waiting { handle: self.shard.handle(slot, self.handles), flags }
    }

    pub(super) fn granted(&self, slot: u32) -> Granted {
        let lock = self.shard.lock(slot);
        let changed = match lock.policy {
            Policy::Extent { extent, .. } => extent != lock.asked,
            Policy::InodeBits { .. } => lock.flags.contains(LockFlags::LOCK_CHANGED),
            Policy::Plain | Policy::Flock { .. } => false,
        };
        Granted {
            handle: self.shard.handle(slot, self.handles),
            mode: lock.mode,
            policy: lock.policy,
            flags: LockFlags::LOCK_CHANGED.when(changed)
                | LockFlags::AST_SENT.when(lock.is_waited_for),
        }
    }

    /// A lock from before the server's restart. A client that claims what conflicts with another
    /// client's claim is not believed.
    fn replay(&mut self, resource: u32, request: &Enqueue) -> Enqueued {
        let wanted = wanted_by(request);
        let granted = request.flags.contains(LockFlags::BLOCK_GRANTED);
        let clash = granted
            && self
                .shard
                .granted_conflicts(resource, &wanted, &mut |slot| {
                    let lock = self.shard.lock(slot);
                    let own = lock.policy.kind() == LockKind::Flock
                        && FlockOwner::of(lock.owner, &lock.policy)
                            == FlockOwner::of(request.owner, &request.policy);
                    if own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })
                .is_break();
        if clash {
            return Enqueued::Denied(Errno::ESTALE);
        }
        let Some(slot) = self.add(resource, &wanted, request) else {
            return Enqueued::Denied(Errno::ENOMEM);
        };
        if !granted {
            self.shard.queue(slot);
            return self.waiting(slot);
        }
        if request.policy.kind() == LockKind::Flock {
            let answer = self.granted(slot);
            self.merge_flock(slot);
            return Enqueued::Granted(answer);
        }
        self.shard.add_granted(slot);
        self.shard.gauges.grants += 1;
        Enqueued::Granted(self.granted(slot))
    }

    fn refusal(&self, request: &Enqueue, conflicts: &Conflicts) -> Option<Enqueued> {
        if conflicts.is_empty() {
            return None;
        }
        if request.flags.contains(LockFlags::TRY) {
            return Some(Enqueued::WouldBlock);
        }
        let speculative = request.flags.contains(LockFlags::SPECULATIVE);
        let group = LockMode::Group;
        let behind_group = conflicts.all().any(|slot| self.shard.lock(slot).requested == group);
        let impatient =
            request.flags.contains(LockFlags::BLOCK_NOWAIT) || request.owner == Owner::Local;
        (speculative || (impatient && behind_group)).then_some(Enqueued::Denied(Errno::EAGAIN))
    }

    /// Whether so many of the client's locks wait for the resource that no further one may: each lock that comes or goes is
    /// compared with those that wait.
    fn has_too_many_waiting(&self, resource: u32, owner: Owner) -> bool {
        let waiting = &self.shard.resource(resource).waiting;
        let is_own = |slot: &&u32| self.shard.lock(**slot).owner == owner;
        waiting.len() >= LOCKS_WAITING_PER_CLIENT
            && owner != Owner::Local
            && waiting.iter().filter(is_own).count() >= LOCKS_WAITING_PER_CLIENT
    }

    fn conflicts(&self, resource: u32, wanted: &WantedLock) -> Conflicts {
        let mut found = Conflicts::default();
        let _ = self.shard.granted_conflicts(resource, wanted, &mut |slot| {
            found.granted.push(slot);
            ControlFlow::Continue(())
        });
        let _ = self.shard.waiting_conflicts(resource, wanted, NONE, &mut |slot| {
            found.waiting.push(slot);
            ControlFlow::Continue(())
        });
        found
    }

    /// Revokes all locks that `slot` has to wait for.
    fn revoke_conflicting(&mut self, slot: u32, conflicts: &Conflicts) {
        let desc = self.shard.desc(slot);
        let lock = self.shard.lock(slot);
        let (wanted, discard) = (lock.wanted(), lock.flags.contains(LockFlags::AST_DISCARD_DATA));
        for other in conflicts.all() {
            if !self.shard.is_spared(other, &wanted) {
                self.revoke_for(other, &desc, discard);
            }
        }
    }

    /// Revokes a granted lock that nothing waits for.
    pub(super) fn revoke(&mut self, slot: u32) {
        let lock = self.shard.lock(slot);
        if lock.state == LockState::Granted && lock.policy.kind() != LockKind::Flock {
            let wanted =
                LockDesc { requested: LockMode::Ex, granted: None, ..self.shard.desc(slot) };
            self.revoke_for(slot, &wanted, false);
        }
    }

    /// Notes that another lock waits for this one, and sends its holder a blocking callback, once.
    /// The owner of a waiting lock is informed with the grant. Group locks are never revoked: a
    /// lock that conflicts with one waits.
    fn revoke_for(&mut self, slot: u32, wanted: &LockDesc, discard: bool) {
        let lock = self.shard.lock_mut(slot);
        if lock.is_waited_for || lock.requested == LockMode::Group {
            return;
        }
        lock.is_waited_for = true;
        lock.discard |= discard;
        let flags = LockFlags::DISCARD_DATA.when(lock.discard);
        let (state, owner, remote_handle) = (lock.state, lock.owner, lock.remote_handle);
        if let (LockState::Granted, Owner::Export(export)) = (state, owner) {
            self.note_demand(slot, export);
            self.shard.set_deadline(slot, self.now + self.timeout);
            let handle = self.shard.handle(slot, self.handles);
            let wanted = *wanted;
            self.actions.push(Action::Blocking { handle, export, remote_handle, wanted, flags });
        }
    }

    /// Notes what a revoked lock was asked for, for the growth of later ones.
    fn note_demand(&mut self, slot: u32, export: u64) {
        let &Lock { resource, policy, asked, mode, .. } = self.shard.lock(slot);
        if matches!(policy, Policy::Extent { .. }) {
            self.shard.resources[resource as usize].demand.note(self.now, export, mode, asked);
        }
    }

    /// Grants a lock with which no lock conflicts: grown, with the bits it could try for.
    fn grant(&mut self, slot: u32) {
        let lock = self.shard.lock(slot);
        let mut policy = lock.policy;
        let mut flags = lock.flags;
        match &mut policy {
            Policy::Extent { extent, .. } => *extent = expand::expanded(self.shard, slot, self.now),
            Policy::InodeBits { bits, try_bits, .. } => {
                if !try_bits.is_empty() {
                    *bits = bits.union(*try_bits);
                    *try_bits = InodeBits(0);
                    flags = flags | LockFlags::LOCK_CHANGED;
                }
            }
            Policy::Plain | Policy::Flock { .. } => {}
        }
        let lock = self.shard.lock_mut(slot);
        (lock.policy, lock.flags) = (policy, flags);
        self.shard.add_granted(slot);
        self.shard.gauges.grants += 1;
    }

    /// Informs the owner of a lock that waited that it is granted, or (`failure`) that it never
    /// will be.
    pub(super) fn complete(&mut self, slot: u32, failure: Option<LockFlags>) {
        let handle = self.shard.handle(slot, self.handles);
        let mut desc = self.shard.desc(slot);
        if failure.is_some() {
            desc.granted = None;
        }
        let lock = self.shard.lock(slot);
        let remote_handle = lock.remote_handle;
        let flags = failure.unwrap_or(
            LockFlags::AST_SENT.when(lock.is_waited_for)
                | LockFlags::DISCARD_DATA.when(lock.discard),
        );
        let Owner::Export(export) = lock.owner else {
            self.actions.push(Action::LocalGranted { handle, desc });
            return;
        };
        if lock.is_waited_for && lock.state == LockState::Granted {
            self.shard.set_deadline(slot, self.now + self.timeout);
        }
        self.actions.push(Action::Completion { handle, export, remote_handle, desc, flags });
    }

    /// Removes a lock, granted or waiting, without granting those that waited for it.
    pub(super) fn remove(&mut self, slot: u32) {
        match self.shard.lock(slot).state {
            LockState::Granted => self.shard.remove_granted(slot),
            LockState::Waiting => {
                let handle = self.shard.handle(slot, self.handles);
                let lock = self.shard.lock(slot);
                if lock.policy.kind() == LockKind::Flock {
                    self.waits.done(FlockOwner::of(lock.owner, &lock.policy), handle);
                }
                self.shard.unqueue(slot);
            }
            LockState::Free => return,
        }
        self.shard.gauges.cancels += 1;
        self.shard.free(slot);
    }

    /// Grants the waiting locks that can be granted now, in order. `revoke_conflicting`: the holders of locks
    /// that conflict with the rest may not know yet, because a lock changed but stayed.
    pub(super) fn reprocess(&mut self, resource: u32, announce: bool) {
        if self.shard.resource(resource).waiting.is_empty() {
            self.shard.drop_if_unused(resource);
            return;
        }
        if self.shard.resource(resource).kind == LockKind::Flock {
            self.reprocess_flocks(resource, announce);
            return;
        }
        let mut announce = announce;
        let (mut at, mut earlier) = (0, EarlierWaiting::default());
        while let Some(&slot) = self.shard.resource(resource).waiting.get(at) {
            if self.may_grant(slot, &earlier) {
                self.trim_try_bits(slot);
                self.shard.unqueue(slot);
                self.grant(slot);
                self.complete(slot, None);
                announce = true;
            } else {
                earlier.add(self.shard.lock(slot));
                at += 1;
            }
        }
        if announce && !self.recovering {
            self.revoke_all_conflicting(resource);
        }
    }

    fn may_grant(&self, slot: u32, earlier: &EarlierWaiting) -> bool {
        let lock = self.shard.lock(slot);
        if self.recovering && lock.flags.contains(LockFlags::REPLAY) {
            return false;
        }
        let wanted = lock.wanted();
        let stop = &mut |_| ControlFlow::Break(());
        (self.shard.joins_group(lock.resource, &wanted) || !earlier.has_first(&wanted))
            && self.shard.granted_conflicts(lock.resource, &wanted, stop).is_continue()
    }

    fn trim_try_bits(&mut self, slot: u32) {
        let lock = self.shard.lock(slot);
        let free = self.shard.free_try_bits(lock.resource, &lock.wanted(), slot);
        if let Policy::InodeBits { try_bits, .. } = &mut self.shard.lock_mut(slot).policy {
            *try_bits = free;
        }
    }

    /// Revokes all locks that conflict with waiting ones. Each granted lock is visited about once, however many wait:
    /// if an earlier waiting lock that asks for the same has visited its group or bytes, its holder has been
    /// informed.
    fn revoke_all_conflicting(&mut self, resource: u32) {
        let mut visited_groups = vec![false; self.shard.resource(resource).groups.len()];
        let mut visited_bytes: Vec<((LockMode, u64), RangeSet)> = Vec::new();
        for at in 0..self.shard.resource(resource).waiting.len() {
            let slot = self.shard.resource(resource).waiting[at];
            let wanted = self.shard.lock(slot).wanted();
            let granted = match wanted.policy {
                Policy::Plain | Policy::InodeBits { .. } => {
                    self.shard.conflicts_by_group(resource, &wanted, &mut visited_groups)
                }
                Policy::Extent { extent, gid } => {
                    let kind = (wanted.mode, gid);
                    let known = visited_bytes.iter().position(|(visited, _)| *visited == kind);
                    let known = known.unwrap_or_else(|| {
                        visited_bytes.push((kind, RangeSet::default()));
                        visited_bytes.len() - 1
                    });
                    self.conflicts_in(resource, &wanted, visited_bytes[known].1.add(extent))
                }
                Policy::Flock { .. } => continue,
            };
            self.revoke_conflicting(slot, &Conflicts { granted, waiting: Vec::new() });
        }
    }

    /// The granted extent locks that conflict with one, on these of its bytes.
    fn conflicts_in(&self, resource: u32, wanted: &WantedLock, parts: Vec<Extent>) -> Vec<u32> {
        let mut granted = Vec::new();
        for extent in parts {
            let gid = wanted.policy.gid();
            let part = WantedLock { policy: Policy::Extent { extent, gid }, ..*wanted };
            let _ = self.shard.granted_conflicts(resource, &part, &mut |other| {
                granted.push(other);
                ControlFlow::Continue(())
            });
        }
        granted
    }

    /// Lowers a granted lock: fewer bits, or a weaker mode.
    pub(super) fn lower(&mut self, slot: u32, policy: Policy, mode: LockMode) {
        self.shard.remove_granted(slot);
        self.shard.clear_deadline(slot);
        let lock = self.shard.lock_mut(slot);
        (lock.policy, lock.mode, lock.is_waited_for) = (policy, mode, false);
        let resource = lock.resource;
        self.shard.add_granted(slot);
        self.reprocess(resource, true);
    }

    /// Makes a local lock a client's. Waiting locks that spare that client's locks no longer wait
    /// for it.
    pub(super) fn hand_over(&mut self, slot: u32, export: u64, remote: LockHandle) -> Granted {
        self.shard.lock_mut(slot).remote_handle = remote;
        self.shard.link(slot, Owner::Export(export));
        let resource = self.shard.lock(slot).resource;
        if self.shard.lock(slot).is_waited_for {
            match self.conflicts_with_a_waiting_lock(slot) {
                true => self.shard.set_deadline(slot, self.now + self.timeout),
                false => self.shard.lock_mut(slot).is_waited_for = false,
            }
        }
        let granted = self.granted(slot);
        self.reprocess(resource, false);
        granted
    }

    /// Whether a granted lock conflicts with one that waits.
    fn conflicts_with_a_waiting_lock(&self, slot: u32) -> bool {
        let resource = self.shard.lock(slot).resource;
        self.shard.resource(resource).waiting.iter().any(|&other| {
            let wanted = self.shard.lock(other).wanted();
            let find = &mut |found| match found == slot {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            self.shard.granted_conflicts(resource, &wanted, find).is_break()
        })
    }

    /// Yields the holders whose time is over.
    pub(super) fn poll(&mut self) {
        while let Some(&(deadline, slot)) = self.shard.deadlines.first() {
            if deadline > self.now {
                return;
            }
            self.shard.clear_deadline(slot);
            self.shard.gauges.timeouts += 1;
            if let Owner::Export(export) = self.shard.lock(slot).owner {
                let handle = self.shard.handle(slot, self.handles);
                self.actions.push(Action::Evict { export, handle });
            }
        }
    }

    /// Grants and announces everywhere, after recovery.
    pub(super) fn reprocess_everything(&mut self) {
        for resource in 0..self.shard.resources.len() as u32 {
            if !self.shard.resource(resource).waiting.is_empty() {
                self.reprocess(resource, true);
            }
        }
    }
}
