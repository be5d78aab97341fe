//! Running a request: on the thread that read it as far as that goes, then on the runtime.
//!
//! An answer from the cache is ready at the first poll. What waits for a server stays here until it
//! is woken, and only then becomes a task of the runtime, on the thread that brought the answer: a
//! request that waits once costs no switch of threads beside that one. (Handed over at once it
//! would cost a wake-up for a poll that finds nothing.)

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use sheen_io::job;
use sheen_types::JobId;
use tokio::runtime::Handle;
use tracing::Span;

/// What answers a request. It comes boxed: it may have kilobytes, which every function that it is handed
/// to by value, and every wrapper of it, would copy.
pub(crate) type Answering = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request being answered, and what is to be dropped when it is.
struct Work<W> {
    future: Answering,
    /// Whose work it is.
    job: Option<JobId>,
    /// What it is, for lines of the log.
    span: Span,
    _until_done: W,
}

impl<W: Unpin> Future for Work<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { future, job, span, .. } = &mut *self;
        let _entered = span.enter();
        match *job {
            None => future.as_mut().poll(context),
            job => job::within(job, || future.as_mut().poll(context)),
        }
    }
}

enum State<W> {
    /// Being polled for the first time.
    Polled,
    /// Woken during that poll.
    Woken,
    /// Waits.
    Waiting(Work<W>),
    /// Done, or the runtime has it.
    Gone,
}

struct First<W> {
    state: Mutex<State<W>>,
    runtime: Handle,
}

impl<W: Send + Unpin + 'static> Wake for First<W> {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut *state, State::Gone);
        if matches!(before, State::Polled | State::Woken) {
            *state = State::Woken;
        }
        drop(state);
        if let State::Waiting(work) = before {
            drop(self.runtime.spawn(work));
        }
    }
}

/// Runs `work` to its end on behalf of `job` and within `span`, and then drops `until_done`.
pub(crate) fn drive<W: Send + Unpin + 'static>(
    runtime: &Handle,
    (job, span): (Option<JobId>, Span),
    work: Answering,
    until_done: W,
) {
    let _context = runtime.enter();
    let mut work = Work { future: work, job, span, _until_done: until_done };
    let first = Arc::new(First { state: Mutex::new(State::Polled), runtime: runtime.clone() });
    let waker = Waker::from(Arc::clone(&first));
    if Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_ready() {
        return;
    }
    let mut state = first.state.lock();
    if matches!(*state, State::Polled) {
        *state = State::Waiting(work);
        return;
    }
    drop(state);
    drop(runtime.spawn(work));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_is_ready_needs_no_runtime_and_what_waits_goes_on_when_woken() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let (done, finished) = std::sync::mpsc::channel();
        let sender = done.clone();
        let work = Box::pin(async move { sender.send(0).expect("received") });
        drive(runtime.handle(), (None, Span::none()), work, ());
        assert_eq!(finished.try_recv(), Ok(0));
        let (wake, woken) = oneshot::channel();
        let sender = done.clone();
        drive(
            runtime.handle(),
            (None, Span::none()),
            Box::pin(async move {
                let number = woken.await.expect("sent");
                tokio::time::sleep(Duration::from_millis(1)).await;
                sender.send(number).expect("received");
            }),
            (),
        );
        assert!(finished.try_recv().is_err());
        wake.send(7).expect("waited for");
        assert_eq!(finished.recv_timeout(Duration::from_secs(5)), Ok(7));
        drive(
            runtime.handle(),
            (None, Span::none()),
            Box::pin(async move {
                // Woken during its first poll.
                tokio::task::yield_now().await;
                done.send(8).expect("received");
            }),
            (),
        );
        assert_eq!(finished.recv_timeout(Duration::from_secs(5)), Ok(8));
    }
}
