//! How fast RPC is on this machine: a client and a server node in one process, over two loopback
//! addresses.
//!
//! `cargo run --release -p sheen-node --example rpc_speed [threads]` prints OBD_PING round trips per
//! second and the CPU time of one, both ends together, with 1, 8 and 64 callers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sheen_io::World;
use sheen_io_os::Host;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::{ImportConfig, ImportKind, RpcNode};
use sheen_rpc::{BoxFuture, Call, Handler, Import, IncomingRequest, NoOwner, ReplyHead};
use sheen_types::{Nid, ObdHandle, Uuid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{MdsConnectReply, ObdPing, ObdPingReply, Request};

const HANDLE: ObdHandle = ObdHandle(4711);

struct Answerer;

impl Handler for Answerer {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (handle, reply) = match incoming.request {
                Request::MdsConnect(connect) => {
                    let cdata = Some(connect.cdata);
                    (HANDLE, MdsConnectReply { cdata, ..MdsConnectReply::default() }.into())
                }
                _ => (ObdHandle(0), ObdPingReply::default().into()),
            };
            incoming.replier.send(ReplyHead { handle, ..ReplyHead::default() }, Some(reply));
        })
    }

    fn owns(&self, export: ObdHandle) -> bool {
        export == HANDLE
    }
}

/// Time on CPUs of all threads of this process, in microseconds.
fn cpu_us() -> u64 {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total += stat.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    }
    total / 1000
}

async fn start(world: World, last: u8) -> Arc<RpcNode> {
    let nid = Nid::tcp(Ipv4Addr::new(127, 78, 0, last));
    let lnet = LNet::start(world.clone(), NetConfig::new(nid, 21989)).await.expect("a free port");
    RpcNode::start(world, lnet)
}

async fn connected(world: &World) -> Arc<dyn Import> {
    let server = start(world.clone(), 1).await;
    server.register(Uuid::new("target"), Arc::new(Answerer), &[Portal::MDS_REQUEST]);
    let client = start(world.clone(), 2).await;
    let import = client.import(ImportConfig {
        target: Uuid::new("target"),
        client: Uuid::new("client"),
        nids: vec![server.lnet().nid()],
        kind: ImportKind::Mds,
        data: ObdConnectData { flags: ConnectFlags::AT, ..ObdConnectData::default() },
        requests_in_flight: 0,
        owner: Arc::new(NoOwner),
    });
    import.connect().await.expect("the server is there");
    // Both live as long as the process.
    std::mem::forget((server, client));
    import
}

fn round_trips(host: &Host, import: &Arc<dyn Import>, callers: u64, count: u64) {
    let (cpu, start) = (cpu_us(), host.world().clock.now());
    let (done, finished) = std::sync::mpsc::channel();
    for _ in 0..callers {
        let (import, done) = (Arc::clone(import), done.clone());
        let calls = async move {
            for _ in 0..count {
                import.call(Call::new(ObdPing::default())).await.expect("answered");
            }
            done.send(()).expect("main waits");
        };
        host.world().tasks.spawn("caller", Box::pin(calls));
    }
    for _ in 0..callers {
        finished.recv().expect("callers end");
    }
    let trips = callers * count;
    let rate = trips as f64 / host.world().clock.now().since(start).as_secs_f64();
    let cpu = (cpu_us() - cpu) as f64 / trips as f64;
    println!("{callers:>3} callers: {rate:>9.0} round trips/s, {cpu:>6.2} us CPU each");
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let host = Host::start(threads).expect("threads");
    let import = host.block_on(connected(&host.world()));
    round_trips(&host, &import, 1, 2_000);
    for (callers, count) in [(1, 20_000), (8, 10_000), (64, 2_000)] {
        round_trips(&host, &import, callers, count);
    }
}
