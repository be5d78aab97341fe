//! What a mount's keeper and its process say to each other, over a pair of sockets: lines with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Bytes of a message: the path of a program, and a word.
const MESSAGE_BYTES: usize = 4096 + 64;
/// Descriptors of a message: the connection to the kernel, and the memory.
const DESCRIPTORS: usize = 2;

/// What the process needs of the one before it.
pub(super) struct Kept {
    /// The connection to the kernel.
    pub(super) device: OwnedFd,
    /// The memory ([`sheen_fuse::KeeperMemory`]).
    pub(super) memory: OwnedFd,
}

/// What is said.
pub(super) enum Message {
    /// By the keeper, first of all: the process is to mount.
    Mount,
    /// By the keeper, first of all: it is to go on with a mount; why the process before it has ended.
    GoOn(String, Kept),
    /// By the process, first of all: the number of a thread of it that never waits in the kernel for the mount.
    Lives(i32),
    /// By the process: another one can go on with this from now on.
    Keep(Kept),
    /// By the process, which ends now: the program that goes on.
    Next(String),
}

/// One end.
pub(super) struct Link(OwnedFd);

impl Link {
    /// Two ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), other))
    }

    /// The end that the keeper has given to this process.
    pub(super) fn new(end: OwnedFd) -> Self {
        Self(end)
    }

    /// This end, to be waited for.
    pub(super) fn to_be_polled(&self) -> io::Result<UnixStream> {
        let same = UnixStream::from(self.0.try_clone()?);
        same.set_nonblocking(true)?;
        Ok(same)
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        match message {
            Message::Mount => self.send_line("mount", &[]),
            Message::GoOn(why, kept) => self.send_line(&format!("go on {why}"), &kept.both()),
            Message::Lives(thread) => self.send_line(&format!("lives {thread}"), &[]),
            Message::Keep(kept) => self.send_line("keep", &kept.both()),
            Message::Next(program) => self.send_line(&format!("next {program}"), &[]),
        }
    }

    /// Has descriptors kept that stay this process's, too.
    pub(super) fn keep(&self, device: BorrowedFd<'_>, memory: BorrowedFd<'_>) -> io::Result<()> {
        self.send_line("keep", &[device, memory])
    }

    fn send_line(&self, line: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let line = [IoSlice::new(line.as_bytes())];
        sendmsg(&self.0, &line, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a message; `None` at the end.
    pub(super) fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = rustix::io::retry_on_intr(|| {
            recvmsg(&self.0, &mut parts, &mut control, flags).map(|received| received.bytes)
        })?;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        if length == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        message(&line, descriptors).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Kept {
    fn both(&self) -> [BorrowedFd<'_>; DESCRIPTORS] {
        [self.device.as_fd(), self.memory.as_fd()]
    }

    fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [device, memory] = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors).ok()?;
        Some(Self { device, memory })
    }

    /// These descriptors once more, to be given away.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { device: self.device.try_clone()?, memory: self.memory.try_clone()? })
    }
}

fn message(line: &str, descriptors: Vec<OwnedFd>) -> Option<Message> {
    let kept = Kept::of(descriptors);
    if let Some(why) = line.strip_prefix("go on ") {
        return Some(Message::GoOn(why.to_owned(), kept?));
    }
    if let Some(program) = line.strip_prefix("next ") {
        return Some(Message::Next(program.to_owned()));
    }
    if let Some(thread) = line.strip_prefix("lives ") {
        return thread.parse().ok().map(Message::Lives);
    }
    match line {
        "mount" => Some(Message::Mount),
        "keep" => Some(Message::Keep(kept?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn what_is_said_is_heard_with_its_descriptors() {
        let (keeper, other) = Link::pair().expect("a pair");
        let process = Link::new(other);
        let file = |text: &str| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::memfd_create("said", flags).expect("a file"));
            file.write_all(text.as_bytes()).expect("written");
            OwnedFd::from(file)
        };
        let text = |descriptor: OwnedFd| {
            let (mut file, mut text) = (File::from(descriptor), String::new());
            file.rewind().expect("rewound");
            file.read_to_string(&mut text).expect("read");
            text
        };
        keeper.send(&Message::Mount).expect("sent");
        assert!(matches!(process.receive(), Ok(Some(Message::Mount))));
        process.send(&Message::Lives(4711)).expect("sent");
        assert!(matches!(keeper.receive(), Ok(Some(Message::Lives(4711)))));
        let kept = Kept { device: file("device"), memory: file("memory") };
        process.send(&Message::Keep(kept)).expect("sent");
        let Ok(Some(Message::Keep(kept))) = keeper.receive() else { panic!("kept") };
        let again = kept.try_clone().expect("cloned");
        keeper.send(&Message::GoOn("signal 9".to_owned(), again)).expect("sent");
        let Ok(Some(Message::GoOn(why, kept))) = process.receive() else { panic!("goes on") };
        assert_eq!(why, "signal 9");
        assert_eq!((text(kept.device), text(kept.memory)), ("device".into(), "memory".into()));
        process.send(&Message::Next("/usr/bin/sheen".to_owned())).expect("sent");
        let Ok(Some(Message::Next(program))) = keeper.receive() else { panic!("next") };
        assert_eq!(program, "/usr/bin/sheen");
        drop(process);
        assert!(matches!(keeper.receive(), Ok(None)));
    }
}
