//! `.lustre` in the root, and `.lustre/fid`, in which every inode has its FID for a name (Lustre's "open by FID").
//!
//! Both are made up: nothing of them lies in the store, no directory lists them but `.lustre` its `fid`, and nothing in
//! them, nor they themselves, can be changed. Only root may search `fid`, whose names lead past the rights of all
//! directories above.

use std::str::FromStr;

use bytes::Bytes;
use sheen_store::{Attributes, FileKind};
use sheen_types::{Errno, Fid, fid_seq};
use sheen_wire::md::{LinkEa, LinkEntry};

use crate::Mdt;
use crate::directory::Child;
use crate::inode::DIRECTORY_BYTES;

/// The name of `.lustre`, in the root.
const NAME: &[u8] = b".lustre";
/// The name of the directory of FIDs, in `.lustre`.
pub(crate) const FIDS: &[u8] = b"fid";

/// Whether an inode is one of the two.
pub(crate) fn is(fid: Fid) -> bool {
    fid.seq == fid_seq::DOT_LUSTRE
}

/// An inode that is asked to change must be another.
///
/// # Errors
/// [`Errno::EPERM`].
pub(crate) fn must_not_be(fid: Fid) -> Result<(), Errno> {
    if is(fid) { Err(Errno::EPERM) } else { Ok(()) }
}

/// The attributes of one of the two; `None` for what is neither.
pub(crate) fn attributes(fid: Fid) -> Option<Attributes> {
    let permissions = match fid {
        Fid::DOT_LUSTRE => 0o755,
        Fid::DOT_LUSTRE_FID => 0o100,
        _ => return None,
    };
    Some(Attributes {
        kind: FileKind::Directory,
        permissions,
        links: 2,
        size: DIRECTORY_BYTES,
        blocks: DIRECTORY_BYTES / 512,
        ..Attributes::default()
    })
}

/// The name of one of the two.
pub(crate) fn links(fid: Fid) -> LinkEa {
    let (parent, name) = match fid {
        Fid::DOT_LUSTRE => (Fid::ROOT, NAME),
        _ => (Fid::DOT_LUSTRE, FIDS),
    };
    LinkEa {
        entries: vec![LinkEntry { parent, name: Bytes::from_static(name) }],
        ..LinkEa::default()
    }
}

impl Mdt {
    /// What a name stands for that no directory has; `None` where the directory has to be looked into.
    pub(crate) fn made_up_child(
        &self,
        directory: Fid,
        name: &[u8],
    ) -> Result<Option<Option<Child>>, Errno> {
        let fid = match (directory, name) {
            (Fid::ROOT, NAME) => Fid::DOT_LUSTRE,
            (Fid::DOT_LUSTRE, FIDS) => Fid::DOT_LUSTRE_FID,
            (Fid::DOT_LUSTRE_FID, name) => match named(name) {
                Some(fid) => fid,
                None => return Ok(Some(None)),
            },
            (directory, _) if is(directory) => return Ok(Some(None)),
            _ => return Ok(None),
        };
        match self.inode(fid) {
            Ok(inode) => Ok(Some(Some(Child { fid, kind: inode.attributes.kind }))),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(Some(None)),
            Err(errno) => Err(errno),
        }
    }
}

/// The FID that a name is, with or without brackets.
fn named(name: &[u8]) -> Option<Fid> {
    let text = std::str::from_utf8(name).ok()?;
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    Fid::from_str(&format!("[{bare}]")).ok()
}
