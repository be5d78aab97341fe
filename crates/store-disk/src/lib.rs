//! The store contract on a local disk: fjall under a write-back overlay, objects as sparse files.
//!
//! # Crashes
//!
//! Tested by killing a process that lives a random story at random moments (`tests/kill.rs`), and
//! by rebuilding the disk as power loss might leave it from a record of every write and sync
//! (`tests/power.rs`). What those showed about fjall is dealt with here: its directory cannot be
//! opened if it dies while it is first made, so that is part of formatting (`format`); and a journal
//! whose last batch came to the disk in parts is refused by it, so its tail is cut first
//! (`journal`). If a sync fails, nothing is retried: the store is read-only from then on.
//!
//! What no crash does is refused: fjall takes what it finds, so it opens only what was found to hold
//! all that was acknowledged (`inspect`), of which the store keeps a mark outside of the database
//! (`commit_mark`). Each file of a store cut, deleted and changed in many places: `tests/damage.rs`.
//!
//! # What lies where
//!
//! - `overlay`: every transaction is applied here, in memory, and is visible at once. Sharded by
//!   key, ordered within indexes.
//! - `commit`: one thread takes the net effect of a *group* of transactions down as one atomic,
//!   synced batch: when it is full, a second old, or asked for. Meanwhile the next group fills.
//! - `database`: fjall, with two keyspaces (objects, keys of indexes) and a few counters.
//! - `files`: data of objects, in sparse files beside the database and outside the sequence; what their
//!   lengths and checksums must be lies in the database, and goes down with the groups.
//! - `inspect`: what is looked at before the database opens, in `journal`, `tables` and `commit_mark`.
//! - `salvage`: what can be read of a store that does not open.
//! - `scratch`: a store that is only looked at.
//! - `format`: the directory, its version, its lock, its configuration.
//! - `usage`: how full it is.
//!
//! # What a group promises
//!
//! A group holds exactly the transactions between two sequences: it is cut while no transaction is half applied. It
//! is durable whole or not at all, with its last sequence in the same batch. So after any crash the store holds
//! transactions 1..k, k being the sequence in the newest whole batch, and that is at least what
//! [`Store::committed`], [`Store::commit`] or a hook ever reported. Files of destroyed objects go after the batch
//! that destroys them; a crash between leaves files that nothing names, and the next open removes them. Where the
//! mark is gone nothing shows whether a record was lost instead: then what has bytes goes to `lost+found`, once,
//! for the mark is made again. An exchange of two objects' data exchanges their files' names in their records, so
//! it is as whole as any transaction.
//!
//! # Locks
//!
//! Overlay shards (rising), each file's changes, state and descriptor, the committer's state: no two of
//! these kinds are ever held together, and none of them while the database writes or syncs. A file's
//! own locks are held while it is opened.
//!
//! # Costs
//!
//! Measured with `cargo run --release --example create -p sheen-store-disk` on 2 vCPUs shared with
//! other builds, default options, 400,000 creates; a create is a transaction of object, name, patch
//! of the parent, extended attribute and a record put over itself. CPU of the whole process, all
//! commits, fjall's flushes and merges included:
//!
//! | operation | 1 thread | 2 threads |
//! |---|---|---|
//! | create | 8.7 us | 9.1 to 9.8 us |
//! | create, then unlink within a group, both | 2.4 us | 2.8 us |
//! | lookup of a hot name / of any of 400,000 | 0.4 / 2.2 us | 0.4 / 2.0 us |
//! | attributes of a directory / of a hot file | 0.05 / 0.12 us | 0.05 / 0.19 us |
//! | scan of 1,000 keys | 0.3 ms | 0.3 ms |
//!
//! Of a create about 2 us are `apply` itself; the rest is fjall's journal, memtables and tables.
//! Peak memory of the process in this run: 72 MB with one thread, 98 MB with two.
//!
//! - A read of what is in memory: one shard lock, one to three hash lookups, no system call.
//! - Size and blocks of an object: no system call once known.
//! - Memory: `cache_bytes` for the active group, the clean cache and fjall's blocks (`memory`). On top come the committing
//!   group, fjall's memtables, 16 MiB of an MDT and 4 of another target, those being flushed, and filters and indexes of tables,
//!   about 7 MB for each million of files.
//! - A lookup of a name that is absent reads no file.
//!
//! In one directory, by `cargo run --profile quick -p sheen-store-disk --example grown 1000000 32`, on one idle machine:
//! microseconds of CPU each with an MDT's memtables, and in brackets with memtables of 1 MiB and filters that are read from
//! files. A create looks for its name first. A line of 10,000 is for 1,000 calls and a commit.
//!
//! | files | create | absent name | any name | any file | unlink |
//! |---|---|---|---|---|---|
//! | 10,000 | 56 (73) | 7 (26) | 2 (8) | 7 (25) | 8 (9) |
//! | 100,000 | 37 (38) | 6 (13) | 10 (17) | 18 (19) | 17 (18) |
//! | 1,000,000 | 51 (287) | 10 (213) | 16 (216) | 18 (24) | 17 (229) |

#![allow(clippy::disallowed_methods, reason = "a back end owns the clock of its group commit")]

mod commit;
mod commit_mark;
mod database;
mod directory;
mod error;
mod files;
mod format;
mod group;
mod hash;
mod inspect;
mod journal;
mod limits;
mod memory;
mod overlay;
mod record;
mod salvage;
mod scratch;
mod tables;
mod usage;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Instant,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{
    Attributes, BlockSums, CommitHook, DataAdvice, Entry, FileKind, Integrity, Sequence, Store,
    StoreError, StoreSpace, Transaction, Verified, WholeObject,
};
use sheen_types::Fid;

/// The target of `tracing` for lines of which each names something else that operators must know, such as the
/// first about each damaged object: a log that leaves out what is said too often must not leave them out.
pub const EACH_LINE: &str = "sheen_each_line";

pub use error::DiskError;
pub use format::{
    CAPACITY_KEY, Config, FORMAT_VERSION, FormatOptions, LABEL_KEY, MEMTABLE_BYTES_OF_MDT,
};
pub use salvage::{Salvaged, salvage};

use crate::{
    commit::Committer,
    database::{Database, Opened},
    files::{DataFileId, File, Files, FilesOptions, HostSpace},
    memory::Memory,
    overlay::Overlay,
    record::{LENT, Record, index_key, name_key, parse_object_key},
    scratch::Scratch,
    usage::Usage,
};

/// How to open a store. Zeros mean the default.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Memory for caches and the active group together, about (default 32 MiB).
    pub cache_bytes: usize,
    /// Descriptors of objects' files kept open (default 64).
    pub open_files: usize,
    /// How many stores of its kind share the host's file system with it, itself included: without a
    /// capacity each says that it has its share of the disk, so that they do not count it several
    /// times and promise the same space twice. 0 counts as 1.
    pub shared_by: u32,
    /// Keeps no checksums of blocks: those that are written have none, and none is compared.
    pub without_checksums: bool,
    /// Which boot of the machine it is, if not the one that Linux reports: for tests of power loss.
    pub machine: Option<String>,
}

/// What the store and its threads share.
struct Core {
    overlay: Overlay,
    database: Arc<Database>,
    files: Files,
    usage: Arc<Usage>,
    committer: Committer,
    group_bytes: usize,
    shared_by: u64,
}

/// See the crate's documentation. Dropping it commits what is pending.
pub struct StoreDisk {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    dir: PathBuf,
    /// Removed last.
    _scratch: Option<Scratch>,
    _lock: OwnedFd,
}

/// A file of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Whose data it is; `None` if no object has it.
    pub object: Option<Fid>,
}

/// Generations of one opening: enough for a million a second for twelve days, and 16 million
/// openings.
const GENERATION_BITS: u32 = 40;

impl StoreDisk {
    /// Makes an empty store in `dir`.
    ///
    /// # Errors
    /// [`DiskError::AlreadyFormatted`], [`DiskError::Locked`], or an IO error.
    pub fn format(dir: &Path, options: &FormatOptions) -> Result<(), DiskError> {
        format::format(dir, options)
    }

    /// Opens the store in `dir`; what a crash left half done is finished.
    ///
    /// # Errors
    /// [`DiskError::NotFormatted`], [`DiskError::NewerVersion`], [`DiskError::Damaged`],
    /// [`DiskError::Locked`], an IO error or one of the database.
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<Self, DiskError> {
        let config = Config::load(dir)?;
        let target = config.values.get(LABEL_KEY).map_or("", |label| label);
        let open = || {
            format::close(dir)?;
            let lock = format::lock(dir)?;
            Self::open_as((dir, None), options, &config, lock)
        };
        open().map_err(DiskError::of(target))
    }

    /// Opens the store in `dir` to look at it. Nothing in `dir` is changed: what opening it changes is made in a copy
    /// of all but the data, at `scratch`, a directory that is not there yet and is removed in the end. Transactions go
    /// there, too; the data must not be changed.
    ///
    /// # Errors
    /// As [`Self::open`], or an IO error of the copy.
    pub fn open_to_look(
        dir: &Path,
        scratch: &Path,
        options: &OpenOptions,
    ) -> Result<Self, DiskError> {
        let config = Config::load(dir)?;
        let target = config.values.get(LABEL_KEY).map_or("", |label| label);
        let open = || {
            let lock = format::lock(dir)?;
            let copied = Scratch::of(dir, scratch)?;
            Self::open_as((dir, Some(copied)), options, &config, lock)
                .map_err(DiskError::of_original(scratch, dir))
        };
        open().map_err(DiskError::of(target))
    }

    fn open_as(
        (data, scratch): (&Path, Option<Scratch>),
        options: &OpenOptions,
        config: &Config,
        lock: OwnedFd,
    ) -> Result<Self, DiskError> {
        let dir = scratch.as_ref().map_or(data, Scratch::dir);
        let target = config.values.get(LABEL_KEY).map_or("", |label| label);
        let capacity = config.capacity_bytes(data)?;
        format::upgrade(dir, config)?;
        let budget = |value: usize, default| if value == 0 { default } else { value };
        let memory = Memory::of(budget(options.cache_bytes, limits::CACHE_BYTES_DEFAULT));
        let open_files = budget(options.open_files, limits::OPEN_FILES_DEFAULT);
        let (database, opened) = Database::open(dir, target, &memory)?;
        let usage = Arc::new(Usage::new(capacity));
        let database = Arc::new(database);
        let generations = opened.openings << GENERATION_BITS;
        let opening = FilesOptions {
            generations,
            openings: opened.openings,
            has_crashed: opened.data_bytes.is_none(),
            machine: options.machine.clone().or_else(machine),
            checksums: !options.without_checksums,
            label: target.to_owned(),
            data: data.to_owned(),
            only_looks: scratch.is_some(),
        };
        let files = Files::open(dir, open_files, usage.clone(), database.clone(), opening)?;
        let core = Arc::new(Core {
            overlay: Overlay::new(opened.sequence, generations, memory.clean),
            database,
            files,
            usage,
            committer: Committer::new(opened.sequence, generations),
            group_bytes: memory.group,
            shared_by: options.shared_by.max(1).into(),
        });
        core.recover(dir, opened)?;
        let threads = spawn(&core).map_err(|error| DiskError::Io {
            doing: "start the store's threads".to_owned(),
            error,
        })?;
        let (threads, dir) = (Mutex::new(threads), data.to_owned());
        Ok(Self { core, threads, dir, _scratch: scratch, _lock: lock })
    }

    /// Whether the store in `dir` has lost the mark of what it acknowledged as durable: it opens, and believes
    /// what it has. From then on there is a mark again.
    ///
    /// # Errors
    /// An IO error.
    pub fn lacks_mark(dir: &Path) -> Result<bool, DiskError> {
        format::check_kinds(dir)?;
        Ok(commit_mark::CommitMark::read(dir)?.is_none() && dir.join("engine").exists())
    }

    /// Commits what is pending and notes that nothing is open any more, as dropping does: for a process that
    /// ends while references to the store may be left. Nothing is changed after that.
    pub fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.core.files.end_changes();
        self.core.committer.stop();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(dir = %self.dir.display(), "a thread of the store panicked");
                return;
            }
        }
        if !self.core.committer.close() {
            return;
        }
        if let Err(error) = self.core.close() {
            tracing::warn!(dir = %self.dir.display(), %error, "the store was not closed properly");
        }
    }

    /// The directory it lies in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All files of data, with the objects that have them as far as that is durable: for checks of a
    /// whole store. What no object has was left by a crash, or its object's record is lost.
    ///
    /// # Errors
    /// IO errors.
    pub fn data_files(&self) -> Result<Vec<DataFile>, StoreError> {
        let file = |(path, name): (String, Option<DataFileId>)| {
            let object = name.map_or(Ok(None), |name| self.core.holder(name))?;
            Ok(DataFile { path: self.dir.join(path), object })
        };
        self.core.files.all()?.into_iter().map(file).collect()
    }

    /// Moves the files of data that no object has to the directory `lost+found` of the store, which it
    /// never looks into again. Returns how many there were.
    ///
    /// # Errors
    /// IO errors.
    pub fn set_strays_aside(&self) -> Result<u64, StoreError> {
        let mut moved = 0;
        for (path, name) in self.core.files.all()? {
            if name.map_or(Ok(None), |name| self.core.holder(name))?.is_none() {
                let within = path.strip_prefix("objects/").unwrap_or(&path);
                let done = self.core.files.set_aside(within);
                done.map_err(|errno| StoreError::Io(format!("move {path}: {errno}")))?;
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// Up to `limit` objects of any kind from `from` on, in the order of their FIDs, as they were when
    /// the store was last committed. For tools that walk what no name leads to.
    ///
    /// # Errors
    /// Those of reading.
    pub fn list_objects(&self, from: Fid, limit: usize) -> Result<Vec<Fid>, StoreError> {
        self.core.database.objects_from(from).take(limit).collect()
    }

    /// The first index from `from` on that has keys, as [`Self::list_objects`] finds objects.
    ///
    /// # Errors
    /// Those of reading.
    pub fn first_index(&self, from: Fid) -> Result<Option<Fid>, StoreError> {
        self.core.database.index_from(from)
    }

    /// The newest transaction, durable or not.
    #[must_use]
    pub fn applied(&self) -> Sequence {
        self.core.overlay.applied()
    }
}

impl Core {
    /// After the last commit.
    fn close(&self) -> Result<(), StoreError> {
        self.files.close_epoch();
        let sums = self.files.take_sums(&[])?;
        self.database.close(self.usage.data(), &sums, self.committer.committed())?;
        self.files.sums_are_kept(sums);
        self.files.clear_marks();
        Ok(())
    }

    /// Counts data and removes what nothing names, unless the store was closed properly.
    fn recover(&self, dir: &Path, opened: Opened) -> Result<(), DiskError> {
        let broken = inspect::fault(dir);
        let bytes = match opened.data_bytes {
            Some(bytes) => bytes,
            None => {
                let is_sure = !opened.lacks_mark;
                self.files.sweep(is_sure, |name| self.is_held(name)).map_err(broken)?
            }
        };
        self.usage.set_data(bytes);
        self.usage.set_metadata(self.database.bytes());
        self.files.check_host();
        Ok(())
    }

    /// Whether some object in the database has this file.
    fn is_held(&self, name: DataFileId) -> Result<bool, StoreError> {
        self.holder(name).map(|holder| holder.is_some())
    }

    /// The object that has this file, in the database.
    fn holder(&self, name: DataFileId) -> Result<Option<Fid>, StoreError> {
        let holds = |fid| -> Result<bool, StoreError> {
            Ok(self.database.object(fid)?.is_some_and(|record| record.data(fid) == name))
        };
        if holds(name.0)? {
            return Ok(Some(name.0));
        }
        let lent = self.database.value(&index_key(LENT, &name_key(name)))?;
        let Some(fid) = lent.and_then(|key| parse_object_key(&key)) else { return Ok(None) };
        Ok(holds(fid)?.then_some(fid))
    }

    fn record(&self, object: Fid) -> Result<Arc<Record>, StoreError> {
        self.overlay.object(&self.database, object)?.ok_or(StoreError::NoObject(object))
    }

    /// The file of a data object.
    fn file(&self, object: Fid) -> Result<Arc<File>, StoreError> {
        let record = self.record(object)?;
        if record.attributes.kind != FileKind::Regular {
            return Err(StoreError::WrongKind(object));
        }
        Ok(self.files.file(record.data(object)))
    }

    /// What the capacity leaves, or else `host`: what that has, and what was written since it said so.
    fn space(
        &self,
        host: impl FnOnce() -> Result<(HostSpace, u64), StoreError>,
    ) -> Result<StoreSpace, StoreError> {
        let (total, free, available) = match self.usage.capacity() {
            Some(total) => {
                let pending = self.overlay.active_bytes() as u64;
                let free = total.saturating_sub(self.usage.used() + pending);
                (total, free, free)
            }
            None => {
                let ((total, free, available), written) = host()?;
                // Other programs on the host may have written as much.
                let left = |bytes: u64| (bytes / self.shared_by).saturating_sub(written);
                (total / self.shared_by, left(free), left(available))
            }
        };
        let available = available.saturating_sub(self.usage.reserve_bytes());
        Ok(StoreSpace {
            total,
            free,
            available,
            objects: total / limits::BYTES_PER_OBJECT,
            objects_free: available / limits::BYTES_PER_OBJECT,
        })
    }

    /// Removes files of destroyed objects, and syncs what no caller syncs. Sleeps while there is nothing
    /// of either.
    fn reap(&self, destroyed: &mpsc::Receiver<Vec<DataFileId>>) {
        let mut made_room: Option<Instant> = None;
        loop {
            // A change that is refused wakes nothing.
            let looks_for_room =
                made_room.is_some_and(|last| last.elapsed() < limits::LOOKS_FOR_ROOM_FOR);
            let names = match (looks_for_room, self.files.has_unsynced()) {
                (true, _) => destroyed.recv_timeout(limits::ROOM_MADE_AGE_MIN),
                (false, true) => destroyed.recv_timeout(limits::EPOCH_AGE_MAX),
                (false, false) => destroyed.recv().map_err(mpsc::RecvTimeoutError::from),
            };
            match names {
                Ok(names) if !names.is_empty() => self.files.remove(&names),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) if looks_for_room => {}
                Err(mpsc::RecvTimeoutError::Timeout) => self.end_epoch(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            if self.files.epoch_age() >= limits::EPOCH_AGE_MAX {
                self.end_epoch();
            }
            let is_due = made_room.is_none_or(|last| last.elapsed() >= limits::ROOM_MADE_AGE_MIN);
            if is_due && self.usage.take_refused() {
                // A failure is said by the database, and met by the next commit.
                let _said = self.database.make_room();
                self.usage.set_metadata(self.database.bytes());
                made_room = Some(Instant::now());
            }
        }
    }

    fn end_epoch(&self) {
        // A failure is returned to every caller from now on.
        if self.files.has_unsynced() && self.committer.sync_data(self).is_ok() {
            self.committer.keep_sums();
        }
    }

    /// An error of the data of an object, reported to operators if it is a damage.
    fn report_damage<T>(
        &self,
        object: Fid,
        outcome: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        outcome.map_err(|error| match error {
            StoreError::Damaged(mut finding) => {
                finding.object = object;
                self.files.log(&finding);
                StoreError::Damaged(finding)
            }
            other => other,
        })
    }

    /// As [`Self::file`], to change it.
    fn file_to_change(&self, object: Fid) -> Result<Arc<File>, StoreError> {
        self.committer.check()?;
        self.file(object)
    }
}

/// Which boot of the machine this is.
fn machine() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn spawn(core: &Arc<Core>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let (sender, receiver) = mpsc::channel::<Vec<DataFileId>>();
    let (committing, reaping) = (core.clone(), core.clone());
    let builder = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let committer =
        builder("store-commit").spawn(move || committing.committer.run(&committing, &sender))?;
    let reaper = builder("store-reap").spawn(move || reaping.reap(&receiver))?;
    Ok(vec![committer, reaper])
}

impl Drop for StoreDisk {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for StoreDisk {
    fn attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        let record = self.core.record(object)?;
        let mut attributes = record.attributes.clone();
        if attributes.kind == FileKind::Regular {
            let file = self.core.files.file(record.data(object));
            let size = self.core.report_damage(object, self.core.files.size(&file))?;
            (attributes.size, attributes.blocks) = size;
        }
        Ok(attributes)
    }

    fn recorded_attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        Ok(self.core.record(object)?.attributes.clone())
    }

    fn xattr(&self, object: Fid, name: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.core.record(object)?.xattrs.get(name))
    }

    fn xattr_names(&self, object: Fid) -> Result<Vec<String>, StoreError> {
        Ok(self.core.record(object)?.xattrs.names().map(str::to_owned).collect())
    }

    fn whole(&self, object: Fid) -> Result<WholeObject, StoreError> {
        let record = self.core.record(object)?;
        Ok(WholeObject { attributes: record.attributes.clone(), xattrs: record.xattrs.clone() })
    }

    fn lookup(&self, index: Fid, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.core.overlay.key(&self.core.database, index, key)
    }

    fn scan(&self, index: Fid, from: &[u8], limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.core.overlay.scan(&self.core.database, index, from, limit)
    }

    fn apply(&self, transaction: Transaction) -> Result<Sequence, StoreError> {
        let core = &*self.core;
        let active_bytes = core.overlay.active_bytes();
        core.committer.wait_for_room(active_bytes, core)?;
        core.files.look_at_host();
        let room = || core.usage.check(&transaction, active_bytes as u64);
        core.files.ask_again(room)?;
        let sequence = core.overlay.apply(&core.database, &transaction)?;
        core.committer.applied(core.overlay.active_bytes(), core.group_bytes);
        Ok(sequence)
    }

    fn committed(&self) -> Sequence {
        self.core.committer.committed()
    }

    fn commit_soon(&self) {
        self.core.committer.want(self.core.overlay.applied());
    }

    fn commit(&self) -> Result<Sequence, StoreError> {
        let applied = self.core.overlay.applied();
        self.core.committer.want(applied);
        self.core.committer.sync_data(&self.core)?;
        self.core.committer.wait(applied)
    }

    fn on_commit(&self, hook: CommitHook) {
        self.core.committer.add_hook(hook);
    }

    fn read(&self, object: Fid, offset: u64, length: usize) -> Result<Bytes, StoreError> {
        self.read_summed(object, offset, length).map(|(bytes, _)| bytes)
    }

    fn read_summed(
        &self,
        object: Fid,
        offset: u64,
        length: usize,
    ) -> Result<(Bytes, Option<u32>), StoreError> {
        let file = self.core.file(object)?;
        self.core.report_damage(object, self.core.files.read(&file, offset, length))
    }

    fn verify(&self, object: Fid, offset: u64) -> Result<Verified, StoreError> {
        let record = self.core.record(object)?;
        if record.attributes.kind != FileKind::Regular {
            return Ok(Verified::default());
        }
        let file = self.core.files.file(record.data(object));
        let mut verified = self.core.files.verify(&file, offset)?;
        for finding in &mut verified.findings {
            finding.object = object;
            self.core.files.log(finding);
        }
        Ok(verified)
    }

    fn data_objects(&self, after: Option<Fid>, limit: usize) -> Result<Vec<Fid>, StoreError> {
        self.core.database.data_objects(after, limit)
    }

    fn integrity(&self) -> Integrity {
        self.core.files.integrity()
    }

    fn has_block_checksums(&self) -> bool {
        self.core.files.has_checksums()
    }

    fn keep_block_checksums(&self, keep: bool) -> Result<(), StoreError> {
        self.core.files.keep_checksums(keep);
        Ok(())
    }

    fn write(&self, object: Fid, offset: u64, pieces: &[Bytes]) -> Result<(), StoreError> {
        let file = self.core.file_to_change(object)?;
        self.core.report_damage(object, self.core.files.write(&file, offset, pieces, None))
    }

    fn write_summed(
        &self,
        object: Fid,
        offset: u64,
        pieces: &[Bytes],
        sums: BlockSums,
    ) -> Result<(), StoreError> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        debug_assert_eq!(sums.length, length as u64, "checksums of other bytes");
        let file = self.core.file_to_change(object)?;
        self.core.report_damage(object, self.core.files.write(&file, offset, pieces, Some(sums)))
    }

    fn truncate(&self, object: Fid, size: u64) -> Result<(), StoreError> {
        let file = self.core.file_to_change(object)?;
        self.core.report_damage(object, self.core.files.truncate(&file, size))
    }

    fn punch(&self, object: Fid, offset: u64, length: u64) -> Result<(), StoreError> {
        let file = self.core.file_to_change(object)?;
        self.core.report_damage(object, self.core.files.punch(&file, offset, length))
    }

    fn allocate(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), StoreError> {
        let file = self.core.file_to_change(object)?;
        self.core.report_damage(object, self.core.files.allocate(&file, offset, length, keep_size))
    }

    fn seek(&self, object: Fid, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        let file = self.core.file(object)?;
        self.core.report_damage(object, self.core.files.seek(&file, offset, hole))
    }

    fn advise(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        advice: DataAdvice,
    ) -> Result<(), StoreError> {
        let file = self.core.file(object)?;
        self.core.report_damage(object, self.core.files.advise(&file, (offset, length), advice))
    }

    fn sync_data(&self, object: Fid) -> Result<(), StoreError> {
        let record = self.core.record(object)?;
        let file = self.core.file_to_change(object)?;
        let committer = &self.core.committer;
        let created = committer.is_created_durably(record.generation);
        let applied = self.core.overlay.applied();
        if !created {
            committer.want(applied);
        }
        // The kernel drops what it could not write, and would call the next sync a success.
        let synced = self.core.report_damage(object, self.core.files.sync(&file));
        // Of what other hands removed there is nothing to sync.
        let is_damage = |error: &StoreError| matches!(error, StoreError::Damaged(_));
        synced.inspect_err(|error| {
            if !is_damage(error) {
                committer.fail("a sync of data", error);
            }
        })?;
        if !created {
            committer.wait(applied)?;
        }
        Ok(())
    }

    fn is_created_durably(&self, object: Fid) -> Result<bool, StoreError> {
        let record = self.core.record(object)?;
        Ok(self.core.committer.is_created_durably(record.generation))
    }

    fn object_bytes_max(&self) -> u64 {
        self.core.files.bytes_max()
    }

    fn space(&self) -> Result<StoreSpace, StoreError> {
        self.core.space(|| self.core.files.host_space().map(|host| (host, 0)))
    }

    fn recent_space(&self) -> Result<StoreSpace, StoreError> {
        self.core.space(|| self.core.files.recent_host_space())
    }
}
