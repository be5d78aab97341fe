//! Layouts: reading one under a lock costs one `LDLM_ENQUEUE` with a layout intent; setting one
//! costs one open intent and a close, or for a directory's default one setattr.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Answer, Call, RequestHook};
use sheen_types::{Errno, Extent, InodeBits, LockMode};
use sheen_wire::ldlm::{IntentOp, LdlmIntent, LockFlags as WireFlags};
use sheen_wire::md::{LayoutIntent, LayoutIntentOp, MdsOpenFlags};
use sheen_wire::messages::{LdlmIntentLayout, Reply, Request};
use sheen_wire::ptlrpc::PtlrpcBody;

use super::Meta;
use super::open::OpenTarget;
use super::setattr::blank_record;
use crate::cache::{Inode, LayoutState, read_layout};
use crate::call;
use crate::data::LayoutVersion;
use crate::locks::LockRequest;
use crate::mdt::intent_status;
use crate::types::{Credentials, FileType};

/// Sends the layout that the MDT made with the replay, which must not allocate other objects.
#[derive(Default)]
struct LayoutReplay {
    made: Mutex<Bytes>,
}

impl RequestHook for LayoutReplay {
    fn keep_until_release(&self, answer: &Answer) -> bool {
        if let Reply::LdlmIntentLayout(reply) = &answer.reply {
            *self.made.lock() = reply.dlm_lvb.clone();
        }
        false
    }

    fn before_replay(&self, request: &mut Request, _answer_body: &PtlrpcBody) {
        let Request::LdlmIntentLayout(intent) = request else { return };
        // The lock is replayed on its own.
        intent.dlm_req.flags |= WireFlags::INTENT_ONLY;
        intent.eadata = self.made.lock().clone();
    }
}

impl Meta {
    /// The current layout of a file, and its version. One RPC, none while a lock covers what is known.
    pub(crate) async fn layout(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<(LayoutState, LayoutVersion), Errno> {
        {
            let state = inode.state();
            if let Some(layout) = state.layout() {
                return Ok((layout.clone(), state.file.layout_guard.version()));
            }
        }
        let access = LayoutIntent { op: LayoutIntentOp::ACCESS, ..LayoutIntent::default() };
        self.layout_intent(who, inode, access).await
    }

    /// Has the MDT make objects for all of `extent`. One RPC, and the layout is known then.
    pub(crate) async fn make_objects(
        &self,
        who: &Credentials,
        inode: &Inode,
        op: LayoutIntentOp,
        extent: Extent,
    ) -> Result<(), Errno> {
        let Extent { start, end } = extent;
        let intent = LayoutIntent { op, flags: 0, start, end: end.saturating_add(1) };
        self.layout_intent(who, inode, intent).await.map(|_| ())
    }

    async fn layout_intent(
        &self,
        who: &Credentials,
        inode: &Inode,
        layout_intent: LayoutIntent,
    ) -> Result<(LayoutState, LayoutVersion), Errno> {
        self.retry_while_in_progress(|| self.layout_intent_once(who, inode, &layout_intent)).await
    }

    async fn layout_intent_once(
        &self,
        who: &Credentials,
        inode: &Inode,
        layout_intent: &LayoutIntent,
    ) -> Result<(LayoutState, LayoutVersion), Errno> {
        let op = layout_intent.op;
        let mdt = self.mdt(inode.fid).await?;
        let pending = mdt.locks.begin(LockRequest {
            resource: inode.resource(),
            policy: Policy::bits(InodeBits::LAYOUT),
            mode: LockMode::Cr,
            flags: LockFlags::HAS_INTENT,
        });
        let request = LdlmIntentLayout {
            dlm_req: pending.request(),
            ldlm_intent: LdlmIntent { opc: IntentOp::LAYOUT },
            layout_intent: layout_intent.clone(),
            ..LdlmIntentLayout::default()
        };
        let call = match op {
            LayoutIntentOp::ACCESS => Call::new(request),
            _ => Call { hook: Some(Arc::new(LayoutReplay::default())), ..Call::modifying(request) },
        };
        let call = who.sign(call.with_reply_room(self.layout_room()));
        let (pending, answer) = pending.send::<LdlmIntentLayout>(&mdt.channel, call).await?;
        let lock = call::need(answer.reply.dlm_rep)?;
        if let Some(errno) = intent_status(lock.policy_res2) {
            return Err(errno);
        }
        let held = pending.granted(&lock, answer.connection).await?;
        let ea = answer.reply.dlm_lvb;
        let layout = read_layout((!ea.is_empty()).then_some(&ea));
        let mut state = inode.state();
        state.changes.note(mdt.index, answer.body.transno);
        if let Some(held) = held {
            state.note_layout(&held, layout.clone());
        }
        Ok((layout, state.file.layout_guard.version()))
    }

    /// Gives a file without objects a layout, and objects; or a directory a default layout for new
    /// files. Two RPCs for a file, one for a directory.
    pub(crate) async fn set_layout(
        &self,
        who: &Credentials,
        inode: &Inode,
        layout: Bytes,
    ) -> Result<(), Errno> {
        if inode.file_type() == Some(FileType::Directory) {
            let record = blank_record(who, inode);
            return self.send_setattr(who, inode, record, layout, InodeBits::UPDATE).await;
        }
        let flags = MdsOpenFlags::WRITE | MdsOpenFlags::BY_FID;
        let target = OpenTarget::Known(inode);
        match self.open_intent(who, target, flags, Some(layout)).await?.open {
            Some(open) => open.close(who, inode.fid, None).await,
            None => Err(Errno::EPROTO),
        }
    }
}
