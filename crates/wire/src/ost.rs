//! Objects: what an OST sends and takes apart from locks.
//!
//! An object has two names, the old pair of id and group and the FID; [`OstId`] is the sixteen
//! bytes that hold either. An [`Obdo`] has fields that mean another thing in some requests: `fields` names them.

mod fields;

pub use fields::GrantReport;

use sheen_types::{Extent, Fid, LockHandle, ResourceName, fid_seq};

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::md::Valid;
use crate::{wire_bits, wire_struct};

/// `struct ost_id`: id and sequence of the old kind, or a FID, in the same sixteen bytes.
///
/// The second word shows which: small sequences are of the old kind, whereas a FID has its object
/// number there, and its sequence in the first word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OstId {
    /// The old id, or a FID's sequence.
    pub word0: u64,
    /// The old sequence (0 for MDT0000), or a FID's object number and version.
    pub word1: u64,
}

impl Wire for OstId {
    const SIZE: usize = 16;

    /// A FID's two halves are numbers of their own, so a big-endian peer's need looking at both
    /// ways; such peers are read as sending the old kind.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { word0: u64::decode(reader)?, word1: u64::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        self.word0.encode(writer);
        self.word1.encode(writer);
    }
}

impl OstId {
    /// Largest id of the old kind that a FID can say: 48 bits.
    const IDIF_ID_MAX: u64 = (1 << 48) - 1;

    /// An object of MDT0000's old group.
    #[must_use]
    pub const fn of_id(id: u64) -> Self {
        Self { word0: id, word1: fid_seq::OST_MDT0 }
    }

    /// The id by which the wire names an object of this FID; an IDIF becomes the old kind (`fid_to_ostid`).
    #[must_use]
    pub fn of_fid(fid: Fid) -> Self {
        if fid.is_idif() {
            return Self::of_id((fid.seq & 0xffff) << 32 | u64::from(fid.oid));
        }
        Self { word0: fid.seq, word1: u64::from(fid.oid) | u64::from(fid.ver) << 32 }
    }

    /// The object's FID on OST `ost_index` (`ostid_to_fid`); `None` if this names none: an id of
    /// more than 48 bits, or a version where there must be none.
    #[must_use]
    pub fn fid(self, ost_index: u16) -> Option<Fid> {
        if self.word1 == fid_seq::OST_MDT0 {
            if self.word0 > Self::IDIF_ID_MAX {
                return None;
            }
            let seq = fid_seq::IDIF | u64::from(ost_index) << 16 | (self.word0 >> 32) & 0xffff;
            return Some(Fid::new(seq, self.word0 as u32));
        }
        let oid = u32::try_from(self.word1).ok()?;
        Some(Fid::new(self.word0, oid))
    }

    /// Object number within its sequence (`ostid_id`).
    #[must_use]
    pub fn id(self) -> u64 {
        match self.word1 {
            fid_seq::OST_MDT0 => self.word0,
            _ if self.as_fid().is_idif() => (self.word0 & 0xffff) << 32 | self.word1 & 0xffff_ffff,
            word1 => word1 & 0xffff_ffff,
        }
    }

    /// Sequence (`ostid_seq`); all of MDT0000's old objects are in 0.
    #[must_use]
    pub fn seq(self) -> u64 {
        match self.word1 {
            fid_seq::OST_MDT0 => fid_seq::OST_MDT0,
            _ if self.as_fid().is_idif() => fid_seq::OST_MDT0,
            _ => self.word0,
        }
    }

    /// What a lock on the object is on (`ostid_build_res_name`).
    #[must_use]
    pub fn resource(self) -> ResourceName {
        ResourceName([self.word0, self.word1, 0, 0])
    }

    /// The object a lock is on; reverses [`OstId::resource`].
    #[must_use]
    pub fn of_resource(name: &ResourceName) -> Self {
        Self { word0: name.0[0], word1: name.0[1] }
    }

    /// The file a layout belongs to, in the order that layouts have it (`lmm_oi`): object number
    /// first.
    #[must_use]
    pub fn of_file(fid: Fid) -> Self {
        Self { word0: fid.oid.into(), word1: fid.seq }
    }

    /// Reverses [`OstId::of_file`].
    #[must_use]
    pub fn file(self) -> Fid {
        Fid::new(self.word1, self.word0 as u32)
    }

    fn as_fid(self) -> Fid {
        Fid { seq: self.word0, oid: self.word1 as u32, ver: (self.word1 >> 32) as u32 }
    }
}

wire_bits! {
    /// What else an [`Obdo`] says (`OBD_FL_*`).
    /// // The T10 checksum types are numbers inside the checksum bits, not bits.
    pub struct ObdoFlags: u32 {
        /// `OBD_FL_INLINEDATA`: data comes inline.
        INLINEDATA = 0x1,
        /// `OBD_FL_OBDMDEXISTS`: the object's attributes exist.
        OBDMDEXISTS = 0x2,
        /// `OBD_FL_DELORPHAN`: destroy objects that no file refers to.
        DELORPHAN = 0x4,
        /// `OBD_FL_NORPC`: local to the client.
        NORPC = 0x8,
        /// `OBD_FL_IDONLY`: only move the object number on.
        IDONLY = 0x10,
        /// `OBD_FL_RECREATE_OBJS`: make lost objects again.
        RECREATE_OBJS = 0x20,
        /// `OBD_FL_DEBUG_CHECK`: echo test pattern.
        DEBUG_CHECK = 0x40,
        /// `OBD_FL_NO_PRJQUOTA`: the project is over quota.
        NO_PRJQUOTA = 0x80,
        /// `OBD_FL_NO_USRQUOTA`: the owner is over quota.
        NO_USRQUOTA = 0x100,
        /// `OBD_FL_NO_GRPQUOTA`: the group is over quota.
        NO_GRPQUOTA = 0x200,
        /// `OBD_FL_CREATE_CROW`: make the object when written.
        CREATE_CROW = 0x400,
        /// `OBD_FL_SRVLOCK`: the server takes the lock.
        SRVLOCK = 0x800,
        /// `OBD_FL_CKSUM_CRC32`: the checksum is a CRC32.
        CKSUM_CRC32 = 0x1000,
        /// `OBD_FL_CKSUM_ADLER`: the checksum is an Adler-32.
        CKSUM_ADLER = 0x2000,
        /// `OBD_FL_CKSUM_CRC32C`: the checksum is a CRC32C.
        CKSUM_CRC32C = 0x4000,
        /// `OBD_FL_SHRINK_GRANT`: the client returns grant.
        SHRINK_GRANT = 0x2_0000,
        /// `OBD_FL_MMAP`: data may change under the checksum.
        MMAP = 0x4_0000,
        /// `OBD_FL_RECOV_RESEND`: sent again after recovery.
        RECOV_RESEND = 0x8_0000,
        /// `OBD_FL_NOSPC_BLK`: no space left for blocks.
        NOSPC_BLK = 0x10_0000,
        /// `OBD_FL_FLUSH`: flush pages on the OST.
        FLUSH = 0x20_0000,
        /// `OBD_FL_SHORT_IO`: data is in the message itself.
        SHORT_IO = 0x40_0000,
        /// `OBD_FL_ROOT_SQUASH`: root counts as another user.
        ROOT_SQUASH = 0x80_0000,
        /// `OBD_FL_ROOT_PRJQUOTA`: project quota holds for root.
        ROOT_PRJQUOTA = 0x100_0000,
    }
}

wire_struct! {
    /// `struct ost_layout`: an object's place in its file's layout.
    pub struct OstLayout {
        /// Bytes of a stripe.
        stripe_size: u32,
        /// Stripes of the component.
        stripe_count: u32,
        /// First byte of the component.
        comp_start: u64,
        /// First byte behind the component.
        comp_end: u64,
        /// Number of the component.
        comp_id: u32,
    }
}

wire_struct! {
    /// `struct filter_fid`, the value of `trusted.fid`: whose stripe an OST object is.
    pub struct FilterFid {
        /// The file, with the stripe index in place of the version.
        parent: Fid,
        /// The object's place in the layout.
        layout: OstLayout,
        /// Version of the layout that may write.
        layout_version: u32,
        /// Range of versions that may write.
        range: u32,
    }
}

wire_struct! {
    /// `struct obdo`: attributes of an object.
    pub struct Obdo {
        /// Which fields count.
        valid: Valid,
        /// The object.
        oi: OstId,
        /// Sequence of the file it belongs to.
        parent_seq: u64,
        /// Size in bytes; in PUNCH the first byte cut off.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// Access time.
        atime: i64,
        /// Change time.
        ctime: i64,
        /// Blocks of 512 bytes; in PUNCH the first byte kept again; in writes dirty bytes.
        blocks: u64,
        /// Bytes of grant: held by the client, or given.
        grant: u64,
        /// Preferred IO size.
        blksize: u32,
        /// Mode.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Flags.
        flags: ObdoFlags,
        /// Links; in bulk messages the checksum.
        nlink: u32,
        /// Object number of the file it belongs to.
        parent_oid: u32,
        /// In writes: bytes the client would like to keep dirty beyond its grant.
        misc: u32,
        /// Unused since 2.8.
        ioepoch: u64,
        /// Which stripe of its file it is.
        stripe_idx: u32,
        /// Version of the parent, or the stripe index of the old kind.
        parent_ver: u32,
        /// A lock or file handle.
        handle: LockHandle,
        /// Place in the layout.
        layout: OstLayout,
        /// Version of the layout.
        layout_version: u32,
        /// High half of the owner.
        uid_h: u32,
        /// High half of the group.
        gid_h: u32,
        /// Data version; in create replies the transaction.
        data_version: u64,
        /// Project.
        projid: u32,
        /// Unused.
        padding_4: u32,
        /// Unused.
        padding_5: u64,
        /// Unused.
        padding_6: u64,
    }
}

wire_struct! {
    /// `struct ost_body`.
    pub struct OstBody {
        /// The attributes.
        oa: Obdo,
    }
}

wire_struct! {
    /// `struct obd_ioobj`: the object of a bulk read or write.
    pub struct ObdIoobj {
        /// The object.
        oid: OstId,
        /// High 16 bits: bulk descriptors the client can serve, less one.
        max_brw: u32,
        /// How many [`NiobufRemote`] belong to it.
        bufcnt: u32,
    }
}

wire_bits! {
    /// How to do a piece of a bulk transfer (`OBD_BRW_*`).
    pub struct BrwFlags: u32 {
        /// `OBD_BRW_READ`: read.
        READ = 0x1,
        /// `OBD_BRW_WRITE`: write.
        WRITE = 0x2,
        /// `OBD_BRW_NDELAY`: a caller waits for it.
        NDELAY = 0x4,
        /// `OBD_BRW_SYNC`: must be durable before the reply; not in the grant.
        SYNC = 0x8,
        /// `OBD_BRW_CHECK`: only checked.
        CHECK = 0x10,
        /// `OBD_BRW_FROM_GRANT`: space comes from the grant.
        FROM_GRANT = 0x20,
        /// `OBD_BRW_GRANTED`: the OST has given the space.
        GRANTED = 0x40,
        /// `OBD_BRW_NOCACHE`: not to be cached.
        NOCACHE = 0x80,
        /// `OBD_BRW_NOQUOTA`: not limited by quota.
        NOQUOTA = 0x100,
        /// `OBD_BRW_SRVLOCK`: the client holds no lock.
        SRVLOCK = 0x200,
        /// `OBD_BRW_ASYNC`: may become durable late.
        ASYNC = 0x400,
        /// `OBD_BRW_MEMALLOC`: the client is short of memory.
        MEMALLOC = 0x800,
        /// `OBD_BRW_OVER_USRQUOTA`: the owner is near quota.
        OVER_USRQUOTA = 0x1000,
        /// `OBD_BRW_OVER_GRPQUOTA`: the group is near quota.
        OVER_GRPQUOTA = 0x2000,
        /// `OBD_BRW_SOFT_SYNC`: the client has too many uncommitted pages.
        SOFT_SYNC = 0x4000,
        /// `OBD_BRW_OVER_PRJQUOTA`: the project is near quota.
        OVER_PRJQUOTA = 0x8000,
        /// `OBD_BRW_ROOT_PRJQUOTA`: project quota holds for root.
        ROOT_PRJQUOTA = 0x1_0000,
        /// `OBD_BRW_RDMA_ONLY`: pages that only RDMA can reach.
        RDMA_ONLY = 0x2_0000,
        /// `OBD_BRW_SYS_RESOURCE`: the caller has CAP_SYS_RESOURCE.
        SYS_RESOURCE = 0x4_0000,
        /// `OBD_BRW_COMPRESSED`: compressed by the client.
        COMPRESSED = 0x8_0000,
    }
}

wire_struct! {
    /// `struct niobuf_remote`: one piece of a bulk transfer.
    pub struct NiobufRemote {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// How.
        flags: BrwFlags,
    }
}

wire_struct! {
    /// `struct ost_lvb_v1`: attributes that come with a lock, without nanoseconds.
    pub struct OstLvbV1 {
        /// Size in bytes.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// Access time.
        atime: i64,
        /// Change time.
        ctime: i64,
        /// Blocks of 512 bytes.
        blocks: u64,
    }
}

wire_struct! {
    /// `struct ost_lvb`: attributes that come with a lock.
    pub struct OstLvb {
        /// Size in bytes.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// Access time.
        atime: i64,
        /// Change time.
        ctime: i64,
        /// Blocks of 512 bytes.
        blocks: u64,
        /// Nanoseconds of the modification time.
        mtime_ns: u32,
        /// Nanoseconds of the access time.
        atime_ns: u32,
        /// Nanoseconds of the change time.
        ctime_ns: u32,
        /// Unused.
        padding: u32,
    }
}

wire_bits! {
    /// How advice is given (`enum ladvise_flag`).
    pub struct LadviseFlags: u64 {
        /// `LF_ASYNC`: the caller does not wait.
        ASYNC = 0x1,
        /// `LF_UNSET`: the advice is withdrawn.
        UNSET = 0x2,
    }
}

wire_struct! {
    /// `struct ladvise_hdr`, followed by `count` times [`LuLadvise`].
    pub struct LadviseHdr {
        /// [`LadviseHdr::MAGIC`].
        magic: u32,
        /// How many advices.
        count: u32,
        /// How they are given.
        flags: LadviseFlags,
        /// Unused.
        value1: u32,
        /// Unused.
        value2: u32,
        /// Unused.
        value3: u64,
    }
}

impl LadviseHdr {
    /// `LADVISE_MAGIC`.
    pub const MAGIC: u32 = 0x1ADF_1CE0;
}

wire_struct! {
    /// `struct lu_ladvise`: a hint about a range.
    pub struct LuLadvise {
        /// Which hint: [`LuLadvise::WILLREAD`] and its like.
        advice: u16,
        /// By hint.
        value1: u16,
        /// By hint.
        value2: u32,
        /// First byte.
        start: u64,
        /// First byte no longer meant.
        end: u64,
        /// By hint.
        value3: u32,
        /// By hint.
        value4: u32,
    }
}

wire_struct! {
    /// `struct fiemap` without its extents.
    pub struct Fiemap {
        /// First byte asked about.
        start: u64,
        /// Bytes asked about.
        length: u64,
        /// Flags.
        flags: u32,
        /// Extents in the answer.
        mapped_extents: u32,
        /// Extents there is room for.
        extent_count: u32,
        /// The OST index at which to go on.
        reserved: u32,
    }
}

wire_struct! {
    /// `struct fiemap_extent`.
    pub struct FiemapExtent {
        /// Place in the file.
        logical: u64,
        /// Place on the device.
        physical: u64,
        /// Bytes.
        length: u64,
        /// Unused.
        reserved64: [u64; 2],
        /// Flags.
        flags: u32,
        /// The OST index.
        device: u32,
        /// Unused.
        reserved: [u32; 2],
    }
}

wire_struct! {
    /// `struct ll_fiemap_info_key`: what a GET_INFO about extents asks.
    pub struct FiemapInfoKey {
        /// `fiemap` and a NUL, padded.
        name: [u8; 8],
        /// The object.
        oa: Obdo,
        /// The question.
        fiemap: Fiemap,
    }
}

impl LuLadvise {
    /// The bytes will be read.
    pub const WILLREAD: u16 = 1;
    /// The bytes will not be needed.
    pub const DONTNEED: u16 = 2;
    /// The open file's locks do not grow.
    pub const LOCKNOEXPAND: u16 = 3;
    /// A lock is asked for ahead.
    pub const LOCKAHEAD: u16 = 4;

    /// The bytes meant; `None` for none.
    #[must_use]
    pub fn extent(&self) -> Option<Extent> {
        Extent::of_length(self.start, self.end.checked_sub(self.start)?)
    }
}

#[cfg(test)]
mod tests;
