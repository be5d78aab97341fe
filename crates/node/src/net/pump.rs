//! The tasks: accepting, connecting, reading, writing, looking after.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_io::{Connection, Listener, PeerAddress, ReadStream, within};
use sheen_lnet::{
    Handshake, HandshakeProgress, LinkId, NidProof, Partner, ReceivedMessage, Session, limits,
};
use sheen_types::Nid;
use sheen_types::futures::{First, race};
use sheen_wire::lnet::ConnectionType;

use super::deliver::Upcall;
use super::link::{Link, PeerShared, Trust};
use super::queue::Queue;
use super::streams::{open, write_all};
use super::turns::PeerTurns;
use super::{Insecure, LNet};

/// How often idle and stuck connections are looked for.
const CARE_TIME: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// So many of the messages that came with one read, the last, may be worked on where they were read;
/// the rest is for other threads. A close and the request that took it along are two.
const PROMPT_MAX: usize = 2;

/// After so many messages of one connection other connections are looked at: a peer that sends without end would keep
/// the thread that reads it, and with it all whose turn is on that thread.
const MESSAGES_AT_ONCE: usize = 8;

/// From so many on, what counts for peers is looked through for some that have gone.
const PEERS_LOOKED_AT: usize = 1024;

/// What is known of who is at the other end of a connection.
struct PeerIdentity {
    nid_proof: NidProof,
    /// It leads to the server that has the NID, if there is one.
    is_for_imports: bool,
    /// Requests to targets are taken from there.
    may_ask: bool,
}

/// How an attempt to connect came out.
enum Attempt {
    Connected(Partner, Session, Connection),
    Refused,
    Failed(String),
}

impl LNet {
    /// Starts the tasks that live as long as LNet does.
    pub(super) fn run(self: &Arc<Self>, listener: Option<Box<dyn Listener>>) {
        let tasks = &self.world.tasks;
        tasks.spawn("lnet-upcall", Box::pin(Arc::clone(self).make_upcalls()));
        tasks.spawn("lnet-care", Box::pin(Arc::clone(self).run_keepalive()));
        if let Some(listener) = listener {
            tasks.spawn("lnet-accept", Box::pin(Arc::clone(self).accept(listener)));
        }
    }

    /// Starts to open the connections to a peer that are missing.
    pub(super) fn spawn_connecting(self: &Arc<Self>, nid: Nid) {
        self.world.tasks.spawn("lnet-connect", Box::pin(Arc::clone(self).connect(nid)));
    }

    /// Completes when LNet is shut down.
    async fn stopped(&self) {
        let stop = Queue::<()>::new();
        self.stops.lock().push(stop.clone());
        if self.is_stopping() {
            return;
        }
        poll_fn(|context| stop.poll(context)).await;
    }

    async fn accept(self: Arc<Self>, mut listener: Box<dyn Listener>) {
        let mut stopped = Box::pin(self.stopped());
        loop {
            match race(stopped.as_mut(), listener.accept()).await {
                First::Left(()) => return,
                First::Right(Ok(connection)) => {
                    self.begin_accept(connection);
                    // Who connects without end would keep this thread, and fill its queue with welcomes.
                    sheen_io::yield_once().await;
                }
                First::Right(Err(error)) => {
                    tracing::warn!("cannot accept connections at {}: {error}", self.local.nid);
                    let clock = &self.world.clock;
                    clock.sleep_until(clock.now() + ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Welcomes who has connected, if it may and there is room.
    fn begin_accept(self: &Arc<Self>, connection: Connection) {
        if !self.may_connect(&connection) {
            return;
        }
        if !self.has_room() {
            self.counters.unused.fetch_add(1, Ordering::Relaxed);
            let most = self.config.connections_max;
            tracing::warn!("no room for a connection from {}: {most} are open", connection.peer);
            return;
        }
        let Some(place) = self.begin_handshake(connection.peer.source()) else { return };
        let task = Arc::clone(self).accept_peer(connection);
        let task = async move {
            let (First::Left(()) | First::Right(())) = race(place.lost(), task).await;
        };
        self.world.tasks.spawn("lnet-welcome", Box::pin(task));
    }

    /// Lustre's `accept=secure`: decided before a byte is read.
    fn may_connect(&self, connection: &Connection) -> bool {
        let may = !self.config.secure || connection.is_privileged;
        if !may {
            tracing::warn!(
                "refused a connection from {}: any user of that machine may use such a port \
                 (accept=secure)",
                connection.peer
            );
        }
        may
    }

    /// A peer has connected.
    async fn accept_peer(self: Arc<Self>, mut connection: Connection) {
        let unprivileged = match connection.peer {
            PeerAddress::Tcp(address) if !connection.is_privileged => Some(address),
            PeerAddress::Tcp(_) | PeerAddress::Unix { .. } => None,
        };
        let mut handshake = Handshake::passive_from(self.local, unprivileged);
        let known = open(&mut handshake, &mut connection);
        let clock = self.world.clock.as_ref();
        let partner = match within(clock, limits::OPENING_TIME_MAX, known).await {
            Some(Ok(HandshakeProgress::Known(partner))) => partner,
            Some(Ok(_)) | None => return,
            Some(Err(error)) => return self.handshake_failed(connection.peer, &error),
        };
        let now = self.now();
        let shown = self.identify_incoming(&connection, partner.nid);
        let nid_proof = shown.nid_proof;
        let (accepted, is_taken) = {
            let peers = self.peers.read();
            let accepted = !self.is_stopping() && peers.accepts(&partner, nid_proof);
            (accepted, peers.outranks(partner.nid, nid_proof))
        };
        if is_taken {
            tracing::warn!(
                "refused a connection from {}: another has {}",
                connection.peer,
                partner.nid
            );
        }
        let answer = handshake.answer(&partner, accepted);
        let answered = within(
            clock,
            limits::OPENING_TIME_MAX,
            write_all(&mut connection.writer, vec![answer]),
        );
        match answered.await {
            Some(Ok(())) if accepted => {}
            _ => return,
        }
        let session = handshake.established(partner);
        self.establish(now, (partner, shown), session, connection);
    }

    /// Who is at the other end of a connection that came to us. At a port where any user may listen imports use what
    /// we open alone: the other side does not know who is here, and takes no requests over a connection that it has
    /// opened to such a port.
    fn identify_incoming(&self, connection: &Connection, nid: Nid) -> PeerIdentity {
        let nid_proof = self.nid_proof(connection, nid);
        let own = SocketAddrV4::new(self.local.nid.address(), self.config.port);
        let is_open = || !self.world.network.needs_privilege(own);
        let is_for_imports = match connection.peer {
            PeerAddress::Unix { .. } => true,
            PeerAddress::Tcp(_) => nid_proof == NidProof::Proven && !is_open(),
        };
        PeerIdentity { nid_proof, is_for_imports, may_ask: true }
    }

    /// Who is at the other end of a connection that we opened: the peer is at its address, but where any user may
    /// listen it may be any.
    fn identify_outgoing(&self, connection: &Connection) -> PeerIdentity {
        let may_ask = match connection.peer {
            PeerAddress::Unix { .. } => true,
            PeerAddress::Tcp(at) => !self.config.secure || self.world.network.needs_privilege(at),
        };
        PeerIdentity { nid_proof: NidProof::Proven, is_for_imports: true, may_ask }
    }

    /// What shows that who has connected is at the NID that it says. A socket in a folder of this user's is as good as
    /// the address.
    fn nid_proof(&self, connection: &Connection, nid: Nid) -> NidProof {
        let PeerAddress::Tcp(address) = connection.peer else { return NidProof::Proven };
        if !connection.is_privileged {
            return NidProof::AnyUser;
        }
        match nid == self.nid_at(address) || self.config.believes_nids {
            true => NidProof::Proven,
            false => {
                tracing::info!(
                    "{} says that it is {nid}: it gets no rights of that",
                    connection.peer
                );
                NidProof::Claimed
            }
        }
    }

    /// The NID that the peer has if its address is that of its node.
    fn nid_at(&self, address: SocketAddrV4) -> Nid {
        let network = self.local.nid.0 >> 32;
        Nid(network << 32 | u64::from(u32::from(*address.ip())))
    }

    /// What a peer's connections have in common, by whose budget they use up.
    fn shared_of_peer(&self, account: Nid) -> Arc<PeerShared> {
        let mut of_peers = self.of_peers.lock();
        if let Some(known) = of_peers.get(&account).and_then(Weak::upgrade) {
            return known;
        }
        // Those of peers that have gone are found when there are many.
        if of_peers.len() >= PEERS_LOOKED_AT && of_peers.len().is_power_of_two() {
            of_peers.retain(|_, shared_of_peer| shared_of_peer.strong_count() > 0);
        }
        let turns = self.turns.as_ref().map(PeerTurns::new).unwrap_or_default();
        let shared_of_peer = Arc::new(PeerShared::new(turns));
        of_peers.insert(account, Arc::downgrade(&shared_of_peer));
        shared_of_peer
    }

    fn handshake_failed(&self, peer: PeerAddress, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("refused a connection from {peer}: {error}");
        } else {
            tracing::debug!("a connection from {peer} ended before it began: {error}");
        }
    }

    /// Opens what is missing to a peer, one connection after the other.
    async fn connect(self: Arc<Self>, nid: Nid) {
        let clock = Arc::clone(&self.world.clock);
        loop {
            let kind = self.peers.write().next_kind(nid);
            let Some(kind) = kind.filter(|_| !self.is_stopping()) else { return };
            let attempt = within(clock.as_ref(), limits::OPENING_TIME_MAX, self.attempt(nid, kind));
            match attempt.await.unwrap_or_else(|| Attempt::Failed("no answer".into())) {
                Attempt::Connected(partner, session, connection) => {
                    let who = (partner, self.identify_outgoing(&connection));
                    self.establish(clock.now(), who, session, connection);
                }
                Attempt::Refused => {
                    let pause = self.peers.write().refused(nid);
                    match pause {
                        Some(pause) => clock.sleep_until(clock.now() + pause).await,
                        None => {
                            return self.connecting_failed(nid, "it refuses to be connected to");
                        }
                    }
                }
                Attempt::Failed(reason) => return self.connecting_failed(nid, &reason),
            }
        }
    }

    fn connecting_failed(&self, nid: Nid, reason: &str) {
        let failed = self.peers.write().failed(nid, self.now());
        tracing::debug!("cannot connect to {nid}: {reason}; {} messages dropped", failed.dropped);
        self.counters.send_dropped.fetch_add(failed.dropped as u64, Ordering::Relaxed);
        if failed.down || failed.dropped > 0 {
            self.upcall(Upcall::PeerDown(nid));
        }
    }

    /// One connection of `kind`, up to the peer's HELLO.
    async fn attempt(&self, nid: Nid, kind: ConnectionType) -> Attempt {
        let local = SocketAddrV4::new(self.local.nid.address(), 0);
        let address = SocketAddrV4::new(nid.address(), self.config.port);
        let connected = self.world.network.connect(local, address, self.config.privileged).await;
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let (mut handshake, first) = Handshake::active(self.local, nid, kind);
        let answered = match write_all(&mut connection.writer, first).await {
            Ok(()) => open(&mut handshake, &mut connection).await,
            Err(error) => Err(error),
        };
        self.note_insecure(nid, answered.is_err() && !connection.is_privileged);
        match answered {
            Ok(HandshakeProgress::Known(partner)) => {
                Attempt::Connected(partner, handshake.established(partner), connection)
            }
            Ok(_) => Attempt::Refused,
            Err(error) => Attempt::Failed(error.to_string()),
        }
    }

    fn note_insecure(&self, nid: Nid, closed: bool) {
        let mut insecure = self.insecure.lock();
        let times = insecure.filter(|it| it.nid == nid).map_or(0, |it| it.times);
        *insecure = closed.then_some(Insecure { nid, times: times.saturating_add(1) });
    }

    /// A connection is there: registers it, sends what waited for it, starts its tasks.
    fn establish(
        self: &Arc<Self>,
        now: sheen_types::Instant,
        (partner, shown): (Partner, PeerIdentity),
        session: Session,
        connection: Connection,
    ) {
        let id = LinkId(self.next.fetch_add(1, Ordering::Relaxed));
        let PeerIdentity { nid_proof, is_for_imports, may_ask } = shown;
        let is_proven = nid_proof != NidProof::Claimed;
        let account = match connection.peer {
            PeerAddress::Tcp(address) if !is_proven => self.nid_at(address),
            _ => partner.nid,
        };
        let shared_of_peer = self.shared_of_peer(account);
        let trust = Trust { is_proven, may_ask, account };
        let link =
            Arc::new(Link::new(id, (partner, trust), connection.writer, shared_of_peer, now));
        let established = self.peers.write().established(
            &partner,
            nid_proof,
            is_for_imports,
            id,
            Arc::clone(&link),
        );
        tracing::debug!("{:?} connection with {} established", partner.kind, partner.nid);
        for stale in &established.stale {
            stale.close();
        }
        if established.is_refused {
            return;
        }
        for frame in established.frames {
            link.send(frame, now);
        }
        if self.is_stopping() {
            link.close();
        }
        let turns = link.shared_of_peer.turns.clone();
        let reading = Arc::clone(self).read(Arc::clone(&link), session, connection.reader);
        let reading = async move { turns.run(false, reading).await };
        self.world.tasks.spawn("lnet-read", Box::pin(reading));
        let clock = Arc::clone(&self.world.clock);
        let writing =
            async move { poll_fn(|context| link.poll_writer(context, clock.now())).await };
        self.world.tasks.spawn("lnet-write", Box::pin(writing));
    }

    /// Reads a connection until it ends.
    async fn read(
        self: Arc<Self>,
        link: Arc<Link>,
        mut session: Session,
        mut reader: Box<dyn ReadStream>,
    ) {
        // Kept for its memory.
        let (mut batch, mut taken) = (VecDeque::new(), 0);
        let reason = loop {
            // First, what came together with the opening.
            let result = collect(&mut session, &mut batch);
            while !batch.is_empty() {
                taken += self.take_messages(&link, &mut batch);
                if !batch.is_empty() {
                    sheen_io::yield_once().await;
                    taken = 0;
                }
            }
            if let Err(error) = result {
                self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("{} broke the protocol: {error}", link.partner.nid);
                break None;
            }
            if let Some(until) = link.paused(self.world.clock.now()) {
                self.world.clock.sleep_until(until).await;
                taken = 0;
            } else if taken >= MESSAGES_AT_ONCE {
                sheen_io::yield_once().await;
                taken = 0;
            }
            let read =
                poll_fn(|context| link.poll_read(context, reader.as_mut(), session.space())).await;
            match read {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = reason {
            tracing::debug!("connection with {} lost: {error}", link.partner.nid);
        }
        drop(reader);
        self.link_ended(&link);
    }

    /// Works on the first [`MESSAGES_AT_ONCE`] of what has come; how many messages that were.
    fn take_messages(
        self: &Arc<Self>,
        link: &Link,
        batch: &mut VecDeque<ReceivedMessage>,
    ) -> usize {
        let mut left = batch.len();
        let count = left.min(MESSAGES_AT_ONCE);
        // Answers to what is worked on here go together.
        let gathers = count > 1;
        if gathers {
            link.gather();
        }
        for incoming in batch.drain(..count) {
            self.arrived(link, incoming, left <= PROMPT_MAX);
            left -= 1;
        }
        if gathers {
            link.send_gathered(self.now());
        }
        count
    }

    /// A fault on one connection ends all of its peer, as socklnd has it: what was sent on its other connections
    /// may be lost as well, and both sides start afresh.
    fn link_ended(&self, link: &Link) {
        link.close();
        let closed = self.peers.write().closed(link.partner.nid, link.id);
        for sibling in &closed.siblings {
            sibling.close();
        }
        self.counters.send_dropped.fetch_add(closed.dropped as u64, Ordering::Relaxed);
        if closed.down && !self.is_stopping() {
            self.upcall(Upcall::PeerDown(link.partner.nid));
        }
    }

    /// Keeps idle connections alive and ends those that take nothing.
    async fn run_keepalive(self: Arc<Self>) {
        let clock = Arc::clone(&self.world.clock);
        let mut stopped = Box::pin(self.stopped());
        loop {
            let nap = clock.sleep_until(clock.now() + CARE_TIME);
            if let First::Left(()) = race(stopped.as_mut(), nap).await {
                return;
            }
            let now = clock.now();
            self.close_unused(now);
            self.peers.write().forget_dead(now);
            let links = self.peers.read().connections();
            for link in links {
                let (idle, stuck) = link.idle(now);
                if stuck >= limits::STUCK_TIME_MAX {
                    let bytes = link.queued_bytes();
                    tracing::warn!(
                        "{} does not read what it is sent: {bytes} bytes dropped",
                        link.partner.nid
                    );
                    link.close();
                } else if idle >= limits::KEEPALIVE_TIME {
                    link.send(sheen_lnet::keepalive(), now);
                }
            }
        }
    }
}

/// All messages that have come whole.
fn collect(
    session: &mut Session,
    batch: &mut VecDeque<ReceivedMessage>,
) -> Result<(), sheen_lnet::SessionError> {
    while let Some(incoming) = session.next_message()? {
        batch.push_back(incoming);
    }
    Ok(())
}
