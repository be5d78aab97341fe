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
//! takes both from all clients first. That a directory lies in one piece counts until an MDT says otherwise (`ESTALE`), or takes
//! the last of `LOOKUP`, `UPDATE` and `PERM`: its own changes take `UPDATE` alone.
//!
//! A directory that is moved gets another inode, its new master. What programs have of the old one (open, or worked in) leads to
//! the new one from then on ([`InodeState::moved_to`]).

use std::sync::Arc;

use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder};
use sheen_types::{Fid, Name};

use super::{Inode, InodeState, InodeTable, Pin};

/// How many moves of one directory are followed for a program that uses it as it was before.
const MOVES_FOLLOWED_MAX: u32 = 64;

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
    /// It is a stripe of this master, as far as that is known: a directory that lay in one piece, and becomes a stripe as
    /// it is moved, does not say of which one.
    StripeOf(Option<Fid>),
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
pub(crate) struct NamePlace<'a> {
    /// The directory that programs see.
    pub(crate) directory: &'a Inode,
    stripe: Option<Pin>,
    /// By which layout it was found; `None` in a directory in one piece.
    layout: Option<Arc<DirectoryLayout>>,
    /// While names are being moved: the stripe in which it may still be.
    before: Option<Fid>,
}

impl<'a> NamePlace<'a> {
    /// In a directory that lies in one piece.
    pub(crate) fn whole(directory: &'a Inode) -> Self {
        Self { directory, stripe: None, layout: None, before: None }
    }

    /// In a stripe of it.
    pub(crate) fn in_stripe(directory: &'a Inode, stripe: Pin) -> Self {
        Self { stripe: Some(stripe), ..Self::whole(directory) }
    }

    /// As it was found by `layout`, where it may still be in the stripe `before`.
    pub(crate) fn found_by(self, layout: Arc<DirectoryLayout>, before: Option<Fid>) -> Self {
        Self { layout: Some(layout), before, ..self }
    }

    /// By which layout it was found; `None` in a directory in one piece.
    pub(crate) fn layout(&self) -> Option<&Arc<DirectoryLayout>> {
        self.layout.as_ref()
    }

    /// While names are being moved: the stripe in which it may still be.
    pub(crate) fn before(&self) -> Option<Fid> {
        self.before
    }

    /// Whether it would be found so now, by locks that cover the layout, or that the directory lies in one piece.
    pub(crate) fn still_counts(&self) -> bool {
        let state = self.directory.state();
        match (&state.directory.striping, &self.layout) {
            (Striping::Master(known), Some(layout)) => {
                known.is_covered && *known.layout == **layout
            }
            (Striping::Whole, None) => state.directory.is_whole_covered,
            _ => false,
        }
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

    /// Whether a lock covers something of it that an MDT takes before it changes how a directory lies.
    pub(crate) fn is_lock_on_place(&self) -> bool {
        let covered = &self.covered;
        covered.lookup.is_covered() || covered.update.is_covered() || covered.perm.is_covered()
    }

    /// No lock covers these bits any more: whether one covers the layout still.
    pub(super) fn note_layout_uncovered(&mut self) {
        let is_locked = self.covered.lookup.is_covered() || self.covered.update.is_covered();
        let is_any = self.is_lock_on_place();
        match &mut self.directory.striping {
            Striping::Master(master) => master.is_covered &= is_locked,
            // It may become a stripe now. Its own changes leave `LOOKUP`.
            Striping::Whole if !is_any => {
                self.directory.striping = Striping::Unknown;
                self.directory.is_whole_covered = false;
                self.directory.was_whole = true;
            }
            Striping::Whole | Striping::Unknown | Striping::StripeOf(_) => {}
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

    /// Of a stripe the FID of its master, as far as that is known.
    pub(super) fn stripe_of(&self) -> Option<Fid> {
        match self.directory.striping {
            Striping::StripeOf(master) => master,
            _ => None,
        }
    }

    /// The directory that took the place of one that programs use: the master of what lay in one piece and became a
    /// stripe, or the new master of one that was moved.
    pub(crate) fn moved_to(&self) -> Option<Fid> {
        self.directory.moved_to.or_else(|| self.stripe_of())
    }

    /// Whether it says of itself that it is a stripe, and not of which directory.
    pub(crate) fn is_stripe_of_unknown(&self) -> bool {
        matches!(self.directory.striping, Striping::StripeOf(None))
    }

    /// What it lay in, as far as that was known: its stripes, or itself.
    pub(crate) fn former_stripes(&self, own: Fid) -> Vec<Fid> {
        match self.master_layout() {
            Some((layout, _)) => stripes(layout).collect(),
            None => vec![own],
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
        let mut before = Vec::new();
        for stripe in stripes(&layout) {
            let stripe = self.pin(stripe);
            let mut state = stripe.state();
            before.extend(state.stripe_of().filter(|master| *master != inode.fid));
            before.extend((state.lookups > 0).then_some(stripe.fid));
            state.note_stripe_of(inode.fid);
            drop(state);
            // Released with the layout, by [`Self::release_stripes`].
            stripe.keep_pinned();
        }
        let layout = MasterLayout { layout: Arc::new(layout), is_covered: false };
        let stale = self.put_striping(inode, Striping::Master(layout));
        before.dedup();
        for former in before.into_iter().filter_map(|former| self.pin_known(former)) {
            self.note_moved(&former, inode);
        }
        stale
    }

    /// The directory itself, or the one that has taken its place as far as is known.
    pub(crate) fn current(self: &Arc<Self>, directory: Pin) -> Pin {
        let mut current = directory;
        // Each move leads to another inode; what leads round in a circle, as no MDT says, ends too.
        for _ in 0..MOVES_FOLLOWED_MAX {
            let Some(next) = current.state().moved_to() else { break };
            // What has its number is the last one that has taken its place.
            let by_number = self.pin_node(current.node()).filter(|it| it.fid != current.fid);
            current = by_number.unwrap_or_else(|| self.pin(next));
        }
        current
    }

    /// What is known is not believed any more: an MDT has refused what was asked by it. The stripes stay, and what is kept
    /// under their locks, until an answer says otherwise.
    pub(crate) fn doubt_striping(&self, inode: &Inode) {
        let mut state = inode.state();
        state.directory.was_whole = false;
        match &mut state.directory.striping {
            Striping::Master(master) => master.is_covered = false,
            Striping::Whole => {
                state.directory.striping = Striping::Unknown;
                state.directory.is_whole_covered = false;
            }
            Striping::Unknown | Striping::StripeOf(_) => {}
        }
    }

    /// An MDT says that a directory is a stripe, and nothing of its master.
    pub(crate) fn note_stripe(self: &Arc<Self>, inode: &Inode) {
        let is_known = {
            let state = inode.state();
            matches!(state.directory.striping, Striping::StripeOf(_) | Striping::Master(_))
        };
        if !is_known {
            // Nothing in one piece has stripes to be released.
            _ = self.put_striping(inode, Striping::StripeOf(None));
        }
    }

    /// Whether `master`, whose layout is known, has taken the place of the directory `former`; notes it if so, and that what
    /// the kernel knows by the number of `former` is `master` from now on, if it can be.
    pub(crate) fn note_moved(self: &Arc<Self>, former: &Inode, master: &Inode) -> bool {
        let kept = former.state().former_stripes(former.fid);
        let has_one = master
            .state()
            .master_layout()
            .is_some_and(|(layout, _)| stripes(layout).any(|stripe| kept.contains(&stripe)));
        has_one && self.note_taken(former, master)
    }

    /// As [`Self::note_moved`], of a master that says by itself which FIDs the directory had before
    /// ([`sheen_layout::directory::FORMER`]).
    pub(crate) fn note_moved_as_said(
        self: &Arc<Self>,
        former: &Inode,
        master: &Inode,
        fids: &[Fid],
    ) -> bool {
        fids.contains(&former.fid) && self.note_taken(former, master)
    }

    fn note_taken(self: &Arc<Self>, former: &Inode, master: &Inode) -> bool {
        if former.fid == master.fid || former.state().directory.removed {
            return false;
        }
        // An answer from before the move comes late.
        if master.state().directory.moved_to.is_some() {
            return false;
        }
        former.state().directory.moved_to = Some(master.fid);
        if let (Some(former), Some(master)) = (self.by_fid(former.fid), self.by_fid(master.fid)) {
            let is_taken = self.take_number(&former, &master);
            let (from, to, node) = (former.fid, master.fid, former.node().0);
            tracing::debug!(%from, %to, %node, is_taken, "a directory was moved");
        }
        true
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
            state.directory.was_whole = false;
            state.directory.is_whole_covered =
                matches!(state.directory.striping, Striping::Whole) && state.is_lock_on_place();
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
            self.directory.striping = Striping::StripeOf(Some(master));
            self.directory.was_whole = false;
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
