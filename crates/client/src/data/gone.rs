//! Locks on objects of files whose last name this client has removed.
//!
//! Some time after the unlink the OST destroys the objects and first revokes their locks, each by a request
//! of its own, and each is answered by a cancel of its own. So the client cancels them before that: all that
//! came together in [`WAIT`], up to 500 in one request.
//!
//! Locks over dirty bytes stay until they are revoked. Only the OST knows whether these need not be written:
//! another client may have the file open.
//!
//! Costs: 1,000 removed files of 4 KiB whose locks are revoked are 1,000 callbacks and 1,000 cancels, as
//! counted; cancelled by the client they are one request for each OST and [`WAIT`].

use std::sync::Arc;
use std::time::Duration;

use sheen_types::ResourceName;

use super::data_target::DataTarget;

/// How long locks wait for more of their kind. An MDT destroys objects when the unlink is durable: after a
/// second or more.
const WAIT: Duration = Duration::from_millis(250);

impl DataTarget {
    /// Cancels the locks on an object in a while.
    pub(super) fn cancel_soon(self: &Arc<Self>, resource: ResourceName) {
        let mut gone = self.gone.lock();
        gone.push(resource);
        if gone.len() > 1 {
            return;
        }
        drop(gone);
        let target = Arc::clone(self);
        let task = async move {
            let clock = &target.shared.world.clock;
            clock.sleep_until(clock.now() + WAIT).await;
            let mut gone = std::mem::take(&mut *target.gone.lock());
            gone.retain(|resource| !target.is_dirty(*resource));
            target.locks().cancel_unused_on(&gone).await;
        };
        self.shared.world.tasks.spawn("locks of gone files", Box::pin(task));
    }

    pub(super) fn is_dirty(&self, resource: ResourceName) -> bool {
        self.object(resource).is_some_and(|object| object.state.lock().is_dirty())
    }
}
