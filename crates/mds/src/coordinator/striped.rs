//! Directories with stripes: made, changed, and what their removal takes with it. One change over the MDTs of all stripes.

use bytes::Bytes;
use sheen_layout::directory::DirectoryLayout;
use sheen_store::{AttributePatch, FileKind};
use sheen_target::{Context, ReplyRecording};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name};
use sheen_wire::out::ObjectUpdate;

use super::execute::Executed;
use super::hold::{DistributedHold, ExclusionRequest};
use super::make::may_add;
use super::parts::Parts;
use crate::Mdt;
use crate::directory::Child;
use crate::inode::Inode;
use crate::participant::obdo_of;
use crate::reint::{CreateSpec, NewInode};
use crate::striped::{self, StripePlan, stripe_like, stripe_name};
use crate::xattrs::LMV;

impl Mdt {
    /// Makes a directory here with stripes. One request to each other MDT that has some, one more to that of the name.
    ///
    /// # Errors
    /// Those of `mkdir(2)`, and of the MDTs.
    pub(crate) async fn make_striped(
        &self,
        context: &Context,
        (parent, name): (Fid, &Name),
        spec: CreateSpec<'_>,
        plan: &StripePlan,
    ) -> Result<Inode, Errno> {
        super::hold::may_coordinate(context)?;
        let stripes = self.new_fids(context, &plan.mdts).await?;
        let layout = DirectoryLayout::new(MdtIndex(self.index), plan.hash, stripes.clone());
        let layout = layout.map_err(|_| Errno::EINVAL)?;
        loop {
            let held = self
                .hold_distributed(context, ExclusionRequest::default().added(parent, name))
                .await?;
            let parent = held.directory(parent)?;
            let is_there = held.child(parent.fid, name).is_some();
            may_add(&spec.caller, (&parent, &held), (name, is_there), FileKind::Directory)?;
            let new = self.build_inode_in(context, (&parent, &held), spec.again())?;
            let mut parts = Parts::new(self, context);
            parts.create_striped(&new, (parent.fid, name), &layout, &stripes).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done = self.execute_distributed(context, held, parts, done).await? {
                return Ok(new.inode);
            }
        }
    }
}

/// What changes of a directory with stripes, and of each stripe.
pub(crate) struct StripedChange {
    pub(crate) patch: AttributePatch,
    /// Extended attributes that are set, or removed.
    pub(crate) xattrs: Vec<(&'static str, Option<Bytes>)>,
    /// What is revoked of them from clients.
    pub(crate) bits: InodeBits,
}

impl Mdt {
    /// Changes a directory here and its stripes. To each other MDT that has some two requests. `change` is asked before anything is
    /// excluded, so that what is refused revokes nothing, and once more when all of them are: it says what changes, or that
    /// nothing does.
    ///
    /// # Errors
    /// Those of `change`, and of the MDTs.
    pub(crate) async fn change_striped(
        &self,
        context: &Context,
        (master, stripes): (Fid, &[Fid]),
        change: impl Fn(&Inode) -> Result<Option<StripedChange>, Errno>,
    ) -> Result<(), Errno> {
        loop {
            let Some(wanted) = change(&self.inode(master)?)? else {
                return self.record_answer(context, ReplyRecording::Done).map(drop);
            };
            let all = std::iter::once(master).chain(stripes.iter().copied());
            let request = all.clone().fold(ExclusionRequest::default(), |request, fid| {
                request.changed(fid, wanted.bits)
            });
            let held = self.hold_distributed(context, request).await?;
            // It may have changed before it was excluded.
            let change = match change(&held.directory(master)?)? {
                Some(change) if wanted.bits.contains(change.bits) => change,
                _ => continue,
            };
            for stripe in stripes {
                held.directory(*stripe)?;
            }
            let mut parts = Parts::new(self, context);
            for fid in all {
                parts.change(fid, &change).await?;
            }
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done = self.execute_distributed(context, held, parts, done).await? {
                return Ok(());
            }
        }
    }
}

impl ExclusionRequest {
    /// The stripes of a directory that goes.
    pub(super) fn stripes(self, stripes: &[Fid]) -> Self {
        stripes.iter().fold(self, |request, stripe| request.inode(*stripe))
    }
}

impl DistributedHold {
    /// Whether a directory has no names: one of these stripes, if it has some.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if a stripe is gone, [`Errno::EPROTO`] if its MDT has said nothing of it.
    pub(super) fn is_empty_with(&self, directory: Fid, stripes: &[Fid]) -> Result<bool, Errno> {
        if stripes.is_empty() {
            return Ok(self.is_empty(directory));
        }
        for stripe in stripes {
            self.directory(*stripe)?;
        }
        Ok(stripes.iter().all(|stripe| self.is_empty(*stripe)))
    }
}

impl Parts<'_> {
    /// Adds a new directory with stripes, and its name.
    async fn create_striped(
        &mut self,
        new: &NewInode,
        (parent, name): (Fid, &Name),
        layout: &DirectoryLayout,
        stripes: &[Fid],
    ) -> Result<(), Errno> {
        let master = &new.inode;
        let with = |layout: &DirectoryLayout| {
            let mut xattrs: Vec<(String, Bytes)> = new.xattrs.clone();
            xattrs.push((LMV.to_owned(), layout.to_ea().encode()));
            xattrs
        };
        self.create(master, &with(layout), (parent, name)).await?;
        for (number, fid) in (0..).zip(stripes) {
            let (stripe, of) = (stripe_like(master, *fid), layout.of_stripe(number));
            let (name, of) = (stripe_name(*fid, number)?, of.ok_or(Errno::EINVAL)?);
            self.create(&stripe, &with(&of), (master.fid, &name)).await?;
            self.insert_name(master.fid, &name, child(*fid)).await?;
        }
        self.insert_name(parent, name, child(master.fid)).await?;
        self.touch(parent, master.attributes.changed, 1).await
    }

    async fn change(&mut self, inode: Fid, change: &StripedChange) -> Result<(), Errno> {
        if change.patch != AttributePatch::default() {
            self.add(inode, ObjectUpdate::attr_set(inode, &obdo_of(&change.patch))).await?;
        }
        for (name, value) in &change.xattrs {
            let update = match value {
                Some(value) => ObjectUpdate::xattr_set(inode, name, value),
                None => ObjectUpdate::xattr_del(inode, name),
            };
            self.add(inode, update).await?;
        }
        Ok(())
    }

    /// Removes the stripes of a directory that goes.
    pub(super) async fn remove_stripes(
        &mut self,
        master: Fid,
        stripes: &[Fid],
    ) -> Result<(), Errno> {
        for (of, update) in striped::removals(master, stripes)? {
            self.add(of, update).await?;
        }
        Ok(())
    }
}

fn child(fid: Fid) -> Child {
    Child { fid, kind: FileKind::Directory }
}
