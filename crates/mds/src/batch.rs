//! MDS_BATCH: many getattrs by name in one request.
//!
//! Each part is what an LDLM_ENQUEUE with a getattr intent would be, and is answered by the same function. A part that
//! fails, fails alone: its message in the reply says why. Lustre's MDT stops there, answers with the error for the
//! whole, and its clients ask again for the parts behind it, one by one; they understand both.
//!
//! What always holds: no part waits, for a lock, a name or anything else. The locks of the parts before it belong to
//! the client already, which cannot cancel them before it has the answer, and what a part would wait for may wait
//! for one of those. A part that would wait is answered `EBUSY`, and its client asks without a batch.
//!
//! Nothing is changed, so a batch that is sent again is executed again; parts whose locks were granted the first time
//! get those.
//!
//! Cost of a part that finds a file with data on OSTs, counted: looks into the store for the directory, the name, and
//! twice for the inode with all its extended attributes, before its lock is taken and under it
//! (`Mdt::whole_inode`); no system call, also where the store is cold but for its own reads; two
//! acquisitions of the locks' mutex, to take the lock and to hand it over; no task, and none is woken.

use bytes::Bytes;
use sheen_brw::bulk_errno;
use sheen_target::{Context, Outcome, Wait, while_waiting};
use sheen_types::{Errno, LockHandle};
use sheen_wire::batch::{
    self, BATCH_BYTES_MAX, BatchHeader, BatchedMessages, ButUpdateBuffer, ButUpdateHeader,
};
use sheen_wire::ldlm::{Disposition, LdlmRequest};
use sheen_wire::messages::{
    Fields, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch, MdsBatchReply, Reply,
};
use sheen_wire::ptlrpc::{Message, MessageHeader};
use sheen_wire::{DecodeError, Wire};

use crate::answer::LOCK_ABORTED;
use crate::{Mdt, counters};

/// Parts of one request: what Lustre's clients can be set to (`LL_SA_BATCH_MAX`).
const PARTS_MAX: usize = 1024;

/// Bytes of bulk of one request: [`PARTS_MAX`] parts with the longest names fit.
const BULK_BYTES_MAX: usize = 1 << 20;

/// A part's result and its answer.
struct Answered {
    result: i32,
    reply: LdlmIntentGetattrReply,
}

/// The answers so far.
struct Answers {
    messages: Vec<Bytes>,
    room: usize,
}

impl Mdt {
    /// MDS_BATCH.
    pub(crate) async fn batch(
        &self,
        context: &Context,
        request: &MdsBatch,
    ) -> Result<Outcome, Errno> {
        let parts = parts_of(context, request).await?;
        let mut answers = Answers::new(parts.len());
        let mut status = 0;
        for part in parts {
            let answered = self.part(context, part).await;
            if let Err(lock) = answers.add(&answered) {
                // A lock that no answer names would never be cancelled.
                context.cancel_early(&LdlmRequest::cancel(vec![lock]), 0);
                status = Errno::EOVERFLOW.status();
                break;
            }
        }
        let batch_update_reply = batch::join(BatchHeader::REPLY_MAGIC, &answers.messages);
        let reply = MdsBatchReply { batch_update_reply, ..MdsBatchReply::default() };
        Ok(Outcome { status, reply: Some(reply.into()) })
    }

    async fn part(&self, context: &Context, part: LdlmIntentGetattr) -> Answered {
        let clock = &context.target.world().clock;
        let begin = clock.now();
        let answer = context.target.enqueue_batched(context, part.into()).await;
        let time = clock.now().since(begin).as_micros();
        context.count(counters::GETATTR, u64::try_from(time).unwrap_or(u64::MAX));
        match answer {
            Ok(outcome) => Answered::of(outcome),
            Err(errno) => Answered::refused(errno),
        }
    }
}

impl Answered {
    fn of(outcome: Outcome) -> Self {
        let Some(Reply::LdlmIntentGetattr(reply)) = outcome.reply else {
            return Self::refused(Errno::EPROTO);
        };
        let result = match outcome.status {
            LOCK_ABORTED => why(&reply).status(),
            status => status,
        };
        Self { result, reply: *reply }
    }

    fn refused(errno: Errno) -> Self {
        Self { result: errno.status(), reply: LdlmIntentGetattrReply::default() }
    }

    fn lock(&self) -> LockHandle {
        self.reply.dlm_rep.as_ref().map(|lock| lock.handle).unwrap_or_default()
    }
}

/// Why an intent gave no lock. Where a name is looked up for its FID alone it gives none, and a batch has no place for
/// such an answer.
fn why(reply: &LdlmIntentGetattrReply) -> Errno {
    let Some(lock) = &reply.dlm_rep else { return Errno::EPROTO };
    match Errno::from_status(lock.policy_res2 as u32 as i32) {
        Some(errno) => errno,
        None if lock.policy_res1.contains(Disposition::LOOKUP_NEG) => Errno::ENOENT,
        None => Errno::EOPNOTSUPP,
    }
}

impl Answers {
    fn new(count: usize) -> Self {
        let room = BATCH_BYTES_MAX - BatchHeader::SIZE;
        Self { messages: Vec::with_capacity(count), room }
    }

    /// Adds an answer; its lock if there is no room for it.
    fn add(&mut self, answered: &Answered) -> Result<(), LockHandle> {
        let header =
            MessageHeader { sub_opcode: answered.result as u32, ..MessageHeader::default() };
        let message = batch::batched(&header, &answered.reply);
        self.room = self.room.checked_sub(message.len()).ok_or_else(|| answered.lock())?;
        self.messages.push(message);
        Ok(())
    }
}

/// The parts of a request, all of them read before the first is executed.
async fn parts_of(context: &Context, request: &MdsBatch) -> Result<Vec<LdlmIntentGetattr>, Errno> {
    let (header, inline) = ButUpdateHeader::split(&request.but_update_header).map_err(malformed)?;
    let buffers = match header.inline_length {
        0 => pull(context, &request.but_update_buf, header.count).await?,
        length if header.count == 1 && length as usize <= inline.len() => {
            vec![inline.slice(..length as usize)]
        }
        _ => return Err(Errno::EPROTO),
    };
    let mut parts = Vec::new();
    for buffer in &buffers {
        let messages = BatchedMessages::of_request(buffer).map_err(malformed)?;
        if parts.len() + messages.announced() > PARTS_MAX {
            return Err(Errno::EOVERFLOW);
        }
        for message in messages {
            parts.push(getattr_of(&message.map_err(malformed)?)?);
        }
    }
    match parts.len() == header.update_count as usize {
        true => Ok(parts),
        false => Err(Errno::EPROTO),
    }
}

fn getattr_of(message: &Message) -> Result<LdlmIntentGetattr, Errno> {
    match message.header.sub_opcode {
        batch::GETATTR => LdlmIntentGetattr::from_message(message).map_err(malformed),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn malformed(_: DecodeError) -> Errno {
    Errno::EPROTO
}

/// The buffers of a request whose operations are bulk.
async fn pull(
    context: &Context,
    buffers: &[ButUpdateBuffer],
    count: u32,
) -> Result<Vec<Bytes>, Errno> {
    let sizes: Vec<usize> = buffers.iter().map(|buffer| buffer.size as usize).collect();
    let is_sound = |size: &usize| (BatchHeader::SIZE..BATCH_BYTES_MAX).contains(size);
    let length = sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size));
    if sizes.len() != count as usize
        || sizes.is_empty()
        || !sizes.iter().all(is_sound)
        || length > BULK_BYTES_MAX
    {
        return Err(Errno::EPROTO);
    }
    let _memory = while_waiting(Wait::Bulk, context.bulk.reserve(length)).await;
    let pulled = while_waiting(Wait::Bulk, context.bulk.pull(length)).await;
    let pieces = pulled.map_err(|error| bulk_errno(context, &error))?;
    let mut bytes = Bytes::from(pieces.concat());
    Ok(sizes.into_iter().map(|size| bytes.split_to(size)).collect())
}
