//! The link EA: the names of an inode, seen from the inode (Lustre's `trusted.link`).
//!
//! A directory has exactly one entry; it is where `..` leads. A file's may be incomplete: names
//! that do not fit are left out, as in Lustre.

use bytes::Bytes;
use sheen_store::StoreError;
use sheen_target::store_errno;
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::{LinkEa, LinkEntry};

use crate::change_set::ChangeSet;
use crate::inode::relinked;
use crate::{Mdt, xattrs};

/// Bytes of a link EA at most, as Lustre's (`MAX_LINKEA_SIZE`).
const BYTES_MAX: usize = 4096;

/// The link EA of a new inode.
pub(crate) fn first(parent: Fid, name: &[u8]) -> Bytes {
    let entry = LinkEntry { parent, name: Bytes::copy_from_slice(name) };
    LinkEa { entries: vec![entry], ..LinkEa::default() }.encode()
}

/// A name is gone.
pub(crate) fn remove(links: &mut LinkEa, parent: Fid, name: &Name) {
    let name = name.as_bytes();
    links.entries.retain(|entry| entry.parent != parent || entry.name != name);
}

/// A name has come; it is left out if it does not fit.
pub(crate) fn add(links: &mut LinkEa, parent: Fid, name: &Name) {
    let name = Bytes::copy_from_slice(name.as_bytes());
    links.entries.push(LinkEntry { parent, name });
    if links.encode().len() > BYTES_MAX {
        links.entries.pop();
        links.overflow_time = u32::MAX;
    }
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
}

impl ChangeSet<'_> {
    /// Names of an inode change: one is gone, one has come.
    pub(crate) fn relink(
        &mut self,
        inode: Fid,
        now: Timestamp,
        gone: Option<(Fid, &Name)>,
        come: Option<(Fid, &Name)>,
    ) -> Result<(), Errno> {
        self.patch(inode, relinked(now, i32::from(come.is_some()) - i32::from(gone.is_some())));
        let mut links = self.mdt.links(inode)?;
        if let Some((parent, name)) = gone {
            remove(&mut links, parent, name);
        }
        if let Some((parent, name)) = come {
            add(&mut links, parent, name);
        }
        self.set_xattr(inode, xattrs::LINK, links.encode());
        Ok(())
    }
}
