//! Hands values from a reader task to the task that waits for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Deliveries that may pile up unread under one expectation: a reply and its early replies.
const PENDING_MAX: usize = 16;

struct QueueState<T> {
    values: VecDeque<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// A short queue with one reader. Clones share it.
pub(super) struct Queue<T>(Arc<Mutex<QueueState<T>>>);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = QueueState { values: VecDeque::new(), waker: None, closed: false };
        Self(Arc::new(Mutex::new(state)))
    }

    /// False: there is no room, the value is lost.
    pub(super) fn put(&self, value: T) -> bool {
        let mut state = self.0.lock();
        if state.closed || state.values.len() >= PENDING_MAX {
            return false;
        }
        state.values.push_back(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next value; `None` after the last.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        match state.values.pop_front() {
            Some(value) => Poll::Ready(Some(value)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
