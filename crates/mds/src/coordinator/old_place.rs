//! Names that are added to a directory while its layout changes: they are excluded in the stripe of before, too
//! ([`crate::striped`], `changing`).

use sheen_target::{Context, Incarnation};
use sheen_types::{Errno, Fid, Name};

use super::exclude::{DistributedHold, ExclusionRequest};
use crate::Mdt;
use crate::caller::{Caller, May};
use crate::other_mdts::Order;
use crate::striped::{OldPlace, old_place, parse_layout};
use crate::xattrs::LMV;

/// How often it is looked where a name may be of a directory whose changes end and begin meanwhile.
const TRIES_MAX: usize = 16;

/// The stripe of before.
#[derive(Clone, Copy)]
pub(super) struct OldStripe {
    place: OldPlace,
    pub(super) fid: Fid,
}

/// A guard of a name that is to be added here, in both of its stripes. The operation itself is one of this MDT alone.
#[must_use]
pub(crate) struct NewNameHold {
    held: DistributedHold,
    own: (Incarnation, u64),
}

impl NewNameHold {
    /// What the operation has excluded itself.
    pub(crate) fn within(&self) -> (Incarnation, u64) {
        self.own
    }

    /// Whether the name is in the stripe of before.
    fn is_there(&self, stripe: Fid, name: &Name) -> bool {
        self.held.child(stripe, name).is_some()
    }
}

impl Mdt {
    /// Excludes a name that is to be added to a directory here, with inodes that are changed with it, if that directory changes:
    /// then the name may be in another stripe. `None` if it does not. Never called by an operation that holds something.
    ///
    /// # Errors
    /// [`Errno::EACCES`] for a directory that the caller may not search, [`Errno::EEXIST`] if it is there, [`Errno::ESTALE`] for a directory
    /// that the name is not added to, those of the MDTs.
    pub(crate) async fn hold_new_name(
        &self,
        context: &Context,
        caller: &Caller,
        (directory, name): (Fid, &Name),
        inodes: &[Fid],
    ) -> Result<Option<NewNameHold>, Errno> {
        // A replay's name was added under both exclusions.
        if context.replay().is_some() {
            return Ok(None);
        }
        for _ in 0..TRIES_MAX {
            let Some(old) = self.old_place(directory, name.as_bytes())? else { return Ok(None) };
            let parent = self.directory(directory)?;
            caller.may(&*self.store, directory, &parent.attributes, May::EXEC)?;
            let held = self.hold_both(context, old, (directory, name), inodes).await;
            if self.old_place(directory, name.as_bytes())? != Some(old) {
                // The change has ended, or another one has begun, before it was excluded.
                continue;
            }
            let (held, stripe) = held?;
            let own = context.target.incarnation();
            let number = held.exclusion_on(own.mdt).ok_or(Errno::EPROTO)?.number;
            let held = NewNameHold { held, own: (own, number) };
            return match held.is_there(stripe, name) {
                true => Err(Errno::EEXIST),
                false => Ok(Some(held)),
            };
        }
        Err(Errno::ESTALE)
    }

    /// Excludes a name in both of its places, with inodes, and says which the stripe of before is.
    async fn hold_both(
        &self,
        context: &Context,
        old: OldPlace,
        (directory, name): (Fid, &Name),
        inodes: &[Fid],
    ) -> Result<(DistributedHold, Fid), Errno> {
        let stripe = self.stripe_of(context, old).await?;
        let wanted = ExclusionRequest::default().added(directory, name).added(stripe, name);
        let wanted = inodes.iter().fold(wanted, |wanted, inode| wanted.inode(*inode));
        Ok((self.hold_distributed(context.into(), wanted).await?, stripe))
    }

    /// Whether a name may be added to a directory here that is held: both of its places are, if it has two.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if the directory has begun to change, or is not where the name is added.
    pub(crate) fn check_new_place(
        &self,
        context: &Context,
        (directory, name): (Fid, &[u8]),
        held: Option<&NewNameHold>,
    ) -> Result<(), Errno> {
        if context.replay().is_some() {
            return self.check_place(directory, name);
        }
        match (self.old_place(directory, name)?, held) {
            (Some(_), None) => Err(Errno::ESTALE),
            _ => Ok(()),
        }
    }

    /// Whether the stripe of before is excluded, too, for a name that a change over several MDTs adds: `known` is. Otherwise what is held is
    /// released, and `known` becomes the one that is to be.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] for a directory that the name is not added to, those of the MDT of the master.
    pub(super) async fn with_old_place(
        &self,
        context: &Context,
        held: DistributedHold,
        (directory, name): (Fid, &Name),
        known: &mut Option<OldStripe>,
    ) -> Result<Option<DistributedHold>, Errno> {
        let Some(place) = old_place(&held, directory, name.as_bytes())? else {
            return Ok(Some(held));
        };
        if known.is_some_and(|known| known.place == place) {
            return Ok(Some(held));
        }
        drop(held);
        *known = Some(OldStripe { place, fid: self.stripe_of(context, place).await? });
        Ok(None)
    }

    /// The FID of a stripe.
    async fn stripe_of(&self, context: &Context, place: OldPlace) -> Result<Fid, Errno> {
        let OldPlace { master, number, .. } = place;
        let stripes = self.stripes_on_any_mdt(context, master).await?;
        stripes.get(number as usize).copied().ok_or(Errno::ESTALE)
    }

    /// The stripes of a master, on whatever MDT it lies; none of what is no master.
    async fn stripes_on_any_mdt(&self, context: &Context, master: Fid) -> Result<Vec<Fid>, Errno> {
        let mdt = self.mdt_of(&context.target, master).await?;
        let value = match mdt.0 == self.index {
            true => self.shown_xattr(master, LMV).await,
            false => self.remote_xattr(mdt, master, LMV, Order::InTurn).await,
        };
        let value = match value {
            // It has become another one, or is gone.
            Err(Errno::ENOENT) => None,
            value => value?,
        };
        let layout = value.map(|value| parse_layout(master, &value)).transpose()?;
        Ok(layout.map(|layout| crate::striped::stripes(&layout)).unwrap_or_default())
    }
}
