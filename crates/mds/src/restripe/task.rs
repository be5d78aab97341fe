//! The task of an MDT that moves names, ends splits and merges, and begins those that an MDT begins by itself.
//!
//! It moves [`AT_ONCE`] names of a stripe at a time: each waits for a group commit, which they share, and excludes its own two names
//! alone. Between two such rounds all else runs. A stripe is through when all of it was gone through and nothing was to be moved, as no
//! name comes to a stripe to which it does not belong any more.
//!
//! One task does one thing after the other. Where an MDT goes away in the middle of a step, all else waits for [`STEP_MAX`]; what was
//! applied of it goes on by itself (`coordinator::execute`).
//!
//! A name whose other stripe, or inode, is on an MDT that is away is passed over, and looked at again later; so is a directory whose stripes are
//! not all through. The pauses get longer, up to [`PAUSE_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use sheen_io::{logged, within};
use sheen_layout::directory::{DirectoryLayout, Holder};
use sheen_rpc::ImportState;
use sheen_target::{Target, store_errno};
use sheen_types::futures::all;
use sheen_types::{Errno, Fid, InodeBits, Instant, LockMode, Name};

use super::list;
use crate::Mdt;
use crate::coordinator::{Initiator, NameMoved, Order, RestripeEnd};
use crate::directory::{key, parse_key, parse_value};
use crate::striped::{layout_in, master_in, parse_layout};
use crate::xattrs::LMV;

/// How often it is looked for work that was not announced.
const LOOK: Duration = Duration::from_secs(5);
/// How long a step may take, and how long an inode is left alone whose step has taken longer: an MDT has gone away meanwhile.
const STEP_MAX: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(20);
/// Between two rounds: requests come first, also where nothing in them waits.
const PACE: Duration = Duration::from_millis(1);
/// Names of a stripe that are moved at a time.
const AT_ONCE: usize = 16;
/// Names that are looked at in one step.
const SCANNED: usize = 256;
/// Before an inode is looked at again that waits for something: twice as long each time.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause where only other MDTs' stripes are waited for: names are added at the cost of a change over MDTs until
/// all know.
const ASKS_MAX: Duration = Duration::from_secs(1);

/// How far a stripe or master is, in memory.
#[derive(Default)]
struct Progress {
    /// The key from which on names are to be looked at.
    from: Vec<u8>,
    /// In this pass a name was moved, or has to be looked at again.
    is_dirty: bool,
    /// In this pass a name could not be moved.
    is_blocked: bool,
    /// What only a repair can end was logged.
    has_said: bool,
    /// The layout of the master, while it is believed.
    layout: Option<Arc<DirectoryLayout>>,
    /// Nothing is done before.
    not_before: Option<Instant>,
    pause: Duration,
}

impl Progress {
    /// It waits for something, which is looked for at most so seldom.
    fn wait(&mut self, now: Instant, pause_max: Duration) {
        self.pause = (self.pause * 2).clamp(PAUSE, pause_max);
        self.not_before = Some(now + self.pause);
        self.layout = None;
    }

    /// A step has taken too long: other inodes come first for a while.
    fn rest(&mut self, now: Instant) {
        (self.pause, self.not_before) = (Duration::ZERO, Some(now + REST));
        self.layout = None;
    }

    fn advance(&mut self) {
        (self.pause, self.not_before) = (Duration::ZERO, None);
    }

    /// Something has changed: it waits no more, unless it rests.
    fn look_again(&mut self) {
        if self.pause > Duration::ZERO {
            self.advance();
        }
    }

    /// All names were looked at.
    fn begin_pass(&mut self) {
        self.from.clear();
        (self.is_dirty, self.is_blocked) = (false, false);
    }
}

/// What a step has come to.
enum Step {
    /// There is more to do.
    More,
    /// It waits for other MDTs.
    Waits,
    /// Stripes are not all through.
    AsksAgain,
    /// Nothing is left to be done of it here.
    Over,
}

impl Mdt {
    /// Whether anything of a split or merge is left to be done on this MDT.
    ///
    /// # Errors
    /// Those of the store.
    pub fn is_restriping(&self) -> Result<bool, Errno> {
        Ok(!list(&*self.store).map_err(store_errno)?.is_empty())
    }

    /// Starts the task, for as long as the target runs. Called when another MDT is known; once counts.
    pub(crate) fn start_restriper(&self, target: &Arc<Target>) {
        if self.restriper.is_started.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return;
        }
        let (mdt, weak) = (Weak::clone(&self.me), Arc::downgrade(target));
        let (world, changed) = (target.world().clone(), Arc::clone(&self.restriper.changed));
        let run = async move {
            let mut progress = BTreeMap::new();
            let mut pause = PACE;
            loop {
                _ = within(&*world.clock, pause, changed.notified()).await;
                let (Some(mdt), Some(target)) = (mdt.upgrade(), weak.upgrade()) else { return };
                pause = match target.is_recovering() || mdt.is_read_only() {
                    true => LOOK,
                    false => mdt.restripe_round(&target, &mut progress).await,
                };
            }
        };
        target.world().tasks.spawn("restriper", Box::pin(run));
    }

    /// Does one step of each directory and stripe that is to be gone through; how long nothing is to be done then.
    async fn restripe_round(
        &self,
        target: &Arc<Target>,
        progress: &mut BTreeMap<Fid, Progress>,
    ) -> Duration {
        self.split_those_with_many_names(target).await;
        let inodes = match list(&*self.store) {
            Ok(inodes) => inodes,
            Err(error) => {
                tracing::error!(target = target.name(), %error, "what is to be split or merged cannot be read");
                return LOOK;
            }
        };
        progress.retain(|fid, _| inodes.contains(fid));
        let clock = &target.world().clock;
        for fid in inodes {
            let of = progress.entry(fid).or_default();
            if of.not_before.is_some_and(|at| clock.now() < at) {
                continue;
            }
            let step = within(&**clock, STEP_MAX, self.restripe_step(target, fid, of)).await;
            let Some(step) = step else {
                tracing::info!(target = target.name(), %fid, "a split or merge waits for another MDT");
                of.rest(clock.now());
                continue;
            };
            match step {
                Ok(Step::More) => of.advance(),
                Ok(Step::Waits) => of.wait(clock.now(), PAUSE_MAX),
                Ok(Step::AsksAgain) => of.wait(clock.now(), ASKS_MAX),
                Ok(Step::Over) => {
                    progress.remove(&fid);
                    // It may be what its directory has waited for.
                    progress.values_mut().for_each(Progress::look_again);
                }
                Err(errno) => {
                    tracing::debug!(target = target.name(), %fid, %errno, "a split or merge goes on later");
                    of.wait(clock.now(), PAUSE_MAX);
                }
            }
        }
        let now = clock.now();
        let left = |of: &Progress| of.not_before.map_or(Duration::ZERO, |at| at.since(now));
        progress.values().map(left).min().unwrap_or(LOOK).clamp(PACE, LOOK)
    }

    async fn restripe_step(
        &self,
        target: &Arc<Target>,
        fid: Fid,
        progress: &mut Progress,
    ) -> Result<Step, Errno> {
        let layout = match self.inode(fid).and_then(|_| layout_in(&*self.store, fid)) {
            Err(Errno::ENOENT) => None,
            layout => layout?,
        };
        let Some(layout) = layout.filter(DirectoryLayout::is_restriping) else {
            return self.leave_restriping(target, fid).await;
        };
        match layout.holder() {
            Holder::Stripe { number } => {
                self.go_through(target, (fid, *number, &layout), progress).await
            }
            Holder::Master { stripes, .. } => {
                if !self.are_through(target, stripes).await? {
                    return Ok(Step::AsksAgain);
                }
                match self.end_restripe(Initiator::Mdt(target), fid).await? {
                    RestripeEnd::Ended => Ok(Step::Over),
                    RestripeEnd::NotYet => Ok(Step::Waits),
                }
            }
        }
    }

    /// An inode is in the index and has nothing to do with a split or merge any more: it was removed.
    async fn leave_restriping(&self, target: &Arc<Target>, fid: Fid) -> Result<Step, Errno> {
        let held = self.hold_inodes(&[fid]).await;
        let is_left = match self.inode(fid).and_then(|_| layout_in(&*self.store, fid)) {
            Err(Errno::ENOENT) => true,
            layout => !layout?.is_some_and(|layout| layout.is_restriping()),
        };
        if is_left && list(&*self.store).map_err(store_errno)?.contains(&fid) {
            let mut changes = self.change_set();
            changes.forget_restriping(fid);
            self.execute_locally(target, &held, changes)?;
        }
        Ok(Step::Over)
    }

    /// Whether no stripe of a directory has names to be moved any more, as their MDTs say now.
    async fn are_through(&self, target: &Target, stripes: &[Fid]) -> Result<bool, Errno> {
        for stripe in stripes.iter().filter(|stripe| stripe.is_of_mdt()) {
            let layout = match self.layout_anywhere(target, *stripe).await {
                // What is lost has no names.
                Err(Errno::ENOENT) => continue,
                layout => layout?,
            };
            if layout.is_some_and(|layout| layout.is_restriping()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn layout_anywhere(
        &self,
        target: &Target,
        directory: Fid,
    ) -> Result<Option<DirectoryLayout>, Errno> {
        let mdt = self.mdt_of(target, directory).await?;
        if mdt.0 == self.index {
            self.inode(directory)?;
            return layout_in(&*self.store, directory);
        }
        if !self.is_there(mdt) {
            return Err(Errno::EAGAIN);
        }
        let value = self.remote_xattr(mdt, directory, LMV, Order::InTurn).await?;
        value.map(|value| parse_layout(directory, &value)).transpose()
    }

    pub(super) fn is_there(&self, mdt: sheen_types::MdtIndex) -> bool {
        let states = [ImportState::Full, ImportState::Idle];
        mdt.0 == self.index || self.partner(mdt).is_ok_and(|it| states.contains(&it.state()))
    }

    /// Looks at some more names of a stripe, and moves those that belong elsewhere; at the end says that it is through, or begins anew.
    async fn go_through(
        &self,
        target: &Arc<Target>,
        (stripe, number, layout): (Fid, u32, &DirectoryLayout),
        progress: &mut Progress,
    ) -> Result<Step, Errno> {
        let master = master_in(&*self.store, stripe)?.ok_or(Errno::ESTALE)?;
        let of_master = match progress.layout.take() {
            Some(known) => known,
            None => {
                let of_master = self.layout_anywhere(target, master).await?.ok_or(Errno::ESTALE)?;
                Arc::new(of_master)
            }
        };
        if of_master.version() != layout.version() || !of_master.is_restriping() {
            if !std::mem::replace(&mut progress.has_said, true) {
                tracing::warn!(target = target.name(), %stripe, %master,
                    "a stripe says that names are being moved, and its directory does not: check the file system with sheen fsck");
            }
            return Ok(Step::Waits);
        }
        let entries = self.store.scan(stripe, &progress.from, SCANNED).map_err(store_errno)?;
        let (misplaced, last) = self.misplaced(&entries, number, &of_master, target).await?;
        progress.is_dirty |= !misplaced.names.is_empty() || misplaced.is_blocked;
        progress.is_blocked |= misplaced.is_blocked;
        let (names, later) = misplaced.names.split_at(misplaced.names.len().min(AT_ONCE));
        self.move_names(target, (stripe, master), (names, &of_master), progress).await;
        if let (Some(last), false) = (names.last(), later.is_empty()) {
            progress.from = [&key(last.as_bytes())[..], &[0]].concat();
            progress.layout = Some(of_master);
            return Ok(Step::More);
        }
        if entries.len() == SCANNED
            && let Some(last) = last
        {
            // The next key is larger.
            progress.from = [&last[..], &[0]].concat();
            progress.layout = Some(of_master);
            return Ok(Step::More);
        }
        let (is_dirty, is_blocked) = (progress.is_dirty, progress.is_blocked);
        progress.begin_pass();
        match (is_blocked, is_dirty) {
            (true, _) => Ok(Step::Waits),
            (false, true) => {
                progress.layout = Some(of_master);
                Ok(Step::More)
            }
            (false, false) => self.end_stripe(target, stripe, layout).await,
        }
    }

    /// Moves these names of a stripe, all at once.
    async fn move_names(
        &self,
        target: &Arc<Target>,
        (stripe, master): (Fid, Fid),
        (names, layout): (&[Name], &DirectoryLayout),
        progress: &mut Progress,
    ) {
        let by = Initiator::Mdt(target);
        let moves = names.iter().map(|name| self.move_name(by, master, layout, name));
        for moved in all(moves.collect()).await {
            let errno = match moved {
                Ok(NameMoved::Done | NameMoved::AlreadyThere | NameMoved::Absent) => continue,
                Err(errno) => errno,
            };
            progress.is_blocked = true;
            if errno == Errno::EEXIST && !std::mem::replace(&mut progress.has_said, true) {
                tracing::error!(target = target.name(), %master, %stripe,
                    "a name is in two stripes of a directory, whose change cannot end: check the file system with sheen fsck");
            }
            tracing::debug!(target = target.name(), %stripe, %errno, "a name is moved later");
        }
    }

    /// Of these entries the names that belong to another stripe, and the last key.
    async fn misplaced<'a>(
        &self,
        entries: &'a [sheen_store::Entry],
        number: u32,
        layout: &DirectoryLayout,
        target: &Target,
    ) -> Result<(Misplaced, Option<&'a Bytes>), Errno> {
        let Holder::Master { stripes, .. } = layout.holder() else { return Err(Errno::ESTALE) };
        let mut misplaced = Misplaced::default();
        for entry in entries {
            let name = parse_key(&entry.key).and_then(|(_, name)| Name::new(&name).ok());
            let Some(name) = name else { continue };
            let places = layout.places(name.as_bytes()).map_err(logged!(
                Errno::EBADF,
                "the layout of a directory has no place for a name"
            ))?;
            if places.now == number || places.before != Some(number) {
                continue;
            }
            let to = stripes.get(places.now as usize).copied().unwrap_or_default();
            let inode = parse_value(&entry.value).map(|child| child.fid).unwrap_or_default();
            match self.is_reached(target, to).await && self.is_reached(target, inode).await {
                true => misplaced.names.push(name),
                false => misplaced.is_blocked = true,
            }
        }
        Ok((misplaced, entries.last().map(|entry| &entry.key)))
    }

    /// Whether the MDT of an inode is there now.
    async fn is_reached(&self, target: &Target, inode: Fid) -> bool {
        match self.mdt_of(target, inode).await {
            Ok(mdt) => self.is_there(mdt),
            // No MDT has it: there is none to wait for.
            Err(errno) => errno == Errno::ENOENT,
        }
    }

    /// A stripe is through.
    async fn end_stripe(
        &self,
        target: &Arc<Target>,
        stripe: Fid,
        layout: &DirectoryLayout,
    ) -> Result<Step, Errno> {
        let held = self.hold_inodes(&[stripe]).await;
        if layout_in(&*self.store, stripe)?.as_ref() != Some(layout) {
            return Ok(Step::More);
        }
        let through = layout
            .without_migration()
            .map_err(logged!(Errno::EINVAL, "a layout cannot be without its migration"))?;
        let _lock = target.lock_inode(stripe, InodeBits::XATTR, LockMode::Ex).await?;
        let mut changes = self.change_set();
        let value = through.to_ea().encode();
        changes.note_layout(stripe, &value)?;
        changes.set_xattr(stripe, LMV, value);
        self.execute_locally(target, &held, changes)?;
        Ok(Step::Over)
    }
}

/// Names that belong to other stripes.
#[derive(Default)]
struct Misplaced {
    names: Vec<Name>,
    /// There are some more, whose stripes or inodes are away.
    is_blocked: bool,
}
