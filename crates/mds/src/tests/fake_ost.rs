//! An OST that only counts, and says of each object that it is as large as the last one that was written.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_rpc::{Answer, BoxFuture, Call, Channel, ImportState, RpcError};
use sheen_types::{Errno, Nid, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::md::{ObdStatfs, Valid};
use sheen_wire::messages::{
    OstCreateReply, OstDestroyReply, OstGetattrReply, OstPunchReply, OstSetattrReply,
    OstStatfsReply, OstSyncReply, Reply, Request,
};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};
use sheen_wire::ptlrpc::PtlrpcBody;

/// What the OST holds and has received.
pub(super) struct FakeOstState {
    pub(super) objects: BTreeSet<(u64, u64)>,
    pub(super) last: u64,
    pub(super) creates: u32,
    pub(super) destroys: u32,
    pub(super) owners: Vec<(OstId, u32, u32)>,
    /// Objects that were cut or extended, and where.
    pub(super) sizes: Vec<(OstId, u64)>,
    pub(super) import: ImportState,
    pub(super) is_refused_in_recovery: bool,
    /// Another one after each restart.
    pub(super) connection: u32,
    pub(super) free_blocks: u64,
    /// What is free besides after each request that removed objects.
    pub(super) blocks_freed: u64,
    /// What it says of objects: size, blocks and times.
    pub(super) written: Obdo,
    /// How often clients had to flush an object, and how often one was made durable.
    pub(super) flushes: u32,
    pub(super) syncs: u32,
}

impl FakeOstState {
    fn described(&self, asked: Obdo) -> OstBody {
        let said = Valid::SIZE | Valid::BLOCKS | Valid::ATIME | Valid::MTIME | Valid::CTIME;
        OstBody { oa: Obdo { valid: Valid::ID | said, oi: asked.oi, ..self.written.clone() } }
    }
}

pub(super) struct FakeOst {
    pub(super) state: Mutex<FakeOstState>,
    /// Held by a test, it keeps objects from being made durable.
    pub(super) disk: Arc<tokio::sync::Mutex<()>>,
}

impl FakeOst {
    pub(super) fn new() -> Arc<Self> {
        let state = FakeOstState {
            objects: BTreeSet::new(),
            last: 0,
            creates: 0,
            destroys: 0,
            owners: Vec::new(),
            sizes: Vec::new(),
            import: ImportState::Full,
            is_refused_in_recovery: false,
            connection: 1,
            free_blocks: 1 << 30,
            blocks_freed: 0,
            written: Obdo::default(),
            flushes: 0,
            syncs: 0,
        };
        Arc::new(Self { state: Mutex::new(state), disk: Arc::default() })
    }

    pub(super) fn has(&self, object: &OstId) -> bool {
        self.state.lock().objects.contains(&(object.word0, object.word1))
    }

    /// What it says of objects from now on.
    pub(super) fn write(&self, size: u64, blocks: u64, time: i64) {
        let written = Obdo { size, blocks, mtime: time, ctime: time, ..Obdo::default() };
        self.state.lock().written = written;
    }

    fn answer(&self, request: Request) -> Result<Reply, RpcError> {
        let mut state = self.state.lock();
        match request {
            Request::OstCreate(request) => {
                let mut oa = request.ost_body.oa;
                let orphans = oa.has_flag(ObdoFlags::DELORPHAN);
                let (sequence, id) = (oa.oi.word0, oa.oi.word1);
                state.creates += 1;
                if orphans {
                    state.objects.retain(|(_, object)| *object <= id);
                    state.last = state.last.max(id);
                } else {
                    for new in state.last + 1..=id {
                        state.objects.insert((sequence, new));
                    }
                    state.last = state.last.max(id);
                }
                oa.oi.word1 = state.last;
                let ost_body = Some(OstBody { oa });
                Ok(OstCreateReply { ost_body, ..Default::default() }.into())
            }
            Request::OstDestroy(request) => {
                let oa = request.ost_body.oa;
                state.destroys += 1;
                let mut found = false;
                for id in oa.oi.word1..oa.oi.word1 + u64::from(oa.misc.max(1)) {
                    found |= state.objects.remove(&(oa.oi.word0, id));
                }
                state.free_blocks += if found { state.blocks_freed } else { 0 };
                match found {
                    true => Ok(OstDestroyReply::default().into()),
                    false => Err(RpcError::Errno(Errno::ENOENT)),
                }
            }
            Request::OstSetattr(request) => {
                let oa = request.ost_body.oa;
                state.owners.push((oa.oi, oa.uid, oa.gid));
                Ok(OstSetattrReply::default().into())
            }
            Request::OstPunch(request) => {
                let oa = request.ost_body.oa;
                state.sizes.push((oa.oi, oa.size));
                Ok(OstPunchReply::default().into())
            }
            Request::OstStatfs(_) => {
                let bavail = state.free_blocks;
                let space = ObdStatfs { bavail, bsize: 4096, ffree: 1 << 20, ..Default::default() };
                Ok(OstStatfsReply { obd_statfs: Some(space), ..Default::default() }.into())
            }
            Request::OstGetattr(request) => {
                let asked = request.ost_body.oa;
                assert!(asked.flags.contains(ObdoFlags::SRVLOCK), "clients flush");
                state.flushes += 1;
                Ok(OstGetattrReply { ost_body: Some(state.described(asked)), ..Default::default() }
                    .into())
            }
            Request::OstSync(request) => {
                state.syncs += 1;
                let ost_body = Some(state.described(request.ost_body.oa));
                Ok(OstSyncReply { ost_body, ..Default::default() }.into())
            }
            _ => Err(RpcError::Errno(Errno::EOPNOTSUPP)),
        }
    }
}

impl Channel for FakeOst {
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
        let disk = matches!(call.request, Request::OstSync(_)).then(|| Arc::clone(&self.disk));
        let reply = self.answer(call.request);
        let answer = reply.map(|reply| Answer {
            xid: Xid(1),
            body: PtlrpcBody::default(),
            reply,
            bulk: Vec::new(),
            connection: 1,
        });
        Box::pin(async move {
            if let Some(disk) = disk {
                drop(disk.lock().await);
            }
            answer
        })
    }

    fn state(&self) -> ImportState {
        self.state.lock().import
    }

    fn is_refused_in_recovery(&self) -> bool {
        self.state.lock().is_refused_in_recovery
    }

    fn connect_data(&self) -> ObdConnectData {
        ObdConnectData::default()
    }

    fn connection(&self) -> u32 {
        self.state.lock().connection
    }

    fn peer(&self) -> Nid {
        Nid::LOOPBACK
    }

    fn target_uuid(&self) -> Uuid {
        Uuid::new("fake-OST_UUID")
    }

    fn last_committed(&self) -> Transno {
        Transno(0)
    }

    fn release(&self, _: Xid) {}
}
