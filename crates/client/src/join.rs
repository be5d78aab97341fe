//! Several futures at once, in the caller's own task.

use std::future::poll_fn;
use std::task::Poll;

use sheen_io::BoxFuture;

/// Drives all futures until the last is done; their results in order.
pub(crate) async fn join_all<T: Send>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
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
