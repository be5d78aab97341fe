//! Intents to look a name up, or to read attributes, under a lock.

use std::time::Duration;

use bytes::Bytes;
use sheen_target::{Context, EnqueueRequest, Outcome};
use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::ldlm::{Disposition, IntentOp, LdlmReply};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{LdlmIntentGetattr, LdlmIntentGetattrReply};

use crate::answer::{LOCK_ABORTED, lockless_reply};
use crate::distributed_exclusions::KeyRef;
use crate::getattr::Description;
use crate::hold::{Wanted, WantedName};
use crate::inode::{Inode, WholeInode};
use crate::striped::Above;
use crate::{Mdt, dom, locks, remote};

/// An inode left alone for so long is given out with its attributes, even when only its name was
/// looked up (`ctime_age_limit`).
const QUIET: Duration = Duration::from_secs(10);

/// What an attempt at an intent has come to.
enum IntentAnswer {
    Answer(Outcome),
    /// The inode is part of a change over several MDTs that is not made on all of them yet, or is the one above of a moment ago.
    Hidden(Fid),
}

impl Mdt {
    /// Answers with attributes and a lock that keeps them true; or that there is no such name. Where it must not wait,
    /// with a lock on what no other lock conflicts with, or `EBUSY`.
    pub(crate) async fn intent_getattr(
        &self,
        context: &Context,
        request: &LdlmIntentGetattr,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let executed = Disposition::IT_EXECD | Disposition::LOOKUP_EXECD;
        // Sent again, and the lock was granted: what the name stood for is known. An operation that moves the
        // name now may hold it and wait for this very lock, which the client cannot cancel before it has the
        // answer.
        if let Some(lock) = context.resent_lock(enqueue) {
            let fid = lock.desc.resource.name.fid();
            let disposition = executed | Disposition::LOOKUP_POS;
            if self.is_remote(fid) {
                return Ok(remote_reply(fid, lock, disposition));
            }
            return Ok(match self.reply_under_lock(context, asked, fid, lock, disposition) {
                Ok(outcome) => outcome,
                Err(errno) => refused(disposition, Some(errno)),
            });
        }
        let name = request.name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        loop {
            let above = match enqueue.waits {
                true => self.above(context, asked.fid1, name).await,
                false => self.above_here(asked.fid1, name),
            };
            let above = match above {
                Ok(above) => above,
                Err(errno) => return Ok(refused(executed, Some(errno))),
            };
            match self.getattr_once(context, request, enqueue, above).await? {
                IntentAnswer::Answer(outcome) => return Ok(outcome),
                IntentAnswer::Hidden(_) if !enqueue.waits => {
                    return Ok(refused(executed, Some(Errno::EBUSY)));
                }
                // Nothing is held any more: what would show it may wait for that.
                IntentAnswer::Hidden(fid) => {
                    self.exclusion.distributed.until_visible(KeyRef::Inode(fid)).await;
                }
            }
        }
    }

    async fn getattr_once(
        &self,
        context: &Context,
        request: &LdlmIntentGetattr,
        enqueue: &EnqueueRequest,
        above: Above,
    ) -> Result<IntentAnswer, Errno> {
        let asked = &request.mdt_body;
        let name = request.name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        let executed = Disposition::IT_EXECD | Disposition::LOOKUP_EXECD;
        let answer = |outcome| Ok(IntentAnswer::Answer(outcome));
        // The name must not move on between finding it and locking what it stands for.
        let names = [WantedName::kept(asked.fid1, name)];
        let held = match enqueue.waits {
            true => Some(self.hold(Wanted::of_names(&names)).await?),
            false => self.try_hold(&names),
        };
        let Some(_held) = held else { return answer(refused(executed, Some(Errno::EBUSY))) };
        let fid = match self.resolve(asked, name) {
            Ok(Some(found)) => match above.seen_for(found) {
                Some(fid) => fid,
                None => return Ok(IntentAnswer::Hidden(found)),
            },
            Ok(None) => return answer(refused(executed | Disposition::LOOKUP_NEG, None)),
            Err(errno) => return answer(refused(executed, Some(errno))),
        };
        if !name.is_empty() && asked.valid == Valid::ID {
            return answer(fid_only_reply(fid, executed | Disposition::LOOKUP_POS));
        }
        let disposition = executed | Disposition::LOOKUP_POS;
        let done = match self.is_remote(fid) && !name.is_empty() {
            true => {
                self.name_locked(context, enqueue, fid, disposition).await.map(IntentAnswer::Answer)
            }
            false => self.getattr_locked(context, request, enqueue, fid, disposition).await,
        };
        done.or_else(|errno| answer(refused(disposition, Some(errno))))
    }

    async fn getattr_locked(
        &self,
        context: &Context,
        request: &LdlmIntentGetattr,
        enqueue: &EnqueueRequest,
        fid: Fid,
        disposition: Disposition,
    ) -> Result<IntentAnswer, Errno> {
        if self.exclusion.distributed.hides(KeyRef::Inode(fid)) {
            return Ok(IntentAnswer::Hidden(fid));
        }
        let before = self.whole_inode(fid)?;
        let asks_attributes = request.ldlm_intent.opc.contains(IntentOp::GETATTR);
        let bits = match asks_attributes || self.is_quiet(context, &before.inode) {
            true => locks::ATTRIBUTES,
            false => InodeBits::LOOKUP | InodeBits::PERM,
        };
        let more = match before.inode.is_regular() {
            true => {
                let layout = before.layout();
                InodeBits::LAYOUT | self.data_bits(context, &before.inode, layout.as_ref())
            }
            false => InodeBits(0),
        };
        let more = match takes_absent_xattrs(enqueue) && before.has_no_xattrs() {
            true => more | InodeBits::XATTR,
            false => more,
        };
        let guard = match enqueue.waits {
            true => locks::read(context, fid, bits, more).await?,
            false => locks::read_free_bits(context, fid, bits | more)?,
        };
        // A part may have been applied while the lock was waited for.
        if self.exclusion.distributed.hides(KeyRef::Inode(fid)) {
            return Ok(IntentAnswer::Hidden(fid));
        }
        // What may fail comes first: a refusal names no lock, so the client would never cancel it.
        let found =
            self.under_lock(context, &request.mdt_body, fid, guard.policy().inode_bits())?;
        let lock = locks::hand_over(context, guard, enqueue)?;
        Ok(IntentAnswer::Answer(getattr_reply(found, lock, disposition)))
    }

    /// Answers of a name whose inode is another MDT's: the FID alone, and a lock that keeps the name.
    async fn name_locked(
        &self,
        context: &Context,
        enqueue: &EnqueueRequest,
        fid: Fid,
        disposition: Disposition,
    ) -> Result<Outcome, Errno> {
        let guard = match enqueue.waits {
            true => locks::read(context, fid, InodeBits::LOOKUP, InodeBits(0)).await?,
            false => locks::read_free_bits(context, fid, InodeBits::LOOKUP)?,
        };
        Ok(remote_reply(fid, locks::hand_over(context, guard, enqueue)?, disposition))
    }

    fn reply_under_lock(
        &self,
        context: &Context,
        asked: &MdtBody,
        fid: Fid,
        lock: LdlmReply,
        disposition: Disposition,
    ) -> Result<Outcome, Errno> {
        let found = self.under_lock(context, asked, fid, locks::bits_of(&lock))?;
        Ok(getattr_reply(found, lock, disposition))
    }

    /// An inode as it is under a lock with these bits: what was read before may have changed.
    fn under_lock(
        &self,
        context: &Context,
        asked: &MdtBody,
        fid: Fid,
        bits: InodeBits,
    ) -> Result<Description, Errno> {
        let whole = self.whole_inode(fid)?;
        let mut found = self.getattr_of(context, &whole, asked)?;
        dom::add_size_with(bits, &whole.inode, &mut found.body)?;
        add_absent_xattrs(bits, &whole, &mut found.body);
        Ok(found)
    }

    fn is_quiet(&self, context: &Context, inode: &Inode) -> bool {
        let now = context.target.world().clock.wall().seconds;
        now.saturating_sub(inode.attributes.changed.seconds) > QUIET.as_secs() as i64
    }
}

/// Says that there are none, where a lock that the client gets keeps it true.
pub(super) fn add_absent_xattrs(bits: InodeBits, whole: &WholeInode, body: &mut MdtBody) {
    if bits.contains(InodeBits::XATTR) && whole.has_no_xattrs() {
        body.xattr_absent |= MdtBody::NO_XATTRS;
    }
}

/// Whether the client understands that there are no extended attributes: ours asks for a lock on them. Lustre's gets
/// none, for which its cache of them would count as filled.
fn takes_absent_xattrs(enqueue: &EnqueueRequest) -> bool {
    enqueue.policy.inode_bits().contains(InodeBits::XATTR)
}

fn getattr_reply(mut found: Description, mut lock: LdlmReply, disposition: Disposition) -> Outcome {
    lock.policy_res1 = disposition;
    if found.extra.is_empty() && !found.default.is_empty() {
        // Captured so: room for a layout, as long as the default that follows.
        found.body.eadatasize = found.default.len() as u32;
        found.extra = vec![0; found.default.len()].into();
    }
    Outcome::ok(LdlmIntentGetattrReply {
        dlm_rep: Some(lock),
        mdt_body: Some(found.body),
        mdt_md: found.extra,
        acl: found.acl,
        default_mdt_md: found.default,
        ..LdlmIntentGetattrReply::default()
    })
}

fn remote_reply(fid: Fid, mut lock: LdlmReply, disposition: Disposition) -> Outcome {
    lock.policy_res1 = disposition;
    Outcome::ok(LdlmIntentGetattrReply {
        dlm_rep: Some(lock),
        mdt_body: Some(remote::named(fid)),
        ..LdlmIntentGetattrReply::default()
    })
}

fn refused(disposition: Disposition, error: Option<Errno>) -> Outcome {
    Outcome {
        status: LOCK_ABORTED,
        reply: Some(
            LdlmIntentGetattrReply {
                dlm_rep: Some(lockless_reply(disposition, error)),
                mdt_body: Some(MdtBody::default()),
                ..LdlmIntentGetattrReply::default()
            }
            .into(),
        ),
    }
}

/// The reply where only the FID was asked for: no attributes, no lock.
fn fid_only_reply(fid: Fid, disposition: Disposition) -> Outcome {
    let body = MdtBody { fid1: fid, valid: Valid::ID, ..MdtBody::default() };
    let reply = LdlmIntentGetattrReply {
        dlm_rep: Some(lockless_reply(disposition, None)),
        mdt_body: Some(body),
        mdt_md: Bytes::new(),
        ..LdlmIntentGetattrReply::default()
    };
    Outcome { status: LOCK_ABORTED, reply: Some(reply.into()) }
}
