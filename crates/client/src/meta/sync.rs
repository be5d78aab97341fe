//! Making metadata durable: one `MDS_SYNC`.

use sheen_rpc::Call;
use sheen_types::Errno;
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsSync;

use super::Meta;
use super::pack::NO_GROUP;
use crate::cache::Inode;
use crate::call;
use crate::posix::Credentials;

impl Meta {
    /// Returns when what was done to `inode` is durable. One RPC.
    pub(crate) async fn sync(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid)?;
        let mdt_body = who.body(inode.fid, Valid::NONE, NO_GROUP);
        let request = MdsSync { mdt_body, ..MdsSync::default() };
        call::call::<MdsSync>(&*mdt.channel, who.sign(Call::new(request))).await?;
        Ok(())
    }
}
