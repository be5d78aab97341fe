//! What a request costs the server that executes it, in virtual time: its MDT has one core, which executes one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{BoxFuture, Clock};
use sheen_rpc::{Handler, IncomingRequest};
use sheen_types::{Instant, Nid, ObdHandle};

/// The core of a target. What waits for it is served in the order in which it came.
pub(crate) struct Core {
    /// Time that each request takes.
    each: Duration,
    work: Mutex<CoreWork>,
}

#[derive(Default)]
struct CoreWork {
    /// When it is through with all that has come.
    free_at: Instant,
    /// Requests so far, by their names.
    requests: BTreeMap<&'static str, u64>,
}

impl Core {
    /// One that has nothing to do.
    pub(crate) fn new(each: Duration) -> Arc<Self> {
        Arc::new(Self { each, work: Mutex::default() })
    }

    /// Requests that it has taken since its start, by their names.
    pub(crate) fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.work.lock().requests.clone()
    }

    /// Takes a request that comes at `now`; when it is through with it.
    fn take(&self, now: Instant, request: &'static str) -> Instant {
        let mut work = self.work.lock();
        *work.requests.entry(request).or_default() += 1;
        work.free_at = now.max(work.free_at) + self.each;
        work.free_at
    }
}

/// A target behind its core: a request is executed when the core has spent its time on it.
pub(crate) struct OnCore {
    /// The target.
    pub(crate) target: Arc<dyn Handler>,
    /// Its core.
    pub(crate) core: Arc<Core>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Handler for OnCore {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        let (target, clock) = (Arc::clone(&self.target), Arc::clone(&self.clock));
        let through = self.core.take(clock.now(), incoming.request.format().name);
        Box::pin(async move {
            clock.sleep_until(through).await;
            target.handle(incoming).await;
        })
    }

    fn owns(&self, export: ObdHandle) -> bool {
        self.target.owns(export)
    }

    fn serves(&self, nid: Nid) -> bool {
        self.target.serves(nid)
    }
}
