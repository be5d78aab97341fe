//! Directories with stripes: made, changed, and what their removal takes with it. One change over the MDTs of all stripes.

use bytes::Bytes;
use sheen_io::logged;
use sheen_layout::directory::DirectoryLayout;
use sheen_store::{AttributePatch, FileKind};
use sheen_target::{Context, ReplyRecording};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name};
use sheen_wire::out::ObjectUpdate;

use super::exclude::{DistributedHold, ExclusionRequest};
use super::execute::Executed;
use super::make::may_add;
use super::parts::Parts;
use crate::Mdt;
use crate::directory::Child;
use crate::inode::Inode;
use crate::new_inode::{CreateSpec, NewInode};
use crate::participant::{RESULT_BYTES_MAX, obdo_of};
use crate::striped::{StripePlan, stripe_like, stripe_name, stripes_in};
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
        super::exclude::may_coordinate(context.into())?;
        if !self.is_remote(parent) {
            // What is refused takes nothing from clients, nor a FID.
            self.old_place(parent, name.as_bytes())?;
            self.may_add(&spec.caller, &self.directory(parent)?, name, FileKind::Directory)?;
        }
        let stripes = self.new_fids(&context.target, &plan.mdts).await?;
        let layout = DirectoryLayout::new(MdtIndex(self.index), plan.hash, stripes.clone());
        let layout = layout.map_err(logged!(Errno::EINVAL, "stripes that make no directory"))?;
        let mut old = None;
        loop {
            let wanted = ExclusionRequest::default().added(parent, name).added_in(old, name);
            let held = self.hold_distributed(context.into(), wanted).await?;
            let parent = held.directory(parent)?;
            let place = (parent.fid, name);
            let Some(held) = self.with_old_place(context, held, place, &mut old).await? else {
                continue;
            };
            let is_there = held.is_there(parent.fid, old, name);
            may_add(&spec.caller, (&parent, &held), (name, is_there), FileKind::Directory)?;
            let new = self.build_inode_in(context, (&parent, &held), spec.again())?;
            let mut parts = Parts::new(self, context.into());
            parts.create_striped(&new, (parent.fid, name), &layout, &stripes).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
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
        let mut stripes = stripes.to_vec();
        loop {
            let Some(wanted) = change(&self.inode(master)?)? else {
                return self.record_answer(context, ReplyRecording::Done).map(drop);
            };
            let held_stripes = stripes.iter().copied().filter(|stripe| stripe.is_of_mdt());
            let all = std::iter::once(master).chain(held_stripes);
            let request = all.clone().fold(ExclusionRequest::default(), |request, fid| {
                request.changed(fid, wanted.bits)
            });
            let held = self.hold_distributed(context.into(), request).await?;
            let now = stripes_in(&held, master)?;
            if now != stripes {
                // It was split or merged before it was excluded.
                stripes = now;
                continue;
            }
            // It may have changed before it was excluded.
            let change = match change(&held.directory(master)?)? {
                Some(change) if wanted.bits.contains(change.bits) => change,
                _ => continue,
            };
            let mut parts = Parts::new(self, context.into());
            for fid in all.filter(|fid| held.has(*fid)) {
                parts.change(fid, &change).await?;
            }
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
                return Ok(());
            }
        }
    }
}

impl ExclusionRequest {
    /// The stripes of a directory that goes.
    pub(super) fn stripes(self, stripes: &[Fid]) -> Self {
        // What is no FID of the namespace was a stripe.
        let stripes = stripes.iter().filter(|stripe| stripe.is_of_mdt());
        stripes.fold(self, |request, stripe| request.inode(*stripe))
    }
}

impl DistributedHold {
    /// Whether its MDT has not said that an inode is lost.
    pub(super) fn has(&self, inode: Fid) -> bool {
        self.inode(inode).map(drop) != Err(Errno::ENOENT)
    }

    /// Whether a directory has no names: one of these stripes, if it has some. What is lost of these has none.
    pub(super) fn is_empty_with(&self, directory: Fid, stripes: &[Fid]) -> bool {
        if stripes.is_empty() {
            return self.is_empty(directory);
        }
        let mut stripes = stripes.iter().filter(|stripe| stripe.is_of_mdt());
        stripes.all(|stripe| !self.has(*stripe) || self.is_empty(*stripe))
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
        may_be_read(new.xattrs.iter().map(|(_, value)| value))?;
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
        may_be_read(change.xattrs.iter().filter_map(|(_, value)| value.as_ref()))?;
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
        held: &DistributedHold,
        master: Fid,
        stripes: &[Fid],
    ) -> Result<(), Errno> {
        for (number, stripe) in (0..).zip(stripes.iter().copied()) {
            let name = stripe_name(stripe, number)?;
            if self.mdt.find(master, &name)?.is_some() {
                self.add(master, ObjectUpdate::index_delete(master, &name)).await?;
            }
            if stripe.is_of_mdt() && held.has(stripe) {
                self.add(stripe, ObjectUpdate::destroy(stripe)).await?;
            }
        }
        Ok(())
    }
}

/// Whether attributes of a stripe can be read from another MDT when it is changed the next time, or removed.
///
/// # Errors
/// [`Errno::E2BIG`].
pub(super) fn may_be_read<'a>(mut values: impl Iterator<Item = &'a Bytes>) -> Result<(), Errno> {
    match values.all(|value| value.len() <= RESULT_BYTES_MAX) {
        true => Ok(()),
        false => Err(Errno::E2BIG),
    }
}

/// What the name of a stripe stands for.
pub(super) fn child(fid: Fid) -> Child {
    Child { fid, kind: FileKind::Directory }
}
