//! Turns at the processors: the work of one peer does not keep another's waiting.
//!
//! What a peer asks for is many tasks: one for each of its connections, one for each of its requests. The
//! runtime takes tasks as they come, so a peer with a thousand of them would have a thousand turns for
//! each one of a peer with a single request. So a poll of such a task is a *turn*, and while several peers
//! are active each has its part of the workers at once: the rest of its polls wait here, in the order in
//! which they came, and the runtime's queue holds a few polls of each peer at most. Beyond its part a peer may
//! have the workers that are idle, but for one, which the next peer that asks finds free.
//!
//! A turn that lasts, because its poll waits for something after all, does not block the peer's next: after
//! [`PATIENCE`] one more may begin. The request that cancels a lock may be behind the one that waits for it.
//!
//! With one worker no poll finds another under way, so a turn is followed by one of another peer if there is one to take:
//! the next poll of the peer that had the last turn *goes round* the runtime's queue once, behind all that is there,
//! and the rest of its polls wait for that one's turn to end.
//!
//! A peer is active if it had a turn in this interval of [`INTERVAL`] or in the one before. A peer that is alone
//! has all workers. What a peer's requests cost outside of polls (blocking threads, the kernel's network)
//! is not counted; what they may have there is limited elsewhere (`rpc::limits`).
//!
//! Costs a turn: a look at the clock, four atomic operations, and no lock; a poll that must wait takes its peer's
//! lock twice. One that goes round is polled once or twice more.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{Clock, Tasks, World};
use sheen_types::Instant;

/// How long a peer counts as active after its last turn, twice that at most. Long beside a request, so that
/// a peer which waits for each answer before it asks again stays active; short beside what a person notices.
const INTERVAL: Duration = Duration::from_millis(16);

/// How long a poll waits at most for a peer's other turns to end. Most take microseconds.
const PATIENCE: Duration = Duration::from_millis(10);

/// The processors of a node, as far as its runtime has them.
pub(super) struct Turns {
    clock: Arc<dyn Clock>,
    tasks: Arc<dyn Tasks>,
    workers: usize,
    running: AtomicUsize,
    /// Peers that were active in the last interval or are in this one, whichever are more.
    active: AtomicUsize,
    /// Whose the last turn was, and how many peers there were.
    last: AtomicU64,
    peers: AtomicU64,
    intervals: Mutex<Intervals>,
}

/// How many peers were active when.
#[derive(Default)]
struct Intervals {
    current: u64,
    active: usize,
    active_before: usize,
}

/// What a peer has of the processors of this node; nothing is limited where the node does not divide them.
#[derive(Clone, Default)]
pub struct PeerTurns(Option<Arc<Share>>);

/// The part of one peer.
struct Share {
    turns: Arc<Turns>,
    number: u64,
    running: AtomicUsize,
    /// The interval of the last turn, plus one; 0 before the first.
    last: AtomicU64,
    waiting: Mutex<Waiting>,
    /// As many as `waiting` has, to be seen without its lock.
    waits: AtomicUsize,
    /// Turns that it may have beside its part, because those that it has last.
    extra: AtomicUsize,
    /// Turns that have ended.
    ended: AtomicUsize,
    /// Whether those that wait are looked after.
    is_watched: AtomicBool,
    /// Whether one of its polls goes round.
    goes_round: AtomicBool,
}

/// Polls that wait for a turn, in the order in which they came.
#[derive(Default)]
struct Waiting {
    next: u64,
    queue: BTreeMap<u64, Waker>,
}

/// A turn; ends when dropped.
struct Turn<'a>(&'a Share);

impl Turns {
    pub(super) fn new(world: &World) -> Arc<Self> {
        Self::of(Arc::clone(&world.clock), Arc::clone(&world.tasks), world.tasks.workers())
    }

    fn of(clock: Arc<dyn Clock>, tasks: Arc<dyn Tasks>, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            clock,
            tasks,
            workers,
            running: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            peers: AtomicU64::new(0),
            intervals: Mutex::default(),
        })
    }

    /// A peer was active in `interval` for the first time.
    fn note(&self, interval: u64) {
        let mut intervals = self.intervals.lock();
        if interval > intervals.current {
            let is_next = interval == intervals.current + 1;
            intervals.active_before = if is_next { intervals.active } else { 0 };
            (intervals.current, intervals.active) = (interval, 0);
        }
        intervals.active += 1;
        self.active.store(intervals.active.max(intervals.active_before), SeqCst);
    }
}

impl fmt::Debug for PeerTurns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(share) = &self.0 else { return write!(out, "PeerTurns(unlimited)") };
        write!(out, "PeerTurns({} running)", share.running.load(SeqCst))
    }
}

impl PartialEq for PeerTurns {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for PeerTurns {}

impl PeerTurns {
    pub(super) fn new(turns: &Arc<Turns>) -> Self {
        Self(Some(Arc::new(Share {
            turns: Arc::clone(turns),
            number: turns.peers.fetch_add(1, SeqCst) + 1,
            running: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            waits: AtomicUsize::new(0),
            extra: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            goes_round: AtomicBool::new(false),
        })))
    }

    /// Completes with `work`, each of whose polls is a turn of this peer. `inline`: the first poll is made
    /// from within a turn of the same peer.
    pub(crate) async fn run<F: Future>(&self, inline: bool, work: F) -> F::Output {
        let Some(share) = &self.0 else { return work.await };
        let mut work = pin!(work);
        let mut place = QueuePosition::new(share);
        let mut inline = inline;
        poll_fn(|context| {
            let _turn = match std::mem::take(&mut inline) {
                true => None,
                false => match place.begin(context.waker()) {
                    Some(turn) => Some(turn),
                    None => return Poll::Pending,
                },
            };
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Share {
    /// How many turns it may have at once, whatever else waits.
    fn part(&self) -> usize {
        let part = self.turns.workers / self.turns.active.load(SeqCst).max(1);
        part.max(1) + self.extra.load(SeqCst)
    }

    /// Looks after those that wait until none does: where no turn ends for [`PATIENCE`], one more may begin.
    fn watch(self: &Arc<Self>) {
        if self.is_watched.swap(true, SeqCst) {
            return;
        }
        let share = Arc::clone(self);
        let watching = async move {
            let clock = Arc::clone(&share.turns.clock);
            loop {
                let ended = share.ended.load(SeqCst);
                clock.sleep_until(clock.now() + PATIENCE).await;
                if share.waits.load(SeqCst) == 0 {
                    share.is_watched.store(false, SeqCst);
                    // One that began to wait just now saw that it was watched.
                    let waits = share.waits.load(SeqCst) > 0;
                    if !waits || share.is_watched.swap(true, SeqCst) {
                        return;
                    }
                } else if share.ended.load(SeqCst) == ended {
                    share.extra.fetch_add(1, SeqCst);
                    share.wake_next();
                }
            }
        };
        self.turns.tasks.spawn("lnet-turns", Box::pin(watching));
    }

    fn begin(&self) -> Option<Turn<'_>> {
        let Instant(now) = self.turns.clock.now();
        let interval = now / INTERVAL.as_nanos() as u64;
        if self.last.swap(interval + 1, SeqCst) != interval + 1 {
            self.turns.note(interval);
        }
        let own = self.running.fetch_add(1, SeqCst);
        let all = self.turns.running.fetch_add(1, SeqCst);
        let is_alone = self.turns.active.load(SeqCst) <= 1;
        let leaves_one = all + 1 < self.turns.workers;
        if is_alone || own < self.part() || leaves_one {
            self.turns.last.store(self.number, SeqCst);
            return Some(Turn(self));
        }
        self.running.fetch_sub(1, SeqCst);
        self.turns.running.fetch_sub(1, SeqCst);
        None
    }

    /// Has the next poll looked at that waits.
    fn wake_next(&self) {
        if self.waits.load(SeqCst) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let more = self.part().saturating_sub(self.running.load(SeqCst)).max(1);
        let woken: Vec<_> = (0..more).map_while(|_| waiting.queue.pop_first()).collect();
        self.waits.store(waiting.queue.len(), SeqCst);
        drop(waiting);
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
        self.0.turns.running.fetch_sub(1, SeqCst);
        self.0.ended.fetch_add(1, SeqCst);
        self.0.extra.store(0, SeqCst);
        self.0.wake_next();
    }
}

/// Where a task's poll waits.
struct QueuePosition<'a> {
    share: &'a Arc<Share>,
    number: Option<u64>,
    /// It is the one of its peer's that goes round.
    goes_round: bool,
}

impl<'a> QueuePosition<'a> {
    fn new(share: &'a Arc<Share>) -> Self {
        Self { share, number: None, goes_round: false }
    }

    /// A turn, or a place among those that wait.
    fn begin(&mut self, waker: &Waker) -> Option<Turn<'a>> {
        if self.is_behind_other_peers() && self.goes_round(waker) {
            return None;
        }
        loop {
            if let Some(turn) = self.share.begin() {
                self.leave();
                self.end_round();
                return Some(turn);
            }
            self.wait(waker);
            // The turns that it waits for may have ended before it was seen to wait.
            if self.share.running.load(SeqCst) >= self.share.part() {
                self.share.watch();
                return None;
            }
        }
    }

    /// Whether other peers may take the one worker first.
    fn is_behind_other_peers(&self) -> bool {
        let turns = &self.share.turns;
        let is_next = || turns.last.load(SeqCst) == self.share.number;
        turns.workers == 1 && !self.goes_round && turns.active.load(SeqCst) > 1 && is_next()
    }

    /// Goes round, or waits for the one of its peer's that does; not if that has just ended.
    fn goes_round(&mut self, waker: &Waker) -> bool {
        if !self.share.goes_round.swap(true, SeqCst) {
            self.goes_round = true;
            self.leave();
            // By a task for itself: to the end of the runtime's queue.
            waker.wake_by_ref();
            return true;
        }
        self.wait(waker);
        self.share.goes_round.load(SeqCst)
    }

    fn end_round(&mut self) {
        if std::mem::take(&mut self.goes_round) {
            self.share.goes_round.store(false, SeqCst);
        }
    }

    /// One that was woken in vain keeps its place.
    fn wait(&mut self, waker: &Waker) {
        let mut waiting = self.share.waiting.lock();
        let number = *self.number.get_or_insert(waiting.next);
        waiting.next = waiting.next.max(number + 1);
        waiting.queue.insert(number, waker.clone());
        self.share.waits.store(waiting.queue.len(), SeqCst);
    }

    /// Whether it has not been woken since it began to wait.
    fn leave(&mut self) -> bool {
        let Some(number) = self.number.take() else { return true };
        let mut waiting = self.share.waiting.lock();
        let has_waited = waiting.queue.remove(&number).is_some();
        self.share.waits.store(waiting.queue.len(), SeqCst);
        has_waited
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        // It was woken, or goes round, and does not go on: the turn is another's.
        let goes_round = self.goes_round;
        self.end_round();
        if !self.leave() || goes_round {
            self.share.wake_next();
        }
    }
}

#[cfg(test)]
mod tests;
