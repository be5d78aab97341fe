//! The directory of a store: which user may open it, and what is known of it without its database.
//!
//! | name | holds |
//! |---|---|
//! | `format` | magic and version; written last, so a directory with it is whole |
//! | `lock` | locked (`flock`) by the process that has the store open |
//! | `CONFIG` | what `mkfs.lustre` and `tunefs.lustre` wrote: `key=value` lines, their checksum in the last |
//! | `CONFIG.copy` | the same, for when it is damaged |
//! | `database/` | fjall: attributes, extended attributes, keys, checksums of data |
//! | `marks` | which objects are being overwritten: whose checksums a crash makes uncertain |
//! | `committed` | what was acknowledged as durable: see `mark` |
//! | `lost+journal-<n>` | what a crash left of a commit that was not durable, for looking at |
//! | `objects/xx/` | the data of objects |

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{DiskError, commit_mark::CommitMark, database::Database, files::SumsGroup, limits};

/// The newest format this program knows, and the one it makes.
pub const FORMAT_VERSION: u32 = 3;
/// The format without lengths and checksums of data: nothing is known of what was written then, and a program
/// that knows no newer one would not keep them in step. Becomes the newest when it is opened.
const VERSION_WITHOUT_SUMS: u32 = 2;
const MAGIC: &str = "sheen-store-disk";
/// Modes of what is made: nothing for other users, whatever the umask.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The last line of `CONFIG` begins so: a comment to programs that know no checksums.
const CHECKSUM: &str = "# crc32c ";
const COPY: &str = "CONFIG.copy";

/// The key of [`Config`] under which the capacity lies.
pub const CAPACITY_KEY: &str = "capacity_bytes";
/// The key of [`Config`] under which the label lies.
pub const LABEL_KEY: &str = "label";

/// How to make a store.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Data and metadata together stay below this; without it the host's file system decides.
    pub capacity_bytes: Option<u64>,
    /// Name of the target, as `lustre-OST0000`.
    pub label: String,
    /// Further lines of [`Config`].
    pub config: BTreeMap<String, String>,
    /// Destroys a store that is there.
    pub reformat: bool,
    /// Bytes of changes that the database gathers before it writes a table (0: 2 MiB), for as long as the store lives; in a
    /// small one fewer. Four tables are merged with all of the next level, whose keys are all over: where there are millions,
    /// larger ones cost less processor time ([`MEMTABLE_BYTES_OF_MDT`]).
    pub memtable_bytes: u64,
}

/// [`FormatOptions::memtable_bytes`] of a target that may have millions of names.
pub const MEMTABLE_BYTES_OF_MDT: u64 = 8 << 20;

/// The `key=value` lines of a store's `CONFIG`, readable and writable without opening the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Keys without `=` or line breaks; values without line breaks.
    pub values: BTreeMap<String, String>,
}

impl Config {
    /// Reads the configuration of the store in `dir`.
    ///
    /// # Errors
    /// [`DiskError::NotFormatted`], [`DiskError::Damaged`], or an IO error.
    pub fn load(dir: &Path) -> Result<Self, DiskError> {
        check_kinds(dir)?;
        let sums_may_lack = version(dir)? < FORMAT_VERSION;
        let path = dir.join("CONFIG");
        Self::read(&path, sums_may_lack).map_err(|why| {
            let copy = dir.join(COPY);
            let way_out = match Self::read(&copy, false) {
                Ok(_) => {
                    format!("put its copy in its place (cp {} {})", copy.display(), path.display())
                }
                Err(_) => "restore it from a backup, or rebuild it (`sheen salvage`)".to_owned(),
            };
            DiskError::Damaged { path, why: format!("{why}: {way_out}") }
        })
    }

    /// What is wrong with the copy of the configuration of the store in `dir`, whose configuration itself is whole:
    /// [`Config::save`] writes both. Of a store that an older program made none is missed: it gets one when it is opened.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn copy_fault(dir: &Path) -> Result<Option<String>, DiskError> {
        let config = Self::load(dir)?;
        if version(dir)? < FORMAT_VERSION {
            return Ok(None);
        }
        let path = dir.join(COPY);
        let why = match Self::read(&path, false) {
            Ok(copy) if copy == config => return Ok(None),
            // A crash between the two writes leaves the older one.
            Ok(_) => "it differs from CONFIG".to_owned(),
            Err(why) => why,
        };
        Ok(Some(format!("{}: {why}", path.display())))
    }

    /// What is left of the configuration of a damaged store, and what was wrong with it: from `CONFIG`, or its
    /// copy, or `otherwise`.
    pub(crate) fn salvage(dir: &Path, otherwise: &Self) -> (Self, Option<String>) {
        let sums_may_lack = version(dir).is_ok_and(|version| version < FORMAT_VERSION);
        let path = dir.join("CONFIG");
        let why = match Self::read(&path, sums_may_lack) {
            Ok(config) => return (config, None),
            Err(why) => format!("{}: {why}", path.display()),
        };
        match Self::read(&dir.join(COPY), false) {
            Ok(config) => (config, Some(format!("{why}; its copy is taken"))),
            Err(_) => {
                (otherwise.clone(), Some(format!("{why}, and so is its copy; it was recreated")))
            }
        }
    }

    /// What a file says, or what is wrong with it.
    fn read(path: &Path, sums_may_lack: bool) -> Result<Self, String> {
        let text = match read_text(path) {
            Err(DiskError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return Err("it is gone".to_owned());
            }
            text => text.map_err(|error| error.to_string())?,
        };
        let lines = match text.rfind(CHECKSUM) {
            Some(at) if text[at..] == checksum_line(&text[..at]) => &text[..at],
            Some(_) => return Err("its checksum differs".to_owned()),
            None if sums_may_lack => &text,
            None => return Err("its checksum is gone".to_owned()),
        };
        let mut values = BTreeMap::new();
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) =
                line.split_once('=').ok_or_else(|| format!("no `=` in line {line:?}"))?;
            values.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self { values })
    }

    /// Replaces the configuration of the store in `dir`, whole or not at all.
    ///
    /// # Errors
    /// [`DiskError::NotFormatted`], [`DiskError::Damaged`] for a key or value that a line cannot
    /// hold, or an IO error.
    pub fn save(&self, dir: &Path) -> Result<(), DiskError> {
        check_version(dir)?;
        self.write(dir)
    }

    fn write(&self, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join("CONFIG");
        let mut text = String::new();
        for (key, value) in &self.values {
            let bad_key = key.is_empty() || key.starts_with('#') || key.contains(['=', '\n']);
            if bad_key || value.contains('\n') {
                let why = format!("a line cannot hold {key:?}={value:?}");
                return Err(DiskError::Damaged { path, why });
            }
            text.extend([key, "=", value, "\n"]);
        }
        text.push_str(&checksum_line(&text));
        replace_file(&path, text.as_bytes())?;
        replace_file(&dir.join(COPY), text.as_bytes())
    }

    /// The capacity that [`FormatOptions`] set.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if it is no number.
    pub fn capacity_bytes(&self, dir: &Path) -> Result<Option<u64>, DiskError> {
        let Some(text) = self.values.get(CAPACITY_KEY) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| DiskError::Damaged {
            path: dir.join("CONFIG"),
            why: format!("{CAPACITY_KEY} is no number: {text:?}"),
        })
    }
}

fn checksum_line(lines: &str) -> String {
    format!("{CHECKSUM}{:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

/// Makes an empty store in `dir`, creating the directory as needed.
pub(crate) fn format(dir: &Path, options: &FormatOptions) -> Result<(), DiskError> {
    create_directories(dir)?;
    close(dir)?;
    let _lock = lock(dir)?;
    if dir.join("format").exists() {
        if !options.reformat {
            return Err(DiskError::AlreadyFormatted(dir.to_owned()));
        }
        let path = dir.join("format");
        fs::remove_file(&path).map_err(DiskError::io("remove", &path))?;
        sync_directory(dir)?;
    } else if !options.reformat
        && CommitMark::read(dir).ok().flatten().is_some_and(|durable| durable.sequence > 0)
    {
        let path = dir.join("format");
        let why = "it is gone, and a store that was in use lies beside it: restore it, or format again by name \
                   (`mkfs.lustre --reformat`), which destroys what is there";
        return Err(DiskError::Damaged { path, why: why.to_owned() });
    }
    let mark = dir.join("committed");
    if mark.exists() {
        fs::remove_file(&mark).map_err(DiskError::io("remove", &mark))?;
    }
    for name in ["engine", "objects"] {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(DiskError::io("remove", &path))?;
        }
        make_directory(&path).map_err(DiskError::io("create", &path))?;
    }
    let marks = dir.join("marks");
    if marks.exists() {
        fs::remove_file(&marks).map_err(DiskError::io("remove", &marks))?;
    }
    make_engine(dir, options)?;
    let mut config = Config { values: options.config.clone() };
    config.values.insert(LABEL_KEY.to_owned(), options.label.clone());
    if let Some(capacity) = options.capacity_bytes {
        config.values.insert(CAPACITY_KEY.to_owned(), capacity.to_string());
    }
    config.write(dir)?;
    write_version(dir)
}

/// Makes the empty database, durably: it cannot be opened again if it dies while it is first made, so
/// that happens before the store counts as formatted.
fn make_engine(dir: &Path, options: &FormatOptions) -> Result<(), DiskError> {
    let asked = match options.memtable_bytes {
        0 => limits::MEMTABLE_BYTES,
        bytes => bytes,
    };
    let share = options.capacity_bytes.map_or(asked, |bytes| bytes / limits::MEMTABLE_SHARE);
    let memtable_bytes = asked.min(share.max(limits::MEMTABLE_BYTES_MIN));
    let (database, opened) = Database::make(dir, &options.label, memtable_bytes)?;
    database
        .close(0, &SumsGroup::default(), opened.sequence)
        .map_err(|error| DiskError::Database(error.to_string()))?;
    drop(database);
    sync_tree(&dir.join("engine"))
}

/// Makes all files and names below `dir` durable.
fn sync_tree(dir: &Path) -> Result<(), DiskError> {
    let entries = fs::read_dir(dir).map_err(DiskError::io("read", dir))?;
    for entry in entries {
        let path = entry.map_err(DiskError::io("read", dir))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(DiskError::io("sync", &path))?;
        }
    }
    sync_directory(dir)
}

/// Refuses what is not a store of a version we know.
pub(crate) fn check_version(dir: &Path) -> Result<(), DiskError> {
    version(dir).map(|_| ())
}

/// Before the store is changed: its version becomes ours.
pub(crate) fn upgrade(dir: &Path, config: &Config) -> Result<(), DiskError> {
    if version(dir)? == FORMAT_VERSION {
        return Ok(());
    }
    config.write(dir)?;
    write_version(dir)
}

fn write_version(dir: &Path) -> Result<(), DiskError> {
    let text = format!("{MAGIC}\nversion {FORMAT_VERSION}\n");
    replace_file(&dir.join("format"), text.as_bytes())
}

fn version(dir: &Path) -> Result<u32, DiskError> {
    let path = dir.join("format");
    if !path.exists() {
        return Err(DiskError::NotFormatted(dir.to_owned()));
    }
    let text = read_text(&path)?;
    let damaged = |why: &str| DiskError::Damaged { path: path.clone(), why: why.to_owned() };
    let version = text
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.strip_prefix("\nversion "))
        .ok_or_else(|| damaged("not the format file of a Sheen store"))?;
    let found = version.trim_end().parse().map_err(|_| damaged("the version is no number"))?;
    match found {
        VERSION_WITHOUT_SUMS | FORMAT_VERSION => Ok(found),
        // Version 1 had no checksums of its own in the database's journal, and was in no release.
        0 | 1 => Err(damaged("a format version that no release wrote: format it again")),
        _ => Err(DiskError::NewerVersion { path: dir.to_owned(), found, known: FORMAT_VERSION }),
    }
}

/// Makes this process the only one that has the store, until the result is dropped.
pub(crate) fn lock(dir: &Path) -> Result<OwnedFd, DiskError> {
    let path = dir.join("lock");
    let file = File::options().create(true).append(true).mode(FILE_MODE).open(&path);
    let file = file.map_err(DiskError::io("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DiskError::Locked(dir.to_owned())),
        Err(error) => Err(DiskError::io("lock", &path)(error)),
    }
}

fn read_text(path: &Path) -> Result<String, DiskError> {
    let file = File::open(path).map_err(DiskError::io("open", path))?;
    let mut text = String::new();
    let read = file.take(limits::TEXT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(DiskError::io("read", path))?;
    Ok(text)
}

/// After a crash the file holds the old bytes or the new ones.
fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(DiskError::io("write", path))?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Makes `dir` and what is missing above it, durably.
fn create_directories(dir: &Path) -> Result<(), DiskError> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !path.exists()).collect();
    // What lies above the store is made as the user wants it.
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(DiskError::io("create", parent))?;
    }
    match make_directory(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DiskError::io("create", dir)(error));
        }
        _ => {}
    }
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
            _ => sync_directory(Path::new("."))?,
        }
    }
    Ok(())
}

/// A directory of this user's alone, whatever the umask.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Removes the permissions of other users on the store in `dir`: a user that can read it reads every
/// file, one that can write it is root on every mount.
///
/// What lies in the directories is reached through them alone, so it is not looked at.
///
/// # Errors
/// It belongs to another user, who cannot be kept out.
pub(crate) fn close(dir: &Path) -> Result<(), DiskError> {
    let own = rustix::process::geteuid().as_raw();
    let inside = ["engine", "objects", "CONFIG", COPY, "format", "lock"].map(|name| dir.join(name));
    for path in std::iter::once(dir.to_owned()).chain(inside) {
        // Both a link and what it leads to.
        let found = fs::symlink_metadata(&path).and_then(|link| Ok((link, fs::metadata(&path)?)));
        let Ok((link, found)) = found else { continue };
        if let Some(owner) = [link.uid(), found.uid()].into_iter().find(|uid| *uid != own) {
            return Err(DiskError::Foreign { path, owner });
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o077 == 0 {
            continue;
        }
        let closed = mode & 0o700;
        let set = fs::set_permissions(&path, fs::Permissions::from_mode(closed));
        set.map_err(DiskError::io("close", &path))?;
        let place = path.display();
        tracing::warn!(target: crate::EACH_LINE,
            "{place} was open to other users (mode {mode:o}): closed (mode {closed:o})");
    }
    Ok(())
}

/// Makes names in `dir` durable.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(DiskError::io("sync", dir))
}

/// That what lies in a store's directory, and in its database, are files and directories: a pipe in place of a file
/// blocks for ever what opens it.
///
/// # Errors
/// [`DiskError::Damaged`] for what is neither.
pub(crate) fn check_kinds(dir: &Path) -> Result<(), DiskError> {
    for folder in [dir.to_owned(), dir.join("engine")] {
        // What is missing is reported by other checks.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
                let why = "it is no file: restore it from a backup".to_owned();
                return Err(DiskError::Damaged { path: entry.path(), why });
            }
        }
    }
    Ok(())
}
