//! The end of a process that another one follows: calls that have begun end, later ones are left to that one.
//!
//! A call that is turned away is not answered at all: the kernel sends it again, to the next process.
//!
//! Cost: two atomic additions for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Set when no call begins any more; below it the calls under way are counted.
const CLOSED: u64 = 1 << 63;

/// Where calls enter.
#[derive(Default)]
pub(crate) struct Gate {
    calls: AtomicU64,
    /// The last one has ended after it was closed.
    empty: Notify,
}

/// A call under way, until it is dropped.
pub(crate) struct CallUnderWay(Arc<Gate>);

impl Gate {
    /// A call begins; `None` if it is left to the next process.
    pub(crate) fn enter(gate: &Arc<Self>) -> Option<CallUnderWay> {
        let call = CallUnderWay(Arc::clone(gate));
        match gate.calls.fetch_add(1, Ordering::AcqRel) & CLOSED {
            0 => Some(call),
            _ => None,
        }
    }

    /// No further call begins.
    pub(crate) fn close(&self) {
        self.calls.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Returns when no call is under way, after the gate was closed.
    pub(crate) async fn until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            if self.calls.load(Ordering::Acquire) == CLOSED {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            self.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_closed_gate_is_empty_when_the_calls_of_before_have_ended() {
        let gate = Arc::new(Gate::default());
        let (one, other) = (Gate::enter(&gate), Gate::enter(&gate));
        assert!(one.is_some() && other.is_some());
        drop(one);
        gate.close();
        assert!(Gate::enter(&gate).is_none());
        let mut wait = pin!(gate.until_empty());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        drop(other);
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
