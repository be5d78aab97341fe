//! Which keys of the store were written by transactions that are not durable: what a part of a change over several MDTs
//! would build on (Lustre: commit on sharing between MDTs, in the modes `COS` and `TXN`).
//!
//! Kept from [`Undurable::begin`] on, which a target with other MDTs beside it calls. One that is alone pays a look at a
//! flag for each transaction, and keeps nothing.
//!
//! A transaction's own keys count, not those that the target adds to it: numbers and records of answers are written
//! without being read. A patch counts for none: counts are added, and of times the later one holds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{Change, Sequence, Transaction};
use sheen_types::{Fid, HashMap};

/// Something in a store that a transaction writes, or that a change builds on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreKey {
    /// An object: that it is there, or not, and its extended attributes.
    Object(Fid),
    /// One key of an index, whether it is there or not.
    Key(Fid, Bytes),
    /// All keys of an index: that it is empty.
    AllKeys(Fid),
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Undurable {
    is_kept: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of what was applied up to here no keys are known.
    unknown: Option<Sequence>,
    last_writers: HashMap<StoreKey, Sequence>,
    /// What each transaction wrote, in order.
    written: VecDeque<(Sequence, Vec<StoreKey>)>,
}

impl Undurable {
    /// Keeps what is written from now on. `newest` is the newest transaction, if that is not durable.
    pub(crate) fn begin(&self, newest: Option<Sequence>) {
        if !self.is_kept.swap(true, Ordering::AcqRel) {
            self.state.lock().unknown = newest;
        }
    }

    /// The keys that a transaction is going to write; `None` if none are kept.
    pub(crate) fn keys_of(&self, transaction: &Transaction) -> Option<Vec<StoreKey>> {
        let is_kept = self.is_kept.load(Ordering::Acquire);
        is_kept.then(|| transaction.changes.iter().flat_map(written_by).flatten().collect())
    }

    /// A transaction was applied, behind all that were noted before.
    pub(crate) fn note(&self, applied: Sequence, keys: Vec<StoreKey>, durable: Sequence) {
        let mut state = self.state.lock();
        state.forget(durable);
        for key in &keys {
            state.last_writers.insert(key.clone(), applied);
        }
        state.written.push_back((applied, keys));
    }

    /// The newest transaction that is not durable and wrote one of `keys`, or may have. As transactions become durable in
    /// their order, all that it builds on is durable with it.
    pub(crate) fn newest_of(&self, keys: &[StoreKey], durable: Sequence) -> Option<Sequence> {
        let mut state = self.state.lock();
        state.forget(durable);
        let written = keys.iter().filter_map(|key| state.last_writers.get(key)).copied();
        written.chain(state.unknown).max()
    }
}

impl State {
    fn forget(&mut self, durable: Sequence) {
        self.unknown = self.unknown.filter(|unknown| *unknown > durable);
        while let Some((sequence, keys)) = self.written.pop_front_if(|(at, _)| *at <= durable) {
            for key in keys {
                if self.last_writers.get(&key) == Some(&sequence) {
                    self.last_writers.remove(&key);
                }
            }
        }
    }
}

fn written_by(change: &Change) -> [Option<StoreKey>; 2] {
    match change {
        Change::Create { object, .. }
        | Change::Destroy { object }
        | Change::SetXattr { object, .. } => [Some(StoreKey::Object(*object)), None],
        Change::Exchange { first, second } => {
            [Some(StoreKey::Object(*first)), Some(StoreKey::Object(*second))]
        }
        Change::Insert { index, key, .. }
        | Change::Put { index, key, .. }
        | Change::Delete { index, key } => {
            [Some(StoreKey::Key(*index, key.clone())), Some(StoreKey::AllKeys(*index))]
        }
        Change::Patch { .. } => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use sheen_store::{AttributePatch, Attributes};

    use super::*;

    const DIRECTORY: Fid = Fid::new(0x2_0000_0401, 1);
    const INODE: Fid = Fid::new(0x2_0000_0401, 2);

    fn name(name: &'static str) -> StoreKey {
        StoreKey::Key(DIRECTORY, Bytes::from_static(name.as_bytes()))
    }

    /// A file made under this name, and one more change of the directory's times.
    fn created(name: &'static str) -> Transaction {
        let mut transaction = Transaction::new();
        transaction.create(INODE, Attributes::default());
        transaction.insert(DIRECTORY, name.into(), Bytes::new());
        transaction.patch(DIRECTORY, AttributePatch::default());
        transaction
    }

    fn apply(undurable: &Undurable, at: u64, transaction: &Transaction) {
        let keys = undurable.keys_of(transaction).expect("they are kept");
        undurable.note(Sequence(at), keys, Sequence(0));
    }

    #[test]
    fn what_was_written_last_is_waited_for_until_it_is_durable() {
        let undurable = Undurable::default();
        undurable.begin(None);
        apply(&undurable, 5, &created("a"));
        apply(&undurable, 6, &created("b"));
        let newest = |keys: &[StoreKey], durable| {
            undurable.newest_of(keys, Sequence(durable)).map(|sequence| sequence.0)
        };
        assert_eq!(newest(&[name("a")], 4), Some(5));
        assert_eq!(newest(&[name("a"), name("b")], 4), Some(6));
        assert_eq!(newest(&[StoreKey::Object(INODE)], 4), Some(6));
        assert_eq!(newest(&[StoreKey::AllKeys(DIRECTORY)], 4), Some(6));
        // Neither another name nor the directory itself, whose times were patched.
        assert_eq!(newest(&[name("c"), StoreKey::Object(DIRECTORY)], 4), None);
        assert_eq!(newest(&[name("a")], 5), None);
        assert_eq!(newest(&[name("a"), name("b")], 5), Some(6));
        assert_eq!(newest(&[StoreKey::Object(INODE)], 6), None);
        let state = undurable.state.lock();
        assert!(state.written.is_empty() && state.last_writers.is_empty());
    }

    #[test]
    fn what_was_applied_before_it_began_may_have_written_anything() {
        let undurable = Undurable::default();
        assert_eq!(undurable.keys_of(&created("a")), None);
        undurable.begin(Some(Sequence(7)));
        undurable.begin(Some(Sequence(9)));
        assert_eq!(undurable.newest_of(&[name("a")], Sequence(6)), Some(Sequence(7)));
        assert_eq!(undurable.newest_of(&[name("a")], Sequence(7)), None);
    }
}
