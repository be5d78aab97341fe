//! Whoever keeps copies of what the facade answered.

use std::sync::Arc;

use parking_lot::RwLock;
use sheen_types::Name;
use sheen_types::access::Audience;

use crate::posix::{Invalidate, NodeId, Stale};

/// At most one observer.
#[derive(Default)]
pub(crate) struct Observers(RwLock<Option<(Arc<dyn Invalidate>, Audience)>>);

impl Observers {
    /// From now on `observer` is told; `audience` is who uses what it keeps.
    pub(crate) fn watch(&self, observer: Arc<dyn Invalidate>, audience: Audience) {
        *self.0.write() = Some((observer, audience));
    }

    /// Whether anything may be kept at all.
    pub(crate) fn watched(&self) -> bool {
        self.0.read().is_some()
    }

    fn observer(&self) -> Option<Arc<dyn Invalidate>> {
        self.0.read().as_ref().map(|(observer, _)| Arc::clone(observer))
    }

    /// Who uses what is kept; `None` if nothing is.
    pub(crate) fn audience(&self) -> Option<Audience> {
        self.0.read().as_ref().map(|(_, audience)| *audience)
    }

    /// Tells that nobody may walk through `names` of a directory without asking, and waits.
    pub(crate) async fn children(&self, node: NodeId, names: Vec<Name>) {
        if let Some(observer) = self.observer().filter(|_| !names.is_empty()) {
            observer.children(node, names).await;
        }
    }

    /// Tells of names, and whether what they named is in use, all at once, and waits.
    pub(crate) async fn entries(&self, names: Vec<(NodeId, Name, bool)>) {
        let Some(observer) = self.observer() else { return };
        // All are sent before the first is waited for.
        let tell = |(node, name, is_in_use): &_| observer.entry(*node, name, *is_in_use);
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
