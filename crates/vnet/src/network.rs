//! Connections that delay, cut up, overtake and break.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sheen_io::{
    BoxFuture, Clock, Connection, Listener, Network, PeerAddress, ReadStream, WriteStream,
};
use sheen_types::{HashMap, HashSet, Instant};

use crate::executor::Executor;
use crate::{NetworkConditions, SeededRandom};

#[derive(Default)]
struct Doors {
    listening: HashMap<SocketAddrV4, Arc<Mutex<Door>>>,
    cut_off: HashSet<Ipv4Addr>,
    /// Pairs that do not reach each other, the lower address first.
    apart: HashSet<(Ipv4Addr, Ipv4Addr)>,
    /// How much longer than the conditions say bytes travel between two, the lower address first.
    distances: HashMap<(Ipv4Addr, Ipv4Addr), Duration>,
    /// Both directions of every connection, by number so that their order is the same each time.
    pipes: BTreeMap<u64, (Ipv4Addr, Ipv4Addr, Weak<Mutex<Pipe>>)>,
    next: u64,
}

#[derive(Default)]
struct Door {
    waiting: VecDeque<Connection>,
    waker: Option<Waker>,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    in_flight: usize,
    /// How much longer than the conditions say bytes travel.
    distance: Duration,
    /// Nothing overtakes within a connection.
    last_arrival: Instant,
    /// The writer's end: what has been sent before still arrives.
    finished: bool,
    end_arrived: bool,
    broken: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake_all(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Moves `count` bytes that have arrived to `buffer`.
    fn take(&mut self, count: usize, buffer: &mut BytesMut) {
        self.arrived_bytes -= count;
        let mut left = count;
        while left > 0 {
            let Some(first) = self.arrived.front_mut() else { return };
            let part = first.split_to(left.min(first.len()));
            left -= part.len();
            buffer.extend_from_slice(&part);
            if first.is_empty() {
                self.arrived.pop_front();
            }
        }
    }

    fn break_down(&mut self) {
        self.broken = true;
        self.arrived.clear();
        self.arrived_bytes = 0;
        self.wake_all();
    }
}

fn pair_of(one: Ipv4Addr, two: Ipv4Addr) -> (Ipv4Addr, Ipv4Addr) {
    (one.min(two), one.max(two))
}

struct Shared {
    executor: Arc<Executor>,
    random: Arc<SeededRandom>,
    conditions: Mutex<NetworkConditions>,
    doors: Mutex<Doors>,
}

/// The network. See the module.
#[derive(Clone)]
pub(crate) struct Wires(Arc<Shared>);

impl Wires {
    pub(crate) fn new(
        executor: Arc<Executor>,
        random: Arc<SeededRandom>,
        conditions: NetworkConditions,
    ) -> Self {
        let (conditions, doors) = (Mutex::new(conditions), Mutex::default());
        Self(Arc::new(Shared { executor, random, conditions, doors }))
    }

    pub(crate) fn set_network_conditions(&self, conditions: NetworkConditions) {
        *self.0.conditions.lock() = conditions;
    }

    pub(crate) fn break_connections(&self, address: Ipv4Addr) {
        let doors = self.0.doors.lock();
        let pipes: Vec<_> = doors
            .pipes
            .values()
            .filter(|(one, two, _)| *one == address || *two == address)
            .filter_map(|(_, _, pipe)| pipe.upgrade())
            .collect();
        drop(doors);
        for pipe in pipes {
            pipe.lock().break_down();
        }
    }

    pub(crate) fn set_cut_off(&self, address: Ipv4Addr, cut_off: bool) {
        let mut doors = self.0.doors.lock();
        match cut_off {
            true => doors.cut_off.insert(address),
            false => doors.cut_off.remove(&address),
        };
        drop(doors);
        if cut_off {
            self.break_connections(address);
        }
    }

    pub(crate) fn set_apart(&self, one: Ipv4Addr, two: Ipv4Addr, apart: bool) {
        let mut doors = self.0.doors.lock();
        match apart {
            true => doors.apart.insert(pair_of(one, two)),
            false => doors.apart.remove(&pair_of(one, two)),
        };
        let pipes = doors.pipes.values();
        let between = pipes.filter(|(from, to, _)| pair_of(*from, *to) == pair_of(one, two));
        let between: Vec<_> = between.filter_map(|(_, _, pipe)| pipe.upgrade()).collect();
        drop(doors);
        for pipe in between.into_iter().filter(|_| apart) {
            pipe.lock().break_down();
        }
    }

    pub(crate) fn set_distance(&self, one: Ipv4Addr, two: Ipv4Addr, more: Duration) {
        let mut doors = self.0.doors.lock();
        doors.distances.insert(pair_of(one, two), more);
        let pipes = doors.pipes.values();
        let between = pipes.filter(|(from, to, _)| pair_of(*from, *to) == pair_of(one, two));
        let between: Vec<_> = between.filter_map(|(_, _, pipe)| pipe.upgrade()).collect();
        drop(doors);
        for pipe in between {
            pipe.lock().distance = more;
        }
    }

    /// When something that leaves now arrives, where the way is not longer.
    fn arrival(&self) -> Instant {
        let conditions = self.0.conditions.lock();
        let spread = (conditions.delay_max - conditions.delay_min).as_nanos() as u64;
        let delay = conditions.delay_min + Duration::from_nanos(self.0.random.below(spread + 1));
        drop(conditions);
        self.0.executor.time() + delay
    }

    /// How much of `most` (not 0) a read or write moves.
    fn portion(&self, most: usize) -> usize {
        let chunks = self.0.conditions.lock().chunks;
        // Mostly all of it, so that long messages get through at all.
        match chunks && self.0.random.below(4) == 0 {
            true => 1 + self.0.random.below(most as u64) as usize,
            false => most,
        }
    }

    fn number(&self) -> u64 {
        let mut doors = self.0.doors.lock();
        doors.next += 1;
        doors.next
    }

    fn pipe(&self, from: Ipv4Addr, to: Ipv4Addr) -> Arc<Mutex<Pipe>> {
        let number = self.number();
        let mut doors = self.0.doors.lock();
        let distance = doors.distances.get(&pair_of(from, to)).copied().unwrap_or_default();
        let pipe = Arc::new(Mutex::new(Pipe { distance, ..Pipe::default() }));
        doors.pipes.retain(|_, (_, _, pipe)| pipe.strong_count() > 0);
        doors.pipes.insert(number, (from, to, Arc::downgrade(&pipe)));
        pipe
    }

    /// One end of a connection that reads from `inward` and writes to `outward`.
    fn end(
        &self,
        inward: &Pair,
        outward: &Pair,
        peer: SocketAddrV4,
        is_privileged: bool,
    ) -> Connection {
        let reader = Box::new(Reading { wires: self.clone(), pipe: Arc::clone(inward) });
        let (back, pipe) = (Arc::clone(inward), Arc::clone(outward));
        let writer = Box::new(Writing { wires: self.clone(), pipe, back });
        Connection { reader, writer, peer: PeerAddress::Tcp(peer), is_privileged }
    }

    /// The connection, if the peer listens and both are on the network.
    fn meet(&self, local: SocketAddrV4, peer: SocketAddrV4) -> io::Result<Connection> {
        let doors = self.0.doors.lock();
        let are_apart = doors.apart.contains(&pair_of(*local.ip(), *peer.ip()));
        if are_apart || doors.cut_off.contains(local.ip()) || doors.cut_off.contains(peer.ip()) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let door = doors.listening.get(&peer).cloned();
        drop(doors);
        let Some(door) = door else { return Err(io::ErrorKind::ConnectionRefused.into()) };
        let (there, back) =
            (self.pipe(*local.ip(), *peer.ip()), self.pipe(*peer.ip(), *local.ip()));
        let mut door = door.lock();
        let is_privileged = local.port() < 1024;
        door.waiting.push_back(self.end(&there, &back, local, is_privileged));
        let waker = door.waker.take();
        drop(door);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(self.end(&back, &there, peer, is_privileged))
    }
}

impl Network for Wires {
    fn connect(
        &self,
        local: SocketAddrV4,
        peer: SocketAddrV4,
        privileged: bool,
    ) -> BoxFuture<'static, io::Result<Connection>> {
        let wires = self.clone();
        Box::pin(async move {
            let number = wires.number() as u16;
            let port = if privileged { 512 + number % 512 } else { 32768 + number % 28000 };
            wires.0.executor.sleep_until(wires.arrival()).await;
            wires.meet(SocketAddrV4::new(*local.ip(), port), peer)
        })
    }

    fn listen(&self, local: SocketAddrV4) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let wires = self.clone();
        Box::pin(async move {
            let door = Arc::new(Mutex::new(Door::default()));
            let mut doors = wires.0.doors.lock();
            if doors.listening.contains_key(&local) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            doors.listening.insert(local, Arc::clone(&door));
            drop(doors);
            Ok(Box::new(Listening { wires, local, door }) as Box<dyn Listener>)
        })
    }
}

struct Listening {
    wires: Wires,
    local: SocketAddrV4,
    door: Arc<Mutex<Door>>,
}

impl Listener for Listening {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(std::future::poll_fn(|context| {
            let mut door = self.door.lock();
            match door.waiting.pop_front() {
                Some(connection) => Poll::Ready(Ok(connection)),
                None => {
                    door.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.wires.0.doors.lock().listening.remove(&self.local);
        // Connections that no node accepted break, outside the lock.
        let waiting = std::mem::take(&mut self.door.lock().waiting);
        drop(waiting);
    }
}

type Pair = Arc<Mutex<Pipe>>;

struct Reading {
    wires: Wires,
    pipe: Pair,
}

impl ReadStream for Reading {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0, "the caller reserves room before it reads");
        let mut pipe = self.pipe.lock();
        if pipe.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = room.min(pipe.arrived_bytes);
        if most > 0 {
            let count = self.wires.portion(most);
            pipe.take(count, buffer);
            let writer = pipe.writer.take();
            drop(pipe);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Ok(count));
        }
        if pipe.end_arrived {
            return Poll::Ready(Ok(0));
        }
        pipe.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut pipe = self.pipe.lock();
        pipe.reader_gone = true;
        pipe.wake_all();
    }
}

struct Writing {
    wires: Wires,
    pipe: Pair,
    /// The other direction: a break is one of both.
    back: Pair,
}

impl Writing {
    /// Sends the end behind what is in flight.
    fn finish(&self) {
        let mut pipe = self.pipe.lock();
        if std::mem::replace(&mut pipe.finished, true) {
            return;
        }
        let arrival = (self.wires.arrival() + pipe.distance).max(pipe.last_arrival);
        pipe.last_arrival = arrival;
        drop(pipe);
        let there = Arc::downgrade(&self.pipe);
        let event = move || {
            let Some(pipe) = there.upgrade() else { return };
            let mut pipe = pipe.lock();
            pipe.end_arrived = true;
            pipe.wake_all();
        };
        self.wires.0.executor.at(arrival, Box::new(event));
    }
}

impl WriteStream for Writing {
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[Bytes],
    ) -> Poll<io::Result<usize>> {
        let (window, break_one_in) = {
            let conditions = self.wires.0.conditions.lock();
            (conditions.window, conditions.break_one_in)
        };
        let length = pieces.iter().map(Bytes::len).sum::<usize>();
        if break_one_in > 0 && self.wires.0.random.below(break_one_in) == 0 {
            self.pipe.lock().break_down();
            self.back.lock().break_down();
        }
        let mut pipe = self.pipe.lock();
        if pipe.broken || pipe.reader_gone || pipe.finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = window.saturating_sub(pipe.arrived_bytes + pipe.in_flight);
        if room == 0 {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = self.wires.portion(length.min(room).max(1)).min(length);
        let mut left = count;
        let mut bytes = Vec::with_capacity(count);
        for piece in pieces {
            let part = left.min(piece.len());
            bytes.extend_from_slice(&piece[..part]);
            left -= part;
        }
        pipe.in_flight += count;
        // Equal moments arrive in the order of entry.
        let arrival = (self.wires.arrival() + pipe.distance).max(pipe.last_arrival);
        pipe.last_arrival = arrival;
        drop(pipe);
        self.wires.0.executor.note(crate::fold(&bytes));
        let there = Arc::downgrade(&self.pipe);
        let event = move || {
            let Some(pipe) = there.upgrade() else { return };
            let mut pipe = pipe.lock();
            pipe.in_flight -= bytes.len();
            if !pipe.broken {
                pipe.arrived_bytes += bytes.len();
                pipe.arrived.push_back(bytes.into());
            }
            let reader = pipe.reader.take();
            drop(pipe);
            if let Some(reader) = reader {
                reader.wake();
            }
        };
        self.wires.0.executor.at(arrival, Box::new(event));
        Poll::Ready(Ok(count))
    }

    fn poll_shutdown(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.finish();
    }
}
