//! Well-formed requests that claim what is not theirs: replays outside of recovery, capabilities of
//! ordinary users, requests that only servers send, exports and names of another client, objects that
//! no client may name.
//!
//! A root user keeps a directory of mode 0700 on a client that is trusted. The hostile node is squashed,
//! and knows every FID, object and export handle there is, as if all of them had leaked. It may be
//! answered; it may not be obeyed. What the model does not defend is left out: a client that a server
//! admits reads and writes whatever OST object it names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_assembly::Role;
use sheen_client::posix::{
    Attributes, Credentials, FileSystem, Lookup, NewNode, NodeId, OpenFlags, SetAttributes,
};
use sheen_layout::stored::Stored;
use sheen_node::net::{Delivery, LNet, NetConfig, Receiver};
use sheen_rpc::REPLY_PORTALS;
use sheen_store::Store;
use sheen_types::{
    Errno, Fid, HashMap, InodeBits, LockHandle, LockMode, MatchBits, Name, Nid, ObdHandle,
    ResourceName, Timestamp, Transno, Xid, fid_seq,
};
use sheen_vnet::SeededRandom;
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::ldlm::{
    IntentOp, LdlmIntent, LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags, LockType, Policy,
};
use sheen_wire::lnet::Portal;
use sheen_wire::md::{
    AttrValid, FileFlags, MdsOpenFlags, MdtBody, MdtIoepoch, OpenHandle, RecCreate, RecLink,
    RecRename, RecSetattr, RecSetxattr, RecUnlink, Valid,
};
use sheen_wire::messages::{
    Kind, LdlmEnqueue, LdlmIntentOpen, MdsClose, MdsConnect, MdsDisconnect, MdsGetattr,
    MdsReintCreate, MdsReintLink, MdsReintRename, MdsReintSetattr, MdsReintSetxattr,
    MdsReintUnlink, MgsConnect, MgsTargetReg, ObdPing, OstConnect, OstCreate, OstDestroy,
    OstGetattr, OutUpdate, Reply, Request, SeqQuery,
};
use sheen_wire::mgs::{MgsTargetInfo, TargetFlags};
use sheen_wire::opcode::{Opcode, ReintOp};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};
use sheen_wire::out::{ObjectUpdate, OutUpdateHeader, UpdateType, encode_updates};
use sheen_wire::ptlrpc::{
    MESSAGE_VERSION, Message, MessageHeader, MsgFlags, MsgType, OpFlags, PtlrpcBody,
};
use sheen_wire::text::{Chars, Text};
use sheen_wire::{Wire, Writer};

use crate::common::{Cluster, OSTS, PORT, Servers, client_nid, server_nid, start};
use crate::mounted_at;

/// Forged requests of a run, and of a long one.
const REQUESTS: u64 = 4_000;
const REQUESTS_LONG: u64 = 100_000;
/// Requests between two looks at what must not change.
const BETWEEN: u64 = 500;
/// Requests that are sent before their answers are waited for.
const BURST: u64 = 4;
/// Transactions that one request can become, at most, with those of the trusted client beside it.
const TRANSACTIONS_EACH: u64 = 4;
/// What claims begin with whose requests may be answered with success: the files of other users show what they did.
const MAY: &str = "may: ";
/// What every client offers, and an MDT demands.
const AS_A_CLIENT: ConnectFlags = ConnectFlags(
    ConnectFlags::VERSION.0 | ConnectFlags::FULL20.0 | ConnectFlags::IBITS.0 | ConnectFlags::FID.0,
);
/// An ordinary user.
const USER: u32 = 1_000;
/// Bytes of the file that only root may read.
const SECRET: &[u8] = b"known to root alone";

/// What is not the hostile client's.
struct Vault {
    directory: NodeId,
    file: NodeId,
    directory_fid: Fid,
    file_fid: Fid,
    /// A set-id program of root's that any user may execute, and none may read.
    shown: Fid,
    /// A directory where all users may make names.
    public: Fid,
    objects: Vec<(u16, OstId)>,
    /// The trusted client's exports.
    exports: Vec<(Opcode, ObdHandle, String, String)>,
}

/// The claims whose requests were answered with success, and how many answers there were.
#[derive(Default)]
struct Answers {
    claims: Mutex<HashMap<u64, &'static str>>,
    obeyed: Mutex<BTreeMap<&'static str, u64>>,
    refused: Mutex<BTreeMap<(&'static str, i32), u64>>,
    exports: Mutex<HashMap<Opcode, ObdHandle>>,
    /// Handles of files that were opened, as any user may who asks for no access.
    opened: Mutex<Vec<OpenHandle>>,
    /// How many requests were done that may be, by claim.
    done: Mutex<BTreeMap<&'static str, u64>>,
    /// Bytes of root's file that came with an open.
    bytes: Mutex<u64>,
}

impl Answers {
    fn note_open(&self, message: &Message) {
        let Ok(Reply::LdlmIntentOpen(open)) = Reply::decode(Kind::LdlmIntentOpen, message) else {
            return;
        };
        let handle = open.mdt_body.map(|body| body.open_handle);
        self.opened.lock().extend(handle.filter(|handle| handle.0 != 0));
        *self.bytes.lock() += open.niobuf_inline.len().saturating_sub(16) as u64;
    }
}

impl Receiver for Answers {
    fn receive(&self, delivery: Delivery) {
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(body) = message.body() else { return };
        let connects = [Opcode::MGS_CONNECT, Opcode::MDS_CONNECT, Opcode::OST_CONNECT];
        let claim = self.claims.lock().remove(&delivery.bits.0);
        match claim {
            None if body.status == 0 && connects.contains(&body.opcode) => {
                self.exports.lock().insert(body.opcode, body.handle);
            }
            None => {}
            // What it may be answered, the look at the files decides.
            Some(claim) if claim.starts_with(MAY) && [0, 301].contains(&body.status) => {
                *self.done.lock().entry(claim).or_default() += 1;
                self.note_open(&message);
            }
            Some(claim) if is_obeyed(&message, &body) => {
                *self.obeyed.lock().entry(claim).or_default() += 1;
            }
            Some(claim) => *self.refused.lock().entry((claim, body.status)).or_default() += 1,
        }
    }
}

/// Whether an answer says that the request was done: an open shows it by its handle.
fn is_obeyed(message: &Message, body: &PtlrpcBody) -> bool {
    if body.opcode != Opcode::LDLM_ENQUEUE {
        return body.status == 0;
    }
    match Reply::decode(Kind::LdlmIntentOpen, message) {
        Ok(Reply::LdlmIntentOpen(open)) => {
            open.mdt_body.is_some_and(|found| found.open_handle != OpenHandle(0))
        }
        _ => body.status == 0,
    }
}

/// Sends the requests.
struct Intruder {
    /// Its nodes; it is connected from the one at `at`.
    lnets: Vec<Arc<LNet>>,
    at: usize,
    /// A false replay has cost it its export on the MDT.
    is_evicted: bool,
    random: SeededRandom,
    answers: Arc<Answers>,
    vault: Vault,
    xid: u64,
    connects: u32,
}

impl Intruder {
    fn send(&mut self, claim: Option<&'static str>, request: &Request, body: PtlrpcBody) {
        let portal = request.format().request_portal;
        self.send_to(portal, claim, request, body);
    }

    fn send_to(
        &mut self,
        portal: Portal,
        claim: Option<&'static str>,
        request: &Request,
        body: PtlrpcBody,
    ) {
        self.xid += 1;
        if let Some(claim) = claim {
            self.answers.claims.lock().insert(self.xid, claim);
        }
        let body = PtlrpcBody {
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode: request.format().opcode,
            timeout: 20,
            tag: self.random.below(4) as u16,
            match_bits: MatchBits(self.xid),
            ..body
        };
        let header = MessageHeader { repsize: 9_000, ..MessageHeader::default() };
        let bytes = request.to_bytes(&header, &body);
        // Now and then from a node at which it is not connected.
        let at = if self.random.below(50) == 0 { self.random.draw() as usize } else { self.at };
        let lnet = &self.lnets[at % self.lnets.len()];
        lnet.put(server_nid(), portal, MatchBits(self.xid), 0, vec![bytes]);
    }

    /// Connects to every target as a client that no target knows, or as the one that it is, from another node.
    fn connect(&mut self) {
        self.at = self.random.below(self.lnets.len() as u64) as usize;
        if self.connects == 0 || self.random.below(4) != 0 {
            self.connects += 1;
        }
        self.is_evicted = false;
        let cluuid = Text::padded(format!("intruder-{}", self.connects), 40);
        let conn = ObdHandle(self.random.draw());
        let data = |index| ObdConnectData {
            flags: AS_A_CLIENT | ConnectFlags::INDEX,
            version: 0x0211_0000,
            index,
            brw_size: 1 << 20,
            ..ObdConnectData::default()
        };
        let body = || PtlrpcBody { conn_cnt: 1, ..PtlrpcBody::default() };
        let mdt = MdsConnect {
            tgtuuid: Text::padded("lustre-MDT0000_UUID", 40),
            cluuid: cluuid.clone(),
            conn,
            cdata: data(0),
            ..MdsConnect::default()
        };
        self.send(None, &mdt.into(), body());
        let mgs = MgsConnect {
            tgtuuid: Text::padded("MGS", 40),
            cluuid: cluuid.clone(),
            conn,
            cdata: data(0),
            ..MgsConnect::default()
        };
        self.send(None, &mgs.into(), body());
        let index = self.random.below(u64::from(OSTS)) as u32;
        let ost = OstConnect {
            tgtuuid: Text::padded(format!("lustre-OST{index:04x}_UUID"), 40),
            cluuid,
            conn,
            cdata: data(index),
            ..OstConnect::default()
        };
        self.send(None, &ost.into(), body());
    }

    /// A body in the name of the intruder's export of this kind of target.
    fn body(&self, connect: Opcode) -> PtlrpcBody {
        let handle = self.answers.exports.lock().get(&connect).copied().unwrap_or_default();
        let odd = self.random.below(40) == 0;
        PtlrpcBody {
            handle,
            conn_cnt: 1,
            op_flags: OpFlags(if odd { self.random.draw() as u32 } else { 0 }),
            flags: if self.random.below(4) == 0 { MsgFlags::RESENT } else { MsgFlags::NONE },
            last_xid: Xid(if self.random.below(500) == 0 { u64::MAX } else { 0 }),
            ..PtlrpcBody::default()
        }
    }

    fn forge(&mut self) {
        match self.random.below(15) {
            8 => self.foreign_lock(),
            9..=11 => self.change(),
            12 => self.open(),
            13 => self.close(),
            14 => self.registration(),
            0 => self.replay(),
            1 => self.replayed_open(),
            2 | 3 => self.capability(),
            4 => self.server_request(),
            5 => self.stolen_export(),
            6 => self.stolen_name(),
            _ => self.internal_object(),
        }
    }

    /// One of the files and directories that are not the intruder's.
    fn victim(&self) -> Fid {
        let of = [self.vault.directory_fid, self.vault.file_fid, self.vault.shown];
        of[self.random.below(3) as usize]
    }

    /// Attributes of what is not its own, with any bits.
    fn attributes(&self, fid: Fid, valid: AttrValid) -> RecSetattr {
        let some = |values: [u64; 4]| values[self.random.below(4) as usize];
        let time = |random: u64| [0, 1, random as i64 & i64::MAX, i64::MAX][random as usize % 4];
        RecSetattr {
            opcode: ReintOp::SETATTR,
            fsuid: [0, 99, USER][self.random.below(3) as usize],
            cap: if self.random.below(2) == 0 { u32::MAX } else { 0 },
            fid,
            valid,
            uid: some([0, 99, u64::from(USER), u64::from(u32::MAX)]) as u32,
            gid: some([0, 99, u64::from(USER), u64::from(u32::MAX)]) as u32,
            projid: some([0, 1, 2, 3]) as u32,
            mode: some([0, 0o777, 0o4777, 0o7777]) as u32,
            size: some([0, 1, 1 << 20, u64::MAX]),
            blocks: some([0, 1, 1 << 20, u64::MAX]),
            atime: time(self.random.draw()),
            mtime: time(self.random.draw()),
            ctime: time(self.random.draw()),
            attr_flags: FileFlags(self.random.draw() as u32 & 0xff),
            ..RecSetattr::default()
        }
    }

    /// Any combination of attributes.
    fn change(&mut self) {
        let all = AttrValid(0x7_ffff | AttrValid::OVERRIDE.0);
        // Few bits at a time, too: each may pass for what is judged with another.
        let few = AttrValid(1 << self.random.below(19) | 1 << self.random.below(19));
        let valid = if self.random.below(3) == 0 { self.random.draw() as _ } else { few.0 };
        let rec_reint = self.attributes(self.victim(), AttrValid(valid & all.0));
        let request = MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() };
        let body = self.body(Opcode::MDS_CONNECT);
        self.send(Some("may: attributes of another's"), &request.into(), body);
    }

    /// An open by FID that asks for no access, or for some.
    fn open(&mut self) {
        let mut rec_reint = RecCreate {
            opcode: ReintOp::OPEN,
            fsuid: [0, USER][self.random.below(2) as usize],
            fid2: self.victim(),
            ..RecCreate::default()
        };
        let access = [0, 0, 0, 1, 2, 3, 4][self.random.below(7) as usize];
        rec_reint.set_flags(MdsOpenFlags(access) | MdsOpenFlags::BY_FID);
        let resource = LdlmResourceDesc {
            kind: LockType::IBITS,
            name: ResourceName::of_fid(rec_reint.fid2),
            ..LdlmResourceDesc::default()
        };
        let desc = LdlmLockDesc {
            resource,
            req_mode: LockMode::Cr.into(),
            policy: Policy::of_inode_bits(InodeBits::LOOKUP, InodeBits(0)),
            ..LdlmLockDesc::default()
        };
        let handle = LockHandle(self.random.draw());
        let request = LdlmIntentOpen {
            dlm_req: LdlmRequest::enqueue(LockFlags::HAS_INTENT, desc, handle),
            ldlm_intent: LdlmIntent { opc: IntentOp::OPEN },
            rec_reint,
            ..LdlmIntentOpen::default()
        };
        let body = self.body(Opcode::MDS_CONNECT);
        self.send(Some("may: an open of another's"), &request.into(), body);
    }

    /// Closes what was opened, with times and sizes.
    fn close(&mut self) {
        let handle = self.answers.opened.lock().pop();
        let Some(open_handle) = handle else { return self.open() };
        let valid = AttrValid(self.random.draw() as u32 as _) | AttrValid::CTIME;
        let request = MdsClose {
            mdt_ioepoch: MdtIoepoch { open_handle, ..MdtIoepoch::default() },
            rec_reint: self.attributes(self.victim(), valid),
            ..MdsClose::default()
        };
        let body = self.body(Opcode::MDS_CONNECT);
        self.send(Some("may: a close of another's"), &request.into(), body);
    }

    /// A target of a file system of its own, whose name begins like the other's or is the beginning of it: it
    /// is taken.
    fn registration(&mut self) {
        let fsname = ["lustr", "lustre-a", "mine"][self.random.below(3) as usize];
        let (kind, flag) = match self.random.below(2) {
            0 => ("MDT", TargetFlags::SV_TYPE_MDT),
            _ => ("OST", TargetFlags::SV_TYPE_OST),
        };
        let new = TargetFlags::VIRGIN | TargetFlags::UPDATE | TargetFlags::OPC_REG;
        let wishes = [new, new | TargetFlags::NEED_INDEX, new | TargetFlags::WRITECONF];
        let params = ["", "sys.timeout=1", "llite.x=1", "osc.max_dirty_mb=1"];
        let index = self.random.below(3) as u32;
        let mut nids = [0; 32];
        nids[0] = self.lnets[self.at].nid().0;
        let mgs_target_info = MgsTargetInfo {
            index,
            flags: flag | wishes[self.random.below(3) as usize],
            nid_count: 1,
            fsname: Chars::new(fsname),
            service_name: Chars::new(format!("{fsname}-{kind}{index:04x}")),
            params: Chars::new(params[self.random.below(4) as usize]),
            nids,
            ..MgsTargetInfo::default()
        };
        let request = MgsTargetReg { mgs_target_info, ..MgsTargetReg::default() };
        let body = self.body(Opcode::MGS_CONNECT);
        self.send(Some("may: a target of its own"), &request.into(), body);
    }

    /// A change in a directory that is open to all, said to have been answered before.
    fn replay(&mut self) {
        let transno = match self.random.below(4) {
            0 => u64::MAX,
            1 => i64::MAX as u64,
            2 => u64::MAX - self.random.below(1 << 20),
            _ => self.random.below(1 << 50),
        };
        let flags = MsgFlags::REPLAY
            | [MsgFlags::NONE, MsgFlags::RESENT, MsgFlags::REQ_REPLAY_DONE]
                [self.random.below(3) as usize];
        let body =
            PtlrpcBody { flags, transno: Transno(transno), ..self.body(Opcode::MDS_CONNECT) };
        let rec_reint = RecSetattr {
            opcode: ReintOp::SETATTR,
            fsuid: USER,
            fid: self.vault.public,
            valid: AttrValid::ATIME | AttrValid::ATIME_SET,
            atime: 1,
            ..RecSetattr::default()
        };
        let request = MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() };
        self.send(Some("a replay outside of recovery"), &request.into(), body);
        self.is_evicted = true;
    }

    /// An open of root's file, said to have been granted before.
    fn replayed_open(&mut self) {
        let body = PtlrpcBody {
            flags: MsgFlags::REPLAY,
            transno: Transno(self.random.below(1 << 20)),
            ..self.body(Opcode::MDS_CONNECT)
        };
        let rec_reint = RecCreate {
            opcode: ReintOp::OPEN,
            fsuid: USER,
            fid1: self.vault.directory_fid,
            fid2: self.vault.file_fid,
            mode: 0o100_644,
            flags_l: 3,
            ..RecCreate::default()
        };
        let request = LdlmIntentOpen {
            ldlm_intent: LdlmIntent { opc: IntentOp::OPEN },
            rec_reint,
            name: Some(Text::new("secret")),
            ..LdlmIntentOpen::default()
        };
        self.send(Some("a replayed open without rights"), &request.into(), body);
        self.is_evicted = true;
    }

    /// An ordinary user who says that he has capabilities.
    fn capability(&mut self) {
        let cap = u32::MAX >> self.random.below(8);
        let (directory, file, public) =
            (self.vault.directory_fid, self.vault.file_fid, self.vault.public);
        let request: Request = match self.random.below(6) {
            0 => {
                let rec_reint = RecSetattr {
                    opcode: ReintOp::SETATTR,
                    fsuid: USER,
                    cap,
                    fid: file,
                    valid: AttrValid::UID | AttrValid::MODE,
                    uid: USER,
                    mode: 0o104_777,
                    ..RecSetattr::default()
                };
                MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() }.into()
            }
            1 => {
                let rec_reint = RecUnlink {
                    opcode: ReintOp::UNLINK,
                    fsuid: USER,
                    cap,
                    fid1: directory,
                    fid2: file,
                    ..RecUnlink::default()
                };
                let name = Some(Text::new("secret"));
                MdsReintUnlink { rec_reint, name, ..MdsReintUnlink::default() }.into()
            }
            2 => {
                let rec_reint = RecRename {
                    opcode: ReintOp::RENAME,
                    fsuid: USER,
                    cap,
                    fid1: directory,
                    fid2: public,
                    ..RecRename::default()
                };
                let name = Some(Text::new("secret"));
                let symtgt = Some(Text::new("taken"));
                MdsReintRename { rec_reint, name, symtgt, ..MdsReintRename::default() }.into()
            }
            3 => {
                let rec_reint = RecCreate {
                    opcode: ReintOp::CREATE,
                    fsuid: USER,
                    cap,
                    fid1: directory,
                    fid2: Fid::new(fid_seq::NORMAL + 1, self.random.draw() as u32 | 1),
                    mode: 0o040_777,
                    ..RecCreate::default()
                };
                let name = Some(Text::new("planted"));
                MdsReintCreate { rec_reint, name, ..MdsReintCreate::default() }.into()
            }
            4 => {
                let rec_reint = RecLink {
                    opcode: ReintOp::LINK,
                    fsuid: USER,
                    cap,
                    fid1: file,
                    fid2: directory,
                    ..RecLink::default()
                };
                let name = Some(Text::new("second"));
                MdsReintLink { rec_reint, name, ..MdsReintLink::default() }.into()
            }
            _ => {
                let rec_reint = RecSetxattr {
                    opcode: ReintOp::SETXATTR,
                    fsuid: USER,
                    cap,
                    fid: file,
                    size: 4,
                    ..RecSetxattr::default()
                };
                let name = Some(Text::new("trusted.planted"));
                let eadata = Bytes::from_static(b"here");
                MdsReintSetxattr { rec_reint, name, eadata, ..MdsReintSetxattr::default() }.into()
            }
        };
        let body = self.body(Opcode::MDS_CONNECT);
        self.send(Some("a capability of an ordinary user"), &request, body);
    }

    /// What only servers ask of each other.
    fn server_request(&mut self) {
        let some = self.random.below(self.vault.objects.len().max(1) as u64) as usize;
        let object = self.vault.objects.get(some).map_or(OstId::of_id(1), |(_, object)| *object);
        let ost_body = |oi: OstId, flags: ObdoFlags| OstBody {
            oa: Obdo { oi, flags, valid: Valid(u64::MAX), ..Obdo::default() },
        };
        match self.random.below(6) {
            0 => {
                let request = OstDestroy {
                    ost_body: ost_body(object, ObdoFlags::NONE),
                    ..OstDestroy::default()
                };
                let body = self.body(Opcode::OST_CONNECT);
                self.send(Some("OST_DESTROY from a client"), &request.into(), body);
            }
            1 => {
                let far = OstId { word1: object.word1 + 500, ..object };
                let request =
                    OstCreate { ost_body: ost_body(far, ObdoFlags::NONE), ..OstCreate::default() };
                let body = self.body(Opcode::OST_CONNECT);
                self.send(Some("OST_CREATE from a client"), &request.into(), body);
            }
            2 => {
                let first = OstId { word1: 1 << 32 | 1, ..object };
                let request = OstCreate {
                    ost_body: ost_body(first, ObdoFlags::DELORPHAN),
                    ..OstCreate::default()
                };
                let body = self.body(Opcode::OST_CONNECT);
                self.send(Some("a removal of orphans by a client"), &request.into(), body);
            }
            3 => {
                let seq_range = LuSeqRange {
                    index: self.random.below(40) as u32,
                    flags: SeqRangeFlags::OST,
                    ..LuSeqRange::default()
                };
                let request = SeqQuery { seq_opc: 0, seq_range, ..SeqQuery::default() };
                let body = self.body(Opcode::MDS_CONNECT);
                self.send(Some("a super-sequence for a client"), &request.into(), body);
            }
            4 => {
                let request =
                    OutUpdate { out_update_header: self.update(), ..OutUpdate::default() };
                let body = self.body(Opcode::MDS_CONNECT);
                self.send(Some("OUT_UPDATE from a client"), &request.into(), body);
            }
            _ => {
                let mut nids = [0; 32];
                nids[0] = client_nid().0;
                let mgs_target_info = MgsTargetInfo {
                    index: 0,
                    flags: TargetFlags(0x42),
                    nid_count: 1,
                    fsname: Chars::new("lustre"),
                    service_name: Chars::new("lustre-OST0000"),
                    uuid: Chars::new("lustre-OST0000_UUID"),
                    nids,
                    ..MgsTargetInfo::default()
                };
                let request = MgsTargetReg { mgs_target_info, ..MgsTargetReg::default() };
                let body = self.body(Opcode::MGS_CONNECT);
                self.send(Some("a target registered from elsewhere"), &request.into(), body);
            }
        }
    }

    /// A name in a directory, as one MDT asks another for it.
    fn update(&self) -> Bytes {
        let mut fid = Writer::default();
        Fid::ROOT.encode(&mut fid);
        let kind = Bytes::copy_from_slice(&0o040_000u32.to_le_bytes());
        let insert = ObjectUpdate {
            kind: UpdateType::INDEX_INSERT,
            fid: self.vault.public,
            params: vec![Bytes::from_static(b"forged\0"), fid.into_bytes(), kind],
            ..ObjectUpdate::default()
        };
        let updates = encode_updates(&[insert]).expect("it fits");
        let mut writer = Writer::default();
        let (magic, inline_length) = (OutUpdateHeader::MAGIC, updates.len() as u32);
        OutUpdateHeader { magic, count: 1, inline_length, reply_size: 4096 }.encode(&mut writer);
        writer.put(&updates);
        writer.into_bytes()
    }

    /// A lock of a kind that the directory's resource is not for.
    fn foreign_lock(&mut self) {
        let kinds = [LockType::PLAIN, LockType::EXTENT, LockType::FLOCK];
        let resource = LdlmResourceDesc {
            kind: kinds[self.random.below(3) as usize],
            name: ResourceName::of_fid(self.vault.public),
            ..LdlmResourceDesc::default()
        };
        let desc =
            LdlmLockDesc { resource, req_mode: LockMode::Pr.into(), ..LdlmLockDesc::default() };
        let handle = LockHandle(self.random.draw());
        let dlm_req = LdlmRequest::enqueue(LockFlags::NONE, desc, handle);
        let request = LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() };
        let body = self.body(Opcode::MDS_CONNECT);
        let claim = Some("a lock of a kind that inodes do not have");
        self.send_to(Portal::MDS_REQUEST, claim, &request.into(), body);
    }

    /// In the name of another client's export.
    fn stolen_export(&mut self) {
        let some = self.random.below(self.vault.exports.len() as u64) as usize;
        let (connect, handle, ..) = self.vault.exports[some].clone();
        let body = PtlrpcBody { handle, ..self.body(connect) };
        match (connect, self.random.below(3)) {
            (Opcode::MDS_CONNECT, 0) => {
                let request = MdsDisconnect::default();
                self.send(Some("another client disconnected"), &request.into(), body);
            }
            (Opcode::MDS_CONNECT, 1) => {
                let mdt_body = MdtBody { fid1: self.vault.public, ..MdtBody::default() };
                let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
                self.send(Some("a request by another client's export"), &request.into(), body);
            }
            _ => {
                let portal = match connect {
                    Opcode::MDS_CONNECT => Portal::MDS_REQUEST,
                    Opcode::OST_CONNECT => Portal::OST_REQUEST,
                    _ => Portal::MGS_REQUEST,
                };
                let request = ObdPing::default();
                self.send_to(
                    portal,
                    Some("a request by another client's export"),
                    &request.into(),
                    body,
                );
            }
        }
    }

    /// As another client, or as a server.
    fn stolen_name(&mut self) {
        let some = self.random.below(self.vault.exports.len() as u64) as usize;
        let (connect, _, client, target) = self.vault.exports[some].clone();
        if connect != Opcode::MDS_CONNECT {
            return;
        }
        let claims = [
            ConnectFlags::NONE,
            ConnectFlags::MDS,
            ConnectFlags::MDS | ConnectFlags::MDS_MDS,
            ConnectFlags::LIGHTWEIGHT,
        ];
        let cdata = ObdConnectData {
            flags: AS_A_CLIENT | claims[self.random.below(4) as usize],
            version: 0x0211_0000,
            ..ObdConnectData::default()
        };
        let request = MdsConnect {
            tgtuuid: Text::padded(target, 40),
            cluuid: Text::padded(client, 40),
            conn: ObdHandle(self.random.draw()),
            cdata,
            ..MdsConnect::default()
        };
        let op_flags =
            if self.random.below(2) == 0 { OpFlags::CONNECT_INITIAL } else { OpFlags::NONE };
        let body = PtlrpcBody { conn_cnt: u32::MAX, op_flags, ..PtlrpcBody::default() };
        self.send(Some("a second client of one name"), &request.into(), body);
    }

    /// Objects in which a target keeps its own records.
    fn internal_object(&mut self) {
        let fid =
            Fid::new(fid_seq::LOCAL_FILE, [0x100, 0x101, 0x200, 1][self.random.below(4) as usize]);
        if self.random.below(2) == 0 {
            let mdt_body = MdtBody { fid1: fid, ..MdtBody::default() };
            let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
            let body = self.body(Opcode::MDS_CONNECT);
            return self.send(Some("attributes of an internal object"), &request.into(), body);
        }
        let oi = OstId { word0: fid.seq, word1: u64::from(fid.oid) };
        let ost_body = OstBody { oa: Obdo { oi, ..Obdo::default() } };
        let request = OstGetattr { ost_body, ..OstGetattr::default() };
        let body = self.body(Opcode::OST_CONNECT);
        self.send(Some("attributes of an internal object"), &request.into(), body);
    }
}

/// Notes what has changed, and which request may have done it; the first changes only.
fn note_changes(changed: &mut Vec<String>, request: u64, before: &[String], now: Vec<String>) {
    if changed.len() < 4 {
        let differ = now.into_iter().filter(|line| !before.contains(line));
        changed.extend(differ.map(|line| format!("after {request} requests: {line}")));
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Makes what only root may see, and the directory that is open to all.
async fn fill(files: &FileSystem) -> Vault {
    let who = Credentials::root();
    let directory = files
        .make_node(&who, NodeId::ROOT, &name("vault"), 0o700, NewNode::Directory)
        .await
        .expect("a directory");
    let flags = OpenFlags(OpenFlags::CREATE | 2);
    let made = files.open_create(&who, directory.node, &name("secret"), 0o600, flags).await;
    let (file, opened) = made.expect("a file");
    files.write(opened.handle, 0, Bytes::from_static(SECRET)).await.expect("it is written");
    files.fsync(opened.handle, false).await.expect("it is durable");
    files.release(opened.handle, None).await.expect("it closes");
    let layout = files.getxattr(&who, file.node, b"lustre.lov").await.expect("a layout");
    let layout = Stored::decode(&layout).expect("a layout");
    let made = files.open_create(&who, NodeId::ROOT, &name("shown"), 0o755, flags).await;
    let (shown, opened) = made.expect("a file");
    files.release(opened.handle, None).await.expect("it closes");
    let set_id = SetAttributes { mode: Some(0o6711), ..SetAttributes::default() };
    files.setattr(&who, shown.node, None, set_id).await.expect("its mode is set");
    let public = files
        .make_node(&who, NodeId::ROOT, &name("public"), 0o777, NewNode::Directory)
        .await
        .expect("a directory");
    let open_to_all = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    files.setattr(&who, public.node, None, open_to_all).await.expect("its mode is set");
    Vault {
        directory: directory.node,
        file: file.node,
        directory_fid: directory.attributes.fid,
        file_fid: file.attributes.fid,
        shown: shown.attributes.fid,
        public: public.attributes.fid,
        objects: layout.objects(),
        exports: Vec::new(),
    }
}

/// What must stay as it is: attributes of the directory and the file, and the file's bytes.
async fn look(files: &FileSystem, directory: NodeId, file: NodeId) -> Result<Seen, Errno> {
    let who = Credentials::root();
    let mut attributes = Vec::new();
    for node in [directory, file] {
        let stat = files.getattr(&who, node).await?;
        attributes.push(Attributes { atime: Timestamp::default(), ..stat.attributes });
    }
    let is_planted =
        matches!(files.lookup(&who, directory, &name("planted")).await?, Lookup::Found(_));
    let opened = files.open(&who, file, OpenFlags(0)).await?;
    let read = files.read(opened.handle, 0, 100).await;
    files.release(opened.handle, None).await?;
    let bytes = read?.iter().flat_map(|piece| piece.to_vec()).collect();
    Ok(Seen { attributes, is_planted, bytes })
}

/// All that the servers keep of what must stay as it is: attributes but times of access, extended attributes,
/// and the file system's configuration.
fn kept(cluster: &Cluster, fids: [Fid; 3]) -> Vec<String> {
    let mut kept = Vec::new();
    for place in &cluster.places {
        match &place.served.role {
            Role::Mdt(_) => {
                for fid in fids {
                    let Ok(mut attributes) = place.store.attributes(fid) else {
                        kept.push(format!("{fid} is gone"));
                        continue;
                    };
                    attributes.accessed = Timestamp::default();
                    kept.push(format!("{fid}: {attributes:?}"));
                    for name in place.store.xattr_names(fid).expect("names") {
                        let value = place.store.xattr(fid, &name).expect("a value");
                        kept.push(format!("{fid}: {name} is {value:?}"));
                    }
                }
            }
            Role::Mgs(mgs) => {
                let ours = |name: &String| name.rsplit_once('-').is_some_and(|of| of.0 == "lustre");
                for name in mgs.log_names().into_iter().filter(ours) {
                    kept.push(format!("{name}: {:?}", mgs.log(&name)));
                }
            }
            Role::Ost(_) => {}
        }
    }
    kept
}

/// See [`look`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    attributes: Vec<Attributes>,
    is_planted: bool,
    bytes: Vec<u8>,
}

#[test]
fn forged_requests_are_answered_and_not_obeyed() {
    let seed = std::env::var("SHEEN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let long = std::env::var_os("SHEEN_TEST_LONG").is_some();
    let count = if long { REQUESTS_LONG } else { REQUESTS };
    println!("{count} requests, SHEEN_SEED={seed}");
    let Servers { world, client, cluster } = start(seed);
    let neighbour = Nid::tcp([10, 77, 0, 14].into());
    for place in &cluster.places {
        if let Role::Mdt(mdt) = &place.served.role {
            mdt.change_root_squash(|squash| {
                squash.set_root("99:99")?;
                squash.set_trusted(&neighbour.to_string())
            })
            .expect("a rule");
        }
    }
    let files = Arc::new(world.run(mounted_at(world.world(), neighbour)));
    let filled = Arc::clone(&files);
    let mut vault = world.run(async move { fill(&filled).await });
    for place in &cluster.places {
        let view = place.served.target.view();
        let connect = match view.name.as_str() {
            name if name.contains("MDT") => Opcode::MDS_CONNECT,
            name if name.contains("OST") => Opcode::OST_CONNECT,
            _ => Opcode::MGS_CONNECT,
        };
        let of_neighbour = view.exports.iter().filter(|export| export.nid == neighbour);
        vault.exports.extend(of_neighbour.map(|export| {
            (connect, export.handle, export.uuid.to_string(), view.uuid.to_string())
        }));
    }
    assert!(vault.exports.len() >= 3, "the trusted client is connected");
    let (directory, file) = (vault.directory, vault.file);
    let looking = Arc::clone(&files);
    let before = world.run(async move { look(&looking, directory, file).await });
    world.pass(Duration::from_secs(10));
    let fids = [vault.directory_fid, vault.file_fid, vault.shown];
    let kept_before = kept(&cluster, fids);
    assert_eq!(before.as_ref().map(|seen| &seen.bytes[..]), Ok(SECRET));
    let mut changed = Vec::new();
    let transactions = |served: &sheen_assembly::Served| served.target.view().last_transno.0;
    let started: Vec<u64> =
        cluster.places.iter().map(|place| transactions(&place.served)).collect();

    let answers = Arc::new(Answers::default());
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&answers) as _);
    }
    let io = world.world();
    let other_nodes = world.run(async move {
        let mut other_nodes = Vec::new();
        for last in [21, 22] {
            let config = NetConfig::new(Nid::tcp([10, 77, 0, last].into()), PORT);
            other_nodes.push(LNet::start(io.clone(), config).await.expect("the address is free"));
        }
        other_nodes
    });
    for (lnet, portal) in
        other_nodes.iter().flat_map(|lnet| REPLY_PORTALS.map(|portal| (lnet, portal)))
    {
        lnet.serve(portal, Arc::clone(&answers) as _);
    }
    let mut intruder = Intruder {
        lnets: [client].into_iter().chain(other_nodes).collect(),
        at: 0,
        is_evicted: false,
        random: SeededRandom::new(seed),
        answers: Arc::clone(&answers),
        vault,
        xid: 1 << 40,
        connects: 0,
    };
    for request in 0..count {
        if request % 100 == 0 || intruder.is_evicted {
            world.pass(Duration::from_millis(5));
            intruder.connect();
            world.pass(Duration::from_millis(50));
        }
        intruder.forge();
        if request % BURST == 0 {
            world.pass(Duration::from_millis(5));
        }
        if request % BETWEEN == 0 {
            let looking = Arc::clone(&files);
            let now = world.run(async move { look(&looking, directory, file).await });
            if now != before {
                changed.push(format!("after {request} requests: {now:?}"));
            }
        }
        note_changes(&mut changed, request, &kept_before, kept(&cluster, fids));
    }
    world.pass(Duration::from_secs(5));
    let looking = Arc::clone(&files);
    let now = world.run(async move { look(&looking, directory, file).await });
    if now != before {
        changed.push(format!("in the end: {now:?}"));
    }
    println!("refused: {:?}", answers.refused.lock());
    let obeyed = answers.obeyed.lock().clone();
    println!("done: {:?}", answers.done.lock());
    assert_eq!(*answers.bytes.lock(), 0, "bytes of root's file came with an open");
    assert!(obeyed.is_empty() && changed.is_empty(), "believed: {obeyed:#?}\n{changed:#?}");
    let refused = answers.refused.lock();
    let all = refused.values().chain(answers.done.lock().values()).sum::<u64>();
    assert!(all > count / 2, "too few were answered: {all}");
    // Of what needs an export most has found one, and reached its own check.
    let own = |(claim, _): &(&'static str, i32)| !claim.contains("another client");
    let without = |key: &(&'static str, i32)| key.1 == Errno::ENOTCONN.status();
    let of = |filter: &dyn Fn(&(&'static str, i32)) -> bool| -> u64 {
        refused.iter().filter(|(key, _)| filter(key)).map(|(_, count)| count).sum()
    };
    let unheard = of(&|key| own(key) && without(key));
    assert!(unheard < all / 5, "{unheard} of {all} did not get past the export: {refused:?}");
    drop(refused);
    for (place, started) in cluster.places.iter().zip(started) {
        let now = transactions(&place.served);
        let name = place.served.target.view().name;
        assert!(now <= started + count * TRANSACTIONS_EACH, "{name}: {started} -> {now}");
    }
    world.run(async move { files.unmount().await });
}
