//! Sends the requests that ask for a lock, and follows each to its answer, also where its caller goes before.
//!
//! A lock that the target grants in an answer is this client's, whether or not a caller still waits for it: it
//! must be cancelled. A blocking callback would say so later. But if another client wanted the lock when the
//! answer was made, the answer itself says so (`AST_SENT`), no callback follows, and a client that has not
//! read the answer is evicted.
//!
//! Costs nothing for a caller that stays; a task for one that goes.

use std::future::poll_fn;
use std::sync::Arc;

use sheen_io::{BoxFuture, Tasks};
use sheen_ldlm::Policy;
use sheen_rpc::{Answer, Call, Channel, RpcError};
use sheen_types::{Errno, LockMode};
use sheen_wire::ldlm::LdlmReply;

use super::PendingLock;
use crate::call::{TypedReply, TypedRequest, typed_answer};

/// What a request asks for: one lock, or many. Dropped, it withdraws what no answer has granted, and cancels what
/// one has.
pub(super) trait Awaited: Send + 'static {
    /// The caller has gone before the answer to what it has sent.
    fn note_gone(&mut self) {}

    /// Notes what an answer grants that no caller takes.
    fn note_abandoned(&mut self, answer: Answer);

    /// Where a task can wait for the answer.
    fn tasks(&self) -> Arc<dyn Tasks>;
}

/// A request under way. Dropped before its answer, it leaves a task that waits for that.
struct InFlight<P: Awaited> {
    answer: Option<BoxFuture<'static, Result<Answer, RpcError>>>,
    pending: Option<P>,
    /// A request is sent by the first poll of its future.
    is_sent: bool,
}

/// Sends `call`, which asks for `pending`.
pub(super) async fn send<P: Awaited>(
    pending: P,
    channel: &Arc<dyn Channel>,
    call: Call,
) -> (P, Result<Answer, RpcError>) {
    let mut flight =
        InFlight { answer: Some(channel.call(call)), pending: Some(pending), is_sent: false };
    let answer = poll_fn(|context| {
        flight.is_sent = true;
        let answer = flight.answer.as_mut().expect("it is taken below");
        answer.as_mut().poll(context)
    })
    .await;
    flight.answer = None;
    (flight.pending.take().expect("it is taken here"), answer)
}

impl PendingLock {
    /// Sends `call`, made from an `R`, which asks for this lock: its lock part is one of [`PendingLock`]'s.
    ///
    /// # Errors
    /// As [`crate::call::call`].
    pub(crate) async fn send<R: TypedRequest>(
        self,
        channel: &Arc<dyn Channel>,
        call: Call,
    ) -> Result<(Self, TypedReply<R>), Errno> {
        let (mut pending, answer) = send(self, channel, call).await;
        let answer = answer.map_err(|error| error.errno())?;
        pending.note(answer.reply.enqueued_lock(), answer.connection);
        Ok((pending, typed_answer(answer)?))
    }

    /// As [`PendingLock::send`]; if this is dropped after it was sent, `dispose` gets the answer when it comes: the
    /// target may have opened a file.
    ///
    /// # Errors
    /// As [`crate::call::call`].
    pub(crate) async fn send_or_dispose<R: TypedRequest>(
        self,
        channel: &Arc<dyn Channel>,
        call: Call,
        dispose: impl FnOnce(&Answer) + Send + 'static,
    ) -> Result<(Self, TypedReply<R>), Errno> {
        let pending = Disposing { pending: self, dispose: Some(dispose) };
        let (Disposing { mut pending, .. }, answer) = send(pending, channel, call).await;
        let answer = answer.map_err(|error| error.errno())?;
        pending.note(answer.reply.enqueued_lock(), answer.connection);
        Ok((pending, typed_answer(answer)?))
    }

    /// Notes the lock that an answer grants, or puts into the queue: dropped from now on, this cancels it.
    pub(super) fn note(&mut self, lock: Option<&LdlmReply>, connection: u32) {
        // One of a process's flocks may have merged with its earlier ones, which are in use; all that it
        // has goes when it ends.
        if matches!(self.request.policy, Policy::Flock { .. }) {
            return;
        }
        let lock = lock.map(|lock| lock.handle).unwrap_or_default();
        if !self.namespace.engine.has_replayed_since(connection) {
            self.answered = lock;
        }
    }
}

impl Awaited for PendingLock {
    fn note_gone(&mut self) {
        if let (Policy::Flock { owner, .. }, false) =
            (self.request.policy, self.request.mode == LockMode::Nl)
        {
            self.namespace.note_uncertain_flock(self.request.resource, owner);
        }
    }

    fn note_abandoned(&mut self, answer: Answer) {
        let lock = answer.reply.enqueued_lock();
        let is_flock = matches!(self.request.policy, Policy::Flock { .. });
        match lock.filter(|lock| is_flock && lock.desc.granted_mode.mode().is_none()) {
            // It waits there, and is part of no other one.
            Some(waits) => self.answered = waits.handle,
            None => self.note(lock, answer.connection),
        }
    }

    fn tasks(&self) -> Arc<dyn Tasks> {
        Arc::clone(&self.namespace.world.tasks)
    }
}

/// A lock whose answer brings more than a lock, which is to be disposed of where no caller takes it.
struct Disposing<F> {
    pending: PendingLock,
    dispose: Option<F>,
}

impl<F: FnOnce(&Answer) + Send + 'static> Awaited for Disposing<F> {
    fn note_abandoned(&mut self, answer: Answer) {
        self.dispose.take().into_iter().for_each(|dispose| dispose(&answer));
        self.pending.note_abandoned(answer);
    }

    fn tasks(&self) -> Arc<dyn Tasks> {
        self.pending.tasks()
    }
}

impl<P: Awaited> Drop for InFlight<P> {
    fn drop(&mut self) {
        let (Some(mut pending), Some(answer), true) =
            (self.pending.take(), self.answer.take(), self.is_sent)
        else {
            return;
        };
        pending.note_gone();
        let tasks = pending.tasks();
        let wait = async move {
            if let Ok(answer) = answer.await {
                pending.note_abandoned(answer);
            }
        };
        tasks.spawn("lock abandoned", Box::pin(wait));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use sheen_types::{Fid, InodeBits, LockHandle};
    use sheen_wire::messages::Request;

    use super::*;
    use crate::testing::{Fixture, found, name};
    use crate::types::NodeId;

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const REMOTE: u64 = 0x77;

    fn cancelled(fixture: &Fixture) -> Vec<LockHandle> {
        let cancels = fixture.mdt.take_asked().into_iter().filter_map(|request| match request {
            Request::LdlmCancel(cancel) => Some(cancel.dlm_req.handles),
            _ => None,
        });
        cancels.flatten().filter(|handle| *handle != LockHandle(0)).collect()
    }

    #[test]
    fn a_lock_that_comes_after_its_caller_has_gone_is_cancelled() {
        let fixture = Fixture::new();
        let hold = Arc::new(tokio::sync::Notify::new());
        *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
        fixture.mdt.answer(found(FILE, 0o100_644, REMOTE, InodeBits::LOOKUP | InodeBits::UPDATE));
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let (who, name) = (Fixture::root(), name("f"));
            let mut lookup = Box::pin(files.lookup(&who, NodeId::ROOT, &name));
            let first = poll_fn(|context| Poll::Ready(lookup.as_mut().poll(context).is_pending()));
            assert!(first.await, "the answer is on its way");
        });
        assert_eq!(cancelled(&fixture), []);
        assert!(!fixture.locks.is_empty(), "a callback for it must find it");
        hold.notify_one();
        fixture.world.settle();
        assert_eq!(cancelled(&fixture), [LockHandle(REMOTE)]);
    }
}
