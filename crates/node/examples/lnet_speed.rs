//! How fast LNet is on this machine: two nodes in one process, over TCP between two loopback addresses, and
//! over UNIX sockets.
//!
//! `cargo run --release -p sheen-node --example lnet_speed [threads]` prints of each messages per second and the
//! CPU time per one-way message, both ends together, for 400-byte messages with one and with 32
//! in flight, and for 1 MiB payloads.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use sheen_io::World;
use sheen_io_os::{Host, SocketFolder, with_sockets};
use sheen_node::net::{Delivery, LNet, NetConfig, Receiver};
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::Portal;

struct Echo(Arc<LNet>);

impl Receiver for Echo {
    fn receive(&self, delivery: Delivery) {
        let payload = vec![delivery.payload];
        self.0.put(delivery.from, Portal::MDC_REPLY, delivery.bits, 0, payload);
    }
}

/// Time on a processor of all threads of this process, in microseconds.
fn cpu_us() -> u64 {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let on_cpu = stat.split(' ').next().and_then(|text| text.parse::<u64>().ok());
        total += on_cpu.unwrap_or(0);
    }
    total / 1000
}

/// `count` round trips by each of `flows` tasks.
fn round_trips(host: &Host, client: &Arc<LNet>, server: Nid, flows: u64, count: u64, size: usize) {
    let clock = host.world().clock;
    let (cpu, start) = (cpu_us(), clock.now());
    let (done, finished) = std::sync::mpsc::channel();
    for flow in 0..flows {
        let (client, done) = (Arc::clone(client), done.clone());
        host.world().tasks.spawn(
            "flow",
            Box::pin(async move {
                let payload = Bytes::from(vec![7; size]);
                for at in 0..count {
                    let bits = MatchBits(flow << 32 | at);
                    let reply = client.expect_put(server, Portal::MDC_REPLY, bits, 1 << 20);
                    let payload = vec![payload.clone()];
                    client.put(server, Portal::MDS_REQUEST, bits, 0, payload);
                    reply.await.expect("LNet lives");
                }
                done.send(()).expect("main waits");
            }),
        );
    }
    for _ in 0..flows {
        finished.recv().expect("flows end");
    }
    let (messages, time) = (flows * count * 2, clock.now().since(start));
    let cpu = (cpu_us() - cpu) as f64 / messages as f64;
    let rate = messages as f64 / time.as_secs_f64();
    let megabytes = rate * size as f64 / 1e6;
    println!(
        "{size:>8} bytes, {flows:>2} in flight: {rate:>9.0} messages/s, {cpu:>7.2} us CPU per \
         message, {megabytes:>7.0} MB/s"
    );
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let host = Host::start(threads).expect("threads");
    println!("TCP");
    measure(&host, &host.world());
    let path = std::env::temp_dir().join(format!("sheen-lnet-speed-{}", std::process::id()));
    let folder = SocketFolder::create(&path).expect("a folder");
    println!("UNIX sockets");
    measure(&host, &host.block_on(async { with_sockets(&host.world(), folder, false) }));
    std::fs::remove_dir_all(path).expect("it is ours");
}

fn measure(host: &Host, world: &World) {
    let nid = |last| Nid::tcp(Ipv4Addr::new(127, 77, 0, last));
    let start = |last| {
        let lnet = LNet::start(world.clone(), NetConfig::new(nid(last), 20988));
        host.block_on(lnet).expect("the port is free")
    };
    let (client, server) = (start(1), start(2));
    server.serve(Portal::MDS_REQUEST, Arc::new(Echo(Arc::clone(&server))));
    round_trips(host, &client, server.nid(), 4, 2_000, 400);
    for (flows, count, size) in
        [(1, 50_000, 400), (32, 5_000, 400), (1, 1_000, 1 << 20), (8, 300, 1 << 20)]
    {
        round_trips(host, &client, server.nid(), flows, count, size);
    }
    client.shutdown();
    server.shutdown();
}
