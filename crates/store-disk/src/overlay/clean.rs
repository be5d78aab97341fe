//! A bounded cache of what the database holds, absences too.
//!
//! Two generations: what is used lies in the young one; when that has half the budget, the old
//! one is dropped and the young one becomes old. No list to keep, a scan cannot flush what is hot
//! more than once, and every operation is one or two hash lookups.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash},
};

use sheen_types::HashMap;

pub(super) struct Clean<K, V, S> {
    young: HashMap<K, (V, usize), S>,
    old: HashMap<K, (V, usize), S>,
    young_bytes: usize,
    limit_bytes: usize,
}

impl<K: Hash + Eq, V: Clone, S: BuildHasher + Clone> Clean<K, V, S> {
    pub(super) fn new(limit_bytes: usize, hasher: S) -> Self {
        Self {
            young: HashMap::with_hasher(hasher.clone()),
            old: HashMap::with_hasher(hasher),
            young_bytes: 0,
            limit_bytes,
        }
    }

    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, (value, cost)) = self.old.remove_entry(key)?;
        self.insert(key, value.clone(), cost);
        Some(value)
    }

    /// Replaces what was there; `cost` is its memory in bytes.
    pub(super) fn insert(&mut self, key: K, value: V, cost: usize) {
        if self.young_bytes + cost > self.limit_bytes / 2 {
            let empty = HashMap::with_hasher(self.young.hasher().clone());
            self.old = std::mem::replace(&mut self.young, empty);
            self.young_bytes = 0;
        }
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        self.young_bytes += cost;
        if let Some((_, before)) = self.young.insert(key, (value, cost)) {
            self.young_bytes -= before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let mut clean = Clean::new(1000, std::hash::RandomState::new());
        for number in 0..1000u32 {
            clean.insert(number, number * 2, 10);
            assert_eq!(clean.get(&0), Some(0), "used all the time");
            assert!(clean.young.len() + clean.old.len() <= 100);
        }
        assert_eq!(clean.get(&999), Some(1998));
        assert_eq!(clean.get(&500), None);
        clean.insert(999, 7, 10);
        assert_eq!(clean.get(&999), Some(7));
    }
}
