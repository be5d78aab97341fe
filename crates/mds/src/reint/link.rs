//! Hard links.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Timestamp};
use sheen_wire::messages::{MdsReintLink, MdsReintLinkReply};

use crate::caller::Caller;
use crate::coordinator::NewNameHold;
use crate::directory::{Child, parse_name};
use crate::hold::{Wanted, WantedName};
use crate::name_changes::{linked, may_get_link};
use crate::{Mdt, locks};

impl Mdt {
    /// Gives an inode another name.
    pub(crate) async fn link(
        &self,
        context: &Context,
        request: &MdsReintLink,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            return self.replay_done(context, MdsReintLinkReply::default());
        }
        let name = parse_name(request.name.as_ref().ok_or(Errno::EPROTO)?.as_bytes())?;
        let caller = Caller::from(record);
        if self.is_remote(record.fid1) {
            return self.link_distributed(context, record, &name).await;
        }
        let (place, inodes) = ((record.fid2, &name), [record.fid1]);
        let both = self.hold_new_name(context, &caller, place, &inodes).await?;
        let within = both.as_ref().map(NewNameHold::within);
        let names = [WantedName::added(record.fid2, name.as_bytes())];
        let wanted = Wanted { names: &names, inodes: &inodes, within, ..Wanted::default() };
        let held = self.hold(wanted).await?;
        let inode = self.inode(record.fid1)?;
        let parent = self.directory(record.fid2)?;
        if inode.is_directory() {
            return Err(Errno::EPERM);
        }
        self.check_new_place(context, (parent.fid, name.as_bytes()), both.as_ref())?;
        self.may_add(&caller, &parent, &name, inode.attributes.kind)?;
        may_get_link(&inode)?;
        let _parent_lock = locks::change_directory(context, parent.fid).await?;
        let _lock = locks::change_links(context, inode.fid).await?;
        let now = Timestamp::from_seconds(record.time);
        let child = Child { fid: inode.fid, kind: inode.attributes.kind };
        let mut changes = self.change_set();
        changes.insert_name(parent.fid, &name, child);
        changes.touch(parent.fid, now, 0);
        changes.relink(inode.fid, now, None, Some((parent.fid, &name)))?;
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(linked())
    }
}
