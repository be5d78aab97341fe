//! How attributes and intents are put into replies.

use bytes::Bytes;
use sheen_store::StoreError;
use sheen_target::{Context, store_errno};
use sheen_types::Errno;
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::ldlm::{Disposition, LdlmReply};
use sheen_wire::md::{MdtBody, Valid};

use crate::inode::{Inode, WholeInode};
use crate::{Mdt, xattrs};

/// Status of an intent that was executed and gave no lock (`ELDLM_LOCK_ABORTED`).
pub(crate) const LOCK_ABORTED: i32 = 301;

/// What an answer says of every inode.
const ALWAYS: Valid = Valid(
    Valid::ID.0
        | Valid::ATIME.0
        | Valid::MTIME.0
        | Valid::CTIME.0
        | Valid::BTIME.0
        | Valid::MODE.0
        | Valid::TYPE.0
        | Valid::UID.0
        | Valid::GID.0
        | Valid::PROJID.0
        | Valid::FLAGS.0
        | Valid::NLINK.0,
);

/// The lock reply of an intent where no lock is given: how far it got, and its error.
pub(crate) fn lockless_reply(disposition: Disposition, error: Option<Errno>) -> LdlmReply {
    LdlmReply {
        policy_res1: disposition,
        // As Lustre converts it: the negative number in 32 bits.
        policy_res2: error.map_or(0, |errno| u64::from(errno.status() as u32)),
        ..LdlmReply::default()
    }
}

impl Mdt {
    /// Attributes of an inode. If it has a layout, the OSTs know its size.
    pub(crate) fn body(&self, inode: &Inode, has_layout: bool) -> MdtBody {
        let attributes = &inode.attributes;
        let mut body = MdtBody {
            fid1: inode.fid,
            valid: ALWAYS,
            atime: attributes.accessed.seconds,
            mtime: attributes.modified.seconds,
            ctime: attributes.changed.seconds,
            btime: attributes.born.seconds,
            mode: inode.mode(),
            uid: attributes.uid,
            gid: attributes.gid,
            projid: attributes.project,
            flags: attributes.flags,
            nlink: self.links_shown(inode),
            rdev: attributes.device as u32,
            size: attributes.size,
            blocks: attributes.blocks,
            ..MdtBody::default()
        };
        if !inode.is_regular() {
            body.valid = body.valid | Valid::SIZE | Valid::BLOCKS | Valid::RDEV;
        } else if !has_layout {
            body.blocks = 0;
            // Where the store fails, no size is reported: it would be taken for the file's.
            if let Ok(recorded) = self.reported_size(inode) {
                body.valid = body.valid | Valid::SIZE | Valid::BLOCKS;
                body.size = recorded.map_or(body.size, |(size, _)| size);
            }
        }
        body
    }

    /// How many names a client sees. One of a file that never had any (`MDS_OPEN_VOLATILE`), as in Lustre: its kernel
    /// takes a file of none for one that was removed, ends it with its last close, and discards what is dirty of
    /// it. By then a swap may have made its objects another file's.
    fn links_shown(&self, inode: &Inode) -> u32 {
        let links = inode.attributes.links;
        let never_had_one = || matches!(self.store.xattr(inode.fid, xattrs::LINK), Ok(None));
        if links == 0 && inode.is_regular() && never_had_one() { 1 } else { links }
    }

    /// Size and blocks as clients reported them at close.
    ///
    /// # Errors
    /// Those of the store. What is no such record counts as none.
    pub(crate) fn reported_size(&self, inode: &Inode) -> Result<Option<(u64, u64)>, StoreError> {
        Ok(self.size_record(inode.fid)?.and_then(|record| record.reported))
    }

    /// A file's layout; `None` for other inodes and for files without objects.
    pub(crate) fn layout(&self, inode: &Inode) -> Result<Option<Bytes>, Errno> {
        if !inode.is_regular() {
            return Ok(None);
        }
        let layout = self.store.xattr(inode.fid, xattrs::LOV).map_err(store_errno)?;
        layout.iter().for_each(|layout| self.placement.note_layout(layout));
        Ok(layout)
    }

    /// Attributes of an inode, and the layout of a file: with `room` for it, none otherwise.
    pub(crate) fn describe(
        &self,
        context: &Context,
        whole: &WholeInode,
        room: bool,
    ) -> (MdtBody, Bytes) {
        let (inode, layout) = (&whole.inode, whole.layout());
        layout.iter().for_each(|layout| self.placement.note_layout(layout));
        let mut body = self.body(inode, layout.is_some());
        let Some(layout) = layout else { return (body, Bytes::new()) };
        // With the layout alone, as Lustre's.
        if room || context.has2(ConnectFlags2::OWN_NAMES) {
            self.put_size(context, inode, whole.size_record(), &mut body);
        }
        if self.known_empty.contains(inode.fid) {
            body.valid = body.valid | Valid::SIZE | Valid::BLOCKS;
            (body.size, body.blocks) = (0, 0);
        }
        if !room {
            return (body, Bytes::new());
        }
        body.valid |= Valid::EASIZE;
        body.eadatasize = layout.len() as u32;
        (body, layout)
    }

    /// Adds the size of the largest layout.
    pub(crate) fn add_layout_max(&self, body: &mut MdtBody) {
        body.valid |= Valid::MODEASIZE;
        body.max_mdsize = self.placement.layout_bytes_max();
    }
}

/// Adds the access control list, if the client can read one.
pub(crate) fn add_acl(context: &Context, acl: Bytes, body: &mut MdtBody) -> Bytes {
    if !context.has(ConnectFlags::ACL) {
        return Bytes::new();
    }
    body.valid |= Valid::ACL;
    body.aclsize = acl.len() as u32;
    acl
}
