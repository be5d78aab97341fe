//! Tasks on the runtime's threads, jobs on its blocking threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use sheen_io::job::{self, InJob};
use sheen_io::{BoxFuture, Tasks};
use tokio::runtime::Handle;

pub(crate) struct OsTasks {
    handle: Handle,
}

impl OsTasks {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl Tasks for OsTasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        match job::current() {
            None => self.handle.spawn(task),
            Some(job) => self.handle.spawn(InJob::new(job, task)),
        };
    }

    fn begin(&self, name: &'static str, mut task: BoxFuture<'static, ()>) {
        // Nothing is lost on the waker: what is not ready is polled again by the task that it becomes.
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
        // A panic ends the task alone, as it does on the runtime; the hook has reported it.
        if matches!(polled, Ok(Poll::Pending)) {
            self.spawn(name, task);
        }
    }

    fn workers(&self) -> usize {
        self.handle.metrics().num_workers()
    }

    fn blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let job = self.handle.spawn_blocking(job);
        Box::pin(async move {
            if let Err(error) = job.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_begun_ends_here_if_it_can_and_elsewhere_if_it_waits() {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
        let tasks = OsTasks::new(runtime.handle().clone());
        let (sender, heard) = mpsc::channel();
        let here = sender.clone();
        tasks.begin("ready", Box::pin(async move { here.send(1).expect("heard") }));
        assert_eq!(heard.try_recv(), Ok(1));
        let (wake, woken) = tokio::sync::oneshot::channel();
        let waits = async move { sender.send(woken.await.expect("sent")).expect("heard") };
        tasks.begin("waits", Box::pin(waits));
        assert!(heard.try_recv().is_err());
        wake.send(2).expect("heard");
        assert_eq!(heard.recv(), Ok(2));
        tasks.begin("panics", Box::pin(async { panic!("of its own") }));
    }
}
