//! What an operator wishes for a directory (`lmv_user_md`): of `lfs mkdir`, and of a default (`trusted.dmv`).

use std::num::NonZeroU32;

use sheen_types::MdtIndex;
use sheen_types::limits::{DIRECTORY_STRIPES_MAX, DIRECTORY_STRIPES_PER_MDT_MAX};
use sheen_wire::lmv::{LmvEa, LmvHash, LmvMagic, LmvUserMd, LmvUserMdsData};
use sheen_wire::lov::PoolName;

use crate::LayoutError;

/// `LMV_OFFSET_DEFAULT`: any MDT.
const ANY_MDT: u32 = u32::MAX;

/// How many stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WishedStripes {
    /// Nothing was said: none.
    #[default]
    Unsaid,
    /// So many.
    Count(NonZeroU32),
    /// So many on each MDT; 1 without overstriping.
    OnEachMdt(NonZeroU32),
}

impl WishedStripes {
    fn read(count: i32) -> Result<Self, LayoutError> {
        let is_negative = count < 0;
        let Some(count) = NonZeroU32::new(count.unsigned_abs()) else { return Ok(Self::Unsaid) };
        match count.get() {
            1..=DIRECTORY_STRIPES_PER_MDT_MAX if is_negative => Ok(Self::OnEachMdt(count)),
            1..=DIRECTORY_STRIPES_MAX if !is_negative => Ok(Self::Count(count)),
            _ => Err(LayoutError::Illegal("count of stripes wished for a directory")),
        }
    }

    fn written(self) -> i32 {
        // Both were read, or are wished by a caller that keeps the limits.
        match self {
            Self::Unsaid => 0,
            Self::Count(count) => count.get().cast_signed(),
            Self::OnEachMdt(count) => -count.get().cast_signed(),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryWish {
    /// How many stripes.
    pub stripes: WishedStripes,
    /// The MDT of the first stripe, or of the directory itself; `None` for any.
    pub first: Option<MdtIndex>,
    /// How names choose a stripe, with flags; [`LmvHash::UNKNOWN`] if that was not said.
    pub hash: LmvHash,
    /// `LMV_TYPE_RAW`, of a default that is asked for as it is set.
    pub kind: u32,
    /// Levels below that inherit a default.
    pub max_inherit: u8,
    /// Levels below that are spread round robin.
    pub max_inherit_rr: u8,
    /// The MDT of each stripe; empty if none are listed.
    pub mdts: Box<[MdtIndex]>,
    /// Pool.
    pub pool: PoolName,
}

impl DirectoryWish {
    /// Reads the `lmv_user_md` of a request or of `trusted.dmv`.
    ///
    /// # Errors
    /// [`LayoutError::Unsupported`] for what is no wish; [`LayoutError::Illegal`] for a count or index that cannot be, a
    /// hash that is unknown, or MDTs that are not as many as the stripes.
    pub fn from_ea(ea: &LmvEa) -> Result<Self, LayoutError> {
        let LmvEa::User { header, objects } = ea else {
            return Err(LayoutError::Unsupported("no wish for a directory"));
        };
        let hash = header.hash_type;
        if hash.without_flags() != LmvHash::UNKNOWN && !hash.is_known() {
            return Err(LayoutError::Illegal("hash type wished for a directory"));
        }
        let listed = if header.magic == LmvMagic::STRIPE { header.stripe_count } else { 0 };
        if u32::try_from(listed).map_or(true, |listed| listed as usize != objects.len()) {
            return Err(LayoutError::Illegal("an MDT for each stripe wished for a directory"));
        }
        let first = (header.stripe_offset != ANY_MDT).then_some(header.stripe_offset);
        Ok(Self {
            stripes: WishedStripes::read(header.stripe_count)?,
            first: first.map(mdt_index).transpose()?,
            hash,
            kind: header.kind,
            max_inherit: header.max_inherit,
            max_inherit_rr: header.max_inherit_rr,
            mdts: objects.iter().map(|object| mdt_index(object.mds)).collect::<Result<_, _>>()?,
            pool: header.pool,
        })
    }

    /// The `lmv_user_md`.
    #[must_use]
    pub fn to_ea(&self) -> LmvEa {
        let header = LmvUserMd {
            magic: if self.mdts.is_empty() { LmvMagic::USER } else { LmvMagic::STRIPE },
            stripe_count: self.stripes.written(),
            stripe_offset: self.first.map_or(ANY_MDT, |first| first.0.into()),
            hash_type: self.hash,
            kind: self.kind,
            max_inherit: self.max_inherit,
            max_inherit_rr: self.max_inherit_rr,
            pool: self.pool,
            ..LmvUserMd::default()
        };
        let object = |mdt: &MdtIndex| LmvUserMdsData { mds: mdt.0.into(), ..Default::default() };
        LmvEa::User { header, objects: self.mdts.iter().map(object).collect() }
    }
}

fn mdt_index(index: u32) -> Result<MdtIndex, LayoutError> {
    u16::try_from(index)
        .map(MdtIndex)
        .map_err(|_| LayoutError::Illegal("MDT wished for a directory"))
}
