//! Layouts of files: which objects hold which bytes (`trusted.lov`, `lustre.lov`).
//!
//! [`LovEa`] is any of them, by magic. The same bytes serve as answer (with objects) and as wish
//! (without). Composite layouts hold plain ones; where each lies is computed, not kept.

mod composite;

pub use composite::{CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent};

use bytes::Bytes;
use sheen_types::limits::STRIPE_COUNT_MAX;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::ost::OstId;
use crate::{wire_bits, wire_enum, wire_struct};

wire_enum! {
    /// What kind of layout (`LOV_MAGIC_*`, the same numbers as `LOV_USER_MAGIC_*`).
    pub enum LovMagic: u32 {
        /// `LOV_MAGIC_V1`: plain.
        V1 = 0x0BD1_0BD0,
        /// `LOV_MAGIC_V3`: plain with a pool name.
        V3 = 0x0BD3_0BD0,
        /// `LOV_USER_MAGIC_SPECIFIC`: a wish that lists OSTs; laid out as V3.
        SPECIFIC = 0x0BD5_0BD0,
        /// `LOV_MAGIC_COMP_V1`: composite.
        COMP_V1 = 0x0BD6_0BD0,
        /// `LOV_MAGIC_FOREIGN`: data elsewhere.
        FOREIGN = 0x0BD7_0BD0,
        /// `LOV_MAGIC_SEL`: composite with self-extending components.
        SEL = 0x0BD8_0BD0,
    }
}

impl LovMagic {
    /// `LOV_MAGIC_DEFINED`: set by clients in a layout with which a replayed create starts.
    pub const DEFINED: u32 = 0x1000_0000;

    fn kind(self) -> LovMagic {
        LovMagic(self.0 & !Self::DEFINED)
    }
}

wire_bits! {
    /// How bytes map to stripes (`LOV_PATTERN_*`).
    pub struct LovPattern: u32 {
        /// `LOV_PATTERN_RAID0`: round robin.
        RAID0 = 0x1,
        /// `LOV_PATTERN_RAID1`: never used.
        RAID1 = 0x2,
        /// `LOV_PATTERN_PARITY`: parity of another component.
        PARITY = 0x4,
        /// `LOV_PATTERN_MDT`: data on the MDT.
        MDT = 0x100,
        /// `LOV_PATTERN_OVERSTRIPING`: several stripes on an OST.
        OVERSTRIPING = 0x200,
        /// `LOV_PATTERN_FOREIGN`: elsewhere.
        FOREIGN = 0x400,
        /// `LOV_PATTERN_COMPRESS`: compressed.
        COMPRESS = 0x800,
        /// `LOV_PATTERN_F_HOLE`: an object is missing.
        HOLE = 0x4000_0000,
        /// `LOV_PATTERN_F_RELEASED`: data is in the archive only.
        RELEASED = 0x8000_0000,
    }
}

/// A pool's name in sixteen bytes, filled up with NULs; empty for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(pub [u8; 16]);

impl PoolName {
    /// Fifteen bytes at most; `None` for longer ones and for a NUL inside.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        if name.len() > 15 || name.contains('\0') {
            return None;
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }

    /// The bytes up to the first NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl Wire for PoolName {
    const SIZE: usize = 16;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array("pool name").map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
    }
}

wire_struct! {
    /// `struct lov_ost_data_v1`: one stripe.
    pub struct LovOstData {
        /// The object.
        oi: OstId,
        /// Generation of the OST's index.
        ost_gen: u32,
        /// The OST.
        ost_idx: u32,
    }
}

wire_struct! {
    /// `struct lov_mds_md_v1` without its stripes; also `struct lov_user_md_v1`.
    pub struct LovMdHeader {
        /// V1, V3 or SPECIFIC; a pool name follows in the latter two.
        magic: LovMagic,
        /// How bytes map to stripes.
        pattern: LovPattern,
        /// The file: see [`OstId::of_file`].
        oi: OstId,
        /// Bytes of a stripe.
        stripe_size: u32,
        /// Stripes; in a wish -1 (65535) for "all OSTs" and 0 for "the default".
        stripe_count: u16,
        /// Generation of the layout; in a wish the first OST, 65535 for any.
        layout_gen: u16,
    }
}

/// A plain layout: `struct lov_mds_md_v1` or `_v3`, `struct lov_user_md_v1` or `_v3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LovMd {
    /// What the stripes have in common.
    pub header: LovMdHeader,
    /// The pool; there is room for it only in V3 and SPECIFIC.
    pub pool: PoolName,
    /// The stripes. A wish, a released file and a component without objects have none whatever
    /// the count says, or one whose bytes mean nothing: Lustre leaves stale memory there.
    pub stripes: Vec<LovOstData>,
}

impl LovMd {
    /// Reads one. Zeros may follow, because Lustre sends wishes in buffers that have room for more.
    ///
    /// # Errors
    /// [`DecodeError`] for another magic, a part of a stripe, more stripes than Lustre has, and
    /// anything but zeros behind the stripes.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let header = LovMdHeader::decode(&mut reader)?;
        let pool = match header.magic.kind() {
            LovMagic::V1 => PoolName::default(),
            LovMagic::V3 | LovMagic::SPECIFIC => PoolName::decode(&mut reader)?,
            LovMagic(value) => {
                return Err(DecodeError::Illegal { what: "lmm_magic", value: value.into() });
            }
        };
        let count = Self::stripes_present(&header, &mut reader.clone())?;
        let mut stripes = Vec::with_capacity(count);
        for _ in 0..count {
            stripes.push(LovOstData::decode(&mut reader)?);
        }
        zeros_behind(&mut reader, "lov_mds_md")?;
        Ok(Self { header, pool, stripes })
    }

    /// How many stripes follow the header: as many as it says, or none if there are only zeros.
    /// With less room than for all there are as many as there is room for.
    fn stripes_present(
        header: &LovMdHeader,
        reader: &mut Reader<'_>,
    ) -> Result<usize, DecodeError> {
        let rest = reader.rest();
        let count = usize::from(header.stripe_count).min(rest.len() / LovOstData::SIZE);
        let list = &rest[..count * LovOstData::SIZE];
        let asked = header.magic.kind() == LovMagic::SPECIFIC || list.len() == rest.len();
        if !asked && list.iter().all(|byte| *byte == 0) {
            return Ok(0);
        }
        if count > STRIPE_COUNT_MAX {
            return Err(DecodeError::Illegal { what: "lmm_stripe_count", value: count as u64 });
        }
        Ok(count)
    }

    /// Bytes of the encoded layout.
    #[must_use]
    pub fn size(&self) -> usize {
        let pool = if self.has_pool() { PoolName::SIZE } else { 0 };
        LovMdHeader::SIZE + pool + self.stripes.len() * LovOstData::SIZE
    }

    /// Appends the layout.
    pub fn encode_into(&self, writer: &mut Writer) {
        self.header.encode(writer);
        if self.has_pool() {
            self.pool.encode(writer);
        }
        for stripe in &self.stripes {
            stripe.encode(writer);
        }
    }

    fn has_pool(&self) -> bool {
        self.header.magic.kind() != LovMagic::V1
    }
}

/// Checks that nothing but zeros is left.
fn zeros_behind(reader: &mut Reader<'_>, what: &'static str) -> Result<(), DecodeError> {
    match reader.rest() {
        rest if rest.iter().all(|byte| *byte == 0) => Ok(()),
        rest => Err(DecodeError::Trailing { what, bytes: rest.len() }),
    }
}

/// `struct lov_foreign_md`: data that something else than Lustre holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LovForeign {
    /// What holds it (`LU_FOREIGN_TYPE_*`).
    pub kind: u32,
    /// By kind.
    pub flags: u32,
    /// Free form.
    pub value: Bytes,
}

/// Any layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LovEa {
    /// One set of stripes.
    Plain(LovMd),
    /// Components.
    Composite(LovComp),
    /// Elsewhere.
    Foreign(LovForeign),
}

impl LovEa {
    /// Reads one. Zeros may follow it.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown magic or a layout that is none.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let magic = LovMagic::decode(&mut Reader::new(bytes, ByteOrder::Little))?;
        match magic.kind() {
            LovMagic::COMP_V1 | LovMagic::SEL => LovComp::decode(bytes).map(Self::Composite),
            LovMagic::FOREIGN => Self::decode_foreign(bytes),
            _ => LovMd::decode(bytes).map(Self::Plain),
        }
    }

    fn decode_foreign(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        LovMagic::decode(&mut reader)?;
        let length = u32::decode(&mut reader)?;
        let kind = u32::decode(&mut reader)?;
        let flags = u32::decode(&mut reader)?;
        let value = reader.bytes(length as usize, "lfm_value")?;
        zeros_behind(&mut reader, "lov_foreign_md")?;
        Ok(Self::Foreign(LovForeign { kind, flags, value }))
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        match self {
            Self::Plain(plain) => plain.encode_into(&mut writer),
            Self::Composite(composite) => composite.encode_into(&mut writer),
            Self::Foreign(foreign) => {
                LovMagic::FOREIGN.encode(&mut writer);
                (foreign.value.len() as u32).encode(&mut writer);
                foreign.kind.encode(&mut writer);
                foreign.flags.encode(&mut writer);
                writer.put(&foreign.value);
            }
        }
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests;
