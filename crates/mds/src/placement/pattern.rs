//! What a layout shall be, before it has objects: the wish of a user, the default of a directory.

use bytes::Bytes;
use sheen_types::limits::{STRIPE_COUNT_MAX, STRIPE_SIZE_MIN};
use sheen_types::{Errno, Fid};
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovOstData, LovPattern, PoolName};
use sheen_wire::ost::OstId;

/// Any OST may be the first (`LOV_OFFSET_DEFAULT`).
const ANY: u16 = u16::MAX;
/// As many stripes as there are OSTs (`LOV_ALL_STRIPES`).
pub(crate) const ALL: u16 = u16::MAX;

/// A plain layout without objects. 0 means that somebody else decides.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pattern {
    pub(crate) stripe_size: u32,
    pub(crate) stripe_count: u16,
    /// The first OST.
    pub(crate) first: Option<u16>,
    /// Exactly these OSTs, in this order; none for no such wish.
    pub(crate) osts: Vec<u16>,
    pub(crate) pool: PoolName,
}

impl Pattern {
    /// Reads a default layout that we stored ourselves; `None` if it is none.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        Self::parse(bytes).ok()
    }

    /// Reads a user's wish.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what is no layout, [`Errno::EOPNOTSUPP`] for kinds of layouts that we
    /// do not make.
    pub(crate) fn parse(bytes: &Bytes) -> Result<Self, Errno> {
        let plain = match LovEa::decode(bytes).map_err(|_| Errno::EINVAL)? {
            LovEa::Plain(plain) => plain,
            LovEa::Composite(_) | LovEa::Foreign(_) => return Err(Errno::EOPNOTSUPP),
        };
        let header = &plain.header;
        if !matches!(header.pattern, LovPattern::NONE | LovPattern::RAID0) {
            return Err(Errno::EOPNOTSUPP);
        }
        if u64::from(header.stripe_size) % STRIPE_SIZE_MIN != 0 {
            return Err(Errno::EINVAL);
        }
        let count = header.stripe_count;
        if count != ALL && usize::from(count) > STRIPE_COUNT_MAX {
            return Err(Errno::EINVAL);
        }
        let osts = match header.magic {
            LovMagic::SPECIFIC => listed(&plain)?,
            _ => Vec::new(),
        };
        Ok(Self {
            stripe_size: header.stripe_size,
            stripe_count: if osts.is_empty() { count } else { osts.len() as u16 },
            first: (header.layout_gen != ANY).then_some(header.layout_gen),
            osts,
            pool: plain.pool,
        })
    }

    /// As a default layout is stored and shown.
    pub(crate) fn encode(&self) -> Bytes {
        let magic = match (self.osts.is_empty(), self.pool.is_empty()) {
            (false, _) => LovMagic::SPECIFIC,
            (true, false) => LovMagic::V3,
            (true, true) => LovMagic::V1,
        };
        let data = |ost: &u16| LovOstData { ost_idx: u32::from(*ost), ..LovOstData::default() };
        LovEa::Plain(LovMd {
            header: LovMdHeader {
                magic,
                pattern: LovPattern::RAID0,
                oi: OstId::default(),
                stripe_size: self.stripe_size,
                stripe_count: self.stripe_count,
                layout_gen: self.first.unwrap_or(ANY),
            },
            pool: self.pool,
            stripes: self.osts.iter().map(data).collect(),
        })
        .encode()
    }

    /// Fills in what is left open from `other`.
    pub(crate) fn or(self, other: &Pattern) -> Self {
        let open = self.stripe_count == 0 && self.osts.is_empty();
        Self {
            stripe_size: if self.stripe_size == 0 { other.stripe_size } else { self.stripe_size },
            stripe_count: if open { other.stripe_count } else { self.stripe_count },
            first: self.first.or(other.first.filter(|_| open)),
            osts: if open { other.osts.clone() } else { self.osts },
            pool: if self.pool.is_empty() { other.pool } else { self.pool },
        }
    }

    /// Whether it says nothing: a default layout is then removed.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The layout of a file with these objects: OST and object, in the order of stripes.
    pub(crate) fn with_objects(&self, file: Fid, objects: &[(u16, Fid)]) -> Bytes {
        let magic = if self.pool.is_empty() { LovMagic::V1 } else { LovMagic::V3 };
        let data = |(ost, object): &(u16, Fid)| LovOstData {
            oi: OstId::of_fid(*object),
            ost_gen: 0,
            ost_idx: u32::from(*ost),
        };
        LovEa::Plain(LovMd {
            header: LovMdHeader {
                magic,
                pattern: LovPattern::RAID0,
                oi: OstId::of_file(file),
                stripe_size: self.stripe_size,
                stripe_count: objects.len() as u16,
                layout_gen: 0,
            },
            pool: self.pool,
            stripes: objects.iter().map(data).collect(),
        })
        .encode()
    }
}

/// The OSTs that a wish lists.
fn listed(plain: &LovMd) -> Result<Vec<u16>, Errno> {
    if plain.stripes.len() != usize::from(plain.header.stripe_count) || plain.stripes.is_empty() {
        return Err(Errno::EINVAL);
    }
    let index = |stripe: &LovOstData| u16::try_from(stripe.ost_idx).map_err(|_| Errno::EINVAL);
    let osts = plain.stripes.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = osts.clone();
    sorted.sort_unstable();
    sorted.dedup();
    match sorted.len() == osts.len() {
        true => Ok(osts),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// The objects of a layout: OST and object. Nothing for a layout that has none.
pub(crate) fn objects_of(layout: &Bytes) -> Vec<(u16, OstId)> {
    let of = |plain: &LovMd| {
        let stripes = plain.stripes.iter();
        stripes
            .filter_map(|stripe| Some((u16::try_from(stripe.ost_idx).ok()?, stripe.oi)))
            .collect::<Vec<_>>()
    };
    match LovEa::decode(layout) {
        Ok(LovEa::Plain(plain)) => of(&plain),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_stored_as_it_was_said_and_filled_from_the_default() {
        let wish = Pattern { stripe_count: 3, first: Some(2), ..Pattern::default() };
        assert_eq!(Pattern::parse(&wish.encode()), Ok(wish.clone()));
        let default = Pattern { stripe_size: 1 << 20, stripe_count: 1, ..Pattern::default() };
        let filled = wish.or(&default);
        assert_eq!((filled.stripe_count, filled.stripe_size), (3, 1 << 20));
        let list = Pattern { osts: vec![3, 1], stripe_count: 2, ..Pattern::default() };
        assert_eq!(Pattern::parse(&list.encode()), Ok(list));
    }

    #[test]
    fn bad_wishes_are_refused() {
        let odd = Pattern { stripe_size: 12345, ..Pattern::default() };
        assert_eq!(Pattern::parse(&odd.encode()), Err(Errno::EINVAL));
        assert_eq!(Pattern::parse(&Bytes::from_static(b"junk")), Err(Errno::EINVAL));
        let twice = Pattern { osts: vec![1, 1], stripe_count: 2, ..Pattern::default() };
        assert_eq!(Pattern::parse(&twice.encode()), Err(Errno::EOPNOTSUPP));
    }
}
