//! MDS_REINT: changes of the namespace and of inodes, one file each.

mod create;
pub(crate) mod link;
mod migrate;
pub(crate) mod rename;
mod restripe;
mod rm_entry;
mod setattr;
mod setxattr;
pub(crate) mod unlink;

pub(crate) use migrate::migrated;

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::Errno;
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{
    MdsReintCreateReply, MdsReintCreateSymReply, MdsReintLinkReply, MdsReintMigrateReply,
    MdsReintRenameReply, MdsReintRmentryReply, MdsReintSetattrReply, MdsReintSetxattrReply,
    MdsReintUnlinkReply, Reply, Request,
};

use crate::Mdt;

impl Mdt {
    /// Executes a REINT of any kind.
    pub(crate) async fn reint(
        &self,
        context: &Context,
        request: Request,
    ) -> Result<Outcome, Errno> {
        context.cancel_early_of(&request);
        if self.must_not_change(context) && !matches!(request, Request::MdsReintOpen(_)) {
            let refused = empty_reply(&request, None).ok_or(Errno::EROFS)?;
            return Ok(Outcome::failed(Errno::EROFS, refused));
        }
        let nothing = empty_reply(&request, Some(MdtBody::default()));
        let done = match self.refuse_remote(context, &request).await {
            Ok(()) => self.reint_one(context, request).await,
            refused => refused.map(|()| Outcome::default()),
        };
        match (done, nothing) {
            (Err(errno), Some(nothing)) => Ok(Outcome::failed(errno, nothing)),
            (done, _) => done,
        }
    }

    async fn reint_one(&self, context: &Context, request: Request) -> Result<Outcome, Errno> {
        match request {
            Request::MdsReintSetattr(request) => self.setattr(context, &request).await,
            Request::MdsReintCreate(request) => self.create(context, &request).await,
            Request::MdsReintCreateSym(request) => self.symlink(context, &request).await,
            Request::MdsReintLink(request) => self.link(context, &request).await,
            Request::MdsReintUnlink(request) => self.unlink(context, &request).await,
            Request::MdsReintRmentry(request) => self.remove_entry(context, &request).await,
            Request::MdsReintRename(request) => self.rename(context, &request).await,
            Request::MdsReintSetxattr(request) => self.setxattr(context, &request).await,
            Request::MdsReintOpen(request) => self.reint_open(context, &request).await,
            Request::MdsReintMigrate(request) => self.migrate(context, &request).await,
            Request::MdsReintResync(_) | Request::MdsReint(_) => Err(Errno::EOPNOTSUPP),
            // 524, with which Lustre answers what it does not know, is no errno of programs.
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// A replay of what was durable before the restart: it gets its number back, nothing changes.
    pub(crate) fn replay_done(
        &self,
        context: &Context,
        reply: impl Into<Reply>,
    ) -> Result<Outcome, Errno> {
        self.record_answer(context, ReplyRecording::Done)?;
        Ok(Outcome::ok(reply))
    }
}

/// The reply to a refused change: its buffers, and nothing in them; where all changes are refused there are no
/// buffers.
fn empty_reply(request: &Request, mdt_body: Option<MdtBody>) -> Option<Reply> {
    Some(match request {
        Request::MdsReintSetattr(_) => {
            MdsReintSetattrReply { mdt_body, ..Default::default() }.into()
        }
        Request::MdsReintCreate(_) => MdsReintCreateReply { mdt_body, ..Default::default() }.into(),
        Request::MdsReintCreateSym(_) => {
            MdsReintCreateSymReply { mdt_body, ..Default::default() }.into()
        }
        Request::MdsReintLink(_) => MdsReintLinkReply { mdt_body, ..Default::default() }.into(),
        Request::MdsReintUnlink(_) => MdsReintUnlinkReply { mdt_body, ..Default::default() }.into(),
        Request::MdsReintRename(_) => MdsReintRenameReply { mdt_body, ..Default::default() }.into(),
        Request::MdsReintSetxattr(_) => {
            MdsReintSetxattrReply { mdt_body, ..Default::default() }.into()
        }
        Request::MdsReintRmentry(_) => {
            MdsReintRmentryReply { mdt_body, ..Default::default() }.into()
        }
        Request::MdsReintMigrate(_) => {
            MdsReintMigrateReply { mdt_body, ..Default::default() }.into()
        }
        _ => return None,
    })
}
