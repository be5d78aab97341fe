//! Bulk of a server's requests over LNet, within each client's budget.
//!
//! A transfer takes room for its bytes before memory is used for them and returns it when they are
//! written, or have left for the client: so one that asks for much and takes nothing keeps no more than
//! its budget ([`ServiceLimit::BulkBytes`]), and its further requests wait, in the order of their arrival.
//!
//! A client that sends a request again withdraws the bulk of the former copy, and sets up another. So the wait for what
//! is fetched ends when a copy has come, which is executed then; and a request that has sent its bulk to where the
//! former copy awaited it is not answered ([`Mover::has_missed`]), for the copy that came awaits bulk beside its answer.
//!
//! Per request with bulk: one hash look-up each for taking and giving room; per part that is sent, one
//! for what waits at the client's connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{Oneshot, within};
use sheen_rpc::budget::{ServiceBudget, ServiceLimit};
use sheen_rpc::service::{RequestId, Service};
use sheen_rpc::{BoxFuture, BulkMover, BulkRoom, RpcError, limits};
use sheen_types::{HashMap, MatchBits, Nid};
use sheen_wire::lnet::Portal;

use super::RpcNode;
use super::server::Arrived;
use crate::net::NetError;

/// How often it is looked whether a client takes what it is sent, once it is behind.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is looked whether a request has come again whose bulk does not come: seconds after the client has lost
/// its patience.
const COPY_LOOK: Duration = Duration::from_secs(1);

/// The room that clients take for their bulk.
#[derive(Default)]
pub(super) struct Rooms {
    clients: Mutex<HashMap<Nid, Taken>>,
    budget: Arc<ServiceBudget>,
}

#[derive(Default)]
struct Taken {
    bytes: usize,
    waiting: VecDeque<(usize, Arc<Oneshot<()>>)>,
}

impl Rooms {
    pub(super) fn new(budget: Arc<ServiceBudget>) -> Arc<Self> {
        Arc::new(Self { clients: Mutex::default(), budget })
    }

    /// Takes room at once, or says where to wait. One transfer goes whatever its size.
    fn take(&self, client: Nid, bytes: usize) -> Option<Arc<Oneshot<()>>> {
        let most = self.budget.of(ServiceLimit::BulkBytes);
        let mut clients = self.clients.lock();
        let taken = clients.entry(client).or_default();
        if taken.waiting.is_empty() && (taken.bytes == 0 || taken.bytes + bytes <= most) {
            taken.bytes += bytes;
            return None;
        }
        let turn = Oneshot::new();
        taken.waiting.push_back((bytes, Arc::clone(&turn)));
        self.budget.refuse(ServiceLimit::BulkBytes);
        Some(turn)
    }

    /// Returns room, for the transfers that wait for it.
    fn give(&self, client: Nid, bytes: usize) {
        let most = self.budget.of(ServiceLimit::BulkBytes);
        let mut clients = self.clients.lock();
        let Some(taken) = clients.get_mut(&client) else { return };
        taken.bytes -= bytes;
        while let Some((next, _)) = taken.waiting.front()
            && (taken.bytes == 0 || taken.bytes + next <= most)
        {
            let Some((next, turn)) = taken.waiting.pop_front() else { break };
            taken.bytes += next;
            turn.put(());
        }
        if taken.bytes == 0 && taken.waiting.is_empty() {
            clients.remove(&client);
        }
    }

    /// A transfer waits no more: it gives up its place, or the room that it has got meanwhile.
    fn give_up(&self, client: Nid, bytes: usize, turn: &Arc<Oneshot<()>>) {
        let mut clients = self.clients.lock();
        let waits = clients.get_mut(&client).is_some_and(|taken| {
            let before = taken.waiting.len();
            taken.waiting.retain(|(_, other)| !Arc::ptr_eq(other, turn));
            taken.waiting.len() < before
        });
        drop(clients);
        self.give(client, if waits { 0 } else { bytes });
    }
}

/// A place among those that wait, or room; either is returned.
struct Reservation {
    rooms: Arc<Rooms>,
    client: Nid,
    bytes: usize,
    waits: Option<Arc<Oneshot<()>>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.waits.take() {
            Some(turn) => self.rooms.give_up(self.client, self.bytes, &turn),
            None => self.rooms.give(self.client, self.bytes),
        }
    }
}

/// Moves the bulk of one request.
pub(super) struct Mover {
    node: Arc<RpcNode>,
    /// Whose room it takes.
    account: Nid,
    id: RequestId,
    /// Where the client has its bulk, as far as this copy of the request says.
    bits: MatchBits,
    has_sent: AtomicBool,
}

impl Mover {
    pub(super) fn new(node: Arc<RpcNode>, account: Nid, id: RequestId, bits: MatchBits) -> Self {
        Self { node, account, id, bits, has_sent: AtomicBool::new(false) }
    }

    /// Whether bulk was sent to where the client awaits it no more. `service` has the request.
    pub(super) fn has_missed(&self, service: &Service<Box<Arrived>>) -> bool {
        let copy = self.has_sent.load(Ordering::Relaxed).then(|| service.copy(self.id)).flatten();
        copy.is_some_and(|copy| copy.bulk_bits != self.bits)
    }
}

impl BulkMover for Mover {
    fn reserve(&self, bytes: usize) -> BoxFuture<'static, BulkRoom> {
        let client = self.account;
        let rooms = Arc::clone(&self.node.rooms);
        let waits = rooms.take(client, bytes);
        let mut held = Reservation { rooms, client, bytes, waits };
        Box::pin(async move {
            if let Some(turn) = held.waits.clone() {
                turn.wait().await;
                held.waits = None;
            }
            BulkRoom::new(held)
        })
    }

    /// Fails for a client that does not send what it offers: its request would be here for ever. And when it has sent
    /// the request again.
    fn fetch(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        length: usize,
    ) -> BoxFuture<'static, Result<Bytes, RpcError>> {
        let Ok(length) = u32::try_from(length) else {
            return Box::pin(async { Err(RpcError::Protocol("bulk part too long".to_owned())) });
        };
        let mut fetch = self.node.lnet.get(peer, portal, bits, length);
        let (node, account, id) = (Arc::clone(&self.node), self.account, self.id);
        Box::pin(async move {
            let clock = &*node.world.clock;
            let until = clock.now() + limits::BULK_TIME_MAX;
            loop {
                if let Some(fetched) = within(clock, COPY_LOOK, &mut fetch).await {
                    return fetched.map_err(rpc_error);
                }
                if clock.now() >= until || node.has_copy(account, id) {
                    return Err(RpcError::TimedOut);
                }
            }
        })
    }

    /// Completes when the client is not far behind. If it gets lost, so does the reply, and the client
    /// asks again.
    fn send(
        &self,
        peer: Nid,
        portal: Portal,
        bits: MatchBits,
        pieces: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<(), RpcError>> {
        self.has_sent.store(true, Ordering::Relaxed);
        let lnet = Arc::clone(&self.node.lnet);
        lnet.put(peer, portal, bits, 0, pieces);
        if lnet.backlog(peer) <= limits::BULK_BACKLOG_BYTES {
            return Box::pin(async { Ok(()) });
        }
        let clock = Arc::clone(&self.node.world.clock);
        Box::pin(async move {
            // It ends when the connections do, at the latest when they have been stuck for too long.
            while lnet.backlog(peer) > limits::BULK_BACKLOG_BYTES {
                clock.sleep_until(clock.now() + LOOK).await;
            }
            Ok(())
        })
    }
}

fn rpc_error(error: NetError) -> RpcError {
    match error {
        NetError::PeerDown(_) => RpcError::Disconnected,
        NetError::Shutdown => RpcError::Shutdown,
        NetError::Undecodable(error) => RpcError::Protocol(error.to_string()),
    }
}
