use std::future::poll_fn;
use std::net::SocketAddrV4;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use sheen_io::Connection;

use super::*;

fn address(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 988)
}

async fn read_to_end(connection: &mut Connection) -> std::io::Result<Vec<u8>> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(1000);
        let read = poll_fn(|context| connection.reader.poll_read(context, &mut buffer)).await?;
        if read == 0 {
            return Ok(buffer.to_vec());
        }
    }
}

/// Sends 100,000 bytes one way; the time it takes, and whether they were the same.
fn transfer(seed: u64) -> (Instant, bool) {
    let world =
        Virtual::new(seed, NetworkConditions { window: 5000, ..NetworkConditions::default() });
    let io = world.world();
    let sent: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
    let expected = sent.clone();
    let got = world.run(async move {
        let mut listener = io.network.listen(address(1)).await.unwrap();
        let connecting = io.network.connect(address(2), address(1), true);
        let mut client = connecting.await.unwrap();
        let mut server = listener.accept().await.unwrap();
        assert!(server.is_privileged);
        io.tasks.spawn(
            "send",
            Box::pin(async move {
                let mut bytes = Bytes::from(sent);
                while !bytes.is_empty() {
                    let pieces = [bytes.clone()];
                    let write = poll_fn(|context| client.writer.poll_write(context, &pieces));
                    let written = write.await.unwrap();
                    let _ = bytes.split_to(written);
                }
            }),
        );
        read_to_end(&mut server).await.unwrap()
    });
    (world.now(), got == expected)
}

#[test]
fn bytes_arrive_whole_and_the_same_seed_takes_the_same_time() {
    let times: Vec<_> = (0..5).map(transfer).collect();
    assert!(times.iter().all(|(_, same)| *same));
    assert_eq!(times, (0..5).map(transfer).collect::<Vec<_>>());
    assert_ne!(times[0], times[1]);
}

#[test]
fn who_is_cut_off_is_not_reached_and_loses_its_connections() {
    let world = Virtual::new(1, NetworkConditions::default());
    let io = world.world();
    let (mut client, _server, _listener) = world.run({
        let io = io.clone();
        async move {
            let mut listener = io.network.listen(address(1)).await.unwrap();
            let client = io.network.connect(address(2), address(1), false).await.unwrap();
            let server = listener.accept().await.unwrap();
            (client, server, listener)
        }
    });
    world.set_cut_off(*address(1).ip(), true);
    let read = world.run(async move { read_to_end(&mut client).await });
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let connect = io.network.connect(address(2), address(1), false);
    assert!(world.run(connect).is_err());
    world.set_cut_off(*address(1).ip(), false);
    let connect = io.network.connect(address(2), address(1), false);
    assert!(world.run(connect).is_ok());
}

#[test]
fn who_are_apart_do_not_reach_each_other_and_reach_the_rest() {
    let world = Virtual::new(1, NetworkConditions::default());
    let io = world.world();
    let (mut first, _other, _servers, _listener) = world.run({
        let io = io.clone();
        async move {
            let mut listener = io.network.listen(address(1)).await.unwrap();
            let first = io.network.connect(address(2), address(1), false).await.unwrap();
            let other = io.network.connect(address(3), address(1), false).await.unwrap();
            let servers = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
            (first, other, servers, listener)
        }
    });
    world.set_apart(*address(1).ip(), *address(2).ip(), true);
    let read = world.run(async move { read_to_end(&mut first).await });
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(world.run(io.network.connect(address(2), address(1), false)).is_err());
    assert!(world.run(io.network.connect(address(3), address(1), false)).is_ok());
    world.set_apart(*address(2).ip(), *address(1).ip(), false);
    assert!(world.run(io.network.connect(address(2), address(1), false)).is_ok());
}

#[test]
fn bytes_travel_longer_between_two_that_are_distant() {
    let world = Virtual::new(1, NetworkConditions::default());
    let io = world.world();
    let meet = |from| {
        let io = io.clone();
        async move {
            let mut listener = io.network.listen(address(1)).await.unwrap();
            let there = io.network.connect(address(from), address(1), false).await.unwrap();
            let here = listener.accept().await.unwrap();
            (there, here, listener)
        }
    };
    let more = Duration::from_millis(70);
    let send = |from| {
        let (mut there, mut here, listener) = world.run(meet(from));
        let begin = world.now();
        world.run(async move {
            there.writer.poll_shutdown(&mut Context::from_waker(Waker::noop())).is_ready();
            read_to_end(&mut here).await.unwrap();
            drop(listener);
        });
        world.now().since(begin)
    };
    world.set_distance(*address(1).ip(), *address(2).ip(), more);
    assert!(send(3) < more);
    assert!(send(2) >= more);
    world.set_distance(*address(2).ip(), *address(1).ip(), Duration::ZERO);
    assert!(send(2) < more);
}

#[test]
fn hours_pass_at_once() {
    let world = Virtual::new(1, NetworkConditions::default());
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.now(), Instant::default() + Duration::from_secs(3600));
}

#[test]
fn the_tasks_of_a_scope_end_together_and_other_scopes_go_on() {
    let world = Virtual::new(1, NetworkConditions::default());
    let (scope, other) = (world.scope(), world.scope());
    let count = |scope| {
        let (io, counter) = (world.world_of(scope), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&counter);
        let task = async move {
            loop {
                io.clock.sleep_until(io.clock.now() + Duration::from_secs(1)).await;
                *counted.lock() += 1;
            }
        };
        world.world_of(scope).tasks.spawn("count", Box::pin(task));
        counter
    };
    let (ended, going) = (count(scope), count(other));
    world.pass(Duration::from_millis(5500));
    world.end(scope);
    world.world_of(scope).tasks.spawn("late", Box::pin(async { unreachable!("the scope ended") }));
    world.pass(Duration::from_secs(5));
    assert_eq!((*ended.lock(), *going.lock()), (5, 10));
}

#[test]
fn the_trace_distinguishes_runs() {
    let trace = |seed| {
        let world = Virtual::new(seed, NetworkConditions::default());
        let io = world.world();
        world.run(async move { io.clock.sleep_until(Instant(io.random.number() % 1000)).await });
        world.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
