//! How a directory lies on MDTs, for those who ask: its own layout, and the default of those that are made in it. A default
//! is asked for with one `MDS_GETATTR`, and set with one `MDS_REINT` (setattr).

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::{Errno, InodeBits};
use sheen_wire::lmv::{LmvMagic, magic_of};
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsGetattr;

use super::setattr::blank_record;
use super::{ACL_ROOM, Meta};
use crate::cache::{Inode, Striping};
use crate::call;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

impl Meta {
    /// The stripes of a directory (`lmv_mds_md_v1`); `None` if it lies in one piece. No RPC while that is known, else one.
    pub(crate) async fn stripes(
        &self,
        who: &Credentials,
        directory: &Inode,
    ) -> Result<Option<Bytes>, Errno> {
        let is_known = {
            let state = directory.state();
            let is_covered = state.master_layout().is_none_or(|(_, is_covered)| is_covered);
            is_covered && !matches!(state.directory.striping, Striping::Unknown)
        };
        if !is_known {
            self.rights(who, directory).await?;
        }
        let state = directory.state();
        Ok(state.master_layout().map(|(layout, _)| layout.to_ea().encode()))
    }

    /// The default of directories that are made in one (`lmv_user_md`); `None` if it has none of its own. One RPC.
    pub(crate) async fn default_striping(
        &self,
        who: &Credentials,
        directory: &Inode,
    ) -> Result<Option<Bytes>, Errno> {
        let mut mdt_body = who.body(directory.fid, Valid::DEFAULT_MEA, NO_GROUP);
        mdt_body.eadatasize = self.layout_room() as u32;
        let request = MdsGetattr { mdt_body, ..MdsGetattr::default() };
        let call = who.sign(Call::new(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let mdt = self.mdt(directory.fid).await?;
        let answer = call::call::<MdsGetattr>(&*mdt.channel, call).await?;
        let body = call::need(answer.reply.mdt_body)?;
        let default = answer.reply.mdt_md;
        let is_there = body.valid.contains(Valid::DEFAULT_MEA)
            && matches!(magic_of(&default), Some(LmvMagic::USER | LmvMagic::STRIPE));
        Ok(is_there.then_some(default))
    }

    /// Sets how the directories are to lie that are made in one; a default of no stripes on any MDT removes
    /// it. One RPC.
    pub(crate) async fn set_default_striping(
        &self,
        who: &Credentials,
        directory: &Inode,
        default: Bytes,
    ) -> Result<(), Errno> {
        let record = blank_record(who, directory);
        let bits = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR;
        let set = self.send_setattr(who, directory, record, default, bits).await;
        directory.state().directory.is_default_covered = false;
        set
    }
}
