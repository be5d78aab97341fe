//! Which MDT this is: what a store has of its own from its beginning on, goes with a copy of it, and no other store
//! has. OSTs obey the MDT that they know by it (decision 0016).

use bytes::Bytes;
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{Connecting, Target};
use sheen_types::{Errno, Fid, Timestamp, Uuid, fid_seq};

use crate::Mdt;

/// Index of what the store has only once.
pub(crate) const IDENTITY: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x205);
const KEY: &[u8] = b"identity";
/// Key of the MDT's number, big-endian; absent for MDT0000.
const INDEX_KEY: &[u8] = b"index";
/// `8-4-4-4-12` hexadecimal digits.
const BYTES: usize = 36;

/// The identity of the MDT in `store`. An empty store gets one made of `random`; one that has none, because an older
/// version made it or because it was lost, gets that of the root's birth, which all copies of the store share. It is
/// durable before an OST hears of it. To be asked before the root is made.
///
/// # Errors
/// Those of the store; [`StoreError::Corrupt`] if it is that of another MDT than number `index`, which has FIDs and
/// objects of its own.
pub(crate) fn load(store: &dyn Store, index: u16, random: [u8; 16]) -> Result<Uuid, StoreError> {
    let number = recorded_index(store)?;
    if let Some(recorded) = number.filter(|recorded| *recorded != index) {
        let text = format!("it is the store of MDT{recorded:04x}, and cannot be MDT{index:04x}'s");
        return Err(StoreError::Corrupt(text));
    }
    if let Some(known) = recorded(store)? {
        return Ok(known);
    }
    let identity = at_rest(store)?.unwrap_or_else(|| Uuid::from_random(random));
    let mut transaction = Transaction::new();
    let text = Bytes::copy_from_slice(identity.as_str().as_bytes());
    transaction.put(IDENTITY, Bytes::from_static(KEY), text);
    if index != 0 {
        let value = Bytes::copy_from_slice(&index.to_be_bytes());
        transaction.put(IDENTITY, Bytes::from_static(INDEX_KEY), value);
    }
    store.apply(transaction)?;
    store.commit()?;
    Ok(identity)
}

/// The identity that the MDT in `store`, which does not run, will have; `None` if its start makes a new one: it was never
/// started, or has lost it.
///
/// # Errors
/// Those of the store.
pub(crate) fn at_rest(store: &dyn Store) -> Result<Option<Uuid>, StoreError> {
    if let Some(known) = recorded(store)? {
        return Ok(Some(known));
    }
    match store.recorded_attributes(Fid::ROOT) {
        Ok(root) => Ok(Some(of_birth(root.born))),
        Err(StoreError::NoObject(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn recorded(store: &dyn Store) -> Result<Option<Uuid>, StoreError> {
    Ok(store.lookup(IDENTITY, KEY)?.as_deref().and_then(parse))
}

/// Which MDT a store is; `None` for one that is empty.
fn recorded_index(store: &dyn Store) -> Result<Option<u16>, StoreError> {
    if let Some(value) = store.lookup(IDENTITY, INDEX_KEY)? {
        let wrong = |_| StoreError::Corrupt("the number of the MDT".to_owned());
        return value[..].try_into().map(|bytes| Some(u16::from_be_bytes(bytes))).map_err(wrong);
    }
    let has_root = match store.recorded_attributes(Fid::ROOT) {
        Ok(_) => true,
        Err(StoreError::NoObject(_)) => false,
        Err(error) => return Err(error),
    };
    let is_first = has_root || store.lookup(IDENTITY, KEY)?.is_some();
    Ok(is_first.then_some(0))
}

impl Mdt {
    /// Refuses clients of another MDT, before anything is done for them: names, layouts and open files that they have
    /// are that one's, and so is what they would replay.
    ///
    /// # Errors
    /// [`Errno::EXDEV`].
    pub(crate) fn check_client(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
    ) -> Result<(), Errno> {
        let own = self.identity();
        let said = connecting.offered.mdt_identity();
        let Some(other) = said.filter(|said| *said != own.as_str().as_bytes()) else {
            return Ok(());
        };
        let other = Uuid::new(String::from_utf8_lossy(other));
        // Said once for each, not at every try.
        let before = self.refused_clients.lock().replace(other.clone());
        if before.as_ref() != Some(&other) {
            tracing::error!(target = target.name(), client = %connecting.client, nid = %connecting.nid,
                "refused clients of MDT {other}: this is {own}. They wait until that one is back, or are unmounted");
        }
        Err(Errno::EXDEV)
    }
}

fn parse(value: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() == BYTES)?;
    Some(Uuid::new(text))
}

fn of_birth(born: Timestamp) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&born.seconds.to_be_bytes());
    bytes[8..12].copy_from_slice(&born.nanoseconds.to_be_bytes());
    Uuid::from_random(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sheen_store_mem::{Commits, MemOptions, StoreMem};

    use super::*;
    use crate::MdtConfig;

    /// What is not committed is lost in a crash.
    fn store() -> Arc<StoreMem> {
        let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
        Arc::new(StoreMem::new(options))
    }

    fn start(store: &Arc<StoreMem>, random: u8, seconds: i64) -> Uuid {
        let now = Timestamp { seconds, nanoseconds: 7 };
        let config = MdtConfig::new("lustre", 0, now, [random; 16]);
        let shared = Arc::clone(store) as Arc<dyn Store>;
        Mdt::new(shared, config).expect("started").identity().clone()
    }

    #[test]
    fn file_systems_that_are_made_in_one_second_have_other_identities() {
        let made = |random: u8| {
            let store = store();
            let born = Timestamp { seconds: 5, nanoseconds: 7 };
            crate::format_for_small_files(&*store, born, [random; 16]).expect("made");
            start(&store, 9, 6)
        };
        assert_ne!(made(1), made(2));
    }

    #[test]
    fn a_store_keeps_its_identity_and_each_has_another() {
        let (store, other) = (store(), store());
        let identity = start(&store, 1, 5);
        assert_eq!(identity.as_str().len(), BYTES);
        assert_eq!(start(&store, 2, 6), identity);
        // It was durable before any OST could hear of it.
        assert_eq!(start(&Arc::new(store.crash()), 3, 7), identity);
        assert_ne!(start(&other, 4, 5), identity);
    }

    #[test]
    fn a_store_of_one_number_is_not_served_as_another() {
        let open = |store: &Arc<StoreMem>, index| {
            let config = MdtConfig::new("lustre", index, Timestamp::from_seconds(5), [1; 16]);
            Mdt::new(Arc::clone(store) as Arc<dyn Store>, config).map(drop)
        };
        for first in [0, 1, 7] {
            let store = store();
            open(&store, first).expect("an empty one");
            let copy = Arc::new(store.crash());
            for other in [0, 1, 2, 7].into_iter().filter(|other| *other != first) {
                let refused = open(&copy, other).expect_err("another number").to_string();
                assert!(refused.contains(&format!("the store of MDT{first:04x}")), "{refused}");
            }
            open(&copy, first).expect("it is still the same");
        }
    }

    #[test]
    fn copies_of_a_store_that_had_no_identity_get_the_same_one() {
        let store = store();
        start(&store, 1, 5);
        let mut forget = Transaction::new();
        forget.delete(IDENTITY, Bytes::from_static(KEY));
        store.apply(forget).expect("applied");
        store.commit().expect("committed");
        let copy = Arc::new(store.crash());
        let identity = start(&store, 2, 6);
        assert_eq!(start(&copy, 3, 7), identity);
        assert_ne!(identity, start(&self::store(), 2, 6));
    }
}
