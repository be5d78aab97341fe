//! What a role holds to talk to one target, and what it says and hears over it.
//!
//! A [`Channel`] is what a role calls the target through, an [`Import`] one whose connection it decides about, too.
//! Both are faces of the same thing, which `sheen_node` makes: an [`crate::import::Engine`], which decides, and the
//! node's clock, network and tasks, which do what it decides.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{Errno, Nid, ObdHandle, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::messages::{Reply, Request};
use sheen_wire::ptlrpc::{MsgFlags, PtlrpcBody};
use sheen_wire::text::Chars;

use crate::import_state::{Counters, ImportState, StateChange};

pub use sheen_types::futures::BoxFuture;

/// Called with the answer to a request that no caller waits for.
pub type OnAnswer = Box<dyn FnOnce(Result<Answer, RpcError>) + Send>;

/// The way to one target. Behind it an import connects, reconnects, resends and replays.
pub trait Channel: Send + Sync {
    /// Sends a request and waits for its answer. While the import is not connected the call waits
    /// too, unless its kind says otherwise. Dropping the future gives the call up: its reply is
    /// ignored; a modifying request may still have been, or still be, executed.
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>>;

    /// Sends a request that no caller waits for, once the future is polled, and calls `then` with its
    /// answer where that is read: `then` must not wait. An import ends the future at once; the call
    /// cannot be given up.
    fn call_detached(&self, call: Call, then: OnAnswer) -> BoxFuture<'static, ()> {
        let answer = self.call(call);
        Box::pin(async move { then(answer.await) })
    }

    /// Where the import stands.
    fn state(&self) -> ImportState;

    /// Whether the target refused us last because it recovers, which ends with its recovery window, and takes no
    /// new clients until then (`EBUSY`).
    fn is_refused_in_recovery(&self) -> bool {
        false
    }

    /// Whether the target has refused us because its objects are those of another MDT: that may last.
    fn has_wrong_identity(&self) -> bool {
        false
    }

    /// What both sides agreed on in the last connect; before the first, what we would offer.
    fn connect_data(&self) -> ObdConnectData;

    /// The number of the connection, which goes up with each connect: what was agreed on over another one may
    /// not hold any more. The target's instance says less: a store that was put back from a copy counts from there.
    fn connection(&self) -> u32;

    /// The node that is, or would be next, talked to.
    fn peer(&self) -> Nid;

    /// Whether the target may be talking to us when a message comes from `nid`: one of the nodes that serve
    /// it, failover nodes among them.
    fn is_served_by(&self, nid: Nid) -> bool {
        nid == self.peer()
    }

    /// The target.
    fn target_uuid(&self) -> Uuid;

    /// The target's history up to here is durable, as far as the target has reported.
    fn last_committed(&self) -> Transno;

    /// Keeps a request no longer for replay that a [`RequestHook`] had kept until now: the open handle
    /// it made is closed. No effect if it is not kept.
    fn release(&self, xid: Xid);
}

/// A channel whose owner also decides when it connects.
pub trait Import: Channel {
    /// Connects; completes when the import is FULL for the first time, or fails for good. While
    /// the target cannot be reached it keeps trying.
    fn connect(&self) -> BoxFuture<'static, Result<(), RpcError>>;

    /// Disconnects and closes: waiting calls end with [`RpcError::Shutdown`]. If the target does
    /// not answer, its export stays until it evicts us.
    fn disconnect(&self) -> BoxFuture<'static, ()>;

    /// Closes without a word to the target, which will await us in recovery.
    fn close(&self);

    /// Drops the connection and connects again now (`lctl set_param *.import=recover`).
    fn reconnect(&self);

    /// Another node that serves the target, or serves it instead.
    fn add_nid(&self, nid: Nid);

    /// The states it went through, oldest first, the last few.
    fn history(&self) -> Vec<StateChange>;

    /// What it has done so far.
    fn counters(&self) -> Counters;
}

/// One request to send.
#[derive(Clone)]
pub struct Call {
    /// The request's buffers.
    pub request: Request,
    /// Bytes of reply we take beyond the reply's fixed buffers (EAs, ACLs, inline data).
    pub reply_room: usize,
    /// Data beside the messages.
    pub bulk: Bulk,
    /// What else the body says.
    pub body: BodyExtras,
    /// How it is sent, and what happens when the connection breaks.
    pub kind: CallKind,
    /// Who is asked about the request whenever it is sent, and when it is replayed.
    pub hook: Option<Arc<dyn RequestHook>>,
    /// No caller waits for it: it may be sent a moment later, together with what is sent next.
    pub may_linger: bool,
    /// Requests that count against those in flight may wait for what this one does, which waits for none of them: it does
    /// not count, and goes out ahead of those that wait for their turn.
    pub is_awaited: bool,
    /// Answer a refused request with [`Answer`] too, the errno in its body's `status`, instead of
    /// [`RpcError::Errno`]; for operations whose refusals carry buffers.
    pub refusal_as_answer: bool,
    /// It changes the target for its caller alone: once that has given it up, it is not sent again, neither on another
    /// connection nor to a target that was busy. It may have been executed.
    pub ends_with_caller: bool,
}

impl Call {
    /// A request without bulk that changes nothing.
    #[must_use]
    pub fn new(request: impl Into<Request>) -> Self {
        Self {
            request: request.into(),
            reply_room: 0,
            bulk: Bulk::None,
            body: BodyExtras::default(),
            kind: CallKind::Normal,
            hook: None,
            may_linger: false,
            is_awaited: false,
            refusal_as_answer: false,
            ends_with_caller: false,
        }
    }

    /// A request that changes the target.
    #[must_use]
    pub fn modifying(request: impl Into<Request>) -> Self {
        Self { kind: CallKind::Modifying, ..Self::new(request) }
    }

    /// With room for so many bytes of variable reply.
    #[must_use]
    pub fn with_reply_room(self, bytes: usize) -> Self {
        Self { reply_room: bytes, ..self }
    }

    /// With bulk.
    #[must_use]
    pub fn with_bulk(self, bulk: Bulk) -> Self {
        Self { bulk, ..self }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?}", self.kind, self.request.kind())
    }
}

/// Data that moves beside request and reply, in parts of 1 MiB.
#[derive(Clone, Debug, Default)]
pub enum Bulk {
    /// None, or inside the messages.
    #[default]
    None,
    /// The target fetches these pieces, laid end to end: a write.
    Source(Vec<Bytes>),
    /// The target sends up to so many bytes: a read.
    Sink(usize),
}

impl Bulk {
    /// Bytes at most.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Source(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Sink(length) => *length,
        }
    }
}

/// Fields of a request's body that the caller sets.
#[derive(Clone, Debug, Default)]
pub struct BodyExtras {
    /// The job on whose behalf this is.
    pub jobid: Chars<32>,
    /// Further `MSG_*` flags; [`MsgFlags::PACK_UID_GID`] and the like.
    pub flags: MsgFlags,
    /// User id, with its flag.
    pub uid: u32,
    /// Group id, with its flag.
    pub gid: u32,
    /// Project id, with its flag.
    pub projid: u32,
    /// Versions of the objects before the operation (VBR).
    pub pre_versions: [Transno; 4],
    /// Not our own export, but one of an earlier process of this client: what is said is said of that.
    pub former: Option<FormerExport>,
}

/// The export that a process of this client had which has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerExport {
    /// As the target knows it.
    pub handle: ObdHandle,
    /// The number of its last connection.
    pub connection: u32,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallKind {
    /// Waits for the connection; sent again after a reconnect until answered; not kept.
    #[default]
    Normal,
    /// As `Normal`, and: takes a slot of modifying requests, so that the target can answer a
    /// resend from its reply data, and is kept for replay until its transaction is durable.
    Modifying,
    /// As `Modifying` without a slot: what an OST may execute twice without harm. Of a Lustre OST all of it is
    /// kept for replay. Ours gives a transno to creates, destroys and changes of attributes alone: bytes that it
    /// has written outlive its process, and their replies carry none, so a write is sent again while it has no
    /// answer and never replayed.
    Idempotent,
    /// Ends with [`RpcError::Disconnected`] when its connection breaks: never sent twice.
    NoResend,
    /// Ends with [`RpcError::Disconnected`] at once if the import is not FULL: never waits.
    NoDelay,
    /// Sent in any connected state: what recovery itself says (lock replay).
    Recovery,
}

impl CallKind {
    /// Whether the request may change the target: it is then not forgotten with its caller, and is kept for
    /// replay if, and only if, its reply carries a transno.
    #[must_use]
    pub fn may_modify(self) -> bool {
        matches!(self, Self::Modifying | Self::Idempotent)
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The request's xid, by which [`Channel::release`] knows it.
    pub xid: Xid,
    /// The reply's body: status, transno, last committed, lock limits.
    pub body: PtlrpcBody,
    /// The reply's buffers.
    pub reply: Reply,
    /// What the target sent as bulk, its parts in order; shorter than the sink if it had less.
    pub bulk: Vec<Bytes>,
    /// The number of the connection that the reply came over, counted from the first connect (`conn_cnt`). Locks that were
    /// granted over a connection older than the last [`crate::ImportOwner::replay_locks`] are lost, unless they were
    /// replayed then.
    pub connection: u32,
}

impl Answer {
    /// Bytes of bulk received.
    #[must_use]
    pub fn bulk_length(&self) -> usize {
        self.bulk.iter().map(Bytes::len).sum()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// The target refused: its legitimate answer.
    Errno(Errno),
    /// The target evicted this client while the call was under way: what it held is gone.
    Evicted,
    /// The connection is down and the call's kind does not wait.
    Disconnected,
    /// This side is closing.
    Shutdown,
    /// The peer broke the protocol.
    Protocol(String),
    /// No answer in time, and the call's kind does not try again.
    TimedOut,
}

impl RpcError {
    /// The errno to hand upward, as Lustre's client would.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Errno(errno) => *errno,
            Self::Evicted => Errno::EIO,
            Self::Disconnected => Errno::ENOTCONN,
            Self::Shutdown => Errno::ESHUTDOWN,
            Self::Protocol(_) => Errno::EPROTO,
            Self::TimedOut => Errno::ETIMEDOUT,
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => fmt::Display::fmt(errno, out),
            Self::Evicted => out.write_str("evicted by the target"),
            Self::Disconnected => out.write_str("not connected to the target"),
            Self::Shutdown => out.write_str("shutting down"),
            Self::Protocol(what) => write!(out, "the peer broke the protocol: {what}"),
            Self::TimedOut => out.write_str("no answer in time"),
        }
    }
}

impl std::error::Error for RpcError {}

/// The owner of a request: of the open handle that it makes or closes, say. It is asked whenever the request is
/// sent, whether to keep it longer than its transaction needs, and around its replay.
pub trait RequestHook: Send + Sync {
    /// Whether to keep the request for replay even after its transaction is durable, until
    /// [`Channel::release`]: opens, whose handle lives in the target's memory only. Asked once,
    /// with the reply that carried the transno.
    fn keep_until_release(&self, answer: &Answer) -> bool {
        let _ = answer;
        false
    }

    /// The request is about to be sent, for the first time or, after a new connection, again: it may be
    /// changed, to what a restarted target calls the things it is about, say. Called under the import's
    /// lock: nothing here waits, or calls into the import.
    fn before_send(&self, request: &mut Request) {
        let _ = request;
    }

    /// The request is about to be sent again as a replay: it may be changed, to the FID and layout
    /// that the first answer gave, say. `answer_body` is the body of that answer.
    fn before_replay(&self, request: &mut Request, answer_body: &PtlrpcBody) {
        let _ = (request, answer_body);
    }

    /// The target answered the replay: a new open handle, say, or a refusal in the body's status.
    fn replayed(&self, answer: &Answer) {
        let _ = answer;
    }
}

/// Cuts pieces laid end to end into parts of 1 MiB; shares their memory.
#[must_use]
pub fn split_parts(pieces: Vec<Bytes>) -> Vec<Vec<Bytes>> {
    let mut parts: Vec<Vec<Bytes>> = Vec::new();
    let mut room = 0;
    for mut piece in pieces {
        while !piece.is_empty() {
            if room == 0 {
                parts.push(Vec::new());
                room = LNET_PAYLOAD_BYTES_MAX;
            }
            let cut = piece.split_to(piece.len().min(room));
            room -= cut.len();
            parts.last_mut().expect("a part was pushed when there was no room").push(cut);
        }
    }
    parts
}
