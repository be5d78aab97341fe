//! OST objects reserved for a file, until a transaction records them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use sheen_store::Transaction;

use super::ost::{self, PlacementOst};

/// A file's new layout and the objects that it adds, not yet recorded. Dropped without having been
/// recorded, it returns the objects to the precreated ones.
pub(crate) struct ReservedObjects {
    objects: Vec<(Arc<PlacementOst>, u64)>,
    /// On OSTs that are not known yet.
    early: Vec<(u16, u64)>,
    layout: Bytes,
    is_recorded: AtomicBool,
}

impl ReservedObjects {
    pub(super) fn new(objects: Vec<(Arc<PlacementOst>, u64)>, layout: Bytes) -> Self {
        Self { objects, early: Vec::new(), layout, is_recorded: AtomicBool::new(false) }
    }

    /// Objects that a client names in a replay: they are used, whatever becomes of the request.
    pub(super) fn replayed(
        objects: Vec<(Arc<PlacementOst>, u64)>,
        early: Vec<(u16, u64)>,
        layout: Bytes,
    ) -> Self {
        Self { objects, early, layout, is_recorded: AtomicBool::new(true) }
    }

    pub(super) fn add(&mut self, more: Vec<(Arc<PlacementOst>, u64)>) {
        self.objects.extend(more);
    }

    pub(super) fn set_layout(&mut self, layout: Bytes) {
        self.layout = layout;
    }

    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }

    /// The objects: from now on the caller must record or return them.
    pub(super) fn into_objects(mut self) -> Vec<(Arc<PlacementOst>, u64)> {
        std::mem::take(&mut self.objects)
    }

    /// The layout's bytes.
    pub(crate) fn layout(&self) -> &Bytes {
        &self.layout
    }

    /// Adds that the objects are used. Called in the order of transactions.
    pub(crate) fn record(&self, transaction: &mut Transaction) {
        self.is_recorded.store(true, Ordering::Release);
        for (ost, id) in &self.objects {
            ost.record_used(transaction, *id);
        }
        for (index, id) in &self.early {
            ost::put_used(transaction, *index, *id);
        }
    }
}

impl Drop for ReservedObjects {
    fn drop(&mut self) {
        if !*self.is_recorded.get_mut() {
            // The last first, so that the counter of an OST can step back.
            for (ost, id) in self.objects.iter().rev() {
                ost.return_object(*id);
            }
        }
    }
}
