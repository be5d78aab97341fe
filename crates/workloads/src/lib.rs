//! What real programs do to a file system, as functions over a directory.
//!
//! Each works in a folder of its own below the one it is given, on a mount as on a plain
//! directory, and answers with the first thing that was not as POSIX says. The plain directory is
//! the proof that a workload asks for nothing that a local file system does not give.
//!
//! By one program: [`big`] (a large file), [`many`] (many files in a directory), [`clone`] (git), [`project`] (a build), [`plant`]
//! (one of everything that must survive), [`ledger`] (what was reported as durable, kept elsewhere). By two or more
//! mounts: [`pair`] (what holds between two programs), [`mapped`] (one file mapped by two), [`moves`] (a file that moves
//! while it is used), [`slots`] (writers and readers of one file), [`storm`] (all calls on the same few names).
//!
//! Their bytes are in [`bytes`], what a folder holds afterwards in [`tree`], the programs that they run in
//! [`process`].

pub mod big;
pub mod bytes;
pub mod clone;
pub mod ledger;
pub mod many;
pub mod mapped;
pub mod moves;
pub mod pair;
pub mod plant;
pub mod process;
pub mod project;
pub mod slots;
pub mod storm;
pub mod tree;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

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

/// What a workload or a step of a test answers: its value, or one text on what went wrong.
pub type Outcome<T = ()> = Result<T, String>;

/// Adds to an error what the test was doing when it came.
pub trait Context<T> {
    /// The value, or `what` in front of the error's text.
    fn context(self, what: impl Display) -> Outcome<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Fails with `fault` unless `holds`.
pub fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(fault()) }
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
        .to_owned()
}
