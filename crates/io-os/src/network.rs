//! TCP over IPv4, and UNIX sockets between the nodes of one file system on this machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::task::{Context, Poll};
use std::time::Duration;

use sheen_io::{BoxFuture, Connection, Listener, Network, PeerAddress};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

use crate::folder::{OpenFolder, SocketFolder};
use crate::stream::{ReadHalf, WriteHalf};

/// Where socklnd connects from, highest first.
const PRIVILEGED_PORTS: RangeInclusive<u16> = 512..=1023;
/// Ports from here on are open to every user, on machines that do not say otherwise.
const PORT_UNPRIVILEGED_MIN: u16 = 1024;
/// Where Linux says from which port on it lets every user have them.
const PORT_UNPRIVILEGED_FILE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
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
    folder: Option<SocketFolder>,
    tcp: bool,
}

impl OsNetwork {
    pub(crate) fn new(handle: Handle, folder: Option<SocketFolder>, tcp: bool) -> Self {
        Self { handle, folder, tcp }
    }

    /// The folder where `peer` is to be reached; `None`: it is to be reached by TCP.
    fn way_to(&self, peer: SocketAddrV4) -> io::Result<Option<OpenFolder>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let open = folder.enter()?;
        match open.knows(peer) {
            true => Ok(Some(open)),
            false if self.tcp => Ok(None),
            false => {
                let text = format!("it has no socket in {}", folder.path().display());
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            }
        }
    }
}

impl Network for OsNetwork {
    fn connect(
        &self,
        local: SocketAddrV4,
        peer: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        let (handle, way) = (self.handle.clone(), self.way_to(peer));
        Box::pin(async move {
            let failed = |error| in_words(error, format_args!("cannot connect {local} to {peer}"));
            if let Some(folder) = way.map_err(failed)? {
                return connect_inside(&handle, &folder, peer).await.map_err(failed);
            }
            let stream = match privileged && local.port() == 0 {
                true => connect_privileged(&handle, local, peer).await,
                false => connect_from(&handle, local, peer).await,
            };
            let stream = stream.map_err(failed)?;
            let own = stream.local_addr()?;
            let is_privileged = own.port() < port_unprivileged_min();
            tcp_connection(stream, peer, is_privileged)
        })
    }

    fn needs_privilege(&self, address: SocketAddrV4) -> bool {
        is_privileged(address)
    }

    fn listen(&self, local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let (handle, folder, tcp) = (self.handle.clone(), self.folder.clone(), self.tcp);
        Box::pin(async move {
            let _inside = handle.enter();
            let failed = |error| in_words(error, format_args!("cannot listen on {local}"));
            let inside = folder.map(|folder| Inside::listen(&folder, local));
            let inside = inside.transpose().map_err(failed)?;
            let tcp = tcp.then(|| listen_by_tcp(local)).transpose().map_err(failed)?;
            Ok(Box::new(OsListener { inside, tcp }) as Box<dyn Listener>)
        })
    }
}

/// The same error with what was attempted, on one line.
fn in_words(error: io::Error, what: std::fmt::Arguments<'_>) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is taken".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "ports below 1024 need privilege".into()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{what}: {why}"))
}

/// From which port on this machine lets every user have them: 1024, unless it was set lower
/// (`net.ipv4.ip_unprivileged_port_start`, as in many containers).
#[must_use]
pub fn port_unprivileged_min() -> u16 {
    let text = std::fs::read_to_string(PORT_UNPRIVILEGED_FILE).unwrap_or_default();
    text.trim().parse().unwrap_or(PORT_UNPRIVILEGED_MIN).min(PORT_UNPRIVILEGED_MIN)
}

/// Whether only root of the peer's machine can have connected from there, or listen there. Of its own machine a
/// process knows which ports those are.
fn is_privileged(peer: SocketAddrV4) -> bool {
    let min = port_unprivileged_min();
    let is_ours = |address: Ipv4Addr| UdpSocket::bind((address, 0)).is_ok();
    match peer.port() {
        port if port >= PORT_UNPRIVILEGED_MIN => false,
        port if port < min => true,
        _ => !is_ours(*peer.ip()),
    }
}

fn listen_by_tcp(local: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(local.into())?;
    socket.listen(BACKLOG)
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

/// Through the peer's socket, if a process that we trust listens there.
async fn connect_inside(
    handle: &Handle,
    folder: &OpenFolder,
    peer: SocketAddrV4,
) -> io::Result<Connection> {
    let connecting = {
        let _inside = handle.enter();
        UnixStream::connect(folder.path_of(peer))
    };
    let stream = connecting.await?;
    let uid = stream.peer_cred()?.uid();
    if !folder.trusts(uid) {
        let text = format!("a process of uid {uid} listens there");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(unix_connection(stream, uid))
}

fn tcp_connection(
    stream: TcpStream,
    peer: SocketAddrV4,
    is_privileged: bool,
) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_COUNT);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIME_MAX))?;
    let (reader, writer) = stream.into_split();
    let (reader, writer) = (Box::new(ReadHalf(reader)), Box::new(WriteHalf(writer)));
    Ok(Connection { reader, writer, peer: PeerAddress::Tcp(peer), is_privileged })
}

fn unix_connection(stream: UnixStream, uid: u32) -> Connection {
    let (reader, writer) = stream.into_split();
    let (reader, writer) = (Box::new(ReadHalf(reader)), Box::new(WriteHalf(writer)));
    Connection { reader, writer, peer: PeerAddress::Unix { uid }, is_privileged: true }
}

/// A node's socket in its folder; taken away when dropped.
struct Inside {
    listener: UnixListener,
    folder: OpenFolder,
    node: SocketAddrV4,
}

impl Inside {
    fn listen(folder: &SocketFolder, node: SocketAddrV4) -> io::Result<Self> {
        let folder = folder.enter()?;
        let listener = folder.listen(node)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, folder, node })
    }

    /// The next peer that may be here.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            let stream = match self.listener.poll_accept(context) {
                Poll::Ready(Ok((stream, _))) => stream,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            match stream.peer_cred().map(|peer| peer.uid()) {
                Ok(uid) if self.folder.trusts(uid) => {
                    return Poll::Ready(Ok(unix_connection(stream, uid)));
                }
                Ok(uid) => tracing::warn!(
                    "refused a process of uid {uid} at the socket of {}: neither our user nor root",
                    self.node.ip()
                ),
                Err(error) => tracing::debug!("a process ended before it was known: {error}"),
            }
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.folder.remove(self.node);
    }
}

struct OsListener {
    inside: Option<Inside>,
    tcp: Option<TcpListener>,
}

impl OsListener {
    fn poll_tcp(&self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let Some(listener) = &self.tcp else { return Poll::Pending };
        loop {
            let (stream, peer) = match listener.poll_accept(context) {
                Poll::Ready(Ok((stream, SocketAddr::V4(peer)))) => (stream, peer),
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            match tcp_connection(stream, peer, is_privileged(peer)) {
                Ok(connection) => return Poll::Ready(Ok(connection)),
                // It was gone before it was ours.
                Err(error) => tracing::debug!("connection of {peer} ended: {error}"),
            }
        }
    }
}

impl Listener for OsListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(std::future::poll_fn(|context| {
            let inside = self.inside.as_ref().map(|inside| inside.poll_accept(context));
            match inside {
                Some(Poll::Ready(accepted)) => Poll::Ready(accepted),
                Some(Poll::Pending) | None => self.poll_tcp(context),
            }
        }))
    }
}
