//! A store that is only looked at: what opening one changes is made in a scratch copy, and nothing beside it.
//!
//! Opening finishes what a crash left half done: it cuts journals, makes tables of them, counts itself. So all of a
//! store but the data of its objects is taken to another directory first. Tables never change once they are
//! written: links lead to them, and the database removes a link where it would remove a table.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::DiskError;

/// What lies beside the database and is read or written with it.
const FILES: [&str; 4] = ["format", "CONFIG", "committed", "marks"];
/// The directory of each keyspace that holds its tables.
const TABLES: &str = "tables";

/// The copy. Dropped, it is removed.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Copies the store in `dir` to `place`, which is not there yet.
    pub(crate) fn of(dir: &Path, place: &Path) -> Result<Self, DiskError> {
        let failed = |error| DiskError::io("copy to", place)(error);
        fs::create_dir_all(place).map_err(failed)?;
        let scratch = Self(place.to_owned());
        for name in FILES {
            match fs::copy(dir.join(name), place.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        copy_all(&dir.join("engine"), &place.join("engine"), false).map_err(failed)?;
        Ok(scratch)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a copy of a store is left");
        }
    }
}

/// Copies what is there; of `tables` it makes links.
fn copy_all(from: &Path, to: &Path, are_tables: bool) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        // A store that is damaged so is reported when it is opened.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    fs::create_dir(to)?;
    for entry in entries {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let place = to.join(&name);
        if path.is_dir() {
            copy_all(&path, &place, name == TABLES)?;
        } else if are_tables {
            std::os::unix::fs::symlink(fs::canonicalize(&path)?, place)?;
        } else if path.is_file() {
            fs::copy(&path, place)?;
        }
    }
    Ok(())
}
