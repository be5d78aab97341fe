//! File locks (`flock(2)`, `fcntl(2)`): one `LDLM_ENQUEUE` for each change; the MDT decides.
//!
//! The MDT merges and splits an owner's ranges without telling us, so the lock manager's client side
//! keeps none of them; what we hold is mirrored here only to tell it to an MDT that has restarted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_ldlm::{LockFlags, Policy};
use sheen_types::{Errno, Fid, LockMode, ResourceName};
use sheen_wire::messages::LdlmEnqueue;

use super::{Mdt, Meta};
use crate::cache::Inode;
use crate::call;
use crate::locks::Ask;
use crate::posix::{FileLock, FileLockMode, LockOwner};
use sheen_rpc::Call;

/// `LDLM_FLOCK`, which Lustre puts into the resource's name.
const FLOCK_KIND: u64 = 12;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlockAsk {
    /// Until it is granted.
    Wait,
    /// Not at all: `EAGAIN`.
    Try,
}

/// What all owners on this client hold.
#[derive(Default)]
pub(crate) struct HeldRanges(Mutex<HashMap<(Fid, LockOwner), Vec<FileLock>>>);

impl HeldRanges {
    /// `lock` has been granted to `owner`: it takes the place of what the owner had there.
    fn granted(&self, fid: Fid, owner: LockOwner, lock: FileLock) {
        let mut all = self.0.lock();
        let ranges = all.entry((fid, owner)).or_default();
        let mut kept: Vec<FileLock> = Vec::with_capacity(ranges.len() + 2);
        for held in ranges.drain(..) {
            if held.end < lock.start || lock.end < held.start {
                kept.push(held);
                continue;
            }
            if held.start < lock.start {
                kept.push(FileLock { end: lock.start - 1, ..held });
            }
            if held.end > lock.end {
                kept.push(FileLock { start: lock.end + 1, ..held });
            }
        }
        if lock.mode != FileLockMode::Unlock {
            kept.push(lock);
        }
        if kept.is_empty() {
            all.remove(&(fid, owner));
        } else {
            *ranges = kept;
        }
    }

    /// Whether the owner holds anything on the file.
    pub(crate) fn any(&self, fid: Fid, owner: LockOwner) -> bool {
        self.0.lock().contains_key(&(fid, owner))
    }

    /// Everything, for an MDT that has restarted.
    pub(crate) fn all(&self) -> Vec<(Fid, LockOwner, FileLock)> {
        let all = self.0.lock();
        let ranges = all.iter().flat_map(|((fid, owner), ranges)| {
            ranges.iter().map(move |range| (*fid, *owner, *range))
        });
        ranges.collect()
    }

    /// The MDT has thrown us out: nothing is held.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

fn ask(fid: Fid, owner: LockOwner, lock: &FileLock, flags: LockFlags) -> Ask {
    let mut resource = ResourceName::of_fid(fid);
    resource.0[3] = FLOCK_KIND;
    Ask {
        resource,
        policy: Policy::Flock { start: lock.start, end: lock.end, owner: owner.0, pid: lock.pid },
        mode: match lock.mode {
            FileLockMode::Read => LockMode::Pr,
            FileLockMode::Write => LockMode::Pw,
            FileLockMode::Unlock => LockMode::Nl,
        },
        flags,
    }
}

impl Meta {
    /// Takes, changes or gives back a file lock. One RPC; waiting costs no more.
    pub(crate) async fn set_lock(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
        wait: FlockAsk,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid)?;
        let unlock = lock.mode == FileLockMode::Unlock;
        let flags = match wait {
            FlockAsk::Try if !unlock => LockFlags::BLOCK_NOWAIT,
            _ => LockFlags::NONE,
        };
        let (held, _) = mdt.locks.enqueue(ask(inode.fid, owner, &lock, flags)).await?;
        held.forget();
        mdt.ranges.granted(inode.fid, owner, lock);
        Ok(())
    }

    /// Another's lock that is in the way. One RPC.
    pub(crate) async fn get_lock(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<Option<FileLock>, Errno> {
        let mdt = self.mdt(inode.fid)?;
        let pending = mdt.locks.begin(ask(inode.fid, owner, &lock, LockFlags::TEST_LOCK));
        let mut dlm_req = pending.request();
        dlm_req.count = 0;
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        let answer = call::call::<LdlmEnqueue>(&*mdt.channel, Call::new(request)).await?;
        let desc = call::need(answer.reply.dlm_rep)?.desc;
        let mode = match desc.req_mode.mode() {
            Some(LockMode::Pr) => FileLockMode::Read,
            Some(LockMode::Pw) => FileLockMode::Write,
            _ => return Ok(None),
        };
        let policy = desc.policy.as_flock();
        let found =
            FileLock { start: policy.start, end: policy.end, mode, pid: policy.pid, ..lock };
        Ok(Some(found))
    }
}

impl Mdt {
    /// The file locks to be told to this MDT after its restart.
    pub(crate) fn flock_replays(self: &Arc<Self>) -> Vec<sheen_rpc::LockReplay> {
        let flags = LockFlags::REPLAY | LockFlags::BLOCK_GRANTED;
        let replay = |(fid, owner, lock): (Fid, LockOwner, FileLock)| {
            self.locks.replay_unkept(ask(fid, owner, &lock, flags))
        };
        self.ranges.all().into_iter().map(replay).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(start: u64, end: u64, mode: FileLockMode) -> FileLock {
        FileLock { start, end, mode, pid: 1, is_flock: false }
    }

    fn ranges(held: &HeldRanges) -> Vec<(u64, u64, FileLockMode)> {
        let mut all: Vec<_> =
            held.all().into_iter().map(|(_, _, lock)| (lock.start, lock.end, lock.mode)).collect();
        all.sort_unstable_by_key(|range| range.0);
        all
    }

    #[test]
    fn a_range_given_back_splits_what_was_held() {
        use FileLockMode::{Read, Unlock, Write};
        let held = HeldRanges::default();
        let (fid, owner) = (Fid::ROOT, LockOwner(1));
        held.granted(fid, owner, lock(0, 100, Write));
        held.granted(fid, owner, lock(20, 30, Unlock));
        assert_eq!(ranges(&held), [(0, 19, Write), (31, 100, Write)]);
        held.granted(fid, owner, lock(10, 50, Read));
        assert_eq!(ranges(&held), [(0, 9, Write), (10, 50, Read), (51, 100, Write)]);
        held.granted(fid, owner, lock(0, u64::MAX, Unlock));
        assert!(!held.any(fid, owner));
    }
}
