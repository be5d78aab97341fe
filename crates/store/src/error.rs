//! Why a store refused.

use std::fmt;

use sheen_types::{Errno, Fid};

use crate::Finding;

/// What went wrong, and whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The object does not exist.
    NoObject(Fid),
    /// The object or key exists already.
    Exists(Fid),
    /// The index has no such key.
    NoKey(Fid),
    /// The store is full.
    NoSpace,
    /// Beyond what one object can hold ([`crate::Store::object_bytes_max`]).
    TooLarge,
    /// The operation does not fit the object's kind (data of a directory, say).
    WrongKind(Fid),
    /// What was read is not what was written.
    Corrupt(String),
    /// The data of an object is lost, cut or not what was written. The store has logged it.
    Damaged(Box<Finding>),
    /// The disk or the database below failed, or an earlier failure made the store read-only.
    Io(String),
    /// It was closed, because its server ends.
    Closed,
}

impl StoreError {
    /// The errno that a reply carries for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoObject(_) | Self::NoKey(_) => Errno::ENOENT,
            Self::Exists(_) => Errno::EEXIST,
            Self::NoSpace => Errno::ENOSPC,
            Self::TooLarge => Errno::EFBIG,
            Self::WrongKind(_) => Errno::EINVAL,
            Self::Corrupt(_) | Self::Damaged(_) | Self::Io(_) | Self::Closed => Errno::EIO,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject(fid) => write!(out, "no object {fid}"),
            Self::Exists(fid) => write!(out, "{fid}: object or key exists"),
            Self::NoKey(fid) => write!(out, "{fid}: no such key"),
            Self::NoSpace => out.write_str("no space left"),
            Self::TooLarge => out.write_str("larger than an object can be"),
            Self::WrongKind(fid) => write!(out, "{fid}: wrong kind of object"),
            Self::Corrupt(text) => write!(out, "corrupt: {text}"),
            Self::Damaged(finding) => write!(out, "{finding}"),
            Self::Io(text) => write!(out, "IO error: {text}"),
            Self::Closed => out.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for StoreError {}
