//! The layout of a file as the MDT keeps it (Lustre's `lod_generate_lovea`, `lod_layout_*`).
//!
//! A [`Stored`] is made from a [`Plan`] and gets the objects of its components one by one. What
//! clients get is its bytes, so those are Lustre's: components are numbered from 1, the generation
//! is that of the last number given out and then counts changes; a component without objects holds
//! one stripe that names no OST, or the OSTs that its request lists.
//!
//! Costs one decode and one encode of the layout for a change; nothing here knows stores or locks.

mod change;

pub use change::{Removed, Selection, SetFlags};

use bytes::Bytes;
use sheen_types::limits::{STRIPE_COUNT_MAX, XATTR_VALUE_BYTES_MAX};
use sheen_types::{Errno, Fid};
use sheen_wire::codec::Wire;
use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovMagic, LovMd,
    LovMdHeader, LovOstData, LovPattern, PoolName,
};
use sheen_wire::ost::OstId;

use crate::LayoutError;
use crate::plan::{ANY_OST, END_OF_FILE, Part, Plan, Striping};

/// In the place of an OST's number: none.
const NO_OST: u32 = u32::MAX;
/// Numbers of components have so many bits; what is above them numbers mirrors.
const NUMBER_MAX: u32 = 0xffff;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    layout: Kind,
    /// OSTs that a plain layout without objects is to lie on; only components remember theirs in
    /// what is stored.
    listed: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Plain(LovMd),
    Composite(LovComp),
}

impl Stored {
    /// The layout of `file` before it has objects; a component on the MDT is ready to be used.
    #[must_use]
    pub fn new(file: Fid, plan: &Plan) -> Self {
        let parts = match plan {
            Plan::Plain(striping) => {
                let layout = Kind::Plain(without_objects(file, striping));
                return Self { layout, listed: striping.osts.clone() };
            }
            Plan::Composite(parts) => parts,
        };
        let header = LovCompHeader { magic: LovMagic::COMP_V1, ..LovCompHeader::default() };
        let mut composite = LovComp { header, components: Vec::with_capacity(parts.len()) };
        push(&mut composite, file, parts);
        Self { layout: Kind::Composite(composite), listed: Vec::new() }
    }

    /// Reads a layout that was stored, or that a client brings back in a replay: the mark by which
    /// it says that the objects exist is taken off.
    ///
    /// # Errors
    /// [`LayoutError`] for what is none, and for kinds that are not made here.
    pub fn decode(bytes: &Bytes) -> Result<Self, LayoutError> {
        let layout = match LovEa::decode(bytes).map_err(LayoutError::Undecodable)? {
            LovEa::Plain(mut plain) => {
                plain.header.magic.0 &= !LovMagic::DEFINED;
                check_plain(&plain)?;
                if plain.stripes.len() != usize::from(plain.header.stripe_count) {
                    return Err(LayoutError::Illegal("stripe count"));
                }
                Kind::Plain(plain)
            }
            LovEa::Composite(mut composite) => {
                composite.header.magic.0 &= !LovMagic::DEFINED;
                check_composite(&composite)?;
                Kind::Composite(composite)
            }
            LovEa::Foreign(_) => return Err(LayoutError::Unsupported("foreign")),
        };
        Ok(Self { layout, listed: Vec::new() })
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match &self.layout {
            Kind::Plain(plain) => LovEa::Plain(plain.clone()).encode(),
            Kind::Composite(composite) => LovEa::Composite(composite.clone()).encode(),
        }
    }

    /// Whether it is made of components.
    #[must_use]
    pub fn is_composite(&self) -> bool {
        matches!(self.layout, Kind::Composite(_))
    }

    /// Grows with each change.
    #[must_use]
    pub fn generation(&self) -> u32 {
        match &self.layout {
            Kind::Plain(plain) => plain.header.layout_gen.into(),
            Kind::Composite(composite) => composite.header.layout_gen,
        }
    }

    /// Makes it the layout of `file`, with that file's generation: what an exchange of two files'
    /// layouts leaves each with.
    pub fn give_to(&mut self, file: Fid, generation: u32) {
        match &mut self.layout {
            Kind::Plain(plain) => {
                plain.header.oi = OstId::of_file(file);
                plain.header.layout_gen = generation as u16;
            }
            Kind::Composite(composite) => {
                composite.header.layout_gen = generation;
                for component in &mut composite.components {
                    component.layout.header.oi = OstId::of_file(file);
                }
            }
        }
    }

    /// How many bytes lie on the MDT; `None` if none do.
    #[must_use]
    pub fn end_on_mdt(&self) -> Option<u64> {
        let Kind::Composite(composite) = &self.layout else { return None };
        let first = composite.components.first()?;
        is_on_mdt(&first.layout).then_some(first.entry.end)
    }

    /// Whether there is no place for data but the MDT.
    #[must_use]
    pub fn is_on_mdt_alone(&self) -> bool {
        let Kind::Composite(composite) = &self.layout else { return false };
        composite.components.iter().all(|component| is_on_mdt(&component.layout))
    }

    /// Whether some object exists on an OST.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.ready().any(|plain| !plain.stripes.is_empty())
    }

    /// The objects on OSTs: OST and object, in order.
    #[must_use]
    pub fn objects(&self) -> Vec<(u16, OstId)> {
        let named = |stripe: &LovOstData| Some((u16::try_from(stripe.ost_idx).ok()?, stripe.oi));
        self.ready().flat_map(|plain| &plain.stripes).filter_map(named).collect()
    }

    /// The parts that have what they need.
    fn ready(&self) -> impl Iterator<Item = &LovMd> {
        let (plain, components) = match &self.layout {
            Kind::Plain(plain) => (Some(plain), &[][..]),
            Kind::Composite(composite) => (None, &composite.components[..]),
        };
        plain.into_iter().chain(components.iter().filter(|part| is_ready(part)).map(|c| &c.layout))
    }

    /// Which parts need objects before bytes up to `end` (the first byte behind) can be written:
    /// all that begin before it. With `end` 0, those that a new file begins with.
    #[must_use]
    pub fn lacking(&self, end: u64) -> Vec<usize> {
        match &self.layout {
            Kind::Plain(plain) if plain.stripes.is_empty() => vec![0],
            Kind::Plain(_) => Vec::new(),
            Kind::Composite(composite) => {
                let parts = composite.components.iter().enumerate();
                let needed = parts.filter(|(_, part)| part.entry.start < end.max(1));
                needed.filter(|(_, part)| !is_ready(part)).map(|(at, _)| at).collect()
            }
        }
    }

    /// Whether bytes up to `end` have a place. (A layout of one component is not asked, as in
    /// Lustre: a write behind its end fails when it is made.)
    #[must_use]
    pub fn reaches(&self, end: u64) -> bool {
        match &self.layout {
            Kind::Composite(composite) if composite.components.len() > 1 => self.end() >= end,
            _ => true,
        }
    }

    /// The first byte behind its last part.
    #[must_use]
    pub fn end(&self) -> u64 {
        match &self.layout {
            Kind::Plain(_) => END_OF_FILE,
            Kind::Composite(composite) => composite.components.last().map_or(0, |c| c.entry.end),
        }
    }

    /// How a part without objects wants its bytes spread; `None` for a part that there is not.
    #[must_use]
    pub fn striping(&self, part: usize) -> Option<Striping> {
        let plain = self.part(part)?;
        let header = &plain.header;
        let number = |stripe: &LovOstData| u16::try_from(stripe.ost_idx).ok();
        let osts: Option<Vec<_>> = match self.listed.is_empty() {
            true => plain.stripes.iter().map(number).collect(),
            false => Some(self.listed.clone()),
        };
        Some(Striping {
            on_mdt: is_on_mdt(plain),
            overstriped: header.pattern.contains(LovPattern::OVERSTRIPING),
            stripe_size: header.stripe_size,
            stripe_count: header.stripe_count,
            first: (header.layout_gen != ANY_OST).then_some(header.layout_gen),
            osts: osts.unwrap_or_default(),
            pool: plain.pool,
        })
    }

    /// Whether one of its parts may have several stripes on an OST.
    #[must_use]
    pub fn is_overstriped(&self) -> bool {
        let is_so = |part: &LovMd| part.header.pattern.contains(LovPattern::OVERSTRIPING);
        (0..).map_while(|part| self.part(part)).any(is_so)
    }

    fn part(&self, part: usize) -> Option<&LovMd> {
        match &self.layout {
            Kind::Plain(plain) => (part == 0).then_some(plain),
            Kind::Composite(composite) => composite.components.get(part).map(|c| &c.layout),
        }
    }

    /// The OSTs that hold something of it.
    #[must_use]
    pub fn osts(&self) -> Vec<u16> {
        let mut osts: Vec<_> = self.objects().into_iter().map(|(ost, _)| ost).collect();
        osts.sort_unstable();
        osts.dedup();
        osts
    }

    /// Stripes that a part may have before the layout is longer than an attribute may be.
    #[must_use]
    pub fn stripes_max(&self, part: usize) -> usize {
        let Kind::Composite(composite) = &self.layout else { return STRIPE_COUNT_MAX };
        let rest = composite.components.iter().enumerate().filter(|(at, _)| *at != part);
        let rest = rest.map(|(_, other)| {
            LovMdHeader::SIZE + PoolName::SIZE + other.layout.stripes.len() * LovOstData::SIZE
        });
        let headers = LovCompHeader::SIZE + composite.components.len() * LovCompEntry::SIZE;
        let used = headers + rest.sum::<usize>() + LovMdHeader::SIZE + PoolName::SIZE;
        let room = XATTR_VALUE_BYTES_MAX.saturating_sub(used) / LovOstData::SIZE;
        room.saturating_sub(1).min(STRIPE_COUNT_MAX)
    }

    /// Gives a part its objects: OST and object, in the order of stripes. It does not count as a
    /// change of the layout by itself: see [`Stored::changed`].
    pub fn place(&mut self, part: usize, objects: &[(u16, Fid)]) {
        let plain = match &mut self.layout {
            Kind::Plain(plain) if part == 0 => plain,
            Kind::Plain(_) => return,
            Kind::Composite(composite) => {
                let Some(component) = composite.components.get_mut(part) else { return };
                component.entry.flags |= CompFlags::INIT;
                &mut component.layout
            }
        };
        let data = |(ost, object): &(u16, Fid)| LovOstData {
            oi: OstId::of_fid(*object),
            ost_gen: 0,
            ost_idx: u32::from(*ost),
        };
        plain.stripes = objects.iter().map(data).collect();
        self.listed.clear();
        let mut osts: Vec<_> = objects.iter().map(|(ost, _)| *ost).collect();
        osts.sort_unstable();
        osts.dedup();
        if osts.len() == objects.len() {
            plain.header.pattern = plain.header.pattern.without(LovPattern::OVERSTRIPING);
        }
        (plain.header.stripe_count, plain.header.layout_gen) = (objects.len() as u16, 0);
    }

    /// Counts a change that clients must learn of.
    pub fn changed(&mut self) {
        match &mut self.layout {
            Kind::Plain(plain) => {
                plain.header.layout_gen = plain.header.layout_gen.wrapping_add(1);
            }
            Kind::Composite(composite) => count_change(composite),
        }
    }

    /// The objects that `newer`, as a client replays it, has and this has not: all that `newer`
    /// adds.
    #[must_use]
    pub fn added_by(&self, newer: &Stored) -> Vec<(u16, OstId)> {
        let mine = self.objects();
        newer.objects().into_iter().filter(|object| !mine.contains(object)).collect()
    }
}

fn is_on_mdt(plain: &LovMd) -> bool {
    plain.header.pattern.contains(LovPattern::MDT)
}

fn is_ready(component: &LovComponent) -> bool {
    component.entry.flags.contains(CompFlags::INIT)
}

fn without_objects(file: Fid, striping: &Striping) -> LovMd {
    let magic = if striping.pool.is_empty() { LovMagic::V1 } else { LovMagic::V3 };
    LovMd {
        header: LovMdHeader {
            magic,
            pattern: striping.pattern(),
            oi: OstId::of_file(file),
            stripe_size: striping.stripe_size,
            stripe_count: striping.stripe_count,
            layout_gen: striping.first.unwrap_or(ANY_OST),
        },
        pool: striping.pool,
        stripes: Vec::new(),
    }
}

/// Adds components; each takes the next generation as its number.
fn push(composite: &mut LovComp, file: Fid, parts: &[Part]) {
    for part in parts {
        let mut layout = without_objects(file, &part.striping);
        let mut flags = CompFlags::NONE;
        if part.striping.on_mdt {
            layout.header.layout_gen = 0;
            flags = CompFlags::INIT;
        } else {
            layout.stripes = placeholders(&part.striping);
        }
        let id = next_id(composite);
        let (start, end) = (part.start, part.end);
        let entry = LovCompEntry { id, flags, start, end, ..LovCompEntry::default() };
        composite.components.push(LovComponent { entry, layout });
    }
}

/// The stripes of a component without objects: the OSTs that are listed, or one of none.
fn placeholders(striping: &Striping) -> Vec<LovOstData> {
    let on = |ost_idx| LovOstData { ost_idx, ..LovOstData::default() };
    match striping.osts.is_empty() {
        true => vec![on(NO_OST)],
        false => striping.osts.iter().map(|ost| on(u32::from(*ost))).collect(),
    }
}

/// The generation behind this one. A client says what a replayed layout's is, and it may say the largest; 0 is
/// that of no layout.
#[must_use]
pub fn generation_after(generation: u32) -> u32 {
    generation.checked_add(1).unwrap_or(1)
}

fn count_change(composite: &mut LovComp) {
    composite.header.layout_gen = generation_after(composite.header.layout_gen);
}

fn next_id(composite: &mut LovComp) -> u32 {
    count_change(composite);
    let mut id = composite.header.layout_gen & NUMBER_MAX;
    // Only a file whose layout changed 65,535 times may have given this number out before.
    while id == 0 || composite.components.iter().any(|part| part.entry.id == id) {
        id = (id + 1) & NUMBER_MAX;
    }
    id
}

fn check_plain(plain: &LovMd) -> Result<(), LayoutError> {
    let known = LovPattern::RAID0.union(LovPattern::OVERSTRIPING);
    let pattern = plain.header.pattern;
    match pattern.without(known) == LovPattern::NONE && pattern.contains(LovPattern::RAID0) {
        true => check_magic(plain),
        false => Err(LayoutError::Unsupported("pattern")),
    }
}

fn check_magic(plain: &LovMd) -> Result<(), LayoutError> {
    match plain.header.magic {
        LovMagic::V1 | LovMagic::V3 => Ok(()),
        _ => Err(LayoutError::Illegal("magic")),
    }
}

fn check_composite(composite: &LovComp) -> Result<(), LayoutError> {
    let header = &composite.header;
    if header.magic != LovMagic::COMP_V1 || header.mirror_count != 0 || header.flags != 0 {
        return Err(LayoutError::Unsupported("mirrored or self-extending"));
    }
    if composite.components.is_empty() {
        return Err(LayoutError::Illegal("no components"));
    }
    let mut end = 0;
    for component in &composite.components {
        let (entry, plain) = (&component.entry, &component.layout);
        if entry.flags.without(CompFlags::INIT) != CompFlags::NONE {
            return Err(LayoutError::Unsupported("flags of a component"));
        }
        if entry.start != end || entry.end <= entry.start || entry.id == 0 {
            return Err(LayoutError::Illegal("components do not adjoin"));
        }
        end = entry.end;
        if is_on_mdt(plain) {
            check_magic(plain)?;
            if entry.start != 0 || !plain.stripes.is_empty() || !is_ready(component) {
                return Err(LayoutError::Illegal("data on the MDT"));
            }
            continue;
        }
        check_plain(plain)?;
        let is_full = plain.stripes.len() == usize::from(plain.header.stripe_count);
        if is_ready(component) && (!is_full || plain.stripes.is_empty()) {
            return Err(LayoutError::Illegal("stripe count"));
        }
    }
    Ok(())
}

/// The errno by which a layout that cannot be read is refused.
#[must_use]
pub fn errno_of(error: &LayoutError) -> Errno {
    match error {
        LayoutError::Unsupported(_) => Errno::EOPNOTSUPP,
        LayoutError::Undecodable(_) | LayoutError::Illegal(_) => Errno::EINVAL,
    }
}

#[cfg(test)]
mod tests;
