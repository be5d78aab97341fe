//! MDS_SYNC: makes an inode durable, or everything so far.
//!
//! An inode costs one commit, which other changes share, and for a file on the MDT the sync of its own
//! bytes. Other files' bytes are not its business: with those of 2,000 small files written just
//! before, the `fsync` of their directory took 4,000 syncs of the local file system.

use sheen_target::{Context, Outcome};
use sheen_types::Errno;
use sheen_wire::messages::{MdsSync, MdsSyncReply};

use crate::{Mdt, dom_layout};

impl Mdt {
    /// Commits. With an inode named its bytes that lie here are synced too, and the answer has its
    /// attributes; without one, the bytes of all.
    pub(crate) async fn sync(
        &self,
        context: &Context,
        request: &MdsSync,
    ) -> Result<Outcome, Errno> {
        let fid = request.mdt_body.fid1;
        if fid.is_zero() {
            context.target.sync().await?;
            let mdt_body = Some(Default::default());
            return Ok(Outcome::ok(MdsSyncReply { mdt_body, ..MdsSyncReply::default() }));
        }
        let inode = self.inode(fid)?;
        let layout = self.layout(&inode)?;
        if layout.as_ref().and_then(dom_layout::part_of).is_some() {
            self.dom.brw.make_durable(context, fid).await?;
        }
        context.target.wait_until_all_committed().await?;
        let body = self.body(&inode, layout.is_some());
        Ok(Outcome::ok(MdsSyncReply { mdt_body: Some(body), ..MdsSyncReply::default() }))
    }
}
