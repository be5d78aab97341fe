//! Sequences of hostile operations against live servers, from a seed: no panic, nothing left
//! behind, and no harm to a client beside it.
//!
//! One node sends whatever the dice say: garbage, halves of messages, requests of every kind with
//! random contents, wrong handles, old xids again, writes whose bulk never comes, connects and
//! disconnects. A mounted client works beside it and checks every answer. In the end the hostile
//! node falls silent, and nothing of it may be left.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_assembly::{Role, Served};
use sheen_client::data::Osts;
use sheen_client::posix::{Credentials, FileSystem, NodeId, OpenFlags};
use sheen_node::net::{Delivery, LNet, Receiver};
use sheen_rpc::REPLY_PORTALS;
use sheen_testkit::vnet::Dice;
use sheen_types::{HashMap, MatchBits, Name, Nid, ObdHandle};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{
    FieldInfo, FieldKind, Format, MdsConnect, MgsConnect, OstConnect, Request, Select, TABLE,
};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};
use sheen_wire::text::Text;
use sheen_wire::{Wire, Writer};

use common::{REQUEST_PORTALS, Servers, client_nid, mounted, server_nid, start};

/// Operations of a run, and of a long one.
const OPERATIONS: u64 = 20_000;
const OPERATIONS_LONG: u64 = 1_000_000;
/// Hostile operations between two rounds of the client beside them.
const BETWEEN: u64 = 1_000;
/// Hostile operations sent before their answers are looked at. Garbage costs the connection and
/// whatever is on its way.
const BURST: u64 = 5;
/// Longer than a silent client is kept.
const SILENCE: Duration = Duration::from_secs(3_600);

/// Handles of exports that are remembered for each service; older ones are mostly gone.
const HANDLES: usize = 3;
/// As how many clients the hostile node connects.
const CLIENTS: u64 = 40;
/// How the hostile node calls itself.
const HOSTILE: &str = "hostile-";

/// Takes answers: counts them by status, and learns the handles of exports from them.
#[derive(Default)]
struct Learned {
    handles: Mutex<HashMap<Opcode, Vec<ObdHandle>>>,
    statuses: Mutex<BTreeMap<i32, u64>>,
}

impl Receiver for Learned {
    fn receive(&self, delivery: Delivery) {
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Ok(body) = message.body() else { return };
        *self.statuses.lock().entry(body.status).or_default() += 1;
        let connects = [Opcode::MGS_CONNECT, Opcode::MDS_CONNECT, Opcode::OST_CONNECT];
        if body.status == 0 && connects.contains(&body.opcode) {
            let mut handles = self.handles.lock();
            let handles = handles.entry(body.opcode).or_default();
            handles.push(body.handle);
            let surplus = handles.len().saturating_sub(HANDLES);
            handles.drain(..surplus);
        }
    }
}

/// The hostile node.
struct Hostile {
    lnet: Arc<LNet>,
    dice: Dice,
    learned: Arc<Learned>,
    xid: u64,
    before: Option<(Portal, u64, Bytes)>,
}

impl Hostile {
    fn send(&mut self, portal: Portal, xid: u64, bytes: Bytes) {
        self.before = Some((portal, xid, bytes.clone()));
        self.lnet.put(server_nid(), portal, MatchBits(xid), 0, vec![bytes]);
    }

    fn portal(&self) -> Portal {
        REQUEST_PORTALS[self.dice.below(REQUEST_PORTALS.len() as u64) as usize]
    }

    fn noise(&self, length: u64) -> Bytes {
        (0..length).map(|_| self.dice.roll() as u8).collect::<Vec<_>>().into()
    }

    fn next_xid(&mut self) -> u64 {
        self.xid += 1 + self.dice.below(3);
        // Now and then a xid from before.
        match self.dice.below(8) {
            0 => self.xid.saturating_sub(self.dice.below(500)),
            _ => self.xid,
        }
    }

    /// An export: mostly one of a target that serves `portal`, if there is one.
    fn handle(&self, portal: Portal) -> ObdHandle {
        let service = match portal {
            Portal::MGS_REQUEST => Opcode::MGS_CONNECT,
            Portal::OST_REQUEST | Portal::OST_CREATE | Portal::OST_IO => Opcode::OST_CONNECT,
            _ => Opcode::MDS_CONNECT,
        };
        let handles = self.learned.handles.lock();
        match (self.dice.below(16), handles.get(&service)) {
            (0, _) => ObdHandle(self.dice.roll()),
            (1, _) | (_, None) => ObdHandle(0),
            (_, Some(own)) => own[self.dice.below(own.len() as u64) as usize],
        }
    }

    fn operation(&mut self) {
        let xid = self.next_xid();
        match self.dice.below(16) {
            0 => {
                let noise = self.noise(self.dice.below(2_000));
                self.send(self.portal(), xid, noise);
            }
            1 => {
                let whole = self.request(xid).1;
                let part = whole.slice(..self.dice.below(whole.len() as u64) as usize);
                self.send(self.portal(), xid, part);
            }
            2 => {
                if let Some((portal, xid, bytes)) = self.before.clone() {
                    self.send(portal, xid, bytes);
                }
            }
            3 => {
                let (_, bytes) = self.request(xid);
                self.send(self.portal(), xid, bytes);
            }
            4 | 5 => {
                let (portal, bytes) = self.connect(xid);
                self.send(portal, xid, bytes);
            }
            _ => {
                let (portal, bytes) = self.request(xid);
                self.send(portal, xid, bytes);
            }
        }
    }

    fn body(&self, opcode: Opcode, portal: Portal, xid: u64) -> PtlrpcBody {
        PtlrpcBody {
            handle: self.handle(portal),
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode,
            // Whoever has connected anew refuses what came before.
            conn_cnt: if self.dice.below(200) == 0 { self.dice.below(3) as u32 } else { 1 },
            tag: self.dice.below(4) as u16,
            timeout: 1 + self.dice.below(20) as u32,
            match_bits: MatchBits(if self.dice.below(4) == 0 { self.dice.roll() } else { xid }),
            ..PtlrpcBody::default()
        }
    }

    fn connect(&self, xid: u64) -> (Portal, Bytes) {
        let data = ObdConnectData {
            flags: ConnectFlags(self.dice.roll() | ConnectFlags::VERSION.0),
            version: 0x0211_0000,
            grant: self.dice.roll() as u32,
            brw_size: 1 << self.dice.below(32),
            ..ObdConnectData::default()
        };
        let cluuid = Text::padded(format!("{HOSTILE}{}", self.dice.below(CLIENTS)), 40);
        let conn = ObdHandle(self.dice.roll());
        let (portal, opcode, request) = match self.dice.below(3) {
            0 => {
                let tgtuuid = Text::padded("MGS", 40);
                let request =
                    MgsConnect { tgtuuid, cluuid, conn, cdata: data, ..MgsConnect::default() };
                (Portal::MGS_REQUEST, Opcode::MGS_CONNECT, Request::from(request))
            }
            1 => {
                let tgtuuid = Text::padded("lustre-MDT0000_UUID", 40);
                let request =
                    MdsConnect { tgtuuid, cluuid, conn, cdata: data, ..MdsConnect::default() };
                (Portal::MDS_REQUEST, Opcode::MDS_CONNECT, Request::from(request))
            }
            _ => {
                let index = self.dice.below(5);
                let tgtuuid = Text::padded(format!("lustre-OST{index:04x}_UUID"), 40);
                let request =
                    OstConnect { tgtuuid, cluuid, conn, cdata: data, ..OstConnect::default() };
                (Portal::OST_REQUEST, Opcode::OST_CONNECT, Request::from(request))
            }
        };
        let body = PtlrpcBody { handle: ObdHandle(0), ..self.body(opcode, portal, xid) };
        (portal, request.to_bytes(&MessageHeader::default(), &body))
    }

    /// A request of any kind; a few of its bytes are whatever they are.
    fn request(&self, xid: u64) -> (Portal, Bytes) {
        let format = &TABLE[self.dice.below(TABLE.len() as u64) as usize];
        let mut buffers = vec![encoded(&self.body(format.opcode, format.request_portal, xid))];
        buffers.extend(format.request.iter().map(|field| self.buffer(field)));
        select(format, &mut buffers);
        let header =
            MessageHeader { repsize: self.dice.below(9_000) as u32, ..MessageHeader::default() };
        let message = Message { header, buffers, ..Message::default() };
        (format.request_portal, message.encode())
    }

    fn buffer(&self, field: &FieldInfo) -> Bytes {
        let size = match field.kind {
            FieldKind::Array => field.size * (1 + self.dice.below(3) as usize),
            FieldKind::Opaque => self.dice.below(80) as usize,
            FieldKind::Required | FieldKind::Optional if field.size == 0 => {
                2 + self.dice.below(12) as usize
            }
            FieldKind::Required | FieldKind::Optional => field.size,
        };
        let mut bytes = vec![0; size];
        for _ in 0..self.dice.below(1 + size as u64 / 8) {
            let at = self.dice.below(size as u64) as usize;
            // Small numbers are more often legal than large ones.
            bytes[at] = (self.dice.roll() >> self.dice.below(8)) as u8;
        }
        if self.dice.below(12) == 0 {
            bytes.truncate(self.dice.below(1 + size as u64) as usize);
        }
        bytes.into()
    }
}

fn encoded(body: &PtlrpcBody) -> Bytes {
    let mut writer = Writer::default();
    body.encode(&mut writer);
    writer.into_bytes()
}

/// Writes what tells a format from others with its opcode.
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

/// One round of work: makes a file, writes it, reads it back, removes it.
async fn work(files: &FileSystem, round: u64) {
    let who = Credentials::root();
    let name = Name::new(format!("file-{round}").as_bytes()).expect("a name");
    let flags = OpenFlags(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | 2);
    let made = files.create(&who, NodeId::ROOT, &name, 0o644, flags).await;
    let (entry, opened) = made.unwrap_or_else(|errno| panic!("round {round}: create: {errno}"));
    let data: Bytes = (0..20_000u32).map(|at| (at as u64 ^ round) as u8).collect::<Vec<_>>().into();
    assert_eq!(files.write(opened.handle, 0, data.clone()).await, Ok(20_000), "round {round}");
    assert_eq!(files.fsync(opened.handle, false).await, Ok(()), "round {round}");
    let read = files.read(opened.handle, 0, 30_000).await.expect("it reads");
    let read: Vec<u8> = read.iter().flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(read, data, "round {round}");
    files.release(opened.handle, None).await.expect("it closes");
    files.unlink(&who, NodeId::ROOT, &name).await.expect("it goes");
    files.forget(entry.node, 1);
}

/// Fails if a target has locks, clients' exports or grants left.
fn check_gauges(served: &Served) {
    let view = served.target.view();
    let locks = (&view.locks.granted, &view.locks.waiting, view.locks.resources);
    assert_eq!(locks, (&[0; 4], &[0; 4], 0), "{}: locks are left", view.name);
    let clients: Vec<_> = view.exports.iter().map(|export| export.uuid.to_string()).collect();
    let hostile: Vec<_> = clients.iter().filter(|uuid| uuid.starts_with(HOSTILE)).collect();
    assert!(hostile.is_empty(), "{}: exports are left: {hostile:?}", view.name);
    if let Role::Ost(ost) = &served.role {
        assert_eq!(ost.grant_view().total, 0, "{}: grants are left", view.name);
    }
}

#[test]
fn hostile_operations_leave_nothing_and_harm_nobody() {
    let seed = std::env::var("SHEEN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let long = std::env::var_os("SHEEN_TEST_LONG").is_some();
    let count = if long { OPERATIONS_LONG } else { OPERATIONS };
    println!("{count} operations, SHEEN_SEED={seed}");
    let Servers { world, client, cluster } = start(seed);
    let io = world.world();
    let neighbour = Nid::tcp(Ipv4Addr::new(10, 77, 0, 14));
    let files = world.run({
        let io = io.clone();
        async move { mounted(&io, neighbour, Osts::new(io.clone())).await }
    });
    let files = Arc::new(files);
    let learned = Arc::new(Learned::default());
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&learned) as _);
    }
    let dice = Dice::new(seed);
    let heard = Arc::clone(&learned);
    let mut hostile = Hostile { lnet: client, dice, learned: heard, xid: 1 << 40, before: None };
    for operation in 0..count {
        hostile.operation();
        if operation % BURST == 0 {
            world.pass(Duration::from_millis(5));
        }
        if operation % BETWEEN == 0 {
            let files = Arc::clone(&files);
            world.run(async move { work(&files, operation).await });
        }
    }
    world.set_cut_off(client_nid().address(), true);
    world.pass(SILENCE);
    let again = Arc::clone(&files);
    world.run(async move { work(&again, count).await });
    let leaving = Arc::clone(&files);
    world.run(async move { leaving.unmount().await });
    world.pass(Duration::from_secs(10));
    cluster.places.iter().for_each(|place| check_gauges(&place.served));
    let statuses = learned.statuses.lock();
    println!("answers by status: {statuses:?}");
    let well = statuses.get(&0).copied().unwrap_or(0);
    assert!(well >= count / 100, "too little came through: {statuses:?}");
}
