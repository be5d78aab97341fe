//! What an engine is fed, and what it has its node do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_types::{MatchBits, Nid, Transno, Xid};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::Request;
use sheen_wire::ptlrpc::PtlrpcBody;

use super::Outgoing;
use crate::channel::{Answer, Call, RequestHook, RpcError};
use crate::import_state::ImportState;
use crate::timing::OwnTimes;

/// What happens to an import.
#[derive(Debug)]
pub enum Event {
    /// A call, under a key that the node chose.
    Submit(u64, Box<Call>),
    /// No caller waits for this call any more.
    GiveUp(u64),
    /// A message arrived that belongs to a request in flight.
    Message(Message),
    /// Connect; completed, under this key, when FULL.
    Connect(u64),
    /// Disconnect; completed, under this key, when CLOSED.
    Disconnect(u64),
    /// Close without a word.
    Close,
    /// Drop the connection and make a new one now.
    Reconnect,
    /// Another node that serves the target.
    AddNid(Nid),
    /// The connections to a node are gone, or it refused one.
    PeerDown(Nid),
    /// All calls of [`Action::ReplayLocks`] have ended, over this connection; false if one of them failed for
    /// lack of it.
    LocksReplayed(u32, bool),
    /// The owner has dropped what [`Action::VoidAll`] named.
    AllVoided,
    /// The owner of a request that is replayed next has looked at it.
    Prepared(Transno, Box<Request>),
    /// Do not keep this request any longer than its transaction needs.
    Release(Xid),
    /// From now on so many requests may be on the wire at once.
    Limit(usize),
    /// From now on so many modifying requests may, as far as the target has slots for them.
    LimitModifying(usize),
    /// Count anew.
    ClearStats,
    /// From now on the import has these times of its own.
    OwnTimes(OwnTimes),
    /// The times of the process have changed.
    TimingChanged,
    /// The owner does not need this connection, or does.
    Unused(u32, bool),
    /// How long an unused connection is kept; for ever if zero.
    IdleTimeout(Duration),
    /// Whether a lost connection is made again though no caller asks for anything.
    AutoReconnect(bool),
    /// Whether the import is to be used at all.
    Activate(bool),
    /// Time has passed.
    Tick,
}

/// A message that belongs to a request in flight.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who sent it.
    pub from: Nid,
    /// To which portal.
    pub portal: Portal,
    /// Under which bits.
    pub bits: MatchBits,
    /// Where in our buffer: early replies lie at 0, replies behind them.
    pub offset: u32,
    /// The message.
    pub payload: Bytes,
}

/// What the node has to do.
#[expect(clippy::large_enum_variant, reason = "every call is completed: a box would cost it one")]
pub enum Action {
    /// Send a request, having set up its bulk.
    Send(Box<Outgoing>),
    /// Nothing more is expected under the match bits of this try: the route and bulk of it end.
    Forget(MatchBits),
    /// A call has ended. If there is a hook, ask it whether to keep the request, and if not,
    /// say [`Event::Release`].
    Complete(u64, Result<Answer, RpcError>, Option<Arc<dyn RequestHook>>),
    /// A connect or disconnect has ended.
    Settled(u64, Result<(), RpcError>),
    /// Notify the owner of the new state.
    State(ImportState),
    /// Notify the owner that all is void that the target gave it: it evicted us, refused us for good, or operators
    /// turned the import off. Then [`Event::AllVoided`].
    VoidAll,
    /// The target has lost what it had reported as durable up to the first: now it claims the second.
    /// What was dropped for that cannot be replayed. Log it for operators; nothing follows.
    WentBack(Transno, Transno),
    /// The target is another MDT than ours, or has the objects of another one and refuses us for that. Log it for operators; it is not
    /// said again before we were connected.
    WrongIdentity,
    /// Ask the owner whether it needs this connection; then [`Event::Unused`] with it.
    AskUnused(u32),
    /// Ask the owner for its locks and submit their calls; then [`Event::LocksReplayed`] with this connection.
    ReplayLocks(u32),
    /// Show the owner a request before its replay; then [`Event::Prepared`].
    Prepare(Transno, Arc<dyn RequestHook>, Box<Request>, Box<PtlrpcBody>),
    /// Show the owner the answer to a replay.
    Replayed(Arc<dyn RequestHook>, Box<Answer>),
}

impl fmt::Debug for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(send) => write!(out, "Send({send:?})"),
            Self::Forget(bits) => write!(out, "Forget({bits:#x})"),
            Self::Complete(key, result, _) => write!(out, "Complete({key}, {result:?})"),
            Self::Settled(key, result) => write!(out, "Settled({key}, {result:?})"),
            Self::State(state) => write!(out, "State({state})"),
            Self::VoidAll => out.write_str("VoidAll"),
            Self::WrongIdentity => out.write_str("WrongIdentity"),
            Self::WentBack(reported, claimed) => write!(out, "WentBack({reported}, {claimed})"),
            Self::AskUnused(connection) => write!(out, "AskUnused({connection})"),
            Self::ReplayLocks(connection) => write!(out, "ReplayLocks({connection})"),
            Self::Prepare(transno, ..) => write!(out, "Prepare({transno})"),
            Self::Replayed(_, answer) => write!(out, "Replayed({})", answer.xid),
        }
    }
}
