//! Versions of objects' data: two that are equal say that nothing was written or cut between them (Lustre's
//! `dt_data_version_get`, there the last transaction of the object).
//!
//! They live in memory: data is written outside of transactions, and no place for a number is written with it. After
//! a restart, and when too many objects have been written since, objects have other versions than before,
//! without a change: who compares them does once more what need not be done.
//!
//! A change counts before its client is answered. A client that asks for a version under a lock, so that the holders
//! of other locks have flushed, learns of all that was written before.
//!
//! Cost of a write: a look into a table.

use parking_lot::Mutex;
use sheen_types::{Fid, HashMap, Transno};

/// Objects whose versions are known one by one; about 2 MiB.
const OBJECTS_MAX: usize = 1 << 16;

#[derive(Default)]
struct Known {
    /// The last version that was given to an object.
    last: u64,
    /// That of all objects which are not in the table.
    rest: u64,
    of: HashMap<Fid, u64>,
}

impl Known {
    /// Versions begin above those of the incarnations before: `now` is the last transaction.
    fn begin(&mut self, now: Transno) {
        if self.last == 0 {
            (self.last, self.rest) = (now.0.max(1), now.0.max(1));
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct DataVersions(Mutex<Known>);

impl DataVersions {
    pub(crate) fn of(&self, object: Fid, now: Transno) -> u64 {
        let mut known = self.0.lock();
        known.begin(now);
        known.of.get(&object).copied().unwrap_or(known.rest)
    }

    /// The object's data has changed, or may have.
    pub(crate) fn note_changed(&self, object: Fid, now: Transno) {
        let mut known = self.0.lock();
        known.begin(now);
        known.last += 1;
        let version = known.last;
        if known.of.len() >= OBJECTS_MAX && !known.of.contains_key(&object) {
            known.of.clear();
            known.rest = version;
            return;
        }
        known.of.insert(object, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_changes_with_its_object_and_with_no_other() {
        let versions = DataVersions::default();
        let (one, other, now) = (Fid::new(5, 1), Fid::new(5, 2), Transno(7 << 32));
        let before = versions.of(one, now);
        assert_eq!(before, 7 << 32, "above those of earlier incarnations");
        versions.note_changed(other, now);
        assert_eq!(versions.of(one, Transno(now.0 + 9)), before);
        versions.note_changed(one, now);
        assert!(versions.of(one, now) > versions.of(other, now));
    }

    #[test]
    fn what_is_forgotten_counts_as_changed() {
        let versions = DataVersions::default();
        let (now, one) = (Transno(1), Fid::new(5, 1));
        versions.note_changed(one, now);
        let before = versions.of(one, now);
        for oid in 2..=OBJECTS_MAX as u32 + 1 {
            versions.note_changed(Fid::new(5, oid), now);
        }
        assert!(versions.of(one, now) > before);
    }
}
