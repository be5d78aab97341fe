//! The lock value block of an object: size, blocks and times that come with a lock.

use bytes::Bytes;
use sheen_target::{Context, LockWish, Outcome};
use sheen_types::{Errno, ResourceName};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ldlm::{LdlmReply, LockFlags};
use sheen_wire::messages::LdlmEnqueueReply;
use sheen_wire::ost::{OstId, OstLvb};

use crate::{Ost, attributes, objects};

/// `ELDLM_LOCK_ABORTED`: a positive status, "the answer, and no lock".
const LOCK_ABORTED: i32 = 301;

impl Ost {
    /// What the object itself says. A lock on an object that does not exist is refused.
    pub(crate) fn value(&self, resource: ResourceName) -> Result<Bytes, Errno> {
        self.known(resource).map(|value| encode(&value))
    }

    /// A client wants to know size and times, and takes a lock if nobody is in the way. If somebody
    /// is, who may know better than the object is asked, and the answer is the value alone
    /// (`ofd_intent_policy`).
    pub(crate) async fn glimpse(
        &self,
        context: &Context,
        wish: LockWish,
    ) -> Result<Outcome, Errno> {
        let target = &context.target;
        if let Some(lock) = target.try_lock(wish.resource, wish.policy, wish.mode) {
            let value = self.value(wish.resource)?;
            let mut reply = lock.hand_over(context, &wish)?;
            reply.flags |= told(&wish);
            return Ok(answer(0, reply, value));
        }
        let mut merged = self.known(wish.resource)?;
        for (_, told) in target.glimpse(wish.resource).await {
            // Who does not answer has gone or was evicted; what it knew is lost then anyway.
            let told = told.and_then(|told| decode(&told));
            merged = told.map_or(merged.clone(), |told| merge(&merged, &told));
        }
        // A write that landed while we asked counts too.
        merged = merge(&merged, &self.known(wish.resource)?);
        Ok(answer(LOCK_ABORTED, LdlmReply::default(), encode(&merged)))
    }

    fn known(&self, resource: ResourceName) -> Result<OstLvb, Errno> {
        let fid = objects::fid_of(OstId::of_resource(&resource), self.index)?;
        let now = self.store.attributes(fid).map_err(|error| error.errno())?;
        Ok(attributes::lvb(&now))
    }
}

/// The flags that come back with a lock that an intent gave: that the server chose the lock, and how
/// the client asked.
fn told(wish: &LockWish) -> LockFlags {
    let asked = LockFlags::HAS_INTENT | LockFlags::BLOCK_NOWAIT | LockFlags::SPECULATIVE;
    LockFlags::LOCK_CHANGED | wish.flags & asked
}

fn answer(status: i32, reply: LdlmReply, value: Bytes) -> Outcome {
    let reply =
        LdlmEnqueueReply { dlm_rep: Some(reply), dlm_lvb: value, ..LdlmEnqueueReply::default() };
    Outcome { status, reply: Some(reply.into()) }
}

/// The larger of what two know: a client that holds a write lock knows of bytes that have not
/// arrived, the object of writes whose locks are gone (`ofd_lvbo_update`).
fn merge(one: &OstLvb, other: &OstLvb) -> OstLvb {
    let (mtime, mtime_ns) = (one.mtime, one.mtime_ns).max((other.mtime, other.mtime_ns));
    let (atime, atime_ns) = (one.atime, one.atime_ns).max((other.atime, other.atime_ns));
    let (ctime, ctime_ns) = (one.ctime, one.ctime_ns).max((other.ctime, other.ctime_ns));
    let (size, blocks) = (one.size.max(other.size), one.blocks.max(other.blocks));
    OstLvb { size, mtime, atime, ctime, blocks, mtime_ns, atime_ns, ctime_ns, padding: 0 }
}

fn encode(value: &OstLvb) -> Bytes {
    let mut writer = Writer::with_capacity(OstLvb::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

fn decode(bytes: &Bytes) -> Result<OstLvb, Errno> {
    OstLvb::decode(&mut Reader::new(bytes, ByteOrder::Little)).map_err(|_| Errno::EPROTO)
}
