//! A target without a node, and clients without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::{
    Answer, BoxFuture, BulkMover, BulkPort, Call, Channel, Handler, ImportState, IncomingRequest,
    Replier, ReplyHead, RpcError, split_parts,
};
use sheen_store::Store;
use sheen_types::{Errno, HashMap, MatchBits, Nid, ObdHandle, Transno, Uuid, Xid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData, version_code};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{
    LdlmBlCallbackReply, LdlmCancel, LdlmCpCallbackReply, LdlmGlCallbackReply, MdsConnect,
    MgsConnect, OstConnect, Reply, Request,
};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{HeaderFlags, MsgFlags, OpFlags, PtlrpcBody};
use sheen_wire::text::Text;
use tokio::sync::oneshot;

use super::TestWorld;
use crate::callbacks::ReverseChannels;
use crate::config::TargetConfig;
use crate::operations::Operations;
use crate::target::Target;

/// Parts of bulk that a test client prepares per request: 4 MiB.
const BULK_PARTS: u64 = 4;
/// Xids lie so far apart.
const XID_STEP: u64 = 64;

/// Which callbacks a client answers how.
pub type Callback = Box<dyn Fn(&Request) -> Option<Result<Reply, RpcError>> + Send + Sync>;

/// A target on any store, served without a node.
#[derive(Clone)]
pub struct TestTarget {
    /// The target itself.
    pub target: Arc<Target>,
    world: TestWorld,
    clients: Arc<Clients>,
}

/// The clients that callbacks can reach, by UUID.
#[derive(Default)]
struct Clients {
    table: Mutex<HashMap<Uuid, Arc<Client>>>,
}

impl ReverseChannels for Clients {
    fn reverse(
        &self,
        to: Nid,
        _import: ObdHandle,
        client: &Uuid,
        agreed: &ObdConnectData,
    ) -> Arc<dyn Channel> {
        let inner = self.table.lock().get(client).cloned();
        Arc::new(TestReverseChannel {
            client: inner,
            to,
            uuid: client.clone(),
            agreed: agreed.clone(),
        })
    }
}

impl TestTarget {
    /// Starts a target on `store`.
    ///
    /// # Panics
    /// If the target does not start.
    pub async fn start(
        world: &TestWorld,
        store: Arc<dyn Store>,
        config: TargetConfig,
        operations: Arc<dyn Operations>,
    ) -> Self {
        let clients = Arc::new(Clients::default());
        let reverse: Arc<dyn ReverseChannels> = clients.clone();
        let target = Target::start(world.world(), store, config, operations, reverse).await;
        Self { target: target.expect("the target starts"), world: world.clone(), clients }
    }

    /// A client that has not connected.
    #[must_use]
    pub fn client(&self, uuid: &str) -> TestClient {
        self.client_at(uuid, Nid::tcp([10, 0, 0, 7].into()))
    }

    /// A client at a node of its own, that has not connected.
    #[must_use]
    pub fn client_at(&self, uuid: &str, nid: Nid) -> TestClient {
        let client = Client {
            node: self.clone(),
            uuid: Uuid::new(uuid),
            nid,
            is_proven: AtomicBool::new(true),
            address: Mutex::default(),
            import: ObdHandle(self.target.world.random.number()),
            session: Mutex::new(Session {
                handle: ObdHandle(0),
                agreed: ObdConnectData::default(),
                connect_flags: OpFlags::NONE,
            }),
            conn_cnt: AtomicU32::new(0),
            xid: AtomicU64::new(0x1000 * XID_STEP),
            known_committed: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            callbacks: Mutex::new(Vec::new()),
            answer: Mutex::new(None),
            is_silent: AtomicBool::new(false),
        };
        let client = Arc::new(client);
        self.clients.table.lock().insert(client.uuid.clone(), Arc::clone(&client));
        TestClient { inner: client }
    }

    /// A connected server of this very node: an MDT, for an OST.
    ///
    /// # Panics
    /// If the target refuses.
    pub async fn connect_server(&self, uuid: &str) -> TestClient {
        let server = self.client_at(uuid, Nid::LOOPBACK);
        server.connect_with(server_offer()).await.expect("the target takes the server");
        server
    }

    /// A connected client, that offers everything.
    ///
    /// # Panics
    /// If the target refuses.
    pub async fn connect(&self, uuid: &str) -> TestClient {
        let client = self.client(uuid);
        client.connect().await.expect("the target takes the client");
        client
    }
}

/// All that a client can.
#[must_use]
pub fn client_offer() -> ObdConnectData {
    let not = ConnectFlags::LIGHTWEIGHT
        | ConnectFlags::MDS
        | ConnectFlags::MDS_MDS
        | ConnectFlags::RDONLY;
    ObdConnectData {
        flags: ConnectFlags(!not.0),
        flags2: ConnectFlags2(!0),
        version: version_code(2, 17, 0, 0),
        brw_size: 4 << 20,
        ibits_known: 0x7f,
        maxmodrpcs: 8,
        ..ObdConnectData::default()
    }
}

/// What an MDT offers that connects to an OST.
#[must_use]
pub fn server_offer() -> ObdConnectData {
    let offer = client_offer();
    ObdConnectData { flags: offer.flags | ConnectFlags::MDS, ..offer }
}

struct Session {
    handle: ObdHandle,
    agreed: ObdConnectData,
    connect_flags: OpFlags,
}

struct Client {
    node: TestTarget,
    uuid: Uuid,
    nid: Nid,
    /// It is proven that it is there, not only claimed.
    is_proven: AtomicBool,
    /// Where it comes from, if that is not its node.
    address: Mutex<Option<Nid>>,
    import: ObdHandle,
    session: Mutex<Session>,
    conn_cnt: AtomicU32,
    xid: AtomicU64,
    /// The newest transaction that was reported to it as durable.
    known_committed: AtomicU64,
    /// The transaction that the last answer said to be durable.
    claimed: AtomicU64,
    callbacks: Mutex<Vec<Request>>,
    answer: Mutex<Option<Callback>>,
    /// It answers no callbacks.
    is_silent: AtomicBool,
}

/// A client of one target.
#[derive(Clone)]
pub struct TestClient {
    inner: Arc<Client>,
}

/// What a client got back.
#[derive(Clone, Debug)]
pub struct TestAnswer {
    /// The request's xid: to send it again.
    pub xid: Xid,
    /// Status, transno, last committed...
    pub head: ReplyHead,
    /// The buffers.
    pub reply: Option<Reply>,
    /// What the target sent as bulk.
    pub bulk: Bytes,
}

impl TestAnswer {
    /// The errno, if the target refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        Errno::from_status(self.head.status)
    }
}

/// How a request is sent, beyond its buffers.
#[derive(Clone, Debug, Default)]
pub struct TestCall {
    /// The request.
    pub request: Option<Request>,
    /// Sent under this xid, instead of a new one.
    pub xid: Option<Xid>,
    /// `MSG_RESENT`, `MSG_REPLAY`...
    pub flags: MsgFlags,
    /// Slot of a modifying request.
    pub tag: u16,
    /// In a replay: the transaction number it had.
    pub transno: Transno,
    /// The client has seen all answers up to here.
    pub last_xid: Xid,
    /// What the target may fetch.
    pub source: Bytes,
    /// How long that takes.
    pub source_time: Duration,
    /// Why it cannot be fetched, after that time.
    pub source_error: Option<RpcError>,
    /// Sent with this connection count, instead of the current one.
    pub conn_cnt: Option<u32>,
    /// Bytes set aside for the reply, instead of 64 KiB.
    pub reply_room: Option<usize>,
}

impl TestCall {
    /// A request with nothing special.
    #[must_use]
    pub fn new(request: impl Into<Request>) -> Self {
        Self { request: Some(request.into()), ..Self::default() }
    }

    /// With a tag, as modifying requests have.
    #[must_use]
    pub fn tagged(self, tag: u16) -> Self {
        Self { tag, ..self }
    }

    /// The same request again, because no answer came.
    #[must_use]
    pub fn resent(self, xid: Xid) -> Self {
        Self { xid: Some(xid), flags: self.flags | MsgFlags::RESENT, ..self }
    }

    /// The same request again, because the target restarted.
    #[must_use]
    pub fn replayed(self, xid: Xid, transno: Transno) -> Self {
        Self { xid: Some(xid), flags: self.flags | MsgFlags::REPLAY, transno, ..self }
    }
}

impl TestClient {
    /// Connects, offering everything; reconnects if connected before. The answer's body.
    ///
    /// # Errors
    /// What the target answered.
    pub async fn connect(&self) -> Result<ReplyHead, Errno> {
        self.connect_with(client_offer()).await
    }

    /// An offer of everything.
    #[must_use]
    pub fn everything() -> ObdConnectData {
        client_offer()
    }

    /// Connects with an offer of its own.
    ///
    /// # Errors
    /// What the target answered.
    pub async fn connect_with(&self, cdata: ObdConnectData) -> Result<ReplyHead, Errno> {
        let inner = &self.inner;
        let count = inner.conn_cnt.fetch_add(1, Ordering::AcqRel) + 1;
        let initial = count == 1;
        let config = inner.node.target.config();
        let tgtuuid = Text::new(config.uuid.as_str());
        let cluuid = Text::new(inner.uuid.as_str());
        let (conn, first) = (inner.import, cdata.transno);
        let request: Request = if config.name.contains("-OST") {
            OstConnect { tgtuuid, cluuid, conn, cdata, ..OstConnect::default() }.into()
        } else if config.name.contains("-MDT") {
            MdsConnect { tgtuuid, cluuid, conn, cdata, ..MdsConnect::default() }.into()
        } else {
            MgsConnect { tgtuuid, cluuid, conn, cdata, ..MgsConnect::default() }.into()
        };
        let mut op_flags = if initial { OpFlags::CONNECT_INITIAL } else { OpFlags::NONE };
        if first != Transno(0) {
            op_flags |= OpFlags::CONNECT_TRANSNO;
        }
        let answer = self.send(TestCall::new(request), op_flags).await.ok_or(Errno::ETIMEDOUT)?;
        if let Some(errno) = answer.errno() {
            return Err(errno);
        }
        let agreed = match answer.reply {
            Some(Reply::MgsConnect(reply)) => reply.cdata,
            Some(Reply::MdsConnect(reply)) => reply.cdata,
            Some(Reply::OstConnect(reply)) => reply.cdata,
            _ => None,
        };
        let mut session = inner.session.lock();
        session.handle = answer.head.handle;
        session.agreed = agreed.unwrap_or_default();
        session.connect_flags = answer.head.op_flags;
        Ok(answer.head)
    }

    /// The newest transaction that was reported to it as durable.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn known_committed(&self) -> Transno {
        Transno(self.inner.known_committed.load(Ordering::Acquire))
    }

    /// What the last answer claimed to be durable.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn claimed(&self) -> Transno {
        Transno(self.inner.claimed.load(Ordering::Acquire))
    }

    /// Claims from now on that this number was reported to it.
    #[cfg(test)]
    pub(crate) fn claim_committed(&self, transno: Transno) {
        self.inner.known_committed.store(transno.0, Ordering::Release);
    }

    /// Goes over to another incarnation of the target, with its xids and its import; not connected.
    #[must_use]
    pub fn follow(&self, node: &TestTarget) -> TestClient {
        let client = Arc::new(self.again(node, self.inner.nid));
        node.clients.table.lock().insert(client.uuid.clone(), Arc::clone(&client));
        TestClient { inner: client }
    }

    /// From now on it only claims to be at its node, or it is proven.
    pub fn set_proven(&self, is_proven: bool) {
        self.inner.is_proven.store(is_proven, Ordering::Release);
    }

    /// From now on it comes from the address of this NID, and only claims to be at its node.
    pub fn claim_from(&self, address: Nid) {
        *self.inner.address.lock() = Some(address);
        self.set_proven(false);
    }

    /// The same session as an attacker at `nid` would use it who has seen its handle.
    #[must_use]
    pub fn stolen(&self, nid: Nid) -> TestClient {
        let node = &self.inner.node;
        TestClient { inner: Arc::new(self.again(node, nid)) }
    }

    /// The same client, with its xids and its import, at a target and a node.
    fn again(&self, node: &TestTarget, nid: Nid) -> Client {
        let old = &self.inner;
        let (handle, agreed) = (self.handle(), self.agreed());
        Client {
            node: node.clone(),
            uuid: old.uuid.clone(),
            nid,
            is_proven: AtomicBool::new(old.is_proven.load(Ordering::Acquire)),
            address: Mutex::new(*old.address.lock()),
            import: old.import,
            session: Mutex::new(Session { handle, agreed, connect_flags: OpFlags::NONE }),
            conn_cnt: AtomicU32::new(old.conn_cnt.load(Ordering::Acquire)),
            xid: AtomicU64::new(old.xid.load(Ordering::Acquire)),
            known_committed: AtomicU64::new(old.known_committed.load(Ordering::Acquire)),
            claimed: AtomicU64::new(0),
            callbacks: Mutex::new(Vec::new()),
            answer: Mutex::new(None),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Panics
    /// If the target drops the request.
    pub async fn call(&self, request: impl Into<Request>) -> TestAnswer {
        self.call_with(TestCall::new(request)).await.expect("the request is answered")
    }

    /// Sends a request; `None` if the target dropped it.
    pub async fn call_with(&self, call: TestCall) -> Option<TestAnswer> {
        self.send(call, OpFlags::NONE).await
    }

    /// Cancels locks, by the server's handles.
    pub async fn cancel(&self, handles: &[sheen_types::LockHandle]) -> TestAnswer {
        let dlm_req = LdlmRequest::cancel(handles.to_vec());
        self.call(LdlmCancel { dlm_req, ..LdlmCancel::default() }).await
    }

    /// What the target agreed to.
    #[must_use]
    pub fn agreed(&self) -> ObdConnectData {
        self.inner.session.lock().agreed.clone()
    }

    /// What the last connect's reply said: reconnected, recovering, replayable.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn connect_flags(&self) -> OpFlags {
        self.inner.session.lock().connect_flags
    }

    /// The export's handle.
    #[must_use]
    pub(crate) fn handle(&self) -> ObdHandle {
        self.inner.session.lock().handle
    }

    /// Takes the callbacks that arrived so far.
    #[must_use]
    pub fn callbacks(&self) -> Vec<Request> {
        std::mem::take(&mut self.inner.callbacks.lock())
    }

    /// Answers callbacks with `answer`; those for which it gives `None` are answered as a client
    /// does that has nothing to say.
    pub fn on_callback(&self, answer: Callback) {
        *self.inner.answer.lock() = Some(answer);
    }

    /// From now on it answers no callbacks, or those that it has not answered as well.
    #[cfg(test)]
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.inner.is_silent.store(is_silent, Ordering::Release);
    }

    fn next_xid(&self) -> Xid {
        Xid(self.inner.xid.fetch_add(XID_STEP, Ordering::AcqRel))
    }

    async fn send(&self, call: TestCall, op_flags: OpFlags) -> Option<TestAnswer> {
        let inner = &self.inner;
        let request = call.request.expect("a call has a request");
        let xid = call.xid.unwrap_or_else(|| self.next_xid());
        let (sender, receiver) = oneshot::channel();
        let bulk = Arc::new(TestBulk {
            world: inner.node.world.clone(),
            source: call.source,
            time: call.source_time,
            error: call.source_error,
            sink: Mutex::new(Vec::new()),
        });
        let mover: Arc<dyn BulkMover> = bulk.clone();
        let last = MatchBits(xid.0 + BULK_PARTS - 1);
        let format = request.format();
        let now = inner.node.target.now();
        let incoming = IncomingRequest {
            from: inner.nid,
            is_proven: inner.is_proven.load(Ordering::Acquire),
            account: inner.address.lock().unwrap_or(inner.nid),
            portal: format.request_portal,
            xid,
            reply_bytes_max: call.reply_room.unwrap_or(1 << 16),
            header_flags: HeaderFlags::NONE,
            body: PtlrpcBody {
                handle: inner.session.lock().handle,
                opcode: format.opcode,
                flags: call.flags,
                op_flags,
                tag: call.tag,
                transno: call.transno,
                last_xid: call.last_xid,
                last_committed: Transno(inner.known_committed.load(Ordering::Acquire)),
                conn_cnt: call.conn_cnt.unwrap_or_else(|| inner.conn_cnt.load(Ordering::Acquire)),
                ..PtlrpcBody::default()
            },
            request,
            replier: Replier::new(move |head, reply| {
                // A test that gave up waiting gets no answer.
                let _ = sender.send((head, reply));
            }),
            bulk: BulkPort::new(inner.nid, Portal::OST_BULK, last, mover),
            arrived: now,
            deadline: now,
        };
        // As a service does: the handler runs whether or not the client waits for the answer.
        let handled = inner.node.target.handle(incoming);
        inner.node.world.world().tasks.spawn("request", handled);
        let (head, reply) = receiver.await.ok()?;
        inner.known_committed.fetch_max(head.last_committed.0, Ordering::AcqRel);
        inner.claimed.store(head.last_committed.0, Ordering::Release);
        let bulk = bulk.sink.lock().concat().into();
        Some(TestAnswer { xid, head, reply, bulk })
    }
}

/// The bulk of one request.
pub struct TestBulk {
    world: TestWorld,
    source: Bytes,
    time: Duration,
    error: Option<RpcError>,
    sink: Mutex<Vec<Bytes>>,
}

impl BulkMover for TestBulk {
    fn fetch(
        &self,
        _peer: Nid,
        _portal: Portal,
        bits: MatchBits,
        length: usize,
    ) -> BoxFuture<'static, Result<Bytes, RpcError>> {
        let parts = split_parts(vec![self.source.clone()]);
        let part = parts.get((bits.0 % XID_STEP) as usize).map(|pieces| pieces.concat());
        let part = Bytes::from(part.unwrap_or_default());
        let part = part.slice(..part.len().min(length));
        let (world, time, error) = (self.world.clone(), self.time, self.error.clone());
        Box::pin(async move {
            if time > Duration::ZERO {
                world.sleep(time).await;
            }
            error.map_or(Ok(part), Err)
        })
    }

    fn send(
        &self,
        _peer: Nid,
        _portal: Portal,
        _bits: MatchBits,
        pieces: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        self.sink.lock().extend(pieces);
        Box::pin(async { Ok(()) })
    }
}

/// The way back from the target to a client.
struct TestReverseChannel {
    client: Option<Arc<Client>>,
    to: Nid,
    uuid: Uuid,
    agreed: ObdConnectData,
}

impl Channel for TestReverseChannel {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        let Some(client) = self.client.clone() else {
            return Box::pin(async { Err(RpcError::Disconnected) });
        };
        client.callbacks.lock().push(call.request.clone());
        let said = client.answer.lock().as_ref().and_then(|answer| answer(&call.request));
        let said = said.unwrap_or_else(|| plain_answer(&call.request));
        Box::pin(async move {
            while client.is_silent.load(Ordering::Acquire) {
                client.node.world.sleep(Duration::from_secs(1)).await;
            }
            let body = PtlrpcBody { opcode: Opcode::LDLM_BL_CALLBACK, ..PtlrpcBody::default() };
            said.map(|reply| Answer { xid: Xid(0), body, reply, bulk: Vec::new(), connection: 1 })
        })
    }

    fn state(&self) -> ImportState {
        ImportState::Full
    }

    fn connect_data(&self) -> ObdConnectData {
        self.agreed.clone()
    }

    fn connection(&self) -> u32 {
        1
    }

    fn peer(&self) -> Nid {
        self.to
    }

    fn target_uuid(&self) -> Uuid {
        self.uuid.clone()
    }

    fn last_committed(&self) -> Transno {
        Transno(0)
    }

    fn release(&self, _xid: Xid) {}
}

/// The body of a client's request that has no fields to fill.
fn plain_answer(request: &Request) -> Result<Reply, RpcError> {
    match request {
        Request::LdlmBlCallback(_) => Ok(LdlmBlCallbackReply::default().into()),
        Request::LdlmCpCallback(_) => Ok(LdlmCpCallbackReply::default().into()),
        Request::LdlmGlCallback(_) => Ok(LdlmGlCallbackReply::default().into()),
        _ => Err(RpcError::Errno(Errno::EOPNOTSUPP)),
    }
}
