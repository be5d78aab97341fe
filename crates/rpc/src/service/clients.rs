//! What each client has running and waiting, and whose turn it is.
//!
//! What always holds: a client with requests that wait and may run is in the ring once; a client's
//! requests of one class run in the order of their arrival.

use std::collections::VecDeque;
use std::sync::Arc;

use sheen_types::{HashMap, Nid};
use sheen_wire::ptlrpc::MsgFlags;

use super::{Arrival, Class, Identity, identity};
use crate::budget::{ServiceBudget, ServiceLimit};
use crate::limits;

const CLASSES: usize = Class::ALL.len();

/// What became of a request that cannot run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It waits.
    Added,
    /// It took the place of an older copy of itself.
    Replaced,
    /// Its client has too many waiting.
    TooMany,
}

/// Requests of one class of one client. They are numbered, so that one in the middle is found.
struct Queue<T> {
    waiting: VecDeque<(Arrival, T)>,
    /// The number of the first.
    first: u64,
}

struct Client<T> {
    queues: [Queue<T>; CLASSES],
    active: [usize; CLASSES],
    /// Bytes of those, and of the copies of them that came meanwhile.
    active_bytes: [usize; CLASSES],
    queued: usize,
    queued_bytes: usize,
    /// It is in the ring.
    is_in_turn: bool,
}

pub(super) struct Clients<T> {
    clients: HashMap<Nid, Client<T>>,
    /// Where each waiting request is: its class, and its number there.
    places: HashMap<Identity, (Class, u64)>,
    /// Clients of which a request may be able to run, in the order of their turns.
    ring: VecDeque<Nid>,
    budget: Arc<ServiceBudget>,
    /// Has a request release memory that it only shares.
    compact: fn(&mut T),
}

impl<T> Default for Client<T> {
    fn default() -> Self {
        // In the middle: copies of requests that ended unanswered go in front.
        let queue = |_| Queue { waiting: VecDeque::new(), first: u64::MAX / 2 };
        Self {
            queues: Class::ALL.map(queue),
            active: [0; CLASSES],
            active_bytes: [0; CLASSES],
            queued: 0,
            queued_bytes: 0,
            is_in_turn: false,
        }
    }
}

impl<T> Client<T> {
    /// The first class of which a request waits and may run.
    fn ready(&self, budget: &ServiceBudget) -> Option<Class> {
        let is_ready = |class: &Class| {
            let first = self.queues[*class as usize].waiting.front();
            first.is_some_and(|(arrival, _)| self.has_room(budget, *class, arrival.bytes))
        };
        Class::ALL.into_iter().find(is_ready)
    }

    /// Whether one more request of a class may run.
    fn has_room(&self, budget: &ServiceBudget, class: Class, bytes: usize) -> bool {
        let at = class as usize;
        let fits = self.active_bytes[at] + bytes <= limits::CLIENT_ACTIVE_BYTES;
        self.active[at] < limit(budget, class) && (fits || self.active[at] == 0)
    }

    fn is_idle(&self) -> bool {
        self.queued == 0 && !self.is_in_turn && self.active == [0; CLASSES]
    }
}

/// Requests of a class that one client may have running.
fn limit(budget: &ServiceBudget, class: Class) -> usize {
    match class {
        Class::Urgent => limits::CLIENT_ACTIVE_URGENT,
        Class::MdtData | Class::Ordinary => budget.of(ServiceLimit::RequestsActive),
        Class::LockReplay => limits::CLIENT_ACTIVE_LOCK_REPLAYS,
    }
}

impl<T> Clients<T> {
    pub(super) fn new(budget: Arc<ServiceBudget>) -> Self {
        Self {
            clients: HashMap::default(),
            places: HashMap::default(),
            ring: VecDeque::new(),
            budget,
            compact: |_| {},
        }
    }

    pub(super) fn compact_by(&mut self, compact: fn(&mut T)) {
        self.compact = compact;
    }

    /// Requests that wait.
    pub(super) fn queued(&self) -> usize {
        self.clients.values().map(|client| client.queued).sum()
    }

    /// Whether so many requests of the client wait that it should be read slowly.
    pub(super) fn has_many(&self, account: Nid) -> bool {
        self.clients.get(&account).is_some_and(|it| it.queued >= limits::CLIENT_QUEUED_READ)
    }

    /// Whether a request that arrives need not wait for other requests of its client.
    pub(super) fn may_run(&self, account: Nid, class: Class, bytes: usize) -> bool {
        self.clients.get(&account).is_none_or(|client| {
            client.queues[class as usize].waiting.is_empty()
                && client.has_room(&self.budget, class, bytes)
        })
    }

    /// A request runs.
    pub(super) fn begin(&mut self, account: Nid, class: Class, bytes: usize) {
        let client = self.clients.entry(account).or_default();
        client.active[class as usize] += 1;
        client.active_bytes[class as usize] += bytes;
    }

    /// A copy of a request that runs is to be kept, in place of one of `before` bytes; `false` if that is too much.
    pub(super) fn keeps_copy(
        &mut self,
        account: Nid,
        class: Class,
        (before, bytes): (usize, usize),
    ) -> bool {
        let Some(client) = self.clients.get_mut(&account) else { return false };
        let active = &mut client.active_bytes[class as usize];
        let more = *active - before + bytes;
        // One that is no larger than what it replaces costs nothing more.
        let fits = more <= limits::CLIENT_ACTIVE_BYTES || bytes <= before;
        if fits {
            *active = more;
        } else {
            self.budget.refuse(ServiceLimit::QueuedBytes);
        }
        fits
    }

    /// A request has ended, of so many bytes with its copy.
    pub(super) fn end(&mut self, account: Nid, class: Class, bytes: usize) {
        let Some(client) = self.clients.get_mut(&account) else { return };
        client.active[class as usize] -= 1;
        client.active_bytes[class as usize] -= bytes;
        if client.queued > 0 {
            self.take_turns(account);
        }
    }

    /// A request waits. The newest copy of a waiting one replaces the older.
    pub(super) fn wait(&mut self, class: Class, arrival: Arrival, mut item: T) -> Waiting {
        let account = arrival.account;
        let name = identity(&arrival);
        let is_resent = arrival.flags.contains(MsgFlags::RESENT);
        let client = self.clients.entry(account).or_default();
        if let Some((class, number)) = self.places.get(&name).filter(|_| is_resent) {
            let queue = &mut client.queues[*class as usize];
            let at = usize::try_from(number - queue.first).unwrap_or(usize::MAX);
            if let Some(older) = queue.waiting.get_mut(at) {
                let bytes = client.queued_bytes + arrival.bytes - older.0.bytes;
                let is_larger = arrival.bytes > older.0.bytes;
                let is_too_much = is_larger && bytes > self.budget.of(ServiceLimit::QueuedBytes);
                // What goes to another portal is another request, by whose name it makes no sense.
                if is_too_much || arrival.portal != older.0.portal {
                    self.budget.refuse(ServiceLimit::QueuedBytes);
                    return Waiting::TooMany;
                }
                if client.queued >= limits::CLIENT_QUEUED_SHARING {
                    (self.compact)(&mut item);
                }
                client.queued_bytes = bytes;
                *older = (arrival, item);
                return Waiting::Replaced;
            }
        }
        let bytes = client.queued_bytes + arrival.bytes;
        if client.queued > 0 && bytes > self.budget.of(ServiceLimit::QueuedBytes) {
            self.budget.refuse(ServiceLimit::QueuedBytes);
            return Waiting::TooMany;
        }
        if client.queued >= limits::CLIENT_QUEUED_SHARING {
            (self.compact)(&mut item);
        }
        client.queued += 1;
        client.queued_bytes = bytes;
        let queue = &mut client.queues[class as usize];
        let number = queue.first + queue.waiting.len() as u64;
        queue.waiting.push_back((arrival, item));
        self.places.entry(name).or_insert((class, number));
        self.take_turns(account);
        Waiting::Added
    }

    /// A request waits, before all other requests of its class and client.
    pub(super) fn queue_first(&mut self, class: Class, request: (Arrival, T)) {
        let account = request.0.account;
        let client = self.clients.entry(account).or_default();
        client.queued += 1;
        client.queued_bytes += request.0.bytes;
        let queue = &mut client.queues[class as usize];
        queue.first -= 1;
        self.places.insert(identity(&request.0), (class, queue.first));
        queue.waiting.push_front(request);
        self.take_turns(account);
    }

    /// Takes the request whose turn it is.
    pub(super) fn next(&mut self) -> Option<(Class, Arrival, T)> {
        loop {
            let account = self.ring.pop_front()?;
            let Some(client) = self.clients.get_mut(&account) else { continue };
            client.is_in_turn = false;
            // One that has too many running comes back when one of those ends.
            let Some(class) = client.ready(&self.budget) else { continue };
            let queue = &mut client.queues[class as usize];
            let Some((arrival, item)) = queue.waiting.pop_front() else { continue };
            let number = queue.first;
            queue.first += 1;
            client.queued -= 1;
            client.queued_bytes -= arrival.bytes;
            let more = client.queued > 0;
            let name = identity(&arrival);
            if self.places.get(&name) == Some(&(class, number)) {
                self.places.remove(&name);
            }
            if more {
                self.take_turns(account);
            }
            return Some((class, arrival, item));
        }
    }

    /// Forgets clients that have nothing here.
    pub(super) fn forget_idle(&mut self) {
        self.clients.retain(|_, client| !client.is_idle());
    }

    fn take_turns(&mut self, account: Nid) {
        if let Some(client) = self.clients.get_mut(&account)
            && !std::mem::replace(&mut client.is_in_turn, true)
        {
            self.ring.push_back(account);
        }
    }
}
