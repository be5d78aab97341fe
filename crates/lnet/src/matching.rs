//! Match entries: what a node expects at a portal, from whom, under which bits.
//!
//! An entry is used once. Entries under the same key are used in the order in which they were
//! attached. Lookup is one hash access for the exact source, and one more for entries open to any
//! source if that fails.

use sheen_types::{HashMap, MatchBits, Nid};
use sheen_wire::lnet::Portal;

/// What a message must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The portal.
    pub portal: Portal,
    /// The bits, all of them.
    pub bits: MatchBits,
    /// The sender, or [`Nid::ANY`].
    pub source: Nid,
}

/// Names an entry while it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId(u64);

/// An attached entry.
#[derive(Debug)]
pub struct Entry<T> {
    id: EntryId,
    length_max: usize,
    /// What the host attached.
    pub token: T,
}

struct Slot<T> {
    first: Entry<T>,
    /// Empty but for keys used twice, which no Lustre node does; so it never allocates.
    rest: Vec<Entry<T>>,
}

/// The entries of some portals.
pub struct MatchTable<T> {
    slots: HashMap<Key, Slot<T>>,
    next: u64,
}

impl<T> Default for MatchTable<T> {
    fn default() -> Self {
        Self { slots: HashMap::default(), next: 0 }
    }
}

impl<T> MatchTable<T> {
    /// Attaches an entry for one message of at most `length_max` bytes.
    pub fn attach(&mut self, key: Key, length_max: usize, token: T) -> EntryId {
        let id = EntryId(self.next);
        self.next += 1;
        let entry = Entry { id, length_max, token };
        match self.slots.entry(key) {
            std::collections::hash_map::Entry::Occupied(mut slot) => {
                slot.get_mut().rest.push(entry);
            }
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(Slot { first: entry, rest: Vec::new() });
            }
        }
        id
    }

    /// Unlinks an entry; `None` if it was used or unlinked before.
    pub fn detach(&mut self, key: Key, id: EntryId) -> Option<T> {
        let slot = self.slots.get_mut(&key)?;
        if slot.first.id != id {
            let index = slot.rest.iter().position(|entry| entry.id == id)?;
            return Some(slot.rest.remove(index).token);
        }
        self.take_first(key)
    }

    /// The entry that [`MatchTable::take`] would unlink.
    #[must_use]
    pub fn peek(&self, key: Key, length: usize) -> Option<&T> {
        let fits = |key| self.slots.get(&key).filter(|slot| slot.first.length_max >= length);
        let slot = fits(key).or_else(|| fits(Key { source: Nid::ANY, ..key }))?;
        Some(&slot.first.token)
    }

    /// Finds and unlinks the entry for a message. One that is too short for the message stays, and
    /// the message matches nothing, as LNet has it for entries that must not truncate.
    pub fn take(&mut self, key: Key, length: usize) -> Option<T> {
        for key in [key, Key { source: Nid::ANY, ..key }] {
            if self.slots.get(&key).is_some_and(|slot| slot.first.length_max >= length) {
                return self.take_first(key);
            }
        }
        None
    }

    /// Entries attached.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.values().map(|slot| 1 + slot.rest.len()).sum()
    }

    /// Whether no entry is attached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Unlinks all entries, oldest first.
    pub fn clear(&mut self) -> Vec<T> {
        let slots = std::mem::take(&mut self.slots).into_values();
        let entries = slots.flat_map(|slot| std::iter::once(slot.first).chain(slot.rest));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| entry.id.0);
        entries.into_iter().map(|entry| entry.token).collect()
    }

    fn take_first(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(&key)?;
        if slot.rest.is_empty() {
            return self.slots.remove(&key).map(|slot| slot.first.token);
        }
        let next = slot.rest.remove(0);
        Some(std::mem::replace(&mut slot.first, next).token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: Nid, bits: u64) -> Key {
        Key { portal: Portal::OST_BULK, bits: MatchBits(bits), source }
    }

    #[test]
    fn an_entry_is_used_once_by_what_matches_it() {
        let mut table = MatchTable::default();
        table.attach(key(Nid(1), 5), 10, "one");
        assert_eq!(table.take(key(Nid(2), 5), 1), None);
        assert_eq!(table.take(key(Nid(1), 6), 1), None);
        assert_eq!(table.take(key(Nid(1), 5), 11), None);
        assert_eq!(table.take(key(Nid(1), 5), 10), Some("one"));
        assert_eq!(table.take(key(Nid(1), 5), 10), None);
        table.attach(key(Nid::ANY, 5), 10, "any");
        assert_eq!(table.take(key(Nid(7), 5), 0), Some("any"));
        assert!(table.is_empty());
    }

    #[test]
    fn entries_under_one_key_are_used_in_order_and_unlink_singly() {
        let mut table = MatchTable::default();
        let ids: Vec<_> = (0..4).map(|at| table.attach(key(Nid(1), 5), 1, at)).collect();
        assert_eq!(table.detach(key(Nid(1), 5), ids[2]), Some(2));
        assert_eq!(table.detach(key(Nid(1), 5), ids[2]), None);
        assert_eq!(table.detach(key(Nid(1), 5), ids[0]), Some(0));
        assert_eq!(table.take(key(Nid(1), 5), 1), Some(1));
        assert_eq!(table.len(), 1);
        assert_eq!(table.clear(), [3]);
    }
}
