//! The store contract in memory, for tests and simulation.
//!
//! Owns two images of the store: the *live* one, sharded by object, that every method reads and
//! changes, and in [`Commits::Manual`] the *durable* one, which pending transactions are replayed
//! onto when they commit. [`StoreMem::crash`] hands back a new store made of the durable image
//! alone, as a machine would find it after power loss; [`StoreMem::kill`] keeps in addition all
//! data that was written, as after the death of the process.
//!
//! Always holds: a transaction's sequence is taken while all shards it touches are locked, in
//! rising order of shard, so pending transactions replay in an order that gives the same answers.
//! No thread, clock or file is used: hooks run on the thread that commits, outside every lock.
//!
//! Cost: one lock per shard touched; in manual mode a transaction is kept until it commits.

mod damage;
mod data;
mod flaky;
mod image;

pub use damage::Injury;
pub use flaky::{Errors, Flaky};

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sheen_store::{
    Attributes, Change, CommitHook, Damage, Entry, FileKind, Sequence, Store, StoreError,
    StoreSpace, Transaction, Verified, WholeObject, Xattrs,
};
use sheen_types::{Extent, Fid, HashMap, PAGE_BYTES};

use crate::{
    data::Data,
    image::{Object, Shard, Shards, apply, check_objects},
};

/// Shards of the live image: enough that a handful of threads seldom meet.
const SHARDS: usize = 16;

/// Total that [`Store::space`] returns where no capacity is set.
const UNBOUNDED: u64 = 1 << 50;

/// When transactions become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commits {
    /// As soon as they are applied.
    #[default]
    Immediate,
    /// When [`Store::commit`], [`StoreMem::commit_through`] or the owner of the simulation says so.
    Manual,
}

/// How a store in memory behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemOptions {
    /// When transactions become durable.
    pub commits: Commits,
    /// Data beyond this many bytes is refused with [`StoreError::NoSpace`].
    pub capacity_bytes: Option<u64>,
    /// Objects beyond this number are refused with [`StoreError::NoSpace`].
    pub capacity_objects: Option<u64>,
    /// Objects larger than this are refused with [`StoreError::TooLarge`].
    pub object_bytes_max: Option<u64>,
}

/// What is not durable yet, and what is (manual mode).
#[derive(Debug, Default)]
struct Durable {
    pending: VecDeque<(Sequence, Transaction)>,
    image: Vec<Shard>,
    wanted: bool,
    /// A task that waits until a commit is wanted.
    waiter: Option<Waker>,
}

/// The state of calls of hooks: one thread at a time makes them, so that they see sequences rise.
#[derive(Default)]
struct Hooks {
    hooks: Vec<std::sync::Arc<CommitHook>>,
    reported: u64,
    running: bool,
}

/// See the crate's documentation.
pub struct StoreMem {
    options: MemOptions,
    shards: Vec<Mutex<Shard>>,
    applied: AtomicU64,
    committed: AtomicU64,
    durable: Mutex<Durable>,
    hooks: Mutex<Hooks>,
    bytes: AtomicU64,
    objects: AtomicU64,
    failed: AtomicBool,
    fails_at_commit: AtomicBool,
}

fn failure() -> StoreError {
    StoreError::Io("the store was made to fail".to_owned())
}

impl Default for StoreMem {
    fn default() -> Self {
        Self::new(MemOptions::default())
    }
}

impl StoreMem {
    /// An empty store.
    #[must_use]
    pub fn new(options: MemOptions) -> Self {
        Self::from_image(options, vec![Shard::default(); SHARDS], 0)
    }

    fn from_image(options: MemOptions, image: Vec<Shard>, sequence: u64) -> Self {
        let objects = image.iter().map(|shard| shard.objects.len() as u64).sum();
        let bytes = image.iter().map(Shard::data_bytes).sum();
        let durable = match options.commits {
            Commits::Manual => image.iter().map(Shard::without_data).collect(),
            Commits::Immediate => Vec::new(),
        };
        Self {
            options,
            shards: image.into_iter().map(Mutex::new).collect(),
            applied: AtomicU64::new(sequence),
            committed: AtomicU64::new(sequence),
            durable: Mutex::new(Durable { image: durable, ..Durable::default() }),
            hooks: Mutex::default(),
            bytes: AtomicU64::new(bytes),
            objects: AtomicU64::new(objects),
            failed: AtomicBool::new(false),
            fails_at_commit: AtomicBool::new(false),
        }
    }

    /// What is left after power loss: transactions 1..[`Store::committed`] and data that was
    /// synced. The store itself is left as it is, for those that still hold it.
    #[must_use]
    pub fn crash(&self) -> Self {
        self.survivors(|data| data.synced())
    }

    /// What is left after the death of the process: transactions 1..[`Store::committed`] and all
    /// data that was written.
    #[must_use]
    pub fn kill(&self) -> Self {
        self.survivors(Data::clone)
    }

    /// As [`StoreMem::crash`], but of the pages and sizes that were changed and not synced some are
    /// there, in whole or up to some sector, as `choose`'s numbers say.
    #[must_use]
    pub fn crash_torn(&self, choose: &mut dyn FnMut() -> u64) -> Self {
        self.survivors(|data| data.torn(choose))
    }

    fn survivors(&self, mut data: impl FnMut(&Data) -> Data) -> Self {
        let live: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        let durable = self.durable.lock();
        let mut image = match self.options.commits {
            Commits::Manual => durable.image.clone(),
            Commits::Immediate => live.iter().map(|shard| shard.without_data()).collect(),
        };
        // By incarnation: an exchange that is not durable has moved data to another name.
        let objects = live.iter().flat_map(|shard| {
            shard.objects.values().chain(shard.destroyed.iter().map(|(_, object)| object))
        });
        let held: HashMap<_, _> = objects.map(|held| (held.incarnation, &held.data)).collect();
        for shard in &mut image {
            let mut fids: Vec<Fid> = shard.objects.keys().copied().collect();
            fids.sort_unstable();
            for fid in &fids {
                let Some(object) = shard.objects.get_mut(fid) else { continue };
                let held = held.get(&object.incarnation);
                object.data = held.map(|held| data(held)).unwrap_or_default();
            }
            // A process that dies alone leaves data that is written and not synced.
            shard.changed.extend(fids);
        }
        let sequence = self.committed.load(Ordering::SeqCst);
        drop((durable, live));
        Self::from_image(self.options, image, sequence)
    }

    /// Makes transactions up to `sequence` durable (manual mode) and calls the hooks.
    pub fn commit_through(&self, sequence: Sequence) {
        let mut durable = self.durable.lock();
        let durable_now = &mut *durable;
        let mut last = 0;
        while let Some((at, transaction)) =
            durable_now.pending.pop_front_if(|(at, _)| *at <= sequence)
        {
            last = at.0;
            apply(&mut UnlockedShards(&mut durable_now.image), &transaction, at)
                .expect("a transaction that was applied replays in the same order");
        }
        if durable_now.pending.is_empty() {
            durable_now.wanted = false;
        }
        if last > 0 {
            self.committed.store(last, Ordering::SeqCst);
        }
        drop(durable);
        // Shards are locked before `durable` everywhere, so never under it.
        for shard in &self.shards {
            shard.lock().forget_destroyed(Sequence(last));
        }
        self.run_hooks();
    }

    /// From now on nothing becomes durable (manual mode): every change is refused, and the hooks
    /// are called.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
        let hooks = self.hooks.lock().hooks.clone();
        for hook in hooks {
            hook(Err(failure()));
        }
    }

    /// As [`StoreMem::fail`], at the next [`Store::commit`]: what is applied before that is not durable, and stays visible.
    pub fn fail_at_commit(&self) {
        self.fails_at_commit.store(true, Ordering::SeqCst);
    }

    /// Whether it was made to fail.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Whether [`Store::commit_soon`] was called since all was committed last (manual mode).
    #[must_use]
    pub fn commit_wanted(&self) -> bool {
        self.durable.lock().wanted
    }

    /// Ready once [`Store::commit_soon`] was called since all was committed last (manual mode); one
    /// caller at a time is woken.
    pub fn poll_commit_wanted(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut durable = self.durable.lock();
        if durable.wanted {
            return Poll::Ready(());
        }
        durable.waiter = Some(context.waker().clone());
        Poll::Pending
    }

    /// The newest transaction, durable or not.
    #[must_use]
    pub fn applied(&self) -> Sequence {
        Sequence(self.applied.load(Ordering::SeqCst))
    }

    /// Calls the hooks with what is committed, unless another thread is at it: that one goes on.
    fn run_hooks(&self) {
        let mut hooks = self.hooks.lock();
        if hooks.running {
            return;
        }
        hooks.running = true;
        loop {
            let committed = self.committed.load(Ordering::SeqCst);
            if committed <= hooks.reported {
                break;
            }
            hooks.reported = committed;
            let to_call = hooks.hooks.clone();
            drop(hooks);
            for hook in to_call {
                hook(Ok(Sequence(committed)));
            }
            hooks = self.hooks.lock();
        }
        hooks.running = false;
    }

    fn with_object<T>(&self, fid: Fid, read: impl FnOnce(&Object) -> T) -> Result<T, StoreError> {
        let shard = self.shards[shard_of(fid)].lock();
        shard.objects.get(&fid).map(read).ok_or(StoreError::NoObject(fid))
    }

    /// Damages the data of an object from outside: callers find out when they read it. Returns whether
    /// there was anything to be damaged.
    pub fn injure(&self, object: Fid, injury: Injury) -> bool {
        self.change_data(object, |data| data.injure(injury)).unwrap_or(false)
    }

    /// Whether a read of these bytes of an object fails because they are damaged.
    #[must_use]
    pub fn is_damaged_in(&self, object: Fid, extent: Extent) -> bool {
        self.with_object(object, |held| held.data.is_damaged_in(extent)).unwrap_or(false)
    }

    /// Whether the size of an object is unknown: its data is lost or cut.
    #[must_use]
    pub fn is_lost_or_cut(&self, object: Fid) -> bool {
        self.with_object(object, |held| held.data.harm().is_whole()).unwrap_or(false)
    }

    /// Whether there is such an object.
    #[must_use]
    pub fn has(&self, object: Fid) -> bool {
        self.with_object(object, |_| ()).is_ok()
    }

    /// All objects, in order.
    #[must_use]
    pub fn fids(&self) -> Vec<Fid> {
        self.data_fids(|_| true)
    }

    /// All objects with damaged data, in order.
    #[must_use]
    pub fn damaged(&self) -> Vec<Fid> {
        self.data_fids(|data| !data.harm().is_none())
    }

    fn data_fids(&self, is: impl Fn(&Data) -> bool) -> Vec<Fid> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_shard = shard.objects.iter().filter(|(_, object)| is(&object.data));
            found.extend(of_shard.map(|(fid, _)| *fid));
        }
        found.sort_unstable();
        found
    }

    /// Nothing is changed after a failure.
    fn check(&self) -> Result<(), StoreError> {
        if self.has_failed() { Err(failure()) } else { Ok(()) }
    }

    /// Changes an object's data, keeping count of its pages.
    fn change_data<T>(
        &self,
        fid: Fid,
        change: impl FnOnce(&mut Data) -> T,
    ) -> Result<T, StoreError> {
        let mut shard = self.shards[shard_of(fid)].lock();
        let object = shard.objects.get_mut(&fid).ok_or(StoreError::NoObject(fid))?;
        if object.attributes.kind != FileKind::Regular {
            return Err(StoreError::WrongKind(fid));
        }
        let before = object.data.bytes();
        let outcome = change(&mut object.data);
        let after = object.data.bytes();
        shard.changed.insert(fid);
        self.bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        Ok(outcome)
    }

    fn with_data<T>(&self, fid: Fid, read: impl FnOnce(&Data) -> T) -> Result<T, StoreError> {
        self.with_object(fid, |object| match object.attributes.kind {
            FileKind::Regular => Ok(read(&object.data)),
            _ => Err(StoreError::WrongKind(fid)),
        })?
    }

    /// Refuses what would make an object too large.
    fn check_size(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.object_bytes_max());
        end.map(|_| ()).ok_or(StoreError::TooLarge)
    }

    /// Refuses what would take the data over the capacity; `offset..offset + length` is to be
    /// filled.
    fn check_room(&self, data: &Data, offset: u64, length: u64) -> Result<(), StoreError> {
        let Some(capacity) = self.options.capacity_bytes else { return Ok(()) };
        let needed = data.missing_pages(offset, length) * PAGE_BYTES;
        if needed > 0 && self.bytes.load(Ordering::Relaxed) + needed > capacity {
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }
}

fn undamaged(object: Fid, checked: Result<(), Damage>) -> Result<(), StoreError> {
    checked.map_err(|damage| damage::error(object, damage))
}

fn shard_of(fid: Fid) -> usize {
    let mixed = (fid.seq ^ (u64::from(fid.oid) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 60) as usize % SHARDS
}

/// What a change touches: one name, or two.
fn objects_of(change: &Change) -> [Fid; 2] {
    let one = match change {
        Change::Exchange { first, second } => return [*first, *second],
        Change::Create { object, .. }
        | Change::Destroy { object }
        | Change::Patch { object, .. }
        | Change::SetXattr { object, .. } => *object,
        Change::Insert { index, .. } | Change::Put { index, .. } | Change::Delete { index, .. } => {
            *index
        }
    };
    [one, one]
}

/// The shards a transaction touches, locked in rising order.
struct LockedShards<'a>(Vec<(usize, MutexGuard<'a, Shard>)>);

impl Shards for LockedShards<'_> {
    fn shard(&mut self, fid: Fid) -> &mut Shard {
        let wanted = shard_of(fid);
        let found = self.0.iter_mut().find(|(number, _)| *number == wanted);
        &mut found.expect("every shard of the transaction is locked").1
    }
}

/// All shards of an image that is not shared.
struct UnlockedShards<'a>(&'a mut Vec<Shard>);

impl Shards for UnlockedShards<'_> {
    fn shard(&mut self, fid: Fid) -> &mut Shard {
        &mut self.0[shard_of(fid)]
    }
}

/// Its attributes, with the size of its bytes.
fn record_of(held: &Object) -> Attributes {
    let mut attributes = held.attributes.clone();
    if attributes.kind == FileKind::Regular {
        attributes.size = held.data.size();
        attributes.blocks = held.data.bytes() / 512;
    }
    attributes
}

impl Store for StoreMem {
    fn attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        self.with_object(object, |held| {
            undamaged(object, held.data.harm().check(held.data.size()))
        })??;
        self.recorded_attributes(object)
    }

    fn recorded_attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        self.with_object(object, record_of)
    }

    fn xattr(&self, object: Fid, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.with_object(object, |held| held.xattrs.get(name).cloned())
    }

    fn xattr_names(&self, object: Fid) -> Result<Vec<String>, StoreError> {
        self.with_object(object, |held| held.xattrs.keys().cloned().collect())
    }

    fn whole(&self, object: Fid) -> Result<WholeObject, StoreError> {
        self.with_object(object, |held| {
            let mut xattrs = Xattrs::default();
            held.xattrs.iter().for_each(|(name, value)| xattrs.set(name, Some(value.clone())));
            WholeObject { attributes: record_of(held), xattrs }
        })
    }

    fn lookup(&self, index: Fid, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let shard = self.shards[shard_of(index)].lock();
        Ok(shard.keys.get(&index).and_then(|keys| keys.get(key).cloned()))
    }

    fn scan(&self, index: Fid, from: &[u8], limit: usize) -> Result<Vec<Entry>, StoreError> {
        let shard = self.shards[shard_of(index)].lock();
        let Some(keys) = shard.keys.get(&index) else { return Ok(Vec::new()) };
        let from = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let found = keys.range::<[u8], _>(from).take(limit);
        Ok(found.map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect())
    }

    fn apply(&self, transaction: Transaction) -> Result<Sequence, StoreError> {
        let mut numbers: Vec<usize> =
            transaction.changes.iter().flat_map(objects_of).map(shard_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let locked = numbers.into_iter().map(|number| (number, self.shards[number].lock()));
        let mut locked = LockedShards(locked.collect());
        check_objects(&transaction, &self.objects, self.options.capacity_objects)?;
        // Taken only for the push below in manual mode, but before the sequence, so that what is
        // pending is in order.
        let mut durable = self.durable.lock();
        self.check()?;
        let sequence = Sequence(self.applied.load(Ordering::SeqCst) + 1);
        let effect = apply(&mut locked, &transaction, sequence)?;
        self.applied.store(sequence.0, Ordering::SeqCst);
        self.objects.fetch_add(effect.objects.cast_unsigned(), Ordering::Relaxed);
        self.bytes.fetch_sub(effect.bytes_freed, Ordering::Relaxed);
        match self.options.commits {
            Commits::Manual => durable.pending.push_back((sequence, transaction)),
            Commits::Immediate => {
                self.committed.store(sequence.0, Ordering::SeqCst);
                for (_, shard) in &mut locked.0 {
                    shard.destroyed.clear();
                }
            }
        }
        drop(durable);
        drop(locked);
        if self.options.commits == Commits::Immediate {
            self.run_hooks();
        }
        Ok(sequence)
    }

    fn committed(&self) -> Sequence {
        Sequence(self.committed.load(Ordering::SeqCst))
    }

    fn commit_soon(&self) {
        let mut durable = self.durable.lock();
        durable.wanted = !durable.pending.is_empty();
        let waiter = if durable.wanted { durable.waiter.take() } else { None };
        drop(durable);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn commit(&self) -> Result<Sequence, StoreError> {
        if self.fails_at_commit.swap(false, Ordering::SeqCst) {
            self.fail();
        }
        self.check()?;
        for shard in &self.shards {
            shard.lock().sync();
        }
        self.commit_through(Sequence(u64::MAX));
        Ok(self.committed())
    }

    fn on_commit(&self, hook: CommitHook) {
        self.hooks.lock().hooks.push(std::sync::Arc::new(hook));
    }

    fn read(&self, object: Fid, offset: u64, length: usize) -> Result<Bytes, StoreError> {
        self.with_data(object, |data| {
            let end = offset.saturating_add(length as u64);
            undamaged(object, data.harm().check_read(offset, end, data.size()))?;
            Ok(data.read(offset, length))
        })?
    }

    fn write(&self, object: Fid, offset: u64, pieces: &[Bytes]) -> Result<(), StoreError> {
        self.check()?;
        self.change_data(object, |data| {
            let length = pieces.iter().map(|piece| piece.len() as u64).sum();
            self.check_size(offset, length)?;
            undamaged(object, data.harm().check_write(offset, offset + length, data.size()))?;
            self.check_room(data, offset, length)?;
            let mut at = offset;
            for piece in pieces {
                data.write(at, piece);
                at += piece.len() as u64;
            }
            Ok(())
        })?
    }

    fn truncate(&self, object: Fid, size: u64) -> Result<(), StoreError> {
        self.check()?;
        self.check_size(0, size)?;
        self.change_data(object, |data| {
            undamaged(object, data.harm().check_truncate(size, data.size()))?;
            data.truncate(size);
            Ok(())
        })?
    }

    fn punch(&self, object: Fid, offset: u64, length: u64) -> Result<(), StoreError> {
        self.check()?;
        self.change_data(object, |data| {
            let end = offset.saturating_add(length).min(data.size()).max(offset);
            undamaged(object, data.harm().check_write(offset, end, data.size()))?;
            data.punch(offset, length);
            Ok(())
        })?
    }

    fn allocate(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), StoreError> {
        self.check()?;
        self.check_size(offset, length)?;
        self.change_data(object, |data| {
            undamaged(object, data.harm().check(data.size()))?;
            self.check_room(data, offset, length)?;
            data.allocate(offset, length, keep_size);
            Ok(())
        })?
    }

    fn seek(&self, object: Fid, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        self.with_data(object, |data| {
            undamaged(object, data.harm().check(data.size()))?;
            Ok(data.seek(offset, hole))
        })?
    }

    fn sync_data(&self, object: Fid) -> Result<(), StoreError> {
        self.check()?;
        self.change_data(object, |data| {
            undamaged(object, data.harm().check(data.size()))?;
            data.sync();
            Ok(())
        })??;
        // Only what created the object must become durable with it, but transactions are durable
        // in order and the simplest prefix that holds it is all of them.
        self.commit_through(Sequence(u64::MAX));
        Ok(())
    }

    fn is_created_durably(&self, object: Fid) -> Result<bool, StoreError> {
        self.with_object(object, |_| ())?;
        let creates = |change: &Change| match change {
            Change::Create { object: created, .. } => *created == object,
            Change::Exchange { first, second } => [*first, *second].contains(&object),
            _ => false,
        };
        let durable = self.durable.lock();
        let mut pending = durable.pending.iter();
        Ok(!pending.any(|(_, transaction)| transaction.changes.iter().any(creates)))
    }

    /// All in one step.
    fn verify(&self, object: Fid, _: u64) -> Result<Verified, StoreError> {
        self.with_object(object, |held| {
            let found = held.data.harm().findings(held.data.size()).into_iter();
            let findings = found.map(|damage| damage::finding(object, damage)).collect();
            Verified { findings, bytes: held.data.size(), next: None }
        })
    }

    fn data_objects(&self, after: Option<Fid>, limit: usize) -> Result<Vec<Fid>, StoreError> {
        let mut found = self.data_fids(|data| data.size() > 0 || !data.harm().is_none());
        found.retain(|fid| after.is_none_or(|after| *fid > after));
        found.truncate(limit);
        Ok(found)
    }

    fn object_bytes_max(&self) -> u64 {
        self.options.object_bytes_max.unwrap_or(i64::MAX as u64)
    }

    fn space(&self) -> Result<StoreSpace, StoreError> {
        let total = self.options.capacity_bytes.unwrap_or(UNBOUNDED);
        let free = total.saturating_sub(self.bytes.load(Ordering::Relaxed));
        let objects = self.options.capacity_objects.unwrap_or(UNBOUNDED);
        let objects_free = objects.saturating_sub(self.objects.load(Ordering::Relaxed));
        Ok(StoreSpace { total, free, available: free, objects, objects_free })
    }
}
