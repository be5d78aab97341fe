//! Which import a reply or a part of bulk belongs to.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sheen_rpc::BULK_PORTALS;
use sheen_rpc::import::{Event, Message};
use sheen_rpc::limits::{XID_STEP, base_of};
use sheen_types::limits::MESSAGE_BYTES_MAX;
use sheen_types::{HashMap, MatchBits};

use super::RpcNode;
use super::import::NodeImport;
use crate::net::{Delivery, Receiver};

const SHARDS: usize = 16;

/// Imports by the match bits that they expect answers under. Bits of a node are unique, so that
/// the import alone need be found here; the import checks the rest.
#[derive(Default)]
pub(super) struct Routes([Mutex<HashMap<u64, Weak<NodeImport>>>; SHARDS]);

impl Routes {
    pub(super) fn add(&self, bits: MatchBits, import: &Weak<NodeImport>) {
        self.shard(bits.0).lock().insert(base_of(bits.0), Weak::clone(import));
    }

    pub(super) fn remove(&self, bits: MatchBits) {
        self.shard(bits.0).lock().remove(&base_of(bits.0));
    }

    fn find(&self, bits: MatchBits) -> Option<Arc<NodeImport>> {
        self.shard(bits.0).lock().get(&base_of(bits.0)).and_then(Weak::upgrade)
    }

    fn shard(&self, bits: u64) -> &Mutex<HashMap<u64, Weak<NodeImport>>> {
        &self.0[(bits / XID_STEP) as usize % SHARDS]
    }
}

/// Takes replies and parts of bulk; works on the reader's task, where it decodes the reply and wakes
/// the caller.
pub(super) struct ReplyReceiver(pub(super) Weak<RpcNode>);

impl Receiver for ReplyReceiver {
    fn receive(&self, delivery: Delivery) {
        let Some(node) = self.0.upgrade() else { return };
        // Only bulk is longer. No call expects such an answer: the request is sent again.
        let is_reply = !BULK_PORTALS.contains(&delivery.portal);
        if is_reply && delivery.payload.len() > MESSAGE_BYTES_MAX {
            node.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(import) = node.routes.find(delivery.bits) else { return };
        // A client may be where its address does not show it; of a server no peer's word is believed.
        if !delivery.is_proven && !import.is_reverse() {
            node.refused.fetch_add(1, Ordering::Relaxed);
            let from = delivery.from;
            tracing::warn!(%from, "refused an answer: that peer only says that it is the server");
            return;
        }
        import.handle(Event::Message(Message {
            from: delivery.from,
            portal: delivery.portal,
            bits: delivery.bits,
            offset: delivery.offset,
            payload: delivery.payload,
        }));
    }
}
