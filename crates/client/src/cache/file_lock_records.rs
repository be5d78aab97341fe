//! The file locks that programs hold, recorded for the mount's next process ([`crate::records`]).
//!
//! What always holds, but for the moment between the answer to a call and its note: of an owner is recorded what the lock
//! manager's client side has of it, which is what its MDT has. So what an eviction takes is recorded no more: the next
//! process would acquire it, maybe from another client, for a program that has lost it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_ldlm::Policy;
use sheen_ldlm::client::{LockInfo, Namespace};
use sheen_types::{Extent, Fid, HashMap, LockMode, ResourceName};

use crate::records::{Record, Recorded, Recorder};
use crate::types::{FileLock, FileLockMode, LockOwner};

/// Those of one owner on a file: by their first byte the last one, and the record.
type RecordedLocks = BTreeMap<u64, (u64, Option<Recorded>)>;

/// The file locks that programs hold, for the mount's next process.
pub(crate) struct FileLockRecords {
    recorder: Recorder,
    recorded: Mutex<HashMap<(Fid, LockOwner), RecordedLocks>>,
}

impl FileLockRecords {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, recorded: Mutex::default() }
    }

    /// An owner's locks have changed in these bytes of a file: records what it has there now, as the file's MDT has granted
    /// it. Costs as much as there is of what shares a byte with them or is next to them.
    pub(crate) fn note(&self, mdt: &Namespace, fid: Fid, owner: LockOwner, changed: &FileLock) {
        if !self.recorder.is_on() {
            return;
        }
        let range = Extent { start: changed.start, end: changed.end };
        let mut recorded = self.recorded.lock();
        let locks = recorded.entry((fid, owner)).or_default();
        // Recorded once more before the earlier record goes: there may be no moment without one.
        let now = held(mdt, fid, owner, range).into_iter().filter_map(|lock| {
            let lock = file_lock(&lock, changed.uid, changed.is_flock)?;
            let record = || Record::FileLock { fid, owner, lock };
            Some((lock.start, (lock.end, self.recorder.record(record))))
        });
        let now: RecordedLocks = now.collect();
        let before = take_near(locks, range);
        locks.extend(now);
        if locks.is_empty() {
            recorded.remove(&(fid, owner));
        }
        drop(before);
    }

    /// The MDT has these bytes of an owner's no more: an eviction has taken them. What the owner has acquired there since
    /// stays recorded.
    pub(super) fn lost(&self, mdt: &Namespace, fid: Fid, owner: LockOwner, range: Extent) {
        let mut recorded = self.recorded.lock();
        let Some(locks) = recorded.get_mut(&(fid, owner)) else { return };
        let mut before = take_near(locks, range);
        for lock in held(mdt, fid, owner, range) {
            let start = lock.desc.policy.range().start;
            locks.extend(before.remove_entry(&start));
        }
        if locks.is_empty() {
            recorded.remove(&(fid, owner));
        }
    }
}

/// An owner's locks that share a byte with a range or are next to it.
fn held(mdt: &Namespace, fid: Fid, owner: LockOwner, range: Extent) -> Vec<LockInfo> {
    mdt.flocks_near(ResourceName::of_flocks(fid), owner.0, range)
}

/// Takes out what shares a byte with `range` or is next to it.
fn take_near(locks: &mut RecordedLocks, range: Extent) -> RecordedLocks {
    let from = range.start.saturating_sub(1);
    let below = locks.range(..from).next_back();
    let below = below.filter(|(_, (end, _))| *end >= from).map(|(start, _)| *start);
    let within = locks.range(from..=range.end.saturating_add(1)).map(|(start, _)| *start);
    let near: Vec<u64> = below.into_iter().chain(within).collect();
    near.iter().filter_map(|start| locks.remove_entry(start)).collect()
}

/// As a program of this user has it; `None` if it is none that is held.
fn file_lock(lock: &LockInfo, uid: u32, is_flock: bool) -> Option<FileLock> {
    let Policy::Flock { start, end, pid, .. } = lock.desc.policy else { return None };
    let mode = match lock.desc.granted {
        Some(LockMode::Pr) => FileLockMode::Read,
        Some(LockMode::Pw) => FileLockMode::Write,
        _ => return None,
    };
    Some(FileLock { start, end, mode, pid, uid, is_flock })
}
