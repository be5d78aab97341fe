//! A lock being enqueued, and a reference to one in use.

use std::sync::Arc;

use bytes::Bytes;
use sheen_ldlm::client::Reply;
use sheen_ldlm::{LockDesc, LockFlags, Policy};
use sheen_types::{Errno, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use tokio::sync::oneshot;

use super::{ClientNamespace, LockRequest, Waiter};

/// A reference to a lock in use. The lock is not cancelled while this lives; dropping this leaves it cached, or lets it
/// be cancelled if it was revoked. Costs nothing but a map access at both ends.
pub struct LockReference {
    namespace: Arc<ClientNamespace>,
    handle: LockHandle,
    mode: LockMode,
    /// The mode in which the engine counts us as a user: the one asked for.
    counted: LockMode,
    policy: Policy,
    resource: ResourceName,
}

impl LockReference {
    pub(super) fn new(
        namespace: &Arc<ClientNamespace>,
        resource: ResourceName,
        handle: LockHandle,
        (mode, counted): (LockMode, LockMode),
        policy: Policy,
    ) -> Self {
        Self { namespace: Arc::clone(namespace), handle, mode, counted, policy, resource }
    }

    /// Our cookie of the lock.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle
    }

    /// What it is on: an intent may have changed that.
    #[must_use]
    pub fn resource(&self) -> ResourceName {
        self.resource
    }

    /// The mode given, which may be another than asked for.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// What it covers, which may be more than asked for.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The inode bits it covers.
    #[must_use]
    pub fn bits(&self) -> InodeBits {
        self.policy.inode_bits()
    }

    /// Whether the target still knows the lock, as far as this client knows.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.namespace.engine.lock(self.handle).is_some()
    }

    /// Cancels the lock now instead of caching it.
    pub fn cancel(mut self) {
        let handle = std::mem::take(&mut self.handle);
        let mut actions = Vec::new();
        let now = self.namespace.world.clock.now();
        self.namespace.engine.release_and_cancel(now, handle, self.counted, &mut actions);
        self.namespace.perform(actions);
    }
}

impl Drop for LockReference {
    fn drop(&mut self) {
        if self.handle == LockHandle(0) {
            return;
        }
        let mut actions = Vec::new();
        let now = self.namespace.world.clock.now();
        self.namespace.engine.release(now, self.handle, self.counted, &mut actions);
        self.namespace.perform(actions);
    }
}

/// A lock whose request is under way. Dropping it withdraws the request: a lock that is granted after all is
/// cancelled at once.
pub struct PendingLock {
    pub(super) namespace: Arc<ClientNamespace>,
    handle: LockHandle,
    pub(super) request: LockRequest,
    /// The target's cookie of the lock, as soon as an answer has named it; 0 before.
    pub(super) answered: LockHandle,
    answer: Option<oneshot::Receiver<Result<LockDesc, Errno>>>,
}

impl PendingLock {
    /// One that the engine has begun under this handle.
    pub(super) fn new(
        namespace: &Arc<ClientNamespace>,
        request: LockRequest,
        handle: LockHandle,
    ) -> Self {
        let (waiter, answer) = oneshot::channel();
        namespace
            .waiting
            .lock()
            .insert(handle, Waiter { answer: Some(waiter), is_completed: false });
        let (namespace, answered) = (Arc::clone(namespace), LockHandle(0));
        Self { namespace, handle, request, answered, answer: Some(answer) }
    }

    /// Our cookie.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle
    }

    /// The lock part of the request.
    #[must_use]
    pub fn request(&self) -> LdlmRequest {
        let desc = LockDesc {
            resource: self.request.resource,
            policy: self.request.policy,
            requested: self.request.mode,
            granted: None,
        };
        LdlmRequest::enqueue(self.request.flags.to_wire(), desc.to_wire(), self.handle)
    }

    /// The lock part of a request with an intent, which carries the cancels of these locks, too: it counts the lock
    /// itself as one of them.
    pub(crate) fn intent_request(&self, early: Vec<LockHandle>) -> LdlmRequest {
        let mut request = self.request();
        request.count += early.len() as u32;
        request.handles.truncate(1);
        request.handles.extend(early);
        request
    }

    /// The request of one without an intent, which counts nothing if it carries no cancels.
    pub(crate) fn plain_request(&self, early: Vec<LockHandle>) -> LdlmRequest {
        let has_cancels = !early.is_empty();
        let request = self.intent_request(early);
        LdlmRequest { count: if has_cancels { request.count } else { 0 }, ..request }
    }

    /// Takes the target's reply, which came over this connection, and waits until the lock is granted.
    /// `None`: the target granted no lock, as an intent may, or has restarted since and does not know it any
    /// more.
    ///
    /// # Errors
    /// Why it will never be granted; `EPROTO` for a reply that describes no lock.
    pub async fn granted(
        self,
        reply: &LdlmReply,
        connection: u32,
    ) -> Result<Option<LockReference>, Errno> {
        self.granted_with(reply, &Bytes::new(), connection).await
    }

    /// As [`PendingLock::granted`], of a reply with the lock value block `value`.
    pub(crate) async fn granted_with(
        mut self,
        reply: &LdlmReply,
        value: &Bytes,
        connection: u32,
    ) -> Result<Option<LockReference>, Errno> {
        // The value of a lock that was lost in the restart may be older than what other clients wrote since.
        if reply.handle == LockHandle(0) || self.namespace.engine.has_replayed_since(connection) {
            return Ok(None);
        }
        let desc = LockDesc::from_wire(&reply.desc).ok_or(Errno::EPROTO)?;
        // If the lock has to wait, the reply's value block is older than what its former holder flushed.
        if desc.granted.is_some() && !self.is_completed() {
            self.namespace.cache.learn(desc.resource, &desc.policy, value);
        }
        let flags = LockFlags::from_server(reply.flags);
        let reply = Reply { remote_handle: reply.handle, desc, flags, connection };
        let mut actions = Vec::new();
        let now = self.namespace.world.clock.now();
        let info = self.namespace.engine.replied(now, self.handle, &reply, &mut actions);
        self.namespace.perform(actions);
        // All that the engine says: it has no such lock.
        let Ok(info) = info else { return Err(self.refused()) };
        let Some(info) = info else { return Ok(None) };
        let desc = match info.desc.granted {
            Some(_) => info.desc,
            None => self.wait().await?,
        };
        self.namespace.waiting.lock().remove(&self.handle);
        self.answer = None;
        let mode = desc.granted.unwrap_or(desc.requested);
        let (namespace, handle) = (Arc::clone(&self.namespace), self.handle);
        namespace.shrink();
        let modes = (mode, self.request.mode);
        Ok(Some(LockReference::new(&namespace, desc.resource, handle, modes, desc.policy)))
    }

    /// Why the engine has no such lock any more: a completion callback that overtook the reply may have said so.
    fn refused(&mut self) -> Errno {
        match self.answer.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(Err(errno))) => {
                self.namespace.waiting.lock().remove(&self.handle);
                self.answer = None;
                errno
            }
            _ => {
                let namespace = self.namespace.name();
                tracing::warn!(namespace, lock = %self.handle, "reply for no lock");
                Errno::EIO
            }
        }
    }

    fn is_completed(&self) -> bool {
        let waiting = self.namespace.waiting.lock();
        waiting.get(&self.handle).is_some_and(|waiter| waiter.is_completed)
    }

    async fn wait(&mut self) -> Result<LockDesc, Errno> {
        let Some(answer) = &mut self.answer else { return Err(Errno::EIO) };
        match answer.await {
            Ok(Ok(desc)) => Ok(desc),
            Ok(Err(errno)) => {
                // The engine has forgotten the lock already.
                self.namespace.waiting.lock().remove(&self.handle);
                self.answer = None;
                Err(errno)
            }
            // Only a namespace that is gone answers no waiter.
            Err(_) => Err(Errno::EIO),
        }
    }
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        if self.answer.take().is_none() {
            return;
        }
        self.namespace.waiting.lock().remove(&self.handle);
        let mut actions = Vec::new();
        // The server may have it on its list already: it must be sent a cancel, since no caller waits any
        // more.
        let lock = self.namespace.engine.lock(self.handle);
        let known = lock.map(|lock| [lock.remote_handle, self.answered]);
        let known = known.into_iter().flatten().find(|handle| *handle != LockHandle(0));
        if let Some(handle) = known {
            self.namespace.cancel([handle]);
        }
        self.namespace.engine.failed(self.handle, Errno::EINTR, &mut actions);
        self.namespace.perform(actions);
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::ldlm::LockFlags as WireFlags;

    use super::*;
    use crate::testing::Fixture;

    /// `LDLM_FL_FLOCK_DEADLOCK`.
    const DEADLOCK: u32 = 0x8000;

    #[test]
    fn a_refusal_that_overtakes_the_reply_says_why() {
        let fixture = Fixture::new();
        let policy = Policy::Flock { start: 0, end: 9, owner: 1, pid: 1 };
        let (resource, mode) = (ResourceName::default(), LockMode::Ex);
        let request = LockRequest { resource, policy, mode, flags: LockFlags::NONE };
        let pending = fixture.locks.begin(request);
        // A lock that waits, as the reply and the callback describe it.
        let desc = pending.request().desc;
        let handles = vec![pending.handle()];
        let refusal =
            LdlmRequest { flags: WireFlags(DEADLOCK), desc: desc.clone(), count: 1, handles };
        fixture.locks.on_completion(&refusal, &Bytes::new()).expect("it is known");
        let reply = LdlmReply { desc, handle: LockHandle(7), ..LdlmReply::default() };
        fixture.world.run(async move {
            let answer = pending.granted(&reply, 1).await;
            assert_eq!(answer.map(|lock| lock.is_some()), Err(Errno::EDEADLK));
        });
    }
}
