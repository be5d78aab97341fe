//! The server's half: decides which client holds what on one target.
//!
//! [`Namespace`] is sharded by resource; a call takes one shard's mutex, and never holds it on
//! return. Calls append to a list of [`Action`]s what is to be sent or woken; the caller carries
//! them out in order, without waiting for one before the next.
//!
//! What always holds: no two granted locks conflict, unless one spares the other's owner
//! ([`Enqueue::spares`]); a waiting lock is behind something that it
//! conflicts with, and the holders of that know it; a handle names at most one lock, ever.
//!
//! Costs: an enqueue that is granted and its cancel take one shard's mutex each, look two hash
//! tables up (resource, export) and allocate nothing once slab and tables have grown; finding the
//! lock of a handle is O(1). Inodebits locks are checked per group of equal mode and bits, extent
//! locks in O(log n) of those granted. A lock that has to wait costs the size of what it waits for.
//! Measured by `examples/cost.rs` (release, one thread of a 2-core virtual machine): enqueue and
//! cancel together 130 ns for inodebits, 140 ns for a whole-object extent lock, 700 ns for an extent
//! lock among 10,000 on the object.
//!
//! Not here: `LCK_COS` and `LCK_TXN` (commit on sharing between metadata targets).

mod conflicts;
mod contention;
mod demand;
mod earlier;
mod expand;
mod flock;
mod flocks;
mod grant;
mod ranges;
mod shard;
#[cfg(test)]
mod tests;
mod types;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

pub use self::contention::ContentionLimits;
use self::grant::ShardLocks;
use self::shard::{LockState, Shard};
pub use self::types::{
    Action, Config, Enqueue, Enqueued, Gauges, GlimpseTarget, Granted, LockError, LockInfo,
    Prolonged, Spared, SparedLocks,
};
use self::waits::{FlockOwner, WaitGraph};
use crate::handles::{LockHandles, SHARDS};
use crate::hash::{SeededBuildHasher, spread};
use crate::{LockKind, Owner, Policy};

/// All locks of one target.
pub struct Namespace {
    shards: Box<[Mutex<Shard>]>,
    handles: LockHandles,
    key: u64,
    waits: WaitGraph,
    callback_timeout: AtomicU64,
    recovering: AtomicBool,
    contention: ContentionLimits,
}

impl Namespace {
    /// An empty one.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let key = spread(config.seed);
        let shards = (0..SHARDS as u32).map(|number| Mutex::new(Shard::new(number, key)));
        Self {
            shards: shards.collect(),
            handles: LockHandles::new(config.seed),
            key,
            waits: WaitGraph::default(),
            callback_timeout: AtomicU64::new(nanoseconds(config.callback_timeout)),
            recovering: AtomicBool::new(false),
            contention: ContentionLimits::default(),
        }
    }

    /// When an object is contended, and what is refused then.
    #[must_use]
    pub fn contention(&self) -> &ContentionLimits {
        &self.contention
    }

    /// Asks for a lock. Blocking callbacks to the holders of conflicting locks and completions of
    /// other locks (a flock may free what a waiting one wants) go to `actions`.
    pub fn enqueue(&self, now: Instant, request: Enqueue, actions: &mut Vec<Action>) -> Enqueued {
        if !is_valid(&request) {
            return Enqueued::Denied(Errno::EPROTO);
        }
        let mut shard = self.shard_of(&request.resource).lock();
        let Some(resource) = shard.resource_for(request.resource, request.policy.kind()) else {
            return Enqueued::Denied(Errno::EPROTO);
        };
        let answer = self.locks_in(&mut shard, now, actions).enqueue(resource, &request);
        shard.drop_if_unused(resource);
        answer
    }

    /// Releases bits of a granted inodebits lock and keeps the rest; returns the rest. Without a
    /// rest the lock is cancelled.
    pub fn convert(
        &self,
        now: Instant,
        owner: Owner,
        handle: LockHandle,
        drop: InodeBits,
        actions: &mut Vec<Action>,
    ) -> Result<InodeBits, LockError> {
        self.with(now, handle, actions, |call, slot| {
            let lock = call.shard.lock(slot);
            if lock.owner != owner {
                return Err(LockError::Foreign);
            }
            let Policy::InodeBits { bits, gid, .. } = lock.policy else {
                return Err(LockError::Unfit);
            };
            if lock.state != LockState::Granted {
                return Err(LockError::Unfit);
            }
            let rest = bits.without(drop);
            let (resource, mode) = (lock.resource, lock.mode);
            if rest.is_empty() {
                call.remove(slot);
                call.reprocess(resource, false);
            } else if rest != bits {
                let policy = Policy::InodeBits { bits: rest, try_bits: InodeBits(0), gid };
                call.lower(slot, policy, mode);
            }
            Ok(rest)
        })
    }

    /// Cancels locks, granted or waiting. Handles that are unknown or of another owner are skipped;
    /// returns how many were cancelled (0 of some: answer `ESTALE`).
    pub fn cancel(
        &self,
        now: Instant,
        owner: Owner,
        handles: &[LockHandle],
        actions: &mut Vec<Action>,
    ) -> usize {
        let mut by_shard: BTreeMap<u32, Vec<LockHandle>> = BTreeMap::new();
        for handle in handles {
            by_shard.entry(self.handles.location(*handle).shard).or_default().push(*handle);
        }
        let cancel = |handles: Vec<LockHandle>| self.cancel_in_shard(now, owner, &handles, actions);
        by_shard.into_values().map(cancel).sum()
    }

    /// As [`Namespace::cancel`], of locks in one shard. The waiting locks of a resource are looked at when all
    /// are gone.
    fn cancel_in_shard(
        &self,
        now: Instant,
        owner: Owner,
        handles: &[LockHandle],
        actions: &mut Vec<Action>,
    ) -> usize {
        let Some(first) = handles.first() else { return 0 };
        let mut shard = self.shards[self.handles.location(*first).shard as usize].lock();
        let mut call = self.locks_in(&mut shard, now, actions);
        let (mut count, mut changed) = (0, BTreeSet::new());
        for handle in handles {
            let Some(slot) = call.shard.find(self.handles.location(*handle)) else { continue };
            let lock = call.shard.lock(slot);
            if lock.owner == owner {
                changed.insert(lock.resource);
                call.remove(slot);
                count += 1;
            }
        }
        changed.into_iter().for_each(|resource| call.reprocess(resource, false));
        count
    }

    /// How many locks an export has, granted and waiting; a flock that waits counts twice, because it may cut another
    /// one in two when it is granted. Visits every shard.
    #[must_use]
    pub fn count_of(&self, export: u64) -> usize {
        self.shards.iter().map(|shard| shard.lock().count_of(export)).sum()
    }

    /// How many flocks an export has, granted and, counted twice, waiting ([`Namespace::count_of`]). Visits every shard.
    #[must_use]
    pub fn flocks_of(&self, export: u64) -> usize {
        self.shards.iter().map(|shard| shard.lock().flocks_of(export)).sum()
    }

    /// Whether a flock request, or an unlock, would cut a lock of its owner in two, so that there is one lock more than
    /// before. O(log n) of the file's flocks.
    #[must_use]
    pub fn cuts_flock(&self, resource: ResourceName, owner: Owner, policy: Policy) -> bool {
        let shard = self.shard_of(&resource).lock();
        let found = shard.by_name.get(&resource).map(|&index| shard.resource(index));
        let flocks = found.and_then(|resource| resource.flocks.as_ref());
        flocks.is_some_and(|flocks| {
            flocks.would_split(FlockOwner::of(owner, &policy), policy.range())
        })
    }

    /// Revokes some `count` of the locks that an export has had for longest, as if another client wanted
    /// them (Lustre's `ldlm_reclaim`). Walks the export's locks.
    pub fn reclaim(&self, now: Instant, export: u64, count: usize, actions: &mut Vec<Action>) {
        // Few of many exports are not to be those of the same shards each time.
        let first = (now.0 >> 20) as usize % SHARDS;
        let mut left = count;
        for shard in self.shards.iter().cycle().skip(first).take(SHARDS) {
            let mut shard = shard.lock();
            let slots: Vec<u32> = shard.of_export(export).collect();
            let mut call = self.locks_in(&mut shard, now, actions);
            let oldest = slots.iter().rev().take(count.div_ceil(SHARDS).min(left));
            left -= oldest.len();
            oldest.for_each(|slot| call.revoke(*slot));
        }
    }

    /// Takes all locks of an export away: disconnect or eviction.
    pub fn cancel_owner(&self, now: Instant, export: u64, actions: &mut Vec<Action>) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let slots: Vec<u32> = shard.of_export(export).collect();
            let mut call = self.locks_in(&mut shard, now, actions);
            let mut resources: Vec<u32> = Vec::with_capacity(slots.len());
            for slot in slots {
                resources.push(call.shard.lock(slot).resource);
                call.remove(slot);
            }
            resources.sort_unstable();
            resources.dedup();
            for resource in resources {
                call.reprocess(resource, false);
            }
        }
    }

    /// Weakens a granted local lock (PW to PR, say), so that compatible locks can be granted.
    /// `Unfit` if `mode` would be stronger.
    pub fn downgrade(
        &self,
        now: Instant,
        handle: LockHandle,
        mode: LockMode,
        actions: &mut Vec<Action>,
    ) -> Result<(), LockError> {
        self.with(now, handle, actions, |call, slot| {
            let lock = call.shard.lock(slot);
            if lock.owner != Owner::Local {
                return Err(LockError::Foreign);
            }
            let weaker = LockMode::ALL
                .into_iter()
                .all(|other| !lock.mode.compatible(other) || mode.compatible(other));
            let flock = lock.policy.kind() == LockKind::Flock;
            if !weaker || flock || lock.state != LockState::Granted {
                return Err(LockError::Unfit);
            }
            call.lower(slot, lock.policy, mode);
            Ok(())
        })
    }

    /// Makes a granted local lock the client's, to be named in the reply of an intent. If another
    /// lock waits for it already, the answer carries `AST_SENT` and the deadline runs.
    ///
    /// `Unfit` for a flock: it is found by its owner, which names the export.
    pub fn hand_over(
        &self,
        now: Instant,
        handle: LockHandle,
        export: u64,
        remote_handle: LockHandle,
        actions: &mut Vec<Action>,
    ) -> Result<Granted, LockError> {
        self.with(now, handle, actions, |call, slot| {
            let lock = call.shard.lock(slot);
            let is_flock = lock.policy.kind() == LockKind::Flock;
            match (lock.owner, lock.state) {
                (Owner::Local, LockState::Granted) if !is_flock => {
                    Ok(call.hand_over(slot, export, remote_handle))
                }
                (Owner::Local, _) => Err(LockError::Unfit),
                (Owner::Export(_), _) => Err(LockError::Foreign),
            }
        })
    }

    /// The lock that an export knows under its own handle (`remote_handle` here), the newest if there are several; for requests that are
    /// sent again or replayed. Looks into every shard, and not at the export's other locks.
    #[must_use]
    pub fn find(&self, export: u64, remote_handle: LockHandle) -> Option<LockInfo> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock();
            let slot = shard.newest_by_remote_handle(export, remote_handle)?;
            Some(shard.info(slot, &self.handles))
        })
    }

    /// A lock by its handle here. O(1).
    #[must_use]
    pub fn lock(&self, handle: LockHandle) -> Option<LockInfo> {
        let location = self.handles.location(handle);
        let shard = self.shards.get(location.shard as usize)?.lock();
        shard.find(location).map(|slot| shard.info(slot, &self.handles))
    }

    /// An export reads or writes `extent`: where a deadline runs for an extent lock of it that overlaps that, or for a
    /// lock with the DOM bit, it is now at least `timeout` away.
    pub fn prolong(
        &self,
        now: Instant,
        export: u64,
        resource: ResourceName,
        extent: Extent,
        timeout: Duration,
    ) -> Prolonged {
        let mut shard = self.shard_of(&resource).lock();
        let mut found = Prolonged::default();
        let Some(&index) = shard.by_name.get(&resource) else { return found };
        let mut slots = Vec::new();
        if shard.resource(index).kind == LockKind::InodeBits {
            slots = shard.granted(index);
            slots.retain(|&slot| {
                let lock = shard.lock(slot);
                let covers = lock.policy.inode_bits().contains(InodeBits::DOM);
                covers && lock.owner == Owner::Export(export)
            });
        }
        for mode in LockMode::ALL {
            let Some(tree) = shard.resource(index).tree(mode) else { break };
            let _ = tree.visit(extent, &mut |_, slot| {
                if shard.lock(slot).owner == Owner::Export(export) {
                    slots.push(slot);
                }
                ControlFlow::Continue(())
            });
        }
        found.locks = slots.len();
        for slot in slots {
            found.revoked += usize::from(prolong(&mut shard, slot, now + timeout));
        }
        found
    }

    /// Changes the time that blocking callbacks from now on leave.
    pub fn set_callback_timeout(&self, timeout: Duration) {
        self.callback_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Yields [`Action::Evict`] for each holder whose deadline has come, once.
    pub fn poll(&self, now: Instant, actions: &mut Vec<Action>) {
        for shard in &self.shards {
            self.locks_in(&mut shard.lock(), now, actions).poll();
        }
    }

    /// The locks whose holders will be evicted by `deadline` if they do not cancel them. Each is named once for a
    /// revocation, whatever the holder's progress.
    pub fn late_holders(&self, deadline: Instant) -> Vec<LockInfo> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let due = shard.deadlines.range(..=(deadline, u32::MAX)).map(|&(_, slot)| slot);
            let fresh: Vec<u32> = due.filter(|&slot| !shard.lock(slot).is_late).collect();
            for slot in fresh {
                shard.lock_mut(slot).is_late = true;
                found.push(shard.info(slot, &self.handles));
            }
        }
        found
    }

    /// When to call [`Namespace::poll`] next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let earliest = |shard: &Mutex<Shard>| shard.lock().deadlines.first().map(|first| first.0);
        self.shards.iter().filter_map(earliest).min()
    }

    /// The holders that may know a larger size than the object has, one lock of each export, those
    /// that begin highest first: of extent locks the writers', of inodebits locks those of writers with
    /// the DOM bit. Lustre stops at the first extent lock that was not asked for ahead of use; but its
    /// holder may have punched a hole or not have written yet, and know nothing of bytes below.
    #[must_use]
    pub fn glimpse_targets(&self, resource: ResourceName) -> Vec<GlimpseTarget> {
        let shard = self.shard_of(&resource).lock();
        let Some(&index) = shard.by_name.get(&resource) else { return Vec::new() };
        let slots = match shard.resource(index).kind {
            LockKind::Extent => writers_from_the_end(&shard, index),
            LockKind::InodeBits => shard.granted(index),
            LockKind::Plain | LockKind::Flock => Vec::new(),
        };
        let mut targets: Vec<GlimpseTarget> = Vec::new();
        for slot in slots {
            let lock = shard.lock(slot);
            let Owner::Export(export) = lock.owner else { continue };
            let writes =
                matches!(lock.mode, LockMode::Ex | LockMode::Pw | LockMode::Cw | LockMode::Group);
            let sized = lock.policy.kind() == LockKind::Extent
                || lock.policy.inode_bits().contains(InodeBits::DOM);
            if writes && sized && !targets.iter().any(|target| target.export == export) {
                targets.push(GlimpseTarget {
                    handle: shard.handle(slot, &self.handles),
                    export,
                    remote_handle: lock.remote_handle,
                    desc: shard.desc(slot),
                });
            }
        }
        targets
    }

    /// The server has restarted and clients replay: until [`Namespace::recovery_done`], replayed
    /// locks that wait are not granted, because the holders of conflicting ones may not have
    /// replayed them yet.
    pub fn recovery_started(&self) {
        self.recovering.store(true, Ordering::SeqCst);
    }

    /// Recovery is over: waiting locks that were replayed are granted as far as possible, and those
    /// that conflict with the rest are revoked.
    pub fn recovery_done(&self, now: Instant, actions: &mut Vec<Action>) {
        self.recovering.store(false, Ordering::SeqCst);
        for shard in &self.shards {
            self.locks_in(&mut shard.lock(), now, actions).reprocess_everything();
        }
    }

    /// The counts. Visits every shard.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut sum = Gauges::default();
        for shard in &self.shards {
            let shard = shard.lock();
            let part = &shard.gauges;
            sum.resources += shard.by_name.len() as u64;
            for kind in 0..LockKind::ALL.len() {
                sum.granted[kind] += part.granted[kind];
                sum.waiting[kind] += part.waiting[kind];
            }
            sum.grants += part.grants;
            sum.cancels += part.cancels;
            sum.timeouts += part.timeouts;
        }
        sum
    }

    /// All locks of a resource, granted first, then waiting in order.
    #[must_use]
    pub fn dump(&self, resource: ResourceName) -> Vec<LockInfo> {
        let shard = self.shard_of(&resource).lock();
        let Some(&index) = shard.by_name.get(&resource) else { return Vec::new() };
        let waiting = shard.resource(index).waiting.iter().copied();
        let slots = shard.granted(index).into_iter().chain(waiting);
        slots.map(|slot| shard.info(slot, &self.handles)).collect()
    }

    /// All resources with a lock, with their kind.
    #[must_use]
    pub fn resources(&self) -> Vec<(ResourceName, LockKind)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.by_name.iter().map(|(&name, &at)| (name, shard.resource(at).kind)));
        }
        all
    }

    fn shard_of(&self, resource: &ResourceName) -> &Mutex<Shard> {
        let hash = std::hash::BuildHasher::hash_one(&SeededBuildHasher(!self.key), resource);
        &self.shards[hash as usize % SHARDS]
    }

    fn locks_in<'a>(
        &'a self,
        shard: &'a mut Shard,
        now: Instant,
        actions: &'a mut Vec<Action>,
    ) -> ShardLocks<'a> {
        ShardLocks {
            shard,
            now,
            timeout: Duration::from_nanos(self.callback_timeout.load(Ordering::Relaxed)),
            recovering: self.recovering.load(Ordering::Relaxed),
            handles: &self.handles,
            waits: &self.waits,
            contention: &self.contention,
            actions,
        }
    }

    /// Runs `work` on the lock of a handle.
    fn with<T>(
        &self,
        now: Instant,
        handle: LockHandle,
        actions: &mut Vec<Action>,
        work: impl FnOnce(&mut ShardLocks<'_>, u32) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let location = self.handles.location(handle);
        let mut shard = self.shards[location.shard as usize].lock();
        let slot = shard.find(location).ok_or(LockError::Unknown)?;
        work(&mut self.locks_in(&mut shard, now, actions), slot)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Moves a running deadline away, never nearer. Whether one runs.
fn prolong(shard: &mut Shard, slot: u32, deadline: Instant) -> bool {
    let Some(current) = shard.lock(slot).deadline else { return false };
    if deadline > current {
        shard.set_deadline(slot, deadline);
    }
    true
}

/// Granted extent locks of modes that write, by falling start within each mode.
fn writers_from_the_end(shard: &Shard, resource: u32) -> Vec<u32> {
    let mut slots = Vec::new();
    for mode in [LockMode::Ex, LockMode::Pw, LockMode::Cw, LockMode::Group] {
        let Some(tree) = shard.resource(resource).tree(mode) else { break };
        let _ = tree.visit_down(&mut |_, slot| {
            slots.push(slot);
            ControlFlow::Continue(())
        });
    }
    slots
}

/// Whether a request means something; peers can send anything.
fn is_valid(request: &Enqueue) -> bool {
    let group = request.mode == LockMode::Group;
    match request.policy {
        Policy::Plain => !group,
        Policy::Extent { extent, .. } => extent.start <= extent.end,
        Policy::InodeBits { bits, try_bits, .. } => {
            let all = bits.union(try_bits);
            !all.is_empty() && (!group || all == InodeBits::DOM)
        }
        Policy::Flock { start, end, .. } => {
            start <= end && matches!(request.mode, LockMode::Pr | LockMode::Pw | LockMode::Nl)
        }
    }
}
