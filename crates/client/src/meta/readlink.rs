//! The target of a symbolic link: one `MDS_GETATTR`, once for each inode.

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::Errno;
use sheen_types::limits::PATH_BYTES_MAX;
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsGetattr;

use super::Meta;
use crate::cache::Inode;
use crate::call;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

impl Meta {
    /// The target. One RPC the first time; targets never change.
    pub(crate) async fn readlink(&self, who: &Credentials, inode: &Inode) -> Result<Bytes, Errno> {
        if let Some(target) = inode.state().target.clone() {
            return Ok(target);
        }
        let mdt = self.mdt(inode.fid).await?;
        let mut mdt_body = who.body(inode.fid, Valid::LINKNAME, NO_GROUP);
        mdt_body.eadatasize = PATH_BYTES_MAX as u32;
        let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
        let call = who.sign(Call::new(request).with_reply_room(PATH_BYTES_MAX));
        let answer = call::call::<MdsGetattr>(&*mdt.channel, call).await?;
        let body = call::need(answer.reply.mdt_body)?;
        if !body.valid.contains(Valid::LINKNAME) {
            return Err(Errno::EINVAL);
        }
        let mut target = answer.reply.mdt_md;
        let end = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
        target.truncate(end);
        if target.is_empty() {
            return Err(Errno::EPROTO);
        }
        inode.state().target = Some(target.clone());
        Ok(target)
    }
}
