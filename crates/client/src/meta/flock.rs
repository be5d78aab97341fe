//! File locks (`flock(2)`, `fcntl(2)`): one `LDLM_ENQUEUE` for each change; the MDT decides.
//!
//! The lock manager's client side keeps what we hold, merged and split as the MDT does it, and replays it to
//! an MDT that has restarted.

use std::sync::Arc;

use sheen_ldlm::client::FlockUser;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Call;
use sheen_types::{Errno, Fid, LockMode, ResourceName};
use sheen_wire::messages::LdlmEnqueue;

use super::Meta;
use crate::cache::Inode;
use crate::call;
use crate::locks::LockRequest;
use crate::mdt::Mdc;
use crate::types::{FileLock, FileLockMode, LockOwner};

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlockWait {
    /// Until it is granted.
    Wait,
    /// Not at all: `EAGAIN`.
    Try,
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
    /// Acquires, changes or releases a file lock. One RPC; waiting costs no more. `ENOLCK` if the user has the share of
    /// this client's locks, or of its waits for locks on the file, that one may have.
    pub(crate) async fn set_lock(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
        wait: FlockWait,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let most = mdt.flocks_most();
        self.set_lock_of(mdt, inode, owner, lock, wait, most).await
    }

    /// Acquires one that its owner had before this process of the mount, whatever share of the user's it is.
    pub(crate) async fn lock_again(
        &self,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        self.set_lock_of(mdt, inode, owner, lock, FlockWait::Try, None).await
    }

    async fn set_lock_of(
        &self,
        mdt: Arc<Mdc>,
        inode: &Inode,
        owner: LockOwner,
        lock: FileLock,
        wait: FlockWait,
        most: Option<usize>,
    ) -> Result<(), Errno> {
        let unlock = lock.mode == FileLockMode::Unlock;
        let flags = match wait {
            FlockWait::Try if !unlock => LockFlags::BLOCK_NOWAIT,
            _ => LockFlags::NONE,
        };
        let user = FlockUser { uid: lock.uid, most };
        let asked = ask(inode.fid, owner, &lock, flags);
        // One that is asked for while this is under way is another one.
        let last = mdt.locks.uncertain_flock(asked.resource, owner.0);
        mdt.locks.enqueue_flock(asked, user).await?;
        if unlock && lock.start == 0 && lock.end >= FileLock::END_MAX {
            mdt.locks.note_unlocked(asked.resource, owner.0, last);
        }
        self.cache.file_locks.note(mdt.locks.engine(), inode.fid, owner, &lock);
        Ok(())
    }

    /// Whether the owner holds any lock on the file, or may: it was asked for, and its caller has gone before the answer. No RPC.
    pub(crate) fn may_have_locks(&self, inode: &Inode, owner: LockOwner) -> bool {
        let mdt = self.mdt_of_flocks(inode);
        mdt.locks.may_have_flocks(ResourceName::of_flocks(inode.fid), owner.0)
    }

    /// Owners of locks on the file that a process holds, each once. No RPC. Costs as much as there are locks on the file.
    pub(crate) fn lock_owners(&self, inode: &Inode, process: u32) -> Vec<LockOwner> {
        let mdt = self.mdt_of_flocks(inode);
        let owners = mdt.locks.engine().flock_owners(ResourceName::of_flocks(inode.fid), process);
        owners.into_iter().map(LockOwner).collect()
    }

    /// Which MDT has granted locks on the file to this client. Where that is not known it was asked when there was one.
    fn mdt_of_flocks(&self, inode: &Inode) -> Arc<Mdc> {
        self.known_mdt(inode.fid).unwrap_or_else(|| Arc::clone(self.mdts.first()))
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

impl Mdc {
    /// How many file locks it grants this client, as far as is known here; `None` if it has no such limit. An MDT of Lustre's
    /// has none, nor the extension by which one of ours is known.
    fn flocks_most(&self) -> Option<usize> {
        self.keeps_own_names().then(|| self.locks.flocks_granted())
    }
}
