//! The object storage service (Lustre's OFD): objects, their space and their data.
//!
//! [`Ost`] implements `Operations`; connects, locks, resends and recovery are the target's. One
//! file per operation: request, checks, locks, store, reply.
//!
//! What always holds:
//!
//! - Changes of attributes, creation and destruction are transactions with a transno; bytes are
//!   written at once and outside of them (the store's two planes), and their replies carry no
//!   transno: when a write is answered it survives this process, and after a sync this machine.
//! - Space that was granted to clients is never given twice (`grant`): what a client accepts into
//!   its cache within its grant can be written.
//! - A checksum that a client sent is verified before a byte is written.
//!
//! Cost of a write of n bytes: one bulk fetch, one checksum pass, one `pwritev`, one attribute patch
//! in memory; of a read: one `pread` into the buffer that is sent, one checksum pass. A write asks for
//! the file's blocks besides, a system call, unless it lies in what was written before.

mod attributes;
mod bulk;
mod counters;
mod create;
mod destroy;
mod dispatch;
mod getattr;
mod grant;
mod objects;
mod punch;
mod read;
mod seek;
mod setattr;
mod statfs;
mod sync;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use grant::{GrantView, INITIAL_GRANT};
pub use objects::{ObjectRecord, list_objects};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheen_store::Store;
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};

use crate::grant::Grants;
use sheen_target::ConnectOffer;

/// One object storage target's operations.
pub struct Ost {
    store: Arc<dyn Store>,
    index: u16,
    grants: Grants,
    sequences: objects::Sequences,
    /// What operators say about the disks below: `OS_STATFS_DEGRADED` and `NOCREATE`.
    condition: Condition,
}

/// What operators may tell the MDT through an OST's statfs.
#[derive(Default)]
struct Condition {
    degraded: AtomicBool,
    no_precreate: AtomicBool,
}

impl Ost {
    /// Serves the objects in `store` as OST number `index`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, index: u16) -> Self {
        Self {
            store,
            index,
            grants: Grants::new(),
            sequences: objects::Sequences::default(),
            condition: Condition::default(),
        }
    }

    /// Whether the disks below are slow for now: new files go elsewhere if they can.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.condition.degraded.load(Ordering::Relaxed)
    }

    /// Says that the disks below are slow for now, or not any more (`degraded`).
    pub fn set_degraded(&self, degraded: bool) {
        self.condition.degraded.store(degraded, Ordering::Relaxed);
    }

    /// Whether no new files may lie here.
    #[must_use]
    pub fn refuses_files(&self) -> bool {
        self.condition.no_precreate.load(Ordering::Relaxed)
    }

    /// Says that no new files may lie here, or may again (`no_precreate`).
    pub fn refuse_files(&self, refuse: bool) {
        self.condition.no_precreate.store(refuse, Ordering::Relaxed);
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
                | ConnectFlags::CKSUM
                | ConnectFlags::VERSION
                | ConnectFlags::AT
                | ConnectFlags::FULL20
                | ConnectFlags::FID
                | ConnectFlags::MAXBYTES
                | ConnectFlags::SHORTIO
                | ConnectFlags::LVB_TYPE
                | ConnectFlags::EINPROGRESS
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::LSEEK | ConnectFlags2::INC_XID,
            brw_size: sheen_types::limits::BULK_BYTES_MAX as u32,
            ibits_known: 0,
            max_easize: 0,
            // Each store has its own limit: `connect` says it.
            maxbytes: 0,
            maxmodrpcs: 0,
        }
    }

    /// What is granted to whom, in total, for the parameter tree.
    #[must_use]
    pub fn grant_view(&self) -> GrantView {
        self.grants.view()
    }
}
