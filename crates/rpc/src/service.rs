//! The server's end, as a state machine: what runs, what waits, who gets an early reply.
//!
//! Owns the bookkeeping of requests from arrival to reply; what a request says is the node's (`T`).
//! Urgent requests (pings, cancels, callbacks) have a limit of their own, so that what frees a lock
//! never waits behind who waits for it; so have those for data of an MDT, by which a client writes
//! what a lock covers before it cancels it. A request that arrives again while it still runs is not run
//! twice: the answer goes to where the newest copy waits for it (Lustre's in-progress check). The copy is kept, and
//! runs if the first ends without an answer: also where its bulk is offered or awaited under other bits, once the node
//! has abandoned the first. This finds a resend by its sender's NID, handle and xid, before any target sees it; one that
//! comes over another NID, after a reconnect, is found by `sheen_target`'s `dispatch`, by export and xid. One that was
//! answered is no longer here: the target answers it from the reply data.
//!
//! Limits and queues are each client's own (`clients`): no request waits because another client has
//! many. Only to begin, which takes a processor, requests of several clients wait for each other: those
//! take turns, one request each (Lustre's NRS policy CRR-N). A client is a NID here ([`Arrival::account`]): it is
//! what a peer cannot choose, as it can handles and UUIDs.
//!
//! Per request: two hash entries and three look-ups of its client; one more entry if it waits. Early
//! replies cost a scan of what runs once a second.

mod clients;

use std::sync::Arc;
use std::time::Duration;

use sheen_types::{HashMap, Instant, MatchBits, Nid, ObdHandle, Xid};
use sheen_wire::lnet::Portal;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::MsgFlags;

use self::clients::{Clients, Waiting};
use crate::adaptive::{Estimate, seconds_of};
use crate::budget::ServiceBudget;
use crate::limits;
use crate::portals;
use crate::timing::{OwnTimes, Time, Timing};

/// Names a request while the service has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// What the service must know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub from: Nid,
    /// Whose budget it uses up: one client, whatever nodes it says it is.
    pub account: Nid,
    /// The portal it came to.
    pub portal: Portal,
    /// The export it names.
    pub handle: ObdHandle,
    /// Its name at that node.
    pub xid: Xid,
    /// Bits under which its reply is awaited.
    pub reply_bits: MatchBits,
    /// What it asks for.
    pub opcode: Opcode,
    /// `MSG_*`.
    pub flags: MsgFlags,
    /// Seconds the client waits.
    pub timeout: u32,
    /// Whether it understands early replies.
    pub early: bool,
    /// When it arrived.
    pub arrived: Instant,
    /// Bytes of memory that it holds while it waits.
    pub bytes: usize,
}

/// What becomes of an arrived request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Run it now.
    Run(RequestId, T),
    /// It waits for its turn, or for other requests of its client to end.
    Queued,
    /// It runs already; its answer will go to this copy.
    Attached,
    /// Its client has too many: forget it, the client will ask again.
    Dropped,
}

/// What a reply's body says about time, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyRoute {
    /// The newest copy of the request.
    pub arrival: Arrival,
    /// `pb_timeout`: what the client should expect next time; in early replies, how long from
    /// arrival it shall wait.
    pub timeout: u32,
    /// `pb_service_time`: seconds since arrival.
    pub service_time: u32,
}

/// Count, extremes and sums of a quantity, as Lustre's `stats` files show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
    /// Their sum.
    pub sum: u64,
    /// The sum of their squares.
    pub sum_squared: u128,
}

impl Tally {
    /// Counts one sample.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.sum_squared += u128::from(value) * u128::from(value);
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squared += other.sum_squared;
    }
}

/// What a service has done, with Lustre's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Microseconds from arrival to start.
    pub req_waittime: Tally,
    /// Requests waiting, at each arrival.
    pub req_qdepth: Tally,
    /// Requests running, at each start.
    pub req_active: Tally,
    /// Seconds that each reply announces to its client.
    pub req_timeout: Tally,
    /// Requests that were not run for lack of room.
    pub dropped: u64,
    /// Copies of running requests.
    pub attached: u64,
    /// Early replies sent.
    pub early_replies: u64,
    /// Requests that ended without a reply.
    pub unanswered: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.req_waittime += other.req_waittime;
        self.req_qdepth += other.req_qdepth;
        self.req_active += other.req_active;
        self.req_timeout += other.req_timeout;
        self.dropped += other.dropped;
        self.attached += other.attached;
        self.early_replies += other.early_replies;
        self.unanswered += other.unanswered;
    }
}

/// Requests that must not wait for one another are of different classes: each has its own limit and
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Urgent,
    MdtData,
    Ordinary,
    LockReplay,
}

impl Class {
    /// In the order in which they are served.
    const ALL: [Self; 4] = [Self::Urgent, Self::MdtData, Self::Ordinary, Self::LockReplay];

    fn of(arrival: &Arrival) -> Self {
        if portals::is_urgent(arrival.opcode) {
            Self::Urgent
        } else if arrival.flags.contains(MsgFlags::REQ_REPLAY_DONE) {
            Self::LockReplay
        } else if arrival.portal == Portal::MDS_IO {
            Self::MdtData
        } else {
            Self::Ordinary
        }
    }
}

struct Running<T> {
    arrival: Arrival,
    deadline: Instant,
    class: Class,
    /// It has not come to its first wait.
    begins: bool,
    /// The times of its target, once that is known.
    own_times: OwnTimes,
    /// A newer copy, to be run if this one ends without an answer.
    copy: Option<Box<(Arrival, T)>>,
}

/// With the account: a peer that only claims a NID sends no copies of the requests of its owner.
type Identity = (Nid, Nid, ObdHandle, Xid);

/// The requests that a server works on; a node may have several and divide the clients among them.
pub struct Service<T> {
    next: u64,
    running: HashMap<RequestId, Running<T>>,
    by_identity: HashMap<Identity, RequestId>,
    clients: Clients<T>,
    /// Requests that have not come to their first wait, and how many may be.
    beginning: usize,
    beginning_max: usize,
    estimate: Estimate,
    timing: Arc<Timing>,
    next_scan: Instant,
    portals: Vec<PortalService>,
}

/// What came to one portal: a service of Lustre's. There are ten at most.
struct PortalService {
    portal: Portal,
    active: u64,
    queued: u64,
    stats: Stats,
}

impl<T> Service<T> {
    /// A service that keeps its clients within `budget`. At most `beginning_max` requests are begun at
    /// once: as many as there are processors, so that a new request waits for one of them at most.
    #[must_use]
    pub fn new(
        now: Instant,
        budget: Arc<ServiceBudget>,
        beginning_max: usize,
        timing: Arc<Timing>,
    ) -> Self {
        Self {
            next: 1,
            running: HashMap::default(),
            by_identity: HashMap::default(),
            clients: Clients::new(budget),
            beginning: 0,
            beginning_max: beginning_max.max(1),
            estimate: Estimate::new(now),
            timing,
            next_scan: now,
            portals: Vec::new(),
        }
    }

    /// `compact` has a request release memory that it shares with other requests, which could not be counted:
    /// called for those that wait behind many.
    #[must_use]
    pub fn compacting(mut self, compact: fn(&mut T)) -> Self {
        self.clients.compact_by(compact);
        self
    }

    /// Whether so many requests of a client wait that it should be read slowly
    /// ([`limits::CLIENT_QUEUED_READ`]).
    #[must_use]
    pub fn has_many(&self, account: Nid) -> bool {
        self.clients.has_many(account)
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.portals.iter().for_each(|at| sum += at.stats);
        sum
    }

    /// What it has done with requests to each portal that any came to.
    #[must_use]
    pub fn stats_by_portal(&self) -> Vec<(Portal, Stats)> {
        self.portals.iter().map(|at| (at.portal, at.stats)).collect()
    }

    fn at(&mut self, portal: Portal) -> &mut PortalService {
        let known = self.portals.iter().position(|at| at.portal == portal);
        let place = known.unwrap_or_else(|| {
            self.portals.push(PortalService {
                portal,
                active: 0,
                queued: 0,
                stats: Stats::default(),
            });
            self.portals.len() - 1
        });
        &mut self.portals[place]
    }

    /// Requests running and waiting now.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.clients.queued())
    }

    /// When [`Service::tick`] is due; `None` while nothing runs.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        (!self.running.is_empty()).then_some(self.next_scan)
    }

    /// A request arrived.
    pub fn arrive(&mut self, now: Instant, arrival: Arrival, item: T) -> Verdict<T> {
        let at = self.at(arrival.portal);
        at.stats.req_qdepth.add(at.queued);
        let identity = identity(&arrival);
        if let Some(running) =
            self.by_identity.get(&identity).and_then(|id| self.running.get_mut(id))
        {
            let portal = arrival.portal;
            let before = running.copy.as_ref().map_or(0, |copy| copy.0.bytes);
            let (account, bytes) = (running.arrival.account, (before, arrival.bytes));
            if !self.clients.keeps_copy(account, running.class, bytes) {
                self.at(portal).stats.dropped += 1;
                return Verdict::Dropped;
            }
            running.deadline = deadline(&arrival, arrival.timeout).max(running.deadline);
            running.copy = Some(Box::new((arrival, item)));
            self.at(portal).stats.attached += 1;
            return Verdict::Attached;
        }
        let class = Class::of(&arrival);
        let (account, bytes) = (arrival.account, arrival.bytes);
        if self.beginning < self.beginning_max && self.clients.may_run(account, class, bytes) {
            return Verdict::Run(self.run(now, arrival, class), item);
        }
        let portal = arrival.portal;
        match self.clients.wait(class, arrival, item) {
            Waiting::Added => self.at(portal).queued += 1,
            Waiting::Replaced => {}
            Waiting::TooMany => {
                self.at(portal).stats.dropped += 1;
                return Verdict::Dropped;
            }
        }
        Verdict::Queued
    }

    fn run(&mut self, now: Instant, arrival: Arrival, class: Class) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.clients.begin(arrival.account, class, arrival.bytes);
        self.beginning += 1;
        let waited = now.since(arrival.arrived);
        let at = self.at(arrival.portal);
        at.active += 1;
        at.stats.req_waittime.add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        at.stats.req_active.add(at.active);
        if self.running.is_empty() {
            self.next_scan = now + limits::SCAN_INTERVAL;
        }
        let deadline = deadline(&arrival, arrival.timeout);
        self.by_identity.insert(identity(&arrival), id);
        self.running.insert(
            id,
            Running {
                arrival,
                deadline,
                class,
                begins: true,
                own_times: OwnTimes::default(),
                copy: None,
            },
        );
        id
    }

    /// A request has come to its first wait: another may begin ([`Service::next`]).
    pub fn begun(&mut self, id: RequestId) {
        if let Some(running) = self.running.get_mut(&id)
            && std::mem::take(&mut running.begins)
        {
            self.beginning -= 1;
        }
    }

    /// The target of a running request has times of its own.
    pub fn set_own_times(&mut self, id: RequestId, times: OwnTimes) {
        if let Some(running) = self.running.get_mut(&id) {
            running.own_times = times;
        }
    }

    /// A request is to be answered; `None` if it has been already. Then [`Service::next`] may
    /// have more to run.
    pub fn finish(&mut self, now: Instant, id: RequestId) -> Option<ReplyRoute> {
        let running = self.end(id)?;
        let copied = running.copy.map(|copy| copy.0);
        let first = running.arrival;
        let service_time = seconds_of(now.since(first.arrived)).max(1);
        let recovery = MsgFlags::RESENT
            | MsgFlags::REPLAY
            | MsgFlags::REQ_REPLAY_DONE
            | MsgFlags::LOCK_REPLAY_DONE;
        // Recovery waits for other clients; that says nothing about us.
        if !first.flags.intersects(recovery) {
            self.estimate.measure(now, service_time, &self.timing.bounds());
        }
        let timeout = self.estimate.seconds(&running.own_times.over(&self.timing));
        self.at(first.portal).stats.req_timeout.add(u64::from(timeout));
        Some(ReplyRoute { arrival: copied.unwrap_or(first), timeout, service_time })
    }

    /// The newest copy of a running request, if one came.
    #[must_use]
    pub fn copy(&self, id: RequestId) -> Option<&T> {
        self.running.get(&id)?.copy.as_ref().map(|copy| &copy.1)
    }

    /// A request ended without an answer. A newer copy of it runs in its stead.
    pub fn abandon(&mut self, id: RequestId) {
        let Some(running) = self.end(id) else { return };
        self.at(running.arrival.portal).stats.unanswered += 1;
        if let Some(copy) = running.copy {
            self.at(copy.0.portal).queued += 1;
            self.clients.queue_first(running.class, *copy);
        }
    }

    fn end(&mut self, id: RequestId) -> Option<Running<T>> {
        let running = self.running.remove(&id)?;
        self.by_identity.remove(&identity(&running.arrival));
        self.beginning -= usize::from(running.begins);
        let bytes = running.arrival.bytes + running.copy.as_ref().map_or(0, |copy| copy.0.bytes);
        self.clients.end(running.arrival.account, running.class, bytes);
        self.at(running.arrival.portal).active -= 1;
        Some(running)
    }

    /// A request that waited and may run now.
    pub fn next(&mut self, now: Instant) -> Option<(RequestId, T)> {
        if self.beginning >= self.beginning_max {
            return None;
        }
        let (class, arrival, item) = self.clients.next()?;
        self.at(arrival.portal).queued -= 1;
        Some((self.run(now, arrival, class), item))
    }

    /// Looks for clients whose patience ends: each gets an early reply.
    pub fn tick(&mut self, now: Instant) -> Vec<ReplyRoute> {
        if self.running.is_empty() || now < self.next_scan {
            return Vec::new();
        }
        self.next_scan = now + limits::SCAN_INTERVAL;
        self.clients.forget_idle();
        let mut routes = Vec::new();
        let margin = Duration::from_secs(self.timing.of(Time::AtEarlyMargin).into());
        for running in self.running.values_mut() {
            let arrival = running.copy.as_ref().map_or(&running.arrival, |copy| &copy.0);
            let soon = running.deadline <= now + margin;
            if !soon || !arrival.early || running.deadline <= now {
                continue;
            }
            let bounds = running.own_times.over(&self.timing);
            if !bounds.adapts() {
                continue;
            }
            let service_time = seconds_of(now.since(arrival.arrived));
            let extra = self.timing.of(Time::AtExtra);
            let timeout = bounds.capped(service_time.saturating_add(extra));
            let later = deadline(arrival, timeout);
            if later <= running.deadline {
                continue;
            }
            running.deadline = later;
            routes.push(ReplyRoute { arrival: arrival.clone(), timeout, service_time });
        }
        for route in &routes {
            self.at(route.arrival.portal).stats.early_replies += 1;
        }
        routes
    }
}

fn identity(arrival: &Arrival) -> Identity {
    (arrival.account, arrival.from, arrival.handle, arrival.xid)
}

fn deadline(arrival: &Arrival, seconds: u32) -> Instant {
    arrival.arrived + Duration::from_secs(u64::from(seconds))
}

#[cfg(test)]
mod tests;
