//! The end of the migration of a directory.

use sheen_io::logged;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder, LayoutChange};
use sheen_target::{Context, ReplyRecording};
use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::lmv::LmvHash;
use sheen_wire::out::ObjectUpdate;

use super::super::exclude::{DistributedHold, ExclusionRequest, LINKS};
use super::super::execute::Executed;
use super::super::parts::Parts;
use crate::Mdt;
use crate::striped::{layout_in, stripe_name, stripes};
use crate::xattrs::LMV;

impl Mdt {
    /// Ends the migration of a directory here: what lies on the MDTs of before is destroyed.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] if it does not migrate, [`Errno::ESTALE`] for a stripe, [`Errno::EINVAL`] for another wish than that by which it does, [`Errno::EBUSY`] while it
    /// is split or merged, [`Errno::ENOTEMPTY`] if there are names that have not been moved, those of the MDTs.
    pub(crate) async fn end_migration(
        &self,
        context: &Context,
        directory: Fid,
        wish: &DirectoryWish,
    ) -> Result<(), Errno> {
        loop {
            self.directory(directory)?;
            let layout = layout_in(&*self.store, directory)?.ok_or(Errno::EALREADY)?;
            if matches!(layout.holder(), Holder::Stripe { .. }) {
                // It may have been a directory of its own a moment ago.
                return Err(Errno::ESTALE);
            }
            may_end(&layout, self.wished_count(wish).await?, wish.hash)?;
            let all = stripes(&layout);
            let bits = LINKS | InodeBits::PERM;
            let wanted = ExclusionRequest::default().changed(directory, bits);
            let there = all.iter().filter(|stripe| stripe.is_of_mdt());
            let wanted = there.fold(wanted, |wanted, stripe| wanted.changed(*stripe, bits));
            let held = self.hold_distributed(context.into(), wanted).await?;
            held.directory(directory)?;
            if layout_in(&held, directory)?.as_ref() != Some(&layout) {
                continue;
            }
            let left = all.get(layout.leaving().start as usize..).unwrap_or_default();
            if !held.are_empty(left) {
                return Err(Errno::ENOTEMPTY);
            }
            let mut parts = Parts::new(self, context.into());
            parts.finish_layout(&held, directory, &layout).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            let executed = self.execute_distributed(context.into(), held, parts, done).await?;
            if let Executed::Done = executed {
                return Ok(());
            }
        }
    }
}

/// Whether a directory's change is a migration by this wish.
///
/// # Errors
/// See [`Mdt::end_migration`].
fn may_end(layout: &DirectoryLayout, wished: u32, hash_wished: LmvHash) -> Result<(), Errno> {
    match layout.change() {
        None => return Err(Errno::EALREADY),
        Some(LayoutChange::Migration) => {}
        Some(LayoutChange::Split | LayoutChange::Merge) => return Err(Errno::EBUSY),
    }
    let (hash, count) = layout.wanted();
    let kind = hash_wished.without_flags();
    let has_hash = count == 1 || kind == LmvHash::UNKNOWN || kind == hash.without_flags();
    match wished == count && has_hash {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

impl DistributedHold {
    /// Whether none of these stripes has a name. What is lost of them has none.
    pub(in super::super) fn are_empty(&self, stripes: &[Fid]) -> bool {
        let mut there = stripes.iter().filter(|stripe| stripe.is_of_mdt());
        there.all(|stripe| !self.has(*stripe) || self.is_empty(*stripe))
    }
}

impl Parts<'_> {
    /// A directory's layout has changed: the stripes that have no names any more go, and the remaining ones and the master say
    /// nothing of the change.
    pub(in super::super) async fn finish_layout(
        &mut self,
        held: &DistributedHold,
        master: Fid,
        layout: &DirectoryLayout,
    ) -> Result<(), Errno> {
        let after = layout
            .finished()
            .map_err(logged!(Errno::EINVAL, "a migration cannot end with this layout"))?;
        let value = after.to_ea().encode();
        self.add(master, ObjectUpdate::xattr_set(master, LMV, &value)).await?;
        for (number, stripe) in (0..).zip(stripes(layout)) {
            let is_there = stripe.is_of_mdt() && held.has(stripe);
            match after.of_stripe(number) {
                Some(of) if is_there => {
                    let value = of.to_ea().encode();
                    self.add(stripe, ObjectUpdate::xattr_set(stripe, LMV, &value)).await?;
                }
                Some(_) => {}
                None => {
                    let name = stripe_name(stripe, number)?;
                    if self.mdt.find(master, &name)?.is_some() {
                        self.add(master, ObjectUpdate::index_delete(master, &name)).await?;
                    }
                    if is_there {
                        self.add(stripe, ObjectUpdate::destroy(stripe)).await?;
                    }
                }
            }
        }
        Ok(())
    }
}
