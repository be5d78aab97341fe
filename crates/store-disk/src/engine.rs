//! fjall as this store uses it: two keyspaces and a counter, one writer, atomic synced batches.
//!
//! The overlay hides every key of a batch until the batch is whole, so readers here may see keys
//! of a batch that is being applied. Only the committer writes.

use std::{io, path::Path};

use bytes::Bytes;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
};
use sheen_store::{Entry, Sequence, StoreError};
use sheen_types::Fid;

use crate::{
    DiskError,
    journal::{self, Checksum, TOMBSTONE, VALUE},
    limits,
    overlay::Part,
    record::{FID_BYTES, Record, index_key, object_key},
};

const SEQUENCE: &[u8] = b"sequence";
const BOOT: &[u8] = b"boot";
const CLEAN: &[u8] = b"clean";

/// The metadata engine.
pub(crate) struct Engine {
    database: Database,
    objects: Keyspace,
    keys: Keyspace,
    meta: Keyspace,
}

/// A batch with the checksum that [`journal`] tells a whole one by.
struct Batch {
    batch: OwnedWriteBatch,
    checksum: Checksum,
}

impl Batch {
    fn insert(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        self.checksum.add(keyspace.id(), VALUE, key, value);
        self.batch.insert(keyspace, key, value);
    }

    fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) {
        self.checksum.add(keyspace.id(), TOMBSTONE, key, b"");
        self.batch.remove(keyspace, key);
    }

    /// Durable when this returns.
    fn commit(mut self, meta: &Keyspace, sequence: Sequence) -> Result<(), fjall::Error> {
        self.checksum.add(meta.id(), VALUE, SEQUENCE, b"");
        self.batch.insert(meta, SEQUENCE, self.checksum.seal(sequence.0));
        self.batch.commit()
    }
}

/// What the engine knew when it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// The newest durable transaction.
    pub(crate) sequence: Sequence,
    /// How many times the store was opened, with this one.
    pub(crate) boot: u64,
    /// Bytes of data files, if the store was closed properly.
    pub(crate) data_bytes: Option<u64>,
}

impl Engine {
    /// Opens or makes the engine in `path` with about `cache_bytes` of memory, and counts the
    /// opening durably.
    pub(crate) fn open(path: &Path, cache_bytes: usize) -> Result<(Self, Opened), DiskError> {
        let broken = |error: fjall::Error| DiskError::Engine(error.to_string());
        if path.exists() {
            journal::repair(path)?;
        }
        let database = Database::builder(path)
            .cache_size(cache_bytes as u64 / 2)
            .max_cached_files(Some(limits::ENGINE_FILES_MAX))
            .worker_threads(1)
            .max_journaling_size(limits::JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(broken)?;
        let options = |share: usize| {
            KeyspaceCreateOptions::default().max_memtable_size((cache_bytes / share) as u64)
        };
        let objects = database.keyspace("objects", || options(4)).map_err(broken)?;
        let keys = database.keyspace("keys", || options(4)).map_err(broken)?;
        let meta = database.keyspace("meta", || options(64)).map_err(broken)?;
        let engine = Self { database, objects, keys, meta };
        let number = |key| engine.number(key).map_err(|error| DiskError::Engine(error.to_string()));
        let opened = Opened {
            sequence: Sequence(number(SEQUENCE)?.unwrap_or(0)),
            boot: number(BOOT)?.unwrap_or(0) + 1,
            data_bytes: number(CLEAN)?,
        };
        let mut batch = engine.batch();
        batch.insert(&engine.meta, BOOT, &opened.boot.to_le_bytes());
        batch.remove(&engine.meta, CLEAN);
        batch.commit(&engine.meta, opened.sequence).map_err(broken)?;
        Ok((engine, opened))
    }

    fn batch(&self) -> Batch {
        let batch = self.database.batch().durability(Some(PersistMode::SyncData));
        Batch { batch, checksum: Checksum::default() }
    }

    fn number(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let Some(value) = self.meta.get(key).map_err(|error| store_error(&error))? else {
            return Ok(None);
        };
        let corrupt = || StoreError::Corrupt("a counter of the store".to_owned());
        let bytes = value.first_chunk().ok_or_else(corrupt)?;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }

    /// An object's record.
    pub(crate) fn object(&self, fid: Fid) -> Result<Option<Record>, StoreError> {
        let found = self.objects.get(object_key(fid)).map_err(|error| store_error(&error))?;
        found.map(|value| Record::decode(&value)).transpose()
    }

    /// The value of a key; `whole` is an [`index_key`].
    pub(crate) fn value(&self, whole: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.keys.get(whole).map_err(|error| store_error(&error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Keys of `index` from `from` on, in order.
    pub(crate) fn scan(
        &self,
        index: Fid,
        from: &[u8],
    ) -> impl Iterator<Item = Result<Entry, StoreError>> + use<> {
        let prefix = object_key(index);
        let range = self.keys.range(index_key(index, from)..);
        let entries = range.map(|guard| guard.into_inner().map_err(|error| store_error(&error)));
        entries
            .take_while(move |found| found.as_ref().map_or(true, |(k, _)| k.starts_with(&prefix)))
            .map(|found| {
                found.map(|(key, value)| Entry {
                    key: Bytes::copy_from_slice(&key[FID_BYTES..]),
                    value: Bytes::copy_from_slice(&value),
                })
            })
    }

    /// Makes `parts` and all transactions up to `sequence` durable, in one synced batch.
    pub(crate) fn commit<'a>(
        &self,
        parts: impl Iterator<Item = &'a Part>,
        sequence: Sequence,
    ) -> Result<(), StoreError> {
        let mut batch = self.batch();
        for part in parts {
            for (fid, slot) in &part.objects {
                match &slot.value {
                    Some(record) => {
                        batch.insert(&self.objects, &object_key(*fid), &record.encode());
                    }
                    None => batch.remove(&self.objects, &object_key(*fid)),
                }
            }
            for (index, keys) in &part.keys {
                for (key, slot) in keys {
                    let whole = index_key(*index, key);
                    match &slot.value {
                        Some(value) => batch.insert(&self.keys, &whole, value),
                        None => batch.remove(&self.keys, &whole),
                    }
                }
            }
        }
        batch.commit(&self.meta, sequence).map_err(|error| store_error(&error))
    }

    /// Notes that the store was closed properly, with this much data.
    pub(crate) fn close(&self, data_bytes: u64, sequence: Sequence) -> Result<(), StoreError> {
        let mut batch = self.batch();
        batch.insert(&self.meta, CLEAN, &data_bytes.to_le_bytes());
        batch.commit(&self.meta, sequence).map_err(|error| store_error(&error))
    }

    /// Bytes of metadata: in tables, and on the way there.
    pub(crate) fn bytes(&self) -> u64 {
        self.objects.disk_space()
            + self.keys.disk_space()
            + self.meta.disk_space()
            + self.database.write_buffer_size()
    }
}

/// What the engine's errors mean to the store's users.
fn store_error(error: &fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull => {
            StoreError::NoSpace
        }
        fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::JournalRecovery(_) => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Io(error.to_string()),
    }
}
