//! Inodes without a name (Lustre's `PENDING`).
//!
//! A file that is unlinked while open goes into the orphan index in the transaction of the unlink,
//! and is destroyed by its last close. After a crash opens are replayed; when recovery has ended,
//! whatever in the index is not open again is destroyed.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use sheen_store::{AttributePatch, FileKind, Store, StoreError, all_entries};
use sheen_target::{Target, store_errno};
use sheen_types::{Errno, Fid, InodeBits, LockMode, ResourceName, fid_seq};

use crate::Mdt;
use crate::change_set::ChangeSet;
use crate::inode::Inode;

/// Index of orphans: FID, big-endian, to nothing.
pub(crate) const ORPHANS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x201);

/// A FID as a key that sorts.
pub(crate) fn fid_key(fid: Fid) -> Bytes {
    let mut key = Vec::with_capacity(16);
    key.extend_from_slice(&fid.seq.to_be_bytes());
    key.extend_from_slice(&fid.oid.to_be_bytes());
    key.extend_from_slice(&fid.ver.to_be_bytes());
    key.into()
}

/// The FID of a key.
pub(crate) fn parse_fid_key(key: &[u8]) -> Option<Fid> {
    let (seq, rest) = key.split_first_chunk()?;
    let (oid, rest) = rest.split_first_chunk()?;
    let ver = rest.try_into().ok()?;
    Some(Fid {
        seq: u64::from_be_bytes(*seq),
        oid: u32::from_be_bytes(*oid),
        ver: u32::from_be_bytes(ver),
    })
}

/// All orphans.
pub(crate) fn list(store: &dyn Store) -> Result<Vec<Fid>, StoreError> {
    let fids = all_entries(store, ORPHANS, &[]).map(|entry| Ok(parse_fid_key(&entry?.key)));
    fids.filter_map(Result::transpose).collect()
}

impl ChangeSet<'_> {
    /// The last name of an inode goes: it waits for its last close, or is destroyed, its objects with it.
    pub(crate) fn lose_last_name(&mut self, inode: &Inode) -> Result<(), Errno> {
        match self.mdt.open_counts.is_open(inode.fid) {
            true => self.become_orphan(inode),
            false => return self.destroy(inode),
        }
        Ok(())
    }

    /// The last name of an inode goes, and it waits for its last close.
    pub(crate) fn become_orphan(&mut self, inode: &Inode) {
        let links_added = -i32::try_from(inode.attributes.links).unwrap_or(i32::MAX);
        self.patch(inode.fid, AttributePatch { links_added, ..AttributePatch::default() });
        self.add_orphan(inode.fid);
        self.mdt.close_cached_opens_of(inode.fid);
    }

    /// An inode waits without a name for its last close.
    pub(crate) fn add_orphan(&mut self, inode: Fid) {
        self.insert_own(ORPHANS, fid_key(inode));
    }

    /// An orphan is none any more.
    fn forget_orphan(&mut self, inode: Fid) {
        self.delete_own(ORPHANS, fid_key(inode));
    }

    /// An inode goes, and its objects with it.
    pub(crate) fn destroy(&mut self, inode: &Inode) -> Result<(), Errno> {
        if inode.attributes.kind == FileKind::Regular
            && let Some(layout) = self.mdt.layout(inode)?
        {
            self.destroy_objects_of(&layout);
            self.mdt.discard_data_of(inode.fid);
        }
        self.destroy_inode(inode.fid);
        Ok(())
    }

    /// An orphan goes.
    pub(crate) fn destroy_orphan(&mut self, inode: &Inode) -> Result<(), Errno> {
        self.forget_orphan(inode.fid);
        self.destroy(inode)
    }
}

impl Mdt {
    /// An operation that holds the inode is about to take its last name. Once that is done, clients that only keep it
    /// open for later opens are asked to close it, in a task of its own: the answer waits for no client. Otherwise its
    /// space would be in use for as long as they have nothing better to cache. Nothing is done if no client does.
    fn close_cached_opens_of(&self, fid: Fid) {
        let Some(target) = self.target.get().and_then(Weak::upgrade) else { return };
        let locks = target.namespace().dump(ResourceName::of_fid(fid));
        if !locks.iter().any(|lock| lock.desc.policy.inode_bits().contains(InodeBits::OPEN)) {
            return;
        }
        let (mdt, world) = (Weak::clone(&self.me), target.world().clone());
        let close = async move {
            let Some(mdt) = mdt.upgrade() else { return };
            {
                let _held = mdt.hold_inodes(&[fid]).await;
                let has_names = mdt.inode(fid).is_ok_and(|inode| inode.attributes.links > 0);
                if has_names {
                    // The operation failed after all.
                    return;
                }
            }
            if let Err(errno) = target.lock_inode(fid, InodeBits::OPEN, LockMode::Ex).await {
                tracing::debug!(%fid, %errno, "kept open without a name");
            }
        };
        world.tasks.spawn("close_cached_opens", Box::pin(close));
    }

    /// Whether an inode is in the orphan index: only then it has no links. No look-up for one that has.
    pub(crate) fn is_orphan(&self, inode: &Inode) -> Result<bool, Errno> {
        if inode.attributes.links > 0 {
            return Ok(false);
        }
        let fid = inode.fid;
        let found = self.store.lookup(ORPHANS, &fid_key(fid)).map_err(store_errno)?;
        Ok(found.is_some())
    }

    /// Destroys all orphans that are not open: recovery has ended.
    pub(crate) async fn clean_orphans(&self, target: &Arc<Target>) -> Result<(), Errno> {
        for fid in list(&*self.store).map_err(store_errno)? {
            let held = self.hold_inodes(&[fid]).await;
            if self.open_counts.is_open(fid) {
                continue;
            }
            let mut changes = self.change_set();
            match self.inode(fid) {
                Ok(inode) => changes.destroy_orphan(&inode)?,
                Err(Errno::ENOENT) => changes.forget_orphan(fid),
                Err(errno) => return Err(errno),
            }
            self.execute_locally(target, &held, changes)?;
        }
        Ok(())
    }
}
