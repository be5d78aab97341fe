//! Hash tables whose order a run can repeat.
//!
//! The standard library's tables have a random key each, so that what is in them comes out
//! in another order every time. That order reaches further than loops: a table that is dropped drops
//! what it holds, which closes connections and wakes tasks. These tables have the key of the
//! process, which is 0 unless the program draws one: in tests the same tables hold the same things in
//! the same order, and in production no peer can aim at a bucket.
//!
//! A key costs a multiplication for each of its words. The standard library's SipHash was a tenth of
//! all instructions of a create on the client: 60 keys of 170 instructions each.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

const MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// The key of tables made from now on.
static KEY: AtomicU64 = AtomicU64::new(0);

/// A map in the order of the process's key.
#[expect(clippy::disallowed_types, reason = "this is the replacement")]
pub type HashMap<K, V, S = Keyed> = std::collections::HashMap<K, V, S>;

/// A set in the order of the process's key.
#[expect(clippy::disallowed_types, reason = "this is the replacement")]
pub type HashSet<T, S = Keyed> = std::collections::HashSet<T, S>;

/// Sets the key of the tables that are made from now on. For a program, once and first of all, with a
/// number that peers cannot know.
pub fn set_hash_key(key: u64) {
    KEY.store(key, Ordering::Relaxed);
}

/// Hashes under the key that the process had when the table was made.
#[derive(Clone, Copy, Debug)]
pub struct Keyed(u64);

impl Default for Keyed {
    fn default() -> Self {
        Self(KEY.load(Ordering::Relaxed))
    }
}

impl BuildHasher for Keyed {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

/// Folds the 128-bit product of each word.
#[derive(Clone, Copy, Debug)]
pub struct FoldHasher(u64);

impl FoldHasher {
    /// Begins under this key.
    #[must_use]
    pub const fn new(key: u64) -> Self {
        Self(key)
    }
}

impl Hasher for FoldHasher {
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(MULTIPLIER);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(u64::from_le_bytes(word.try_into().expect("chunks of eight")));
        }
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_key() {
        let numbers = |key| {
            let mut set = HashSet::with_hasher(Keyed(key));
            set.extend(0..1000);
            set.into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(numbers(0), numbers(0));
        let plain: HashSet<u32> = (0..1000).collect();
        assert_eq!(plain.into_iter().collect::<Vec<_>>(), numbers(0));
        assert_ne!(numbers(0), numbers(1));
    }

    /// Keys that differ in few bits must spread over the low bits, which choose a place in a table, and
    /// the high ones, by which a table distinguishes those in one place.
    #[test]
    fn keys_that_follow_each_other_spread() {
        let state = Keyed(7);
        for shift in [0, 12, 32, 56] {
            let hashes: Vec<u64> = (0..256u64).map(|key| state.hash_one(key << shift)).collect();
            for part in [0, 57] {
                let mut seen = [0u32; 128];
                hashes.iter().for_each(|hash| seen[(hash >> part) as usize % 128] += 1);
                assert!(seen.iter().all(|count| *count < 16), "{shift} {part}: {seen:?}");
            }
        }
    }
}
