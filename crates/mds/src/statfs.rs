//! MDS_STATFS: how full the MDT is, or the whole file system.

use sheen_target::{Outcome, store_errno};
use sheen_types::Errno;
use sheen_types::limits::NAME_BYTES_MAX;
use sheen_wire::md::{ObdStatfs, StatfsState, Valid};
use sheen_wire::messages::{MdsStatfs, MdsStatfsReply};

use crate::{FILE_BYTES_MAX, Mdt};

/// What the local file system would call itself: ext4.
const MAGIC: u64 = 0xef53;
/// Bytes of a block as reported.
const BLOCK: u32 = 4096;

impl Mdt {
    /// What clients that may choose are to know.
    fn state(&self) -> StatfsState {
        let read_only = (self.is_read_only(), StatfsState::READONLY);
        let no_create = (self.refuses_directories(), StatfsState::NOCREATE);
        let said = [read_only, no_create].into_iter().filter(|(holds, _)| *holds);
        said.fold(StatfsState::NONE, |all, (_, flag)| all | flag)
    }

    /// The MDT's own numbers; with `AGSTATFS` the blocks are those of all OSTs.
    pub(crate) fn statfs(&self, request: &MdsStatfs) -> Result<Outcome, Errno> {
        let space = self.store.space().map_err(store_errno)?;
        let block = u64::from(BLOCK);
        let mut answer = ObdStatfs {
            kind: MAGIC,
            blocks: space.total / block,
            bfree: space.free / block,
            bavail: space.available / block,
            files: space.objects,
            ffree: space.objects_free,
            bsize: BLOCK,
            namelen: NAME_BYTES_MAX as u32,
            maxbytes: FILE_BYTES_MAX,
            state: self.state(),
            ..ObdStatfs::default()
        };
        let sum =
            request.mdt_body.as_ref().is_some_and(|body| body.valid.contains(Valid::AGSTATFS));
        if sum && let Some(total) = self.placement.space(block) {
            (answer.blocks, answer.bfree, answer.bavail) = (total.all, total.free, total.available);
        }
        let obd_statfs = Some(answer);
        Ok(Outcome::ok(MdsStatfsReply { obd_statfs, ..MdsStatfsReply::default() }))
    }
}
