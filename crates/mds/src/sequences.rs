//! Sequences of FIDs: the controller that gives them out, and the table of who has which
//! (Lustre: `fid`, `fld`).
//!
//! MDT0000 is the controller. Each target gets a super-range of 2^30 sequences, recorded under its
//! first; from its own, an MDT gives each client one sequence at a time. How far it has got is
//! written ahead by a batch, so a crash skips numbers and repeats none.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{Context, Memo, Outcome};
use sheen_types::{Errno, Fid, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::messages::{FldQuery, FldQueryReply, SeqQuery, SeqQueryReply};

use crate::Mdt;

/// Index of ranges: first sequence, big-endian, to `LuSeqRange`; and the counter.
const RANGES: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x200);
/// Key of how far sequences have been given out: sorts behind all ranges.
const NEXT_KEY: &[u8] = b"\xff\xff\xff\xff\xff\xff\xff\xffnext";
/// Sequences in a super-range (`LUSTRE_SEQ_SUPER_WIDTH`).
const SUPER_WIDTH: u64 = 1 << 30;
/// Sequences reserved on disk at a time (`LUSTRE_SEQ_BATCH_WIDTH`).
const BATCH: u64 = 1000;
/// `SEQ_ALLOC_SUPER`, `SEQ_ALLOC_META`.
const ALLOC_SUPER: u32 = 0;
const ALLOC_META: u32 = 1;
/// `FLD_LOOKUP`.
const FLD_LOOKUP: u32 = 2;

/// See the module's documentation.
pub(crate) struct Sequences {
    store: Arc<dyn Store>,
    index: u16,
    ranges: Mutex<Vec<LuSeqRange>>,
    /// Held while a reservation is written: nobody takes from it before it is durable.
    counter: tokio::sync::Mutex<Counter>,
}

struct Counter {
    next: u64,
    reserved: u64,
}

impl Sequences {
    pub(crate) fn load(store: Arc<dyn Store>, index: u16) -> Result<Self, StoreError> {
        let corrupt = || StoreError::Corrupt("a range of sequences".to_owned());
        let mut ranges = Vec::new();
        for entry in store.scan(RANGES, &[], usize::from(u16::MAX))? {
            if entry.key != NEXT_KEY {
                let mut reader = Reader::new(&entry.value, ByteOrder::Little);
                ranges.push(LuSeqRange::decode(&mut reader).map_err(|_| corrupt())?);
            }
        }
        let next = match store.lookup(RANGES, NEXT_KEY)? {
            Some(value) => u64::from_le_bytes(value[..].try_into().map_err(|_| corrupt())?),
            None => 0,
        };
        let counter = tokio::sync::Mutex::new(Counter { next, reserved: next });
        let mut this = Self { store, index, ranges: Mutex::new(ranges), counter };
        let own = this.of(u32::from(index), SeqRangeFlags::MDT)?;
        let counter = this.counter.get_mut();
        // The first sequence is the MDT's own, as Lustre keeps it.
        counter.next = counter.next.max(own.start + 1);
        counter.reserved = counter.next;
        Ok(this)
    }

    /// The super-range of a target; a new one if it has none yet.
    pub(crate) fn of(&self, index: u32, kind: SeqRangeFlags) -> Result<LuSeqRange, StoreError> {
        let mut ranges = self.ranges.lock();
        let has = |range: &&LuSeqRange| range.index == index && range.flags == kind;
        if let Some(range) = ranges.iter().find(has) {
            return Ok(range.clone());
        }
        let end = ranges.iter().map(|range| range.end).max();
        let start = end.unwrap_or(fid_seq::NORMAL);
        let range = LuSeqRange { start, end: start + SUPER_WIDTH, index, flags: kind };
        let mut writer = Writer::with_capacity(LuSeqRange::SIZE);
        range.encode(&mut writer);
        let mut transaction = Transaction::new();
        let key = Bytes::copy_from_slice(&start.to_be_bytes());
        transaction.put(RANGES, key, writer.into_bytes());
        self.store.apply(transaction)?;
        ranges.push(range.clone());
        Ok(range)
    }

    /// The super-range that holds a sequence.
    fn find(&self, sequence: u64) -> Option<LuSeqRange> {
        self.ranges.lock().iter().find(|range| range.contains(sequence)).cloned()
    }

    /// The next sequence for a client.
    pub(crate) async fn next(&self, context: &Context) -> Result<u64, Errno> {
        let mut counter = self.counter.lock().await;
        if counter.next >= counter.reserved {
            let reserved = counter.next + BATCH;
            let mut transaction = Transaction::new();
            let value = Bytes::copy_from_slice(&reserved.to_le_bytes());
            transaction.put(RANGES, Bytes::from_static(NEXT_KEY), value);
            let done = context.target.transact(context, transaction, Memo::Idempotent);
            done.map_err(|error| error.errno())?;
            // A sequence that is used must stay used: the one write that cannot wait.
            context.target.sync().await?;
            counter.reserved = reserved;
        }
        let sequence = counter.next;
        counter.next += 1;
        Ok(sequence)
    }
}

impl Mdt {
    /// SEQ_QUERY: a sequence for a client, or a super-range for a target.
    pub(crate) async fn seq_query(
        &self,
        context: &Context,
        request: &SeqQuery,
    ) -> Result<Outcome, Errno> {
        let asked = &request.seq_range;
        let range = match request.seq_opc {
            ALLOC_META => {
                let start = self.sequences.next(context).await?;
                let index = u32::from(self.sequences.index);
                LuSeqRange { start, end: start + 1, index, flags: SeqRangeFlags::MDT }
            }
            ALLOC_SUPER if self.sequences.index == 0 => {
                let range = self.sequences.of(asked.index, asked.flags);
                let range = range.map_err(|error| error.errno())?;
                context.target.sync().await?;
                range
            }
            _ => return Err(Errno::EINVAL),
        };
        let seq_range = Some(range);
        Ok(Outcome::ok(SeqQueryReply { seq_range, ..SeqQueryReply::default() }))
    }

    /// FLD_QUERY: who holds a sequence.
    pub(crate) fn fld_query(&self, request: &FldQuery) -> Result<Outcome, Errno> {
        if request.fld_opc != FLD_LOOKUP {
            return Err(Errno::EINVAL);
        }
        let sequence = request.fld_mdfld.start;
        let local =
            LuSeqRange { start: sequence, end: sequence + 1, index: 0, flags: SeqRangeFlags::MDT };
        let found = match sequence {
            fid_seq::ROOT | fid_seq::DOT_LUSTRE => local,
            _ => self.sequences.find(sequence).ok_or(Errno::ENOENT)?,
        };
        let fld_mdfld = Some(found);
        Ok(Outcome::ok(FldQueryReply { fld_mdfld, ..FldQueryReply::default() }))
    }
}
