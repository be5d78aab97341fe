//! Waiting for the first of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

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
