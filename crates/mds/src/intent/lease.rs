//! Open leases (`MDS_OPEN_LEASE`): an open that lasts as long as no other client opens the file in a way that
//! conflicts with it.
//!
//! The client gets a `PW` lock on the `OPEN` bit of the inode, and nothing else. An open for writing or
//! execution, and a truncation, take that bit in a mode that conflicts, and wait until the lock is cancelled; an
//! open for reading does not. With its lock the client has lost its lease: what a close was to do under
//! it (`close_intent`) is not done.
//!
//! Cost to opens of files that no client has a lease of: a look at the count of leases.

use sheen_ldlm::Policy;
use sheen_target::{Context, LockGuard};
use sheen_types::{Errno, InodeBits, LockMode, ResourceName};
use sheen_wire::md::MdsOpenFlags;

use super::open::OpenRequest;
use crate::Mdt;
use crate::dom::DomOpen;
use crate::inode::Inode;
use crate::open_table::OpenTable;

/// The locks of an open of an existing file.
pub(super) struct OpenLocks {
    /// The one that its client gets.
    pub(super) for_client: Option<LockGuard>,
    /// The one that ends a lease of the file, held until the open is counted.
    pub(super) until_counted: Option<LockGuard>,
}

impl OpenLocks {
    fn for_client(lock: Option<LockGuard>) -> Self {
        Self { for_client: lock, until_counted: None }
    }
}

impl Mdt {
    /// The lock of a lease. The inode is held, so that no open comes between the look at the opens and the answer.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] if the file has a lease, or is open for writing other than by the handle that the
    /// request names; [`Errno::EPROTO`] for a lease without a lock.
    async fn lease_lock(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
    ) -> Result<LockGuard, Errno> {
        if !inode.is_regular() {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.open_counts.is_leased(inode.fid) {
            return Err(Errno::EBUSY);
        }
        if !opening.flags.contains(MdsOpenFlags::LOCK) || opening.enqueue.is_none() {
            return Err(Errno::EPROTO);
        }
        // Clients that only keep the file open for writing close it now.
        let policy = Policy::bits(InodeBits::OPEN);
        let resource = ResourceName::of_fid(inode.fid);
        let lock = context.target.lock(resource, policy, LockMode::Pw).await?;
        let own = context.export.role::<OpenTable>().get(opening.record.open_handle_old);
        let own =
            own.is_some_and(|own| own.fid == inode.fid && own.flags.contains(MdsOpenFlags::WRITE));
        match self.open_counts.is_written_besides(inode.fid, u32::from(own)) {
            true => Err(Errno::EBUSY),
            false => Ok(lock),
        }
    }

    /// The lock that an open of an existing file brings its client, and the one that it takes until it is counted
    /// because the file has a lease.
    pub(super) async fn take_open_locks(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        data: Option<DomOpen>,
    ) -> Result<OpenLocks, Errno> {
        if opening.flags.contains(MdsOpenFlags::LEASE) {
            let lease = self.lease_lock(context, opening, inode).await?;
            return Ok(OpenLocks::for_client(Some(lease)));
        }
        let until_counted = self.end_lease(context, opening, inode).await?;
        if until_counted.is_some() {
            return Ok(OpenLocks { for_client: None, until_counted });
        }
        let lock = self.lock_with_data(context, opening, inode, data, InodeBits(0)).await?;
        Ok(OpenLocks::for_client(lock))
    }

    /// What an open without a lock of its own takes while it is counted, if the file has a lease: the lease ends,
    /// unless the open is for reading.
    async fn end_lease(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
    ) -> Result<Option<LockGuard>, Errno> {
        if opening.flags.contains(MdsOpenFlags::LOCK) || !self.open_counts.is_leased(inode.fid) {
            return Ok(None);
        }
        let mode = match opening.flags.contains(MdsOpenFlags::WRITE) {
            true => LockMode::Cw,
            false => LockMode::Cr,
        };
        context.target.lock_inode(inode.fid, InodeBits::OPEN, mode).await.map(Some)
    }
}
