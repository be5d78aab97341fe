//! Objects by their two names, and how far each sequence has been created.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{Attributes, Entry, FileKind, Store, StoreError, Transaction, all_entries};
use sheen_target::store_errno;
use sheen_types::{Errno, Fid, HashMap, Timestamp, fid_seq};
use sheen_wire::ost::OstId;

/// Index of the last object of each sequence (`LAST_ID`): sequence, big-endian, to id.
const LAST_IDS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x100);
/// Index of all objects: FID, big-endian, to nothing.
pub(crate) const OBJECTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x101);

/// An object as [`list_objects`] finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its name.
    pub fid: Fid,
    /// What the store says of it.
    pub attributes: Attributes,
}

/// All objects of an OST's store in the order of their FIDs, for checks of a whole file system.
///
/// # Errors
/// Those of the store; an object that is listed and absent is one.
pub fn list_objects(store: &dyn Store) -> Result<Vec<ObjectRecord>, StoreError> {
    let record = |entry: Result<Entry, StoreError>| {
        let fid = from_key(&entry?.key)
            .ok_or_else(|| StoreError::Corrupt("a key of the object index".to_owned()))?;
        Ok(ObjectRecord { fid, attributes: store.attributes(fid)? })
    };
    all_entries(store, OBJECTS, &[]).map(record).collect()
}

/// The FIDs of all listed objects of an OST's store, in order, whether they are there or not.
///
/// # Errors
/// Those of the store.
pub fn listed(store: &dyn Store) -> Result<Vec<Fid>, StoreError> {
    let wrong = || StoreError::Corrupt("a key of the object index".to_owned());
    let fid = |entry: Result<Entry, StoreError>| from_key(&entry?.key).ok_or_else(wrong);
    all_entries(store, OBJECTS, &[]).map(fid).collect()
}

/// The objects of files, of these `objects`, that are not listed.
///
/// # Errors
/// Those of the store.
pub fn unlisted(store: &dyn Store, objects: &[Fid]) -> Result<Vec<Fid>, StoreError> {
    let mut found = Vec::new();
    for fid in objects.iter().filter(|fid| fid.is_normal() || fid.is_idif()) {
        let is_data =
            || store.recorded_attributes(*fid).map(|record| record.kind == FileKind::Regular);
        if store.lookup(OBJECTS, &key(*fid))?.is_none() && is_data()? {
            found.push(*fid);
        }
    }
    Ok(found)
}

/// Listed objects whose ids lie above the last of their sequence.
///
/// # Errors
/// Those of the store.
pub fn beyond_last(store: &dyn Store) -> Result<Vec<Fid>, StoreError> {
    let last: HashMap<u64, u64> = last_ids(store)?.into_iter().collect();
    let mut found = listed(store)?;
    found.retain(|fid| {
        let known = last.get(&sequence_of_object(*fid)).copied().unwrap_or(0);
        (fid.is_normal() || fid.is_idif()) && OstId::of_fid(*fid).id() > known
    });
    Ok(found)
}

/// The sequence whose last id counts an object.
pub(crate) fn sequence_of_object(fid: Fid) -> u64 {
    if fid.is_idif() { fid_seq::OST_MDT0 } else { fid.seq }
}

/// Up to `limit` objects at and behind `first`, in the order of their FIDs.
pub(crate) fn list_from(
    store: &dyn Store,
    first: Fid,
    limit: usize,
) -> Result<Vec<Fid>, StoreError> {
    let entries = store.scan(OBJECTS, &key(first), limit)?;
    let wrong = || StoreError::Corrupt("a key of the object index".to_owned());
    entries.iter().map(|entry| from_key(&entry.key).ok_or_else(wrong)).collect()
}

/// The object that a request names: one of a file, or of a survey. Whatever else the store holds (the
/// indexes of this module, records of clients) lies in sequences that no request can name.
pub(crate) fn fid_of(oi: OstId, index: u16) -> Result<Fid, Errno> {
    let is_object = |fid: &Fid| match fid.is_idif() {
        true => true,
        false => fid.oid != 0 && (fid.is_normal() || fid.seq == fid_seq::ECHO),
    };
    oi.fid(index).filter(is_object).ok_or(Errno::EPROTO)
}

/// The sequence in which a server wants objects made or removed: that of MDT0000's old objects, or one
/// that the controller gave out.
pub(crate) fn sequence_of(oi: OstId) -> Result<u64, Errno> {
    let sequence = oi.seq();
    match sequence == fid_seq::OST_MDT0 || sequence >= fid_seq::NORMAL {
        true => Ok(sequence),
        false => Err(Errno::EPROTO),
    }
}

/// The object with this id in a sequence.
pub(crate) fn fid_in(sequence: u64, id: u64, index: u16) -> Result<Fid, Errno> {
    let oi = match sequence {
        fid_seq::OST_MDT0 => OstId::of_id(id),
        _ => OstId { word0: sequence, word1: id },
    };
    oi.fid(index).ok_or(Errno::EOVERFLOW)
}

/// Adds the creation of an object to a transaction. Setuid, setgid and the sticky bit on an object
/// that no client has written mark it as never owned, as Lustre's precreated objects are.
pub(crate) fn create(transaction: &mut Transaction, fid: Fid, now: Timestamp) {
    let attributes = Attributes {
        kind: FileKind::Regular,
        permissions: 0o7666,
        links: 1,
        born: now,
        // Precreated objects have no times: the first write or setattr brings them.
        ..Attributes::default()
    };
    transaction.create(fid, attributes).put(OBJECTS, key(fid), Bytes::new());
}

/// Adds the removal of an object to a transaction.
pub(crate) fn destroy(transaction: &mut Transaction, fid: Fid) {
    transaction.destroy(fid).delete(OBJECTS, key(fid));
}

/// Adds the last id of a sequence to a transaction.
pub(crate) fn put_last_id(transaction: &mut Transaction, sequence: u64, last: u64) {
    let key = Bytes::copy_from_slice(&sequence.to_be_bytes());
    transaction.put(LAST_IDS, key, Bytes::copy_from_slice(&last.to_le_bytes()));
}

/// The last id of each sequence that has objects, in the order of sequences.
pub(crate) fn last_ids(store: &dyn Store) -> Result<Vec<(u64, u64)>, StoreError> {
    let wrong = |error| StoreError::Corrupt(format!("a record of the last object: {error}"));
    let parse = |entry: Result<Entry, StoreError>| {
        let entry = entry?;
        let sequence = entry.key.as_ref().try_into().map_err(wrong)?;
        let last = entry.value.as_ref().try_into().map_err(wrong)?;
        Ok((u64::from_be_bytes(sequence), u64::from_le_bytes(last)))
    };
    all_entries(store, LAST_IDS, &[]).map(parse).collect()
}

pub(crate) fn key(fid: Fid) -> Bytes {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend(fid.seq.to_be_bytes());
    bytes.extend(fid.oid.to_be_bytes());
    bytes.extend(fid.ver.to_be_bytes());
    bytes.into()
}

fn from_key(key: &[u8]) -> Option<Fid> {
    let (seq, rest) = key.split_first_chunk()?;
    let (oid, rest) = rest.split_first_chunk()?;
    let ver = rest.try_into().ok()?;
    Some(Fid {
        seq: u64::from_be_bytes(*seq),
        oid: u32::from_be_bytes(*oid),
        ver: u32::from_be_bytes(ver),
    })
}

/// One sequence: its last id, under a lock that creations of the sequence queue for.
#[derive(Default)]
pub(crate) struct Sequence {
    /// `None` until it is read.
    pub(crate) last: tokio::sync::Mutex<Option<u64>>,
}

/// The sequences used since the start.
#[derive(Default)]
pub(crate) struct Sequences {
    known: Mutex<HashMap<u64, Arc<Sequence>>>,
}

impl Sequences {
    /// The sequence; creations in it hold its lock one after the other.
    pub(crate) fn of(&self, number: u64) -> Arc<Sequence> {
        Arc::clone(self.known.lock().entry(number).or_default())
    }
}

/// The last id of a sequence, as stored; 0 for a sequence that has no object yet.
pub(crate) fn last_id(store: &dyn Store, sequence: u64) -> Result<u64, Errno> {
    let value = store.lookup(LAST_IDS, &sequence.to_be_bytes()).map_err(store_errno)?;
    match value.as_deref().map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_le_bytes(bytes)),
        Some(Err(error)) => {
            let text = format!("the last object of sequence {sequence:#x}: {error}");
            Err(store_errno(StoreError::Corrupt(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_store_mem::{MemOptions, StoreMem};

    use super::*;

    #[test]
    fn all_sequences_are_listed_however_many_there_are() {
        let store = StoreMem::new(MemOptions::default());
        let mut transaction = Transaction::new();
        let all: Vec<(u64, u64)> = (0..3000).map(|n| (fid_seq::NORMAL + n, n + 1)).collect();
        all.iter().for_each(|(sequence, last)| put_last_id(&mut transaction, *sequence, *last));
        store.apply(transaction).unwrap();
        assert_eq!(last_ids(&store).unwrap(), all);
    }
}
