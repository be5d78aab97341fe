//! Serving without mounting: a descriptor stands for the kernel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sheen_client::posix::{Audience, FileSystem};
use sheen_fuse_wire::{Config, Running, Session};

use crate::adapter::Adapter;
use crate::busy::BusyDirectories;
use crate::kernel::Kernel;
use crate::mount_options::FuseMountOptions;

/// A file system that answers what comes over a descriptor.
pub struct Serving(Running);

impl Serving {
    /// Waits until the other side has sent `FUSE_DESTROY` or is gone.
    ///
    /// # Errors
    /// If a request could not be read, or the thread that served them panicked.
    pub fn wait(self) -> io::Result<()> {
        self.0.join()
    }
}

/// Answers the FUSE requests that come over `device`, one in each message, of which the first is
/// `FUSE_INIT`; calls run on `runtime`. Nothing is mounted, and one thread reads.
///
/// # Errors
/// If the first message is no `FUSE_INIT`, or the descriptor fails.
pub fn serve(
    file_system: FileSystem,
    device: OwnedFd,
    options: &FuseMountOptions,
    runtime: tokio::runtime::Handle,
) -> io::Result<Serving> {
    let busy = Arc::new(BusyDirectories::default());
    let kernel = Arc::new(Kernel::new(runtime.clone(), Arc::clone(&busy)));
    file_system.attach_notifier(Arc::clone(&kernel) as _, Audience::AnyUser);
    let adapter =
        Adapter::new(file_system, runtime, Arc::clone(&kernel), busy, Arc::default(), options);
    let session = Session::new(adapter, device, Config::default())?.spawn()?;
    let device = session.as_fd().try_clone_to_owned()?;
    kernel.attach(session.notifier(), device.into());
    Ok(Serving(session))
}
