//! A keyed hasher, with which no peer can aim its names at one bucket.

use std::hash::{BuildHasher, Hasher};

/// Spreads the bits of a number; a bijection.
pub(crate) const fn spread(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
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
