//! Setting and removing extended attributes.

use bytes::Bytes;
use sheen_layout::directory::DirectoryWish;
use sheen_layout::plan::Plan;
use sheen_store::{AttributePatch, Attributes, FileKind, Xattrs};
use sheen_target::{Context, Outcome, ReplyRecording, store_errno};
use sheen_types::access::AccessList;
use sheen_types::limits::{
    XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX,
};
use sheen_types::{Errno, InodeBits, LockMode, Timestamp};
use sheen_wire::lmv::{self, LmvMagic};
use sheen_wire::md::{RecSetxattr, Valid};
use sheen_wire::messages::{MdsReintSetxattr, MdsReintSetxattrReply};

use crate::caller::{Caller, Capability, May, parse_list};
use crate::coordinator::StripedChange;
use crate::hold::HoldGuard;
use crate::inode::Inode;
use crate::layouts::LayoutChange;
use crate::striped::parse_wish;
use crate::{Mdt, dot_lustre, xattrs};

const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const STICKY: u32 = 0o1000;
const SET_GID: u32 = 0o2000;

impl Mdt {
    /// Sets or removes one extended attribute.
    pub(crate) async fn setxattr(
        &self,
        context: &Context,
        request: &MdsReintSetxattr,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            return self.replay_done(context, done_reply());
        }
        let name = request.name.as_ref().ok_or(Errno::EPROTO)?;
        let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::EOPNOTSUPP)?;
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Errno::ERANGE);
        }
        let removes = record.valid.contains(Valid::XATTRRM);
        if !removes && request.eadata.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        if name == xattrs::LMV
            && let Some(wish) = wish_of_end(removes, &request.eadata)?
        {
            dot_lustre::refuse_dot_lustre(record.fid)?;
            return self.end_change(context, record, &wish).await;
        }
        if xattrs::is_reserved(name) {
            return ignore_reserved(&Caller::from(record));
        }
        let value = (!removes).then(|| request.eadata.clone());
        dot_lustre::refuse_dot_lustre(record.fid)?;
        if let Some(shared) = shared_with_stripes(name) {
            let stripes = self.stripes_to_change_now(context, record.fid)?;
            if !stripes.is_empty() {
                let names = (name, shared);
                let change = |inode: &Inode| self.striped_change(record, inode, names, &value);
                self.change_striped(context, (record.fid, &stripes), change).await?;
                return Ok(Outcome::ok(done_reply()));
            }
        }
        let held = self.hold_inodes(&[record.fid]).await;
        let inode = self.inode(record.fid)?;
        if inode.is_directory() && context.replay().is_none() {
            // It may have become a stripe before it was held.
            self.stripes_to_change_now(context, inode.fid)?;
        }
        let caller = Caller::from(record);
        self.may_set(&caller, &inode, name, removes)?;
        // Its owner would give a program what root may. To take it from there is the owner's right: a kernel does so
        // when the owner writes the file.
        let gives_capabilities = name == xattrs::CAPABILITY && !removes;
        if gives_capabilities && !caller.can(Capability::SetFileCapabilities) {
            return Err(Errno::EPERM);
        }
        if matches!(name, xattrs::LUSTRE_LOV | xattrs::LOV) {
            return self.set_layout(context, &held, &inode, value).await;
        }
        if let Some(change) = LayoutChange::of(name)? {
            let value = value.ok_or(Errno::EINVAL)?;
            self.change_layout(context, &held, &inode, change, &value).await?;
            return Ok(Outcome::ok(done_reply()));
        }
        match self.is_change(&inode, (name, &value), record)? {
            true => self.apply_xattr(context, &held, &inode, (name, value), record).await,
            false => Ok(Outcome::ok(done_reply())),
        }
    }

    /// Ends the migration of a directory, as `lfs migrate` asks for it.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for who may not choose MDTs, those of [`Mdt::end_migration`].
    async fn end_change(
        &self,
        context: &Context,
        record: &RecSetxattr,
        wish: &DirectoryWish,
    ) -> Result<Outcome, Errno> {
        let settings = [("enable_dir_migration", self.migrates_directories())];
        self.check_choice(context, &Caller::from(record), "the end of a migration", &settings)?;
        self.end_migration(context, record.fid, wish).await?;
        Ok(Outcome::ok(done_reply()))
    }

    /// Whether there is something to change.
    ///
    /// # Errors
    /// [`Errno::ENODATA`], [`Errno::EEXIST`], [`Errno::ENOSPC`].
    fn is_change(
        &self,
        inode: &Inode,
        (name, value): (&str, &Option<Bytes>),
        record: &RecSetxattr,
    ) -> Result<bool, Errno> {
        let all = self.store.whole(inode.fid).map_err(store_errno)?.xattrs;
        let old = all.get(name);
        let is_list = matches!(name, xattrs::ACL_ACCESS | xattrs::ACL_DEFAULT);
        match (&old, value.is_none()) {
            // There is nothing to take, as on other file systems of Linux (and so Lustre's MDT on ldiskfs).
            (None, true) if is_list => return Ok(false),
            (None, true) => return Err(Errno::ENODATA),
            (Some(_), false) if record.flags & CREATE != 0 => return Err(Errno::EEXIST),
            (None, false) if record.flags & REPLACE != 0 => return Err(Errno::ENODATA),
            _ => {}
        }
        if let Some(value) = value {
            check_room(&all, name, value)?;
        }
        Ok(true)
    }

    /// What changes of a directory with stripes, and of these.
    fn striped_change(
        &self,
        record: &RecSetxattr,
        inode: &Inode,
        (asked, name): (&str, &'static str),
        value: &Option<Bytes>,
    ) -> Result<Option<StripedChange>, Errno> {
        self.may_set(&Caller::from(record), inode, asked, value.is_none())?;
        if name == xattrs::LOV {
            let plan = value.as_ref().map(Plan::parse).transpose()?.unwrap_or_default();
            let layout = self.new_default_layout(inode.fid, plan)?;
            let (patch, bits) = (AttributePatch::default(), InodeBits::XATTR | InodeBits::LAYOUT);
            return Ok(Some(StripedChange { patch, xattrs: vec![(name, layout)], bits }));
        }
        if !self.is_change(inode, (name, value), record)? {
            return Ok(None);
        }
        let (patch, stored, bits) = changed_xattr(inode, (name, value.clone()), record)?;
        Ok(Some(StripedChange { patch, xattrs: vec![(name, stored)], bits }))
    }

    async fn apply_xattr(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        inode: &Inode,
        (name, value): (&str, Option<Bytes>),
        record: &RecSetxattr,
    ) -> Result<Outcome, Errno> {
        let (patch, stored, bits) = changed_xattr(inode, (name, value), record)?;
        let _lock = context.target.lock_inode(inode.fid, bits, LockMode::Pw).await?;
        let mut changes = self.change_set();
        match stored {
            Some(value) => changes.set_xattr(inode.fid, name, value),
            None => changes.remove_xattr(inode.fid, name),
        }
        changes.patch(inode.fid, patch);
        self.execute(context, held, changes, ReplyRecording::Done)?;
        Ok(Outcome::ok(done_reply()))
    }

    fn may_set(
        &self,
        caller: &Caller,
        inode: &Inode,
        name: &str,
        removes: bool,
    ) -> Result<(), Errno> {
        let attributes = &inode.attributes;
        if xattrs::is_internal(name) {
            return Err(Errno::EPERM);
        }
        let frozen = sheen_wire::md::FileFlags::IMMUTABLE | sheen_wire::md::FileFlags::APPEND;
        if attributes.flags & frozen.0 != 0 {
            return Err(Errno::EPERM);
        }
        let is_directory = inode.is_directory();
        match name.split_once('.').map_or("", |(space, _)| space) {
            "user" => {
                if !is_directory && !inode.is_regular() {
                    return Err(Errno::EPERM);
                }
                let sticky = is_directory && attributes.permissions & STICKY != 0;
                if sticky && !caller.owns(attributes) {
                    return Err(Errno::EPERM);
                }
                caller.may(&*self.store, inode.fid, attributes, May::WRITE)
            }
            "trusted" if !caller.can(Capability::SysAdmin) => Err(Errno::EPERM),
            "trusted" => Ok(()),
            "security" | "lustre" if !caller.owns(attributes) => Err(Errno::EPERM),
            "security" | "lustre" => Ok(()),
            "system" => match name {
                _ if attributes.kind == FileKind::Symlink => Err(Errno::EOPNOTSUPP),
                xattrs::ACL_ACCESS | xattrs::ACL_DEFAULT if !caller.owns(attributes) => {
                    Err(Errno::EPERM)
                }
                xattrs::ACL_ACCESS => Ok(()),
                xattrs::ACL_DEFAULT if is_directory || removes => Ok(()),
                xattrs::ACL_DEFAULT => Err(Errno::EACCES),
                _ => Err(Errno::EOPNOTSUPP),
            },
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// A directory's default layout, or the layout of a file that has none yet.
    async fn set_layout(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        inode: &Inode,
        value: Option<Bytes>,
    ) -> Result<Outcome, Errno> {
        let plan = value.map(|value| Plan::parse(&value)).transpose()?;
        if inode.is_directory() {
            let mut changes = self.change_set();
            changes.set_default_layout(inode.fid, plan.unwrap_or_default())?;
            let bits = InodeBits::XATTR | InodeBits::LAYOUT;
            let _lock = context.target.lock_inode(inode.fid, bits, LockMode::Ex).await?;
            self.execute(context, held, changes, ReplyRecording::Done)?;
            return Ok(Outcome::ok(done_reply()));
        }
        if !inode.is_regular() {
            return Err(Errno::EOPNOTSUPP);
        }
        // Objects with data are not destroyed in this way.
        self.set_file_layout(context, held, inode, plan.ok_or(Errno::EPERM)?).await?;
        Ok(Outcome::ok(done_reply()))
    }
}

/// The name of an attribute by which MDTs decide about what is made in a directory, or used there: its stripes have it, too.
fn shared_with_stripes(name: &str) -> Option<&'static str> {
    match name {
        xattrs::ACL_ACCESS => Some(xattrs::ACL_ACCESS),
        xattrs::ACL_DEFAULT => Some(xattrs::ACL_DEFAULT),
        xattrs::LOV | xattrs::LUSTRE_LOV => Some(xattrs::LOV),
        _ => None,
    }
}

/// What changes of an inode with an attribute, how that is kept, and what clients keep of it.
fn changed_xattr(
    inode: &Inode,
    (name, value): (&str, Option<Bytes>),
    record: &RecSetxattr,
) -> Result<(AttributePatch, Option<Bytes>, InodeBits), Errno> {
    let mut bits = InodeBits::XATTR | InodeBits::UPDATE;
    let mut patch = AttributePatch {
        changed: Some(Timestamp::from_seconds(record.time).max(inode.attributes.changed)),
        ..AttributePatch::default()
    };
    let mut stored = value.filter(|value| !name.starts_with("system.") || !value.is_empty());
    if matches!(name, xattrs::ACL_ACCESS | xattrs::ACL_DEFAULT)
        && let Some(value) = &stored
    {
        let list = parse_list(value).ok_or(Errno::EINVAL)?;
        if name == xattrs::ACL_ACCESS {
            let caller = Caller::from(record);
            patch.permissions = Some(mode_with(&list, &caller, &inode.attributes));
            // A list that says no more than the mode is not kept.
            stored = stored.filter(|_| !list.is_plain());
        }
    }
    if name == xattrs::ACL_ACCESS {
        bits = bits | InodeBits::PERM | InodeBits::LOOKUP;
    }
    Ok((patch, stored, bits))
}

/// The wish in a `trusted.lmv` that is set: by it a migration ends.
///
/// # Errors
/// [`Errno::EINVAL`] for one that cannot be.
fn wish_of_end(removes: bool, value: &Bytes) -> Result<Option<DirectoryWish>, Errno> {
    match lmv::magic_of(value) {
        Some(LmvMagic::USER | LmvMagic::STRIPE) if !removes => parse_wish(value).map(Some),
        _ => Ok(None),
    }
}

/// Answers without doing anything, and without an error.
fn ignore_reserved(caller: &Caller) -> Result<Outcome, Errno> {
    match caller.can(Capability::SysAdmin) {
        false => Err(Errno::EPERM),
        true => Ok(Outcome::ok(done_reply())),
    }
}

/// Whether an attribute fits in beside the other ones of its inode. One that does not grow always does.
///
/// # Errors
/// [`Errno::ENOSPC`], as Lustre answers where an inode has no room for one more.
fn check_room(all: &Xattrs, name: &str, value: &Bytes) -> Result<(), Errno> {
    let of_old = all.get(name).map(|old| old.len());
    let beside = all.iter().filter(|(other, _)| *other != name);
    let sum: usize = beside.map(|(name, value)| name.len() + value.len()).sum();
    // Empty ones cost memory and time, too.
    let names: usize =
        all.names().filter(|other| *other != name).map(|other| other.len() + 1).sum();
    let fits = sum + name.len() + value.len() <= XATTRS_BYTES_MAX
        && names + name.len() < XATTR_LIST_BYTES_MAX;
    let grows = of_old.is_none_or(|old| old < value.len());
    if fits || !grows { Ok(()) } else { Err(Errno::ENOSPC) }
}

fn done_reply() -> MdsReintSetxattrReply {
    MdsReintSetxattrReply { mdt_body: Some(Default::default()), ..Default::default() }
}

/// The permission bits that go with an access list. As a `chmod` would, it takes the set-group-id
/// bit off where the group is not the caller's.
fn mode_with(list: &AccessList, caller: &Caller, old: &Attributes) -> u32 {
    let keeps_group = caller.is_in_group(old.gid) || caller.can(Capability::SetId);
    let kept = if keeps_group { 0o7000 } else { 0o7000 & !SET_GID };
    old.permissions & kept | list.mode()
}
