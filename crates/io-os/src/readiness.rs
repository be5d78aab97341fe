//! Waiting for descriptors that are no sockets.
#![allow(unsafe_code, reason = "tokio wants a promise for what it waits for")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that becomes readable once, and stays so: that of a process or thread that ends.
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Waits with the runtime that this is called in.
    ///
    /// # Errors
    /// The descriptor cannot be waited for.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        // SAFETY: an owned descriptor stays open, and the same, for as long as it is owned.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self(registered.map_err(|error| error.into_parts().1)?))
    }

    /// Returns when it is.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn ready(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut ready| ready.retain_ready())
    }
}
