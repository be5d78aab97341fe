//! Layouts: reading one under a lock costs one `LDLM_ENQUEUE` with a layout intent; setting one
//! costs one open intent and a close, or for a directory's default one setattr.

use bytes::Bytes;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Call;
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{LayoutIntent, LayoutIntentOp, OpenFlags};
use sheen_wire::messages::LdlmIntentLayout;

use super::open::Target;
use super::setattr::blank_record;
use super::store::read_layout;
use super::{EA_ROOM, Meta, intent_status};
use crate::cache::{Inode, LayoutState};
use crate::call;
use crate::locks::Ask;
use crate::posix::{Credentials, FileType};

impl Meta {
    /// The layout of a file, as it is now. One RPC, none while a lock covers what we know.
    pub(crate) async fn layout(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<LayoutState, Errno> {
        {
            let state = inode.state();
            if state.covered.contains(InodeBits::LAYOUT) {
                return Ok(state.layout.clone());
            }
        }
        let mdt = self.mdt(inode.fid)?;
        let pending = mdt.locks.begin(Ask {
            resource: inode.resource(),
            policy: Policy::bits(InodeBits::LAYOUT),
            mode: LockMode::Cr,
            flags: LockFlags::HAS_INTENT,
        });
        let request = LdlmIntentLayout {
            dlm_req: pending.request(),
            ldlm_intent: LdlmIntent { opc: IntentOp::LAYOUT },
            layout_intent: LayoutIntent { op: LayoutIntentOp::ACCESS, ..LayoutIntent::default() },
            ..LdlmIntentLayout::default()
        };
        let call = who.sign(Call::new(request).with_reply_room(EA_ROOM));
        let answer = call::call::<LdlmIntentLayout>(&*mdt.channel, call).await?;
        let lock = call::need(answer.reply.dlm_rep)?;
        if let Some(errno) = intent_status(lock.policy_res2) {
            return Err(errno);
        }
        let held = pending.granted(&lock, answer.connection).await?;
        let ea = answer.reply.dlm_lvb;
        let layout = read_layout((!ea.is_empty()).then_some(&ea));
        if let Some(held) = held {
            let mut state = inode.state();
            state.layout = layout.clone();
            state.covered = state.covered | held.bits();
        }
        Ok(layout)
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
        let flags = OpenFlags::WRITE | OpenFlags::BY_FID;
        let target = Target::Known(inode);
        match self.open_intent(who, target, flags, Some(layout)).await?.state {
            Some(open) => self.close(who, inode, open, None).await,
            None => Err(Errno::EPROTO),
        }
    }
}
