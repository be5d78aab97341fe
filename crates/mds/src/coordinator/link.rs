//! A name here for an inode of another MDT.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Name, Timestamp};
use sheen_wire::md::RecLink;

use super::exclude::ExclusionRequest;
use super::execute::Executed;
use super::make::may_add;
use super::parts::Parts;
use crate::Mdt;
use crate::caller::Caller;
use crate::directory::Child;
use crate::name_changes::{linked, may_get_link};

impl Mdt {
    /// Gives an inode another name. Two requests to its MDT.
    ///
    /// # Errors
    /// Those of `link(2)`.
    pub(crate) async fn link_distributed(
        &self,
        context: &Context,
        record: &RecLink,
        name: &Name,
    ) -> Result<Outcome, Errno> {
        let caller = Caller::from(record);
        let now = Timestamp::from_seconds(record.time);
        let mut old = None;
        loop {
            let wanted = ExclusionRequest::default().added(record.fid2, name).added_in(old, name);
            let wanted = wanted.inode(record.fid1);
            let held = self.hold_distributed(context.into(), wanted).await?;
            let (inode, parent) = (held.inode(record.fid1)?, held.directory(record.fid2)?);
            if inode.is_directory() {
                return Err(Errno::EPERM);
            }
            let place = (parent.fid, name);
            let Some(held) = self.with_old_place(context, held, place, &mut old).await? else {
                continue;
            };
            let is_there = held.is_there(parent.fid, old, name);
            may_add(&caller, (&parent, &held), (name, is_there), inode.attributes.kind)?;
            may_get_link(&inode)?;
            let child = Child { fid: inode.fid, kind: inode.attributes.kind };
            let mut parts = Parts::new(self, context.into());
            parts.insert_name(parent.fid, name, child).await?;
            parts.touch(parent.fid, now, 0).await?;
            parts.relink(inode.fid, now, None, Some((parent.fid, name))).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
                return Ok(linked());
            }
        }
    }
}
