//! MDS_RMFID: removes files by their FIDs, each under all its names (Lustre's `mdt_rmfid`).
//!
//! Each name is a transaction of its own, and an answer is recorded for none: a request that is executed again because
//! its answer was lost finds files gone (`ENOENT`), and what was interrupted leaves the names that are left. All as in
//! Lustre. Cost: that of an unlink for each name.

use sheen_io::yield_once;
use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Timestamp};
use sheen_wire::md::{LinkEntry, MdtBody};
use sheen_wire::messages::{MdsRmfid, MdsRmfidReply};

use crate::caller::{Caller, May};
use crate::directory::parse_name;
use crate::{Mdt, dot_lustre, locks};

impl Mdt {
    /// The answer has a number for each FID: 0, or what kept its file from being removed.
    ///
    /// # Errors
    /// [`Errno::EROFS`] where nothing may be changed.
    pub(crate) async fn remove_by_fids(
        &self,
        context: &Context,
        request: &MdsRmfid,
    ) -> Result<Outcome, Errno> {
        if self.must_not_change(context) {
            return Err(Errno::EROFS);
        }
        let mut rcs = Vec::with_capacity(request.fid_array.len());
        for fid in &request.fid_array {
            // There may be thousands, none of which waits for anything.
            yield_once().await;
            let removed = self.remove_by_fid(context, &request.mdt_body, *fid).await;
            rcs.push(removed.map_or_else(|errno| 0u32.wrapping_sub(errno.0.into()), |()| 0));
        }
        let (mdt_body, fid_array) = (Some(MdtBody::default()), request.fid_array.clone());
        Ok(Outcome::ok(MdsRmfidReply { mdt_body, fid_array, rcs, ..MdsRmfidReply::default() }))
    }

    async fn remove_by_fid(&self, context: &Context, who: &MdtBody, fid: Fid) -> Result<(), Errno> {
        dot_lustre::refuse_dot_lustre(fid)?;
        let inode = self.inode(fid)?;
        if inode.is_directory() {
            return Err(Errno::EISDIR);
        }
        Caller::from(who).may(&*self.store, fid, &inode.attributes, May::WRITE)?;
        let names = self.links(fid)?.entries;
        if names.is_empty() {
            return Err(Errno::ENODATA);
        }
        for name in names {
            self.remove_link(context, who, fid, &name).await?;
        }
        Ok(())
    }

    /// Removes one name of a file that no client has open.
    async fn remove_link(
        &self,
        context: &Context,
        who: &MdtBody,
        fid: Fid,
        link: &LinkEntry,
    ) -> Result<(), Errno> {
        let (caller, now) = (Caller::from(who), Timestamp::from_seconds(who.ctime));
        let name = parse_name(&link.name)?;
        let (held, child) = self.hold_entry(link.parent, &name).await?;
        if child.fid != fid {
            // Another file has the name by now (Lustre: `EREMCHG`).
            return Err(Errno::ENOENT);
        }
        let (parent, victim) = (self.directory(link.parent)?, self.inode(fid)?);
        caller.may_remove(&*self.store, (parent.fid, &parent.attributes), &victim.attributes)?;
        let target = &context.target;
        // Clients that only keep it open close it.
        drop(target.lock_inode(fid, InodeBits::OPEN, LockMode::Ex).await?);
        if self.open_counts.is_open(fid) {
            return Err(Errno::EBUSY);
        }
        // Not as for an unlink: the client that asks does not know the names that it removes.
        let _parent_lock = target.lock_inode(parent.fid, InodeBits::UPDATE, LockMode::Cw).await?;
        let _lock = locks::lose_name(context, &victim).await?;
        let mut changes = self.change_set();
        changes.remove_name(&parent, &victim, &name, now)?;
        self.execute_locally(target, &held, changes).map(drop)
    }
}
