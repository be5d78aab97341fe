//! Why a store could not be formatted or opened.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// One line for the operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiskError {
    /// The directory holds no store.
    NotFormatted(PathBuf),
    /// The directory holds a store already.
    AlreadyFormatted(PathBuf),
    /// Another process has the store open.
    Locked(PathBuf),
    /// The store was written by a newer program.
    NewerVersion {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// It belongs to another user, who could change what it holds.
    Foreign {
        /// The store, or what lies in it.
        path: PathBuf,
        /// The other user.
        owner: u32,
    },
    /// Transactions that were acknowledged as durable are gone: no crash does that.
    Missing {
        /// The database.
        path: PathBuf,
        /// The newest transaction that is there.
        have: u64,
        /// The newest that was acknowledged.
        had: u64,
    },
    /// A file of the store is not what was written, or is gone.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The operating system refused.
    Io {
        /// What was tried.
        doing: String,
        /// What it answered.
        error: io::Error,
    },
    /// The database refused.
    Database(String),
    /// Any of these, of a store whose label is known.
    Of {
        /// The label, which names the target.
        target: String,
        /// What is wrong.
        error: Box<DiskError>,
    },
}

impl DiskError {
    /// For `map_err`: the error of doing `doing` to `path`.
    pub(crate) fn io<E: Into<io::Error>>(
        doing: &str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let doing = format!("{doing} {}", path.display());
        move |error| Self::Io { doing, error: error.into() }
    }

    /// For `map_err`: names the target, unless its label is empty.
    pub(crate) fn of(target: &str) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            error if target.is_empty() => error,
            error => Self::Of { target: target.to_owned(), error: Box::new(error) },
        }
    }

    /// For `map_err`: names files of a copy at `copy` as those of the store in `dir` that was copied.
    pub(crate) fn of_original<'a>(copy: &'a Path, dir: &'a Path) -> impl Fn(Self) -> Self + 'a {
        let original = move |path: PathBuf| match path.strip_prefix(copy) {
            Ok(rest) => dir.join(rest),
            Err(_) => path,
        };
        let in_text =
            move |text: String| text.replace(&*copy.to_string_lossy(), &dir.to_string_lossy());
        move |error| match error {
            Self::NotFormatted(path) => Self::NotFormatted(original(path)),
            Self::NewerVersion { path, found, known } => {
                Self::NewerVersion { path: original(path), found, known }
            }
            Self::Foreign { path, owner } => Self::Foreign { path: original(path), owner },
            Self::Missing { path, have, had } => Self::Missing { path: original(path), have, had },
            Self::Damaged { path, why } => {
                Self::Damaged { path: original(path), why: in_text(why) }
            }
            Self::Io { doing, error } => Self::Io { doing: in_text(doing), error },
            Self::Database(text) => Self::Database(in_text(text)),
            error => error,
        }
    }

    /// What is wrong, without the target's name.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Of { error, .. } => error.cause(),
            error => error,
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFormatted(path) => {
                write!(out, "{} holds no Sheen store: make one with mkfs.lustre", path.display())
            }
            Self::AlreadyFormatted(path) => {
                write!(
                    out,
                    "{} is already formatted: reformatting it erases what it holds",
                    path.display()
                )
            }
            Self::Locked(path) => write!(out, "{} is in use by another process", path.display()),
            Self::NewerVersion { path, found, known } => write!(
                out,
                "{} has format version {found}, this program knows up to {known}",
                path.display()
            ),
            Self::Foreign { path, owner } => write!(
                out,
                "{} belongs to uid {owner}, who could change it: run this as that user, or change its \
                 owner (chown -R)",
                path.display()
            ),
            Self::Missing { path, have, had } if have < had => write!(
                out,
                "{}: {} transactions that were acknowledged as durable are missing (it has {have}, \
                 it had {had}): restore the store from a backup, or salvage what is left (`sheen \
                 salvage`)",
                path.display(),
                had - have
            ),
            Self::Missing { path, .. } => write!(
                out,
                "{}: the journal ends before what was acknowledged as durable: restore the store \
                 from a backup, or salvage what is left (`sheen salvage`)",
                path.display()
            ),
            Self::Of { target, error } => write!(out, "{target}: {error}"),
            Self::Damaged { path, why } => write!(out, "{}: {why}", path.display()),
            Self::Io { doing, error } => write!(out, "cannot {doing}: {error}"),
            Self::Database(text) => write!(out, "metadata database: {text}"),
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Of { error, .. } => error.source(),
            _ => None,
        }
    }
}
