//! A metadata server with its client, and short words for what a client does.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::Store;
use sheen_store_mem::{Commits, Errors, Flaky, MemOptions, StoreMem};
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{
    Errno, Fid, HashMap, InodeBits, LockHandle, LockMode, Nid, ResourceName, Timestamp, Uuid,
};
use sheen_wire::dir::DirPage;
use sheen_wire::ldlm::{
    Disposition, IntentOp, LdlmIntent, LdlmLockDesc, LdlmRequest, LdlmResourceDesc,
    LockFlags as WireFlags, LockType, Policy,
};
use sheen_wire::md::{
    AttrValid, MdsOpenFlags, MdtBody, MdtIoepoch, OpenHandle, RecCreate, RecLink, RecRename,
    RecSetattr, RecSetxattr, RecUnlink, ReintOp, Valid,
};
use sheen_wire::messages::*;
use sheen_wire::text::Text;

use super::fake_ost::FakeOst;
use crate::{Mdt, MdtConfig, Report, UsedObject, check};

pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const REGULAR: u32 = 0o100_000;

/// A server on a store.
pub(super) struct Server {
    pub(super) world: TestWorld,
    pub(super) store: Arc<StoreMem>,
    pub(super) node: TestTarget,
    pub(super) mdt: Arc<Mdt>,
    pub(super) osts: Vec<Arc<FakeOst>>,
}

/// The caller.
#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// What the client claims that the user is able to.
    pub(super) cap: u32,
}

pub(super) const ROOT_USER: User = User { uid: 0, gid: 0, cap: 0 };

/// A client with its sequence of FIDs.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) inner: TestClient,
    pub(super) sequence: u64,
    oid: Arc<AtomicU32>,
    tag: Arc<AtomicU32>,
    handle: Arc<AtomicU64>,
    /// Locks held: the client's handle, and the server's.
    locks: Arc<Mutex<HashMap<LockHandle, LockHandle>>>,
    pub(super) user: User,
}

/// What an open gave.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) disposition: Disposition,
    pub(super) body: MdtBody,
    pub(super) layout: Bytes,
    pub(super) lock: Option<(LockHandle, InodeBits, LockMode)>,
}

pub(super) fn run<T: Send + 'static>(
    test: impl Future<Output = T> + Send + 'static,
    world: &TestWorld,
) -> T {
    world.run(test)
}

pub(super) fn config() -> TargetConfig {
    TargetConfig {
        name: "lustre-MDT0000".to_owned(),
        uuid: Uuid::new("lustre-MDT0000_UUID"),
        index: 0,
        offer: Mdt::offer(),
        replayable: true,
        timeouts: Timeouts::from_base(std::time::Duration::from_secs(10)),
    }
}

impl Server {
    pub(super) async fn start(world: &TestWorld, osts: usize) -> Self {
        let options = MemOptions { commits: Commits::Immediate, ..MemOptions::default() };
        let osts = (0..osts).map(|_| FakeOst::new()).collect();
        Self::start_on(world, Arc::new(StoreMem::new(options)), osts).await
    }

    pub(super) async fn start_on(
        world: &TestWorld,
        store: Arc<StoreMem>,
        osts: Vec<Arc<FakeOst>>,
    ) -> Self {
        let shared: Arc<dyn Store> = store.clone();
        Self::start_with(world, (store, shared), osts).await
    }

    /// On a disk that fails as often as `errors` says.
    pub(super) async fn start_flaky(world: &TestWorld, errors: Arc<Mutex<Errors>>) -> Self {
        let options = MemOptions { commits: Commits::Immediate, ..MemOptions::default() };
        let store = Arc::new(StoreMem::new(options));
        let random = Arc::clone(&world.world().random);
        let flaky = Flaky { store: Arc::clone(&store), random, errors };
        Self::start_with(world, (store, Arc::new(flaky)), vec![FakeOst::new()]).await
    }

    async fn start_with(
        world: &TestWorld,
        (store, shared): (Arc<StoreMem>, Arc<dyn Store>),
        osts: Vec<Arc<FakeOst>>,
    ) -> Self {
        let mdt = Mdt::new(
            Arc::clone(&shared),
            MdtConfig::new("lustre", 0, Timestamp::from_seconds(1_000), [0; 16]),
        )
        .expect("formats");
        for (index, ost) in osts.iter().enumerate() {
            mdt.add_ost(index as u16, ost.clone());
        }
        let node = TestTarget::start(world, shared, config(), mdt.clone()).await;
        Self { world: world.clone(), store, node, mdt, osts }
    }

    pub(super) async fn client(&self, uuid: &str) -> Client {
        self.begin(self.node.client(uuid)).await
    }

    pub(super) async fn client_at(&self, uuid: &str, nid: Nid) -> Client {
        self.begin(self.node.client_at(uuid, nid)).await
    }

    pub(super) async fn begin(&self, inner: TestClient) -> Client {
        inner.connect().await.expect("the MDT takes the client");
        let query = SeqQuery { seq_opc: 1, ..SeqQuery::default() };
        let Some(Reply::SeqQuery(reply)) = inner.call(query).await.reply else {
            panic!("a sequence is given");
        };
        let sequence = reply.seq_range.expect("a range").start;
        let locks: Arc<Mutex<HashMap<LockHandle, LockHandle>>> = Arc::default();
        obey(&self.world, &inner, &locks);
        Client {
            inner,
            locks,
            sequence,
            oid: Arc::new(AtomicU32::new(1)),
            tag: Arc::new(AtomicU32::new(0)),
            handle: Arc::new(AtomicU64::new(1 << 40)),
            user: ROOT_USER,
        }
    }

    /// The namespace is sound, and every object of a file is on its OST.
    pub(super) fn check(&self) -> Report {
        let report = check(&*self.store).expect("the store can be read");
        assert_eq!(report.faults, []);
        for UsedObject { ost, object, .. } in &report.objects {
            assert!(self.osts[usize::from(*ost)].has(object), "{object:?} of a file is missing");
        }
        report
    }
}

impl Client {
    pub(super) fn with(&self, inner: TestClient) -> Self {
        Self { inner, ..self.clone() }
    }

    /// Lets time pass as a client that is alive.
    pub(super) async fn wait(&self, world: &TestWorld, seconds: u64) {
        for _ in 0..seconds.div_ceil(3) {
            world.sleep(std::time::Duration::from_secs(3)).await;
            self.inner.call(ObdPing::default()).await;
        }
    }

    pub(super) fn as_user(&self, uid: u32, gid: u32) -> Self {
        Self { user: User { uid, gid, cap: 0 }, ..self.clone() }
    }

    /// The same user with all capabilities, as the client says.
    pub(super) fn with_capabilities(&self) -> Self {
        Self { user: User { cap: u32::MAX, ..self.user }, ..self.clone() }
    }

    pub(super) fn next_fid(&self) -> Fid {
        Fid::new(self.sequence, self.oid.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn next_tag(&self) -> u16 {
        (self.tag.fetch_add(1, Ordering::Relaxed) % 9 + 1) as u16
    }

    /// A modifying request.
    pub(super) async fn modify(&self, request: impl Into<Request>) -> Result<Reply, Errno> {
        let call = TestCall::new(request).tagged(self.next_tag());
        let answer = self.inner.call_with(call).await.expect("an answer");
        match answer.errno() {
            Some(errno) => Err(errno),
            None => Ok(answer.reply.expect("buffers")),
        }
    }

    pub(super) fn rec_create(&self, parent: Fid, mode: u32) -> RecCreate {
        RecCreate {
            opcode: ReintOp::CREATE,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            cap: self.user.cap,
            suppgid1: u32::MAX,
            suppgid2: u32::MAX,
            fid1: parent,
            fid2: self.next_fid(),
            time: 1000,
            mode,
            umask: 0o022,
            ..RecCreate::default()
        }
    }

    pub(super) fn create_request(&self, parent: Fid, name: &str, mode: u32) -> MdsReintCreate {
        MdsReintCreate {
            rec_reint: self.rec_create(parent, mode),
            name: Some(Text::new(name)),
            ..MdsReintCreate::default()
        }
    }

    pub(super) async fn make(&self, parent: Fid, name: &str, mode: u32) -> Result<Fid, Errno> {
        let request = self.create_request(parent, name, mode);
        let fid = request.rec_reint.fid2;
        self.modify(request).await.map(|_| fid)
    }

    pub(super) async fn mkdir(&self, parent: Fid, name: &str) -> Result<Fid, Errno> {
        self.make(parent, name, DIRECTORY | 0o777).await
    }

    pub(super) fn unlink_request(&self, parent: Fid, name: &str, mode: u32) -> MdsReintUnlink {
        MdsReintUnlink {
            rec_reint: RecUnlink {
                opcode: ReintOp::UNLINK,
                fsuid: self.user.uid,
                fsgid: self.user.gid,
                cap: self.user.cap,
                suppgid1: u32::MAX,
                suppgid2: u32::MAX,
                fid1: parent,
                time: 1001,
                mode,
                ..RecUnlink::default()
            },
            name: Some(Text::new(name)),
            ..MdsReintUnlink::default()
        }
    }

    pub(super) async fn unlink(&self, parent: Fid, name: &str) -> Result<(), Errno> {
        self.modify(self.unlink_request(parent, name, REGULAR)).await.map(|_| ())
    }

    pub(super) async fn rmdir(&self, parent: Fid, name: &str) -> Result<(), Errno> {
        self.modify(self.unlink_request(parent, name, DIRECTORY)).await.map(|_| ())
    }

    pub(super) async fn symlink(&self, parent: Fid, name: &str) -> Result<(), Errno> {
        let rec_reint = self.rec_create(parent, 0o120_777);
        let name = Some(Text::new(name));
        let symtgt = Bytes::from_static(b"target\0");
        let request = MdsReintCreateSym { rec_reint, name, symtgt, ..Default::default() };
        self.modify(request).await.map(|_| ())
    }

    /// An open without a lock.
    pub(super) async fn reint_open(
        &self,
        parent: Fid,
        name: &str,
        flags: MdsOpenFlags,
    ) -> Result<(), Errno> {
        let rec_reint = self.open_request(parent, name, flags).rec_reint;
        let name = Some(Text::new(name));
        let request = MdsReintOpen { rec_reint, name, ..Default::default() };
        self.modify(request).await.map(|_| ())
    }

    pub(super) async fn link(&self, file: Fid, parent: Fid, name: &str) -> Result<(), Errno> {
        let rec_reint = RecLink {
            opcode: ReintOp::LINK,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            cap: self.user.cap,
            suppgid1: u32::MAX,
            suppgid2: u32::MAX,
            fid1: file,
            fid2: parent,
            time: 1002,
            ..RecLink::default()
        };
        let name = Some(Text::new(name));
        self.modify(MdsReintLink { rec_reint, name, ..Default::default() }).await.map(|_| ())
    }

    pub(super) async fn rename(&self, from: (Fid, &str), to: (Fid, &str)) -> Result<(), Errno> {
        self.modify(self.rename_request(from, to)).await.map(|_| ())
    }

    pub(super) fn rename_request(&self, from: (Fid, &str), to: (Fid, &str)) -> MdsReintRename {
        let rec_reint = RecRename {
            opcode: ReintOp::RENAME,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            cap: self.user.cap,
            suppgid1: u32::MAX,
            suppgid2: u32::MAX,
            fid1: from.0,
            fid2: to.0,
            time: 1003,
            ..RecRename::default()
        };
        let (name, symtgt) = (Some(Text::new(from.1)), Some(Text::new(to.1)));
        MdsReintRename { rec_reint, name, symtgt, ..Default::default() }
    }

    pub(super) async fn setattr(
        &self,
        fid: Fid,
        valid: AttrValid,
        fill: impl FnOnce(&mut RecSetattr),
    ) -> Result<MdtBody, Errno> {
        let mut rec_reint = RecSetattr {
            opcode: ReintOp::SETATTR,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            cap: self.user.cap,
            suppgid: u32::MAX,
            fid,
            valid,
            ..RecSetattr::default()
        };
        fill(&mut rec_reint);
        match self.modify(MdsReintSetattr { rec_reint, ..Default::default() }).await? {
            Reply::MdsReintSetattr(reply) => Ok(reply.mdt_body.expect("attributes")),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn setxattr(
        &self,
        fid: Fid,
        name: &str,
        value: Option<&[u8]>,
        flags: u32,
    ) -> Result<(), Errno> {
        let valid = if value.is_some() { Valid::XATTR } else { Valid::XATTRRM };
        let rec_reint = RecSetxattr {
            opcode: ReintOp::SETXATTR,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            cap: self.user.cap,
            fid,
            valid,
            time: 1004,
            size: value.map_or(0, |value| value.len() as u32),
            flags,
            ..RecSetxattr::default()
        };
        let eadata = Bytes::copy_from_slice(value.unwrap_or_default());
        let name = Some(Text::new(name));
        let request = MdsReintSetxattr { rec_reint, name, eadata, ..Default::default() };
        self.modify(request).await.map(|_| ())
    }

    pub(super) fn body(&self, fid: Fid) -> MdtBody {
        MdtBody {
            fid1: fid,
            fsuid: self.user.uid,
            fsgid: self.user.gid,
            capability: self.user.cap,
            suppgid: u32::MAX,
            eadatasize: 4096,
            valid: Valid::ACL | Valid::MODEASIZE,
            ..MdtBody::default()
        }
    }

    pub(super) async fn getattr(&self, fid: Fid) -> Result<MdtBody, Errno> {
        let answer =
            self.inner.call(MdsGetattr { mdt_body: self.body(fid), ..Default::default() }).await;
        match (answer.errno(), answer.reply) {
            (Some(errno), _) => Err(errno),
            (None, Some(Reply::MdsGetattr(reply))) => Ok(reply.mdt_body.expect("attributes")),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn getxattr(&self, fid: Fid, name: &str) -> Result<Bytes, Errno> {
        let mdt_body = MdtBody { valid: Valid::XATTR, ..self.body(fid) };
        let name = Some(Text::new(name));
        let answer = self.inner.call(MdsGetxattr { mdt_body, name, ..Default::default() }).await;
        match (answer.errno(), answer.reply) {
            (Some(errno), _) => Err(errno),
            (None, Some(Reply::MdsGetxattr(reply))) => Ok(reply.eadata),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn dlm(&self, resource: Fid, mode: LockMode, bits: InodeBits) -> LdlmRequest {
        let desc = LdlmLockDesc {
            resource: LdlmResourceDesc {
                kind: LockType::IBITS,
                padding: 0,
                name: ResourceName::of_fid(resource),
            },
            req_mode: mode.into(),
            policy: Policy::of_inode_bits(bits, InodeBits(0)),
            ..LdlmLockDesc::default()
        };
        let handle = LockHandle(self.handle.fetch_add(1, Ordering::Relaxed));
        LdlmRequest::enqueue(WireFlags::HAS_INTENT, desc, handle)
    }

    /// A getattr by name under a lock.
    pub(super) fn lookup_request(&self, parent: Fid, name: &str) -> LdlmIntentGetattr {
        LdlmIntentGetattr {
            dlm_req: self.dlm(parent, LockMode::Cr, InodeBits::LOOKUP),
            ldlm_intent: LdlmIntent { opc: IntentOp::GETATTR },
            mdt_body: self.body(parent),
            name: Some(Text::new(name)),
            ..LdlmIntentGetattr::default()
        }
    }

    pub(super) async fn lookup(
        &self,
        parent: Fid,
        name: &str,
    ) -> (TestAnswer, LdlmIntentGetattrReply) {
        self.ask_lock(self.lookup_request(parent, name)).await
    }

    /// Sends a getattr under a lock, and keeps that.
    pub(super) async fn ask_lock(
        &self,
        request: LdlmIntentGetattr,
    ) -> (TestAnswer, LdlmIntentGetattrReply) {
        let mine = request.dlm_req.handles[0];
        let answer = self.inner.call(request).await;
        match answer.reply.clone() {
            Some(Reply::LdlmIntentGetattr(reply)) => {
                let server = reply.dlm_rep.as_ref().map_or(LockHandle(0), |lock| lock.handle);
                self.keep(mine, server);
                (answer, *reply)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn open_request(
        &self,
        parent: Fid,
        name: &str,
        flags: MdsOpenFlags,
    ) -> LdlmIntentOpen {
        let mut rec_reint = self.rec_create(parent, REGULAR | 0o666);
        rec_reint.opcode = ReintOp::OPEN;
        rec_reint.set_flags(flags);
        LdlmIntentOpen {
            dlm_req: self.dlm(parent, LockMode::Cr, InodeBits::LOOKUP),
            ldlm_intent: LdlmIntent { opc: IntentOp::OPEN | IntentOp::CREAT },
            rec_reint,
            name: Some(Text::new(name)),
            ..LdlmIntentOpen::default()
        }
    }

    pub(super) async fn open(
        &self,
        parent: Fid,
        name: &str,
        flags: MdsOpenFlags,
    ) -> Result<Opened, Errno> {
        let request = self.open_request(parent, name, flags);
        let mine = request.dlm_req.handles[0];
        let call = TestCall::new(request).tagged(self.next_tag());
        let result = opened(self.inner.call_with(call).await.expect("an answer"));
        if let Ok(Opened { lock: Some((server, ..)), .. }) = &result {
            self.keep(mine, *server);
        }
        result
    }

    pub(super) async fn open_fid(&self, fid: Fid, flags: MdsOpenFlags) -> Result<Opened, Errno> {
        let mut request = self.open_request(Fid::ROOT, "", flags | MdsOpenFlags::BY_FID);
        request.rec_reint.fid2 = fid;
        let mine = request.dlm_req.handles[0];
        let call = TestCall::new(request).tagged(self.next_tag());
        let result = opened(self.inner.call_with(call).await.expect("an answer"));
        if let Ok(Opened { lock: Some((server, ..)), .. }) = &result {
            self.keep(mine, *server);
        }
        result
    }

    /// Knows a lock by both its handles.
    pub(super) fn keep(&self, mine: LockHandle, server: LockHandle) {
        if server.0 != 0 {
            self.locks.lock().insert(mine, server);
        }
    }

    /// The server's handle of a lock that a callback revokes, once.
    pub(super) fn revoked(&self, callback: &LdlmBlCallback) -> Option<LockHandle> {
        revoked(&self.locks, callback)
    }

    /// Stops cancelling locks.
    pub(super) fn hold_on(&self) {
        self.locks.lock().clear();
    }

    pub(super) async fn create(&self, parent: Fid, name: &str) -> Result<Opened, Errno> {
        self.open(parent, name, MdsOpenFlags::CREAT | MdsOpenFlags::WRITE).await
    }

    pub(super) fn close_request(&self, fid: Fid, open_handle: OpenHandle) -> MdsClose {
        MdsClose {
            mdt_ioepoch: MdtIoepoch { open_handle, ..MdtIoepoch::default() },
            rec_reint: RecSetattr { opcode: ReintOp::SETATTR, fid, ..RecSetattr::default() },
            ..MdsClose::default()
        }
    }

    pub(super) async fn close(&self, opened: &Opened) -> Result<(), Errno> {
        let request = self.close_request(opened.body.fid1, opened.body.open_handle);
        self.modify(request).await.map(|_| ())
    }

    /// All names with their positions, page by page of `room` pages each.
    pub(super) async fn readdir(&self, fid: Fid, room: u32) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut hash = 0;
        while hash != sheen_wire::dir::HASH_END {
            hash = self.read_pages(fid, hash, room, &mut names).await;
        }
        names
    }

    /// One request's pages; the position to go on with.
    pub(super) async fn read_pages(
        &self,
        fid: Fid,
        hash: u64,
        room: u32,
        names: &mut Vec<(String, u64)>,
    ) -> u64 {
        let mdt_body = MdtBody { size: hash, nlink: room * 4096, ..self.body(fid) };
        let answer = self.inner.call(MdsReadpage { mdt_body, ..Default::default() }).await;
        assert_eq!(answer.errno(), None);
        let mut end = hash;
        for at in (0..answer.bulk.len()).step_by(4096) {
            let page = DirPage::decode(&answer.bulk.slice(at..at + 4096)).expect("a page");
            assert_eq!(page.header.hash_start, end, "pages join");
            end = page.header.hash_end;
            for entry in page.entries {
                names.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.hash));
            }
        }
        end
    }
}

fn revoked(
    locks: &Mutex<HashMap<LockHandle, LockHandle>>,
    callback: &LdlmBlCallback,
) -> Option<LockHandle> {
    let handle = callback.dlm_req.handles.first()?;
    locks.lock().remove(handle)
}

/// Cancels every lock that is revoked.
fn obey(
    world: &TestWorld,
    client: &TestClient,
    locks: &Arc<Mutex<HashMap<LockHandle, LockHandle>>>,
) {
    let (world, locks, copy) = (world.clone(), Arc::clone(locks), client.clone());
    client.on_callback(Box::new(move |request| {
        if let Request::LdlmBlCallback(callback) = request
            && let Some(server) = revoked(&locks, callback)
        {
            let client = copy.clone();
            let cancel = async move {
                client.cancel(&[server]).await;
            };
            world.world().tasks.spawn("cancel", Box::pin(cancel));
        }
        None
    }));
}

/// Reads an open's answer.
pub(super) fn opened(answer: TestAnswer) -> Result<Opened, Errno> {
    if let Some(errno) = answer.errno() {
        return Err(errno);
    }
    let Some(Reply::LdlmIntentOpen(reply)) = answer.reply.clone() else {
        panic!("{:?}", answer.reply)
    };
    let dlm = reply.dlm_rep.expect("an intent's answer");
    if let Some(errno) = Errno::from_status(dlm.policy_res2 as u32 as i32) {
        assert_eq!(answer.head.status, 301);
        return Err(errno);
    }
    let bits = InodeBits(dlm.desc.policy.as_inode_bits().bits);
    let lock = dlm.desc.granted_mode.mode().map(|mode| (dlm.handle, bits, mode));
    assert_eq!(answer.head.status, if lock.is_some() { 0 } else { 301 });
    let body = reply.mdt_body.expect("attributes");
    Ok(Opened { disposition: dlm.policy_res1, body, layout: reply.mdt_md, lock })
}
