//! The descriptor that leads to the kernel: one message a system call, in both directions.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// `/dev/fuse`, or what stands for it in a test.
#[derive(Debug)]
pub(crate) struct Device(pub(crate) OwnedFd);

impl Device {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next message; 0 bytes when it is unmounted, or the other end is gone.
    ///
    /// # Errors
    /// The descriptor failed.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                // The caller of what was to be read has gone meanwhile, or this thread was disturbed.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // A connection that was aborted is as good as unmounted.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(0),
                received => return Ok(received?),
            }
        }
    }

    /// Sends the pieces as one message.
    ///
    /// # Errors
    /// The kernel does not take it: `ENOENT` if no caller waits for such an answer any more.
    pub(crate) fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        loop {
            match rustix::io::writev(&self.0, pieces) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }
}
