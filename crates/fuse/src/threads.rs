//! Threads of the mount's own, and what is tried again where the system gives none.

use std::io;
use std::time::Duration;

use tokio::runtime::Handle;

/// What a thread does.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Asks the system for a thread.
type Start = Box<dyn Fn(&'static str, Work) -> io::Result<()> + Send + Sync>;

/// Where threads come from.
pub(crate) struct Threads {
    start: Start,
    runtime: Handle,
}

impl Threads {
    /// From the system; what is tried again is a task of `runtime`.
    pub(crate) fn new(runtime: Handle) -> Self {
        let start = |name: &'static str, work: Work| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
        };
        Self { start: Box::new(start), runtime }
    }

    /// From a system that refuses as long as `refuses` says so.
    #[cfg(test)]
    pub(crate) fn refused(
        runtime: Handle,
        refuses: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let threads = Self::new(runtime.clone());
        let start = move |name, work| match refuses() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => threads.start(name, work),
        };
        Self { start: Box::new(start), runtime }
    }

    /// Starts one.
    ///
    /// # Errors
    /// `EAGAIN` where a limit of the user, the group or the system is reached, `ENOMEM`. `work` was dropped.
    pub(crate) fn start(&self, name: &'static str, work: Work) -> io::Result<()> {
        (self.start)(name, work)
    }

    /// Has `again` called, on a thread that must not be held up.
    pub(crate) fn later(&self, pause: Duration, again: impl FnOnce() + Send + 'static) {
        self.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            again();
        });
    }
}

/// A runtime for tests, for as long as their process lives.
#[cfg(test)]
pub(crate) fn runtime() -> Handle {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    let begin = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().expect("a runtime")
    };
    RUNTIME.get_or_init(begin).handle().clone()
}
