//! Environments of the processes whose calls come in.
//!
//! `/proc/PID/environ` is memory of that process: to read it the kernel takes the lock of its address space,
//! and that of a program that it is becoming. A thread of the process may hold these for as long as a call
//! with this very mount takes: in a page fault, in `mmap(2)`, `munmap(2)` or `execve(2)`. So no thread that
//! serves calls reads it. A few threads do, and the task that serves a call waits for them for [`WAIT`] at
//! most, once: the environment of a process whose reading is stuck is not asked for again until that has
//! ended.
//!
//! What else is read of callers takes no such lock: `comm` and `status`. `stat` does: it waits for the end of an
//! `execve(2)`, which may wait for this mount as it closes files, and nothing reads it here.
//!
//! Cost: two switches of threads for each look at an environment, which `jobs` remembers for up to a second.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sheen_types::HashSet;

/// How long a call waits for the environment of its process.
const WAIT: Duration = Duration::from_millis(20);

/// Threads that read; a process that is stuck occupies one of them.
const THREADS_MAX: usize = 8;

/// How long a thread waits for more to read before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The environment cannot be known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReadYet;

/// What was read; `None`: nothing may or can be.
type Environment = Option<Vec<u8>>;
type Read = Box<dyn Fn(u32) -> io::Result<Vec<u8>> + Send + Sync>;

/// See the module.
pub(crate) struct Environments(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    more: Condvar,
    read: Read,
}

#[derive(Default)]
struct State {
    wanted: VecDeque<(u32, Sender<Environment>)>,
    /// Processes whose reading has taken too long, and goes on.
    late: HashSet<u32>,
    threads: usize,
    idle: usize,
}

impl Default for Environments {
    fn default() -> Self {
        Self::new(|pid| std::fs::read(format!("/proc/{pid}/environ")))
    }
}

impl Environments {
    fn new(read: impl Fn(u32) -> io::Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (state, more) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { state, more, read: Box::new(read) }))
    }

    /// The environment of the process `pid`, as its last `execve` got it.
    ///
    /// # Errors
    /// [`NotReadYet`] after [`WAIT`], and at once for as long as that reading is stuck, or too many other readings
    /// are.
    pub(crate) fn of(&self, pid: u32) -> Result<Environment, NotReadYet> {
        let answer = self.0.ask(pid)?;
        match answer.recv_timeout(WAIT) {
            Ok(environment) => Ok(environment),
            Err(RecvTimeoutError::Disconnected) => Err(NotReadYet),
            Err(RecvTimeoutError::Timeout) => {
                let mut state = self.0.state.lock();
                // It is answered under this lock.
                answer.try_recv().map_err(|_| {
                    state.late.insert(pid);
                    NotReadYet
                })
            }
        }
    }
}

impl Shared {
    fn ask(self: &Arc<Self>, pid: u32) -> Result<Receiver<Environment>, NotReadYet> {
        let mut state = self.state.lock();
        let is_full = state.idle <= state.wanted.len() && state.threads >= THREADS_MAX;
        if is_full || state.late.contains(&pid) {
            return Err(NotReadYet);
        }
        if state.idle <= state.wanted.len() {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("fuse-environs".to_owned());
            // Where the system has none, jobs are named without it.
            thread.spawn(move || shared.work()).map_err(|error| {
                tracing::debug!(%error, "no thread to read a process's environment");
                NotReadYet
            })?;
            state.threads += 1;
        }
        let (answers, answer) = mpsc::channel();
        state.wanted.push_back((pid, answers));
        self.more.notify_one();
        Ok(answer)
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((pid, answers)) = state.wanted.pop_front() {
                let environment = MutexGuard::unlocked(&mut state, || (self.read)(pid).ok());
                // The caller may have stopped waiting.
                let (Ok(()) | Err(_)) = answers.send(environment);
                state.late.remove(&pid);
                continue;
            }
            state.idle += 1;
            let waited = self.more.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.wanted.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    /// Reads of processes from here on block until the other end is dropped; how often one is read is
    /// counted.
    const STILL: u32 = 100;

    fn environments() -> (Environments, Arc<AtomicUsize>, Sender<()>) {
        let (go_on, stands) = mpsc::channel::<()>();
        let (stands, reads) = (Mutex::new(stands), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&reads);
        let read = move |pid: u32| {
            counted.fetch_add(1, Ordering::Relaxed);
            if pid >= STILL {
                _ = stands.lock().recv();
            }
            Ok(format!("PID={pid}").into_bytes())
        };
        (Environments::new(read), reads, go_on)
    }

    fn is(pid: u32) -> Result<Environment, NotReadYet> {
        Ok(Some(format!("PID={pid}").into_bytes()))
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads that stand still in real time")]
    fn a_process_whose_memory_is_locked_holds_up_a_call_once_and_no_other_process() {
        let (environments, reads, go_on) = environments();
        // On a busy machine a reading may take longer than it is waited for.
        let is_read = |pid| (0..100).any(|_| environments.of(pid) == is(pid));
        assert!(is_read(1));
        let begin = Instant::now();
        assert_eq!(environments.of(STILL), Err(NotReadYet));
        assert!(begin.elapsed() >= WAIT);
        assert!(is_read(2), "it has another thread");
        let before = reads.load(Ordering::Relaxed);
        for _ in 0..1000 {
            assert_eq!(environments.of(STILL), Err(NotReadYet));
        }
        assert_eq!(reads.load(Ordering::Relaxed), before, "it is not read again meanwhile");
        drop(go_on);
        let is_known = |_: &u32| {
            std::thread::sleep(WAIT);
            environments.of(STILL) == is(STILL)
        };
        assert!((0..500).any(|number| is_known(&number)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads that stand still in real time")]
    fn threads_that_are_all_stuck_are_no_more_than_may_be_and_no_call_waits_behind_them() {
        let (environments, reads, go_on) = environments();
        for number in 0..THREADS_MAX as u32 + 50 {
            assert_eq!(environments.of(STILL + number), Err(NotReadYet));
        }
        assert_eq!(environments.of(1), Err(NotReadYet));
        // On a busy machine the last thread may not have begun.
        let has_begun = |_: &u32| {
            std::thread::sleep(WAIT);
            reads.load(Ordering::Relaxed) == THREADS_MAX
        };
        assert!((0..500).any(|number| has_begun(&number)));
        let state = environments.0.state.lock();
        assert_eq!((state.threads, state.wanted.len()), (THREADS_MAX, 0));
        assert_eq!(reads.load(Ordering::Relaxed), THREADS_MAX);
        drop((state, go_on));
    }

    #[test]
    fn the_own_environment_is_read() {
        let text =
            Environments::default().of(std::process::id()).expect("in time").expect("it may be");
        assert!(String::from_utf8_lossy(&text).contains("PATH="));
    }
}
