//! From a request's kind to the operation.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockDesc, LockKind};
use sheen_target::{
    Connecting, Context, EnqueueRequest, Export, ExportEnd, Operations, Outcome, Target,
};
use sheen_types::{CounterLine, Errno, ResourceName};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::Request;
use sheen_wire::ost::OstId;

use crate::{Ost, counters, echo, objects};

impl Operations for Ost {
    fn counters(&self) -> &'static [CounterLine] {
        &counters::LINES
    }

    fn counter_of(&self, request: &Request) -> Option<usize> {
        counters::counter_of(request)
    }

    fn has_locks(&self, _resource: &ResourceName, kind: LockKind) -> bool {
        kind == LockKind::Extent
    }

    fn operate<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            // What is replayed was done before.
            if self.is_read_only() && changes(&request) && context.replay().is_none() {
                return Err(Errno::EROFS);
            }
            let named = named(&request);
            let answer = match request {
                Request::OstRead(request) => self.brw.read(context, *request).await,
                Request::OstWrite(request) => self.brw.write(context, *request).await,
                Request::OstPunch(request) => self.brw.punch(context, *request).await,
                Request::OstFallocate(request) => self.brw.fallocate(context, *request).await,
                Request::OstSeek(request) => self.brw.seek(context, *request).await,
                Request::OstLadvise(request) => self.brw.advise(context, *request).await,
                Request::OstGetattr(request) => self.getattr(context, *request).await,
                Request::OstSetattr(request) => self.setattr(context, *request).await,
                Request::OstSync(request) => self.brw.sync(context, *request).await,
                Request::OstStatfs(_) => self.statfs(),
                Request::OstCreate(request) => self.create(context, *request).await,
                Request::OstDestroy(request) => self.destroy(context, *request).await,
                Request::OstSetGrantInfo(request) => Ok(self.brw.take_grant(context, *request)),
                Request::OstGetInfoLastId(_) => self.info_last_id(),
                Request::OstGetInfoLastFid(request) => self.info_last_fid(&request),
                Request::OstGetInfo(request) => self.info(&request),
                _ => Err(Errno::EOPNOTSUPP),
            };
            self.log_missing(context.target.name(), named, answer)
        })
    }

    fn may_connect<'a>(
        &'a self,
        target: &'a Arc<Target>,
        connecting: &'a Connecting<'a>,
    ) -> BoxFuture<'a, Result<(), Errno>> {
        Box::pin(self.check_peer(target, connecting))
    }

    fn connect(
        &self,
        export: &Arc<Export>,
        offered: &ObdConnectData,
        agreed: &mut ObdConnectData,
    ) -> Result<(), Errno> {
        if agreed.flags.contains(ConnectFlags::MAXBYTES) {
            agreed.maxbytes = self.store.object_bytes_max();
        }
        self.note_identity(export, offered);
        self.brw.connect(export, offered, agreed)
    }

    fn started<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async { self.serve(target) })
    }

    fn end_export<'a>(
        &'a self,
        _: &'a Arc<Target>,
        export: &'a Arc<Export>,
        _: ExportEnd,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async { self.brw.grants().end_export(export) })
    }

    fn recovered<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async move { echo::clean_soon(target) })
    }

    fn glimpse_enqueue<'a>(
        &'a self,
        context: &'a Context,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            let named = OstId::of_resource(&enqueue.resource);
            let answer = self.glimpse(context, enqueue).await;
            self.log_missing(context.target.name(), Some(named), answer)
        })
    }

    fn lock_value<'a>(
        &'a self,
        target: &'a Arc<Target>,
        lock: &'a LockDesc,
    ) -> BoxFuture<'a, Result<Bytes, Errno>> {
        let named = OstId::of_resource(&lock.resource);
        let answer = self.value(lock.resource);
        let answer = self.log_missing(target.name(), Some(named), answer);
        Box::pin(std::future::ready(answer))
    }
}

impl Ost {
    /// Logs which object a client asks for that is not here. One that is being removed is asked for, too: so it
    /// is no error yet. Above the last one nothing was ever made, and nothing was lost.
    fn log_missing<T>(
        &self,
        target: &str,
        named: Option<OstId>,
        answer: Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let (Err(Errno::ENOENT), Some(oi)) = (&answer, named)
            && let Ok(fid) = objects::fid_of(oi, self.index)
            && objects::last_id(&*self.store, oi.seq()).is_ok_and(|last| oi.id() <= last)
        {
            tracing::info!(target, object = %fid,
                "an object is asked for that is not here any more: it was destroyed, or it is lost");
        }
        answer
    }
}

/// The object whose data or attributes a request is about.
fn named(request: &Request) -> Option<OstId> {
    Some(match request {
        Request::OstRead(request) => request.ost_body.oa.oi,
        Request::OstWrite(request) => request.ost_body.oa.oi,
        Request::OstPunch(request) => request.ost_body.oa.oi,
        Request::OstFallocate(request) => request.ost_body.oa.oi,
        Request::OstSeek(request) => request.ost_body.oa.oi,
        Request::OstLadvise(request) => request.ost_body.oa.oi,
        Request::OstGetattr(request) => request.ost_body.oa.oi,
        Request::OstSetattr(request) => request.ost_body.oa.oi,
        Request::OstSync(request) => request.ost_body.oa.oi,
        _ => return None,
    })
}

/// Whether a request changes objects.
fn changes(request: &Request) -> bool {
    matches!(
        request,
        Request::OstWrite(_)
            | Request::OstPunch(_)
            | Request::OstFallocate(_)
            | Request::OstSetattr(_)
            | Request::OstCreate(_)
            | Request::OstDestroy(_)
    )
}
