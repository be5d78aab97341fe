//! The transitions of a lock at its client: granted, revoked, converted, gone.

use std::time::Duration;

use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use super::privilege::{DEMOTED_AT_ONCE, Privilege};
use super::table::{Phase, Table};
use super::types::{Action, LockInfo, LostLock, ReplayedLock, Reply, UnknownLock};
use crate::flock::{OwnLock, neighbourhood, plan};
use crate::{LockDesc, LockFlags, LockKind, Policy};

/// Everything behind the namespace's mutex.
pub(super) struct NamespaceInner {
    pub(super) table: Table,
    pub(super) lru_size: usize,
    pub(super) lru_max_age: Duration,
    /// Whether the server knows `LDLM_CONVERT`.
    pub(super) convert: bool,
    pub(super) privilege: Privilege,
    /// Locks unused for longer are cancelled whole when they are revoked, or when a glimpse asks
    /// for what is under them.
    pub(super) dirty_age_max: Duration,
    pub(super) hits: u64,
    pub(super) privileged_hits: u64,
    pub(super) misses: u64,
    /// The last connection over which locks were replayed.
    pub(super) replayed_over: u32,
}

type Actions = Vec<Action>;

impl NamespaceInner {
    /// A lock in flight, with one reference.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> u32 {
        self.misses += 1;
        let slot = self.table.add(resource, policy, mode, flags);
        let lock = self.table.lock_mut(slot);
        lock.since = now;
        *lock.users(mode) += 1;
        slot
    }

    /// Whether the answer for a lock in flight came before a restart of the server.
    pub(super) fn is_lost(&self, slot: u32, reply: &Reply) -> bool {
        self.table.lock(slot).phase == Phase::InFlight && reply.connection < self.replayed_over
    }

    pub(super) fn replied(
        &mut self,
        now: Instant,
        slot: u32,
        reply: &Reply,
        actions: &mut Actions,
    ) -> Result<LockInfo, UnknownLock> {
        let lock = self.table.lock_mut(slot);
        if lock.phase != Phase::InFlight {
            return Ok(self.table.info(slot));
        }
        lock.remote_handle = reply.remote_handle;
        lock.phase = Phase::Waiting;
        let overtaking = lock.overtaking.take();
        if lock.flags.contains(LockFlags::TEST_LOCK) {
            let mut info = self.table.info(slot);
            info.desc = reply.desc;
            self.table.remove(slot);
            return Ok(info);
        }
        self.table.rename(slot, reply.desc.resource);
        self.take_flags(slot, reply.flags);
        let mut info = self.table.info(slot);
        if let Some((desc, flags)) = overtaking {
            info.desc = desc;
            self.complete(now, slot, &desc, flags, actions);
            let gone = desc.granted.is_none();
            return if gone { Err(UnknownLock) } else { Ok(self.info_or(info)) };
        }
        if reply.desc.granted.is_none() {
            if !self.table.lock(slot).is_used() {
                self.cancel_at_once(slot, actions);
            }
            return Ok(info);
        }
        info.desc.granted = reply.desc.granted;
        self.granted(now, slot, &reply.desc, actions);
        Ok(self.info_or(info))
    }

    /// The lock as it is now; as it was, if it is a flock that has become part of another.
    fn info_or(&self, info: LockInfo) -> LockInfo {
        self.table.slot(info.handle).map_or(info, |slot| self.table.info(slot))
    }

    fn take_flags(&mut self, slot: u32, flags: LockFlags) {
        let lock = self.table.lock_mut(slot);
        // Nothing says which bits are wanted.
        if flags.contains(LockFlags::AST_SENT) {
            (lock.is_revoked, lock.wanted_whole) = (true, true);
        }
        lock.discard |= flags.contains(LockFlags::DISCARD_DATA);
    }

    pub(super) fn complete(
        &mut self,
        now: Instant,
        slot: u32,
        desc: &LockDesc,
        flags: LockFlags,
        actions: &mut Actions,
    ) {
        match self.table.lock(slot).phase {
            Phase::InFlight => {
                self.table.lock_mut(slot).overtaking = Some((*desc, flags));
            }
            Phase::Waiting if desc.granted.is_some() => {
                self.take_flags(slot, flags);
                self.granted(now, slot, desc, actions);
            }
            Phase::Waiting => {
                let errno = match flags {
                    _ if flags.contains(LockFlags::FLOCK_DEADLOCK) => Errno::EDEADLK,
                    _ if flags.contains(LockFlags::AST_SENT) => Errno::EINTR,
                    _ => Errno::EIO,
                };
                actions.push(Action::Failed { handle: self.table.handle(slot), errno });
                self.table.remove(slot);
            }
            _ => {}
        }
    }

    /// The lock is granted as `desc` says.
    fn granted(&mut self, now: Instant, slot: u32, desc: &LockDesc, actions: &mut Actions) {
        self.table.rename(slot, desc.resource);
        let lock = self.table.lock_mut(slot);
        lock.mode = desc.granted.unwrap_or(desc.requested);
        // A restarted server grants in a replay what is asked for there.
        lock.requested = lock.mode;
        // The server names ranges and bits; whose flock it is only the client knows.
        if !lock.is_flock() && lock.policy.kind() == desc.policy.kind() {
            lock.policy = desc.policy;
        }
        if let Policy::InodeBits { try_bits, .. } = &mut lock.policy {
            *try_bits = InodeBits(0);
        }
        let (flock, used, is_revoked) = (lock.is_flock(), lock.is_used(), lock.is_revoked);
        match flock {
            // It is found once the other ones of its owner have made room.
            true => lock.phase = Phase::Held,
            false => self.table.add_matchable(slot),
        }
        let desc = self.table.desc(slot);
        actions.push(Action::Granted { handle: self.table.handle(slot), desc });
        if flock {
            self.merge_flock(slot);
        } else if !used && is_revoked {
            self.begin_cancel(slot, false, actions);
        } else if !used {
            self.put_to_unused(slot, now);
        }
    }

    /// The lock has no users any more: it stays cached.
    fn put_to_unused(&mut self, slot: u32, now: Instant) {
        self.table.take_unused(slot);
        let lock = self.table.lock_mut(slot);
        lock.privileged = self.privilege.scored(&mut lock.score, lock.privileged);
        self.table.put_unused(slot, now);
    }

    /// Merges a new flock with its owner's other flocks, as the server has done.
    fn merge_flock(&mut self, slot: u32) {
        let lock = self.table.lock(slot);
        let (policy, mode, name) = (lock.policy, lock.mode, self.table.name(slot));
        let Policy::Flock { owner, .. } = policy else { return };
        let own = self.own_flocks(name, owner, neighbourhood(mode, policy.range()));
        let plan = plan(&own, mode, policy.range());
        let cut = plan.split.map(|(id, rest)| (id, self.table.lock(id).policy, rest));
        // What goes and what shrinks makes room for what comes: of an owner one flock at most begins at a byte.
        for id in plan.gone {
            self.table.remove(id);
        }
        for (id, range) in plan.resized {
            self.table.resize_flock(id, range);
        }
        if let Some((id, mut policy, rest)) = cut {
            let lock = self.table.lock(id);
            let (mode, flags) = (lock.mode, lock.flags);
            set_range(&mut policy, rest);
            let twin = self.table.add(name, policy, mode, flags);
            self.table.add_matchable(twin);
            self.table.count_twin(twin, id);
        }
        if mode == LockMode::Nl || plan.merged_into.is_some() {
            self.table.remove(slot);
        } else {
            self.table.add_matchable(slot);
            self.table.count_held(slot);
        }
    }

    /// The flocks of an owner that share a byte with `range`.
    fn own_flocks(&self, name: ResourceName, owner: u64, range: Extent) -> Vec<OwnLock> {
        let own = |id| {
            let lock = self.table.lock(id);
            OwnLock { id, mode: lock.mode, range: lock.policy.range() }
        };
        self.table.flocks_of(name, owner, range).map(own).collect()
    }

    pub(super) fn blocking(
        &mut self,
        now: Instant,
        slot: u32,
        wanted: &LockDesc,
        flags: LockFlags,
        actions: &mut Actions,
    ) {
        let is_old = self.is_old(now, slot);
        let lock = self.table.lock_mut(slot);
        lock.discard |= flags.contains(LockFlags::DISCARD_DATA);
        let bits = wanted.policy.inode_bits();
        lock.wanted_bits = lock.wanted_bits.union(bits);
        lock.wanted_whole |= !self.convert || bits.is_empty() || is_old;
        (lock.is_revoked, lock.since) = (true, now);
        if matches!(lock.phase, Phase::Held | Phase::CoveredDropped) && !lock.is_used() {
            self.begin_cancel(slot, false, actions);
        }
    }

    /// Whether it has been unused for so long that it is not kept.
    fn is_old(&self, now: Instant, slot: u32) -> bool {
        let since = self.table.unused_since(slot);
        since.is_some_and(|since| now.since(since) > self.dirty_age_max)
    }

    /// A glimpse asked for what is under the lock. One for writing that has been unused for long is
    /// cancelled: the server then knows the answer itself.
    pub(super) fn glimpsed(&mut self, now: Instant, slot: u32, actions: &mut Actions) {
        let lock = self.table.lock(slot);
        if lock.mode != LockMode::Pw || lock.phase != Phase::Held || !self.is_old(now, slot) {
            return;
        }
        let lock = self.table.lock_mut(slot);
        match lock.policy.kind() {
            LockKind::InodeBits if self.convert => {
                lock.wanted_bits = lock.wanted_bits.union(InodeBits::DOM);
            }
            _ => lock.wanted_whole = true,
        }
        (lock.is_revoked, lock.since) = (true, now);
        self.begin_cancel(slot, false, actions);
    }

    pub(super) fn release(
        &mut self,
        now: Instant,
        slot: u32,
        mode: LockMode,
        cancel: bool,
        actions: &mut Actions,
    ) {
        let lock = self.table.lock_mut(slot);
        if cancel {
            (lock.is_revoked, lock.wanted_whole) = (true, true);
        }
        let users = lock.users(mode);
        debug_assert!(*users > 0, "a reference is released once");
        *users = users.saturating_sub(1);
        if lock.is_used() || lock.is_flock() && lock.phase == Phase::Held {
            return;
        }
        lock.is_revoked |= lock.mode == LockMode::Group;
        match (lock.phase, lock.is_revoked) {
            (Phase::Held, true) => self.begin_cancel(slot, false, actions),
            (Phase::Held, false) => self.put_to_unused(slot, now),
            (Phase::InFlight, _) => lock.is_revoked = true,
            (Phase::Waiting, _) => self.cancel_at_once(slot, actions),
            _ => {}
        }
    }

    /// Cancels a lock that covers nothing, at once: no user waits for a waiting lock any more, or no request took one
    /// along.
    fn cancel_at_once(&mut self, slot: u32, actions: &mut Actions) {
        let remote_handle = self.table.lock(slot).remote_handle;
        actions.push(Action::Cancel { handle: self.table.handle(slot), remote_handle });
        self.table.remove(slot);
    }

    /// Begins to cancel an unused lock, or to convert it: has dropped what it covers, whole or those bits that were
    /// wanted; the cancel follows.
    pub(super) fn begin_cancel(&mut self, slot: u32, early: bool, actions: &mut Actions) {
        if self.table.lock(slot).phase == Phase::CoveredDropped {
            return self.cancel_at_once(slot, actions);
        }
        self.table.remove_matchable(slot);
        let resource = self.table.name(slot);
        let handle = self.table.handle(slot);
        let lock = self.table.lock_mut(slot);
        lock.is_revoked = true;
        let mut part = lock.policy;
        let mut dropped = InodeBits(0);
        if let Policy::InodeBits { bits, .. } = &mut part {
            let drop = InodeBits(bits.0 & lock.wanted_bits.0);
            let whole = lock.wanted_whole || drop.is_empty() || drop == *bits || early;
            if !whole && !lock.flags.contains(LockFlags::CANCEL_ON_BLOCK) {
                (*bits, dropped) = (drop, drop);
            }
        }
        (lock.wanted_bits, lock.wanted_whole) = (InodeBits(0), false);
        lock.phase = Phase::DroppingCovered { drop: dropped, early };
        let (mode, discard) = (lock.mode, lock.discard);
        let lost = LostLock { resource, mode, part, discard };
        actions.push(Action::DropCovered { handle, lost });
    }

    pub(super) fn covered_dropped(&mut self, now: Instant, slot: u32, actions: &mut Actions) {
        let handle = self.table.handle(slot);
        let lock = self.table.lock_mut(slot);
        let remote_handle = lock.remote_handle;
        if lock.is_forgone {
            return self.table.remove(slot);
        }
        match lock.phase {
            // Should no request take it along, it goes as the oldest unused one.
            Phase::DroppingCovered { early: true, .. } => {
                lock.phase = Phase::CoveredDropped;
                self.table.put_unused(slot, now);
            }
            Phase::DroppingCovered { drop, .. } if drop.is_empty() => {
                actions.push(Action::Cancel { handle, remote_handle });
                self.table.remove(slot);
            }
            Phase::DroppingCovered { drop, .. } => {
                lock.phase = Phase::Converting;
                let keep = lock.policy.inode_bits().without(drop);
                if let Policy::InodeBits { bits, .. } = &mut lock.policy {
                    *bits = keep;
                }
                actions.push(Action::Convert { handle, remote_handle, drop, keep });
            }
            _ => {}
        }
    }

    pub(super) fn converted(
        &mut self,
        now: Instant,
        slot: u32,
        result: Result<(), Errno>,
        actions: &mut Actions,
    ) {
        let lock = self.table.lock_mut(slot);
        if lock.phase != Phase::Converting {
            return;
        }
        // Callbacks that came meanwhile count if they want bits we kept; the server repeats those
        // of which it has not informed us.
        let again = lock.policy.inode_bits().intersects(lock.wanted_bits);
        lock.wanted_whole |= result.is_err();
        lock.is_revoked = again || lock.wanted_whole;
        if !lock.is_revoked {
            lock.wanted_bits = InodeBits(0);
        }
        let is_revoked = lock.is_revoked;
        self.table.add_matchable(slot);
        if is_revoked {
            self.begin_cancel(slot, false, actions);
        } else {
            self.put_to_unused(slot, now);
        }
    }

    pub(super) fn take_cancelled(&mut self, handles: &[LockHandle]) -> Vec<LockHandle> {
        let mut remote_handles = Vec::with_capacity(handles.len());
        for slot in handles.iter().filter_map(|handle| self.table.slot(*handle)).collect::<Vec<_>>()
        {
            let lock = self.table.lock_mut(slot);
            if matches!(
                lock.phase,
                Phase::CoveredDropped | Phase::DroppingCovered { early: true, .. }
            ) {
                remote_handles.push(lock.remote_handle);
                self.table.remove(slot);
            }
        }
        remote_handles
    }

    pub(super) fn shrink(&mut self, now: Instant, batch: usize, actions: &mut Actions) {
        let unused = self.table.unused_count();
        if self.privilege.is_too_much(self.table.privileged(), unused) {
            (0..DEMOTED_AT_ONCE).all(|_| self.table.demote());
        }
        for _ in 0..batch {
            let Some(slot) = self.next_to_cancel(now) else { return };
            self.begin_cancel(slot, false, actions);
        }
    }

    /// An unused lock that is too old, or one too many; a privileged one only if there is no other.
    fn next_to_cancel(&self, now: Instant) -> Option<u32> {
        let unused = self.table.unused_count();
        let oldest = [false, true].into_iter().filter_map(|list| self.table.oldest_unused(list));
        let mut goes = oldest
            .filter(|(_, since)| unused > self.lru_size || now.since(*since) >= self.lru_max_age);
        goes.next().map(|(slot, _)| slot)
    }

    pub(super) fn replays(&self) -> Vec<ReplayedLock> {
        let replay = |slot: u32| {
            let lock = self.table.lock(slot);
            let state_flag = match lock.phase {
                Phase::Free | Phase::InFlight => return None,
                Phase::Waiting => LockFlags::BLOCK_WAIT,
                _ => LockFlags::BLOCK_GRANTED,
            };
            Some(ReplayedLock {
                handle: self.table.handle(slot),
                remote_handle: lock.remote_handle,
                desc: self.table.desc(slot),
                flags: LockFlags::REPLAY | state_flag,
            })
        };
        self.table.all().into_iter().filter_map(replay).collect()
    }

    /// Gives up an unused lock of before a restart of its server, instead of replaying it.
    pub(super) fn forgo(&mut self, slot: u32, actions: &mut Actions) {
        let is_unused = self.table.unused_since(slot).is_some();
        if is_unused && self.table.lock(slot).phase == Phase::Held {
            self.table.lock_mut(slot).is_forgone = true;
            self.begin_cancel(slot, false, actions);
        }
    }

    pub(super) fn evict(&mut self, actions: &mut Actions) {
        for slot in self.table.all() {
            self.drop_unknown(slot, actions);
        }
    }

    /// Drops a lock that the server does not know: its waiters fail, what is cached under it is invalid.
    pub(super) fn drop_unknown(&mut self, slot: u32, actions: &mut Actions) {
        let handle = self.table.handle(slot);
        let lock = self.table.lock(slot);
        actions.push(match lock.phase {
            Phase::InFlight | Phase::Waiting => Action::Failed { handle, errno: Errno::EIO },
            _ => {
                let (resource, part) = (self.table.name(slot), lock.policy);
                let lost = LostLock { resource, mode: LockMode::Nl, part, discard: true };
                Action::Void { handle, lost }
            }
        });
        self.table.remove(slot);
    }

    /// Whether a lock conflicts with an operation in `mode` on `bits`.
    pub(super) fn conflicts_with(&self, slot: u32, mode: LockMode, bits: InodeBits) -> bool {
        let lock = self.table.lock(slot);
        lock.phase == Phase::Held
            && !lock.is_used()
            && !lock.is_revoked
            && !lock.mode.compatible(mode)
            && match lock.policy.kind() {
                // Data is not written back for the sake of other bits: the server asks for those.
                LockKind::InodeBits => {
                    let held = lock.policy.inode_bits();
                    let keeps_data =
                        held.contains(InodeBits::DOM) && !bits.contains(InodeBits::DOM);
                    held.intersects(bits) && !(keeps_data && self.convert)
                }
                LockKind::Flock => false,
                LockKind::Plain | LockKind::Extent => true,
            }
    }
}

fn set_range(policy: &mut Policy, range: Extent) {
    if let Policy::Flock { start, end, .. } = policy {
        (*start, *end) = (range.start, range.end);
    }
}
