//! Requests of a hostile client, one after the other: garbage, halves of messages, and well-formed
//! requests of every kind whose fields, flags, numbers and handles are whatever the source decides.

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::{MatchBits, ObdHandle, Transno, Xid};
use sheen_wire::Writer;
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{
    FieldInfo, FieldKind, Format, Kind, MdsConnect, MgsConnect, OstConnect, Part, Request, Select,
    TABLE,
};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{
    MESSAGE_VERSION, Message, MessageHeader, MsgFlags, MsgType, OpFlags, PtlrpcBody,
};
use sheen_wire::text::Text;

use crate::fields::Fields;
use crate::known::{Known, ServerKind};
use crate::source::Source;

/// As how many clients the hostile node connects.
const CLIENTS: u64 = 40;
/// What every client offers, and an MDT demands.
const AS_A_CLIENT: ConnectFlags = ConnectFlags(
    ConnectFlags::VERSION.0 | ConnectFlags::FULL20.0 | ConnectFlags::IBITS.0 | ConnectFlags::FID.0,
);
/// What clients, servers and neither of them say they can.
const OFFERS: [ConnectFlags; 6] = [
    ConnectFlags::NONE,
    ConnectFlags::NONE,
    ConnectFlags::MDS,
    ConnectFlags::LIGHTWEIGHT,
    ConnectFlags::RDONLY,
    ConnectFlags(u64::MAX),
];

/// A message and where it goes.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Where requests of its kind are taken, mostly.
    pub portal: Portal,
    /// Its number, which is its match bits, too.
    pub xid: u64,
    /// The message.
    pub bytes: Bytes,
}

/// What may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Requests for these kinds of targets.
    pub services: &'static [ServerKind],
    /// Requests of these kinds are left out.
    pub without: &'static [Kind],
    /// All portals where something may arrive.
    pub portals: &'static [Portal],
    /// How clients call themselves; a number follows.
    pub client: &'static str,
    /// The file system's name.
    pub fsname: &'static str,
    /// What asks for data or changes it names objects of this sequence alone, if there is one: a client that
    /// is admitted may change any, and other clients would see it.
    pub objects: Option<u64>,
}

/// Makes requests.
pub struct Requests<S> {
    source: S,
    known: Arc<Known>,
    range: Range,
    formats: Vec<&'static Format>,
    xid: u64,
    before: Option<Packet>,
}

fn encoded(part: &impl Part) -> Bytes {
    let mut writer = Writer::default();
    part.encode_part(&mut writer);
    writer.into_bytes()
}

impl<S: Source> Requests<S> {
    /// Requests out of the decisions of `source`, with what `known` has learned.
    #[must_use]
    pub fn new(source: S, known: Arc<Known>, range: Range) -> Self {
        let formats = TABLE
            .iter()
            .filter(|format| range.services.contains(&ServerKind::of(format.request_portal)))
            .filter(|format| !range.without.contains(&format.kind))
            .collect();
        Self { source, known, range, formats, xid: 1 << 40, before: None }
    }

    /// What decides.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The next message.
    pub fn next_packet(&mut self) -> Packet {
        let xid = self.next_xid();
        let packet = match self.source.below(16) {
            0 => Packet { bytes: self.noise(), ..self.request(xid) },
            1 => {
                let whole = self.request(xid);
                let part = self.source.below(whole.bytes.len() as u64) as usize;
                Packet { bytes: whole.bytes.slice(..part), ..whole }
            }
            2 => self.before.clone().unwrap_or_else(|| self.request(xid)),
            3 => {
                let portal = self.source.pick(self.range.portals);
                Packet { portal, ..self.request(xid) }
            }
            4 | 5 => self.connect(xid),
            _ => self.request(xid),
        };
        self.before = Some(packet.clone());
        packet
    }

    fn noise(&self) -> Bytes {
        (0..self.source.below(2_000)).map(|_| self.source.below(256) as u8).collect()
    }

    fn next_xid(&mut self) -> u64 {
        self.xid += 1 + self.source.below(3);
        // Now and then a xid from before.
        match self.source.below(8) {
            1 => self.xid.saturating_sub(self.source.below(500)),
            _ => self.xid,
        }
    }

    /// An export: mostly one of a target that serves `portal`, if there is one.
    fn handle(&self, portal: Portal) -> ObdHandle {
        let values = self.known.values.lock();
        let own = values.handles.get(&ServerKind::of(portal)).map(|own| own.list());
        match (self.source.below(16), own) {
            (1, _) => ObdHandle(self.source.draw()),
            (2, _) | (_, None) => ObdHandle(0),
            // Of a target of another kind.
            (3, _) => {
                let all: Vec<_> = values.handles.values().flat_map(|some| some.list()).collect();
                self.source.pick(&all)
            }
            (4, Some(own)) => {
                let stolen = values.stolen.get(&ServerKind::of(portal)).map(|stolen| stolen.list());
                self.source.pick(&stolen.unwrap_or(own))
            }
            (_, Some(own)) => self.source.pick(&own),
        }
    }

    /// Flags: a false replay costs the export, so they are rare unless the target recovers.
    fn flags(&self, service: ServerKind) -> MsgFlags {
        let recovers =
            self.known.values.lock().recovering.get(&service).copied().unwrap_or_default();
        let rarely = if recovers { 4 } else { 64 };
        let done = [MsgFlags::REQ_REPLAY_DONE, MsgFlags::LOCK_REPLAY_DONE, MsgFlags::LAST_REPLAY];
        let plain = match self.source.below(8) {
            1 => MsgFlags::RESENT,
            2 => MsgFlags::PACK_UID_GID,
            _ => MsgFlags::NONE,
        };
        match self.source.below(rarely) {
            1 => plain | MsgFlags::REPLAY,
            2 => plain | MsgFlags::REPLAY | self.source.pick(&done),
            3 => plain | self.source.pick(&done),
            4 => MsgFlags(self.source.draw() as u32),
            _ => plain,
        }
    }

    /// A transaction: none, one that was heard of or near it, or one that cannot be.
    fn transno(&self, service: ServerKind, flags: MsgFlags) -> Transno {
        let values = self.known.values.lock();
        let heard = values.transnos.get(&service).map(|heard| heard.list()).unwrap_or_default();
        let near = match heard.is_empty() {
            true => 0,
            false => self.source.pick(&heard).0,
        };
        let replays = flags.contains(MsgFlags::REPLAY);
        match self.source.below(if replays { 8 } else { 128 }) {
            1 => Transno(u64::MAX - self.source.below(3)),
            2 => Transno(i64::MAX as u64 - self.source.below(3)),
            3 => Transno(self.source.draw()),
            4 => Transno(near.wrapping_add(self.source.below(1 << 21))),
            _ if replays => Transno(near.wrapping_add(self.source.below(4)).wrapping_sub(1)),
            _ => Transno(0),
        }
    }

    fn body(&self, opcode: Opcode, portal: Portal, xid: u64) -> PtlrpcBody {
        let service = ServerKind::of(portal);
        let flags = self.flags(service);
        let numbers = [0, u64::MAX, xid, xid - 1, xid.wrapping_add(1 << 32)];
        let last_xid = match self.source.below(32) {
            1 => self.source.pick(&numbers),
            _ => 0,
        };
        let users = [0, 1_000, u32::MAX];
        PtlrpcBody {
            handle: self.handle(portal),
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode,
            last_xid: Xid(last_xid),
            // A client that has connected anew refuses what came before.
            conn_cnt: match self.source.below(200) {
                1 => self.source.pick(&[0, 2, u32::MAX]),
                _ => 1,
            },
            tag: self.source.below(4) as u16,
            timeout: 1 + self.source.below(20) as u32,
            match_bits: MatchBits(if self.source.one_in(4) { self.source.draw() } else { xid }),
            flags,
            op_flags: OpFlags(if self.source.one_in(16) { self.source.draw() as u32 } else { 0 }),
            transno: self.transno(service, flags),
            uid: self.source.pick(&users),
            gid: self.source.pick(&users),
            ..PtlrpcBody::default()
        }
    }

    /// A connect to a target of the range.
    pub(crate) fn connect(&self, xid: u64) -> Packet {
        let flags = match self.source.below(4) {
            0 => ConnectFlags(self.source.draw() | ConnectFlags::VERSION.0),
            _ => AS_A_CLIENT | self.source.pick(&OFFERS),
        };
        let data = |index| ObdConnectData {
            flags,
            version: 0x0211_0000,
            grant: self.source.draw() as u32,
            index,
            brw_size: 1 << self.source.below(32),
            transno: Transno(if self.source.one_in(8) { self.source.draw() } else { 0 }),
            ..ObdConnectData::default()
        };
        let cluuid =
            Text::padded(format!("{}{}", self.range.client, self.source.below(CLIENTS)), 40);
        let conn = ObdHandle(self.source.draw());
        let (portal, opcode, request) = match self.source.pick(self.range.services) {
            ServerKind::Mgs => {
                let tgtuuid = Text::padded("MGS", 40);
                let request =
                    MgsConnect { tgtuuid, cluuid, conn, cdata: data(0), ..MgsConnect::default() };
                (Portal::MGS_REQUEST, Opcode::MGS_CONNECT, Request::from(request))
            }
            ServerKind::Mdt => {
                let tgtuuid = Text::padded(format!("{}-MDT0000_UUID", self.range.fsname), 40);
                let request =
                    MdsConnect { tgtuuid, cluuid, conn, cdata: data(0), ..MdsConnect::default() };
                (Portal::MDS_REQUEST, Opcode::MDS_CONNECT, Request::from(request))
            }
            ServerKind::Ost => {
                let index = self.source.below(5);
                let tgtuuid =
                    Text::padded(format!("{}-OST{index:04x}_UUID", self.range.fsname), 40);
                let cdata = data(index as u32);
                let request = OstConnect { tgtuuid, cluuid, conn, cdata, ..OstConnect::default() };
                (Portal::OST_REQUEST, Opcode::OST_CONNECT, Request::from(request))
            }
        };
        let body = self.body(opcode, portal, xid);
        let handle = if self.source.one_in(4) { body.handle } else { ObdHandle(0) };
        let ways = [OpFlags::NONE, OpFlags::CONNECT_INITIAL, OpFlags::CONNECT_RECONNECT];
        let op_flags = self.source.pick(&ways) | body.op_flags;
        let body = PtlrpcBody { handle, op_flags, ..body };
        self.known.sent(xid, request.kind());
        Packet { portal, xid, bytes: request.to_bytes(&MessageHeader::default(), &body) }
    }

    /// A request of any kind.
    fn request(&self, xid: u64) -> Packet {
        let format = self.formats[self.source.below(self.formats.len() as u64) as usize];
        let body = self.body(format.opcode, format.request_portal, xid);
        let mut buffers = vec![encoded(&body)];
        buffers.extend(format.request.iter().map(|field| self.buffer(field)));
        select(format, &mut buffers);
        let header =
            MessageHeader { repsize: self.source.below(9_000) as u32, ..MessageHeader::default() };
        let message = Message { header, buffers, ..Message::default() };
        let kind: Kind = format.kind;
        self.known.sent(xid, kind);
        Packet { portal: format.request_portal, xid, bytes: message.encode() }
    }

    fn buffer(&self, field: &FieldInfo) -> Bytes {
        let optional = matches!(field.kind, FieldKind::Optional) && field.size != 0;
        if optional && self.source.one_in(2) {
            return Bytes::new();
        }
        let made = match self.source.below(4) {
            1 => None,
            _ => {
                let values = self.known.values.lock();
                let objects = self.range.objects;
                Fields { source: &self.source, values: &values, objects }.structure(field)
            }
        };
        match made {
            Some(bytes) => bytes,
            None => self.noisy(field),
        }
    }

    /// Zeros of the right length, with some bytes that are not.
    fn noisy(&self, field: &FieldInfo) -> Bytes {
        let size = match field.kind {
            FieldKind::Array => field.size * (1 + self.source.below(3) as usize),
            FieldKind::Opaque => self.source.below(80) as usize,
            FieldKind::Required | FieldKind::Optional if field.size == 0 => {
                2 + self.source.below(12) as usize
            }
            FieldKind::Required | FieldKind::Optional => field.size,
        };
        let mut bytes = vec![0; size];
        for _ in 0..self.source.below((1 + size as u64 / 8).min(64)) {
            let at = self.source.below(size as u64) as usize;
            // Small numbers are more often legal than large ones.
            bytes[at] = (self.source.below(256) >> self.source.below(8)) as u8;
        }
        if self.source.one_in(12) {
            bytes.truncate(self.source.below(1 + size as u64) as usize);
        }
        bytes.into()
    }
}

/// Writes what distinguishes a format from other formats of its opcode.
fn select(format: &Format, buffers: &mut [Bytes]) {
    let mut put = |index: usize, at: usize, bytes: &[u8]| {
        let Some(buffer) = buffers.get_mut(index) else { return };
        let mut whole = buffer.to_vec();
        whole.resize(whole.len().max(at + bytes.len()), 0);
        whole[at..at + bytes.len()].copy_from_slice(bytes);
        *buffer = whole.into();
    };
    match format.select {
        Select::Any | Select::Buffers(_) => {}
        Select::Reint(op) => put(1, 0, &op.0.to_le_bytes()),
        Select::ReintSymlink => {
            put(1, 0, &2u32.to_le_bytes());
            put(1, 112, &0o120_777u32.to_le_bytes());
        }
        Select::Intent(bits) => put(2, 0, &(bits.0 & bits.0.wrapping_neg()).to_le_bytes()),
        Select::Key(key) => put(1, 0, &[key.as_bytes(), b"\0"].concat()),
    }
}
