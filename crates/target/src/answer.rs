//! The one place where answers are made.
//!
//! What always holds: an answer that says an error, in its status or in its intent, names no transaction.
//! Lustre's clients keep what has a transaction for replay, and panic where that failed
//! (`mdc_clear_replay_flag`). A positive status is no error: an intent that gives no lock is answered with
//! `ELDLM_LOCK_ABORTED`, with its transaction.

use std::sync::atomic::Ordering;

use sheen_rpc::{Replier, ReplyHead};
use sheen_types::{Errno, Transno};
use sheen_wire::messages::{Kind, Reply};

use crate::context::Context;
use crate::operations::Outcome;
use crate::target::Target;

impl Outcome {
    /// The error that an answer reports: by its status, or else by its intent's. 0 for none.
    #[must_use]
    pub(crate) fn error(&self) -> i32 {
        match self.status.min(0) {
            // In 32 bits, whichever sign they are taken for.
            0 => self
                .reply
                .as_ref()
                .and_then(Reply::enqueued_lock)
                .map_or(0, |lock| lock.policy_res2 as i32),
            error => error,
        }
    }
}

impl Target {
    pub(crate) fn answer(
        &self,
        context: &Context,
        kind: Kind,
        outcome: Result<Outcome, Errno>,
        replier: Replier,
    ) {
        let outcome = outcome.unwrap_or_else(Outcome::from);
        let head = ReplyHead {
            status: outcome.status,
            transno: self.reported_transno(context, kind, &outcome),
            last_committed: self.last_committed(),
            ..ReplyHead::default()
        };
        self.stats.add(kind, self.now().since(context.arrived), outcome.status < 0);
        replier.send(head, outcome.reply);
    }

    fn reported_transno(&self, context: &Context, kind: Kind, outcome: &Outcome) -> Transno {
        let transno = context.transno();
        if transno == Transno(0) || outcome.error() == 0 {
            return transno;
        }
        tracing::error!(target = self.name(), client = %context.export.uuid(), ?kind, %transno,
            error = outcome.error(), "a request failed after its change: answered without its transaction");
        debug_assert!(
            false,
            "{kind:?} failed with {} after transaction {transno}",
            outcome.error()
        );
        Transno(0)
    }

    /// After a request was executed again, or its answer made up from its record: what has become of it since
    /// may be an error, and is no fault of the role's.
    pub(crate) fn forget_if_failed(context: &Context, outcome: &Result<Outcome, Errno>) {
        if outcome.as_ref().map_or(true, |outcome| outcome.error() != 0) {
            context.transno.store(0, Ordering::Release);
        }
    }
}
