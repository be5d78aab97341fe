//! Metadata: what the MDT sends and takes apart from locks.
//!
//! Times on the wire are whole seconds, modes and flags are Linux's. Nothing here decides
//! anything; bytes that Lustre calls padding come back out as they went in.

mod flags;
mod reint;
mod xattr;

pub use flags::{
    AttrValid, Bias, Disposition, FileFlags, MdsOpenFlags, ReintOp, StatfsState, Valid,
};
pub use reint::{
    RecCreate, RecLink, RecRename, RecResync, RecSetattr, RecSetxattr, RecUnlink, ReintRecord,
};
pub use xattr::{
    AclEntry, HsmAttrs, HsmStateSet, HsmUserState, LinkEa, LinkEntry, LmaCompat, LmaIncompat,
    LustreMdtAttrs, PosixAcl, SomAttrs, SwapLayouts,
};

use sheen_types::{Fid, LockHandle};

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::{wire_enum, wire_struct};

/// The handle of an open file (`struct lustre_handle`); zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenHandle(pub u64);

impl Wire for OpenHandle {
    const SIZE: usize = 8;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u64::decode(reader).map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

wire_struct! {
    /// `struct mdt_body`: attributes of an inode, and the frame of most metadata requests.
    pub struct MdtBody {
        /// The object.
        fid1: Fid,
        /// A second object: the child, or the target of a cross-reference.
        fid2: Fid,
        /// Handle of the open file.
        open_handle: OpenHandle,
        /// Which fields count.
        valid: Valid,
        /// Size in bytes; in READPAGE and READLINK requests an offset.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// Access time.
        atime: i64,
        /// Change time.
        ctime: i64,
        /// Blocks of 512 bytes; in SETXATTR-like requests the handle of an extended attribute.
        blocks: u64,
        /// Version of the object (the transaction that changed it last).
        version: u64,
        /// Transient state (HSM).
        t_state: u64,
        /// The caller's file system user.
        fsuid: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// The caller's capabilities (Linux numbers).
        capability: u32,
        /// Mode, type bits included.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// [`FileFlags`] in most messages, other flags in close and sync; hence a bare number.
        flags: u32,
        /// Device number.
        rdev: u32,
        /// Links; in READPAGE requests the count of bytes wanted.
        nlink: u32,
        /// Layout generation.
        layout_gen: u32,
        /// A supplementary group of the caller; -1 for none.
        suppgid: u32,
        /// Bytes of the layout in the reply, or room for it.
        eadatasize: u32,
        /// Bytes of the access control list.
        aclsize: u32,
        /// Bytes of the largest layout.
        max_mdsize: u32,
        /// Unused.
        unused3: u32,
        /// High half of the owner, for huge user numbers; not used.
        uid_h: u32,
        /// High half of the group.
        gid_h: u32,
        /// Project.
        projid: u32,
        /// Size of the part on the MDT.
        dom_size: u64,
        /// Blocks of the part on the MDT.
        dom_blocks: u64,
        /// Time of creation.
        btime: i64,
        /// Which extended attributes are absent (`MBO_XA_*`), or all of them ([`MdtBody::NO_XATTRS`]).
        xattr_absent: u64,
        /// Unused.
        padding_10: u64,
    }
}

impl MdtBody {
    /// In `xattr_absent`: the inode has no extended attributes but those that the MDT sets, and no access control
    /// lists. Ours; Lustre 2.17 gives numbers to the two lowest bits and sends none.
    pub const NO_XATTRS: u64 = 1 << 63;
}

wire_struct! {
    /// `struct mdt_ioepoch`: which open a close closes.
    pub struct MdtIoepoch {
        /// The open handle.
        open_handle: OpenHandle,
        /// Unused (the IO epoch, once).
        unused1: u64,
        /// Unused (flags, once).
        unused2: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct close_data`: what a close does besides closing (release, swap, merge, resync).
    pub struct CloseData {
        /// The lease that is released.
        handle: LockHandle,
        /// The other file.
        fid: Fid,
        /// Data version the caller has seen.
        data_version: u64,
        /// By [`Bias`]: resync count and mirror ids, mirror id, archive, or second data version.
        detail: [u32; 16],
    }
}

wire_enum! {
    /// Why a layout is asked for (`LAYOUT_INTENT_*`).
    pub enum LayoutIntentOp: u32 {
        /// `LAYOUT_INTENT_ACCESS`.
        ACCESS = 0,
        /// `LAYOUT_INTENT_READ`.
        READ = 1,
        /// `LAYOUT_INTENT_WRITE`: instantiate what a write needs.
        WRITE = 2,
        /// `LAYOUT_INTENT_GLIMPSE`.
        GLIMPSE = 3,
        /// `LAYOUT_INTENT_TRUNC`: instantiate what a truncate needs.
        TRUNC = 4,
        /// `LAYOUT_INTENT_RELEASE`.
        RELEASE = 5,
        /// `LAYOUT_INTENT_RESTORE`.
        RESTORE = 6,
        /// `LAYOUT_INTENT_PCCRO_SET`.
        PCCRO_SET = 7,
        /// `LAYOUT_INTENT_PCCRO_CLEAR`.
        PCCRO_CLEAR = 8,
        /// `LAYOUT_INTENT_CHANGE`.
        CHANGE = 9,
    }
}

wire_struct! {
    /// `struct layout_intent`.
    pub struct LayoutIntent {
        /// Why.
        op: LayoutIntentOp,
        /// Flags (`enum layout_intent_flags`).
        flags: u32,
        /// First byte meant.
        start: u64,
        /// First byte no longer meant.
        end: u64,
    }
}

/// Forty bytes that identify a file system; Lustre leaves them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatfsId(pub [u8; 40]);

impl Default for StatfsId {
    fn default() -> Self {
        Self([0; 40])
    }
}

impl Wire for StatfsId {
    const SIZE: usize = 40;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array("os_fsid").map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
    }
}

wire_struct! {
    /// `struct obd_statfs`: how full a target is.
    pub struct ObdStatfs {
        /// Magic of the file system below (we say ext4's 0xEF53).
        kind: u64,
        /// Blocks of `bsize` in all.
        blocks: u64,
        /// Free blocks.
        bfree: u64,
        /// Free blocks for the unprivileged.
        bavail: u64,
        /// Objects in all.
        files: u64,
        /// Objects that could still be made.
        ffree: u64,
        /// Identifier of the file system.
        fsid: StatfsId,
        /// Bytes of a block.
        bsize: u32,
        /// Bytes of the longest name.
        namelen: u32,
        /// Bytes of the largest object.
        maxbytes: u64,
        /// State.
        state: StatfsState,
        /// Objects created ahead.
        fprecreated: u32,
        /// Blocks granted to the asker (MDT).
        granted: u32,
        /// Unused.
        spare: [u32; 7],
    }
}

#[cfg(test)]
mod tests;
