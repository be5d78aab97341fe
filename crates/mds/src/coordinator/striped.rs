//! Directories with stripes: made, changed, and what their removal takes with it. One change over the MDTs of all stripes.

use bytes::Bytes;
use sheen_layout::directory::DirectoryLayout;
use sheen_store::FileKind;
use sheen_target::{Context, ReplyRecording};
use sheen_types::{Errno, Fid, MdtIndex, Name};

use super::execute::Executed;
use super::hold::{DistributedHold, ExclusionRequest};
use super::make::may_add;
use super::parts::Parts;
use crate::Mdt;
use crate::directory::Child;
use crate::inode::Inode;
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
