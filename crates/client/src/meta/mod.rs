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
//! 56 mutexes. Of the first stat of a file: the same RPC and calls, 36 allocations, 66 mutexes. Since that was counted
//! each call of the kernel's has one allocation more, for the client's boxed future (`boxed` in `lib.rs`).
//!
//! Each request goes to one MDT: what is about an inode to that inode's ([`Meta::mdt`]); what makes a name to that of
//! the name's directory; and what removes or replaces one to the MDT of the inode that loses it, which may have to become
//! an orphan. A name may be with one MDT and its inode with another: the first answer has the FID alone then, and the
//! second MDT is asked, too ([`remote`]). Where there is one MDT none of this costs anything.

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
mod listing;
mod lookup;
mod migrate;
mod moving;
mod name_changes;
mod open;
mod open_cached;
mod parent;
mod place;
mod placement;
mod readdir;
mod readlink;
mod remote;
mod rename;
mod setattr;
mod statfs;
mod striping;
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
pub(crate) use migrate::TRUSTED_LMV;
pub(crate) use open::wanted_by_open;
pub(crate) use open_cached::OwnOrCachedOpen;
pub(crate) use setattr::{SetattrRight, resolve};
pub(crate) use statfs::{TargetStat, mdt_statfs, ost_statfs};
pub(crate) use unlink::Removes;

use crate::cache::{CoveredMetadata, Inode};
use crate::mdt::{Mdc, Mdts};

/// Bytes of reply reserved for a layout by default: 170 stripes. A larger one arrives, too.
const EA_ROOM: usize = 4096;
/// Bytes of reply reserved for an access control list of 32 entries (Lustre's old limit), and what else comes
/// with attributes.
const ACL_ROOM: usize = 1024;

/// All metadata operations.
pub(crate) struct Meta {
    pub(crate) world: World,
    pub(crate) cache: Arc<CoveredMetadata>,
    mdts: Arc<Mdts>,
    caches_xattrs: AtomicBool,
    rooms: ReplyRooms,
    placement: placement::Placement,
}

/// The room for variable parts of replies that requests announce.
struct ReplyRooms {
    layout: AtomicUsize,
    inline: AtomicUsize,
}

impl Meta {
    /// Operations on these MDTs.
    pub(crate) fn new(world: World, cache: Arc<CoveredMetadata>, mdts: Arc<Mdts>) -> Self {
        let rooms = ReplyRooms {
            layout: AtomicUsize::new(EA_ROOM),
            inline: AtomicUsize::new(inline::INLINE_ROOM),
        };
        let caches_xattrs = AtomicBool::new(true);
        let placement = placement::Placement::default();
        Self { world, cache, mdts, caches_xattrs, rooms, placement }
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

    /// All MDTs, that with the root first.
    pub(crate) fn mdts(&self) -> Vec<Arc<Mdc>> {
        self.mdts.all()
    }

    /// The MDT that has an inode. No RPC where there is one MDT, or its sequence is known; one else.
    ///
    /// # Errors
    /// As [`Mdts::of`].
    pub(crate) async fn mdt(&self, fid: Fid) -> Result<Arc<Mdc>, Errno> {
        self.mdts.of(fid).await
    }

    /// The MDT of `fid` if it is known already. No RPC.
    pub(crate) fn known_mdt(&self, fid: Fid) -> Option<Arc<Mdc>> {
        self.mdts.known(fid)
    }

    /// Whether its MDT leaves this client's own locks on a directory that it changes.
    pub(crate) fn keeps_own_names(&self, directory: &Inode) -> bool {
        self.known_mdt(directory.fid).is_some_and(|mdt| mdt.keeps_own_names())
    }

    /// The calendar's second, as requests carry it.
    fn seconds(&self) -> i64 {
        self.world.clock.wall().seconds
    }

    /// Notes that a change of this client to these inodes became transaction `transno` of this MDT.
    fn note_changed(&self, mdt: &Mdc, transno: Transno, inodes: &[&Inode]) {
        for inode in inodes {
            inode.state().changes.note(mdt.index, transno);
        }
    }

    /// Whether the changes of this client that are known to be to `inode` are durable, as far as MDTs have said.
    pub(crate) fn is_durable(&self, inode: &Inode) -> bool {
        let changes = inode.state().changes.clone();
        changes.iter().all(|(mdt, transno)| {
            let mdt = self.mdts.by_index(mdt);
            mdt.is_some_and(|mdt| transno <= mdt.channel.last_committed())
        })
    }

    /// Cancels locks that conflict with an operation of `mdt` on inodes: those that this MDT has granted in the
    /// operation's own request, those of other MDTs, which may have them or names of them, in requests of their own, which
    /// are not waited for.
    async fn cancel_early(&self, mdt: &Mdc, wanted: &[(&Inode, InodeBits)]) -> Option<LdlmRequest> {
        let wanted: Vec<_> =
            wanted.iter().map(|(inode, bits)| (inode.resource(), LockMode::Ex, *bits)).collect();
        let handles: Vec<LockHandle> = mdt.locks.cancel_early(&wanted).await;
        if self.mdts.has_several() {
            for other in self.mdts().iter().filter(|other| other.index != mdt.index) {
                other.locks.cancel_early_alone(&wanted).await;
            }
        }
        (!handles.is_empty()).then(|| LdlmRequest::cancel(handles))
    }
}
