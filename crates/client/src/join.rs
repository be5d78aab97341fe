//! Several futures at once, in the caller's own task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Several futures, of which the results of some may be taken before the rest are done.
pub(crate) struct FutureSet<F: Future> {
    waiting: Vec<Pin<Box<F>>>,
    results: Vec<Option<F::Output>>,
}

impl<F: Future> FutureSet<F> {
    pub(crate) fn new(futures: Vec<F>) -> Self {
        let results = futures.iter().map(|_| None).collect();
        Self { waiting: futures.into_iter().map(Box::pin).collect(), results }
    }

    /// Drives them until the last is done. Dropped before that, it can be driven again.
    pub(crate) async fn finish(&mut self) {
        poll_fn(|context| {
            let mut pending = false;
            for (future, result) in self.waiting.iter_mut().zip(&mut self.results) {
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
    }

    /// Results of those that are done, in order.
    pub(crate) fn results(&self) -> &[Option<F::Output>] {
        &self.results
    }

    /// The same; the rest are dropped.
    pub(crate) fn into_results(self) -> Vec<Option<F::Output>> {
        self.results
    }
}

/// Drives all futures until the last is done; their results in order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut several = FutureSet::new(futures);
    several.finish().await;
    several.into_results().into_iter().flatten().collect()
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
