//! OST_SEEK: the next data or hole of an object.

use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstSeek, OstSeekReply};
use sheen_wire::ost::{ObdoFlags, OstBody};

use crate::{Ost, objects};

/// `SEEK_DATA`.
const DATA: u32 = 3;
/// `SEEK_HOLE`.
const HOLE: u32 = 4;

impl Ost {
    /// From `size` on; the kind of search lies in the mode. Nothing found is an offset of -1.
    pub(crate) async fn seek(&self, context: &Context, request: OstSeek) -> Result<Outcome, Errno> {
        let mut oa = request.ost_body.oa;
        let object = objects::fid_of(oa.oi, self.index)?;
        let hole = match oa.mode {
            DATA => false,
            HOLE => true,
            _ => return Err(Errno::EINVAL),
        };
        let wants_lock = oa.valid.contains(Valid::FLAGS) && oa.flags.contains(ObdoFlags::SRVLOCK);
        let extent = Extent { start: oa.size, end: Extent::EOF };
        let lock = match wants_lock {
            true => {
                let target = &context.target;
                Some(target.lock_extent(oa.oi.resource(), extent, LockMode::Pr).await?)
            }
            false => None,
        };
        let found = self.store.seek(object, oa.size, hole).map_err(|error| error.errno())?;
        drop(lock);
        oa.size = found.unwrap_or(u64::MAX);
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstSeekReply { ost_body, ..OstSeekReply::default() }))
    }
}
