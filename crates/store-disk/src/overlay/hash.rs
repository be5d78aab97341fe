//! A fast keyed hash for FIDs and keys. Peers choose names, so its key is random for each store.

use std::hash::{BuildHasher, Hasher, RandomState};

use sheen_types::Fid;

const MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// Makes [`FoldHasher`]s that start from one random number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldState(u64);

impl FoldState {
    pub(crate) fn random() -> Self {
        Self(RandomState::new().hash_one(0u8))
    }

    pub(crate) fn object(self, fid: Fid) -> u64 {
        self.hash_one(fid)
    }

    pub(crate) fn key(self, index: Fid, key: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_u64(index.seq);
        hasher.write_u64(u64::from(index.oid) << 32 | u64::from(index.ver));
        hasher.write(key);
        hasher.finish()
    }
}

impl BuildHasher for FoldState {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

/// Folds the 128-bit product of each word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(MULTIPLIER);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
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
