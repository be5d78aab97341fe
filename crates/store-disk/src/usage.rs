//! How full the store is.
//!
//! Two regimes. With a *capacity*, data (blocks of files, counted as they change), metadata (the
//! database's own count, refreshed at each commit, and the active group) and reservations of writes
//! under way stay below it. Without, the host's file system decides; we only keep a reserve, so
//! that the database never meets a full disk half way through a batch.
//!
//! A share of the capacity is kept for transactions that free something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sheen_store::{Change, StoreError, Transaction};

use crate::limits;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Usage {
    capacity: Option<u64>,
    data: AtomicU64,
    metadata: AtomicU64,
    reserved: AtomicU64,
    host_available: AtomicU64,
    has_refused: AtomicBool,
}

/// Room for a write under way.
pub(crate) struct SpaceReservation<'a> {
    usage: &'a Usage,
    bytes: u64,
}

impl Drop for SpaceReservation<'_> {
    fn drop(&mut self) {
        self.usage.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Usage {
    pub(crate) fn new(capacity: Option<u64>) -> Self {
        Self {
            capacity,
            data: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            host_available: AtomicU64::new(u64::MAX),
            has_refused: AtomicBool::new(false),
        }
    }

    pub(crate) fn capped(&self) -> bool {
        self.capacity.is_some()
    }

    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    pub(crate) fn data(&self) -> u64 {
        self.data.load(Ordering::Relaxed)
    }

    pub(crate) fn set_data(&self, bytes: u64) {
        self.data.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn data_changed(&self, before: u64, after: u64) {
        self.data.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(crate) fn data_freed(&self, bytes: u64) {
        self.data.fetch_sub(bytes.min(self.data()), Ordering::Relaxed);
    }

    pub(crate) fn set_metadata(&self, bytes: u64) {
        self.metadata.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_host_available(&self, bytes: u64) {
        self.host_available.store(bytes, Ordering::Relaxed);
    }

    /// Kept for what frees.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        match self.capacity {
            Some(capacity) => capacity / limits::RESERVE_SHARE,
            None => limits::HOST_RESERVE_BYTES,
        }
    }

    /// Data, metadata and reservations, with a capacity.
    pub(crate) fn used(&self) -> u64 {
        self.data() + self.metadata.load(Ordering::Relaxed) + self.reserved.load(Ordering::Relaxed)
    }

    /// Room to write `length` bytes; if it is tight, `needed` says how much of it is new.
    pub(crate) fn reserve(
        &self,
        length: u64,
        needed: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<SpaceReservation<'_>, StoreError> {
        let Some(capacity) = self.capacity else {
            let low = self.host_available.load(Ordering::Relaxed) < limits::HOST_RESERVE_BYTES;
            if low && needed()? > 0 {
                return Err(StoreError::NoSpace);
            }
            return Ok(SpaceReservation { usage: self, bytes: 0 });
        };
        let limit = capacity - self.reserve_bytes();
        let take = |bytes: u64| {
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
            let room = SpaceReservation { usage: self, bytes };
            (bytes == 0 || self.used() <= limit).then_some(room)
        };
        if let Some(room) = take(length) {
            return Ok(room);
        }
        take(needed()?).ok_or(StoreError::NoSpace)
    }

    /// Refuses what grows a full store; `pending` is the active group.
    pub(crate) fn check(&self, transaction: &Transaction, pending: u64) -> Result<(), StoreError> {
        let full = match self.capacity {
            Some(capacity) => self.used() + pending > capacity - self.reserve_bytes(),
            None => self.host_available.load(Ordering::Relaxed) < limits::HOST_RESERVE_BYTES,
        };
        if full && grows(transaction) {
            self.has_refused.store(true, Ordering::Relaxed);
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    /// See [`Self::take_refused`].
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Whether a transaction was refused since the last call, for want of the store's own room: what was removed makes none before
    /// tables are merged. Where the host's disk is full there is no room to merge in.
    pub(crate) fn take_refused(&self) -> bool {
        self.has_refused.swap(false, Ordering::Relaxed) && self.capacity.is_some()
    }
}

/// Whether a transaction adds objects, names or extended attributes and frees nothing. Records that
/// replace older ones are always accepted.
fn grows(transaction: &Transaction) -> bool {
    let mut grows = false;
    for change in &transaction.changes {
        match change {
            Change::Destroy { .. } | Change::Delete { .. } => return false,
            Change::Create { .. } | Change::Insert { .. } => grows = true,
            Change::SetXattr { value, .. } => grows |= value.is_some(),
            Change::Patch { .. } | Change::Put { .. } | Change::Exchange { .. } => {}
        }
    }
    grows
}
