//! When a file is destroyed, clients discard what they have not written back of it.

use std::sync::{Arc, Weak};

use sheen_ldlm::{LockFlags, Policy};
use sheen_types::{Errno, Fid, InodeBits, LockMode, ResourceName};

use crate::Mdt;

impl Mdt {
    /// An operation that holds the inode is about to destroy it. Once that is done, clients that have
    /// its data in a cache are asked to drop it, in a task of its own: the answer waits for no
    /// client. Nothing is done if none has it.
    pub(crate) fn discard_data_of(&self, fid: Fid) {
        let Some(target) = self.target.get().and_then(Weak::upgrade) else { return };
        let resource = ResourceName::of_fid(fid);
        let is_cached = target
            .namespace()
            .dump(resource)
            .iter()
            .any(|lock| lock.desc.policy.inode_bits().intersects(InodeBits::DOM));
        if !is_cached {
            return;
        }
        let (mdt, tasks) = (Weak::clone(&self.me), Arc::clone(&target));
        let discard = async move {
            let Some(mdt) = mdt.upgrade() else { return };
            {
                let _held = mdt.hold_inodes(&[fid]).await;
                if !matches!(mdt.inode(fid), Err(Errno::ENOENT)) {
                    // The operation failed after all.
                    return;
                }
            }
            let (policy, flags) = (Policy::bits(InodeBits::DOM), LockFlags::AST_DISCARD_DATA);
            if let Err(errno) = target.lock_with_flags(resource, policy, LockMode::Pw, flags).await
            {
                tracing::debug!(%fid, %errno, "cached data of a file that has gone");
            }
        };
        tasks.world().tasks.spawn("dom_discard", Box::pin(discard));
    }
}
