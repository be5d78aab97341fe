//! Locks that are asked for to learn an object's size.

use bytes::Bytes;
use sheen_brw::encode_value;
use sheen_target::{Context, EnqueueRequest, Outcome};
use sheen_types::{Errno, Fid, ResourceName};
use sheen_wire::ldlm::{LdlmReply, LockFlags as WireFlags};
use sheen_wire::messages::LdlmEnqueueReply;
use sheen_wire::ost::OstId;

use crate::{Ost, objects};

/// `ELDLM_LOCK_ABORTED`: a positive status, "the answer, and no lock".
const LOCK_ABORTED: i32 = 301;

impl Ost {
    /// What the object itself says. A lock on an object that does not exist is refused.
    pub(crate) fn value(&self, resource: ResourceName) -> Result<Bytes, Errno> {
        self.brw.value(self.locked(resource)?).map(|value| encode_value(&value))
    }

    /// A glimpse of an object: see [`sheen_target::Operations::glimpse_enqueue`].
    pub(crate) async fn glimpse(
        &self,
        context: &Context,
        enqueue: EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let target = &context.target;
        if let Some(lock) = target.try_lock(enqueue.resource, enqueue.policy, enqueue.mode) {
            let value = self.value(enqueue.resource)?;
            let mut reply = lock.hand_over(context, &enqueue)?;
            reply.flags |= echoed_flags(&enqueue);
            return Ok(answer(0, reply, value));
        }
        let object = self.locked(enqueue.resource)?;
        let value = self.brw.glimpsed(target, enqueue.resource, object).await?;
        Ok(answer(LOCK_ABORTED, LdlmReply::default(), encode_value(&value)))
    }

    /// The object that a lock is on.
    fn locked(&self, resource: ResourceName) -> Result<Fid, Errno> {
        objects::fid_of(OstId::of_resource(&resource), self.index)
    }
}

/// The flags that come back with a lock that an intent gave: that the server chose the lock, and how
/// the client asked.
fn echoed_flags(enqueue: &EnqueueRequest) -> WireFlags {
    let asked = WireFlags::HAS_INTENT | WireFlags::BLOCK_NOWAIT | WireFlags::SPECULATIVE;
    WireFlags::LOCK_CHANGED | enqueue.flags & asked
}

fn answer(status: i32, reply: LdlmReply, value: Bytes) -> Outcome {
    let reply =
        LdlmEnqueueReply { dlm_rep: Some(reply), dlm_lvb: value, ..LdlmEnqueueReply::default() };
    Outcome { status, reply: Some(reply.into()) }
}
