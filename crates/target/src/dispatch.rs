//! From an arrived request to its answer. The steps of a request, each the function of that name:
//!
//! 1. `handle` takes it from the node ([`sheen_rpc::Handler`]), has `serve` take it through all that follows, and
//!    counts how long that took.
//! 2. `connect` answers it if it is a connect. Any other request names the export of its client.
//! 3. `check` and `may_ask` refuse what is not to be executed at all.
//! 4. `ProgressGuard::begin` enters it among the requests in progress. One that is there already only brings a newer route
//!    for the one reply. That is a resend over another NID, after a reconnect: one from the same NID does not come this
//!    far while the first runs, for `sheen_rpc::service` keeps it, and runs it if the first ends unanswered.
//! 5. `execute` waits until recovery admits it, and marks it as a replay if it is one (`wait_for_recovery`; what it changes
//!    for a role says [`Context::replay`]).
//! 6. The role's `reconstruct` answers it if it was executed before; else `dispatch` looks at its kind: pings,
//!    disconnects and plain locks are the target's own, an enqueue with an intent is the role's `intent`, a glimpse its
//!    `glimpse_enqueue`, and all else its `operate`.
//! 7. `answer` makes the reply of the outcome, by the newest route.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sheen_rpc::{BoxFuture, Handler, IncomingRequest, Replier};
use sheen_types::{Errno, Nid, ObdHandle, Uuid, Xid};
use sheen_wire::messages::{FormatFlags, Kind, Request};
use sheen_wire::ptlrpc::MsgFlags;

use crate::context::Context;
use crate::export::{Export, ExportState};
use crate::fault::{FaultAction, FaultSite};
use crate::in_progress::{RequestInProgress, followed};
use crate::last_rcvd::ReplyRecord;
use crate::operations::{ExportEnd, Outcome};
use crate::replays::FalseReplay;
use crate::services;
use crate::target::Target;

impl Handler for Target {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        let target = self.arc();
        let (portal, arrived) = (incoming.portal, incoming.arrived);
        let line = services::line_of(&incoming.request);
        Box::pin(async move {
            target.serve(incoming).await;
            let time = target.now().since(arrived).as_micros();
            target.services.count(portal, line, u64::try_from(time).unwrap_or(u64::MAX));
        })
    }

    fn owns(&self, export: ObdHandle) -> bool {
        self.export(export).is_some()
    }

    fn has_client_at(&self, nid: Nid) -> bool {
        self.exports.is_at(nid)
    }
}

/// Why a request is not executed.
enum Refused {
    /// It came over a connection that is no more.
    Dropped,
    /// Its client gets this error.
    With(Errno),
    /// And is evicted.
    FalseReplay(FalseReplay),
}

/// How a request ends that has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is not answered: it was lost on the way, or its client is to send it again.
    Lost,
    /// Its client gets this error.
    With(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::With(errno)
    }
}

/// A request's entry among those in progress, until it ends or is dropped.
struct ProgressGuard {
    export: Arc<Export>,
    /// `None` when it has ended.
    xid: Option<Xid>,
}

impl ProgressGuard {
    /// Enters the request. If the same one is in progress already, the newer reply route is kept
    /// for the one answer, and `None` says that there is nothing else to do.
    fn begin(
        export: &Arc<Export>,
        xid: Xid,
        request: RequestInProgress,
        replier: Replier,
    ) -> Option<(Self, Replier)> {
        let mut state = export.lock();
        if let Some(running) = state.in_progress.get_mut(&xid) {
            running.newer = Some(replier);
            return None;
        }
        state.in_progress.insert(xid, request);
        Some((Self { export: Arc::clone(export), xid: Some(xid) }, replier))
    }

    /// Removes the entry, once: one that is there after that is of the same request come again. Returns the newer
    /// reply route, if one came meanwhile.
    fn end(&mut self) -> Option<Replier> {
        let xid = self.xid.take()?;
        self.export.lock().in_progress.remove(&xid)?.newer
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.end();
    }
}

impl Target {
    async fn serve(self: &Arc<Self>, incoming: IncomingRequest) {
        let Some(incoming) = self.connect(incoming).await else { return };
        let kind = incoming.request.kind();
        let Some(export) = self.export(incoming.body.handle) else {
            return self.refuse(incoming.replier, Errno::ENOTCONN);
        };
        self.record_client(export.uuid());
        let checked = self.check(&export, &incoming);
        if let Err(refused) = checked.and_then(|()| self.may_ask(&export, &incoming)) {
            return self.answer_refused(&export, refused, incoming.replier);
        }
        let IncomingRequest {
            from,
            xid,
            body,
            request,
            replier,
            bulk,
            arrived,
            reply_bytes_max,
            ..
        } = incoming;
        let entry = RequestInProgress::new(kind, arrived);
        let current = entry.waits_for.clone();
        let begun = ProgressGuard::begin(&export, xid, entry, replier);
        let Some((mut progress, replier)) = begun else { return };
        let context = Context {
            target: Arc::clone(self),
            export,
            from,
            xid,
            body,
            bulk,
            arrived,
            reply_bytes_max,
            transno: AtomicU64::new(0),
            replay: OnceLock::new(),
            unanswered: AtomicBool::new(false),
        };
        let counter = self.operations.counter_of(&request);
        let executed = followed(current, self.execute(&context, kind, request)).await;
        // Before the way back is dropped: a copy that the service keeps is executed then, if this is not answered.
        let newer = progress.end();
        let unanswered = context.unanswered.load(Ordering::Acquire);
        let outcome = match executed {
            _ if unanswered => return,
            Ok(outcome) => Ok(outcome),
            Err(Failure::With(errno)) => Err(errno),
            Err(Failure::Lost) => return,
        };
        // What was in progress when its export went fails for that, which an intent says in an answer of its own.
        let fails = || outcome.is_err() || context.export.state() == ExportState::Gone;
        let is_stopping = self.stopping.load(Ordering::Acquire) && fails();
        if is_stopping || self.cannot_replay(&context, &outcome) {
            // Not the operation's fault: the client asks again when the target is back.
            return;
        }
        let replier = newer.unwrap_or(replier);
        if let Some(counter) = counter {
            context.count_time(counter);
        }
        self.answer(&context, kind, outcome, replier);
    }

    /// Adds to the span of a request whose it is. Costs one load of the log's level where it is not that low.
    pub(crate) fn record_client(&self, client: &Uuid) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let span = tracing::Span::current();
            span.record("target", self.name()).record("client", client.as_str());
        }
    }

    fn answer_refused(self: &Arc<Self>, export: &Arc<Export>, refused: Refused, replier: Replier) {
        match refused {
            Refused::Dropped => drop(self.stats.dropped.fetch_add(1, Ordering::Relaxed)),
            Refused::With(errno) => self.refuse(replier, errno),
            Refused::FalseReplay(why) => {
                self.fail_export(export, why);
                self.refuse(replier, Errno::ENODEV);
            }
        }
    }

    /// Whether a replay was refused by a store that changes nothing more. If that were answered, the
    /// client would forget a change that it and other clients have seen done.
    fn cannot_replay(&self, context: &Context, outcome: &Result<Outcome, Errno>) -> bool {
        let is_refused = outcome.as_ref().map_or(true, |outcome| outcome.status < 0);
        is_refused && context.replay().is_some() && self.history.has_failed()
    }

    /// Whether a request is to be executed at all.
    fn check(&self, export: &Export, incoming: &IncomingRequest) -> Result<(), Refused> {
        let body = &incoming.body;
        let mut state = export.lock();
        if state.state == ExportState::Awaited || state.state == ExportState::Gone {
            return Err(Refused::With(Errno::ENOTCONN));
        }
        // The handle is another client's: the client is known from its connect.
        if incoming.from != state.nid || state.is_proven && !incoming.is_proven {
            let nid = state.nid;
            drop(state);
            self.refusals.warn(self.now(), |more| {
                tracing::warn!(target = self.name(), client = %export.uuid(), %nid, more,
                    from = %incoming.from, "a request with the handle of a client elsewhere: refused");
            });
            return Err(Refused::With(Errno::ENOTCONN));
        }
        if body.conn_cnt < state.conn_cnt {
            return Err(Refused::Dropped);
        }
        let kind = incoming.request.kind();
        self.check_replay(state.state, kind, body).map_err(Refused::FalseReplay)?;
        state.last_request = self.now();
        if body.last_xid > state.last_xid {
            state.last_xid = body.last_xid;
            let seen = body.last_xid;
            state.replies.forget_seen(seen);
        }
        // An answer is kept for each tag: there must not be more than were agreed on.
        if body.tag > state.tag_max {
            return Err(Refused::With(Errno::EPROTO));
        }
        // The client has given this request up, and a delayed copy of it arrives.
        if incoming.xid <= state.last_xid && !body.flags.contains(MsgFlags::REPLAY) {
            return Err(Refused::With(Errno::EPROTO));
        }
        Ok(())
    }

    /// Whether the client may ask for this at all: what servers ask of each other, only servers may.
    fn may_ask(&self, export: &Export, incoming: &IncomingRequest) -> Result<(), Refused> {
        let format = incoming.request.format();
        if !format.flags.contains(FormatFlags::SERVER) || export.is_server() {
            return Ok(());
        }
        self.refusals.warn(self.now(), |more| {
            tracing::warn!(target = self.name(), client = %export.uuid(), nid = %export.nid(), more,
                request = format.name, "a client asks what only servers may: refused");
        });
        Err(Refused::With(Errno::EPERM))
    }

    /// Executes a request when its time has come.
    async fn execute(
        self: &Arc<Self>,
        context: &Context,
        kind: Kind,
        request: Request,
    ) -> Result<Outcome, Failure> {
        self.check_fault_site(FaultSite::Request(kind)).await?;
        let _replay = self.wait_for_recovery(context, kind, &request).await?;
        let outcome = match self.record_of(context) {
            Some(record) => {
                self.stats.reconstructed.fetch_add(1, Ordering::Relaxed);
                context.transno.store(record.transno.0, Ordering::Release);
                let again = self.operations.reconstruct(context, request, record).await;
                Self::forget_if_failed(context, &again);
                again
            }
            None => self.dispatch(context, request).await,
        };
        match self.check_fault_site(FaultSite::Reply(kind)).await {
            Ok(()) => Ok(outcome?),
            Err(Failure::With(errno)) => Err(context.fail_after_execution(errno).into()),
            Err(Failure::Lost) => Err(Failure::Lost),
        }
    }

    async fn check_fault_site(&self, site: FaultSite) -> Result<(), Failure> {
        match self.faults.pass(site) {
            None => Ok(()),
            Some(FaultAction::Drop) => Err(Failure::Lost),
            Some(FaultAction::Fail(errno)) => Err(errno.into()),
            Some(FaultAction::Delay(time)) => {
                self.world.clock.sleep_until(self.now() + time).await;
                Ok(())
            }
        }
    }

    /// The record of the answer, if the request was executed before.
    fn record_of(&self, context: &Context) -> Option<ReplyRecord> {
        if !context.body.flags.intersects(MsgFlags::RESENT | MsgFlags::REPLAY) {
            return None;
        }
        let state = context.export.lock();
        state.replies.of(context.xid).cloned()
    }

    async fn dispatch(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
    ) -> Result<Outcome, Errno> {
        if request.format().flags.contains(FormatFlags::CALLBACK) {
            return Err(Errno::EOPNOTSUPP);
        }
        match &request {
            Request::ObdPing(_) => Ok(Outcome::default()),
            Request::MgsDisconnect(_) | Request::MdsDisconnect(_) | Request::OstDisconnect(_) => {
                self.drop_export(&context.export, ExportEnd::Disconnected).await;
                Ok(Outcome::default())
            }
            Request::LdlmConvert(convert) => Ok(self.convert(context, &convert.dlm_req)),
            Request::LdlmCancel(cancel) => Ok(self.cancel(context, &cancel.dlm_req)),
            _ => match request.enqueued_lock().cloned() {
                Some(lock) => self.enqueue(context, request, &lock).await,
                None => self.operations.operate(context, request).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_rpc::Replier;
    use sheen_types::Instant;

    use super::*;

    #[test]
    fn an_entry_is_removed_once() {
        let export = Export::new(Uuid::new("one"), ObdHandle(1), 1, ExportState::Full);
        let export = Arc::new(export);
        let begin = || {
            let request = RequestInProgress::new(Kind::ObdPing, Instant(0));
            ProgressGuard::begin(&export, Xid(7), request, Replier::new(|_, _| {}))
        };
        let (mut first, _) = begin().expect("no other has it");
        assert!(begin().is_none(), "it is in progress");
        assert!(first.end().is_some(), "the newer reply route");
        // It comes again before the first is gone.
        let (second, _) = begin().expect("it is free");
        drop(first);
        assert!(begin().is_none(), "the second is in progress still");
        drop(second);
        assert!(begin().is_some());
    }
}
