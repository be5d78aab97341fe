//! TCP over IPv4.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::time::Duration;

use sheen_io::{BoxFuture, Connection, Listener, Network};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;

use crate::stream::{ReadHalf, WriteHalf};

/// Where socklnd connects from, highest first.
const PRIVILEGED_PORTS: RangeInclusive<u16> = 512..=1023;
/// Probing of idle connections, as socklnd has it (`keepalive_idle`, `_intvl`, `_count`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 5;
/// Sent bytes that stay unacknowledged this long end the connection (socklnd `sock_timeout`).
const UNACKNOWLEDGED_TIME_MAX: Duration = Duration::from_secs(50);
/// Connections that wait to be accepted: a cluster of clients that all come back at once.
const BACKLOG: u32 = 1024;

pub(crate) struct OsNetwork {
    handle: Handle,
}

impl OsNetwork {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl Network for OsNetwork {
    fn connect(
        &self,
        local: SocketAddrV4,
        peer: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        let handle = self.handle.clone();
        Box::pin(async move {
            let stream = match privileged && local.port() == 0 {
                true => connect_privileged(&handle, local, peer).await,
                false => connect_from(&handle, local, peer).await,
            };
            let told = |error| in_words(error, format_args!("cannot connect {local} to {peer}"));
            connection(stream.map_err(told)?, peer)
        })
    }

    fn listen(&self, local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let handle = self.handle.clone();
        Box::pin(async move {
            let _inside = handle.enter();
            let bound = TcpSocket::new_v4().and_then(|socket| {
                socket.set_reuseaddr(true)?;
                socket.bind(local.into())?;
                socket.listen(BACKLOG)
            });
            let told = |error| in_words(error, format_args!("cannot listen on {local}"));
            Ok(Box::new(OsListener(bound.map_err(told)?)) as Box<dyn Listener>)
        })
    }
}

/// The same error with what was attempted, on one line.
fn in_words(error: io::Error, what: std::fmt::Arguments<'_>) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is taken".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
        io::ErrorKind::PermissionDenied => "ports below 1024 need privilege".into(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{what}: {why}"))
}

/// From any port of `local`'s address, or from the one it names.
async fn connect_from(
    handle: &Handle,
    local: SocketAddrV4,
    peer: SocketAddrV4,
) -> io::Result<TcpStream> {
    let connecting = {
        // Sockets belong to a runtime; the caller may be on a thread that is not one of it.
        let _inside = handle.enter();
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(local.port() != 0)?;
        socket.bind(local.into())?;
        socket.connect(peer.into())
    };
    connecting.await
}

/// From the highest port below 1024 that is free; from any if we may not have those.
async fn connect_privileged(
    handle: &Handle,
    local: SocketAddrV4,
    peer: SocketAddrV4,
) -> io::Result<TcpStream> {
    for port in PRIVILEGED_PORTS.rev() {
        match connect_from(handle, SocketAddrV4::new(*local.ip(), port), peer).await {
            // In use, or still remembered as a connection to this very peer.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                // Of the address itself, the attempt below says it.
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            result => return result,
        }
    }
    connect_from(handle, local, peer).await
}

fn connection(stream: TcpStream, peer: SocketAddrV4) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_COUNT);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIME_MAX))?;
    let (reader, writer) = stream.into_split();
    Ok(Connection { reader: Box::new(ReadHalf(reader)), writer: Box::new(WriteHalf(writer)), peer })
}

struct OsListener(TcpListener);

impl Listener for OsListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            loop {
                let (stream, peer) = self.0.accept().await?;
                let SocketAddr::V4(peer) = peer else { continue };
                match connection(stream, peer) {
                    Ok(connection) => return Ok(connection),
                    // It was gone before it was ours.
                    Err(error) => tracing::debug!("connection of {peer} ended: {error}"),
                }
            }
        })
    }
}
