//! A disk that answers some of its jobs with errors, while a test wants it so.
//!
//! What reads fails, or what changes, or both, one job in so many. A change that fails may have been
//! made nevertheless, as on a real disk. To make things durable does not fail here: a store for which
//! that fails changes nothing more (`StoreMem::fail`).

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::Random;
use sheen_store::{
    Attributes, CommitHook, Entry, Sequence, Store, StoreError, StoreSpace, Transaction, Verified,
    WholeObject,
};
use sheen_types::Fid;

use crate::StoreMem;

/// How often jobs fail: one in so many, none for 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    /// Of those that read.
    pub reads: u64,
    /// Of those that change something.
    pub changes: u64,
}

/// A store for one process. See the module.
pub struct Flaky {
    /// What is on the disk.
    pub store: Arc<StoreMem>,
    /// Which jobs fail.
    pub random: Arc<dyn Random>,
    /// How many do.
    pub errors: Arc<Mutex<Errors>>,
}

impl Flaky {
    fn is_hit(&self, one_in: u64) -> bool {
        one_in > 0 && self.random.number().is_multiple_of(one_in)
    }

    /// Does what reads, or fails.
    fn look<T>(
        &self,
        job: impl FnOnce(&StoreMem) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let one_in = self.errors.lock().reads;
        match self.is_hit(one_in) {
            true => Err(StoreError::Io("a read failed".to_owned())),
            false => job(&self.store),
        }
    }

    /// Changes data, or fails, before or after.
    fn change<T>(
        &self,
        job: impl FnOnce(&StoreMem) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let one_in = self.errors.lock().changes;
        if !self.is_hit(one_in) {
            return job(&self.store);
        }
        if self.is_hit(2) {
            job(&self.store)?;
        }
        Err(StoreError::Io("a write failed".to_owned()))
    }
}

impl Store for Flaky {
    fn attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        self.look(|store| store.attributes(object))
    }

    fn recorded_attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        self.look(|store| store.recorded_attributes(object))
    }

    fn xattr(&self, object: Fid, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.look(|store| store.xattr(object, name))
    }

    fn xattr_names(&self, object: Fid) -> Result<Vec<String>, StoreError> {
        self.look(|store| store.xattr_names(object))
    }

    fn whole(&self, object: Fid) -> Result<WholeObject, StoreError> {
        self.look(|store| store.whole(object))
    }

    fn lookup(&self, index: Fid, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.look(|store| store.lookup(index, key))
    }

    fn scan(&self, index: Fid, from: &[u8], limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.look(|store| store.scan(index, from, limit))
    }

    /// A transaction is applied whole or not at all, and a caller that gets an error knows which.
    fn apply(&self, transaction: Transaction) -> Result<Sequence, StoreError> {
        let one_in = self.errors.lock().changes;
        match self.is_hit(one_in) {
            true => Err(StoreError::Io("a transaction failed".to_owned())),
            false => self.store.apply(transaction),
        }
    }

    fn committed(&self) -> Sequence {
        self.store.committed()
    }

    fn commit_soon(&self) {
        self.store.commit_soon();
    }

    fn commit(&self) -> Result<Sequence, StoreError> {
        self.store.commit()
    }

    fn on_commit(&self, hook: CommitHook) {
        self.store.on_commit(hook);
    }

    fn read(&self, object: Fid, offset: u64, length: usize) -> Result<Bytes, StoreError> {
        self.look(|store| store.read(object, offset, length))
    }

    fn write(&self, object: Fid, offset: u64, pieces: &[Bytes]) -> Result<(), StoreError> {
        self.change(|store| store.write(object, offset, pieces))
    }

    fn truncate(&self, object: Fid, size: u64) -> Result<(), StoreError> {
        self.change(|store| store.truncate(object, size))
    }

    fn punch(&self, object: Fid, offset: u64, length: u64) -> Result<(), StoreError> {
        self.change(|store| store.punch(object, offset, length))
    }

    fn allocate(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), StoreError> {
        self.change(|store| store.allocate(object, offset, length, keep_size))
    }

    fn seek(&self, object: Fid, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        self.look(|store| store.seek(object, offset, hole))
    }

    fn sync_data(&self, object: Fid) -> Result<(), StoreError> {
        self.store.sync_data(object)
    }

    fn is_created_durably(&self, object: Fid) -> Result<bool, StoreError> {
        self.store.is_created_durably(object)
    }

    fn verify(&self, object: Fid, offset: u64) -> Result<Verified, StoreError> {
        self.look(|store| store.verify(object, offset))
    }

    fn data_objects(&self, after: Option<Fid>, limit: usize) -> Result<Vec<Fid>, StoreError> {
        self.look(|store| store.data_objects(after, limit))
    }

    fn object_bytes_max(&self) -> u64 {
        self.store.object_bytes_max()
    }

    fn space(&self) -> Result<StoreSpace, StoreError> {
        self.store.space()
    }
}
