//! The end of a world. Nodes, targets and imports hold each other until they are asked to end, and a fuzzer runs
//! thousands of them in one process.

use std::sync::Arc;

use sheen_node::rpc::RpcNode;

use crate::common::Servers;

/// Ends a node, and what came with it.
pub(crate) fn end_node(node: &RpcNode) {
    node.shutdown();
    node.lnet().shutdown();
}

/// Ends servers and their world.
///
/// # Panics
/// If something of the servers is left: what holds it would be held by a server that runs for long, too.
pub(crate) fn end(servers: Servers) {
    let Servers { world, client, cluster } = servers;
    end_node(&cluster.node);
    client.shutdown();
    world.stop();
    let (node, lnet) = (Arc::downgrade(&cluster.node), Arc::downgrade(cluster.node.lnet()));
    let targets: Vec<_> =
        cluster.places.iter().map(|place| Arc::downgrade(&place.served.target)).collect();
    drop((cluster, client));
    world.stop();
    let left = |what: &str, count: usize| assert_eq!(count, 0, "{what} is held by {count}");
    targets.iter().for_each(|target| left("a target", target.strong_count()));
    left("the servers' node", node.strong_count());
    left("its LNet", lnet.strong_count());
}
