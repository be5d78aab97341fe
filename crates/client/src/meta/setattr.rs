//! Changing attributes: one `MDS_REINT` (setattr). The data path changes the objects.

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, InodeBits, Timestamp};
use sheen_wire::md::{AttrValid, Bias, FileFlags, RecSetattr, ReintOp};
use sheen_wire::messages::MdsReintSetattr;

use super::{ACL_ROOM, Meta};
use crate::cache::{CacheEpoch, Inode, ReplyAttributes};
use crate::call;
use crate::data::{NewTimes, UpdatedTimes};
use crate::types::{Credentials, FileType, SetAttributes, SetTime};

/// By what right attributes are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetattrRight {
    /// By the inode's mode.
    Mode,
    /// As part of an open that truncates: the MDT has checked the open.
    Open,
    /// By a handle open for writing: its owner may, whatever the mode says now.
    Handle,
}

impl Meta {
    /// Changes attributes at time `now`. One RPC.
    pub(crate) async fn setattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        changes: &SetAttributes,
        now: Timestamp,
        right: SetattrRight,
    ) -> Result<(), Errno> {
        let mut record = setattr_record(who, inode, changes, now);
        match right {
            SetattrRight::Mode => {}
            SetattrRight::Open => record.valid |= AttrValid::FROM_OPEN | AttrValid::OVERRIDE,
            SetattrRight::Handle => record.valid |= AttrValid::OVERRIDE,
        }
        let keeps_locks = self.mdt(inode.fid).await?.keeps_own_attributes();
        let updated = self.update_times(inode, changes, now).await?;
        // The MDT changes those of all stripes with it.
        let stripes = self.cache.inodes.stripes_of(inode);
        for stripe in &stripes {
            // Their attributes are asked for again, as no answer to this has them.
            _ = stripe.state().begin_own_change();
        }
        let sent = match keeps_locks && is_learnt_from_answer(inode, changes) {
            true => self.send_own_change(who, inode, record).await,
            false => self.send_setattr(who, inode, record, Bytes::new(), bits_of(changes)).await,
        };
        stripes.iter().for_each(|stripe| stripe.state().end_own_change());
        if let (Err(_), Some(updated)) = (&sent, updated) {
            updated.undo();
        }
        sent
    }

    /// Sends a change of which the answer says all, under locks on the inode that stay. What the kernel has of the attributes
    /// is invalidated before: another client may have seen the change before the answer is here.
    async fn send_own_change(
        &self,
        who: &Credentials,
        inode: &Inode,
        rec_reint: RecSetattr,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let (asked, had_attributes) = {
            let mut state = inode.state();
            let had_attributes = state.attributes_covered();
            (state.begin_own_change(), had_attributes)
        };
        if had_attributes {
            self.cache.kernel_cache.invalidate_attributes_but_size(inode.node()).await;
        }
        let request = MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() };
        let call =
            who.sign(Call::modifying(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let answer = call::call::<MdsReintSetattr>(&*mdt.channel, call).await;
        inode.state().end_own_change();
        let answer = answer?;
        self.note_changed(&mdt, answer.body.transno, &[inode]);
        // A reply that was rebuilt has no access control list: it counts as a guess.
        if let Some(body) = answer.reply.mdt_body {
            let none = Bytes::new();
            let attributes = ReplyAttributes { body: &body, layout: &none, acl: &answer.reply.acl };
            inode.apply_own_change(&attributes, &asked);
        }
        Ok(())
    }

    /// Gives data that is still to be written to the MDT the times that are set now.
    async fn update_times(
        &self,
        inode: &Inode,
        changes: &SetAttributes,
        now: Timestamp,
    ) -> Result<Option<UpdatedTimes>, Errno> {
        if changes.atime.is_none() && changes.mtime.is_none() {
            return Ok(None);
        }
        let at = |time: Option<SetTime>| time.map(|time| resolve(time, now));
        let (atime, mtime) = (at(changes.atime), at(changes.mtime));
        let times = NewTimes { atime, mtime, ctime: changes.ctime.unwrap_or(now) };
        Ok(self.mdt(inode.fid).await?.data.update_times(inode.fid, times))
    }

    /// Sends a setattr with an extended attribute (a directory's default layout) in it.
    pub(super) async fn send_setattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        rec_reint: RecSetattr,
        eadata: Bytes,
        bits: InodeBits,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let stripes = self.cache.inodes.stripes_of(inode);
        let mut wanted = vec![(inode, bits)];
        wanted.extend(stripes.iter().map(|stripe| (&***stripe, bits)));
        let dlm_req = self.cancel_early(&mdt, &wanted).await;
        let request = MdsReintSetattr { rec_reint, eadata, dlm_req, ..MdsReintSetattr::default() };
        let call =
            who.sign(Call::modifying(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let answer = call::call::<MdsReintSetattr>(&*mdt.channel, call).await?;
        self.note_changed(&mdt, answer.body.transno, &[inode]);
        if let Some(body) = answer.reply.mdt_body {
            let attributes =
                ReplyAttributes { body: &body, layout: &Bytes::new(), acl: &answer.reply.acl };
            inode.apply_reply(&attributes, None, &CacheEpoch::UNKNOWN);
        }
        Ok(())
    }
}

/// Whether the answer says all that becomes of the inode, so that its locks may stay; the MDT judges alike
/// (`mds::reint::setattr`).
fn is_learnt_from_answer(inode: &Inode, changes: &SetAttributes) -> bool {
    let says_more = changes.size.is_some() || changes.flags.is_some();
    let is_directory = inode.file_type().is_none_or(|kind| kind == FileType::Directory);
    !(says_more || is_directory && changes_rights(changes))
}

fn changes_rights(changes: &SetAttributes) -> bool {
    let SetAttributes { mode, uid, gid, kill_set_id, .. } = changes;
    mode.is_some() || uid.is_some() || gid.is_some() || *kill_set_id
}

/// What it touches, of an inode whose locks are given up for it.
fn bits_of(changes: &SetAttributes) -> InodeBits {
    match changes_rights(changes) {
        true => InodeBits::UPDATE | InodeBits::LOOKUP | InodeBits::PERM,
        false => InodeBits::UPDATE,
    }
}

/// The record without any change in it.
pub(super) fn blank_record(who: &Credentials, inode: &Inode) -> RecSetattr {
    RecSetattr {
        opcode: ReintOp::SETATTR,
        cap: who.capabilities(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid: who.group_for(inode, May::WRITE),
        fid: inode.fid,
        ..RecSetattr::default()
    }
}

fn setattr_record(
    who: &Credentials,
    inode: &Inode,
    changes: &SetAttributes,
    now: Timestamp,
) -> RecSetattr {
    let mut record = blank_record(who, inode);
    // Every time that changes is ours, so that MDT and OSTs agree on it.
    record.valid = AttrValid::CTIME | AttrValid::CTIME_SET;
    record.ctime = changes.ctime.unwrap_or(now).seconds;
    if let Some(mode) = changes.mode {
        record.valid |= AttrValid::MODE;
        let kind = inode.file_type().map_or(0, |kind| kind.mode_bits());
        record.mode = kind | mode & 0o7777;
    }
    if let Some(uid) = changes.uid {
        record.valid |= AttrValid::UID;
        record.uid = uid;
    }
    if let Some(gid) = changes.gid {
        record.valid |= AttrValid::GID;
        record.gid = gid;
        if who.is_in_group(gid) {
            record.suppgid = gid;
        }
    }
    if let Some(flags) = changes.flags {
        record.valid |= AttrValid::ATTR_FLAG;
        // The MDT lets flags of what is frozen change only by themselves, as at its own time.
        record.valid = record.valid.without(AttrValid::CTIME_SET);
        record.attr_flags = FileFlags(flags);
    }
    if let Some(size) = changes.size {
        record.valid |= AttrValid::SIZE;
        record.size = size;
        record.bias = Bias::DATA_MODIFIED;
    }
    if changes.kill_set_id {
        record.valid |= AttrValid::KILL_SUID;
        // Of the caller's groups the request names one, which may be another.
        let state = inode.state();
        let known = state.last_attributes();
        if known.is_none_or(|known| !who.keeps_group_id(known.mode, known.gid)) {
            record.valid |= AttrValid::KILL_SGID;
        }
    }
    // A time of ones own choice is marked as such: a user with only write permission may only set the current
    // time, and gets another errno for that.
    let chosen = |time: SetTime, flag| match time {
        SetTime::To(_) => flag,
        SetTime::Now => AttrValid::NONE,
    };
    if let Some(atime) = changes.atime {
        record.valid |= AttrValid::ATIME | chosen(atime, AttrValid::ATIME_SET);
        record.atime = resolve(atime, now).seconds;
    }
    let truncated = changes.size.map(|_| SetTime::Now);
    if let Some(mtime) = changes.mtime.or(truncated) {
        record.valid |= AttrValid::MTIME | chosen(mtime, AttrValid::MTIME_SET);
        record.mtime = resolve(mtime, now).seconds;
    }
    record
}

/// The time that is meant.
pub(crate) fn resolve(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    }
}
