//! What one client may use up of a server, as operators have set it, and how often it wanted more.
//!
//! Shared by everything that keeps a client within its budget; reading a limit is one relaxed load.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits;

/// What a client may have only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceLimit {
    /// Ordinary requests that run at once.
    RequestsActive,
    /// Bytes of memory that its waiting requests hold.
    QueuedBytes,
    /// Bytes of bulk that are on their way at once.
    BulkBytes,
}

impl ServiceLimit {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RequestsActive, Self::QueuedBytes, Self::BulkBytes];
}

/// The limits of each client of a node.
#[derive(Debug)]
pub struct ServiceBudget {
    limits: [AtomicUsize; ServiceLimit::ALL.len()],
    refused: [AtomicU64; ServiceLimit::ALL.len()],
}

impl Default for ServiceBudget {
    fn default() -> Self {
        let limits = ServiceLimit::ALL.map(|limit| match limit {
            ServiceLimit::RequestsActive => limits::CLIENT_ACTIVE,
            ServiceLimit::QueuedBytes => limits::CLIENT_QUEUED_BYTES,
            ServiceLimit::BulkBytes => limits::CLIENT_BULK_BYTES,
        });
        Self { limits: limits.map(AtomicUsize::new), refused: Default::default() }
    }
}

impl ServiceBudget {
    /// So much a client may have.
    #[must_use]
    pub fn of(&self, limit: ServiceLimit) -> usize {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// From now on a client may have so much; at least 1.
    pub fn set(&self, limit: ServiceLimit, value: usize) {
        self.limits[limit as usize].store(value.max(1), Ordering::Relaxed);
    }

    /// A client wanted more and was refused, or had to wait for itself.
    pub fn refuse(&self, limit: ServiceLimit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    #[must_use]
    pub fn refused(&self, limit: ServiceLimit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }
}
