//! Changes over several MDTs in the store of an MDT that does not run.

use sheen_store::{Store, StoreError, Transaction};
use sheen_types::{ChangeId, HashSet, MdtIndex};
use sheen_wire::update_record::UpdateRecord;

use super::Refusal;
use super::log::{DistributedLog, delete_record, put_record};
use crate::last_rcvd::{RecoveryLosses, put_transno, transno_at_rest};

/// What such a store has of changes over several MDTs.
pub struct ChangesAtRest {
    log: DistributedLog,
    /// Of all that there are records of, readable or not.
    recorded: HashSet<ChangeId>,
}

impl ChangesAtRest {
    /// Reads all of it.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for a note that is none.
    pub fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let (log, _) = DistributedLog::read(store)?;
        let recorded =
            log.records.iter().map(|record| record.id).chain(log.unreadable.iter().copied());
        Ok(Self { recorded: recorded.collect(), log })
    }

    /// The records that are there: of changes that are not complete, and of complete ones of which this MDT does not know it yet.
    pub fn records(&self) -> impl Iterator<Item = &UpdateRecord> {
        self.log.records.iter()
    }

    /// Changes whose part is there, and whose record cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &[ChangeId] {
        &self.log.unreadable
    }

    /// Whether this MDT's part of a change is there: it has the record, or a note that the change is complete.
    #[must_use]
    pub fn has(&self, id: ChangeId) -> bool {
        self.recorded.contains(&id) || self.notes_as_complete(id)
    }

    /// Whether this MDT has a note that a change is complete: all participants have their parts.
    #[must_use]
    pub fn notes_as_complete(&self, id: ChangeId) -> bool {
        self.log.notes.get(&id.coordinator).is_some_and(|note| note.has(id.transno))
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

/// Removes a record that cannot be read: nothing can be redone from it. With it goes that this MDT has its part of the change;
/// where another store has a record that can be read, the caller puts that in its place ([`redo_at_rest`], with no changes).
///
/// # Errors
/// Those of [`Store::apply`]; then nothing was changed.
pub fn forget_at_rest(store: &dyn Store, id: ChangeId) -> Result<(), StoreError> {
    let mut transaction = Transaction::new();
    delete_record(&mut transaction, id);
    store.apply(transaction).map(drop)
}
