//! What is left of a store that does not open any more, in a new store beside it.
//!
//! Every table is read block by block: what has a checksum that holds is taken, what has not is skipped and
//! counted. A journal is read batch by batch; of one that is broken, which may be all of a second, what looks like
//! a change is taken and reported. Of each key the newest version counts, by the number that fjall gave its batch.
//! Nothing of the damaged store is changed.
//!
//! The result is a store that opens, no file system that fits together: a key whose newest version
//! was lost may be there as it was earlier, or again though it was removed. Names, inodes and
//! objects are put in order by the role whose store it is (`sheen_mds::rebuild`).
//!
//! Versions are sorted in a database of their own below the new store, so that memory does not bound
//! how large a store can be; it takes the room of the metadata once more while it runs.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fjall::{Keyspace, KeyspaceCreateOptions};
use sheen_store::{Attributes, FileKind, Sequence, StoreError};
use sheen_types::{Fid, Timestamp};

use crate::{
    Config, DiskError, FormatOptions, LABEL_KEY,
    database::{Database, OPENINGS},
    directory::sync_directory,
    files::parse_name,
    format,
    inspect::KEYSPACES,
    journal::{self, COMMIT, SEQUENCE, VALUE},
    limits,
    memory::Memory,
    record::{LENT, Record, index_key, name_key, object_key, parse_object_key},
    tables,
};

/// Entries that go down together.
const STEP: usize = 1024;
/// Bytes before a value in the sorting database: its number, and whether there is one.
const HEAD: usize = 9;
const META: usize = 2;
/// As the store numbers its openings in generations.
const OPENING_SHIFT: u32 = crate::GENERATION_BITS;

/// What a salvage found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Objects that are in the new store.
    pub objects: u64,
    /// Keys of indexes that are.
    pub keys: u64,
    /// Files of the database with damage, a line each.
    pub damaged: Vec<String>,
    /// Objects made again from nothing but the file of their data: owner and names are unknown.
    pub from_data: Vec<Fid>,
    /// The newest transaction of which something is there.
    pub sequence: Sequence,
}

/// Makes a store in `to`, which must not exist, of what can be read of the one in `from`. Neither `format` nor
/// the database need be there; `otherwise` is its configuration, if nothing legible is left of that.
///
/// # Errors
/// [`DiskError::Locked`], [`DiskError::NewerVersion`], [`DiskError::AlreadyFormatted`], or an IO error.
pub fn salvage(from: &Path, to: &Path, otherwise: &Config) -> Result<Salvaged, DiskError> {
    let is_there = |name| from.join(name).is_dir();
    match format::check_version(from) {
        Err(DiskError::NotFormatted(_)) if is_there("engine") || is_there("objects") => {}
        Err(error @ (DiskError::NotFormatted(_) | DiskError::NewerVersion { .. })) => {
            return Err(error);
        }
        _ => {}
    }
    let (config, wrong) = Config::salvage(from, otherwise);
    let target = config.values.get(LABEL_KEY).cloned().unwrap_or_default();
    let _lock = format::lock(from)?;
    if to.exists() {
        return Err(DiskError::AlreadyFormatted(to.to_owned()));
    }
    let label = target.clone();
    let options = FormatOptions { config: config.values, label, ..FormatOptions::default() };
    format::format(to, &options)?;
    let salvaged = Salvage::new(from, to).and_then(|salvage| salvage.run(&target));
    if salvaged.is_err() {
        // Half a store must not be taken for one. The reason why there is none is returned, not
        // what follows.
        let _gone = fs::remove_dir_all(to);
    }
    let mut salvaged = salvaged.map_err(DiskError::of(&target))?;
    salvaged.damaged.splice(0..0, wrong);
    Ok(salvaged)
}

struct Salvage<'a> {
    from: &'a Path,
    to: &'a Path,
    sorted: fjall::Database,
    keyspaces: [Keyspace; 3],
    found: Salvaged,
}

fn broken(error: fjall::Error) -> DiskError {
    DiskError::Database(error.to_string())
}

fn fault(error: StoreError) -> DiskError {
    DiskError::Database(error.to_string())
}

impl<'a> Salvage<'a> {
    fn new(from: &'a Path, to: &'a Path) -> Result<Self, DiskError> {
        let place = to.join("salvage");
        let sorted = fjall::Database::builder(&place).worker_threads(1).open().map_err(broken)?;
        let keyspace = |name| sorted.keyspace(name, KeyspaceCreateOptions::default);
        let [objects, keys, meta] = KEYSPACES;
        let keyspaces = [keyspace(objects), keyspace(keys), keyspace(meta)];
        let [objects, keys, meta] = keyspaces.map(|keyspace| keyspace.map_err(broken));
        let keyspaces = [objects?, keys?, meta?];
        Ok(Self { from, to, sorted, keyspaces, found: Salvaged::default() })
    }

    fn run(mut self, target: &str) -> Result<Salvaged, DiskError> {
        let database = self.from.join("engine");
        if database.is_dir() {
            for place in 0..KEYSPACES.len() {
                self.tables(place)?;
            }
            self.journals()?;
        } else {
            self.damaged(&database, &"it is gone");
        }
        copy_directories(self.from, self.to)?;
        let memory = Memory::of(limits::CACHE_BYTES_DEFAULT);
        let (database, _) = Database::open(self.to, target, &memory)?;
        let mut openings = self.number(OPENINGS)?;
        openings = openings.max(self.put_objects(&database)?);
        self.put_keys(&database)?;
        openings = openings.max(self.put_data(&database)?);
        let sequence = Sequence(self.number(SEQUENCE)?);
        database.restored(openings + 1, sequence).map_err(fault)?;
        drop(database);
        let Self { to, sorted, keyspaces, mut found, .. } = self;
        drop((keyspaces, sorted));
        let place = to.join("salvage");
        fs::remove_dir_all(&place).map_err(DiskError::io("remove", &place))?;
        found.sequence = sequence;
        Ok(found)
    }

    fn damaged(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        self.found.damaged.push(format!("{}: {why}", path.display()));
    }

    /// All tables of a keyspace that its manifest lists; without one, all that lie there.
    fn tables(&mut self, place: usize) -> Result<(), DiskError> {
        let directory = self.from.join("engine/keyspaces").join((place + 1).to_string());
        let paths = match tables::listed(&directory) {
            Ok(listed) => listed.into_iter().map(|table| table.path).collect(),
            Err(error) => {
                self.damaged(&directory, &error);
                all_tables(&directory)?
            }
        };
        let keyspace = self.keyspaces[place].clone();
        for path in paths {
            let read = tables::salvage(&path, &mut |version| {
                put(&keyspace, &version.key, version.number, version.value.as_deref())
            });
            match read {
                Ok(0) => {}
                Ok(bytes) => self.damaged(&path, &format_args!("{bytes} bytes went bad")),
                Err(DiskError::Io { error, .. }) => self.damaged(&path, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn journals(&mut self) -> Result<(), DiskError> {
        for path in journal::files(&self.from.join("engine"))? {
            let keyspaces = self.keyspaces.clone();
            let read = journal::salvage(&path, &mut |number, item| {
                let place = usize::try_from(item.keyspace).ok().and_then(|n| n.checked_sub(1));
                let Some(keyspace) = place.and_then(|place| keyspaces.get(place)) else {
                    return Ok(());
                };
                let value = (item.kind == VALUE).then_some(&item.value[..]);
                put(keyspace, &item.key, number, value)
            });
            let journal::Salvage { unproven, broken } = read?;
            if unproven + broken > 0 {
                let why = format_args!(
                    "{broken} bytes went bad; {unproven} changes of commits that are not whole \
                     were taken, which no checksum proves"
                );
                self.damaged(&path, &why);
            }
        }
        Ok(())
    }

    /// A counter of the damaged store; 0 if it is lost.
    fn number(&self, key: &[u8]) -> Result<u64, DiskError> {
        let value = self.keyspaces[META].get(key).map_err(broken)?;
        let bytes = value.as_ref().and_then(|value| value.get(HEAD..)?.first_chunk().copied());
        Ok(bytes.map_or(0, u64::from_le_bytes))
    }

    /// Puts all entries of a keyspace that `keep` keeps into the new store. Returns how many.
    fn put(
        &self,
        database: &Database,
        place: usize,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64, DiskError> {
        let (mut step, mut count) = (Vec::with_capacity(STEP), 0);
        for guard in self.keyspaces[place].iter() {
            let (key, value) = guard.into_inner().map_err(broken)?;
            let Some((_, [is_there, value @ ..])) = value.split_first_chunk::<8>() else {
                continue;
            };
            if *is_there == 0 || &key[..] == COMMIT || !keep(&key, value) {
                continue;
            }
            step.push((key.to_vec(), value.to_vec()));
            count += 1;
            if step.len() == STEP {
                database.restore(place, step.drain(..)).map_err(fault)?;
            }
        }
        database.restore(place, step.into_iter()).map_err(fault)?;
        Ok(count)
    }

    /// Returns the highest opening in which an object was made.
    fn put_objects(&mut self, database: &Database) -> Result<u64, DiskError> {
        let (mut openings, mut illegible) = (0, 0);
        let count = self.put(database, 0, |key, value| match Record::decode(value) {
            Ok(record) if parse_object_key(key).is_some() => {
                openings = openings.max(record.generation >> OPENING_SHIFT);
                true
            }
            _ => {
                illegible += 1;
                false
            }
        })?;
        if illegible > 0 {
            self.found.damaged.push(format!("{illegible} objects cannot be read and are left out"));
        }
        self.found.objects = count;
        Ok(openings)
    }

    fn put_keys(&mut self, database: &Database) -> Result<(), DiskError> {
        self.found.keys = self.put(database, 1, |_, _| true)?;
        Ok(())
    }

    /// Makes objects again whose data is all that is left: otherwise the next opening would remove it.
    /// Returns the highest opening in which a file was made.
    fn put_data(&mut self, database: &Database) -> Result<u64, DiskError> {
        let objects = self.to.join("objects");
        let (mut openings, mut step) = (0, Vec::new());
        for directory in entries(&objects)? {
            for path in entries(&directory)? {
                let name = path.file_name().and_then(|name| name.to_str()).and_then(parse_name);
                let Some(name) = name else { continue };
                openings = openings.max(name.1 >> OPENING_SHIFT);
                let lent = database.value(&index_key(LENT, &name_key(name))).map_err(fault)?;
                if lent.is_some() || database.object(name.0).map_err(fault)?.is_some() {
                    continue;
                }
                let record = Record::new(attributes_of(&path)?, name.1);
                step.push((object_key(name.0).to_vec(), record.encode()));
                self.found.from_data.push(name.0);
            }
            database.restore(0, step.drain(..)).map_err(fault)?;
        }
        self.found.objects += self.found.from_data.len() as u64;
        Ok(openings)
    }
}

/// Only its owner's, and its owner is root: no user reads what was another user's.
fn attributes_of(path: &Path) -> Result<Attributes, DiskError> {
    let stat = fs::metadata(path).map_err(DiskError::io("look at", path))?;
    let modified = Timestamp { seconds: stat.mtime(), nanoseconds: stat.mtime_nsec() as u32 };
    Ok(Attributes {
        kind: FileKind::Regular,
        permissions: 0o600,
        links: 1,
        accessed: modified,
        modified,
        changed: modified,
        born: modified,
        ..Attributes::default()
    })
}

/// Keeps a version, unless a newer one is there.
fn put(
    keyspace: &Keyspace,
    key: &[u8],
    number: u64,
    value: Option<&[u8]>,
) -> Result<(), DiskError> {
    let known = keyspace.get(key).map_err(broken)?;
    let known = known.and_then(|known| known.first_chunk().copied()).map(u64::from_le_bytes);
    if known.is_some_and(|known| known > number) {
        return Ok(());
    }
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(u8::from(value.is_some()));
    bytes.extend_from_slice(value.unwrap_or_default());
    keyspace.insert(key, bytes).map_err(broken)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let read = fs::read_dir(directory).map_err(DiskError::io("read", directory))?;
    let paths = read.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(DiskError::io("read", directory))
}

fn all_tables(keyspace: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let tables = keyspace.join("tables");
    if tables.is_dir() { entries(&tables) } else { Ok(Vec::new()) }
}

/// Copies what lies beside the database: the data of objects, and what is kept of it.
fn copy_directories(from: &Path, to: &Path) -> Result<(), DiskError> {
    for path in entries(from)? {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "engine" {
            copy_tree(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), DiskError> {
    fs::create_dir_all(to).map_err(DiskError::io("create", to))?;
    for path in entries(from)? {
        let place = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_tree(&path, &place)?;
        } else {
            copy_file(&path, &place).map_err(DiskError::io("copy", &path))?;
        }
    }
    sync_directory(to)
}

/// Holes stay holes, where the host's file system says where they are; times stay.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, mut copy) = (File::open(from)?, File::create(to)?);
    let stat = source.metadata()?;
    copy.set_len(stat.len())?;
    let mut at = 0;
    while let Some((start, end)) = next_data(&source, at)? {
        source.seek(SeekFrom::Start(start))?;
        copy.seek(SeekFrom::Start(start))?;
        io::copy(&mut (&mut source).take(end - start), &mut copy)?;
        at = end;
    }
    copy.flush()?;
    copy.set_modified(stat.modified()?)?;
    copy.set_permissions(stat.permissions())?;
    copy.sync_all()
}

/// The next run of data at or behind `at`.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    Ok(Some((start, seek(file, SeekFrom::Hole(start))?)))
}
