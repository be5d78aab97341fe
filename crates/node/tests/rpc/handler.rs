//! A target that does little: connects, pings, moves bulk, remembers what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::{BoxFuture, Handler, IncomingRequest, ReplyHead};
use sheen_types::{Errno, HashMap, ObdHandle, Xid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::messages::{
    MdsConnectReply, MdsSetInfo, MdsSetInfoReply, ObdPingReply, Reply, Request,
};
use sheen_wire::ptlrpc::OpFlags;

/// What both sides can do in these tests.
pub(crate) fn data() -> ObdConnectData {
    ObdConnectData {
        flags: ConnectFlags::AT
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::MULTIMODRPCS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        maxmodrpcs: 7,
        ..ObdConnectData::default()
    }
}

/// A request for the target below: "put", "get", "hang".
pub(crate) fn order(key: &'static str, length: usize) -> MdsSetInfo {
    MdsSetInfo {
        setinfo_key: Bytes::from_static(key.as_bytes()),
        setinfo_val: Bytes::copy_from_slice(&(length as u64).to_le_bytes()),
        ..MdsSetInfo::default()
    }
}

/// The bytes that "get" sends and "put" expects.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[derive(Default)]
pub(crate) struct CountingTarget {
    next: AtomicU64,
    pub(crate) exports: Mutex<Vec<ObdHandle>>,
    /// How often each request was executed.
    pub(crate) executed: Mutex<HashMap<Xid, u32>>,
    /// Client handles and nodes of connects.
    pub(crate) clients: Mutex<Vec<(sheen_types::Nid, ObdHandle)>>,
}

impl CountingTarget {
    pub(crate) fn new(first_handle: u64) -> Arc<Self> {
        Arc::new(Self { next: AtomicU64::new(first_handle), ..Self::default() })
    }
}

/// A handler is shared and hands itself on to its futures.
pub(crate) struct SharedTarget(pub(crate) Arc<CountingTarget>);

impl Handler for SharedTarget {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        let target = Arc::clone(&self.0);
        Box::pin(async move { target.execute(incoming).await })
    }

    fn owns(&self, export: ObdHandle) -> bool {
        self.0.exports.lock().contains(&export)
    }
}

impl CountingTarget {
    async fn execute(&self, incoming: IncomingRequest) {
        let IncomingRequest { request, replier, bulk, xid, from, .. } = incoming;
        match request {
            Request::MdsConnect(connect) => {
                let handle = ObdHandle(self.next.fetch_add(1, Ordering::Relaxed));
                self.exports.lock().push(handle);
                self.clients.lock().push((from, connect.conn));
                let op_flags = OpFlags::CONNECT_REPLAYABLE;
                let cdata = Some(connect.cdata);
                let reply = MdsConnectReply { cdata, ..MdsConnectReply::default() };
                let head = ReplyHead { handle, op_flags, ..ReplyHead::default() };
                replier.send(head, Some(reply.into()));
            }
            Request::MdsDisconnect(_) => {
                self.exports.lock().clear();
                replier.send(ReplyHead::default(), None);
            }
            Request::MdsSetInfo(order) => {
                *self.executed.lock().entry(xid).or_default() += 1;
                let value: [u8; 8] = order.setinfo_val[..].try_into().expect("eight bytes");
                let length = u64::from_le_bytes(value) as usize;
                let _room = bulk.reserve(length).await;
                match &order.setinfo_key[..] {
                    b"put" => {
                        let Ok(pieces) = bulk.pull(length).await else { return };
                        assert_eq!(pieces.concat(), content(length));
                    }
                    b"get" => {
                        let pieces = vec![Bytes::from(content(length))];
                        if bulk.push(pieces).await.is_err() {
                            return replier.refuse(Errno::EIO);
                        }
                    }
                    b"hang" => std::future::pending().await,
                    _ => return replier.refuse(Errno::EINVAL),
                }
                replier.send(ReplyHead::default(), Some(MdsSetInfoReply::default().into()));
            }
            Request::ObdPing(_) => {
                replier.send(ReplyHead::default(), Some(Reply::from(ObdPingReply::default())));
            }
            _ => replier.refuse(Errno::EOPNOTSUPP),
        }
    }
}
