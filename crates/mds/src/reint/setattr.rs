//! chmod, chown, utimes, truncate's part on the MDT, inode flags, and a directory's default layout.

use bytes::Bytes;
use sheen_layout::plan::Plan;
use sheen_store::AttributePatch;
use sheen_target::{Context, Outcome, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Timestamp};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::lmv::{self, LmvMagic};
use sheen_wire::lov::LovMagic;
use sheen_wire::md::{AttrValid, Bias, FileFlags, MdsOpenFlags, MdtBody, PosixAcl, RecSetattr};
use sheen_wire::messages::{MdsReintSetattr, MdsReintSetattrReply};

use crate::answer::add_acl;
use crate::caller::{Caller, Capability, May, access_list};
use crate::change_set::ChangeSet;
use crate::coordinator::StripedChange;
use crate::hold::HoldGuard;
use crate::inode::Inode;
use crate::placement::Owner;
use crate::striped::new_default_stripes;
use crate::vouched_sizes::SizeRecord;
use crate::{Mdt, dot_lustre, layouts, locks, xattrs};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;
/// Inode flags that users may set.
const FLAGS_SETTABLE: FileFlags = FileFlags(
    FileFlags::SYNC.0
        | FileFlags::IMMUTABLE.0
        | FileFlags::APPEND.0
        | FileFlags::NODUMP.0
        | FileFlags::NOATIME.0
        | FileFlags::DIRSYNC.0
        | FileFlags::TOPDIR.0
        | FileFlags::PROJINHERIT.0,
);

impl Mdt {
    /// Changes attributes.
    pub(crate) async fn setattr(
        &self,
        context: &Context,
        request: &MdsReintSetattr,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            let mdt_body = self.inode(record.fid).map(|inode| self.body(&inode, true)).ok();
            return self
                .replay_done(context, MdsReintSetattrReply { mdt_body, ..Default::default() });
        }
        if !request.eadata.is_empty() {
            dot_lustre::refuse_dot_lustre(record.fid)?;
            if says_stripes(&request.eadata) && context.replay().is_none() {
                self.check_default_stripes(context, record, &request.eadata).await?;
            }
        }
        let stripes = self.stripes_to_change_now(context, record.fid)?;
        if !stripes.is_empty() {
            return self.setattr_striped(context, request, &stripes).await;
        }
        let held = self.hold_inodes(&[record.fid]).await;
        let inode = self.inode(record.fid)?;
        if inode.is_directory() && context.replay().is_none() {
            // It may have become a stripe before it was held.
            self.stripes_to_change_now(context, inode.fid)?;
        }
        if record.valid == AttrValid::NONE && !request.eadata.is_empty() {
            return self.set_default_layout(context, &held, request, &inode).await;
        }
        if record.valid.contains(AttrValid::SIZE) {
            // A caller that may not cut the file does not make clients close it that keep it open
            // either.
            self.patch_of(record, &inode)?;
            if inode.is_regular() {
                layouts::refuse_unknown_overstriping(context, self.layout(&inode)?.as_ref())?;
            }
            self.revoke_conflicting_opens(&context.target, inode.fid, MdsOpenFlags::WRITE).await?;
            self.end_lease_of_truncated(context, record).await?;
            if self.open_counts.is_executed(inode.fid) {
                return Err(Errno::ETXTBSY);
            }
        }
        let patch = self.patch_of(record, &inode)?;
        let bits = changed_bits(&patch);
        if record.valid.intersects(AttrValid::SIZE | AttrValid::BLOCKS) {
            self.known_empty.remove(inode.fid);
            self.open_counts.note_written(inode.fid);
        }
        if record.valid.contains(AttrValid::SIZE) {
            self.note_truncate(context, record);
        }
        if record.valid.intersects(AttrValid::ATIME | AttrValid::MTIME) {
            self.note_times(context, inode.fid);
        }
        let is_corrected = is_corrected_by_client(context, record, &inode);
        let _lock = locks::change_attributes(context, inode.fid, bits, is_corrected).await?;
        let mut changes = self.change_set();
        add_owner(&mut changes, &inode, &patch)?;
        add_size(&mut changes, &inode, record)?;
        if let Some(permissions) = patch.permissions {
            add_list(&mut changes, &inode, permissions)?;
        }
        changes.patch(inode.fid, patch);
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(self.setattr_done(context, inode.fid))
    }

    /// The answer to a change of attributes.
    fn setattr_done(&self, context: &Context, fid: Fid) -> Outcome {
        // It is done: where the disk fails to say what has become of the inode, the answer has no
        // attributes.
        let (mdt_body, acl) = self.changed_attributes(context, fid).unwrap_or_default();
        let mdt_body = Some(mdt_body);
        Outcome::ok(MdsReintSetattrReply { mdt_body, acl, ..Default::default() })
    }

    /// Sets attributes of a directory with stripes, which all change.
    async fn setattr_striped(
        &self,
        context: &Context,
        request: &MdsReintSetattr,
        stripes: &[Fid],
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        let sets_default = record.valid == AttrValid::NONE && !request.eadata.is_empty();
        let change = |inode: &Inode| match sets_default {
            true => {
                let default = self.new_default(request, inode)?;
                let (patch, bits) = (AttributePatch::default(), bits_of_default(default.0));
                Ok(Some(StripedChange { patch, xattrs: vec![default], bits }))
            }
            false => self.attributes_change(record, inode),
        };
        self.change_striped(context, (record.fid, stripes), change).await?;
        Ok(self.setattr_done(context, record.fid))
    }

    fn attributes_change(
        &self,
        record: &RecSetattr,
        inode: &Inode,
    ) -> Result<Option<StripedChange>, Errno> {
        let patch = self.patch_of(record, inode)?;
        if patch == AttributePatch::default() {
            return Ok(None);
        }
        let list = match patch.permissions {
            Some(permissions) => new_list(self, inode, permissions)?,
            None => None,
        };
        let xattrs = list.map(|list| (xattrs::ACL_ACCESS, Some(list))).into_iter().collect();
        let bits = changed_bits(&patch);
        Ok(Some(StripedChange { patch, xattrs, bits }))
    }

    /// A file that is cut has no lease any more, unless its holder cuts it.
    async fn end_lease_of_truncated(
        &self,
        context: &Context,
        record: &RecSetattr,
    ) -> Result<(), Errno> {
        let keeps = record.bias.contains(Bias::TRUNC_KEEP_LEASE);
        if !keeps && self.open_counts.is_leased(record.fid) {
            drop(context.target.lock_inode(record.fid, InodeBits::OPEN, LockMode::Cw).await?);
        }
        Ok(())
    }

    /// What has become of an inode; with its access control list for a client whose locks on it stay.
    fn changed_attributes(&self, context: &Context, fid: Fid) -> Result<(MdtBody, Bytes), Errno> {
        let inode = self.inode(fid)?;
        let mut body = self.body(&inode, self.layout(&inode)?.is_some());
        if !context.has2(ConnectFlags2::OWN_ATTRIBUTES) {
            return Ok((body, Bytes::new()));
        }
        let list = self.store.xattr(fid, xattrs::ACL_ACCESS).map_err(store_errno)?;
        let acl = add_acl(context, list.unwrap_or_default(), &mut body);
        Ok((body, acl))
    }

    /// What changes, after all checks (`mdd_fix_attr`): each bit of `valid` is judged, alone and beside any
    /// other bits. Only a server may claim that no check is needed (`MDS_PERM_BYPASS`); from a client it is
    /// ignored.
    fn patch_of(&self, record: &RecSetattr, inode: &Inode) -> Result<AttributePatch, Errno> {
        let caller = Caller::from(record);
        let attributes = &inode.attributes;
        let valid = record.valid;
        let has = |flag: AttrValid| valid.contains(flag);
        let mut patch = AttributePatch::default();
        let frozen = FileFlags::IMMUTABLE | FileFlags::APPEND;
        let besides_flags = valid.without(AttrValid::ATTR_FLAG | AttrValid::CTIME);
        let only_flags = has(AttrValid::ATTR_FLAG) && besides_flags == AttrValid::NONE;
        if attributes.flags & frozen.0 != 0 && !only_flags {
            return Err(Errno::EPERM);
        }
        if has(AttrValid::ATTR_FLAG) {
            patch.flags = Some(flags(&caller, record, inode)?);
        }
        self.may_set_times(&caller, record, inode)?;
        self.may_take_set_id(&caller, record, inode)?;
        if has(AttrValid::PROJID) && record.projid != attributes.project {
            if !caller.can(Capability::SysResource) {
                caller.may(&*self.store, inode.fid, attributes, May::WRITE)?;
            }
            patch.project = Some(record.projid);
        }
        (patch.uid, patch.gid) = owner(&caller, record, inode)?;
        let gid = patch.gid.unwrap_or(attributes.gid);
        patch.permissions = permissions(&caller, record, inode, gid)?;
        if valid.intersects(AttrValid::SIZE | AttrValid::BLOCKS) {
            let overrides = record.bias.contains(Bias::OWNEROVERRIDE) || has(AttrValid::OVERRIDE);
            let is_theirs = overrides && caller.uid == attributes.uid;
            // Clients of Lustre say blocks in a chgrp, which a file that may only be read allows its owner.
            let is_chgrp =
                patch.gid.is_some_and(|gid| gid != attributes.gid) && !has(AttrValid::SIZE);
            let may = if is_chgrp && inode.is_regular() { May::READ } else { May::WRITE };
            if !is_theirs {
                caller.may(&*self.store, inode.fid, attributes, may)?;
            }
        }
        let time = |flag, asked: i64| has(flag).then(|| Timestamp::from_seconds(asked));
        patch.accessed = time(AttrValid::ATIME, record.atime);
        patch.modified = time(AttrValid::MTIME, record.mtime);
        // A client's clock may be behind another's: the change time does not go back for that.
        let changed = time(AttrValid::CTIME, record.ctime);
        patch.changed = changed.map(|asked| asked.max(attributes.changed));
        Ok(patch)
    }

    /// The owner may set any time, and so may a caller who may write: real clients mark the time of now as a
    /// chosen one, too. Besides a change that is judged by itself, times need no more than that; further flags
    /// of the client (that it forces them, or takes set-id bits) save them from no check. The change time is
    /// one of them: no client sends it alone but after a rename between MDTs, and it only moves forward.
    fn may_set_times(
        &self,
        caller: &Caller,
        record: &RecSetattr,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let chosen = AttrValid::ATIME_SET | AttrValid::MTIME_SET;
        let times = AttrValid::ATIME | AttrValid::MTIME | AttrValid::CTIME;
        if !record.valid.intersects(times)
            || has_judged_change(record)
            || caller.owns(&inode.attributes)
        {
            return Ok(());
        }
        let may = caller.may(&*self.store, inode.fid, &inode.attributes, May::WRITE);
        match record.valid.intersects(chosen) && may.is_err() {
            true => Err(Errno::EPERM),
            false => may,
        }
    }

    /// Set-id bits are cleared by the owner, and by a caller who may write: its write clears them.
    fn may_take_set_id(
        &self,
        caller: &Caller,
        record: &RecSetattr,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let kills = record.valid.intersects(AttrValid::KILL_SUID | AttrValid::KILL_SGID);
        let has_some = inode.attributes.permissions & (SET_UID | SET_GID) != 0;
        let kills = kills && has_some && !has_judged_change(record);
        let takes = only_takes_set_id(record, inode.attributes.permissions);
        if !kills && !takes || caller.owns(&inode.attributes) {
            return Ok(());
        }
        let may = caller.may(&*self.store, inode.fid, &inode.attributes, May::WRITE);
        may.map_err(|_| Errno::EPERM)
    }

    /// `lfs setstripe` of a directory.
    async fn set_default_layout(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        request: &MdsReintSetattr,
        inode: &Inode,
    ) -> Result<Outcome, Errno> {
        let (name, value) = self.new_default(request, inode)?;
        let mut changes = self.change_set();
        match value {
            Some(value) => changes.set_xattr(inode.fid, name, value),
            None => changes.remove_xattr(inode.fid, name),
        }
        let bits = bits_of_default(name);
        let _lock = context.target.lock_inode(inode.fid, bits, LockMode::Pw).await?;
        self.execute(context, held, changes, ReplyRecording::Done)?;
        let mdt_body = Some(self.body(inode, false));
        Ok(Outcome::ok(MdsReintSetattrReply { mdt_body, ..Default::default() }))
    }

    /// The default that a directory gets, and as which extended attribute; without a value it is removed.
    fn new_default(
        &self,
        request: &MdsReintSetattr,
        inode: &Inode,
    ) -> Result<(&'static str, Option<Bytes>), Errno> {
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let caller = Caller::from(&request.rec_reint);
        if says_stripes(&request.eadata) {
            let frozen = FileFlags::IMMUTABLE | FileFlags::APPEND;
            if !caller.owns(&inode.attributes) || inode.attributes.flags & frozen.0 != 0 {
                return Err(Errno::EPERM);
            }
            let default = new_default_stripes(&request.eadata)?;
            return Ok((xattrs::DEFAULT_LMV, default));
        }
        let magic = LovMagic::decode(&mut Reader::new(&request.eadata, ByteOrder::Little));
        let plain = [LovMagic::V1, LovMagic::V3, LovMagic::SPECIFIC];
        if !magic.is_ok_and(|magic| magic == LovMagic::COMP_V1 || plain.contains(&magic)) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !caller.owns(&inode.attributes) {
            return Err(Errno::EPERM);
        }
        let layout = self.new_default_layout(inode.fid, Plan::parse(&request.eadata)?)?;
        Ok((xattrs::LOV, layout))
    }
}

/// Whether a default is one of directories' stripes.
fn says_stripes(default: &Bytes) -> bool {
    matches!(lmv::magic_of(default), Some(LmvMagic::USER | LmvMagic::STRIPE))
}

/// What clients keep of a default of a directory: that of its directories' stripes comes with its attributes.
fn bits_of_default(name: &str) -> InodeBits {
    match name {
        xattrs::DEFAULT_LMV => InodeBits::XATTR | InodeBits::LOOKUP | InodeBits::UPDATE,
        _ => InodeBits::XATTR,
    }
}

/// What clients keep of what a change of attributes changes.
fn changed_bits(patch: &AttributePatch) -> InodeBits {
    let mut bits = InodeBits::UPDATE;
    if patch.permissions.is_some() || patch.uid.is_some() || patch.gid.is_some() {
        bits = bits | InodeBits::PERM;
    }
    if patch.project.is_some() {
        bits = bits | InodeBits::XATTR;
    }
    if patch.flags.is_some() {
        // They decide what may be opened, and clients that keep files open look at modes alone.
        bits = bits | InodeBits::OPEN;
    }
    bits
}

/// Whether the client that asks for a change learns all of it from the answer, so that its own locks may stay. What
/// else a change touches under these locks is not in it: bytes and layout of a file that is cut, open files
/// and projects that flags and identities decide about. Nor are the names in a directory, which users may use or not
/// by its mode.
fn is_corrected_by_client(context: &Context, record: &RecSetattr, inode: &Inode) -> bool {
    let times = AttrValid::ATIME | AttrValid::MTIME | AttrValid::CTIME;
    let chosen = AttrValid::ATIME_SET | AttrValid::MTIME_SET | AttrValid::CTIME_SET;
    let mode = AttrValid::MODE | AttrValid::KILL_SUID | AttrValid::KILL_SGID;
    let rights = mode | AttrValid::UID | AttrValid::GID;
    let corrected = if inode.is_directory() { AttrValid::NONE } else { rights };
    let by_right = AttrValid::FROM_OPEN | AttrValid::OVERRIDE | AttrValid::FORCE;
    let further = record.valid.without(times | chosen | corrected | by_right);
    context.has2(ConnectFlags2::OWN_ATTRIBUTES) && further == AttrValid::NONE
}

/// Adds that the objects of a file get its new owner.
fn add_owner(
    changes: &mut ChangeSet<'_>,
    inode: &Inode,
    patch: &AttributePatch,
) -> Result<(), Errno> {
    let old = &inode.attributes;
    let is_new = |given: Option<u32>, old: u32| given.is_some_and(|given| given != old);
    let is_changed = is_new(patch.uid, old.uid)
        || is_new(patch.gid, old.gid)
        || is_new(patch.project, old.project);
    if is_changed && let Some(layout) = changes.mdt.layout(inode)? {
        let owner = Owner {
            uid: patch.uid.unwrap_or(inode.attributes.uid),
            gid: patch.gid.unwrap_or(inode.attributes.gid),
            project: patch.project.unwrap_or(inode.attributes.project),
        };
        changes.set_owner_of_objects(&layout, owner);
    }
    Ok(())
}

/// Adds that the access control list, if there is one, says what the new mode says.
fn add_list(changes: &mut ChangeSet<'_>, inode: &Inode, permissions: u32) -> Result<(), Errno> {
    if let Some(list) = new_list(changes.mdt, inode, permissions)? {
        changes.set_xattr(inode.fid, xattrs::ACL_ACCESS, list);
    }
    Ok(())
}

/// The access control list of an inode, if it has one, with a new mode.
fn new_list(mdt: &Mdt, inode: &Inode, permissions: u32) -> Result<Option<Bytes>, Errno> {
    let list = access_list(&*mdt.store, inode.fid)?;
    Ok(list.map(|list| PosixAcl::from(&list.with_mode(permissions)).encode()))
}

/// Adds what a truncate says of the size: clients cut the objects, we only remember.
fn add_size(changes: &mut ChangeSet<'_>, inode: &Inode, record: &RecSetattr) -> Result<(), Errno> {
    let is_cut = inode.is_regular() && record.valid.contains(AttrValid::SIZE);
    if is_cut && !changes.mdt.is_all_here(inode)? {
        let hint = SizeRecord::lazy(record.size, record.size.div_ceil(512));
        changes.set_xattr(inode.fid, xattrs::SOM, hint.encode());
    }
    Ok(())
}

/// Whether the mode is that of before without set-id bits, as a write or a cut leaves it. Lustre believes a client that
/// says so that no right is needed (`MDS_ATTR_FORCE`); here it is the right to write.
fn only_takes_set_id(record: &RecSetattr, old: u32) -> bool {
    let forced = record.valid.contains(AttrValid::FORCE | AttrValid::MODE);
    let taken = old & !record.mode & (SET_UID | SET_GID);
    forced && record.mode & 0o7777 == old & !taken
}

/// Whether a request changes what it needs a right for besides, at least that to write. An owner of -1 is
/// the one that is: it needs the same right as any other.
fn has_judged_change(record: &RecSetattr) -> bool {
    let judged = AttrValid::SIZE | AttrValid::MODE | AttrValid::UID | AttrValid::GID;
    record.valid.intersects(judged | AttrValid::ATTR_FLAG)
}

fn flags(caller: &Caller, record: &RecSetattr, inode: &Inode) -> Result<u32, Errno> {
    if !caller.owns(&inode.attributes) {
        return Err(Errno::EPERM);
    }
    let old = inode.attributes.flags;
    let new = old & !FLAGS_SETTABLE.0 | record.attr_flags.0 & FLAGS_SETTABLE.0;
    let guarded = FileFlags::IMMUTABLE | FileFlags::APPEND;
    match (old ^ new) & guarded.0 != 0 && !caller.can(Capability::LinuxImmutable) {
        true => Err(Errno::EPERM),
        false => Ok(new),
    }
}

/// The new owner and group, where they are named; -1 names those that are. Judged in any case: naming them
/// takes set-id bits.
fn owner(
    caller: &Caller,
    record: &RecSetattr,
    inode: &Inode,
) -> Result<(Option<u32>, Option<u32>), Errno> {
    let attributes = &inode.attributes;
    let named = |flag, id: u32, known: u32| {
        record.valid.contains(flag).then_some(if id == u32::MAX { known } else { id })
    };
    let uid = named(AttrValid::UID, record.uid, attributes.uid);
    let gid = named(AttrValid::GID, record.gid, attributes.gid);
    let may_all = caller.can(Capability::Chown);
    let is_owner = caller.uid == attributes.uid;
    if uid.is_some_and(|uid| !may_all && (!is_owner || uid != attributes.uid)) {
        return Err(Errno::EPERM);
    }
    let may_give = |gid| gid == attributes.gid || caller.is_in_group(gid);
    if gid.is_some_and(|gid| !may_all && (!is_owner || !may_give(gid))) {
        return Err(Errno::EPERM);
    }
    Ok((uid, gid))
}

/// The new permission bits: as asked for, and without set-id bits that must not outlive a change.
fn permissions(
    caller: &Caller,
    record: &RecSetattr,
    inode: &Inode,
    gid: u32,
) -> Result<Option<u32>, Errno> {
    let has = |flag: AttrValid| record.valid.contains(flag);
    let old = inode.attributes.permissions;
    let mut new = old;
    if has(AttrValid::MODE) {
        if !caller.owns(&inode.attributes) && !only_takes_set_id(record, old) {
            return Err(Errno::EPERM);
        }
        new = record.mode & 0o7777;
        if !caller.is_in_group(gid) && !caller.can(Capability::SetId) {
            new &= !SET_GID;
        }
    }
    let runs_as_group = |mode| mode & (SET_GID | GROUP_EXEC) == SET_GID | GROUP_EXEC;
    if has(AttrValid::KILL_SUID) {
        new &= !SET_UID;
    }
    // As Linux since 6.2: without group execution it stays for members of the group alone.
    let is_member = caller.is_in_group(inode.attributes.gid) || caller.can(Capability::SetId);
    let is_taken = runs_as_group(old) || !is_member && !inode.is_directory();
    if has(AttrValid::KILL_SGID) && is_taken {
        new &= !SET_GID;
    }
    if !inode.is_directory() {
        if has(AttrValid::UID) {
            new &= !SET_UID;
        }
        if has(AttrValid::GID) && runs_as_group(old) {
            new &= !SET_GID;
        }
    }
    Ok((new != old || has(AttrValid::MODE)).then_some(new))
}
