//! The directory that a directory is in: one `MDS_GETATTR_NAME` of its name `..`, without a lock.

use sheen_rpc::Call;
use sheen_types::{Errno, Fid};
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsGetattrName;
use sheen_wire::text::Text;

use super::{ACL_ROOM, Meta};
use crate::call;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

impl Meta {
    /// The FID of the directory that the directory `fid` is in now. One RPC.
    pub(crate) async fn parent(&self, who: &Credentials, fid: Fid) -> Result<Fid, Errno> {
        let mdt_body = who.body(fid, Valid::ID, NO_GROUP);
        let name = Some(Text::from(".."));
        let request = MdsGetattrName { mdt_body, name, ..MdsGetattrName::default() };
        let call = who.sign(Call::new(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let mdt = self.mdt(fid).await?;
        let answer = call::call::<MdsGetattrName>(&*mdt.channel, call).await?;
        Ok(call::need(answer.reply.mdt_body)?.fid1)
    }
}
