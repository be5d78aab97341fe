//! FUSE requests as a kernel would never send them: over a socket in the place of `/dev/fuse`, through
//! fuser and our adapter, to a client in virtual time.
//!
//! The kernel is trusted with what only it decides: that a message is as long as it says, and that a read
//! asks for no more than was agreed on. Everything else in a request may be anything, and each request
//! that the protocol answers is answered.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use sheen_fuse::{FuseMountOptions, Serving, serve};
use sheen_vnet::Virtual;

use crate::answers::{node_at, try_mount};
use crate::common::start;
use crate::ends::{end, end_node};
use crate::source::{Input, Source};

/// Requests of one input, at most.
const REQUESTS: u64 = 48;
/// Steps of virtual time that an answer may take: an hour of it.
const STEPS: u32 = 3_600;
/// Real time between two looks for an answer that is a thread's to give.
const PAUSE: Duration = Duration::from_micros(50);
/// So many looks come without a pause: most answers are there by then.
const EAGER_STEPS: u32 = 200;
/// Bytes of an answer, at most.
const ANSWER_BYTES: usize = 2 << 20;
/// What a kernel asks for at once, at most.
const READ_BYTES: u64 = 128 << 10;
/// Where the client of the kernel is.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 15);
/// The root's inode number.
const ROOT: u64 = 1;

/// How a request's fixed part looks, and what follows it.
struct Shape {
    opcode: u32,
    /// Bytes of the fixed part.
    fixed: usize,
    /// Names behind it, each with its NUL.
    names: usize,
    /// Bytes behind all: their number is at this place of the fixed part.
    data_at: Option<usize>,
    /// Where a handle is.
    handle_at: Option<usize>,
    /// Where a number of bytes is that the answer may have.
    size_at: Option<usize>,
    /// Whether it is always answered without the help of another request.
    is_answered: bool,
}

const fn shape(opcode: u32, fixed: usize, names: usize) -> Shape {
    let (data_at, handle_at, size_at) = (None, None, None);
    Shape { opcode, fixed, names, data_at, handle_at, size_at, is_answered: true }
}

const fn opened(opcode: u32, fixed: usize) -> Shape {
    Shape { handle_at: Some(0), ..shape(opcode, fixed, 0) }
}

const fn read(opcode: u32) -> Shape {
    Shape { size_at: Some(16), ..opened(opcode, 40) }
}

const FORGET: Shape = Shape { is_answered: false, ..shape(2, 8, 0) };
const SETATTR: Shape = Shape { handle_at: Some(8), ..shape(4, 88, 0) };
const WRITE: Shape = Shape { data_at: Some(16), ..opened(16, 40) };
const SETXATTR: Shape = Shape { data_at: Some(0), ..shape(21, 8, 1) };
const SET_LOCK_AND_WAIT: Shape = Shape { is_answered: false, ..opened(33, 48) };
const INTERRUPT: Shape = Shape { is_answered: false, ..shape(36, 8, 0) };
const IOCTL: Shape = Shape { data_at: Some(24), size_at: Some(28), ..opened(39, 32) };

/// Lookup, forget, getattr, setattr, readlink, symlink, mknod, mkdir, unlink, rmdir, rename, link, open,
/// read, write, statfs, release, fsync, the four of extended attributes, flush, the four of directories,
/// the three of locks, access, create, interrupt, bmap, ioctl, poll, fallocate, readdirplus, rename2,
/// lseek, copy_file_range, and one that does not exist.
const SHAPES: [Shape; 44] = [
    shape(1, 0, 1),
    FORGET,
    shape(3, 16, 0),
    SETATTR,
    shape(5, 0, 0),
    shape(6, 0, 2),
    shape(8, 16, 1),
    shape(9, 8, 1),
    shape(10, 0, 1),
    shape(11, 0, 1),
    shape(12, 8, 2),
    shape(13, 8, 1),
    shape(14, 8, 0),
    shape(14, 8, 0),
    read(15),
    read(15),
    WRITE,
    WRITE,
    shape(17, 0, 0),
    opened(18, 24),
    opened(20, 16),
    SETXATTR,
    Shape { size_at: Some(0), ..shape(22, 8, 1) },
    Shape { size_at: Some(0), ..shape(23, 8, 0) },
    shape(24, 0, 1),
    opened(25, 24),
    shape(27, 8, 0),
    read(28),
    opened(29, 24),
    opened(30, 16),
    opened(31, 48),
    opened(32, 48),
    SET_LOCK_AND_WAIT,
    shape(34, 8, 0),
    shape(35, 16, 1),
    shape(35, 16, 1),
    INTERRUPT,
    shape(37, 16, 0),
    IOCTL,
    opened(40, 24),
    opened(43, 32),
    read(44),
    shape(45, 16, 2),
    opened(46, 24),
];

/// Where `FUSE_SETATTR` has times.
const SECONDS_AT: [usize; 3] = [32, 40, 48];
const NANOSECONDS_AT: [usize; 3] = [56, 60, 64];
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 128;
const NAMES: [&[u8]; 10] =
    [b"a", b"b", b"c", b".", b"..", b"", b"a/b", b"\xff\x01", b"user.a", &[b'x'; 300]];
const EDGES: [u64; 10] = [
    0,
    1,
    4_096,
    i32::MAX as u64,
    u32::MAX as u64,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// The other side of the socket.
struct Kernel {
    socket: OwnedFd,
    input: Arc<Input>,
    nodes: Vec<u64>,
    handles: Vec<u64>,
    unique: u64,
}

/// A message with its header.
fn message(opcode: u32, unique: u64, node: u64, user: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend(user.to_le_bytes());
    bytes.extend(user.to_le_bytes());
    bytes.extend(std::process::id().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// `FUSE_INIT` of a kernel that can do all that ours can.
fn init() -> Vec<u8> {
    let mut body = Vec::new();
    for word in [7u32, 40, 1 << 20, u32::MAX] {
        body.extend(word.to_le_bytes());
    }
    body.resize(64, 0);
    message(26, 1, 0, 0, &body)
}

impl Kernel {
    fn number(&self) -> u64 {
        match self.input.below(4) {
            0 => self.input.below(256),
            1 => self.input.pick(&EDGES),
            2 => self.input.below(1 << 16),
            _ => self.input.draw(),
        }
    }

    /// A time that the kernel lets through: it has no nanoseconds at the ends of all time.
    fn second(&self) -> i64 {
        self.number().cast_signed().clamp(i64::MIN + 1, i64::MAX - 1)
    }

    fn node(&self) -> u64 {
        match self.input.below(8) {
            1 => self.number(),
            2 => ROOT,
            _ => self.input.pick(&self.nodes),
        }
    }

    fn body(&self, shape: &Shape) -> Vec<u8> {
        let mut body: Vec<u8> = Vec::new();
        while body.len() < shape.fixed {
            body.extend(self.number().to_le_bytes());
        }
        body.truncate(shape.fixed);
        let mut put = |at: usize, bytes: &[u8]| body[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(at) = shape.handle_at
            && !self.input.one_in(8)
        {
            put(at, &self.input.pick(&self.handles).to_le_bytes());
        }
        if let Some(at) = shape.size_at {
            put(at, &(self.input.below(READ_BYTES) as u32).to_le_bytes());
        }
        let data = match shape.data_at {
            Some(_) => vec![7; self.input.below(9_000) as usize],
            None => Vec::new(),
        };
        if let Some(at) = shape.data_at {
            put(at, &(data.len() as u32).to_le_bytes());
        }
        if shape.opcode == SETATTR.opcode {
            SECONDS_AT.iter().for_each(|at| put(*at, &self.second().to_le_bytes()));
            NANOSECONDS_AT.iter().for_each(|at| put(*at, &999_999_999u32.to_le_bytes()));
        }
        // Opening to read and write comes about seldom by chance.
        if [14, 27, 35].contains(&shape.opcode) && !self.input.one_in(4) {
            put(0, &2u32.to_le_bytes());
        }
        for _ in 0..shape.names {
            body.extend(self.input.pick(&NAMES));
            body.push(0);
        }
        body.extend(data);
        body
    }

    fn request(&mut self) -> (&'static Shape, Vec<u8>) {
        self.unique += 2;
        let shape = &SHAPES[self.input.below(SHAPES.len() as u64) as usize];
        let (node, user) = (self.node(), self.input.pick(&[0, 0, 0, 1_000, u32::MAX]));
        let body = self.body(shape);
        (shape, message(shape.opcode, self.unique, node, user, &body))
    }

    /// What came, if anything did.
    fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        recv(&self.socket, buffer, RecvFlags::DONTWAIT).ok().map(|(length, _)| length)
    }

    /// Remembers nodes and handles.
    fn learn(&mut self, opcode: u32, answer: &[u8]) {
        let number = |at: usize| {
            let bytes = answer.get(at..at + 8)?;
            bytes.try_into().ok().map(u64::from_le_bytes)
        };
        let failed = answer.get(4..8) != Some(&[0; 4]);
        if failed {
            return;
        }
        if [1, 6, 8, 9, 13, 35].contains(&opcode) {
            self.nodes.extend(number(16).filter(|node| *node != 0));
        }
        match opcode {
            14 | 27 => self.handles.extend(number(16)),
            35 => self.handles.extend(number(16 + ENTRY_BYTES)),
            _ => {}
        }
    }

    /// Waits for the answer to `unique` while time passes; notifications are taken and forgotten.
    fn answer(&mut self, world: &Virtual, opcode: u32, unique: u64, must: bool) {
        let mut buffer = vec![0; ANSWER_BYTES];
        for step in 0..STEPS {
            while let Some(length) = self.receive(&mut buffer) {
                if buffer.get(8..16) == Some(&unique.to_le_bytes()) {
                    self.learn(opcode, &buffer[..length]);
                    return;
                }
            }
            if !must && step > 20 {
                return;
            }
            give_way(step);
            // In small steps at first: most answers come at once.
            let step = if step < 1_000 { 1 } else { 1_400 };
            world.pass(Duration::from_millis(step));
        }
        panic!("the request {unique} of opcode {opcode} got no answer");
    }
}

/// Lets other threads work: at first only those that can at once.
#[expect(clippy::disallowed_methods, reason = "the answer is a thread's to give, in real time")]
fn give_way(step: u32) {
    match step {
        0..EAGER_STEPS => std::thread::yield_now(),
        _ => std::thread::sleep(PAUSE),
    }
}

/// Waits until the side that serves is gone.
fn leave(world: &Virtual, serving: Serving) {
    let waiting = std::thread::Builder::new().spawn(move || serving.wait()).expect("a thread");
    for step in 0..STEPS {
        if waiting.is_finished() {
            break;
        }
        give_way(step);
        world.pass(Duration::from_millis(10));
    }
    assert!(waiting.is_finished(), "the mount does not end");
    let ended = waiting.join().expect("no panic");
    assert!(!format!("{ended:?}").contains("panicked"), "{ended:?}");
}

/// Requests of a kernel, as `data` says.
pub fn fuse_requests(data: &[u8]) {
    let servers = start(1);
    let (world, io) = (&servers.world, servers.world.world());
    let (node, files) = world.run(async move {
        let node = node_at(&io, CLIENT).await;
        let files = try_mount(io, Arc::clone(&node)).await;
        (node, files.expect("honest servers"))
    });
    let (socket, device) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    // Notifications run where the client's tasks do, which is here.
    let _inside = runtime.enter();
    send(&socket, &init(), SendFlags::empty()).expect("sent");
    let options = FuseMountOptions { allow_other: true, ..FuseMountOptions::default() };
    let serving =
        serve(files.clone(), device, &options, runtime.handle().clone()).expect("it serves");
    let input = Input::new(data);
    let (nodes, handles) = (vec![ROOT], vec![0]);
    let mut kernel = Kernel { socket, input, nodes, handles, unique: 2 };
    for _ in 0..REQUESTS {
        if kernel.input.is_empty() {
            break;
        }
        let (shape, bytes) = kernel.request();
        if send(&kernel.socket, &bytes, SendFlags::empty()).is_err() {
            break;
        }
        let unique = kernel.unique;
        kernel.answer(world, shape.opcode, unique, shape.is_answered);
    }
    let destroy = message(38, kernel.unique + 2, 0, 0, &[]);
    let _ = send(&kernel.socket, &destroy, SendFlags::empty());
    leave(world, serving);
    world.run(async move { files.unmount().await });
    end_node(&node);
    runtime.shutdown_background();
    end(servers);
}
