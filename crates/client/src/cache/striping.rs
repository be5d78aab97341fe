//! How a directory lies on MDTs, as far as that is known, and where a name of it is then.
//!
//! A directory in stripes is two kinds of inode here. The *master* has what programs and the kernel see: node, names that were
//! looked up, rights. Each *stripe* has what its own lock on `UPDATE` covers: attributes, pages, absent names, this client's
//! changes of names. The kernel never sees a stripe; what it keeps because of one it keeps under the master's node.
//!
//! What always holds: the stripes of a known layout are in the table of inodes as long as the layout is, pinned by it, so no
//! lock on one is lost without being noted.
//!
//! A layout counts while the master's `LOOKUP` or `UPDATE` is covered without a gap since it came: an MDT that changes one
//! takes both from all clients first. That a directory lies in one piece counts until an MDT says otherwise (`ESTALE`): its
//! own changes would cost a question each.

use std::sync::Arc;

use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder};
use sheen_types::{Fid, Name};

use super::{Inode, InodeState, InodeTable, Pin};

/// What is known.
#[derive(Default)]
pub(crate) enum Striping {
    /// Nothing.
    #[default]
    Unknown,
    /// It lies in one piece.
    Whole,
    /// It is a master.
    Master(MasterLayout),
    /// It is a stripe of this master.
    StripeOf(Fid),
}

/// The default of directories that are made in one, as far as it is known.
#[derive(Clone, Default)]
pub(crate) enum DefaultStriping {
    #[default]
    Unknown,
    /// It has none of its own.
    None,
    Some(Arc<DirectoryWish>),
}

/// The layout of a master.
pub(crate) struct MasterLayout {
    layout: Arc<DirectoryLayout>,
    /// See the module's documentation.
    is_covered: bool,
}

/// Where a name is, or is to be.
pub(crate) struct Place<'a> {
    /// The directory that programs see.
    pub(crate) directory: &'a Inode,
    stripe: Option<Pin>,
}

impl<'a> Place<'a> {
    /// In a directory that lies in one piece.
    pub(crate) fn whole(directory: &'a Inode) -> Self {
        Self { directory, stripe: None }
    }

    /// In a stripe of it.
    pub(crate) fn in_stripe(directory: &'a Inode, stripe: Pin) -> Self {
        Self { directory, stripe: Some(stripe) }
    }

    /// What has the name: a stripe, or the directory itself. Requests name it, and its locks cover what is known.
    pub(crate) fn holder(&self) -> &Inode {
        self.stripe.as_deref().map_or(self.directory, |stripe| stripe)
    }

    /// Whether it is in a stripe.
    pub(crate) fn is_in_stripe(&self) -> bool {
        self.stripe.is_some()
    }
}

/// The stripes that there are: what is no FID of an inode is one that was lost.
fn stripes(layout: &DirectoryLayout) -> impl Iterator<Item = Fid> {
    let stripes: &[Fid] = match layout.holder() {
        Holder::Master { stripes, .. } => stripes,
        Holder::Stripe { .. } => &[],
    };
    stripes.iter().copied().filter(Fid::is_of_mdt)
}

impl InodeState {
    /// The layout of a master, and whether locks cover it.
    pub(crate) fn master_layout(&self) -> Option<(&Arc<DirectoryLayout>, bool)> {
        match &self.directory.striping {
            Striping::Master(MasterLayout { layout, is_covered }) => Some((layout, *is_covered)),
            Striping::Unknown | Striping::Whole | Striping::StripeOf(_) => None,
        }
    }

    /// No lock covers these bits any more: whether one covers the layout still.
    pub(super) fn note_layout_uncovered(&mut self) {
        let is_locked = self.covered.lookup.is_covered() || self.covered.update.is_covered();
        if let Striping::Master(master) = &mut self.directory.striping {
            master.is_covered &= is_locked;
        }
        // Lustre's MDT takes `LOOKUP` and `XATTR` of a directory whose default changes.
        self.directory.is_default_covered &= self.covered.lookup.is_covered();
    }

    /// Notes the default that an answer has; `is_locked` if a lock on `LOOKUP` came with it, under which it counts. Without one,
    /// what a lock covers already is left alone, because replies may overtake each other.
    pub(crate) fn note_default_striping(
        &mut self,
        default: Option<DirectoryWish>,
        is_locked: bool,
    ) {
        if !is_locked && self.directory.is_default_covered {
            return;
        }
        self.directory.is_default_covered = is_locked && self.covered.lookup.is_covered();
        self.directory.default = match default {
            None => DefaultStriping::None,
            Some(wish) => DefaultStriping::Some(Arc::new(wish)),
        };
    }

    /// Of a stripe the FID of its master.
    pub(super) fn stripe_of(&self) -> Option<Fid> {
        match self.directory.striping {
            Striping::StripeOf(master) => Some(master),
            _ => None,
        }
    }
}

impl InodeTable {
    /// Notes how a directory lies by an MDT's answer: in stripes by `layout`, or in one piece. It counts as covered if a
    /// lock came with the answer that covers it.
    ///
    /// Returns which names that the kernel may keep are known to be absent no longer, if another layout was known: its attributes
    /// are stale there, too.
    #[must_use]
    pub(crate) fn note_striping(
        self: &Arc<Self>,
        inode: &Inode,
        layout: Option<DirectoryLayout>,
    ) -> Option<Vec<Name>> {
        let Some(layout) = layout else {
            return self.put_striping(inode, Striping::Whole);
        };
        {
            let mut state = inode.state();
            let is_locked = state.covered.lookup.is_covered() || state.covered.update.is_covered();
            if let Striping::Master(known) = &mut state.directory.striping
                && *known.layout == layout
            {
                known.is_covered |= is_locked;
                return None;
            }
        }
        if stripes(&layout).count() < layout.stripe_count().get() as usize {
            tracing::warn!(directory = %inode.fid, "a stripe of a directory was lost: its names are not listed");
        }
        for stripe in stripes(&layout) {
            let stripe = self.pin(stripe);
            stripe.state().note_stripe_of(inode.fid);
            // Released with the layout, by [`Self::release_stripes`].
            stripe.keep_pinned();
        }
        let layout = MasterLayout { layout: Arc::new(layout), is_covered: false };
        self.put_striping(inode, Striping::Master(layout))
    }

    /// What is known is not believed any more: an MDT has refused what was asked by it. The stripes stay, and what is kept
    /// under their locks, until an answer says otherwise.
    pub(crate) fn doubt_striping(&self, inode: &Inode) {
        let mut state = inode.state();
        match &mut state.directory.striping {
            Striping::Master(master) => master.is_covered = false,
            Striping::Whole => state.directory.striping = Striping::Unknown,
            Striping::Unknown | Striping::StripeOf(_) => {}
        }
    }

    fn put_striping(self: &Arc<Self>, inode: &Inode, striping: Striping) -> Option<Vec<Name>> {
        let former = {
            let mut state = inode.state();
            if matches!(state.directory.striping, Striping::StripeOf(_))
                && !matches!(striping, Striping::Master(_))
            {
                return None;
            }
            let is_locked = state.covered.lookup.is_covered() || state.covered.update.is_covered();
            let former = std::mem::replace(&mut state.directory.striping, striping);
            if let Striping::Master(master) = &mut state.directory.striping {
                master.is_covered = is_locked;
            }
            former
        };
        let stale = match &former {
            Striping::Master(master) => Some(self.absent_from(inode, &master.layout)),
            _ => None,
        };
        self.release_stripes(former);
        stale
    }

    /// The names that are known to be absent from stripes of a directory, and not kept as such any more.
    fn absent_from(&self, master: &Inode, layout: &DirectoryLayout) -> Vec<Name> {
        let mut absent = Vec::new();
        for stripe in stripes(layout).filter_map(|stripe| self.by_fid(stripe)) {
            if let Some(update) = stripe.state().covered.update.get_mut() {
                absent.extend(std::mem::take(&mut update.absent));
            }
        }
        let mut state = master.state();
        absent.iter().for_each(|name| state.forget_kept_child(name));
        absent
    }

    /// The pins that a layout had. Not under any lock.
    pub(super) fn release_stripes(&self, former: Striping) {
        let Striping::Master(MasterLayout { layout, .. }) = former else { return };
        for stripe in stripes(&layout) {
            if let Some(stripe) = self.by_fid(stripe) {
                let is_idle = {
                    let mut state = stripe.state();
                    state.pins -= 1;
                    state.is_idle()
                };
                if is_idle {
                    self.release(&stripe);
                }
            }
        }
    }

    /// The stripes of a master that are there, pinned; none of any other inode.
    pub(crate) fn stripes_of(self: &Arc<Self>, inode: &Inode) -> Vec<Pin> {
        let layout = inode.state().master_layout().map(|(layout, _)| Arc::clone(layout));
        let Some(layout) = layout else { return Vec::new() };
        stripes(&layout).map(|stripe| self.pin(stripe)).collect()
    }
}

impl InodeState {
    fn note_stripe_of(&mut self, master: Fid) {
        // A master is no stripe, whatever an MDT says.
        if !matches!(self.directory.striping, Striping::Master(_)) {
            self.directory.striping = Striping::StripeOf(master);
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{InodeBits, MdtIndex};
    use sheen_wire::lmv::LmvHash;

    use super::*;

    const MASTER: Fid = Fid::new(0x2_0000_0401, 7);
    const STRIPES: [Fid; 2] = [Fid::new(0x2_0000_0400, 4), Fid::new(0x2_4000_0400, 4)];

    fn layout(stripes: &[Fid]) -> DirectoryLayout {
        DirectoryLayout::new(MdtIndex(0), LmvHash::CRUSH, stripes.to_vec()).expect("a layout")
    }

    #[test]
    fn stripes_live_as_long_as_the_layout_of_their_master() {
        let inodes = InodeTable::new(Fid::ROOT);
        let master = inodes.pin(MASTER);
        _ = inodes.note_striping(&master, Some(layout(&STRIPES)));
        assert_eq!(inodes.len(), 4);
        assert_eq!(inodes.pin(STRIPES[1]).state().stripe_of(), Some(MASTER));
        // Another one, of which one stripe is the same, and one is lost.
        let other = [STRIPES[1], Fid::ZERO];
        assert_eq!(inodes.note_striping(&master, Some(layout(&other))), Some(vec![]));
        let kept: Vec<Fid> = inodes.stripes_of(&master).iter().map(|it| it.fid).collect();
        assert_eq!((kept, inodes.len()), (vec![STRIPES[1]], 3));
        drop(master);
        assert_eq!(inodes.len(), 1, "the root");
    }

    #[test]
    fn a_layout_counts_while_the_masters_lock_does() {
        let inodes = InodeTable::new(Fid::ROOT);
        let master = inodes.pin(MASTER);
        let is_covered = || master.state().master_layout().is_some_and(|(_, covered)| covered);
        _ = inodes.note_striping(&master, Some(layout(&STRIPES)));
        assert!(!is_covered(), "it came without a lock");
        master.state().cover_bits(InodeBits::LOOKUP | InodeBits::UPDATE);
        _ = inodes.note_striping(&master, Some(layout(&STRIPES)));
        assert!(is_covered());
        let lose = |bits| {
            master.state().lose_bits(bits);
            master.state().note_layout_uncovered();
        };
        lose(InodeBits::UPDATE);
        assert!(is_covered());
        lose(InodeBits::LOOKUP);
        assert!(!is_covered());
        // What an MDT has refused is asked for again, and its stripes stay.
        master.state().cover_bits(InodeBits::LOOKUP);
        assert_eq!(inodes.note_striping(&master, Some(layout(&STRIPES))), None);
        assert!(is_covered());
        inodes.doubt_striping(&master);
        assert!(!is_covered() && inodes.len() == 4);
    }
}
