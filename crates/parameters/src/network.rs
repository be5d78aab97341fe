//! What a process knows of its LNet, for `lnetctl` and `lctl --net`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sheen_control::api::{self, Network, NetworkPeer};
use sheen_node::net::{KindCounts, PeerReport};
use sheen_node::rpc::RpcNode;
use sheen_types::Errno;
use sheen_wire::lnet::ConnectionType;

use crate::Commands;

/// Adds the command.
pub(crate) fn add(commands: &mut Commands, node: &Arc<RpcNode>) {
    let node = Arc::clone(node);
    let answer = move |_: &[String]| {
        serde_json::to_string(&network(&node)).map_err(|error| (Errno::EIO, error.to_string()))
    };
    commands.insert(api::NETWORK.to_owned(), Box::new(answer));
}

/// What the node's LNet counted, and whom it is connected to.
fn network(node: &RpcNode) -> Network {
    let (lnet, counters) = (node.lnet(), node.lnet().counters());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let peer = |peer: PeerReport| NetworkPeer {
        nid: peer.nid.to_string(),
        connections: peer.kinds.iter().map(|kind| letter(*kind)).collect(),
        waiting: peer.waiting as u64,
    };
    Network {
        nid: lnet.nid().to_string(),
        port: lnet.port(),
        sent: count(&counters.sent),
        sent_bytes: count(&counters.sent_bytes),
        received: count(&counters.received),
        received_bytes: count(&counters.received_bytes),
        send_dropped: count(&counters.send_dropped) + count(&counters.answers_dropped),
        receive_dropped: count(&counters.receive_dropped),
        errors: count(&counters.protocol_errors),
        kinds: [&counters.sent_by, &counters.received_by, &counters.dropped_by]
            .map(KindCounts::counts),
        peers: lnet.peers().into_iter().map(peer).collect(),
    }
}

fn letter(kind: ConnectionType) -> char {
    match kind {
        ConnectionType::CONTROL => 'C',
        ConnectionType::BULK_IN => 'I',
        ConnectionType::BULK_OUT => 'O',
        _ => 'A',
    }
}
