//! `.lustre`: a directory of the root that no listing has, and in it `fid`, where each inode has its FID as its name.
//!
//! Both are inodes as any other, so that clients lock and describe them. The name `.lustre` is in no index, and the names
//! in `fid` are in none either: they are read as FIDs. Nothing is made, moved or removed in them.

use sheen_store::{Attributes, FileKind, Store, StoreError, Transaction};
use sheen_types::{Errno, Fid, Name, Timestamp};

use crate::directory::{self, Child};
use crate::inode::DIRECTORY_BYTES;
use crate::{Mdt, links, xattrs};

/// Its name in the root.
const NAME: &[u8] = b".lustre";
/// The name in it of the directory of all FIDs.
const FID_NAME: &[u8] = b"fid";
/// Both directories, with their permissions and links, as Lustre has them.
const DIRECTORIES: [(Fid, u32, u32); 2] =
    [(Fid::DOT_LUSTRE, 0o755, 3), (Fid::DOT_LUSTRE_FID, 0o100, 2)];

/// Makes the directories in a store that has not both.
pub(crate) fn format(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    let mut transaction = Transaction::new();
    let mut is_whole = true;
    for (fid, permissions, links) in DIRECTORIES {
        match store.attributes(fid) {
            Err(StoreError::NoObject(_)) => {
                is_whole = false;
                transaction.create(fid, attributes(permissions, links, now));
            }
            found => _ = found?,
        }
    }
    if is_whole {
        return Ok(());
    }
    let child = Child { fid: Fid::DOT_LUSTRE_FID, kind: FileKind::Directory };
    transaction.put(Fid::DOT_LUSTRE, directory::key(FID_NAME), directory::value(child));
    for (fid, parent, name) in
        [(Fid::DOT_LUSTRE, Fid::ROOT, NAME), (Fid::DOT_LUSTRE_FID, Fid::DOT_LUSTRE, FID_NAME)]
    {
        transaction.set_xattr(fid, xattrs::LINK, links::first(parent, name));
    }
    store.apply(transaction).map(|_| ())
}

fn attributes(permissions: u32, links: u32, now: Timestamp) -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        permissions,
        links,
        size: DIRECTORY_BYTES,
        blocks: DIRECTORY_BYTES / 512,
        born: now,
        ..Attributes::default()
    }
}

/// Whether a FID is that of one of the directories.
pub(crate) fn is_dot_lustre(fid: Fid) -> bool {
    fid == Fid::DOT_LUSTRE || fid == Fid::DOT_LUSTRE_FID
}

/// Refuses a change of the entry `name` of `directory`, as Lustre does.
pub(crate) fn refuse_change(directory: Fid, name: &Name) -> Result<(), Errno> {
    let is_its_name = directory == Fid::ROOT && name.as_bytes() == NAME;
    match is_dot_lustre(directory) || is_its_name {
        true => Err(Errno::EPERM),
        false => Ok(()),
    }
}

/// Refuses a layout or an extended attribute for one of the directories. Mode, owner and times may be set: that is how
/// users other than root get at files by their FIDs.
pub(crate) fn refuse_dot_lustre(fid: Fid) -> Result<(), Errno> {
    if is_dot_lustre(fid) { Err(Errno::EPERM) } else { Ok(()) }
}

impl Mdt {
    /// Finds what a name stands for that is in no index.
    pub(crate) fn find_unlisted(
        &self,
        directory: Fid,
        name: &[u8],
    ) -> Result<Option<Child>, Errno> {
        let fid = match directory {
            Fid::ROOT if name == NAME => Fid::DOT_LUSTRE,
            Fid::DOT_LUSTRE_FID => match named(name) {
                Some(fid) => fid,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        match self.inode(fid) {
            Ok(inode) => Ok(Some(Child { fid, kind: inode.attributes.kind })),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// The FID that a name is, with or without brackets.
fn named(name: &[u8]) -> Option<Fid> {
    std::str::from_utf8(name).ok()?.parse().ok()
}
