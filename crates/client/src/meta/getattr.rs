//! Attributes of a known inode: one `LDLM_ENQUEUE` with a getattr intent by FID, or one `MDS_GETATTR` where
//! this client has the lock and has changed the inode under it. Of a directory in stripes the master and each stripe are asked
//! so, each under its own lock; [`crate::posix`] merges them. `ls -l` of a directory costs one batch for each 64 names, and for
//! each directory among them that lies in N stripes N requests more, sent at once; none while locks cover them.

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::Errno;
use sheen_types::access::May;
use sheen_types::futures;
use sheen_wire::messages::MdsGetattr;

use super::lookup::getattr_valid;
use super::place::striping_in_reply;
use super::{ACL_ROOM, LookupDepth, Meta};
use crate::cache::{Inode, ReplyAttributes};
use crate::call;
use crate::types::Credentials;

/// How often the layout of a directory may change under one question, or what MDTs say of it not agree yet.
const TRIES_MAX: u32 = 12;

impl Meta {
    /// Whether locks cover all attributes of an inode that MDTs keep: of a directory in stripes those of all of them.
    pub(crate) fn attributes_covered(&self, inode: &Inode) -> bool {
        {
            let state = inode.state();
            if !state.attributes_covered() {
                return false;
            }
            if state.master_layout().is_none() {
                return true;
            }
        }
        if self.is_gone(inode) {
            return true;
        }
        let stripes = self.cache.inodes.stripes_of(inode);
        stripes.iter().all(|stripe| stripe.state().attributes_covered())
    }

    /// Asks for those attributes of `inode` that no lock covers, with locks on them. One RPC, and one for each stripe, all of
    /// those at once.
    pub(crate) async fn refresh(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let mut refused = inode.fid;
        for tried in 0..TRIES_MAX {
            self.pause_between(tried).await;
            let is_covered = inode.state().attributes_covered();
            if !is_covered {
                self.getattr(who, inode).await?;
            }
            if self.is_gone(inode) {
                return Ok(());
            }
            let stripes = self.cache.inodes.stripes_of(inode);
            let lacking = stripes.iter().filter(|stripe| !stripe.state().attributes_covered());
            let ask = |stripe| async move {
                let answer = self.getattr(who, stripe).await;
                answer.map_err(|errno| (errno, stripe.fid))
            };
            let asked: Vec<_> = lacking.map(|stripe| ask(stripe)).collect();
            match futures::all_ok(asked).await {
                // It is gone, or lies otherwise now.
                Err((Errno::ENOENT | Errno::ESTALE, stripe)) => {
                    refused = stripe;
                    self.cache.inodes.doubt_striping(inode);
                    self.getattr(who, inode).await?;
                }
                answer => return answer.map_err(|(errno, _)| errno),
            }
        }
        Err(self.answer_lost_stripe(inode, refused))
    }

    /// Asks for the attributes of `inode`, with a lock on them. One RPC.
    pub(crate) async fn getattr(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        if inode.state().attributes_locked() {
            return self.getattr_again(who, inode).await;
        }
        let found = self.getattr_intent(who, inode, LookupDepth::Attributes).await?;
        found.is(inode)
    }

    /// Asks for mode, owner, group and access control list of `inode`, with a lock on them that
    /// changes of a directory's names leave alone. One RPC.
    pub(crate) async fn rights(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        let found = self.getattr_intent(who, inode, LookupDepth::Name).await?;
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
        let said = striping_in_reply(&body, &answer.reply.mdt_md)?;
        let nothing = Bytes::new();
        let attributes = ReplyAttributes { body: &body, layout: &nothing, acl: &answer.reply.acl };
        inode.apply_unlocked_reply(&attributes, &asked);
        self.note_striping(inode, said);
        Ok(())
    }
}
