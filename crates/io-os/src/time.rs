//! The clocks of Linux.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sheen_io::{BoxFuture, Clock};
use sheen_types::{Instant, Timestamp};
use tokio::runtime::Handle;

pub(crate) struct OsClock {
    handle: Handle,
    origin: std::time::Instant,
}

impl OsClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, origin: std::time::Instant::now() }
    }
}

impl Clock for OsClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Instant {
        Instant::default() + self.origin.elapsed()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        // Timers belong to a runtime; the caller may be on a thread that is not one of it.
        let _inside = self.handle.enter();
        let deadline = self.origin + Duration::from_nanos(deadline.0);
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }
}
