//! Directories as indexes.
//!
//! A key is the name's hash (8 bytes, big-endian) and the name; a value is the FID and the type. So
//! a scan comes in the order of the hashes, which are the positions that clients know, and names
//! that share a hash lie side by side. `.` and `..` are not stored: they are the inode itself and
//! the parent of its link EA.

use bytes::Bytes;
use sheen_store::{FileKind, Store, StoreError};
use sheen_target::store_errno;
use sheen_types::{Errno, Fid, Name};

use crate::Mdt;
use crate::inode::Inode;

/// Position of `.`.
pub(crate) const HASH_DOT: u64 = 1;
/// Position of `..`.
pub(crate) const HASH_DOT_DOT: u64 = 2;
/// Names lie from here...
pub(crate) const HASH_FIRST: u64 = 0x10;
/// ...to below this, so that a position is positive as a signed number and never the end's.
pub(crate) const HASH_LIMIT: u64 = 0x7fff_ffff_ffff_0000;
/// Bytes of a value: FID, type.
const VALUE_BYTES: usize = 17;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) fid: Fid,
    pub(crate) kind: FileKind,
}

/// A name in a request: ordinary, or one of the two that every directory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Dot,
    DotDot,
    Name(Name),
}

impl Step {
    /// Reads a name to look up.
    ///
    /// # Errors
    /// [`Errno::ENAMETOOLONG`], [`Errno::EINVAL`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        match bytes {
            b"." => Ok(Self::Dot),
            b".." => Ok(Self::DotDot),
            other => parse_name(other).map(Self::Name),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Dot => b".",
            Self::DotDot => b"..",
            Self::Name(name) => name.as_bytes(),
        }
    }
}

/// Reads a name to create or remove.
///
/// # Errors
/// [`Errno::ENAMETOOLONG`], [`Errno::EINVAL`].
pub(crate) fn parse_name(bytes: &[u8]) -> Result<Name, Errno> {
    Name::new(bytes).map_err(|error| match error {
        sheen_types::NameError::TooLong => Errno::ENAMETOOLONG,
        sheen_types::NameError::Empty | sheen_types::NameError::Illegal => Errno::EINVAL,
    })
}

/// The position of a name: FNV-1a with a final mix, cut to the range of positions.
pub(crate) fn hash(name: &[u8]) -> u64 {
    let mut value: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name {
        value = (value ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    value ^= value >> 32;
    value = value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^= value >> 29;
    HASH_FIRST + value % (HASH_LIMIT - HASH_FIRST)
}

/// The key of a name.
pub(crate) fn key(name: &[u8]) -> Bytes {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&hash(name).to_be_bytes());
    key.extend_from_slice(name);
    key.into()
}

/// Hash and name of a key.
pub(crate) fn parse_key(key: &Bytes) -> Option<(u64, Bytes)> {
    let (hash, _) = key.split_first_chunk()?;
    Some((u64::from_be_bytes(*hash), key.slice(8..)))
}

/// The value of a name.
pub(crate) fn value(child: Child) -> Bytes {
    let mut value = Vec::with_capacity(VALUE_BYTES);
    value.extend_from_slice(&child.fid.seq.to_le_bytes());
    value.extend_from_slice(&child.fid.oid.to_le_bytes());
    value.extend_from_slice(&child.fid.ver.to_le_bytes());
    value.push(child.kind as u8);
    value.into()
}

/// Reads a value.
pub(crate) fn parse_value(value: &[u8]) -> Option<Child> {
    let (seq, rest) = value.split_first_chunk()?;
    let (oid, rest) = rest.split_first_chunk()?;
    let (ver, rest) = rest.split_first_chunk()?;
    let [kind] = rest else { return None };
    Some(Child {
        fid: Fid {
            seq: u64::from_le_bytes(*seq),
            oid: u32::from_le_bytes(*oid),
            ver: u32::from_le_bytes(*ver),
        },
        kind: FileKind::from_mode(u32::from(*kind) << 12)?,
    })
}

/// The errno for an entry that cannot be read, which is logged: its client is not at fault.
pub(crate) fn damaged_entry(directory: Fid, name: &[u8]) -> Errno {
    let name = name.escape_ascii();
    store_errno(StoreError::Corrupt(format!("the entry {name} of directory {directory}")))
}

/// What an ordinary name stands for.
///
/// # Errors
/// Those of the store.
pub(crate) fn find(store: &dyn Store, directory: Fid, name: &[u8]) -> Result<Option<Child>, Errno> {
    let found = store.lookup(directory, &key(name)).map_err(store_errno)?;
    let damaged = || damaged_entry(directory, name);
    found.map(|value| parse_value(&value).ok_or_else(damaged)).transpose()
}

impl Mdt {
    /// What a name in a directory stands for, if anything.
    pub(crate) fn child(&self, directory: &Inode, step: &Step) -> Result<Option<Child>, Errno> {
        self.stands_for(directory.fid, step.as_bytes())
    }

    /// As [`Mdt::child`], of a name that was read before.
    pub(crate) fn stands_for(&self, directory: Fid, name: &[u8]) -> Result<Option<Child>, Errno> {
        let kind = FileKind::Directory;
        match name {
            b"." => Ok(Some(Child { fid: directory, kind })),
            b".." => Ok(Some(Child { fid: self.parent(directory)?, kind })),
            name => self.find_ordinary(directory, name),
        }
    }

    /// What an ordinary name stands for, if anything.
    pub(crate) fn find(&self, directory: Fid, name: &Name) -> Result<Option<Child>, Errno> {
        self.find_ordinary(directory, name.as_bytes())
    }

    fn find_ordinary(&self, directory: Fid, name: &[u8]) -> Result<Option<Child>, Errno> {
        match find(&*self.store, directory, name)? {
            None => self.find_unlisted(directory, name),
            found => Ok(found),
        }
    }

    /// Whether a directory has no entry.
    pub(crate) fn is_empty(&self, directory: Fid) -> Result<bool, Errno> {
        let entries = self.store.scan(directory, &[], 1).map_err(store_errno)?;
        Ok(entries.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_back() {
        let child = Child { fid: Fid { seq: 1 << 33, oid: 7, ver: 0 }, kind: FileKind::Symlink };
        assert_eq!(parse_value(&value(child)), Some(child));
        assert_eq!(parse_value(&value(child)[..16]), None);
        let (hash_of_key, name) = parse_key(&key(b"name")).unwrap();
        assert_eq!((hash_of_key, &name[..]), (hash(b"name"), &b"name"[..]));
    }

    #[test]
    fn hashes_stay_in_their_range_and_apart() {
        let mut hashes: Vec<u64> =
            (0..10_000).map(|number| hash(format!("file{number}").as_bytes())).collect();
        assert!(hashes.iter().all(|hash| (HASH_FIRST..HASH_LIMIT).contains(hash)));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 10_000);
    }
}
