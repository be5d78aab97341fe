//! What LNet is configured with, what it hands to receivers, and what it counts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::Portal;

use super::{KindCounts, PeerTurns};

/// A message to a portal of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sender; [`Nid::LOOPBACK`] for what was sent to that.
    pub from: Nid,
    /// More than the sender's word shows that it is at that NID: its address, or that it was sent here.
    pub is_proven: bool,
    /// Whose budget it uses up: the sender's, or where only its word shows that it is at its NID, that of the NID of
    /// its address.
    pub account: Nid,
    /// Whether requests to targets are taken from there: none are over a connection that we opened, with
    /// `accept=secure`, to a port where any user of that machine may listen.
    pub may_ask: bool,
    /// Where it was sent to.
    pub portal: Portal,
    /// Under which bits.
    pub bits: MatchBits,
    /// What the sender added.
    pub header_data: u64,
    /// Where in the receiver's buffer the sender wanted it: replies come behind the room that early
    /// replies use.
    pub offset: u32,
    /// Bytes that wait to be sent to the sender: one that takes no answers needs none.
    pub backlog: usize,
    /// Whether it came with few other messages: its receiver may begin to work on it inline, on the task that
    /// has read it (decision 0003).
    pub inline: bool,
    /// The sender's part of the processors: what is done for it later is done within that.
    pub turns: PeerTurns,
    /// The payload; part of a read buffer of up to 16 KiB, or all of one of its own.
    pub payload: Bytes,
}

/// Takes all messages of a portal.
pub trait Receiver: Send + Sync {
    /// Called on the task that reads from the sender's connection: must only queue or spawn, but for
    /// short work on what may be executed `inline`.
    fn receive(&self, delivery: Delivery);
}

/// Called when a peer's last connection ended, or none could be made for what waited.
pub type PeerDownHook = Arc<dyn Fn(Nid) + Send + Sync>;

/// What a node's LNet is to be.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// The node's address; an IPv4 address of this machine.
    pub nid: Nid,
    /// The TCP port of all nodes (988 by default in Lustre).
    pub port: u16,
    /// Whether peers may connect to us.
    pub listen: bool,
    /// Whether peers must have needed privilege to connect: those that come from ports which any user of
    /// their machine may use are closed at once. Lustre's `accept=secure`.
    pub secure: bool,
    /// Whether to connect from a port below 1024, as Lustre's acceptor demands by default.
    pub privileged: bool,
    /// Whether a peer with privilege is at the NID that it says, wherever it comes from, as Lustre believes it:
    /// for servers with several addresses or behind NAT.
    pub believes_nids: bool,
    /// Connections that the node may have: each is one of the process's files. What it opens itself counts and is not
    /// refused.
    pub connections_max: usize,
    /// Whether what peers ask for has its part of the processors, each peer its own: for nodes that serve requests.
    pub shares_processors: bool,
}

impl NetConfig {
    /// A node that listens and takes every peer, and connects from a privileged port if it may.
    #[must_use]
    pub fn new(nid: Nid, port: u16) -> Self {
        Self {
            nid,
            port,
            listen: true,
            secure: false,
            privileged: true,
            believes_nids: false,
            connections_max: usize::MAX,
            shares_processors: false,
        }
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages sent.
    pub sent: AtomicU64,
    /// Bytes of them.
    pub sent_bytes: AtomicU64,
    /// Messages received.
    pub received: AtomicU64,
    /// Bytes of their payloads.
    pub received_bytes: AtomicU64,
    /// Messages that could not be sent.
    pub send_dropped: AtomicU64,
    /// Answers that were not sent because their peer takes none.
    pub answers_dropped: AtomicU64,
    /// Messages that no receiver expected.
    pub receive_dropped: AtomicU64,
    /// Connections that ended because the peer broke the protocol.
    pub protocol_errors: AtomicU64,
    /// Connections that ended because the peer took nothing of too much.
    pub backlogged: AtomicU64,
    /// Connections that ended because there were too many of them, of the peer or in all, or because
    /// nothing came of them.
    pub unused: AtomicU64,
    /// Messages sent, by kind.
    pub sent_by: KindCounts,
    /// Messages received, by kind.
    pub received_by: KindCounts,
    /// Messages that no receiver expected, by kind.
    pub dropped_by: KindCounts,
}
