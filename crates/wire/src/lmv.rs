//! Striping of directories over MDTs (`trusted.lmv`, `trusted.dmv`).
//!
//! [`LmvEa`] is any of them, by magic.

use bytes::Bytes;
use sheen_types::Fid;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::lov::PoolName;
use crate::{wire_enum, wire_struct};

wire_enum! {
    /// What kind of striping (`LMV_MAGIC_*`).
    pub enum LmvMagic: u32 {
        /// `LMV_MAGIC_V1`: the stripes of a directory.
        V1 = 0x0CD2_0CD0,
        /// `LMV_USER_MAGIC`: a wish, or a directory's default.
        USER = 0x0CD3_0CD0,
        /// `LMV_MAGIC_STRIPE`: kept by a stripe itself; as `LMV_USER_MAGIC_SPECIFIC` a wish that
        /// lists MDTs.
        STRIPE = 0x0CD4_0CD0,
        /// `LMV_MAGIC_FOREIGN`: a directory elsewhere.
        FOREIGN = 0x0CD5_0CD0,
    }
}

wire_enum! {
    /// How a name chooses a stripe (`LMV_HASH_TYPE_*`), with flags in the high bits.
    pub enum LmvHash: u32 {
        /// `LMV_HASH_TYPE_UNKNOWN`.
        UNKNOWN = 0,
        /// `LMV_HASH_TYPE_ALL_CHARS`: sum of characters.
        ALL_CHARS = 1,
        /// `LMV_HASH_TYPE_FNV_1A_64`.
        FNV_1A_64 = 2,
        /// `LMV_HASH_TYPE_CRUSH`.
        CRUSH = 3,
        /// `LMV_HASH_TYPE_CRUSH2`.
        CRUSH2 = 4,
    }
}

impl LmvHash {
    /// `LMV_HASH_TYPE_MASK`: the type without flags.
    pub const TYPE_MASK: u32 = 0xffff;
    /// `LMV_HASH_FLAG_OVERSTRIPED`: several stripes on an MDT.
    pub const OVERSTRIPED: u32 = 0x0100_0000;
    /// `LMV_HASH_FLAG_FIXED`: the user chose the type.
    pub const FIXED: u32 = 0x0200_0000;
    /// `LMV_HASH_FLAG_MERGE`: stripes are being merged.
    pub const MERGE: u32 = 0x0400_0000;
    /// `LMV_HASH_FLAG_SPLIT`: stripes are being added.
    pub const SPLIT: u32 = 0x0800_0000;
    /// `LMV_HASH_FLAG_LOST_LMV`: found by LFSCK.
    pub const LOST_LMV: u32 = 0x1000_0000;
    /// `LMV_HASH_FLAG_BAD_TYPE`: the type is unknown here.
    pub const BAD_TYPE: u32 = 0x2000_0000;
    /// `LMV_HASH_FLAG_MIGRATION`: the directory is moving.
    pub const MIGRATION: u32 = 0x8000_0000;
    /// `LMV_HASH_FLAG_LAYOUT_CHANGE`: all that say that names are being moved.
    pub const CHANGE: u32 = Self::MIGRATION | Self::SPLIT | Self::MERGE;

    /// The type without flags.
    #[must_use]
    pub const fn without_flags(self) -> Self {
        Self(self.0 & Self::TYPE_MASK)
    }

    /// Whether names can be hashed by it (`lmv_is_known_hash_type`).
    #[must_use]
    pub const fn is_known(self) -> bool {
        let kind = self.without_flags().0;
        kind >= Self::ALL_CHARS.0 && kind <= Self::CRUSH2.0
    }
}

wire_struct! {
    /// `struct lmv_mds_md_v1` without its stripes.
    pub struct LmvMdsMd {
        /// [`LmvMagic::V1`] or [`LmvMagic::STRIPE`].
        magic: LmvMagic,
        /// Stripes.
        stripe_count: u32,
        /// The first stripe's MDT; on a stripe, which one it is.
        master_mdt_index: u32,
        /// How names choose a stripe.
        hash_type: LmvHash,
        /// Version of the layout.
        layout_version: u32,
        /// While moving: the first stripe of the source.
        migrate_offset: u32,
        /// While moving: how names chose a stripe of the source.
        migrate_hash: LmvHash,
        /// Unused.
        padding2: u32,
        /// Unused.
        padding3: u64,
        /// Pool.
        pool: PoolName,
    }
}

wire_struct! {
    /// `struct lmv_user_md` without its MDTs: a wish, or a default.
    pub struct LmvUserMd {
        /// [`LmvMagic::USER`].
        magic: LmvMagic,
        /// Stripes; -1 for all MDTs.
        stripe_count: i32,
        /// First MDT; -1 for any.
        stripe_offset: u32,
        /// How names choose a stripe.
        hash_type: LmvHash,
        /// Unused.
        kind: u32,
        /// Levels below that inherit a default.
        max_inherit: u8,
        /// Levels below that are spread round robin.
        max_inherit_rr: u8,
        /// Unused.
        padding1: u16,
        /// Unused.
        padding2: u32,
        /// Unused.
        padding3: u32,
        /// Pool.
        pool: PoolName,
    }
}

wire_struct! {
    /// `struct lmv_user_mds_data`: one MDT of a wish.
    pub struct LmvUserMdsData {
        /// The stripe, in answers to users.
        fid: Fid,
        /// Unused.
        padding: u32,
        /// The MDT.
        mds: u32,
    }
}

/// Any striping of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmvEa {
    /// Stripes that are there.
    Stripes {
        /// What they have in common.
        header: LmvMdsMd,
        /// The stripes; none on a stripe itself.
        fids: Vec<Fid>,
    },
    /// A wish or default.
    User {
        /// What is wished.
        header: LmvUserMd,
        /// On which MDTs, if that is said.
        objects: Vec<LmvUserMdsData>,
    },
    /// `struct lmv_foreign_md`.
    Foreign {
        /// What holds it.
        kind: u32,
        /// By kind.
        flags: u32,
        /// Free form.
        value: Bytes,
    },
}

impl LmvEa {
    /// Reads one. Zeros may follow, because Lustre sends a default in a buffer that has room for
    /// stripes. The bytes of `LMV_USER_MAGIC_SPECIFIC` are a wish if they cannot be a stripe's.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown magic, stripes that are not there, and anything but zeros
    /// behind the value.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let magic = LmvMagic::decode(&mut reader.clone())?;
        let value = match magic {
            LmvMagic::STRIPE if bytes.len() != LmvMdsMd::SIZE => Self::user(&mut reader)?,
            LmvMagic::USER => Self::user(&mut reader)?,
            LmvMagic::V1 | LmvMagic::STRIPE => {
                let header = LmvMdsMd::decode(&mut reader)?;
                let count = if magic == LmvMagic::V1 { header.stripe_count } else { 0 };
                Self::Stripes { fids: list(&mut reader, count)?, header }
            }
            LmvMagic::FOREIGN => {
                LmvMagic::decode(&mut reader)?;
                let length = u32::decode(&mut reader)?;
                let kind = u32::decode(&mut reader)?;
                let flags = u32::decode(&mut reader)?;
                let value = reader.bytes(length as usize, "lfm_value")?;
                Self::Foreign { kind, flags, value }
            }
            LmvMagic(value) => {
                return Err(DecodeError::Illegal { what: "lmv_magic", value: value.into() });
            }
        };
        reader.finish_zeros("lmv_mds_md")?;
        Ok(value)
    }

    fn user(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let header = LmvUserMd::decode(reader)?;
        let listed = if header.magic == LmvMagic::STRIPE { header.stripe_count } else { 0 };
        let count = u32::try_from(listed).unwrap_or(0);
        Ok(Self::User { objects: list(reader, count)?, header })
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        match self {
            Self::Stripes { header, fids } => {
                header.encode(&mut writer);
                fids.iter().for_each(|fid| fid.encode(&mut writer));
            }
            Self::User { header, objects } => {
                header.encode(&mut writer);
                objects.iter().for_each(|object| object.encode(&mut writer));
            }
            Self::Foreign { kind, flags, value } => {
                LmvMagic::FOREIGN.encode(&mut writer);
                (value.len() as u32).encode(&mut writer);
                kind.encode(&mut writer);
                flags.encode(&mut writer);
                writer.put(value);
            }
        }
        writer.into_bytes()
    }
}

/// The magic that such an attribute begins with.
#[must_use]
pub fn magic_of(bytes: &Bytes) -> Option<LmvMagic> {
    bytes.first_chunk().map(|magic| LmvMagic(u32::from_le_bytes(*magic)))
}

/// So many values.
fn list<T: Wire>(reader: &mut Reader<'_>, count: u32) -> Result<Vec<T>, DecodeError> {
    if count as usize > reader.remaining() / T::SIZE {
        return Err(DecodeError::Truncated { what: "lmv_stripe_fids" });
    }
    (0..count).map(|_| T::decode(reader)).collect()
}

#[cfg(test)]
mod tests;
