//! Threads to which the kernel is about to apply the file size in their reply.
//!
//! The kernel lays what a read brings into a page, with zeros behind the file's end, wakes the thread that
//! waits for it, and that thread copies up to what it then takes for the size. If the kernel learns a larger
//! size in between, the thread gets zeros where another writer has appended. And the kernel takes the size in
//! the reply to a link or create over whatever it has learnt since, and drops what lies behind it. So an
//! answer that may bring a larger size waits until each such thread has made another call, or for
//! [`PATIENCE`].
//!
//! Cost: one short lock for each such answer, and for the next call of its thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::HashMap;
use tokio::sync::Notify;

/// How long a thread may take to go on with what it waited for. One that makes no other call delays an
/// answer by so much, once.
const PATIENCE: Duration = Duration::from_millis(100);

/// Threads that are remembered at once. Those that end without a further call are forgotten so.
const THREADS_MAX: usize = 256;

/// Threads that have not gone on yet, and with which files.
#[derive(Default)]
pub(crate) struct PendingSizes {
    /// How many there are: read before the map is locked.
    count: AtomicUsize,
    threads: Mutex<HashMap<u32, Vec<u64>>>,
    fewer: Notify,
}

impl PendingSizes {
    /// A read of `thread` is about to be answered with fewer bytes of `node` than it asked for, or a
    /// call with attributes that the kernel believes.
    pub(crate) fn note_reply(&self, thread: u32, node: u64) {
        self.change(|threads| {
            if threads.len() >= THREADS_MAX {
                threads.clear();
            }
            let nodes = threads.entry(thread).or_default();
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        });
    }

    /// The thread makes another call. A read is no sign: it may have been sent along with the one
    /// before it.
    pub(crate) fn note_call(&self, thread: u32) {
        if self.any() {
            self.change(|threads| _ = threads.remove(&thread));
            self.fewer.notify_waiters();
        }
    }

    /// Returns when all such threads have gone on with `node`; whether there was one to wait for.
    pub(crate) async fn wait_until_applied(&self, node: u64) -> bool {
        if !self.any() || !self.is_awaited(node) {
            return false;
        }
        let all_went_on = async {
            loop {
                let fewer = self.fewer.notified();
                if !self.is_awaited(node) {
                    return;
                }
                fewer.await;
            }
        };
        if tokio::time::timeout(PATIENCE, all_went_on).await.is_err() {
            self.change(|threads| {
                threads.retain(|_, nodes| {
                    nodes.retain(|other| *other != node);
                    !nodes.is_empty()
                });
            });
        }
        true
    }

    /// Whether there is any such thread.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn is_awaited(&self, node: u64) -> bool {
        self.threads.lock().values().any(|nodes| nodes.contains(&node))
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u32, Vec<u64>>)) {
        let mut threads = self.threads.lock();
        change(&mut threads);
        self.count.store(threads.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_larger_size_waits_for_the_readers_of_its_own_file() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let _context = runtime.enter();
        let pending_sizes = PendingSizes::default();
        let may_grow = |node| {
            let applied = pin!(pending_sizes.wait_until_applied(node));
            applied.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(may_grow(7));
        pending_sizes.note_reply(1, 7);
        pending_sizes.note_reply(2, 7);
        assert!(!may_grow(7) && may_grow(8));
        pending_sizes.note_call(1);
        assert!(!may_grow(7));
        pending_sizes.note_call(2);
        assert!(may_grow(7));
        // A thread that never calls again is waited for once.
        pending_sizes.note_reply(3, 7);
        assert!(runtime.block_on(pending_sizes.wait_until_applied(7)));
        assert!(may_grow(7) && pending_sizes.threads.lock().is_empty());
    }
}
