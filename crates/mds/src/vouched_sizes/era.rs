//! The era: which of the stored sizes may be vouched for at all.
//!
//! A size is vouched for while every client that could write the file is known. Clients that are lost with a restart had
//! open what no one knows any more; so then a new era begins, and no record of an earlier one counts. It begins, too, where
//! this MDT cannot know whether any was lost: after a start that did not come to the end of its recovery, and
//! in a store that has no era, as one that was salvaged.
//!
//! While a recovery runs, the store says that the era is in doubt, durably: a crash in the middle may leave no trace of a
//! client that was given up.

use bytes::Bytes;
use sheen_store::{Store, StoreError, Transaction};
use sheen_types::{Fid, fid_seq};

use super::record::Era;

/// Index of what the store has only once.
const ERA: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x206);
const KEY: &[u8] = b"era";

/// The era that a target begins with: in doubt, durably, until [`settle`].
///
/// # Errors
/// Those of the store.
pub(super) fn load(store: &dyn Store, random: [u8; 16]) -> Result<Era, StoreError> {
    let stored = store.lookup(ERA, KEY)?.as_deref().and_then(parse);
    let era = match stored {
        Some((era, false)) => era,
        Some((era, true)) => next(era),
        None => of_random(random),
    };
    let mut transaction = Transaction::new();
    put(&mut transaction, era, true);
    store.apply(transaction)?;
    store.commit()?;
    Ok(era)
}

/// The store has no era any more: none of its sizes is vouched for by the next target that starts on it.
///
/// # Errors
/// Those of the store.
pub(crate) fn forget(store: &dyn Store) -> Result<(), StoreError> {
    if store.lookup(ERA, KEY)?.is_some() {
        let mut transaction = Transaction::new();
        transaction.delete(ERA, Bytes::from_static(KEY));
        store.apply(transaction)?;
    }
    Ok(())
}

/// Adds that nothing of this era is in doubt.
pub(super) fn settle(transaction: &mut Transaction, era: Era) {
    put(transaction, era, false);
}

/// The era after it: no record has its number.
pub(super) fn next(era: Era) -> Era {
    Era((era.0 + 1) & Era::BITS).max_one()
}

impl Era {
    fn max_one(self) -> Self {
        Self(self.0.max(1))
    }
}

/// Another one in each store: of a store whose era was lost, records may be left.
fn of_random(random: [u8; 16]) -> Era {
    let (first, _) = random.split_first_chunk().unwrap_or((&[0; 8], &[]));
    Era(u64::from_le_bytes(*first) & Era::BITS).max_one()
}

fn put(transaction: &mut Transaction, era: Era, is_in_doubt: bool) {
    let mut value = era.0.to_le_bytes().to_vec();
    value.push(u8::from(is_in_doubt));
    transaction.put(ERA, Bytes::from_static(KEY), value.into());
}

fn parse(value: &[u8]) -> Option<(Era, bool)> {
    let (era, doubt) = value.split_first_chunk()?;
    let era = u64::from_le_bytes(*era) & Era::BITS;
    (era != 0 && doubt.len() == 1).then(|| (Era(era), doubt != [0]))
}

#[cfg(test)]
mod tests {
    use sheen_store_mem::{Commits, MemOptions, StoreMem};

    use super::*;

    #[test]
    fn an_era_goes_on_only_after_a_start_that_was_settled() {
        let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
        let store = StoreMem::new(options);
        let first = load(&store, [7; 16]).unwrap();
        let crashed = store.crash();
        assert_eq!(load(&crashed, [7; 16]), Ok(next(first)), "it was in doubt, durably");
        let mut transaction = Transaction::new();
        settle(&mut transaction, first);
        store.apply(transaction).unwrap();
        assert_eq!(load(&store, [8; 16]), Ok(first));
        assert_eq!(load(&store, [8; 16]), Ok(next(first)));
        forget(&store).unwrap();
        assert_ne!(load(&store, [9; 16]), Ok(next(next(first))), "a random one");
        assert_eq!(next(Era(Era::BITS)), Era(1), "0 is none");
    }
}
