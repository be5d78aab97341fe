//! Two futures of which the first to finish counts.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use sheen_io::Clock;

/// Which one it was.
pub(super) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Runs both; the left one is asked first.
pub(super) async fn race<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(value));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}

/// `None`: it took too long.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    duration: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let deadline = clock.sleep_until(clock.now() + duration);
    match race(work, deadline).await {
        First::Left(value) => Some(value),
        First::Right(()) => None,
    }
}
