//! The metadata service (Lustre's MDT, MDD, LOD and OSP): names, inodes, open files, layouts.
//!
//! [`Mdt`] implements [`sheen_target::Operations`]; connects, resends, recovery and plain locks are
//! the target's. One file per operation: request, checks, locks, transaction, reply. `intent/` and
//! `reint/` hold Lustre's two families of requests, `placement/` where a file's objects lie, `layouts`
//! what files and directories shall look like.
//!
//! What always holds:
//!
//! - An operation that changes something is one store transaction (`change_set`), with the record of its answer.
//!   All checks come before it; what follows can fail only where the disk breaks or the client was evicted, and
//!   is undone then (`intent::open`).
//! - Two locks guard it. `hold` orders operations on this server, by name and by inode, so
//!   that operations on different names of one directory run side by side. The LDLM lock revokes
//!   what clients cache; a directory's is taken as CW, which operations share and readers do not.
//! - Where names and inodes lie on several MDTs, the one that the client asks has all of them exclude other changes,
//!   and each applies its part as one transaction with the record of all (`coordinator`, `participant`).
//! - An inode without a name is in the orphan index or is gone. Objects on OSTs whose file is gone
//!   are in the index of OST updates (`placement::ost_updates`) until the OST has destroyed them.
//! - Ids of OST objects are those of precreated objects: no operation waits for an OST unless none
//!   is left.
//!
//! Cost of an open|create, the hot path: one RPC, one store transaction (create, two attributes,
//! name, parent's times, last id, reply record), no disk wait; store reads: parent, its default
//! layout, name. Inside the process name and parent are held (`hold`), and the order of transactions for a
//! moment; locks of LDLM: the parent's (CW) and the child's, which goes to the client. With its close it makes
//! 137 allocations, the share of the commit included, and six
//! system calls: a receive, a send and a wait for each request. A getattr by name or an unlink is one
//! RPC with three system calls; an unlink makes 60 allocations, destroys of objects not counted.

mod adopt;
mod answer;
mod batch;
mod caller;
mod change_set;
mod check;
mod close;
mod close_intent;
mod coordinator;
mod counters;
mod data_version;
mod directory;
mod dispatch;
mod distributed_exclusions;
mod dom;
mod dom_layout;
mod dot_lustre;
mod echo;
mod exclusion;
mod fid2path;
mod getattr;
mod getxattr;
mod hold;
mod hsm;
mod identity;
mod inode;
mod intent;
mod known_empty;
mod layouts;
mod links;
mod locks;
mod name_changes;
mod new_inode;
mod open_counts;
mod open_table;
mod orphans;
mod other_mdts;
mod participant;
mod placement;
mod readpage;
mod rebuild;
mod redo;
mod reint;
mod remote;
mod restrictions;
mod restripe;
mod restripe_plan;
mod rmfid;
mod root;
mod sequences;
mod set_info;
mod squash;
mod statfs;
mod striped;
mod swap_layouts;
mod sync;
mod vouched_sizes;
mod xattrs;

#[cfg(test)]
mod tests;

pub use adopt::adopt;
pub use check::{
    FailedStore, Fault, MdtAtRest, Paths, Progress, Report, UsedObject, check, check_all,
    check_many,
};
pub use dom::DomLock;
pub use echo::EchoWorker;
pub use other_mdts::MdtView;
pub use placement::{LayoutSettings, OstUpdateView, OstView};
pub use rebuild::{
    LostName, Obstacle, Rebuilt, WhyLost, rebuild, rebuild_all, repair_obstacle, skip_used_objects,
};
pub use redo::{Redone, RedonePart, RefusedPart, redo_offline};
pub use restripe::RestripeSettings;
pub use root::format_for_small_files;
pub use sequences::has_other_mdts;
pub use striped::DirectorySettings;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sheen_rpc::Channel;
use sheen_store::{Store, StoreError};
use sheen_target::{ConnectOffer, Target};
use sheen_types::limits::XATTR_VALUE_BYTES_MAX;
use sheen_types::{Errno, Timestamp, Uuid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::lov::PoolName;

use crate::coordinator::Coordinator;
use crate::dom::Dom;
use crate::exclusion::ExclusionTable;
use crate::known_empty::KnownEmpty;
use crate::open_counts::OpenCounts;
use crate::other_mdts::OtherMdts;
use crate::participant::UnfinishedParts;
use crate::placement::Placement;
use crate::restrictions::Restrictions;
use crate::restripe::Restriper;
use crate::sequences::{Joining, Sequences};
use crate::squash::Squash;
use crate::striped::{SpaceOfMdts, StripeFids};
use crate::vouched_sizes::VouchedSizes;

/// `atime_diff` at first, as in Lustre.
const ATIME_DIFF: i64 = 60;
/// Bytes of the largest file (`LLITE_MAXBYTES`, roughly): what one OST object may hold.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The identity of an MDT.
#[derive(Clone, Debug)]
pub struct MdtConfig {
    /// The file system.
    pub fsname: String,
    /// Its number among the MDTs.
    pub index: u16,
    /// Stripes of a file for which no number was given.
    pub stripe_count: u16,
    /// Bytes of a stripe of such a file.
    pub stripe_size: u32,
    /// The time of now: that of the root's birth, if it is made.
    pub now: Timestamp,
    /// What the identity of an empty store is made of.
    pub random: [u8; 16],
}

impl MdtConfig {
    /// With Lustre's default layout: one stripe of 4 MiB.
    #[must_use]
    pub fn new(fsname: impl Into<String>, index: u16, now: Timestamp, random: [u8; 16]) -> Self {
        Self { fsname: fsname.into(), index, stripe_count: 1, stripe_size: 4 << 20, now, random }
    }
}

/// One metadata target's operations.
pub struct Mdt {
    me: Weak<Self>,
    /// Its number among the MDTs.
    index: u16,
    identity: Uuid,
    /// Which other MDT's clients were refused last.
    refused_clients: Mutex<Option<Uuid>>,
    store: Arc<dyn Store>,
    target: OnceLock<Weak<Target>>,
    exclusion: ExclusionTable,
    open_counts: OpenCounts,
    known_empty: KnownEmpty,
    sizes: VouchedSizes,
    sequences: Sequences,
    joining: Arc<Joining>,
    other_mdts: OtherMdts,
    coordinator: Coordinator,
    unfinished: UnfinishedParts,
    placement: Placement,
    squash: Squash,
    restrictions: Restrictions,
    restriper: Restriper,
    directory_settings: Mutex<DirectorySettings>,
    stripe_fids: StripeFids,
    space_of_mdts: SpaceOfMdts,
    /// Choices of MDTs for stripes so far.
    stripe_turn: AtomicUsize,
    dom: Dom,
    /// Seconds by which a time of access must be newer to be kept (`atime_diff`).
    atime_diff: AtomicI64,
}

impl Mdt {
    /// Serves the namespace in `store`; an empty store of MDT0000 gets a root directory. Another MDT takes no clients
    /// before MDT0000 has given it a range of FIDs ([`Mdt::until_open`]).
    ///
    /// # Errors
    /// Those of the store, and one for the store of an MDT of another number.
    pub fn new(store: Arc<dyn Store>, config: MdtConfig) -> Result<Arc<Self>, StoreError> {
        let identity = identity::load(&*store, config.index, config.random)?;
        root::format(&*store, &config)?;
        let sizes = VouchedSizes::load(&*store, config.random)?;
        let settings = LayoutSettings::new(config.stripe_size, config.stripe_count);
        let sequences = Sequences::load(Arc::clone(&store), config.index)?;
        let placement = Placement::new(Arc::clone(&store), settings)?;
        let other_mdts = OtherMdts::new(Arc::clone(&store), identity.clone());
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            index: config.index,
            identity,
            refused_clients: Mutex::default(),
            placement,
            dom: Dom::new(Arc::clone(&store)),
            store,
            target: OnceLock::new(),
            exclusion: ExclusionTable::new(),
            open_counts: OpenCounts::default(),
            known_empty: KnownEmpty::default(),
            sizes,
            sequences,
            joining: Arc::default(),
            other_mdts,
            coordinator: Coordinator::default(),
            unfinished: UnfinishedParts::default(),
            squash: Squash::default(),
            restrictions: Restrictions::default(),
            restriper: Restriper::default(),
            directory_settings: Mutex::default(),
            stripe_fids: StripeFids::default(),
            space_of_mdts: SpaceOfMdts::default(),
            stripe_turn: AtomicUsize::new(0),
            atime_diff: AtomicI64::new(ATIME_DIFF),
        }))
    }

    /// `atime_diff`: seconds by which a time of access that a close reports must be newer to be kept.
    #[must_use]
    pub fn atime_diff(&self) -> i64 {
        self.atime_diff.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_atime_diff(&self, seconds: i64) {
        self.atime_diff.store(seconds, Ordering::Relaxed);
    }

    /// What an MDT agrees to: exactly what works.
    #[must_use]
    pub fn offer() -> ConnectOffer {
        ConnectOffer {
            flags: ConnectFlags::VERSION
                | ConnectFlags::GRANT
                | ConnectFlags::GRANT_SHRINK
                | ConnectFlags::SRVLOCK
                | ConnectFlags::CKSUM
                | ConnectFlags::SHORTIO
                | ConnectFlags::RDONLY
                | ConnectFlags::INDEX
                | ConnectFlags::ACL
                | ConnectFlags::XATTR
                | ConnectFlags::LARGE_ACL
                | ConnectFlags::IBITS
                | ConnectFlags::ATTRFID
                | ConnectFlags::NODEVOH
                | ConnectFlags::BRW_SIZE
                | ConnectFlags::CANCELSET
                // Clients keep what they hold until it is revoked: otherwise Lustre's keep 100 locks for each processor.
                | ConnectFlags::LRU_RESIZE
                | ConnectFlags::AT
                | ConnectFlags::FID
                | ConnectFlags::LOV_V3
                | ConnectFlags::MAX_EASIZE
                | ConnectFlags::FULL20
                | ConnectFlags::LAYOUTLOCK
                | ConnectFlags::HASH64
                | ConnectFlags::MAXBYTES
                | ConnectFlags::UMASK
                | ConnectFlags::EINPROGRESS
                | ConnectFlags::LVB_TYPE
                | ConnectFlags::JOBSTATS
                | ConnectFlags::FLOCK_DEAD
                | ConnectFlags::DISP_STRIPE
                | ConnectFlags::OPEN_BY_FID
                | ConnectFlags::MULTIMODRPCS
                | ConnectFlags::DIR_STRIPE
                | ConnectFlags::SUBTREE
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::DIR_MIGRATE
                | ConnectFlags2::CRUSH
                | ConnectFlags2::SUM_STATFS
                | ConnectFlags2::OVERSTRIPING
                | ConnectFlags2::LOCK_CONVERT
                | ConnectFlags2::INC_XID
                | ConnectFlags2::LSOM
                | ConnectFlags2::ASYNC_DISCARD
                | ConnectFlags2::LSEEK
                | ConnectFlags2::DOM_LVB
                | ConnectFlags2::GETATTR_PFID
                | ConnectFlags2::BATCH_RPC
                | ConnectFlags2::ATOMIC_OPEN_LOCK
                | ConnectFlags2::OWN_NAMES
                | ConnectFlags2::OWN_ATTRIBUTES
                | ConnectFlags2::MDT_IDENTITY,
            brw_size: 1 << 20,
            ibits_known: 0x7f,
            max_easize: XATTR_VALUE_BYTES_MAX as u32,
            maxbytes: FILE_BYTES_MAX,
            maxmodrpcs: 8,
        }
    }

    /// By which OSTs and clients distinguish this MDT from one that had its name before, or will have it.
    #[must_use]
    pub fn identity(&self) -> &Uuid {
        &self.identity
    }

    /// From now on files may lie on OST number `index`, behind `channel`, or as soon as MDT0000 has said in which
    /// sequences its objects are. Adding one again replaces its channel.
    pub fn add_ost(&self, index: u16, channel: Arc<dyn Channel>) {
        let added = match self.sequences.of_ost(index) {
            // The first sequence of an OST's range is its own; then each MDT has one.
            Ok(Some(range)) => {
                let sequence = range.start + 1 + u64::from(self.index);
                self.placement.add(index, channel, sequence)
            }
            Ok(None) => return self.joining.add_ost(index, channel),
            Err(error) => Err(error),
        };
        match added {
            Ok(ost) => self.maintain(ost),
            Err(error) => {
                tracing::error!(index, %error, "cannot record the OST's sequence: no file gets an object of it")
            }
        }
    }

    /// Its number among the MDTs.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether it takes clients: it has a range of FIDs to give them.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.sequences.is_open()
    }

    /// Waits until it takes clients. MDT0000 does at once, as does any other one that has been open before.
    pub async fn until_open(&self) {
        loop {
            let mut opened = pin!(self.joining.opened.notified());
            // What comes between the look and the wait counts.
            opened.as_mut().enable();
            if self.is_open() {
                return;
            }
            opened.await;
        }
    }

    /// The files that a client has open, once for each time, for the parameter tree.
    #[must_use]
    pub fn open_files_of(&self, client: &sheen_target::Export) -> Vec<sheen_types::Fid> {
        client.role::<open_table::OpenTable>().fids()
    }

    /// The OSTs and their precreated objects, for the parameter tree.
    #[must_use]
    pub fn osts(&self) -> Vec<OstView> {
        self.placement.view()
    }

    /// What changes of this MDT's leave to be done on an OST: objects to destroy, owners to set. Counts them in the store.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, and those of the store.
    pub fn ost_updates(&self, index: u16) -> Result<OstUpdateView, Errno> {
        self.placement.updates_of(index)
    }

    /// Waits until there is an OST more; one that came since the last call counts. For one caller.
    pub async fn ost_added(&self) {
        self.placement.added().await;
    }

    /// Sets whether an OST may be used (`osp.*.active`). While it may not, new files lie elsewhere, and
    /// objects of files that are gone stay there.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number.
    pub fn set_ost_active(&self, index: u16, is_active: bool) -> Result<(), Errno> {
        self.placement.set_active(index, is_active)
    }

    /// Sets how many objects of an OST are created at a time (`osp.*.create_count`).
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, [`Errno::ERANGE`] for too few.
    pub fn set_ost_create_count(&self, index: u16, count: u64) -> Result<(), Errno> {
        self.placement.set_create_count(index, count)
    }

    /// Sets twice as many as those may become (`osp.*.max_create_count`); 0 for no new files on that OST.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, [`Errno::ERANGE`] for too few or too many.
    pub fn set_ost_max_create_count(&self, index: u16, count: u64) -> Result<(), Errno> {
        self.placement.set_max_create_count(index, count)
    }

    /// What operators have set about layouts, for the parameter tree.
    #[must_use]
    pub fn layout_settings(&self) -> LayoutSettings {
        self.placement.settings()
    }

    /// Changes what operators have set about layouts, for files that are made from now on; the
    /// result of `change`.
    pub fn change_layout_settings<T>(&self, change: impl FnOnce(&mut LayoutSettings) -> T) -> T {
        self.placement.change_settings(change)
    }

    /// Bytes of a file that may lie on this MDT at this moment (`dom_stripesize_cur_kb`).
    #[must_use]
    pub fn dom_stripesize_now(&self) -> u32 {
        self.placement.on_mdt_now()
    }

    /// Free MiB below which that is less than `dom_stripesize` (`dom_threshold_free_mb`); 0 for never.
    #[must_use]
    pub fn dom_threshold(&self) -> u64 {
        self.placement.on_mdt_threshold()
    }

    /// Sets that; `wanted` is given the MiB of the MDT in all.
    ///
    /// # Errors
    /// Those of the store and of `wanted`.
    pub fn set_dom_threshold(
        &self,
        wanted: impl FnOnce(u64) -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        self.placement.set_on_mdt_threshold(wanted)
    }

    /// From now on these are the pools of OSTs. A pool that is not among them, or is empty, is not
    /// known: files that ask for it keep its name and lie on any OST, as in Lustre.
    pub fn set_pools(&self, pools: BTreeMap<PoolName, Vec<u16>>) {
        self.placement.set_pools(pools);
    }

    /// Open files, for the parameter tree.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.open_counts.count()
    }

    fn maintain(&self, ost: Arc<placement::PlacementOst>) {
        if let Some(target) = self.target.get().and_then(Weak::upgrade) {
            ost.start_maintenance(&target);
        }
    }
}
