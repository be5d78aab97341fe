//! Tasks on the runtime's threads, jobs on its blocking threads.

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
