//! One transaction, applied whole or not at all.
//!
//! First what the steps must know of the state is read, without holding a lock while the database
//! works; then all shards of the transaction are locked, the steps run with a way back noted for
//! each, and the sequence is taken.
//!
//! Cost of a create (object, name, parent, extended attribute, record): about nine shard locks and
//! twelve lookups in memory, and one lookup of the new object in the database, which its filters
//! answer.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use parking_lot::MutexGuard;
use sheen_store::{Change, FileKind, KEY_BYTES_MAX, Sequence, StoreError, Transaction};
use sheen_types::Fid;

use super::{Lookup, Overlay, Shard};
use crate::{
    database::Database,
    group::Slot,
    limits::{CHANGE_OVERHEAD_BYTES, OVERLAY_SHARDS},
    record::{DataFileId, LENT, Record, index_key, name_key, object_key},
};

/// What a transaction touches, and what the database says of it.
struct ApplyPlan {
    /// Rising.
    shards: Vec<usize>,
    /// Of [`Overlay::retirements`] before the database was asked.
    retirements: u64,
    objects: Vec<(Fid, Option<Arc<Record>>)>,
    /// By number of the change: whether its key is there.
    keys: Vec<(usize, bool)>,
    /// For each directory that is destroyed, the keys in the database.
    emptied: Vec<(Fid, Vec<Bytes>)>,
    /// Data changes hands: which keys of [`LENT`] that touches is known when all is locked.
    needs_all: bool,
}

/// Why an attempt failed.
enum Refusal {
    /// The plan does not know enough: state moved meanwhile.
    Stale,
    /// The transaction is refused.
    Error(StoreError),
}

/// How to undo a step.
enum Undo {
    Object(Fid, Option<Slot<Arc<Record>>>),
    Key(Fid, Bytes, Option<Slot<Bytes>>),
    Destroyed(Fid, DataFileId),
}

impl Overlay {
    /// Applies `transaction` above what `database` holds.
    pub(crate) fn apply(
        &self,
        database: &Database,
        transaction: &Transaction,
    ) -> Result<Sequence, StoreError> {
        for change in &transaction.changes {
            if let Some((index, key)) = key_of(change)
                && key.len() > KEY_BYTES_MAX
            {
                return Err(StoreError::WrongKind(index));
            }
        }
        loop {
            let plan = self.plan(database, transaction)?;
            match self.attempt(plan, transaction) {
                Ok(sequence) => return Ok(sequence),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Stale) => {}
            }
        }
    }

    fn plan(
        &self,
        database: &Database,
        transaction: &Transaction,
    ) -> Result<ApplyPlan, StoreError> {
        let mut plan = ApplyPlan {
            shards: Vec::with_capacity(transaction.changes.len().max(1)),
            retirements: self.retirements.load(Ordering::Acquire),
            objects: Vec::new(),
            keys: Vec::new(),
            emptied: Vec::new(),
            needs_all: false,
        };
        for (number, change) in transaction.changes.iter().enumerate() {
            match change {
                Change::Create { object, .. }
                | Change::Patch { object, .. }
                | Change::SetXattr { object, .. } => {
                    self.plan_object(database, &mut plan, *object)?;
                }
                Change::Exchange { first, second } => {
                    self.plan_object(database, &mut plan, *first)?;
                    self.plan_object(database, &mut plan, *second)?;
                    plan.needs_all = true;
                }
                Change::Destroy { object } => {
                    let found = self.plan_object(database, &mut plan, *object)?;
                    let borrows = found.as_ref().is_some_and(|record| record.borrows(*object));
                    plan.needs_all |= borrows;
                    if found.is_some_and(|record| is_directory(&record))
                        || creates_directory(transaction, *object)
                    {
                        let keys = database.scan(*object, b"").map(|entry| Ok(entry?.key));
                        plan.emptied.push((*object, keys.collect::<Result<_, _>>()?));
                    }
                }
                Change::Insert { index, key, .. } | Change::Delete { index, key } => {
                    self.plan_key(database, &mut plan, number, *index, key)?;
                }
                Change::Put { index, key, .. } => plan.shards.push(self.key_shard(*index, key)),
            }
        }
        if plan.needs_all || !plan.emptied.is_empty() {
            plan.shards = (0..OVERLAY_SHARDS).collect();
        }
        if plan.shards.is_empty() {
            // A lock is held while the sequence is taken: see the module above.
            plan.shards.push(0);
        }
        plan.shards.sort_unstable();
        plan.shards.dedup();
        Ok(plan)
    }

    /// Notes what the database holds of an object, unless a group knows better; returns what is seen.
    fn plan_object(
        &self,
        database: &Database,
        plan: &mut ApplyPlan,
        fid: Fid,
    ) -> Result<Option<Arc<Record>>, StoreError> {
        if let Some((_, found)) = plan.objects.iter().find(|(held, _)| *held == fid) {
            return Ok(found.clone());
        }
        let shard = self.object_shard(fid);
        plan.shards.push(shard);
        let seen = self.shards[shard].lock().object(fid);
        let found = match seen {
            Lookup::Overlay(found) => return Ok(found),
            Lookup::Clean(found) => found,
            Lookup::Unknown => database.object(fid)?.map(Arc::new),
        };
        plan.objects.push((fid, found.clone()));
        Ok(found)
    }

    fn plan_key(
        &self,
        database: &Database,
        plan: &mut ApplyPlan,
        number: usize,
        index: Fid,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let shard = self.key_shard(index, key);
        plan.shards.push(shard);
        let whole = index_key(index, key);
        let seen = self.shards[shard].lock().key(index, key, &whole);
        let present = match seen {
            Lookup::Overlay(_) => return Ok(()),
            Lookup::Clean(found) => found.is_some(),
            Lookup::Unknown => database.value(&whole)?.is_some(),
        };
        plan.keys.push((number, present));
        Ok(())
    }

    fn attempt(&self, plan: ApplyPlan, transaction: &Transaction) -> Result<Sequence, Refusal> {
        let locked = plan.shards.iter().map(|number| (*number, self.shards[*number].lock()));
        let mut attempt = ApplyAttempt {
            overlay: self,
            locked: locked.collect(),
            plan,
            undo: Vec::new(),
            record_bytes: 0,
        };
        if self.retirements.load(Ordering::Acquire) != attempt.plan.retirements {
            return Err(Refusal::Stale);
        }
        attempt.undo.reserve(transaction.changes.len());
        for (number, change) in transaction.changes.iter().enumerate() {
            if let Err(refusal) = attempt.step(number, change) {
                attempt.undo_all();
                return Err(refusal);
            }
        }
        let bytes: usize = transaction.changes.iter().map(change_bytes).sum();
        // The shards are still locked, so this is the group that holds what `record_bytes` takes off again.
        let bytes = bytes.wrapping_add_signed(attempt.record_bytes);
        self.active_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Sequence(self.applied.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

fn key_of(change: &Change) -> Option<(Fid, &Bytes)> {
    match change {
        Change::Insert { index, key, .. }
        | Change::Put { index, key, .. }
        | Change::Delete { index, key } => Some((*index, key)),
        _ => None,
    }
}

fn is_directory(record: &Record) -> bool {
    record.attributes.kind == FileKind::Directory
}

fn creates_directory(transaction: &Transaction, fid: Fid) -> bool {
    transaction.changes.iter().any(|change| {
        matches!(change, Change::Create { object, attributes }
            if *object == fid && attributes.kind == FileKind::Directory)
    })
}

/// Memory that a change adds to a group beside records, about: those count as they are set.
fn change_bytes(change: &Change) -> usize {
    CHANGE_OVERHEAD_BYTES
        + match change {
            Change::Create { .. }
            | Change::Patch { .. }
            | Change::Destroy { .. }
            | Change::Exchange { .. }
            | Change::SetXattr { .. } => 0,
            Change::Insert { key, value, .. } | Change::Put { key, value, .. } => {
                key.len() + value.len()
            }
            Change::Delete { key, .. } => key.len(),
        }
}

fn record_bytes(record: Option<&Record>) -> isize {
    record.map_or(0, Record::cost).cast_signed()
}

/// A transaction with its shards locked.
struct ApplyAttempt<'a> {
    overlay: &'a Overlay,
    locked: Vec<(usize, MutexGuard<'a, Shard>)>,
    plan: ApplyPlan,
    undo: Vec<Undo>,
    /// By how much the records of the group grow, with all their extended attributes: a change of one attribute
    /// holds the whole record in memory and writes it.
    record_bytes: isize,
}

impl ApplyAttempt<'_> {
    fn shard(&mut self, number: usize) -> &mut Shard {
        let found = self.locked.binary_search_by_key(&number, |(number, _)| *number);
        &mut self.locked[found.expect("every shard of the transaction is locked")].1
    }

    fn step(&mut self, number: usize, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::Create { object, attributes } => {
                if self.object(*object)?.is_some() {
                    return Err(Refusal::Error(StoreError::Exists(*object)));
                }
                let generation = self.overlay.generations.fetch_add(1, Ordering::Relaxed);
                let record = Record::new(attributes.clone(), generation);
                self.set_object(*object, Some(Arc::new(record)), true);
            }
            Change::Destroy { object } => self.destroy(*object)?,
            Change::Exchange { first, second } => self.exchange(*first, *second)?,
            Change::Patch { object, patch } => {
                let mut record = self.existing(*object)?;
                patch.apply(&mut Arc::make_mut(&mut record).attributes);
                self.set_object(*object, Some(record), false);
            }
            Change::SetXattr { object, name, value } => {
                let mut record = self.existing(*object)?;
                Arc::make_mut(&mut record).xattrs.set(name, value.clone());
                self.set_object(*object, Some(record), false);
            }
            Change::Insert { index, key, value } => {
                if self.has_key(number, *index, key)? {
                    return Err(Refusal::Error(StoreError::Exists(*index)));
                }
                self.set_key(*index, key, Some(value.clone()), true);
            }
            Change::Put { index, key, value } => {
                self.set_key(*index, key, Some(value.clone()), false);
            }
            Change::Delete { index, key } => {
                if !self.has_key(number, *index, key)? {
                    return Err(Refusal::Error(StoreError::NoKey(*index)));
                }
                self.set_key(*index, key, None, false);
            }
        }
        Ok(())
    }

    /// What is seen of an object now. If the plan does not name it, a group held it then; that it
    /// holds it no more, though none was retired, means that a fresh slot was removed.
    fn object(&mut self, fid: Fid) -> Result<Option<Arc<Record>>, Refusal> {
        let number = self.overlay.object_shard(fid);
        let shard = self.shard(number);
        let committing = || shard.committing.as_ref().and_then(|part| part.objects.get(&fid));
        if let Some(slot) = shard.active.objects.get(&fid).or_else(committing) {
            return Ok(slot.value.clone());
        }
        let known = self.plan.objects.iter().find(|(held, _)| *held == fid);
        Ok(known.and_then(|(_, found)| found.clone()))
    }

    fn existing(&mut self, fid: Fid) -> Result<Arc<Record>, Refusal> {
        self.object(fid)?.ok_or(Refusal::Error(StoreError::NoObject(fid)))
    }

    /// As [`Self::object`], for the key of change `number`.
    fn has_key(&mut self, number: usize, index: Fid, key: &[u8]) -> Result<bool, Refusal> {
        let shard_number = self.overlay.key_shard(index, key);
        let shard = self.shard(shard_number);
        let committing = || shard.committing.as_ref().and_then(|part| part.key(index, key));
        if let Some(slot) = shard.active.key(index, key).or_else(committing) {
            return Ok(slot.value.is_some());
        }
        let known = self.plan.keys.iter().find(|(held, _)| *held == number);
        Ok(known.is_some_and(|(_, present)| *present))
    }

    /// Sets the active slot; `absent_below` if the object is known to be in no lower layer, or
    /// hidden there by a tombstone.
    fn set_object(&mut self, fid: Fid, value: Option<Arc<Record>>, absent_below: bool) {
        let number = self.overlay.object_shard(fid);
        let objects = &mut self.shard(number).active.objects;
        let before = objects.remove(&fid);
        let fresh = before.as_ref().map_or(absent_below, |slot| slot.fresh);
        let held = before.as_ref().and_then(|slot| slot.value.as_deref());
        let grows = record_bytes(value.as_deref()) - record_bytes(held);
        if value.is_some() || !fresh {
            objects.insert(fid, Slot { value, fresh });
        }
        self.record_bytes += grows;
        self.undo.push(Undo::Object(fid, before));
    }

    /// As [`Self::set_object`].
    fn set_key(&mut self, index: Fid, key: &Bytes, value: Option<Bytes>, absent_below: bool) {
        let number = self.overlay.key_shard(index, key);
        let keys = self.shard(number).active.keys.entry(index).or_default();
        let before = keys.remove(key);
        let fresh = before.as_ref().map_or(absent_below, |slot| slot.fresh);
        if value.is_some() || !fresh {
            keys.insert(key.clone(), Slot { value, fresh });
        }
        self.undo.push(Undo::Key(index, key.clone(), before));
    }

    fn destroy(&mut self, fid: Fid) -> Result<(), Refusal> {
        let record = self.existing(fid)?;
        if is_directory(&record) {
            self.empty(fid)?;
        }
        self.set_object(fid, None, false);
        if record.attributes.kind == FileKind::Regular {
            let data = record.data(fid);
            if record.borrows(fid) {
                if !self.has_all() {
                    return Err(Refusal::Stale);
                }
                self.set_holder(data, None);
            }
            let number = self.overlay.object_shard(fid);
            self.shard(number).active.destroyed.push(data);
            self.undo.push(Undo::Destroyed(fid, data));
        }
        Ok(())
    }

    /// Each gets the other's file, and a new generation: see [`Record::generation`].
    fn exchange(&mut self, first: Fid, second: Fid) -> Result<(), Refusal> {
        let records = [self.data_object(first)?, self.data_object(second)?];
        if first == second {
            return Ok(());
        }
        let names = [records[0].data(first), records[1].data(second)];
        let moves = [(first, &records[0], names[1]), (second, &records[1], names[0])];
        for (fid, record, data) in moves {
            let generation = self.overlay.generations.fetch_add(1, Ordering::Relaxed);
            let mut record = Arc::clone(record);
            Arc::make_mut(&mut record).take_data(data, generation);
            self.set_holder(data, record.borrows(fid).then_some(fid));
            self.set_object(fid, Some(record), false);
        }
        Ok(())
    }

    fn data_object(&mut self, fid: Fid) -> Result<Arc<Record>, Refusal> {
        let record = self.existing(fid)?;
        match record.attributes.kind {
            FileKind::Regular => Ok(record),
            _ => Err(Refusal::Error(StoreError::WrongKind(fid))),
        }
    }

    /// Notes which object holds data that was made for another one; `None` if none does now.
    fn set_holder(&mut self, data: DataFileId, holder: Option<Fid>) {
        let key = Bytes::copy_from_slice(&name_key(data));
        let value = holder.map(|fid| Bytes::copy_from_slice(&object_key(fid)));
        self.set_key(LENT, &key, value, false);
    }

    fn has_all(&self) -> bool {
        self.locked.len() == OVERLAY_SHARDS
    }

    /// Removes all keys of a directory.
    fn empty(&mut self, fid: Fid) -> Result<(), Refusal> {
        let planned = self.plan.emptied.iter().find(|(held, _)| *held == fid);
        let mut keys = planned.ok_or(Refusal::Stale)?.1.clone();
        for (_, shard) in &self.locked {
            for part in [Some(&shard.active), shard.committing.as_deref()].into_iter().flatten() {
                keys.extend(part.keys.get(&fid).into_iter().flat_map(|keys| keys.keys().cloned()));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.set_key(fid, &key, None, false);
        }
        Ok(())
    }

    fn undo_all(&mut self) {
        for step in std::mem::take(&mut self.undo).into_iter().rev() {
            match step {
                Undo::Object(fid, before) => {
                    let number = self.overlay.object_shard(fid);
                    let objects = &mut self.shard(number).active.objects;
                    match before {
                        Some(slot) => objects.insert(fid, slot),
                        None => objects.remove(&fid),
                    };
                }
                Undo::Key(index, key, before) => {
                    let number = self.overlay.key_shard(index, &key);
                    let keys = self.shard(number).active.keys.entry(index).or_default();
                    match before {
                        Some(slot) => keys.insert(key, slot),
                        None => keys.remove(&key),
                    };
                }
                Undo::Destroyed(fid, data) => {
                    let number = self.overlay.object_shard(fid);
                    let last = self.shard(number).active.destroyed.pop();
                    debug_assert!(last == Some(data), "undone in reverse");
                }
            }
        }
    }
}
