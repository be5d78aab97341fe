//! The way from one MDT to another, without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::{Answer, BoxFuture, Bulk, Call, CallKind, Channel, ImportState, RpcError};
use sheen_target::testing::{TestCall, TestClient};
use sheen_types::{Nid, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::messages::Request;
use sheen_wire::out::{OutUpdateHeader, UpdateType, split_updates};
use sheen_wire::ptlrpc::PtlrpcBody;

/// See the module's documentation.
pub(super) struct Between {
    client: TestClient,
    target: Uuid,
    tag: AtomicU16,
    committed: Arc<AtomicU64>,
    /// The kinds of the updates of each `OUT_UPDATE`.
    sent: Mutex<Vec<Vec<UpdateType>>>,
}

impl Between {
    pub(super) fn new(client: TestClient, target: Uuid) -> Self {
        let (tag, committed, sent) = (AtomicU16::new(0), Arc::default(), Mutex::default());
        Self { client, target, tag, committed, sent }
    }

    /// What was sent since the last call.
    pub(super) fn sent(&self) -> Vec<Vec<UpdateType>> {
        std::mem::take(&mut *self.sent.lock())
    }
}

/// The kinds of the updates in a request.
fn kinds(request: &Request, source: &Bytes) -> Vec<UpdateType> {
    let Request::OutUpdate(request) = request else { return Vec::new() };
    let (_, inline) = OutUpdateHeader::split(&request.out_update_header).expect("a header");
    let updates = if inline.is_empty() { source } else { &inline };
    let (updates, _) = split_updates(updates).expect("updates");
    updates.iter().map(|update| update.kind).collect()
}

impl Channel for Between {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        let source = match &call.bulk {
            Bulk::Source(pieces) => pieces.concat().into(),
            _ => Bytes::new(),
        };
        if matches!(call.request, Request::OutUpdate(_)) {
            self.sent.lock().push(kinds(&call.request, &source));
        }
        let tag = match call.kind {
            CallKind::Modifying => self.tag.fetch_add(1, Ordering::Relaxed) % 200 + 1,
            _ => 0,
        };
        let request = TestCall { source, ..TestCall::new(call.request).tagged(tag) };
        let (client, committed) = (self.client.clone(), Arc::clone(&self.committed));
        Box::pin(async move {
            let answer = client.call_with(request).await.ok_or(RpcError::Disconnected)?;
            committed.fetch_max(answer.head.last_committed.0, Ordering::AcqRel);
            if let Some(errno) = answer.errno().filter(|_| !call.refusal_as_answer) {
                return Err(RpcError::Errno(errno));
            }
            let body = PtlrpcBody { status: answer.head.status, ..PtlrpcBody::default() };
            let reply = answer.reply.ok_or(RpcError::TimedOut)?;
            Ok(Answer { xid: answer.xid, body, reply, bulk: Vec::new(), connection: 1 })
        })
    }

    fn state(&self) -> ImportState {
        ImportState::Full
    }

    fn connect_data(&self) -> ObdConnectData {
        self.client.agreed()
    }

    fn connection(&self) -> u32 {
        1
    }

    fn peer(&self) -> Nid {
        Nid::LOOPBACK
    }

    fn target_uuid(&self) -> Uuid {
        self.target.clone()
    }

    fn last_committed(&self) -> Transno {
        Transno(self.committed.load(Ordering::Acquire))
    }

    fn release(&self, _: Xid) {}
}
