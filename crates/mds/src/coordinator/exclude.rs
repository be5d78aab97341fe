//! What a change over several MDTs is about, and excluding it on each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sheen_io::logged;
use sheen_rpc::ImportState;
use sheen_store::FileKind;
use sheen_target::{Incarnation, Target, Wait, while_waiting};
use sheen_types::{Errno, Fid, InodeBits, LogicalTime, MdtIndex, Name};
use sheen_wire::out::{
    Exclude, ExcludeFlags, ExcludeInode, ExcludeName, Excluded, ExcludedInode, InodeState,
    NameNeeds, ObjectUpdate, Release, ReleaseFlags,
};
use tokio::sync::OwnedMutexGuard;

use super::ask::{EXCLUSION_BYTES, Order, RESULT_BYTES, call_until_let_in, child_of, request_of};
use super::initiator::Initiator;
use super::old_place::OldStripe;
use super::recover::pause;
use crate::Mdt;
use crate::directory::Child;
use crate::inode::Inode;
use crate::participant::attributes_of;
use crate::xattrs::{ACL_ACCESS, ACL_DEFAULT, DEFAULT_LMV, LINK, LMV, LOV, XattrsOf};

/// The MDT that has the rename lock.
const RENAMES_ON: MdtIndex = MdtIndex(0);
/// What clients keep of an inode that gains or loses a name.
pub(super) const LINKS: InodeBits =
    InodeBits::LOOKUP.union(InodeBits::UPDATE).union(InodeBits::XATTR);

/// What a change over several MDTs is about, and is to be excluded.
#[derive(Default)]
pub(super) struct ExclusionRequest {
    pub(super) names: Vec<ExcludeName>,
    /// Each with what is revoked of it from clients.
    pub(super) inodes: Vec<(Fid, InodeBits)>,
    /// A directory moves to another one.
    pub(super) renames: bool,
}

impl ExclusionRequest {
    /// A name that is added.
    pub(super) fn added(mut self, directory: Fid, name: &Name) -> Self {
        self.push(directory, name, NameNeeds::CHANGES);
        self
    }

    /// A name that is added, in the stripe of before, if there is one.
    pub(super) fn added_in(self, old: Option<OldStripe>, name: &Name) -> Self {
        match old {
            Some(stripe) => self.added(stripe.fid, name),
            None => self,
        }
    }

    /// A name that is removed from the inode that it stands for.
    pub(super) fn removed(mut self, directory: Fid, name: &Name) -> Self {
        self.push(directory, name, NameNeeds::CHANGES | NameNeeds::INODE | NameNeeds::NEEDED);
        self
    }

    /// A name that is added, or replaced: then the inode that it stood for loses it.
    pub(super) fn replaced(mut self, directory: Fid, name: &Name) -> Self {
        self.push(directory, name, NameNeeds::CHANGES | NameNeeds::INODE);
        self
    }

    /// An inode that gains or loses a name, or goes.
    pub(super) fn inode(self, inode: Fid) -> Self {
        self.changed(inode, LINKS)
    }

    /// An inode of which this changes.
    pub(super) fn changed(mut self, inode: Fid, bits: InodeBits) -> Self {
        match self.inodes.iter_mut().find(|(fid, _)| *fid == inode) {
            Some((_, all)) => *all = *all | bits,
            None => self.inodes.push((inode, bits)),
        }
        self
    }

    fn push(&mut self, directory: Fid, name: &Name, needs: NameNeeds) {
        let revoked = if needs.contains(NameNeeds::INODE) { LINKS } else { InodeBits(0) };
        self.names.push(ExcludeName { directory, name: name.clone(), needs, revoked });
    }
}

/// An exclusion on one MDT.
#[derive(Clone, Copy)]
pub(super) struct MdtExclusion {
    pub(super) mdt: MdtIndex,
    pub(super) number: u64,
}

/// A guard of what is excluded on several MDTs, with what those have answered of it.
#[must_use]
pub(super) struct DistributedHold {
    mdt: Arc<Mdt>,
    target: Arc<Target>,
    /// The rename lock, if it is held, is not among them.
    exclusions: Vec<MdtExclusion>,
    renames: Option<MdtExclusion>,
    /// Of the renames of this MDT that want the rename lock, it is this one's turn.
    turn: Option<OwnedMutexGuard<()>>,
    /// An inode of this MDT that no client may have open when the change is made.
    pub(super) closed: Option<Fid>,
    pub(super) relied_on: Vec<Incarnation>,
    /// The largest logical time of those that were asked.
    pub(super) time: LogicalTime,
    names: Vec<(Fid, Name, Option<Child>)>,
    inodes: BTreeMap<Fid, ExcludedInode>,
}

impl Mdt {
    /// Which MDT has an inode.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if none has, and those of MDT0000, which may have to be asked.
    pub(crate) async fn mdt_of(&self, target: &Target, inode: Fid) -> Result<MdtIndex, Errno> {
        if inode.seq == Fid::ROOT.seq || inode.seq == sheen_types::fid_seq::DOT_LUSTRE {
            return Ok(MdtIndex(0));
        }
        let range = self.holder(target, inode.seq).await?;
        match range.flags == sheen_wire::fld::SeqRangeFlags::MDT {
            true => u16::try_from(range.index).map(MdtIndex).map_err(|_| Errno::ENOENT),
            false => Err(Errno::ENOENT),
        }
    }

    /// Excludes all other changes of what is wanted, on each MDT, and learns what it is. Never called by an operation
    /// that holds something.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if a name is absent that is needed; those of the MDTs and of `may_coordinate`.
    pub(super) async fn hold_distributed(
        &self,
        by: Initiator<'_>,
        wanted: ExclusionRequest,
    ) -> Result<DistributedHold, Errno> {
        may_coordinate(by)?;
        let target = by.target();
        let mut held = DistributedHold {
            mdt: self.me.upgrade().ok_or(Errno::ESHUTDOWN)?,
            target: Arc::clone(target),
            exclusions: Vec::new(),
            renames: None,
            turn: None,
            closed: None,
            relied_on: Vec::new(),
            time: LogicalTime(0),
            names: Vec::new(),
            inodes: BTreeMap::new(),
        };
        let mut by_mdt: BTreeMap<MdtIndex, (Vec<ExcludeName>, Vec<ExcludeInode>)> = BTreeMap::new();
        for name in wanted.names {
            by_mdt.entry(self.mdt_of(target, name.directory).await?).or_default().0.push(name);
        }
        for (fid, revoked) in wanted.inodes {
            let inodes = &mut by_mdt.entry(self.mdt_of(target, fid).await?).or_default().1;
            inodes.push(ExcludeInode { fid, revoked });
        }
        self.until_there(target, by_mdt.keys()).await;
        if wanted.renames {
            let turns = Arc::clone(&self.coordinator.renames);
            held.turn = Some(while_waiting(Wait::Operation, turns.lock_owned()).await);
            let flags = ExcludeFlags::RENAMES;
            let exclude = Exclude { flags, ..self.new_exclusion(by) };
            held.renames = Some(MdtExclusion { mdt: RENAMES_ON, number: exclude.number });
            held.exclude(target, RENAMES_ON, exclude).await?;
        }
        for (mdt, (names, inodes)) in by_mdt {
            let exclude = Exclude { names, inodes, ..self.new_exclusion(by) };
            held.exclusions.push(MdtExclusion { mdt, number: exclude.number });
            held.exclude(target, mdt, exclude).await?;
        }
        Ok(held)
    }

    /// Waits until all of the MDTs are there, while nothing is excluded on any: else one that is away would stop, on the other
    /// MDTs, all that is about the same names and inodes.
    pub(super) async fn until_there(&self, target: &Target, mdts: impl Iterator<Item = &MdtIndex>) {
        for mdt in mdts {
            let is_away = || self.partner(*mdt).is_ok_and(|channel| comes_back(channel.state()));
            while mdt.0 != self.index && is_away() {
                while_waiting(Wait::Mdt, pause(target)).await;
            }
        }
    }

    fn new_exclusion(&self, by: Initiator<'_>) -> Exclude {
        Exclude {
            starts: by.target().incarnation().starts,
            number: self.coordinator.next_exclusion(),
            client: by.client(),
            ..Exclude::default()
        }
    }

    /// Ends an exclusion; if it is another MDT's, by a task of its own.
    fn release_distributed(&self, target: &Arc<Target>, exclusion: MdtExclusion) {
        let (own, number) = (target.incarnation(), exclusion.number);
        if exclusion.mdt == own.mdt {
            return self.release(own, number);
        }
        let Ok(channel) = self.partner(exclusion.mdt) else { return };
        let release = Release { starts: own.starts, flags: ReleaseFlags::NONE, number };
        let request =
            move || request_of(&[ObjectUpdate::release(&release)], RESULT_BYTES, Order::Awaited);
        let Ok(call) = request() else { return };
        // Else it would be excluded there until this MDT is started anew.
        let released = async move { _ = call_until_let_in(&*channel, call, request).await };
        target.world().tasks.spawn("release", Box::pin(released));
    }
}

/// Whether an MDT is away and is being reached again. Where nothing is under way it is asked: that wakes an idle connection, and one
/// that is closed says so. An MDT that has refused this one for good looks like one that is away, and is waited for, too.
pub(super) fn comes_back(state: ImportState) -> bool {
    use ImportState::{Connecting, Disconn, Recover, Replay, ReplayLocks, ReplayWait};
    matches!(state, Disconn | Connecting | Replay | ReplayLocks | ReplayWait | Recover)
}

/// Whether a change over several MDTs may begin.
///
/// # Errors
/// [`Errno::EAGAIN`] while this MDT recovers: what it coordinates has a number of its own, and those are replays' then.
/// [`Errno::ESTALE`] for a replay: a client is answered when its change is durable, so one that is not there was never made.
pub(super) fn may_coordinate(by: Initiator<'_>) -> Result<(), Errno> {
    let replayed = by.request().and_then(|context| Some((context, context.replay()?)));
    match replayed {
        Some((context, transno)) => {
            tracing::warn!(client = %context.export.uuid(), %transno,
                "a replay of a change over several MDTs that was never made: refused");
            Err(Errno::ESTALE)
        }
        None if by.target().is_recovering() => Err(Errno::EAGAIN),
        None => Ok(()),
    }
}

impl DistributedHold {
    /// Nothing of it is released before this MDT has started anew, and knows what has become of the change.
    pub(super) fn keep(mut self) {
        self.exclusions.clear();
        self.renames = None;
    }

    /// Excludes on one MDT. What it is about is noted before: whatever becomes of the request, it is released.
    async fn exclude(
        &mut self,
        target: &Arc<Target>,
        mdt: MdtIndex,
        exclude: Exclude,
    ) -> Result<(), Errno> {
        let own = target.incarnation();
        let asked: Vec<_> =
            exclude.names.iter().map(|it| (it.directory, it.name.clone())).collect();
        let excluded = match mdt == own.mdt {
            true => self.mdt.exclude(target, own, &exclude).await?,
            false => {
                let update = ObjectUpdate::exclude(&exclude)
                    .map_err(logged!(Errno::E2BIG, "an exclusion is larger than a message"))?;
                // The rename lock waits for no place: what has it excludes names, which does, and one asks for it at a time.
                let order = match exclude.flags.contains(ExcludeFlags::RENAMES) {
                    true => Order::Awaited,
                    false => Order::InTurn,
                };
                let results = self.mdt.ask(mdt, &[update], EXCLUSION_BYTES, order).await?;
                let data = &results.first().ok_or(Errno::EPROTO)?.data;
                Excluded::decode(data).map_err(logged!(
                    Errno::EPROTO,
                    "another MDT's answer to an exclusion cannot be read"
                ))?
            }
        };
        if excluded.names.len() != asked.len() {
            return Err(Errno::EPROTO);
        }
        self.relied_on.push(Incarnation { mdt, starts: excluded.starts });
        self.time = self.time.max(excluded.time);
        for ((directory, name), found) in asked.into_iter().zip(&excluded.names) {
            self.names.push((directory, name, child_of(found)?));
        }
        for mut inode in excluded.inodes {
            if inode.state.contains(InodeState::LEFT_OUT) {
                self.read_omitted_xattrs(mdt, &mut inode).await?;
            }
            self.inodes.insert(inode.fid, inode);
        }
        Ok(())
    }

    /// Reads extended attributes that had no room in the answer.
    async fn read_omitted_xattrs(
        &self,
        mdt: MdtIndex,
        inode: &mut ExcludedInode,
    ) -> Result<(), Errno> {
        for name in [ACL_ACCESS, ACL_DEFAULT, LOV, LINK, LMV, DEFAULT_LMV] {
            if inode.xattr(name).is_some() {
                continue;
            }
            let value = match mdt.0 == self.mdt.index {
                true => self.mdt.store.xattr_of(inode.fid, name)?,
                false => self.mdt.remote_xattr(mdt, inode.fid, name, Order::Awaited).await?,
            };
            inode.xattrs.extend(value.map(|value| (name.into(), value)));
        }
        Ok(())
    }

    /// Who coordinates.
    pub(super) fn mdt(&self) -> Arc<Mdt> {
        Arc::clone(&self.mdt)
    }

    /// Whether a directory has a name, or its stripe of before.
    pub(super) fn is_there(&self, directory: Fid, old: Option<OldStripe>, name: &Name) -> bool {
        let old = old.map(|stripe| stripe.fid);
        let mut places = [Some(directory), old].into_iter().flatten();
        places.any(|place| self.child(place, name).is_some())
    }

    /// What a name stands for.
    pub(super) fn child(&self, directory: Fid, name: &Name) -> Option<Child> {
        let found = self.names.iter().find(|(it, named, _)| *it == directory && named == name);
        found.and_then(|(.., child)| *child)
    }

    /// An inode that is excluded, or the directory of a name.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if it is not there, [`Errno::EPROTO`] if its MDT has said nothing of it.
    pub(super) fn inode(&self, fid: Fid) -> Result<Inode, Errno> {
        let found = self.inodes.get(&fid).ok_or(Errno::EPROTO)?;
        if !found.state.contains(InodeState::EXISTS) {
            return Err(Errno::ENOENT);
        }
        let attributes = attributes_of(&found.attributes).ok_or(Errno::EPROTO)?;
        Ok(Inode { fid, attributes, is_damaged: false })
    }

    /// Whether its MDT has said something of an inode.
    pub(super) fn is_held(&self, inode: Fid) -> bool {
        self.inodes.contains_key(&inode)
    }

    /// A directory.
    ///
    /// # Errors
    /// [`Errno::ENOTDIR`], or those of [`Self::inode`].
    pub(super) fn directory(&self, fid: Fid) -> Result<Inode, Errno> {
        let inode = self.inode(fid)?;
        match inode.attributes.kind == FileKind::Directory {
            true => Ok(inode),
            false => Err(Errno::ENOTDIR),
        }
    }

    /// Whether a directory has no names.
    pub(super) fn is_empty(&self, directory: Fid) -> bool {
        let found = self.inodes.get(&directory);
        found.is_some_and(|found| found.state.contains(InodeState::EMPTY))
    }

    /// The exclusion on an MDT, if there is one besides the rename lock.
    pub(super) fn exclusion_on(&self, mdt: MdtIndex) -> Option<MdtExclusion> {
        self.exclusions.iter().find(|exclusion| exclusion.mdt == mdt).copied()
    }

    /// All but the rename lock.
    pub(super) fn exclusions(&self) -> &[MdtExclusion] {
        &self.exclusions
    }

    /// How many MDTs other than this one exclude.
    pub(super) fn other_mdts(&self) -> usize {
        self.exclusions.iter().filter(|exclusion| exclusion.mdt.0 != self.mdt.index).count()
    }

    /// What is excluded on an MDT was released by the part that it was sent. Unless it has started anew meanwhile: it may have
    /// answered that it had the part before, and hide that still.
    pub(super) fn released_with_part(&mut self, mdt: MdtIndex, target: &Target) {
        let mut relied_on = self.relied_on.iter().filter(|it| it.mdt == mdt);
        if !relied_on.any(|incarnation| target.has_started_anew(*incarnation)) {
            self.exclusions.retain(|exclusion| exclusion.mdt != mdt);
        }
    }
}

impl XattrsOf for DistributedHold {
    fn xattr_of(&self, inode: Fid, name: &str) -> Result<Option<Bytes>, Errno> {
        Ok(self.inodes.get(&inode).and_then(|inode| inode.xattr(name)).cloned())
    }
}

impl Drop for DistributedHold {
    fn drop(&mut self) {
        let exclusions = self.exclusions.drain(..).rev().chain(self.renames.take());
        for exclusion in exclusions {
            self.mdt.release_distributed(&self.target, exclusion);
        }
    }
}
