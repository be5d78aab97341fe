//! What becomes of the records of changes over several MDTs, before the names are put in order.
//!
//! A part that one MDT lacks and that did not fit is given up: were it kept, it would be applied when it fits again, which is
//! when the name that was in its way is removed, and an inode would have a second name or none.

use sheen_store::{StoreError, Transaction};
use sheen_target::{ChangesAtRest, forget_at_rest, redo_at_rest};

use crate::check::{MdtAtRest, Reading};

/// After it each of these MDTs has its part of each change of which there is a record, and no record cannot be read. The
/// next start completes those changes. All of it is durable when this returns.
///
/// # Errors
/// Those of the stores.
pub(super) fn give_up(mdts: &[MdtAtRest<'_>], reading: &Reading) -> Result<(), StoreError> {
    let mut known = Vec::new();
    for mdt in mdts {
        reading.note(mdt.mdt);
        known.push(ChangesAtRest::load(mdt.store)?);
    }
    for (mdt, changes) in mdts.iter().zip(&known) {
        reading.note(mdt.mdt);
        for id in changes.unreadable() {
            forget_at_rest(mdt.store, *id)?;
        }
        for record in known.iter().flat_map(ChangesAtRest::records) {
            let lacks = !changes.has(record.id) || changes.unreadable().contains(&record.id);
            if record.part_of(mdt.mdt).is_some() && lacks {
                redo_at_rest(mdt.store, mdt.mdt, record, Transaction::new())?;
            }
        }
        mdt.store.commit()?;
    }
    Ok(())
}
