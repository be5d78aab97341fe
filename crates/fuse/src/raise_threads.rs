//! Threads that raise sizes in the kernel, each for one size.
//!
//! A raise must not wait behind notices that wait for pages, and may itself come to a page that a call holds;
//! by then the kernel has the size. So each has a thread, there are at most [`RAISES_MAX`] of them, and no
//! caller waits for one without limit: a raise that no thread has begun within the patience is given up, and
//! whatever it held is released.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::blocked::{ASLEEP, SleepWatch, Status};

/// Sizes that are raised at once. Each has a thread, which a page under IO can block.
const RAISES_MAX: usize = 128;

/// How far a raise has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raised {
    /// To its end.
    Done,
    /// To a page that a call holds: the size is raised.
    Blocked,
    /// No thread had time for it. The kernel uses the previous size until its next question, whose reply has
    /// it raised again.
    NotBegun,
}

/// The threads of one mount.
pub(crate) struct RaiseThreads {
    permits: Arc<Semaphore>,
    runtime: Handle,
}

impl RaiseThreads {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { permits: Arc::new(Semaphore::new(RAISES_MAX)), runtime }
    }

    /// Has `work` done. Ends when that is done, or blocked in the kernel, or not begun after `patience`: then
    /// it never begins.
    pub(crate) fn raise(
        &self,
        work: impl FnOnce() + Send + 'static,
        patience: Duration,
    ) -> impl Future<Output = Raised> + Send + 'static {
        let (runtime, permits) = (self.runtime.clone(), Arc::clone(&self.permits));
        async move {
            let until = Instant::now() + patience;
            // The semaphore is never closed.
            let Ok(Ok(permit)) = timeout_at(until, permits.acquire_owned()).await else {
                return Raised::NotBegun;
            };
            // The pool keeps what it has not begun, so the work lies where it can be taken out again.
            let slot = Arc::new(Mutex::new(Some((work, permit))));
            let taken = Arc::clone(&slot);
            let (begin, begun) = oneshot::channel();
            let mut notified = runtime.spawn_blocking(move || {
                let Some((work, permit)) = taken.lock().take() else { return };
                let (Ok(()) | Err(_)) = begin.send(Status::of_this_thread());
                work();
                drop(permit);
            });
            let Ok(Ok(thread)) = timeout_at(until, begun).await else {
                drop(slot.lock().take());
                return Raised::NotBegun;
            };
            let mut watch = SleepWatch::new(|| thread.sleep());
            match watch.notified(&mut notified, ASLEEP, patience).await {
                true => Raised::Done,
                false => Raised::Blocked,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);
    const SOON: Duration = Duration::from_secs(10);

    /// A runtime with one thread for what may block.
    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(1).enable_time().build().expect("a runtime")
    }

    /// What raises do while `occupied` have been taken away, and whether the work is still held then.
    fn raise_beside(occupied: usize, has_thread: bool) -> (Result<Raised, ()>, bool, bool) {
        let runtime = runtime();
        let raises = RaiseThreads::new(runtime.handle().clone());
        let permits = Arc::clone(&raises.permits);
        let _kept = permits.try_acquire_many_owned(occupied as u32).expect("they are free");
        let (go_on, stands) = std::sync::mpsc::channel::<()>();
        if !has_thread {
            drop(runtime.spawn_blocking(move || stands.recv()));
        }
        let (ran, held) = (Arc::new(AtomicBool::new(false)), Arc::new(()));
        let (runs, holds) = (Arc::clone(&ran), Arc::clone(&held));
        let work = move || {
            runs.store(true, Ordering::Relaxed);
            drop(holds);
        };
        let raised = runtime.block_on(async {
            tokio::time::timeout(SOON, raises.raise(work, PATIENCE)).await.map_err(|_| ())
        });
        let is_held = Arc::strong_count(&held) > 1;
        drop(go_on);
        drop(runtime);
        (raised, ran.load(Ordering::Relaxed), is_held)
    }

    #[test]
    fn a_raise_that_finds_a_thread_is_done() {
        assert_eq!(raise_beside(RAISES_MAX - 1, true), (Ok(Raised::Done), true, false));
    }

    #[test]
    fn behind_raises_that_all_stand_still_one_is_given_up_in_time() {
        assert_eq!(raise_beside(RAISES_MAX, true), (Ok(Raised::NotBegun), false, false));
    }

    #[test]
    fn a_raise_that_no_thread_begins_is_given_up_in_time() {
        assert_eq!(raise_beside(0, false), (Ok(Raised::NotBegun), false, false));
    }
}
