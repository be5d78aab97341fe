//! What the player asks by itself: locks cancelled that the script keeps, mounts whose connects were
//! not captured, and what was there before the capture.

use bytes::Bytes;
use sheen_rpc::reply_portal;
use sheen_types::{Fid, HashMap, LockHandle, MatchBits, fid_seq};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic, LmvUserMd};
use sheen_wire::lnet::Portal;
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovPattern};
use sheen_wire::md::{AttrValid, MdsOpenFlags, RecCreate, RecSetattr, ReintOp, Valid};
use sheen_wire::messages::{
    Kind, LdlmCancel, MdsClose, MdsGetattr, MdsReintCreate, MdsReintCreateSym, MdsReintOpen,
    MdsReintSetattr, OstPunch, OstWrite, Reply, Request, SeqQuery,
};
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};

use super::{BYTES_MAX, LockReference, PATIENCE, Player, TargetId, proper};
use crate::mounts::Export;
use crate::stage::{Contents, Entry};

/// Data that a write of the player's own holds itself, at most.
const INLINE_BYTES: usize = 16 << 10;
/// `SEQ_ALLOC_META`.
const ALLOC_META: u32 = 1;

/// The wish for a layout like this one.
fn wish(layout: &Bytes) -> Option<Bytes> {
    let Ok(LovEa::Plain(LovMd { header, .. })) = LovEa::decode(layout) else { return None };
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::RAID0,
        stripe_size: header.stripe_size,
        stripe_count: header.stripe_count,
        layout_gen: u16::MAX,
        ..LovMdHeader::default()
    };
    Some(LovEa::Plain(LovMd { header, ..LovMd::default() }).encode())
}

/// The wish for stripes like these.
fn directory_wish(stripes: &Bytes) -> Option<Bytes> {
    let Ok(LmvEa::Stripes { header, .. }) = LmvEa::decode(stripes) else { return None };
    let kept = LmvHash::TYPE_MASK | LmvHash::OVERSTRIPED;
    let header = LmvUserMd {
        magic: LmvMagic::USER,
        stripe_count: header.stripe_count.cast_signed(),
        stripe_offset: header.master_mdt_index,
        hash_type: LmvHash(header.hash_type.0 & kept),
        ..LmvUserMd::default()
    };
    Some(LmvEa::User { header, objects: Vec::new() }.encode())
}

impl Player {
    /// Cancels the locks that servers have revoked: the script does not, because there they
    /// were not revoked.
    pub(super) async fn cancel_revoked(&mut self) {
        let calls = std::mem::take(&mut *self.calls.came.lock());
        for (_, message, body) in calls {
            let Ok(Request::LdlmBlCallback(call)) = Request::decode(body.opcode, &message) else {
                continue;
            };
            let Some(client) = call.dlm_req.handles.first() else { continue };
            let Some(held) = self.by_client.remove(&client.0) else { continue };
            self.locks.retain(|_, lock| lock.handle != held.handle);
            self.cancel(held).await;
        }
    }

    /// Cancels all locks, as an unmount does.
    pub(crate) async fn cancel_all(&mut self) {
        for held in std::mem::take(&mut self.by_client).into_values() {
            self.cancel(held).await;
        }
    }

    async fn cancel(&mut self, held: LockReference) {
        // There is always room for two.
        let handles = vec![held.handle, LockHandle(0)];
        let dlm_req = LdlmRequest { count: 1, handles, ..LdlmRequest::default() };
        let request = LdlmCancel { dlm_req, ..LdlmCancel::default() };
        self.ask(held.export, Portal::LDLM_CANCEL_REQUEST, request.into()).await;
    }

    /// Connects a mount whose connects were not captured.
    pub(super) async fn connect(&mut self, export: Export) {
        let Some(request) = self.mounts.connect(export, &self.mapping) else { return };
        let portal = request.format().request_portal;
        if let Some(Ok(body)) = self.ask(export, portal, request).await.map(|it| it.body()) {
            self.mounts.connected(export, body.handle.0, body.handle);
        }
    }

    /// The client with this handle is evicted.
    pub(super) async fn evict(&mut self, target: TargetId, handle: u64) {
        let export = (self.mounts.number(target, handle), target);
        if let Some((uuid, _)) = self.mounts.identity(export) {
            self.machines.evict(target, &uuid).await;
            self.forget_locks(export);
        }
    }

    pub(super) fn forget_locks(&mut self, export: Export) {
        self.locks.retain(|_, held| held.export != export);
        self.by_client.retain(|_, held| held.export != export);
    }

    /// Has a sequence of ours stand for one that a mount had from before the capture: servers take new
    /// inodes in sequences that they gave to this client, and in no other sequence.
    pub(super) async fn have_sequence(&mut self, export: Export, real: u64) {
        if real < fid_seq::NORMAL || self.mapping.word(real).is_some() {
            return;
        }
        if self.mounts.handle(export).is_none() {
            self.connect(export).await;
        }
        let request = SeqQuery { seq_opc: ALLOC_META, ..SeqQuery::default() };
        let answer = self.ask(export, Portal::SEQ_METADATA, request.into()).await;
        let reply = answer.and_then(|message| Reply::decode(Kind::SeqQuery, &message).ok());
        if let Some(Reply::SeqQuery(reply)) = reply
            && let Some(range) = &reply.seq_range
        {
            self.mapping.learn(real, range.start);
        }
    }

    /// Our name of an inode.
    fn named(&self, fid: Fid) -> Fid {
        self.mapping.fid(fid)
    }

    /// Makes what was there before the capture.
    pub(crate) async fn make(&mut self, entry: &Entry, contents: &HashMap<(u64, u64), Contents>) {
        let mdt = u16::from(super::is_of_second_mdt(entry.fid));
        let (export, portal) = ((0, TargetId::Mdt(mdt)), Portal::MDS_REQUEST);
        self.have_sequence(export, entry.fid.seq).await;
        let fid = self.named(entry.fid);
        let rec_reint = RecCreate {
            opcode: ReintOp::CREATE,
            fid1: self.named(entry.parent),
            fid2: fid,
            mode: entry.mode,
            time: entry.time,
            ..RecCreate::default()
        };
        let name = Some(entry.name.clone());
        if entry.is_directory() {
            let eadata = entry.stripes.as_ref().and_then(directory_wish).unwrap_or_default();
            let request = MdsReintCreate { rec_reint, name, eadata, ..MdsReintCreate::default() };
            self.ask(export, portal, request.into()).await;
            if let Some(stripes) = &entry.stripes {
                self.learn_stripes_of(export, fid, stripes).await;
            }
            return;
        }
        if entry.is_symlink() {
            let symtgt = entry.target.clone().unwrap_or_else(|| Bytes::from_static(b"?\0"));
            let request = MdsReintCreateSym { rec_reint, name, symtgt, ..Default::default() };
            self.ask(export, portal, request.into()).await;
            return;
        }
        let wish = entry.layout.as_ref().and_then(wish);
        let mut flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
        if wish.is_some() {
            flags |= MdsOpenFlags::HAS_EA;
        }
        let eadata = wish.unwrap_or_default();
        let rec_reint = RecCreate {
            opcode: ReintOp::OPEN,
            flags_l: flags.0 as u32,
            flags_h: (flags.0 >> 32) as u32,
            ..rec_reint
        };
        let request = MdsReintOpen { rec_reint, name, eadata, ..MdsReintOpen::default() };
        let Some(message) = self.ask(export, portal, request.into()).await else { return };
        let Ok(Reply::MdsReintOpen(opened)) = Reply::decode(Kind::MdsReintOpen, &message) else {
            return;
        };
        let Some(body) = &opened.mdt_body else { return };
        if let Some(layout) = &entry.layout {
            self.mapping.learn_layouts(layout, &opened.mdt_md);
            self.fill(layout, contents).await;
        }
        let mut close = MdsClose::default();
        close.mdt_ioepoch.open_handle = body.open_handle;
        close.rec_reint.fid = fid;
        close.rec_reint.valid = AttrValid::LSIZE | AttrValid::LBLOCKS;
        self.ask(export, portal, close.into()).await;
    }

    /// Learns what the stripes of a directory are called here.
    async fn learn_stripes_of(&mut self, export: Export, fid: Fid, real: &Bytes) {
        let mut request = MdsGetattr::default();
        request.mdt_body.fid1 = fid;
        request.mdt_body.valid = Valid::ID | Valid::DIREA | Valid::MEA;
        request.mdt_body.eadatasize = BYTES_MAX as u32;
        let answer = self.ask(export, Portal::MDS_READPAGE, request.into()).await;
        let reply = answer.and_then(|message| Reply::decode(Kind::MdsGetattr, &message).ok());
        if let Some(Reply::MdsGetattr(reply)) = reply {
            self.mapping.learn_stripes(real, &reply.mdt_md);
        }
    }

    /// Gives the root a default for directories.
    pub(crate) async fn set_default_of_root(&mut self, header: LmvUserMd) {
        let export = (0, TargetId::Mdt(0));
        if self.mounts.handle(export).is_none() {
            self.connect(export).await;
        }
        let eadata = LmvEa::User { header, objects: Vec::new() }.encode();
        let rec_reint = RecSetattr {
            opcode: ReintOp::SETATTR,
            cap: u32::MAX,
            fid: Fid::ROOT,
            ..RecSetattr::default()
        };
        let request = MdsReintSetattr { rec_reint, eadata, ..MdsReintSetattr::default() };
        self.ask(export, Portal::MDS_REQUEST, request.into()).await;
    }

    /// Writes what the objects of a file held.
    async fn fill(&mut self, layout: &Bytes, contents: &HashMap<(u64, u64), Contents>) {
        let Ok(LovEa::Plain(layout)) = LovEa::decode(layout) else { return };
        for real in layout.stripes.iter().map(|stripe| (stripe.oi.word0, stripe.oi.word1)) {
            let (Some(held), Some((ours, ost))) = (contents.get(&real), self.mapping.object(real))
            else {
                continue;
            };
            let (export, oi) = ((0, TargetId::Ost(ost)), OstId { word0: ours.0, word1: ours.1 });
            if self.mounts.handle(export).is_none() {
                self.connect(export).await;
            }
            let oa = Obdo { oi, valid: Valid::ID | Valid::GROUP, ..Obdo::default() };
            for (start, data) in &held.data {
                for at in (0..data.len()).step_by(INLINE_BYTES) {
                    let piece = data.slice(at..data.len().min(at + INLINE_BYTES));
                    let (offset, len) = (start + at as u64, piece.len() as u32);
                    let range = NiobufRemote { offset, len, flags: BrwFlags::NONE };
                    let mut oa = oa.clone();
                    oa.valid |= Valid::FLAGS;
                    oa.flags = ObdoFlags::SHORT_IO;
                    let request = OstWrite {
                        ost_body: OstBody { oa },
                        obd_ioobj: vec![ObdIoobj { oid: oi, max_brw: 0, bufcnt: 1 }],
                        niobuf_remote: vec![range],
                        short_io: piece,
                        ..OstWrite::default()
                    };
                    self.ask(export, Portal::OST_IO, request.into()).await;
                }
            }
            let mut oa = Obdo { size: held.size, blocks: u64::MAX, ..oa };
            oa.valid |= Valid::SIZE | Valid::BLOCKS;
            let request = OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() };
            self.ask(export, Portal::OST_IO, request.into()).await;
        }
    }

    /// What comes before a request: as `like`, with our names.
    pub(super) fn body(&self, export: Export, like: &PtlrpcBody) -> PtlrpcBody {
        PtlrpcBody {
            handle: self.mounts.handle(export).unwrap_or_default(),
            conn_cnt: self.mounts.identity(export).map_or(1, |(_, connects)| connects),
            transno: self.mapping.transno(export.1, like.transno),
            ..like.clone()
        }
    }

    /// Match bits of the player's own.
    pub(super) fn next_bits(&mut self) -> MatchBits {
        self.next_xid += 1;
        MatchBits(self.next_xid)
    }

    /// Sends a request of the player's own.
    async fn ask(&mut self, export: Export, portal: Portal, request: Request) -> Option<Message> {
        let bits = self.next_bits();
        let like = PtlrpcBody {
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode: request.format().opcode,
            ..PtlrpcBody::default()
        };
        let bytes = request.to_bytes(&MessageHeader::default(), &self.body(export, &like));
        let mut reply = self.lnet.expect_puts(self.server, reply_portal(portal), bits, BYTES_MAX);
        self.lnet.put(self.server, portal, bits, 0, vec![bytes]);
        let delivery = sheen_io::within(&*self.world.clock, PATIENCE, proper(&mut reply)).await??;
        Message::decode(&delivery.payload).ok()
    }
}
