//! One client floods a server in virtual time; another works beside it.

use std::future::poll_fn;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{Connection, World};
use sheen_lnet::{Handshake, Local};
use sheen_node::net::{Delivery, LNet, NetConfig, Receiver};
use sheen_rpc::budget::ServiceLimit;
use sheen_rpc::{Bulk, Call, REPLY_PORTALS, limits};
use sheen_types::{MatchBits, Nid, ObdHandle};
use sheen_vnet::{NetworkConditions, Virtual};
use sheen_wire::lnet::{
    ConnectionType, Get, HANDLE_NONE, LnetCommand, PING_MATCH_BITS, Portal, Put, WireHandle,
};
use sheen_wire::messages::{MdsConnect, MdsSetInfo, ObdPing, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{MESSAGE_VERSION, Message, MessageHeader, MsgType, PtlrpcBody};
use sheen_wire::text::Text;

use super::handler::{content, data, order};
use super::{MIB, import, node, serve};

/// How long the good client works, alone and beside the hostile one.
const TIME: Duration = Duration::from_millis(300);

/// As how many clients the hostile one connects.
const EXPORTS: usize = 8;

fn nid(last: u8) -> Nid {
    Nid::tcp([10, 0, 0, last].into())
}

/// A node that says whatever it likes, and counts what comes back.
struct Raw {
    lnet: Arc<LNet>,
    server: Nid,
    xid: AtomicU64,
    handles: Mutex<Vec<ObdHandle>>,
    answers: AtomicU64,
}

impl Receiver for Raw {
    fn receive(&self, delivery: Delivery) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let body = Message::decode(&delivery.payload).and_then(|message| message.body());
        if let Ok(body) = body
            && body.opcode == Opcode::MDS_CONNECT
        {
            self.handles.lock().push(body.handle);
        }
    }
}

impl Raw {
    async fn connected(world: &World, nid: Nid, server: Nid) -> Arc<Self> {
        let lnet = LNet::start(world.clone(), NetConfig::new(nid, 988)).await.expect("free");
        // The last bits count the parts of a bulk down.
        let (xid, answers) = (AtomicU64::new((1 << 40) + 63), AtomicU64::new(0));
        let raw = Arc::new(Self { lnet, server, xid, handles: Mutex::default(), answers });
        for portal in REPLY_PORTALS {
            raw.lnet.serve(portal, Arc::clone(&raw) as _);
        }
        let tgtuuid = Text::padded("lustre-MDT0000_UUID", 40);
        for number in 0..EXPORTS {
            let (tgtuuid, cluuid) =
                (tgtuuid.clone(), Text::padded(format!("hostile-{number}"), 40));
            let connect = MdsConnect { tgtuuid, cluuid, cdata: data(), ..MdsConnect::default() };
            raw.send(Opcode::MDS_CONNECT, connect);
        }
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!(raw.handles.lock().len(), EXPORTS, "it is connected");
        raw
    }

    /// By turns, so that no part of the server is spared.
    fn handle_for(&self, xid: u64) -> ObdHandle {
        let handles = self.handles.lock();
        let at = (xid / 64) as usize % handles.len().max(1);
        handles.get(at).copied().unwrap_or(ObdHandle(0))
    }

    fn send(&self, opcode: Opcode, request: impl Into<Request>) {
        let xid = self.xid.fetch_add(64, Ordering::Relaxed);
        let body = PtlrpcBody {
            handle: self.handle_for(xid),
            kind: MsgType::REQUEST,
            version: MESSAGE_VERSION,
            opcode,
            conn_cnt: 1,
            timeout: 60,
            match_bits: MatchBits(xid),
            ..PtlrpcBody::default()
        };
        let bytes = request.into().to_bytes(&MessageHeader::default(), &body);
        self.lnet.put(self.server, Portal::MDS_REQUEST, MatchBits(xid), 0, vec![bytes]);
    }
}

/// How many calls the good client gets answered in [`TIME`].
async fn work(world: &World, import: &Arc<dyn sheen_rpc::Import>) -> u64 {
    let end = world.clock.now() + TIME;
    let mut calls = 0;
    while world.clock.now() < end {
        import.call(Call::new(ObdPing::default())).await.expect("an answer");
        let get = Call::new(order("get", 20_000)).with_bulk(Bulk::Sink(MIB));
        let answer = import.call(get).await.expect("an answer");
        assert_eq!(answer.bulk.concat(), content(20_000));
        calls += 2;
    }
    calls
}

/// The good client's rate beside a client that does `harm` again and again, by its rate alone.
fn beside(seed: u64, harm: impl Fn(&Raw) + Send + Sync + Copy + 'static) -> f64 {
    let network =
        Virtual::new(seed, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        let client = node(world.clone(), nid(2), 988).await;
        let import = import(&client, vec![nid(1)]);
        import.connect().await.expect("it connects");
        let alone = work(&world, &import).await;
        let raw = Raw::connected(&world, nid(3), nid(1)).await;
        let goes_on = Arc::new(AtomicBool::new(true));
        let (clock, hostile, flag) =
            (Arc::clone(&world.clock), Arc::clone(&raw), Arc::clone(&goes_on));
        let flood = async move {
            while flag.load(Ordering::Relaxed) {
                (0..100).for_each(|_| harm(&hostile));
                clock.sleep_until(clock.now() + Duration::from_millis(10)).await;
            }
        };
        world.tasks.spawn("flood", Box::pin(flood));
        world.clock.sleep_until(world.clock.now() + Duration::from_millis(700)).await;
        let beside = work(&world, &import).await;
        goes_on.store(false, Ordering::Relaxed);
        beside as f64 / alone as f64
    })
}

#[test]
fn a_client_whose_requests_never_end_costs_another_one_nothing() {
    let rate = beside(1, |raw| raw.send(Opcode::MDS_SET_INFO, order("hang", 0)));
    assert!(rate >= 0.9, "the rate is {rate} of what it was");
}

#[test]
fn a_client_that_asks_for_bulk_that_it_never_sends_costs_another_one_nothing() {
    let rate = beside(1, |raw| raw.send(Opcode::MDS_SET_INFO, order("put", 4 * MIB)));
    assert!(rate >= 0.9, "the rate is {rate} of what it was");
}

#[test]
fn a_flood_of_answered_requests_costs_another_one_no_more_than_a_tenth() {
    let rate = beside(1, |raw| raw.send(Opcode::OBD_PING, ObdPing::default()));
    assert!(rate >= 0.9, "the rate is {rate} of what it was");
}

#[test]
fn a_request_that_is_too_long_costs_its_sender_the_connection() {
    let network = Virtual::new(1, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let target = serve(&server, 500);
        let raw = Raw::connected(&world, nid(3), nid(1)).await;
        let long = |length: usize| {
            let key = Bytes::from_static(b"hang");
            MdsSetInfo {
                setinfo_key: key,
                setinfo_val: vec![0; length].into(),
                ..MdsSetInfo::default()
            }
        };
        raw.send(Opcode::MDS_SET_INFO, long(sheen_types::limits::MESSAGE_BYTES_MAX));
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!((server.refused(), target.executed.lock().len()), (1, 0));
        assert!(server.lnet().peers().is_empty(), "its connections are closed");
    });
}

#[test]
fn what_waits_of_a_flood_is_bounded_and_counted() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        server.budget().set(ServiceLimit::QueuedBytes, 1 << 20);
        server.budget().set(ServiceLimit::RequestsActive, 64);
        let raw = Raw::connected(&world, nid(3), nid(1)).await;
        (0..5_000).for_each(|_| raw.send(Opcode::MDS_SET_INFO, order("hang", 0)));
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(60)).await;
        let (running, waiting) = server.service_load();
        assert_eq!(running, 64);
        assert!((500..2_000).contains(&waiting), "{waiting} wait");
        assert_eq!(server.over_budget(), 5_000 - running as u64 - waiting as u64);
        // Cancels and pings are not behind those.
        let before = raw.answers.load(Ordering::Relaxed);
        raw.send(Opcode::OBD_PING, ObdPing::default());
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!(raw.answers.load(Ordering::Relaxed), before + 1);
    });
}

#[test]
fn bulk_that_is_under_way_is_bounded_and_all_of_it_comes() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        server.budget().set(ServiceLimit::BulkBytes, 8 * MIB);
        let client = node(world.clone(), nid(2), 988).await;
        let import = import(&client, vec![nid(1)]);
        import.connect().await.expect("it connects");
        let mut calls = Vec::new();
        for _ in 0..32 {
            let get = Call::new(order("get", 4 * MIB)).with_bulk(Bulk::Sink(4 * MIB));
            calls.push(import.call(get));
        }
        let (most, noted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (clock, note, lnet) =
            (Arc::clone(&world.clock), Arc::clone(&most), Arc::clone(server.lnet()));
        let ended = Arc::clone(&noted);
        let look = async move {
            while ended.load(Ordering::Relaxed) == 0 {
                note.fetch_max(lnet.backlog(nid(2)) as u64, Ordering::Relaxed);
                clock.sleep_until(clock.now() + Duration::from_micros(50)).await;
            }
        };
        world.tasks.spawn("look", Box::pin(look));
        // All are on their way before the first is waited for.
        std::future::poll_fn(|context| {
            calls.retain_mut(|call| match call.as_mut().poll(context) {
                std::task::Poll::Pending => true,
                std::task::Poll::Ready(answer) => {
                    assert_eq!(answer.expect("an answer").bulk_length(), 4 * MIB);
                    false
                }
            });
            if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        noted.store(1, Ordering::Relaxed);
        let most = most.load(Ordering::Relaxed) as usize;
        assert!((1..=17 * MIB).contains(&most), "{most} bytes waited");
    });
}

#[test]
fn bulk_that_never_comes_ends_its_request_unanswered_after_a_hundred_seconds() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        server.budget().set(ServiceLimit::BulkBytes, 4 * MIB);
        let raw = Raw::connected(&world, nid(3), nid(1)).await;
        let before = raw.answers.load(Ordering::Relaxed);
        raw.send(Opcode::MDS_SET_INFO, order("put", 4 * MIB));
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        raw.send(Opcode::MDS_SET_INFO, order("put", 4 * MIB));
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(98)).await;
        assert_eq!(server.service_load(), (2, 0), "one waits for bytes, one for room");
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(2)).await;
        assert_eq!(server.service_load(), (1, 0), "the first has ended and left its room");
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(100)).await;
        assert_eq!(server.service_load(), (0, 0));
        assert_eq!(raw.answers.load(Ordering::Relaxed), before, "nothing was answered");
    });
}

#[test]
fn a_client_that_has_very_many_requests_waiting_is_read_slowly_and_loses_none() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        server.budget().set(ServiceLimit::RequestsActive, 1);
        let raw = Raw::connected(&world, nid(3), nid(1)).await;
        (0..5_000).for_each(|_| raw.send(Opcode::MDS_SET_INFO, order("hang", 0)));
        world.clock.sleep_until(world.clock.now() + Duration::from_millis(20)).await;
        let (running, waiting) = server.service_load();
        // What one read brings comes besides, of each look.
        let most = limits::CLIENT_QUEUED_READ;
        assert!(running == 1 && (most..most * 2).contains(&waiting), "{waiting} wait");
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(10)).await;
        assert_eq!((server.service_load(), server.over_budget()), ((1, 4_999), 0), "none is lost");
    });
}

/// A peer that has connected and reads nothing more: what it sends with.
async fn deaf(world: &World, from: Nid, to: Nid) -> Connection {
    let server = SocketAddrV4::new(to.address(), 988);
    let local = SocketAddrV4::new(from.address(), 0);
    let mut connection = world.network.connect(local, server, false).await.expect("accepted");
    let own = Local { nid: from, incarnation: 1 };
    let (_, first) = Handshake::active(own, to, ConnectionType::ANY);
    say(&mut connection, &first.concat()).await;
    world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
    connection
}

async fn say(connection: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let pieces = [Bytes::copy_from_slice(bytes)];
        let written = poll_fn(|context| connection.writer.poll_write(context, &pieces)).await;
        bytes = &bytes[written.expect("the server reads")..];
    }
}

/// A request to the server's target, as bytes of a connection.
fn framed(from: Nid, to: Nid, number: u64, request: impl Into<Request>) -> Vec<u8> {
    let xid = MatchBits((1 << 40) + number * 64);
    let body = PtlrpcBody {
        handle: ObdHandle(500),
        kind: MsgType::REQUEST,
        version: MESSAGE_VERSION,
        opcode: Opcode::MDS_SET_INFO,
        conn_cnt: 1,
        timeout: 60,
        match_bits: xid,
        ..PtlrpcBody::default()
    };
    let bytes = request.into().to_bytes(&MessageHeader::default(), &body);
    let (ack_handle, portal) = (HANDLE_NONE, Portal::MDS_REQUEST);
    let put = Put { ack_handle, match_bits: xid, header_data: 0, portal, offset: 0 };
    let own = Local { nid: from, incarnation: 1 };
    let frame = sheen_lnet::message(own, to, LnetCommand::Put(put), vec![bytes]);
    std::iter::once(frame.head).chain(frame.payload).collect::<Vec<_>>().concat()
}

#[test]
fn a_client_that_takes_no_answers_is_answered_no_more_and_disconnected() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let target = serve(&server, 500);
        target.exports.lock().push(ObdHandle(500));
        // So that bulk is not what holds it up.
        server.budget().set(ServiceLimit::BulkBytes, 1 << 40);
        let mut connection = deaf(&world, nid(3), nid(1)).await;
        for number in 0..150 {
            say(&mut connection, &framed(nid(3), nid(1), number, order("get", MIB))).await;
            world.clock.sleep_until(world.clock.now() + Duration::from_millis(5)).await;
        }
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        let (most, waits) = (limits::CLIENT_BACKLOG_BYTES, server.lnet().backlog(nid(3)));
        assert!((most..most + 2 * MIB).contains(&waits), "{waits} bytes wait");
        assert!(server.over_budget() > 40, "{} were dropped", server.over_budget());
        // And not for ever.
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(60)).await;
        let is_gone = server.lnet().peers().iter().all(|peer| peer.kinds.is_empty());
        assert_eq!((server.lnet().backlog(nid(3)), is_gone), (0, true));
        // Nor is it remembered for ever that it was there.
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(120)).await;
        assert_eq!(server.lnet().peers(), []);
    });
}

/// A message of LNet's to a node, as bytes of a connection.
fn command(from: Nid, to: Nid, command: LnetCommand) -> Vec<u8> {
    let frame = sheen_lnet::message(Local { nid: from, incarnation: 1 }, to, command, Vec::new());
    std::iter::once(frame.head).chain(frame.payload).collect::<Vec<_>>().concat()
}

/// Replies, ACKs and answers to pings, whose requests cost little.
#[test]
fn what_a_peer_asks_for_and_does_not_take_is_dropped_beyond_its_budget() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let (one, three) = (nid(1), nid(3));
        let server = node(world.clone(), one, 988).await;
        let target = serve(&server, 500);
        target.exports.lock().push(ObdHandle(500));
        let mut connection = deaf(&world, three, one).await;
        let lnet = Arc::clone(server.lnet());
        let most = limits::CLIENT_BACKLOG_BYTES;
        let put = |bytes: usize| {
            let before = lnet.backlog(three);
            lnet.put(three, Portal::MDS_BULK, MatchBits(1), 0, vec![vec![0; bytes].into()]);
            lnet.backlog(three) - before
        };
        // The first ones fill the connection itself.
        while lnet.backlog(three) == 0 {
            put(MIB);
        }
        let head = put(MIB) - MIB;
        while lnet.backlog(three) + MIB < most {
            put(MIB / 2);
        }
        put(most - lnet.backlog(three) - head - 50);
        let waits = lnet.backlog(three);
        assert_eq!(waits, most - 50, "less than any answer is long");
        let portal = Portal::RESERVED;
        let ping = Get {
            reply_handle: WireHandle { interface: 1, object: 7 },
            match_bits: PING_MATCH_BITS,
            portal,
            offset: 0,
            length: 128,
            padding: 0,
        };
        let push = Put {
            ack_handle: WireHandle { interface: 1, object: 8 },
            match_bits: PING_MATCH_BITS,
            header_data: 0,
            portal,
            offset: 0,
        };
        say(&mut connection, &framed(three, one, 1, order("unknown", 0))).await;
        say(&mut connection, &command(three, one, LnetCommand::Get(ping))).await;
        say(&mut connection, &command(three, one, LnetCommand::Put(push))).await;
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!(target.executed.lock().len(), 1, "the request was taken");
        assert_eq!(lnet.counters().answers_dropped.load(Ordering::Relaxed), 3);
        assert_eq!(lnet.backlog(three), waits);
        // Those of another client are sent.
        let client = node(world.clone(), nid(2), 988).await;
        let import = import(&client, vec![one]);
        import.connect().await.expect("it connects");
        assert!(client.lnet().ping(one).await.is_ok());
    });
}

#[test]
fn a_peer_that_takes_nothing_of_too_much_loses_its_connection_and_another_keeps_its_own() {
    let network =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let server = node(world.clone(), nid(1), 988).await;
        let _target = serve(&server, 500);
        let client = node(world.clone(), nid(2), 988).await;
        let import = import(&client, vec![nid(1)]);
        import.connect().await.expect("it connects");
        let _connection = deaf(&world, nid(3), nid(1)).await;
        let part = Bytes::from(vec![0; MIB]);
        let most = sheen_lnet::limits::WAITING_BYTES_MAX / MIB;
        let send = |_| {
            server.lnet().put(nid(3), Portal::MDS_BULK, MatchBits(1), 0, vec![part.clone()]);
        };
        (0..most - 1).for_each(send);
        let backlogged = &server.lnet().counters().backlogged;
        assert_eq!(backlogged.load(Ordering::Relaxed), 0);
        (0..2).for_each(send);
        assert_eq!(backlogged.load(Ordering::Relaxed), 1);
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!(server.lnet().backlog(nid(3)), 0);
        let peers: Vec<Nid> = server.lnet().peers().iter().map(|peer| peer.nid).collect();
        assert_eq!(peers, [nid(2)]);
        import.call(Call::new(ObdPing::default())).await.expect("an answer");
    });
}
