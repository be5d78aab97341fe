//! Layouts as the MDT gives them.

use std::fmt;

use bytes::Bytes;
use sheen_wire::DecodeError;
use sheen_wire::lov::{LovEa, LovMd, LovPattern};

use crate::{Layout, Raid0, Stripe};

/// Why a layout cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The bytes are no layout.
    Undecodable(DecodeError),
    /// A layout of a kind that this client does not read.
    Unsupported(&'static str),
    /// A layout that contradicts itself.
    Illegal(&'static str),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(error) => write!(out, "layout: {error}"),
            Self::Unsupported(what) => write!(out, "layout not supported: {what}"),
            Self::Illegal(what) => write!(out, "illegal layout: {what}"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// Reads a layout; `None` for one that has no objects yet.
///
/// # Errors
/// See [`LayoutError`].
pub fn parse(ea: &Bytes) -> Result<Option<Layout>, LayoutError> {
    match LovEa::decode(ea).map_err(LayoutError::Undecodable)? {
        LovEa::Plain(plain) => parse_plain(&plain),
        LovEa::Composite(_) => Err(LayoutError::Unsupported("composite")),
        LovEa::Foreign(_) => Err(LayoutError::Unsupported("foreign")),
    }
}

fn parse_plain(plain: &LovMd) -> Result<Option<Layout>, LayoutError> {
    let pattern = plain.header.pattern;
    if pattern.contains(LovPattern::RELEASED) {
        return Err(LayoutError::Unsupported("released to an archive"));
    }
    let known = LovPattern::RAID0.union(LovPattern::OVERSTRIPING);
    if pattern.without(known) != LovPattern::NONE || !pattern.contains(LovPattern::RAID0) {
        return Err(LayoutError::Unsupported("pattern is not raid0"));
    }
    if plain.stripes.is_empty() {
        return Ok(None);
    }
    if usize::from(plain.header.stripe_count) != plain.stripes.len() {
        return Err(LayoutError::Illegal("stripe count"));
    }
    let raid0 = Raid0::new(plain.header.stripe_size, plain.stripes.len() as u32)
        .ok_or(LayoutError::Illegal("stripe size"))?;
    let stripe = |data: &sheen_wire::lov::LovOstData| {
        let index = u16::try_from(data.ost_idx).ok()?;
        Some(Stripe { ost: data.ost_idx, object: data.oi.fid(index)? })
    };
    let stripes = plain.stripes.iter().map(stripe).collect::<Option<Box<[Stripe]>>>();
    let stripes = stripes.ok_or(LayoutError::Illegal("object"))?;
    Ok(Some(Layout { generation: plain.header.layout_gen.into(), raid0, stripes }))
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;
    use sheen_wire::lov::{LovMagic, LovMdHeader, LovOstData};
    use sheen_wire::ost::OstId;

    use super::*;

    fn plain(pattern: LovPattern, stripes: u32) -> LovMd {
        let header = LovMdHeader {
            magic: LovMagic::V1,
            pattern,
            stripe_size: 1 << 20,
            stripe_count: stripes as u16,
            layout_gen: 3,
            ..LovMdHeader::default()
        };
        let stripe = |index| LovOstData {
            oi: OstId::of_fid(Fid::new(0x2_8000_0401, 10 + index)),
            ost_gen: 0,
            ost_idx: index,
        };
        LovMd { header, stripes: (0..stripes).map(stripe).collect(), ..LovMd::default() }
    }

    fn parsed(layout: LovMd) -> Result<Option<Layout>, LayoutError> {
        parse(&LovEa::Plain(layout).encode())
    }

    #[test]
    fn a_plain_layout_has_its_objects_in_order() {
        let layout = parsed(plain(LovPattern::RAID0, 4)).unwrap().unwrap();
        assert_eq!((layout.generation, layout.raid0.stripe_count()), (3, 4));
        assert_eq!(layout.stripes[2], Stripe { ost: 2, object: Fid::new(0x2_8000_0401, 12) });
        assert_eq!(parsed(plain(LovPattern::RAID0, 0)), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for pattern in [LovPattern::MDT, LovPattern::RAID0 | LovPattern::RELEASED] {
            assert!(matches!(parsed(plain(pattern, 1)), Err(LayoutError::Unsupported(_))));
        }
        let mut lying = plain(LovPattern::RAID0, 2);
        lying.header.stripe_count = 3;
        assert_eq!(parsed(lying), Err(LayoutError::Illegal("stripe count")));
        let mut sizeless = plain(LovPattern::RAID0, 2);
        sizeless.header.stripe_size = 0;
        assert_eq!(parsed(sizeless), Err(LayoutError::Illegal("stripe size")));
        assert!(parse(&Bytes::from_static(b"no layout")).is_err());
    }
}
