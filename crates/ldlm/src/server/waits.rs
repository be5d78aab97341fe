//! Which owner waits for which with flocks, over all shards: finds circles.
//!
//! Of the locks that conflict with a flock one is noted at a time, as Linux and Lustre do: when that one is
//! released, the flock is looked at again and waits for another. So what is kept and compared does not grow
//! with the locks of other owners, and a circle is found at the latest when no owner outside of it conflicts
//! any more.
//!
//! A leaf lock: taken with a shard's mutex held, and only when a flock has to wait, is granted
//! after waiting, or goes. Ordered maps, because owners' numbers are the peer's choice.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sheen_types::LockHandle;

use crate::limits::CIRCLE_OWNERS_MAX;
use crate::{Owner, Policy};

/// The owner of a flock: an owner number of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlockOwner {
    pub(super) owner: Owner,
    number: u64,
}

impl FlockOwner {
    pub(super) fn of(owner: Owner, policy: &Policy) -> Self {
        let number = if let Policy::Flock { owner, .. } = policy { *owner } else { 0 };
        Self { owner, number }
    }
}

/// What an owner's locks wait for. There may be several (threads).
type Waiting = BTreeMap<LockHandle, FlockOwner>;

/// The graph.
#[derive(Default)]
pub(super) struct WaitGraph(Mutex<BTreeMap<FlockOwner, Waiting>>);

impl WaitGraph {
    /// Notes that `lock` of `who` waits for `blocker` (instead of the one noted before), unless
    /// that closes a circle: then it does not wait, and the answer is `false`.
    pub(super) fn wait(&self, who: FlockOwner, lock: LockHandle, blocker: FlockOwner) -> bool {
        let mut graph = self.0.lock();
        forget(&mut graph, who, lock);
        let mut seen = BTreeSet::new();
        let mut next = vec![blocker];
        while let Some(owner) = next.pop() {
            if owner == who {
                return false;
            }
            if seen.len() < CIRCLE_OWNERS_MAX && seen.insert(owner) {
                next.extend(graph.get(&owner).into_iter().flatten().map(|(_, blocker)| *blocker));
            }
        }
        graph.entry(who).or_default().insert(lock, blocker);
        true
    }

    /// The lock no longer waits.
    pub(super) fn done(&self, who: FlockOwner, lock: LockHandle) {
        forget(&mut self.0.lock(), who, lock);
    }
}

fn forget(graph: &mut BTreeMap<FlockOwner, Waiting>, who: FlockOwner, lock: LockHandle) {
    if let Some(waits) = graph.get_mut(&who) {
        waits.remove(&lock);
        if waits.is_empty() {
            graph.remove(&who);
        }
    }
}
