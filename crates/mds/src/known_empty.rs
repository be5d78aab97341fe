//! Files that have objects and were never written: their size is 0 without asking an OST.
//!
//! Lustre's word for a size that the MDT may vouch for is a strict size (`SOM_FL_STRICT`): a getattr
//! says it as `OBD_MD_FLSIZE`, and a client that holds the `UPDATE` lock sends no glimpse. A client of
//! Lustre's does the same (`ll_getattr_dentry`), so this is nothing new on the wire.
//!
//! A file is in [`KnownEmpty`] while this incarnation of the MDT has seen every open for writing that
//! it ever had, all of them have been closed, and each close reported that nothing was written. So:
//!
//! - It is decided at the close of the last writer ([`crate::open_counts`] counts them), never at the
//!   create: a writer may write at any time without a word to the MDT.
//! - A close that says "modified" or reports a size, a writer whose client was evicted (it may have
//!   written, and may still: the OSTs know nothing of it), and any truncate end it for good.
//! - Dirty bytes that outlive a close do no harm: the close says that there are some.
//! - An open for writing removes the file and then revokes the `UPDATE` locks of other clients,
//!   before its client is answered that it may write. The lock of a getattr that was answered before
//!   is revoked; a getattr that comes later finds the file gone from here.
//! - Nothing of it is stored. After a restart it is unknown whose opens were lost with clients that
//!   did not come back, so no file is known to be empty, and a create that is replayed makes none.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_types::{Fid, HashMap};

/// Files remembered at most, some 5 MiB; of the oldest the OSTs are asked again.
const FILES_MAX: usize = 1 << 16;

/// See the module's documentation. Changed under the file's exclusion lock.
#[derive(Default)]
pub(crate) struct KnownEmpty(Mutex<Files>);

#[derive(Default)]
struct Files {
    numbers: HashMap<Fid, u64>,
    oldest: BTreeMap<u64, Fid>,
    next: u64,
}

impl KnownEmpty {
    pub(crate) fn insert(&self, fid: Fid) {
        let mut files = self.0.lock();
        let number = files.next;
        files.next += 1;
        if let Some(before) = files.numbers.insert(fid, number) {
            files.oldest.remove(&before);
        }
        files.oldest.insert(number, fid);
        if files.oldest.len() > FILES_MAX
            && let Some((_, oldest)) = files.oldest.pop_first()
        {
            files.numbers.remove(&oldest);
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&self, fid: Fid) -> bool {
        let mut files = self.0.lock();
        let Some(number) = files.numbers.remove(&fid) else { return false };
        files.oldest.remove(&number);
        true
    }

    pub(crate) fn contains(&self, fid: Fid) -> bool {
        self.0.lock().numbers.contains_key(&fid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let known_empty = KnownEmpty::default();
        let fid = |number| Fid::new(0x2_0000_0401, number);
        for number in 0..FILES_MAX as u32 {
            known_empty.insert(fid(number));
        }
        known_empty.insert(fid(0));
        assert!(known_empty.contains(fid(0)) && known_empty.contains(fid(1)), "twice is once");
        known_empty.insert(fid(u32::MAX));
        assert!(!known_empty.contains(fid(1)), "the oldest went");
        assert!(known_empty.contains(fid(0)) && known_empty.contains(fid(2)));
        assert!(known_empty.remove(fid(2)) && !known_empty.remove(fid(2)));
    }
}
