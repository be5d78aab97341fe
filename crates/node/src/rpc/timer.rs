//! The one task that gives engines their ticks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use sheen_io::Clock;
use sheen_types::Instant;

use super::RpcNode;

/// When the timer task wakes next, and how to wake it earlier.
#[derive(Default)]
pub(super) struct Timer {
    /// What it sleeps for; all the time there is while it is awake, so that what comes meanwhile counts.
    at: AtomicU64,
    earlier: AtomicBool,
    stopped: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Timer {
    /// An engine wants a tick at `wake`. One load, unless that is earlier than planned.
    pub(super) fn want(&self, wake: Option<Instant>) {
        if wake.is_some_and(|wake| wake.0 < self.at.load(Ordering::Acquire)) {
            self.earlier.store(true, Ordering::Release);
            self.wake();
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Ticks until the node is gone.
pub(super) async fn run(node: Weak<RpcNode>, clock: Arc<dyn Clock>) {
    loop {
        let mut sleep = {
            let Some(node) = node.upgrade() else { return };
            // From here on engines that want less say so.
            node.timer.at.store(u64::MAX, Ordering::Release);
            let next = node.tick().unwrap_or(Instant(u64::MAX));
            node.timer.at.fetch_min(next.0, Ordering::AcqRel);
            clock.sleep_until(next)
        };
        let weak = node.clone();
        let stopped = std::future::poll_fn(move |context| {
            let Some(node) = weak.upgrade() else { return Poll::Ready(true) };
            *node.timer.waker.lock() = Some(context.waker().clone());
            if node.timer.stopped.load(Ordering::Acquire) {
                return Poll::Ready(true);
            }
            if node.timer.earlier.swap(false, Ordering::AcqRel) {
                return Poll::Ready(false);
            }
            sleep.as_mut().poll(context).map(|()| false)
        });
        if stopped.await {
            return;
        }
    }
}
