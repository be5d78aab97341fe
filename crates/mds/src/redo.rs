//! Redoes what stores at rest lack of changes over several MDTs.
//!
//! After a crash of several MDTs one of them may have its part of a change, and another one not. A start of all of them redoes
//! it from the records (`sheen_target::distributed`), and so does this, before a check: a change that is on some of them
//! alone would look like damage. What it redoes the next start would redo; the MDT's sizes are in doubt after it, as after a
//! crash (`era`).

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_store::{Store, StoreError};
use sheen_target::{ChangesAtRest, redo_at_rest};
use sheen_types::{ChangeId, Errno, Fid, LogicalTime, MdtIndex, Timestamp};
use sheen_wire::update_record::UpdateRecord;

use crate::check::{FailedStore, MdtAtRest, Reading, mismatches};
use crate::{Mdt, MdtConfig};

/// A part that is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RedonePart {
    /// On which MDT.
    pub mdt: MdtIndex,
    /// Of which change.
    pub change: ChangeId,
}

/// A part that is not there and cannot be redone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPart {
    /// On which MDT.
    pub mdt: MdtIndex,
    /// Of which change.
    pub change: ChangeId,
    /// What it would change.
    pub inodes: Vec<Fid>,
    /// Why not: [`Errno::ENOENT`] and the like where it does not fit to what is there.
    pub errno: Errno,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redone {
    /// Parts that were redone, durably.
    pub parts: Vec<RedonePart>,
    /// Parts that could not be.
    pub refused: Vec<RefusedPart>,
}

/// Redoes what each of these MDTs, none of which runs, lacks of changes that any of them has a record of. Again, it finds
/// nothing more to do. From and in a store that is not that of the MDT which the other MDTs know by its number nothing is redone.
///
/// # Errors
/// Those of the stores; then some parts may be redone.
pub fn redo_offline(stores: &[(MdtIndex, Arc<dyn Store>)]) -> Result<Redone, FailedStore> {
    let reading = Reading::default();
    redo_all(stores, &reading).map_err(|error| FailedStore { mdt: reading.mdt(), error })
}

fn redo_all(
    stores: &[(MdtIndex, Arc<dyn Store>)],
    reading: &Reading,
) -> Result<Redone, StoreError> {
    let all: Vec<_> = stores
        .iter()
        .map(|(mdt, store)| MdtAtRest { mdt: *mdt, store: &**store, objects: &[], indexes: &[] })
        .collect();
    let mismatches = mismatches(&all, reading)?;
    let is_matching = |mdt: MdtIndex| mismatches.iter().all(|it| it.mdt != mdt);
    let mut known = Vec::new();
    for (mdt, store) in stores.iter().filter(|(mdt, _)| is_matching(*mdt)) {
        reading.note(*mdt);
        known.push((*mdt, store, ChangesAtRest::load(&**store)?));
    }
    let mut done = Redone::default();
    for (mdt, store, changes) in &known {
        reading.note(*mdt);
        let mut lacking: BTreeMap<(LogicalTime, ChangeId), &UpdateRecord> = BTreeMap::new();
        for record in known.iter().flat_map(|(_, _, changes)| changes.records()) {
            if record.part_of(*mdt).is_some() && !changes.has(record.id) {
                lacking.insert((record.time, record.id), record);
            }
        }
        if !lacking.is_empty() {
            redo(*mdt, store, lacking.into_values(), &mut done)?;
            store.commit()?;
        }
    }
    Ok(done)
}

/// Redoes these in their order.
fn redo<'a>(
    mdt: MdtIndex,
    store: &Arc<dyn Store>,
    lacking: impl Iterator<Item = &'a UpdateRecord>,
    done: &mut Redone,
) -> Result<(), StoreError> {
    let config = MdtConfig::new(String::new(), mdt.0, Timestamp::default(), [0; 16]);
    let role = Mdt::new(Arc::clone(store), config)?;
    for record in lacking {
        let Some(part) = record.part_of(mdt) else { continue };
        let outcome = match role.changes_of(&part.updates) {
            Ok(changes) => match redo_at_rest(&**store, mdt, record, changes) {
                Ok(()) => Ok(()),
                Err(error) if sheen_target::does_not_fit(&error) => Err(error.errno()),
                Err(error) => return Err(error),
            },
            Err(errno) => Err(errno),
        };
        match outcome {
            Ok(()) => done.parts.push(RedonePart { mdt, change: record.id }),
            Err(errno) => done.refused.push(refused(mdt, record, errno)),
        }
    }
    Ok(())
}

fn refused(mdt: MdtIndex, record: &UpdateRecord, errno: Errno) -> RefusedPart {
    let updates = record.part_of(mdt).map(|part| &part.updates[..]).unwrap_or_default();
    let mut inodes: Vec<Fid> = updates.iter().map(|update| update.fid).collect();
    inodes.sort_unstable();
    inodes.dedup();
    RefusedPart { mdt, change: record.id, inodes, errno }
}
