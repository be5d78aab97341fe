//! Where a name is: on which MDT, and in which stripe of its directory (Lustre: LMV).
//!
//! The layout of a directory comes with its attributes, whenever those are asked for (`OBD_MD_MEA`), so a name that is looked up
//! from the root costs nothing more. Where it is not known, as of a directory that was just made, it is asked for: one RPC,
//! and none where there is one MDT. What an MDT refuses with `ESTALE` is tried again by the layout as it is then, at most
//! [`TRIES_MAX`] times, with pauses ([`Meta::pause_between`]).

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder};
use sheen_types::{Errno, Fid, Name};
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic, magic_of};
use sheen_wire::md::{MdtBody, Valid};

use super::Meta;
use crate::cache::{Inode, InodeState, NamePlace, Striping};
use crate::types::{Credentials, FileType, NameInvalidation, StaleName};

/// How often a call about a name is sent by another layout than before, or by the same where MDTs do not agree yet.
const TRIES_MAX: u32 = 8;

/// What an answer says of how a directory lies.
pub(super) enum RepliedStriping {
    /// Nothing.
    Nothing,
    Whole,
    /// It is a stripe of another one.
    Stripe,
    Stripes(DirectoryLayout),
}

/// Calls about a name that were refused because it is elsewhere, or may be.
#[derive(Default)]
pub(super) struct Tries {
    taken: u32,
    /// By which layout a name was absent last, that no lock covered then; `None` inside for a directory in one piece.
    absent_by: Option<Option<Arc<DirectoryLayout>>>,
}

/// What an answer with attributes says, that was asked for how the directory lies.
///
/// # Errors
/// `EOPNOTSUPP` of a directory that lies in another file system (`lfs mkdir --foreign`); `EPROTO` of what cannot be read.
pub(super) fn striping_in_reply(body: &MdtBody, layout: &Bytes) -> Result<RepliedStriping, Errno> {
    if !body.valid.contains(Valid::DIREA | Valid::MEA) {
        return Ok(RepliedStriping::Whole);
    }
    match magic_of(layout) {
        // A default: names are in it as in any directory.
        Some(LmvMagic::USER) => return Ok(RepliedStriping::Whole),
        Some(LmvMagic::STRIPE) => return Ok(RepliedStriping::Stripe),
        Some(LmvMagic::FOREIGN) => {
            tracing::debug!(directory = %body.fid1, "a foreign directory, which this client cannot use");
            return Err(Errno::EOPNOTSUPP);
        }
        _ => {}
    }
    let read = LmvEa::decode(layout).map_err(|error| error.to_string());
    let read = read.and_then(|ea| DirectoryLayout::from_ea(&ea).map_err(|error| error.to_string()));
    let layout = read.map_err(|error| {
        tracing::warn!(directory = %body.fid1, error, "the stripes of a directory cannot be read");
        Errno::EPROTO
    })?;
    match layout.holder() {
        Holder::Master { stripes, .. } if stripes.contains(&body.fid1) => Err(Errno::EPROTO),
        _ => Ok(RepliedStriping::Stripes(layout)),
    }
}

/// The default of new directories that an answer has, which was asked for it. One that cannot be read counts as none.
pub(super) fn default_in_reply(body: &MdtBody, default: &Bytes) -> Option<DirectoryWish> {
    if !body.valid.contains(Valid::DEFAULT_MEA) || default.is_empty() {
        return None;
    }
    let wish = LmvEa::decode(default).ok()?;
    DirectoryWish::from_ea(&wish).ok()
}

impl Tries {
    /// How many were taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// A name is absent at `place`, which no lock covers any more. Whether it was so by the same layout before, as was said
    /// after that answer, and no name moves by that: layouts do not go back, so it was absent then.
    pub(super) fn is_absent_again(&mut self, place: &NamePlace<'_>) -> bool {
        let layout = place.layout().cloned();
        let is_at_rest = layout.as_ref().is_none_or(|layout| layout.change().is_none());
        let before = self.absent_by.replace(layout);
        is_at_rest && before.is_some() && before == self.absent_by
    }

    /// Whether there is one more; that is taken.
    pub(super) fn take(&mut self) -> bool {
        let is_left = self.taken < TRIES_MAX;
        self.taken += u32::from(is_left);
        is_left
    }
}

impl Meta {
    /// Notes how an inode lies, as an answer of its MDT says.
    pub(super) fn note_striping(&self, inode: &Inode, said: RepliedStriping) {
        if inode.file_type() != Some(FileType::Directory) {
            return;
        }
        let stale = match said {
            RepliedStriping::Nothing => None,
            RepliedStriping::Whole => self.cache.inodes.note_striping(inode, None),
            RepliedStriping::Stripe => {
                self.cache.inodes.note_stripe(inode);
                None
            }
            RepliedStriping::Stripes(layout) => {
                self.mdts.note_several();
                self.cache.inodes.note_striping(inode, Some(layout))
            }
        };
        // No lock that is lost later leads from stripes of before to what the kernel keeps.
        let Some(stale) = stale else { return };
        let (cache, parent) = (Arc::clone(&self.cache), inode.node());
        let pinned = self.cache.inodes.pin_node(parent);
        let invalidated = async move {
            // Until the kernel has processed it.
            let _pinned = pinned;
            // Names that are in other stripes are among them.
            let by = NameInvalidation::Expire;
            let names = stale.into_iter().map(|name| StaleName { parent, name, by }).collect();
            cache.kernel_cache.invalidate_names(names).await;
            cache.kernel_cache.invalidate_attributes_but_size(parent).await;
        };
        self.world.tasks.spawn("other stripes", Box::pin(invalidated));
    }

    /// Where `name` is in a directory. No RPC where that is known, else one.
    ///
    /// # Errors
    /// `EBADF` if the directory's hash is unknown, as Lustre's client: a name may be in any stripe then
    /// ([`Self::all_places`]), and none is made; `ENODEV` if the stripe was lost; `ESTALE` if another inode has taken the
    /// directory's place; those of a getattr.
    pub(crate) async fn place<'a>(
        &self,
        who: &Credentials,
        directory: &'a Inode,
        name: &Name,
    ) -> Result<NamePlace<'a>, Errno> {
        if let Some(place) = self.known_place(directory, name)? {
            return Ok(place);
        }
        let asked = self.rights(who, directory).await;
        // It may have been moved.
        if matches!(asked, Err(Errno::ENOENT | Errno::ESTALE))
            || directory.state().is_stripe_of_unknown()
        {
            self.follow_moved(who, directory).await;
        }
        asked.map_err(|errno| match errno {
            // What a request about a name in a directory that is no more is answered.
            Errno::ENOENT => Errno::ESTALE,
            errno => errno,
        })?;
        let is_elsewhere = {
            let state = directory.state();
            state.moved_to().is_some() || state.is_stripe_of_unknown()
        };
        if is_elsewhere {
            tracing::debug!(directory = %directory.fid, "another inode has taken its place");
            return Err(Errno::ESTALE);
        }
        self.last_known_place(directory, name)
    }

    /// Where a name is to be made: as [`Self::place`], but in a directory that was in one piece when that was last known without
    /// a question, as its MDT refuses names that belong elsewhere.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub(super) async fn place_to_add<'a>(
        &self,
        who: &Credentials,
        directory: &'a Inode,
        name: &Name,
    ) -> Result<NamePlace<'a>, Errno> {
        if directory.state().directory.was_whole {
            return Ok(NamePlace::whole(directory));
        }
        self.place(who, directory, name).await
    }

    /// Where a name is, as far as that is known. No RPC.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub(crate) fn known_place<'a>(
        &self,
        directory: &'a Inode,
        name: &Name,
    ) -> Result<Option<NamePlace<'a>>, Errno> {
        let layout = {
            let state = directory.state();
            match (&state.directory.striping, state.master_layout()) {
                (_, Some((_, false))) => return Ok(None),
                (_, Some((layout, true))) => Arc::clone(layout),
                (_, None) if state.moved_to().is_some() => return Err(Errno::ESTALE),
                (Striping::StripeOf(None), None) => return Ok(None),
                (Striping::Unknown, None) if self.must_ask(&state) => return Ok(None),
                (_, None) => return Ok(Some(NamePlace::whole(directory))),
            }
        };
        self.place_by(directory, layout, name).map(Some)
    }

    /// Whether how a directory lies must be asked for, if it is not known: not where there is one MDT, whose answers to all
    /// questions about it have said it, but for one of which none was asked since the mount's process was replaced.
    fn must_ask(&self, state: &InodeState) -> bool {
        self.mdts.has_several() || state.file_type().is_none()
    }

    /// By what was last known, current or not.
    fn last_known_place<'a>(
        &self,
        directory: &'a Inode,
        name: &Name,
    ) -> Result<NamePlace<'a>, Errno> {
        let layout = directory.state().master_layout().map(|(layout, _)| Arc::clone(layout));
        match layout {
            Some(layout) => self.place_by(directory, layout, name),
            None => Ok(NamePlace::whole(directory)),
        }
    }

    fn place_by<'a>(
        &self,
        directory: &'a Inode,
        layout: Arc<DirectoryLayout>,
        name: &Name,
    ) -> Result<NamePlace<'a>, Errno> {
        let (now, before) = stripes_of(&layout, name)?;
        let place = NamePlace::in_stripe(directory, self.cache.inodes.pin(now));
        Ok(place.found_by(layout, before))
    }

    /// All places that a name of a directory can have: its stripes, where its hash is unknown.
    pub(super) fn all_places<'a>(&self, directory: &'a Inode) -> Vec<NamePlace<'a>> {
        let stripes = self.cache.inodes.stripes_of(directory);
        stripes.into_iter().map(|stripe| NamePlace::in_stripe(directory, stripe)).collect()
    }

    /// Whether a call about a name that was answered `errno` is to be made again: the layout of the directory may be another
    /// than it was asked by, which is not believed any more.
    pub(super) fn may_be_elsewhere(
        &self,
        place: &NamePlace<'_>,
        tries: &mut Tries,
        errno: Errno,
    ) -> bool {
        let is_refused =
            errno == Errno::ESTALE && (place.is_in_stripe() || self.mdts.has_several());
        if is_refused {
            let (directory, stripe) = (place.directory.fid, place.holder().fid);
            let changes = place.before().is_some();
            tracing::debug!(%directory, %stripe, changes, tries = tries.taken, "a name is not there");
        }
        if !is_refused || !tries.take() {
            return false;
        }
        self.cache.inodes.doubt_striping(place.directory);
        true
    }

    /// Asks how a directory lies unless that is known. No RPC where it is, else one.
    pub(super) async fn fetch_striping(
        &self,
        who: &Credentials,
        directory: &Inode,
    ) -> Result<(), Errno> {
        let is_known = {
            let state = directory.state();
            match (state.master_layout(), &state.directory.striping) {
                (Some((_, is_covered)), _) => is_covered,
                (None, Striping::Unknown) => !self.must_ask(&state),
                (None, _) => true,
            }
        };
        match is_known {
            true => Ok(()),
            false => self.rights(who, directory).await,
        }
    }
}

/// The stripe that has a name, or is to have it; and while names are being moved the one that may have it still.
fn stripes_of(layout: &DirectoryLayout, name: &Name) -> Result<(Fid, Option<Fid>), Errno> {
    if layout.hash().0 & LmvHash::BAD_TYPE != 0 {
        return Err(Errno::EBADF);
    }
    let places = layout.places(name.as_bytes()).map_err(|error| {
        tracing::debug!(%error, "names of a directory cannot be found");
        Errno::EBADF
    })?;
    let Holder::Master { stripes, .. } = layout.holder() else { return Err(Errno::EPROTO) };
    let stripe = |number: u32| stripes.get(number as usize).copied().filter(Fid::is_of_mdt);
    let now = stripe(places.now).ok_or(Errno::ENODEV)?;
    Ok((now, places.before.and_then(stripe)))
}
