//! Where xids come from.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_types::Xid;

use crate::limits::{XID_STEP, base_of};

/// Gives out the xids of a node; all its imports share it.
#[derive(Debug)]
pub struct Xids(AtomicU64);

impl Xids {
    /// Starts behind `last`.
    #[must_use]
    pub fn new(last: Xid) -> Self {
        Self(AtomicU64::new(base_of(last.0)))
    }

    /// The next one.
    #[must_use]
    pub fn next(&self) -> Xid {
        Xid(self.0.fetch_add(XID_STEP, Ordering::Relaxed) + XID_STEP)
    }
}
