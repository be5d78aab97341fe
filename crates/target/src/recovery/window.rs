//! The state of the recovery window: which clients replay what, and what may be executed next. Exports have the
//! handles that clients know them by.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use sheen_types::{HashMap, Instant, MdtIndex, ObdHandle, Timestamp, Transno};
use tokio::sync::oneshot;

use super::{Admitted, EndDecided, RecoveryStatus};
use crate::config::Timeouts;

/// One recovery, from the start of the target to its end and beyond.
#[derive(Default)]
pub(super) struct Window {
    pub(super) status: RecoveryStatus,
    /// Clients of before the restart. Each of them is absent, or counted in one of the next two.
    pub(super) known: usize,
    /// Those that are back.
    pub(super) connected: usize,
    /// Those that are waited for no more: they have disconnected, or were evicted.
    pub(super) gone: usize,
    /// Of the connected ones those that may still replay requests.
    pub(super) replaying: usize,
    /// Of the connected ones those that may still replay requests or locks.
    pub(super) replaying_locks: usize,
    /// Clients that did not come are not waited for any more: their time is over, or an operator has ended it.
    pub(super) absent_are_given_up: bool,
    /// [`EndDecided`] was returned; the target acts upon it.
    pub(super) end_is_decided: bool,
    /// Other MDTs are waited for: nothing is admitted before.
    pub(super) awaits_mdts: bool,
    /// The MDTs that have not answered yet what was lost.
    pub(super) awaited_mdts: BTreeSet<MdtIndex>,
    /// When they had answered, if that was after the first client connected: the time of clients begins then.
    pub(super) mdts_done_at: Option<Instant>,
    /// How often clients are being given up, one after the other: it does not end in between, or it would count
    /// only the first of them.
    pub(super) evictions_under_way: usize,
    /// The transaction whose turn it is: all before it are durable, replayed, or will not be replayed.
    pub(super) next: Transno,
    /// Whether a replayed request is being executed.
    pub(super) is_executing_replay: bool,
    /// Replayed requests that wait for their turn, with their clients' exports.
    pub(super) request_replays: BTreeMap<Transno, (ObdHandle, oneshot::Sender<Admitted>)>,
    /// Which of them is each client's: it has one at a time.
    pub(super) request_replay_of: HashMap<ObdHandle, Transno>,
    /// The connected clients that have come, in the order of their replays, to what is not durable, and may still replay
    /// requests: all that they had open in durable transactions is open again.
    pub(super) past_durable: BTreeSet<ObdHandle>,
    /// Lock replays, until all requests are replayed.
    pub(super) lock_replays: Vec<(ObdHandle, oneshot::Sender<Admitted>)>,
    /// How many replays of each client wait or are executed (Lustre's `exp_replay_count`).
    pub(super) under_way: BTreeMap<ObdHandle, usize>,
    /// The clients' final pings, until recovery is over.
    pub(super) final_pings: Vec<oneshot::Sender<Admitted>>,
    /// A client was lost before it had replayed its requests.
    pub(super) is_lossy: bool,
    /// Requests that wait until what clients keep is revoked.
    pub(super) behind_revocation: Vec<oneshot::Sender<Admitted>>,
    /// Requests that were replayed.
    pub(super) replayed: u64,
    /// When the first client connected: the clock runs from then on.
    pub(super) started: Option<(Instant, Timestamp)>,
    /// When clients that hold up the current stage are evicted.
    pub(super) deadline: Option<Instant>,
    pub(super) ended: Option<Instant>,
    /// The target stops: nothing more is admitted or decided.
    pub(super) is_stopped: bool,
}

/// The number behind `transno`.
pub(super) fn after(transno: Transno) -> Transno {
    Transno(transno.0.saturating_add(1))
}

/// One less, where no order of what clients say and of evictions may make it less than none.
pub(super) fn decrement(count: &mut usize) {
    *count = count.saturating_sub(1);
}

impl Window {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.status, RecoveryStatus::WaitingForClients | RecoveryStatus::Recovering)
    }

    /// Drops what waits of a client's.
    pub(super) fn unqueue(&mut self, export: ObdHandle) {
        if let Some(transno) = self.request_replay_of.remove(&export) {
            self.request_replays.remove(&transno);
        }
    }

    pub(super) fn count_replay(&mut self, export: ObdHandle) {
        *self.under_way.entry(export).or_default() += 1;
    }

    pub(super) fn uncount_replay(&mut self, export: ObdHandle) {
        if let Entry::Occupied(mut count) = self.under_way.entry(export) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// As operators see it.
    pub(super) fn shown_status(&self) -> RecoveryStatus {
        match self.awaited_mdts.is_empty() {
            true => self.status,
            false => RecoveryStatus::WaitingForMdts,
        }
    }

    /// Since when the time of clients runs.
    pub(super) fn counted_from(&self) -> Option<Instant> {
        self.mdts_done_at.or(self.started.map(|(started, _)| started))
    }

    /// Whether all that will come are there.
    pub(super) fn is_complete(&self) -> bool {
        !self.awaits_mdts && self.has_all_clients()
    }

    fn has_all_clients(&self) -> bool {
        self.absent_are_given_up || self.connected + self.gone >= self.known
    }

    pub(super) fn replays_locks(&self) -> bool {
        self.is_complete()
            && self.replaying == 0
            && self.request_replays.is_empty()
            && !self.is_executing_replay
    }

    /// Progress: a client that still replays gets at least the base timeout more, within the hard
    /// limit.
    pub(super) fn prolong(&mut self, now: Instant, timeouts: &Timeouts) {
        if let (Some(deadline), Some(started)) = (self.deadline, self.counted_from()) {
            let hard = started + timeouts.recovery_hard;
            self.deadline = Some(deadline.max((now + timeouts.base).min(hard)));
        }
    }

    /// Whether no client can still open what it had opened in a durable transaction. A replayed unlink before that would
    /// find a file open nowhere, and remove it.
    fn is_all_open_again(&self) -> bool {
        self.past_durable.len() >= self.replaying
    }

    /// A client replays no more requests.
    pub(super) fn end_requests(&mut self, export: ObdHandle) {
        decrement(&mut self.replaying);
        self.past_durable.remove(&export);
        self.unqueue(export);
    }

    /// Admits the requests whose turn has come.
    pub(super) fn advance(&mut self) -> EndDecided {
        if self.is_stopped || !self.is_running() || !self.is_complete() || self.is_executing_replay
        {
            return EndDecided(false);
        }
        while let Some((first, _)) = self.request_replays.first_key_value() {
            if !self.is_all_open_again() {
                return EndDecided(false);
            }
            // A gap is a transaction whose client did not come, or whose reply was never lost: if
            // each client that still replays waits with one request, no replay can fill it.
            let gap_is_final = self.request_replays.len() >= self.replaying;
            if *first != self.next && !gap_is_final {
                return EndDecided(false);
            }
            let (transno, (export, sender)) =
                self.request_replays.pop_first().expect("just looked at");
            self.request_replay_of.remove(&export);
            self.next = transno;
            if sender.send(Admitted::InOrder).is_ok() {
                self.is_executing_replay = true;
                return EndDecided(false);
            }
        }
        if self.replaying > 0 {
            return EndDecided(false);
        }
        for (_, sender) in self.lock_replays.drain(..) {
            // A client that has gone meanwhile is not waiting.
            let _ = sender.send(Admitted::Unordered);
        }
        let ended =
            self.replaying_locks == 0 && !self.end_is_decided && self.evictions_under_way == 0;
        self.end_is_decided |= ended;
        EndDecided(ended)
    }
}
