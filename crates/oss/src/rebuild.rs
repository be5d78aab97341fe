//! Puts the index of objects of a salvaged store in order again.

use bytes::Bytes;
use sheen_store::{FileKind, Store, StoreError, Transaction};
use sheen_types::{Fid, HashMap};
use sheen_wire::ost::OstId;

use crate::objects::{OBJECTS, key, last_ids, listed, put_last_id, sequence_of_object};

/// Lists again the objects that are there and not listed, strikes those that are listed and not there,
/// and sees to it that no id which is in use is given out again. `objects` are all in the store. Returns how many were not listed. The target must
/// not run.
///
/// # Errors
/// Those of the store.
pub fn rebuild(store: &dyn Store, objects: &[Fid]) -> Result<u64, StoreError> {
    let is_object = |fid: &&Fid| fid.is_normal() || fid.is_idif();
    let mut last: HashMap<u64, u64> = last_ids(store)?.into_iter().collect();
    let mut unlisted = 0;
    for fid in objects.iter().filter(is_object) {
        if store.recorded_attributes(*fid)?.kind != FileKind::Regular {
            continue;
        }
        let object = OstId::of_fid(*fid);
        let known = last.entry(sequence_of_object(*fid)).or_default();
        *known = object.id().max(*known);
        if store.lookup(OBJECTS, &key(*fid))?.is_none() {
            let mut change = Transaction::new();
            change.insert(OBJECTS, key(*fid), Bytes::new());
            store.apply(change)?;
            unlisted += 1;
        }
    }
    for fid in listed(store)? {
        if matches!(store.recorded_attributes(fid), Err(StoreError::NoObject(_))) {
            let mut change = Transaction::new();
            change.delete(OBJECTS, key(fid));
            store.apply(change)?;
        }
    }
    let mut change = Transaction::new();
    last.into_iter().for_each(|(sequence, id)| put_last_id(&mut change, sequence, id));
    store.apply(change)?;
    store.commit()?;
    Ok(unlisted)
}
