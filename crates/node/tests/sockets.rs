//! Two LNets over real sockets of this machine.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sheen_io::{BoxFuture, Connection, Listener, Network};
use sheen_io_os::Host;
use sheen_node::net::{Delivery, LNet, NetConfig, NetError, Receiver};
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::Portal;

const PORT: u16 = 21988;
/// Longer than anything takes here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An address that no other test uses: by process and by call.
fn address() -> Nid {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let process = std::process::id();
    let [high, low] = (process as u16).to_be_bytes();
    let call = NEXT.fetch_add(1, Ordering::Relaxed) as u8;
    Nid::tcp(Ipv4Addr::new(127, 100u8.wrapping_add(high % 100), low, call))
}

fn start(host: &Host) -> Arc<LNet> {
    host.block_on(LNet::start(host.world(), NetConfig::new(address(), PORT))).unwrap()
}

fn sleep(host: &Host, milliseconds: u64) {
    let clock = host.world().clock;
    host.block_on(clock.sleep_until(clock.now() + Duration::from_millis(milliseconds)));
}

fn wait_until(host: &Host, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = host.world().clock.now();
    while !holds() {
        assert!(
            host.world().clock.now().since(begin) < PATIENCE,
            "{what}: not so for {PATIENCE:?}"
        );
        sleep(host, 10);
    }
}

/// Sends every message back to portal + 1.
struct Echo(Arc<LNet>);

impl Receiver for Echo {
    fn receive(&self, delivery: Delivery) {
        let portal = Portal(delivery.portal.0 + 1);
        let payload = vec![delivery.payload];
        self.0.put(delivery.from, portal, delivery.bits, delivery.header_data, payload);
    }
}

#[test]
fn messages_of_all_sizes_come_back() {
    let host = Host::start(Some(2)).unwrap();
    let (one, two) = (start(&host), start(&host));
    two.serve(Portal::MDS_REQUEST, Arc::new(Echo(Arc::clone(&two))));
    for (at, length) in [0, 1, 400, 1000, 4096, 16384, 16385, 70_000, 1 << 20].iter().enumerate() {
        let bits = MatchBits(at as u64);
        let payload = Bytes::from((0..*length).map(|byte| byte as u8).collect::<Vec<_>>());
        let reply = one.expect_put(two.nid(), Portal::MDS_IO, bits, 1 << 20);
        one.put(two.nid(), Portal::MDS_REQUEST, bits, 77, vec![payload.clone()]);
        let delivery = host.block_on(reply).unwrap();
        assert_eq!((delivery.from, delivery.bits, delivery.header_data), (two.nid(), bits, 77));
        assert_eq!(delivery.payload, payload, "{length} bytes");
    }
    let peers = one.peers();
    assert_eq!((peers.len(), peers[0].kinds.len()), (1, 3));
    one.shutdown();
    two.shutdown();
}

#[test]
fn bulk_is_fetched_and_pings_are_answered() {
    let host = Host::start(Some(2)).unwrap();
    let (client, server) = (start(&host), start(&host));
    let pieces = vec![Bytes::from(vec![1; 100_000]), Bytes::from(vec![2; 50_000])];
    let offer = client.offer_get(server.nid(), Portal::OST_BULK, MatchBits(9), pieces.clone());
    let fetch = server.get(client.nid(), Portal::OST_BULK, MatchBits(9), 1 << 20);
    assert_eq!(host.block_on(fetch).unwrap(), pieces.concat());
    host.block_on(offer).unwrap();
    for nid in [server.nid(), client.nid()] {
        assert_eq!(host.block_on(client.ping(nid)), Ok(vec![Nid::LOOPBACK, nid]));
    }
    // Its own node, by both names.
    client.serve(Portal::MDS_REQUEST, Arc::new(Echo(Arc::clone(&client))));
    for nid in [client.nid(), Nid::LOOPBACK] {
        let reply = client.expect_put(nid, Portal::MDS_IO, MatchBits(1), 10);
        client.put(nid, Portal::MDS_REQUEST, MatchBits(1), 0, vec![Bytes::from_static(b"me")]);
        assert_eq!(host.block_on(reply).unwrap().payload, "me");
    }
    client.shutdown();
    server.shutdown();
}

#[test]
fn a_peer_that_is_not_there_is_reported_and_found_when_it_comes() {
    let host = Host::start(Some(2)).unwrap();
    let one = start(&host);
    let there = address();
    let (sender, receiver) = std::sync::mpsc::channel();
    one.watch_peer_down(Arc::new(move |nid| sender.send(nid).unwrap()));
    assert_eq!(host.block_on(one.ping(there)), Err(NetError::PeerDown(there)));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(there));
    let two = host.block_on(LNet::start(host.world(), NetConfig::new(there, PORT))).unwrap();
    let found = (0..50).any(|_| {
        sleep(&host, 50);
        host.block_on(one.ping(there)).is_ok()
    });
    assert!(found);
    // And when it goes and comes again.
    two.shutdown();
    drop(two);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(there));
    let again = (0..50).find_map(|_| {
        sleep(&host, 20);
        host.block_on(LNet::start(host.world(), NetConfig::new(there, PORT))).ok()
    });
    let two = again.expect("the port is free again");
    let found = (0..50).any(|_| {
        sleep(&host, 50);
        host.block_on(one.ping(there)).is_ok()
    });
    assert!(found);
    one.shutdown();
    two.shutdown();
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let host = Host::start(Some(1)).unwrap();
    let one = start(&host);
    let taken = host.block_on(LNet::start(host.world(), NetConfig::new(one.nid(), PORT)));
    let text = taken.unwrap_err().to_string();
    let address = one.nid().address();
    assert_eq!(text, format!("cannot listen on {address}:{PORT}: the port is taken"));
    let elsewhere = Nid::tcp(Ipv4Addr::new(192, 0, 2, 1));
    let absent = host.block_on(LNet::start(host.world(), NetConfig::new(elsewhere, PORT)));
    let text = absent.unwrap_err().to_string();
    assert_eq!(
        text,
        format!("cannot listen on 192.0.2.1:{PORT}: this machine does not have that address")
    );
    one.shutdown();
}

#[test]
fn garbage_costs_its_sender_the_connection_and_other_peers_nothing() {
    use std::io::{Read, Write};
    let host = Host::start(Some(2)).unwrap();
    let (one, two) = (start(&host), start(&host));
    assert!(host.block_on(one.ping(two.nid())).is_ok());
    // A ping needs one of them; they are opened one after the other.
    wait_until(&host, "three connections", || one.peers()[0].kinds.len() == 3);
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 100], &[0xff; 5000]] {
        let mut stranger = std::net::TcpStream::connect((two.nid().address(), PORT)).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        match stranger.read_to_end(&mut answer) {
            Ok(_) => assert!(answer.is_empty()),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    let counters = two.counters();
    let counted = [&counters.protocol_errors, &counters.unused];
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [3, 0]);
    assert!(host.block_on(one.ping(two.nid())).is_ok());
    assert_eq!(one.peers()[0].kinds.len(), 3);
    one.shutdown();
    two.shutdown();
}

#[test]
fn a_secure_node_takes_only_peers_that_needed_privilege() {
    let host = Host::start(Some(2)).unwrap();
    let start = |config| host.block_on(LNet::start(host.world(), config)).unwrap();
    let server = start(NetConfig { secure: true, ..NetConfig::new(address(), PORT) });
    let user = start(NetConfig { privileged: false, ..NetConfig::new(address(), PORT) });
    let root = start(NetConfig::new(address(), PORT));
    let refused = (0..50).any(|_| {
        assert_eq!(host.block_on(user.ping(server.nid())), Err(NetError::PeerDown(server.nid())));
        sleep(&host, 50);
        user.refused_as_insecure() == Some(server.nid())
    });
    assert!(refused, "it learns why");
    // Where these tests do not run as root, no thread here has privilege.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(host.block_on(root.ping(server.nid())).is_ok(), is_root);
    assert_eq!(server.peers().len(), usize::from(is_root));
    for node in [server, user, root] {
        node.shutdown();
    }
}

#[test]
fn a_users_process_does_not_take_the_place_of_one_with_privilege() {
    if !sheen_skip::needs_root() {
        return;
    }
    let host = Host::start(Some(2)).unwrap();
    let (server, node) = (start(&host), start(&host));
    assert!(host.block_on(node.ping(server.nid())).is_ok());
    let (sender, receiver) = std::sync::mpsc::channel();
    node.watch_peer_down(Arc::new(move |nid| sender.send(nid).unwrap()));
    // From the same address, as every user of the machine can.
    let config = NetConfig { listen: false, privileged: false, ..NetConfig::new(node.nid(), PORT) };
    let thief = host.block_on(LNet::start(host.world(), config)).unwrap();
    assert_eq!(host.block_on(thief.ping(server.nid())), Err(NetError::PeerDown(server.nid())));
    assert!(host.block_on(node.ping(server.nid())).is_ok());
    assert_eq!(receiver.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    for node in [server, node, thief] {
        node.shutdown();
    }
}

/// Connects from another address than the node's.
struct Elsewhere(Arc<dyn Network>, Ipv4Addr);

impl Network for Elsewhere {
    fn listen(&self, at: SocketAddrV4) -> BoxFuture<'static, std::io::Result<Box<dyn Listener>>> {
        self.0.listen(at)
    }

    fn connect(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, std::io::Result<Connection>> {
        self.0.connect(SocketAddrV4::new(self.1, from.port()), to, privileged)
    }
}

/// Reports who sent what, whether that is proven, and whose budget it uses up.
struct Witness(std::sync::mpsc::Sender<(Nid, bool, Nid)>);

impl Receiver for Witness {
    fn receive(&self, delivery: Delivery) {
        self.0.send((delivery.from, delivery.is_proven, delivery.account)).unwrap();
    }
}

#[test]
fn a_nid_that_is_not_the_address_is_only_claimed_and_goes_when_its_owner_comes() {
    if !sheen_skip::needs_root() {
        return;
    }
    let host = Host::start(Some(2)).unwrap();
    let begin = |world, config| host.block_on(LNet::start(world, config)).unwrap();
    let server = start(&host);
    let believes_nids = true;
    let config = NetConfig { believes_nids, ..NetConfig::new(address(), PORT) };
    let believing = begin(host.world(), config);
    let (sender, receiver) = std::sync::mpsc::channel();
    server.serve(Portal::MDS_REQUEST, Arc::new(Witness(sender.clone())));
    believing.serve(Portal::MDS_REQUEST, Arc::new(Witness(sender)));
    let say = |from: &Arc<LNet>, to: &Arc<LNet>| {
        from.put(to.nid(), Portal::MDS_REQUEST, MatchBits(1), 0, vec![Bytes::from_static(b"x")]);
        receiver.recv_timeout(Duration::from_secs(10)).expect("it comes")
    };
    let owner = address();
    let quiet = || NetConfig { listen: false, ..NetConfig::new(owner, PORT) };
    let mut world = host.world();
    let elsewhere = address();
    world.network = Arc::new(Elsewhere(Arc::clone(&world.network), elsewhere.address()));
    let liar = begin(world.clone(), quiet());
    assert_eq!(say(&liar, &server), (owner, false, elsewhere));
    assert_eq!(say(&liar, &believing), (owner, true, owner), "as it is configured");
    // The owner of the address takes its NID; who only claims it comes no more.
    let (gone, went) = std::sync::mpsc::channel();
    liar.watch_peer_down(Arc::new(move |nid| {
        let _ = gone.send(nid);
    }));
    let honest = begin(host.world(), quiet());
    assert_eq!(say(&honest, &server), (owner, true, owner));
    assert_eq!(went.recv_timeout(Duration::from_secs(10)), Ok(server.nid()));
    let again = begin(world, quiet());
    assert!(host.block_on(again.ping(server.nid())).is_err());
    assert_eq!(say(&honest, &server), (owner, true, owner));
    for node in [server, believing, liar, honest, again] {
        node.shutdown();
    }
}

#[test]
fn nodes_meet_in_a_folder_without_any_port() {
    let host = Host::start(Some(2)).unwrap();
    let path = std::env::temp_dir().join(format!("sheen-node-folder-{}", std::process::id()));
    let folder = sheen_io_os::SocketFolder::create(&path).unwrap();
    let start = |nid| {
        host.block_on(async {
            let world = sheen_io_os::with_sockets(&host.world(), folder.clone(), false);
            let config = NetConfig { secure: true, ..NetConfig::new(nid, PORT) };
            LNet::start(world, config).await.unwrap()
        })
    };
    let (one, two) = (start(address()), start(address()));
    two.serve(Portal::MDS_REQUEST, Arc::new(Echo(Arc::clone(&two))));
    let payload = Bytes::from((0..1 << 20).map(|byte| byte as u8).collect::<Vec<_>>());
    let reply = one.expect_put(two.nid(), Portal::MDS_IO, MatchBits(1), 1 << 20);
    one.put(two.nid(), Portal::MDS_REQUEST, MatchBits(1), 7, vec![payload.clone()]);
    assert_eq!(host.block_on(reply).unwrap().payload, payload);
    assert_eq!(host.block_on(two.ping(one.nid())), Ok(vec![Nid::LOOPBACK, one.nid()]));
    for node in [&one, &two] {
        assert!(std::net::TcpStream::connect((node.nid().address(), PORT)).is_err());
        node.shutdown();
    }
    drop((one, two));
    std::fs::remove_dir_all(path).unwrap();
}
