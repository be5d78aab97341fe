//! MDS_REINT: changes of the namespace and of inodes, one file each.

mod create;
mod link;
mod rename;
mod setattr;
mod setxattr;
mod unlink;

pub(crate) use create::Making;

use sheen_target::{Context, Memo, Outcome};
use sheen_types::Errno;
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::messages::{Reply, Request};

use crate::Mdt;

impl Mdt {
    /// Executes a REINT of any kind.
    pub(crate) async fn reint(
        &self,
        context: &Context,
        request: Request,
    ) -> Result<Outcome, Errno> {
        if let Some(locks) = cancelled(&request) {
            context.cancel_early(locks, 0);
        }
        match request {
            Request::MdsReintSetattr(request) => self.setattr(context, &request).await,
            Request::MdsReintCreate(request) => self.create(context, &request).await,
            Request::MdsReintCreateSym(request) => self.symlink(context, &request).await,
            Request::MdsReintLink(request) => self.link(context, &request).await,
            Request::MdsReintUnlink(request) => self.unlink(context, &request).await,
            Request::MdsReintRename(request) => self.rename(context, &request).await,
            Request::MdsReintSetxattr(request) => self.setxattr(context, &request).await,
            Request::MdsReintOpen(request) => self.reint_open(context, &request).await,
            Request::MdsReintMigrate(_) | Request::MdsReintResync(_) | Request::MdsReint(_) => {
                Err(Errno::EOPNOTSUPP)
            }
            _ => Err(Errno::ENOTSUPP),
        }
    }

    /// A replay of what was durable before the restart: it gets its number back, nothing changes.
    pub(crate) fn replay_done(
        &self,
        context: &Context,
        reply: impl Into<Reply>,
    ) -> Result<Outcome, Errno> {
        let nothing = sheen_store::Transaction::new();
        let done = context.target.transact(context, nothing, Memo::Done);
        done.map_err(|error| error.errno())?;
        Ok(Outcome::ok(reply))
    }
}

/// The locks that a request gives back along the way.
fn cancelled(request: &Request) -> Option<&LdlmRequest> {
    match request {
        Request::MdsReintSetattr(request) => request.dlm_req.as_ref(),
        Request::MdsReintCreate(request) => request.dlm_req.as_ref(),
        Request::MdsReintCreateSym(request) => request.dlm_req.as_ref(),
        Request::MdsReintLink(request) => request.dlm_req.as_ref(),
        Request::MdsReintUnlink(request) => request.dlm_req.as_ref(),
        Request::MdsReintRename(request) => request.dlm_req.as_ref(),
        Request::MdsReintSetxattr(request) => request.dlm_req.as_ref(),
        _ => None,
    }
}
