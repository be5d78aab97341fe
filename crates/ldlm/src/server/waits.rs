//! Who waits for whom with flocks, over all shards: finds circles.
//!
//! A leaf lock: taken with a shard's mutex held, and only when a flock has to wait, is granted
//! after waiting, or goes.

use parking_lot::Mutex;
use sheen_types::{HashMap, HashSet, LockHandle};

use crate::{Owner, Policy};

/// Who owns a flock: an owner number of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlockOwner {
    owner: Owner,
    number: u64,
}

impl FlockOwner {
    pub(super) fn of(owner: Owner, policy: &Policy) -> Self {
        let number = if let Policy::Flock { owner, .. } = policy { *owner } else { 0 };
        Self { owner, number }
    }
}

struct Wait {
    lock: LockHandle,
    blockers: Vec<FlockOwner>,
}

/// The graph. An owner may wait for several locks at once (threads).
#[derive(Default)]
pub(super) struct Waits(Mutex<HashMap<FlockOwner, Vec<Wait>>>);

impl Waits {
    /// Says that `lock` of `who` waits for `blockers` (instead of those said before), unless that
    /// closes a circle: then it does not wait, and the answer is `false`.
    pub(super) fn wait(
        &self,
        who: FlockOwner,
        lock: LockHandle,
        blockers: Vec<FlockOwner>,
    ) -> bool {
        let mut graph = self.0.lock();
        forget(&mut graph, who, lock);
        let mut seen: HashSet<_> = HashSet::default();
        let mut next = blockers.clone();
        while let Some(owner) = next.pop() {
            if owner == who {
                return false;
            }
            if seen.insert(owner) {
                let waits = graph.get(&owner).into_iter().flatten();
                next.extend(waits.flat_map(|wait| wait.blockers.iter().copied()));
            }
        }
        graph.entry(who).or_default().push(Wait { lock, blockers });
        true
    }

    /// The lock no longer waits.
    pub(super) fn done(&self, who: FlockOwner, lock: LockHandle) {
        forget(&mut self.0.lock(), who, lock);
    }
}

fn forget(graph: &mut HashMap<FlockOwner, Vec<Wait>>, who: FlockOwner, lock: LockHandle) {
    if let Some(waits) = graph.get_mut(&who) {
        waits.retain(|wait| wait.lock != lock);
        if waits.is_empty() {
            graph.remove(&who);
        }
    }
}
