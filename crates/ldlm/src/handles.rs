//! Handles of locks: numbers that look random, from which where the lock lies can be computed.

use sheen_types::LockHandle;

use crate::hash::spread;

/// Bits of a handle that number the slot within its shard.
const SLOT_BITS: u32 = 26;
/// Bits that number the shard.
const SHARD_BITS: u32 = 6;
/// Shards a handle can name.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// Locks one shard can hold at once.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// Where a lock lies: which shard, which slot of it, the how-manieth lock in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockLocation {
    pub(crate) shard: u32,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Makes handles from locations and back: four rounds of a Feistel network keyed by the seed. Every
/// location has a handle of its own, every number is the handle of one location, so that a forged
/// handle finds a location whose generation is not the current one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockHandles {
    keys: [u32; 4],
}

impl LockHandles {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            keys: std::array::from_fn(|round| {
                (spread(seed ^ spread(round as u64 + 1)) >> 16) as u32
            }),
        }
    }

    const fn round(half: u32, key: u32) -> u32 {
        let product = ((half ^ key) as u64).wrapping_mul(0x9e37_79b9_85eb_ca6b);
        (product >> 24) as u32 ^ key.rotate_left(half & 31)
    }

    pub(crate) fn handle(&self, location: LockLocation) -> LockHandle {
        let mut left = location.generation;
        let mut right = location.shard << SLOT_BITS | location.slot;
        for key in self.keys {
            (left, right) = (right, left ^ Self::round(right, key));
        }
        LockHandle(u64::from(left) << 32 | u64::from(right))
    }

    pub(crate) fn location(&self, handle: LockHandle) -> LockLocation {
        let mut left = (handle.0 >> 32) as u32;
        let mut right = handle.0 as u32;
        for key in self.keys.into_iter().rev() {
            (left, right) = (right ^ Self::round(left, key), left);
        }
        LockLocation { shard: right >> SLOT_BITS, slot: right & (SLOTS_MAX - 1), generation: left }
    }
}

#[cfg(test)]
mod tests {
    use super::{LockHandles, LockLocation};

    #[test]
    fn a_handle_leads_back_to_its_lock() {
        let handles = LockHandles::new(7);
        let mut seen: sheen_types::HashSet<_> = sheen_types::HashSet::default();
        for generation in 1..50 {
            for slot in 0..50 {
                let location = LockLocation { shard: slot & 63, slot, generation };
                let handle = handles.handle(location);
                assert_eq!(handles.location(handle), location);
                assert!(seen.insert(handle));
            }
        }
        assert_ne!(
            LockHandles::new(8).handle(LockLocation { shard: 0, slot: 0, generation: 1 }),
            handles.handle(LockLocation { shard: 0, slot: 0, generation: 1 })
        );
    }
}
