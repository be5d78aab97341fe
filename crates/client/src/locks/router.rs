//! From callbacks of targets to the lock spaces they are about.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use sheen_io::BoxFuture;
use sheen_rpc::{Handler, Incoming, Replier, ReplyHead};
use sheen_types::{Errno, ObdHandle};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::messages::{
    LdlmBlCallbackReply, LdlmCpCallbackReply, LdlmGlCallbackReply, LdlmSetInfoReply, Reply, Request,
};

use super::LockSpace;

/// Takes the lock callbacks of a whole node; several mounts may share it.
#[derive(Default)]
pub struct CallbackRouter {
    spaces: RwLock<Vec<Weak<LockSpace>>>,
}

impl CallbackRouter {
    /// From now on callbacks about locks of `space` reach it, as long as it lives.
    pub fn add(&self, space: &Arc<LockSpace>) {
        let mut spaces = self.spaces.write();
        spaces.retain(|space| space.strong_count() > 0);
        spaces.push(Arc::downgrade(space));
    }

    fn find(&self, request: &LdlmRequest) -> Option<Arc<LockSpace>> {
        let spaces = self.spaces.read();
        spaces.iter().filter_map(Weak::upgrade).find(|space| space.owns(request))
    }

    pub(crate) fn answer(&self, request: Request) -> Result<Reply, Errno> {
        match request {
            Request::LdlmBlCallback(callback) => {
                let space = self.find(&callback.dlm_req).ok_or(Errno::EINVAL)?;
                space.on_blocking(&callback.dlm_req)?;
                Ok(LdlmBlCallbackReply::default().into())
            }
            Request::LdlmCpCallback(callback) => {
                let space = self.find(&callback.dlm_req).ok_or(Errno::EINVAL)?;
                space.on_completion(&callback.dlm_req, &callback.dlm_lvb)?;
                Ok(LdlmCpCallbackReply::default().into())
            }
            Request::LdlmGlCallback(callback) => {
                let space = self.find(&callback.dlm_req).ok_or(Errno::EINVAL)?;
                let dlm_lvb = space.on_glimpse(&callback.dlm_req)?;
                Ok(LdlmGlCallbackReply { dlm_lvb, ..LdlmGlCallbackReply::default() }.into())
            }
            Request::LdlmSetInfo(_) => Ok(LdlmSetInfoReply::default().into()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl Handler for CallbackRouter {
    fn handle(&self, incoming: Incoming) -> BoxFuture<'static, ()> {
        let replier: Replier = incoming.replier;
        // Nothing here waits: what a callback sets off runs in tasks of the lock space.
        match self.answer(incoming.request) {
            Ok(reply) => replier.send(ReplyHead::default(), Some(reply)),
            Err(errno) => replier.refuse(errno),
        }
        Box::pin(std::future::ready(()))
    }

    fn owns(&self, _export: ObdHandle) -> bool {
        true
    }
}
