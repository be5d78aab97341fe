//! Sizes of files on the MDT: the values of DOM locks, and requests that only want to know.

use bytes::Bytes;
use sheen_brw::encode_value;
use sheen_target::{Context, EnqueueRequest, Outcome};
use sheen_types::{Errno, Fid};
use sheen_wire::ldlm::{LdlmReply, LockFlags as WireFlags};
use sheen_wire::messages::LdlmEnqueueReply;

use crate::answer::LOCK_ABORTED;
use crate::{Mdt, locks};

impl Mdt {
    /// What goes with a lock that has the DOM bit: the size of what is on the MDT. Empty for an inode
    /// that has gone: the client that reads it will see that.
    pub(crate) fn data_value(&self, fid: Fid) -> Result<Bytes, Errno> {
        if !fid.is_of_mdt() {
            return Err(Errno::EINVAL);
        }
        match self.dom.brw.value(fid) {
            Ok(value) => Ok(encode_value(&value)),
            Err(Errno::ENOENT) => Ok(Bytes::new()),
            Err(errno) => Err(errno),
        }
    }

    /// A glimpse of a file on the MDT: see [`sheen_target::Operations::glimpse_enqueue`].
    pub(crate) async fn glimpse(
        &self,
        context: &Context,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let fid = self.inode(enqueue.resource.fid())?.fid;
        let brw = &self.dom.brw;
        if let Some(held) = context.resent_lock(enqueue) {
            return Ok(answer(0, held, encode_value(&brw.value(fid)?)));
        }
        let target = &context.target;
        if let Some(lock) = target.try_lock(enqueue.resource, enqueue.policy, enqueue.mode) {
            let value = encode_value(&brw.value(fid)?);
            let reply = locks::hand_over(context, lock, enqueue)?;
            return Ok(answer(0, reply, value));
        }
        // Asked for ahead of use: a client that really needs the size will ask again.
        let value = match enqueue.flags.contains(WireFlags::BLOCK_NOWAIT) {
            true => brw.value(fid)?,
            false => brw.glimpsed(target, enqueue.resource, fid).await?,
        };
        Ok(answer(LOCK_ABORTED, LdlmReply::default(), encode_value(&value)))
    }
}

fn answer(status: i32, reply: LdlmReply, value: Bytes) -> Outcome {
    let reply =
        LdlmEnqueueReply { dlm_rep: Some(reply), dlm_lvb: value, ..LdlmEnqueueReply::default() };
    Outcome { status, reply: Some(reply.into()) }
}
