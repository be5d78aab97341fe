//! Which connections there are to each peer, which are wanted, and what waits for them.
//!
//! The rules are socklnd's. Who sends first to a peer opens three connections to it, one after the
//! other: control for small messages, bulk in and bulk out for large ones. A message goes by
//! the kind that fits its length, by another while that kind is missing, and waits while there is
//! none but one is coming. When both sides connect at once the higher NID's connections win.
//! What is known of a peer's claim to its NID decides who has it: where two claim it, the one that is better
//! shown to have it takes it from the other, and no other way round.
//! What an import sends goes to the server alone: over connections that we opened to the NID's address, and over
//! those that a peer opened of which as much is known. Where there is none of these one is opened.
//!
//! A fault on one connection closes all of its peer. After a failure the peer is left alone for
//! a while, and messages to it are dropped at once: RPCs above have their own patience.
//!
//! `C` is the host's connection, cheap to clone. Nothing here waits or calls out.

use std::time::Duration;

use sheen_types::{HashMap, Instant, Nid};
use sheen_wire::lnet::ConnectionType;

use crate::handshake::Partner;
use crate::limits;
use crate::message::Frame;

/// In the order in which they are opened.
const KINDS: [ConnectionType; 3] =
    [ConnectionType::CONTROL, ConnectionType::BULK_IN, ConnectionType::BULK_OUT];

/// Names a connection for as long as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u64);

/// What proves that a peer has its NID, the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NidProof {
    /// Its address. But any user of its machine can be the peer.
    #[default]
    AnyUser,
    /// Its word alone: it comes from another address, as one behind NAT or with several addresses does.
    Claimed,
    /// It has privilege on the machine with the NID's address.
    Proven,
}

/// What sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// An import: it goes to the server, and to no peer that only says that it is the server.
    Import,
    /// What a peer has asked for with a message of its own: it is dropped where too much waits for that peer.
    Answer,
    /// All else: callbacks and bulk go, as answers do, to whichever peer is connected under the NID.
    Other,
}

impl Sender {
    /// Bytes that may wait for a peer, together with what is sent.
    #[must_use]
    pub fn waiting_bytes_max(self) -> usize {
        match self {
            Self::Answer => limits::ANSWERS_WAITING_BYTES_MAX,
            Self::Import | Self::Other => limits::WAITING_BYTES_MAX,
        }
    }
}

struct Link<C> {
    id: LinkId,
    kind: ConnectionType,
    /// What imports send may go by it.
    is_for_imports: bool,
    connection: C,
}

struct Peer<C> {
    /// Newest last.
    links: Vec<Link<C>>,
    incarnation: u64,
    /// That of its connections; without any, nothing.
    nid_proof: NidProof,
    /// We open what is missing. A peer that came to us opens its own.
    initiator: bool,
    /// Imports send, and what the peer has opened is not for them: only what is counts as there.
    is_asked: bool,
    connecting: bool,
    /// So often were we refused that what is there must do.
    content: bool,
    races: u32,
    pause: Duration,
    retry_at: Instant,
    waiting: Vec<(Sender, Frame)>,
    waiting_bytes: usize,
}

impl<C> Default for Peer<C> {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            incarnation: 0,
            nid_proof: NidProof::default(),
            initiator: false,
            is_asked: false,
            connecting: false,
            content: false,
            races: 0,
            pause: Duration::ZERO,
            retry_at: Instant::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }
}

/// What becomes of a message.
#[derive(Debug)]
pub enum Sending<C> {
    /// It goes out here.
    Now(C, Frame),
    /// It waits for a connection.
    Waits,
    /// It is lost: the peer could not be reached a moment ago, or too much waits for it.
    Dropped,
}

/// What a new connection brings about.
#[derive(Debug)]
pub struct Established<C> {
    /// What waited and goes out on it, in order.
    pub frames: Vec<Frame>,
    /// Connections of the peer's former life, or of one that was not the peer, to be closed.
    pub stale: Vec<C>,
    /// It is not to be used after all: one that is better shown to be the peer came before it.
    pub is_refused: bool,
}

/// What a failure to connect brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Messages that waited in vain.
    pub dropped: usize,
    /// There is no connection left: the peer is down.
    pub down: bool,
}

/// What the end of a connection brings about.
#[derive(Debug)]
pub struct Closed<C> {
    /// The peer's other connections, to be closed as well.
    pub siblings: Vec<C>,
    /// The peer was up before.
    pub down: bool,
    /// Messages that waited in vain.
    pub dropped: usize,
}

/// A peer as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Its address.
    pub nid: Nid,
    /// Its connections.
    pub kinds: Vec<ConnectionType>,
    /// A connection is being opened.
    pub connecting: bool,
    /// Messages that wait for one.
    pub waiting: usize,
}

/// All peers of a node.
pub struct Peers<C> {
    local: Nid,
    peers: HashMap<Nid, Peer<C>>,
    /// Connections of all of them.
    links: usize,
}

impl<C: Clone> Peers<C> {
    /// No peer yet, of the node `local`.
    #[must_use]
    pub fn new(local: Nid) -> Self {
        Self { local, peers: HashMap::default(), links: 0 }
    }

    /// The connection for a frame of `length` bytes, if all is well with the peer. The hot path:
    /// it changes nothing, so that senders need no exclusive access.
    #[must_use]
    pub fn route(&self, nid: Nid, now: Instant, length: usize, sender: Sender) -> Option<C> {
        let peer = self.peers.get(&nid)?;
        if peer.wants(now).is_some() {
            return None;
        }
        peer.choose(length, sender).cloned()
    }

    /// Decides about a frame. The second value asks the host to start connecting to the peer: to
    /// call [`Peers::next_kind`], open that connection, report, and so on until there is none.
    pub fn send(
        &mut self,
        nid: Nid,
        now: Instant,
        frame: Frame,
        sender: Sender,
    ) -> (Sending<C>, bool) {
        if self.peers.len() >= limits::PEERS_MAX && !self.peers.contains_key(&nid) {
            return (Sending::Dropped, false);
        }
        let peer = self.peers.entry(nid).or_default();
        if sender == Sender::Import && peer.usable(sender).next().is_none() {
            peer.is_asked = true;
        }
        if peer.links.is_empty() || peer.is_asked {
            peer.initiator = true;
        }
        let connect = peer.wants(now).is_some();
        peer.connecting |= connect;
        if let Some(connection) = peer.choose(frame.length, sender) {
            return (Sending::Now(connection.clone(), frame), connect);
        }
        let full = peer.waiting.len() >= limits::WAITING_MESSAGES_MAX
            || peer.waiting_bytes + frame.length > sender.waiting_bytes_max();
        if !peer.connecting || full {
            return (Sending::Dropped, connect);
        }
        peer.waiting_bytes += frame.length;
        peer.waiting.push((sender, frame));
        (Sending::Waits, connect)
    }

    /// Which connection to open next; `None` ends the host's connecting to this peer.
    pub fn next_kind(&mut self, nid: Nid) -> Option<ConnectionType> {
        let peer = self.peers.get_mut(&nid)?;
        let kind = if peer.content { None } else { peer.missing() };
        peer.connecting = kind.is_some();
        kind
    }

    /// Whether a connection would take the place of one whose peer is better shown to have the NID.
    #[must_use]
    pub fn outranks(&self, nid: Nid, nid_proof: NidProof) -> bool {
        let peer = self.peers.get(&nid);
        peer.is_some_and(|peer| !peer.links.is_empty() && nid_proof < peer.nid_proof)
    }

    /// Whether to take a connection that a peer opens.
    #[must_use]
    pub fn accepts(&self, partner: &Partner, nid_proof: NidProof) -> bool {
        let Some(peer) = self.peers.get(&partner.nid) else {
            return self.peers.len() < limits::PEERS_MAX;
        };
        if peer.connecting && partner.nid < self.local {
            return false;
        }
        // A user's process has no way into the place of one that had privilege, nor a word into that of an address.
        if self.outranks(partner.nid, nid_proof) {
            return false;
        }
        let same = peer.links.iter().filter(|link| link.kind == partner.kind).count();
        peer.is_new_incarnation(partner, nid_proof) || same < limits::LINKS_PER_KIND_MAX
    }

    /// A connection is there, opened by either side; `is_for_imports`: it leads to the server that has the NID, if
    /// there is one.
    pub fn established(
        &mut self,
        partner: &Partner,
        nid_proof: NidProof,
        is_for_imports: bool,
        id: LinkId,
        connection: C,
    ) -> Established<C> {
        if self.outranks(partner.nid, nid_proof) {
            return Established { frames: Vec::new(), stale: vec![connection], is_refused: true };
        }
        let peer = self.peers.entry(partner.nid).or_default();
        let mut stale = Vec::new();
        if peer.is_new_incarnation(partner, nid_proof) {
            stale = peer.links.drain(..).map(|link| link.connection).collect();
            (peer.incarnation, peer.nid_proof) = (partner.incarnation, nid_proof);
        }
        self.links = self.links + 1 - stale.len();
        peer.links.push(Link { id, kind: partner.kind, is_for_imports, connection });
        (peer.races, peer.pause) = (0, Duration::ZERO);
        peer.retry_at = Instant::default();
        let frames = if partner.kind == ConnectionType::BULK_IN {
            Vec::new()
        } else {
            peer.take_waiting(is_for_imports)
        };
        Established { frames, stale, is_refused: false }
    }

    /// The peer refused our connection: it is opening its own, or cleans up after a restart. The
    /// host asks for the next kind again after the pause given here; `None` means that it has
    /// come to nothing and [`Peers::failed`] is due.
    pub fn refused(&mut self, nid: Nid) -> Option<Duration> {
        let peer = self.peers.get_mut(&nid)?;
        peer.races += 1;
        if peer.races <= limits::RACES_MAX {
            return Some(limits::RACE_TIME);
        }
        peer.content = peer.choose(0, peer.strictest()).is_some();
        peer.races = 0;
        peer.content.then_some(Duration::ZERO)
    }

    /// A connection could not be opened; ends the host's connecting to this peer.
    pub fn failed(&mut self, nid: Nid, now: Instant) -> Failed {
        let Some(peer) = self.peers.get_mut(&nid) else {
            return Failed { dropped: 0, down: false };
        };
        peer.connecting = false;
        peer.pause = (peer.pause * 2).clamp(limits::RECONNECT_TIME_MIN, limits::RECONNECT_TIME_MAX);
        peer.retry_at = now + peer.pause;
        let dropped = peer.drop_waiting();
        Failed { dropped, down: peer.links.is_empty() }
    }

    /// A connection ended, by either side. Reporting one twice, or one that was closed as a
    /// sibling or as stale, changes nothing.
    pub fn closed(&mut self, nid: Nid, id: LinkId) -> Closed<C> {
        let nothing = Closed { siblings: Vec::new(), down: false, dropped: 0 };
        let Some(peer) = self.peers.get_mut(&nid) else { return nothing };
        if !peer.links.iter().any(|link| link.id == id) {
            return nothing;
        }
        self.links -= peer.links.len();
        let links = std::mem::take(&mut peer.links).into_iter();
        let siblings = links.filter(|link| link.id != id).map(|link| link.connection).collect();
        peer.content = false;
        let connecting = peer.connecting;
        let dropped = if connecting { 0 } else { peer.drop_waiting() };
        if !connecting && peer.retry_at == Instant::default() {
            self.peers.remove(&nid);
        }
        Closed { siblings, down: true, dropped }
    }

    /// How many connections there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.links
    }

    /// Every connection there is, always in the same order.
    #[must_use]
    pub fn connections(&self) -> Vec<C> {
        let mut links: Vec<_> = self.peers.values().flat_map(|peer| &peer.links).collect();
        links.sort_by_key(|link| link.id.0);
        links.into_iter().map(|link| link.connection.clone()).collect()
    }

    /// Every connection of one peer.
    #[must_use]
    pub fn connections_of(&self, nid: Nid) -> Vec<C> {
        let links = self.peers.get(&nid).map_or(&[][..], |peer| &peer.links);
        links.iter().map(|link| link.connection.clone()).collect()
    }

    /// Forgets peers that are not connected and that nothing was sent to for a while: there may be no more
    /// than [`limits::PEERS_MAX`], dead ones among them.
    pub fn forget_dead(&mut self, now: Instant) {
        self.peers.retain(|_, peer| {
            let is_live = peer.connecting || !peer.links.is_empty() || !peer.waiting.is_empty();
            is_live || now < peer.retry_at + limits::DEAD_TIME_MAX
        });
    }

    /// Peers that connected to us by themselves, with their connections.
    #[must_use]
    pub fn incoming_peers(&self) -> Vec<(Nid, Vec<C>)> {
        let comers = self.peers.iter().filter(|(_, peer)| !peer.initiator);
        comers.map(|(nid, _)| (*nid, self.connections_of(*nid))).collect()
    }

    /// The newest connection of one peer.
    #[must_use]
    pub fn newest_of(&self, nid: Nid) -> Option<&C> {
        self.peers.get(&nid)?.links.last().map(|link| &link.connection)
    }

    /// The connection for a zero-copy answer to `nid`: bulk in, which carries nothing else from
    /// us, so that it waits for nothing.
    #[must_use]
    pub fn answering(&self, nid: Nid) -> Option<C> {
        let links = &self.peers.get(&nid)?.links;
        let link = links.iter().rev().find(|link| link.kind == ConnectionType::BULK_IN);
        link.map(|link| link.connection.clone())
    }

    /// All peers, for operators.
    #[must_use]
    pub fn report(&self) -> Vec<PeerReport> {
        let report = |(nid, peer): (&Nid, &Peer<C>)| PeerReport {
            nid: *nid,
            kinds: peer.links.iter().map(|link| link.kind).collect(),
            connecting: peer.connecting,
            waiting: peer.waiting.len(),
        };
        let mut all: Vec<_> = self.peers.iter().map(report).collect();
        all.sort_by_key(|peer| peer.nid);
        all
    }
}

impl<C> Peer<C> {
    /// Whether a new connection is that of another process, or better proven to be the peer: what is there ends then.
    fn is_new_incarnation(&self, partner: &Partner, nid_proof: NidProof) -> bool {
        let is_other = self.incarnation != partner.incarnation || nid_proof > self.nid_proof;
        self.links.is_empty() || is_other
    }

    fn missing(&self) -> Option<ConnectionType> {
        let is_there = |kind| self.usable(self.strictest()).any(|link| link.kind == kind);
        let missing = |kind: &&ConnectionType| !is_there(**kind);
        if is_there(ConnectionType::ANY) { None } else { KINDS.iter().find(missing).copied() }
    }

    /// The sender that the connections must be good for.
    fn strictest(&self) -> Sender {
        if self.is_asked { Sender::Import } else { Sender::Other }
    }

    /// Connections by which `sender` may send, the newest first.
    fn usable(&self, sender: Sender) -> impl Iterator<Item = &Link<C>> {
        let links = self.links.iter().rev();
        links.filter(move |link| sender != Sender::Import || link.is_for_imports)
    }

    /// What goes by a new connection.
    fn take_waiting(&mut self, is_for_imports: bool) -> Vec<Frame> {
        let waiting = std::mem::take(&mut self.waiting);
        let (go, stay) = waiting
            .into_iter()
            .partition::<Vec<_>, _>(|(sender, _)| is_for_imports || *sender != Sender::Import);
        self.waiting = stay;
        self.waiting_bytes = self.waiting.iter().map(|(_, frame)| frame.length).sum();
        go.into_iter().map(|(_, frame)| frame).collect()
    }

    /// The connection we should start to open now.
    fn wants(&self, now: Instant) -> Option<ConnectionType> {
        if !self.initiator || self.connecting || self.content || now < self.retry_at {
            return None;
        }
        self.missing()
    }

    /// The newest connection of the kind that fits, or else of one that may carry it.
    fn choose(&self, length: usize, sender: Sender) -> Option<&C> {
        let fitting = if length < limits::BULK_BYTES_MIN {
            ConnectionType::CONTROL
        } else {
            ConnectionType::BULK_OUT
        };
        let newest = |kind: ConnectionType| self.usable(sender).find(|link| link.kind == kind);
        [fitting, ConnectionType::CONTROL, ConnectionType::BULK_OUT, ConnectionType::ANY]
            .into_iter()
            .find_map(newest)
            .map(|link| &link.connection)
    }

    fn drop_waiting(&mut self) -> usize {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting).len()
    }
}
