//! A mount by `fusermount3`, which may do for a user what only root may.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

/// The program.
pub const HELPER: &str = "fusermount3";

/// Mounts at `point` with `options`, as of `mount(8)`, and answers the kernel's device.
///
/// The helper sends the descriptor over a socket whose number the environment names: it is given as its standard input,
/// so that no other descriptor of this process is inherited.
///
/// # Errors
/// The helper is not there, or refused; its own words are the error's.
pub fn mount_by_helper(point: &Path, options: &str) -> io::Result<OwnedFd> {
    let (own, its) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(HELPER);
    command.args(["-o", options, "--"]).arg(point).env("_FUSE_COMMFD", "0");
    command.stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let helper = command.spawn()?;
    // With it goes our copy of its end: the helper's is the last.
    drop(command);
    let device = receive(&own);
    let ended = helper.wait_with_output()?;
    match device? {
        Some(device) if ended.status.success() => Ok(device),
        _ => {
            let text = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
            let is_denied = text.contains("user_allow_other") || text.contains("not permitted");
            let kind =
                if is_denied { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
            let text = if text.is_empty() { format!("{HELPER}: {}", ended.status) } else { text };
            Err(io::Error::new(kind, text))
        }
    }
}

/// The descriptor that comes over the socket; `None` if it ends without one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut pieces = [io::IoSliceMut::new(&mut byte)];
    // What comes with the descriptor is one byte that says nothing; at the end, none.
    while let Err(error) = recvmsg(socket, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    let descriptors = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors)
}
