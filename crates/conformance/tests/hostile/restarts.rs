//! Targets that die and come back on a node that lives on.

use std::sync::Arc;
use std::time::Duration;

use sheen_rpc::ImportState;
use sheen_types::Uuid;

use crate::common::{Cluster, OSTS, start};
use crate::restart;

/// Longer than a recovery window.
const RECOVERED: Duration = Duration::from_secs(600);
/// The MDT's place in the cluster, and that of the first OST.
const MDT: usize = 1;
const OST: usize = 2;

/// States of the MDT's connections to its OSTs, less those that were closed.
fn connections(cluster: &Cluster) -> Vec<ImportState> {
    let client = Uuid::new("lustre-MDT0000-mdtlov_UUID");
    let all = cluster.node.imports().into_iter().filter(|import| import.client == client);
    all.map(|import| import.state).filter(|state| *state != ImportState::Closed).collect()
}

/// A request that never ends keeps the MDT that has died in memory. Its connections would fight with those
/// of its successor for the same exports, and win each time an OST restarts.
#[test]
fn an_mdt_that_died_disconnects_from_its_osts() {
    let mut servers = start(11);
    let all_full = vec![ImportState::Full; usize::from(OSTS)];
    let former = Arc::clone(&servers.cluster.places[MDT].served);
    for target in [MDT, OST, MDT, OST + 1] {
        servers.cluster = restart(&servers.world, servers.cluster, target);
        servers.world.pass(RECOVERED);
        assert_eq!(connections(&servers.cluster), all_full, "after a restart of {target}");
    }
    drop(former);
}
