//! The begin and the end of a split or merge: one change each, over the MDTs of the directory and of all its stripes (Lustre:
//! `mdd_dir_layout_split`, `lod_dir_layout_shrink`). What is between is `restripe`'s.

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder, former_with};
use sheen_target::{ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name, Timestamp};
use sheen_wire::lmv::LmvHash;
use sheen_wire::out::ObjectUpdate;

use super::exclude::{DistributedHold, ExclusionRequest};
use super::execute::Executed;
use super::initiator::Initiator;
use super::parts::Parts;
use super::striped::{child, may_be_read};
use crate::caller::Caller;
use crate::inode::Inode;
use crate::restripe_plan::RestripePlan;
use crate::striped::{layout_in, stripe_like, stripe_name};
use crate::xattrs::{ACL_ACCESS, ACL_DEFAULT, DEFAULT_LMV, FORMER, LINK, LMV, LOV, XattrsOf};
use crate::{Mdt, dot_lustre, xattrs};

/// What clients keep of a directory whose layout changes, or of a stripe of it.
const LAYOUT: InodeBits = InodeBits::LOOKUP.union(InodeBits::UPDATE).union(InodeBits::XATTR);
/// All that clients keep of a directory that becomes a stripe: programs see another inode from then on.
const ALL: InodeBits = LAYOUT.union(InodeBits::PERM).union(InodeBits::OPEN);
/// What a stripe has of the extended attributes of its master.
const SHARED: [&str; 4] = [ACL_ACCESS, ACL_DEFAULT, LOV, DEFAULT_LMV];

/// A directory that is to be split or merged.
pub(crate) struct Restripe<'a> {
    /// Where its name is.
    pub(crate) parent: Fid,
    /// That.
    pub(crate) name: &'a Name,
    /// What the name stands for, here.
    pub(crate) directory: Fid,
    /// The master's, if it has no stripes yet.
    pub(crate) new_master: Fid,
    /// What it is to become.
    pub(crate) wish: &'a DirectoryWish,
    pub(crate) now: Timestamp,
    /// Who asks; `None` for this MDT itself.
    pub(crate) caller: Option<&'a Caller>,
}

impl Restripe<'_> {
    /// # Errors
    /// [`Errno::EPERM`] if the caller does not own the directory.
    fn must_own(&self, directory: &Inode) -> Result<(), Errno> {
        match self.caller.is_some_and(|caller| !caller.owns(&directory.attributes)) {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }
}

/// How far a split or merge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum RestripeEnd {
    /// Nothing is left to be done.
    Ended,
    /// A stripe is not through yet.
    NotYet,
}

impl Mdt {
    /// Begins to split or merge a directory here; the inode that programs see from then on. One request to each other MDT that gets a
    /// stripe, two to each that has one, and to that of the name of a directory without stripes.
    ///
    /// # Errors
    /// Those of [`RestripePlan::choose`], [`Errno::EPERM`] for a caller who does not own the directory, [`Errno::EBUSY`] for a directory that is being changed or lies in such a one,
    /// [`Errno::ENOTDIR`], [`Errno::EPERM`] in `.lustre`, and those of the MDTs.
    pub(crate) async fn restripe(
        &self,
        by: Initiator<'_>,
        wanted: &Restripe<'_>,
    ) -> Result<Inode, Errno> {
        dot_lustre::refuse_change(wanted.parent, wanted.name)?;
        loop {
            // What is refused revokes nothing.
            wanted.must_own(&self.directory(wanted.directory)?)?;
            let layout = layout_in(&*self.store, wanted.directory)?;
            if layout.as_ref().is_some_and(|it| matches!(it.holder(), Holder::Stripe { .. })) {
                // A stripe has no name but that in its master.
                return Err(Errno::ESTALE);
            }
            let plan = self.plan_restripe(by.target(), layout.as_ref(), wanted.wish).await?;
            let begun = match (&layout, &plan) {
                (None, RestripePlan::Split { hash, added }) => {
                    let added = self.new_fids(by.target(), added).await?;
                    self.split_plain(by, wanted, *hash, &added).await?
                }
                (Some(layout), RestripePlan::Split { hash, added }) => {
                    let added = self.new_fids(by.target(), added).await?;
                    let changed = layout.split_to(*hash, &added).map_err(sheen_io::logged!(
                        Errno::EINVAL,
                        "a directory cannot be split so"
                    ))?;
                    self.relayout(by, wanted, (layout, &changed)).await?
                }
                (Some(layout), RestripePlan::Merge { hash, count }) => {
                    let changed = layout.merge_to(*hash, *count).map_err(sheen_io::logged!(
                        Errno::EINVAL,
                        "a directory cannot be merged so"
                    ))?;
                    self.relayout(by, wanted, (layout, &changed)).await?
                }
                (None, RestripePlan::Merge { .. }) => return Err(Errno::EALREADY),
            };
            if let Some(inode) = begun {
                self.restriper.changed.notify_one();
                return Ok(inode);
            }
        }
    }

    /// A directory without stripes becomes the first stripe of a new master, which gets its name. `None` if what was planned does not
    /// hold any more.
    async fn split_plain(
        &self,
        by: Initiator<'_>,
        wanted: &Restripe<'_>,
        hash: LmvHash,
        added: &[Fid],
    ) -> Result<Option<Inode>, Errno> {
        let Restripe { parent, name, directory, new_master, now, .. } = *wanted;
        let mdt = MdtIndex(self.index);
        let layout = DirectoryLayout::split_of_plain(mdt, directory, hash, added);
        let layout =
            layout.map_err(sheen_io::logged!(Errno::EINVAL, "a directory cannot be split so"))?;
        let request = ExclusionRequest::default().removed(parent, name).changed(directory, ALL);
        let held = self.hold_distributed(by, request).await?;
        let of_parent = layout_in(&held, parent)?;
        if of_parent.is_some_and(|layout| layout.is_changing()) {
            return Err(Errno::EBUSY);
        }
        if held.child(parent, name).map(|child| child.fid) != Some(directory) {
            return Err(Errno::ENOENT);
        }
        if held.xattr_of(directory, LMV)?.is_some() {
            return Ok(None);
        }
        let source = held.directory(directory)?;
        wanted.must_own(&source)?;
        let mut master = Inode { fid: new_master, ..source.clone() };
        // Those that are in it have their names in a stripe.
        master.attributes.links = 2;
        (master.attributes.modified, master.attributes.changed) = (now, now);
        let mut parts = Parts::new(self, by);
        parts.split_plain(&source, &master, (parent, name), (&layout, added)).await?;
        let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
        let executed = self.execute_distributed(by, held, parts, done).await?;
        Ok(matches!(executed, Executed::Done).then_some(master))
    }

    /// A directory with stripes gets another layout, which says that names move: of its stripes, and maybe of some more. `None` if what was
    /// planned does not hold any more.
    async fn relayout(
        &self,
        by: Initiator<'_>,
        wanted: &Restripe<'_>,
        (before, changed): (&DirectoryLayout, &DirectoryLayout),
    ) -> Result<Option<Inode>, Errno> {
        let master = wanted.directory;
        let stripes = stripes_of(before);
        let held = self.hold_distributed(by, layout_of(master, stripes)).await?;
        if layout_in(&held, master)?.as_ref() != Some(before) {
            return Ok(None);
        }
        let inode = held.directory(master)?;
        wanted.must_own(&inode)?;
        let mut parts = Parts::new(self, by);
        parts.set_layout(&held, master, changed).await?;
        for (number, fid) in (0..).zip(stripes_of(changed)).skip(stripes.len()) {
            parts.add_stripe((&inode, &held), changed, (number, *fid)).await?;
        }
        let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
        let executed = self.execute_distributed(by, held, parts, done).await?;
        Ok(matches!(executed, Executed::Done).then_some(inode))
    }

    /// Ends the split or merge of a directory here whose stripes are all through: nothing says of it any more, and stripes that
    /// were left without names are gone. Of one that is not in such a change nothing is left to be done.
    ///
    /// # Errors
    /// Those of the MDTs.
    pub(crate) async fn end_restripe(
        &self,
        by: Initiator<'_>,
        master: Fid,
    ) -> Result<RestripeEnd, Errno> {
        loop {
            let layout = match layout_in(&*self.store, master) {
                Ok(Some(layout)) if layout.is_restriping() => layout,
                Ok(_) | Err(Errno::ENOENT) => return Ok(RestripeEnd::Ended),
                Err(errno) => return Err(errno),
            };
            let stripes = stripes_of(&layout);
            let held = self.hold_distributed(by, layout_of(master, stripes)).await?;
            if layout_in(&held, master)?.as_ref() != Some(&layout) {
                continue;
            }
            for stripe in stripes.iter().filter(|stripe| held.is_stripe(**stripe)) {
                if !layout_in(&held, *stripe)?.is_some_and(|layout| layout.is_through()) {
                    return Ok(RestripeEnd::NotYet);
                }
            }
            let mut parts = Parts::new(self, by);
            let ended = parts.end_restripe(&held, master, &layout).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done = self.execute_distributed(by, held, parts, done).await? {
                return Ok(ended);
            }
        }
    }
}

/// The stripes of a master's layout, in order.
fn stripes_of(layout: &DirectoryLayout) -> &[Fid] {
    match layout.holder() {
        Holder::Master { stripes, .. } => stripes,
        Holder::Stripe { .. } => &[],
    }
}

/// Excludes a directory with its stripes, for another layout.
fn layout_of(master: Fid, stripes: &[Fid]) -> ExclusionRequest {
    let stripes = stripes.iter().filter(|stripe| stripe.is_of_mdt());
    let request = ExclusionRequest::default().changed(master, LAYOUT);
    stripes.fold(request, |request, stripe| request.changed(*stripe, LAYOUT))
}

impl DistributedHold {
    /// Whether a stripe is not lost.
    fn is_stripe(&self, stripe: Fid) -> bool {
        stripe.is_of_mdt() && self.has(stripe)
    }
}

impl Parts<'_> {
    /// A directory becomes the first stripe of a new master.
    async fn split_plain(
        &mut self,
        source: &Inode,
        master: &Inode,
        (parent, name): (Fid, &Name),
        (layout, added): (&DirectoryLayout, &[Fid]),
    ) -> Result<(), Errno> {
        let mdt = self.mdt;
        let directory = source.fid;
        let whole = mdt.store.whole(directory).map_err(store_errno)?;
        let is_kept = |name: &&str| ![LINK, LMV].contains(name) && xattrs::is_shown(name);
        let names: Vec<&str> = whole.xattrs.names().filter(is_kept).collect();
        let value = |name: &str| whole.xattrs.get(name).unwrap_or_default();
        let mut all: Vec<(String, Bytes)> =
            names.iter().map(|name| ((*name).to_owned(), value(name))).collect();
        may_be_read(all.iter().map(|(_, value)| value))?;
        all.push((LMV.to_owned(), layout.to_ea().encode()));
        let before = whole.xattrs.get(FORMER);
        all.push((FORMER.to_owned(), former_with(directory, &before.clone().unwrap_or_default())));
        self.create(master, &all, (parent, name)).await?;
        self.delete_name(parent, name).await?;
        self.insert_name(parent, name, child(master.fid)).await?;
        self.touch(parent, master.attributes.changed, 0).await?;
        let first = stripe_name(directory, 0)?;
        self.insert_name(master.fid, &first, child(directory)).await?;
        let of = layout.of_stripe(0).ok_or(Errno::EINVAL)?.to_ea().encode();
        self.add(directory, ObjectUpdate::xattr_set(directory, LMV, &of)).await?;
        for name in names.iter().filter(|name| !SHARED.contains(name)) {
            self.add(directory, ObjectUpdate::xattr_del(directory, name)).await?;
        }
        if before.is_some() {
            // It is the master's.
            self.add(directory, ObjectUpdate::xattr_del(directory, FORMER)).await?;
        }
        self.add(directory, ObjectUpdate::link_del(directory, parent, name)).await?;
        self.add(directory, ObjectUpdate::link_add(directory, master.fid, &first)).await?;
        for (number, fid) in (1..).zip(added) {
            self.add_stripe((master, &whole.xattrs), layout, (number, *fid)).await?;
        }
        Ok(())
    }

    /// Makes one more stripe of a directory.
    async fn add_stripe(
        &mut self,
        (master, of_master): (&Inode, &(impl XattrsOf + ?Sized)),
        layout: &DirectoryLayout,
        (number, fid): (u32, Fid),
    ) -> Result<(), Errno> {
        let of = layout.of_stripe(number).ok_or(Errno::EINVAL)?;
        let mut all = vec![(LMV.to_owned(), of.to_ea().encode())];
        for name in SHARED {
            let value = of_master.xattr_of(master.fid, name)?;
            all.extend(value.map(|value| (name.to_owned(), value)));
        }
        let mut stripe = stripe_like(master, fid);
        stripe.attributes.links = 2;
        let name = stripe_name(fid, number)?;
        self.create(&stripe, &all, (master.fid, &name)).await?;
        self.add(master.fid, insert(master.fid, &name, fid)).await
    }

    /// A directory and those of its stripes that are there get another layout.
    async fn set_layout(
        &mut self,
        held: &DistributedHold,
        master: Fid,
        layout: &DirectoryLayout,
    ) -> Result<(), Errno> {
        let value = layout.to_ea().encode();
        self.add(master, ObjectUpdate::xattr_set(master, LMV, &value)).await?;
        for (number, fid) in (0..).zip(stripes_of(layout).iter().copied()) {
            // A new one is not held.
            if fid.is_of_mdt() && held.is_held(fid) && held.has(fid) {
                let of = layout.of_stripe(number).ok_or(Errno::EINVAL)?.to_ea().encode();
                self.add(fid, ObjectUpdate::xattr_set(fid, LMV, &of)).await?;
            }
        }
        Ok(())
    }

    /// Names are where they belong. A stripe that is to go and has names again is gone through once more.
    async fn end_restripe(
        &mut self,
        held: &DistributedHold,
        master: Fid,
        layout: &DirectoryLayout,
    ) -> Result<RestripeEnd, Errno> {
        let leaving = (0..).zip(stripes_of(layout)).skip(layout.leaving().start as usize);
        let leaving: Vec<(u32, Fid)> = leaving.map(|(number, fid)| (number, *fid)).collect();
        let is_used = |fid: &Fid| held.is_stripe(*fid) && !held.is_empty(*fid);
        if let Some((number, fid)) = leaving.iter().find(|(_, fid)| is_used(fid)) {
            tracing::warn!(%master, stripe = %fid, "a stripe that is to go has names: they are moved, too");
            let of = layout.of_stripe(*number).ok_or(Errno::EINVAL)?.to_ea().encode();
            self.add(*fid, ObjectUpdate::xattr_set(*fid, LMV, &of)).await?;
            return Ok(RestripeEnd::NotYet);
        }
        let finished = layout.finished().map_err(sheen_io::logged!(
            Errno::EINVAL,
            "a split or merge cannot end with this layout"
        ))?;
        self.set_layout(held, master, &finished).await?;
        for (number, fid) in leaving {
            let name = stripe_name(fid, number)?;
            if self.mdt.find(master, &name)?.is_some() {
                self.add(master, ObjectUpdate::index_delete(master, &name)).await?;
            }
            if held.is_stripe(fid) {
                self.add(fid, ObjectUpdate::destroy(fid)).await?;
            }
        }
        Ok(RestripeEnd::Ended)
    }
}

fn insert(master: Fid, name: &Name, stripe: Fid) -> ObjectUpdate {
    ObjectUpdate::index_insert(master, name, stripe, child(stripe).kind.mode_bits())
}
