//! Our servers' part of an outage: targets stop, lose what they had not committed, and start.

use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_store_mem::StoreMem;
use sheen_types::{HashMap, TargetKind, Uuid};
use sheen_vnet::Virtual;

use crate::common::{Cluster, Place};
use crate::player::TargetId;

/// The servers, some of which may not be there.
pub(crate) struct Machines {
    world: Arc<Virtual>,
    cluster: Cluster,
    /// What is left of a store after a stop that loses something.
    remembered: HashMap<TargetId, StoreMem>,
}

impl Machines {
    pub(crate) fn new(world: &Arc<Virtual>, cluster: Cluster) -> Self {
        Self { world: Arc::clone(world), cluster, remembered: HashMap::default() }
    }

    fn index(&self, target: TargetId) -> usize {
        let wanted = |place: &Place| match (&place.served.kind, target) {
            (TargetLabel::Mgs, TargetId::Mgs) => true,
            (TargetLabel::Target(name), TargetId::Mdt(index)) => {
                name.kind == TargetKind::Mdt && name.index == index
            }
            (TargetLabel::Target(name), TargetId::Ost(index)) => {
                name.kind == TargetKind::Ost && u32::from(name.index) == index
            }
            _ => false,
        };
        self.cluster.places.iter().position(wanted).expect("a target of ours")
    }

    /// As `enable_dir_restripe` is set on all MDTs.
    pub(crate) fn restripe_directories(&self) {
        for place in &self.cluster.places {
            if let Role::Mdt(mdt) = &place.served.role {
                mdt.restripe_directories(true);
            }
        }
    }

    /// What the store has now is what it will have when the target has stopped and started.
    pub(crate) fn remember(&mut self, target: TargetId) {
        let store = self.cluster.places[self.index(target)].store.crash();
        self.remembered.insert(target, store);
    }

    /// The target stops. From now on it is not there.
    pub(crate) async fn stop(&mut self, target: TargetId) {
        let place = &self.cluster.places[self.index(target)];
        let uuid = match &place.served.kind {
            TargetLabel::Mgs => Uuid::new("MGS"),
            TargetLabel::Target(name) => name.uuid(),
        };
        place.served.target.stop().await.expect("a store that works");
        self.cluster.node.unregister(&uuid);
        self.world.end(place.scope);
    }

    /// It starts.
    pub(crate) async fn start(&mut self, target: TargetId) {
        let index = self.index(target);
        let place = &self.cluster.places[index];
        let store = self.remembered.remove(&target).map(Arc::new);
        let store = store.unwrap_or_else(|| Arc::clone(&place.store));
        let place = self.cluster.serve(place.served.kind.clone(), store).await;
        self.cluster.keep_osts(&place);
        self.cluster.places[index] = place;
    }

    /// As `evict_client` does.
    pub(crate) async fn evict(&self, target: TargetId, client: &str) {
        let place = &self.cluster.places[self.index(target)];
        place.served.target.evict_client(client).await;
    }
}
