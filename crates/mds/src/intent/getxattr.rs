//! The intent to read all extended attributes, under the lock that lets a client keep them.

use sheen_target::{Context, EnqueueRequest, Outcome};
use sheen_types::{Errno, InodeBits, ResourceName};
use sheen_wire::ldlm::{Disposition, LockFlags as WireFlags};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{LdlmIntentGetxattr, LdlmIntentGetxattrReply};

use crate::answer::lockless_reply;
use crate::caller::Caller;
use crate::distributed_exclusions::KeyRef;
use crate::{Mdt, locks};

impl Mdt {
    /// Answers with names, values and their lengths; with nothing but ERANGE where they are too long, or some
    /// are not for this user.
    pub(crate) async fn intent_getxattr(
        &self,
        context: &Context,
        request: &LdlmIntentGetxattr,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let fid = asked.fid1;
        self.exclusion.distributed.until_visible(KeyRef::Inode(fid)).await;
        self.inode(fid)?;
        let held = context.resent_lock(enqueue);
        let guard = match held {
            Some(_) => None,
            None => {
                let policy = sheen_ldlm::Policy::bits(InodeBits::XATTR);
                let resource = ResourceName::of_fid(fid);
                let lock = || context.target.lock(resource, policy, enqueue.mode);
                Some(self.exclusion.distributed.lock_shown(KeyRef::Inode(fid), lock).await?)
            }
        };
        let inode = self.inode(fid)?;
        let found = self.all_xattrs(&inode, asked.eadatasize as usize)?;
        let mut lock = match guard {
            Some(guard) => locks::hand_over(context, guard, enqueue)?,
            None => held.unwrap_or_default(),
        };
        lock.flags |= WireFlags::LOCK_CHANGED;
        let has_user = found.as_ref().is_some_and(|found| found.has_user);
        let is_hidden = has_user && !self.may_read_user(&Caller::from(asked), &inode)?;
        let found = found.filter(|_| !is_hidden);
        if found.is_none() {
            // The client asks for them one by one then: it keeps what it gets here for all of its users.
            lock.policy_res2 = lockless_reply(Disposition::NONE, Some(Errno::ERANGE)).policy_res2;
        }
        let found = found.unwrap_or_default();
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
