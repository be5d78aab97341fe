//! A scripted MDT: answers what the test has prepared, and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_rpc::{
    Answer, Bulk, Call, Channel, Counters, Import, ImportState, RequestHook, RpcError, StateChange,
};
use sheen_types::{
    Errno, Fid, InodeBits, LockHandle, LockMode, Nid, ResourceName, Transno, Uuid, Xid,
};
use sheen_wire::batch::{BatchHeader, BatchedMessages, ButUpdateHeader, batched, join};
use sheen_wire::connect::{ConnectFlags2, ObdConnectData};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::ldlm::{
    LdlmLockDesc, LdlmReply, LdlmRequest, LdlmResourceDesc, LockType, Policy as WirePolicy,
};
use sheen_wire::md::{Disposition, MdtBody, Valid};
use sheen_wire::messages::{
    Fields, FldQueryReply, LdlmCancelReply, LdlmIntentGetattr, LdlmIntentGetattrReply,
    LdlmIntentOpenReply, MdsBatch, MdsBatchReply, Reply, Request, SeqQueryReply,
};
use sheen_wire::ptlrpc::{MessageHeader, PtlrpcBody};

type Script = Box<dyn FnOnce(&Request) -> Result<Reply, Errno> + Send>;
/// Answers whatever no script is for, with the pages of a bulk.
type Server = Box<dyn FnMut(&Request) -> (Result<Reply, Errno>, Vec<Bytes>) + Send>;

/// The MDT.
#[derive(Default)]
pub(crate) struct FakeMdt {
    scripts: Mutex<VecDeque<Script>>,
    server: Mutex<Option<Server>>,
    /// Answers are on their way until it is notified.
    pub(crate) hold: Mutex<Option<Arc<tokio::sync::Notify>>>,
    /// The same of answers to `FLD_QUERY` alone.
    pub(crate) hold_fld: Mutex<Option<Arc<tokio::sync::Notify>>>,
    /// Whether it says that MDT0001 has all sequences.
    pub(crate) gives_all_to_second: AtomicBool,
    /// Whether it leaves a client's own locks on directories that the client changes.
    pub(crate) own_names: AtomicBool,
    /// Whether it leaves a client's own locks on inodes whose attributes the client changes.
    pub(crate) own_attributes: AtomicBool,
    /// Whether it takes batches.
    pub(crate) takes_batches: AtomicBool,
    /// The bulk that came with the last request.
    pub(crate) source: Arc<Mutex<Bytes>>,
    /// Which MDT it is.
    pub(crate) index: AtomicU32,
    /// Of the next answer.
    status: Arc<Mutex<i32>>,
    asked: Mutex<Vec<Request>>,
    /// The room for variable parts of the last answer.
    pub(crate) room: AtomicU64,
    bulk: Mutex<Vec<Bytes>>,
    hooks: Mutex<Vec<Arc<dyn RequestHook>>>,
    pub(crate) released: Mutex<Vec<Xid>>,
    /// Whether it answers no connect.
    pub(crate) dead: AtomicBool,
    /// Whether its import was disconnected.
    pub(crate) left: AtomicBool,
    pub(crate) transno: AtomicU64,
    pub(crate) committed: AtomicU64,
    /// Over which connection answers come.
    pub(crate) connection: AtomicU32,
    xid: AtomicU64,
}

impl FakeMdt {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The next request, cancels and sequence queries left out, is answered by `script`.
    pub(crate) fn expect(
        &self,
        script: impl FnOnce(&Request) -> Result<Reply, Errno> + Send + 'static,
    ) {
        self.scripts.lock().push_back(Box::new(script));
    }

    /// The next request gets this reply, whatever it asks.
    pub(crate) fn answer(&self, reply: impl Into<Reply>) {
        let reply = reply.into();
        self.expect(move |_| Ok(reply));
    }

    /// The next request is refused.
    pub(crate) fn refuse(&self, errno: Errno) {
        self.expect(move |_| Err(errno));
    }

    /// The next request is refused, and the refusal has the buffers of a reply.
    pub(crate) fn refuse_with(&self, errno: Errno, reply: impl Into<Reply>) {
        let (reply, status) = (reply.into(), Arc::clone(&self.status));
        self.expect(move |_| {
            *status.lock() = errno.status();
            Ok(reply)
        });
    }

    /// Whatever no script is for is answered by `server`.
    pub(crate) fn serve(
        &self,
        server: impl FnMut(&Request) -> (Result<Reply, Errno>, Vec<Bytes>) + Send + 'static,
    ) {
        *self.server.lock() = Some(Box::new(server));
    }

    /// The next bulk.
    pub(crate) fn bulk(&self, pages: Vec<Bytes>) {
        *self.bulk.lock() = pages;
    }

    /// What was asked since the last time, cancels included.
    pub(crate) fn take_asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.asked.lock())
    }

    /// The hooks of requests that an MDT's restart would replay.
    pub(crate) fn take_hooks(&self) -> Vec<Arc<dyn RequestHook>> {
        std::mem::take(&mut self.hooks.lock())
    }

    /// Scripts that were not used are not to be.
    pub(crate) fn forget_scripts(&self) {
        self.scripts.lock().clear();
    }

    /// Whether every script was used.
    pub(crate) fn is_done(&self) -> bool {
        self.scripts.lock().is_empty()
    }

    fn reply(&self, request: &Request) -> Result<Reply, Errno> {
        match request {
            Request::LdlmCancel(_) => Ok(LdlmCancelReply::default().into()),
            Request::SeqQuery(_) => {
                let start = super_range(self.index.load(Ordering::Relaxed)).start + 1;
                let range = LuSeqRange { start, end: start + 1, ..Default::default() };
                Ok(SeqQueryReply { seq_range: Some(range), ..Default::default() }.into())
            }
            Request::FldQuery(query) => {
                let sequence = query.fld_mdfld.start;
                if self.gives_all_to_second.load(Ordering::Relaxed) {
                    let flags = SeqRangeFlags::MDT;
                    let all = LuSeqRange { start: 0, end: u64::MAX, index: 1, flags };
                    return Ok(FldQueryReply { fld_mdfld: Some(all), ..Default::default() }.into());
                }
                let range = (0..4).map(super_range).find(|range| range.contains(sequence));
                let fld_mdfld = Some(range.ok_or(Errno::ENOENT)?);
                Ok(FldQueryReply { fld_mdfld, ..Default::default() }.into())
            }
            _ => {
                let script = self.scripts.lock().pop_front();
                let kind = request.kind();
                if script.is_none()
                    && let Some(server) = &mut *self.server.lock()
                {
                    let (reply, pages) = server(request);
                    self.bulk(pages);
                    return reply;
                }
                script.unwrap_or_else(|| panic!("not expected: {kind:?}"))(request)
            }
        }
    }
}

/// The sequences of an MDT: the controller has given them out in the order of indexes.
pub(crate) fn super_range(index: u32) -> LuSeqRange {
    const WIDTH: u64 = 1 << 30;
    let start = 0x2_0000_0400 + WIDTH * u64::from(index);
    LuSeqRange { start, end: start + WIDTH, index, flags: SeqRangeFlags::MDT }
}

/// What a name stands for, by its MDT, if the inode is on another one.
pub(crate) fn found_elsewhere(fid: Fid, remote: u64) -> LdlmIntentGetattrReply {
    LdlmIntentGetattrReply {
        dlm_rep: Some(lock_reply(fid, remote, LockMode::Pr, InodeBits::LOOKUP)),
        mdt_body: Some(MdtBody { fid1: fid, valid: Valid::ID | Valid::MDS, ..MdtBody::default() }),
        ..LdlmIntentGetattrReply::default()
    }
}

impl Channel for FakeMdt {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        if let Bulk::Source(pieces) = &call.bulk {
            *self.source.lock() = pieces.concat().into();
        }
        let reply = self.reply(&call.request);
        self.room.store(call.reply_room as u64, Ordering::Relaxed);
        let is_fld = matches!(call.request, Request::FldQuery(_));
        self.asked.lock().push(call.request);
        let status = std::mem::take(&mut *self.status.lock());
        let refused = Errno::from_status(status).filter(|_| !call.refusal_as_answer);
        let reply = refused.map_or(reply, Err);
        let answer = reply.map_err(RpcError::Errno).map(|reply| {
            let xid = Xid(self.xid.fetch_add(1, Ordering::Relaxed) + 1);
            let transno = Transno(self.transno.load(Ordering::Relaxed));
            let body = PtlrpcBody { transno, status, ..PtlrpcBody::default() };
            let bulk = std::mem::take(&mut *self.bulk.lock());
            let connection = self.connection.load(Ordering::Relaxed);
            Answer { xid, body, reply, bulk, connection }
        });
        if let (Ok(answer), Some(hook)) = (&answer, call.hook)
            && hook.keep_until_release(answer)
        {
            self.hooks.lock().push(hook);
        }
        let hold = self.hold.lock().clone();
        let hold = hold.or_else(|| self.hold_fld.lock().clone().filter(|_| is_fld));
        Box::pin(async move {
            if let Some(hold) = hold {
                hold.notified().await;
            }
            answer
        })
    }

    fn state(&self) -> ImportState {
        ImportState::Full
    }

    fn connect_data(&self) -> ObdConnectData {
        let mut flags2 = ConnectFlags2::NONE;
        for (has, flag) in [
            (&self.own_names, ConnectFlags2::OWN_NAMES),
            (&self.own_attributes, ConnectFlags2::OWN_ATTRIBUTES),
            (&self.takes_batches, ConnectFlags2::BATCH_RPC),
        ] {
            if has.load(Ordering::Relaxed) {
                flags2 |= flag;
            }
        }
        ObdConnectData { flags2, ..ObdConnectData::default() }
    }

    fn connection(&self) -> u32 {
        1
    }

    fn peer(&self) -> Nid {
        Nid::LOOPBACK
    }

    fn target_uuid(&self) -> Uuid {
        Uuid::new("fs-MDT0000_UUID")
    }

    fn last_committed(&self) -> Transno {
        Transno(self.committed.load(Ordering::Relaxed))
    }

    fn release(&self, xid: Xid) {
        self.released.lock().push(xid);
    }
}

impl Import for FakeMdt {
    fn connect(&self) -> BoxFuture<'static, Result<(), RpcError>> {
        match self.dead.load(Ordering::Relaxed) {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn disconnect(&self) -> BoxFuture<'static, ()> {
        self.left.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn close(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    fn reconnect(&self) {}

    fn add_nid(&self, _nid: Nid) {}

    fn history(&self) -> Vec<StateChange> {
        Vec::new()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// A granted lock on the bits of an inode.
pub(crate) fn lock_reply(fid: Fid, remote: u64, mode: LockMode, bits: InodeBits) -> LdlmReply {
    LdlmReply {
        desc: LdlmLockDesc {
            resource: LdlmResourceDesc {
                kind: LockType::IBITS,
                padding: 0,
                name: ResourceName::of_fid(fid),
            },
            req_mode: mode.into(),
            granted_mode: mode.into(),
            policy: WirePolicy::of_inode_bits(bits, InodeBits(0)),
        },
        handle: LockHandle(remote),
        policy_res1: Disposition::IT_EXECD | Disposition::LOOKUP_EXECD | Disposition::LOOKUP_POS,
        ..LdlmReply::default()
    }
}

/// The blocking callback for the lock that a request asked for.
pub(crate) fn blocking(request: &LdlmRequest, reply: &LdlmReply) -> LdlmRequest {
    let mut desc = reply.desc.clone();
    desc.req_mode = LockMode::Ex.into();
    desc.granted_mode = Default::default();
    LdlmRequest { desc, count: 1, handles: request.handles.clone(), ..LdlmRequest::default() }
}

/// Attributes of a directory or other inode.
pub(crate) fn body(fid: Fid, mode: u32) -> MdtBody {
    MdtBody {
        fid1: fid,
        valid: Valid::ID
            | Valid::MODE
            | Valid::TYPE
            | Valid::NLINK
            | Valid::UID
            | Valid::GID
            | Valid::MTIME
            | Valid::CTIME
            | Valid::ATIME,
        mode,
        nlink: 1,
        mtime: 100,
        atime: 100,
        ctime: 100,
        ..MdtBody::default()
    }
}

/// The reply to a lookup that found something.
pub(crate) fn found(fid: Fid, mode: u32, remote: u64, bits: InodeBits) -> LdlmIntentGetattrReply {
    LdlmIntentGetattrReply {
        dlm_rep: Some(lock_reply(fid, remote, LockMode::Pr, bits)),
        mdt_body: Some(body(fid, mode)),
        ..LdlmIntentGetattrReply::default()
    }
}

/// The reply to a lookup that found nothing.
pub(crate) fn absent() -> LdlmIntentGetattrReply {
    let disposition = Disposition::IT_EXECD | Disposition::LOOKUP_EXECD | Disposition::LOOKUP_NEG;
    LdlmIntentGetattrReply {
        dlm_rep: Some(LdlmReply { policy_res1: disposition, ..LdlmReply::default() }),
        ..LdlmIntentGetattrReply::default()
    }
}

/// The parts of a batch, of which `source` is the bulk if it has one.
pub(crate) fn parts_of(request: &MdsBatch, source: &Bytes) -> Vec<LdlmIntentGetattr> {
    let (header, inline) = ButUpdateHeader::split(&request.but_update_header).expect("a header");
    let mut source = source.clone();
    let buffers: Vec<Bytes> = match header.inline_length {
        0 => {
            let sizes = request.but_update_buf.iter().map(|buffer| buffer.size as usize);
            sizes.map(|size| source.split_to(size)).collect()
        }
        length => vec![inline.slice(..length as usize)],
    };
    assert_eq!(buffers.len(), header.count as usize);
    let messages = buffers.iter().flat_map(|it| BatchedMessages::of_request(it).expect("parts"));
    let parts: Vec<_> = messages
        .map(|message| LdlmIntentGetattr::from_message(&message.expect("a part")).expect("a part"))
        .collect();
    assert_eq!(parts.len(), header.update_count as usize);
    parts
}

/// The answer to a batch: the result of each part, and its reply.
pub(crate) fn batch_reply(answers: &[(i32, LdlmIntentGetattrReply)]) -> MdsBatchReply {
    let message = |(result, reply): &(i32, LdlmIntentGetattrReply)| {
        let sub_opcode = *result as u32;
        batched(&MessageHeader { sub_opcode, ..MessageHeader::default() }, reply)
    };
    let messages: Vec<Bytes> = answers.iter().map(message).collect();
    let batch_update_reply = join(BatchHeader::REPLY_MAGIC, &messages);
    MdsBatchReply { batch_update_reply, ..MdsBatchReply::default() }
}

/// The reply to an open that succeeded.
pub(crate) fn opened(fid: Fid, handle: u64, created: bool, layout: Bytes) -> LdlmIntentOpenReply {
    let mut lock = lock_reply(fid, 0x5000 + handle, LockMode::Pr, InodeBits(0x1b));
    lock.policy_res1 |= Disposition::OPEN_OPEN;
    if created {
        lock.policy_res1 |= Disposition::OPEN_CREATE;
    }
    let mut mdt_body = body(fid, 0o100_644);
    mdt_body.open_handle = sheen_wire::md::OpenHandle(handle);
    if !layout.is_empty() {
        mdt_body.valid |= Valid::EASIZE;
        mdt_body.eadatasize = layout.len() as u32;
    }
    LdlmIntentOpenReply {
        dlm_rep: Some(lock),
        mdt_body: Some(mdt_body),
        mdt_md: layout,
        ..LdlmIntentOpenReply::default()
    }
}
