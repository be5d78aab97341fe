//! Lock requests of clients: enqueue, convert, cancel, and cancels that ride on other requests.

use std::sync::Arc;

use sheen_ldlm::server::{Enqueue, Enqueued, Granted, LockInfo};
use sheen_ldlm::{LockDesc, LockFlags, LockKind, Owner, Policy};
use sheen_types::{Errno, InodeBits, LockHandle, LockMode};
use sheen_wire::ldlm::{
    LdlmLockDesc, LdlmReply, LdlmRequest, LockFlags as WireFlags, Policy as WirePolicy,
};
use sheen_wire::messages::{LdlmConvertReply, LdlmEnqueueReply, Request};

use crate::context::Context;
use crate::enqueue_request::EnqueueRequest;
use crate::export_state::ExportState;
use crate::failure::FalseReplay;
use crate::locks::lock_reply;
use crate::operations::Outcome;
use crate::target::Target;

/// `ELDLM_NO_LOCK_DATA`: a positive status, "there is no such lock".
const NO_LOCK_DATA: i32 = 303;

impl Context {
    /// Cancels the locks that a request names beside its own business (early cancel), so that the
    /// server need not revoke them. Requests that carry a `dlm_req` for this only pass 0 as
    /// `first`.
    pub fn cancel_early(&self, locks: &LdlmRequest, first: usize) {
        let handles = locks.counted().get(first..).unwrap_or_default();
        if !handles.is_empty() {
            self.target.cancel_locks(self, handles);
        }
    }

    /// As [`Self::cancel_early`], for what any request names.
    pub fn cancel_early_of(&self, request: &Request) {
        if let Some((locks, first)) = cancelled_early(request) {
            self.cancel_early(locks, first);
        }
    }
}

/// The locks that a request cancels beside its own business, and the first of them.
fn cancelled_early(request: &Request) -> Option<(&LdlmRequest, usize)> {
    let alone = match request {
        Request::MdsReintSetattr(request) => request.dlm_req.as_ref(),
        Request::MdsReintCreate(request) => request.dlm_req.as_ref(),
        Request::MdsReintCreateSym(request) => request.dlm_req.as_ref(),
        Request::MdsReintLink(request) => request.dlm_req.as_ref(),
        Request::MdsReintUnlink(request) => request.dlm_req.as_ref(),
        Request::MdsReintRmentry(request) => request.dlm_req.as_ref(),
        Request::MdsReintRename(request) => request.dlm_req.as_ref(),
        Request::MdsReintMigrate(request) => request.dlm_req.as_ref(),
        Request::MdsReintSetxattr(request) => request.dlm_req.as_ref(),
        Request::MdsSwapLayouts(request) => request.dlm_req.as_ref(),
        _ => return request.enqueued_lock().map(|lock| (lock, 1)),
    };
    alone.map(|locks| (locks, 0))
}

impl Target {
    /// An LDLM_ENQUEUE of any kind: one with an intent is the role's, one whose lock is there is answered as it was,
    /// any other asks for a lock, or replays one.
    pub(crate) async fn enqueue(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        lock: &LdlmRequest,
    ) -> Result<Outcome, Errno> {
        context.cancel_early(lock, 1);
        let enqueue = EnqueueRequest::of(lock, context.export.known_bits())?;
        if !self.operations.has_locks(&enqueue.resource, enqueue.policy.kind()) {
            return Err(Errno::EPROTO);
        }
        let replays = enqueue.flags.contains(WireFlags::REPLAY);
        let export = context.export.handle().0;
        let is_repeated = replays || context.is_resent();
        let known = is_repeated.then(|| self.locks.find(export, enqueue.remote_handle)).flatten();
        // What was asked before is answered as it was. The client's word that it was is not enough.
        if !replays && known.is_none() {
            self.check_enqueue_budget(context, &enqueue)?;
        }
        if enqueue.flags.contains(WireFlags::HAS_INTENT) && !replays {
            match request {
                Request::LdlmEnqueue(_) if self.operations.is_glimpse(context, &enqueue) => {
                    return self.operations.glimpse_enqueue(context, enqueue).await;
                }
                Request::LdlmEnqueue(_) => {}
                intent => return self.operations.intent(context, intent, enqueue).await,
            }
        }
        match known {
            Some(lock) => self.answer_known_lock(&lock, replays).await,
            None if replays => self.replay_lock(context, &enqueue).await,
            None => {
                let enqueued = self.ask_for_lock(context, &enqueue)?;
                self.answer_enqueue(&enqueue, enqueued).await
            }
        }
    }

    /// One question of a batch, with an intent. It does not wait ([`EnqueueRequest::waits`]), cancels no other locks,
    /// and is no replay.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] if it is something else, and why it is refused.
    pub async fn enqueue_batched(
        self: &Arc<Self>,
        context: &Context,
        intent: Request,
    ) -> Result<Outcome, Errno> {
        let lock = intent.enqueued_lock().ok_or(Errno::EPROTO)?;
        let asked = EnqueueRequest::of(lock, context.export.known_bits())?;
        let enqueue = EnqueueRequest { waits: false, ..asked };
        let has_locks = self.operations.has_locks(&enqueue.resource, enqueue.policy.kind());
        let is_intent = enqueue.flags.contains(WireFlags::HAS_INTENT);
        if !has_locks || !is_intent || enqueue.flags.contains(WireFlags::REPLAY) {
            return Err(Errno::EPROTO);
        }
        if context.resent_lock(&enqueue).is_none() {
            self.check_enqueue_budget(context, &enqueue)?;
        }
        self.operations.intent(context, intent, enqueue).await
    }

    /// Whether the client may have one more lock of this kind.
    fn check_enqueue_budget(
        self: &Arc<Self>,
        context: &Context,
        enqueue: &EnqueueRequest,
    ) -> Result<(), Errno> {
        let is_flock = enqueue.policy.kind() == LockKind::Flock;
        let owner = Owner::Export(context.export.handle().0);
        // What cuts a lock in two makes one more, beside the one that it asks for itself.
        if is_flock && self.locks.cuts_flock(enqueue.resource, owner, enqueue.policy) {
            self.check_flock_budget(&context.export)?;
        }
        // An unlock of flocks arrives as an enqueue of one more, and must pass above all where there
        // are too many.
        if is_flock && enqueue.mode == LockMode::Nl {
            return Ok(());
        }
        self.check_lock_budget(&context.export)?;
        match is_flock {
            true => self.check_flock_budget(&context.export),
            false => Ok(()),
        }
    }

    /// A lock that the client had before the target restarted.
    async fn replay_lock(
        self: &Arc<Self>,
        context: &Context,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        if !context.replays_lock() {
            self.fail_export(&context.export, FalseReplay::Lock);
            return Err(Errno::ENODEV);
        }
        self.check_replayed_lock_budget(&context.export)?;
        let enqueued = self.ask_for_lock(context, enqueue)?;
        // The client was evicted before the restart and does not know: what it has cached is old,
        // and what it is about to write again would overwrite bytes of other clients.
        if matches!(enqueued, Enqueued::Denied(Errno::ESTALE)) {
            let client = context.export.uuid();
            tracing::warn!(target = self.name(), %client, resource = %enqueue.resource,
                "client claims a lock that another has, evicting it");
            self.evict_soon(&context.export);
            return Err(Errno::ENOTCONN);
        }
        self.answer_enqueue(enqueue, enqueued).await
    }

    /// Asks the namespace for the client's lock.
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`] if the client has been evicted meanwhile: it gets none.
    fn ask_for_lock(
        self: &Arc<Self>,
        context: &Context,
        enqueue: &EnqueueRequest,
    ) -> Result<Enqueued, Errno> {
        let mut actions = Vec::new();
        let request = Enqueue {
            resource: enqueue.resource,
            policy: enqueue.policy,
            mode: enqueue.mode,
            flags: LockFlags::from_request(enqueue.flags),
            owner: Owner::Export(context.export.handle().0),
            remote_handle: enqueue.remote_handle,
            spares: None,
        };
        let enqueued = self.locks.enqueue(self.now(), request, &mut actions);
        self.perform(actions);
        let waits = matches!(enqueued, Enqueued::Waiting { .. });
        if waits && enqueue.policy.kind() == LockKind::Flock {
            self.flock_waits(&context.export);
        }
        if context.export.state() == ExportState::Gone {
            self.drop_late_lock(&context.export);
            return Err(Errno::ENOTCONN);
        }
        Ok(enqueued)
    }

    async fn answer_enqueue(
        self: &Arc<Self>,
        enqueue: &EnqueueRequest,
        enqueued: Enqueued,
    ) -> Result<Outcome, Errno> {
        let desc = LockDesc {
            resource: enqueue.resource,
            policy: enqueue.policy,
            requested: enqueue.mode,
            granted: None,
        };
        match enqueued {
            Enqueued::Granted(Granted { handle, mode, policy, flags }) => {
                let desc = LockDesc { policy, requested: mode, granted: Some(mode), ..desc };
                let replays = enqueue.flags.contains(WireFlags::REPLAY);
                self.answer_lock(handle, &desc, flags | echoed(enqueue), !replays).await
            }
            Enqueued::Waiting { handle, flags } => {
                // An object's value says what is known before the lock comes.
                let with_value = match desc.policy {
                    Policy::Extent { .. } => true,
                    policy => policy.inode_bits().contains(InodeBits::DOM),
                };
                self.answer_lock(handle, &desc, flags | echoed(enqueue), with_value).await
            }
            Enqueued::WouldBlock => Err(Errno::EAGAIN),
            Enqueued::Denied(errno) => Err(errno),
            Enqueued::Tested(conflicting) => {
                let free = LockDesc { requested: LockMode::Nl, ..desc };
                let found = conflicting.unwrap_or(free);
                let flags = LockFlags::LOCK_CHANGED | echoed(enqueue);
                self.answer_lock(LockHandle(0), &found, flags, false).await
            }
        }
    }

    /// Answers a resent or replayed enqueue whose lock is there.
    async fn answer_known_lock(
        self: &Arc<Self>,
        lock: &LockInfo,
        replays: bool,
    ) -> Result<Outcome, Errno> {
        let waits = LockFlags::BLOCK_WAIT.when(lock.desc.granted.is_none());
        let sent = LockFlags::AST_SENT.when(lock.is_waited_for);
        let flags = waits | sent | LockFlags::REPLAY.when(replays);
        let with_value = !replays && lock.desc.granted.is_some();
        self.answer_lock(lock.handle, &lock.desc, flags, with_value).await
    }

    async fn answer_lock(
        self: &Arc<Self>,
        handle: LockHandle,
        desc: &LockDesc,
        flags: LockFlags,
        with_value: bool,
    ) -> Result<Outcome, Errno> {
        let value = match with_value {
            true => self.operations.lock_value(self, desc).await,
            false => Ok(bytes::Bytes::new()),
        };
        let value = value.inspect_err(|_| {
            let mut actions = Vec::new();
            if let Some(lock) = self.locks.lock(handle) {
                self.locks.cancel(self.now(), lock.owner, &[handle], &mut actions);
            }
            self.perform(actions);
        })?;
        Ok(Outcome::ok(LdlmEnqueueReply {
            dlm_rep: Some(lock_reply(handle, desc, flags)),
            dlm_lvb: value,
            ..LdlmEnqueueReply::default()
        }))
    }

    /// LDLM_CONVERT: the request names the bits that the client keeps.
    pub(crate) fn convert(&self, context: &Context, request: &LdlmRequest) -> Outcome {
        let handle = request.counted().first().or(request.handles.first());
        let handle = handle.copied().unwrap_or_default();
        let owner = Owner::Export(context.export.handle().0);
        let Some(lock) = self.locks.lock(handle).filter(|lock| lock.owner == owner) else {
            return Outcome { status: NO_LOCK_DATA, reply: None };
        };
        // Lustre's clients say neither the resource nor its kind: only inode bits are converted.
        let kept = InodeBits(request.desc.policy.as_inode_bits().bits);
        if request.desc.req_mode.mode() != lock.desc.granted {
            return Errno::EPROTO.into();
        }
        let dropped = lock.desc.policy.inode_bits().without(kept);
        let mut actions = Vec::new();
        let converted = self.locks.convert(self.now(), owner, handle, dropped, &mut actions);
        self.perform(actions);
        match converted {
            Ok(bits) => {
                // As Lustre: the bits that are left, and nothing else of the lock.
                let policy = WirePolicy::of_inode_bits(bits, InodeBits(0));
                Outcome::ok(LdlmConvertReply {
                    dlm_rep: Some(LdlmReply {
                        flags: request.flags,
                        desc: LdlmLockDesc { policy, ..LdlmLockDesc::default() },
                        handle: lock.remote_handle,
                        ..LdlmReply::default()
                    }),
                    ..LdlmConvertReply::default()
                })
            }
            Err(_) => Outcome { status: NO_LOCK_DATA, reply: None },
        }
    }

    /// LDLM_CANCEL.
    pub(crate) fn cancel(&self, context: &Context, request: &LdlmRequest) -> Outcome {
        match self.cancel_locks(context, request.counted()) {
            0 => Errno::ESTALE.into(),
            _ => Outcome::default(),
        }
    }

    fn cancel_locks(&self, context: &Context, handles: &[LockHandle]) -> usize {
        let mut actions = Vec::new();
        let owner = Owner::Export(context.export.handle().0);
        let cancelled = self.locks.cancel(self.now(), owner, handles, &mut actions);
        self.locks_cancelled(&context.export, cancelled);
        self.perform(actions);
        cancelled
    }
}

/// The flags of a request that come back with its answer.
fn echoed(enqueue: &EnqueueRequest) -> LockFlags {
    let asked = WireFlags::AST_DISCARD_DATA
        | WireFlags::BLOCK_NOWAIT
        | WireFlags::HAS_INTENT
        | WireFlags::NO_EXPANSION
        | WireFlags::TEST_LOCK
        | WireFlags::REPLAY;
    LockFlags::from_request(enqueue.flags & asked)
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::{MdsReintMigrate, MdsReintRmentry};

    use super::*;

    #[test]
    fn a_migration_and_a_bare_name_s_removal_cancel_locks_early() {
        let dlm_req = Some(LdlmRequest::cancel(vec![LockHandle(7)]));
        let migrate = MdsReintMigrate { dlm_req: dlm_req.clone(), ..MdsReintMigrate::default() };
        let remove = MdsReintRmentry { dlm_req: dlm_req.clone(), ..MdsReintRmentry::default() };
        for request in [Request::from(migrate), Request::from(remove)] {
            let found = cancelled_early(&request);
            assert_eq!(
                found.map(|(locks, first)| (Some(locks.clone()), first)),
                Some((dlm_req.clone(), 0))
            );
        }
    }
}
