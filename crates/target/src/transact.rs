//! How a change and the record of its answer become one transaction.

use std::sync::atomic::Ordering;

use sheen_store::{Sequence, StoreError, Transaction};
use sheen_types::Transno;

use crate::context::Context;
use crate::history::TransnoSource;
use crate::last_rcvd::{ReplyRecord, ReplyRecording, put_reply, put_transno};
use crate::target::Target;
use crate::undurable::StoreKey;

impl ReplyRecording {
    /// What is kept of the answer to a request that becomes `transno`.
    pub(crate) fn record(self, context: &Context, transno: Transno) -> Option<ReplyRecord> {
        let (result, data) = match self {
            _ if context.export.is_local() => return None,
            Self::Idempotent => return None,
            Self::Done => (0, 0),
            Self::Keep { result, data } => (result, data),
        };
        let tag = context.slot().tag;
        Some(ReplyRecord { transno, xid: context.xid, data, result, tag, padding: 0 })
    }
}

impl Target {
    /// Applies what a request changes, as one transaction with the record of its answer. Called
    /// exactly once per request that changes something, after everything that may refuse it.
    ///
    /// A replayed request gets the number it had before. If its effect was durable before the
    /// restart ([`Context::is_applied_already`]), nothing is applied and that number returned.
    ///
    /// # Errors
    /// Those of [`sheen_store::Store::apply`]; then nothing was changed.
    pub fn transact(
        &self,
        context: &Context,
        transaction: Transaction,
        recording: ReplyRecording,
    ) -> Result<Transno, StoreError> {
        self.transact_with(context, recording, |_| transaction)
    }

    /// As [`Target::transact`], for changes that name their own transaction number (versions of
    /// objects). `build` runs while the order of transactions is locked: it must only build.
    ///
    /// # Errors
    /// As [`Target::transact`].
    pub fn transact_with(
        &self,
        context: &Context,
        recording: ReplyRecording,
        build: impl FnOnce(Transno) -> Transaction,
    ) -> Result<Transno, StoreError> {
        let replayed = context.replay();
        if let Some(transno) = replayed.filter(|_| context.is_applied_already()) {
            context.transno.store(transno.0, Ordering::Release);
            return Ok(transno);
        }
        let source = self.source_for(context);
        let build = |transno| -> Result<_, StoreError> {
            let mut transaction = build(transno);
            let keys = self.undurable.keys_of(&transaction);
            let record = recording.record(context, transno);
            self.put_answer(&mut transaction, context, transno, record.as_ref());
            Ok((transaction, keys))
        };
        let applied = |sequence, keys| self.note_written(sequence, keys);
        let transno = self.history.apply(&*self.store, source, build, applied)?;
        self.keep_answer(context, transno, recording.record(context, transno));
        Ok(transno)
    }

    /// Applies a change of the server's own: no client will ask for its answer again.
    ///
    /// # Errors
    /// Those of [`sheen_store::Store::apply`]; then nothing was changed.
    pub fn transact_locally(&self, mut transaction: Transaction) -> Result<Transno, StoreError> {
        let build = |transno| -> Result<_, StoreError> {
            let keys = self.undurable.keys_of(&transaction);
            put_transno(&mut transaction, transno);
            Ok((transaction, keys))
        };
        let applied = |sequence, keys| self.note_written(sequence, keys);
        self.history.apply(&*self.store, self.transno_source(), build, applied)
    }

    /// Which number a request's change gets.
    pub(crate) fn source_for(&self, context: &Context) -> TransnoSource {
        context.replay().map_or_else(|| self.transno_source(), TransnoSource::Replayed)
    }

    pub(crate) fn transno_source(&self) -> TransnoSource {
        if self.recovery.is_running() { TransnoSource::Same } else { TransnoSource::Next }
    }

    /// Adds what each transaction of a request has beside its changes. Under the lock of the order.
    pub(crate) fn put_answer(
        &self,
        transaction: &mut Transaction,
        context: &Context,
        transno: Transno,
        record: Option<&ReplyRecord>,
    ) {
        put_transno(transaction, transno.max(self.history.last()));
        if let Some(record) = record {
            put_reply(transaction, context.export.number(), context.slot(), record);
        }
    }

    /// The request has become this transaction.
    pub(crate) fn keep_answer(
        &self,
        context: &Context,
        transno: Transno,
        record: Option<ReplyRecord>,
    ) {
        context.transno.store(transno.0, Ordering::Release);
        let mut state = context.export.lock();
        state.last_transno = state.last_transno.max(transno);
        if let Some(record) = record {
            state.replies.insert(context.slot(), record);
        }
    }

    /// A transaction was applied, which writes `keys`, if they are kept.
    pub(crate) fn note_written(&self, applied: Sequence, keys: Option<Vec<StoreKey>>) {
        if let Some(keys) = keys {
            self.undurable.note(applied, keys, self.history.durable_sequence());
        }
    }
}
