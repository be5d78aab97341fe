//! Dirty bytes that wait for more of them before they are flushed: a queue of objects for each OST, the one that has waited longest
//! first.
//!
//! An object whose bytes do not fill an RPC waits in the queue for a second, and then what it has is flushed.
//! When half of what may be dirty waits in the queue, the first go at once, so that writers of many small
//! files find room before they need it and never wait for the second to pass.
//!
//! Cost for each object that becomes dirty: one entry in the queue, no task and no timer of its own. One task
//! serves the queue, and ends when it is empty.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::TaskQueue;
use sheen_types::futures;
use sheen_types::{Extent, Instant};
use tokio::sync::Notify;

use super::data_target::DataTarget;
use super::object::Object;

/// How long dirty bytes wait for more before they are flushed anyway.
const DELAY: Duration = Duration::from_secs(1);

/// The queue of one OST.
#[derive(Default)]
pub(super) struct FlushQueue {
    /// The objects that wait, and until when at most.
    queue: TaskQueue<(Instant, Arc<Object>)>,
    /// Half of what may be dirty waits.
    flush_now: Notify,
}

/// The object to flush next.
enum Next {
    Now(Arc<Object>),
    At(Instant),
}

impl Object {
    /// Has everything dirty flushed a little later. The queue keeps the object alive until then. The caller has
    /// marked it as queued.
    pub(super) fn queue_flush(self: &Arc<Self>) {
        let target = &self.target;
        let due = target.shared.world.clock.now() + DELAY;
        if target.flush_queue.queue.push([(due, Arc::clone(self))]) {
            let serve = serve(Arc::clone(target));
            target.shared.world.tasks.spawn("delayed flush", Box::pin(serve));
        }
    }

    /// Begins to flush everything dirty, and does not wait for it.
    fn start_flush(self: &Arc<Self>) {
        self.state.lock().is_queued = false;
        while self.start_write_rpc(Extent::ALL, 0) {}
        // The rest is on its way with older bytes.
        if !self.state.lock().dirty.is_empty() {
            let object = Arc::clone(self);
            let task = async move { object.flush(Extent::ALL).await };
            self.target.shared.world.tasks.spawn("flush", Box::pin(task));
        }
    }
}

impl DataTarget {
    /// Too much waits: the first in the queue are to be flushed now.
    pub(super) fn flush_now(&self) {
        self.flush_queue.flush_now.notify_waiters();
    }

    fn next_in_queue(&self, now: Instant) -> Option<Next> {
        let next = self.flush_queue.queue.serve(|waiting| {
            let due = waiting.front()?.0;
            if due > now && !self.needs_room(&self.grant()) {
                return Some(Next::At(due));
            }
            waiting.pop_front().map(|(_, object)| Next::Now(object))
        });
        next.flatten()
    }
}

async fn serve(target: Arc<DataTarget>) {
    let clock = Arc::clone(&target.shared.world.clock);
    loop {
        let wanted_now = target.flush_queue.flush_now.notified();
        match target.next_in_queue(clock.now()) {
            Some(Next::Now(object)) => object.start_flush(),
            Some(Next::At(due)) => {
                futures::race(clock.sleep_until(due), wanted_now).await;
            }
            None => return,
        }
    }
}
