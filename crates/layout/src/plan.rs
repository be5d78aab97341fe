//! What a file or a directory shall look like: the request of a user, the default of a directory, and
//! what becomes of both for a new file (Lustre's `lod_verify_striping`, `lod_ah_init`,
//! `lod_qos_parse_config`).
//!
//! A [`Plan`] that was parsed is legal by itself; whether the OSTs and pools it names exist is asked
//! with [`Plan::check`]. Mirrors, self-extending components, compression, foreign layouts and
//! layouts of archived files are refused with [`Errno::EOPNOTSUPP`]. Costs a few allocations for
//! each component.

mod fill;
mod parse;

pub use fill::{Appending, Defaults};

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_types::Errno;
use sheen_wire::lov::{
    LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovMagic, LovMd, LovMdHeader,
    LovOstData, LovPattern, PoolName,
};

/// Stripe count of a request for one stripe on each OST (`LOV_ALL_STRIPES`). With overstriping each
/// number below asks for one more on each, down to [`STRIPES_PER_OST_MOST`].
pub const STRIPES_ALL: u16 = u16::MAX;
/// Stripe count of a request for 32 stripes on each OST (`LOV_ALL_STRIPES_WIDE`).
pub const STRIPES_PER_OST_MOST: u16 = 0xffe0;
/// Any OST may be the first (`LOV_OFFSET_DEFAULT`).
pub(crate) const ANY_OST: u16 = u16::MAX;
/// The end of a component that goes on for ever (`LUSTRE_EOF`).
pub const END_OF_FILE: u64 = u64::MAX;

/// How the bytes of a file or component shall be spread. Zeros leave the decision to defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Striping {
    /// The data lies on the MDT.
    pub on_mdt: bool,
    /// An OST may hold several stripes.
    pub overstriped: bool,
    /// Bytes of a stripe; of a component on the MDT, all its bytes.
    pub stripe_size: u32,
    /// Stripes; see [`STRIPES_ALL`].
    pub stripe_count: u16,
    /// The first OST; `None` for any.
    pub first: Option<u16>,
    /// Exactly these OSTs, in this order; empty for no such request.
    pub osts: Vec<u16>,
    /// OSTs are taken from this pool.
    pub pool: PoolName,
}

/// A component of a layout that is asked for: bytes from `start` to before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte, a multiple of 64 KiB.
    pub start: u64,
    /// First byte behind; [`END_OF_FILE`] or a multiple of 64 KiB.
    pub end: u64,
    /// How its bytes are spread.
    pub striping: Striping,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One striping for all bytes.
    Plain(Striping),
    /// Components, adjoining, by rising offset; at least one.
    Composite(Vec<Part>),
}

/// The OSTs and pools there are.
#[derive(Clone, Copy, Debug)]
pub struct KnownOsts<'a> {
    /// OSTs in the order of their numbers; none while they are not known yet.
    pub osts: &'a [u16],
    /// OSTs of each pool.
    pub pools: &'a BTreeMap<PoolName, Vec<u16>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self::Plain(Striping::default())
    }
}

impl<'a> KnownOsts<'a> {
    /// The OSTs of a pool. One that is empty counts as absent, as in Lustre: a file of that pool
    /// gets any OST.
    #[must_use]
    pub fn pool(&self, name: &PoolName) -> Option<&'a [u16]> {
        self.pools.get(name).map(Vec::as_slice).filter(|osts| !osts.is_empty())
    }
}

impl Striping {
    /// Stripes on each OST that the count asks for; `None` for a plain number.
    #[must_use]
    pub fn stripes_per_ost(&self) -> Option<u16> {
        (self.stripe_count >= STRIPES_PER_OST_MOST).then(|| STRIPES_ALL - self.stripe_count + 1)
    }

    /// The bits that say how bytes are spread.
    #[must_use]
    pub fn pattern(&self) -> LovPattern {
        let kind = if self.on_mdt { LovPattern::MDT } else { LovPattern::RAID0 };
        match self.overstriped {
            true => kind | LovPattern::OVERSTRIPING,
            false => kind,
        }
    }

    /// Whether nothing is said at all: as a default of a directory it means that there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { overstriped: self.overstriped, ..Self::default() }
    }

    fn encode(&self) -> LovMd {
        let magic = match (self.osts.is_empty(), self.pool.is_empty()) {
            (false, _) => LovMagic::SPECIFIC,
            (true, false) => LovMagic::V3,
            (true, true) => LovMagic::V1,
        };
        let data = |ost: &u16| LovOstData { ost_idx: u32::from(*ost), ..LovOstData::default() };
        LovMd {
            header: LovMdHeader {
                magic,
                pattern: self.pattern(),
                stripe_size: self.stripe_size,
                stripe_count: self.stripe_count,
                layout_gen: self.first.unwrap_or(ANY_OST),
                ..LovMdHeader::default()
            },
            pool: self.pool,
            stripes: self.osts.iter().map(data).collect(),
        }
    }
}

impl Plan {
    /// How each component is striped; a plain layout is one component that goes on for ever.
    #[must_use]
    pub fn stripings(&self) -> Vec<&Striping> {
        match self {
            Self::Plain(striping) => vec![striping],
            Self::Composite(parts) => parts.iter().map(|part| &part.striping).collect(),
        }
    }

    fn stripings_mut(&mut self) -> Vec<&mut Striping> {
        match self {
            Self::Plain(striping) => vec![striping],
            Self::Composite(parts) => parts.iter_mut().map(|part| &mut part.striping).collect(),
        }
    }

    /// Whether nothing is said at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(striping) if striping.is_empty())
    }

    /// The first pool it names.
    #[must_use]
    pub fn pool(&self) -> PoolName {
        let mut pools = self.stripings().into_iter().map(|striping| striping.pool);
        pools.find(|pool| !pool.is_empty()).unwrap_or_default()
    }

    /// As a default is stored and shown.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let parts = match self {
            Self::Plain(striping) => return LovEa::Plain(striping.encode()).encode(),
            Self::Composite(parts) => parts,
        };
        let component = |part: &Part| LovComponent {
            entry: LovCompEntry { start: part.start, end: part.end, ..LovCompEntry::default() },
            layout: part.striping.encode(),
        };
        let header = LovCompHeader { magic: LovMagic::COMP_V1, ..LovCompHeader::default() };
        let components = parts.iter().map(component).collect();
        LovEa::Composite(LovComp { header, components }).encode()
    }

    /// Whether the OSTs that it names exist, and those that must be in a pool are in it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if not, as in Lustre.
    pub fn check(&self, known: &KnownOsts<'_>) -> Result<(), Errno> {
        // An MDT that has just started knows no OST yet; the allocation waits for them then.
        if known.osts.is_empty() {
            return Ok(());
        }
        for striping in self.stripings().into_iter().filter(|striping| !striping.on_mdt) {
            let named = striping.first.iter().chain(&striping.osts);
            if named.into_iter().any(|ost| known.osts.binary_search(ost).is_err()) {
                return Err(Errno::EINVAL);
            }
            let start = striping.first.or(striping.osts.first().copied());
            let is_outside = |pool: &[u16]| start.is_some_and(|start| !pool.contains(&start));
            if known.pool(&striping.pool).is_some_and(is_outside) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(())
    }

    /// Cuts a component on the MDT to `limit` bytes; the next one then starts there. A limit of 0
    /// drops it.
    ///
    /// # Errors
    /// [`Errno::EFBIG`] if it is to be dropped and is all there is.
    pub fn limit_on_mdt(&mut self, limit: u32) -> Result<(), Errno> {
        let Self::Composite(parts) = self else { return Ok(()) };
        let Some(first) = parts.first_mut().filter(|part| part.striping.on_mdt) else {
            return Ok(());
        };
        if first.striping.stripe_size <= limit {
            return Ok(());
        }
        (first.end, first.striping.stripe_size) = (limit.into(), limit);
        match parts.get_mut(1) {
            Some(next) => next.start = limit.into(),
            None if limit == 0 => return Err(Errno::EFBIG),
            None => {}
        }
        if limit == 0 {
            parts.remove(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
