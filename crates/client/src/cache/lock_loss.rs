//! The loss of a lock on an inode: what becomes of the metadata that it covers.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::{BoxFuture, Clock};
use sheen_ldlm::Policy;
use sheen_types::{Errno, Extent, Fid, InodeBits, Instant, MdtIndex, Name, ResourceName};

use super::{CachedOpen, FileLockRecords, InodeState, InodeTable, KernelCache, NameHasher, Pin};
use crate::data::DataEvents;
use crate::locks::{ClientNamespace, CoveredCache, LostLock};
use crate::types::{
    Dentry, FileType, Invalidated, LockOwner, NameInvalidation, NodeId, Stale, StaleName,
};

/// How soon the kernel is notified again of absent names in a directory that calls hold.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// What the locks of MDTs cover of inodes but their data: the inode cache, and the kernel that is notified of it.
pub(crate) struct CoveredMetadata {
    /// The inodes.
    pub(crate) inodes: Arc<InodeTable>,
    /// Who must be notified.
    pub(crate) kernel_cache: Arc<KernelCache>,
    /// What directories know of their names.
    pub(crate) hasher: Arc<NameHasher>,
    /// The file locks of which the mount's next process must know.
    pub(crate) file_locks: FileLockRecords,
    /// Until when the kernel uses names that it keeps for a time only.
    pub(crate) clock: Arc<dyn Clock>,
}

/// What of an inode has become stale in the kernel, which must be notified.
#[derive(Default)]
struct StaleInKernel {
    names: Vec<StaleName>,
    /// Names that were known to be absent from it, or from the directory of which it is a stripe.
    absent: Vec<Name>,
    /// Until when the kernel uses absent names of which it was notified and which it has not processed.
    absent_until: Option<Instant>,
    /// The loss after which names of the inode itself are among them.
    loss: Option<u32>,
    /// Names of the inode, a directory, that were kept because every user may search it.
    children: Vec<Name>,
    /// The files among them.
    files: Vec<NodeId>,
    /// The latest time limit of a name in `children` that the kernel keeps for a time only.
    timed_names_until: Option<Instant>,
    /// The latest time limit of absent names of which the kernel was notified before, when `UPDATE` was lost, and which
    /// it may not have dropped yet.
    unprocessed_names_until: Option<Instant>,
    attributes: bool,
}

impl InodeState {
    /// Whether a process may ask for its path: one that works in the directory, or has the file open.
    fn is_in_use(&self) -> bool {
        self.opens > 0 || self.file_type() == Some(FileType::Directory)
    }

    /// How the kernel is to invalidate a name of the inode.
    pub(crate) fn name_invalidation(&self) -> NameInvalidation {
        match self.is_in_use() {
            true => NameInvalidation::Expire,
            false => NameInvalidation::Drop,
        }
    }

    /// Drops what `gone` covered, bits of locks of the inode's own MDT.
    fn drop_covered(&mut self, gone: InodeBits) -> StaleInKernel {
        let had_attributes = self.attributes_covered();
        let absent = self.covered.uncover(gone);
        self.note_layout_uncovered();
        if !gone.is_empty() {
            self.note_lock_lost(gone);
        }
        let mut stale = StaleInKernel::default();
        if gone.contains(InodeBits::LOOKUP) {
            self.lose_kept_names(&mut stale);
        }
        if gone.contains(InodeBits::PERM) {
            stale.children.extend(self.take_kept_children());
            (stale.timed_names_until, stale.unprocessed_names_until) =
                (self.timed_names_until(), self.unprocessed_names_until());
        }
        if !absent.is_empty() {
            self.note_absent_names_lost();
        }
        for name in &absent {
            self.forget_kept_child(name);
        }
        stale.absent = absent.into_iter().collect();
        stale.absent_until = self.unprocessed_names_until();
        if gone.contains(InodeBits::LAYOUT) {
            self.file.layout_guard.layout_revoked();
        }
        stale.attributes = had_attributes && !self.attributes_covered();
        stale
    }

    /// Names that were known to be absent from a stripe of this directory are not any more.
    fn note_absent_in_stripe_lost(&mut self, stale: &mut StaleInKernel) {
        if stale.absent.is_empty() {
            return;
        }
        self.note_absent_names_lost();
        for name in &stale.absent {
            self.forget_kept_child(name);
        }
        stale.absent_until = self.unprocessed_names_until();
    }

    /// Drops what a lock covered of an MDT that has names of the inode, but not the inode.
    fn drop_remote_names(&mut self, mdt: MdtIndex, stale: &mut StaleInKernel) {
        if self.covered.uncover_remote_names(mdt) {
            self.note_lock_lost(InodeBits::LOOKUP);
            self.lose_kept_names(stale);
        }
    }

    /// All names that the kernel keeps are stale, whichever lock covered each.
    fn lose_kept_names(&self, stale: &mut StaleInKernel) {
        let by = self.name_invalidation();
        let (names, loss) = self.kept_names();
        if stale.loss.replace(loss).is_none() {
            stale.names.extend(names.map(|Dentry { parent, name }| StaleName { parent, name, by }));
        }
    }
}

/// What remains to be done before a lock is cancelled.
struct UncoveredInode {
    inode: Pin,
    /// The directory that it is a stripe of.
    master: Option<Pin>,
    stale: StaleInKernel,
    /// Files to be closed.
    closes: Vec<Arc<CachedOpen>>,
}

impl CoveredMetadata {
    fn drop_covered(
        &self,
        mdt: MdtIndex,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> Option<UncoveredInode> {
        let inode = self.inodes.pin_known(lost.resource.fid())?;
        let bits = lost.part.inode_bits();
        let gone = bits.without(locks.covered_bits(lost.resource, bits));
        // Of an inode whose MDT is not known the lock may have covered either.
        let home = self.inodes.mdt_of(inode.fid);
        let master = inode.state().stripe_of();
        let master = master.and_then(|master| self.inodes.pin_known(master));
        let mut state = inode.state();
        let mut stale = match home.is_none_or(|home| home == mdt) {
            true => state.drop_covered(gone),
            false => StaleInKernel::default(),
        };
        if home != Some(mdt) && gone.contains(InodeBits::LOOKUP) {
            state.drop_remote_names(mdt, &mut stale);
        }
        // Even if there are other locks: one in the same mode is for the same file, and rare.
        let closes = match bits.contains(InodeBits::OPEN) {
            true => state.file.open_cache.take_under(lost.mode),
            false => Vec::new(),
        };
        let children = state.children_of(&stale.children);
        drop(state);
        if let Some(master) = &master {
            master.state().note_absent_in_stripe_lost(&mut stale);
        }
        stale.files = self.inodes.files_of(children);
        Some(UncoveredInode { inode, master, stale, closes })
    }

    /// Has the kernel ask for the names of a directory again of which it is not known any more who may search it. When
    /// this returns no user passes by a name that the kernel kept, except to a file that a program has open.
    async fn expire_children(&self, node: NodeId, stale: &mut StaleInKernel) {
        let names = std::mem::take(&mut stale.children);
        let files = std::mem::take(&mut stale.files);
        let is_expired = self.kernel_cache.expire_names(node, names, files).await;
        let until =
            if is_expired { stale.unprocessed_names_until } else { stale.timed_names_until };
        if let Some(until) = until.filter(|until| *until > self.clock.now()) {
            self.clock.sleep_until(until).await;
        }
    }

    /// Has the kernel ask for names again that were absent from the directory `node`. When this returns it uses none of them:
    /// another client may make one then. What is absent from a stripe may be in another one, while names are moved: a program
    /// that works in it, or has it open, asks for its path, so they are not dropped.
    async fn expire_absent(&self, node: NodeId, stale: &mut StaleInKernel) {
        let names = std::mem::take(&mut stale.absent);
        while !self.kernel_cache.expire_names(node, names.clone(), Vec::new()).await {
            // Calls hold the directory.
            let now = self.clock.now();
            let Some(until) = stale.absent_until.filter(|until| *until > now) else { return };
            self.clock.sleep_until(until.min(now + BUSY_PAUSE)).await;
        }
    }
}

/// What the locks of one MDT cover: of inodes that it has all but their data, of those of other MDTs their names.
pub(crate) struct CoveredByMdt {
    /// Which MDT.
    pub(crate) mdt: MdtIndex,
    /// The inodes.
    pub(crate) metadata: Arc<CoveredMetadata>,
}

impl CoveredCache for CoveredByMdt {
    fn flush_and_invalidate(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        // Now, before the future is polled: no call finds any more what is not covered.
        let uncovered = self.metadata.drop_covered(self.mdt, locks, lost);
        let metadata = Arc::clone(&self.metadata);
        Box::pin(async move {
            let kernel_cache = &metadata.kernel_cache;
            let Some(UncoveredInode { inode, master, mut stale, closes }) = uncovered else {
                return;
            };
            if stale.attributes {
                // The kernel has those of a directory with its stripes merged in.
                let shown = master.as_ref().unwrap_or(&inode);
                kernel_cache.invalidate_inode(shown, Stale::Attributes).await.done().await;
            }
            metadata.expire_children(inode.node(), &mut stale).await;
            let shown = master.as_ref().unwrap_or(&inode).node();
            metadata.expire_absent(shown, &mut stale).await;
            kernel_cache.invalidate_names(stale.names).await;
            if let Some(loss) = stale.loss {
                inode.state().kept_names_invalidated(loss);
            }
            // Before the lock is cancelled: the open handle may conflict with what the lock is wanted for.
            for cached in closes {
                cached.close(inode.fid).await;
            }
        })
    }

    fn invalidate_evicted(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        if let Policy::Flock { start, end, owner, .. } = lost.part {
            let (fid, owner, range) =
                (lost.resource.fid(), LockOwner(owner), Extent { start, end });
            self.metadata.file_locks.lost(locks.engine(), fid, owner, range);
            return Box::pin(std::future::ready(()));
        }
        self.flush_and_invalidate(locks, lost)
    }

    /// A file that is not open here will not be written soon.
    fn cancels_whole_lock(&self, resource: ResourceName) -> bool {
        let inode = self.metadata.inodes.by_fid(resource.fid());
        inode.is_none_or(|inode| inode.state().opens == 0)
    }

    fn glimpse(&self, _resource: ResourceName) -> Option<bytes::Bytes> {
        None
    }
}

/// What the data path reports goes to the kernel and to the inodes.
pub(crate) struct DataEventHandler {
    /// The inodes.
    pub(crate) inodes: Arc<InodeTable>,
    /// Who must be notified.
    pub(crate) kernel_cache: Arc<KernelCache>,
}

impl DataEvents for DataEventHandler {
    fn invalidate(&self, fid: Fid, stale: Stale) -> BoxFuture<'static, Invalidated> {
        let inode = self.inodes.pin_known(fid);
        let kernel_cache = Arc::clone(&self.kernel_cache);
        Box::pin(async move {
            match inode {
                Some(inode) => kernel_cache.invalidate_inode(&inode, stale).await,
                None => Invalidated::Done,
            }
        })
    }

    fn failed(&self, fid: Fid, errno: Errno) {
        if let Some(inode) = self.inodes.by_fid(fid) {
            inode.state().file.failures.note(errno);
        }
    }
}
