//! What earlier waiting locks want: a later one must not overtake them.
//!
//! Kept while the waiting locks of a resource are looked through in their order, so that each is held against
//! all before it at once, and not against each of them: a look costs the logarithm of how many there are.

use std::collections::BTreeMap;

use sheen_types::{InodeBits, LockMode};

use super::ranges::RangeSet;
use super::shard::{Lock, WantedLock};
use crate::{Owner, Policy};

/// The earlier waiting locks of one resource, by mode.
#[derive(Default)]
pub(super) struct EarlierWaiting {
    /// In the order of [`LockMode::ALL`].
    modes: [ModeCoverage; LockMode::ALL.len()],
    /// Group locks by group: the bits that they want, all of them on what has no bits.
    groups: BTreeMap<u64, InodeBits>,
    /// The server's own, which group locks do not overtake, by mode: the bits that they want, all of them on what has no bits.
    own: [InodeBits; LockMode::ALL.len()],
}

#[derive(Default)]
struct ModeCoverage {
    bytes: RangeSet,
    bits: InodeBits,
    /// A lock on a resource without parts.
    is_whole: bool,
}

impl EarlierWaiting {
    /// One stays waiting.
    pub(super) fn add(&mut self, lock: &Lock) {
        let bits = match lock.policy {
            Policy::InodeBits { bits, .. } => bits,
            _ => InodeBits(u64::MAX),
        };
        if lock.requested == LockMode::Group {
            let known = self.groups.entry(lock.policy.gid()).or_default();
            *known = *known | bits;
            return;
        }
        let Some(place) = LockMode::ALL.iter().position(|mode| *mode == lock.requested) else {
            return;
        };
        if lock.owner == Owner::Local {
            self.own[place] = self.own[place] | bits;
        }
        let of_mode = &mut self.modes[place];
        match lock.policy {
            Policy::Plain => of_mode.is_whole = true,
            Policy::InodeBits { bits, .. } => of_mode.bits = of_mode.bits | bits,
            Policy::Extent { .. } => drop(of_mode.bytes.add(lock.policy.range())),
            Policy::Flock { .. } => {}
        }
    }

    /// Whether one of them must be granted before `wanted` may be: as `conflicts::precedes` says of each.
    pub(super) fn has_first(&self, wanted: &WantedLock) -> bool {
        let is_group = wanted.mode == LockMode::Group;
        let meets_bits = |bits: InodeBits| match wanted.policy {
            Policy::InodeBits { bits: wanted, .. } => bits.intersects(wanted),
            _ => true,
        };
        let (gid, group) = (wanted.policy.gid(), LockMode::Group);
        let clashes_with_group = self.groups.iter().any(|(other, bits)| {
            let clashes = if is_group { *other != gid } else { !group.compatible(wanted.mode) };
            clashes && meets_bits(*bits)
        });
        let clashes_with_own = is_group
            && LockMode::ALL.iter().zip(&self.own).any(|(mode, bits)| {
                !mode.compatible(group) && !bits.is_empty() && meets_bits(*bits)
            });
        // A group lock overtakes all else.
        clashes_with_group || clashes_with_own || (!is_group && self.clashes_by_mode(wanted))
    }

    fn clashes_by_mode(&self, wanted: &WantedLock) -> bool {
        LockMode::ALL.iter().zip(&self.modes).any(|(mode, of_mode)| {
            !mode.compatible(wanted.mode)
                && match wanted.policy {
                    Policy::Plain => of_mode.is_whole,
                    Policy::InodeBits { bits, .. } => of_mode.bits.intersects(bits),
                    Policy::Extent { .. } => of_mode.bytes.overlaps(wanted.policy.range()),
                    Policy::Flock { .. } => false,
                }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sheen_types::{Extent, LockHandle};

    use super::super::conflicts::precedes;
    use super::*;
    use crate::LockFlags;

    fn wanted(kind: u8, (mode, gid): (usize, u64), (start, length): (u64, u64)) -> WantedLock {
        let mode = LockMode::ALL[mode];
        let extent = Extent { start, end: start + length };
        let bits = InodeBits(1 + start % 7);
        let policy = match kind {
            0 => Policy::Plain,
            1 => Policy::InodeBits { bits, try_bits: InodeBits(0), gid },
            _ => Policy::Extent { extent, gid },
        };
        WantedLock { policy, mode, spares: None }
    }

    proptest! {
        #[test]
        fn all_of_them_together_say_what_each_says(
            kind in 0_u8..3,
            locks in prop::collection::vec(((0_usize..7, 0_u64..3), (0_u64..20, 0_u64..6), prop::bool::ANY), 1..30),
        ) {
            let (mut earlier, mut before) = (EarlierWaiting::default(), Vec::<Lock>::new());
            for (what, range, is_own) in locks {
                let wanted = wanted(kind, what, range);
                let expected = before.iter().any(|lock| precedes(lock, &wanted));
                prop_assert_eq!(earlier.has_first(&wanted), expected);
                let is_own = is_own && wanted.mode != LockMode::Group;
                let owner = if is_own { Owner::Local } else { Owner::Export(1) };
                let lock = Lock::asked(0, &wanted, owner, LockHandle(0), LockFlags::NONE);
                earlier.add(&lock);
                before.push(lock);
            }
        }
    }
}
