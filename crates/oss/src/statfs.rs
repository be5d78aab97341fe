//! OST_STATFS: space and objects.

use sheen_target::{Outcome, store_errno};
use sheen_types::Errno;
use sheen_types::limits::NAME_BYTES_MAX;
use sheen_wire::md::{ObdStatfs, StatfsState};
use sheen_wire::messages::OstStatfsReply;

use crate::Ost;

/// Bytes of the blocks that sizes are given in.
const BLOCK: u64 = 4096;
/// What we say the file system below is: ext4, whose limits ours are.
const MAGIC: u64 = 0xEF53;
/// Below this many free blocks (1 MiB) no object should be placed here.
const BLOCKS_LOW: u64 = 256;

impl Ost {
    /// What is promised counts as free, as in Lustre: it may never be used.
    pub(crate) fn statfs(&self) -> Result<Outcome, Errno> {
        let space = self.store.space().map_err(store_errno)?;
        let available = space.available / BLOCK;
        let mut state = StatfsState::NONE;
        for (holds, flag) in [
            (available < BLOCKS_LOW, StatfsState::ENOSPC),
            (self.is_degraded(), StatfsState::DEGRADED),
            (self.refuses_files(), StatfsState::NOCREATE),
            (self.is_read_only(), StatfsState::READONLY),
        ] {
            if holds {
                state |= flag;
            }
        }
        let obd_statfs = ObdStatfs {
            kind: MAGIC,
            blocks: space.total / BLOCK,
            bfree: space.free / BLOCK,
            bavail: available,
            files: space.objects,
            ffree: space.objects_free,
            bsize: BLOCK as u32,
            namelen: NAME_BYTES_MAX as u32,
            maxbytes: self.store.object_bytes_max(),
            state,
            ..ObdStatfs::default()
        };
        let obd_statfs = Some(obd_statfs);
        Ok(Outcome::ok(OstStatfsReply { obd_statfs, ..OstStatfsReply::default() }))
    }
}
