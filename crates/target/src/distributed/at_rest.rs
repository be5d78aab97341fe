//! Changes over several MDTs in the store of an MDT that does not run.

use sheen_store::{Store, StoreError, Transaction};
use sheen_types::{ChangeId, MdtIndex};
use sheen_wire::update_record::UpdateRecord;

use super::Refusal;
use super::log::{DistributedLog, put_record};
use crate::last_rcvd::{RecoveryLosses, put_transno, transno_at_rest};

/// What such a store has of changes over several MDTs.
pub struct ChangesAtRest(DistributedLog);

impl ChangesAtRest {
    /// Reads all of it.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for a note that is none.
    pub fn load(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self(DistributedLog::read(store)?.0))
    }

    /// The records of changes that are not complete, as far as this MDT knows.
    pub fn records(&self) -> impl Iterator<Item = &UpdateRecord> {
        self.0.records.iter()
    }

    /// Changes whose part is there, and whose record cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &[ChangeId] {
        &self.0.unreadable
    }

    /// Whether this MDT's part of a change is there: it has the record, or a note that the change is complete.
    #[must_use]
    pub fn has(&self, id: ChangeId) -> bool {
        let is_complete = self.0.notes.get(&id.coordinator).is_some_and(|it| it.has(id.transno));
        is_complete
            || self.0.unreadable.contains(&id)
            || self.0.records.iter().any(|record| record.id == id)
    }
}

/// Applies the part that the MDT of a store lacks of a change, with the record, as one transaction. `changes` are what its
/// updates come to. What the client was answered is not recorded: that is with the coordinator, which has made its own part
/// durable before it sent any.
///
/// # Errors
/// Those of [`Store::apply`]; then nothing was changed.
pub fn redo_at_rest(
    store: &dyn Store,
    own: MdtIndex,
    record: &UpdateRecord,
    changes: Transaction,
) -> Result<(), StoreError> {
    let mut transaction = changes;
    let encoded = record.encode().map_err(|error| match Refusal::from(error) {
        Refusal::Store(error) => error,
        _ => StoreError::Io("the record of a change over several MDTs".to_owned()),
    })?;
    put_record(&mut transaction, record.id, encoded);
    let last = transno_at_rest(store)?;
    // A number is never given to a second change.
    let is_own = record.id.coordinator == own;
    put_transno(&mut transaction, if is_own { last.max(record.id.transno) } else { last });
    // Clients that come back may keep what was before.
    RecoveryLosses { clients: false, changes: true }.put(&mut transaction);
    store.apply(transaction).map(drop)
}
