//! A new inode: what it is made from, and itself before it is in the store.

use bytes::Bytes;
use sheen_store::FileKind;
use sheen_types::{Fid, Name, Timestamp};
use sheen_wire::md::RecCreate;
use sheen_wire::text::Text;

use crate::caller::Caller;
use crate::change_set::ChangeSet;
use crate::directory::Child;
use crate::inode::Inode;
use crate::links;
use crate::placement::ReservedObjects;
use crate::xattrs::LINK;

/// What a new inode is made from.
pub(crate) struct CreateSpec<'a> {
    pub(crate) fid: Fid,
    pub(crate) caller: Caller,
    /// With type bits.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) device: u64,
    pub(crate) now: Timestamp,
    /// Target of a symbolic link.
    pub(crate) target: Option<Bytes>,
    /// Name and value of a security attribute to begin with.
    pub(crate) security: Option<(&'a Text, &'a Bytes)>,
    /// Where a regular file's data lies.
    pub(crate) objects: Option<ReservedObjects>,
    /// A directory whose creator has said where it lies: it inherits no default of that kind.
    pub(crate) has_wish: bool,
}

/// A new inode before it is in the store.
pub(crate) struct NewInode {
    pub(crate) inode: Inode,
    pub(crate) xattrs: Vec<(String, Bytes)>,
    pub(crate) objects: Option<ReservedObjects>,
}

impl<'a> CreateSpec<'a> {
    pub(crate) fn of(record: &RecCreate) -> Self {
        Self {
            fid: record.fid2,
            caller: Caller::from(record),
            mode: record.mode,
            umask: record.umask,
            device: record.rdev,
            now: Timestamp::from_seconds(record.time),
            target: None,
            security: None,
            objects: None,
            has_wish: false,
        }
    }

    /// A copy, of an inode without objects, to be made once more.
    pub(crate) fn again(&self) -> Self {
        Self { caller: self.caller.clone(), target: self.target.clone(), objects: None, ..*self }
    }
}

impl NewInode {
    /// Adds everything about the inode but its name.
    pub(crate) fn add_inode<'a>(&'a self, changes: &mut ChangeSet<'a>) {
        let fid = self.inode.fid;
        changes.create(&self.inode);
        for (name, value) in &self.xattrs {
            changes.set_xattr(fid, name, value.clone());
        }
        if let Some(objects) = &self.objects {
            changes.use_objects(fid, objects);
        }
    }

    /// Adds the inode and its name in `parent`.
    pub(crate) fn add<'a>(&'a self, changes: &mut ChangeSet<'a>, parent: Fid, name: &Name) {
        self.add_inode(changes);
        let child = Child { fid: self.inode.fid, kind: self.inode.attributes.kind };
        changes.set_xattr(child.fid, LINK, links::first(parent, name.as_bytes()));
        changes.insert_name(parent, name, child);
        let subdirectories = i32::from(child.kind == FileKind::Directory);
        changes.touch(parent, self.inode.attributes.changed, subdirectories);
    }

    pub(crate) fn layout(&self) -> Option<Bytes> {
        self.objects.as_ref().map(|objects| objects.layout().clone())
    }
}
