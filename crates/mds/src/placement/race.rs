//! Waiting for the first of two things, or for all of many.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use sheen_io::BoxFuture;

/// Completes as soon as one of both does; whether it was the first.
pub(super) async fn race(
    first: impl Future<Output = ()>,
    second: impl Future<Output = ()>,
) -> bool {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|context| {
        if first.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        second.as_mut().poll(context).map(|()| false)
    })
    .await
}

/// Completes when all do; their results in order.
pub(super) async fn all<T>(futures: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, result) in futures.iter_mut().filter(|(_, result)| result.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, result)| result).collect()
}
