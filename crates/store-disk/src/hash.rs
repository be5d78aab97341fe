//! A fast keyed hash for FIDs and keys. Peers choose names, so its key is random for each store.

use std::hash::{BuildHasher, Hasher, RandomState};

use sheen_types::{Fid, FoldHasher};

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
        FoldHasher::new(self.0)
    }
}
