//! Many locks that one request asks for, a batch (`MDS_BATCH`), each in a part of its own.
//!
//! What always holds: a lock that a part's answer grants is this client's, as one of a request of its own is. It is
//! taken over with [`PendingLock::granted_with`], or cancelled.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::Tasks;
use sheen_rpc::{Answer, Call, Channel};
use sheen_types::Errno;
use sheen_wire::batch::BatchedMessages;
use sheen_wire::messages::{Fields, LdlmIntentGetattrReply, MdsBatch};

use super::PendingLock;
use super::send::{Awaited, send};
use crate::call::typed_answer;

/// The answer to a part: why it has none, or what it says.
pub(crate) type PartAnswer = Result<LdlmIntentGetattrReply, Errno>;

/// The locks of a batch in the order of its parts. Never empty.
pub(crate) struct PendingBatch(Vec<PendingLock>);

/// What came back.
pub(crate) struct BatchAnswer {
    /// The locks and answers in the order of the parts.
    pub(crate) parts: Vec<(PendingLock, PartAnswer)>,
    /// Which connection it came over.
    pub(crate) connection: u32,
}

impl PendingBatch {
    /// Of one lock at least.
    pub(crate) fn new(locks: Vec<PendingLock>) -> Self {
        assert!(!locks.is_empty(), "a batch asks for something");
        Self(locks)
    }

    /// Sends `call`, made from an [`MdsBatch`] with a part for each lock. Parts that the MDT did not come to have
    /// `ECANCELED` for an answer.
    ///
    /// # Errors
    /// As [`crate::call::call`]: where there is no answer to any part.
    pub(crate) async fn send(
        self,
        channel: &Arc<dyn Channel>,
        call: Call,
    ) -> Result<BatchAnswer, Errno> {
        // Lustre's MDT stops at the first part that fails, with its error for the whole.
        let call = Call { refusal_as_answer: true, ..call };
        let (mut pending, answer) = send(self, channel, call).await;
        let answer = answer.map_err(|error| error.errno())?;
        let (connection, status) = (answer.connection, answer.body.status);
        let refused = Errno::from_status(status);
        let bytes = match (typed_answer::<MdsBatch>(answer), refused) {
            (Ok(answer), _) if !answer.reply.batch_update_reply.is_empty() => {
                answer.reply.batch_update_reply
            }
            (_, Some(errno)) => return Err(errno),
            _ => return Err(Errno::EPROTO),
        };
        let answers = read(&bytes, pending.0.len());
        pending.note(&answers, connection);
        Ok(BatchAnswer { parts: pending.0.into_iter().zip(answers).collect(), connection })
    }

    fn note(&mut self, answers: &[PartAnswer], connection: u32) {
        for (lock, answer) in self.0.iter_mut().zip(answers) {
            let granted = answer.as_ref().ok().and_then(|reply| reply.dlm_rep.as_ref());
            lock.note(granted, connection);
        }
    }
}

impl Awaited for PendingBatch {
    fn note_abandoned(&mut self, answer: Answer) {
        let connection = answer.connection;
        if let Ok(answer) = typed_answer::<MdsBatch>(answer) {
            let answers = read(&answer.reply.batch_update_reply, self.0.len());
            self.note(&answers, connection);
        }
    }

    fn tasks(&self) -> Arc<dyn Tasks> {
        self.0[0].tasks()
    }
}

/// The answers to so many parts. What cannot be read is an error of its part and of those behind it.
fn read(bytes: &Bytes, count: usize) -> Vec<PartAnswer> {
    let mut answers: Vec<PartAnswer> = Vec::with_capacity(count);
    let malformed = match BatchedMessages::of_reply(bytes) {
        Ok(messages) => {
            for message in messages.take(count) {
                let answer = message.and_then(|message| {
                    let result = Errno::from_status(message.header.sub_opcode as i32);
                    Ok(match result {
                        Some(errno) => Err(errno),
                        None => Ok(LdlmIntentGetattrReply::from_message(&message)?),
                    })
                });
                answers.push(answer.unwrap_or(Err(Errno::EPROTO)));
            }
            Errno::ECANCELED
        }
        Err(_) => Errno::EPROTO,
    };
    answers.resize(count, Err(malformed));
    answers
}
