//! MDS_REINT rmentry: a name goes whose inode cannot be asked for, as its MDT is gone or has lost it (`lfs rm_entry`).
//!
//! Nothing is looked at but the name. What it stood for, if it is anywhere, is left without this name: `sheen fsck` finds it.
//! A name of an inode that is here is removed as any other.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Timestamp};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{MdsReintRmentry, MdsReintRmentryReply};

use crate::caller::{Caller, Capability};
use crate::directory::parse_name;
use crate::hold::{Wanted, WantedName};
use crate::name_changes::is_directory;
use crate::{Mdt, dot_lustre, locks};

impl Mdt {
    /// Removes a name alone.
    pub(crate) async fn remove_entry(
        &self,
        context: &Context,
        request: &MdsReintRmentry,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            return self.replay_done(context, removed());
        }
        let name = parse_name(request.name.as_ref().ok_or(Errno::EPROTO)?.as_bytes())?;
        dot_lustre::refuse_change(record.fid1, &name)?;
        if !Caller::from(record).can(Capability::SysAdmin) {
            return Err(Errno::EPERM);
        }
        let names = [WantedName::removed(record.fid1, &name)];
        let held = self.hold(Wanted::of_names(&names)).await?;
        let (parent, child) = (self.directory(record.fid1)?, held.child(0).ok_or(Errno::ENOENT)?);
        self.check_place(parent.fid, name.as_bytes())?;
        if self.inode(child.fid).is_ok() {
            return Err(Errno::EPERM);
        }
        let _parent_lock = locks::change_directory(context, parent.fid).await?;
        // What clients keep of the name is under a lock of this MDT.
        let _lock = locks::change_links(context, child.fid).await?;
        let now = Timestamp::from_seconds(record.time);
        let mut changes = self.change_set();
        changes.delete_name(parent.fid, &name);
        changes.touch(parent.fid, now, -i32::from(is_directory(child)));
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(Outcome::ok(removed()))
    }
}

fn removed() -> MdsReintRmentryReply {
    let mdt_body = Some(MdtBody::default());
    MdsReintRmentryReply { mdt_body, ..MdsReintRmentryReply::default() }
}
