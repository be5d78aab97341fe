//! What roles and the node may ask of the world: clock, randomness, connections, tasks.
//!
//! `io-os` answers with Linux; the simulator answers with a seed. Code above never asks anything
//! else, so the same seed gives the same run.

pub mod job;
mod logged;
mod oneshot;
mod task_queue;
mod watched;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sheen_types::futures::before;
use sheen_types::{Instant, Timestamp};

pub use oneshot::Oneshot;
pub use sheen_types::futures::BoxFuture;
pub use task_queue::TaskQueue;
pub use watched::{Until, Watched};

/// Time.
pub trait Clock: Send + Sync {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// The calendar.
    fn wall(&self) -> Timestamp;

    /// Completes at `deadline` or soon after.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;
}

/// The output of `work`; `None` if that takes longer than `duration`.
pub async fn within<T>(
    clock: &dyn Clock,
    duration: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    before(work, clock.sleep_until(clock.now() + duration)).await
}

/// Randomness, for UUIDs, cookies and jitter; never for secrets.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// A random number.
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Lets other tasks run before going on.
pub async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Work beside one's own.
pub trait Tasks: Send + Sync {
    /// Runs `task` until it ends or the host stops. `name` is for operators. The task belongs to the
    /// job that it is spawned for ([`job::current`]).
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);

    /// As [`Tasks::spawn`], of a task that is likely to end without waiting: it may be begun at once, by
    /// the caller, who must hold no locks.
    fn begin(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.spawn(name, task);
    }

    /// How many tasks run at the same moment at most: the runtime's threads.
    fn workers(&self) -> usize {
        1
    }

    /// Runs `job`, which may wait for a disk, where it delays no one; completes when it is done.
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}

/// One half of a byte stream, for reading.
pub trait ReadStream: Send {
    /// Appends at least one byte to `buffer`, at most its spare capacity; `Ok(0)` at the end of the
    /// stream. The caller reserves capacity first.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>>;
}

/// One half of a byte stream, for writing.
pub trait WriteStream: Send {
    /// Writes a prefix of `pieces` laid end to end; answers how many bytes.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[Bytes],
    ) -> Poll<io::Result<usize>>;

    /// Says that nothing more will be written.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Who is at the other end of a connection, as the operating system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// By TCP: its address and port.
    Tcp(SocketAddrV4),
    /// By a UNIX socket that only its owner and root can reach.
    Unix {
        /// The peer's user.
        uid: u32,
    },
}

impl PeerAddress {
    /// A number for the source of many connections: the machine, or on this machine the user.
    #[must_use]
    pub fn source(&self) -> u64 {
        match self {
            Self::Tcp(address) => u64::from(u32::from(*address.ip())),
            Self::Unix { uid } => 1 << 32 | u64::from(*uid),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(out, "{}@tcp port {}", address.ip(), address.port()),
            Self::Unix { uid } => write!(out, "a process of uid {uid}"),
        }
    }
}

/// A connection: both halves, and who is at the other end.
pub struct Connection {
    /// From the peer.
    pub reader: Box<dyn ReadStream>,
    /// To the peer.
    pub writer: Box<dyn WriteStream>,
    /// The peer.
    pub peer: PeerAddress,
    /// Whether the side that connected needed privilege for it: a port that only root of its machine
    /// may use, or a UNIX socket that only its owner and root can reach.
    pub is_privileged: bool,
}

/// Waits for peers.
pub trait Listener: Send {
    /// The next peer.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>>;
}

/// Connections.
pub trait Network: Send + Sync {
    /// Connects from `local` (its port 0 for any; `privileged` asks for one below 1024, as
    /// socklnd's acceptor demands by default, and takes any other if that is not allowed:
    /// [`Connection::is_privileged`] says which it was).
    fn connect(
        &self,
        local: SocketAddrV4,
        peer: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>>;

    /// Whether only who has privilege on the machine of `address` can be there, as far as this one knows.
    fn needs_privilege(&self, address: SocketAddrV4) -> bool {
        address.port() < 1024
    }

    /// Listens on `local`.
    fn listen(&self, local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>>;
}

/// The world, as one value to hand down.
#[derive(Clone)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Connections.
    pub network: Arc<dyn Network>,
}
