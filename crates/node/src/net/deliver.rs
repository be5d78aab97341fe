//! What waits at the portals, and how a message finds it.
//!
//! The tables are sharded by match bits, which differ for every RPC; a lock is held for one hash
//! access and never while anything is called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, RwLock};
use sheen_lnet::{EntryId, Key, MatchTable, ReceivedMessage, Sender, limits};
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::{
    Ack, Get, GetReply, HANDLE_NONE, LnetCommand, PING_MATCH_BITS, Portal, Put,
};

use super::kinds::Kind;
use super::link::Link;
use super::queue::Queue;
use super::turns::PeerTurns;
use super::{Delivery, LNet, NetError, Receiver};

const SHARDS: usize = 16;
/// Lustre's highest portal is 64 (`LNET_MAX_PORTALS`).
const PORTALS: usize = 64;

/// An expectation's other end.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) cell: Queue<Delivery>,
    pub(super) repeated: bool,
}

/// An offer's other end.
pub(super) struct Offered {
    pub(super) payload: Vec<Bytes>,
    pub(super) cell: Queue<()>,
}

impl Offered {
    /// At most `length` bytes of the offer, in its own pieces.
    fn fetched(self, length: u32) -> Vec<Bytes> {
        let mut left = length as usize;
        let mut pieces = self.payload;
        for piece in &mut pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.cell.put(());
        pieces
    }

    /// As [`Self::fetched`], in one piece, for a fetch within the node; copies unless it is one already.
    pub(super) fn fetched_by_self(self, length: u32) -> Bytes {
        joined(&self.fetched(length))
    }
}

/// One piece of several.
fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [] => Bytes::new(),
        [one] => one.clone(),
        several => {
            let mut all = BytesMut::with_capacity(several.iter().map(Bytes::len).sum());
            several.iter().for_each(|piece| all.extend_from_slice(piece));
            all.freeze()
        }
    }
}

struct Fetching {
    from: Nid,
    cell: Queue<Result<Bytes, NetError>>,
}

/// For the task that calls receivers and hooks.
pub(super) enum Upcall {
    Deliver(Arc<dyn Receiver>, Delivery),
    PeerDown(Nid),
}

/// Everything that waits for a message.
pub(super) struct Tables {
    local: Nid,
    expected: [Mutex<MatchTable<Sink>>; SHARDS],
    offered: [Mutex<MatchTable<Offered>>; SHARDS],
    /// In the order of asking, so that failures are reported in that order.
    fetching: Mutex<BTreeMap<u64, Fetching>>,
    receivers: RwLock<Vec<Option<Arc<dyn Receiver>>>>,
}

impl Tables {
    pub(super) fn new(local: Nid) -> Self {
        Self {
            local,
            expected: Default::default(),
            offered: Default::default(),
            fetching: Mutex::default(),
            receivers: RwLock::new((0..PORTALS).map(|_| None).collect()),
        }
    }

    /// A node's two names for itself match each other.
    pub(super) fn key(&self, source: Nid, portal: Portal, bits: MatchBits) -> Key {
        let source = if source.is_loopback() { self.local } else { source };
        Key { portal, bits, source }
    }

    pub(super) fn serve(&self, portal: Portal, receiver: Option<Arc<dyn Receiver>>) {
        if let Some(slot) = self.receivers.write().get_mut(portal.0 as usize) {
            *slot = receiver;
        }
    }

    pub(super) fn expect(&self, key: Key, length_max: usize, sink: Sink) -> EntryId {
        self.expected[shard(&key)].lock().attach(key, length_max, sink)
    }

    pub(super) fn unexpect(&self, key: Key, id: EntryId) {
        self.expected[shard(&key)].lock().detach(key, id);
    }

    pub(super) fn offer(&self, key: Key, offered: Offered) -> EntryId {
        let length_max = limits::PAYLOAD_BYTES_MAX;
        self.offered[shard(&key)].lock().attach(key, length_max, offered)
    }

    pub(super) fn unoffer(&self, key: Key, id: EntryId) {
        // Dropped outside the lock: the payload may be large.
        let offered = self.offered[shard(&key)].lock().detach(key, id);
        drop(offered);
    }

    pub(super) fn take_offer(&self, from: Nid, portal: Portal, bits: MatchBits) -> Option<Offered> {
        let key = self.key(from, portal, bits);
        self.offered[shard(&key)].lock().take(key, 0)
    }

    pub(super) fn fetch(&self, object: u64, from: Nid, cell: Queue<Result<Bytes, NetError>>) {
        self.fetching.lock().insert(object, Fetching { from, cell });
    }

    pub(super) fn unfetch(&self, object: u64) {
        self.fetching.lock().remove(&object);
    }

    /// Nothing comes from this peer any more that we asked for.
    pub(super) fn fail_fetches(&self, from: Nid) {
        let mut fetching = self.fetching.lock();
        let failed: Vec<_> = fetching.extract_if(.., |_, fetch| fetch.from == from).collect();
        drop(fetching);
        for (_, fetch) in failed {
            fetch.cell.put(Err(NetError::PeerDown(from)));
        }
    }

    /// Unlinks all, and reports it to their owners.
    pub(super) fn clear(&self) {
        for shard in &self.expected {
            let sinks = shard.lock().clear();
            sinks.iter().for_each(|sink| sink.cell.close());
        }
        for shard in &self.offered {
            let offers = shard.lock().clear();
            offers.iter().for_each(|offer| offer.cell.close());
        }
        let fetching = std::mem::take(&mut *self.fetching.lock());
        fetching.values().for_each(|fetch| fetch.cell.close());
    }

    /// Gives a message to the expectation it matches, or back.
    fn deliver(&self, delivery: Delivery) -> Result<(), Delivery> {
        let key = self.key(delivery.from, delivery.portal, delivery.bits);
        let length = delivery.payload.len();
        let mut table = self.expected[shard(&key)].lock();
        let sink = match table.peek(key, length) {
            None => None,
            Some(sink) if sink.repeated => Some(sink.clone()),
            Some(_) => table.take(key, length),
        };
        drop(table);
        match sink {
            Some(sink) => {
                sink.cell.put(delivery);
                Ok(())
            }
            None => Err(delivery),
        }
    }

    fn receiver(&self, portal: Portal) -> Option<Arc<dyn Receiver>> {
        self.receivers.read().get(portal.0 as usize)?.clone()
    }
}

fn shard(key: &Key) -> usize {
    // Consecutive bits are one RPC's bulk; they may share the shard's lock as well as not.
    (key.bits.0 as usize ^ (key.bits.0 >> 20) as usize) % SHARDS
}

impl LNet {
    /// A message to ourselves: expectations at once, receivers on the upcall task, so that no
    /// receiver is ever called from within a sender's call.
    pub(super) fn put_to_self(&self, to: Nid, put: &Put, payload: &[Bytes]) {
        let delivery = Delivery {
            from: if to.is_loopback() { to } else { self.local.nid },
            is_proven: true,
            account: self.local.nid,
            may_ask: true,
            portal: put.portal,
            bits: put.match_bits,
            header_data: put.header_data,
            offset: put.offset,
            backlog: 0,
            inline: false,
            turns: PeerTurns::default(),
            payload: joined(payload),
        };
        let Err(delivery) = self.tables.deliver(delivery) else { return };
        match self.tables.receiver(delivery.portal) {
            Some(receiver) => self.upcall(Upcall::Deliver(receiver, delivery)),
            None => self.count_dropped(Kind::Put),
        }
    }

    /// A message from a peer.
    pub(super) fn arrived(self: &Arc<Self>, link: &Link, incoming: ReceivedMessage, inline: bool) {
        let from = link.partner.nid;
        self.counters.received.fetch_add(1, Ordering::Relaxed);
        let kind = Kind::of(&incoming.command);
        self.counters.received_by.count(kind);
        let length = incoming.payload.len();
        self.counters.received_bytes.fetch_add(length as u64, Ordering::Relaxed);
        if incoming.cookie != 0 {
            self.answer_cookie(link, incoming.cookie);
        }
        match incoming.command {
            LnetCommand::Put(put) => self.arrived_put(link, &put, incoming.payload, inline),
            LnetCommand::Get(get) => self.arrived_get(link, &get),
            LnetCommand::Reply(reply) => self.arrived_reply(from, &reply, incoming.payload),
            // We ask for no ACK. (A session lets no HELLO through.)
            LnetCommand::Ack(_) | LnetCommand::Hello(_) => self.count_dropped(kind),
        }
    }

    fn arrived_put(self: &Arc<Self>, link: &Link, put: &Put, payload: Bytes, inline: bool) {
        let from = link.partner.nid;
        let length = payload.len() as u32;
        // A peer's push of its ping information: there is nothing to learn, but it wants its ACK.
        let pushed = put.portal == Portal::RESERVED && put.match_bits == PING_MATCH_BITS;
        let delivery = Delivery {
            from,
            is_proven: link.trust.is_proven,
            account: link.trust.account,
            may_ask: link.trust.may_ask,
            portal: put.portal,
            bits: put.match_bits,
            header_data: put.header_data,
            offset: put.offset,
            backlog: link.backlog(),
            inline,
            turns: link.shared_of_peer.turns.clone(),
            payload,
        };
        let taken = pushed || self.deliver_from_peer(delivery);
        if !taken {
            self.count_dropped(Kind::Put);
        } else if put.ack_handle != HANDLE_NONE {
            let handle = put.ack_handle.clone();
            let ack = Ack { handle, match_bits: put.match_bits, length, padding: [0; 3] };
            self.send_from(Sender::Answer, from, LnetCommand::Ack(ack), Vec::new());
        }
    }

    fn deliver_from_peer(&self, delivery: Delivery) -> bool {
        let Err(delivery) = self.tables.deliver(delivery) else { return true };
        let Some(receiver) = self.tables.receiver(delivery.portal) else { return false };
        receiver.receive(delivery);
        true
    }

    fn arrived_get(self: &Arc<Self>, link: &Link, get: &Get) {
        let from = link.partner.nid;
        let is_ping = get.portal == Portal::RESERVED && get.match_bits == PING_MATCH_BITS;
        let payload = if is_ping {
            let mut answer = sheen_lnet::ping_answer(self.local.nid);
            answer.truncate(get.length as usize);
            vec![answer]
        } else {
            // What is offered is for a server's bulk.
            let offer = link
                .trust
                .is_proven
                .then(|| self.tables.take_offer(from, get.portal, get.match_bits));
            match offer.flatten() {
                Some(offer) => offer.fetched(get.length),
                None => return self.count_dropped(Kind::Get),
            }
        };
        let reply = GetReply { handle: get.reply_handle.clone(), padding: [0; 3] };
        let sender = if is_ping { Sender::Answer } else { Sender::Other };
        self.send_from(sender, from, LnetCommand::Reply(reply), payload);
    }

    fn arrived_reply(&self, from: Nid, reply: &GetReply, payload: Bytes) {
        let mut fetching = self.tables.fetching.lock();
        let ours = reply.handle.interface == self.local.incarnation
            && fetching.get(&reply.handle.object).is_some_and(|fetch| fetch.from == from);
        let fetch = if ours { fetching.remove(&reply.handle.object) } else { None };
        drop(fetching);
        match fetch {
            Some(fetch) => {
                fetch.cell.put(Ok(payload));
            }
            None => self.count_dropped(Kind::Reply),
        }
    }

    /// By the bulk-in connection as socklnd does, or else where it came from.
    fn answer_cookie(&self, link: &Link, cookie: u64) {
        let frame = sheen_lnet::zero_copy_answer(cookie);
        if self.drops_answer(link, frame.length) {
            return;
        }
        let answering = self.peers.read().answering(link.partner.nid);
        let now = self.now();
        match answering {
            Some(answering) => answering.send(frame, now),
            None => link.send(frame, now),
        };
    }

    /// Has the upcall task make a call. That a peer is down is reported once, however often something could not be
    /// sent to it meanwhile.
    pub(super) fn upcall(&self, upcall: Upcall) {
        let mut queue = self.upcall_queue.lock();
        if let Upcall::PeerDown(nid) = upcall
            && !self.reported_down.lock().insert(nid)
        {
            return;
        }
        queue.push(upcall);
        let first = queue.len() == 1;
        drop(queue);
        if first {
            self.upcalls.put(());
        }
    }

    /// The upcall task.
    pub(super) async fn make_upcalls(self: Arc<Self>) {
        let mut batch = Vec::new();
        while std::future::poll_fn(|context| self.upcalls.poll(context)).await.is_some() {
            std::mem::swap(&mut batch, &mut self.upcall_queue.lock());
            for upcall in batch.drain(..) {
                match upcall {
                    Upcall::Deliver(receiver, delivery) => receiver.receive(delivery),
                    Upcall::PeerDown(nid) => {
                        self.reported_down.lock().remove(&nid);
                        self.tables.fail_fetches(nid);
                        let hooks = self.hooks.read().clone();
                        hooks.iter().for_each(|hook| hook(nid));
                    }
                }
            }
        }
    }
}
