//! Routes callbacks of targets to the namespaces of their locks.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use sheen_io::BoxFuture;
use sheen_rpc::{Handler, IncomingRequest, Replier, ReplyHead};
use sheen_types::{Errno, Nid, ObdHandle};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::messages::{
    LdlmBlCallbackReply, LdlmCpCallbackReply, LdlmGlCallbackReply, LdlmSetInfoReply, Reply, Request,
};

use super::ClientNamespace;

/// Takes the lock callbacks of a whole node; several mounts may share it.
#[derive(Default)]
pub struct CallbackRouter {
    namespaces: RwLock<Vec<Weak<ClientNamespace>>>,
}

impl CallbackRouter {
    /// From now on callbacks about locks of `namespace` reach it, as long as it lives.
    pub fn add(&self, namespace: &Arc<ClientNamespace>) {
        let mut namespaces = self.namespaces.write();
        namespaces.retain(|namespace| namespace.strong_count() > 0);
        namespaces.push(Arc::downgrade(namespace));
    }

    /// The namespace of the lock that a callback of `from` names. Cookies are hard to guess, and still no
    /// secret: only a node that serves the target may revoke it.
    fn find(
        &self,
        (from, is_proven): (Nid, bool),
        request: &LdlmRequest,
    ) -> Result<Arc<ClientNamespace>, Errno> {
        let namespaces: Vec<_> = self.namespaces.read().iter().filter_map(Weak::upgrade).collect();
        let namespace = namespaces
            .into_iter()
            .find(|namespace| namespace.owns(request))
            .ok_or(Errno::EINVAL)?;
        if !namespace.channel().is_served_by(from) {
            tracing::warn!(%from, target = namespace.name(), "refused a callback: that node does not serve the target");
            return Err(Errno::ENOTCONN);
        }
        if !is_proven {
            tracing::warn!(%from, target = namespace.name(), "refused a callback: that peer only says that it is the server");
            return Err(Errno::ENOTCONN);
        }
        Ok(namespace)
    }

    /// Answers a callback that came from a node; the second value says whether the node's identity is proven.
    ///
    /// # Errors
    /// `EINVAL` if it names no lock of ours, `ENOTCONN` if the lock is of a target that this node does not serve.
    pub(crate) fn answer(&self, from: (Nid, bool), request: Request) -> Result<Reply, Errno> {
        match request {
            Request::LdlmBlCallback(callback) => {
                let namespace = self.find(from, &callback.dlm_req)?;
                namespace.on_blocking(&callback.dlm_req)?;
                Ok(LdlmBlCallbackReply::default().into())
            }
            Request::LdlmCpCallback(callback) => {
                let namespace = self.find(from, &callback.dlm_req)?;
                namespace.on_completion(&callback.dlm_req, &callback.dlm_lvb)?;
                Ok(LdlmCpCallbackReply::default().into())
            }
            Request::LdlmGlCallback(callback) => {
                let namespace = self.find(from, &callback.dlm_req)?;
                let dlm_lvb = namespace.on_glimpse(&callback.dlm_req)?;
                Ok(LdlmGlCallbackReply { dlm_lvb, ..LdlmGlCallbackReply::default() }.into())
            }
            Request::LdlmSetInfo(_) => Ok(LdlmSetInfoReply::default().into()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl Handler for CallbackRouter {
    fn handle(&self, incoming: IncomingRequest) -> BoxFuture<'static, ()> {
        let replier: Replier = incoming.replier;
        // Nothing here waits: what a callback starts runs in tasks of the namespace.
        match self.answer((incoming.from, incoming.is_proven), incoming.request) {
            Ok(reply) => replier.send(ReplyHead::default(), Some(reply)),
            Err(errno) => replier.refuse(errno),
        }
        Box::pin(std::future::ready(()))
    }

    fn owns(&self, _export: ObdHandle) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{Fid, LockHandle, Name};
    use sheen_wire::messages::{LdlmBlCallback, LdlmCpCallback, LdlmGlCallback};

    use super::*;
    use crate::testing::{Fixture, blocking, found};
    use crate::types::NodeId;

    #[test]
    fn only_who_serves_a_target_speaks_for_its_locks() {
        let stranger: Nid = "10.9.9.9@tcp".parse().unwrap();
        let fixture = Fixture::new();
        let router = CallbackRouter::default();
        router.add(&fixture.locks);
        let all = sheen_types::InodeBits::LOOKUP | sheen_types::InodeBits::UPDATE;
        let reply = found(Fid::new(0x2_0000_0400, 9), 0o040_755, 0x77, all);
        let lock = reply.dlm_rep.clone().unwrap();
        fixture.mdt.answer(reply);
        let files = fixture.files.clone();
        let name = Name::new(b"d").unwrap();
        let looked_up = fixture
            .world
            .run(async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name).await });
        assert!(looked_up.is_ok());
        let asked = fixture.mdt.take_asked();
        let [Request::LdlmIntentGetattr(request)] = &asked[..] else { panic!("one: {asked:?}") };
        let dlm_req = blocking(&request.dlm_req, &lock);
        let callbacks = || {
            let dlm_req = dlm_req.clone();
            [
                Request::from(LdlmBlCallback { dlm_req: dlm_req.clone(), ..Default::default() }),
                LdlmCpCallback { dlm_req: dlm_req.clone(), ..Default::default() }.into(),
                LdlmGlCallback { dlm_req, ..Default::default() }.into(),
            ]
        };
        // A stranger, and one that says that it is the server.
        for from in [(stranger, true), (Nid::LOOPBACK, false)] {
            for callback in callbacks() {
                assert_eq!(router.answer(from, callback).map(drop), Err(Errno::ENOTCONN));
            }
        }
        fixture.world.settle();
        assert!(fixture.watcher.take().is_empty() && fixture.mdt.take_asked().is_empty());

        let [taken, ..] = callbacks();
        assert!(router.answer((Nid::LOOPBACK, true), taken).is_ok());
        fixture.world.settle();
        let asked = fixture.mdt.take_asked();
        let [Request::LdlmCancel(cancel)] = &asked[..] else { panic!("cancelled: {asked:?}") };
        assert_eq!(cancel.dlm_req.counted(), [LockHandle(0x77)]);
    }
}
