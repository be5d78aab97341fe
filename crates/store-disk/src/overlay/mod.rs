//! The ordered write-back overlay: what was applied and is not durable yet, above the database.
//!
//! State is sharded by key: an object's record by its FID, a key of an index by FID and key. A
//! shard holds three layers, looked at in this order, then comes the database:
//!
//! 1. *active*: the group that fills. A slot is a value, or its absence (a tombstone). A slot that
//!    is *fresh* hides nothing below, so removing it leaves no tombstone: what is created and
//!    destroyed within a group never reaches the disk.
//! 2. *committing*: the group that goes down, never changed any more.
//! 3. *clean*: a bounded cache of what the database holds.
//!
//! What always holds:
//!
//! - A transaction is applied, and its sequence taken, while all shards it touches are locked, in
//!   rising order. [`Overlay::rotate`] locks all of them, in the same order, to turn the active
//!   group into the committing one. So a group is exactly a run of sequences, and of two
//!   transactions that touch one key the later has the higher sequence.
//! - State moves only downwards, active to committing to database, and is readable below before it
//!   leaves above. Readers look from the top, so they miss nothing.
//! - No shard is locked while the database works. What a transaction must know from the database is
//!   read beforehand; if a group was retired between (counted in `retirements`), it is read again.
//!   What a reader brings up from the database enters the clean cache under the same condition.
//!
//! Lock order: shards, rising; nothing else is taken under them.

mod apply;
mod clean;
mod scan;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{Sequence, StoreError};
use sheen_types::Fid;

use crate::{
    database::Database,
    group::GroupPart,
    hash::FoldState,
    limits::OVERLAY_SHARDS,
    overlay::clean::Clean,
    record::{DataGeneration, Record, index_key},
};

struct Shard {
    active: GroupPart,
    committing: Option<Arc<GroupPart>>,
    clean_objects: Clean<Fid, Option<Arc<Record>>, FoldState>,
    clean_keys: Clean<Box<[u8]>, Option<Bytes>, FoldState>,
}

/// Where a key was found.
enum Lookup<T> {
    /// In a group: newer than the database's.
    Overlay(Option<T>),
    /// In the clean cache: as in the database.
    Clean(Option<T>),
    /// Only the database knows.
    Unknown,
}

impl Shard {
    fn object(&mut self, fid: Fid) -> Lookup<Arc<Record>> {
        let committing = || self.committing.as_ref().and_then(|part| part.objects.get(&fid));
        if let Some(slot) = self.active.objects.get(&fid).or_else(committing) {
            return Lookup::Overlay(slot.value.clone());
        }
        self.clean_objects.get(&fid).map_or(Lookup::Unknown, Lookup::Clean)
    }

    /// `whole` is the [`index_key`] of `key`, if the clean cache is to be asked.
    fn key(&mut self, index: Fid, key: &[u8], whole: &[u8]) -> Lookup<Bytes> {
        let committing = || self.committing.as_ref().and_then(|part| part.key(index, key));
        if let Some(slot) = self.active.key(index, key).or_else(committing) {
            return Lookup::Overlay(slot.value.clone());
        }
        self.clean_keys.get(whole).map_or(Lookup::Unknown, Lookup::Clean)
    }

    fn cache_object(&mut self, fid: Fid, record: Option<Arc<Record>>) {
        let cost = 64 + record.as_ref().map_or(0, |record| record.cost());
        self.clean_objects.insert(fid, record, cost);
    }

    fn cache_key(&mut self, whole: Vec<u8>, value: Option<Bytes>) {
        let cost = 96 + whole.len() + value.as_ref().map_or(0, Bytes::len);
        self.clean_keys.insert(whole.into_boxed_slice(), value, cost);
    }
}

/// A group on its way down.
pub(crate) struct Group {
    /// One for each shard.
    pub(crate) parts: Vec<Arc<GroupPart>>,
    /// The last transaction in it.
    pub(crate) last: Sequence,
    /// Objects created in this or an earlier group have generations below this.
    pub(crate) generations: DataGeneration,
}

/// See the module's documentation.
pub(crate) struct Overlay {
    shards: Vec<Mutex<Shard>>,
    hasher: FoldState,
    applied: AtomicU64,
    generations: AtomicU64,
    retirements: AtomicU64,
    active_bytes: AtomicUsize,
}

impl Overlay {
    /// Nothing applied since `sequence`; generations count up from `generations`.
    pub(crate) fn new(sequence: Sequence, generations: DataGeneration, clean_bytes: usize) -> Self {
        let hasher = FoldState::random();
        let limit = clean_bytes / OVERLAY_SHARDS / 2;
        let shard = || Shard {
            active: GroupPart::new(hasher),
            committing: None,
            clean_objects: Clean::new(limit, hasher),
            clean_keys: Clean::new(limit, hasher),
        };
        Self {
            shards: (0..OVERLAY_SHARDS).map(|_| Mutex::new(shard())).collect(),
            hasher,
            applied: AtomicU64::new(sequence.0),
            generations: AtomicU64::new(generations),
            retirements: AtomicU64::new(0),
            active_bytes: AtomicUsize::new(0),
        }
    }

    fn object_shard(&self, fid: Fid) -> usize {
        (self.hasher.object(fid) >> 32) as usize % OVERLAY_SHARDS
    }

    fn key_shard(&self, index: Fid, key: &[u8]) -> usize {
        (self.hasher.key(index, key) >> 32) as usize % OVERLAY_SHARDS
    }

    /// The newest transaction.
    pub(crate) fn applied(&self) -> Sequence {
        Sequence(self.applied.load(Ordering::SeqCst))
    }

    /// Bytes of the active group, about.
    pub(crate) fn active_bytes(&self) -> usize {
        self.active_bytes.load(Ordering::Relaxed)
    }

    /// An object's record.
    pub(crate) fn object(
        &self,
        database: &Database,
        fid: Fid,
    ) -> Result<Option<Arc<Record>>, StoreError> {
        let number = self.object_shard(fid);
        let mut shard = self.shards[number].lock();
        let retirements = self.retirements.load(Ordering::Acquire);
        match shard.object(fid) {
            Lookup::Overlay(found) | Lookup::Clean(found) => return Ok(found),
            Lookup::Unknown => drop(shard),
        }
        let found = database.object(fid)?.map(Arc::new);
        let mut shard = self.shards[number].lock();
        if self.retirements.load(Ordering::Acquire) == retirements {
            shard.cache_object(fid, found.clone());
        }
        Ok(found)
    }

    /// The value of a key.
    pub(crate) fn key(
        &self,
        database: &Database,
        index: Fid,
        key: &[u8],
    ) -> Result<Option<Bytes>, StoreError> {
        let number = self.key_shard(index, key);
        let whole = index_key(index, key);
        let mut shard = self.shards[number].lock();
        let retirements = self.retirements.load(Ordering::Acquire);
        match shard.key(index, key, &whole) {
            Lookup::Overlay(found) | Lookup::Clean(found) => return Ok(found),
            Lookup::Unknown => drop(shard),
        }
        let found = database.value(&whole)?;
        let mut shard = self.shards[number].lock();
        if self.retirements.load(Ordering::Acquire) == retirements {
            shard.cache_key(whole, found.clone());
        }
        Ok(found)
    }

    /// Makes the active group the committing one; the one before must be retired.
    pub(crate) fn rotate(&self) -> Group {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        let parts = shards.iter_mut().map(|shard| {
            assert!(shard.committing.is_none(), "one group goes down at a time");
            let part = std::mem::replace(&mut shard.active, GroupPart::new(self.hasher));
            shard.committing.insert(Arc::new(part)).clone()
        });
        let parts = parts.collect();
        self.active_bytes.store(0, Ordering::Relaxed);
        Group { parts, last: self.applied(), generations: self.generations.load(Ordering::Relaxed) }
    }

    /// Ends a committing group that is durable: what it held is clean now.
    pub(crate) fn retire(&self, group: &Group) {
        /// Entries made clean under one hold of a shard's lock.
        const STEP: usize = 64;
        for (shard, part) in self.shards.iter().zip(&group.parts) {
            let mut objects = part.objects.iter();
            let mut keys = part.keys.iter().flat_map(|(index, keys)| {
                keys.iter().map(|(key, slot)| (index_key(*index, key), slot))
            });
            loop {
                let mut shard = shard.lock();
                let mut left = STEP;
                for (fid, slot) in objects.by_ref().take(STEP) {
                    shard.cache_object(*fid, slot.value.clone());
                    left -= 1;
                }
                for (whole, slot) in keys.by_ref().take(left) {
                    shard.cache_key(whole, slot.value.clone());
                    left -= 1;
                }
                if left > 0 {
                    shard.committing = None;
                    // Under the lock: the thread that locks the shard next knows what it no longer
                    // sees.
                    self.retirements.fetch_add(1, Ordering::Release);
                    break;
                }
            }
        }
    }
}
