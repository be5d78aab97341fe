//! What real programs do to a file system, as functions over a directory.
//!
//! Each works in a folder of its own below the one it is given, on a mount as on a plain
//! directory, and answers with the first thing that was not as POSIX says. The plain directory is
//! the proof that a workload asks for nothing that a local file system does not give.

pub mod big;
pub mod clone;
pub mod ledger;
pub mod many;
pub mod mapped;
pub mod moves;
pub mod pair;
pub mod plant;
pub mod project;
pub mod slots;
pub mod storm;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Context, Outcome};

/// How much of a workload to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Enough to see each path taken once: the tests of the workloads themselves.
    Tiny,
    /// What a normal run of all tests can afford.
    Normal,
    /// All that is promised.
    Long,
}

impl Size {
    /// [`Size::Long`] when `SHEEN_TEST_LONG` is set, as `cargo xtask test --long` does.
    pub fn asked() -> Self {
        if std::env::var_os("SHEEN_TEST_LONG").is_some() { Self::Long } else { Self::Normal }
    }

    /// One of three values.
    pub fn of<T>(self, tiny: T, normal: T, long: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Normal => normal,
            Self::Long => long,
        }
    }
}

/// A new folder `name` in `top`.
pub fn folder(top: &Path, name: &str) -> Outcome<PathBuf> {
    let path = top.join(name);
    fs::create_dir(&path).context(path.display())?;
    Ok(path)
}
