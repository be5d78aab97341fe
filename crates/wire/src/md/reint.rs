//! The 136-byte records that say what a REINT does.
//!
//! Each starts with a [`ReintOp`]; [`ReintRecord`] picks the right one.

use sheen_types::{Fid, LockHandle};

use super::{AttrValid, Bias, FileFlags, MdsOpenFlags, OpenHandle, ReintOp, Valid};
use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::wire_struct;

wire_struct! {
    /// `struct mdt_rec_setattr`: set attributes.
    pub struct RecSetattr {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group that matters; -1 for none.
        suppgid: u32,
        /// Unused.
        padding_3_h: u32,
        /// Unused.
        padding_1: u32,
        /// Unused.
        padding_2: u32,
        /// The object.
        fid: Fid,
        /// Which fields below count.
        valid: AttrValid,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Size.
        size: u64,
        /// Blocks of 512 bytes.
        blocks: u64,
        /// Modification time.
        mtime: i64,
        /// Access time.
        atime: i64,
        /// Change time.
        ctime: i64,
        /// The flags word.
        attr_flags: FileFlags,
        /// Mode.
        mode: u32,
        /// Variants.
        bias: Bias,
        /// Project.
        projid: u32,
        /// Unused.
        padding_4: u32,
        /// Unused.
        padding_5: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_create`: create; also open ([`ReintOp::OPEN`], whose flags are [`MdsOpenFlags`]).
    pub struct RecCreate {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Layout version of the directory.
        layout_ver: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The parent.
        fid1: Fid,
        /// The new object.
        fid2: Fid,
        /// The handle of a replayed open.
        open_handle_old: OpenHandle,
        /// The client's time, in seconds.
        time: i64,
        /// Device number.
        rdev: u64,
        /// Unused since 2.8.
        ioepoch: u64,
        /// Unused.
        padding_1: u64,
        /// Mode.
        mode: u32,
        /// Variants.
        bias: Bias,
        /// Open flags, low half; see [`RecCreate::flags`].
        flags_l: u32,
        /// Open flags, high half.
        flags_h: u32,
        /// The caller's umask.
        umask: u32,
        /// Unused.
        padding_4: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_link`: add a name.
    pub struct RecLink {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The object.
        fid1: Fid,
        /// The directory of the new name.
        fid2: Fid,
        /// The client's time, in seconds.
        time: i64,
        /// Unused.
        padding_1: u64,
        /// Unused.
        padding_2: u64,
        /// Unused.
        padding_3: u64,
        /// Unused.
        padding_4: u64,
        /// Variants.
        bias: Bias,
        /// Unused.
        padding_5: u32,
        /// Unused.
        padding_6: u32,
        /// Unused.
        padding_7: u32,
        /// Unused.
        padding_8: u32,
        /// Unused.
        padding_9: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_unlink`: remove a name; also [`ReintOp::RMENTRY`].
    pub struct RecUnlink {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The parent.
        fid1: Fid,
        /// The object, if the client knows it.
        fid2: Fid,
        /// The client's time, in seconds.
        time: i64,
        /// Unused.
        padding_2: u64,
        /// Unused.
        padding_3: u64,
        /// Unused.
        padding_4: u64,
        /// Unused.
        padding_5: u64,
        /// Variants.
        bias: Bias,
        /// Type of the object: a directory or not.
        mode: u32,
        /// Unused.
        padding_6: u32,
        /// Unused.
        padding_7: u32,
        /// Unused.
        padding_8: u32,
        /// Unused.
        padding_9: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_rename`: rename; also [`ReintOp::MIGRATE`].
    pub struct RecRename {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The source directory.
        fid1: Fid,
        /// The target directory.
        fid2: Fid,
        /// The client's time, in seconds.
        time: i64,
        /// Unused.
        padding_1: u64,
        /// Unused.
        padding_2: u64,
        /// Unused.
        padding_3: u64,
        /// Unused.
        padding_4: u64,
        /// Variants.
        bias: Bias,
        /// Mode.
        mode: u32,
        /// Unused.
        padding_5: u32,
        /// Unused.
        padding_6: u32,
        /// Unused.
        padding_7: u32,
        /// Unused.
        padding_8: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_setxattr`: set or remove an extended attribute.
    pub struct RecSetxattr {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The object.
        fid: Fid,
        /// Unused.
        padding_1: u64,
        /// Unused.
        padding_2: u32,
        /// Unused.
        padding_3: u32,
        /// [`Valid::XATTR`] or [`Valid::XATTRRM`].
        valid: Valid,
        /// The client's time, in seconds.
        time: i64,
        /// Unused.
        padding_5: u64,
        /// Unused.
        padding_6: u64,
        /// Unused.
        padding_7: u64,
        /// Bytes of the value.
        size: u32,
        /// `XATTR_CREATE` 1, `XATTR_REPLACE` 2.
        flags: u32,
        /// Unused.
        padding_8: u32,
        /// Unused.
        padding_9: u32,
        /// Unused.
        padding_10: u32,
        /// Unused.
        padding_11: u32,
    }
}

wire_struct! {
    /// `struct mdt_rec_resync`: begin a resync of mirrors.
    pub struct RecResync {
        /// What to do.
        opcode: ReintOp,
        /// Capabilities of the caller (Linux numbers).
        cap: u32,
        /// The caller's file system user.
        fsuid: u32,
        /// Unused.
        padding_1_h: u32,
        /// The caller's file system group.
        fsgid: u32,
        /// Unused.
        padding_2_h: u32,
        /// A supplementary group for the first object; -1 for none.
        suppgid1: u32,
        /// Unused.
        padding_3_h: u32,
        /// A supplementary group for the second object; -1 for none.
        suppgid2: u32,
        /// Unused.
        padding_4_h: u32,
        /// The object.
        fid: Fid,
        /// Unused.
        padding0: Fid,
        /// The caller's lease.
        lease_handle: LockHandle,
        /// Unused.
        padding1: u64,
        /// Unused.
        padding2: u64,
        /// Unused.
        padding3: u64,
        /// Unused.
        padding4: u64,
        /// Variants.
        bias: Bias,
        /// Unused.
        padding5: u32,
        /// Unused.
        padding6: u32,
        /// Unused.
        padding7: u32,
        /// The new mirror.
        mirror_id_new: u32,
        /// The mirror to read.
        mirror_id_old: u16,
        /// Unused.
        padding9: u16,
    }
}

impl RecCreate {
    /// The open flags, both halves.
    #[must_use]
    pub fn flags(&self) -> MdsOpenFlags {
        MdsOpenFlags(u64::from(self.flags_l) | u64::from(self.flags_h) << 32)
    }

    /// Sets the open flags, both halves.
    pub fn set_flags(&mut self, flags: MdsOpenFlags) {
        self.flags_l = flags.0 as u32;
        self.flags_h = (flags.0 >> 32) as u32;
    }
}

/// The record of a REINT, typed by its opcode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReintRecord {
    /// [`ReintOp::SETATTR`].
    Setattr(RecSetattr),
    /// [`ReintOp::CREATE`] and [`ReintOp::OPEN`].
    Create(RecCreate),
    /// [`ReintOp::LINK`].
    Link(RecLink),
    /// [`ReintOp::UNLINK`] and [`ReintOp::RMENTRY`].
    Unlink(RecUnlink),
    /// [`ReintOp::RENAME`] and [`ReintOp::MIGRATE`].
    Rename(RecRename),
    /// [`ReintOp::SETXATTR`].
    Setxattr(RecSetxattr),
    /// [`ReintOp::RESYNC`].
    Resync(RecResync),
}

impl ReintRecord {
    /// What it does.
    #[must_use]
    pub fn op(&self) -> ReintOp {
        match self {
            Self::Setattr(record) => record.opcode,
            Self::Create(record) => record.opcode,
            Self::Link(record) => record.opcode,
            Self::Unlink(record) => record.opcode,
            Self::Rename(record) => record.opcode,
            Self::Setxattr(record) => record.opcode,
            Self::Resync(record) => record.opcode,
        }
    }
}

impl Wire for ReintRecord {
    const SIZE: usize = RecSetattr::SIZE;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let op = ReintOp::decode(&mut reader.clone())?;
        Ok(match op {
            ReintOp::SETATTR => Self::Setattr(Wire::decode(reader)?),
            ReintOp::CREATE | ReintOp::OPEN => Self::Create(Wire::decode(reader)?),
            ReintOp::LINK => Self::Link(Wire::decode(reader)?),
            ReintOp::UNLINK | ReintOp::RMENTRY => Self::Unlink(Wire::decode(reader)?),
            ReintOp::RENAME | ReintOp::MIGRATE => Self::Rename(Wire::decode(reader)?),
            ReintOp::SETXATTR => Self::Setxattr(Wire::decode(reader)?),
            ReintOp::RESYNC => Self::Resync(Wire::decode(reader)?),
            ReintOp(value) => {
                return Err(DecodeError::Illegal { what: "reint opcode", value: value.into() });
            }
        })
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Setattr(record) => record.encode(writer),
            Self::Create(record) => record.encode(writer),
            Self::Link(record) => record.encode(writer),
            Self::Unlink(record) => record.encode(writer),
            Self::Rename(record) => record.encode(writer),
            Self::Setxattr(record) => record.encode(writer),
            Self::Resync(record) => record.encode(writer),
        }
    }
}
