//! A scripted OST: keeps bytes, grants every lock, and does wrong what the test asks for.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_rpc::{Answer, Bulk, Call, Channel, ImportState, RpcError};
use sheen_types::{
    Errno, Extent, HashMap, LockHandle, LockMode, Nid, ResourceName, Seek, Transno, Uuid, Xid,
};
use sheen_wire::checksum::Checksum;
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::connect::{ChecksumTypes, ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{
    ExtentPolicy, LdlmReply, LdlmRequest, LockFlags, LockType, Policy as WirePolicy,
};
use sheen_wire::md::Valid;
use sheen_wire::messages::{
    LdlmCancelReply, LdlmConvertReply, LdlmEnqueue, LdlmEnqueueReply, OstFallocateReply,
    OstLadviseReply, OstPunchReply, OstRead, OstReadReply, OstSeek, OstSeekReply,
    OstSetGrantInfoReply, OstSetattrReply, OstSyncReply, OstWrite, OstWriteReply, Reply, Request,
};
use sheen_wire::ost::{BrwFlags, Obdo, ObdoFlags, OstBody, OstLvb};
use sheen_wire::ptlrpc::PtlrpcBody;
use tokio::sync::Notify;

/// "The answer, and no lock".
const LOCK_ABORTED: i32 = 301;

/// What the test says the OST does.
#[derive(Default)]
pub(super) struct Script {
    /// Grant that each write reply brings.
    pub(super) gain: u64,
    /// Errnos for the next requests of a kind ([`word`]).
    pub(super) refuse: VecDeque<(&'static str, Errno)>,
    /// So many writes and reads go with a wrong checksum.
    pub(super) garble: u32,
    /// Writes do so and are done all the same, as by Lustre's OSTs.
    pub(super) writes_garbled: bool,
    /// So many writes are answered with `EAGAIN` for their last piece.
    pub(super) busy_pieces: u32,
    /// Requests of this kind wait until [`FakeOst::release_held`].
    pub(super) hold: Option<&'static str>,
    /// Requests of this kind are done at once, and their answers wait until [`FakeOst::release_held`].
    pub(super) late: Option<&'static str>,
    /// Locks cover what was asked for and no more.
    pub(super) narrow: bool,
    /// Other clients' locks conflict with all that is asked for ahead.
    pub(super) conflicts: bool,
    /// Another client holds locks: glimpses bring a value and no lock.
    pub(super) busy: bool,
    /// Reads are answered up to the end of the page, with zeros behind the end, as Lustre's OSTs do.
    pub(super) fills_pages: bool,
    /// Locks come without a value, as from an OST that cannot read the object.
    pub(super) no_value: bool,
    /// What other clients know of an object, beyond its bytes here.
    pub(super) size_elsewhere: u64,
}

/// One OST.
pub(super) struct FakeOst {
    pub(super) script: Mutex<Script>,
    objects: Mutex<HashMap<ResourceName, Vec<u8>>>,
    /// What reads show while it is set, whatever is written.
    frozen: Mutex<Option<Vec<u8>>>,
    owner: Mutex<Option<(u32, u32)>>,
    mtime: Mutex<i64>,
    asked: Mutex<Vec<String>>,
    /// The checksum of each read and write that came, and whether its data goes inside the messages.
    ways: Mutex<Vec<(Option<Checksum>, bool)>>,
    /// Locks by what the client calls them, as asked for and as granted.
    locks: Mutex<Vec<(LdlmRequest, LdlmReply)>>,
    released: Notify,
    me: std::sync::Weak<FakeOst>,
}

/// By which word the log and scripts name a request.
fn word(request: &Request) -> &'static str {
    match request {
        Request::LdlmEnqueue(request) if is_glimpse(request) => "glimpse",
        Request::LdlmEnqueue(_) => "lock",
        Request::LdlmCancel(_) => "cancel",
        Request::LdlmConvert(_) => "convert",
        Request::OstRead(_) => "read",
        Request::OstWrite(_) => "write",
        Request::OstPunch(_) => "punch",
        Request::OstFallocate(_) => "fallocate",
        Request::OstSeek(_) => "seek",
        Request::OstLadvise(_) => "advise",
        Request::OstSetattr(_) => "setattr",
        Request::OstSync(_) => "sync",
        Request::OstSetGrantInfo(_) => "grant",
        _ => "other",
    }
}

fn is_glimpse(request: &LdlmEnqueue) -> bool {
    const HAS_INTENT: u32 = 1 << 12;
    request.dlm_req.flags.0 & HAS_INTENT != 0
}

fn is_ahead(request: &LdlmEnqueue) -> bool {
    request.dlm_req.flags.contains(LockFlags::SPECULATIVE)
}

impl FakeOst {
    pub(super) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            script: Mutex::default(),
            objects: Mutex::default(),
            frozen: Mutex::default(),
            owner: Mutex::default(),
            mtime: Mutex::default(),
            asked: Mutex::default(),
            ways: Mutex::default(),
            locks: Mutex::default(),
            released: Notify::new(),
            me: me.clone(),
        })
    }

    /// What a connect agrees on.
    pub(super) fn agreed(grant: u32) -> ObdConnectData {
        ObdConnectData {
            flags: ConnectFlags::GRANT
                | ConnectFlags::BRW_SIZE
                | ConnectFlags::CKSUM
                | ConnectFlags::SHORTIO
                | ConnectFlags::MAXBYTES
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::LOCKAHEAD,
            grant,
            brw_size: 1 << 20,
            cksum_types: ChecksumTypes::CRC32C,
            maxbytes: (1 << 44) - 4096,
            ..ObdConnectData::default()
        }
    }

    /// What was asked since the last time.
    pub(super) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }

    /// The same, of one kind.
    pub(super) fn take(&self, kind: &str) -> Vec<String> {
        let mut asked = self.take_asked();
        asked.retain(|line| line.split(' ').next() == Some(kind));
        asked
    }

    /// How data went since the last time.
    pub(super) fn take_ways(&self) -> Vec<(Option<Checksum>, bool)> {
        std::mem::take(&mut self.ways.lock())
    }

    /// The checksum that a request names, over `data`; notes it.
    fn checksum(&self, oa: &Obdo, data: &Bytes) -> u32 {
        let checksum = oa.flags.checksum().filter(|_| oa.valid.contains(Valid::CKSUM));
        self.ways.lock().push((checksum, oa.flags.contains(ObdoFlags::SHORT_IO)));
        checksum.map_or(0, |checksum| checksum.of(std::slice::from_ref(data)))
    }

    /// Requests and answers that were held go on, and no more are held.
    pub(super) fn release_held(&self) {
        let mut script = self.script.lock();
        (script.hold, script.late) = (None, None);
        drop(script);
        self.released.notify_waiters();
    }

    /// What the script does not hold any more goes on.
    pub(super) fn wake_held(&self) {
        self.released.notify_waiters();
    }

    async fn until_released(&self, may_go: impl Fn(&Script) -> bool) {
        loop {
            let released = self.released.notified();
            if may_go(&self.script.lock()) {
                return;
            }
            released.await;
        }
    }

    pub(super) fn refuse(&self, kind: &'static str, errno: Errno) {
        self.script.lock().refuse.push_back((kind, errno));
    }

    pub(super) fn bytes(&self, resource: ResourceName) -> Vec<u8> {
        self.objects.lock().get(&resource).cloned().unwrap_or_default()
    }

    pub(super) fn set_bytes(&self, resource: ResourceName, bytes: Vec<u8>) {
        self.objects.lock().insert(resource, bytes);
    }

    /// Reads show what the object holds now until [`FakeOst::thaw`].
    pub(super) fn freeze(&self, resource: ResourceName) {
        *self.frozen.lock() = Some(self.bytes(resource));
    }

    pub(super) fn thaw(&self) {
        *self.frozen.lock() = None;
    }

    /// Who pays for the last write.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        *self.owner.lock()
    }

    /// The time of the last write, as its request says.
    pub(super) fn mtime(&self) -> i64 {
        *self.mtime.lock()
    }

    /// The blocking callbacks for all locks granted so far, which are given up with it.
    pub(super) fn blocking(&self) -> Vec<LdlmRequest> {
        let locks = std::mem::take(&mut *self.locks.lock());
        let callback = |(request, reply): &(LdlmRequest, LdlmReply)| {
            let mut desc = reply.desc.clone();
            desc.req_mode = LockMode::Pw.into();
            desc.granted_mode = Default::default();
            let handles = request.handles.clone();
            LdlmRequest { desc, count: 1, handles, flags: LockFlags(0) }
        };
        locks.iter().map(callback).collect()
    }

    fn garbles(&self) -> bool {
        let garble = &mut self.script.lock().garble;
        let is_garbled = *garble > 0;
        *garble = garble.saturating_sub(1);
        is_garbled
    }

    pub(super) fn value(&self, resource: ResourceName) -> Bytes {
        let length = self.objects.lock().get(&resource).map_or(0, Vec::len);
        let size = (length as u64).max(self.script.lock().size_elsewhere);
        let blocks = length.div_ceil(512) as u64;
        let value = OstLvb { size, mtime: 50, atime: 50, ctime: 50, blocks, ..OstLvb::default() };
        let mut writer = Writer::with_capacity(OstLvb::SIZE);
        value.encode(&mut writer);
        writer.into_bytes()
    }

    fn lock(&self, request: &LdlmEnqueue) -> (i32, Reply) {
        let asked = &request.dlm_req;
        let mut value = self.value(asked.desc.resource.name);
        let script = self.script.lock();
        if script.no_value && !is_glimpse(request) {
            value = Bytes::new();
        }
        if is_glimpse(request) && script.busy {
            let dlm_rep = Some(LdlmReply::default());
            let reply = LdlmEnqueueReply { dlm_rep, dlm_lvb: value, ..Default::default() };
            return (LOCK_ABORTED, reply.into());
        }
        let mut reply = LdlmReply { desc: asked.desc.clone(), ..LdlmReply::default() };
        reply.desc.granted_mode = asked.desc.req_mode;
        if !script.narrow && !asked.flags.contains(LockFlags::NO_EXPANSION) {
            let gid = asked.desc.policy.as_extent().gid;
            let whole = ExtentPolicy { start: 0, end: Extent::EOF, gid };
            reply.desc.policy = WirePolicy::extent(&whole);
        }
        drop(script);
        let mut locks = self.locks.lock();
        reply.handle = LockHandle(0x9000 + locks.len() as u64);
        locks.push((asked.clone(), reply.clone()));
        let dlm_rep = Some(reply);
        (0, LdlmEnqueueReply { dlm_rep, dlm_lvb: value, ..Default::default() }.into())
    }

    fn write(&self, request: &OstWrite, bulk: &Bulk) -> Result<Reply, Errno> {
        let oa = request.ost_body.oa.clone();
        let data: Vec<u8> = match bulk {
            Bulk::Source(pieces) => pieces.concat(),
            _ => request.short_io.to_vec(),
        };
        let sum = self.checksum(&oa, &Bytes::from(data.clone()));
        let is_garbled = self.garbles();
        let is_wrong = oa.checksum().is_some_and(|theirs| sum != theirs || is_garbled);
        if is_wrong && !self.script.lock().writes_garbled {
            let mut oa = oa;
            oa.answer_checksum(sum ^ u32::from(is_garbled));
            let ost_body = Some(OstBody { oa });
            return Ok(OstWriteReply { ost_body, ..OstWriteReply::default() }.into());
        }
        *self.owner.lock() = Some((oa.uid, oa.gid));
        *self.mtime.lock() = oa.mtime;
        let mut objects = self.objects.lock();
        let object = objects.entry(request.obd_ioobj[0].oid.resource()).or_default();
        let mut from = 0;
        for piece in &request.niobuf_remote {
            let (start, len) = (piece.offset as usize, piece.len as usize);
            object.resize(object.len().max(start + len), 0);
            object[start..start + len].copy_from_slice(&data[from..from + len]);
            from += len;
        }
        assert_eq!(from, data.len(), "as many bytes as the pieces say");
        let blocks = object.len().div_ceil(512) as u64;
        let theirs = oa.checksum();
        let mut oa = Obdo { blocks, grant: self.script.lock().gain, ..oa };
        if let Some(theirs) = theirs {
            oa.answer_checksum(theirs ^ u32::from(is_wrong));
        }
        let mut rcs = vec![0; request.niobuf_remote.len()];
        let busy = &mut self.script.lock().busy_pieces;
        if let (Some(left), Some(last)) = (busy.checked_sub(1), rcs.last_mut()) {
            *busy = left;
            *last = Errno::EAGAIN.status().cast_unsigned();
        }
        let ost_body = Some(OstBody { oa });
        Ok(OstWriteReply { ost_body, rcs, ..OstWriteReply::default() }.into())
    }

    fn read(&self, request: &OstRead) -> (i32, Reply, Vec<Bytes>) {
        let (frozen, objects) = (self.frozen.lock(), self.objects.lock());
        let now = || objects.get(&request.obd_ioobj[0].oid.resource()).map(Vec::as_slice);
        let object = frozen.as_deref().or_else(now).unwrap_or_default();
        let fills_pages = self.script.lock().fills_pages;
        let size = if fills_pages { object.len().next_multiple_of(4096) } else { object.len() };
        let piece = &request.niobuf_remote[0];
        let start = (piece.offset as usize).min(size);
        let end = (start + piece.len as usize).min(size);
        let mut data = object[start.min(object.len())..end.min(object.len())].to_vec();
        data.resize(end - start, 0);
        let data = Bytes::from(data);
        drop((frozen, objects));
        let mut oa = request.ost_body.oa.clone();
        let is_short = oa.flags.contains(ObdoFlags::SHORT_IO);
        let is_garbled = self.garbles();
        oa.answer_checksum(self.checksum(&oa, &data) ^ u32::from(is_garbled));
        let mut reply = OstReadReply { ost_body: Some(OstBody { oa }), ..OstReadReply::default() };
        let status = data.len() as i32;
        let mut bulk = Vec::new();
        match is_short {
            true => reply.short_io = data,
            false if !data.is_empty() => bulk.push(data),
            false => {}
        }
        (status, reply.into(), bulk)
    }

    fn punch(&self, oa: Obdo) -> Reply {
        let mut objects = self.objects.lock();
        objects.entry(oa.oi.resource()).or_default().resize(oa.size as usize, 0);
        // The request's words, end included: an answer that no sum of blocks can hold.
        OstPunchReply { ost_body: Some(OstBody { oa }), ..OstPunchReply::default() }.into()
    }

    fn seek(&self, request: &OstSeek) -> Reply {
        let mut oa = request.ost_body.oa.clone();
        let object = self.bytes(oa.oi.resource());
        let from = oa.size as usize;
        let is_found = |byte: &u8| (oa.seek() == Some(Seek::Data)) == (*byte != 0);
        let found = object.iter().skip(from).position(is_found).map(|at| (from + at) as u64);
        let end =
            (oa.seek() != Some(Seek::Data) && from < object.len()).then_some(object.len() as u64);
        oa.size = found.or(end).unwrap_or(u64::MAX);
        OstSeekReply { ost_body: Some(OstBody { oa }), ..OstSeekReply::default() }.into()
    }

    fn answer(&self, call: &Call) -> Result<(i32, Reply, Vec<Bytes>), Errno> {
        let kind = word(&call.request);
        {
            let mut script = self.script.lock();
            if script.refuse.front().is_some_and(|(refused, _)| *refused == kind) {
                let refused = script.refuse.pop_front();
                return Err(refused.expect("it was looked at").1);
            }
        }
        let plain = |reply: Reply| Ok((0, reply, Vec::new()));
        let body = |oa: Obdo| Some(OstBody { oa });
        match &call.request {
            Request::LdlmEnqueue(request) if is_ahead(request) && self.script.lock().conflicts => {
                Err(Errno::EAGAIN)
            }
            Request::LdlmEnqueue(request) => {
                let (status, reply) = self.lock(request);
                Ok((status, reply, Vec::new()))
            }
            Request::LdlmCancel(_) => plain(LdlmCancelReply::default().into()),
            Request::LdlmConvert(_) => plain(LdlmConvertReply::default().into()),
            Request::OstRead(request) => Ok(self.read(request)),
            Request::OstWrite(request) => plain(self.write(request, &call.bulk)?),
            Request::OstPunch(request) => plain(self.punch(request.ost_body.oa.clone())),
            Request::OstSeek(request) => plain(self.seek(request)),
            Request::OstFallocate(request) => {
                let ost_body = body(request.ost_body.oa.clone());
                plain(OstFallocateReply { ost_body, ..Default::default() }.into())
            }
            Request::OstLadvise(request) => {
                let ost_body = body(request.ost_body.oa.clone());
                plain(OstLadviseReply { ost_body, ..Default::default() }.into())
            }
            Request::OstSetattr(request) => {
                let ost_body = body(request.ost_body.oa.clone());
                plain(OstSetattrReply { ost_body, ..Default::default() }.into())
            }
            Request::OstSetGrantInfo(request) => {
                let ost_body = body(request.ost_body.oa.clone());
                plain(OstSetGrantInfoReply { ost_body, ..Default::default() }.into())
            }
            Request::OstSync(request) => {
                let ost_body = body(request.ost_body.oa.clone());
                plain(OstSyncReply { ost_body, ..Default::default() }.into())
            }
            other => panic!("not expected: {:?}", other.kind()),
        }
    }
}

fn described_on_inode(kind: &str, request: &LdlmRequest) -> String {
    let bits = request.desc.policy.as_inode_bits().bits;
    let mode = request.desc.req_mode.mode().expect("a mode");
    match request.count {
        0 | 1 => format!("{kind} {mode:?} {bits:#x}"),
        more => format!("{kind} {mode:?} {bits:#x} instead of {}", more - 1),
    }
}

/// A line of the log.
fn described(call: &Call) -> String {
    let kind = word(&call.request);
    match &call.request {
        Request::LdlmEnqueue(request) => {
            let desc = &request.dlm_req.desc;
            if desc.resource.kind == LockType::IBITS {
                return described_on_inode(kind, &request.dlm_req);
            }
            let extent = desc.policy.as_extent();
            let end = if extent.end == Extent::EOF { "EOF".into() } else { extent.end.to_string() };
            let mode = desc.req_mode.mode().expect("a mode");
            let flags = request.dlm_req.flags;
            let exact = if flags.contains(LockFlags::NO_EXPANSION) { " exact" } else { "" };
            let ahead = if is_ahead(request) { " ahead" } else { "" };
            format!("{kind} {mode:?} {}..={end}{exact}{ahead}", extent.start)
        }
        Request::OstRead(request) => {
            let piece = &request.niobuf_remote[0];
            format!("{kind} {}+{}", piece.offset, piece.len)
        }
        Request::OstWrite(request) => {
            let mut line = kind.to_owned();
            for piece in &request.niobuf_remote {
                line += &format!(" {}+{}", piece.offset, piece.len);
            }
            let flags = request.niobuf_remote[0].flags;
            if flags.contains(BrwFlags::FROM_GRANT) {
                line += &format!(
                    " used {}",
                    request.ost_body.oa.grant_report().map_or(0, |report| report.used)
                );
            }
            if flags.contains(BrwFlags::SYNC) {
                line += " sync";
            }
            line
        }
        Request::OstLadvise(request) => {
            let advice = &request.ladvise[0];
            format!("{kind} {} {}..{}", advice.advice, advice.start, advice.end)
        }
        Request::OstPunch(request) => format!("{kind} {}", request.ost_body.oa.size),
        Request::OstFallocate(request) => {
            let oa = &request.ost_body.oa.clone();
            format!("{kind} {:#x} {}..{}", oa.nlink, oa.size, oa.blocks)
        }
        Request::LdlmCancel(request) => format!("{kind} {}", request.dlm_req.count),
        Request::LdlmConvert(request) => {
            format!("{kind} {:#x}", request.dlm_req.desc.policy.as_inode_bits().bits)
        }
        _ => kind.to_owned(),
    }
}

impl Channel for FakeOst {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        let ost = self.me.upgrade().expect("in use");
        Box::pin(async move {
            ost.asked.lock().push(described(&call));
            let word = word(&call.request);
            ost.until_released(|script| script.hold != Some(word)).await;
            let answer = ost.answer(&call).map_err(RpcError::Errno);
            ost.until_released(|script| script.late != Some(word)).await;
            let (status, reply, bulk) = answer?;
            let body = PtlrpcBody { status, ..PtlrpcBody::default() };
            Ok(Answer { xid: Xid(1), body, reply, bulk, connection: 1 })
        })
    }

    fn state(&self) -> ImportState {
        ImportState::Full
    }

    fn connect_data(&self) -> ObdConnectData {
        ObdConnectData::default()
    }

    fn connection(&self) -> u32 {
        1
    }

    fn peer(&self) -> Nid {
        Nid::LOOPBACK
    }

    fn target_uuid(&self) -> Uuid {
        Uuid::new("fs-OST0000_UUID")
    }

    fn last_committed(&self) -> Transno {
        Transno(0)
    }

    fn release(&self, _: Xid) {}
}
