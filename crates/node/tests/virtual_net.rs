//! LNets in virtual time, on networks that delay, cut up, overtake and break.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sheen_io::{World, within};
use sheen_node::net::{Delivery, LNet, NetConfig, Receiver};
use sheen_types::{MatchBits, Nid};
use sheen_vnet::{NetworkConditions, Virtual, for_seeds};
use sheen_wire::lnet::{AcceptorRequest, Portal};

const PORT: u16 = 988;

fn nid(last: u8) -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 0, 0, last))
}

fn start(world: &Virtual, last: u8) -> Arc<LNet> {
    world.run(LNet::start(world.world(), NetConfig::new(nid(last), PORT))).unwrap()
}

/// What a message under these bits carries.
fn content(bits: u64, length: usize) -> Bytes {
    let block: Vec<u8> = (0..251u64).flat_map(|at| (at ^ bits << 8).to_le_bytes()).collect();
    let mut whole = block.repeat(length / block.len() + 1);
    whole.truncate(length);
    whole.into()
}

/// Answers with content of its own and the request's length, and checks the request's.
struct Answerer {
    lnet: Arc<LNet>,
    wrong: AtomicU64,
}

impl Receiver for Answerer {
    fn receive(&self, delivery: Delivery) {
        let (bits, length) = (delivery.bits.0, delivery.payload.len());
        if delivery.payload != content(bits, length) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        let answer = vec![content(!bits, length)];
        self.lnet.put(delivery.from, Portal::MDC_REPLY, delivery.bits, 0, answer);
    }
}

fn serve(lnet: &Arc<LNet>) -> Arc<Answerer> {
    let answerer = Arc::new(Answerer { lnet: Arc::clone(lnet), wrong: AtomicU64::new(0) });
    lnet.serve(Portal::MDS_REQUEST, Arc::clone(&answerer) as _);
    answerer
}

/// Asks until it is answered, as an RPC would; how often it asked.
async fn ask(lnet: &Arc<LNet>, world: &World, to: Nid, bits: u64, length: usize) -> u64 {
    for attempt in 1.. {
        let bits = bits << 16 | attempt;
        let portal = Portal::MDC_REPLY;
        let reply = lnet.expect_put(to, portal, MatchBits(bits), 1 << 20);
        lnet.put(to, Portal::MDS_REQUEST, MatchBits(bits), 0, vec![content(bits, length)]);
        if let Some(reply) = within(&*world.clock, Duration::from_secs(2), reply).await {
            assert_eq!(reply.expect("LNet lives").payload, content(!bits, length));
            return attempt;
        }
    }
    unreachable!("asks on")
}

/// Three nodes that all ask each other; how long it took, and how many questions were lost.
fn storm(seed: u64, conditions: NetworkConditions) -> (u64, u64) {
    let world = Virtual::new(seed, conditions.clone());
    let nodes: Vec<_> = (1..=3).map(|last| start(&world, last)).collect();
    let answerers: Vec<_> = nodes.iter().map(serve).collect();
    let (left, lost) = (Rc::new(RefCell::new(0)), Arc::new(AtomicU64::new(0)));
    let done = Arc::new(Mutex::new(0));
    for (from, node) in nodes.iter().enumerate() {
        for to in (0..3).filter(|to| *to != from) {
            let (node, to, io) = (Arc::clone(node), nodes[to].nid(), world.world());
            let (lost, done) = (Arc::clone(&lost), Arc::clone(&done));
            let lengths: Vec<usize> = (0..25)
                .map(|_| match world.random().below(5) {
                    0 => world.random().below(conditions.window as u64 * 4) as usize,
                    1 => world.random().below(20_000) as usize,
                    _ => world.random().below(900) as usize,
                })
                .collect();
            *left.borrow_mut() += 1;
            world.world().tasks.spawn(
                "asker",
                Box::pin(async move {
                    for (at, length) in lengths.into_iter().enumerate() {
                        let bits = (from as u64) << 32 | at as u64;
                        let attempts = ask(&node, &io, to, bits, length).await;
                        lost.fetch_add(attempts - 1, Ordering::Relaxed);
                    }
                    *done.lock() += 1;
                }),
            );
        }
    }
    while *done.lock() < *left.borrow() {
        world.pass(Duration::from_millis(100));
    }
    assert!(answerers.iter().all(|answerer| answerer.wrong.load(Ordering::Relaxed) == 0));
    for node in &nodes {
        assert_eq!(node.counters().protocol_errors.load(Ordering::Relaxed), 0);
        node.shutdown();
    }
    (world.now().0, lost.load(Ordering::Relaxed))
}

#[test]
fn on_a_calm_network_nothing_is_lost() {
    for_seeds(40, |seed| assert_eq!(storm(seed, NetworkConditions::default()).1, 0));
}

#[test]
fn on_a_breaking_network_a_resent_request_is_answered_and_nothing_is_mixed_up() {
    let conditions = NetworkConditions {
        delay_max: Duration::from_millis(3),
        break_one_in: 300,
        window: 40_000,
        ..NetworkConditions::default()
    };
    let lost = AtomicU64::new(0);
    for_seeds(40, |seed| {
        lost.fetch_add(storm(seed, conditions.clone()).1, Ordering::Relaxed);
    });
    assert!(lost.load(Ordering::Relaxed) > 0, "the network broke nothing");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let conditions = NetworkConditions { break_one_in: 100, ..NetworkConditions::default() };
    for_seeds(3, |seed| {
        assert_eq!(storm(seed, conditions.clone()), storm(seed, conditions.clone()));
    });
}

#[test]
fn both_sides_connecting_at_once_end_with_working_connections() {
    for_seeds(40, |seed| {
        let conditions = NetworkConditions {
            delay_max: Duration::from_millis(5),
            ..NetworkConditions::default()
        };
        let world = Virtual::new(seed, conditions);
        let (one, two) = (start(&world, 1), start(&world, 2));
        let _answerers = (serve(&one), serve(&two));
        for (bits, (from, to)) in [(&one, &two), (&two, &one)].into_iter().enumerate() {
            let (from, to, io) = (Arc::clone(from), to.nid(), world.world());
            let asks = async move {
                assert_eq!(ask(&from, &io, to, bits as u64, 100).await, 1);
            };
            world.world().tasks.spawn("ask", Box::pin(asks));
        }
        world.pass(Duration::from_secs(4));
        for node in [&one, &two] {
            let peers = node.peers();
            assert_eq!(peers.len(), 1);
            let peer = &peers[0];
            assert!(!peer.connecting && peer.waiting == 0, "{peer:?}");
            let mut kinds = peer.kinds.clone();
            kinds.sort();
            kinds.dedup();
            assert_eq!(kinds.len(), 3, "{peer:?}");
            assert_eq!(node.counters().send_dropped.load(Ordering::Relaxed), 0);
        }
        one.shutdown();
        two.shutdown();
    });
}

#[test]
fn a_peer_that_is_cut_off_is_reported_and_answers_when_it_is_back() {
    for_seeds(10, |seed| {
        let world = Virtual::new(seed, NetworkConditions::default());
        let (one, two) = (start(&world, 1), start(&world, 2));
        let _answerer = serve(&two);
        let down = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&down);
        one.watch_peer_down(Arc::new(move |peer| {
            assert_eq!(peer, nid(2));
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let asking = |bits| {
            let (one, io) = (Arc::clone(&one), world.world());
            async move { ask(&one, &io, nid(2), bits, 2000).await }
        };
        assert_eq!(world.run(asking(1)), 1);
        assert_eq!(down.load(Ordering::Relaxed), 0);
        world.set_cut_off(nid(2).address(), true);
        world.pass(Duration::from_secs(1));
        assert!(down.load(Ordering::Relaxed) >= 1);
        // A fetch from it fails at once, not by patience.
        let before = world.now();
        let fetch = one.get(nid(2), Portal::OST_BULK, MatchBits(1), 10);
        assert!(world.run(fetch).is_err());
        assert!(world.now().since(before) < Duration::from_secs(1));
        world.set_cut_off(nid(2).address(), false);
        let attempts = world.run(asking(2));
        assert!(attempts <= 4, "{attempts} attempts");
        one.shutdown();
        two.shutdown();
    });
}

#[test]
fn a_peer_that_cannot_be_reached_is_reported_once_however_much_was_for_it() {
    let world = Virtual::new(1, NetworkConditions::default());
    let one = start(&world, 1);
    let down = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&down);
    one.watch_peer_down(Arc::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
    world.set_cut_off(nid(2).address(), true);
    // More than waits for a connection.
    let bulk = Bytes::from(vec![0; 1 << 20]);
    let flood = |count: u64| {
        for bits in 0..count {
            one.put(nid(2), Portal::MDS_REQUEST, MatchBits(bits), 0, vec![bulk.clone()]);
        }
        world.pass(Duration::from_secs(1));
        down.swap(0, Ordering::Relaxed)
    };
    let of_one = flood(1);
    let of_many = flood(5000);
    assert!((1..10).contains(&of_one), "{of_one}");
    assert!(of_many <= of_one + 1, "{of_many} reports of 5000 messages, {of_one} of one");
    one.shutdown();
}

#[test]
fn a_restarted_peer_is_known_as_such() {
    for_seeds(10, |seed| {
        let world = Virtual::new(seed, NetworkConditions::default());
        let one = start(&world, 1);
        for life in 1..4 {
            let two = start(&world, 2);
            let _answerer = serve(&two);
            let (from, io) = (Arc::clone(&one), world.world());
            let attempts = world.run(async move { ask(&from, &io, nid(2), life, 3000).await });
            assert!(attempts <= 2, "life {life}: {attempts} attempts");
            world.pass(Duration::from_secs(1));
            two.shutdown();
            world.pass(Duration::from_secs(1));
        }
        one.shutdown();
    });
}

#[test]
fn idle_connections_stay_and_early_replies_do_not_use_up_an_expectation() {
    let world = Virtual::new(5, NetworkConditions::default());
    let (one, two) = (start(&world, 1), start(&world, 2));
    let mut replies = one.expect_puts(nid(2), Portal::MDC_REPLY, MatchBits(3), 100);
    for text in ["early", "final"] {
        two.put(
            nid(1),
            Portal::MDC_REPLY,
            MatchBits(3),
            0,
            vec![Bytes::from_static(text.as_bytes())],
        );
    }
    let texts = world.run(async move {
        let early = replies.next().await.unwrap().payload;
        (early, replies.next().await.unwrap().payload)
    });
    assert_eq!(texts, (Bytes::from_static(b"early"), Bytes::from_static(b"final")));
    world.pass(Duration::from_secs(1));
    let sent = two.peers()[0].kinds.clone();
    world.pass(Duration::from_secs(3600));
    assert_eq!(two.peers()[0].kinds, sent);
    // No receiver expects it any more.
    two.put(nid(1), Portal::MDC_REPLY, MatchBits(3), 0, vec![]);
    world.pass(Duration::from_secs(1));
    assert_eq!(one.counters().receive_dropped.load(Ordering::Relaxed), 1);
    one.shutdown();
    two.shutdown();
}

/// Opens a TCP connection, says `first` and then nothing.
async fn half_open(io: &World, from: Nid, to: Nid, first: &[u8]) -> sheen_io::Connection {
    let local = SocketAddrV4::new(from.address(), 0);
    let server = SocketAddrV4::new(to.address(), PORT);
    let mut connection = io.network.connect(local, server, false).await.expect("it is accepted");
    if !first.is_empty() {
        let pieces = [Bytes::copy_from_slice(first)];
        let written = poll_fn(|context| connection.writer.poll_write(context, &pieces)).await;
        assert_eq!(written.expect("it is taken"), first.len());
    }
    connection
}

/// Whether the other side has closed it.
async fn is_closed(io: &World, connection: &mut sheen_io::Connection) -> bool {
    let mut buffer = BytesMut::with_capacity(64);
    let read = poll_fn(|context| connection.reader.poll_read(context, &mut buffer));
    let read = within(&*io.clock, Duration::from_millis(1), read).await;
    matches!(read, Some(Ok(0) | Err(_)))
}

#[test]
fn connections_that_say_nothing_are_few_and_end_and_another_node_connects_beside_them() {
    let world =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let (server, good) = (start(&world, 1), start(&world, 2));
    let answerer = serve(&server);
    let io = world.world();
    let unused = || server.counters().unused.load(Ordering::Relaxed);
    let most = sheen_lnet::limits::OPENINGS_PER_ADDRESS;
    world.run({
        let (io, to) = (io.clone(), server.nid());
        async move {
            let request = AcceptorRequest { version: 1, target: to }.encode();
            let halves: [&[u8]; 3] = [b"", &request[..3], &request];
            let mut open = Vec::new();
            for at in 0..3 * most {
                open.push(half_open(&io, nid(9), to, halves[at % 3]).await);
            }
            assert_eq!(ask(&good, &io, to, 1, 100).await, 1, "another node is answered");
            let mut closed = 0;
            for connection in &mut open {
                closed += usize::from(is_closed(&io, connection).await);
            }
            assert_eq!(closed, 2 * most, "so many are kept");
            io.clock.sleep_until(io.clock.now() + Duration::from_secs(6)).await;
            for connection in &mut open {
                assert!(is_closed(&io, connection).await, "none for long");
            }
            let again = half_open(&io, nid(9), to, b"").await;
            assert!(!is_closed(&io, &mut { again }).await, "and there is room again");
        }
    });
    assert_eq!(unused(), 2 * most as u64);
    // From many addresses.
    world.run({
        let (io, to) = (io.clone(), server.nid());
        async move {
            let all = sheen_lnet::limits::OPENINGS_MAX;
            let mut open = Vec::new();
            for at in 0..2 * all {
                let from = Nid::tcp(Ipv4Addr::new(10, 1, (at >> 8) as u8, at as u8));
                open.push(half_open(&io, from, to, b"").await);
            }
            let late = LNet::start(io.clone(), NetConfig::new(nid(3), PORT)).await.expect("free");
            assert_eq!(ask(&late, &io, to, 2, 100).await, 1, "a new node is answered");
        }
    });
    let all = sheen_lnet::limits::OPENINGS_MAX as u64;
    assert!(
        (all..all + 10).contains(&(unused() - 2 * most as u64)),
        "{} were disconnected",
        unused()
    );
    assert_eq!(answerer.wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn peers_that_came_for_nothing_are_disconnected_and_those_that_are_used_are_not() {
    let world =
        Virtual::new(1, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let (server, idle, used) = (start(&world, 1), start(&world, 2), start(&world, 3));
    let _answerer = serve(&server);
    server.close_unless(Arc::new(|peer| peer == nid(3)));
    let io = world.world();
    for (at, node) in [&idle, &used].into_iter().enumerate() {
        let (node, io, to) = (Arc::clone(node), io.clone(), server.nid());
        world.run(async move { assert_eq!(ask(&node, &io, to, at as u64, 100).await, 1) });
    }
    assert_eq!(server.peers().len(), 2);
    world.pass(Duration::from_secs(50));
    assert_eq!(server.peers().len(), 2, "it has time");
    world.pass(Duration::from_secs(20));
    let left: Vec<Nid> = server.peers().into_iter().map(|peer| peer.nid).collect();
    assert_eq!(left, [nid(3)]);
    assert_eq!(server.counters().unused.load(Ordering::Relaxed), 3);
    // It may come again.
    let to = server.nid();
    world.run(async move { assert_eq!(ask(&idle, &io, to, 7, 100).await, 1) });
}

/// A peer with many idle connections takes neither the files of the process nor the room of other peers.
#[test]
fn connections_have_a_share_of_the_processs_files_and_unused_ones_go_first() {
    const MOST: usize = 40;
    let world =
        Virtual::new(2, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let config = NetConfig { connections_max: MOST, ..NetConfig::new(nid(1), PORT) };
    let server = world.run(LNet::start(world.world(), config)).unwrap();
    let _answerer = serve(&server);
    server.close_unless(Arc::new(|peer| peer.address().octets()[3] < 5));
    let io = world.world();
    let open = |server: &LNet| server.peers().iter().map(|peer| peer.kinds.len()).sum::<usize>();
    let early = start(&world, 2);
    let (node, there, to) = (Arc::clone(&early), io.clone(), server.nid());
    world.run(async move { assert_eq!(ask(&node, &there, to, 1, 100).await, 1) });
    let strangers: Vec<_> = (20..60).map(|last| start(&world, last)).collect();
    for _ in 0..20 {
        strangers.iter().for_each(|stranger| drop(stranger.ping(server.nid())));
        world.pass(Duration::from_millis(500));
        assert!(open(&server) <= MOST, "{} are open", open(&server));
    }
    // Another that is wanted comes in among them, and the first one was never closed.
    let late = start(&world, 3);
    let mut attempts = 0;
    for round in 0..20 {
        strangers.iter().for_each(|stranger| drop(stranger.ping(server.nid())));
        let (node, there) = (Arc::clone(&late), io.clone());
        attempts += world.run(async move { ask(&node, &there, to, 100 + round, 100).await });
        world.pass(Duration::from_millis(500));
    }
    assert!(attempts <= 30, "{attempts} attempts for 20 answers");
    let is_up = server.peers().iter().any(|peer| peer.nid == nid(2) && peer.kinds.len() == 3);
    assert!(is_up && server.counters().unused.load(Ordering::Relaxed) > 0);
}
