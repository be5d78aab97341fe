//! The directory of a store: who may open it, and what it says of itself without its engine.
//!
//! | name | holds |
//! |---|---|
//! | `format` | magic and version; written last, so a directory with it is whole |
//! | `lock` | locked (`flock`) by the process that has the store open |
//! | `CONFIG` | what `mkfs.lustre` and `tunefs.lustre` wrote: `key=value` lines |
//! | `engine/` | fjall: attributes, extended attributes, keys |
//! | `objects/xx/` | the data of objects |

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{DiskError, engine::Engine, limits};

/// The newest format this program knows, and the one it makes.
pub const FORMAT_VERSION: u32 = 2;
const MAGIC: &str = "sheen-store-disk";

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
}

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
        check_version(dir)?;
        let path = dir.join("CONFIG");
        let text = read_text(&path)?;
        let mut values = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=').ok_or_else(|| DiskError::Damaged {
                path: path.clone(),
                why: format!("no `=` in line {line:?}"),
            })?;
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
        replace_file(&path, text.as_bytes())
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

/// Makes an empty store in `dir`, creating the directory as needed.
pub(crate) fn format(dir: &Path, options: &FormatOptions) -> Result<(), DiskError> {
    create_directories(dir)?;
    let _lock = lock(dir)?;
    if dir.join("format").exists() {
        if !options.reformat {
            return Err(DiskError::AlreadyFormatted(dir.to_owned()));
        }
        let path = dir.join("format");
        fs::remove_file(&path).map_err(DiskError::io("remove", &path))?;
        sync_directory(dir)?;
    }
    for name in ["engine", "objects"] {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(DiskError::io("remove", &path))?;
        }
        fs::create_dir(&path).map_err(DiskError::io("create", &path))?;
    }
    make_engine(&dir.join("engine"))?;
    let mut config = Config { values: options.config.clone() };
    config.values.insert(LABEL_KEY.to_owned(), options.label.clone());
    if let Some(capacity) = options.capacity_bytes {
        config.values.insert(CAPACITY_KEY.to_owned(), capacity.to_string());
    }
    config.write(dir)?;
    let text = format!("{MAGIC}\nversion {FORMAT_VERSION}\n");
    replace_file(&dir.join("format"), text.as_bytes())
}

/// Makes the empty engine, durably: it cannot be opened again if it dies while it is first made, so
/// that happens before the store counts as formatted.
fn make_engine(path: &Path) -> Result<(), DiskError> {
    let (engine, opened) = Engine::open(path, limits::CACHE_BYTES_MIN)?;
    engine.close(0, opened.sequence).map_err(|error| DiskError::Engine(error.to_string()))?;
    drop(engine);
    sync_tree(path)
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
        FORMAT_VERSION => Ok(()),
        // Version 1 had no checksums of its own in the engine's journal, and was in no release.
        0 | 1 => Err(damaged("a format version that no release wrote: format it again")),
        _ => Err(DiskError::NewerVersion { path: dir.to_owned(), found, known: FORMAT_VERSION }),
    }
}

/// Makes this process the only one that has the store, until the result is dropped.
pub(crate) fn lock(dir: &Path) -> Result<OwnedFd, DiskError> {
    let path = dir.join("lock");
    let file = File::options().create(true).append(true).open(&path);
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
        let mut file = File::create(&temporary)?;
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
    fs::create_dir_all(dir).map_err(DiskError::io("create", dir))?;
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
            _ => sync_directory(Path::new("."))?,
        }
    }
    Ok(())
}

/// Makes names in `dir` durable.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(DiskError::io("sync", dir))
}
