//! The extended attributes through which a mount shows what Lustre knows of a file.

use std::path::Path;

use bytes::Bytes;
use rustix::fs::XattrFlags;
use sheen_types::{Errno, Fid};
use sheen_wire::lmv::{LmvEa, LmvMdsMd, LmvUserMd};
use sheen_wire::lov::LovEa;
use sheen_wire::md::SomAttrs;
use sheen_wire::{ByteOrder, Reader, Wire};

use crate::output::errno;

/// The layout: `struct lov_user_md` or `lov_mds_md`.
const LAYOUT: &str = "lustre.lov";
/// The FID, as text.
const FID: &str = "lustre.fid";
/// The size as clients reported it last.
const SOM: &str = "trusted.som";
/// Set: an order to the mount to move the file. Read: how far it is.
const MIGRATE: &str = "sheen.migrate";
/// Set: an order to the mount to exchange the layouts of two files.
const SWAP_LAYOUTS: &str = "sheen.swap_layouts";
/// The heat of a file: flags, reads, writes, bytes read, bytes written. Set: the flags.
const HEAT: &str = "sheen.heat";
/// The version of a file's data; a letter behind it says what clients do before.
const DATA_VERSION: &str = "sheen.data_version.";
/// The stripes of a directory, and the default of those that are made in it.
const STRIPES: &str = "sheen.directory_stripes";
const DEFAULT_STRIPES: &str = "sheen.directory_default";
/// The kernel allows no longer value (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

fn value(path: &Path, name: &str) -> Result<Bytes, Errno> {
    let mut buffer = vec![0; VALUE_BYTES_MAX];
    let length = rustix::fs::getxattr(path, name, buffer.as_mut_slice()).map_err(errno)?;
    buffer.truncate(length);
    Ok(buffer.into())
}

/// What the MDT knows of the size of what a name stands for (`trusted.som`).
///
/// # Errors
/// ENODATA where it knows nothing, and for other users than root; EPROTO for bytes that are none.
pub(super) fn som(path: &Path) -> Result<SomAttrs, Errno> {
    let mut buffer = vec![0; VALUE_BYTES_MAX];
    let length = rustix::fs::lgetxattr(path, SOM, buffer.as_mut_slice()).map_err(errno)?;
    buffer.truncate(length);
    SomAttrs::decode(&mut Reader::new(&buffer.into(), ByteOrder::Little)).map_err(|_| Errno::EPROTO)
}

/// The FID of what a name stands for, be it a symbolic link.
///
/// # Errors
/// As [`fid`].
pub(super) fn fid_of_link(path: &Path) -> Result<Fid, Errno> {
    let mut buffer = vec![0; VALUE_BYTES_MAX];
    let length = rustix::fs::lgetxattr(path, FID, buffer.as_mut_slice()).map_err(errno)?;
    parsed(&buffer[..length])
}

fn parsed(bytes: &[u8]) -> Result<Fid, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::EPROTO)?;
    text.trim_end_matches(['\0', '\n']).parse().map_err(|_| Errno::EPROTO)
}

/// The file's layout or the directory's default; `None` if it has none of its own.
///
/// # Errors
/// ENOTTY on another file system than ours, EPROTO for bytes that are no layout, or what the
/// system says.
pub(super) fn layout(path: &Path) -> Result<Option<LovEa>, Errno> {
    match value(path, LAYOUT) {
        Ok(bytes) => LovEa::decode(&bytes).map(Some).map_err(|_| Errno::EPROTO),
        Err(Errno::ENODATA) => Ok(None),
        Err(Errno::EOPNOTSUPP) => Err(Errno::ENOTTY),
        Err(errno) => Err(errno),
    }
}

/// The stripes of a directory; `None` if it lies in one piece.
///
/// # Errors
/// ENOTTY on another file system than ours, and on a mount whose process does not know stripes; EPROTO for bytes that are no
/// stripes; or what the system says.
pub(super) fn stripes(path: &Path) -> Result<Option<(LmvMdsMd, Vec<Fid>)>, Errno> {
    match lmv(path, STRIPES)? {
        None => Ok(None),
        Some(LmvEa::Stripes { header, fids }) => Ok(Some((header, fids))),
        Some(_) => Err(Errno::EPROTO),
    }
}

/// The default of directories that are made in one; `None` if it has none of its own.
///
/// # Errors
/// As [`stripes`].
pub(super) fn default_stripes(path: &Path) -> Result<Option<LmvUserMd>, Errno> {
    match lmv(path, DEFAULT_STRIPES)? {
        None => Ok(None),
        Some(LmvEa::User { header, .. }) => Ok(Some(header)),
        Some(_) => Err(Errno::EPROTO),
    }
}

/// Sets the default of directories that are made in one.
///
/// # Errors
/// As `setxattr(2)`; ENOTTY on another file system than ours.
pub(super) fn set_default_stripes(path: &Path, default: &LmvEa) -> Result<(), Errno> {
    set(path, DEFAULT_STRIPES, &default.encode())
}

fn lmv(path: &Path, name: &str) -> Result<Option<LmvEa>, Errno> {
    match value(path, name) {
        Ok(bytes) => LmvEa::decode(&bytes).map(Some).map_err(|_| Errno::EPROTO),
        Err(Errno::ENODATA) => Ok(None),
        Err(Errno::EOPNOTSUPP) => Err(Errno::ENOTTY),
        Err(errno) => Err(errno),
    }
}

/// What a layout's own attributes do to it, by the end of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds components.
    Add,
    /// Deletes components, by id or flags.
    Delete,
    /// Sets and clears flags of components, by id.
    SetFlags,
}

/// Changes a composite layout.
pub(super) fn change_layout(path: &Path, change: Change, request: &LovEa) -> Result<(), Errno> {
    let name = match change {
        Change::Add => "lustre.lov.add",
        Change::Delete => "lustre.lov.del",
        Change::SetFlags => "lustre.lov.set.flags",
    };
    set(path, name, &request.encode())
}

/// Sets the layout of a file without objects, or a directory's default.
///
/// # Errors
/// EEXIST for a file that has one: without `XATTR_CREATE` that would be none, as for `cp -a`.
pub(super) fn set_layout(path: &Path, request: &LovEa) -> Result<(), Errno> {
    let set =
        |bytes: &[u8]| rustix::fs::setxattr(path, LAYOUT, bytes, XattrFlags::CREATE).map_err(errno);
    refused_elsewhere(path, set(&request.encode()))
}

fn plain_set(path: &Path, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, bytes, XattrFlags::empty()).map_err(errno)
}

fn set(path: &Path, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    refused_elsewhere(path, plain_set(path, name, bytes))
}

/// What our MDT refuses has the same errno as any attribute of ours on another file system: the file's FID
/// distinguishes them.
fn refused_elsewhere(path: &Path, outcome: Result<(), Errno>) -> Result<(), Errno> {
    match outcome {
        Err(Errno::EOPNOTSUPP) if fid(path).is_err() => Err(Errno::ENOTTY),
        outcome => outcome,
    }
}

/// Orders the mount to move a file.
///
/// # Errors
/// EOPNOTSUPP where the file system does not know the order; EBUSY, EINTR, or what moving met.
pub(super) fn order_migration(path: &Path, order: &[u8]) -> Result<(), Errno> {
    plain_set(path, MIGRATE, order)
}

/// How many bytes of a file that is being moved are done, and how many there are.
///
/// # Errors
/// ENODATA if it is not being moved.
pub(super) fn migration(path: &Path) -> Result<(u64, u64), Errno> {
    let bytes = value(path, MIGRATE)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(done), Some(total)) => Ok((done, total)),
        _ => Err(Errno::EPROTO),
    }
}

/// Orders the mount to exchange the layouts of a file and of the one with that FID.
pub(super) fn order_swap(path: &Path, other: &Fid) -> Result<(), Errno> {
    plain_set(path, SWAP_LAYOUTS, other.to_string().as_bytes())
}

/// The flags of a file's heat, and its four numbers.
///
/// # Errors
/// ENOTTY of what has none.
pub(super) fn heat(path: &Path) -> Result<(u64, [u64; 4]), Errno> {
    let bytes = match value(path, HEAT) {
        Err(Errno::EOPNOTSUPP) => return Err(Errno::ENOTTY),
        bytes => bytes?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let numbers: Vec<u64> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [flags, reads, writes, read, written] => Ok((flags, [reads, writes, read, written])),
        _ => Err(Errno::EPROTO),
    }
}

/// The version of a regular file's data, after clients have done what `flush` says: nothing (`n`), have flushed
/// what is dirty (`r`), or have dropped what is cached, too (`w`).
///
/// # Errors
/// ENOTTY of what has none, or what the servers say.
pub(super) fn data_version(path: &Path, flush: char) -> Result<u64, Errno> {
    let bytes = match value(path, &format!("{DATA_VERSION}{flush}")) {
        Err(Errno::EOPNOTSUPP | Errno::ENODATA) => return Err(Errno::ENOTTY),
        bytes => bytes?,
    };
    std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EPROTO)
}

/// Sets the flags of a file's heat.
pub(super) fn set_heat(path: &Path, flags: u64) -> Result<(), Errno> {
    match plain_set(path, HEAT, flags.to_string().as_bytes()) {
        Err(Errno::EOPNOTSUPP) => Err(Errno::ENOTTY),
        done => done,
    }
}

/// Removes a directory's default; that there is none is fine.
pub(super) fn remove_layout(path: &Path) -> Result<(), Errno> {
    match rustix::fs::removexattr(path, LAYOUT).map_err(errno) {
        Err(Errno::ENODATA) => Ok(()),
        Err(Errno::EOPNOTSUPP) => Err(Errno::ENOTTY),
        outcome => outcome,
    }
}

/// An extended attribute: its name and its value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// All extended attributes of a path, not of what a symbolic link there names: names and values.
/// One that went away meanwhile is left out.
///
/// # Errors
/// What the system says; a file system without any has none.
pub(super) fn all(path: &Path) -> Result<Vec<Xattr>, Errno> {
    let mut names = vec![0; VALUE_BYTES_MAX];
    let length = match rustix::fs::llistxattr(path, names.as_mut_slice()).map_err(errno) {
        Err(Errno::EOPNOTSUPP) => return Ok(Vec::new()),
        length => length?,
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; VALUE_BYTES_MAX];
        match rustix::fs::lgetxattr(path, name, value.as_mut_slice()).map_err(errno) {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            Err(Errno::ENODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

/// The file's FID; ENODATA on another file system than ours.
pub(super) fn fid(path: &Path) -> Result<Fid, Errno> {
    let bytes = match value(path, FID) {
        Err(Errno::EOPNOTSUPP) => return Err(Errno::ENODATA),
        bytes => bytes?,
    };
    parsed(&bytes)
}
