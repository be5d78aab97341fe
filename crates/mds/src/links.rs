//! The link EA: the names of an inode, seen from the inode (Lustre's `trusted.link`).
//!
//! A directory has exactly one entry; it is where `..` leads. A file's may be incomplete: names
//! that do not fit are left out, as in Lustre.

use bytes::Bytes;
use sheen_store::{StoreError, Transaction};
use sheen_target::store_errno;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{LinkEa, LinkEntry};

use crate::{Mdt, dot_lustre, xattrs};

/// Bytes of a link EA at most, as Lustre's (`MAX_LINKEA_SIZE`).
const BYTES_MAX: usize = 4096;

/// The link EA of a new inode.
pub(crate) fn first(parent: Fid, name: &[u8]) -> Bytes {
    let entry = LinkEntry { parent, name: Bytes::copy_from_slice(name) };
    LinkEa { entries: vec![entry], ..LinkEa::default() }.encode()
}

/// The link EA of an inode with these names, as many as fit.
pub(crate) fn of(names: &[(Fid, Bytes)]) -> Bytes {
    let mut links = LinkEa::default();
    for (parent, name) in names {
        links.entries.push(LinkEntry { parent: *parent, name: name.clone() });
        if links.encode().len() > BYTES_MAX {
            links.entries.pop();
            links.overflow_time = u32::MAX;
            break;
        }
    }
    links.encode()
}

impl Mdt {
    /// All known names of an inode.
    pub(crate) fn links(&self, fid: Fid) -> Result<LinkEa, Errno> {
        if dot_lustre::is(fid) {
            return Ok(dot_lustre::links(fid));
        }
        let value = self.store.xattr(fid, xattrs::LINK).map_err(store_errno)?;
        match value {
            Some(value) => LinkEa::decode(&value).map_err(|error| {
                store_errno(StoreError::Corrupt(format!("the list of the names of {fid}: {error}")))
            }),
            None => Ok(LinkEa::default()),
        }
    }

    /// The parent of a directory; the root's is itself.
    pub(crate) fn parent(&self, directory: Fid) -> Result<Fid, Errno> {
        if directory == Fid::ROOT {
            return Ok(directory);
        }
        self.links(directory)?.entries.first().map(|entry| entry.parent).ok_or(Errno::ENOENT)
    }

    /// Adds the change of an inode's names: one gone, one new.
    pub(crate) fn relink(
        &self,
        transaction: &mut Transaction,
        fid: Fid,
        gone: Option<(Fid, &[u8])>,
        new: Option<(Fid, &[u8])>,
    ) -> Result<(), Errno> {
        let mut links = self.links(fid)?;
        if let Some((parent, name)) = gone {
            links.entries.retain(|entry| entry.parent != parent || entry.name != name);
        }
        if let Some((parent, name)) = new {
            links.entries.push(LinkEntry { parent, name: Bytes::copy_from_slice(name) });
            if links.encode().len() > BYTES_MAX {
                links.entries.pop();
                links.overflow_time = u32::MAX;
            }
        }
        transaction.set_xattr(fid, xattrs::LINK, links.encode());
        Ok(())
    }
}
