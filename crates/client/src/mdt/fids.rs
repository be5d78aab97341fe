//! New FIDs: one `SEQ_QUERY` for every 131,072 of them.

use std::sync::Arc;

use sheen_rpc::{Call, Channel};
use sheen_types::{Errno, Fid};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::messages::SeqQuery;
use tokio::sync::Mutex;

use crate::call;
use crate::records::{Record, Recorded, Recorder};

/// `SEQ_ALLOC_META`: a sequence for one client.
const ALLOC_META: u32 = 1;
/// Objects of one sequence (`LUSTRE_METADATA_SEQ_MAX_WIDTH`).
const OBJECTS_MAX: u32 = 0x2_0000;

/// Sequences that are recorded for the mount's next process: it looks for what was made in the last moments.
const SEQUENCES_RECORDED: usize = 8;

/// Gives out FIDs on one MDT.
pub(crate) struct FidSource {
    channel: Arc<dyn Channel>,
    last: Mutex<Fid>,
    recorder: Recorder,
    /// The sequences that were used, for the mount's next process.
    recorded: parking_lot::Mutex<Vec<Recorded>>,
}

impl FidSource {
    /// FIDs on the MDT behind `channel`.
    pub(crate) fn new(channel: Arc<dyn Channel>, recorder: Recorder) -> Self {
        // As if a sequence had been used up.
        let last = Mutex::new(Fid::new(0, OBJECTS_MAX));
        Self { channel, last, recorder, recorded: parking_lot::Mutex::default() }
    }

    /// Records that the mount has made files of this sequence.
    pub(crate) fn record(&self, sequence: u64) {
        let mut recorded = self.recorded.lock();
        recorded.extend(self.recorder.record(|| Record::Sequence(sequence)));
        if recorded.len() > SEQUENCES_RECORDED {
            recorded.remove(0);
        }
    }

    /// A FID that no other client or server will allocate.
    pub(crate) async fn next(&self) -> Result<Fid, Errno> {
        let mut last = self.last.lock().await;
        if last.oid >= OBJECTS_MAX {
            let sequence = self.sequence().await?;
            self.record(sequence);
            *last = Fid::new(sequence, 0);
        }
        last.oid += 1;
        Ok(*last)
    }

    async fn sequence(&self) -> Result<u64, Errno> {
        // Of whichever MDT is asked: as Lustre's client, whose number says nothing.
        let seq_range = LuSeqRange { start: 0, end: 0, index: 0, flags: SeqRangeFlags::MDT };
        let request = SeqQuery { seq_opc: ALLOC_META, seq_range, ..SeqQuery::default() };
        let answer = call::call::<SeqQuery>(&*self.channel, Call::new(request)).await?;
        let range = call::need(answer.reply.seq_range)?;
        if range.start == 0 || range.end <= range.start {
            return Err(Errno::EPROTO);
        }
        Ok(range.start)
    }
}
