//! What kernel and file system agree on first, and the threads that read requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::param::page_size;
use sheen_types::Errno;

use crate::agreement::{Agreement, KernelConfig};
use crate::device::Device;
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::input::Request;
use crate::notify::Notifier;
use crate::opcode;
use crate::output::Output;
use crate::reply::ReplyEmpty;
use crate::types::InitFlags;

/// The protocol that is spoken here. A kernel with an older one leaves out what it does not have.
const MAJOR: u32 = 7;
const MINOR: u32 = 45;
/// Older kernels (before Linux 4.20) have structures of other sizes.
const MINOR_LEAST: u32 = 28;
/// Bytes of a message beside what it carries: a header, and names.
const BESIDE_BYTES: usize = 8192;

/// How a session is served.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that read requests.
    pub threads: usize,
    /// Bytes of one write, at most.
    pub max_write: u32,
    /// Bytes that the kernel reads ahead, at most.
    pub max_readahead: u32,
    /// Requests that the kernel sends on its own account (read-ahead, asynchronous direct IO) at once.
    pub max_background: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self { threads: 1, max_write: 1 << 20, max_readahead: 1 << 20, max_background: 64 }
    }
}

/// A connection to the kernel, and the file system that answers.
#[derive(Debug)]
pub struct Session<F> {
    device: Arc<Device>,
    filesystem: Arc<F>,
    config: Config,
    agreement: Agreement,
}

impl<F: Filesystem> Session<F> {
    /// Meets the kernel that is at the other end of `device`, whose first message is a `FUSE_INIT`.
    ///
    /// # Errors
    /// The descriptor failed, the first message is another one, or the kernel is older than protocol 7.28.
    pub fn new(filesystem: F, device: OwnedFd, config: Config) -> io::Result<Self> {
        let device = Arc::new(Device(device));
        let mut buffer = vec![0; buffer_bytes(&config)];
        let length = device.receive(&mut buffer)?;
        let invalid = || {
            io::Error::new(io::ErrorKind::InvalidData, "the kernel did not begin with FUSE_INIT")
        };
        let (request, mut input) = Request::split(&buffer[..length]).ok_or_else(invalid)?;
        if request.opcode != opcode::INIT {
            ReplyEmpty::new(&device, request.unique).error(Errno::EIO);
            return Err(invalid());
        }
        let mut next = || input.u32();
        let (major, minor) = (next().ok_or_else(invalid)?, next().ok_or_else(invalid)?);
        if major != MAJOR || minor < MINOR_LEAST {
            ReplyEmpty::new(&device, request.unique).error(Errno::EPROTO);
            let text = format!(
                "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_LEAST} is the oldest that will do"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (readahead, low) = (next().ok_or_else(invalid)?, next().ok_or_else(invalid)?);
        let is_extended = InitFlags::from_bits_retain(low.into()).contains(InitFlags::INIT_EXT);
        let high = if is_extended { next().unwrap_or_default() } else { 0 };
        let offered = u64::from(low) | u64::from(high) << 32;
        let mut chosen = KernelConfig(Agreement { offered, protocol: minor, taken: 0 });
        filesystem.init(&mut chosen);
        let agreement = chosen.0;
        let reply = init_out(&config, &agreement, readahead);
        crate::reply::ReplyData::new(&device, request.unique).data(&reply);
        Ok(Self { device, filesystem: Arc::new(filesystem), config, agreement })
    }

    /// Goes on with a connection on which another process has agreed with the kernel.
    #[must_use]
    pub fn resume(filesystem: F, device: OwnedFd, config: Config, agreement: Agreement) -> Self {
        Self {
            device: Arc::new(Device(device)),
            filesystem: Arc::new(filesystem),
            config,
            agreement,
        }
    }

    /// What was agreed on.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn spawn(self) -> io::Result<Running> {
        let Self { device, filesystem, config, .. } = self;
        let start = |number| {
            let (device, filesystem) = (Arc::clone(&device), Arc::clone(&filesystem));
            let thread = std::thread::Builder::new().name(format!("fuse-{number}"));
            thread.spawn(move || serve(&device, &*filesystem, &config))
        };
        let threads = (0..config.threads.max(1)).map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Running { device, threads })
    }
}

/// Bytes of the largest message.
fn buffer_bytes(config: &Config) -> usize {
    BESIDE_BYTES + config.max_write as usize
}

/// `fuse_init_out`.
fn init_out(config: &Config, agreement: &Agreement, readahead: u32) -> Vec<u8> {
    let mut output = Output::default();
    let readahead = readahead.min(config.max_readahead);
    let background = config.max_background;
    let pages = config.max_write.max(readahead) as usize / page_size();
    let pages = u16::try_from(pages).unwrap_or(u16::MAX);
    let (low, high) = (agreement.taken as u32, (agreement.taken >> 32) as u32);
    output.u32(MAJOR).u32(MINOR.min(agreement.protocol)).u32(readahead).u32(low);
    output.u16(background).u16(background / 4 * 3).u32(config.max_write);
    // Times are as fine as they can be.
    output.u32(1).u16(pages).u16(0).u32(high);
    (0..7).for_each(|_| _ = output.u32(0));
    output.0
}

/// Answers one request after the other, until it is unmounted.
fn serve(device: &Arc<Device>, filesystem: &impl Filesystem, config: &Config) -> io::Result<()> {
    let mut buffer = vec![0; buffer_bytes(config)];
    loop {
        let length = device.receive(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let Some((request, input)) = Request::split(&buffer[..length]) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is no request"));
        };
        if request.opcode == opcode::DESTROY {
            ReplyEmpty::new(device, request.unique).ok();
            return Ok(());
        }
        dispatch(filesystem, device, &request, input);
    }
}

/// A session whose threads run.
#[derive(Debug)]
pub struct Running {
    device: Arc<Device>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.fd()
    }
}

impl Running {
    /// What notifies the kernel.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.device))
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// The descriptor failed, or a thread panicked.
    pub fn join(self) -> io::Result<()> {
        let joined = self.threads.into_iter().map(|thread| {
            let panicked = |_| io::Error::other("a thread that served it panicked");
            thread.join().map_err(panicked).flatten()
        });
        joined.fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::sync::Mutex;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::filesystem::{
        AttributeCalls, DirectoryCalls, FileCalls, LockCalls, NameCalls, XattrCalls,
    };
    use crate::reply::ReplyEntry;
    use crate::types::INodeNo;

    #[derive(Default)]
    struct Names(Mutex<Vec<u64>>);

    impl Filesystem for Names {
        fn init(&self, config: &mut KernelConfig) {
            config.take(InitFlags::ASYNC_READ | InitFlags::HAS_RESEND | InitFlags::BIG_WRITES);
        }

        fn forget(&self, node: INodeNo, lookups: u64) {
            self.0.lock().expect("whole").extend([node.0, lookups]);
        }

        fn interrupt(&self, unique: u64) {
            self.0.lock().expect("whole").push(unique);
        }
    }

    impl NameCalls for Names {
        fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
            assert_eq!((parent, name), (INodeNo::ROOT, OsStr::new("name")));
            reply.error(Errno::ENOENT);
        }
    }

    impl AttributeCalls for Names {}

    impl XattrCalls for Names {}

    impl FileCalls for Names {}

    impl DirectoryCalls for Names {}

    impl LockCalls for Names {}

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Output::default();
        message.u32(40 + body.len() as u32).u32(opcode).u64(77).u64(1);
        message.u32(1).u32(2).u32(3).u32(0).bytes(body);
        message.0
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn ends() -> (OwnedFd, Device) {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        (one, Device(other))
    }

    fn send(kernel: &Device, message: &[u8]) {
        kernel.send(&[io::IoSlice::new(message)]).expect("sent");
    }

    fn receive(kernel: &Device) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let length = kernel.receive(&mut buffer).expect("an answer");
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn what_both_have_is_agreed_on_and_requests_are_answered_until_the_end() {
        let (device, kernel) = ends();
        let (extended, resend) = (1u32 << 30, 1u32 << 7);
        let mut init = words(&[7, 41, 1 << 17, 1 | extended, resend]);
        init.resize(64, 0);
        send(&kernel, &message(opcode::INIT, &init));
        let session = Session::new(Names::default(), device, Config::default()).expect("met");
        let agreement = session.agreement();
        assert_eq!((agreement.protocol, agreement.taken), (41, 1 | 1 << 39));
        let reply = receive(&kernel);
        assert_eq!(reply.len(), 16 + 64);
        assert_eq!(reply[16..32], words(&[7, 41, 1 << 17, 1])[..]);
        assert_eq!(reply[36..44], words(&[1 << 20, 1])[..]);
        assert_eq!(reply[48..52], words(&[resend])[..]);
        let names = Arc::clone(&session.filesystem);
        let running = session.spawn().expect("threads");
        send(&kernel, &message(1, b"name\0"));
        assert_eq!(receive(&kernel)[4..8], (-2i32).to_ne_bytes());
        // A name without an end, an operation that there is not, one of the protocol that is not here.
        for (opcode, body, errno) in [(1, &b"name"[..], 5), (999, b"", 38), (37, b"", 38)] {
            send(&kernel, &message(opcode, body));
            assert_eq!(receive(&kernel)[4..8], i32::to_ne_bytes(-errno));
        }
        send(&kernel, &message(2, &9u64.to_ne_bytes()));
        let batch: Vec<u8> = [2u64, 5, 6, 7, 8].iter().flat_map(|it| it.to_ne_bytes()).collect();
        send(&kernel, &message(42, &batch));
        send(&kernel, &message(36, &55u64.to_ne_bytes()));
        send(&kernel, &message(opcode::DESTROY, &[]));
        assert_eq!(receive(&kernel)[4..8], [0; 4]);
        running.join().expect("ended");
        assert_eq!(*names.0.lock().expect("whole"), [1, 9, 5, 6, 7, 8, 55]);
    }

    #[test]
    fn a_kernel_that_is_too_old_or_begins_otherwise_is_refused() {
        for (first, errno) in [
            (message(opcode::INIT, &words(&[7, 27, 0, 0])), 71),
            (message(opcode::LOOKUP, b"a\0"), 5),
        ] {
            let (device, kernel) = ends();
            send(&kernel, &first);
            assert!(Session::new(Names::default(), device, Config::default()).is_err());
            assert_eq!(receive(&kernel)[4..8], i32::to_ne_bytes(-errno));
        }
    }
}
