//! fjall as this store uses it: three keyspaces (objects, keys of their indexes, the store's own) and a counter, one
//! writer, atomic synced batches.
//!
//! Each batch begins with its number, in every keyspace, and ends with the store's sequence and a
//! checksum: by these [`inspect`] knows whether all is there before fjall opens it. After each
//! batch the store's [`CommitMark`] is written, one `pwrite`: with fjall's writes (of 8 KiB each) and its
//! `fdatasync` these are all the system calls of a commit.
//!
//! The overlay hides every key of a batch until the batch is whole, so readers here may see keys
//! of a batch that is being applied. Only the committer writes.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use fjall::config::{PartitioningPolicy, PinningPolicy};
use fjall::{CompressionType, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use lsm_tree::AbstractTree;
use parking_lot::Mutex;
use sheen_store::{Entry, FileKind, Sequence, StoreError};
use sheen_types::Fid;

use crate::{
    DiskError,
    commit_mark::{CommitMark, Durable},
    files::{SumsGroup, SumsSource},
    group::GroupPart,
    inspect::{self, Inspection, KEYSPACES},
    journal::{self, COMMIT, Checksum, Commit, JournalTail, SEQUENCE, TOMBSTONE, VALUE},
    limits,
    memory::Memory,
    record::{FID_BYTES, Record, SUMS, index_key, object_key, parse_object_key},
};

/// How many times the store was opened; stores of before this name have it under the same key.
pub(crate) const OPENINGS: &[u8] = b"boot";
const CLEAN: &[u8] = b"clean";

/// The metadata database. It lies in the directory `engine`.
pub(crate) struct Database {
    fjall: fjall::Database,
    objects: Keyspace,
    keys: Keyspace,
    meta: Keyspace,
    mark: CommitMark,
    /// The number of the newest commit.
    commit: AtomicU64,
    /// fjall's number of its batch; 0 if unknown.
    batch: AtomicU64,
    /// The store's label: it names the target in errors.
    target: Arc<str>,
    faults: Arc<Faults>,
}

/// A batch with the checksum by which [`journal`] recognizes a whole one.
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

/// What the database knew when it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// The newest durable transaction.
    pub(crate) sequence: Sequence,
    /// How many times the store was opened, with this one.
    pub(crate) openings: u64,
    /// Bytes of data files, if the store was closed properly.
    pub(crate) data_bytes: Option<u64>,
    /// Nothing shows whether commits were lost.
    pub(crate) lacks_mark: bool,
}

impl Database {
    /// Makes the database of the new store in `dir`. Its memtables go to tables at `memtable_bytes`.
    pub(crate) fn make(
        dir: &Path,
        target: &str,
        memtable_bytes: u64,
    ) -> Result<(Self, Opened), DiskError> {
        let new = Inspection { durable: Durable::default(), torn: None, lacks_mark: false };
        Self::open_found(dir, target, (&Memory::of(0), memtable_bytes), &new)
    }

    /// Opens the database of the store in `dir` with about so much `memory`, if it holds all
    /// that was acknowledged, and counts the opening durably. `target` is the store's label.
    pub(crate) fn open(
        dir: &Path,
        target: &str,
        memory: &Memory,
    ) -> Result<(Self, Opened), DiskError> {
        let looked = catch_unwind(|| inspect::inspect(dir));
        let found = looked.unwrap_or_else(|_| {
            let why = "its tables cannot be read: they went bad".to_owned();
            Err(DiskError::Damaged { path: dir.join("engine"), why })
        });
        let found = found.map_err(inspect::with_way_out)?;
        if found.lacks_mark {
            tracing::warn!(
                store = target,
                "{} is gone or damaged: what was acknowledged as durable is believed from the journal alone",
                dir.join("committed").display()
            );
        }
        if let Some((journal, rest)) = &found.torn {
            cut(target, dir, journal, *rest, found.durable)?;
        }
        Self::open_found(dir, target, (memory, limits::MEMTABLE_BYTES), &found)
            .map_err(inspect::with_way_out)
    }

    /// `memtable_bytes` are for keyspaces that are made.
    fn open_found(
        dir: &Path,
        target: &str,
        (memory, memtable_bytes): (&Memory, u64),
        found: &Inspection,
    ) -> Result<(Self, Opened), DiskError> {
        let mark = CommitMark::open(dir)?;
        let path = dir.join("engine");
        let broken = |error: fjall::Error| match error {
            fjall::Error::Io(error) => DiskError::io("open", &path)(error),
            error => DiskError::Damaged { path: path.clone(), why: error.to_string() },
        };
        let open = AssertUnwindSafe(|| open_fjall(&path, memory, memtable_bytes).map_err(broken));
        let panicked = |_| {
            let why = "the metadata database panicked: its files went bad".to_owned();
            Err(DiskError::Damaged { path: path.clone(), why })
        };
        let (fjall, [objects, keys, meta]) = catch_unwind(open).unwrap_or_else(panicked)?;
        let database = Self {
            fjall,
            objects,
            keys,
            meta,
            mark,
            commit: AtomicU64::new(found.durable.commit),
            batch: AtomicU64::new(found.durable.number),
            target: target.into(),
            faults: Arc::default(),
        };
        let opened = database.opened(dir, found)?;
        let mut batch = database.batch();
        batch.insert(&database.meta, OPENINGS, &opened.openings.to_le_bytes());
        batch.remove(&database.meta, CLEAN);
        database.write(batch, opened.sequence).map_err(inspect::fault(dir))?;
        database.mark.sync()?;
        Ok((database, opened))
    }

    /// What fjall made of the files, which must be what [`inspect`] found in them.
    fn opened(&self, dir: &Path, found: &Inspection) -> Result<Opened, DiskError> {
        let number = |key| self.number(key).map_err(inspect::fault(dir));
        let opened = Opened {
            sequence: Sequence(number(SEQUENCE)?.unwrap_or(0)),
            openings: number(OPENINGS)?.unwrap_or(0) + 1,
            data_bytes: number(CLEAN)?,
            lacks_mark: found.lacks_mark,
        };
        if opened.sequence.0 == found.durable.sequence {
            return Ok(opened);
        }
        let (here, there) = (opened.sequence.0, found.durable.sequence);
        let why =
            format!("the metadata database opened with transaction {here}, its files hold {there}");
        Err(DiskError::Damaged { path: dir.join("engine"), why })
    }

    /// A batch that begins with its number.
    fn batch(&self) -> Batch {
        let batch = self.fjall.batch().durability(Some(PersistMode::SyncData));
        let mut batch = Batch { batch, checksum: Checksum::default() };
        let number = self.commit.load(Ordering::Relaxed) + 1;
        let commit = Commit { number, before: self.batch.load(Ordering::Relaxed) }.encode();
        for keyspace in [&self.meta, &self.objects, &self.keys] {
            batch.insert(keyspace, COMMIT, &commit);
        }
        batch
    }

    /// Writes a batch. Only the committer does, one at a time.
    fn write(&self, batch: Batch, sequence: Sequence) -> Result<(), StoreError> {
        batch.commit(&self.meta, sequence).map_err(|error| self.error(&error))?;
        let commit = self.commit.fetch_add(1, Ordering::Relaxed) + 1;
        // Every batch writes to this keyspace, and nothing else does.
        let number = self.meta.tree.get_highest_seqno().unwrap_or(0);
        self.batch.store(number, Ordering::Relaxed);
        let durable = Durable { commit, sequence: sequence.0, number };
        self.mark.write(durable).map_err(|error| StoreError::Io(self.named(&error)))
    }

    fn named(&self, error: &dyn std::fmt::Display) -> String {
        named(&self.target, error)
    }

    fn error(&self, error: &fjall::Error) -> StoreError {
        self.faults.error(&self.target, error)
    }

    fn number(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let Some(value) = self.meta.get(key).map_err(|error| self.error(&error))? else {
            return Ok(None);
        };
        let corrupt = || StoreError::Corrupt("a counter of the store".to_owned());
        let bytes = value.first_chunk().ok_or_else(corrupt)?;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }

    /// An object's record.
    pub(crate) fn object(&self, fid: Fid) -> Result<Option<Record>, StoreError> {
        let found = self.objects.get(object_key(fid)).map_err(|error| self.error(&error))?;
        found.map(|value| Record::decode(&value)).transpose()
    }

    /// Up to `limit` objects with data behind `after`.
    pub(crate) fn data_objects(
        &self,
        after: Option<Fid>,
        limit: usize,
    ) -> Result<Vec<Fid>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, |fid| Excluded(object_key(fid)));
        let mut found = Vec::new();
        for guard in self.objects.range::<[u8; FID_BYTES], _>((from, Unbounded)) {
            let (key, value) = guard.into_inner().map_err(|error| self.error(&error))?;
            // The number of the newest commit lies here, too.
            let Some(fid) = parse_object_key(&key) else { continue };
            if Record::decode(&value)?.attributes.kind == FileKind::Regular {
                found.push(fid);
                if found.len() >= limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The value of a key; `whole` is an [`index_key`].
    pub(crate) fn value(&self, whole: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.keys.get(whole).map_err(|error| self.error(&error))?;
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
        let (target, faults) = (self.target.clone(), self.faults.clone());
        let failed = move |error| faults.error(&target, &error);
        let entries = range.map(move |guard| guard.into_inner().map_err(&failed));
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
        parts: impl Iterator<Item = &'a GroupPart>,
        sums: &SumsGroup,
        sequence: Sequence,
    ) -> Result<(), StoreError> {
        let mut batch = self.batch();
        self.add_sums(&mut batch, sums);
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
        self.write(batch, sequence)
    }

    /// Puts back what a salvage found: entries of the keyspace at this place of [`KEYSPACES`], as they
    /// were in another database.
    pub(crate) fn restore(
        &self,
        place: usize,
        entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let mut batch = self.batch();
        let keyspace = [&self.objects, &self.keys, &self.meta][place];
        entries.for_each(|(key, value)| batch.insert(keyspace, &key, &value));
        self.write(batch, Sequence(0))
    }

    /// Ends a salvage: how often the store had been opened, at least, and its newest transaction.
    pub(crate) fn restored(&self, openings: u64, sequence: Sequence) -> Result<(), StoreError> {
        let mut batch = self.batch();
        batch.insert(&self.meta, OPENINGS, &openings.to_le_bytes());
        self.write(batch, sequence)?;
        self.mark.sync().map_err(|error| StoreError::Io(self.named(&error)))
    }

    /// The objects from `from` on, in order.
    pub(crate) fn objects_from(
        &self,
        from: Fid,
    ) -> impl Iterator<Item = Result<Fid, StoreError>> + '_ {
        let keys = self.objects.range(object_key(from)..).map(|guard| guard.key());
        keys.filter_map(|key| match key {
            Ok(key) => parse_object_key(&key).map(Ok),
            Err(error) => Some(Err(self.error(&error))),
        })
    }

    /// The first index from `from` on that has keys.
    pub(crate) fn index_from(&self, from: Fid) -> Result<Option<Fid>, StoreError> {
        for guard in self.keys.range(object_key(from)..) {
            let key = guard.key().map_err(|error| self.error(&error))?;
            if let Some(index) = key.get(..FID_BYTES).and_then(parse_object_key) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn add_sums(&self, batch: &mut Batch, sums: &SumsGroup) {
        for (key, value) in &sums.changes {
            let whole = index_key(SUMS, key);
            match value {
                Some(value) => batch.insert(&self.keys, &whole, value),
                None => batch.remove(&self.keys, &whole),
            }
        }
    }

    /// Notes that the store was closed properly, with this much data.
    pub(crate) fn close(
        &self,
        data_bytes: u64,
        sums: &SumsGroup,
        sequence: Sequence,
    ) -> Result<(), StoreError> {
        let mut batch = self.batch();
        self.add_sums(&mut batch, sums);
        batch.insert(&self.meta, CLEAN, &data_bytes.to_le_bytes());
        self.write(batch, sequence)?;
        self.mark.sync().map_err(|error| StoreError::Io(self.named(&error)))
    }

    /// Has what was removed make room: changes go to tables, and tables are merged. Where those are many, only as fast as new ones
    /// come. Blocks.
    pub(crate) fn make_room(&self) -> Result<(), StoreError> {
        let all = [&self.objects, &self.keys];
        for keyspace in all {
            keyspace.rotate_memtable().map_err(|error| self.error(&error))?;
        }
        std::thread::sleep(limits::FLUSHED_AFTER);
        if all.iter().map(|keyspace| keyspace.disk_space()).sum::<u64>() <= limits::MERGED_BYTES_MAX
        {
            for keyspace in all {
                keyspace.major_compact().map_err(|error| self.error(&error))?;
            }
        }
        Ok(())
    }

    /// Bytes of metadata: in tables, and on the way there.
    pub(crate) fn bytes(&self) -> u64 {
        self.objects.disk_space()
            + self.keys.disk_space()
            + self.meta.disk_space()
            + self.fjall.write_buffer_size()
    }
}

impl SumsSource for Database {
    fn sums(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.value(&index_key(SUMS, key))
    }

    fn sums_of(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let belongs = |found: &Result<Entry, StoreError>| {
            found.as_ref().map_or(true, |entry| entry.key.starts_with(prefix))
        };
        let found = self.scan(SUMS, prefix).take_while(belongs);
        found.map(|entry| entry.map(|Entry { key, value }| (key, value))).collect()
    }
}

fn named(target: &str, error: &dyn std::fmt::Display) -> String {
    match target {
        "" => error.to_string(),
        target => format!("{target}: {error}"),
    }
}

/// Logs what the database cannot read, a line a second at most: the caller gets only EIO.
#[derive(Debug, Default)]
struct Faults(Mutex<Option<(Instant, u64)>>);

impl Faults {
    /// What the database's error means to the store's users.
    fn error(&self, target: &str, error: &fjall::Error) -> StoreError {
        let text = named(target, &format_args!("metadata database: {error}"));
        let error = match error {
            fjall::Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull => {
                return StoreError::NoSpace;
            }
            fjall::Error::InvalidTrailer
            | fjall::Error::InvalidTag(_)
            | fjall::Error::Decompress(_)
            | fjall::Error::Storage(_)
            | fjall::Error::JournalRecovery(_) => StoreError::Corrupt(text),
            _ => StoreError::Io(text),
        };
        let mut last = self.0.lock();
        let recent = last.filter(|(since, _)| since.elapsed() < limits::FAULT_LINE_AGE_MIN);
        if let Some((since, unsaid)) = recent {
            *last = Some((since, unsaid + 1));
            return error;
        }
        let unsaid = last.replace((Instant::now(), 0)).map_or(0, |(_, unsaid)| unsaid);
        tracing::error!(store = target, unsaid, "{error}");
        error
    }
}

/// Opens or makes fjall's database in `path`.
fn open_fjall(
    path: &Path,
    memory: &Memory,
    memtable_bytes: u64,
) -> Result<(fjall::Database, [Keyspace; 3]), fjall::Error> {
    let database = fjall::Database::builder(path)
        .cache_size(memory.blocks as u64)
        .max_cached_files(Some(limits::DATABASE_FILES_MAX))
        .worker_threads(1)
        .max_journaling_size(limits::JOURNAL_BYTES_MAX)
        .manual_journal_persist(true)
        .journal_compression(CompressionType::None)
        .open()?;
    // Filters and indexes of tables stay in memory, at all levels: a lookup of a name that is absent reads no file, one of
    // a name that is there a block. About 7 MB for each million of files.
    let keyspace = |name, memtable_bytes| {
        database.keyspace(name, || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable_bytes)
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(false))
                .index_block_partitioning_policy(PartitioningPolicy::all(false))
        })
    };
    let [objects, keys, meta] = KEYSPACES;
    let keyspaces = [
        keyspace(objects, memtable_bytes)?,
        keyspace(keys, memtable_bytes)?,
        keyspace(meta, limits::META_MEMTABLE_BYTES)?,
    ];
    Ok((database, keyspaces))
}

/// Cuts the torn end of a batch that was never durable, and says what went.
fn cut(
    target: &str,
    dir: &Path,
    journal: &Path,
    rest: JournalTail,
    durable: Durable,
) -> Result<(), DiskError> {
    let kept: PathBuf = journal::cut(journal, rest, dir)?;
    let transactions = rest.sequence.and_then(|last| last.checked_sub(durable.sequence));
    let transactions = transactions.map_or("an unknown number of".to_owned(), |n| n.to_string());
    tracing::warn!(
        store = target,
        "{target}: a crash cut off the last commit: {transactions} transactions behind {} that were \
         not durable are gone, {} bytes of {}, kept as {}",
        durable.sequence,
        rest.bytes,
        journal.display(),
        kept.display()
    );
    Ok(())
}
