//! Why a store could not be formatted or opened.

use std::{fmt, io, path::PathBuf};

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
    /// What should be the format file or `CONFIG` is something else.
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
    /// The engine refused.
    Engine(String),
}

impl DiskError {
    /// For `map_err`: the error of doing `doing` to `path`.
    pub(crate) fn io<E: Into<io::Error>>(
        doing: &str,
        path: &std::path::Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let doing = format!("{doing} {}", path.display());
        move |error| Self::Io { doing, error: error.into() }
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
                    "{} is formatted already: reformat to lose what it holds",
                    path.display()
                )
            }
            Self::Locked(path) => write!(out, "{} is in use by another process", path.display()),
            Self::NewerVersion { path, found, known } => write!(
                out,
                "{} has format version {found}, this program knows up to {known}",
                path.display()
            ),
            Self::Damaged { path, why } => write!(out, "{}: {why}", path.display()),
            Self::Io { doing, error } => write!(out, "cannot {doing}: {error}"),
            Self::Engine(text) => write!(out, "metadata engine: {text}"),
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
