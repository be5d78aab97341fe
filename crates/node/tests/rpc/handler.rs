//! A target that does little: connects, pings, moves bulk, remembers what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::Watched;
use sheen_rpc::{BoxFuture, Handler, IncomingRequest, ReplyHead};
use sheen_types::{Errno, HashMap, Nid, ObdHandle, Xid};
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

/// A request for the target below: "put", "get", "late-put", "late-get", "hang".
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

pub(crate) struct CountingTarget {
    next: AtomicU64,
    pub(crate) exports: Mutex<Vec<ObdHandle>>,
    /// How often each request was executed.
    pub(crate) executed: Mutex<HashMap<Xid, u32>>,
    /// Client handles and nodes of connects.
    pub(crate) clients: Mutex<Vec<(Nid, ObdHandle)>>,
    /// Until this is set, what is "late" stands still when it is executed for the first time.
    pub(crate) goes_on: Arc<Watched<bool>>,
}

impl CountingTarget {
    pub(crate) fn new(first_handle: u64) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(first_handle),
            exports: Mutex::default(),
            executed: Mutex::default(),
            clients: Mutex::default(),
            goes_on: Arc::new(Watched::new(false)),
        })
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
    /// The export of a client, and whether it had it before.
    fn export_of(&self, from: Nid, import: ObdHandle) -> (ObdHandle, bool) {
        let (mut exports, mut clients) = (self.exports.lock(), self.clients.lock());
        if let Some(at) = clients.iter().position(|known| *known == (from, import))
            && let Some(handle) = exports.get(at)
        {
            return (*handle, true);
        }
        let handle = ObdHandle(self.next.fetch_add(1, Ordering::Relaxed));
        exports.push(handle);
        clients.push((from, import));
        (handle, false)
    }

    async fn execute(&self, incoming: IncomingRequest) {
        let IncomingRequest { request, replier, bulk, xid, from, .. } = incoming;
        match request {
            Request::MdsConnect(connect) => {
                let (handle, known) = self.export_of(from, connect.conn);
                let reconnects = if known { OpFlags::CONNECT_RECONNECT } else { OpFlags::NONE };
                let op_flags = OpFlags::CONNECT_REPLAYABLE | reconnects;
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
                let executions = {
                    let mut executed = self.executed.lock();
                    let count = executed.entry(xid).or_default();
                    *count += 1;
                    *count
                };
                let value: [u8; 8] = order.setinfo_val[..].try_into().expect("eight bytes");
                let length = u64::from_le_bytes(value) as usize;
                let _room = bulk.reserve(length).await;
                let mut key = &order.setinfo_key[..];
                if let Some(late) = key.strip_prefix(b"late-") {
                    key = late;
                    if executions == 1 {
                        self.goes_on.until(|goes_on| goes_on).await;
                    }
                }
                match key {
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
