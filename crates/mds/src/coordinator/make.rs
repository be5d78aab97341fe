//! A directory here whose name lies on another MDT: `lfs mkdir -i`.

use sheen_store::FileKind;
use sheen_target::{Context, ReplyRecording};
use sheen_types::limits::LINK_COUNT_MAX;
use sheen_types::{Errno, Fid, Name};

use super::exclude::ExclusionRequest;
use super::execute::Executed;
use super::parts::Parts;
use crate::caller::{Caller, May};
use crate::directory::Child;
use crate::inode::Inode;
use crate::new_inode::CreateSpec;
use crate::striped::{parse_wish, says_several};
use crate::xattrs::{DEFAULT_LMV, XattrsOf};
use crate::{Mdt, dot_lustre};

impl Mdt {
    /// Makes a directory. Two requests to the MDT of the name.
    ///
    /// # Errors
    /// Those of `mkdir(2)`; [`Errno::EOPNOTSUPP`] for what is no directory. Who may choose an MDT is looked at with the wish that
    /// says so, as in Lustre: that a client has placed it by a default is no one's choice.
    pub(crate) async fn make_distributed(
        &self,
        context: &Context,
        parent: Fid,
        name: &Name,
        spec: CreateSpec<'_>,
    ) -> Result<Inode, Errno> {
        if FileKind::from_mode(spec.mode) != Some(FileKind::Directory) {
            return Err(Errno::EOPNOTSUPP);
        }
        let caller = &spec.caller;
        let mut old = None;
        loop {
            let added = ExclusionRequest::default().added(parent, name).added_in(old, name);
            let mut held = self.hold_distributed(context.into(), added).await?;
            // The client has placed it, by a default that says of stripes, too.
            let default = held.xattr_of(parent, DEFAULT_LMV)?.filter(|_| !spec.has_wish);
            let wish = default.and_then(|default| parse_wish(&default).ok());
            if let Some(wish) = wish.filter(says_several) {
                drop(held);
                if let Some(plan) = self.choose_stripes(&context.target, &wish).await? {
                    return self.make_striped(context, (parent, name), spec, &plan).await;
                }
                let added = ExclusionRequest::default().added(parent, name).added_in(old, name);
                held = self.hold_distributed(context.into(), added).await?;
            }
            let parent = held.directory(parent)?;
            let place = (parent.fid, name);
            let Some(held) = self.with_old_place(context, held, place, &mut old).await? else {
                continue;
            };
            let is_there = held.is_there(parent.fid, old, name);
            may_add(caller, (&parent, &held), (name, is_there), FileKind::Directory)?;
            let new = self.build_inode_in(context, (&parent, &held), spec.again())?;
            let child = Child { fid: new.inode.fid, kind: FileKind::Directory };
            let mut parts = Parts::new(self, context.into());
            parts.create(&new.inode, &new.xattrs, (parent.fid, name)).await?;
            parts.insert_name(parent.fid, name, child).await?;
            parts.touch(parent.fid, new.inode.attributes.changed, 1).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
                return Ok(new.inode);
            }
        }
    }
}

/// Whether a name may be added to a directory, which may be another MDT's: see [`Mdt::may_add`].
///
/// # Errors
/// As there.
pub(super) fn may_add(
    caller: &Caller,
    (parent, xattrs): (&Inode, &impl XattrsOf),
    (name, is_there): (&Name, bool),
    kind: FileKind,
) -> Result<(), Errno> {
    caller.may(xattrs, parent.fid, &parent.attributes, May::EXEC)?;
    if parent.attributes.links == 0 {
        return Err(Errno::ENOENT);
    }
    if is_there {
        return Err(Errno::EEXIST);
    }
    dot_lustre::refuse_change(parent.fid, name)?;
    caller.may(xattrs, parent.fid, &parent.attributes, May::WRITE.and(May::EXEC))?;
    match kind == FileKind::Directory && parent.attributes.links >= LINK_COUNT_MAX {
        true => Err(Errno::EMLINK),
        false => Ok(()),
    }
}
