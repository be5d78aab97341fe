//! One value, from one task to another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// One value, which one task puts and another waits for. Both share it in an [`Arc`]: unlike a channel it has
/// no ends whose drop means something.
#[derive(Debug)]
pub struct Oneshot<T>(Mutex<OneshotState<T>>);

#[derive(Debug)]
enum OneshotState<T> {
    Waiting(Option<Waker>),
    Done(T),
    Taken,
}

impl<T> Oneshot<T> {
    /// Without a value.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(OneshotState::Waiting(None))))
    }

    /// Sets the value and wakes the task that waits for it, with no lock held.
    pub fn put(&self, value: T) {
        let before = std::mem::replace(&mut *self.0.lock(), OneshotState::Done(value));
        if let OneshotState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Takes the value. Only the task that polled last is woken for it.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, OneshotState::Taken) {
            OneshotState::Done(value) => Poll::Ready(value),
            OneshotState::Waiting(_) | OneshotState::Taken => {
                *state = OneshotState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Takes the value once it is there.
    pub async fn wait(&self) -> T {
        poll_fn(|context| self.poll(context)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_waiting_task_is_woken_once_and_takes_the_value() {
        let woken = Arc::new(Counted(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let value = Oneshot::new();
        assert_eq!(value.poll(&mut context), Poll::Pending);
        value.put(7);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(value.poll(&mut context), Poll::Ready(7));
        assert_eq!(value.poll(&mut context), Poll::Pending, "it is taken");
    }

    #[test]
    fn a_value_that_is_there_is_not_waited_for() {
        let mut context = Context::from_waker(Waker::noop());
        let value = Oneshot::new();
        value.put("early");
        assert_eq!(value.poll(&mut context), Poll::Ready("early"));
    }
}
