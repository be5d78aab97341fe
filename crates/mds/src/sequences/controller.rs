//! Who gives out super-ranges, and knows all of them: MDT0000. Other MDTs ask it.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_io::{BoxFuture, logged};
use sheen_rpc::{Answer, Call, Channel, RpcError};
use sheen_target::store_errno;
use sheen_types::Errno;
use sheen_wire::fld::{FLD_READ_BYTES, LuSeqRange, LuSeqRangeArray, SeqRangeFlags};
use sheen_wire::messages::{FldRead, Reply, SeqQuery};
use tokio::sync::Notify;

use super::ALLOC_SUPER;
use super::table::Table;

/// The controller of sequences, as an MDT has it.
pub(crate) trait SequenceController: Send + Sync {
    /// The first range of a target, a new one if it has none; with `behind`, where one of its ranges ends, the one that
    /// it got next.
    ///
    /// # Errors
    /// Those of the store, and of the request.
    fn super_range(
        &self,
        index: u32,
        kind: SeqRangeFlags,
        behind: Option<u64>,
    ) -> BoxFuture<'_, Result<LuSeqRange, Errno>>;

    /// Ranges behind the one that begins at `start`, in order; whether there are more.
    ///
    /// # Errors
    /// Those of the request.
    fn ranges(&self, start: u64) -> BoxFuture<'_, Result<(Vec<LuSeqRange>, bool), Errno>>;
}

/// This MDT is the controller.
impl SequenceController for Arc<Table> {
    fn super_range(
        &self,
        index: u32,
        kind: SeqRangeFlags,
        behind: Option<u64>,
    ) -> BoxFuture<'_, Result<LuSeqRange, Errno>> {
        Box::pin(async move { self.allocate(index, kind, behind).map_err(store_errno) })
    }

    fn ranges(&self, start: u64) -> BoxFuture<'_, Result<(Vec<LuSeqRange>, bool), Errno>> {
        Box::pin(async move { Ok((self.behind(start, usize::MAX, |_| true), false)) })
    }
}

/// MDT0000 is. Calls wait until there is a connection to it.
#[derive(Default)]
pub(crate) struct RemoteController {
    channel: Mutex<Option<Arc<dyn Channel>>>,
    connected: Notify,
}

impl RemoteController {
    /// From now on MDT0000 is behind `channel`.
    pub(crate) fn set_channel(&self, channel: Arc<dyn Channel>) {
        *self.channel.lock() = Some(channel);
        self.connected.notify_waiters();
    }

    async fn call(&self, call: Call) -> Result<Answer, Errno> {
        let channel = loop {
            let mut connected = pin!(self.connected.notified());
            // What comes between the look and the wait counts.
            connected.as_mut().enable();
            if let Some(channel) = self.channel.lock().clone() {
                break channel;
            }
            connected.await;
        };
        channel.call(call).await.map_err(|error| match error {
            RpcError::Errno(errno) => errno,
            _ => Errno::EAGAIN,
        })
    }
}

impl SequenceController for RemoteController {
    fn super_range(
        &self,
        index: u32,
        kind: SeqRangeFlags,
        behind: Option<u64>,
    ) -> BoxFuture<'_, Result<LuSeqRange, Errno>> {
        let start = behind.unwrap_or(0);
        let seq_range = LuSeqRange { start, end: start, index, flags: kind };
        let request = SeqQuery { seq_opc: ALLOC_SUPER, seq_range, ..SeqQuery::default() };
        Box::pin(async move {
            let answer = self.call(Call::new(request)).await?;
            let Reply::SeqQuery(reply) = answer.reply else { return Err(Errno::EPROTO) };
            let is_dot_lustre = |range: &LuSeqRange| range.index == index && range.flags == kind;
            reply.seq_range.filter(is_dot_lustre).ok_or(Errno::EPROTO)
        })
    }

    fn ranges(&self, start: u64) -> BoxFuture<'_, Result<(Vec<LuSeqRange>, bool), Errno>> {
        let flags = SeqRangeFlags::ANY;
        let fld_mdfld = LuSeqRange { start, end: start, index: 0, flags };
        let request = FldRead { fld_mdfld, ..FldRead::default() };
        let call = Call { refusal_as_answer: true, ..Call::new(request) };
        Box::pin(async move {
            let answer = self.call(call.with_reply_room(FLD_READ_BYTES)).await?;
            let status = Errno::from_status(answer.body.status);
            if let Some(errno) = status.filter(|errno| *errno != Errno::EAGAIN) {
                return Err(errno);
            }
            let Reply::FldRead(reply) = answer.reply else { return Err(Errno::EPROTO) };
            let array = LuSeqRangeArray::decode(&reply.generic_data).map_err(logged!(
                Errno::EPROTO,
                "the controller's table of sequences cannot be read"
            ))?;
            let has_more = status.is_some();
            // One that is answered "more" and nothing would ask for ever.
            match has_more && array.ranges.is_empty() {
                true => Err(Errno::EPROTO),
                false => Ok((array.ranges, has_more)),
            }
        })
    }
}
