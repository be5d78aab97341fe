//! Extended attributes: all of an inode's come with one `LDLM_ENQUEUE` (getxattr intent) and are kept
//! under its lock; changes are one `MDS_REINT` (setxattr).

use std::sync::Arc;

use bytes::Bytes;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::limits::XATTR_VALUE_BYTES_MAX;
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{RecSetxattr, ReintOp, Valid};
use sheen_wire::messages::{
    LdlmIntentGetxattr, LdlmIntentGetxattrReply, MdsGetxattr, MdsReintSetxattr,
};
use sheen_wire::text::Text;

use super::Meta;
use super::migrate::TRUSTED_LMV;
use crate::cache::{Inode, Xattrs};
use crate::call;
use crate::locks::LockRequest;
use crate::mdt::intent_status;
use crate::types::{Credentials, XattrMode};

/// Bytes of values that are requested with the names. Inodes with more are asked value by value.
const VALUES_ROOM: usize = 2500;
/// Bytes of names, and of lengths.
const NAMES_ROOM: usize = 1024;
/// What changes the mode with it.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// `XATTR_CREATE`, `XATTR_REPLACE`.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

impl Meta {
    /// All extended attributes; `None` if they are too large to be had at once. One RPC, none while a lock
    /// covers what is known.
    pub(crate) async fn xattrs(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<Option<Arc<Xattrs>>, Errno> {
        {
            let state = inode.state();
            if self.caches_xattrs()
                && let Some(xattrs) = state.xattrs()
            {
                return Ok(Some(Arc::clone(xattrs)));
            }
        }
        match self.xattr_intent(who, inode).await {
            Ok(xattrs) => Ok(Some(xattrs)),
            Err(Errno::ERANGE | Errno::E2BIG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    async fn xattr_intent(&self, who: &Credentials, inode: &Inode) -> Result<Arc<Xattrs>, Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let pending = mdt.locks.begin(LockRequest {
            resource: inode.resource(),
            policy: Policy::bits(InodeBits::XATTR),
            mode: LockMode::Pr,
            flags: LockFlags::HAS_INTENT,
        });
        let valid = Valid::XATTR | Valid::XATTRLS;
        let mut mdt_body = who.body(inode.fid, valid, who.group_for(inode, May::READ));
        mdt_body.eadatasize = VALUES_ROOM as u32;
        let request = LdlmIntentGetxattr {
            dlm_req: pending.request(),
            ldlm_intent: LdlmIntent { opc: IntentOp::GETXATTR },
            mdt_body,
            ..LdlmIntentGetxattr::default()
        };
        let call = who.sign(Call::new(request).with_reply_room(VALUES_ROOM + NAMES_ROOM));
        let (pending, answer) = pending.send::<LdlmIntentGetxattr>(&mdt.channel, call).await?;
        let reply = answer.reply;
        let lock = call::need(reply.dlm_rep.clone())?;
        if let Some(errno) = intent_status(lock.policy_res2) {
            return Err(errno);
        }
        let held = pending.granted(&lock, answer.connection).await?;
        let xattrs = Arc::new(split(&reply)?);
        if let Some(held) = held {
            inode.state().note_xattrs(&held, Arc::clone(&xattrs));
        }
        Ok(xattrs)
    }

    /// One extended attribute, or with an empty name the names of all. One RPC, never cached.
    pub(crate) async fn getxattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Bytes, Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let valid = if name.is_empty() { Valid::XATTRLS } else { Valid::XATTR };
        let mut mdt_body = who.body(inode.fid, valid, who.group_for(inode, May::READ));
        mdt_body.eadatasize = XATTR_VALUE_BYTES_MAX as u32;
        let request = MdsGetxattr {
            mdt_body,
            name: (!name.is_empty()).then(|| Text::new(name)),
            ..MdsGetxattr::default()
        };
        let call = who.sign(Call::new(request).with_reply_room(XATTR_VALUE_BYTES_MAX));
        Ok(call::call::<MdsGetxattr>(&*mdt.channel, call).await?.reply.eadata)
    }

    /// Sets an extended attribute, or removes it if `value` is `None`. One RPC.
    pub(crate) async fn setxattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: &[u8],
        value: Option<Bytes>,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let mut bits = InodeBits::XATTR;
        if name == ACL_ACCESS {
            bits = bits | InodeBits::UPDATE | InodeBits::LOOKUP | InodeBits::PERM;
        }
        let dlm_req = self.cancel_early(&mdt, &[(inode, bits)]).await;
        let (valid, flags) = match (&value, mode) {
            (None, _) => (Valid::XATTRRM, REPLACE),
            (_, XattrMode::Any) => (Valid::XATTR, 0),
            (_, XattrMode::Create) => (Valid::XATTR, CREATE),
            (_, XattrMode::Replace) => (Valid::XATTR, REPLACE),
        };
        let value = value.unwrap_or_default();
        let (suppgid1, suppgid2) = who.groups_for(inode, May::WRITE);
        let request = MdsReintSetxattr {
            rec_reint: RecSetxattr {
                opcode: ReintOp::SETXATTR,
                cap: who.capabilities(),
                fsuid: who.uid,
                fsgid: who.gid,
                suppgid1,
                suppgid2,
                fid: inode.fid,
                valid: valid | Valid::CTIME,
                time: self.seconds(),
                flags,
                ..RecSetxattr::default()
            },
            name: Some(Text::new(name)),
            eadata: value,
            dlm_req,
            ..MdsReintSetxattr::default()
        };
        // The end of a migration: see [`super::migrate`].
        let ends_with_caller = name == TRUSTED_LMV;
        let call = Call { ends_with_caller, ..who.sign(Call::modifying(request)) };
        let answer = call::call::<MdsReintSetxattr>(&*mdt.channel, call).await?;
        self.note_changed(&mdt, answer.body.transno, &[inode]);
        Ok(())
    }
}

/// Takes names, values and lengths of a reply apart.
fn split(reply: &LdlmIntentGetxattrReply) -> Result<Xattrs, Errno> {
    let names = reply.eadata.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut xattrs = Xattrs::default();
    let mut at = 0usize;
    let mut lengths = reply.eavals_lens.iter();
    for name in names {
        let length = *lengths.next().ok_or(Errno::EPROTO)? as usize;
        let end = at.checked_add(length).filter(|end| *end <= reply.eavals.len());
        let end = end.ok_or(Errno::EPROTO)?;
        // A copy, so that a small value does not keep the whole reply in memory.
        xattrs.insert(name.into(), Bytes::copy_from_slice(&reply.eavals[at..end]));
        at = end;
    }
    Ok(xattrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_lengths_must_agree() {
        let mut reply = LdlmIntentGetxattrReply {
            eadata: Bytes::from_static(b"user.a\0user.empty\0"),
            eavals: Bytes::from_static(b"hello"),
            eavals_lens: vec![5, 0],
            ..LdlmIntentGetxattrReply::default()
        };
        let xattrs = split(&reply).unwrap();
        assert_eq!(xattrs[&b"user.a"[..]], "hello");
        assert_eq!(xattrs[&b"user.empty"[..]], "");
        reply.eavals_lens = vec![5, 1];
        assert_eq!(split(&reply), Err(Errno::EPROTO));
        reply.eavals_lens = vec![5];
        assert_eq!(split(&reply), Err(Errno::EPROTO));
    }
}
