//! Which incoming connections are kept: before the peer is known, and of peers
//! that are no target's clients.
//!
//! What always holds: of the connections whose peer has not said who it is, one address has at most
//! [`limits::OPENINGS_PER_ADDRESS`], all together [`limits::OPENINGS_MAX`]; none lasts longer than
//! [`limits::OPENING_TIME_MAX`] twice. When there are too many in all the oldest goes: an honest peer is
//! through in milliseconds. And of the connections that the node may have (`NetConfig::connections_max`, a share of
//! the process's files) no more than a part is theirs, nor of those that nothing has come of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sheen_lnet::limits;
use sheen_types::{HashMap, Instant, Nid};

use super::LNet;
use super::link::Link;
use super::queue::Queue;

/// Says of a peer that came by itself whether it has come to anything.
pub type Usefulness = Arc<dyn Fn(Nid) -> bool + Send + Sync>;

/// Connections whose peer is not known yet.
#[derive(Default)]
pub(super) struct Handshakes(Mutex<PendingHandshakes>);

#[derive(Default)]
struct PendingHandshakes {
    next: u64,
    /// In the order of their coming: from where, and what ends it.
    under_way: BTreeMap<u64, (u64, Queue<()>)>,
    by_source: HashMap<u64, usize>,
}

/// One of them: its place among those that are under way.
pub(super) struct HandshakeSlot {
    lnet: Arc<LNet>,
    number: u64,
    stop: Queue<()>,
}

impl HandshakeSlot {
    /// Completes when the slot is taken away.
    pub(super) async fn lost(&self) {
        std::future::poll_fn(|context| self.stop.poll(context)).await;
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.lnet.handshakes.0.lock().end(self.number);
    }
}

impl PendingHandshakes {
    fn end(&mut self, number: u64) -> Option<Queue<()>> {
        let (source, stop) = self.under_way.remove(&number)?;
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
        Some(stop)
    }

    /// Adds one; the number, and the one that has to go for it. `None` if `source` has too many.
    fn begin(
        &mut self,
        source: u64,
        stop: Queue<()>,
        most: usize,
    ) -> Option<(u64, Option<Queue<()>>)> {
        let count = self.by_source.entry(source).or_default();
        if *count >= limits::OPENINGS_PER_ADDRESS {
            return None;
        }
        *count += 1;
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number, (source, stop));
        let oldest = self.under_way.first_key_value().map(|(number, _)| *number);
        let is_full = self.under_way.len() > most;
        Some((number, oldest.filter(|_| is_full).and_then(|oldest| self.end(oldest))))
    }
}

impl LNet {
    /// A connection has come from `source`, an address: `None` if it is not to be kept.
    pub(super) fn begin_handshake(self: &Arc<Self>, source: u64) -> Option<HandshakeSlot> {
        let stop = Queue::new();
        let most = limits::OPENINGS_MAX.min(self.unused_max());
        let begun = self.handshakes.0.lock().begin(source, stop.clone(), most);
        let Some((number, oldest)) = begun else {
            self.counters.unused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if let Some(oldest) = oldest {
            self.counters.unused.fetch_add(1, Ordering::Relaxed);
            oldest.close();
        }
        Some(HandshakeSlot { lnet: Arc::clone(self), number, stop })
    }

    /// So many connections may be unused.
    fn unused_max(&self) -> usize {
        (self.config.connections_max / limits::UNUSED_PART).max(1)
    }

    /// Whether there is room for another connection. If not, unused ones go, so that there soon is.
    pub(super) fn has_room(&self) -> bool {
        let handshakes = self.handshakes.0.lock().under_way.len();
        if handshakes + self.peers.read().count() < self.config.connections_max {
            return true;
        }
        let now = self.now();
        let made_at = Instant(self.room_made_at.load(Ordering::Relaxed));
        if now.since(made_at) >= limits::ROOM_TIME {
            self.room_made_at.store(now.0, Ordering::Relaxed);
            self.close_unused(now);
        }
        false
    }

    /// From now on connections of peers that come by themselves and of which `useful` says no after
    /// [`limits::UNUSED_TIME_MAX`] are closed.
    pub fn close_unless(&self, useful: Usefulness) {
        *self.usefulness.write() = Some(useful);
    }

    /// Closes the connections of peers that have come to nothing, and the oldest of those that have not
    /// yet if they are many.
    pub(super) fn close_unused(&self, now: Instant) {
        let Some(useful) = self.usefulness.read().clone() else { return };
        let comers = self.peers.read().incoming_peers();
        let since = |links: &[Arc<Link>]| links.iter().map(|link| link.since).min();
        let mut unused: Vec<_> = comers
            .into_iter()
            .filter(|(nid, _)| !useful(*nid))
            .filter_map(|(nid, links)| Some((since(&links)?, nid, links)))
            .collect();
        unused.sort_by_key(|(since, nid, _)| (*since, *nid));
        let surplus = unused.len().saturating_sub(limits::UNUSED_PEERS_MAX);
        let mut left: usize = unused.iter().map(|(_, _, links)| links.len()).sum();
        for (at, (since, _, links)) in unused.iter().enumerate() {
            let are_many = at < surplus || left > self.unused_max();
            if are_many || now.since(*since) >= limits::UNUSED_TIME_MAX {
                left -= links.len();
                self.counters.unused.fetch_add(links.len() as u64, Ordering::Relaxed);
                links.iter().for_each(|link| link.close());
            }
        }
    }
}
