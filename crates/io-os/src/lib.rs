//! The io traits on Linux: sockets, threads, clock.
//!
//! A [`Host`] owns a tokio runtime; [`Host::world`] is what the node and the roles get of it. This is
//! the only crate that touches sockets, and with `fuse` and `control` the only one that knows the
//! time.

mod folder;
mod network;
mod readiness;
mod stream;
mod tasks;
mod time;

use std::future::Future;
use std::io;
use std::sync::Arc;

use sheen_io::{Random, World};
use tokio::runtime::{Builder, Handle, Runtime};

pub use folder::SocketFolder;
pub use network::port_unprivileged_min;
pub use readiness::Readiness;

/// Threads, sockets and clocks of this process.
pub struct Host {
    /// Taken by the drop.
    runtime: Option<Runtime>,
    world: World,
}

/// Polls of tasks after which a busy thread looks what has come from the network: a peer that sends one request
/// would wait for so many of the peers that flood. A look costs less than a microsecond.
const TASKS_BETWEEN_LOOKS: u32 = 8;

impl Host {
    /// Starts `threads` worker threads; as many as there are processors if `None`.
    ///
    /// # Errors
    /// The operating system gives no threads or no epoll.
    pub fn start(threads: Option<usize>) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        if let Some(threads) = threads {
            builder.worker_threads(threads.max(1));
        }
        builder.event_interval(TASKS_BETWEEN_LOOKS);
        let runtime = builder.thread_name("sheen").enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let world = World {
            clock: Arc::new(time::OsClock::new(handle.clone())),
            random: Arc::new(OsRandom),
            tasks: Arc::new(tasks::OsTasks::new(handle.clone())),
            network: Arc::new(network::OsNetwork::new(handle, None, true)),
        };
        Ok(Self { runtime: Some(runtime), world })
    }

    /// What to hand down.
    #[must_use]
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// Runs `work` on this thread until it is done; everything else goes on meanwhile.
    ///
    /// # Panics
    /// When called from one of the host's own tasks, which would wait for themselves.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("the runtime lives until the drop").block_on(work)
    }
}

impl Drop for Host {
    /// Ends without waiting for tasks or blocking jobs: who needs an orderly end has one before.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// `world`, whose nodes meet through the UNIX sockets in `folder`: they listen there, and reach there every
/// node that has a socket. With `tcp` they listen at their addresses as well, and reach other nodes there;
/// without it nothing of theirs can be reached from outside of the folder.
///
/// # Panics
/// Outside of a host's tasks and [`Host::block_on`].
#[must_use]
pub fn with_sockets(world: &World, folder: SocketFolder, tcp: bool) -> World {
    let network = network::OsNetwork::new(Handle::current(), Some(folder), tcp);
    World { network: Arc::new(network), ..world.clone() }
}

/// Random bytes, for a tool that runs no host.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsRandom.fill(&mut bytes);
    bytes
}

/// The kernel's random numbers.
struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            let rest = &mut bytes[filled..];
            // Fails only when a signal comes while the pool is not initialized: then again.
            filled +=
                rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
        }
    }
}
