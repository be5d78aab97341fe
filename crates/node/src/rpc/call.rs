//! What a caller waits on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sheen_io::{Oneshot, job};
use sheen_rpc::import::Event;
use sheen_rpc::{Answer, Call, OnAnswer, RpcError, subject_of};
use sheen_wire::text::Chars;
use tracing::{Span, field};

use super::import::NodeImport;

/// Where a call's answer will be.
pub(super) type PendingAnswer = Arc<Oneshot<Result<Answer, RpcError>>>;

/// Who gets a call's answer.
pub(super) enum Waiter {
    Caller(PendingAnswer),
    Unawaited(OnAnswer),
}

impl Waiter {
    pub(super) fn finish(self, result: Result<Answer, RpcError>) {
        match self {
            Self::Caller(answer) => answer.put(result),
            Self::Unawaited(then) => then(result),
        }
    }
}

/// The call is made for the job that its caller works for.
pub(super) fn for_current_job(mut call: Call) -> Call {
    if let Some(job) = job::current().filter(|_| call.body.jobid.as_bytes().is_empty()) {
        call.body.jobid = Chars::new(job.as_bytes());
    }
    call
}

/// A call: submitted when first polled, given up when dropped before it ended.
pub(super) struct CallFuture {
    import: Arc<NodeImport>,
    call: Option<Box<Call>>,
    waiting: Option<(u64, PendingAnswer)>,
    /// What the lines belong to that are logged about it.
    span: Span,
}

impl CallFuture {
    pub(super) fn new(import: Arc<NodeImport>, call: Call) -> Self {
        let span = tracing::debug_span!("rpc", request = call.request.format().name,
            target = %import.target(), xid = field::Empty,
            fid = subject_of(&call.request).map(field::display));
        Self { import, call: Some(Box::new(for_current_job(call))), waiting: None, span }
    }
}

impl Future for CallFuture {
    type Output = Result<Answer, RpcError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _entered = this.span.enter();
        if let Some(call) = this.call.take() {
            let (key, answer) = this.import.new_call();
            this.waiting = Some((key, answer));
            this.import.handle(Event::Submit(key, call));
        }
        let Some((_, answer)) = &this.waiting else { return Poll::Pending };
        let result = std::task::ready!(answer.poll(context));
        this.waiting = None;
        log_answer(&this.span, &result);
        Poll::Ready(result)
    }
}

/// The xid is that of the server's lines: an engine gives it when it sends.
fn log_answer(span: &Span, result: &Result<Answer, RpcError>) {
    match result {
        Ok(answer) => {
            span.record("xid", answer.xid.0);
            tracing::debug!(status = answer.body.status, "answered");
        }
        Err(error) => tracing::debug!(%error, "not answered, or refused"),
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        if let Some((key, _)) = self.waiting.take() {
            self.import.forget_call(key);
            self.import.handle(Event::GiveUp(key));
        }
    }
}
