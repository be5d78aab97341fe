//! Calls that a signal ends while they wait for a server.
//!
//! The kernel waits for our answer to a request that we have read, whatever signals come: a process that is
//! killed goes only when each of its calls is answered. Its `FUSE_INTERRUPT` says that a signal came, not which, and
//! comes once for each call: so one thread looks in `/proc` for the signals of threads that wait.
//!
//! A thread that is not to be seen there, of another PID namespace, has that message alone. Its call ends by it at
//! once where that changes nothing, and else after [`UNSEEN_PATIENCE`]: most signals do not end a process, and a
//! program that goes on must learn the result.
//!
//! What always holds: a call that is entered here is answered within two looks if its thread is being killed,
//! whatever it waits for. What it has begun at a server goes on behind that answer, up to [`LATE_MAX`] such calls
//! at once, and the task that made the call disposes of its result. Not entered is what no thread waits for, or
//! must not lose: a `release`, and the write-back of pages that a mapping has changed.
//!
//! Cost: for a call that waits one short lock when it begins and one when it ends; nothing for a call
//! that does not wait. A read of `/proc` four times a second for each that has waited so long.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, test_kill_process};
use sheen_fuse_wire::Request;
use sheen_types::Errno;

use crate::threads::Threads;

/// How often signals are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a call that changes something goes on after a signal that cannot be seen.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(5);
const UNSEEN_LOOKS: u32 = (UNSEEN_PATIENCE.as_millis() / LOOK_EVERY.as_millis()) as u32;

/// Interrupts that are remembered because their calls do not wait yet.
const EARLY_MAX: usize = 64;

/// Calls at once that go on though their callers have their answer. Beyond these they are dropped: servers execute
/// what was sent all the same. What they have opened the client closes when the answer comes.
const LATE_MAX: usize = 1024;

/// Which signals end a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Those that end the process: the call changes something, and a program that continues must learn the
    /// result.
    Killed,
    /// Those, and any that Lustre's client takes for fatal, handled or not: the call changes nothing.
    Fatal,
    /// Any that is not blocked, as `fcntl(2)` has it for locks.
    Any,
    /// Those that end the process, and its end for other reasons: the call is part of a `close`.
    Gone,
}

/// The calls of a mount that wait.
pub(crate) struct Waits {
    table: Mutex<Table>,
    /// The thread that looks for signals has something to look for again.
    more: Condvar,
    late: AtomicUsize,
    threads: Threads,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
    watcher: Watcher,
    /// Calls that were interrupted before they waited, the latest last.
    early: VecDeque<u64>,
}

/// Whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// 0 if it is not to be seen from here.
    thread: u32,
    /// The number of its request.
    unique: u64,
}

impl From<&Request> for Caller {
    fn from(request: &Request) -> Self {
        Self { thread: request.pid(), unique: request.unique() }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Watcher {
    /// There is none yet.
    #[default]
    None,
    /// The system gave none, and is asked again soon.
    Asked,
    /// Sleeps until the next look.
    Looks,
    /// No caller waits.
    Rests,
}

/// A call that waits, or room for one.
struct Slot {
    /// Whom it is for; `None`: free.
    waker: Option<Waker>,
    caller: Caller,
    ended_by: EndedBy,
    /// It waited at the last look already.
    is_old: bool,
    /// A signal came that cannot be seen, so many looks ago.
    interrupted: Option<u32>,
    is_over: bool,
}

/// A call that may wait.
pub(crate) struct Waiting {
    waits: Arc<Waits>,
    caller: Caller,
    ended_by: EndedBy,
    slot: Option<usize>,
    gave_up: bool,
}

impl Waits {
    pub(crate) fn new(threads: Threads) -> Arc<Self> {
        let (table, more, late) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Arc::new(Self { table, more, late, threads })
    }

    /// A call that these signals end.
    pub(crate) fn call(self: &Arc<Self>, caller: impl Into<Caller>, ended_by: EndedBy) -> Waiting {
        let caller = caller.into();
        Waiting { waits: Arc::clone(self), caller, ended_by, slot: None, gave_up: false }
    }

    /// The caller of the request `unique` got a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut table = self.table.lock();
        let is_meant = |slot: &&mut Slot| slot.waker.is_some() && slot.caller.unique == unique;
        let Some(slot) = table.slots.iter_mut().find(is_meant) else {
            if table.early.len() >= EARLY_MAX {
                table.early.pop_front();
            }
            return table.early.push_back(unique);
        };
        let waker = slot.interrupt();
        drop(table);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn insert(self: &Arc<Self>, caller: Caller, ended_by: EndedBy, waker: Waker) -> usize {
        let (is_old, interrupted, is_over) = (false, None, false);
        let mut slot = Slot { waker: Some(waker), caller, ended_by, is_old, interrupted, is_over };
        let mut table = self.table.lock();
        if let Some(place) = table.early.iter().position(|early| *early == caller.unique) {
            table.early.remove(place);
            if let Some(waker) = slot.interrupt() {
                waker.wake();
            }
        }
        match table.watcher {
            Watcher::Looks | Watcher::Asked => {}
            Watcher::Rests => {
                self.more.notify_one();
                table.watcher = Watcher::Looks;
            }
            Watcher::None => self.start(&mut table),
        }
        match table.free.pop() {
            Some(number) => {
                table.slots[number] = slot;
                number
            }
            None => {
                table.slots.push(slot);
                table.slots.len() - 1
            }
        }
    }

    /// There may be no thread to be had: then one is asked for again, as calls wait already.
    fn start(self: &Arc<Self>, table: &mut Table) {
        let waits = Arc::clone(self);
        let started = self.threads.start("fuse-signals", Box::new(move || waits.watch()));
        table.watcher = if started.is_ok() { Watcher::Looks } else { Watcher::Asked };
        let Err(error) = started else { return };
        tracing::debug!(%error, "no thread to look for signals: asked for again soon");
        let waits = Arc::downgrade(self);
        self.threads.later(LOOK_EVERY, move || {
            if let Some(waits) = waits.upgrade() {
                waits.start(&mut waits.table.lock());
            }
        });
    }

    fn watch(&self) {
        let mut table = self.table.lock();
        loop {
            while table.slots.len() == table.free.len() {
                table.watcher = Watcher::Rests;
                self.more.wait(&mut table);
            }
            // It is not woken while it looks.
            self.more.wait_for(&mut table, LOOK_EVERY);
            let unseen = table.unseen();
            let old = table.old();
            parking_lot::MutexGuard::unlocked(&mut table, || {
                unseen.into_iter().for_each(Waker::wake);
                self.look(&old);
            });
        }
    }

    /// Ends those of `calls` for whose threads a signal waits.
    fn look(&self, calls: &[(usize, u32, EndedBy)]) {
        for (number, thread, ended_by) in calls {
            if !ended_by.is_reached(*thread) {
                continue;
            }
            let mut table = self.table.lock();
            let slot = &mut table.slots[*number];
            if (slot.caller.thread, slot.ended_by, slot.is_old) != (*thread, *ended_by, true) {
                continue;
            }
            slot.is_over = true;
            let waker = slot.waker.clone();
            drop(table);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Slot {
    /// A signal came; whom to wake if the call ends by it now. Of a thread that is to be seen the next look decides.
    fn interrupt(&mut self) -> Option<Waker> {
        if self.caller.thread != 0 {
            return None;
        }
        match self.ended_by {
            EndedBy::Fatal | EndedBy::Any => {
                self.is_over = true;
                self.waker.clone()
            }
            EndedBy::Killed | EndedBy::Gone => {
                self.interrupted.get_or_insert(0);
                None
            }
        }
    }
}

impl Table {
    /// The calls of threads that are not to be seen whose patience is over.
    fn unseen(&mut self) -> Vec<Waker> {
        let mut over = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_over) {
            let Some(looks) = slot.interrupted.as_mut() else { continue };
            *looks += 1;
            slot.is_over = *looks > UNSEEN_LOOKS;
            if slot.is_over {
                over.extend(slot.waker.clone());
            }
        }
        over
    }

    /// Calls that waited at the last look already; all are old now.
    fn old(&mut self) -> Vec<(usize, u32, EndedBy)> {
        let mut old = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let is_seen = slot.waker.is_some() && slot.caller.thread != 0;
            if is_seen && std::mem::replace(&mut slot.is_old, true) {
                old.push((number, slot.caller.thread, slot.ended_by));
            }
        }
        old
    }
}

impl Waiting {
    /// `call`'s result, or `EINTR` if a signal ends the wait before. The call itself goes on in
    /// [`Waiting::late`].
    pub(crate) async fn wait<T>(
        &mut self,
        mut call: Pin<&mut impl Future<Output = Result<T, Errno>>>,
    ) -> Result<T, Errno> {
        std::future::poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(done) => {
                self.leave();
                Poll::Ready(done)
            }
            Poll::Pending => self.stay(context),
        })
        .await
    }

    fn stay<T>(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Errno>> {
        let Some(number) = self.slot else {
            let waker = context.waker().clone();
            self.slot = Some(self.waits.insert(self.caller, self.ended_by, waker));
            return Poll::Pending;
        };
        let mut table = self.waits.table.lock();
        let slot = &mut table.slots[number];
        if !slot.is_over {
            if slot.waker.as_ref().is_none_or(|known| !known.will_wake(context.waker())) {
                slot.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        drop(table);
        self.gave_up = true;
        self.leave();
        Poll::Ready(Err(Errno::EINTR))
    }

    /// What the call brings after its wait was ended; to be asked for when the answer was sent.
    pub(crate) async fn late<T>(
        &mut self,
        call: Pin<&mut impl Future<Output = Result<T, Errno>>>,
    ) -> Option<T> {
        if !self.gave_up || self.waits.late.fetch_add(1, Ordering::Relaxed) >= LATE_MAX {
            if self.gave_up {
                self.waits.late.fetch_sub(1, Ordering::Relaxed);
            }
            return None;
        }
        let _one = Late(&self.waits.late);
        let failed =
            |errno: &Errno| tracing::debug!(%errno, "a call failed after its caller was killed");
        call.await.inspect_err(failed).ok()
    }

    fn leave(&mut self) {
        let Some(number) = self.slot.take() else { return };
        let mut table = self.waits.table.lock();
        let slot = &mut table.slots[number];
        (slot.waker, slot.is_old, slot.interrupted) = (None, false, None);
        table.free.push(number);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A call that goes on.
struct Late<'a>(&'a AtomicUsize);

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EndedBy {
    /// Whether a signal of the kind waits for the thread, or it is gone.
    fn is_reached(self, thread: u32) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else {
            // Of a process that is hidden from us nothing is known either.
            let pid = Pid::from_raw(thread.cast_signed());
            return pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
        };
        let signals = Signals::of(&status);
        signals.kills()
            || match self {
                Self::Killed => false,
                Self::Fatal => signals.pending & FATAL != 0,
                Self::Any => signals.pending != 0,
                Self::Gone => is_exiting(&status),
            }
    }
}

/// Sets of signals, as `/proc/PID/status` has them: signal 1 is bit 0.
const fn set(numbers: &[u32]) -> u64 {
    let (mut at, mut set) = (0, 0);
    while at < numbers.len() {
        set |= 1 << (numbers[at] - 1);
        at += 1;
    }
    set
}

/// What ends a wait of Lustre's client: `SIGINT`, `SIGQUIT`, `SIGKILL`, `SIGALRM`, `SIGTERM`.
const FATAL: u64 = set(&[2, 3, 9, 14, 15]);
const KILL: u64 = set(&[9]);
/// What ends no process by itself: `SIGCHLD`, `SIGCONT`, `SIGSTOP`, `SIGTSTP`, `SIGTTIN`, `SIGTTOU`,
/// `SIGURG`, `SIGWINCH`.
const HARMLESS: u64 = set(&[17, 18, 19, 20, 21, 22, 23, 28]);

/// What is on its way to a thread.
#[derive(Debug)]
struct Signals {
    /// Those that it does not block.
    pending: u64,
    /// Those that it handles or ignores.
    handled: u64,
}

impl Signals {
    fn of(status: &str) -> Self {
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
        };
        Self {
            pending: (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:"),
            handled: mask("SigCgt:") | mask("SigIgn:"),
        }
    }

    /// Whether one of them ends the process.
    fn kills(&self) -> bool {
        let unhandled = self.pending & !self.handled & !HARMLESS;
        (self.pending & KILL) | unhandled != 0
    }
}

/// Whether a thread has begun to end, as its `status` shows: it takes no signals any more, and closes its
/// files when it has released its memory. Its `stat` says so, too, but is not to be had while a process is in
/// `execve(2)`, which may wait for this mount.
fn is_exiting(status: &str) -> bool {
    !status.contains("\nVmSize:")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;

    use tokio::sync::oneshot;

    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, caught: u64) -> Signals {
        Signals::of(&format!(
            "SigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t0000000000000000\nSigCgt:\t{caught:016x}\n"
        ))
    }

    #[test]
    fn what_is_blocked_does_not_count_and_what_is_handled_does_not_kill() {
        let (int, usr1, chld) = (set(&[2]), set(&[10]), set(&[17]));
        assert_eq!(status(0, 0, 0, 0).pending, 0);
        assert_eq!(status(int, int, int, 0).pending, 0);
        assert!(status(0, int, chld, 0).kills() && status(usr1, 0, 0, 0).kills());
        assert!(!status(0, int, 0, int).kills() && !status(chld, 0, 0, 0).kills());
        assert!(status(KILL, 0, 0, 0).kills());
        assert_ne!(status(0, int, 0, int).pending & FATAL, 0);
        assert_eq!(status(0, usr1, 0, usr1).pending & FATAL, 0);
        assert!(!Signals::of("").kills());
    }

    #[test]
    fn a_thread_that_is_gone_has_ended_its_calls() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let other = std::thread::Builder::new()
            .spawn(|| rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
            .and_then(|thread| thread.join().map_err(|_| std::io::ErrorKind::Other.into()))
            .expect("a thread");
        for ended_by in [EndedBy::Killed, EndedBy::Fatal, EndedBy::Any, EndedBy::Gone] {
            assert!(!ended_by.is_reached(own), "{ended_by:?}");
            assert!(ended_by.is_reached(other), "{ended_by:?}");
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    /// A number that no thread has.
    const NO_THREAD: Caller = Caller { thread: i32::MAX.cast_unsigned(), unique: 1 };

    #[test]
    fn a_thread_that_ends_has_no_memory_any_more() {
        let own = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        assert!(!is_exiting(&own));
        assert!(is_exiting("Name:\tx\nState:\tZ (zombie)\nThreads:\t1\nSigQ:\t0/1\n"));
    }

    #[test]
    fn a_call_whose_caller_is_gone_is_answered_and_goes_on_behind_the_answer() {
        let waits = Waits::new(Threads::new(crate::threads::runtime()));
        let (send, receive) = oneshot::channel();
        let ended = AtomicBool::new(false);
        let mut waiting = waits.call(NO_THREAD, EndedBy::Killed);
        runtime().block_on(async {
            let mut call = pin!(async {
                let number = receive.await.map_err(|_| Errno::EIO);
                ended.store(true, Ordering::Relaxed);
                number
            });
            let answer = tokio::time::timeout(Duration::from_secs(5), waiting.wait(call.as_mut()));
            assert_eq!(answer.await, Ok(Err::<u32, _>(Errno::EINTR)));
            assert!(!ended.load(Ordering::Relaxed));
            send.send(7).expect("waited for");
            assert_eq!(waiting.late(call).await, Some(7));
        });
        let table = waits.table.lock();
        assert_eq!((table.slots.len(), table.free.len()), (1, 1));
    }

    #[test]
    fn a_call_of_a_live_thread_waits_as_long_as_it_must() {
        let waits = Waits::new(Threads::new(crate::threads::runtime()));
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut waiting = waits.call(Caller { thread: own, unique: 1 }, EndedBy::Killed);
        runtime().block_on(async {
            let mut call = pin!(async {
                tokio::time::sleep(LOOK_EVERY * 4).await;
                Ok::<_, Errno>(1)
            });
            assert_eq!(waiting.wait(call.as_mut()).await, Ok(1));
            assert_eq!(waiting.late(call).await, None);
        });
    }

    /// Calls of a thread of another PID namespace: one that only reads ends at the signal, though it came before the
    /// call waited; one that changes something has some time, and nothing ends one that no signal came for.
    #[test]
    fn a_signal_of_a_thread_that_is_not_to_be_seen_ends_its_call() {
        let waits = Waits::new(Threads::new(crate::threads::runtime()));
        let caller = |unique| Caller { thread: 0, unique };
        runtime().block_on(async {
            waits.interrupt(2);
            let begin = tokio::time::Instant::now();
            let ends = async |unique, ended_by| {
                let mut waiting = waits.call(caller(unique), ended_by);
                let call = pin!(std::future::pending::<Result<(), Errno>>());
                let most = UNSEEN_PATIENCE + LOOK_EVERY * 8;
                let ended = tokio::time::timeout(most, waiting.wait(call)).await;
                (ended, begin.elapsed())
            };
            let interrupt = async {
                tokio::time::sleep(LOOK_EVERY).await;
                [3, 4].into_iter().for_each(|unique| waits.interrupt(unique));
            };
            let interrupt = async {
                interrupt.await;
                (Ok(Ok(())), Duration::ZERO)
            };
            let ends: [Pin<Box<dyn Future<Output = _>>>; 5] = [
                Box::pin(ends(2, EndedBy::Fatal)),
                Box::pin(ends(3, EndedBy::Fatal)),
                Box::pin(ends(4, EndedBy::Killed)),
                Box::pin(ends(5, EndedBy::Killed)),
                Box::pin(interrupt),
            ];
            let all = sheen_types::futures::all_pinned(ends.into()).await;
            let [early, reads, changes, none, _] = &all[..] else { panic!("five") };
            let over = Ok(Err(Errno::EINTR));
            assert_eq!((&early.0, &reads.0, &changes.0), (&over, &over, &over));
            assert!(
                early.1 < LOOK_EVERY && reads.1 < LOOK_EVERY * 4 && changes.1 >= UNSEEN_PATIENCE
            );
            assert!(none.0.is_err());
        });
    }

    #[test]
    fn a_call_ends_though_the_thread_that_looks_was_refused_when_it_began_to_wait() {
        let refuses = Arc::new(AtomicBool::new(true));
        let asks = Arc::clone(&refuses);
        let refused = move || asks.load(Ordering::Relaxed);
        let waits = Waits::new(Threads::refused(crate::threads::runtime(), refused));
        let mut waiting = waits.call(NO_THREAD, EndedBy::Killed);
        runtime().block_on(async {
            let mut call = pin!(std::future::pending::<Result<(), Errno>>());
            let mut wait = pin!(waiting.wait(call.as_mut()));
            assert!(tokio::time::timeout(LOOK_EVERY * 4, wait.as_mut()).await.is_err());
            refuses.store(false, Ordering::Relaxed);
            let ended = tokio::time::timeout(Duration::from_secs(5), wait).await;
            assert_eq!(ended, Ok(Err(Errno::EINTR)));
        });
    }
}
