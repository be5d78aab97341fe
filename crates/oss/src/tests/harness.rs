//! The OST under test, its objects, and the requests that tests send.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{Errno, Fid, Uuid};
use sheen_wire::checksum::Checksum;
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstCreate, OstRead, OstWrite, Reply, Request};
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId};

use crate::Ost;

/// Objects that every test finds made.
const OBJECTS: u64 = 4;

/// An OST with clients.
pub(super) struct Server {
    pub(super) store: Arc<StoreMem>,
    pub(super) ost: Arc<Ost>,
    pub(super) node: TestTarget,
}

/// Runs a test against an OST that lies on a store with these limits.
pub(super) fn with_ost<F>(options: MemOptions, test: impl FnOnce(Server) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(3);
    let inner = world.clone();
    world.run(async move { test(Server::start(&inner, options).await).await });
}

impl Server {
    async fn start(world: &TestWorld, options: MemOptions) -> Self {
        let store = Arc::new(StoreMem::new(options));
        let shared: Arc<dyn Store> = store.clone();
        let ost = Arc::new(Ost::new(Arc::clone(&shared), 0));
        let config = TargetConfig {
            name: "lustre-OST0000".to_owned(),
            uuid: Uuid::new("lustre-OST0000_UUID"),
            index: 0,
            offer: Ost::offer(),
            replayable: true,
            timeouts: Timeouts::from_base(Duration::from_secs(10)),
        };
        let node = TestTarget::start(world, shared, config, ost.clone()).await;
        let maker = node.connect_server("mdt").await;
        let oa =
            Obdo { valid: Valid::ID | Valid::GROUP, oi: OstId::of_id(OBJECTS), ..Obdo::default() };
        let made = maker.call(OstCreate { ost_body: OstBody { oa }, ..OstCreate::default() }).await;
        assert_eq!(made.errno(), None, "objects are made");
        Self { store, ost, node }
    }

    /// What the store has of an object.
    pub(super) fn bytes(&self, id: u64) -> Bytes {
        self.store.read(fid(id), 0, 1 << 22).expect("the object is there")
    }
}

/// The object's FID.
pub(super) fn fid(id: u64) -> Fid {
    OstId::of_id(id).fid(0).expect("small ids name objects")
}

/// An `obdo` that names an object.
pub(super) fn named(id: u64) -> Obdo {
    Obdo { valid: Valid::ID | Valid::GROUP, oi: OstId::of_id(id), ..Obdo::default() }
}

/// Where bytes go, and how.
pub(super) fn piece(offset: u64, len: u32, flags: BrwFlags) -> NiobufRemote {
    NiobufRemote { offset, len, flags }
}

/// A write whose data lies in bulk.
pub(super) fn write(id: u64, pieces: Vec<NiobufRemote>) -> OstWrite {
    let object = ObdIoobj { oid: OstId::of_id(id), max_brw: 0, bufcnt: pieces.len() as u32 };
    OstWrite {
        ost_body: OstBody { oa: named(id) },
        obd_ioobj: vec![object],
        niobuf_remote: pieces,
        ..OstWrite::default()
    }
}

/// The same with its data in the request.
pub(super) fn inline(mut request: OstWrite, data: &Bytes) -> OstWrite {
    let oa = &mut request.ost_body.oa;
    oa.valid |= Valid::FLAGS;
    oa.flags |= ObdoFlags::SHORT_IO;
    request.short_io = data.clone();
    request
}

/// The same with a checksum.
pub(super) fn sealed(mut request: OstWrite, data: &Bytes) -> OstWrite {
    let oa = &mut request.ost_body.oa;
    oa.set_checksum(Checksum::Crc32c, Checksum::Crc32c.of(std::slice::from_ref(data)));
    request
}

/// A read into bulk.
pub(super) fn read(id: u64, pieces: Vec<NiobufRemote>) -> OstRead {
    let object = ObdIoobj { oid: OstId::of_id(id), max_brw: 0, bufcnt: pieces.len() as u32 };
    OstRead {
        ost_body: OstBody { oa: named(id) },
        obd_ioobj: vec![object],
        niobuf_remote: pieces,
        ..OstRead::default()
    }
}

/// Sends a request that takes its bulk from `source`.
pub(super) async fn send(
    client: &TestClient,
    request: impl Into<Request>,
    source: &Bytes,
) -> TestAnswer {
    let call = TestCall { source: source.clone(), ..TestCall::new(request) };
    client.call_with(call).await.expect("the request is answered")
}

/// Writes `data` at `offset` in bulk.
pub(super) async fn put(
    client: &TestClient,
    id: u64,
    offset: u64,
    data: &Bytes,
) -> Result<Obdo, Errno> {
    let pieces = vec![piece(offset, data.len() as u32, BrwFlags::NONE)];
    obdo_of(send(client, write(id, pieces), data).await)
}

/// What an answer says of the object.
pub(super) fn obdo_of(answer: TestAnswer) -> Result<Obdo, Errno> {
    if let Some(errno) = answer.errno() {
        return Err(errno);
    }
    let body = match answer.reply.expect("an answer with buffers") {
        Reply::OstRead(reply) => reply.ost_body,
        Reply::OstWrite(reply) => reply.ost_body,
        Reply::OstPunch(reply) => reply.ost_body,
        Reply::OstFallocate(reply) => reply.ost_body,
        Reply::OstGetattr(reply) => reply.ost_body,
        Reply::OstSetattr(reply) => reply.ost_body,
        Reply::OstSeek(reply) => reply.ost_body,
        other => panic!("unexpected {other:?}"),
    };
    Ok(body.expect("a body").oa)
}
