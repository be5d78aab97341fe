//! The order of transactions, and how much of it is durable.
//!
//! The store runs a commit hook on a thread of its own after each commit. The hook must never wait
//! for an `apply` in progress, so it only notes the sequence; the thread that holds the order's
//! lock, or the hook itself if no thread does, moves `committed` forward.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sheen_io::Watched;
use sheen_store::{Sequence, Store, StoreError, Transaction};
use sheen_types::{Errno, Instant, Transno};

use crate::epoch::{Epoch, TRANSNO_MAX};

pub(crate) struct History {
    order: Mutex<Order>,
    /// A copy of the order's last number, to be read without its lock.
    last: AtomicU64,
    durable: AtomicU64,
    progress: Arc<Watched<CommitProgress>>,
    /// What was durable when the target started.
    start: Transno,
    /// The epoch of this start, used once recovery is over.
    epoch: Epoch,
    /// What the store said when nothing more became durable, and when.
    failure: OnceLock<(Instant, String)>,
}

/// How far durability has come.
#[derive(Clone, Copy)]
struct CommitProgress {
    committed: Transno,
    /// The newest sequence that was found durable of those that were waited for.
    sequence: Sequence,
    /// Why it comes no further.
    failed: Option<Errno>,
}

/// Which number a transaction gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransnoSource {
    /// One of its own.
    Next,
    /// That of the transaction before it. In the recovery window, when the next numbers belong to
    /// replays still to come: what is no replay then has no number of its own, and counts as durable
    /// with its predecessor at the earliest. That is what the target changes by itself (it closes the
    /// files of clients that it evicts), and what a client sends then that is no replay. Our clients and
    /// Lustre's send no change until they are FULL, which is after the window: so no two requests that a
    /// client keeps for replay, by number, have the same one.
    Same,
    /// The one it had before the restart.
    Replayed(Transno),
}

struct Order {
    last: Transno,
    /// Applied and not known to be durable, in order.
    pending: VecDeque<(Sequence, Transno)>,
}

impl Order {
    /// The newest transaction, if it is not known to be durable.
    fn newest(&self) -> Option<Sequence> {
        self.pending.back().map(|(sequence, _)| *sequence)
    }
}

impl History {
    /// Goes on behind `last`, which is durable, in an epoch that lies behind it.
    pub(crate) fn new(last: Transno, epoch: Epoch) -> Self {
        Self {
            order: Mutex::new(Order { last, pending: VecDeque::new() }),
            last: AtomicU64::new(last.0),
            durable: AtomicU64::new(0),
            progress: Arc::new(Watched::new(CommitProgress {
                committed: last,
                sequence: Sequence(0),
                failed: None,
            })),
            start: last,
            epoch,
            failure: OnceLock::new(),
        }
    }

    /// The last transaction that was durable when the target started.
    pub(crate) fn start(&self) -> Transno {
        self.start
    }

    /// Whether a client may have been given this number before the target started.
    pub(crate) fn may_have_assigned(&self, transno: Transno) -> bool {
        transno > Transno(0) && transno <= self.epoch.last_before()
    }

    /// Whether a target may have reported this number to a client as durable before this store took
    /// its place.
    pub(crate) fn may_have_reported(&self, transno: Transno) -> bool {
        self.epoch.may_be_earlier_than(transno)
    }

    /// The highest transaction number that is durable, with all before it.
    pub(crate) fn committed(&self) -> Transno {
        self.progress.get().committed
    }

    /// Whether nothing more becomes durable.
    pub(crate) fn has_failed(&self) -> bool {
        self.progress.get().failed.is_some()
    }

    /// The newest transaction.
    pub(crate) fn last(&self) -> Transno {
        Transno(self.last.load(Ordering::Acquire))
    }

    /// Completes when `transno` is durable, or never will be.
    pub(crate) fn wait(
        &self,
        transno: Transno,
    ) -> impl Future<Output = Result<(), Errno>> + Send + use<> {
        let known = move |now: CommitProgress| now.committed >= transno || now.failed.is_some();
        let known = self.progress.until(known);
        async move {
            let now = known.await;
            let failed = now.failed.filter(|_| now.committed < transno);
            failed.map_or(Ok(()), Err)
        }
    }

    /// Completes when all that was applied so far is durable, or never will be. Not when the newest number
    /// is: that of a new incarnation is no transaction's.
    pub(crate) fn wait_for_all(&self) -> impl Future<Output = Result<(), Errno>> + Send + use<> {
        let newest = self.order.lock().newest();
        self.wait_for_sequence(newest)
    }

    /// The store's highest sequence number that is durable, with all before it.
    pub(crate) fn durable_sequence(&self) -> Sequence {
        Sequence(self.durable.load(Ordering::Acquire))
    }

    /// Completes when the transaction, if there is one, is durable, or never will be.
    pub(crate) fn wait_for_sequence(
        &self,
        newest: Option<Sequence>,
    ) -> impl Future<Output = Result<(), Errno>> + Send + use<> {
        let is_durable =
            move |now: CommitProgress| newest.is_none_or(|newest| now.sequence >= newest);
        let known = self.progress.until(move |now| is_durable(now) || now.failed.is_some());
        async move {
            let now = known.await;
            let failed = now.failed.filter(|_| !is_durable(now));
            failed.map_or(Ok(()), Err)
        }
    }

    /// From here on numbers are of this start's epoch.
    pub(crate) fn begin_epoch(&self) {
        let mut order = self.order.lock();
        order.last = order.last.max(self.epoch.start());
        self.last.store(order.last.0, Ordering::Release);
        drop(order);
        self.advance();
    }

    /// Applies what `build` makes, unless that refuses, and then calls `applied` with what `build` made beside it. Both
    /// run under the lock of the order.
    ///
    /// # Errors
    /// Those of `build` and of [`Store::apply`], and [`StoreError::Io`] when the numbers have come to their end.
    pub(crate) fn apply<T, E: From<StoreError>>(
        &self,
        store: &dyn Store,
        source: TransnoSource,
        build: impl FnOnce(Transno) -> Result<(Transaction, T), E>,
        applied: impl FnOnce(Sequence, T),
    ) -> Result<Transno, E> {
        let mut order = self.order.lock();
        let transno = match source {
            TransnoSource::Next => next_after(order.last)?,
            TransnoSource::Same => order.last,
            TransnoSource::Replayed(transno) => transno,
        };
        let (transaction, beside) = build(transno)?;
        let sequence = store.apply(transaction)?;
        order.last = order.last.max(transno);
        order.pending.push_back((sequence, transno));
        let oldest = order.pending.front().map_or(sequence, |(at, _)| *at);
        self.last.store(order.last.0, Ordering::Release);
        applied(sequence, beside);
        drop(order);
        if self.durable.load(Ordering::Acquire) >= oldest.0 {
            self.advance();
        }
        Ok(transno)
    }

    /// Does something while nothing is applied. It is given the newest transaction, if that is not durable.
    pub(crate) fn in_order<T>(&self, act: impl FnOnce(Option<Sequence>) -> T) -> T {
        let order = self.order.lock();
        act(order.newest())
    }

    /// The store says that everything up to `sequence` is durable.
    pub(crate) fn on_commit(&self, sequence: Sequence) {
        self.durable.fetch_max(sequence.0, Ordering::AcqRel);
        self.advance();
    }

    /// The store says that nothing will become durable any more.
    pub(crate) fn on_failure(&self, now: Instant, error: &StoreError) {
        self.failure.get_or_init(|| (now, error.to_string()));
        self.progress.change(|progress| progress.failed = Some(error.errno()));
    }

    /// When it said so, and why.
    pub(crate) fn failure(&self) -> Option<&(Instant, String)> {
        self.failure.get()
    }

    /// Moves `committed` to where the store is. Never waits: if the order is locked, its holder
    /// looks at `durable` after it has released it.
    fn advance(&self) {
        loop {
            let durable = self.durable.load(Ordering::Acquire);
            let Some(mut order) = self.order.try_lock() else { return };
            let mut reached = None;
            while let Some(oldest) = order.pending.pop_front_if(|(at, _)| at.0 <= durable) {
                reached = Some(oldest);
            }
            drop(order);
            if let Some((sequence, transno)) = reached {
                self.progress.change(|progress| {
                    progress.committed = transno.max(progress.committed);
                    progress.sequence = sequence.max(progress.sequence);
                });
            }
            if self.durable.load(Ordering::Acquire) == durable {
                return;
            }
        }
    }
}

fn next_after(last: Transno) -> Result<Transno, StoreError> {
    if last < TRANSNO_MAX {
        return Ok(Transno(last.0 + 1));
    }
    tracing::error!(%last, "no transaction number is left: nothing more is changed; unmount all clients and \
        start the target again");
    Err(StoreError::Io("no transaction number is left".to_owned()))
}

impl Drop for History {
    /// A task that still waits learns that no answer will come.
    fn drop(&mut self) {
        self.progress.change(|progress| _ = progress.failed.get_or_insert(Errno::ESHUTDOWN));
    }
}
