//! Hash tables whose order a run can repeat.
//!
//! The standard library's tables have a key each that nobody chose, so that what is in them comes out
//! in another order every time. That order reaches further than loops: a table that is dropped drops
//! what it holds, which closes connections and wakes tasks. These tables have the key of the
//! process, which is 0 unless the program draws one: in tests the same tables hold the same things in
//! the same order, and in production no peer can aim at a bucket.

use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

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
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
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
}
