//! Objects and keys, and a transaction applied to them whole or not at all.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use sheen_store::{Attributes, Change, FileKind, KEY_BYTES_MAX, Sequence, StoreError, Transaction};
use sheen_types::{Fid, HashMap, HashSet};

use crate::data::Data;

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) attributes: Attributes,
    pub(crate) xattrs: BTreeMap<String, Bytes>,
    pub(crate) data: Data,
    /// The transaction and step that created what has its data: distinguishes objects of one name.
    pub(crate) incarnation: (Sequence, usize),
    /// The transaction that destroyed it, of those in [`Shard::destroyed`].
    destroyed: Sequence,
}

/// A part of the store: the objects of some names with their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shard {
    pub(crate) objects: HashMap<Fid, Object>,
    pub(crate) keys: HashMap<Fid, BTreeMap<Bytes, Bytes>>,
    /// Objects whose destruction is not durable: a crash brings them back with their data.
    pub(crate) destroyed: Vec<(Fid, Object)>,
    /// Objects whose data may have changed since the last commit: a commit looks at these alone.
    pub(crate) changed: HashSet<Fid>,
}

impl Shard {
    /// Bytes of all data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.objects.values().map(|object| object.data.bytes()).sum()
    }

    /// Everything but data.
    pub(crate) fn without_data(&self) -> Self {
        let strip = |object: &Object| Object { data: Data::default(), ..object.clone() };
        let objects = self.objects.iter().map(|(fid, object)| (*fid, strip(object))).collect();
        Self { objects, keys: self.keys.clone(), ..Self::default() }
    }

    /// Makes all data durable.
    pub(crate) fn sync(&mut self) {
        for fid in std::mem::take(&mut self.changed) {
            if let Some(object) = self.objects.get_mut(&fid) {
                object.data.sync();
            }
        }
    }

    /// Drops what was destroyed by transactions up to `sequence`.
    pub(crate) fn forget_destroyed(&mut self, sequence: Sequence) {
        self.destroyed.retain(|(_, object)| object.destroyed > sequence);
    }
}

/// The shards that a transaction may touch.
pub(crate) trait Shards {
    /// The one that holds `fid` and its keys.
    fn shard(&mut self, fid: Fid) -> &mut Shard;
}

/// What a transaction did to the store's counts.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Objects created less objects destroyed.
    pub(crate) objects: i64,
    /// Data dropped.
    pub(crate) bytes_freed: u64,
}

/// How to undo a step.
enum Undo {
    Created(Fid),
    Attributes(Fid, Box<Attributes>),
    Xattr(Fid, String, Option<Bytes>),
    Destroyed(Fid, Option<BTreeMap<Bytes, Bytes>>),
    Exchanged(Fid, Fid),
    Key(Fid, Bytes, Option<Bytes>),
}

/// Refuses a transaction that would take the number of objects over `capacity`.
pub(crate) fn check_objects(
    transaction: &Transaction,
    objects: &AtomicU64,
    capacity: Option<u64>,
) -> Result<(), StoreError> {
    let Some(capacity) = capacity else { return Ok(()) };
    let creates = |change: &&Change| matches!(change, Change::Create { .. });
    let created = transaction.changes.iter().filter(creates).count() as u64;
    if created > 0 && objects.load(Ordering::Relaxed) + created > capacity {
        return Err(StoreError::NoSpace);
    }
    Ok(())
}

/// Applies `transaction`, or undoes all of it and returns why.
pub(crate) fn apply(
    shards: &mut dyn Shards,
    transaction: &Transaction,
    sequence: Sequence,
) -> Result<Effect, StoreError> {
    let mut undo = Vec::with_capacity(transaction.changes.len());
    let mut effect = Effect::default();
    for (at, change) in transaction.changes.iter().enumerate() {
        if let Err(error) = step(shards, change, (sequence, at), &mut undo, &mut effect) {
            undo_all(shards, undo);
            return Err(error);
        }
    }
    Ok(effect)
}

fn undo_all(shards: &mut dyn Shards, undo: Vec<Undo>) {
    for step in undo.into_iter().rev() {
        match step {
            Undo::Created(fid) => drop(shards.shard(fid).objects.remove(&fid)),
            Undo::Attributes(fid, attributes) => undone(shards, fid).attributes = *attributes,
            Undo::Xattr(fid, name, value) => set(&mut undone(shards, fid).xattrs, name, value),
            Undo::Destroyed(fid, keys) => {
                let shard = shards.shard(fid);
                let (_, object) = shard.destroyed.pop().expect("undone in reverse order");
                shard.objects.insert(fid, object);
                shard.keys.extend(keys.map(|keys| (fid, keys)));
            }
            Undo::Exchanged(first, second) => swap_data(shards, first, second),
            Undo::Key(index, key, value) => {
                set(shards.shard(index).keys.entry(index).or_default(), key, value);
            }
        }
    }
}

/// Gives each of two objects the other's data, and with it what identifies whose it was.
fn swap_data(shards: &mut dyn Shards, first: Fid, second: Fid) {
    let take = |object: &mut Object| (std::mem::take(&mut object.data), object.incarnation);
    let of_first = take(undone(shards, first));
    let of_second = take(undone(shards, second));
    for (fid, (data, incarnation)) in [(first, of_second), (second, of_first)] {
        let object = undone(shards, fid);
        (object.data, object.incarnation) = (data, incarnation);
        shards.shard(fid).changed.insert(fid);
    }
}

/// The object that a step being undone had changed.
fn undone(shards: &mut dyn Shards, fid: Fid) -> &mut Object {
    shards.shard(fid).objects.get_mut(&fid).expect("undone in reverse order")
}

fn set<K: Ord>(map: &mut BTreeMap<K, Bytes>, key: K, value: Option<Bytes>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn step(
    shards: &mut dyn Shards,
    change: &Change,
    incarnation: (Sequence, usize),
    undo: &mut Vec<Undo>,
    effect: &mut Effect,
) -> Result<(), StoreError> {
    match change {
        Change::Create { object, attributes } => {
            let shard = shards.shard(*object);
            if shard.objects.contains_key(object) {
                return Err(StoreError::Exists(*object));
            }
            let made = Object {
                attributes: attributes.clone(),
                xattrs: BTreeMap::new(),
                data: Data::default(),
                incarnation,
                destroyed: Sequence(0),
            };
            shard.objects.insert(*object, made);
            undo.push(Undo::Created(*object));
            effect.objects += 1;
        }
        Change::Destroy { object } => {
            let shard = shards.shard(*object);
            let mut gone = shard.objects.remove(object).ok_or(StoreError::NoObject(*object))?;
            effect.objects -= 1;
            effect.bytes_freed += gone.data.bytes();
            gone.destroyed = incarnation.0;
            let directory = gone.attributes.kind == FileKind::Directory;
            let keys = if directory { shard.keys.remove(object) } else { None };
            shard.destroyed.push((*object, gone));
            undo.push(Undo::Destroyed(*object, keys));
        }
        Change::Patch { object, patch } => {
            let held = held(shards, *object)?;
            undo.push(Undo::Attributes(*object, Box::new(held.attributes.clone())));
            patch.apply(&mut held.attributes);
        }
        Change::SetXattr { object, name, value } => {
            let xattrs = &mut held(shards, *object)?.xattrs;
            let before = match value {
                Some(value) => xattrs.insert(name.clone(), value.clone()),
                None => xattrs.remove(name),
            };
            undo.push(Undo::Xattr(*object, name.clone(), before));
        }
        Change::Exchange { first, second } => {
            for fid in [first, second] {
                if held(shards, *fid)?.attributes.kind != FileKind::Regular {
                    return Err(StoreError::WrongKind(*fid));
                }
            }
            if first != second {
                swap_data(shards, *first, *second);
                undo.push(Undo::Exchanged(*first, *second));
            }
        }
        Change::Insert { index, key, value } => {
            set_key(shards, *index, key, Some(value), Some(false), undo)?;
        }
        Change::Put { index, key, value } => {
            set_key(shards, *index, key, Some(value), None, undo)?;
        }
        Change::Delete { index, key } => set_key(shards, *index, key, None, Some(true), undo)?,
    }
    Ok(())
}

fn held(shards: &mut dyn Shards, fid: Fid) -> Result<&mut Object, StoreError> {
    shards.shard(fid).objects.get_mut(&fid).ok_or(StoreError::NoObject(fid))
}

/// Sets or removes a key; `present` says what it must have been.
fn set_key(
    shards: &mut dyn Shards,
    index: Fid,
    key: &Bytes,
    value: Option<&Bytes>,
    present: Option<bool>,
    undo: &mut Vec<Undo>,
) -> Result<(), StoreError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(StoreError::WrongKind(index));
    }
    let keys = shards.shard(index).keys.entry(index).or_default();
    match (present, keys.contains_key(key)) {
        (Some(false), true) => return Err(StoreError::Exists(index)),
        (Some(true), false) => return Err(StoreError::NoKey(index)),
        _ => {}
    }
    let before = match value {
        Some(value) => keys.insert(key.clone(), value.clone()),
        None => keys.remove(key),
    };
    undo.push(Undo::Key(index, key.clone(), before));
    Ok(())
}
