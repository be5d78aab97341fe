//! The intent to read all extended attributes, under the lock that lets a client keep them.

use sheen_target::{Context, LockWish, Outcome};
use sheen_types::{Errno, InodeBits, ResourceName};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{LdlmIntentGetxattr, LdlmIntentGetxattrReply};

use crate::{Mdt, locks};

impl Mdt {
    /// Answers with names, values and their lengths.
    pub(crate) async fn intent_getxattr(
        &self,
        context: &Context,
        request: &LdlmIntentGetxattr,
        wish: &LockWish,
    ) -> Result<Outcome, Errno> {
        let fid = request.mdt_body.fid1;
        self.inode(fid)?;
        let lock = match context.held_lock(wish) {
            Some(lock) => lock,
            None => {
                let policy = sheen_ldlm::Policy::bits(InodeBits::XATTR);
                let resource = ResourceName::of_fid(fid);
                let guard = context.target.lock(resource, policy, wish.mode).await?;
                locks::hand_over(context, guard, wish)?
            }
        };
        let found = self.all_xattrs(&self.inode(fid)?)?;
        let body = MdtBody {
            valid: Valid::XATTR,
            eadatasize: found.names.len() as u32,
            aclsize: found.values.len() as u32,
            max_mdsize: found.lengths.len() as u32,
            ..MdtBody::default()
        };
        Ok(Outcome::ok(LdlmIntentGetxattrReply {
            dlm_rep: Some(lock),
            mdt_body: Some(body),
            eadata: found.names,
            eavals: found.values,
            eavals_lens: found.lengths,
            ..LdlmIntentGetxattrReply::default()
        }))
    }
}
