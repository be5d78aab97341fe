//! FIDs of stripes. Those on this MDT are of a sequence of its own, those on another one of a sequence that it has given this MDT, as
//! it gives clients theirs (Lustre: OSP's `dt_fid_alloc`). So a stripe elsewhere costs no request: only the first one of a start
//! does. A start takes new sequences, as it does not know how far the one before had got.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_rpc::{Call, RpcError};
use sheen_target::{Target, Wait, while_waiting};
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::messages::{Reply, SeqQuery};

use crate::Mdt;
use crate::sequences::ALLOC_META;

/// Inodes of one sequence (`LUSTRE_METADATA_SEQ_MAX_WIDTH`).
const FIDS_MAX: u32 = 0x1_ffff;

/// The last FID that was given on an MDT; zero if none was. An MDT that has started anew does not know any more whose a sequence
/// is that it gave before, and lets clients go on in it: then another one is taken.
#[derive(Default)]
struct LastFid {
    fid: Fid,
    /// Of the connection over which the sequence came.
    connection: u32,
}

/// By MDT.
#[derive(Default)]
pub(crate) struct StripeFids(Mutex<BTreeMap<MdtIndex, Arc<tokio::sync::Mutex<LastFid>>>>);

impl Mdt {
    /// A new FID for each of the MDTs, in their order: no one else will ever have it.
    ///
    /// # Errors
    /// [`Errno::EREMOTE`] for what is no partner, those of the MDT that is asked.
    pub(crate) async fn new_fids(
        &self,
        target: &Target,
        mdts: &[MdtIndex],
    ) -> Result<Vec<Fid>, Errno> {
        let mut fids = Vec::with_capacity(mdts.len());
        for mdt in mdts {
            let last = Arc::clone(self.stripe_fids.0.lock().entry(*mdt).or_default());
            // An MDT that is asked for a sequence may be away: only those wait that need it, too.
            let mut last = while_waiting(Wait::Operation, last.lock()).await;
            let connection = match mdt.0 == self.index {
                true => 0,
                false => self.partner(*mdt)?.connection(),
            };
            let is_over = last.fid.is_zero() || last.fid.oid >= FIDS_MAX;
            if is_over || last.connection != connection {
                let fid = Fid::new(self.new_sequence(target, *mdt).await?, 0);
                *last = LastFid { fid, connection };
            }
            last.fid.oid += 1;
            fids.push(last.fid);
        }
        Ok(fids)
    }

    /// A sequence on an MDT that no client has, nor any other MDT.
    async fn new_sequence(&self, target: &Target, mdt: MdtIndex) -> Result<u64, Errno> {
        if mdt.0 == self.index {
            return self.sequences.next_for_mdt(target).await;
        }
        let channel = self.partner(mdt)?;
        let seq_range = LuSeqRange { flags: SeqRangeFlags::MDT, ..LuSeqRange::default() };
        let request = SeqQuery { seq_opc: ALLOC_META, seq_range, ..SeqQuery::default() };
        let answer = while_waiting(Wait::Mdt, channel.call(Call::new(request))).await;
        let answer = answer.map_err(|error| match error {
            RpcError::Errno(errno) => errno,
            _ => Errno::EAGAIN,
        })?;
        let Reply::SeqQuery(reply) = answer.reply else { return Err(Errno::EPROTO) };
        let start = reply.seq_range.ok_or(Errno::EPROTO)?.start;
        // It is the MDT's own to give.
        let is_there = self.holder(target, start).await?;
        match is_there.flags == SeqRangeFlags::MDT && is_there.index == u32::from(mdt.0) {
            true => Ok(start),
            false => Err(Errno::EPROTO),
        }
    }
}
