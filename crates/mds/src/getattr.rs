//! MDS_GETATTR and MDS_GETATTR_NAME: attributes without a lock.

use bytes::Bytes;
use sheen_target::{Context, Outcome, store_errno};
use sheen_types::{Errno, Fid};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetattr, MdsGetattrName, MdsGetattrNameReply, MdsGetattrReply};

use crate::answer::add_acl;
use crate::caller::{Caller, May};
use crate::directory::Step;
use crate::inode::{Inode, WholeInode};
use crate::striped::Above;
use crate::{Mdt, remote, striped, xattrs};

/// Attributes, and what else was asked for.
pub(crate) struct Description {
    pub(crate) body: MdtBody,
    /// Layout, default layout of a directory, or target of a symbolic link.
    pub(crate) extra: Bytes,
    pub(crate) acl: Bytes,
    /// What new directories in a directory get as their stripes.
    pub(crate) default: Bytes,
}

impl Mdt {
    /// MDS_GETATTR.
    pub(crate) fn getattr(
        &self,
        context: &Context,
        request: &MdsGetattr,
    ) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let whole = self.whole_inode(asked.fid1)?;
        let mut found = self.getattr_of(context, &whole, asked)?;
        self.put_default_layout(&whole.inode, asked, &mut found)?;
        put_default_in_layout(asked, &mut found);
        Ok(Outcome::ok(MdsGetattrReply {
            mdt_body: Some(found.body),
            mdt_md: found.extra,
            acl: found.acl,
            ..MdsGetattrReply::default()
        }))
    }

    /// MDS_GETATTR_NAME.
    pub(crate) fn getattr_name(
        &self,
        context: &Context,
        request: &MdsGetattrName,
        above: Above,
    ) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let name = request.name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        let found = self.resolve(asked, name)?.ok_or(Errno::ENOENT)?;
        // Moved a moment ago: the client asks again.
        let fid = above.seen_for(found).ok_or(Errno::ESTALE)?;
        if self.is_remote(fid) && !name.is_empty() {
            let mdt_body = Some(remote::named(fid));
            return Ok(Outcome::ok(MdsGetattrNameReply { mdt_body, ..Default::default() }));
        }
        let whole = self.whole_inode(fid)?;
        let mut found = self.getattr_of(context, &whole, asked)?;
        self.put_default_layout(&whole.inode, asked, &mut found)?;
        put_default_in_layout(asked, &mut found);
        Ok(Outcome::ok(MdsGetattrNameReply {
            mdt_body: Some(found.body),
            mdt_md: found.extra,
            acl: found.acl,
            ..MdsGetattrNameReply::default()
        }))
    }

    /// The FID that a name of the directory in `asked` stands for; without a name, its second FID.
    pub(crate) fn resolve(&self, asked: &MdtBody, name: &[u8]) -> Result<Option<Fid>, Errno> {
        if name.is_empty() {
            let fid = if asked.fid2.is_zero() { asked.fid1 } else { asked.fid2 };
            return Ok(Some(fid));
        }
        let step = Step::parse(name)?;
        let directory = self.directory(asked.fid1).map_err(|errno| match errno {
            Errno::ENOENT => Errno::ESTALE,
            other => other,
        })?;
        let caller = Caller::from(asked);
        if let Step::Name(name) = &step {
            self.check_place(directory.fid, name.as_bytes())?;
        }
        caller.may(&*self.store, directory.fid, &directory.attributes, May::EXEC)?;
        Ok(self.child(&directory, &step)?.map(|child| child.fid))
    }

    /// What a getattr of any kind answers.
    ///
    /// # Errors
    /// [`Errno::ENOTSUPP`] of a directory with stripes, or with a default for them, to a client that has not agreed on `DIR_STRIPE`:
    /// it would take the master for all that there is.
    pub(crate) fn getattr_of(
        &self,
        context: &Context,
        whole: &WholeInode,
        asked: &MdtBody,
    ) -> Result<Description, Errno> {
        let (mut body, mut extra) = self.describe(context, whole, asked.eadatasize > 0);
        if asked.valid.contains(Valid::LINKNAME)
            && let Some(target) = whole.xattrs.get(xattrs::SYMLINK)
        {
            let room = (asked.eadatasize as usize).saturating_sub(1);
            let mut bytes = target[..target.len().min(room)].to_vec();
            bytes.push(0);
            body.valid |= Valid::LINKNAME;
            body.eadatasize = bytes.len() as u32;
            extra = bytes.into();
        }
        if asked.valid.contains(Valid::MODEASIZE) {
            self.add_layout_max(&mut body);
        }
        let acl = match asked.valid.contains(Valid::ACL) {
            true => {
                let acl = whole.xattrs.get(xattrs::ACL_ACCESS).unwrap_or_default();
                add_acl(context, acl, &mut body)
            }
            false => Bytes::new(),
        };
        if whole.inode.is_directory() && asked.valid.contains(Valid::MEA) && asked.eadatasize > 0 {
            extra = striped::add_layout(whole.xattrs.get(xattrs::LMV), &mut body);
        }
        let asks_default = whole.inode.is_directory() && asked.valid.contains(Valid::DEFAULT_MEA);
        let default = whole.xattrs.get(xattrs::DEFAULT_LMV).filter(|_| asks_default);
        let default = striped::add_default(default, &mut body);
        let says_stripes = body.valid.intersects(Valid::MEA | Valid::DEFAULT_MEA);
        if says_stripes && !context.has(ConnectFlags::DIR_STRIPE) {
            return Err(Errno::ENOTSUPP);
        }
        Ok(Description { body, extra, acl, default })
    }

    /// Adds a directory's default layout, if the client asks for that.
    fn put_default_layout(
        &self,
        inode: &Inode,
        asked: &MdtBody,
        found: &mut Description,
    ) -> Result<(), Errno> {
        // A client that asks how a directory is striped, or is to stripe its directories, takes what it gets for
        // that: as long as no directory is, there is nothing.
        let asks_stripes = asked.valid.intersects(Valid::MEA | Valid::DEFAULT_MEA);
        if inode.is_directory() && asked.valid.contains(Valid::DIREA) && !asks_stripes {
            // Its own alone: a client that gets none asks for the root's, and the root has that of the file system
            // only once it was set. What holds without one it takes from the configuration (`lov.*.stripe*`).
            let default = self.store.xattr(inode.fid, xattrs::LOV).map_err(store_errno)?;
            if let Some(default) = default.filter(|default| !default.is_empty()) {
                found.body.valid |= Valid::DIREA;
                found.body.eadatasize = default.len() as u32;
                found.extra = default;
            }
        }
        Ok(())
    }
}

/// A plain getattr has one place for layouts: a default is answered there, to who asks for that alone.
fn put_default_in_layout(asked: &MdtBody, found: &mut Description) {
    let default = std::mem::take(&mut found.default);
    if default.is_empty() {
        return;
    }
    if !asked.valid.contains(Valid::MEA) {
        found.body.eadatasize = default.len() as u32;
        found.extra = default;
        return;
    }
    let striped = found.body.valid.contains(Valid::MEA);
    let unsaid = if striped { Valid::DEFAULT_MEA } else { Valid::DEFAULT_MEA | Valid::DIREA };
    found.body.valid = found.body.valid.without(unsaid);
}
