//! File locks (`flock(2)`, `fcntl(2)`): one `LDLM_ENQUEUE` for each change; the MDT decides.
//!
//! The lock manager's client side keeps what we hold, merged and split as the MDT does it, and replays it to
//! an MDT that has restarted.

use parking_lot::Mutex;
use sheen_ldlm::client::LockInfo;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Call;
use sheen_types::{Errno, Fid, HashMap, LockMode, ResourceName};
use sheen_wire::messages::LdlmEnqueue;

use super::Meta;
use crate::cache::Inode;
use crate::call;
use crate::locks::LockRequest;
use crate::records::{Record, Recorded, Recorder};
use crate::types::{FileLock, FileLockMode, LockOwner};

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlockWait {
    /// Until it is granted.
    Wait,
    /// Not at all: `EAGAIN`.
    Try,
}

/// The file locks that programs hold, for the mount's next process.
pub(super) struct FileLockRecords {
    recorder: Recorder,
    recorded: Mutex<HashMap<(Fid, LockOwner), Vec<Recorded>>>,
}

impl FileLockRecords {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, recorded: Mutex::default() }
    }

    /// Whether any are recorded.
    fn is_on(&self) -> bool {
        self.recorder.is_on()
    }

    /// Records what `owner` has of what is held on a file.
    fn record(&self, fid: Fid, owner: LockOwner, is_flock: bool, held: &[LockInfo]) {
        let record = |lock: &LockInfo| {
            let Policy::Flock { start, end, owner: theirs, pid } = lock.desc.policy else {
                return None;
            };
            let mode = match lock.desc.granted {
                Some(LockMode::Pr) => FileLockMode::Read,
                Some(LockMode::Pw) => FileLockMode::Write,
                _ => return None,
            };
            let lock = FileLock { start, end, mode, pid, is_flock };
            let record = || Record::FileLock { fid, owner, lock };
            (theirs == owner.0).then(|| self.recorder.record(record)).flatten()
        };
        let mut recorded = self.recorded.lock();
        let now: Vec<Recorded> = held.iter().filter_map(record).collect();
        match now.is_empty() {
            true => drop(recorded.remove(&(fid, owner))),
            false => drop(recorded.insert((fid, owner), now)),
        }
    }
}

fn ask(fid: Fid, owner: LockOwner, lock: &FileLock, flags: LockFlags) -> LockRequest {
    LockRequest {
        resource: ResourceName::of_flocks(fid),
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
    /// Acquires, changes or releases a file lock. One RPC; waiting costs no more.
    pub(crate) async fn set_lock(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
        wait: FlockWait,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let unlock = lock.mode == FileLockMode::Unlock;
        let flags = match wait {
            FlockWait::Try if !unlock => LockFlags::BLOCK_NOWAIT,
            _ => LockFlags::NONE,
        };
        mdt.locks.enqueue(ask(inode.fid, owner, &lock, flags)).await?;
        if self.lock_records.is_on() {
            let held = mdt.locks.engine().dump(ResourceName::of_flocks(inode.fid));
            self.lock_records.record(inode.fid, owner, lock.is_flock, &held);
        }
        Ok(())
    }

    /// Whether the owner holds any lock on the file. No RPC.
    pub(crate) fn has_locks(&self, inode: &Inode, owner: LockOwner) -> bool {
        let held = self.held_flocks(inode);
        let owned = |lock: &LockInfo| matches!(lock.desc.policy, Policy::Flock { owner: theirs, .. } if theirs == owner.0);
        held.iter().any(owned)
    }

    /// Owners of locks on the file that a process holds. No RPC.
    pub(crate) fn lock_owners(&self, inode: &Inode, process: u32) -> Vec<LockOwner> {
        let held = self.held_flocks(inode);
        let owner = |lock: LockInfo| match lock.desc.policy {
            Policy::Flock { owner, pid, .. } if pid == process => Some(LockOwner(owner)),
            _ => None,
        };
        held.into_iter().filter_map(owner).collect()
    }

    /// What its MDT has granted on the file to this client. Where that is not known it was asked when there was one.
    fn held_flocks(&self, inode: &Inode) -> Vec<LockInfo> {
        let known = self.known_mdt(inode.fid);
        let mdt = known.as_ref().unwrap_or(self.mdts.first());
        mdt.locks.engine().dump(ResourceName::of_flocks(inode.fid))
    }

    /// A conflicting lock of another owner. One RPC.
    pub(crate) async fn get_lock(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<Option<FileLock>, Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let pending = mdt.locks.begin(ask(inode.fid, owner, &lock, LockFlags::TEST_LOCK));
        let dlm_req = pending.plain_request(Vec::new());
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
