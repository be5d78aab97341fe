//! On whose behalf something is done.
//!
//! A call of a mount belongs to a job. The code that polls the call says so for as long as it polls
//! ([`InJob`]), tasks that come of it belong to the same job ([`Tasks::spawn`](crate::Tasks::spawn) of a
//! host sees to that), and the node writes it into the requests it sends. So nothing in between passes it
//! on. Without a job it costs one look at a thread's own memory for each task and request.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use sheen_types::JobId;

thread_local! {
    static CURRENT: Cell<Option<JobId>> = const { Cell::new(None) };
}

/// The job that this thread works for now.
#[must_use]
pub fn current() -> Option<JobId> {
    CURRENT.get()
}

/// Puts the job before back, whatever happens in between.
struct Before(Option<JobId>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Works for `job`, or for none, while `work` runs.
pub fn within<T>(job: Option<JobId>, work: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(job));
    work()
}

/// A future that belongs to a job.
pub struct InJob<F> {
    job: JobId,
    future: F,
}

impl<F> InJob<F> {
    /// Polls `future` on behalf of `job`.
    pub fn new(job: JobId, future: F) -> Self {
        Self { job, future }
    }
}

impl<F: Future + Unpin> Future for InJob<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let job = self.job;
        within(Some(job), || Pin::new(&mut self.future).poll(context))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_job_is_known_while_its_future_is_polled() {
        let (outer, inner) = (JobId::new(b"outer"), JobId::new(b"inner"));
        let mut future = InJob::new(
            inner.expect("a name"),
            poll_fn(|_| if current() == inner { Poll::Ready(()) } else { Poll::Pending }),
        );
        let mut context = Context::from_waker(Waker::noop());
        within(outer, || {
            assert!(Pin::new(&mut future).poll(&mut context).is_ready());
            assert_eq!(current(), outer);
        });
        assert_eq!(current(), None);
    }
}
