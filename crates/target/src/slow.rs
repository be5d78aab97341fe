//! Lines of the log about what takes long, while it can still be looked at: a client that does not cancel a
//! revoked lock, before it is evicted for that, and a request that is not answered.
//!
//! Each lock and each request has one line. The keeper of time looks for them now and then, so a request pays nothing.

use std::time::Duration;

use sheen_ldlm::Owner;
use sheen_ldlm::server::LockInfo;
use sheen_types::{Instant, ObdHandle};

use crate::in_progress::{RequestView, Wait};
use crate::limits::SLOW_REQUEST_AGE;
use crate::target::Target;

impl Target {
    pub(crate) fn log_slow(&self) {
        let (now, time) = (self.now(), self.timeouts().lock_callback);
        for lock in self.locks.late_holders(now + time / 2) {
            self.log_slow_cancel(&lock, now, time);
        }
        for request in self.slow_requests(now) {
            tracing::warn!(target = self.name(), client = %request.client, nid = %request.nid,
                request = request.kind.format().name, xid = %request.xid, seconds = request.age.as_secs(),
                waits_for = request.wait.name(), "a request takes long");
        }
    }

    fn log_slow_cancel(&self, lock: &LockInfo, now: Instant, time: Duration) {
        let (Owner::Export(handle), Some(deadline)) = (lock.owner, lock.deadline) else { return };
        let Some(export) = self.export(ObdHandle(handle)) else { return };
        let left = deadline.since(now);
        tracing::warn!(target = self.name(), client = %export.uuid(), nid = %export.nid(),
            resource = %lock.desc.resource, seconds = time.saturating_sub(left).as_secs(), left = left.as_secs(),
            "a client has not cancelled a revoked lock for half of its time, after which it is evicted");
    }

    /// Requests that are old and that no line names yet. Those that wait for recovery are not meant: its own lines
    /// say what it waits for.
    fn slow_requests(&self, now: Instant) -> Vec<RequestView> {
        let mut found = Vec::new();
        for export in self.exports() {
            let mut state = export.lock();
            let nid = state.nid;
            for (xid, request) in &mut state.in_progress {
                if request.is_reported || now.since(request.arrived) < SLOW_REQUEST_AGE {
                    continue;
                }
                let view = request.view(*xid, export.uuid(), nid, now);
                if view.wait != Wait::Recovery {
                    request.is_reported = true;
                    found.push(view);
                }
            }
        }
        found
    }
}
