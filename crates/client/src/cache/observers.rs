//! Whoever keeps copies of what the facade answered.

use std::sync::Arc;

use parking_lot::RwLock;
use sheen_types::Name;

use crate::posix::{Invalidate, NodeId, Stale};

/// At most one observer.
#[derive(Default)]
pub(crate) struct Observers(RwLock<Option<Arc<dyn Invalidate>>>);

impl Observers {
    /// From now on `observer` is told.
    pub(crate) fn watch(&self, observer: Arc<dyn Invalidate>) {
        *self.0.write() = Some(observer);
    }

    /// Whether anything may be kept at all.
    pub(crate) fn watched(&self) -> bool {
        self.0.read().is_some()
    }

    fn observer(&self) -> Option<Arc<dyn Invalidate>> {
        self.0.read().clone()
    }

    /// Tells of names, and whether they named directories, all at once, and waits.
    pub(crate) async fn entries(&self, names: Vec<(NodeId, Name, bool)>) {
        let Some(observer) = self.observer() else { return };
        // All are sent before the first is waited for.
        let tell = |(node, name, is_directory): &_| observer.entry(*node, name, *is_directory);
        let told: Vec<_> = names.iter().map(tell).collect();
        for told in told {
            told.await;
        }
    }

    /// Tells of an inode and waits.
    pub(crate) async fn inode(&self, node: NodeId, stale: Stale) {
        if let Some(observer) = self.observer() {
            observer.inode(node, stale).await;
        }
    }
}
