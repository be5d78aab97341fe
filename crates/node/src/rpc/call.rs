//! What a caller waits on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use sheen_io::job;
use sheen_rpc::import::Event;
use sheen_rpc::{Answer, Call, RpcError, Then, subject_of};
use sheen_wire::text::Chars;
use tracing::{Span, field};

use super::import::Core;

enum CellState<T> {
    Waiting(Option<Waker>),
    Done(T),
    Taken,
}

/// One value, handed from one task to another.
pub(super) struct Cell<T>(Mutex<CellState<T>>);

impl<T> Cell<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(CellState::Waiting(None))))
    }

    pub(super) fn put(&self, value: T) {
        let before = std::mem::replace(&mut *self.0.lock(), CellState::Done(value));
        if let CellState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, CellState::Taken) {
            CellState::Done(value) => Poll::Ready(value),
            CellState::Waiting(_) | CellState::Taken => {
                *state = CellState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

/// Where a call's answer will be.
pub(super) type AnswerCell = Arc<Cell<Result<Answer, RpcError>>>;

/// Who gets a call's answer.
pub(super) enum Waiter {
    Caller(AnswerCell),
    Unawaited(Then),
}

impl Waiter {
    pub(super) fn finish(self, result: Result<Answer, RpcError>) {
        match self {
            Self::Caller(cell) => cell.put(result),
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
    core: Arc<Core>,
    call: Option<Box<Call>>,
    waiting: Option<(u64, AnswerCell)>,
    /// What the lines belong to that are logged about it.
    span: Span,
}

impl CallFuture {
    pub(super) fn new(core: Arc<Core>, call: Call) -> Self {
        let span = tracing::debug_span!("rpc", request = call.request.format().name,
            target = %core.target(), xid = field::Empty,
            fid = subject_of(&call.request).map(field::display));
        Self { core, call: Some(Box::new(for_current_job(call))), waiting: None, span }
    }
}

impl Future for CallFuture {
    type Output = Result<Answer, RpcError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _entered = this.span.enter();
        if let Some(call) = this.call.take() {
            let (key, cell) = this.core.new_call();
            this.waiting = Some((key, cell));
            this.core.handle(Event::Submit(key, call));
        }
        let Some((_, cell)) = &this.waiting else { return Poll::Pending };
        let result = std::task::ready!(cell.poll(context));
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
            self.core.forget_call(key);
            self.core.handle(Event::GiveUp(key));
        }
    }
}
