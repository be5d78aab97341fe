//! Metadata operations, one per file.
//!
//! Each operation is one async function: what is known, locks to cancel early, request, reply, what is known
//! now. Each costs at most one RPC (its file says which) and none where [`crate::cache`] may answer; what makes
//! an inode asks for a new sequence of FIDs first, once in 131,072 times (`mdt::fids`).
//! Credentials and the one supplementary group that matters go along as Lustre sends them; permissions are
//! checked by the MDT.
//!
//! Costs of a create and its close, counted: two RPCs; four requests of the kernel (lookup, create,
//! flush, release) with two system calls each; two sends, receives and waits each; 62 allocations, 96
//! mutexes. Of an unlink: one RPC, and a lookup that the cache answers: 7 system calls, 39 allocations,
//! 56 mutexes. Of the first stat of a file: the same RPC and calls, 36 allocations, 66 mutexes.
//!
//! [`Meta::mdt`] is the only place that decides which MDT an inode is on (Lustre's LMV).

mod absent_names;
mod batch;
mod create;
mod fid2path;
mod flock;
mod getattr;
mod groups;
mod in_progress;
mod inline;
mod layout;
mod link;
mod lookup;
mod name_changes;
mod open;
mod open_cached;
mod parent;
mod readdir;
mod readlink;
mod rename;
mod setattr;
mod statfs;
mod swap_layouts;
mod sync;
mod unlink;
mod xattr;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sheen_io::World;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, Transno};
use sheen_wire::ldlm::LdlmRequest;

pub(crate) use batch::BatchedName;
pub(crate) use create::CreateRequest;
pub(crate) use flock::FlockWait;
pub(crate) use lookup::LookupDepth;
pub(crate) use open::wanted_by_open;
pub(crate) use open_cached::OwnOrCachedOpen;
pub(crate) use setattr::{SetattrRight, resolve};
pub(crate) use statfs::{TargetStat, mdt_statfs, ost_statfs};

use crate::cache::{CoveredMetadata, Inode};
use crate::mdt::Mdc;
use crate::records::Recorder;

/// Bytes of reply reserved for a layout by default: 170 stripes. A larger one arrives, too.
const EA_ROOM: usize = 4096;
/// Bytes of reply reserved for an access control list of 32 entries (Lustre's old limit), and what else comes
/// with attributes.
const ACL_ROOM: usize = 1024;

/// All metadata operations.
pub(crate) struct Meta {
    pub(crate) world: World,
    pub(crate) cache: Arc<CoveredMetadata>,
    mdts: Vec<Arc<Mdc>>,
    caches_xattrs: AtomicBool,
    rooms: ReplyRooms,
    lock_records: flock::FileLockRecords,
}

/// The room for variable parts of replies that requests announce.
struct ReplyRooms {
    layout: AtomicUsize,
    inline: AtomicUsize,
}

impl Meta {
    /// Operations on these MDTs; the first is MDT0000.
    pub(crate) fn new(
        world: World,
        cache: Arc<CoveredMetadata>,
        mdts: Vec<Arc<Mdc>>,
        recorder: Recorder,
    ) -> Self {
        let rooms = ReplyRooms {
            layout: AtomicUsize::new(EA_ROOM),
            inline: AtomicUsize::new(inline::INLINE_ROOM),
        };
        let caches_xattrs = AtomicBool::new(true);
        let lock_records = flock::FileLockRecords::new(recorder);
        Self { world, cache, mdts, caches_xattrs, rooms, lock_records }
    }

    /// Whether extended attributes are kept under their locks.
    pub(crate) fn caches_xattrs(&self) -> bool {
        self.caches_xattrs.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub(crate) fn set_caches_xattrs(&self, on: bool) {
        self.caches_xattrs.store(on, Ordering::Relaxed);
    }

    /// Bytes of an answer that are meant for a layout (`default_easize`).
    pub(crate) fn layout_room(&self) -> usize {
        self.rooms.layout.load(Ordering::Relaxed)
    }

    /// From now on so many.
    pub(crate) fn set_layout_room(&self, bytes: usize) {
        self.rooms.layout.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of an answer to an open that are meant for data (`dom_min_repsize`).
    pub(crate) fn inline_room(&self) -> usize {
        self.rooms.inline.load(Ordering::Relaxed)
    }

    /// From now on so many.
    pub(crate) fn set_inline_room(&self, bytes: usize) {
        self.rooms.inline.store(bytes, Ordering::Relaxed);
    }

    /// All MDTs.
    pub(crate) fn mdts(&self) -> &[Arc<Mdc>] {
        &self.mdts
    }

    /// The MDT that holds an inode. With one MDT there is no choice; with more, the sequence's
    /// location (FLD) decides here.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub(crate) fn mdt(&self, fid: Fid) -> Result<&Arc<Mdc>, Errno> {
        let _ = fid;
        self.mdts.first().ok_or(Errno::ENODEV)
    }

    /// The MDT for a new inode under `parent`.
    pub(crate) fn mdt_for_new(&self, parent: &Inode) -> Result<&Arc<Mdc>, Errno> {
        self.mdt(parent.fid)
    }

    /// The calendar's second, as requests carry it.
    fn seconds(&self) -> i64 {
        self.world.clock.wall().seconds
    }

    /// Notes that a change of this client to these inodes became transaction `transno`.
    fn changed(&self, transno: Transno, inodes: &[&Inode]) {
        for inode in inodes {
            let mut state = inode.state();
            state.transno = state.transno.max(transno);
        }
    }

    /// Cancels locks that conflict with an operation on inodes of `mdt`, in the operation's own request.
    async fn cancel_early(&self, mdt: &Mdc, wanted: &[(&Inode, InodeBits)]) -> Option<LdlmRequest> {
        let wanted: Vec<_> =
            wanted.iter().map(|(inode, bits)| (inode.resource(), LockMode::Ex, *bits)).collect();
        let handles: Vec<LockHandle> = mdt.locks.cancel_early(&wanted).await;
        (!handles.is_empty()).then(|| LdlmRequest::cancel(handles))
    }
}
