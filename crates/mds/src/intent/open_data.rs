//! Opens of files whose data lies on the MDT: which lock they bring, and which bytes.

use bytes::Bytes;
use sheen_target::{Context, LockGuard};
use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::md::MdsOpenFlags;
use sheen_wire::messages::{LdlmIntentOpenReply, Reply};
use sheen_wire::ptlrpc::{MessageHeader, PtlrpcBody};

use super::open::{OpenProgress, OpenRequest, lock_without_data};
use crate::Mdt;
use crate::caller::{Caller, May};
use crate::dom::DomOpen;
use crate::inode::Inode;

impl Mdt {
    /// Whether the open brings the DOM bit, if it can bring a lock at all.
    pub(super) fn dom_open_of(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        fid: Fid,
        layout: Option<&Bytes>,
    ) -> Option<DomOpen> {
        opening.enqueue.and_then(|_| self.dom_open(context, opening.flags, fid, layout))
    }

    /// The lock that goes with an open: with data, if there is data and no lock conflicts.
    pub(super) async fn lock_with_data(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        data: Option<DomOpen>,
        more: InodeBits,
    ) -> Result<Option<LockGuard>, Errno> {
        let data = data.filter(|_| !inode.is_damaged);
        let with_data = data.and_then(|data| self.dom_open_lock(context, data, inode.fid, more));
        match with_data {
            Some(guard) => Ok(Some(guard)),
            None => lock_without_data(context, opening, inode, more).await,
        }
    }

    /// Adds size and bytes to the answer, as far as the lock and the room go; bytes only if the user may read
    /// them. A client that opens to write needs them, too, for a page that is written in part.
    pub(super) fn add_data(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        data: Option<DomOpen>,
        guard: Option<&LockGuard>,
        inode: &Inode,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let (Some(data), Some(guard)) = (data, guard) else { return Ok(()) };
        let data = if self.may_have_bytes(opening, inode) { data } else { data.without_bytes() };
        let OpenProgress { body, layout, acl, .. } = progress;
        let bytes_without = |body: &_| {
            let reply = LdlmIntentOpenReply {
                dlm_rep: Some(Default::default()),
                mdt_body: Some(Clone::clone(body)),
                mdt_md: layout.clone(),
                acl: acl.clone(),
                ..LdlmIntentOpenReply::default()
            };
            let reply = Reply::from(reply);
            reply.to_bytes(&MessageHeader::default(), &PtlrpcBody::default()).len()
        };
        progress.data = self.data_on_open(context, data, guard, inode, body, bytes_without)?;
        Ok(())
    }

    fn may_have_bytes(&self, opening: &OpenRequest<'_>, inode: &Inode) -> bool {
        let asks = MdsOpenFlags::READ | MdsOpenFlags::WRITE | MdsOpenFlags::EXEC;
        let caller = Caller::from(opening.record);
        let may = || caller.may(&*self.store, inode.fid, &inode.attributes, May::READ);
        opening.flags.intersects(asks) && may().is_ok()
    }
}
