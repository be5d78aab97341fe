//! Attributes of a known inode: one `LDLM_ENQUEUE` with a getattr intent by FID, or one `MDS_GETATTR` where
//! this client has the lock and has changed the inode under it.

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::Errno;
use sheen_types::access::May;
use sheen_wire::messages::MdsGetattr;

use super::lookup::getattr_valid;
use super::remote::refuse_striped;
use super::{ACL_ROOM, LookupDepth, Meta};
use crate::cache::{Inode, ReplyAttributes};
use crate::call;
use crate::types::Credentials;

impl Meta {
    /// Asks for the attributes of `inode`, with a lock on them. One RPC.
    pub(crate) async fn getattr(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        if inode.state().attributes_locked() {
            return self.getattr_again(who, inode).await;
        }
        let found = self.getattr_intent(who, inode, None, LookupDepth::Attributes).await?;
        found.is(inode)
    }

    /// Asks for mode, owner, group and access control list of `inode`, with a lock on them that
    /// changes of a directory's names leave alone. One RPC.
    pub(crate) async fn rights(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let found = self.getattr_intent(who, inode, None, LookupDepth::Name).await?;
        found.is(inode)
    }

    /// Asks for attributes alone: a lock covers them already, and another would only be one more.
    async fn getattr_again(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let asked = inode.state().epoch();
        let mut mdt_body = who.body(inode.fid, getattr_valid(), who.group_for(inode, May::EXEC));
        mdt_body.eadatasize = self.layout_room() as u32;
        let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
        let call = who.sign(Call::new(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let answer = call::call::<MdsGetattr>(&*mdt.channel, call).await?;
        let body = call::need(answer.reply.mdt_body)?;
        if body.fid1 != inode.fid {
            return Err(Errno::EPROTO);
        }
        refuse_striped(&body, &answer.reply.mdt_md)?;
        let nothing = Bytes::new();
        let attributes = ReplyAttributes { body: &body, layout: &nothing, acl: &answer.reply.acl };
        inode.apply_unlocked_reply(&attributes, &asked);
        Ok(())
    }
}
