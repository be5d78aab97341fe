//! What coordinators read of this MDT without excluding it.

use std::sync::Arc;

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind};
use sheen_target::{StoreKey, Target, store_errno};
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::Valid;
use sheen_wire::ost::{Obdo, ObdoFlags};
use sheen_wire::out::{InodeAttributes, NamedInode, PARENTS_MAX, Parents};
use sheen_wire::text::Text;

use super::exclude::named_inode;
use crate::Mdt;
use crate::distributed_exclusions::KeyRef;

/// All attributes, as MDTs say them to each other.
#[must_use]
pub(crate) fn wire_attributes(attributes: &Attributes) -> InodeAttributes {
    let obdo = Obdo {
        valid: InodeAttributes::VALID,
        size: attributes.size,
        mtime: attributes.modified.seconds,
        atime: attributes.accessed.seconds,
        ctime: attributes.changed.seconds,
        blocks: attributes.blocks,
        mode: attributes.kind.mode_bits() | attributes.permissions,
        uid: attributes.uid,
        gid: attributes.gid,
        flags: ObdoFlags(attributes.flags),
        nlink: attributes.links,
        projid: attributes.project,
        ..Obdo::default()
    };
    InodeAttributes { obdo, born: attributes.born.seconds, device: attributes.device }
}

/// What [`wire_attributes`] was made of; `None` if that is no inode.
#[must_use]
pub(crate) fn attributes_of(said: &InodeAttributes) -> Option<Attributes> {
    let obdo = &said.obdo;
    if !obdo.valid.contains(InodeAttributes::VALID) {
        return None;
    }
    Some(Attributes {
        kind: FileKind::from_mode(obdo.mode)?,
        permissions: obdo.mode & 0o7777,
        uid: obdo.uid,
        gid: obdo.gid,
        project: obdo.projid,
        links: obdo.nlink,
        size: obdo.size,
        blocks: obdo.blocks,
        device: said.device,
        flags: obdo.flags.0,
        accessed: Timestamp::from_seconds(obdo.atime),
        modified: Timestamp::from_seconds(obdo.mtime),
        changed: Timestamp::from_seconds(obdo.ctime),
        born: Timestamp::from_seconds(said.born),
        version: 0,
    })
}

/// The attributes that an update changes.
pub(super) fn patch_of(said: &Obdo) -> AttributePatch {
    fn when<T>(said: &Obdo, flag: Valid, value: T) -> Option<T> {
        said.valid.contains(flag).then_some(value)
    }
    let time = |flag, seconds| when(said, flag, Timestamp::from_seconds(seconds));
    AttributePatch {
        permissions: when(said, Valid::MODE, said.mode & 0o7777),
        uid: when(said, Valid::UID, said.uid),
        gid: when(said, Valid::GID, said.gid),
        project: when(said, Valid::PROJID, said.projid),
        size: when(said, Valid::SIZE, said.size),
        blocks: when(said, Valid::BLOCKS, said.blocks),
        flags: when(said, Valid::FLAGS, said.flags.0),
        accessed: time(Valid::ATIME, said.atime),
        modified: time(Valid::MTIME, said.mtime),
        changed: time(Valid::CTIME, said.ctime),
        ..AttributePatch::default()
    }
}

/// What [`patch_of`] reads as these changes.
#[must_use]
pub(crate) fn obdo_of(patch: &AttributePatch) -> Obdo {
    let mut said = Obdo::default();
    let mut set = |flag, is_set: bool| {
        if is_set {
            said.valid |= flag;
        }
    };
    set(Valid::MODE, patch.permissions.is_some());
    set(Valid::UID, patch.uid.is_some());
    set(Valid::GID, patch.gid.is_some());
    set(Valid::PROJID, patch.project.is_some());
    set(Valid::SIZE, patch.size.is_some());
    set(Valid::BLOCKS, patch.blocks.is_some());
    set(Valid::FLAGS, patch.flags.is_some());
    set(Valid::ATIME, patch.accessed.is_some());
    set(Valid::MTIME, patch.modified.is_some());
    set(Valid::CTIME, patch.changed.is_some());
    let seconds = |time: Option<Timestamp>| time.map_or(0, |time| time.seconds);
    Obdo {
        mode: patch.permissions.unwrap_or_default(),
        uid: patch.uid.unwrap_or_default(),
        gid: patch.gid.unwrap_or_default(),
        projid: patch.project.unwrap_or_default(),
        size: patch.size.unwrap_or_default(),
        blocks: patch.blocks.unwrap_or_default(),
        flags: ObdoFlags(patch.flags.unwrap_or_default()),
        atime: seconds(patch.accessed),
        mtime: seconds(patch.modified),
        ctime: seconds(patch.changed),
        ..said
    }
}

impl Mdt {
    /// What a name stands for; the next moment it may be something else.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if directory or name is absent, [`Errno::ENOTDIR`], those of the store.
    pub(super) async fn read_name(&self, directory: Fid, name: &Name) -> Result<NamedInode, Errno> {
        let exclusions = &self.exclusion.distributed;
        exclusions.until_visible(KeyRef::Name(directory, name.as_bytes())).await;
        self.directory(directory)?;
        self.check_place(directory, name.as_bytes())?;
        let child = self.find(directory, name)?.ok_or(Errno::ENOENT)?;
        Ok(named_inode(Some(child)))
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// Those of [`Mdt::inode`].
    pub(super) async fn read_attributes(&self, fid: Fid) -> Result<InodeAttributes, Errno> {
        self.exclusion.distributed.until_visible(KeyRef::Inode(fid)).await;
        Ok(wire_attributes(&self.inode(fid)?.attributes))
    }

    /// An extended attribute. Also of an inode whose exclusion has had no room for it: to its own coordinator nothing is hidden, as
    /// that has not sent its part yet.
    ///
    /// # Errors
    /// [`Errno::ENODATA`] if it is absent, those of [`Mdt::inode`].
    pub(super) async fn read_xattr(&self, fid: Fid, name: &Text) -> Result<Bytes, Errno> {
        let name = name.to_text();
        let read = || {
            self.inode(fid)?;
            self.store.xattr(fid, &name).map_err(store_errno)
        };
        let value = self.exclusion.distributed.shown(KeyRef::Inode(fid), read).await?;
        value.ok_or(Errno::ENODATA)
    }

    /// The names of all extended attributes, each with a zero byte behind it.
    ///
    /// # Errors
    /// Those of [`Mdt::inode`].
    pub(super) fn read_xattr_names(&self, fid: Fid) -> Result<Bytes, Errno> {
        let whole = self.whole_inode(fid)?;
        let names = whole.xattrs.names().flat_map(|name| [name.as_bytes(), &[0]].concat());
        Ok(names.collect::<Vec<u8>>().into())
    }

    /// The way up from a directory, until the root or another MDT's directory. It is durable when this completes: a move that
    /// is lost would lead another way. Stays true as long as the caller has the rename lock.
    ///
    /// # Errors
    /// [`Errno::ENOTDIR`], those of the store.
    pub(super) async fn read_parents(
        &self,
        target: &Arc<Target>,
        from: Fid,
    ) -> Result<Parents, Errno> {
        self.exclusion.distributed.until_visible(KeyRef::Inode(from)).await;
        let (mut above, mut at) = (Vec::new(), from);
        let mut keys = Vec::new();
        while at != Fid::ROOT && !self.is_remote(at) && above.len() < PARENTS_MAX {
            self.directory(at)?;
            keys.push(StoreKey::Object(at));
            at = self.parent(at)?;
            above.push(at);
        }
        target.wait_until_durable(target.dependencies(&keys)).await?;
        Ok(Parents { starts: target.incarnation().starts, time: target.logical_time(), above })
    }
}
