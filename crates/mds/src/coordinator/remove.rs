//! unlink and rmdir of an inode here whose name lies on another MDT.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::RecUnlink;

use super::exclude::ExclusionRequest;
use super::execute::Executed;
use super::parts::Parts;
use crate::Mdt;
use crate::caller::{Caller, May};
use crate::name_changes::{check_unlink_kind, remote_reply};
use crate::striped::stripes_in;

impl Mdt {
    /// Removes a name. Two requests to its MDT, and to each that has stripes of the directory that goes. `victim` is the inode that it
    /// is taken for; where it is another one, whose MDT is another one, too, that one is named.
    ///
    /// # Errors
    /// Those of `unlink(2)` and `rmdir(2)`; [`Errno::EREMOTE`] if the client names no inode of this MDT.
    pub(crate) async fn unlink_distributed(
        &self,
        context: &Context,
        record: &RecUnlink,
        (name, victim): (&Name, Fid),
        is_rmdir: bool,
    ) -> Result<Outcome, Errno> {
        let mut victim = victim;
        if victim.is_zero() || self.is_remote(victim) {
            return Err(Errno::EREMOTE);
        }
        let caller = Caller::from(record);
        let now = Timestamp::from_seconds(record.time);
        loop {
            // What the client takes it for may be gone: then the name stands for another one.
            let is_there = self.inode(victim).map(drop) != Err(Errno::ENOENT);
            let stripes = if is_there { self.stripes_of(victim)? } else { Vec::new() };
            let mut wanted = ExclusionRequest::default().removed(record.fid1, name);
            if is_there {
                wanted = wanted.inode(victim).stripes(&stripes);
            }
            let held = self.hold_distributed(context.into(), wanted).await?;
            let parent = held.directory(record.fid1)?;
            caller.may(&held, parent.fid, &parent.attributes, May::EXEC)?;
            let found = held.child(parent.fid, name).ok_or(Errno::ENOENT)?;
            if found.fid != victim {
                if self.is_remote(found.fid) {
                    return Ok(remote_reply(found.fid));
                }
                victim = found.fid;
                continue;
            }
            let inode = held.inode(victim)?;
            if stripes_in(&held, victim)? != stripes {
                // It was split or merged before it was excluded.
                continue;
            }
            let directory = (parent.fid, &parent.attributes);
            caller.may_remove(&held, directory, &inode.attributes)?;
            check_unlink_kind(is_rmdir, &inode)?;
            if is_rmdir && !held.is_empty_with(victim, &stripes) {
                return Err(Errno::ENOTEMPTY);
            }
            let mut parts = Parts::new(self, context.into());
            parts.delete_name(parent.fid, name).await?;
            parts.touch(parent.fid, now, -i32::from(inode.is_directory())).await?;
            parts.remove_stripes(&held, victim, &stripes).await?;
            parts.lose_name(&inode, (parent.fid, name), now).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
                return Ok(Outcome::ok(self.unlinked(&inode)));
            }
        }
    }
}
