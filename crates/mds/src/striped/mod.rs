//! Striped directories (Lustre's DNE2): a *master*, which is the inode that programs see, and its *stripes*, directories of
//! their own on one MDT each or several on one. Each name lies in the stripe to which it hashes.
//!
//! What always holds, of a directory that is not being changed:
//!
//! - The master has the layout in its `trusted.lmv`, and in its own index an entry `[FID]:n` for each stripe, which no client is
//!   shown; its link count is that of a directory without children.
//! - A stripe has its number in its `trusted.lmv`, the master and that entry in its `trusted.link`, and owner, mode, access
//!   lists and defaults of the master. So what it holds is made by the code of any directory.
//! - No name is made, found or removed in a master, nor in a stripe to which it does not hash: `ESTALE`, and the client asks for the
//!   layout again.
//!
//! What changes a master changes its stripes, in one change over all of their MDTs (`coordinator::striped`). What changes a name in a
//! stripe is a change of that MDT alone. Which MDTs a new directory gets is in [`choice`], their FIDs in [`fids`], what a
//! directory says of those to come in [`default`].
//!
//! Cost for a name in any directory, where there are several MDTs: one look for an extended attribute; with one MDT none.

mod changing;
mod choice;
mod default;
mod fids;
mod settings;
mod space;

use bytes::Bytes;
use sheen_io::logged;
use sheen_layout::directory::{self, DirectoryLayout, Holder};
use sheen_store::StoreError;
use sheen_target::{Context, store_errno};
use sheen_types::{Errno, Fid, Name};
use sheen_wire::lmv::LmvEa;
use sheen_wire::md::{MdtBody, Valid};

use crate::coordinator::Order;
use crate::inode::Inode;
use crate::xattrs::{LMV, XattrsOf};
use crate::{Mdt, xattrs};

pub(crate) use self::changing::{OldPlace, old_place};
pub(crate) use self::choice::StripePlan;
pub(crate) use self::default::{new_default_stripes, parse_wish, says_several};
pub(crate) use self::fids::StripeFids;
pub use self::settings::DirectorySettings;
pub(crate) use self::space::SpaceOfMdts;

/// The name of a stripe in its master.
///
/// # Errors
/// None but for what is no name, which this is not.
pub(crate) fn stripe_name(stripe: Fid, number: u32) -> Result<Name, Errno> {
    Name::new(directory::stripe_name(stripe, number).as_bytes())
        .map_err(logged!(Errno::EINVAL, "a stripe's name is no name"))
}

/// Reads a `trusted.lmv`.
///
/// # Errors
/// That of a damaged store: no client has written it.
pub(crate) fn parse_layout(directory: Fid, value: &Bytes) -> Result<DirectoryLayout, Errno> {
    let damaged = |error: &dyn std::fmt::Display| {
        store_errno(StoreError::Corrupt(format!("the layout of directory {directory}: {error}")))
    };
    let ea = LmvEa::decode(value).map_err(|error| damaged(&error))?;
    DirectoryLayout::from_ea(&ea).map_err(|error| damaged(&error))
}

/// The layout of a master or a stripe; `None` of any other inode.
///
/// # Errors
/// Those of the store.
pub(crate) fn layout_in(
    xattrs: &(impl XattrsOf + ?Sized),
    directory: Fid,
) -> Result<Option<DirectoryLayout>, Errno> {
    let value = xattrs.xattr_of(directory, LMV)?;
    value.map(|value| parse_layout(directory, &value)).transpose()
}

/// The stripes of a master, in order; none of any other inode.
///
/// # Errors
/// Those of the store.
pub(crate) fn stripes_in(
    xattrs: &(impl XattrsOf + ?Sized),
    directory: Fid,
) -> Result<Vec<Fid>, Errno> {
    Ok(layout_in(xattrs, directory)?.as_ref().map(stripes).unwrap_or_default())
}

/// The stripes of a master's layout, in order; none of a stripe's.
pub(crate) fn stripes(layout: &DirectoryLayout) -> Vec<Fid> {
    match layout.holder() {
        Holder::Master { stripes, .. } => stripes.to_vec(),
        Holder::Stripe { .. } => Vec::new(),
    }
}

/// The layout by which names are looked for in a directory, of which a stripe may be through.
///
/// # Errors
/// That of a damaged store.
pub(crate) fn layout_for_names(
    directory: Fid,
    layout: DirectoryLayout,
) -> Result<DirectoryLayout, Errno> {
    layout.for_new_names().map_err(|error| {
        store_errno(StoreError::Corrupt(format!("the layout of stripe {directory}: {error}")))
    })
}

/// Whether a name may lie in a directory, as its layout says.
///
/// # Errors
/// [`Errno::ESTALE`] for a master, and for a stripe to which the name does not hash; those of the store.
pub(crate) fn check_place(
    xattrs: &(impl XattrsOf + ?Sized),
    directory: Fid,
    name: &[u8],
) -> Result<(), Errno> {
    let Some(layout) = layout_in(xattrs, directory)? else { return Ok(()) };
    let Holder::Stripe { number } = layout.holder() else { return Err(Errno::ESTALE) };
    // Of a stripe that is through it is known that a name which it had is gone, as long as the directory changes.
    match layout_for_names(directory, layout.clone())?.places(name) {
        Ok(places) if places.now == *number || places.before == Some(*number) => Ok(()),
        Ok(_) => Err(Errno::ESTALE),
        // What is in it can be used and removed still.
        Err(_) => Ok(()),
    }
}

/// The master of a stripe; `None` of any other inode.
///
/// # Errors
/// Those of the store.
pub(crate) fn master_in(
    xattrs: &(impl XattrsOf + ?Sized),
    directory: Fid,
) -> Result<Option<Fid>, Errno> {
    let layout = layout_in(xattrs, directory)?;
    match layout.as_ref().map(DirectoryLayout::holder) {
        Some(Holder::Stripe { .. }) => {
            let links = xattrs.xattr_of(directory, xattrs::LINK)?;
            parent_in_links(directory, links).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether both are the same directory to programs: one inode, or stripes of one master.
///
/// # Errors
/// Those of the store.
pub(crate) fn are_one_directory(
    xattrs: &(impl XattrsOf + ?Sized),
    one: Fid,
    other: Fid,
) -> Result<bool, Errno> {
    if one == other {
        return Ok(true);
    }
    let master = master_in(xattrs, one)?;
    Ok(master.is_some() && master == master_in(xattrs, other)?)
}

fn parent_in_links(directory: Fid, links: Option<Bytes>) -> Result<Fid, Errno> {
    let damaged =
        || store_errno(StoreError::Corrupt(format!("the list of the names of stripe {directory}")));
    let links = links.ok_or_else(damaged)?;
    let links = sheen_wire::md::LinkEa::decode(&links).map_err(|_| damaged())?;
    links.entries.first().map(|entry| entry.parent).ok_or_else(damaged)
}

/// What the parent of a directory is to programs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Above {
    /// Where the directory has its name: maybe a stripe.
    parent: Fid,
    /// What is shown for it.
    seen: Fid,
}

impl Above {
    /// What is shown for what the name stands for; `None` if it was `..` of something else a moment ago.
    pub(crate) fn seen_for(self, found: Fid) -> Option<Fid> {
        match self.parent {
            Fid::ZERO => Some(found),
            parent if parent == found => Some(self.seen),
            _ => None,
        }
    }
}

impl Mdt {
    /// As [`check_place`], of a directory here. Nothing is looked up where there is one MDT.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_place(&self, directory: Fid, name: &[u8]) -> Result<(), Errno> {
        match self.sequences.knows_other_mdts() {
            true => check_place(&*self.store, directory, name),
            false => Ok(()),
        }
    }

    /// The stripes of a directory here, in order; none if it is no master, or has gone: an operation that asks before it holds
    /// the name finds out by that.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn stripes_of(&self, directory: Fid) -> Result<Vec<Fid>, Errno> {
        if !self.sequences.knows_other_mdts() {
            return Ok(Vec::new());
        }
        match stripes_in(&*self.store, directory) {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            stripes => stripes,
        }
    }

    /// Where a name of a directory lies: in the stripe to which it hashes, if there are some; and where it may still be while they
    /// change.
    ///
    /// # Errors
    /// [`Errno::EBADF`] if the hash is unknown here, those of the store.
    pub(crate) fn directories_with(
        &self,
        directory: Fid,
        name: &[u8],
    ) -> Result<(Fid, Option<Fid>), Errno> {
        let Some(layout) = layout_in(&*self.store, directory)? else {
            return Ok((directory, None));
        };
        let Holder::Master { stripes, .. } = layout.holder() else { return Ok((directory, None)) };
        let places = layout
            .places(name)
            .map_err(logged!(Errno::EBADF, "the layout of a directory has no place for a name"))?;
        let stripe = |number: u32| stripes.get(number as usize).copied().ok_or(Errno::EBADF);
        Ok((stripe(places.now)?, places.before.map(stripe).transpose()?))
    }

    /// The stripes of a directory here that is about to be changed by itself; none if it is no master.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] for a stripe, which is as its master is, and may have been a directory of its own a moment ago; those of the
    /// store.
    pub(crate) fn stripes_to_change(&self, directory: Fid) -> Result<Vec<Fid>, Errno> {
        if !self.sequences.knows_other_mdts() {
            return Ok(Vec::new());
        }
        match layout_in(&*self.store, directory)?.as_ref().map(DirectoryLayout::holder) {
            Some(Holder::Master { stripes, .. }) => Ok(stripes.to_vec()),
            Some(Holder::Stripe { .. }) => Err(Errno::ESTALE),
            None => Ok(Vec::new()),
        }
    }

    /// As [`Mdt::stripes_to_change`], for a request. A replay is of before the directory became a stripe, which waits for no change of
    /// attributes to be durable: the master has it already.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn stripes_to_change_now(
        &self,
        context: &Context,
        directory: Fid,
    ) -> Result<Vec<Fid>, Errno> {
        match self.stripes_to_change(directory) {
            Err(Errno::ESTALE) if context.replay().is_some() => Ok(Vec::new()),
            stripes => stripes,
        }
    }

    /// The master of a stripe here; `None` of any other inode.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn master_of(&self, directory: Fid) -> Result<Option<Fid>, Errno> {
        match self.sequences.knows_other_mdts() {
            true => master_in(&*self.store, directory),
            false => Ok(None),
        }
    }

    /// What `..` of a directory is to programs: never a stripe. Of any other name nothing is looked up. Asks the MDT of a parent
    /// that lies elsewhere; so never while something is held.
    ///
    /// # Errors
    /// Those of the store and of the MDT.
    pub(crate) async fn above(
        &self,
        context: &Context,
        directory: Fid,
        name: &[u8],
    ) -> Result<Above, Errno> {
        if name != b".." || !self.sequences.knows_other_mdts() {
            return Ok(Above::default());
        }
        let parent = match self.parent(directory) {
            Ok(parent) => parent,
            // Said by who looks at the directory.
            Err(_) => return Ok(Above::default()),
        };
        let seen = match self.is_remote(parent) {
            true => self.seen_elsewhere(context, parent).await?,
            false => self.master_of(parent)?.unwrap_or(parent),
        };
        Ok(Above { parent, seen })
    }

    /// What is above a directory, without asking another MDT.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] where another MDT were to be asked, those of the store.
    pub(crate) fn above_here(&self, directory: Fid, name: &[u8]) -> Result<Above, Errno> {
        if name != b".." || !self.sequences.knows_other_mdts() {
            return Ok(Above::default());
        }
        let Ok(parent) = self.parent(directory) else { return Ok(Above::default()) };
        match self.is_remote(parent) {
            true => Err(Errno::EBUSY),
            false => Ok(Above { parent, seen: self.master_of(parent)?.unwrap_or(parent) }),
        }
    }

    /// A directory of another MDT as programs see it: the master, if it is a stripe.
    async fn seen_elsewhere(&self, context: &Context, directory: Fid) -> Result<Fid, Errno> {
        let mdt = self.mdt_of(&context.target, directory).await?;
        let Some(layout) = self.remote_xattr(mdt, directory, LMV, Order::InTurn).await? else {
            return Ok(directory);
        };
        match parse_layout(directory, &layout)?.holder() {
            Holder::Master { .. } => Ok(directory),
            Holder::Stripe { .. } => {
                let links = self.remote_xattr(mdt, directory, xattrs::LINK, Order::InTurn).await?;
                parent_in_links(directory, links)
            }
        }
    }
}

/// Adds the layout of a master or a stripe to what is answered of it; the value.
pub(crate) fn add_layout(value: Option<Bytes>, body: &mut MdtBody) -> Bytes {
    let Some(value) = value else { return Bytes::new() };
    body.valid |= Valid::DIREA | Valid::MEA;
    body.eadatasize = value.len() as u32;
    value
}

/// Adds a directory's default striping to a reply's body, in which it says so; what goes into the reply.
pub(crate) fn add_default(value: Option<Bytes>, body: &mut MdtBody) -> Bytes {
    let Some(value) = value else { return Bytes::new() };
    body.valid |= Valid::DIREA | Valid::DEFAULT_MEA;
    value
}

/// A stripe as it is made: of the master's attributes.
pub(crate) fn stripe_like(master: &Inode, fid: Fid) -> Inode {
    Inode { fid, ..master.clone() }
}
