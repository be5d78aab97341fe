//! A value that changes, and tasks that wait until it is what they want.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A value that many tasks may wait for. They are woken in the order in which they came: tokio's `watch`
/// spreads its waiters over lists and picks those at random, so that one seed of the simulator would go
/// many ways.
///
/// One lock, never held while a task is woken; no allocation but for the list of who waits.
#[derive(Debug)]
pub struct Watched<T> {
    state: Mutex<WatchedState<T>>,
}

#[derive(Debug)]
struct WatchedState<T> {
    value: T,
    /// Who waits, by when they came.
    waiting: BTreeMap<u64, Waker>,
    came: u64,
}

impl<T: Copy> Watched<T> {
    /// With its first value.
    pub fn new(value: T) -> Self {
        Self { state: Mutex::new(WatchedState { value, waiting: BTreeMap::new(), came: 0 }) }
    }

    /// The value now.
    pub fn get(&self) -> T {
        self.state.lock().value
    }

    /// Changes the value and wakes all who wait, to look whether it is what they want.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        let woken = {
            let mut state = self.state.lock();
            change(&mut state.value);
            std::mem::take(&mut state.waiting)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Completes with the value once it is wanted.
    pub fn until<F: Fn(T) -> bool>(self: &Arc<Self>, is_wanted: F) -> Until<T, F> {
        Until { watched: Arc::clone(self), is_wanted, place: None }
    }
}

/// See [`Watched::until`].
#[derive(Debug)]
pub struct Until<T, F> {
    watched: Arc<Watched<T>>,
    is_wanted: F,
    /// Its place among those who wait, kept when it is woken in vain.
    place: Option<u64>,
}

impl<T: Copy, F: Fn(T) -> bool + Unpin> Future for Until<T, F> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut state = this.watched.state.lock();
        if (this.is_wanted)(state.value) {
            return Poll::Ready(state.value);
        }
        let place = *this.place.get_or_insert_with(|| {
            state.came += 1;
            state.came
        });
        state.waiting.insert(place, context.waker().clone());
        Poll::Pending
    }
}

impl<T, F> Drop for Until<T, F> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.watched.state.lock().waiting.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Notes its number when it is woken.
    struct Noted(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Noted {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn who_waits_is_woken_in_order_and_who_has_gone_is_not() {
        let watched = Arc::new(Watched::new(0));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waker = |number| Waker::from(Arc::new(Noted(number, Arc::clone(&woken))));
        let mut waiting: Vec<_> =
            [3, 1, 2].iter().map(|wanted| watched.until(move |value| value >= *wanted)).collect();
        for (number, until) in (0..).zip(&mut waiting) {
            assert_eq!(poll(until, &waker(number)), Poll::Pending);
        }
        watched.change(|value| *value = 1);
        assert_eq!(std::mem::take(&mut *woken.lock()), [0, 1, 2]);
        // The last is polled first and keeps its place nevertheless.
        assert_eq!(poll(&mut waiting[2], &waker(2)), Poll::Pending);
        assert_eq!(poll(&mut waiting[0], &waker(0)), Poll::Pending);
        assert_eq!(poll(&mut waiting[1], &waker(1)), Poll::Ready(1));
        drop(waiting.remove(1));
        watched.change(|value| *value = 2);
        assert_eq!(std::mem::take(&mut *woken.lock()), [0, 2]);
        drop(waiting);
        watched.change(|value| *value = 3);
        assert!(woken.lock().is_empty());
        assert_eq!(watched.get(), 3);
    }
}
