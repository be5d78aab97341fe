//! What a change changes, in the words of names and inodes, and its execution.
//!
//! An operation that has looked and may go on says here, step by step, what changes, and has [`Mdt::execute`] do all of
//! it as one transaction with the record of its answer. It shows what it holds ([`crate::hold`]): names and inodes that
//! are not held do not change, which builds for tests assert.
//!
//! A change set *is* the store's transaction that it becomes: nothing is kept twice, nothing copied. What this MDT
//! alone records of a change (objects that are used, what is to be done on OSTs, orphans) goes into the same transaction.

use bytes::Bytes;
use sheen_store::{AttributePatch, Change, Transaction};
use sheen_target::{Context, ReplyRecording, Target, store_errno};
use sheen_types::{Errno, Fid, Name, Timestamp, Transno};
use sheen_wire::ost::OstId;

use crate::directory::{self, Child, parse_key};
use crate::exclusion::ShardSet;
use crate::hold::HoldGuard;
use crate::inode::{Inode, touched};
use crate::placement::{Owner, ReservedObjects};
use crate::{Mdt, xattrs};

/// See the module's documentation.
pub(crate) struct ChangeSet<'a> {
    pub(crate) mdt: &'a Mdt,
    here: Transaction,
    /// Objects that a file gets. Which is the last that is used of an OST is recorded in the order of transactions.
    objects: Option<&'a ReservedObjects>,
}

impl<'a> ChangeSet<'a> {
    /// A directory gets a name that it has not.
    pub(crate) fn insert_name(&mut self, directory: Fid, name: &Name, child: Child) {
        let (key, value) = (directory::key(name.as_bytes()), directory::value(child));
        self.here.insert(directory, key, value);
        self.mdt.count_name(directory);
    }

    /// A name stands for this from now on, whether it was there or not.
    pub(crate) fn put_name(&mut self, directory: Fid, name: &Name, child: Child) {
        let (key, value) = (directory::key(name.as_bytes()), directory::value(child));
        self.here.put(directory, key, value);
    }

    /// A directory loses a name.
    pub(crate) fn delete_name(&mut self, directory: Fid, name: &Name) {
        self.here.delete(directory, directory::key(name.as_bytes()));
    }

    /// A directory loses the name of a key.
    pub(crate) fn delete_key(&mut self, directory: Fid, key: Bytes) {
        self.here.delete(directory, key);
    }

    /// A name changed in a directory, which gains or loses so many subdirectories.
    pub(crate) fn touch(&mut self, directory: Fid, now: Timestamp, links_added: i32) {
        self.here.patch(directory, touched(now, links_added));
    }

    /// Adds a new inode.
    pub(crate) fn create(&mut self, inode: &Inode) {
        self.here.create(inode.fid, inode.attributes.clone());
    }

    /// An inode is no more, nor anything of it on this MDT.
    pub(crate) fn destroy_inode(&mut self, inode: Fid) {
        self.here.destroy(inode);
    }

    /// Attributes change.
    pub(crate) fn patch(&mut self, inode: Fid, patch: AttributePatch) {
        self.here.patch(inode, patch);
    }

    /// An inode gains or loses links, by the count alone.
    pub(crate) fn add_links(&mut self, inode: Fid, links_added: i32) {
        self.here.patch(inode, AttributePatch { links_added, ..AttributePatch::default() });
    }

    /// An extended attribute is set.
    pub(crate) fn set_xattr(&mut self, inode: Fid, name: &str, value: Bytes) {
        self.here.set_xattr(inode, name, value);
    }

    /// An extended attribute is removed, if it is there.
    pub(crate) fn remove_xattr(&mut self, inode: Fid, name: &str) {
        self.here.remove_xattr(inode, name);
    }

    /// Two files exchange the data that they have on this MDT.
    pub(crate) fn exchange_data(&mut self, first: Fid, second: Fid) {
        self.here.exchange(first, second);
    }

    /// A file gets a layout with objects that were reserved for it.
    pub(crate) fn use_objects(&mut self, file: Fid, objects: &'a ReservedObjects) {
        debug_assert!(self.objects.is_none(), "one file gets objects");
        self.here.set_xattr(file, xattrs::LOV, objects.layout().clone());
        self.objects = Some(objects);
    }

    /// Objects are to be destroyed.
    pub(crate) fn destroy_objects(&mut self, objects: &[(u16, OstId)]) {
        self.mdt.placement.destroy_objects_later(&mut self.here, objects);
    }

    /// The objects of a layout are to be destroyed.
    pub(crate) fn destroy_objects_of(&mut self, layout: &Bytes) {
        self.mdt.placement.destroy_later(&mut self.here, layout);
    }

    /// The objects of a layout are to get an owner.
    pub(crate) fn set_owner_of_objects(&mut self, layout: &Bytes, owner: Owner) {
        self.mdt.placement.set_owner_later(&mut self.here, layout, owner);
    }

    /// A key of an index that this MDT alone has.
    pub(crate) fn insert_own(&mut self, index: Fid, key: Bytes) {
        debug_assert!(!index.is_of_mdt(), "{index} may be a client's directory");
        self.here.insert(index, key, Bytes::new());
    }

    /// Deletes a key of an index that this MDT alone has.
    pub(crate) fn delete_own(&mut self, index: Fid, key: Bytes) {
        debug_assert!(!index.is_of_mdt(), "{index} may be a client's directory");
        self.here.delete(index, key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.here.changes.is_empty() && self.objects.is_none()
    }

    /// What becomes one transaction, in whose order this is called.
    pub(crate) fn into_transaction(mut self) -> Transaction {
        if let Some(objects) = self.objects {
            objects.record(&mut self.here);
        }
        self.here
    }

    /// What must be held for it: its names and inodes, but for inodes that it makes itself, whose FIDs no other operation
    /// knows. A directory that is only touched is shared: times are taken as they come, and links counted.
    pub(crate) fn shards(&self) -> ShardSet {
        let makes = |fid| {
            let made =
                |change: &Change| matches!(change, Change::Create { object, .. } if *object == fid);
            self.here.changes.iter().any(made)
        };
        let change = |shards: ShardSet, fid: Fid| match makes(fid) {
            true => shards,
            false => shards.change_inode(fid),
        };
        let named = |shards: ShardSet, index: Fid, key: &Bytes| match parse_key(key) {
            Some((_, name)) if index.is_of_mdt() => shards.change_name(index, &name),
            _ => shards,
        };
        self.here.changes.iter().fold(ShardSet::new(), |shards, step| match step {
            Change::Patch { object, patch } if is_touch(patch) => shards.keep_inode(*object),
            Change::Patch { object, .. }
            | Change::SetXattr { object, .. }
            | Change::Destroy { object } => change(shards, *object),
            Change::Exchange { first, second } => change(change(shards, *first), *second),
            Change::Insert { index, key, .. }
            | Change::Put { index, key, .. }
            | Change::Delete { index, key } => named(shards, *index, key),
            Change::Create { .. } => shards,
        })
    }
}

impl Mdt {
    /// Nothing yet.
    pub(crate) fn change_set(&self) -> ChangeSet<'_> {
        ChangeSet { mdt: self, here: Transaction::new(), objects: None }
    }

    /// Executes what a request changes, with the record of its answer: once for each request, after all that may
    /// refuse it. See [`Target::transact`] for replays.
    ///
    /// # Errors
    /// Those of the store; then nothing was changed.
    pub(crate) fn execute(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        changes: ChangeSet<'_>,
        recording: ReplyRecording,
    ) -> Result<Transno, Errno> {
        debug_assert!(held.covers(changes.shards()), "is not held: {:?}", changes.here);
        let build = |_| changes.into_transaction();
        context.target.transact_with(context, recording, build).map_err(store_errno)
    }

    /// Executes a change of the MDT's own: no client will ask for its answer.
    ///
    /// # Errors
    /// As [`Mdt::execute`].
    pub(crate) fn execute_locally(
        &self,
        target: &Target,
        held: &HoldGuard<'_>,
        changes: ChangeSet<'_>,
    ) -> Result<Transno, Errno> {
        debug_assert!(held.covers(changes.shards()), "is not held: {:?}", changes.here);
        debug_assert!(changes.objects.is_none(), "built before its place in the order is known");
        target.transact_locally(changes.into_transaction()).map_err(store_errno)
    }

    /// Records the answer of a request that changes nothing, or nothing again.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn record_answer(
        &self,
        context: &Context,
        recording: ReplyRecording,
    ) -> Result<Transno, Errno> {
        context.target.transact(context, Transaction::new(), recording).map_err(store_errno)
    }
}

fn is_touch(patch: &AttributePatch) -> bool {
    patch.modified.is_some_and(|now| *patch == touched(now, patch.links_added))
}
