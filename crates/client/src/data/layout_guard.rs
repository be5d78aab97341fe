//! Detects that a file's layout may have changed since it was read.
//!
//! A layout is current while the lock on it is held. While a lock on an object is held, no client can move
//! the file away from that object (that needs a conflicting lock), so the layout is checked once more when
//! that lock was acquired: if the lock on the layout was never lost since it was read, the object is still
//! the file's. No RPC, no lock; one load of an atomic.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sheen_types::{Errno, Extent};

/// One per inode, whatever its layout.
#[derive(Default)]
pub struct LayoutGuard {
    /// How often the lock on the layout was lost.
    losses: AtomicU64,
    /// Appends of this client queue here: each needs to see where the one before it ended.
    pub(super) append: tokio::sync::Mutex<()>,
    /// Whether a read may have filled the kernel's page in which the file ends, since an append last had it
    /// dropped.
    pub(super) end_was_read: AtomicBool,
}

impl LayoutGuard {
    /// The layout may change from now on.
    pub fn layout_revoked(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// The kernel has got pages up to the file's end.
    pub fn note_end_read(&self) {
        self.end_was_read.store(true, Ordering::Release);
    }

    /// The layout is known now, under a lock.
    #[must_use]
    pub fn version(self: &Arc<Self>) -> LayoutVersion {
        LayoutVersion {
            layout_guard: Arc::clone(self),
            losses: self.losses.load(Ordering::Acquire),
        }
    }
}

/// When a layout was read.
#[derive(Clone)]
pub struct LayoutVersion {
    pub(super) layout_guard: Arc<LayoutGuard>,
    losses: u64,
}

impl LayoutVersion {
    /// Whether the lock on the layout was held ever since.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.layout_guard.losses.load(Ordering::Acquire) == self.losses
    }

    /// # Errors
    /// [`Refusal::Stale`] unless it is current.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.is_current() { Ok(()) } else { Err(Refusal::Stale) }
    }
}

/// Why a call on a file's data did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It failed.
    Errno(Errno),
    /// The layout may have changed: the caller reads it and calls again.
    Stale,
    /// These bytes have no objects yet: the caller has the MDT make them, and calls again.
    NoObjects(Extent),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(out, "{errno}"),
            Self::Stale => write!(out, "the layout may have changed"),
            Self::NoObjects(extent) => write!(out, "no objects for {extent}"),
        }
    }
}
