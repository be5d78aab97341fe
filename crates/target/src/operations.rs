//! What a role does, and how it answers.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockDesc, LockKind};
use sheen_types::{CounterLine, Errno, Nid, ResourceName, TargetName, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::messages::{Reply, Request};

use crate::context::Context;
use crate::distributed::Redo;
use crate::enqueue_request::EnqueueRequest;
use crate::export::Export;
use crate::last_rcvd::ReplyRecord;
use crate::target::Target;

/// An answer. The target adds to it what every reply carries: transno, last committed, lock
/// limits.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// 0, a negative errno, or an operation's positive answer.
    pub status: i32,
    /// The buffers; `None` for a reply of the body alone.
    pub reply: Option<Reply>,
}

impl Outcome {
    /// Success, with these buffers.
    #[must_use]
    pub fn ok(reply: impl Into<Reply>) -> Self {
        Self { status: 0, reply: Some(reply.into()) }
    }

    /// Refused, and yet with buffers.
    #[must_use]
    pub fn failed(errno: Errno, reply: impl Into<Reply>) -> Self {
        Self { status: errno.status(), reply: Some(reply.into()) }
    }
}

impl From<Errno> for Outcome {
    /// Refused, with the body alone.
    fn from(errno: Errno) -> Self {
        Self { status: errno.status(), reply: None }
    }
}

/// Why an export ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportEnd {
    /// The client asked for it.
    Disconnected,
    /// It did not answer in time, or an operator evicted it.
    Evicted,
    /// It did not come back in the recovery window.
    Stale,
    /// The target stops; the client is awaited when it starts again.
    Stopping,
}

/// Who asks for a connection.
#[derive(Debug)]
pub struct Connecting<'a> {
    /// The UUID.
    pub client: &'a Uuid,
    /// Where from.
    pub nid: Nid,
    /// What it offers.
    pub offered: &'a ObdConnectData,
    /// It is a server, and known to be.
    pub is_server: bool,
    /// The target of its file system that it names itself after, if it is a server.
    pub owner: Option<TargetName>,
}

/// What a role implements. All hooks but [`Operations::operate`] have a default.
///
/// The target calls from many tasks at once and holds no lock while it does.
pub trait Operations: Send + Sync + 'static {
    /// What the role counts for operators, for the target and for each client.
    fn counters(&self) -> &'static [CounterLine] {
        &[]
    }

    /// Under which of its counters the role counts how long a request takes.
    fn counter_of(&self, request: &Request) -> Option<usize> {
        let _ = request;
        None
    }

    /// Whether this role has locks of this kind on this resource. A resource takes locks of one kind: one of
    /// another, which a client can ask for, would keep all that it is meant for from it.
    fn has_locks(&self, resource: &ResourceName, kind: LockKind) -> bool {
        let _ = (resource, kind);
        true
    }

    /// Executes a request that the target does not answer itself. A request of a kind that is not
    /// the role's business is refused with [`Errno::EOPNOTSUPP`].
    ///
    /// When the request changes something, it calls [`Target::transact`] exactly once; the target
    /// takes the reply's transaction number from there. It is called for replayed requests too:
    /// see [`Context::replay`].
    fn operate<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>>;

    /// Answers a request that was executed before: its reply got lost, or the target has crashed
    /// since and it comes as a replay ([`Context::replay`]), so that what lived in memory, as an
    /// open handle, must be made anew. `record` is what [`Target::transact`] stored of it. If the
    /// request asks for a lock, the client may have that lock: [`Context::resent_lock`]. The
    /// default answers with the recorded result and no buffers, which is right for operations whose
    /// reply says no more.
    fn reconstruct<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
        record: ReplyRecord,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        let _ = (context, request);
        Box::pin(async move { Ok(Outcome { status: record.result, reply: None }) })
    }

    /// Executes an LDLM_ENQUEUE with an intent, of whatever kind of the message table that names it. The role
    /// takes the locks it needs ([`Target::lock`]), and may hand one of them to the client
    /// ([`crate::LockGuard::hand_over`]), which gives the reply's `LdlmReply`. When the request is
    /// sent again (`Context::is_resent`), the client may have its lock: see
    /// [`Context::resent_lock`] before taking one that would conflict with it.
    fn intent<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        let _ = (context, request, enqueue);
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }

    /// Whether an LDLM_ENQUEUE that has an intent and does not name it is a glimpse. Where not, it is one without
    /// an intent, as for Lustre's MDT: its clients ask so for the lock under which they read a directory.
    fn is_glimpse(&self, context: &Context, enqueue: &EnqueueRequest) -> bool {
        let _ = (context, enqueue);
        true
    }

    /// Executes a glimpse: an LDLM_ENQUEUE that has an intent and does not name it (`mdt_glimpse_enqueue`,
    /// `ofd_intent_policy`). A client wants to know size and times of an object. It is granted the lock if none
    /// conflicts; otherwise the holders, who may know better, are asked ([`Target::glimpse`]), and the answer is the
    /// value alone.
    fn glimpse_enqueue<'a>(
        &'a self,
        context: &'a Context,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        let _ = (context, enqueue);
        Box::pin(async { Err(Errno::EOPNOTSUPP) })
    }

    /// Whether the role has anything to do with this client at all; asked at every connect before anything else is done
    /// for it. A role that refuses says why in its log.
    ///
    /// # Errors
    /// The connect's answer.
    fn may_connect<'a>(
        &'a self,
        target: &'a Arc<Target>,
        connecting: &'a Connecting<'a>,
    ) -> BoxFuture<'a, Result<(), Errno>> {
        let _ = (target, connecting);
        Box::pin(async { Ok(()) })
    }

    /// Fills in what the role agrees to beyond flags: grants, checksum types. An error refuses the
    /// connect. Called on every connect and reconnect, `agreed` being what both can do.
    fn connect(
        &self,
        export: &Arc<Export>,
        offered: &ObdConnectData,
        agreed: &mut ObdConnectData,
    ) -> Result<(), Errno> {
        let _ = (export, offered, agreed);
        Ok(())
    }

    /// Ends an export: open handles are closed, grants return. Its locks are dropped already.
    fn end_export<'a>(
        &'a self,
        target: &'a Arc<Target>,
        export: &'a Arc<Export>,
        why: ExportEnd,
    ) -> BoxFuture<'a, ()> {
        let _ = (target, export, why);
        Box::pin(async {})
    }

    /// How changes over several MDTs are redone; `None` for a role that makes none.
    fn redo(&self) -> Option<&dyn Redo> {
        None
    }

    /// The target serves from now on; recovery may still run.
    fn started<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        let _ = target;
        Box::pin(async {})
    }

    /// Recovery has ended, or there was none: what no client replayed may be cleaned up.
    fn recovered<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        let _ = target;
        Box::pin(async {})
    }

    /// The lock value block that goes to a client with a granted lock: `ost_lvb` of an object, the
    /// layout under a layout lock; empty for a lock without. Asked when the lock is granted, in the
    /// reply or in the completion callback, so that it shows what earlier holders wrote. A role
    /// that lets clients write under locks asks them first where it must ([`Target::glimpse`]).
    /// An error refuses the lock.
    fn lock_value<'a>(
        &'a self,
        target: &'a Arc<Target>,
        lock: &'a LockDesc,
    ) -> BoxFuture<'a, Result<Bytes, Errno>> {
        let _ = (target, lock);
        Box::pin(async { Ok(Bytes::new()) })
    }
}
