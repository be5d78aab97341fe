//! Names that are added to a directory while its layout changes.
//!
//! A name is in one of two stripes then, and its move from the one of before to the one from now on may be under way. So what adds
//! it does so in the one from now on, and nowhere else (`ESTALE`: the client has an old layout), and excludes it in the one of before, too
//! (`coordinator::old_place`): if it is there it exists. What removes a name finds it where it is, and needs to know nothing of this.
//!
//! Cost: of a directory that does not change nothing that `check_place` does not cost. Of one that does, two requests to the MDT of
//! the stripe of before, and one to that of the master, where those are other MDTs.

use sheen_layout::directory::Holder;
use sheen_store::StoreError;
use sheen_target::store_errno;
use sheen_types::{Errno, Fid};

use super::{layout_in, master_in};
use crate::Mdt;
use crate::xattrs::XattrsOf;

/// Where a name may be, too, that is added to a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldPlace {
    pub(crate) master: Fid,
    /// Of the stripe.
    pub(crate) number: u32,
    /// Of the layout in which it has that number.
    pub(crate) version: u32,
}

/// Where a name may be, too, that is to be added to a directory; `None` if that does not change, or both are the same.
///
/// # Errors
/// [`Errno::ESTALE`] for a directory that the name is not added to: a master, and a stripe to which it does not hash from now on;
/// those of the store.
pub(crate) fn old_place(
    xattrs: &(impl XattrsOf + ?Sized),
    directory: Fid,
    name: &[u8],
) -> Result<Option<OldPlace>, Errno> {
    let Some(layout) = layout_in(xattrs, directory)? else { return Ok(None) };
    let Holder::Stripe { number } = *layout.holder() else { return Err(Errno::ESTALE) };
    let layout = layout.for_new_names().map_err(|error| {
        store_errno(StoreError::Corrupt(format!("the layout of stripe {directory}: {error}")))
    })?;
    // Under a hash that is unknown here no directory changes.
    let Ok(places) = layout.places(name) else { return Ok(None) };
    if places.now != number {
        return Err(Errno::ESTALE);
    }
    let Some(before) = places.before else { return Ok(None) };
    let master = master_in(xattrs, directory)?.ok_or(Errno::ESTALE)?;
    Ok(Some(OldPlace { master, number: before, version: layout.version() }))
}

impl Mdt {
    /// As [`old_place`], of a directory here. Nothing is looked up where there is one MDT.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn old_place(&self, directory: Fid, name: &[u8]) -> Result<Option<OldPlace>, Errno> {
        match self.sequences.knows_other_mdts() {
            true => old_place(&*self.store, directory, name),
            false => Ok(None),
        }
    }
}
