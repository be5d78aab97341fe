//! A target that has restarted does not know our locks: those that are used, or have dirty data, are replayed to it; the
//! rest is dropped before.
//!
//! The import asks for both when it comes to that (`rpc::ImportOwner`), and sends what it gets here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_ldlm::client::ReplayedLock;
use sheen_ldlm::{LockDesc, Policy};
use sheen_rpc::{Answer, Call, CallKind, LockReplay, RpcError};
use sheen_types::{InodeBits, LockHandle};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::messages::{LdlmEnqueue, Reply};

use super::{ClientNamespace, is_drop};

/// How long the replay of locks to a restarted target waits for unused ones to be dropped: the kernel may be
/// slow to release what they cover.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

impl ClientNamespace {
    /// The target has restarted, and our locks are about to be replayed: drops the unused ones, with what
    /// they cover. Locks over dirty data stay, and locks whose pages the kernel does not release in time are
    /// replayed. No RPC.
    pub(crate) async fn forgo_unused(self: &Arc<Self>) {
        if !self.forgoes_unused.load(Ordering::Relaxed) {
            return;
        }
        let mut unused = self.engine.unused();
        unused.retain(|lock| self.may_forgo(&lock.desc));
        let handles: Vec<LockHandle> = unused.iter().map(|lock| lock.handle).collect();
        let mut actions = Vec::new();
        self.engine.forgo(&handles, &mut actions);
        let (drops, rest): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_drop);
        self.perform(rest);
        drop(self.begin_drops(drops, "lock before replay", DROPPED_WITHIN).await);
    }

    /// The target has restarted: our locks, to be replayed over this connection.
    #[must_use]
    pub(crate) fn locks_to_replay(self: &Arc<Self>, connection: u32) -> Vec<LockReplay> {
        self.engine
            .begin_replay(connection)
            .into_iter()
            .map(|replay| self.replay_call(&replay))
            .collect()
    }

    fn replay_call(self: &Arc<Self>, replay: &ReplayedLock) -> LockReplay {
        let handle = replay.handle;
        let (flags, desc) = (replay.flags.to_wire(), replay.desc.to_wire());
        let mut dlm_req = LdlmRequest::enqueue(flags, desc, handle);
        dlm_req.count = 1;
        if let Some(second) = dlm_req.handles.get_mut(1) {
            *second = replay.remote_handle;
        }
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        let call = Call { kind: CallKind::Recovery, ..Call::new(request) };
        let namespace = Arc::downgrade(self);
        LockReplay {
            call,
            done: Box::new(move |answer| take_replay_reply(&namespace, handle, answer)),
        }
    }

    /// As in Lustre, the lock of an open file stays.
    fn may_forgo(&self, lock: &LockDesc) -> bool {
        let is_kind = match lock.policy {
            Policy::Extent { .. } => true,
            Policy::InodeBits { bits, .. } => !bits.intersects(InodeBits::OPEN),
            Policy::Plain | Policy::Flock { .. } => false,
        };
        is_kind && !self.cache.is_dirty(lock.resource)
    }
}

/// The target's reply to a replayed lock. A lock that it does not grant again is invalid: it may have evicted
/// us before it restarted, and lost the record of that; another client may have been granted the lock since.
fn take_replay_reply(
    namespace: &Weak<ClientNamespace>,
    handle: LockHandle,
    answer: Result<Answer, RpcError>,
) {
    let Some(namespace) = namespace.upgrade() else { return };
    let remote = match answer {
        Ok(answer) => match answer.reply {
            Reply::LdlmEnqueue(reply) => reply.dlm_rep.map(|reply: LdlmReply| reply.handle),
            _ => None,
        },
        // The import reconnects, and replays all locks again or learns that they are gone.
        Err(
            RpcError::Disconnected | RpcError::TimedOut | RpcError::Evicted | RpcError::Shutdown,
        ) => {
            return;
        }
        Err(RpcError::Errno(_) | RpcError::Protocol(_)) => None,
    };
    if let Some(remote) = remote {
        if !namespace.engine.replayed(handle, remote) {
            namespace.cancel([remote]);
        }
        return;
    }
    tracing::warn!(namespace = namespace.name, %handle, "the target does not grant a replayed lock again");
    let mut actions = Vec::new();
    namespace.engine.refused(handle, &mut actions);
    namespace.perform(actions);
}
