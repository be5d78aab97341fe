//! What other clients were seen to want of an object before their locks were revoked.
//!
//! Lustre's server grows a lock as far as nothing is granted or waits. A lock that was just revoked is
//! neither, though its holder will ask again for the bytes behind those that it wrote: two writers of two
//! parts of a file take the whole object from each other until both happen to wait at once. So the asked
//! extents of locks that are revoked are remembered for a while, and no other client's lock grows over
//! them.
//!
//! Costs: nothing on an object of which no lock was revoked; else [`DEMANDS_MAX`] comparisons for each lock.

use std::time::Duration;

use sheen_types::{Extent, Instant, LockMode};

/// How many an object remembers, the newest ones.
const DEMANDS_MAX: usize = 32;
/// How long: a client that has not come back by then is likely done.
const MEMORY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Demand {
    export: u64,
    mode: LockMode,
    asked: Extent,
    until: Instant,
}

/// What locks on one object were asked for lately.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentDemand(Vec<Demand>);

impl RecentDemand {
    /// A lock is revoked: what its holder had asked for is in demand.
    pub(super) fn note(&mut self, now: Instant, export: u64, mode: LockMode, asked: Extent) {
        let demand = Demand { export, mode, asked, until: now + MEMORY };
        self.0.retain(|old| old.until > now && !(old.export == export && old.asked == asked));
        if self.0.len() == DEMANDS_MAX {
            self.0.remove(0);
        }
        self.0.push(demand);
    }

    /// `extent`, the growth of what `export` asked for, without what other clients want. Downwards
    /// nothing is left of it if another client was there: writers go up.
    pub(super) fn limit(
        &self,
        now: Instant,
        export: Option<u64>,
        mode: LockMode,
        asked: Extent,
        mut extent: Extent,
    ) -> Extent {
        for demand in &self.0 {
            let is_friendly = Some(demand.export) == export || demand.mode.compatible(mode);
            if demand.until <= now || is_friendly {
                continue;
            }
            if demand.asked.end < asked.start {
                extent.start = asked.start;
            } else if demand.asked.start > asked.end {
                extent.end = extent.end.min(demand.asked.start - 1);
            }
        }
        extent
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
