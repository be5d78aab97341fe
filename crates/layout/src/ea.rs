//! Layouts as the MDT gives them.

use std::fmt;

use bytes::Bytes;
use sheen_types::Extent;
use sheen_wire::DecodeError;
use sheen_wire::lov::{CompFlags, LovComp, LovComponent, LovEa, LovMd, LovOstData, LovPattern};

use crate::{Body, Layout, Raid0, Stripe};

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

/// Reads a layout; `None` for a plain one that has no objects yet.
///
/// # Errors
/// See [`LayoutError`].
pub fn parse(ea: &Bytes) -> Result<Option<Layout>, LayoutError> {
    match LovEa::decode(ea).map_err(LayoutError::Undecodable)? {
        LovEa::Plain(plain) => {
            let generation = plain.header.layout_gen.into();
            let layout = |(raid0, stripes)| Layout::plain(generation, raid0, stripes);
            Ok(striped(&plain)?.map(layout))
        }
        LovEa::Composite(composite) => parse_composite(&composite).map(Some),
        LovEa::Foreign(_) => Err(LayoutError::Unsupported("foreign")),
    }
}

fn parse_composite(composite: &LovComp) -> Result<Layout, LayoutError> {
    if composite.header.mirror_count > 0 || composite.header.flags != 0 {
        return Err(LayoutError::Unsupported("mirrored"));
    }
    let components = composite.components.iter().map(|component| {
        let entry = &component.entry;
        let end =
            entry.end.checked_sub(1).ok_or(LayoutError::Illegal("component without bytes"))?;
        let end = if entry.end == u64::MAX { Extent::EOF } else { end };
        Ok((entry.id, Extent { start: entry.start, end }, body(component)?))
    });
    let components = components.collect::<Result<Vec<_>, _>>()?;
    Layout::new(composite.header.layout_gen, components)
        .ok_or(LayoutError::Illegal("components do not follow one another"))
}

fn body(component: &LovComponent) -> Result<Body, LayoutError> {
    let flags = component.entry.flags;
    if flags.contains(CompFlags::EXTENSION) {
        return Err(LayoutError::Unsupported("self-extending"));
    }
    if flags.intersects(CompFlags::PARITY | CompFlags::COMPRESS | CompFlags::PARTIAL) {
        return Err(LayoutError::Unsupported("erasure coded or compressed"));
    }
    if !flags.contains(CompFlags::INIT) {
        return Ok(Body::Absent);
    }
    if component.layout.header.pattern.contains(LovPattern::MDT) {
        return Ok(Body::Mdt);
    }
    let (raid0, stripes) =
        striped(&component.layout)?.ok_or(LayoutError::Illegal("component without objects"))?;
    Ok(Body::Striped { raid0, stripes })
}

/// How bytes go round over objects, and these.
type Striped = (Raid0, Box<[Stripe]>);

/// The objects of a component; `None` if it has none yet.
fn striped(plain: &LovMd) -> Result<Option<Striped>, LayoutError> {
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
    let stripe = |data: &LovOstData| {
        let index = u16::try_from(data.ost_idx).ok()?;
        Some(Stripe { ost: data.ost_idx, object: data.oi.fid(index)? })
    };
    let stripes = plain.stripes.iter().map(stripe).collect::<Option<Box<[Stripe]>>>();
    Ok(Some((raid0, stripes.ok_or(LayoutError::Illegal("object"))?)))
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;
    use sheen_wire::lov::{LovCompEntry, LovCompHeader, LovMagic, LovMdHeader};
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
        assert_eq!((layout.generation, layout.stripes().count()), (3, 4));
        let third = Stripe { ost: 2, object: Fid::new(0x2_8000_0401, 12) };
        assert_eq!(layout.components()[0].stripes()[2], third);
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

    fn component(range: (u64, u64), flags: CompFlags, layout: LovMd) -> LovComponent {
        let entry =
            LovCompEntry { id: 1, flags, start: range.0, end: range.1, ..Default::default() };
        LovComponent { entry, layout }
    }

    fn composite(components: Vec<LovComponent>) -> Result<Option<Layout>, LayoutError> {
        let magic = LovMagic::COMP_V1;
        let header = LovCompHeader { magic, layout_gen: 7, ..LovCompHeader::default() };
        parse(&LovEa::Composite(LovComp { header, components }).encode())
    }

    #[test]
    fn components_lie_on_the_mdt_on_osts_or_nowhere() {
        const MIB: u64 = 1 << 20;
        let on_mdt = component((0, MIB), CompFlags::INIT, plain(LovPattern::MDT, 0));
        let on_osts = component((MIB, 4 * MIB), CompFlags::INIT, plain(LovPattern::RAID0, 2));
        let absent = component((4 * MIB, u64::MAX), CompFlags::NONE, plain(LovPattern::RAID0, 0));
        let layout = composite(vec![on_mdt.clone(), on_osts, absent]).unwrap().unwrap();
        assert_eq!((layout.generation, layout.components().len()), (7, 3));
        let bodies: Vec<_> = layout.components().iter().map(|part| part.object_count()).collect();
        assert_eq!(bodies, [1, 2, 0]);
        assert_eq!(layout.components()[2].extent, Extent { start: 4 * MIB, end: Extent::EOF });
        assert!(layout.is_on_mdt() && !layout.is_only_on_mdt());

        let gap = component((2 * MIB, u64::MAX), CompFlags::NONE, plain(LovPattern::RAID0, 0));
        let follow = "components do not follow one another";
        assert_eq!(composite(vec![on_mdt, gap]), Err(LayoutError::Illegal(follow)));
        let empty = component((0, 0), CompFlags::NONE, plain(LovPattern::RAID0, 0));
        assert!(matches!(composite(vec![empty]), Err(LayoutError::Illegal(_))));
        let extends = component((0, u64::MAX), CompFlags::EXTENSION, plain(LovPattern::RAID0, 0));
        assert_eq!(composite(vec![extends]), Err(LayoutError::Unsupported("self-extending")));
    }
}
