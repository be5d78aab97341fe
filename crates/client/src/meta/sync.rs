//! Making metadata durable: one `MDS_SYNC` of an inode, or of everything.

use sheen_rpc::Call;
use sheen_types::{Errno, Fid};
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsSync;

use super::Meta;
use crate::cache::Inode;
use crate::call;
use crate::mdt::{Mdc, NO_GROUP};
use crate::types::Credentials;

impl Meta {
    /// Returns when what was done to `inode` is durable. One RPC.
    pub(crate) async fn sync(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        sync(self.mdt(inode.fid)?, who, inode.fid).await
    }

    /// Returns when all that any MDT has is durable there. One RPC for each.
    pub(crate) async fn sync_all(&self, who: &Credentials) -> Result<(), Errno> {
        for mdt in self.mdts() {
            sync(mdt, who, Fid::default()).await?;
        }
        Ok(())
    }
}

/// Makes an inode durable, or for no FID everything.
async fn sync(mdt: &Mdc, who: &Credentials, fid: Fid) -> Result<(), Errno> {
    let mdt_body = who.body(fid, Valid::NONE, NO_GROUP);
    let request = MdsSync { mdt_body, ..MdsSync::default() };
    call::call::<MdsSync>(&*mdt.channel, who.sign(Call::new(request))).await.map(drop)
}
