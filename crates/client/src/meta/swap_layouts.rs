//! Exchanging the layouts of two files: one `MDS_SWAP_LAYOUTS`.

use sheen_rpc::Call;
use sheen_types::{Errno, InodeBits};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::md::{SwapLayouts, Valid};
use sheen_wire::messages::MdsSwapLayouts;

use super::Meta;
use crate::cache::Inode;
use crate::call;
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

impl Meta {
    /// Each file gets the bytes of the other. One RPC.
    ///
    /// # Errors
    /// What the MDT answers: `EPERM`, `EINVAL` for what are no two regular files.
    pub(crate) async fn swap_layouts(
        &self,
        who: &Credentials,
        first: &Inode,
        second: &Inode,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(first.fid).await?;
        let bits = InodeBits::LAYOUT | InodeBits::XATTR;
        let dlm_req = self.cancel_early(&mdt, &[(first, bits), (second, bits)]).await;
        let mut mdt_body = who.body(first.fid, Valid::NONE, NO_GROUP);
        mdt_body.fid2 = second.fid;
        let mut swap = Writer::with_capacity(SwapLayouts::SIZE);
        SwapLayouts::default().encode(&mut swap);
        let swap_layouts = swap.into_bytes();
        let request =
            MdsSwapLayouts { mdt_body, swap_layouts, dlm_req, ..MdsSwapLayouts::default() };
        let call = who.sign(Call::modifying(request));
        let answer = call::call::<MdsSwapLayouts>(&*mdt.channel, call).await?;
        self.note_changed(&mdt, answer.body.transno, &[first, second]);
        Ok(())
    }
}
