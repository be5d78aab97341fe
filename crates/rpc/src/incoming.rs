//! What a server hands to a target: a request, the way back, and the way to its bulk.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sheen_types::futures::all_pinned;
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{Errno, Instant, MatchBits, Nid, ObdHandle, Transno, Uuid, Xid};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{Reply, Request};
use sheen_wire::ptlrpc::{HeaderFlags, MsgFlags, OpFlags, PtlrpcBody};

use crate::channel::{BoxFuture, RpcError, split_parts};
use crate::limits;

/// Executes requests: one per registered target.
pub trait Handler: Send + Sync {
    /// Executes a request; its answer goes out by [`IncomingRequest::replier`], before or after the
    /// future completes. Many run at once. A request whose replier is dropped unsent gets no
    /// answer: the client will ask again.
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()>;

    /// Whether an export of this target has this handle: requests other than connects are routed
    /// by it when several targets share a portal.
    fn owns(&self, export: ObdHandle) -> bool;

    /// Whether an export of this target is at `nid`: a peer that is no target's client need not be kept.
    fn has_client_at(&self, nid: Nid) -> bool {
        let _ = nid;
        true
    }
}

/// A request as it arrived at a server.
#[derive(Debug)]
pub struct IncomingRequest {
    /// The node that sent it.
    pub from: Nid,
    /// More than its word shows that it is at that NID.
    pub is_proven: bool,
    /// Whose budget it uses up: that node's, or where only its word shows that it is at its NID, that of the NID of its
    /// address.
    pub account: Nid,
    /// The portal it came to.
    pub portal: Portal,
    /// Its name at that node.
    pub xid: Xid,
    /// Bytes the client has set aside for the reply.
    pub reply_bytes_max: usize,
    /// Flags of the message header.
    pub header_flags: HeaderFlags,
    /// Handle, opcode, flags, tag, transno, job...
    pub body: PtlrpcBody,
    /// Its buffers.
    pub request: Request,
    /// The way back.
    pub replier: Replier,
    /// The way to its bulk.
    pub bulk: BulkPort,
    /// When it arrived.
    pub arrived: Instant,
    /// When the client gives up waiting, unless an early reply extends it. Here is
    /// what it was at arrival.
    pub deadline: Instant,
}

impl IncomingRequest {
    /// The target that a connect request names.
    #[must_use]
    pub fn connect_target(&self) -> Option<Uuid> {
        connect_target(&self.request)
    }
}

/// The target that a connect request names; `None` for other requests.
#[must_use]
pub fn connect_target(request: &Request) -> Option<Uuid> {
    let text = match request {
        Request::MgsConnect(connect) => &connect.tgtuuid,
        Request::MdsConnect(connect) => &connect.tgtuuid,
        Request::OstConnect(connect) => &connect.tgtuuid,
        _ => return None,
    };
    Some(Uuid::new(String::from_utf8_lossy(text.as_bytes())))
}

/// What a reply's body says; the service fills in the rest (opcode, xid, timeouts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyHead {
    /// 0, a negative errno, or an operation's positive answer.
    pub status: i32,
    /// The operation's transaction; 0 if it changed nothing.
    pub transno: Transno,
    /// Everything up to here is durable.
    pub last_committed: Transno,
    /// Reply to a connect: the export's handle. Otherwise 0.
    pub handle: ObdHandle,
    /// `MSG_*`.
    pub flags: MsgFlags,
    /// `MSG_CONNECT_*`, in replies to connects.
    pub op_flags: OpFlags,
    /// How many unused locks the client may keep; 0 leaves it as it is.
    pub limit: u32,
    /// Server lock volume.
    pub slv: u64,
    /// Versions of the objects before this operation (VBR).
    pub pre_versions: [Transno; 4],
}

impl From<Errno> for ReplyHead {
    fn from(errno: Errno) -> Self {
        Self { status: errno.status(), ..Self::default() }
    }
}

/// Sends the one answer to a request.
pub struct Replier(Box<dyn FnOnce(ReplyHead, Option<Reply>) + Send>);

impl Replier {
    /// Answers by calling `send`; for services, and for tests of targets.
    #[must_use]
    pub fn new(send: impl FnOnce(ReplyHead, Option<Reply>) + Send + 'static) -> Self {
        Self(Box::new(send))
    }

    /// Answers. `None` for the body alone. A negative status goes out as an error message, with
    /// the buffers if there are any.
    pub fn send(self, head: ReplyHead, reply: Option<Reply>) {
        (self.0)(head, reply);
    }

    /// Refuses.
    pub fn refuse(self, errno: Errno) {
        self.send(errno.into(), None);
    }
}

impl fmt::Debug for Replier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Replier")
    }
}

/// Room for the bytes of a transfer, from before memory is used for them. Dropped when they are where
/// they belong.
pub struct BulkRoom {
    _held: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl BulkRoom {
    /// Room that is released when `held` is dropped.
    #[must_use]
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }

    /// Where nothing counts.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { _held: None }
    }
}

impl fmt::Debug for BulkRoom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BulkRoom")
    }
}

/// Moves single parts of bulk; `node` implements it over LNet.
pub trait BulkMover: Send + Sync {
    /// Takes room for `bytes` of what the client may have under way, as soon as there is.
    fn reserve(&self, bytes: usize) -> BoxFuture<'static, BulkRoom> {
        let _ = bytes;
        Box::pin(async { BulkRoom::unlimited() })
    }

    /// Fetches what the peer offers.
    fn fetch(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        length: usize,
    ) -> BoxFuture<'static, Result<Bytes, RpcError>>;

    /// Sends into what the peer set aside.
    fn send(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        pieces: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<(), RpcError>>;
}

/// The way to a request's bulk. Cheap to clone.
#[derive(Clone)]
pub struct BulkPort {
    peer: Nid,
    portal: Portal,
    /// Bits of the bulk's last part; parts have consecutive bits.
    last: MatchBits,
    mover: Arc<dyn BulkMover>,
}

impl BulkPort {
    /// The bulk of a request whose last part has the match bits `last`.
    #[must_use]
    pub fn new(peer: Nid, portal: Portal, last: MatchBits, mover: Arc<dyn BulkMover>) -> Self {
        Self { peer, portal, last, mover }
    }

    /// A port to nowhere, for tests of what needs no bulk: every transfer is refused.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Nid::LOOPBACK, Portal::RESERVED, MatchBits(0), Arc::new(NoBulk))
    }

    /// How many parts the client prepared.
    #[must_use]
    pub fn parts(&self) -> usize {
        limits::bulk_parts_of(self.last)
    }

    /// Waits until the client may have `bytes` more of bulk under way. To be asked before memory is used
    /// for them and before anything is locked, and kept until they are where they belong.
    pub async fn reserve(&self, bytes: usize) -> BulkRoom {
        match bytes <= limits::BULK_UNCOUNTED_BYTES {
            true => BulkRoom::unlimited(),
            false => self.mover.reserve(bytes).await,
        }
    }

    /// Fetches `length` bytes from the client, in parts of 1 MiB at once; one piece per part.
    ///
    /// Errors: [`RpcError::Protocol`] if the client prepared less, [`RpcError::Disconnected`] or
    /// [`RpcError::TimedOut`] if it went away: then the request is best left unanswered.
    pub fn pull(&self, length: usize) -> BoxFuture<'static, Result<Vec<Bytes>, RpcError>> {
        let port = self.clone();
        Box::pin(async move {
            let count = length.div_ceil(LNET_PAYLOAD_BYTES_MAX);
            port.check(count)?;
            let (mut sizes, mut parts) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for part in 0..count {
                let size = (length - part * LNET_PAYLOAD_BYTES_MAX).min(LNET_PAYLOAD_BYTES_MAX);
                sizes.push(size);
                parts.push(port.mover.fetch(port.peer, port.portal, port.bits(part), size));
            }
            let mut pieces = Vec::with_capacity(count);
            for (size, result) in sizes.into_iter().zip(all_pinned(parts).await) {
                let piece = result?;
                if piece.len() != size {
                    let got = piece.len();
                    return Err(RpcError::Protocol(format!(
                        "bulk part of {got}, not {size} bytes"
                    )));
                }
                pieces.push(piece);
            }
            Ok(pieces)
        })
    }

    /// Sends `pieces`, laid end to end, into what the client set aside. Every part that the client
    /// prepared gets a message, an empty one if there is less: the client waits for each.
    pub fn push(&self, pieces: Vec<Bytes>) -> BoxFuture<'static, Result<(), RpcError>> {
        let port = self.clone();
        Box::pin(async move {
            let mut parts = split_parts(pieces);
            port.check(parts.len())?;
            parts.resize_with(port.parts(), Vec::new);
            let mut sends = Vec::with_capacity(parts.len());
            for (part, pieces) in parts.into_iter().enumerate() {
                sends.push(port.mover.send(port.peer, port.portal, port.bits(part), pieces));
            }
            for result in all_pinned(sends).await {
                result?;
            }
            Ok(())
        })
    }

    /// Those of a part that the client has prepared. The client chose the last ones, up to the largest number.
    fn bits(&self, part: usize) -> MatchBits {
        MatchBits(self.last.0 - (self.parts() - 1 - part) as u64)
    }

    fn check(&self, count: usize) -> Result<(), RpcError> {
        if count > self.parts() {
            let parts = self.parts();
            return Err(RpcError::Protocol(format!("bulk of {count} parts, prepared {parts}")));
        }
        Ok(())
    }
}

impl fmt::Debug for BulkPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "bulk of {} at portal {:?}, last part {:#x}", self.peer, self.portal, self.last)
    }
}

struct NoBulk;

impl BulkMover for NoBulk {
    fn fetch(
        &self,
        _peer: Nid,
        _portal: Portal,
        _bits: MatchBits,
        _length: usize,
    ) -> BoxFuture<'static, Result<Bytes, RpcError>> {
        Box::pin(async { Err(RpcError::Disconnected) })
    }

    fn send(
        &self,
        _peer: Nid,
        _portal: Portal,
        _bits: MatchBits,
        _pieces: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        Box::pin(async { Err(RpcError::Disconnected) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_bits_whatever_the_client_has_chosen() {
        for last in [0, 1, 64, 0x1000 + 3, u64::MAX - 1, u64::MAX] {
            let port = BulkPort { last: MatchBits(last), ..BulkPort::none() };
            let parts = port.parts();
            assert_eq!(port.bits(parts - 1), MatchBits(last));
            assert_eq!(port.bits(0), MatchBits(last - (parts as u64 - 1)));
        }
    }
}
