//! What passes between an import and a peer that claims to be the server.

use std::io;
use std::net::SocketAddrV4;

use parking_lot::Mutex;
use sheen_io::{Connection, Listener, Network};
use sheen_rpc::budget::ServiceLimit;
use sheen_rpc::limits::{XID_STEP, first_xid};
use sheen_rpc::reply_portal;
use sheen_types::Instant;
use sheen_wire::messages::{ObdPingReply, Reply};
use sheen_wire::ptlrpc::{MESSAGE_VERSION, MessageHeader, MsgType, PtlrpcBody};

use super::*;

/// Where any user may listen.
const OPEN_PORT: u16 = 20_988;

fn nid(last: u8) -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 0, 0, last))
}

async fn sleep(world: &World, time: Duration) {
    world.clock.sleep_until(world.clock.now() + time).await;
}

/// Connects from another address than the node's.
struct Elsewhere(Arc<dyn Network>, Ipv4Addr);

impl Network for Elsewhere {
    fn listen(&self, at: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        self.0.listen(at)
    }

    fn connect(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        self.0.connect(SocketAddrV4::new(self.1, from.port()), to, privileged)
    }
}

/// A node with privilege at another address than `claimed`, which it says it has.
async fn liar(world: &World, claimed: Nid) -> Arc<RpcNode> {
    let mut world = world.clone();
    world.network = Arc::new(Elsewhere(Arc::clone(&world.network), nid(66).address()));
    let config = NetConfig { listen: false, ..NetConfig::new(claimed, 988) };
    let lnet = LNet::start(world.clone(), config).await.unwrap();
    RpcNode::start(world, lnet)
}

async fn until(world: &World, is_so: impl Fn() -> bool) -> bool {
    for _ in 0..600 {
        if is_so() {
            return true;
        }
        sleep(world, Duration::from_millis(100)).await;
    }
    false
}

/// Says to each request that `client` can have sent so far that it failed.
fn forge(liar: &RpcNode, client: Nid, begun: Instant, world: &World) {
    let wall = world.clock.wall();
    let wall = Duration::new(wall.seconds as u64, wall.nanoseconds);
    let first = first_xid(wall - world.clock.now().since(begun)).0;
    let body = PtlrpcBody {
        kind: MsgType::ERR,
        version: MESSAGE_VERSION,
        opcode: Opcode::MDS_CONNECT,
        status: -i32::from(Errno::EPERM.0),
        ..PtlrpcBody::default()
    };
    let bytes = Reply::from(ObdPingReply::default()).to_bytes(&MessageHeader::default(), &body);
    for number in 0..64 {
        let bits = MatchBits(first + number * XID_STEP);
        liar.lnet().put(client, reply_portal(Portal::MDS_REQUEST), bits, 0, vec![bytes.clone()]);
    }
}

/// Once while nothing listens at the server's address, and once while a connection there is waited for.
#[test]
fn an_import_asks_and_believes_no_node_that_only_claims_the_servers_nid() {
    for silent in [false, true] {
        let network = Virtual::new(5, NetworkConditions::default());
        let world = network.world();
        network.run(async move {
            let (server, client) = (nid(9), nid(2));
            let begun = world.clock.now();
            let mut listener = None;
            if silent {
                let at = SocketAddrV4::new(server.address(), 988);
                listener = Some(world.network.listen(at).await.unwrap());
            }
            let mount = node(world.clone(), client, 988).await;
            let import = import(&mount, vec![server]);
            let liar = liar(&world, server).await;
            let false_target = serve(&liar, 700);
            let outcome = Arc::new(Mutex::new(None));
            let (connecting, writer) = (import.connect(), Arc::clone(&outcome));
            let task = async move {
                let result = connecting.await;
                *writer.lock() = Some(result);
            };
            world.tasks.spawn("connect", Box::pin(task));
            for _ in 0..20 {
                drop(liar.lnet().ping(client));
                forge(&liar, client, begun, &world);
                sleep(&world, Duration::from_secs(1)).await;
            }
            assert!(outcome.lock().is_none(), "it was answered {:?}", outcome.lock());
            assert!(false_target.clients.lock().is_empty(), "it was asked");
            // When the server comes it is found beside the other.
            drop(listener);
            let honest = node(world.clone(), server, 988).await;
            let target = serve(&honest, 500);
            assert!(until(&world, || import.state() == ImportState::Full).await);
            assert_eq!(target.clients.lock().len(), 1);
            import.call(Call::new(ObdPing::default())).await.unwrap();
            assert!(false_target.clients.lock().is_empty());
        });
    }
}

/// What is offered to a server's bulk is not given to another.
#[test]
fn bytes_for_a_server_are_not_fetched_under_its_nid() {
    let network = Virtual::new(6, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (server, client) = (nid(9), nid(2));
        let mount = node(world.clone(), client, 988).await;
        let pieces = vec![Bytes::from_static(b"bytes")];
        let _offer = mount.lnet().offer_get(server, Portal::OST_BULK, MatchBits(9), pieces);
        let fetch = async |from: &Arc<RpcNode>| {
            let fetch = from.lnet().get(client, Portal::OST_BULK, MatchBits(9), 100);
            let (got, later) = (Arc::new(Mutex::new(None)), sleep(&world, Duration::from_secs(5)));
            let writer = Arc::clone(&got);
            let task = async move {
                let bytes = fetch.await.ok();
                *writer.lock() = bytes;
            };
            world.tasks.spawn("fetch", Box::pin(task));
            later.await;
            got.lock().take()
        };
        let liar = liar(&world, server).await;
        assert_eq!(fetch(&liar).await, None);
        let honest = node(world.clone(), server, 988).await;
        assert_eq!(fetch(&honest).await.as_deref(), Some(&b"bytes"[..]));
    });
}

/// What a peer has for NIDs that it only claims is of its address: of all of them together, and of no owner's.
#[test]
fn a_nid_that_is_claimed_costs_its_owner_nothing() {
    let network =
        Virtual::new(8, NetworkConditions { chunks: false, ..NetworkConditions::default() });
    let world = network.world();
    network.run(async move {
        let (server, owner) = (nid(9), nid(3));
        let serving = node(world.clone(), server, 988).await;
        let _target = serve(&serving, 500);
        serving.budget().set(ServiceLimit::RequestsActive, 8);
        serving.budget().set(ServiceLimit::BulkBytes, 4 * MIB);
        let liars = [liar(&world, owner).await, liar(&world, nid(4)).await];
        let imports = liars.each_ref().map(|liar| import(liar, vec![server]));
        for import in &imports {
            import.connect().await.unwrap();
        }
        for import in &imports {
            for _ in 0..20 {
                let hangs = import.call(Call::new(order("hang", 4 * MIB)));
                world.tasks.spawn("hang", Box::pin(async move { drop(hangs.await) }));
            }
            sleep(&world, Duration::from_secs(1)).await;
            assert_eq!(serving.service_load().0, 8, "of both together");
        }
        let honest = node(world.clone(), owner, 988).await;
        let import = import(&honest, vec![server]);
        import.connect().await.unwrap();
        let begun = world.clock.now();
        for _ in 0..3 {
            let get = Call::new(order("get", MIB)).with_bulk(Bulk::Sink(MIB));
            assert_eq!(import.call(get).await.unwrap().bulk_length(), MIB);
        }
        assert!(world.clock.now().since(begun) < Duration::from_secs(5));
    });
}

/// A node of root's at a port where any user may listen.
async fn at_open_port(world: &World, nid: Nid, (secure, privileged): (bool, bool)) -> Arc<RpcNode> {
    let config = NetConfig { secure, privileged, ..NetConfig::new(nid, OPEN_PORT) };
    let lnet = LNet::start(world.clone(), config).await.unwrap();
    RpcNode::start(world.clone(), lnet)
}

/// The server calls a client that is gone, and reaches a user's process.
#[test]
fn who_was_called_at_a_port_for_every_user_asks_nothing_there() {
    let network = Virtual::new(7, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (one, two) = (nid(1), nid(2));
        let server = at_open_port(&world, one, (true, true)).await;
        let target = serve(&server, 500);
        let client = at_open_port(&world, two, (true, true)).await;
        client.register_callbacks(Arc::new(Glimpsed));
        let import_of_root = import(&client, vec![one]);
        import_of_root.connect().await.unwrap();
        let (_, handle) = target.clients.lock()[0];
        let reverse = server.reverse(Uuid::new("client"), two, handle, data());
        let call = Call { kind: CallKind::NoResend, ..Call::new(LdlmGlCallback::default()) };
        reverse.call(call.clone()).await.unwrap();
        client.lnet().shutdown();
        drop((import_of_root, client));
        sleep(&world, Duration::from_secs(10)).await;

        let user = at_open_port(&world, two, (false, false)).await;
        user.register_callbacks(Arc::new(Glimpsed));
        let import_of_user = import(&user, vec![one]);
        let connecting = import_of_user.connect();
        world.tasks.spawn("connect", Box::pin(async move { drop(connecting.await) }));
        for _ in 0..20 {
            let _ = reverse.call(call.clone()).await;
            sleep(&world, Duration::from_secs(1)).await;
        }
        assert_eq!(target.clients.lock().len(), 1, "the user's process was admitted");
        user.lnet().shutdown();
        drop((import_of_user, user));
        sleep(&world, Duration::from_secs(1)).await;

        // Root's client comes again, also to a server that has just called it.
        let client = at_open_port(&world, two, (true, true)).await;
        client.register_callbacks(Arc::new(Glimpsed));
        sleep(&world, Duration::from_secs(10)).await;
        reverse.call(call.clone()).await.unwrap();
        let import_of_root = import(&client, vec![one]);
        import_of_root.connect().await.unwrap();
        import_of_root.call(Call::new(ObdPing::default())).await.unwrap();
        reverse.call(call).await.unwrap();
    });
}

/// Each asks over connections that it has opened: the other knows nothing of who listens where it called.
#[test]
fn servers_at_such_a_port_are_clients_of_each_other() {
    for_seeds(10, |seed| {
        let network = Arc::new(Virtual::new(seed, NetworkConditions::default()));
        let (world, breaks) = (network.world(), Arc::clone(&network));
        network.run(async move {
            let (one, two) = (nid(1), nid(2));
            let nodes = [
                at_open_port(&world, one, (true, true)).await,
                at_open_port(&world, two, (true, true)).await,
            ];
            let _targets = [serve(&nodes[0], 500), serve(&nodes[1], 600)];
            let imports = [import(&nodes[0], vec![two]), import(&nodes[1], vec![one])];
            let [first, second] = imports.each_ref().map(|import| import.connect());
            first.await.unwrap();
            second.await.unwrap();
            for _ in 0..5 {
                for import in &imports {
                    for _ in 0..20 {
                        let put = Call::modifying(order("put", 30_000));
                        let source = Bulk::Source(vec![Bytes::from(content(30_000))]);
                        import.call(put.with_bulk(source)).await.unwrap();
                    }
                }
                breaks.break_connections(one.address());
            }
            assert!(nodes.iter().all(|node| node.lnet().peers().len() == 1));
        });
    });
}
