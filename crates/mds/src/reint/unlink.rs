//! unlink and rmdir.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{MdsReintUnlink, MdsReintUnlinkReply};

use crate::caller::{Caller, May};
use crate::change_set::ChangeSet;
use crate::directory::{Child, parse_name};
use crate::hold::{HoldGuard, Wanted, WantedName};
use crate::inode::Inode;
use crate::name_changes::is_directory;
use crate::name_changes::{check_unlink_kind, remote_reply};
use crate::{Mdt, dot_lustre, locks};

/// The type bits by which a client says that it means a directory.
const DIRECTORY_MODE: u32 = 0o040_000;
const TYPE_MASK: u32 = 0o170_000;

impl Mdt {
    /// Removes a name. The inode goes with its last name, or with the last close after that.
    pub(crate) async fn unlink(
        &self,
        context: &Context,
        request: &MdsReintUnlink,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            let mdt_body = Some(MdtBody::default());
            return self
                .replay_done(context, MdsReintUnlinkReply { mdt_body, ..Default::default() });
        }
        let name = request.name.as_ref().ok_or(Errno::EPROTO)?.as_bytes();
        let is_rmdir = record.mode & TYPE_MASK == DIRECTORY_MODE;
        let name = match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            name => parse_name(name)?,
        };
        dot_lustre::refuse_change(record.fid1, &name)?;
        if self.is_remote(record.fid1) {
            let victim = (&name, record.fid2);
            return self.unlink_distributed(context, record, victim, is_rmdir).await;
        }
        let caller = Caller::from(record);
        let parent = self.directory(record.fid1)?;
        self.check_place(parent.fid, name.as_bytes())?;
        caller.may(&*self.store, parent.fid, &parent.attributes, May::EXEC)?;
        let (held, child) = self.hold_entry(parent.fid, &name).await?;
        if self.is_remote(child.fid) {
            return Ok(remote_reply(child.fid));
        }
        if is_directory(child) && !self.stripes_of(child.fid)?.is_empty() {
            drop(held);
            let victim = (&name, child.fid);
            return self.unlink_distributed(context, record, victim, is_rmdir).await;
        }
        let parent = self.directory(record.fid1)?;
        let victim = self.inode(child.fid)?;
        let directory = (parent.fid, &parent.attributes);
        caller.may_remove(&*self.store, directory, &victim.attributes)?;
        check_unlink_kind(is_rmdir, &victim)?;
        if is_rmdir && !self.is_empty(victim.fid)? {
            return Err(Errno::ENOTEMPTY);
        }
        let _parent_lock = locks::change_directory(context, parent.fid).await?;
        let _lock = locks::lose_name(context, &victim).await?;
        let now = Timestamp::from_seconds(record.time);
        let mut changes = self.change_set();
        changes.remove_name(&parent, &victim, &name, now)?;
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(Outcome::ok(self.unlinked(&victim)))
    }

    /// Holds a name, its directory, and the inode it stands for.
    pub(crate) async fn hold_entry(
        &self,
        parent: Fid,
        name: &Name,
    ) -> Result<(HoldGuard<'_>, Child), Errno> {
        let names = [WantedName::removed(parent, name)];
        let held = self.hold(Wanted::of_names(&names)).await?;
        let child = held.child(0).ok_or(Errno::ENOENT)?;
        Ok((held, child))
    }

    pub(crate) fn unlinked(&self, victim: &Inode) -> MdsReintUnlinkReply {
        let mut gone = victim.clone();
        let links = &mut gone.attributes.links;
        *links = if victim.is_directory() { 0 } else { links.saturating_sub(1) };
        let mdt_body = Some(self.body(&gone, true));
        MdsReintUnlinkReply { mdt_body, ..MdsReintUnlinkReply::default() }
    }
}

impl ChangeSet<'_> {
    /// A name goes, which stands for `victim`.
    pub(crate) fn remove_name(
        &mut self,
        parent: &Inode,
        victim: &Inode,
        name: &Name,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.delete_name(parent.fid, name);
        self.touch(parent.fid, now, -i32::from(victim.is_directory()));
        self.lose_name(victim, (parent.fid, name), now)
    }

    /// An inode loses one of its names.
    pub(crate) fn lose_name(
        &mut self,
        inode: &Inode,
        name: (Fid, &Name),
        now: Timestamp,
    ) -> Result<(), Errno> {
        match inode.has_one_name() {
            true => self.lose_last_name(inode),
            false => self.relink(inode.fid, now, Some(name), None),
        }
    }
}
