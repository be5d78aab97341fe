//! What clients and other MDTs ask of sequences: `SEQ_QUERY`, `FLD_QUERY`, `FLD_READ`.

use bytes::Bytes;
use sheen_io::within;
use sheen_target::{Context, Export, Outcome, Target, store_errno};
use sheen_types::{Errno, TargetKind, fid_seq};
use sheen_wire::fld::{FLD_READ_BYTES, LuSeqRange, LuSeqRangeArray, SeqRangeFlags};
use sheen_wire::messages::{
    FldQuery, FldQueryReply, FldRead, FldReadReply, SeqQuery, SeqQueryReply,
};

use super::{ALLOC_META, ALLOC_SUPER, FLD_LOOKUP, PATIENCE};
use crate::Mdt;

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
                let is_mdt = context.export.owner().is_some_and(|it| it.kind == TargetKind::Mdt);
                let start = match is_mdt {
                    true => self.sequences.next_for_mdt(&context.target).await?,
                    false => self.sequences.next(context).await?,
                };
                let index = u32::from(self.sequences.index);
                LuSeqRange { start, end: start + 1, index, flags: SeqRangeFlags::MDT }
            }
            ALLOC_SUPER if !context.export.is_server() => return Err(Errno::EPERM),
            ALLOC_SUPER if self.sequences.is_controller() => {
                may_have(&context.export, asked)?;
                // An OST's objects are in its first one, whichever MDT asks.
                let is_mdt = asked.flags == SeqRangeFlags::MDT;
                let behind = Some(asked.start).filter(|start| is_mdt && *start != 0);
                let range = self.sequences.table.allocate(asked.index, asked.flags, behind);
                let range = range.map_err(store_errno)?;
                context.target.sync().await?;
                range
            }
            _ => return Err(Errno::EINVAL),
        };
        let seq_range = Some(range);
        Ok(Outcome::ok(SeqQueryReply { seq_range, ..SeqQueryReply::default() }))
    }

    /// FLD_QUERY: which server holds a sequence. What this MDT does not know it asks MDT0000 for.
    pub(crate) async fn fld_query(
        &self,
        context: &Context,
        request: &FldQuery,
    ) -> Result<Outcome, Errno> {
        if request.fld_opc != FLD_LOOKUP {
            return Err(Errno::EINVAL);
        }
        let sequence = request.fld_mdfld.start;
        let local = LuSeqRange {
            start: sequence,
            end: sequence.saturating_add(1),
            index: 0,
            flags: SeqRangeFlags::MDT,
        };
        let found = match sequence {
            fid_seq::ROOT | fid_seq::DOT_LUSTRE => local,
            _ => self.holder(&context.target, sequence).await?,
        };
        let fld_mdfld = Some(found);
        Ok(Outcome::ok(FldQueryReply { fld_mdfld, ..FldQueryReply::default() }))
    }

    /// Which target holds a sequence.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if none does, [`Errno::EINPROGRESS`] if MDT0000 has to be asked and is away.
    pub(crate) async fn holder(&self, target: &Target, sequence: u64) -> Result<LuSeqRange, Errno> {
        if let Some(range) = self.sequences.find(sequence) {
            return Ok(range);
        }
        if !self.sequences.is_controller() {
            let clock = &*target.world().clock;
            let read = self.sequences.read_table_anew();
            within(clock, PATIENCE, read).await.ok_or(Errno::EINPROGRESS)??;
        }
        self.sequences.find(sequence).ok_or(Errno::ENOENT)
    }

    /// FLD_READ: the ranges of one target behind that which begins at `start`, or of all targets for the kind `ANY`; as
    /// many as a page has room for, and `EAGAIN` with them if there are more.
    pub(crate) fn fld_read(&self, request: &FldRead) -> Outcome {
        let asked = &request.fld_mdfld;
        let is_wanted = |range: &LuSeqRange| {
            asked.flags == SeqRangeFlags::ANY
                || range.index == asked.index && range.flags == asked.flags
        };
        let most = LuSeqRangeArray::RANGES_MAX;
        let mut ranges = self.sequences.table.behind(asked.start, most + 1, is_wanted);
        let has_more = ranges.len() > most;
        ranges.truncate(most);
        let mut page = LuSeqRangeArray { ranges }.encode().to_vec();
        page.resize(FLD_READ_BYTES, 0);
        let generic_data = Bytes::from(page);
        let reply = FldReadReply { generic_data, ..FldReadReply::default() };
        match has_more {
            true => Outcome::failed(Errno::EAGAIN, reply),
            false => Outcome::ok(reply),
        }
    }
}

/// Whether a server may ask for the range of a target: an OST's any MDT may, as it creates objects there; an MDT's
/// only that MDT.
///
/// # Errors
/// [`Errno::EINVAL`] for what is no target, [`Errno::EPERM`].
fn may_have(server: &Export, asked: &LuSeqRange) -> Result<(), Errno> {
    let is_target = asked.flags == SeqRangeFlags::MDT || asked.flags == SeqRangeFlags::OST;
    if !is_target || asked.index > u32::from(u16::MAX) {
        return Err(Errno::EINVAL);
    }
    let owner = server.owner();
    let is_own = owner.is_some_and(|owner| {
        owner.kind == TargetKind::Mdt && u32::from(owner.index) == asked.index
    });
    match asked.flags == SeqRangeFlags::OST || is_own || server.is_local() {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}
