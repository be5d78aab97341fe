//! Finding a name: one `LDLM_ENQUEUE` with a getattr or lookup intent.

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, LockMode, Name};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{Disposition, Valid};
use sheen_wire::messages::{LdlmIntentGetattr, LdlmIntentGetattrReply};
use sheen_wire::text::Text;

use super::inline::data_value;
use super::{ACL_ROOM, Meta};
use crate::cache::{CacheEpoch, Inode, Pin, ReplyAttributes};
use crate::call;
use crate::locks::{LockReference, LockRequest, PendingLock};
use crate::mdt::intent_status;
use crate::types::Credentials;
use sheen_ldlm::{LockFlags, Policy};

/// How much is wanted of a name's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupDepth {
    /// Attributes under a lock on all of them.
    Attributes,
    /// A lock on the name; attributes as of now. For directories that this client is changing itself: a lock
    /// on their attributes would be revoked by the next change, and the name's lock with it.
    Name,
}

impl LookupDepth {
    fn intent(self) -> (IntentOp, InodeBits) {
        match self {
            // With XATTR the MDT may say that there are no extended attributes.
            Self::Attributes => (IntentOp::GETATTR, InodeBits::UPDATE | InodeBits::XATTR),
            Self::Name => (IntentOp::LOOKUP, InodeBits::LOOKUP),
        }
    }
}

/// What was known of a name when it was asked for.
pub(super) struct NameKnown {
    fid: Option<Fid>,
    asked: CacheEpoch,
}

impl NameKnown {
    pub(super) fn of(parent: &Inode, name: &Name) -> Self {
        let state = parent.state();
        Self { fid: state.directory.children.get(name).copied(), asked: state.epoch() }
    }

    /// The inode that it stood for.
    pub(super) fn fid(&self) -> Option<Fid> {
        self.fid
    }
}

/// What was known of an inode when it was asked about, if it was known at all.
pub(super) struct About(Option<(Fid, CacheEpoch)>);

/// What every getattr asks for.
pub(super) fn getattr_valid() -> Valid {
    // OBD_MD_FLGETATTR, and what comes with it. Not how new directories are striped by default: we make none striped,
    // and do not say that we know of it (`DIR_STRIPE`), so that an MDT would refuse the whole question. With `MEA` it
    // refuses it for a directory that is striped, which could not be walked.
    Valid::ID
        | Valid::ATIME
        | Valid::MTIME
        | Valid::CTIME
        | Valid::SIZE
        | Valid::BLOCKS
        | Valid::BLKSIZE
        | Valid::MODE
        | Valid::TYPE
        | Valid::UID
        | Valid::GID
        | Valid::FLAGS
        | Valid::NLINK
        | Valid::PARENT
        | Valid::RDEV
        | Valid::EASIZE
        | Valid::MODEASIZE
        | Valid::DIREA
        | Valid::MEA
        | Valid::ACL
        | Valid::PROJID
        | Valid::BTIME
}

impl Meta {
    /// Looks `name` up in `parent`; `None` if it is not there. One RPC.
    pub(crate) async fn lookup(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        let known = NameKnown::of(parent, name);
        let found = self.getattr_intent(who, parent, Some(name), depth).await;
        match found {
            Ok(found) => Ok(Some(self.name_found(parent, name, found))),
            Err(Errno::ENOENT) => {
                self.name_absent(parent, name, &known);
                self.learn_names(who, parent).await;
                Ok(None)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Notes what a name stands for. It is sure as long as the lock that came with it is in use.
    pub(super) fn name_found(
        &self,
        parent: &Inode,
        name: &Name,
        (child, _held): (Pin, Option<LockReference>),
    ) -> Pin {
        self.cache.inodes.remember_name(parent, name, &child);
        child
    }

    /// Notes that a directory has no such name.
    pub(super) fn name_absent(&self, parent: &Inode, name: &Name, known: &NameKnown) {
        self.cache.inodes.unsee_name(parent, name);
        let mut state = parent.state();
        if state.unbroken_since(&known.asked) {
            state.keep_absent(name);
        }
    }

    /// The intent itself: of a name in `inode`, or without one of `inode`.
    pub(super) async fn getattr_intent(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: Option<&Name>,
        depth: LookupDepth,
    ) -> Result<(Pin, Option<LockReference>), Errno> {
        let mdt = self.mdt(inode.fid)?;
        let (opc, bits) = depth.intent();
        let about = match name {
            None => Some(inode.fid),
            Some(name) => inode.state().directory.children.get(name).copied(),
        };
        let about = self.about(about);
        let pending = mdt.locks.begin(LockRequest {
            resource: inode.resource(),
            policy: Policy::bits(bits),
            mode: LockMode::Cr,
            flags: LockFlags::HAS_INTENT,
        });
        let mut body = who.body(inode.fid, getattr_valid(), who.group_for(inode, May::EXEC));
        if name.is_none() {
            body.fid2 = inode.fid;
        }
        body.eadatasize = self.layout_room() as u32;
        let request = LdlmIntentGetattr {
            dlm_req: pending.request(),
            ldlm_intent: LdlmIntent { opc },
            mdt_body: body,
            name: Some(name.map(Text::from).unwrap_or_default()),
            ..LdlmIntentGetattr::default()
        };
        let call = who.sign(Call::new(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let (pending, answer) = pending.send::<LdlmIntentGetattr>(&mdt.channel, call).await?;
        self.take_attributes(&about, pending, answer.reply, answer.connection).await
    }

    /// What is known of the inode that a question is about, if its FID is known.
    pub(super) fn about(&self, fid: Option<Fid>) -> About {
        let inode = fid.and_then(|fid| self.cache.inodes.by_fid(fid));
        About(inode.map(|inode| (inode.fid, inode.state().epoch())))
    }

    /// Takes over what a getattr intent was answered, which came over this connection: attributes, and the lock that
    /// covers them.
    pub(super) async fn take_attributes(
        &self,
        about: &About,
        pending: PendingLock,
        reply: LdlmIntentGetattrReply,
        connection: u32,
    ) -> Result<(Pin, Option<LockReference>), Errno> {
        let lock = call::need(reply.dlm_rep)?;
        if lock.policy_res1.contains(Disposition::LOOKUP_NEG) {
            return Err(Errno::ENOENT);
        }
        if let Some(errno) = intent_status(lock.policy_res2) {
            return Err(errno);
        }
        let value = data_value(&lock, reply.mdt_body.as_ref());
        let held = pending.granted_with(&lock, &value, connection).await?;
        let body = call::need(reply.mdt_body)?;
        let pin = self.cache.inodes.pin(body.fid1);
        let asked = about.0.filter(|(fid, _)| *fid == pin.fid).map(|(_, epoch)| epoch);
        let asked = asked.unwrap_or(CacheEpoch::UNKNOWN);
        let attributes = ReplyAttributes { body: &body, layout: &reply.mdt_md, acl: &reply.acl };
        pin.apply_reply(&attributes, held.as_ref(), &asked);
        Ok((pin, held))
    }
}
