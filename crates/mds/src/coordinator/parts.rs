//! The parts of a change over several MDTs, in the words of names and inodes.
//!
//! That of this MDT is made of the same updates as those of other MDTs: they are in the record, from which it is redone if this MDT
//! loses it.

use std::collections::BTreeMap;

use sheen_types::{Errno, Fid, MdtIndex, Name, Timestamp};
use sheen_wire::md::Valid;
use sheen_wire::ost::Obdo;
use sheen_wire::out::ObjectUpdate;
use sheen_wire::update_record::Part;

use super::initiator::Initiator;
use crate::Mdt;
use crate::directory::Child;
use crate::inode::Inode;
use crate::participant::wire_attributes;

/// See the module's documentation.
pub(super) struct Parts<'a> {
    pub(super) mdt: &'a Mdt,
    by: Initiator<'a>,
    by_mdt: BTreeMap<MdtIndex, Vec<ObjectUpdate>>,
}

impl<'a> Parts<'a> {
    /// Nothing yet, but that this MDT takes part.
    pub(super) fn new(mdt: &'a Mdt, by: Initiator<'a>) -> Self {
        let by_mdt = BTreeMap::from([(MdtIndex(mdt.index), Vec::new())]);
        Self { mdt, by, by_mdt }
    }

    async fn on(&mut self, inode: Fid) -> Result<&mut Vec<ObjectUpdate>, Errno> {
        let mdt = self.mdt.mdt_of(self.by.target(), inode).await?;
        Ok(self.by_mdt.entry(mdt).or_default())
    }

    pub(super) async fn add(&mut self, inode: Fid, update: ObjectUpdate) -> Result<(), Errno> {
        self.on(inode).await?.push(update);
        Ok(())
    }

    /// Adds a new inode, with a name.
    pub(super) async fn create(
        &mut self,
        inode: &Inode,
        xattrs: &[(String, bytes::Bytes)],
        (parent, name): (Fid, &Name),
    ) -> Result<(), Errno> {
        let updates = self.on(inode.fid).await?;
        updates.push(ObjectUpdate::create(inode.fid, &wire_attributes(&inode.attributes), parent));
        for (name, value) in xattrs {
            updates.push(ObjectUpdate::xattr_set(inode.fid, name, value));
        }
        updates.push(ObjectUpdate::link_add(inode.fid, parent, name));
        Ok(())
    }

    /// A directory gets a name that it has not.
    pub(super) async fn insert_name(
        &mut self,
        directory: Fid,
        name: &Name,
        child: Child,
    ) -> Result<(), Errno> {
        let mode = child.kind.mode_bits();
        self.add(directory, ObjectUpdate::index_insert(directory, name, child.fid, mode)).await
    }

    /// A directory loses a name.
    pub(super) async fn delete_name(&mut self, directory: Fid, name: &Name) -> Result<(), Errno> {
        self.add(directory, ObjectUpdate::index_delete(directory, name)).await
    }

    /// A name changed in a directory, which gains or loses so many subdirectories.
    pub(super) async fn touch(
        &mut self,
        directory: Fid,
        now: Timestamp,
        links_added: i32,
    ) -> Result<(), Errno> {
        let times = Obdo { mtime: now.seconds, ..changed(now) };
        let times = Obdo { valid: times.valid | Valid::MTIME, ..times };
        self.add(directory, ObjectUpdate::attr_set(directory, &times)).await?;
        self.add_links(directory, links_added).await
    }

    /// An inode gains so many links, or loses them.
    pub(super) async fn add_links(&mut self, inode: Fid, added: i32) -> Result<(), Errno> {
        for _ in 0..added.unsigned_abs() {
            let update = match added > 0 {
                true => ObjectUpdate::ref_add(inode),
                false => ObjectUpdate::ref_del(inode),
            };
            self.add(inode, update).await?;
        }
        Ok(())
    }

    /// Names of an inode change: one is gone, one has come.
    pub(super) async fn relink(
        &mut self,
        inode: Fid,
        now: Timestamp,
        gone: Option<(Fid, &Name)>,
        come: Option<(Fid, &Name)>,
    ) -> Result<(), Errno> {
        self.add(inode, ObjectUpdate::attr_set(inode, &changed(now))).await?;
        self.add_links(inode, i32::from(come.is_some()) - i32::from(gone.is_some())).await?;
        if let Some((parent, name)) = gone {
            self.add(inode, ObjectUpdate::link_del(inode, parent, name)).await?;
        }
        if let Some((parent, name)) = come {
            self.add(inode, ObjectUpdate::link_add(inode, parent, name)).await?;
        }
        Ok(())
    }

    /// An inode loses one of its names, maybe its last.
    pub(super) async fn lose_name(
        &mut self,
        inode: &Inode,
        name: (Fid, &Name),
        now: Timestamp,
    ) -> Result<(), Errno> {
        match inode.has_one_name() {
            true => self.add(inode.fid, ObjectUpdate::destroy(inode.fid)).await,
            false => self.relink(inode.fid, now, Some(name), None).await,
        }
    }

    /// What each MDT changes.
    pub(super) fn into_parts(self) -> Vec<Part> {
        self.by_mdt.into_iter().map(|(mdt, updates)| Part { mdt, updates }).collect()
    }
}

/// The time of a change of an inode.
fn changed(now: Timestamp) -> Obdo {
    Obdo { valid: Valid::CTIME, ctime: now.seconds, ..Obdo::default() }
}
