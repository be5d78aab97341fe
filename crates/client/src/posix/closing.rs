//! Closes that only an unmount waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sheen_io::Clock;
use sheen_types::futures;
use tokio::sync::Notify;

/// How long an unmount waits for closes at most. What is not answered then the MDT closes itself, without the
/// times and sizes that the closes carry.
const PATIENCE: Duration = Duration::from_secs(1);

/// The closes under way.
#[derive(Default)]
pub(crate) struct PendingCloses(Arc<ClosesInFlight>);

#[derive(Default)]
struct ClosesInFlight {
    count: AtomicUsize,
    /// The last one was answered.
    ended: Notify,
}

/// A close that is under way, until it is answered.
pub(super) struct PendingClose(Arc<ClosesInFlight>);

impl PendingCloses {
    pub(super) fn begin(&self) -> PendingClose {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        PendingClose(Arc::clone(&self.0))
    }

    /// Returns when all are answered, or after [`PATIENCE`].
    pub(super) async fn wait(&self, clock: &dyn Clock) {
        let all = async {
            loop {
                let ended = self.0.ended.notified();
                if self.0.count.load(Ordering::Acquire) == 0 {
                    return;
                }
                ended.await;
            }
        };
        futures::race(all, clock.sleep_until(clock.now() + PATIENCE)).await;
    }
}

impl Drop for PendingClose {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
