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
    /// Returns when what was done to `inode` is durable. One RPC, and one to each other MDT that has changed it.
    pub(crate) async fn sync(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let home = self.mdt(inode.fid).await?;
        sync(&home, who, inode.fid).await?;
        // What an MDT has done to it that does not have it, a name of another directory's say.
        let changes = inode.state().changes.clone();
        for (mdt, transno) in changes.iter().filter(|(mdt, _)| *mdt != home.index) {
            let mdt = self.mdts.by_index(mdt).ok_or(Errno::ENODEV)?;
            if transno > mdt.channel.last_committed() {
                sync(&mdt, who, Fid::default()).await?;
            }
        }
        Ok(())
    }

    /// Returns when all that any MDT has is durable there. One RPC for each.
    pub(crate) async fn sync_all(&self, who: &Credentials) -> Result<(), Errno> {
        for mdt in self.mdts() {
            sync(&mdt, who, Fid::default()).await?;
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
