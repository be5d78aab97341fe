//! What the target initiates: callbacks and evictions. (Restarts: `super::replay`.)

use std::sync::Arc;

use bytes::Bytes;
use sheen_ldlm::{LockDesc, LockFlags, Policy};
use sheen_types::{Errno, InodeBits, LockHandle, LockMode};
use sheen_wire::ldlm::LdlmRequest;

use super::ClientNamespace;

impl ClientNamespace {
    /// `LDLM_BL_CALLBACK`: the target revokes a lock.
    ///
    /// # Errors
    /// `EINVAL` if we have no such lock: it was cancelled already.
    pub(crate) fn on_blocking(self: &Arc<Self>, request: &LdlmRequest) -> Result<(), Errno> {
        let handle = first(request)?;
        let mut wanted = LockDesc::from_wire(&request.desc).ok_or(Errno::EPROTO)?;
        if let Some(lock) =
            self.engine.lock(handle).filter(|lock| self.cancels_whole_lock(&lock.desc))
        {
            wanted.policy = lock.desc.policy;
        }
        let flags = LockFlags::from_server(request.flags);
        let mut actions = Vec::new();
        let now = self.world.clock.now();
        let known = self.engine.blocking(now, handle, &wanted, flags, &mut actions);
        self.perform(actions);
        // `UnknownLock` says no more.
        known.map_err(|_| Errno::EINVAL)
    }

    /// Whether a lock that is wanted in part is cancelled whole.
    fn cancels_whole_lock(&self, lock: &LockDesc) -> bool {
        lock.granted == Some(LockMode::Pw)
            && lock.policy.inode_bits().contains(InodeBits::DOM)
            && self.cache.cancels_whole_lock(lock.resource)
    }

    /// `LDLM_CP_CALLBACK`: a lock that waited is granted, with its value block if it has one.
    ///
    /// # Errors
    /// `EINVAL` if we have no such lock.
    pub(crate) fn on_completion(
        self: &Arc<Self>,
        request: &LdlmRequest,
        value: &Bytes,
    ) -> Result<(), Errno> {
        let handle = first(request)?;
        let desc = LockDesc::from_wire(&request.desc).ok_or(Errno::EPROTO)?;
        let waits = match self.waiting.lock().get_mut(&handle) {
            Some(waiter) => !std::mem::replace(&mut waiter.is_completed, true),
            None => false,
        };
        if waits && desc.granted.is_some() {
            self.cache.learn(desc.resource, &desc.policy, value);
        }
        let flags = LockFlags::from_server(request.flags);
        let mut actions = Vec::new();
        let now = self.world.clock.now();
        let known = self.engine.completion(now, handle, &desc, flags, &mut actions);
        self.perform(actions);
        // `UnknownLock` says no more.
        known.map_err(|_| Errno::EINVAL)
    }

    /// `LDLM_GL_CALLBACK`: size and times under a lock of ours.
    ///
    /// # Errors
    /// `EINVAL` if we have no such lock, `ELDLM_NO_LOCK_DATA` if we know no better than the
    /// server.
    pub(crate) fn on_glimpse(self: &Arc<Self>, request: &LdlmRequest) -> Result<Bytes, Errno> {
        let handle = first(request)?;
        let lock = self.engine.lock(handle).ok_or(Errno::EINVAL)?;
        let known = self.cache.glimpse(lock.desc.resource);
        let mut actions = Vec::new();
        self.engine.glimpsed(self.world.clock.now(), handle, &mut actions);
        self.perform(actions);
        known.ok_or(Errno::ELDLM_NO_LOCK_DATA)
    }

    /// Whether a callback is about one of our locks.
    #[must_use]
    pub fn owns(&self, request: &LdlmRequest) -> bool {
        first(request).is_ok_and(|handle| self.engine.lock(handle).is_some())
    }

    /// The target has evicted us.
    pub(crate) fn on_evicted(self: &Arc<Self>) {
        let mut actions = Vec::new();
        self.uncertain_flocks.lock().of.clear();
        self.engine.evict(&mut actions);
        self.perform(actions);
    }

    /// Whether there is no lock, none being enqueued and none whose cancel is unsent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let gauges = self.engine.gauges();
        let has_sent_all = self.cancels.is_idle();
        gauges.locks == 0 && gauges.resources == 0 && has_sent_all
    }
}

fn first(request: &LdlmRequest) -> Result<LockHandle, Errno> {
    request.handles.first().copied().ok_or(Errno::EPROTO)
}

/// The request that drops `drop` from a lock and keeps `keep`.
pub(super) fn convert_request(
    remote_handle: LockHandle,
    desc: LockDesc,
    drop: InodeBits,
    keep: InodeBits,
) -> LdlmRequest {
    let policy = Policy::InodeBits { bits: keep, try_bits: drop, gid: 0 };
    let desc = LockDesc { policy, ..desc }.to_wire();
    LdlmRequest { count: 1, desc, handles: vec![remote_handle], ..LdlmRequest::default() }
}
