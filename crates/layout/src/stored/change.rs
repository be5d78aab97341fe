//! Adding, removing and marking components (`lustre.lov.add`, `.del`, `.set.flags`).

use bytes::Bytes;
use sheen_types::{Errno, Fid};
use sheen_wire::lov::{CompFlags, LovComp, LovCompEntry, LovEa};
use sheen_wire::ost::OstId;

use super::{Kind, NUMBER_MAX, Stored, count_change, push};
use crate::plan::{Defaults, Part, Plan};

/// Which components are to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one with this number.
    Id(u32),
    /// Those that have one of these flags.
    With(CompFlags),
    /// Those that have none of these flags.
    Without(CompFlags),
}

/// What is left of a layout, and what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The layout; `None` if all of it was removed.
    pub left: Option<Stored>,
    /// The objects that no longer belong to it.
    pub objects: Vec<(u16, OstId)>,
}

/// A request to mark components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFlags {
    /// For each component its number and the flags, [`CompFlags::NEG`] with those to be taken off.
    pub flags_by_id: Vec<(u32, CompFlags)>,
}

/// The flags that Lustre 2.17 knows in a selection.
const KNOWN: CompFlags = CompFlags(
    CompFlags::NEG.0
        | CompFlags::INIT.0
        | CompFlags::STALE.0
        | CompFlags::PREF_RD.0
        | CompFlags::PREF_WR.0
        | CompFlags::NOSYNC.0
        | CompFlags::EXTENSION.0
        | CompFlags::PARITY.0
        | CompFlags::NOCOMPR.0
        | CompFlags::IS_LINK_ID.0,
);

impl Selection {
    /// Reads the value of `lustre.lov.del`: its first component says which.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what names none, or names them in two ways.
    pub fn parse(bytes: &Bytes) -> Result<Self, Errno> {
        let composite = composite(bytes)?;
        let LovCompEntry { id, flags, .. } = composite.components[0].entry;
        if id > CompFlags::NEG.0 - 1 || flags.without(KNOWN) != CompFlags::NONE {
            return Err(Errno::EINVAL);
        }
        let wanted = flags.without(CompFlags::NEG);
        match (id, flags) {
            (0, CompFlags::NONE) => Err(Errno::EINVAL),
            (id, CompFlags::NONE) => Ok(Self::Id(id)),
            (0, _) if flags.contains(CompFlags::NEG) => Ok(Self::Without(wanted)),
            (0, _) => Ok(Self::With(wanted)),
            _ => Err(Errno::EINVAL),
        }
    }

    fn matches(self, entry: &LovCompEntry) -> bool {
        match self {
            Self::Id(id) => entry.id == id,
            Self::With(flags) => entry.flags.intersects(flags),
            Self::Without(flags) => !entry.flags.intersects(flags),
        }
    }
}

impl SetFlags {
    /// Reads the value of `lustre.lov.set.flags`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what is none, and for a request to mark that a component has objects.
    pub fn parse(bytes: &Bytes) -> Result<Self, Errno> {
        let parts = composite(bytes)?.components;
        let flags_by_id: Vec<_> =
            parts.iter().map(|part| (part.entry.id, part.entry.flags)).collect();
        match flags_by_id.iter().any(|(_, flags)| flags.contains(CompFlags::INIT)) {
            true => Err(Errno::EINVAL),
            false => Ok(Self { flags_by_id }),
        }
    }
}

/// A composite value with a component at the least.
fn composite(bytes: &Bytes) -> Result<LovComp, Errno> {
    match LovEa::decode(bytes) {
        Ok(LovEa::Composite(composite)) if !composite.components.is_empty() => Ok(composite),
        _ => Err(Errno::EINVAL),
    }
}

impl Stored {
    /// Adds components behind the last one. `parts` was read with [`Plan::parse_more`]; sizes and
    /// counts that it leaves open are `ours`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if the layout has no components.
    pub fn add(&mut self, file: Fid, parts: Vec<Part>, ours: &Defaults) -> Result<(), Errno> {
        let Kind::Composite(composite) = &mut self.layout else { return Err(Errno::EINVAL) };
        let mut plan = Plan::Composite(parts);
        plan.settle(ours);
        let Plan::Composite(mut parts) = plan else { return Err(Errno::EINVAL) };
        parts.iter_mut().for_each(Part::limit_count);
        push(composite, file, &parts);
        Ok(())
    }

    /// Removes components from the end.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if none is selected, if it would leave a hole, or if the layout has no
    /// components.
    pub fn remove(&self, which: Selection) -> Result<Removed, Errno> {
        let Kind::Composite(composite) = &self.layout else { return Err(Errno::EINVAL) };
        let parts = &composite.components;
        let gone: Vec<_> = parts.iter().map(|part| which.matches(&part.entry)).collect();
        let kept = gone.iter().take_while(|is_gone| !**is_gone).count();
        if kept == parts.len() || gone[kept..].contains(&false) {
            return Err(Errno::EINVAL);
        }
        let mut left = composite.clone();
        left.components.truncate(kept);
        count_change(&mut left);
        let left = Self { layout: Kind::Composite(left), listed: Vec::new() };
        let before = self.objects();
        let objects = before[left.objects().len()..].to_vec();
        Ok(Removed { left: (kept > 0).then_some(left), objects })
    }

    /// Marks components. Files here have one mirror, so no mark that Lustre knows can be set; one
    /// can be taken off.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if there is no such component; [`Errno::EUCLEAN`] for marking the only
    /// copy of the data as out of date; [`Errno::EOPNOTSUPP`] for any other mark.
    pub fn set_flags(&mut self, set: &SetFlags) -> Result<(), Errno> {
        let Kind::Composite(composite) = &mut self.layout else { return Err(Errno::EINVAL) };
        let mut found = false;
        for (id, flags) in &set.flags_by_id {
            // What concerns a mirror as a whole names its number, which is 0 here.
            let of_mirror = *flags == CompFlags::NOSYNC | *flags & CompFlags::NEG;
            let is_meant = |part: &LovCompEntry| match of_mirror {
                true => part.id >> NUMBER_MAX.count_ones() == id >> NUMBER_MAX.count_ones(),
                false => part.id == *id,
            };
            if !composite.components.iter().any(|part| is_meant(&part.entry)) {
                continue;
            }
            found = true;
            if flags.contains(CompFlags::NEG) {
                continue;
            }
            return match flags.contains(CompFlags::STALE) {
                true => Err(Errno::EUCLEAN),
                false => Err(Errno::EOPNOTSUPP),
            };
        }
        if !found {
            return Err(Errno::EINVAL);
        }
        count_change(composite);
        Ok(())
    }
}
