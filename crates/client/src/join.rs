//! Several futures at once, in the caller's own task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Drives all futures until the last is done; their results in order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

/// Drives both until one of them is done.
pub(crate) async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await;
}

/// The first failure of several, after all have ended.
pub(crate) async fn all_ok<F: Future<Output = Result<(), E>>, E>(futures: Vec<F>) -> Result<(), E> {
    all(futures).await.into_iter().collect()
}
