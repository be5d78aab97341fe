//! Making inodes: mkdir, mknod, symlink; open|create uses the same steps.

use bytes::Bytes;
use sheen_store::{Attributes, FileKind};
use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::limits::{
    LINK_COUNT_MAX, PATH_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use sheen_types::{Errno, Fid, Name};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::lmv::{self, LmvHash, LmvMagic};
use sheen_wire::md::{MdsOpenFlags, PosixAcl, RecCreate};
use sheen_wire::messages::{
    MdsReintCreate, MdsReintCreateReply, MdsReintCreateSym, MdsReintCreateSymReply,
};
use sheen_wire::text::Text;

use crate::caller::{Caller, Capability, May, stored_list};
use crate::coordinator::NewNameHold;
use crate::directory::parse_name;
use crate::hold::{Wanted, WantedName};
use crate::inode::{DIRECTORY_BYTES, Inode};
use crate::new_inode::{CreateSpec, NewInode};
use crate::striped::{StripePlan, parse_wish, says_several};
use crate::xattrs::{
    ACL_ACCESS, ACL_DEFAULT, CAPABILITY, DEFAULT_LMV, LMV, LOV, SYMLINK, XattrsOf,
};
use crate::{Mdt, dot_lustre, locks, striped};

const SET_GID: u32 = 0o2000;
/// Bytes of a symbolic link's target.
const TARGET_BYTES_MAX: usize = PATH_BYTES_MAX - 1;

/// Whether a client knows such a directory as it wishes.
///
/// # Errors
/// [`Errno::ENOTSUPP`] of stripes for one that has not agreed on `DIR_STRIPE`, [`Errno::EPROTO`] of a hash for one that does not
/// know it (`CRUSH`), as Lustre's.
fn check_known(context: &Context, request: &MdsReintCreate) -> Result<(), Errno> {
    let is_directory = FileKind::from_mode(request.rec_reint.mode) == Some(FileKind::Directory);
    if !is_directory || context.replay().is_some() {
        return Ok(());
    }
    let wish = parse_wish(&request.eadata)?;
    if says_several(&wish) && !context.has(ConnectFlags::DIR_STRIPE) {
        return Err(Errno::ENOTSUPP);
    }
    let is_crush = wish.hash.without_flags().0 >= LmvHash::CRUSH.0;
    match is_crush && !context.has2(ConnectFlags2::CRUSH) {
        true => Err(Errno::EPROTO),
        false => Ok(()),
    }
}

impl Mdt {
    /// MDS_REINT create: a directory, or anything that an open does not make. A directory elsewhere (foreign) is not
    /// made as one of ours.
    pub(crate) async fn create(
        &self,
        context: &Context,
        request: &MdsReintCreate,
    ) -> Result<Outcome, Errno> {
        if lmv::magic_of(&request.eadata) == Some(LmvMagic::FOREIGN) {
            return Err(Errno::EOPNOTSUPP);
        }
        let record = &request.rec_reint;
        let mut spec = CreateSpec::of(record);
        spec.security = request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx));
        let is_default = record.flags().contains(MdsOpenFlags::DEFAULT_LMV);
        spec.has_wish = !request.eadata.is_empty() && !is_default;
        if spec.has_wish {
            check_known(context, request)?;
        }
        if let Some(outcome) = self.restripe_by_wish(context, request).await? {
            return Ok(outcome);
        }
        let plan = match context.replay() {
            // One with stripes was durable before it was answered: one that is not there had none.
            Some(_) => None,
            None => self.plan_stripes(context, &spec.caller, request).await?,
        };
        let name = (request.name.as_ref(), plan.as_ref());
        let inode = self.make(context, record, name, spec).await?;
        Ok(Outcome::ok(self.created(&inode, record)))
    }

    /// The answer to the creation of an inode; with the layout of a directory for a client that asks for that
    /// (`MDS_MKDIR_LMV`).
    pub(crate) fn created(&self, inode: &Inode, record: &RecCreate) -> MdsReintCreateReply {
        let mut body = self.body(inode, false);
        let mut mdt_md = Bytes::new();
        let asks = record.flags().contains(MdsOpenFlags::RESYNC);
        if asks && inode.is_directory() && self.sequences.knows_other_mdts() {
            // It is made: where the disk fails to say how, the client asks again.
            let layout = self.store.xattr(inode.fid, LMV).unwrap_or_default();
            mdt_md = striped::add_layout(layout, &mut body);
        }
        MdsReintCreateReply { mdt_body: Some(body), mdt_md, ..Default::default() }
    }

    /// The stripes that a new directory gets, if its creator wishes some, or its parent has a default.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what is no wish, [`Errno::EPERM`] for a caller that may not choose MDTs and where directories of
    /// such a kind are off, those of [`StripePlan::choose`].
    async fn plan_stripes(
        &self,
        context: &Context,
        caller: &Caller,
        request: &MdsReintCreate,
    ) -> Result<Option<StripePlan>, Errno> {
        let record = &request.rec_reint;
        let is_directory = FileKind::from_mode(record.mode) == Some(FileKind::Directory);
        if !is_directory {
            return Ok(None);
        }
        if request.eadata.is_empty() {
            let default = self.default_wish(record.fid1)?;
            return match default {
                Some(wish) => self.choose_stripes(&context.target, &wish).await,
                None => Ok(None),
            };
        }
        let wish = parse_wish(&request.eadata)?;
        let plan = self.choose_stripes(&context.target, &wish).await?;
        // Its parent's default, which a client has inherited, is no wish of its caller's.
        if record.flags().contains(MdsOpenFlags::DEFAULT_LMV) {
            return Ok(plan);
        }
        let setting = self.setting_for(plan.is_some());
        self.check_choice(context, caller, "a directory with a wish for MDTs", &[setting])?;
        Ok(plan)
    }

    /// MDS_REINT create of a symbolic link.
    pub(crate) async fn symlink(
        &self,
        context: &Context,
        request: &MdsReintCreateSym,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        let end = request.symtgt.iter().position(|byte| *byte == 0);
        let target = request.symtgt.slice(..end.unwrap_or(request.symtgt.len()));
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut spec = CreateSpec::of(record);
        spec.target = Some(target);
        spec.security = request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx));
        let name = (request.name.as_ref(), None);
        let inode = self.make(context, record, name, spec).await?;
        let body = self.body(&inode, false);
        let reply = MdsReintCreateSymReply { mdt_body: Some(body), ..Default::default() };
        Ok(Outcome::ok(reply))
    }

    async fn make(
        &self,
        context: &Context,
        record: &RecCreate,
        (name, plan): (Option<&Text>, Option<&StripePlan>),
        spec: CreateSpec<'_>,
    ) -> Result<Inode, Errno> {
        if context.is_applied_already() {
            self.record_answer(context, ReplyRecording::Done)?;
            // Perhaps removed since, by another client.
            let attributes = Attributes::default();
            let gone = || Inode { fid: record.fid2, attributes, is_damaged: false };
            return Ok(self.inode(record.fid2).unwrap_or_else(|_| gone()));
        }
        let name = parse_name(name.ok_or(Errno::EPROTO)?.as_bytes())?;
        let caller = spec.caller.clone();
        let kind = FileKind::from_mode(record.mode).unwrap_or_default();
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && !caller.can(Capability::Mknod) {
            return Err(Errno::EPERM);
        }
        if let Some(plan) = plan {
            return self.make_striped(context, (record.fid1, &name), spec, plan).await;
        }
        if self.is_remote(record.fid1) {
            return self.make_distributed(context, record.fid1, &name, spec).await;
        }
        let both = self.hold_new_name(context, &caller, (record.fid1, &name), &[]).await?;
        let within = both.as_ref().map(NewNameHold::within);
        let names = [WantedName::added(record.fid1, name.as_bytes())];
        let held = self.hold(Wanted { within, ..Wanted::of_names(&names) }).await?;
        let parent = self.directory(record.fid1)?;
        self.check_new_place(context, (parent.fid, name.as_bytes()), both.as_ref())?;
        self.may_add(&caller, &parent, &name, kind)?;
        let new_inode = self.build_inode(context, &parent, spec)?;
        let _lock = locks::change_directory(context, parent.fid).await?;
        let mut changes = self.change_set();
        new_inode.add(&mut changes, parent.fid, &name);
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(new_inode.inode)
    }

    /// Whether a name may be added to a directory; that it may lie there is looked at apart ([`Mdt::check_new_place`]).
    ///
    /// # Errors
    /// [`Errno::EEXIST`], [`Errno::EACCES`], [`Errno::EMLINK`], or [`Errno::ENOENT`] for a
    /// directory that is being removed.
    pub(crate) fn may_add(
        &self,
        caller: &Caller,
        parent: &Inode,
        name: &Name,
        kind: FileKind,
    ) -> Result<(), Errno> {
        let store = &*self.store;
        caller.may(store, parent.fid, &parent.attributes, May::EXEC)?;
        if parent.attributes.links == 0 {
            return Err(Errno::ENOENT);
        }
        if self.find(parent.fid, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        dot_lustre::refuse_change(parent.fid, name)?;
        caller.may(store, parent.fid, &parent.attributes, May::WRITE.and(May::EXEC))?;
        if kind == FileKind::Directory && parent.attributes.links >= LINK_COUNT_MAX {
            return Err(Errno::EMLINK);
        }
        Ok(())
    }

    /// What a new inode will be: owner, mode and access list as its parent and caller have it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a FID that is not the client's to give, [`Errno::EOPNOTSUPP`] for one of another MDT, or those
    /// of the store.
    pub(crate) fn build_inode(
        &self,
        context: &Context,
        parent: &Inode,
        spec: CreateSpec<'_>,
    ) -> Result<NewInode, Errno> {
        self.build_inode_in(context, (parent, &*self.store), spec)
    }

    /// As [`Mdt::build_inode`], in a directory whose extended attributes may be known from another MDT.
    ///
    /// # Errors
    /// As [`Mdt::build_inode`].
    pub(crate) fn build_inode_in(
        &self,
        context: &Context,
        (parent, of_parent): (&Inode, &(impl XattrsOf + ?Sized)),
        spec: CreateSpec<'_>,
    ) -> Result<NewInode, Errno> {
        if self.is_remote(spec.fid) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.sequences.may_make(spec.fid, &context.export) {
            return Err(Errno::EINVAL);
        }
        let kind = FileKind::from_mode(spec.mode).unwrap_or_default();
        let is_directory = kind == FileKind::Directory;
        let inherits = parent.attributes.permissions & SET_GID != 0;
        let caller = &spec.caller;
        let gid = if inherits { parent.attributes.gid } else { caller.gid };
        let mut permissions = spec.mode & 0o7777;
        if inherits && is_directory {
            permissions |= SET_GID;
        } else if !is_directory && !caller.is_in_group(gid) && !caller.can(Capability::SetId) {
            permissions &= !SET_GID;
        }
        let mut xattrs = Vec::new();
        let default = match kind {
            FileKind::Symlink => None,
            _ => of_parent.xattr_of(parent.fid, ACL_DEFAULT)?,
        };
        match default {
            Some(default) => {
                permissions =
                    inherit_acl((parent.fid, &default), permissions, is_directory, &mut xattrs)?;
            }
            None if kind != FileKind::Symlink => permissions &= !(spec.umask & 0o777),
            None => {}
        }
        if is_directory && parent.fid != Fid::ROOT {
            let layout = of_parent.xattr_of(parent.fid, LOV)?;
            xattrs.extend(layout.map(|layout| (LOV.to_owned(), layout)));
        }
        if is_directory && !spec.has_wish {
            let default = self.inherited_default(parent.fid, of_parent)?;
            xattrs.extend(default.map(|default| (DEFAULT_LMV.to_owned(), default)));
        }
        if let Some((name, value)) = spec.security.filter(|(_, value)| !value.is_empty()) {
            xattrs.push(security_context(&spec.caller, name, value)?);
        }
        let size = match (&spec.target, is_directory) {
            (Some(target), _) => target.len() as u64,
            (None, true) => DIRECTORY_BYTES,
            (None, false) => 0,
        };
        xattrs.extend(spec.target.map(|target| (SYMLINK.to_owned(), target)));
        let attributes = Attributes {
            kind,
            permissions,
            uid: spec.caller.uid,
            gid,
            project: inherited_project(parent),
            links: if is_directory { 2 } else { 1 },
            size,
            blocks: if is_directory { DIRECTORY_BYTES / 512 } else { 0 },
            device: spec.device,
            flags: parent.attributes.flags & PROJECT_INHERIT,
            accessed: spec.now,
            modified: spec.now,
            changed: spec.now,
            born: spec.now,
            version: 0,
        };
        let inode = Inode { fid: spec.fid, attributes, is_damaged: false };
        Ok(NewInode { inode, xattrs, objects: spec.objects })
    }
}

const PROJECT_INHERIT: u32 = sheen_wire::md::FileFlags::PROJINHERIT.0;

fn inherited_project(parent: &Inode) -> u32 {
    match parent.attributes.flags & PROJECT_INHERIT {
        0 => 0,
        _ => parent.attributes.project,
    }
}

/// Gives a new inode its parent's default access list; the mode that results.
fn inherit_acl(
    (parent, default): (Fid, &Bytes),
    permissions: u32,
    is_directory: bool,
    xattrs: &mut Vec<(String, Bytes)>,
) -> Result<u32, Errno> {
    let list = stored_list(parent, default)?.inherited(permissions);
    if !list.is_plain() {
        xattrs.push((ACL_ACCESS.to_owned(), PosixAcl::from(&list).encode()));
    }
    if is_directory {
        xattrs.push((ACL_DEFAULT.to_owned(), default.clone()));
    }
    Ok(permissions & !0o777 | list.mode())
}

/// The security context that a client gives a new inode (`file_secctx`): of the security modules' names, for
/// layouts and links are not a client's to make up.
///
/// # Errors
/// [`Errno::EINVAL`] for another name, [`Errno::EPERM`] for a program's capabilities from a caller that may not give
/// them, [`Errno::ERANGE`] and [`Errno::E2BIG`] for what is too long.
fn security_context(caller: &Caller, name: &Text, value: &Bytes) -> Result<(String, Bytes), Errno> {
    let name = name.to_text();
    if name == CAPABILITY && !caller.can(Capability::SetFileCapabilities) {
        return Err(Errno::EPERM);
    }
    match name.starts_with("security.") {
        true if name.len() > XATTR_NAME_BYTES_MAX => Err(Errno::ERANGE),
        true if value.len() > XATTR_VALUE_BYTES_MAX => Err(Errno::E2BIG),
        true => Ok((name, value.clone())),
        false => Err(Errno::EINVAL),
    }
}
