//! Reading a plan from the bytes of a request or of a stored default.

use bytes::Bytes;
use sheen_types::Errno;
use sheen_types::limits::{STRIPE_COUNT_MAX, STRIPE_SIZE_MIN};
use sheen_wire::lov::{
    CompFlags, LovComp, LovComponent, LovEa, LovMagic, LovMd, LovOstData, LovPattern,
};

use super::{ANY_OST, END_OF_FILE, Part, Plan, STRIPES_PER_OST_MOST, Striping};

impl Plan {
    /// Reads a request or a default, and makes all checks that need no knowledge of OSTs.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what is no legal layout, [`Errno::EOPNOTSUPP`] for kinds that are not
    /// made here.
    pub fn parse(bytes: &Bytes) -> Result<Self, Errno> {
        match LovEa::decode(bytes).map_err(|_| Errno::EINVAL)? {
            LovEa::Plain(plain) => {
                let striping = striping(&plain)?;
                // Data on the MDT ends somewhere, and only a component has an end.
                if striping.on_mdt { Err(Errno::EINVAL) } else { Ok(Self::Plain(striping)) }
            }
            LovEa::Composite(composite) => parts(&composite, 0).map(Self::Composite),
            LovEa::Foreign(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Reads components to be added behind those that end at byte `end`.
    ///
    /// # Errors
    /// As [`Plan::parse`]; also if it is no composite layout, or does not adjoin.
    pub fn parse_more(bytes: &Bytes, end: u64) -> Result<Vec<Part>, Errno> {
        match LovEa::decode(bytes).map_err(|_| Errno::EINVAL)? {
            LovEa::Composite(composite) => parts(&composite, end),
            LovEa::Plain(_) | LovEa::Foreign(_) => Err(Errno::EINVAL),
        }
    }
}

fn parts(composite: &LovComp, from: u64) -> Result<Vec<Part>, Errno> {
    let is_mirrored = composite.header.mirror_count != 0 || composite.header.ec_count != 0;
    if is_mirrored || composite.components.iter().any(is_of_unknown_kind) {
        return Err(Errno::EOPNOTSUPP);
    }
    if composite.components.is_empty() {
        return Err(Errno::EINVAL);
    }
    let mut end = from;
    let mut parts = Vec::with_capacity(composite.components.len());
    for component in &composite.components {
        let part = part(component)?;
        if part.start != end {
            return Err(Errno::EINVAL);
        }
        end = part.end;
        parts.push(part);
    }
    Ok(parts)
}

/// Whether a component has state that only mirrors, self-extending or compressed files have. A
/// program that copies a file's layout claims that it has objects, which does not matter.
fn is_of_unknown_kind(component: &LovComponent) -> bool {
    let entry = &component.entry;
    entry.flags.without(CompFlags::INIT) != CompFlags::NONE
        || entry.dstripe_count != 0
        || entry.cstripe_count != 0
        || entry.compr_type != 0
}

fn part(component: &LovComponent) -> Result<Part, Errno> {
    let (start, end) = (component.entry.start, component.entry.end);
    let is_offset = |at: u64| at.is_multiple_of(STRIPE_SIZE_MIN) && i64::try_from(at).is_ok();
    if !is_offset(start) || !(end == END_OF_FILE || is_offset(end)) || start >= end {
        return Err(Errno::EINVAL);
    }
    let mut striping = striping(&component.layout)?;
    if striping.on_mdt {
        let is_all = start == 0 && u64::from(striping.stripe_size) == end;
        let says_more = striping.stripe_count > 1 || !striping.osts.is_empty();
        if !is_all || says_more || !striping.pool.is_empty() {
            return Err(Errno::EINVAL);
        }
        (striping.stripe_count, striping.first) = (0, None);
    }
    let size = u64::from(striping.stripe_size);
    match end != END_OF_FILE && size != 0 && end % size != 0 {
        true => Err(Errno::EINVAL),
        false => Ok(Part { start, end, striping }),
    }
}

fn striping(plain: &LovMd) -> Result<Striping, Errno> {
    let header = &plain.header;
    let unmade = LovPattern::RELEASED | LovPattern::COMPRESS | LovPattern::FOREIGN;
    if header.pattern.intersects(unmade | LovPattern::HOLE) {
        return Err(Errno::EOPNOTSUPP);
    }
    let kind = header.pattern.without(LovPattern::OVERSTRIPING);
    if !matches!(kind, LovPattern::NONE | LovPattern::RAID0 | LovPattern::MDT) {
        return Err(Errno::EINVAL);
    }
    if u64::from(header.stripe_size) % STRIPE_SIZE_MIN != 0 {
        return Err(Errno::EINVAL);
    }
    let count = header.stripe_count;
    if count < STRIPES_PER_OST_MOST && usize::from(count) > STRIPE_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let overstriped = header.pattern.contains(LovPattern::OVERSTRIPING);
    let osts = match header.magic {
        LovMagic::SPECIFIC => listed(plain, overstriped)?,
        _ => Vec::new(),
    };
    Ok(Striping {
        on_mdt: kind == LovPattern::MDT,
        overstriped,
        stripe_size: header.stripe_size,
        stripe_count: count,
        first: (header.layout_gen != ANY_OST).then_some(header.layout_gen),
        osts,
        pool: plain.pool,
    })
}

/// The OSTs that a request lists. An OST may be there twice only with overstriping.
fn listed(plain: &LovMd, overstriped: bool) -> Result<Vec<u16>, Errno> {
    if plain.stripes.len() != usize::from(plain.header.stripe_count) || plain.stripes.is_empty() {
        return Err(Errno::EINVAL);
    }
    let index = |stripe: &LovOstData| u16::try_from(stripe.ost_idx).map_err(|_| Errno::EINVAL);
    let osts = plain.stripes.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = osts.clone();
    sorted.sort_unstable();
    sorted.dedup();
    match overstriped || sorted.len() == osts.len() {
        true => Ok(osts),
        false => Err(Errno::EINVAL),
    }
}
