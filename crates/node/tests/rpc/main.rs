//! RPC nodes over LNet: on real sockets, and in virtual time on bad networks.

mod budgets;
mod claims;
mod handler;
mod late;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use handler::{CountingTarget, SharedTarget, content, data, order};
use sheen_io::{Watched, World, job};
use sheen_io_os::Host;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::{ImportConfig, ImportKind, RpcNode};
use sheen_rpc::{
    BoxFuture, Bulk, Call, CallKind, Handler, Import, ImportState, IncomingRequest, NoOwner,
    ReplyHead, RpcError,
};
use sheen_types::{Errno, MatchBits, Nid, ObdHandle, Uuid};
use sheen_vnet::{NetworkConditions, Virtual, for_seeds};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{LdlmGlCallback, LdlmGlCallbackReply, MdsGetRoot, ObdPing};
use sheen_wire::opcode::Opcode;

const MIB: usize = 1 << 20;

async fn node(world: World, nid: Nid, port: u16) -> Arc<RpcNode> {
    let lnet = LNet::start(world.clone(), NetConfig::new(nid, port)).await.unwrap();
    RpcNode::start(world, lnet)
}

fn target_uuid() -> Uuid {
    Uuid::new("lustre-MDT0000_UUID")
}

fn serve(node: &Arc<RpcNode>, first_handle: u64) -> Arc<CountingTarget> {
    let target = CountingTarget::new(first_handle);
    let shared = Arc::new(SharedTarget(Arc::clone(&target)));
    node.register(target_uuid(), shared, &[Portal::MDS_REQUEST]);
    target
}

fn import(node: &Arc<RpcNode>, nids: Vec<Nid>) -> Arc<dyn Import> {
    node.import(ImportConfig {
        target: target_uuid(),
        client: Uuid::new("client"),
        nids,
        kind: ImportKind::Mds,
        data: data(),
        requests_in_flight: 0,
        owner: Arc::new(NoOwner),
    })
}

/// A free pair of addresses of this process.
fn addresses() -> (Nid, Nid) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id().to_be_bytes();
    let call = NEXT.fetch_add(2, Ordering::Relaxed);
    let nid = |last| Nid::tcp(Ipv4Addr::new(127, 30 + process[2] % 60, process[3], last));
    (nid(call + 1), nid(call + 2))
}

#[test]
fn connect_ping_bulk_and_disconnect_on_real_sockets() {
    let host = Host::start(Some(2)).unwrap();
    let (one, two) = addresses();
    host.block_on(async {
        let server = node(host.world(), one, 21990).await;
        let target = serve(&server, 500);
        let client = node(host.world(), two, 21990).await;
        let import = import(&client, vec![one]);
        import.connect().await.unwrap();
        assert_eq!((import.state(), import.peer()), (ImportState::Full, one));
        assert!(import.is_served_by(one) && !import.is_served_by(two));
        import.add_nid(two);
        assert!(import.is_served_by(two), "a failover node");
        import.call(Call::new(ObdPing::default())).await.unwrap();
        for length in [1, MIB, MIB + 1, 4 * MIB] {
            let pieces = vec![Bytes::from(content(length))];
            let put = Call::modifying(order("put", length)).with_bulk(Bulk::Source(pieces));
            import.call(put).await.unwrap();
            let get = Call::new(order("get", length)).with_bulk(Bulk::Sink(4 * MIB));
            let answer = import.call(get).await.unwrap();
            assert_eq!(answer.bulk.concat(), content(length));
        }
        let refused = import.call(Call::new(MdsGetRoot::default())).await;
        assert_eq!(refused.unwrap_err(), RpcError::Errno(Errno::EOPNOTSUPP));
        import.disconnect().await;
        assert!(target.exports.lock().is_empty());
        assert_eq!(import.state(), ImportState::Closed);
        let late = import.call(Call::new(ObdPing::default())).await;
        assert_eq!(late.unwrap_err(), RpcError::Shutdown);
        assert_eq!(client.imports().len(), 1);
        assert!(server.service_stats().req_waittime.count >= 10);
        client.lnet().shutdown();
        server.lnet().shutdown();
    });
}

#[test]
fn within_one_node_nothing_needs_a_socket() {
    let host = Host::start(Some(2)).unwrap();
    let (one, _) = addresses();
    host.block_on(async {
        let node = node(host.world(), one, 21991).await;
        let _target = serve(&node, 500);
        let import = import(&node, vec![Nid::LOOPBACK]);
        import.connect().await.unwrap();
        let get = Call::new(order("get", 3 * MIB)).with_bulk(Bulk::Sink(3 * MIB));
        assert_eq!(import.call(get).await.unwrap().bulk_length(), 3 * MIB);
        assert!(node.lnet().peers().is_empty());
        assert!(import.is_served_by(one) && import.is_served_by(Nid::LOOPBACK), "its own node");
        node.lnet().shutdown();
    });
}

/// Answers with the job of a request.
struct Jobbed(Arc<parking_lot::Mutex<Vec<String>>>);

impl Handler for Jobbed {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        self.0.lock().push(incoming.body.jobid.to_text());
        let reply = LdlmGlCallbackReply::default();
        incoming.replier.send(ReplyHead::default(), Some(reply.into()));
        Box::pin(async {})
    }

    fn owns(&self, _export: ObdHandle) -> bool {
        true
    }
}

#[test]
fn requests_and_the_tasks_that_come_of_them_carry_the_job_they_are_made_for() {
    let host = Host::start(Some(2)).unwrap();
    let (one, _) = addresses();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let handler = Arc::new(Jobbed(Arc::clone(&seen)));
    let world = host.world();
    host.block_on(async {
        let node = node(world.clone(), one, 21992).await;
        node.register_callbacks(handler);
        let handle = ObdHandle(7);
        let client = node.reverse(Uuid::new("client"), Nid::LOOPBACK, handle, data());
        let call = || client.call(Call::new(LdlmGlCallback::default()));
        call().await.unwrap();
        let job = sheen_types::JobId::new(b"dd.1000");
        job::within(job, call).await.unwrap();
        let done = Arc::new(Watched::new(false));
        let (noted, later) = (Arc::clone(&done), Arc::clone(&client));
        let task = async move {
            later.call(Call::new(LdlmGlCallback::default())).await.unwrap();
            noted.change(|done| *done = true);
        };
        job::within(job, || world.tasks.spawn("later", Box::pin(task)));
        done.until(|done| done).await;
        node.lnet().shutdown();
    });
    assert_eq!(*seen.lock(), ["", "dd.1000", "dd.1000"]);
}

/// A client that answers glimpses.
struct Glimpsed;

impl Handler for Glimpsed {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        let reply = LdlmGlCallbackReply::default();
        incoming.replier.send(ReplyHead::default(), Some(reply.into()));
        Box::pin(async {})
    }

    fn owns(&self, _export: ObdHandle) -> bool {
        true
    }
}

#[test]
fn a_server_calls_its_client_back() {
    let network = Virtual::new(3, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (one, two) = (Nid::tcp([10, 0, 0, 1].into()), Nid::tcp([10, 0, 0, 2].into()));
        let server = node(world.clone(), one, 988).await;
        let target = serve(&server, 500);
        let client = node(world.clone(), two, 988).await;
        client.register_callbacks(Arc::new(Glimpsed));
        let import = import(&client, vec![one]);
        import.connect().await.unwrap();
        let (nid, handle) = target.clients.lock()[0];
        assert_eq!(nid, two);
        let reverse = server.reverse(Uuid::new("client"), nid, handle, data());
        let call = Call { kind: CallKind::NoResend, ..Call::new(LdlmGlCallback::default()) };
        let answer = reverse.call(call.clone()).await.unwrap();
        assert_eq!(answer.body.opcode, Opcode::LDLM_GL_CALLBACK);
        // A client that is gone costs a callback, not a hang.
        client.lnet().shutdown();
        assert!(reverse.call(call).await.is_err());
    });
}

#[test]
fn an_unknown_target_is_awaited_until_it_is_there() {
    let network = Virtual::new(4, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (one, two) = (Nid::tcp([10, 0, 0, 1].into()), Nid::tcp([10, 0, 0, 2].into()));
        let server = node(world.clone(), one, 988).await;
        server.register(
            Uuid::new("lustre-MDT0001_UUID"),
            Arc::new(SharedTarget(CountingTarget::new(1))),
            &[Portal::MDS_REQUEST],
        );
        let client = node(world.clone(), two, 988).await;
        let import = import(&client, vec![one]);
        let clock = Arc::clone(&world.clock);
        let later = Arc::clone(&server);
        world.tasks.spawn(
            "target",
            Box::pin(async move {
                clock.sleep_until(clock.now() + Duration::from_secs(30)).await;
                serve(&later, 500);
            }),
        );
        import.connect().await.unwrap();
        assert!(world.clock.now().0 < 33_000_000_000, "found soon after it was there");
    });
}

#[test]
fn calls_survive_broken_connections() {
    for_seeds(8, |seed| {
        let network = Virtual::new(
            seed,
            NetworkConditions { break_one_in: 60, ..NetworkConditions::default() },
        );
        let world = network.world();
        network.run(async move {
            let (one, two) = (Nid::tcp([10, 0, 0, 1].into()), Nid::tcp([10, 0, 0, 2].into()));
            let server = node(world.clone(), one, 988).await;
            let target = serve(&server, 500);
            let client = node(world.clone(), two, 988).await;
            let import = import(&client, vec![one]);
            import.connect().await.unwrap();
            for at in 0..24 {
                let length = at * 60_000;
                let get = Call::new(order("get", length)).with_bulk(Bulk::Sink(3 * MIB));
                let answer = import.call(get).await.unwrap();
                assert_eq!(answer.bulk.concat(), content(length), "get {at}");
                let pieces = vec![Bytes::from(content(length))];
                let put = Call::new(order("put", length)).with_bulk(Bulk::Source(pieces));
                import.call(put).await.unwrap();
            }
            assert_eq!(target.executed.lock().len(), 48);
        });
    });
}

#[test]
fn a_peer_that_sends_no_request_loses_its_connection_and_no_other_peer_notices() {
    let network = Virtual::new(6, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let [one, two, three] = [1, 2, 3].map(|last| Nid::tcp([10, 0, 0, last].into()));
        let server = node(world.clone(), one, 988).await;
        let target = serve(&server, 500);
        let client = node(world.clone(), two, 988).await;
        let import = import(&client, vec![one]);
        import.connect().await.unwrap();
        let stranger = LNet::start(world.clone(), NetConfig::new(three, 988)).await.unwrap();
        let is_down = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&is_down);
        stranger.watch_peer_down(Arc::new(move |nid| noted.store(nid == one, Ordering::SeqCst)));
        let garbage = vec![Bytes::from_static(&[0xee; 400])];
        stranger.put(one, Portal::MDS_REQUEST, MatchBits(7), 0, garbage);
        let clock = &world.clock;
        clock.sleep_until(clock.now() + Duration::from_secs(5)).await;
        assert!(is_down.load(Ordering::SeqCst));
        assert_eq!(server.refused(), 1);
        let protocol_errors = &server.lnet().counters().protocol_errors;
        assert_eq!(protocol_errors.load(Ordering::Relaxed), 1);
        // It may come again, and the other peers have never been away.
        stranger.ping(one).await.unwrap();
        import.call(Call::new(ObdPing::default())).await.unwrap();
        assert_eq!((import.state(), target.exports.lock().len()), (ImportState::Full, 1));
        assert!(!server.lnet().peers().is_empty());
    });
}

#[test]
fn a_dropped_call_frees_its_place() {
    let network = Virtual::new(5, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (one, two) = (Nid::tcp([10, 0, 0, 1].into()), Nid::tcp([10, 0, 0, 2].into()));
        let server = node(world.clone(), one, 988).await;
        let _target = serve(&server, 500);
        let client = node(world.clone(), two, 988).await;
        let import = import(&client, vec![one]);
        import.connect().await.unwrap();
        for _ in 0..200 {
            let mut hanging = import.call(Call::new(order("hang", 0)));
            std::future::poll_fn(|context| {
                assert!(hanging.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        assert_eq!(import.counters().in_flight, 0);
        import.call(Call::new(order("get", 0)).with_bulk(Bulk::Sink(1))).await.unwrap();
    });
}
