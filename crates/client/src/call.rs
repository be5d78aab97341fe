//! Calls with typed replies, and how a failed call becomes an errno.
//!
//! Here answers get the types of their replies; hooks of requests and replays of locks look at [`Answer`]s themselves. One call costs one RPC; the reply is
//! moved out of the channel's answer without a copy.

use bytes::Bytes;
use sheen_rpc::{Answer, Call, Channel};
use sheen_types::{Errno, Xid};
use sheen_wire::messages::{self, Reply, RequestFormat};
use sheen_wire::ptlrpc::PtlrpcBody;

/// A request whose reply can be taken out of [`Reply`].
pub(crate) trait TypedRequest: RequestFormat {
    /// The reply if it is of the right kind.
    fn take(reply: Reply) -> Option<Self::Reply>;
}

macro_rules! typed {
    ($($request:ident),* $(,)?) => {$(
        impl TypedRequest for messages::$request {
            fn take(reply: Reply) -> Option<Self::Reply> {
                match reply {
                    Reply::$request(reply) => Some(*reply),
                    _ => None,
                }
            }
        }
    )*};
}

typed!(
    OstLadvise,
    LdlmCancel,
    LdlmConvert,
    LdlmEnqueue,
    LdlmIntentGetattr,
    LdlmIntentGetxattr,
    LdlmIntentLayout,
    LdlmIntentOpen,
    LlogOriginHandleCreate,
    LlogOriginHandleNextBlock,
    LlogOriginHandleReadHeader,
    FldQuery,
    MdsBatch,
    MdsClose,
    MdsFid2path,
    MdsGetRoot,
    MdsGetattr,
    MdsGetattrName,
    MdsGetxattr,
    MdsReadpage,
    MdsReintMigrate,
    MdsReintCreate,
    MdsReintCreateSym,
    MdsReintLink,
    MdsReintRename,
    MdsReintSetattr,
    MdsReintSetxattr,
    MdsReintUnlink,
    MdsStatfs,
    MdsSwapLayouts,
    MdsSync,
    OstFallocate,
    OstGetattr,
    OstPunch,
    OstRead,
    OstSeek,
    OstSetGrantInfo,
    OstSetattr,
    OstStatfs,
    OstSync,
    OstWrite,
    SeqQuery,
);

/// A call that succeeded.
pub(crate) struct TypedReply<R: TypedRequest> {
    /// Status and transno.
    pub(crate) body: PtlrpcBody,
    /// The reply.
    pub(crate) reply: R::Reply,
    /// What came in bulk.
    pub(crate) bulk: Vec<Bytes>,
    /// By which the channel knows the request.
    pub(crate) xid: Xid,
    /// Which connection it came over.
    pub(crate) connection: u32,
}

/// Sends `call`, which was made from an `R`.
///
/// # Errors
/// The server's errno, or what [`sheen_rpc::RpcError::errno`] makes of the failure.
pub(crate) async fn call<R: TypedRequest>(
    channel: &dyn Channel,
    call: Call,
) -> Result<TypedReply<R>, Errno> {
    // A target that broke the protocol is in the log already, and so is one that is away or has evicted us.
    let answer = channel.call(call).await.map_err(|error| error.errno())?;
    typed_answer(answer)
}

/// A call that was refused, and the buffers of the refusal if it has any.
pub(crate) struct Refused<R: TypedRequest> {
    /// Why.
    pub(crate) errno: Errno,
    /// What came with it.
    pub(crate) reply: Option<Box<R::Reply>>,
}

/// As [`call`]; a refusal comes with its buffers.
///
/// # Errors
/// As [`call`].
pub(crate) async fn call_with_refusal<R: TypedRequest>(
    channel: &dyn Channel,
    call: Call,
) -> Result<TypedReply<R>, Refused<R>> {
    let refused = |errno| Refused { errno, reply: None };
    let call = Call { refusal_as_answer: true, ..call };
    let answer = channel.call(call).await.map_err(|error| refused(error.errno()))?;
    let status = Errno::from_status(answer.body.status);
    let answer = typed_answer::<R>(answer);
    match status {
        None => answer.map_err(refused),
        Some(errno) => {
            Err(Refused { errno, reply: answer.ok().map(|answer| Box::new(answer.reply)) })
        }
    }
}

/// Takes an answer to an `R` apart.
///
/// # Errors
/// `EPROTO` if it is a reply to something else.
pub(crate) fn typed_answer<R: TypedRequest>(answer: Answer) -> Result<TypedReply<R>, Errno> {
    let Answer { body, reply, bulk, xid, connection } = answer;
    match R::take(reply) {
        Some(reply) => Ok(TypedReply { body, reply, bulk, xid, connection }),
        None => {
            let (xid, request) = (xid.0, R::FORMAT.name);
            tracing::warn!(xid, request, "a reply is one to another request");
            Err(Errno::EPROTO)
        }
    }
}

/// A reply's field that the operation cannot do without.
///
/// # Errors
/// `EPROTO`: the server left it out.
pub(crate) fn need<T>(field: Option<T>) -> Result<T, Errno> {
    field.ok_or_else(|| {
        let field = std::any::type_name::<T>();
        tracing::warn!(field, "a reply lacks what its operation cannot do without");
        Errno::EPROTO
    })
}
