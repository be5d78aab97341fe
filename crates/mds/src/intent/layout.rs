//! Intents for the layout: to read it, or to have the objects made that a write needs.

use bytes::Bytes;
use sheen_target::{Context, EnqueueRequest, LockGuard, Outcome, ReplyRecording};
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::LayoutIntentOp;
use sheen_wire::messages::{LdlmIntentLayout, LdlmIntentLayoutReply};

use crate::{Mdt, layouts, locks};

impl Mdt {
    /// Answers with the layout under the lock that the client asked for.
    pub(crate) async fn intent_layout(
        &self,
        context: &Context,
        request: &LdlmIntentLayout,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let done = self.place_and_lock(context, request, enqueue).await;
        // The objects may be made, and the client evicted before it could have the lock.
        done.map_err(|errno| context.fail_after_execution(errno))
    }

    async fn place_and_lock(
        &self,
        context: &Context,
        request: &LdlmIntentLayout,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let fid = enqueue.resource.fid();
        // Sent again, and the lock was granted: the objects are made. An operation that makes more now may
        // hold the inode and wait for this very lock, which the client cannot cancel before it has the
        // answer.
        let held = context.resent_lock(enqueue);
        let mut changed = None;
        match request.layout_intent.op {
            LayoutIntentOp::ACCESS => {}
            LayoutIntentOp::WRITE | LayoutIntentOp::TRUNC => {
                if self.must_not_change(context) {
                    return Err(Errno::EROFS);
                }
                if held.is_none() {
                    changed = self.place(context, request, enqueue).await?;
                }
            }
            LayoutIntentOp::READ
            | LayoutIntentOp::GLIMPSE
            | LayoutIntentOp::RELEASE
            | LayoutIntentOp::RESTORE => return Err(Errno::ENOTSUPP),
            _ => return Err(Errno::EINVAL),
        }
        let guard = match (&held, changed) {
            (Some(_), _) => None,
            (None, Some(mut lock)) => {
                lock.downgrade(LockMode::Cr)?;
                Some(lock)
            }
            (None, None) => {
                // A client asks for EX with what changes a layout; nothing changes, so all may
                // share it.
                let mode = if enqueue.mode == LockMode::Ex { LockMode::Cr } else { enqueue.mode };
                Some(context.target.lock(enqueue.resource, enqueue.policy, mode).await?)
            }
        };
        // A file that has gone has no layout; the lock guarantees the client that this stays so.
        let dlm_lvb = match self.inode(fid) {
            Ok(inode) => self.layout(&inode)?.unwrap_or_default(),
            Err(Errno::ENOENT) => Bytes::new(),
            Err(errno) => return Err(errno),
        };
        let mut lock = match guard {
            Some(guard) => locks::hand_over(context, guard, enqueue)?,
            None => held.unwrap_or_default(),
        };
        lock.policy_res1 = Disposition::IT_EXECD;
        let dlm_rep = Some(lock);
        let reply = LdlmIntentLayoutReply { dlm_rep, dlm_lvb, ..LdlmIntentLayoutReply::default() };
        Ok(Outcome::ok(reply))
    }

    /// Gives a file the objects that it needs to be written as far as the intent says. Returns the
    /// lock, if the layout changed: no other client holds one.
    async fn place(
        &self,
        context: &Context,
        request: &LdlmIntentLayout,
        enqueue: &EnqueueRequest,
    ) -> Result<Option<LockGuard>, Errno> {
        let fid = enqueue.resource.fid();
        let end = request.layout_intent.end;
        let held = self.hold_inodes(&[fid]).await;
        let inode = self.inode(fid)?;
        if !inode.is_regular() {
            return Err(Errno::EINVAL);
        }
        let before = match self.layout(&inode)? {
            Some(layout) => Some(layouts::stored(&layout)?),
            None => None,
        };
        if let Some(stored) = &before {
            if !stored.reaches(end) {
                return Err(Errno::EINVAL);
            }
            if stored.lacking(end).is_empty() {
                return Ok(None);
            }
        }
        let world = context.target.world();
        let reserved = match (context.replay(), before) {
            (Some(_), before) => self.placement.restore(&request.eadata, before.as_ref())?,
            (None, Some(stored)) => self.placement.extend(world, stored, end).await?,
            (None, None) => {
                let plan = self.plan_new_layout(self.parent_of(&inode).as_ref(), None, false)?;
                self.placement.allocate(world, fid, &plan, end).await?
            }
        };
        let target = &context.target;
        // Not in one lock with the layout's, which the client gets: a lock on attributes that is
        // shared while they are changed would not keep them current.
        let _attributes = target.lock_inode(fid, InodeBits::UPDATE, LockMode::Ex).await?;
        let lock = target.lock_inode(fid, InodeBits::LAYOUT, LockMode::Ex).await?;
        let mut changes = self.change_set();
        changes.use_objects(fid, &reserved);
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(Some(lock))
    }
}
