//! Directories whose kernel locks calls under way hold.
//!
//! The kernel holds a directory's lock while a lookup, create, unlink and the like is with us. To drop a name
//! it takes that lock too: a task that waits for the name to be dropped must stop waiting when such a call
//! arrives, because the call may itself be waiting for the server, which is revoking our lock.
//!
//! A call is under way until just before it is answered, and not longer: otherwise its program could look a
//! name up before the guard is dropped, while a task had stopped waiting for the kernel to drop that name.
//!
//! Cost: one short lock and one map entry for each such call; a second lock when it ends while notices
//! wait for some directory ([`crate::notices`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sheen_types::HashMap;
use tokio::sync::Notify;

/// Counts the calls under way by directory.
#[derive(Default)]
pub(crate) struct BusyDirectories {
    calls: Mutex<HashMap<u64, u32>>,
    came: Notify,
    /// Whether notices wait for a directory to be free.
    is_awaited: AtomicBool,
    /// Called for each directory that is free again while that is so.
    on_free: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

/// A call that holds the locks of directories; dropped when it does not any more.
pub(crate) struct BusyGuard {
    busy: Arc<BusyDirectories>,
    nodes: Vec<u64>,
}

impl BusyDirectories {
    /// A call begins that holds the locks of `nodes` until the guard is dropped, before the answer.
    pub(crate) fn enter(busy: &Arc<Self>, nodes: impl Iterator<Item = u64>) -> BusyGuard {
        let nodes: Vec<u64> = nodes.collect();
        let mut calls = busy.calls.lock();
        for node in &nodes {
            *calls.entry(*node).or_default() += 1;
        }
        drop(calls);
        busy.came.notify_waiters();
        BusyGuard { busy: Arc::clone(busy), nodes }
    }

    /// From now on `notify` is called for each directory that is free again, after [`BusyDirectories::defers`] said that
    /// it is not.
    pub(crate) fn on_free(&self, notify: impl Fn(u64) + Send + Sync + 'static) {
        _ = self.on_free.set(Box::new(notify));
    }

    /// Whether a call holds the lock of `node`; if so, its end is signalled.
    pub(crate) fn defers(&self, node: u64) -> bool {
        let calls = self.calls.lock();
        let is_held = calls.contains_key(&node);
        if is_held {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        is_held
    }

    /// Waits until a call holds the lock of `node`.
    pub(crate) async fn until_busy(&self, node: u64) {
        loop {
            let came = self.came.notified();
            if self.calls.lock().contains_key(&node) {
                return;
            }
            came.await;
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let mut free = Vec::new();
        let mut calls = self.busy.calls.lock();
        // Under the lock of the calls, as it is set.
        let is_awaited = self.busy.is_awaited.load(Ordering::Relaxed);
        for node in &self.nodes {
            if let Some(count) = calls.get_mut(node) {
                *count -= 1;
                if *count == 0 {
                    calls.remove(node);
                    if is_awaited {
                        free.push(*node);
                    }
                }
            }
        }
        if calls.is_empty() {
            self.busy.is_awaited.store(false, Ordering::Relaxed);
        }
        drop(calls);
        let Some(notify) = self.busy.on_free.get() else { return };
        free.into_iter().for_each(notify);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_directory_is_busy_while_any_call_holds_it() {
        let busy = Arc::new(BusyDirectories::default());
        let is_busy = || {
            let mut wait = std::pin::pin!(busy.until_busy(1));
            wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        assert!(!is_busy());
        let other = BusyDirectories::enter(&busy, [2].into_iter());
        assert!(!is_busy());
        let first = BusyDirectories::enter(&busy, [1, 1].into_iter());
        let second = BusyDirectories::enter(&busy, [1].into_iter());
        assert!(is_busy());
        drop((other, first));
        assert!(is_busy());
        drop(second);
        assert!(!is_busy());
        assert!(busy.calls.lock().is_empty());
    }
}
