//! Whose an import is, what it is to be, and the trait that is notified of its states.

use std::fmt;
use std::sync::Arc;

use sheen_types::{Nid, Uuid};
use sheen_wire::connect::ObdConnectData;

use crate::channel::{Answer, BoxFuture, Call, Channel, FormerExport, RpcError};
use crate::import_state::{ImportKind, ImportState};

/// What an import is to be, and whose.
pub struct ImportConfig {
    /// The target.
    pub target: Uuid,
    /// Who we are.
    pub client: Uuid,
    /// Nodes that serve the target, the best first; at least one.
    pub nids: Vec<Nid>,
    /// The target's kind, which says the portals and the connect's opcode.
    pub kind: ImportKind,
    /// What we offer in a connect.
    pub data: ObdConnectData,
    /// Requests on the wire at once; 0 for the default.
    pub requests_in_flight: usize,
    /// Notified of the import's states.
    pub owner: Arc<dyn ImportOwner>,
}

impl fmt::Debug for ImportConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} for {} at {:?}", self.target, self.client, self.nids)
    }
}

/// Notified when an import changes state. Called from the import's tasks with no lock held;
/// must not block.
pub trait ImportOwner: Send + Sync {
    /// A new state. FULL comes after recovery.
    fn state_changed(&self, state: ImportState, data: &ObdConnectData) {
        let _ = (state, data);
    }

    /// The target `target` knows us as `export` from now on.
    fn exported(&self, target: &Uuid, export: FormerExport) {
        let _ = (target, export);
    }

    /// Whether the owner holds nothing at the target that a disconnect would take from it, a lock say.
    /// Only then is an unused connection given up.
    fn is_unused(&self) -> bool {
        false
    }

    /// All is void that the target gave us: locks, open handles, unwritten data and requests kept for replay are
    /// lost. It evicted us, then this is called before requests are let through again; or it refuses us for good;
    /// or operators turned the import off.
    fn void_all(&self, channel: &Arc<dyn Channel>) {
        let _ = channel;
    }

    /// The target has restarted and our locks are about to be replayed: those that need not be are dropped now.
    fn before_lock_replay(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Our locks are replayed to the restarted target: one enqueue (kind
    /// [`crate::CallKind::Recovery`], with REQ_REPLAY_DONE set by the import) and what to do with
    /// its answer, per lock. `connection` is numbered as in [`crate::Answer::connection`].
    fn replay_locks(&self, connection: u32) -> Vec<LockReplay> {
        let _ = connection;
        Vec::new()
    }
}

/// One lock to be replayed.
pub struct LockReplay {
    /// The enqueue.
    pub call: Call,
    /// Takes the answer; the lock's new remote handle is in it.
    pub done: Box<dyn FnOnce(Result<Answer, RpcError>) + Send>,
}

impl fmt::Debug for LockReplay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.call, out)
    }
}

/// An owner that needs no notification.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOwner;

impl ImportOwner for NoOwner {}
