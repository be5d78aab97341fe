//! The io traits over real sockets of this machine.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sheen_io_os::Host;

/// An address nobody else uses.
fn address(last: u8) -> SocketAddrV4 {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, 30 + high % 60, low, last), 21987)
}

#[test]
fn bytes_go_both_ways_from_the_address_and_port_that_were_asked_for() {
    let host = Host::start(Some(1)).unwrap();
    let network = host.world().network;
    host.block_on(async {
        let mut listener = network.listen(address(1)).await.unwrap();
        let local = SocketAddrV4::new(*address(2).ip(), 0);
        let (mut client, mut server) = {
            let client = network.connect(local, address(1), true).await.unwrap();
            (client, listener.accept().await.unwrap())
        };
        assert_eq!((client.peer, server.peer.ip()), (address(1), local.ip()));
        if rustix::process::geteuid().is_root() {
            assert!((512..1024).contains(&server.peer.port()), "{}", server.peer);
        }
        let pieces: Vec<Bytes> = (0..100u8).map(|byte| Bytes::from(vec![byte; 3])).collect();
        let written = poll_fn(|context| client.writer.poll_write(context, &pieces)).await.unwrap();
        let mut buffer = BytesMut::with_capacity(1000);
        while buffer.len() < written {
            poll_fn(|context| server.reader.poll_read(context, &mut buffer)).await.unwrap();
        }
        assert_eq!(buffer, pieces.concat()[..written]);
        poll_fn(|context| client.writer.poll_shutdown(context)).await.unwrap();
        let end = poll_fn(|context| server.reader.poll_read(context, &mut buffer)).await;
        assert_eq!(end.unwrap(), 0);
    });
}

#[test]
fn the_host_tells_time_runs_jobs_and_rolls_dice() {
    let host = Host::start(None).unwrap();
    let world = host.world();
    let start = world.clock.now();
    host.block_on(world.clock.sleep_until(start + Duration::from_millis(20)));
    assert!(world.clock.now().since(start) >= Duration::from_millis(20));
    assert!(world.clock.wall().seconds > 1_700_000_000);
    assert_ne!(world.random.number(), world.random.number());
    let (sender, receiver) = std::sync::mpsc::channel();
    let job = world.tasks.blocking(Box::new(move || sender.send(7).unwrap()));
    host.block_on(job);
    assert_eq!(receiver.try_recv(), Ok(7));
}
