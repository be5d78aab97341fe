//! What the data of files on an MDT has of its own: inodes as objects, one lock for all bytes, times.

use std::sync::Arc;

use sheen_brw::{Objects, attributes};
use sheen_io::BoxFuture;
use sheen_ldlm::Policy;
use sheen_store::{AttributePatch, Attributes, FileKind, Store};
use sheen_target::{Context, store_errno};
use sheen_types::{Errno, Extent, Fid, InodeBits, ResourceName};
use sheen_wire::md::Valid;
use sheen_wire::ost::{Obdo, OstId};

use crate::dom::late::LateTimes;
use crate::dom::part_of;
use crate::{counters, xattrs};

/// The files of one MDT.
pub(crate) struct Files {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) late: LateTimes,
}

impl Objects for Files {
    const READ_BYTES: usize = counters::READ_BYTES;
    const WRITTEN_BYTES: usize = counters::WRITE_BYTES;
    const PUNCH_REPLY_VALID: Valid = Valid(
        Valid::ID.0
            | Valid::SIZE.0
            | Valid::BLOCKS.0
            | Valid::ATIME.0
            | Valid::MTIME.0
            | Valid::CTIME.0,
    );

    /// Only regular files whose layout has a part here. Flags of the inode are not asked, as by Lustre's MDT: what
    /// was opened or cached before a file became immutable may still be written.
    fn find(&self, oi: OstId) -> Result<Fid, Errno> {
        let is_of_mdt = |fid: &Fid| fid.is_of_mdt() && !fid.is_idif();
        let fid = oi.fid(0).filter(is_of_mdt).ok_or(Errno::EPROTO)?;
        let attributes = self.store.attributes(fid).map_err(store_errno)?;
        if attributes.kind != FileKind::Regular {
            return Err(Errno::EPROTO);
        }
        let layout = self.store.xattr(fid, xattrs::LOV).map_err(store_errno)?;
        let part = layout.as_ref().and_then(part_of);
        // The layout may have changed since the client has read it.
        part.map(|_| fid).ok_or(Errno::ESTALE)
    }

    /// The DOM bit, whichever bytes.
    fn cover(&self, oi: OstId, _: Extent) -> (ResourceName, Policy) {
        (oi.resource(), Policy::bits(InodeBits::DOM))
    }

    /// Times, unless the client has set other ones since. Owner and mode are the inode's.
    fn stamp(
        &self,
        context: &Context,
        object: Fid,
        asked: &Obdo,
        before: &Attributes,
    ) -> AttributePatch {
        if self.late.is_late(context.export.number(), object, context.xid) {
            return AttributePatch::default();
        }
        let AttributePatch { accessed, modified, changed, .. } =
            attributes::data_patch(asked, before);
        AttributePatch { accessed, modified, changed, ..AttributePatch::default() }
    }

    /// Waits for the commit that has the inode, if it is as young as that.
    fn before_answer<'a>(
        &'a self,
        context: &'a Context,
        object: Fid,
    ) -> BoxFuture<'a, Result<(), Errno>> {
        Box::pin(async move {
            let target = &context.target;
            match self.store.is_created_durably(object).map_err(store_errno)? {
                true => Ok(()),
                false => target.wait_until_all_committed().await,
            }
        })
    }
}
