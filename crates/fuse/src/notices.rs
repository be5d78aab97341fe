//! Notices to the kernel, delivered by a few threads.
//!
//! To drop what it keeps the kernel takes locks that calls hold which are with us: a directory's for a name,
//! a page's for bytes. A thread that delivers such a notice blocks until they are released.
//!
//! What always holds: notices of one subject (the names of one directory, the attributes or a range of pages
//! of one inode) have at most one thread, and all of a kind at most [`THREADS_MAX`]. Ranges of one inode do
//! not wait for each other: one may block until the kernel has written its pages back, which needs the lock
//! that another client holds until it has ours on another range. No thread begins with the names of a
//! directory that a call is known to hold ([`BusyDirectories`]); when that call ends, one does, and takes its turn at
//! the kernel's lock. A call that comes before it there does not wait for it.
//!
//! Where the system gives no thread, subjects keep their place, and are tried again each [`AGAIN`] and with
//! each further notice.
//!
//! Cost of a notice: one short lock and a wake-up; the same notice again before its turn costs no second
//! delivery.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sheen_client::posix::NameInvalidation;
use sheen_types::{HashMap, Name};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::blocked::{Sleep, Status};
use crate::busy::BusyDirectories;
use crate::threads::Threads;

/// Threads for each kind of notice: names, attributes, pages. Further subjects wait for their turn only while
/// as many notices are blocked in the kernel.
const THREADS_MAX: [usize; LANES] = [16, 16, 128];

/// How long a thread waits for more to do before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// How soon a thread is asked for again that the system did not give.
const AGAIN: Duration = Duration::from_millis(50);

/// Notices of a subject that are delivered before another subject has its turn.
const ROUND: usize = 64;

/// What the kernel must not go on using.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// This name in this directory.
    Name(u64, Name),
    /// Attributes of this inode.
    Attributes(u64),
    /// Pages of this inode, from this offset on so many bytes, 0 for all.
    Pages(u64, i64, i64),
}

/// Notices that are delivered one after the other: all of names in a directory, or those of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// Names in this directory.
    Names(u64),
    /// Attributes of this inode.
    Attributes(u64),
    /// These pages of this inode.
    Pages(u64, i64, i64),
}

/// Kinds of subjects, each with threads of its own.
const LANES: usize = 3;

/// What operators know them as.
const KINDS: [&str; LANES] = ["names", "attributes", "pages"];

impl Subject {
    fn lane(self) -> usize {
        match self {
            Self::Names(_) => 0,
            Self::Attributes(_) => 1,
            Self::Pages(..) => 2,
        }
    }
}

/// Notifies the kernel. The call may block there.
pub(crate) trait Deliver: Send + Sync + 'static {
    /// One notice; `by` is of names alone.
    fn deliver(&self, notice: &Notice, by: NameInvalidation);
}

/// Dropped when the last notice that shares it is delivered; the receiver completes then.
type Delivered = Arc<oneshot::Sender<()>>;

/// A notice that waits for its turn.
#[derive(Default)]
struct Waiting {
    by: NameInvalidation,
    delivered: Vec<Delivered>,
}

/// The notices of one subject.
#[derive(Default)]
struct Queue {
    order: VecDeque<Notice>,
    waiting: HashMap<Notice, Waiting>,
    /// A thread has it or will take it.
    is_running: bool,
    /// The thread that is in the kernel for it.
    thread: Option<Arc<Status>>,
    /// Since when the next of them waits for its thread, or for the kernel.
    since: Option<Instant>,
}

impl Queue {
    fn add(&mut self, notice: Notice, by: NameInvalidation, delivered: &Delivered) {
        if !self.waiting.contains_key(&notice) {
            self.order.push_back(notice.clone());
        }
        let waiting = self.waiting.entry(notice).or_default();
        waiting.by = waiting.by.max(by);
        waiting.delivered.push(Arc::clone(delivered));
    }

    fn take_round(&mut self) -> Vec<(Notice, Waiting)> {
        let count = self.order.len().min(ROUND);
        let first = self.order.drain(..count);
        first.filter_map(|notice| self.waiting.remove(&notice).map(|it| (notice, it))).collect()
    }
}

/// The threads of one kind of subject, and what waits for them.
#[derive(Default)]
struct Lane {
    ready: VecDeque<Subject>,
    threads: usize,
    idle: usize,
    /// The system gave no thread, and is asked again soon.
    asks_again: bool,
}

impl Lane {
    /// Whether what is ready needs a thread more.
    fn needs_thread(&self, most: usize) -> bool {
        self.ready.len() > self.idle && self.threads < most
    }
}

#[derive(Default)]
struct Queues {
    queues: HashMap<Subject, Queue>,
    lanes: [Lane; LANES],
}

/// The notices of one mount.
pub(crate) struct Notices<D> {
    state: Mutex<Queues>,
    more: [Condvar; LANES],
    busy: Arc<BusyDirectories>,
    threads: Threads,
    kernel: D,
}

impl<D: Deliver> Notices<D> {
    pub(crate) fn new(kernel: D, busy: Arc<BusyDirectories>, threads: Threads) -> Arc<Self> {
        let (state, more) = (Mutex::default(), Default::default());
        let notices = Arc::new(Self { state, more, busy, threads, kernel });
        let weak = Arc::downgrade(&notices);
        notices.busy.on_free(move |directory| {
            if let Some(notices) = weak.upgrade() {
                notices.resume(Subject::Names(directory));
            }
        });
        notices
    }

    /// The kernel.
    pub(crate) fn kernel(&self) -> &D {
        &self.kernel
    }

    /// Where its threads come from.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Notifies the kernel of names in a directory, each with how it is invalidated. The
    /// returned future ends when all are delivered.
    pub(crate) fn names(
        self: &Arc<Self>,
        directory: u64,
        names: impl IntoIterator<Item = (Name, NameInvalidation)>,
    ) -> oneshot::Receiver<()> {
        let notices = names.into_iter();
        let notices = notices.map(|(name, by)| (Notice::Name(directory, name), by));
        self.notify(Subject::Names(directory), notices)
    }

    /// Notifies the kernel of an inode's attributes, as [`Self::names`] does of names.
    pub(crate) fn attributes(self: &Arc<Self>, node: u64) -> oneshot::Receiver<()> {
        self.notify(Subject::Attributes(node), [(Notice::Attributes(node), NameInvalidation::Drop)])
    }

    /// Notifies the kernel of an inode's pages, from `offset` on so many bytes, 0 for all.
    pub(crate) fn pages(
        self: &Arc<Self>,
        node: u64,
        offset: i64,
        length: i64,
    ) -> oneshot::Receiver<()> {
        let notice = Notice::Pages(node, offset, length);
        self.notify(Subject::Pages(node, offset, length), [(notice, NameInvalidation::Drop)])
    }

    fn notify(
        self: &Arc<Self>,
        subject: Subject,
        notices: impl IntoIterator<Item = (Notice, NameInvalidation)>,
    ) -> oneshot::Receiver<()> {
        let (delivered, delivery) = oneshot::channel();
        let delivered = Arc::new(delivered);
        let mut state = self.state.lock();
        let queue = state.queues.entry(subject).or_default();
        for (notice, by) in notices {
            queue.add(notice, by, &delivered);
        }
        if !queue.is_running && !self.defers(subject) {
            self.start(&mut state, subject);
        } else if state.lanes[subject.lane()].asks_again {
            self.grow(&mut state, subject.lane());
        }
        delivery
    }

    /// In which sleep the thread is that has or will have notices of the subject; `None` if it is on its way.
    pub(crate) fn sleep(&self, subject: Subject) -> Option<Sleep> {
        let state = self.state.lock();
        if let Some(thread) = &state.queues.get(&subject)?.thread {
            let thread = Arc::clone(thread);
            drop(state);
            return thread.sleep();
        }
        let lane = &state.lanes[subject.lane()];
        let is_full = lane.threads == THREADS_MAX[subject.lane()] && lane.idle == 0;
        (is_full || lane.asks_again).then_some(Sleep::NoThread)
    }

    /// The kind of notices of which one has waited longest for a thread or for the kernel, and how long. Those that
    /// wait for a call to end do not count.
    pub(crate) fn oldest(&self) -> Option<(&'static str, Duration)> {
        let state = self.state.lock();
        let running = state.queues.iter().filter(|(_, queue)| queue.is_running);
        let since = running.filter_map(|(subject, queue)| Some((queue.since?, subject.lane())));
        since.min().map(|(since, lane)| (KINDS[lane], since.elapsed()))
    }

    /// Whether the subject has to wait for a call to end, which then calls [`Notices::resume`].
    fn defers(&self, subject: Subject) -> bool {
        match subject {
            Subject::Names(directory) => self.busy.defers(directory),
            Subject::Attributes(_) | Subject::Pages(..) => false,
        }
    }

    /// The last call that held the directory ends.
    fn resume(self: &Arc<Self>, subject: Subject) {
        let mut state = self.state.lock();
        if state.queues.get(&subject).is_some_and(|queue| !queue.is_running) {
            self.start(&mut state, subject);
        }
    }

    fn start(self: &Arc<Self>, state: &mut MutexGuard<'_, Queues>, subject: Subject) {
        let Some(queue) = state.queues.get_mut(&subject) else { return };
        queue.is_running = true;
        queue.since = Some(Instant::now());
        let lane = &mut state.lanes[subject.lane()];
        lane.ready.push_back(subject);
        if lane.ready.len() <= lane.idle {
            self.more[subject.lane()].notify_one();
            return;
        }
        self.grow(state, subject.lane());
    }

    /// Has a thread more for what is ready, if that needs one. There may be none to be had: what is ready
    /// keeps its place then, and this is tried again soon.
    fn grow(self: &Arc<Self>, state: &mut MutexGuard<'_, Queues>, number: usize) {
        let lane = &mut state.lanes[number];
        if !lane.needs_thread(THREADS_MAX[number]) {
            return;
        }
        let notices = Arc::clone(self);
        match self.threads.start("fuse-notices", Box::new(move || notices.work(number))) {
            Ok(()) => lane.threads += 1,
            Err(_) if lane.asks_again => {}
            Err(error) => {
                tracing::warn!(%error, "no thread to notify the kernel: asked for again soon");
                lane.asks_again = true;
                let notices = Arc::downgrade(self);
                self.threads.later(AGAIN, move || {
                    if let Some(notices) = notices.upgrade() {
                        let mut state = notices.state.lock();
                        state.lanes[number].asks_again = false;
                        notices.grow(&mut state, number);
                    }
                });
            }
        }
    }

    fn work(self: Arc<Self>, number: usize) {
        let status = Status::of_this_thread();
        let mut state = self.state.lock();
        loop {
            if let Some(subject) = state.lanes[number].ready.pop_front() {
                self.serve(&mut state, subject, &status);
                continue;
            }
            state.lanes[number].idle += 1;
            let waited = self.more[number].wait_for(&mut state, IDLE);
            let lane = &mut state.lanes[number];
            lane.idle -= 1;
            if waited.timed_out() && lane.ready.is_empty() {
                lane.threads -= 1;
                return;
            }
        }
    }

    fn serve(&self, state: &mut MutexGuard<'_, Queues>, subject: Subject, thread: &Arc<Status>) {
        let Some(queue) = state.queues.get_mut(&subject) else { return };
        let round = queue.take_round();
        queue.thread = Some(Arc::clone(thread));
        MutexGuard::unlocked(state, || {
            for (notice, waiting) in round {
                self.kernel.deliver(&notice, waiting.by);
            }
        });
        let Some(queue) = state.queues.get_mut(&subject) else { return };
        queue.thread = None;
        queue.since = Some(Instant::now());
        if queue.order.is_empty() {
            state.queues.remove(&subject);
        } else if self.defers(subject) {
            queue.is_running = false;
        } else {
            state.lanes[subject.lane()].ready.push_back(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::threads::runtime;

    /// A kernel that reports each notice, and then blocks until it is released.
    struct Kernel {
        sender: Mutex<mpsc::Sender<(Notice, NameInvalidation)>>,
        goes_on: Mutex<mpsc::Receiver<()>>,
        stands: bool,
    }

    impl Deliver for Kernel {
        fn deliver(&self, notice: &Notice, by: NameInvalidation) {
            _ = self.sender.lock().send((notice.clone(), by));
            if self.stands {
                _ = self.goes_on.lock().recv();
            }
        }
    }

    type Received = mpsc::Receiver<(Notice, NameInvalidation)>;

    fn bench(
        stands: bool,
    ) -> (Arc<Notices<Kernel>>, Arc<BusyDirectories>, Received, mpsc::Sender<()>) {
        bench_of(stands, Threads::new(runtime()))
    }

    fn bench_of(
        stands: bool,
        threads: Threads,
    ) -> (Arc<Notices<Kernel>>, Arc<BusyDirectories>, Received, mpsc::Sender<()>) {
        let (sender, received) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let busy = Arc::new(BusyDirectories::default());
        let kernel = Kernel { sender: Mutex::new(sender), goes_on: Mutex::new(goes_on), stands };
        (Notices::new(kernel, Arc::clone(&busy), threads), busy, received, go_on)
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    const SOON: Duration = Duration::from_secs(5);
    const WHILE: Duration = Duration::from_millis(50);

    #[test]
    fn names_of_a_directory_that_a_call_holds_take_no_thread_until_it_ends() {
        let (notices, busy, received, _go_on) = bench(false);
        let call = BusyDirectories::enter(&busy, [1].into_iter());
        let delivered = notices.names(1, [(name("a"), NameInvalidation::Expire)]);
        assert!(received.recv_timeout(WHILE).is_err());
        assert_eq!(notices.state.lock().lanes[0].threads, 0);
        // Another directory is not delayed.
        let other = notices.names(2, [(name("b"), NameInvalidation::Drop)]);
        assert_eq!(
            received.recv_timeout(SOON),
            Ok((Notice::Name(2, name("b")), NameInvalidation::Drop))
        );
        assert!(other.blocking_recv().is_err(), "there is nothing to hear but its end");
        drop(call);
        assert_eq!(
            received.recv_timeout(SOON),
            Ok((Notice::Name(1, name("a")), NameInvalidation::Expire))
        );
        assert!(delivered.blocking_recv().is_err());
    }

    #[test]
    fn a_directory_in_which_the_kernel_stands_still_has_one_thread_however_many_names_wait() {
        let (notices, _busy, received, go_on) = bench(true);
        for number in 0..2000 {
            drop(notices.names(1, [(name(&format!("n{number}")), NameInvalidation::Expire)]));
            drop(notices.names(1, [(name("the same"), NameInvalidation::Expire)]));
        }
        assert!(received.recv_timeout(SOON).is_ok());
        assert!(received.recv_timeout(WHILE).is_err());
        assert_eq!(notices.state.lock().lanes[0].threads, 1);
        drop(go_on);
        let delivered = notices.names(1, [(name("last"), NameInvalidation::Drop)]);
        assert!(delivered.blocking_recv().is_err());
        let same =
            received.try_iter().filter(|(it, _)| *it == Notice::Name(1, name("the same"))).count();
        assert!(same <= 2, "{same}: once, and once more at most while it was under way");
    }

    #[test]
    fn a_notice_that_is_blocked_is_reported_with_its_kind_and_for_how_long() {
        let (notices, busy, received, go_on) = bench(true);
        assert_eq!(notices.oldest(), None);
        let call = BusyDirectories::enter(&busy, [1].into_iter());
        drop(notices.names(1, [(name("a"), NameInvalidation::Expire)]));
        assert_eq!(notices.oldest(), None, "it waits for a call");
        drop(notices.pages(7, 0, 1));
        assert!(received.recv_timeout(SOON).is_ok() && received.recv_timeout(WHILE).is_err());
        let (kind, time) = notices.oldest().expect("one stands still");
        assert!(kind == "pages" && time >= WHILE && time < SOON, "{kind} {time:?}");
        drop((call, go_on));
    }

    #[test]
    fn threads_have_a_limit_and_kinds_do_not_hold_each_other_up() {
        let (notices, _busy, received, go_on) = bench(true);
        for number in 0..200 {
            drop(notices.pages(7, number, 1));
        }
        for _ in 0..THREADS_MAX[2] {
            assert!(received.recv_timeout(SOON).is_ok());
        }
        assert!(received.recv_timeout(WHILE).is_err());
        assert_eq!(notices.state.lock().lanes[2].threads, THREADS_MAX[2]);
        drop(notices.attributes(1));
        let next = received.recv_timeout(SOON).map(|(subject, ..)| subject);
        assert_eq!(next, Ok(Notice::Attributes(1)));
        drop(go_on);
    }

    #[test]
    fn a_thread_that_the_system_does_not_give_is_asked_for_again() {
        let refuses = Arc::new(AtomicBool::new(true));
        let asks = Arc::clone(&refuses);
        let threads = Threads::refused(runtime(), move || asks.load(Ordering::Relaxed));
        let (notices, _busy, received, _go_on) = bench_of(false, threads);
        let delivered = notices.attributes(1);
        assert!(received.recv_timeout(WHILE).is_err());
        assert_eq!(notices.sleep(Subject::Attributes(1)), Some(Sleep::NoThread));
        refuses.store(false, Ordering::Relaxed);
        // Without another notice.
        assert_eq!(received.recv_timeout(SOON).map(|(it, _)| it), Ok(Notice::Attributes(1)));
        assert!(delivered.blocking_recv().is_err());
        assert_eq!(notices.state.lock().lanes[1].threads, 1);
    }
}
