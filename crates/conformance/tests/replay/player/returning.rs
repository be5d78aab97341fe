//! Clients that the capture does not show coming back when a target starts again: there they used a
//! second MDT, which went on. They replay their opens, and have no locks that a client asks for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_node::net::LNet;
use sheen_rpc::reply_portal;
use sheen_types::{HashSet, MatchBits, Nid, Transno};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{Kind, ObdPing, Reply, Request};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgFlags, MsgType, PtlrpcBody};

use super::{BYTES_MAX, Player, TargetId, encoded, proper};
use crate::mounts::Export;
use crate::script::Script;

/// Longer than a server takes to make durable what it has executed.
const COMMITTED: Duration = Duration::from_secs(10);

/// An open as it was sent to our server.
pub(super) struct Opened {
    pub(super) export: Export,
    pub(super) portal: Portal,
    pub(super) bits: MatchBits,
    pub(super) message: Message,
    pub(super) transno: Transno,
}

/// Open handles of the capture, and what they are called since the target started.
pub(super) type Reopened = Arc<Mutex<Vec<(u64, u64)>>>;

/// What a client says after it has connected: to where, under which bits, and the captured handle of
/// what it opens.
struct Says {
    portal: Portal,
    bits: MatchBits,
    message: Message,
    opens: Option<u64>,
}

impl Player {
    /// The target starts, and the clients that the capture does not show reconnect.
    pub(super) async fn start(&mut self, target: TargetId, returning: Vec<u64>) {
        let numbers =
            returning.into_iter().map(|handle| (self.mounts.number(target, handle), target));
        let expected: HashSet<Export> = numbers.collect();
        self.machines.start(target).await;
        self.down.remove(&target);
        for export in self.mounts.at(target) {
            self.forget_locks(export);
            if !expected.contains(&export) {
                self.connect(export).await;
                self.replay(export);
            }
        }
    }

    /// Connects the clients that the capture shows coming back, as they had before it: one that a server did not know when
    /// it stopped could not come back.
    pub(super) async fn connect_all_that_return(&mut self, script: &Script) {
        for exchange in &script.exchanges {
            let handle = exchange.request.body.handle.0;
            let at = script.returning.iter().filter(|(_, returning)| *returning == handle);
            for (target, _) in at.copied().collect::<Vec<_>>() {
                let export = (self.mounts.number(target, handle), target);
                if self.mounts.handle(export).is_none() {
                    self.connect(export).await;
                }
            }
        }
        if !script.returning.is_empty() {
            // What was there before the capture is durable.
            self.world.clock.sleep_until(self.world.clock.now() + COMMITTED).await;
        }
    }

    /// Replays while the script goes on: the server waits for all clients.
    fn replay(&mut self, export: Export) {
        let mut opens: Vec<_> = self.opens.iter().filter(|(_, it)| it.export == export).collect();
        opens.sort_by_key(|(_, opened)| opened.transno);
        let mut says = Vec::new();
        for (real, opened) in opens {
            let mut message = opened.message.clone();
            let Ok(like) = message.body() else { continue };
            let flags = like.flags | MsgFlags::REPLAY;
            let body = PtlrpcBody { flags, ..self.body(export, &like) };
            message.buffers[0] = encoded(&PtlrpcBody { transno: opened.transno, ..body });
            let Opened { portal, bits, .. } = *opened;
            says.push(Says { portal, bits, message, opens: Some(*real) });
        }
        let portal = match export.1 {
            TargetId::Mgs => return,
            TargetId::Mdt(_) => Portal::MDS_REQUEST,
            TargetId::Ost(_) => Portal::OST_REQUEST,
        };
        let ping = Request::from(ObdPing::default());
        let like = PtlrpcBody {
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode: ping.format().opcode,
            flags: MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE,
            ..PtlrpcBody::default()
        };
        let bytes = ping.to_bytes(&MessageHeader::default(), &self.body(export, &like));
        let message = Message::decode(&bytes).expect("a message of ours");
        says.push(Says { portal, bits: self.next_bits(), message, opens: None });
        let (lnet, server) = (Arc::clone(&self.lnet), self.server);
        let reopened = Arc::clone(&self.reopened);
        let task = async move { say(&lnet, server, says, &reopened).await };
        self.world.tasks.spawn("returning client", Box::pin(task));
    }

    /// Learns what was opened again meanwhile.
    pub(super) fn note_reopened(&mut self) {
        for (real, ours) in std::mem::take(&mut *self.reopened.lock()) {
            self.mapping.learn(real, ours);
        }
    }
}

/// One after the other, as replays go.
async fn say(lnet: &Arc<LNet>, server: Nid, says: Vec<Says>, reopened: &Reopened) {
    for Says { portal, bits, message, opens } in says {
        let mut answer = lnet.expect_puts(server, reply_portal(portal), bits, BYTES_MAX);
        lnet.put(server, portal, bits, 0, vec![message.encode()]);
        let Some(delivery) = proper(&mut answer).await else { return };
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(Reply::LdlmIntentOpen(opened)) = Reply::decode(Kind::LdlmIntentOpen, &message)
        else {
            continue;
        };
        if let (Some(real), Some(body)) = (opens, opened.mdt_body) {
            reopened.lock().push((real, body.open_handle.0));
        }
    }
}
