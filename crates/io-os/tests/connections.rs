//! The io traits over real sockets of this machine.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sheen_io::PeerAddress;
use sheen_io_os::{Host, SocketFolder, with_sockets};

/// An address that no other test uses.
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
        let PeerAddress::Tcp(from) = server.peer else { panic!("{}", server.peer) };
        assert_eq!((client.peer, from.ip()), (PeerAddress::Tcp(address(1)), local.ip()));
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!((512..1024).contains(&from.port()), is_root, "{from}");
        assert_eq!((client.is_privileged, server.is_privileged), (is_root, is_root));
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
fn the_host_has_a_clock_runs_jobs_and_rolls_dice() {
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

/// A folder below the system's for temporary files, closed, of a depth that no socket's path allows.
fn deep_folder(name: &str) -> std::path::PathBuf {
    let top = std::env::temp_dir().join(format!("sheen-{name}-{}", std::process::id()));
    let folder = top.join("a-name-of-some-forty-letters-for-the-test/".repeat(4)).join("lnet");
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    assert!(folder.as_os_str().len() > 150);
    folder
}

#[test]
fn nodes_meet_in_a_folder_whose_path_is_longer_than_any_sockets() {
    let host = Host::start(Some(1)).unwrap();
    let path = deep_folder("deep");
    let folder = SocketFolder::create(&path).unwrap();
    host.block_on(async {
        let network = with_sockets(&host.world(), folder.clone(), false).network;
        let from = SocketAddrV4::new(*address(12).ip(), 0);
        let absent = network.connect(from, address(11), true).await.map(drop).unwrap_err();
        assert!(absent.to_string().contains("no socket"), "{absent}");
        let mut listener = network.listen(address(11)).await.unwrap();
        assert!(folder.is_live(address(11)));
        assert!(std::net::TcpStream::connect(address(11)).is_err(), "nothing listens by TCP");
        let taken = network.listen(address(11)).await.map(drop).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        let mut client = network.connect(from, address(11), true).await.unwrap();
        // The two that only looked whether a process listens came before.
        for _ in 0..2 {
            listener.accept().await.unwrap();
        }
        let mut server = listener.accept().await.unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!((client.peer, server.peer), (PeerAddress::Unix { uid }, client.peer));
        assert!(client.is_privileged && server.is_privileged);
        let pieces = [Bytes::from_static(b"some "), Bytes::from_static(b"bytes")];
        poll_fn(|context| client.writer.poll_write(context, &pieces)).await.unwrap();
        let mut buffer = BytesMut::with_capacity(100);
        poll_fn(|context| server.reader.poll_read(context, &mut buffer)).await.unwrap();
        assert_eq!(buffer, "some bytes");
        drop(listener);
        assert!(!folder.knows(address(11)), "the socket is gone with its node");
    });
    // What a process leaves that is killed is no hindrance.
    let dead = path.join(format!("{}@tcp-{}.sock", address(11).ip(), address(11).port()));
    let here = std::env::current_dir().unwrap();
    std::env::set_current_dir(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(dead.file_name().unwrap()).unwrap());
    std::env::set_current_dir(here).unwrap();
    assert!(folder.knows(address(11)) && !folder.is_live(address(11)));
    host.block_on(async {
        let network = with_sockets(&host.world(), folder.clone(), true).network;
        let mut listener = network.listen(address(11)).await.unwrap();
        std::net::TcpStream::connect(address(11)).unwrap();
        let by_tcp = listener.accept().await.unwrap();
        assert!(!by_tcp.is_privileged && matches!(by_tcp.peer, PeerAddress::Tcp(_)));
    });
}

#[test]
fn a_folder_that_other_users_can_enter_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let path = deep_folder("open");
    SocketFolder::create(&path).unwrap();
    for mode in [0o755, 0o710, 0o707] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = SocketFolder::open(&path).unwrap_err().to_string();
        assert!(error.contains("mode 700"), "{error}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = path.with_file_name("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(SocketFolder::open(&link).is_err(), "a symbolic link is none");
}
