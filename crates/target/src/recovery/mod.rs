//! The recovery window: after a restart, known clients come back, replay what was not durable in
//! the order it first happened, then replay their locks.
//!
//! This module only decides; [`wait`] and [`end`] act for it. A replayed request waits on a oneshot channel until
//! it is admitted; the task that executes it reports when it is done. Stages as in Lustre: wait until all
//! known clients are connected (or given up), replay requests by transaction number, replay locks,
//! let all clients go on.
//!
//! Where a client was lost with what it had to replay, other clients may have seen its changes, and keep
//! them under locks that they have replayed. So those locks are revoked after recovery's end: until they are,
//! no request changes anything, or gets a lock, that would show how it is now. That a client was lost is recorded with
//! its eviction, and forgotten when all this is done: a target that dies before knows it at the next start.
//!
//! Where a target stops before the end, [`Recovery::stop`] closes the window, so that no departure of an export
//! completes it. The next start awaits the same clients with the same transactions, as after a crash.

mod end;
mod expired;
mod mdts;
mod wait;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::Watched;
use sheen_types::{Instant, MdtIndex, ObdHandle, Timestamp, Transno};
use tokio::sync::oneshot;

use self::expired::Expired;
use self::mdts::MdtProgress;
use self::window::{Window, after, decrement};
use crate::config::Timeouts;
use crate::export::ExportState;
use crate::last_rcvd::RecoveryLosses;

/// Where recovery is (`status` of Lustre's `recovery_status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryStatus {
    /// There was no client to wait for.
    #[default]
    Inactive,
    /// No known client has connected yet.
    WaitingForClients,
    /// Other MDTs have not said yet what this one has lost.
    WaitingForMdts,
    /// Clients replay.
    Recovering,
    /// It is over.
    Complete,
}

/// Lustre's `recovery_status`, as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryView {
    /// Where it is.
    pub status: RecoveryStatus,
    /// When the first client connected.
    pub started: Option<Timestamp>,
    /// How long it took, or has taken so far.
    pub duration: Duration,
    /// How long it may still take.
    pub remaining: Duration,
    /// Clients known from before the restart.
    pub known: usize,
    /// Those that are connected.
    pub connected: usize,
    /// Those that still replay requests.
    pub replaying: usize,
    /// Those that still replay locks.
    pub replaying_locks: usize,
    /// Those that were given up.
    pub evicted: usize,
    /// Requests waiting for their turn.
    pub queued: usize,
    /// Requests replayed.
    pub replayed: u64,
    /// The transaction whose turn it is.
    pub next: Transno,
    /// The MDTs that are waited for.
    pub mdts: Vec<MdtIndex>,
    /// Connects of clients to which more was reported as durable than there is.
    pub went_back: u64,
    /// What earlier recoveries have lost, before this start, that did not come to their end.
    pub lost_before: RecoveryLosses,
}

/// What a request does in the recovery window.
pub(crate) enum Admission {
    /// It is executed now.
    Now,
    /// It is executed when this says that it is admitted, and dropped if the sender is.
    Wait(oneshot::Receiver<Admitted>),
    /// It is not executed and not answered: the target stops, or another request claims the same transaction.
    Dropped,
}

/// How a request that waited was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// In the order of replay: the next waits until [`Recovery::end_replay`].
    InOrder,
    /// Without an order.
    Unordered,
}

/// Whether a client in `state` may have something to replay.
fn has_replays(state: ExportState) -> bool {
    matches!(state, ExportState::Awaited | ExportState::Replaying)
}

/// Whether the window has decided by this call that recovery ends: for [`Target::end_recovery_if`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct EndDecided(pub(crate) bool);

pub(crate) struct Recovery {
    /// Whether there is anything to wait for: looked at by every request.
    running: AtomicBool,
    /// Whether what clients keep is being revoked after recovery: looked at by every request, too.
    revoking: AtomicBool,
    window: Mutex<Window>,
    /// As operators have set them.
    timeouts: Mutex<Timeouts>,
    went_back: AtomicU64,
    lost_before: RecoveryLosses,
    mdts: Arc<Watched<MdtProgress>>,
}

impl Recovery {
    /// A window for `known` clients; none if there are none. `last` is durable. What earlier recoveries have lost is
    /// revoked after this one, as they did not come to their end.
    pub(crate) fn new(
        known: usize,
        last: Transno,
        lost_before: RecoveryLosses,
        timeouts: Timeouts,
    ) -> Self {
        let status = match known {
            0 => RecoveryStatus::Inactive,
            _ => RecoveryStatus::WaitingForClients,
        };
        let is_lossy = lost_before.changes;
        let window = Window { status, known, next: after(last), is_lossy, ..Window::default() };
        let (running, revoking) = (AtomicBool::new(known > 0), AtomicBool::new(false));
        let (window, timeouts) = (Mutex::new(window), Mutex::new(timeouts));
        let (went_back, mdts) = (AtomicU64::new(0), Arc::new(Watched::new(MdtProgress::default())));
        Self { running, revoking, window, timeouts, went_back, lost_before, mdts }
    }

    /// The times as they are now.
    pub(crate) fn timeouts(&self) -> Timeouts {
        *self.timeouts.lock()
    }

    /// Changes them. A deadline that is set already stays.
    pub(crate) fn change_timeouts(&self, change: impl FnOnce(&mut Timeouts)) {
        change(&mut self.timeouts.lock());
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// More was reported to a client as durable than there is.
    pub(crate) fn count_went_back(&self) {
        self.went_back.fetch_add(1, Ordering::Relaxed);
    }

    /// A client wants to connect: the clock starts. Returns the deadline if it did so just now.
    pub(crate) fn start_clock(&self, now: Instant, wall: Timestamp) -> Option<Instant> {
        let mut window = self.window.lock();
        if !window.is_running() || window.started.is_some() {
            return None;
        }
        window.started = Some((now, wall));
        window.status = RecoveryStatus::Recovering;
        window.deadline = Some(now + self.timeouts().recovery_soft);
        window.deadline
    }

    /// How long ago it began.
    pub(crate) fn elapsed(&self, now: Instant) -> Option<Duration> {
        self.window.lock().started.map(|(start, _)| now.since(start))
    }

    /// A known client is back. `first` is the first transaction it will replay, if it named it. `None` if it is
    /// too late: the end is decided, without a client whose eviction is under way.
    pub(crate) fn client_connected(&self, first: Option<Transno>) -> Option<EndDecided> {
        let mut window = self.window.lock();
        if window.end_is_decided || window.is_stopped || !window.is_running() {
            return None;
        }
        window.connected += 1;
        window.replaying += 1;
        window.replaying_locks += 1;
        if let Some(first) = first.filter(|first| first.0 > 0) {
            window.next = window.next.min(first);
        }
        Some(window.advance())
    }

    /// A client moves from `from` to `to` because it reported so. A replay of it that still waits for its turn
    /// should not have come: it would take the turn of another client's replay, which the count of those that
    /// replay keeps.
    pub(crate) fn client_moved(
        &self,
        export: ObdHandle,
        from: ExportState,
        to: ExportState,
    ) -> EndDecided {
        let mut window = self.window.lock();
        if from == ExportState::Replaying {
            window.end_requests(export);
        }
        if to == ExportState::ReplayedAll {
            decrement(&mut window.replaying_locks);
        }
        window.advance()
    }

    /// A client that was in `state` is gone.
    pub(crate) fn client_lost(&self, export: ObdHandle, state: ExportState) -> EndDecided {
        let mut window = self.window.lock();
        if window.is_stopped || !window.is_running() {
            return EndDecided(false);
        }
        match state {
            ExportState::Awaited => {}
            ExportState::Replaying => {
                decrement(&mut window.connected);
                window.end_requests(export);
                decrement(&mut window.replaying_locks);
            }
            ExportState::ReplayingLocks => {
                decrement(&mut window.connected);
                decrement(&mut window.replaying_locks);
            }
            ExportState::ReplayedAll => decrement(&mut window.connected),
            ExportState::Full | ExportState::Gone => return EndDecided(false),
        }
        window.gone += 1;
        window.is_lossy |= has_replays(state);
        window.unqueue(export);
        window.lock_replays.retain(|(owner, _)| *owner != export);
        window.advance()
    }

    /// What is lost with a client that is in `state`, if recovery is not over. It has to be recorded no later than that
    /// the client is not awaited any more: the next start would not know of it.
    pub(crate) fn losses_with(&self, state: ExportState) -> RecoveryLosses {
        let clients = self.is_running() && !matches!(state, ExportState::Full | ExportState::Gone);
        RecoveryLosses { clients, changes: clients && has_replays(state) }
    }

    /// A client replays the request that was `transno`. Unless it is dropped, the replay is under way
    /// until [`Recovery::end_replay`]. Clients replay one request at a time, so what is still queued of this
    /// one is dropped: with more in the queue it would count for several clients, and other clients would
    /// lose their turn.
    pub(crate) fn admit_request_replay(&self, export: ObdHandle, transno: Transno) -> Admission {
        let mut window = self.window.lock();
        let claimed = window.request_replays.get(&transno);
        if window.is_stopped || claimed.is_some_and(|(owner, _)| *owner != export) {
            return Admission::Dropped;
        }
        window.count_replay(export);
        if !window.is_running() || transno < window.next {
            return Admission::Now;
        }
        let (sender, receiver) = oneshot::channel();
        window.unqueue(export);
        window.request_replays.insert(transno, (export, sender));
        window.request_replay_of.insert(export, transno);
        window.past_durable.insert(export);
        // No stage can end by a request that waits.
        let EndDecided(_) = window.advance();
        Admission::Wait(receiver)
    }

    /// A client replays a lock, which is under way, unless it is dropped, until [`Recovery::end_replay`].
    pub(crate) fn admit_lock_replay(&self, export: ObdHandle) -> Admission {
        let mut window = self.window.lock();
        if window.is_stopped {
            return Admission::Dropped;
        }
        window.count_replay(export);
        if !window.is_running() || window.replays_locks() {
            return Admission::Now;
        }
        let (sender, receiver) = oneshot::channel();
        window.lock_replays.push((export, sender));
        Admission::Wait(receiver)
    }

    /// A client has replayed everything and waits for the other clients: its final ping (Lustre's word), which is answered
    /// when recovery is over.
    pub(crate) fn admit_final_ping(&self) -> Admission {
        let mut window = self.window.lock();
        if window.is_stopped {
            return Admission::Dropped;
        }
        if !window.is_running() {
            return Admission::Now;
        }
        let (sender, receiver) = oneshot::channel();
        window.final_pings.push(sender);
        Admission::Wait(receiver)
    }

    /// A replay of a client is no longer under way: executed after it was `admitted`, or lost before that.
    /// `transno` is that of a request.
    pub(crate) fn end_replay(
        &self,
        now: Instant,
        export: ObdHandle,
        admitted: Option<Admitted>,
        transno: Option<Transno>,
    ) -> EndDecided {
        let mut window = self.window.lock();
        window.uncount_replay(export);
        if let (Some(Admitted::InOrder), Some(transno)) = (admitted, transno) {
            window.is_executing_replay = false;
            window.replayed += 1;
            window.next = window.next.max(after(transno));
        }
        if admitted.is_some() {
            window.prolong(now, &self.timeouts());
        }
        window.advance()
    }

    /// When to call [`Recovery::expire`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let window = self.window.lock();
        window.deadline.filter(|_| window.is_running())
    }

    /// The deadline has passed. Returns which clients are given up: those that hold up the stage
    /// that recovery is in. The clients that remain have some time more.
    pub(crate) fn expire(&self, now: Instant) -> Option<Expired> {
        let mut window = self.window.lock();
        let deadline = window.deadline.filter(|deadline| *deadline <= now)?;
        if window.is_stopped || !window.is_running() {
            return None;
        }
        let started = window.counted_from()?;
        let with_replays = || window.under_way.keys().copied().collect();
        let timeouts = self.timeouts();
        if window.awaits_mdts {
            // It is not the clients that hold it up.
            window.deadline = Some(now + timeouts.base);
            return None;
        }
        let hard = started + timeouts.recovery_hard;
        let expired = if hard <= now {
            Expired::Unfinished
        } else if !window.is_complete() {
            Expired::Absent
        } else if !window.replays_locks() {
            Expired::Requests(with_replays())
        } else {
            Expired::Locks(with_replays())
        };
        window.absent_are_given_up = true;
        window.evictions_under_way += 1;
        let next = deadline.max(now) + timeouts.base;
        window.deadline = Some(if hard > now { next.min(hard) } else { next });
        Some(expired)
    }

    /// No client is waited for any more, and no MDT; returns whether there was anything to wait for.
    pub(crate) fn abort(&self, now: Instant) -> bool {
        self.give_up_mdts();
        let mut window = self.window.lock();
        window.absent_are_given_up = true;
        window.started = window.started.or(Some((now, Timestamp::default())));
        window.evictions_under_way += usize::from(window.is_running());
        window.is_running()
    }

    /// After [`Recovery::expire`] or [`Recovery::abort`], and the evictions that it led to.
    pub(crate) fn resume(&self) -> EndDecided {
        let mut window = self.window.lock();
        decrement(&mut window.evictions_under_way);
        window.advance()
    }

    /// The target stops: the window decides and admits nothing more. What waits in it is dropped without an answer, and
    /// its clients send it again to the next start.
    pub(crate) fn stop(&self) {
        self.give_up_mdts();
        let mut window = self.window.lock();
        window.is_stopped = true;
        window.request_replay_of.clear();
        let requests = std::mem::take(&mut window.request_replays);
        let locks = std::mem::take(&mut window.lock_replays);
        let pings = std::mem::take(&mut window.final_pings);
        let behind_revocation = std::mem::take(&mut window.behind_revocation);
        // Those who wait are woken without the window's lock.
        drop(window);
        drop((requests, locks, pings, behind_revocation));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.window.lock().is_stopped
    }

    /// Whether what clients have seen may be lost, so that what they keep is revoked after the end.
    pub(crate) fn is_lossy(&self) -> bool {
        self.window.lock().is_lossy
    }

    pub(crate) fn is_revoking(&self) -> bool {
        self.revoking.load(Ordering::Acquire)
    }

    /// A request comes that would show names while what clients keep of them is being revoked.
    pub(crate) fn admit_during_revocation(&self) -> Admission {
        let mut window = self.window.lock();
        if !self.is_revoking() {
            return Admission::Now;
        }
        if window.is_stopped {
            return Admission::Dropped;
        }
        let (sender, receiver) = oneshot::channel();
        window.behind_revocation.push(sender);
        Admission::Wait(receiver)
    }

    /// All locks over what may be lost are revoked: requests that waited for that are admitted.
    pub(crate) fn end_revocation(&self) {
        let mut window = self.window.lock();
        self.revoking.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut window.behind_revocation);
        drop(window);
        for sender in waiting {
            // A client that has gone meanwhile is not waiting.
            let _ = sender.send(Admitted::Unordered);
        }
    }

    /// The end was acted upon: waiting clients are answered. If it is lossy, the revocation of what
    /// clients keep begins, until [`Recovery::end_revocation`].
    pub(crate) fn finish(&self, now: Instant) {
        let mut window = self.window.lock();
        window.status = RecoveryStatus::Complete;
        self.revoking.store(window.is_lossy, Ordering::Release);
        self.running.store(false, Ordering::Release);
        window.ended = Some(now);
        let waiting: Vec<_> = window.final_pings.drain(..).collect();
        drop(window);
        for sender in waiting {
            // A client that has gone meanwhile is not waiting.
            let _ = sender.send(Admitted::Unordered);
        }
    }

    pub(crate) fn status(&self) -> RecoveryStatus {
        self.window.lock().shown_status()
    }

    pub(crate) fn view(&self, now: Instant) -> RecoveryView {
        let window = self.window.lock();
        let end = window.ended.unwrap_or(now);
        RecoveryView {
            status: window.shown_status(),
            started: window.started.map(|(_, wall)| wall),
            duration: window.started.map_or(Duration::ZERO, |(start, _)| end.since(start)),
            remaining: window.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now)),
            known: window.known,
            connected: window.connected,
            replaying: window.replaying,
            replaying_locks: window.replaying_locks,
            evicted: window.gone,
            queued: window.request_replays.len(),
            replayed: window.replayed,
            next: window.next,
            mdts: window.awaited_mdts.iter().copied().collect(),
            went_back: self.went_back.load(Ordering::Relaxed),
            lost_before: self.lost_before,
        }
    }
}
