//! Whose an import is and what it is to be, its states as operators see them, and the trait that is notified of them.

use std::fmt;
use std::sync::Arc;

use sheen_types::{Instant, Nid, Uuid};
use sheen_wire::connect::ObdConnectData;

use crate::channel::{BoxFuture, Call, Channel, FormerExport};
use crate::import::ImportKind;

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

/// `LUSTRE_IMP_*`: where an import stands, with Lustre's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportState {
    /// Closed for good.
    Closed,
    /// Never connected.
    #[default]
    New,
    /// Not connected; will try.
    Disconn,
    /// A connect is under way.
    Connecting,
    /// The target restarted: what it had not made durable is being replayed.
    Replay,
    /// Then, which locks we hold.
    ReplayLocks,
    /// Then we wait until all clients have.
    ReplayWait,
    /// Requests that were under way are sent again.
    Recover,
    /// In use.
    Full,
    /// The target evicted this client; what it held is being dropped.
    Evicted,
    /// Disconnected because unused.
    Idle,
}

impl ImportState {
    /// Lustre's name, as `lctl get_param *.import` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::New => "NEW",
            Self::Disconn => "DISCONN",
            Self::Connecting => "CONNECTING",
            Self::Replay => "REPLAY",
            Self::ReplayLocks => "REPLAY_LOCKS",
            Self::ReplayWait => "REPLAY_WAIT",
            Self::Recover => "RECOVER",
            Self::Full => "FULL",
            Self::Evicted => "EVICTED",
            Self::Idle => "IDLE",
        }
    }

    /// Whether the target knows us by a handle that is in use.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(
            self,
            Self::Replay | Self::ReplayLocks | Self::ReplayWait | Self::Recover | Self::Full
        )
    }
}

impl fmt::Display for ImportState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One step of an import's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// When.
    pub at: Instant,
    /// Into which state.
    pub state: ImportState,
}

/// What an import has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent, resends included.
    pub sent: u64,
    /// Replies taken.
    pub replies: u64,
    /// Early replies taken.
    pub early_replies: u64,
    /// Requests sent again because their connection broke.
    pub resent: u64,
    /// Requests replayed.
    pub replayed: u64,
    /// Requests that got no reply in time.
    pub timeouts: u64,
    /// Connects tried.
    pub connects: u64,
    /// Evictions.
    pub evictions: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// Requests waiting to be sent now.
    pub waiting: u64,
    /// Requests kept for replay now.
    pub kept: u64,
    /// What we expect the target to take for a request, in seconds.
    pub service_estimate: u32,
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
    pub done: Box<dyn FnOnce(Result<crate::channel::Answer, crate::channel::RpcError>) + Send>,
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
