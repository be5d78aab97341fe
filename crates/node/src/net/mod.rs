//! LNet for a node: messages to and from other nodes over the world's connections.
//!
//! [`LNet`] owns the engines of `sheen-lnet` and the tasks that feed them: one reader and one
//! (mostly sleeping) writer per connection, one per peer while connections are opened, one that
//! accepts, one that looks after idle connections, and one that makes upcalls for receivers that must not be
//! called from within a send.
//!
//! Sending never waits. What cannot be delivered is dropped and counted, and [`LNet::watch_peer_down`]
//! reports that a peer is gone; patience belongs to RPC.
//!
//! Costs of one message of some hundred bytes, both ends together: one `writev`, one `read` (fewer in a
//! burst), one wakeup (the reader; its receiver is called on that task), no copy beyond the
//! kernel's, allocations for the header and the queue entry of an expectation, and a share of a
//! 16 KiB read buffer. A 1 MiB payload: at most 16 KiB of it is copied (read along with its
//! header), one allocation of its size, and as many reads and writes as the socket buffers need.

mod admission;
mod deliver;
mod kinds;
mod link;
mod pump;
mod queue;
mod streams;
mod turns;
mod types;
mod wait;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sheen_io::World;
use sheen_lnet::{Local, Peers, Sender, Sending};
use sheen_types::{HashMap, HashSet, Instant, MatchBits, Nid};
use sheen_wire::lnet::{Get, HANDLE_NONE, LnetCommand, PING_MATCH_BITS, Portal, Put, WireHandle};

pub use kinds::KindCounts;
pub use sheen_lnet::PeerReport;
pub use turns::PeerTurns;
pub use types::{Counters, Delivery, NetConfig, PeerDownHook, Receiver};
pub use wait::{Expectation, Fetch, NetError, Offer, Unlinked};

pub use admission::Usefulness;

use admission::Handshakes;
use deliver::{Tables, Upcall};
use kinds::Kind;
use link::{Link, PeerShared};
use queue::Queue;
use turns::Turns;

/// Bytes of ping information that we take: some sixteen interfaces, as Lustre asks for.
const PING_BYTES_MAX: u32 = 272;

/// So many connections in a row, closed unanswered, are no accident: a server that ends closes one or two.
const INSECURE_TIMES: u32 = 3;

/// Connections from unprivileged ports that a peer closed before its HELLO, in a row.
#[derive(Clone, Copy, Debug)]
struct Insecure {
    nid: Nid,
    times: u32,
}

/// A node's LNet. Shared; lives until [`LNet::shutdown`].
pub struct LNet {
    world: World,
    config: NetConfig,
    local: Local,
    peers: RwLock<Peers<Arc<Link>>>,
    /// Of each peer that has connections, by whose budget they use up.
    of_peers: Mutex<HashMap<Nid, Weak<PeerShared>>>,
    tables: Tables,
    upcalls: Queue<()>,
    upcall_queue: Mutex<Vec<Upcall>>,
    /// Peers of which `upcall_queue` says that they are down.
    reported_down: Mutex<HashSet<Nid>>,
    hooks: RwLock<Vec<PeerDownHook>>,
    counters: Counters,
    next: AtomicU64,
    stopping: AtomicBool,
    stops: Mutex<Vec<Queue<()>>>,
    insecure: Mutex<Option<Insecure>>,
    handshakes: Handshakes,
    turns: Option<Arc<Turns>>,
    /// When room for connections was made last.
    room_made_at: AtomicU64,
    usefulness: RwLock<Option<Usefulness>>,
}

impl fmt::Debug for LNet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LNet({}:{})", self.local.nid, self.config.port)
    }
}

impl LNet {
    /// Starts: listens (if asked to) and waits for nothing else.
    ///
    /// # Errors
    /// The address cannot be listened on; the text names it and the port.
    pub async fn start(world: World, config: NetConfig) -> io::Result<Arc<Self>> {
        let wall = world.clock.wall();
        let incarnation = wall.seconds as u64 * 1_000_000_000 + u64::from(wall.nanoseconds);
        let local = Local { nid: config.nid, incarnation };
        let address = SocketAddrV4::new(config.nid.address(), config.port);
        let listener = match config.listen {
            true => Some(world.network.listen(address).await?),
            false => None,
        };
        let turns = config.shares_processors.then(|| Turns::new(&world));
        let lnet = Arc::new(Self {
            world,
            config,
            local,
            peers: RwLock::new(Peers::new(local.nid)),
            of_peers: Mutex::default(),
            tables: Tables::new(local.nid),
            upcalls: Queue::new(),
            upcall_queue: Mutex::default(),
            reported_down: Mutex::default(),
            hooks: RwLock::default(),
            counters: Counters::default(),
            next: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            stops: Mutex::default(),
            insecure: Mutex::default(),
            handshakes: Handshakes::default(),
            turns,
            room_made_at: AtomicU64::new(0),
            usefulness: RwLock::default(),
        });
        lnet.run(listener);
        Ok(lnet)
    }

    /// A peer that again and again closes the connections that we open from a port which any user may
    /// use, before it says who it is: it takes other ports only (`accept=secure`).
    #[must_use]
    pub fn refused_as_insecure(&self) -> Option<Nid> {
        let insecure = *self.insecure.lock();
        insecure.filter(|it| it.times >= INSECURE_TIMES).map(|it| it.nid)
    }

    /// The TCP port of its peers.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.config.port
    }

    /// Our address.
    #[must_use]
    pub fn nid(&self) -> Nid {
        self.local.nid
    }

    /// Whether a NID is ours: what comes from it was sent in this process, because no peer is admitted
    /// under it.
    #[must_use]
    pub fn is_own(&self, nid: Nid) -> bool {
        nid == self.local.nid || nid.is_loopback()
    }

    /// What happened since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All peers and their connections, for `lctl`.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerReport> {
        self.peers.read().report()
    }

    /// Sends a message to a portal of `to`. Never waits; a message that cannot be delivered is
    /// dropped, and if the peer is down its watchers are notified. The payload holds at most 1 MiB.
    pub fn put(
        self: &Arc<Self>,
        to: Nid,
        portal: Portal,
        bits: MatchBits,
        header_data: u64,
        payload: Vec<Bytes>,
    ) {
        let put = Put { ack_handle: HANDLE_NONE, match_bits: bits, header_data, portal, offset: 0 };
        if self.is_own(to) {
            self.put_to_self(to, &put, &payload);
        } else {
            self.send(to, LnetCommand::Put(put), payload);
        }
    }

    /// As [`LNet::put`], of an import's request: to the server at that address, and to no peer that only says that
    /// it is the server.
    pub fn put_request(
        self: &Arc<Self>,
        to: Nid,
        portal: Portal,
        bits: MatchBits,
        payload: Vec<Bytes>,
    ) {
        let ack_handle = HANDLE_NONE;
        let put = Put { ack_handle, match_bits: bits, header_data: 0, portal, offset: 0 };
        if self.is_own(to) {
            self.put_to_self(to, &put, &payload);
        } else {
            self.send_from(Sender::Import, to, LnetCommand::Put(put), payload);
        }
    }

    /// As [`LNet::put`], of a reply, into the receiver's buffer at `offset`: replies lie behind the room that
    /// early replies use. It is dropped if the receiver takes nothing of much.
    pub fn put_reply(
        self: &Arc<Self>,
        to: Nid,
        portal: Portal,
        bits: MatchBits,
        header_data: u64,
        offset: u32,
        payload: Vec<Bytes>,
    ) {
        let put = Put { ack_handle: HANDLE_NONE, match_bits: bits, header_data, portal, offset };
        if self.is_own(to) {
            self.put_to_self(to, &put, &payload);
        } else {
            self.send_from(Sender::Answer, to, LnetCommand::Put(put), payload);
        }
    }

    /// As [`LNet::put_request`], of a request that no caller waits for: it goes with the next one to that node, or
    /// a few milliseconds later by itself.
    pub fn put_lingering(
        self: &Arc<Self>,
        to: Nid,
        portal: Portal,
        bits: MatchBits,
        payload: Vec<Bytes>,
    ) {
        let now = self.now();
        let length = payload.iter().map(Bytes::len).sum();
        let link = (!self.is_own(to) && !self.is_stopping())
            .then(|| self.peers.read().route(to, now, length, Sender::Import))
            .flatten();
        let Some(link) = link else { return self.put_request(to, portal, bits, payload) };
        let put =
            Put { ack_handle: HANDLE_NONE, match_bits: bits, header_data: 0, portal, offset: 0 };
        let frame = sheen_lnet::message(self.local, to, LnetCommand::Put(put), payload);
        let length = frame.length;
        let (sent, watch) = link.send_lingering(frame, now);
        self.count_sent(to, (Kind::Put, length), sent);
        if watch {
            let clock = Arc::clone(&self.world.clock);
            let task = async move {
                clock.sleep_until(now + link::LINGER_TIME).await;
                link.end_lingering(clock.now());
            };
            self.world.tasks.spawn("lnet-linger", Box::pin(task));
        }
    }

    /// From now on `receiver` takes the messages to `portal` that no expectation matches; replaces an
    /// earlier receiver.
    pub fn serve(&self, portal: Portal, receiver: Arc<dyn Receiver>) {
        self.tables.serve(portal, Some(receiver));
    }

    /// No receiver takes messages to `portal` any more.
    pub fn unserve(&self, portal: Portal) {
        self.tables.serve(portal, None);
    }

    /// Expects one message of at most `length_max` bytes. A longer one is dropped.
    pub fn expect_put(
        self: &Arc<Self>,
        from: Nid,
        portal: Portal,
        bits: MatchBits,
        length_max: usize,
    ) -> Expectation {
        Expectation::new(self, from, portal, bits, length_max, false)
    }

    /// Expects any number of messages, until dropped: a reply and the early replies before it.
    pub fn expect_puts(
        self: &Arc<Self>,
        from: Nid,
        portal: Portal,
        bits: MatchBits,
        length_max: usize,
    ) -> Expectation {
        Expectation::new(self, from, portal, bits, length_max, true)
    }

    /// Offers `payload` to one GET of `from`.
    pub fn offer_get(
        self: &Arc<Self>,
        from: Nid,
        portal: Portal,
        bits: MatchBits,
        payload: Vec<Bytes>,
    ) -> Offer {
        Offer::new(self, from, portal, bits, payload)
    }

    /// Fetches at most `length` bytes from what `to` offers. It waits until they come, until the
    /// connection is lost, or until it is dropped: the caller has its own patience.
    pub fn get(self: &Arc<Self>, to: Nid, portal: Portal, bits: MatchBits, length: u32) -> Fetch {
        let object = self.next.fetch_add(1, Ordering::Relaxed);
        let fetch = Fetch::new(self, to, object);
        if self.is_own(to) {
            match self.tables.take_offer(to, portal, bits) {
                Some(offer) => fetch.finish(Ok(offer.fetched_by_self(length))),
                None => self.count_dropped(Kind::Get),
            }
            return fetch;
        }
        let get = Get {
            reply_handle: WireHandle { interface: self.local.incarnation, object },
            match_bits: bits,
            portal,
            offset: 0,
            length,
            padding: 0,
        };
        self.send(to, LnetCommand::Get(get), Vec::new());
        fetch
    }

    /// Asks a node who it is: its NIDs, the loopback first.
    pub fn ping(
        self: &Arc<Self>,
        nid: Nid,
    ) -> impl Future<Output = Result<Vec<Nid>, NetError>> + Send + use<> {
        let own = self.is_own(nid).then(|| sheen_lnet::ping_answer(self.local.nid));
        let fetch =
            own.is_none().then(|| self.get(nid, Portal::RESERVED, PING_MATCH_BITS, PING_BYTES_MAX));
        async move {
            let answer = match (own, fetch) {
                (Some(answer), _) => answer,
                (None, Some(fetch)) => fetch.await?,
                (None, None) => return Err(NetError::Shutdown),
            };
            sheen_lnet::ping_nids(&answer).map_err(NetError::Undecodable)
        }
    }

    /// `hook` will be called, on a task of its own, for each peer that goes down.
    pub fn watch_peer_down(&self, hook: PeerDownHook) {
        self.hooks.write().push(hook);
    }

    /// Ends the connections of a peer that has broken a protocol above LNet. It may come again.
    pub fn expel(&self, nid: Nid) {
        self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        let links = self.peers.read().connections_of(nid);
        for link in links {
            link.close();
        }
    }

    /// Bytes that wait to be sent to a peer.
    #[must_use]
    pub fn backlog(&self, nid: Nid) -> usize {
        self.peers.read().newest_of(nid).map_or(0, |link| link.backlog())
    }

    /// Reads nothing from a peer for a while: it sends more than it may.
    pub fn pause(&self, nid: Nid, time: Duration) {
        let until = self.now() + time;
        let links = self.peers.read().connections_of(nid);
        links.iter().for_each(|link| link.pause_until(until));
    }

    /// Closes everything. All waiting callers get an error; later sends are dropped.
    pub fn shutdown(&self) {
        self.stopping.store(true, Ordering::Release);
        let links = self.peers.read().connections();
        for link in links {
            link.close();
        }
        for stop in self.stops.lock().drain(..) {
            stop.close();
        }
        self.upcalls.close();
        self.tables.clear();
    }

    fn now(&self) -> Instant {
        self.world.clock.now()
    }

    fn count_dropped(&self, kind: Kind) {
        self.counters.receive_dropped.fetch_add(1, Ordering::Relaxed);
        self.counters.dropped_by.count(kind);
    }

    fn send(self: &Arc<Self>, to: Nid, command: LnetCommand, payload: Vec<Bytes>) {
        self.send_from(Sender::Other, to, command, payload);
    }

    /// Sends by the connection that fits, or starts connecting.
    fn send_from(
        self: &Arc<Self>,
        sender: Sender,
        to: Nid,
        command: LnetCommand,
        payload: Vec<Bytes>,
    ) {
        let kind = Kind::of(&command);
        let frame = sheen_lnet::message(self.local, to, command, payload);
        let (now, length) = (self.now(), frame.length);
        let too_long = length - frame.head.len() > sheen_lnet::limits::PAYLOAD_BYTES_MAX;
        debug_assert!(!too_long, "payload longer than LNet carries");
        if too_long || self.is_stopping() {
            self.counters.send_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let link = self.peers.read().route(to, now, length, sender);
        let sent = match link {
            Some(link) if sender == Sender::Answer && self.drops_answer(&link, length) => return,
            Some(link) => {
                let sent = link.send(frame, now);
                if !sent {
                    self.close_if_choked(&link, length);
                }
                sent
            }
            None => self.send_or_connect(to, now, (sender, frame)),
        };
        self.count_sent(to, (kind, length), sent);
    }

    /// Whether so much waits for a peer already that an answer is dropped.
    fn drops_answer(&self, link: &Link, length: usize) -> bool {
        let drops = link.backlog() + length > Sender::Answer.waiting_bytes_max();
        if drops {
            self.counters.answers_dropped.fetch_add(1, Ordering::Relaxed);
        }
        drops
    }

    /// A link that takes nothing of too much is closed; who needs it connects again, and asks again.
    fn close_if_choked(&self, link: &Link, length: usize) {
        if link.is_choked(length) {
            self.counters.backlogged.fetch_add(1, Ordering::Relaxed);
            let (nid, bytes) = (link.partner.nid, link.backlog());
            tracing::warn!(%nid, bytes, "a peer does not read what it is sent: connection closed");
            link.close();
        }
    }

    fn count_sent(&self, to: Nid, (kind, length): (Kind, usize), sent: bool) {
        if sent {
            self.counters.sent.fetch_add(1, Ordering::Relaxed);
            self.counters.sent_by.count(kind);
            self.counters.sent_bytes.fetch_add(length as u64, Ordering::Relaxed);
        } else {
            self.counters.send_dropped.fetch_add(1, Ordering::Relaxed);
            self.upcall(Upcall::PeerDown(to));
        }
    }

    fn send_or_connect(
        self: &Arc<Self>,
        to: Nid,
        now: Instant,
        (sender, frame): (Sender, sheen_lnet::Frame),
    ) -> bool {
        let (sending, connect) = self.peers.write().send(to, now, frame, sender);
        if connect {
            self.spawn_connecting(to);
        }
        match sending {
            Sending::Now(link, frame) => link.send(frame, now),
            Sending::Waits => true,
            Sending::Dropped => false,
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
