//! Several futures in the caller's own task: the first of two, or all of many.
//!
//! They are polled in the order in which they are given, so that one seed of the simulator gives one run.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future whose type is not named.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which of two futures ended first, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<L, R> {
    /// The left one.
    Left(L),
    /// The right one.
    Right(R),
}

/// Drives both until one of them ends; the other is dropped. The left one is polled first.
pub async fn race<L, R>(
    left: impl Future<Output = L>,
    right: impl Future<Output = R>,
) -> First<L, R> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| match left.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(First::Left(value)),
        Poll::Pending => right.as_mut().poll(context).map(First::Right),
    })
    .await
}

/// The output of `work`; `None` if `end` completes before it.
pub async fn before<T>(work: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    match race(work, end).await {
        First::Left(value) => Some(value),
        First::Right(()) => None,
    }
}

/// Several futures, of which the outputs of some may be taken before the rest are done.
pub struct FutureSet<F: Future> {
    futures: Vec<F>,
    outputs: Vec<Option<F::Output>>,
}

impl<F: Future + Unpin> FutureSet<F> {
    /// A set of `futures`, none of which is polled yet.
    pub fn new(futures: Vec<F>) -> Self {
        let outputs = futures.iter().map(|_| None).collect();
        Self { futures, outputs }
    }

    /// Drives them until the last is done. Dropped before that, it can be driven again.
    pub async fn finish(&mut self) {
        poll_fn(|context| {
            let mut is_pending = false;
            for (future, output) in self.futures.iter_mut().zip(&mut self.outputs) {
                if output.is_none() {
                    match Pin::new(future).poll(context) {
                        Poll::Ready(value) => *output = Some(value),
                        Poll::Pending => is_pending = true,
                    }
                }
            }
            if is_pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Outputs of those that are done, in order.
    pub fn outputs(&self) -> &[Option<F::Output>] {
        &self.outputs
    }

    /// As [`FutureSet::outputs`]; what is not done is dropped.
    pub fn into_outputs(self) -> Vec<Option<F::Output>> {
        self.outputs
    }
}

/// Drives all futures until the last is done; their outputs in order.
pub async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    all_pinned(futures.into_iter().map(Box::pin).collect()).await
}

/// As [`all`], of futures that are pinned already.
pub async fn all_pinned<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut set = FutureSet::new(futures);
    set.finish().await;
    set.into_outputs().into_iter().flatten().collect()
}

/// The first failure of several, after all have ended.
pub async fn all_ok<F: Future<Output = Result<(), E>>, E>(futures: Vec<F>) -> Result<(), E> {
    all(futures).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    use super::*;

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Pending for the first `polls`, then `value`.
    async fn after<T>(mut polls: u32, value: T) -> T {
        poll_fn(|_| match polls.checked_sub(1) {
            None => Poll::Ready(()),
            Some(rest) => {
                polls = rest;
                Poll::Pending
            }
        })
        .await;
        value
    }

    #[test]
    fn the_left_future_wins_when_both_are_done() {
        assert_eq!(poll(race(ready(1), ready("b"))), Poll::Ready(First::Left(1)));
        assert_eq!(poll(race(pending::<()>(), ready("b"))), Poll::Ready(First::Right("b")));
        assert_eq!(poll(race(pending::<()>(), pending::<()>())), Poll::Pending);
    }

    #[test]
    fn work_that_is_done_counts_although_its_end_has_come() {
        assert_eq!(poll(before(ready(1), ready(()))), Poll::Ready(Some(1)));
        assert_eq!(poll(before(pending::<u32>(), ready(()))), Poll::Ready(None));
        assert_eq!(poll(before(pending::<u32>(), pending())), Poll::Pending);
    }

    #[test]
    fn outputs_are_in_the_order_of_the_futures() {
        let mut context = Context::from_waker(Waker::noop());
        let mut work = pin!(all(vec![after(2, 'a'), after(0, 'b'), after(1, 'c')]));
        assert_eq!(work.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(work.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(work.as_mut().poll(&mut context), Poll::Ready(vec!['a', 'b', 'c']));
        assert_eq!(poll(all(Vec::<std::future::Ready<u8>>::new())), Poll::Ready(vec![]));
    }

    #[test]
    fn a_set_keeps_what_was_done_when_its_driver_is_dropped() {
        let mut set = FutureSet::new(vec![Box::pin(after(1, 1)), Box::pin(after(0, 2))]);
        assert_eq!(poll(set.finish()), Poll::Pending);
        assert_eq!(set.outputs(), [None, Some(2)]);
        // It is not polled again: that would panic.
        assert_eq!(poll(set.finish()), Poll::Ready(()));
        assert_eq!(set.into_outputs(), [Some(1), Some(2)]);
    }

    #[test]
    fn a_failure_does_not_end_the_rest() {
        let ended = Cell::new(0);
        let one = |result| {
            let ended = &ended;
            async move {
                ended.set(ended.get() + 1);
                result
            }
        };
        let results = [Ok(()), Err("first"), Ok(()), Err("second")];
        assert_eq!(poll(all_ok(results.map(one).into())), Poll::Ready(Err("first")));
        assert_eq!(ended.get(), 4);
    }
}
