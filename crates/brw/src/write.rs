//! OST_WRITE: data from the client to an object.

use bytes::Bytes;
use sheen_store::{Attributes, BlockSums, StoreError, Transaction, joined};
use sheen_target::{Context, Outcome, Wait, store_errno, while_waiting};
use sheen_types::{Errno, LockMode};
use sheen_wire::checksum::Checksum;
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstWrite, OstWriteReply};
use sheen_wire::ost::{BrwFlags, NiobufRemote, Obdo, ObdoFlags, OstBody};

use crate::grant::{BLOCK_BITS, FreeSpace, ReservedSpace, WantedSpace};
use crate::transfer::{Transfer, bulk_errno};
use crate::{Brw, Objects, attributes};

/// What the answer to a write says of the object.
const WRITTEN: Valid =
    Valid(attributes::ALWAYS.without(Valid::MTIME.union(Valid::ATIME)).0 | attributes::OWNER.0);

impl<O: Objects> Brw<O> {
    /// Fetches the data (or takes it from the request), verifies its checksum, writes it.
    ///
    /// The reply carries no transno: the data has survived this process already, so there is
    /// nothing to replay.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for pieces that make no sense, [`Errno::ENOSPC`] for what was not granted
    /// and has no room, those of locks and the store. A checksum that differs is none: the
    /// answer's checksum says so. One whose bulk does not come, or whose client is gone by then, is not answered.
    pub async fn write(&self, context: &Context, request: OstWrite) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let transfer = self.transfer(&request.obd_ioobj, request.niobuf_remote)?;
        let room = while_waiting(Wait::Bulk, context.bulk.reserve(transfer.length)).await;
        let lock = self.transfer_lock(context, &transfer, LockMode::Pw).await?;
        let before = self.store.attributes(transfer.object).map_err(store_errno)?;
        let reserved = self.reserve_space(context, &asked, &transfer)?;
        let pending = self.grants.begin(transfer.length as u64);
        let data = self.incoming(context, &asked, request.short_io, transfer.length).await?;
        let runs = self.runs(&asked, &transfer, data);
        if let Some(sum) = mismatch(&asked, &runs) {
            tracing::warn!(object = %transfer.object, from = %context.from, "checksum differs");
            return Ok(refused(asked, sum, transfer.pieces.len()));
        }
        self.apply(context, &transfer, runs, &asked, &before)?;
        self.objects.before_answer(context, transfer.object).await?;
        if transfer.pieces.iter().any(|piece| piece.flags.contains(BrwFlags::SYNC)) {
            self.make_durable(context, transfer.object).await?;
        }
        drop((lock, pending, room));
        reserved.use_up();
        context.count(O::WRITTEN_BYTES, transfer.length as u64);
        self.answer(context, asked, &transfer)
    }

    /// Where the data is: in the request itself, or at the client.
    async fn incoming(
        &self,
        context: &Context,
        asked: &Obdo,
        inline: Bytes,
        length: usize,
    ) -> Result<Vec<Bytes>, Errno> {
        if !asked.has_flag(ObdoFlags::SHORT_IO) {
            let pulled = while_waiting(Wait::Bulk, context.bulk.pull(length)).await;
            return pulled.map_err(|error| bulk_errno(context, &error));
        }
        if inline.len() != length {
            return Err(Errno::EPROTO);
        }
        Ok(vec![inline])
    }

    /// The space of a write: out of the client's grant as far as it claims it and has it, the rest out of what
    /// is promised to no other client.
    fn reserve_space(
        &self,
        context: &Context,
        asked: &Obdo,
        transfer: &Transfer,
    ) -> Result<ReservedSpace<'_>, Errno> {
        let coverable = granted_bytes(&transfer.pieces);
        // What it says counts what the server adds to data, too.
        let used = asked.grant_report().map(|report| report.used);
        let claimed = used.filter(|used| *used != 0).unwrap_or(coverable);
        let wanted = WantedSpace { claimed, coverable, length: transfer.length as u64 };
        let free = FreeSpace {
            recent: &|| self.store.recent_space().map_err(store_errno),
            now: &|| self.store.space().map_err(store_errno),
        };
        self.grants.take(&context.export, wanted, &free)
    }

    /// The data in runs of pieces that touch. Where the store keeps checksums of blocks, and the client's is of
    /// their kind, one pass gives both.
    fn runs(&self, asked: &Obdo, transfer: &Transfer, data: Vec<Bytes>) -> Vec<Run> {
        let is_crc32c = matches!(checksum_of(asked), Some((Checksum::Crc32c, _)));
        let both = is_crc32c && self.store.has_block_checksums();
        let mut data = Pieces { rest: data.into() };
        let run = |(offset, length)| {
            let pieces = data.take(length);
            let sums = both.then(|| BlockSums::of(offset, &pieces));
            Run { offset, length, pieces, sums }
        };
        runs(&transfer.pieces).into_iter().map(run).collect()
    }

    /// The bytes, and what the write says of the object besides, unless the client is gone.
    fn apply(
        &self,
        context: &Context,
        transfer: &Transfer,
        runs: Vec<Run>,
        asked: &Obdo,
        before: &Attributes,
    ) -> Result<(), Errno> {
        let _applying = context.begin_apply()?;
        let put = self.put(context, transfer, runs);
        self.note_changed(&context.target, transfer.object);
        put.map_err(store_errno)?;
        let patch = self.objects.stamp(context, transfer.object, asked, before);
        let mut change = Transaction::new();
        change.patch(transfer.object, patch);
        self.store.apply(change).map(drop).map_err(store_errno)
    }

    /// One `write` of the store per run.
    fn put(
        &self,
        context: &Context,
        transfer: &Transfer,
        runs: Vec<Run>,
    ) -> Result<(), StoreError> {
        let (clock, object, count) = (&*context.target.world().clock, transfer.object, runs.len());
        for Run { offset, length, pieces, sums } in runs {
            let write = || match sums {
                Some(sums) => self.store.write_summed(object, offset, &pieces, sums),
                None => self.store.write(object, offset, &pieces),
            };
            self.writes.access(clock, length, write)?;
        }
        self.writes.transferred(transfer, count);
        Ok(())
    }

    fn answer(
        &self,
        context: &Context,
        asked: Obdo,
        transfer: &Transfer,
    ) -> Result<Outcome, Errno> {
        let space = || self.store.recent_space().map_err(store_errno);
        let grant = self.grants.settle(&context.export, &asked, space)?;
        let now = self.store.attributes(transfer.object).map_err(store_errno)?;
        // The client's own fields again, with what the object has become; its times are those of
        // the writer.
        let said = asked.valid.without(Valid::MTIME | Valid::ATIME);
        let mut oa = Obdo { grant, valid: said, ..asked };
        attributes::fill(&mut oa, &now, WRITTEN);
        let rcs = vec![0; transfer.pieces.len()];
        Ok(Outcome::ok(OstWriteReply {
            ost_body: Some(OstBody { oa }),
            rcs,
            ..OstWriteReply::default()
        }))
    }
}

/// Bytes of whole blocks that the client took out of its grant.
fn granted_bytes(pieces: &[NiobufRemote]) -> u64 {
    let granted = pieces.iter().filter(|piece| piece.flags.contains(BrwFlags::FROM_GRANT));
    let blocks = granted.map(|piece| u64::from(piece.len));
    blocks
        .sum::<u64>()
        .next_multiple_of(1 << BLOCK_BITS)
        .min(pieces.iter().map(|piece| u64::from(piece.len)).sum())
}

/// Data for one place of an object.
struct Run {
    offset: u64,
    length: usize,
    pieces: Vec<Bytes>,
    /// Its checksums, if they are worked out already.
    sums: Option<BlockSums>,
}

/// The checksum that the client has sent, and of which kind.
fn checksum_of(asked: &Obdo) -> Option<(Checksum, u32)> {
    Some((Checksum::named(asked.flags)?, asked.checksum()?))
}

/// Our checksum of the data if it differs from the client's.
fn mismatch(asked: &Obdo, runs: &[Run]) -> Option<u32> {
    let (checksum, theirs) = checksum_of(asked)?;
    let summed: Option<Vec<&BlockSums>> = runs.iter().map(|run| run.sums.as_ref()).collect();
    let sum = match summed.filter(|_| checksum == Checksum::Crc32c) {
        Some(runs) => runs.iter().fold(0, |sum, run| joined(sum, run.sum, run.length as usize)),
        None => {
            let pieces: Vec<Bytes> = runs.iter().flat_map(|run| run.pieces.clone()).collect();
            checksum.of(&pieces)
        }
    };
    (sum != theirs).then_some(sum)
}

/// The client sees by our checksum that the data changed on its way, and sends it again, as it does with
/// Lustre's OSTs, which write what came and answer the same. An errno would say that of any refusal.
fn refused(asked: Obdo, sum: u32, pieces: usize) -> Outcome {
    // Nothing was written, and no grant comes with it.
    let mut oa = Obdo { valid: asked.valid.without(Valid::GRANT), ..asked };
    oa.answer_checksum(sum);
    let (ost_body, rcs) = (Some(OstBody { oa }), vec![0; pieces]);
    Outcome::ok(OstWriteReply { ost_body, rcs, ..OstWriteReply::default() })
}

/// Offset and length of each run of pieces that touch.
fn runs(pieces: &[NiobufRemote]) -> Vec<(u64, usize)> {
    let mut runs: Vec<(u64, usize)> = Vec::with_capacity(1);
    for piece in pieces {
        match runs.last_mut() {
            Some((start, length)) if *start + *length as u64 == piece.offset => {
                *length += piece.len as usize;
            }
            _ => runs.push((piece.offset, piece.len as usize)),
        }
    }
    runs
}

/// Data in pieces, taken from the front without copying.
struct Pieces {
    rest: std::collections::VecDeque<Bytes>,
}

impl Pieces {
    fn take(&mut self, mut length: usize) -> Vec<Bytes> {
        let mut taken = Vec::with_capacity(self.rest.len());
        while length > 0 {
            let Some(mut piece) = self.rest.pop_front() else { break };
            if piece.len() > length {
                self.rest.push_front(piece.split_off(length));
            }
            length -= piece.len();
            taken.push(piece);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, len: u32, flags: BrwFlags) -> NiobufRemote {
        NiobufRemote { offset, len, flags }
    }

    #[test]
    fn pieces_that_touch_are_one_write() {
        let none = BrwFlags::NONE;
        let pieces = [piece(0, 4096, none), piece(4096, 10, none), piece(8192, 4096, none)];
        assert_eq!(runs(&pieces), [(0, 4106), (8192, 4096)]);
        let mut data =
            Pieces { rest: vec![Bytes::from(vec![1; 4100]), vec![2; 4102].into()].into() };
        let first = data.take(4106);
        assert_eq!(first.iter().map(Bytes::len).collect::<Vec<_>>(), [4100, 6]);
        assert_eq!(data.take(4096).concat(), [2; 4096]);
        assert!(data.take(1).is_empty(), "there is no more");
    }

    /// The checksums of blocks show what has changed on its way as a pass over the bytes would.
    #[test]
    fn the_sum_of_several_runs_is_that_of_all_their_bytes() {
        let bytes: Bytes = (0..30_000_u32).map(|at| ((at * at) >> 5) as u8).collect();
        let places = [(100, 0..9000), (20_000, 9000..9001), (40_960, 9001..30_000)];
        let of = |summed: bool| -> Vec<Run> {
            let run = |(offset, range): &(u64, std::ops::Range<usize>)| {
                let pieces = vec![bytes.slice(range.clone())];
                let sums = summed.then(|| BlockSums::of(*offset, &pieces));
                Run { offset: *offset, length: range.len(), pieces, sums }
            };
            places.iter().map(run).collect()
        };
        let sum = Checksum::Crc32c.of(std::slice::from_ref(&bytes));
        let mut asked = Obdo::default();
        asked.set_checksum(Checksum::Crc32c, sum);
        let mut other = asked.clone();
        other.set_checksum(Checksum::Crc32c, !sum);
        for summed in [true, false] {
            assert_eq!(mismatch(&asked, &of(summed)), None);
            assert_eq!(mismatch(&other, &of(summed)), Some(sum));
            let unasked = Obdo { valid: Valid(0), ..other.clone() };
            assert_eq!(mismatch(&unasked, &of(summed)), None);
        }
    }

    #[test]
    fn what_came_out_of_a_grant_is_counted_in_blocks_but_not_beyond_the_bytes() {
        let granted = BrwFlags::FROM_GRANT;
        let pieces = [piece(0, 4096, granted), piece(4096, 10, granted)];
        assert_eq!(granted_bytes(&pieces), 4106);
        let pieces = [piece(0, 10, granted), piece(4096, 8192, BrwFlags::NONE)];
        assert_eq!(granted_bytes(&pieces), 4096);
        assert_eq!(granted_bytes(&[piece(0, 10, BrwFlags::NONE)]), 0);
    }
}
