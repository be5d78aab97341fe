//! The arithmetic of POSIX file locks, the same on server and client.
//!
//! One owner's locks on a file never overlap, and never touch in the same mode.

use sheen_types::{Extent, LockMode};

/// One lock of the owner that overlaps or touches a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLock {
    pub(crate) id: u32,
    pub(crate) mode: LockMode,
    pub(crate) range: Extent,
}

/// What happens to the owner's locks when it gets a new one (or unlocks: mode NL).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// These go.
    pub(crate) gone: Vec<u32>,
    /// These change their range.
    pub(crate) resized: Vec<(u32, Extent)>,
    /// A lock like this one is made too: an existing one was cut in two.
    pub(crate) split: Option<(u32, Extent)>,
    /// The existing lock that the new one became part of; `None`: it stands for itself.
    pub(crate) merged_into: Option<u32>,
    /// Bytes became free or more weakly locked, so a waiting lock may be granted.
    pub(crate) freed: bool,
}

/// The bytes to search for the owner's locks: those of the new lock, and one more on each side,
/// where a lock of the same mode would touch it.
pub(crate) fn neighbourhood(mode: LockMode, range: Extent) -> Extent {
    if mode == LockMode::Nl {
        return range;
    }
    Extent { start: range.start.saturating_sub(1), end: range.end.saturating_add(1) }
}

/// Works out the plan for a new lock among the owner's locks in its [`neighbourhood`].
pub(crate) fn plan(own: &[OwnLock], mode: LockMode, range: Extent) -> Plan {
    let mut plan = Plan::default();
    let mut whole = range;
    for lock in own.iter().filter(|lock| lock.mode == mode) {
        whole.start = whole.start.min(lock.range.start);
        whole.end = whole.end.max(lock.range.end);
        match plan.merged_into {
            None => plan.merged_into = Some(lock.id),
            Some(_) => plan.gone.push(lock.id),
        }
    }
    if let Some(id) = plan.merged_into {
        plan.resized.push((id, whole));
    }
    for lock in own.iter().filter(|lock| lock.mode != mode && lock.range.overlaps(&range)) {
        plan.freed = true;
        let below = lock.range.start < range.start;
        let above = lock.range.end > range.end;
        // `above` and `below` mean that there is a byte on that side, so +1 and -1 stay in range.
        match (below, above) {
            (false, false) => plan.gone.push(lock.id),
            (true, false) => {
                plan.resized.push((lock.id, Extent { end: range.start - 1, ..lock.range }));
            }
            (false, true) => {
                plan.resized.push((lock.id, Extent { start: range.end + 1, ..lock.range }));
            }
            (true, true) => {
                plan.resized.push((lock.id, Extent { start: range.end + 1, ..lock.range }));
                plan.split = Some((lock.id, Extent { end: range.start - 1, ..lock.range }));
            }
        }
    }
    plan
}
