//! MDS_SYNC: makes everything so far durable.

use sheen_target::{Context, Outcome};
use sheen_types::Errno;
use sheen_wire::messages::{MdsSync, MdsSyncReply};

use crate::Mdt;

impl Mdt {
    /// Commits; answers with the attributes of the inode, if one is named.
    pub(crate) async fn sync(
        &self,
        context: &Context,
        request: &MdsSync,
    ) -> Result<Outcome, Errno> {
        let fid = request.mdt_body.fid1;
        let inode = match fid.is_zero() {
            true => None,
            false => Some(self.inode(fid)?),
        };
        context.target.sync().await?;
        let body = match inode {
            Some(inode) => self.body(&inode, self.layout(&inode)?.is_some()),
            None => Default::default(),
        };
        Ok(Outcome::ok(MdsSyncReply { mdt_body: Some(body), ..MdsSyncReply::default() }))
    }
}
