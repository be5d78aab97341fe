//! The object storage service (Lustre's OFD): objects and their life; their data is `sheen_brw`'s.
//!
//! [`Ost`] implements `Operations`; connects, locks, resends and recovery are the target's. One
//! file per operation: request, checks, locks, store, reply.
//!
//! What always holds:
//!
//! - Changes of attributes, creation and destruction are transactions with a transno; bytes are
//!   written at once and outside of them (the store's two planes), and their replies carry no
//!   transno: when a write is answered it survives this process, and after a sync this machine.
//! - What holds of data and of grants is what [`sheen_brw`] says, with its cost.

mod counters;
mod create;
mod data;
mod destroy;
mod dispatch;
mod echo;
mod getattr;
mod glimpse;
mod known_mdts;
mod limits;
mod mdt_progress;
mod objects;
mod rebuild;
mod setattr;
mod statfs;
#[cfg(test)]
mod tests;

pub use echo::{EchoWorker, echo_clean, is_survey};
pub use known_mdts::{KnownMdt, mdt_of_object};
pub use mdt_progress::MdtAtRest;
pub use objects::{ObjectRecord, beyond_last, list_objects, listed, unlisted};
pub use rebuild::rebuild;
pub use sheen_brw::{BLOCK_BITS, GrantView, INITIAL_GRANT, Transfers};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheen_store::{Store, StoreError};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};

use sheen_brw::Brw;
use sheen_target::{ConnectOffer, Export};

use crate::data::OstObjects;

/// One object storage target's operations.
pub struct Ost {
    store: Arc<dyn Store>,
    index: u16,
    brw: Brw<OstObjects>,
    sequences: objects::Sequences,
    known_mdts: known_mdts::KnownMdts,
    /// What operators say about the disks below: `OS_STATFS_DEGRADED`, `NOCREATE` and `READONLY`.
    statfs_flags: StatfsFlags,
}

/// What operators may announce to the MDT through an OST's statfs.
#[derive(Default)]
struct StatfsFlags {
    degraded: AtomicBool,
    no_precreate: AtomicBool,
    read_only: AtomicBool,
}

impl Ost {
    /// Serves the objects in `store` as OST number `index`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, index: u16) -> Self {
        Self {
            brw: Brw::new(Arc::clone(&store), OstObjects { index }),
            store,
            index,
            sequences: objects::Sequences::default(),
            known_mdts: known_mdts::KnownMdts::default(),
            statfs_flags: StatfsFlags::default(),
        }
    }

    /// Whether the disks below are slow for now: new files go elsewhere if they can.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.statfs_flags.degraded.load(Ordering::Relaxed)
    }

    /// Announces that the disks below are slow for now, or not any more (`degraded`).
    pub fn set_degraded(&self, degraded: bool) {
        self.statfs_flags.degraded.store(degraded, Ordering::Relaxed);
    }

    /// Whether no new files may lie here.
    #[must_use]
    pub fn refuses_files(&self) -> bool {
        self.statfs_flags.no_precreate.load(Ordering::Relaxed)
    }

    /// Announces that no new files may lie here, or may again (`no_precreate`).
    pub fn refuse_files(&self, refuse: bool) {
        self.statfs_flags.no_precreate.store(refuse, Ordering::Relaxed);
    }

    /// Whether all changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.statfs_flags.read_only.load(Ordering::Relaxed)
    }

    /// Sets whether all changes are refused from now on (`readonly`). What is under way ends.
    pub fn set_read_only(&self, read_only: bool) {
        self.statfs_flags.read_only.store(read_only, Ordering::Relaxed);
    }

    /// What an OST agrees to: exactly what works.
    #[must_use]
    pub fn offer() -> ConnectOffer {
        ConnectOffer {
            flags: ConnectFlags::INDEX
                | ConnectFlags::GRANT
                | ConnectFlags::GRANT_SHRINK
                | ConnectFlags::SRVLOCK
                | ConnectFlags::BRW_SIZE
                // As on the MDT.
                | ConnectFlags::LRU_RESIZE
                | ConnectFlags::CKSUM
                | ConnectFlags::VERSION
                | ConnectFlags::AT
                | ConnectFlags::FULL20
                | ConnectFlags::FID
                | ConnectFlags::MAXBYTES
                | ConnectFlags::SHORTIO
                | ConnectFlags::LVB_TYPE
                | ConnectFlags::JOBSTATS
                | ConnectFlags::EINPROGRESS
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::LSEEK
                | ConnectFlags2::INC_XID
                | ConnectFlags2::LOCKAHEAD
                | ConnectFlags2::MDT_IDENTITY,
            brw_size: sheen_types::limits::BULK_BYTES_MAX as u32,
            ibits_known: 0,
            max_easize: 0,
            // Each store has its own limit: `connect` says it.
            maxbytes: 0,
            maxmodrpcs: 0,
        }
    }

    /// What is granted to all clients, in total, for the parameter tree.
    #[must_use]
    pub fn grant_view(&self) -> GrantView {
        self.brw.grants().view()
    }

    /// What is granted to one client.
    #[must_use]
    pub fn grant_of(&self, client: &Export) -> GrantView {
        self.brw.grants().held_by(client)
    }

    /// The sequences of its objects, and the last object's id in each, for the parameter tree.
    ///
    /// # Errors
    /// Those of the store.
    pub fn last_ids(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        objects::last_ids(&*self.store)
    }

    /// How reads and writes reached the store (`brw_stats`).
    #[must_use]
    pub fn transfers(&self) -> (Transfers, Transfers) {
        self.brw.transfers()
    }

    /// Starts the counts of transfers anew.
    pub fn clear_transfers(&self) {
        self.brw.clear_transfers();
    }
}
