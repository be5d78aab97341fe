//! Locks that a server takes for itself, and how one becomes a client's.

use std::sync::Arc;

use sheen_ldlm::server::{Action, Enqueue, Enqueued, Spared};
use sheen_ldlm::{LockDesc, LockFlags, Owner, Policy};
use sheen_types::{Errno, Extent, Fid, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest, LockFlags as WireFlags};

use crate::context::Context;
use crate::in_progress::{Wait, while_waiting};
use crate::target::Target;

/// The lock that an enqueue asks for.
#[derive(Clone, Copy, Debug)]
pub struct EnqueueRequest {
    /// On what.
    pub resource: ResourceName,
    /// How strong.
    pub mode: LockMode,
    /// Which part.
    pub policy: Policy,
    /// Its handle at the client.
    pub remote_handle: LockHandle,
    /// What the client said about it.
    pub flags: WireFlags,
    /// Whether it may wait. A part of a batch may not: the client has locks from the parts before it, which
    /// it cannot cancel before it has the answer to all.
    pub waits: bool,
}

impl EnqueueRequest {
    /// What an enqueue of any kind asks for, from a client with which these inode bits were agreed on
    /// ([`known_bits`](crate::Export::known_bits)).
    ///
    /// # Errors
    /// [`Errno::EFAULT`] for a kind or mode that is none, [`Errno::EPROTO`] for bits of which none is known.
    pub fn of(lock: &LdlmRequest, known: InodeBits) -> Result<Self, Errno> {
        let (policy, mode) = LockDesc::wanted_from_wire(&lock.desc).ok_or(Errno::EFAULT)?;
        let policy = of_known_bits(policy, mode, known)?;
        Ok(Self {
            resource: lock.desc.resource.name,
            mode,
            policy,
            remote_handle: lock.handles.first().copied().unwrap_or_default(),
            flags: lock.flags,
            waits: true,
        })
    }
}

/// A granted lock of the server's own. Dropping it releases it; what was waiting for it is granted
/// at once.
///
/// Holding one across an await is what it is for. An operation that takes several takes them in the
/// order of their resource names, or in another order that all operations of the role keep.
pub struct LockGuard {
    target: Arc<Target>,
    resource: ResourceName,
    handle: LockHandle,
    mode: LockMode,
    policy: Policy,
    held: bool,
}

impl Target {
    /// Takes a lock for the server itself: revokes the conflicting locks and waits until all are
    /// cancelled. A client that does not cancel is evicted after [`crate::Timeouts::lock_callback`], or as much later
    /// as it goes on reading or writing under the lock. Its locks are free when its eviction is durable: with a disk
    /// that takes nothing this lasts until the target stops.
    ///
    /// No RPC and no wait if no lock conflicts.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] if it conflicts with a group lock: those are not revoked, and their clients have them as long as they
    /// like. Nor does one that is asked for later overtake this lock. [`Errno::ESHUTDOWN`] if the target stops.
    pub async fn lock(
        self: &Arc<Self>,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
    ) -> Result<LockGuard, Errno> {
        self.lock_with_flags(resource, policy, mode, LockFlags::NONE).await
    }

    /// Takes a lock on parts of an inode.
    ///
    /// # Errors
    /// As [`Target::lock`].
    pub async fn lock_inode(
        self: &Arc<Self>,
        fid: Fid,
        bits: InodeBits,
        mode: LockMode,
    ) -> Result<LockGuard, Errno> {
        self.lock(ResourceName::of_fid(fid), Policy::bits(bits), mode).await
    }

    /// Takes a lock on a range of bytes.
    ///
    /// # Errors
    /// As [`Target::lock`].
    pub async fn lock_extent(
        self: &Arc<Self>,
        resource: ResourceName,
        extent: Extent,
        mode: LockMode,
    ) -> Result<LockGuard, Errno> {
        self.lock(resource, Policy::extent(extent), mode).await
    }

    /// Takes a lock if none conflicts; revokes nothing.
    #[must_use]
    pub fn try_lock(
        self: &Arc<Self>,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
    ) -> Option<LockGuard> {
        let flags = LockFlags::TRY;
        let mut actions = Vec::new();
        let request = local(resource, policy, mode, flags);
        let enqueued = self.namespace().enqueue(self.now(), request, &mut actions);
        self.perform(actions);
        match enqueued {
            Enqueued::Granted(granted) => Some(LockGuard {
                target: Arc::clone(self),
                resource,
                handle: granted.handle,
                mode: granted.mode,
                policy: granted.policy,
                held: true,
            }),
            _ => None,
        }
    }

    /// As [`Target::lock`], with flags: `AST_DISCARD_DATA` asks holders to discard their dirty
    /// data, because the object is about to be destroyed.
    ///
    /// # Errors
    /// As [`Target::lock`].
    pub async fn lock_with_flags(
        self: &Arc<Self>,
        resource: ResourceName,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> Result<LockGuard, Errno> {
        self.enqueue_local(local(resource, policy, mode, flags)).await
    }

    /// Takes a lock on parts of an inode for a change that a client asks for: its own locks stay, if it corrects
    /// what they cover by itself.
    ///
    /// # Errors
    /// As [`Target::lock`].
    pub async fn lock_inode_sparing(
        self: &Arc<Self>,
        fid: Fid,
        bits: InodeBits,
        mode: LockMode,
        spares: Option<Spared>,
    ) -> Result<LockGuard, Errno> {
        let none = LockFlags::NONE;
        let asked = local(ResourceName::of_fid(fid), Policy::bits(bits), mode, none);
        self.enqueue_local(Enqueue { spares, ..asked }).await
    }

    async fn enqueue_local(self: &Arc<Self>, request: Enqueue) -> Result<LockGuard, Errno> {
        let Enqueue { resource, policy, mode, .. } = request;
        let mut actions = Vec::new();
        let enqueued = self.namespace().enqueue(self.now(), request, &mut actions);
        let mut guard = LockGuard {
            target: Arc::clone(self),
            resource,
            handle: LockHandle(0),
            mode,
            policy,
            held: false,
        };
        match enqueued {
            Enqueued::Granted(granted) => {
                guard.take(granted.handle, granted.mode, granted.policy);
                self.perform(actions);
                Ok(guard)
            }
            Enqueued::Waiting { handle, .. } => {
                // From here on dropping the guard gives the lock up even while it waits.
                guard.take(handle, mode, policy);
                let granted = self.waiters().register(handle);
                self.perform(actions);
                let granted = while_waiting(Wait::Lock, granted).await;
                let desc: LockDesc = granted.map_err(|_| Errno::ESHUTDOWN)?;
                guard.take(handle, desc.granted.unwrap_or(mode), desc.policy);
                Ok(guard)
            }
            Enqueued::Denied(errno) => Err(errno),
            Enqueued::WouldBlock | Enqueued::Tested(_) => Err(Errno::EAGAIN),
        }
    }
}

impl LockGuard {
    /// The lock's handle, which it keeps when it becomes a client's.
    #[must_use]
    pub fn handle(&self) -> LockHandle {
        self.handle
    }

    /// Which part, with the bits that were tried and free.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Weakens the lock, so that compatible ones can be granted.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if `mode` is stronger than what is held.
    pub fn downgrade(&mut self, mode: LockMode) -> Result<(), Errno> {
        let mut actions = Vec::new();
        let now = self.target.now();
        let done = self.target.namespace().downgrade(now, self.handle, mode, &mut actions);
        self.target.perform(actions);
        done.map_err(|error| error.errno())?;
        self.mode = mode;
        Ok(())
    }

    /// Makes the lock that of the client, which asked for it with `enqueue`. The answer goes into
    /// the reply of the intent; the role adds the intent's disposition and error.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if the client has left meanwhile.
    pub fn hand_over(
        mut self,
        context: &Context,
        enqueue: &EnqueueRequest,
    ) -> Result<LdlmReply, Errno> {
        if let Some(held) = context.resent_lock(enqueue) {
            return Ok(held);
        }
        let export = context.export.handle().0;
        let now = self.target.now();
        let namespace = self.target.namespace();
        let mut actions = Vec::new();
        let granted = namespace
            .hand_over(now, self.handle, export, enqueue.remote_handle, &mut actions)
            .map_err(|error| error.errno())?;
        self.held = false;
        self.target.perform(actions);
        // Only a lock that another one waits for has a deadline: a long listing hands over thousands that none does.
        if granted.flags.contains(LockFlags::AST_SENT) {
            self.target.lock_timer_changed();
        }
        // An eviction may have swept the client's locks just before this one became the client's.
        if context.export.state() == crate::ExportState::Gone {
            self.target.drop_late_lock(&context.export);
            return Err(Errno::ENOTCONN);
        }
        let changed = LockFlags::LOCK_CHANGED;
        let differs = self.resource != enqueue.resource
            || granted.mode != enqueue.mode
            || covers_other_bits(granted.policy, enqueue.policy);
        let flags = granted.flags | changed.when(differs);
        let desc = LockDesc {
            resource: self.resource,
            policy: granted.policy,
            requested: granted.mode,
            granted: Some(granted.mode),
        };
        Ok(lock_reply(granted.handle, &desc, flags))
    }

    fn take(&mut self, handle: LockHandle, mode: LockMode, policy: Policy) {
        (self.handle, self.mode, self.policy, self.held) = (handle, mode, policy, true);
    }
}

impl Context {
    /// The lock that the first execution of a request gave to the client, for a request that is sent again. It must
    /// get this one and no other, because the first answer may still arrive.
    #[must_use]
    pub fn resent_lock(&self, enqueue: &EnqueueRequest) -> Option<LdlmReply> {
        if !self.is_resent() {
            return None;
        }
        let lock = self.target.namespace().find(self.export.handle().0, enqueue.remote_handle)?;
        let revoked = LockFlags::AST_SENT.when(lock.is_waited_for);
        let differs = lock.desc.resource != enqueue.resource
            || lock.desc.granted != Some(enqueue.mode)
            || covers_other_bits(lock.desc.policy, enqueue.policy);
        let flags = revoked | LockFlags::LOCK_CHANGED.when(differs);
        Some(lock_reply(lock.handle, &lock.desc, flags))
    }
}

/// Whether a lock is on other parts of an inode than were asked for: without `LOCK_CHANGED` a client of Lustre goes
/// on with what it asked for.
fn covers_other_bits(granted: Policy, asked: Policy) -> bool {
    match (granted, asked) {
        (Policy::InodeBits { bits, .. }, Policy::InodeBits { bits: asked, .. }) => bits != asked,
        _ => false,
    }
}

/// A policy of bits that are known, and without a group where none is asked for. Each combination of these is a group of
/// its own among the granted locks of an inode, and each check for conflicts looks at all groups. A client that did not
/// agree on a bit does not know what it covers, and may be one that only claims not to know.
fn of_known_bits(policy: Policy, mode: LockMode, known: InodeBits) -> Result<Policy, Errno> {
    let Policy::InodeBits { bits, try_bits, gid } = policy else { return Ok(policy) };
    let known = |bits: InodeBits| bits.intersection(known);
    let asked = bits.union(try_bits);
    if !asked.is_empty() && known(asked).is_empty() {
        return Err(Errno::EPROTO);
    }
    let gid = if mode == LockMode::Group { gid } else { 0 };
    Ok(Policy::InodeBits { bits: known(bits), try_bits: known(try_bits), gid })
}

/// A lock for the server itself.
fn local(resource: ResourceName, policy: Policy, mode: LockMode, flags: LockFlags) -> Enqueue {
    let remote_handle = LockHandle(0);
    Enqueue { resource, policy, mode, flags, owner: Owner::Local, remote_handle, spares: None }
}

/// A lock as the reply to an enqueue describes it.
pub(crate) fn lock_reply(handle: LockHandle, desc: &LockDesc, flags: LockFlags) -> LdlmReply {
    LdlmReply { flags: flags.to_wire(), desc: desc.to_wire(), handle, ..LdlmReply::default() }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.held {
            let mut actions: Vec<Action> = Vec::new();
            let now = self.target.now();
            self.target.namespace().cancel(now, Owner::Local, &[self.handle], &mut actions);
            self.target.waiters().forget(self.handle);
            self.target.perform(actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::ldlm::{
        InodeBitsPolicy, LdlmLockDesc, LdlmResourceDesc, LockType, Policy as WirePolicy,
    };

    use super::*;

    /// One of four locks that differ in meaningless bits and groups alone was a group of its own each.
    #[test]
    fn a_client_asks_for_no_bits_that_mean_nothing() {
        let of = |bits, try_bits, gid, mode: LockMode, bits_known| {
            let resource = LdlmResourceDesc { kind: LockType::IBITS, ..Default::default() };
            let policy = InodeBitsPolicy { bits, try_bits, gid, ..Default::default() };
            let policy = WirePolicy::inode_bits(&policy);
            let desc =
                LdlmLockDesc { resource, policy, req_mode: mode.into(), ..Default::default() };
            let request = LdlmRequest::enqueue(WireFlags::NONE, desc, LockHandle(1));
            EnqueueRequest::of(&request, bits_known).map(|asked| asked.policy)
        };
        let old = InodeBits::ALL.without(InodeBits::DOM);
        let ask = |bits, try_bits, gid, mode| of(bits, try_bits, gid, mode, InodeBits::ALL);
        let known = |bits, try_bits, gid| {
            let (bits, try_bits) = (InodeBits(bits), InodeBits(try_bits));
            Ok(Policy::InodeBits { bits, try_bits, gid })
        };
        assert_eq!(ask(0x7f, 0, 0, LockMode::Pr), known(0x7f, 0, 0));
        assert_eq!(ask(1 << 63 | 0x83, 0x180, 0, LockMode::Pr), known(3, 0, 0));
        assert_eq!(ask(0x80, 0x102, 0, LockMode::Pr), known(0, 2, 0));
        assert_eq!(ask(0x80, 0x100, 0, LockMode::Pr), Err(Errno::EPROTO));
        assert_eq!(
            ask(0, 0, 0, LockMode::Pr),
            known(0, 0, 0),
            "an intent that leaves them to the server"
        );
        assert_eq!(ask(2, 0, 77, LockMode::Pr), known(2, 0, 0), "no group lock");
        assert_eq!(ask(0x40, 0, 77, LockMode::Group), known(0x40, 0, 77));
        // Nor such as were not agreed on with it.
        assert_eq!(of(0x43, 0x44, 0, LockMode::Pr, old), known(3, 4, 0));
        assert_eq!(of(0x40, 0, 7, LockMode::Group, old), Err(Errno::EPROTO));
    }
}
