//! From a request's kind to the operation.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::{LockDesc, LockKind};
use sheen_target::{
    Connecting, Context, EnqueueRequest, Export, ExportEnd, Operations, Outcome, Redo, ReplyRecord,
    Target,
};
use sheen_types::{CounterLine, Errno, InodeBits, ResourceName};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::md::Bias;
use sheen_wire::messages::{MdsReintCreateSymReply, MdsReintSetattrReply, Request};
use sheen_wire::text::Chars;

use crate::distributed_exclusions::KeyRef;
use crate::open_table::OpenTable;
use crate::reint::migrated;
use crate::set_info::set_info;
use crate::{Mdt, counters, data_version, other_mdts};

impl Operations for Mdt {
    fn counters(&self) -> &'static [CounterLine] {
        &counters::LINES
    }

    fn counter_of(&self, request: &Request) -> Option<usize> {
        counters::counter_of(request)
    }

    /// Bits of inodes, and file locks, whose resources have a mark of their own.
    fn has_locks(&self, resource: &ResourceName, kind: LockKind) -> bool {
        match kind {
            LockKind::InodeBits => !resource.is_of_flocks(),
            LockKind::Flock => resource.is_of_flocks(),
            LockKind::Plain | LockKind::Extent => false,
        }
    }

    fn operate<'a>(
        &'a self,
        context: &'a Context,
        mut request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        self.squash(context, &mut request);
        Box::pin(async move {
            match request {
                Request::MdsGetRoot(request) => self.get_root(context, &request),
                Request::MdsStatfs(request) => self.statfs(&request),
                Request::MdsGetattr(request) if data_version::is_asked(&request) => {
                    self.data_version(context, &request.mdt_body).await
                }
                Request::MdsGetattr(request) => {
                    let inode = KeyRef::Inode(request.mdt_body.fid1);
                    self.exclusion
                        .distributed
                        .shown(inode, || self.getattr(context, &request))
                        .await
                }
                Request::MdsGetattrName(request) => {
                    let (directory, name) = (request.mdt_body.fid1, request.name.as_ref());
                    let name = name.map_or(&b""[..], |name| name.as_bytes());
                    let above = self.above(context, directory, name).await?;
                    let read = || self.getattr_name(context, &request, above);
                    self.exclusion.distributed.shown(KeyRef::Name(directory, name), read).await
                }
                Request::MdsGetxattr(request) => {
                    let inode = KeyRef::Inode(request.mdt_body.fid1);
                    Ok(self.exclusion.distributed.shown(inode, || self.getxattr(&request)).await)
                }
                Request::MdsReadpage(request) => self.readpage(context, &request).await,
                Request::MdsSync(request) => self.sync(context, &request).await,
                Request::MdsClose(request) => {
                    self.close(context, request.mdt_ioepoch.open_handle, &request.rec_reint).await
                }
                Request::MdsCloseIntent(request) => self.close_intent(context, &request).await,
                Request::MdsSwapLayouts(request) => self.swap_layouts(context, &request).await,
                Request::MdsHsmStateGet(request) => self.hsm_state(&request),
                Request::MdsHsmStateSet(request) => self.set_hsm_state(&request),
                Request::MdsBatch(request) => self.batch(context, &request).await,
                Request::MdsRmfid(request) => self.remove_by_fids(context, &request).await,
                Request::MdsFid2path(request) => self.fid2path(&request),
                Request::MdsGetInfo(request) => self.get_info(&request),
                Request::MdsSetInfo(request) => set_info(context, &request),
                Request::SeqQuery(request) => self.seq_query(context, &request).await,
                Request::FldQuery(request) => self.fld_query(context, &request).await,
                Request::FldRead(request) => Ok(self.fld_read(&request)),
                Request::OutUpdate(request) => self.out_update(context, &request).await,
                other => match self.operate_on_data(context, other).await {
                    Ok(done) => done,
                    Err(other) => self.reint(context, other).await,
                },
            }
        })
    }

    fn reconstruct<'a>(
        &'a self,
        context: &'a Context,
        mut request: Request,
        record: ReplyRecord,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        self.squash(context, &mut request);
        Box::pin(async move { self.answer_executed(context, request, record).await })
    }

    fn intent<'a>(
        &'a self,
        context: &'a Context,
        mut request: Request,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        self.squash(context, &mut request);
        Box::pin(async move {
            must_be_on_inode(&enqueue)?;
            match request {
                Request::LdlmIntentGetattr(request) => {
                    self.intent_getattr(context, &request, &enqueue).await
                }
                Request::LdlmIntentOpen(request) => {
                    self.intent_open(context, &request, &enqueue).await
                }
                Request::LdlmIntentGetxattr(request) => {
                    self.intent_getxattr(context, &request, &enqueue).await
                }
                Request::LdlmIntentLayout(request) => {
                    self.intent_layout(context, &request, &enqueue).await
                }
                _ => Err(Errno::EOPNOTSUPP),
            }
        })
    }

    fn is_glimpse(&self, context: &Context, enqueue: &EnqueueRequest) -> bool {
        enqueue.policy.inode_bits() == InodeBits::DOM && crate::dom::knows_dom(context)
    }

    fn glimpse_enqueue<'a>(
        &'a self,
        context: &'a Context,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move { self.glimpse(context, &enqueue).await })
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
        if agreed.flags2.contains(ConnectFlags2::MDT_IDENTITY) {
            agreed.identity = Chars::new(self.identity().as_str());
        }
        if offered.flags.contains(ConnectFlags::MDS_MDS) {
            return other_mdts::negotiate(offered, agreed);
        }
        // Without inode bits and FIDs there is no way to talk about inodes at all.
        let needed = ConnectFlags::IBITS | ConnectFlags::FID;
        match agreed.flags.contains(needed) {
            true => self.connect_data(export, offered, agreed),
            false => Err(Errno::EPROTO),
        }
    }

    fn end_export<'a>(
        &'a self,
        target: &'a Arc<Target>,
        export: &'a Arc<Export>,
        why: ExportEnd,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.dom.brw.grants().end_export(export);
            let files = export.role::<OpenTable>().end();
            if why == ExportEnd::Stopping {
                // The client will replay its opens. Its files count as open as long as this MDT lives, or another
                // client's close, or the end of recovery, would take them for orphans that no client has open.
                return;
            }
            for file in files {
                let fid = file.fid;
                if let Err(errno) = self.close_for_client(target, file).await {
                    tracing::warn!(target = target.name(), %fid, %errno,
                        "cannot close a file that a client left open");
                }
            }
        })
    }

    fn redo(&self) -> Option<&dyn Redo> {
        Some(self)
    }

    fn started<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.target.set(Arc::downgrade(target)).is_err() {
                tracing::error!(target = target.name(), "an MDT was started twice over one store");
            }
            for ost in self.placement.all().iter() {
                ost.start_maintenance(target);
            }
            self.start_joining(target);
            self.note_other_mdts();
        })
    }

    fn recovered<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(errno) = self.clean_orphans(target).await {
                tracing::warn!(target = target.name(), %errno,
                    "cannot remove all orphans: the rest goes with the next start");
            }
            if let Err(error) = self.settle_sizes(target) {
                tracing::warn!(target = target.name(), %error,
                    "cannot settle recorded sizes: clients ask OSTs for all sizes until the next start");
            }
            self.clean_echo_soon(target);
            self.restriper.changed.notify_one();
            self.placement.recovered();
        })
    }

    fn lock_value<'a>(
        &'a self,
        _: &'a Arc<Target>,
        lock: &'a LockDesc,
    ) -> BoxFuture<'a, Result<Bytes, Errno>> {
        Box::pin(async move {
            let bits = lock.policy.inode_bits();
            if !bits.intersects(InodeBits::LAYOUT) {
                return match bits.contains(InodeBits::DOM) {
                    true => self.data_value(lock.resource.fid()),
                    false => Ok(Bytes::new()),
                };
            }
            // A lock on an inode that is gone has no value; the client that reads the inode will
            // see that it is.
            let Ok(inode) = self.inode(lock.resource.fid()) else { return Ok(Bytes::new()) };
            Ok(self.layout(&inode)?.unwrap_or_default())
        })
    }
}

impl Mdt {
    /// Removes from a request of another machine what is not believed of its caller.
    fn squash(&self, context: &Context, request: &mut Request) {
        if !context.export.is_local() {
            self.squash.apply(context.export.proven_nid(), request);
        }
    }

    /// Answers a request that was executed before, by what was recorded of it.
    async fn answer_executed(
        &self,
        context: &Context,
        request: Request,
        record: ReplyRecord,
    ) -> Result<Outcome, Errno> {
        match request {
            Request::LdlmIntentOpen(request) => {
                let enqueue = EnqueueRequest::of(&request.dlm_req, context.export.known_bits())?;
                must_be_on_inode(&enqueue)?;
                if context.replay().is_some() {
                    return self.intent_open(context, &request, &enqueue).await;
                }
                self.reconstruct_open(context, &request, &enqueue, &record).await
            }
            Request::LdlmIntentLayout(request) => {
                let enqueue = EnqueueRequest::of(&request.dlm_req, context.export.known_bits())?;
                must_be_on_inode(&enqueue)?;
                self.intent_layout(context, &request, &enqueue).await
            }
            Request::MdsClose(request) => {
                let handle = request.mdt_ioepoch.open_handle;
                self.repeat_close(context, handle, &request.rec_reint, &record).await
            }
            Request::MdsCloseIntent(request) => {
                let handle = request.mdt_ioepoch.open_handle;
                self.repeat_close(context, handle, &request.rec_reint, &record).await
            }
            Request::OutUpdate(request) => self.out_update(context, &request).await,
            Request::MdsReintOpen(request) if context.replay().is_some() => {
                self.reint_open(context, &request).await
            }
            Request::MdsReintCreate(request) => {
                let record = &request.rec_reint;
                let made = self.made_before(context, record, request.name.as_ref()).await;
                let reply = made.map(|inode| self.created(&inode, record));
                Ok(Outcome::ok(reply.unwrap_or_default()))
            }
            Request::MdsReintCreateSym(request) => {
                let mdt_body = self.inode(request.rec_reint.fid2).ok();
                let mdt_body = mdt_body.map(|inode| self.body(&inode, false));
                Ok(Outcome::ok(MdsReintCreateSymReply { mdt_body, ..Default::default() }))
            }
            Request::MdsReintMigrate(request) => {
                let is_closed = request.rec_reint.bias.contains(Bias::CLOSE_MIGRATE);
                let reply = Some(migrated(is_closed).into());
                Ok(Outcome { status: record.result, reply })
            }
            Request::MdsReintSetattr(request) => {
                let mdt_body = self.inode(request.rec_reint.fid).ok();
                let mdt_body = mdt_body.map(|inode| self.body(&inode, true));
                Ok(Outcome::ok(MdsReintSetattrReply { mdt_body, ..Default::default() }))
            }
            _ => Ok(Outcome { status: record.result, reply: None }),
        }
    }
}

/// An intent is for bits of an inode: the lock that it gives was the server's own first, which a flock must not be, for
/// it is found by its owner.
fn must_be_on_inode(enqueue: &EnqueueRequest) -> Result<(), Errno> {
    let has_bits = enqueue.policy.kind() == LockKind::InodeBits;
    if has_bits && !enqueue.resource.is_of_flocks() { Ok(()) } else { Err(Errno::EPROTO) }
}
