//! How far an MDT's store had come, as the OST learned of it: whether the MDT that comes back after a crash lacks no more
//! than that crash took, or lacks what it had before, as one restored from an older backup does (decision 0016).
//!
//! An MDT says two transaction numbers with each OST_CREATE: the last one that was durable when it started, which
//! distinguishes its incarnations, and the last one that is durable now. The OST keeps both for each sequence, in the
//! transaction of the creation, so that they are durable before the MDT can use the objects. An MDT that starts again
//! with no less than it once had durable has lost only what no client was promised: objects above its last id that hold
//! data were files' whose creation was lost with the clients that could replay it, and nothing refers to them. From any
//! other one they are kept.

use bytes::Bytes;
use sheen_store::{Store, StoreError, Transaction, all_entries};
use sheen_types::{Fid, Transno, fid_seq};
use sheen_wire::md::Valid;
use sheen_wire::ost::{Obdo, OstId};

use crate::create::ORPHANS_MAX;
use crate::objects;

/// Index of what is known: sequence, big-endian, to [`MdtProgress`].
const PROGRESS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x103);

/// What an MDT says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Was durable when it started.
    started: Transno,
    /// Is durable now.
    committed: Transno,
}

impl Reported {
    /// What a request says; `None` of Lustre's MDTs, which say nothing.
    pub(crate) fn of(asked: &Obdo) -> Option<Self> {
        let says = asked.valid.contains(Valid::SIZE | Valid::BLOCKS);
        says.then_some(Self { started: Transno(asked.blocks), committed: Transno(asked.size) })
    }
}

/// An MDT at rest, as far as an OST depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MdtAtRest {
    /// Its newest transaction, which is durable.
    pub transno: Transno,
    /// The last id of this OST's objects that a file of it has got.
    pub last_used: u64,
}

impl MdtAtRest {
    /// Whether an object of the OST's `store` that no file has goes with the next start, though it holds data: a crash
    /// took its file with the clients that could replay it. Only looks.
    ///
    /// # Errors
    /// Those of the store.
    pub fn gives_up(self, store: &dyn Store, object: Fid) -> Result<bool, StoreError> {
        let Self { transno, last_used } = self;
        let (sequence, id) = (objects::sequence_of_object(object), OstId::of_fid(object).id());
        let last = objects::last_ids(store)?.into_iter().find(|(of, _)| *of == sequence);
        let last = last.map_or(0, |(_, last)| last);
        if id <= last_used || last.saturating_sub(last_used) > ORPHANS_MAX {
            return Ok(false);
        }
        let reported = Reported { started: transno, committed: transno };
        let known = MdtProgress::load(store, sequence)?;
        let after = MdtProgress::after_restart(known, Some(reported), last);
        Ok(after.is_some_and(|it| !it.keeps(id)))
    }
}

/// What is known of the MDT of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MdtProgress {
    started: Transno,
    committed: Transno,
    /// Objects up to this id are no orphans if they hold data, whatever the MDT knows.
    kept: u64,
}

impl MdtProgress {
    /// What was recorded; `None` before an MDT has said anything.
    pub(crate) fn load(store: &dyn Store, sequence: u64) -> Result<Option<Self>, StoreError> {
        let value = store.lookup(PROGRESS, &sequence.to_be_bytes())?;
        let wrong = || StoreError::Corrupt("a record of an MDT's progress".to_owned());
        value.map(|value| Self::parse(&value).ok_or_else(wrong)).transpose()
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (parts, []) = value.as_chunks::<8>() else { return None };
        let [started, committed, kept] = parts else { return None };
        let [started, committed, kept] =
            [started, committed, kept].map(|it| u64::from_le_bytes(*it));
        Some(Self { started: Transno(started), committed: Transno(committed), kept })
    }

    pub(crate) fn put(&self, change: &mut Transaction, sequence: u64) {
        let value = [self.started.0, self.committed.0, self.kept].map(u64::to_le_bytes).concat();
        change.put(PROGRESS, Bytes::copy_from_slice(&sequence.to_be_bytes()), value.into());
    }

    /// What is known after a request to create objects.
    pub(crate) fn after_create(known: Option<Self>, reported: Reported) -> Self {
        let known = known.unwrap_or_default();
        // One of an earlier incarnation says nothing new.
        let committed = known.committed.max(reported.committed);
        Self { committed, ..known }
    }

    /// What is known after an MDT came back whose last created object is `last`. Where it lacks what it had durable,
    /// or where that cannot be known, everything up to there that holds data is kept for ever: a later crash of such an
    /// MDT looks like any other.
    pub(crate) fn after_restart(
        known: Option<Self>,
        reported: Option<Reported>,
        last: u64,
    ) -> Option<Self> {
        let Some(Reported { started, committed }) = reported else {
            return known.map(|known| Self { kept: last, ..known });
        };
        let is_whole = known.is_some_and(|it| it.started == started || started >= it.committed);
        let kept = known.filter(|_| is_whole).map_or(last, |known| known.kept);
        Some(Self { started, committed, kept })
    }

    /// This progress, after which no object up to `last` that holds data is given up.
    pub(crate) fn keeping(self, last: u64) -> Self {
        Self { kept: last, ..self }
    }

    /// Whether an object above the MDT's last id is kept if it holds data.
    pub(crate) fn keeps(&self, id: u64) -> bool {
        id <= self.kept
    }

    /// Forgets what is known of all MDTs: another one takes the place of one of them.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn forget_all(
        store: &dyn Store,
        change: &mut Transaction,
    ) -> Result<(), StoreError> {
        for entry in all_entries(store, PROGRESS, &[]) {
            change.delete(PROGRESS, entry?.key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(started: u64, committed: u64) -> Reported {
        Reported { started: Transno(started), committed: Transno(committed) }
    }

    #[test]
    fn only_an_mdt_that_lacks_nothing_of_what_it_had_durable_gives_data_up() {
        let restart = |known, started| {
            MdtProgress::after_restart(known, Some(reported(started, started)), 100).expect("said")
        };
        let first = restart(None, 10);
        assert!(first.keeps(100), "it is not known what it had");
        let running = MdtProgress::after_create(Some(first), reported(10, 50));
        let running = MdtProgress::after_create(Some(running), reported(10, 40));
        let again = |started| {
            MdtProgress::after_restart(Some(running), Some(reported(started, started)), 200)
        };
        assert!(!again(50).expect("said").keeps(101), "a crash took the rest");
        assert!(again(50).expect("said").keeps(100), "what was kept once is kept");
        assert!(!again(10).expect("said").keeps(101), "the same one has connected again");
        let older = again(49).expect("said");
        assert!(older.keeps(200), "an older copy");
        // It goes on from there, and has a crash like any other: what it never knew is still kept.
        let later = MdtProgress::after_restart(Some(older), Some(reported(60, 60)), 300);
        assert!(later.is_some_and(|it| it.keeps(200) && !it.keeps(201)));
        let silent = MdtProgress::after_restart(Some(running), None, 200);
        assert!(silent.is_some_and(|it| it.keeps(200)), "one of Lustre's in its place");
    }

    #[test]
    fn records_are_read_back() {
        let progress = MdtProgress { started: Transno(1), committed: Transno(2), kept: 3 };
        let value = [1_u64, 2, 3].map(u64::to_le_bytes).concat();
        assert_eq!(MdtProgress::parse(&value), Some(progress));
        assert_eq!(MdtProgress::parse(&value[1..]), None);
        assert_eq!(MdtProgress::parse(&[value.clone(), value].concat()), None);
    }
}
