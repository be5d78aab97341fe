//! From a request's kind to the operation.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockDesc, LockKind};
use sheen_target::{Context, Export, Leaving, LockWish, Operations, Outcome, Target};
use sheen_types::{CounterLine, Errno, ResourceName};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::messages::Request;

use crate::{Ost, counters, echo};

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
            match request {
                Request::OstRead(request) => self.brw.read(context, *request).await,
                Request::OstWrite(request) => self.brw.write(context, *request).await,
                Request::OstPunch(request) => self.brw.punch(context, *request).await,
                Request::OstFallocate(request) => self.brw.fallocate(context, *request).await,
                Request::OstSeek(request) => self.brw.seek(context, *request).await,
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
                _ => Err(Errno::ENOTSUPP),
            }
        })
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
        self.brw.connect(export, offered, agreed)
    }

    fn leave<'a>(
        &'a self,
        _: &'a Arc<Target>,
        export: &'a Arc<Export>,
        _: Leaving,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async { self.brw.grants().leave(export) })
    }

    fn recovered<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async move { echo::clean_soon(target) })
    }

    fn intent<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
        wish: LockWish,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            match request {
                Request::LdlmEnqueue(_) => self.glimpse(context, wish).await,
                _ => Err(Errno::EOPNOTSUPP),
            }
        })
    }

    fn lock_value<'a>(
        &'a self,
        _: &'a Arc<Target>,
        lock: &'a LockDesc,
    ) -> BoxFuture<'a, Result<Bytes, Errno>> {
        Box::pin(async move { self.value(lock.resource) })
    }
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
