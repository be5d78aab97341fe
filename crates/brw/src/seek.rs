//! OST_SEEK: the next data or hole of an object.

use sheen_target::{Context, Outcome, store_errno};
use sheen_types::{Errno, Extent, LockMode, Seek};
use sheen_wire::messages::{OstSeek, OstSeekReply};
use sheen_wire::ost::OstBody;

use crate::{Brw, Objects};

impl<O: Objects> Brw<O> {
    /// From `size` on. Nothing found is an offset of -1.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for another search, those of locks and the store.
    pub async fn seek(&self, context: &Context, request: OstSeek) -> Result<Outcome, Errno> {
        let mut oa = request.ost_body.oa;
        let object = self.objects.find(oa.oi)?;
        let hole = oa.seek().ok_or(Errno::EINVAL)? == Seek::Hole;
        let extent = Extent { start: oa.size, end: Extent::EOF };
        let lock = self.lock_if_asked(context, &oa, extent, LockMode::Pr, false).await?;
        let found = self.store.seek(object, oa.size, hole).map_err(store_errno)?;
        drop(lock);
        oa.size = found.unwrap_or(u64::MAX);
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstSeekReply { ost_body, ..OstSeekReply::default() }))
    }
}
