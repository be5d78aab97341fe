//! Numbers that look random: handles, and a hasher that peers cannot aim at.

use std::hash::{BuildHasher, Hasher};

use sheen_types::LockHandle;

/// Bits of a handle that number the slot within its shard.
const SLOT_BITS: u32 = 26;
/// Bits that number the shard.
const SHARD_BITS: u32 = 6;
/// Shards a handle can name.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// Locks one shard can hold at once.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// Spreads the bits of a number; a bijection.
pub(crate) const fn spread(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

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

/// Hashes the few words of our keys, keyed by the namespace's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededBuildHasher(pub(crate) u64);

impl BuildHasher for SeededBuildHasher {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(self.0)
    }
}

/// See [`SeededBuildHasher`].
pub(crate) struct KeyedHasher(u64);

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = spread(self.0.rotate_left(23) ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
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
