//! Answers that a client may ask for again: one per slot, found by the request's xid.
//!
//! Finding one, adding one and dropping those that the client has seen cost the logarithm of how many
//! there are, and these are at most as many as the client may have changes under way.

use std::collections::{BTreeMap, BTreeSet};

use sheen_types::Xid;

use crate::last_rcvd::{ReplyRecord, Slot};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    by_slot: BTreeMap<Slot, ReplyRecord>,
    by_xid: BTreeMap<Xid, Slot>,
    /// Slots of which the store has a record, be it of an answer that was seen.
    stored: BTreeSet<Slot>,
}

impl Replies {
    /// The answers that a store has.
    pub(crate) fn load(records: Vec<(Slot, ReplyRecord)>) -> Self {
        let mut replies = Self::default();
        records.into_iter().for_each(|(slot, record)| replies.insert(slot, record));
        replies
    }

    pub(crate) fn len(&self) -> usize {
        self.by_slot.len()
    }

    /// The highest tag that an answer is kept for.
    pub(crate) fn tag_max(&self) -> u16 {
        self.stored.last().map_or(0, |slot| slot.tag)
    }

    /// Adds an answer in the place of the slot's former.
    pub(crate) fn insert(&mut self, slot: Slot, record: ReplyRecord) {
        if let Some(former) = self.by_slot.insert(slot, record.clone())
            && self.by_xid.get(&former.xid) == Some(&slot)
        {
            self.by_xid.remove(&former.xid);
        }
        self.by_xid.insert(record.xid, slot);
        self.stored.insert(slot);
    }

    /// The answer to a request.
    pub(crate) fn of(&self, xid: Xid) -> Option<&ReplyRecord> {
        self.by_slot.get(self.by_xid.get(&xid)?).filter(|record| record.xid == xid)
    }

    /// The client has seen the answers to all requests up to `seen`.
    pub(crate) fn forget_seen(&mut self, seen: Xid) {
        while let Some(first) = self.by_xid.first_entry()
            && *first.key() <= seen
        {
            let (xid, slot) = first.remove_entry();
            if self.by_slot.get(&slot).is_some_and(|record| record.xid == xid) {
                self.by_slot.remove(&slot);
            }
        }
    }

    /// All slots that the store may have a record of.
    pub(crate) fn stored(&self) -> Vec<Slot> {
        self.stored.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(xid: u64, tag: u16) -> ReplyRecord {
        ReplyRecord { xid: Xid(xid), tag, ..ReplyRecord::default() }
    }

    #[test]
    fn answers_are_found_until_they_are_seen_or_their_slot_is_used_again() {
        let mut replies = Replies::default();
        for (xid, tag) in [(10, 1), (20, 2), (30, 3), (40, 1)] {
            replies.insert(Slot::of_tag(tag), record(xid, tag));
        }
        let known = |replies: &Replies| {
            [10, 20, 30, 40].map(|xid| replies.of(Xid(xid)).map(|record| record.xid.0))
        };
        assert_eq!(known(&replies), [None, Some(20), Some(30), Some(40)]);
        replies.forget_seen(Xid(20));
        assert_eq!(known(&replies), [None, None, Some(30), Some(40)]);
        assert_eq!((replies.len(), replies.stored().len(), replies.tag_max()), (2, 3, 3));
        replies.forget_seen(Xid(u64::MAX));
        assert_eq!((replies.len(), replies.by_xid.len()), (0, 0));
    }

    #[test]
    fn an_xid_that_a_client_uses_twice_confuses_nothing() {
        let mut replies = Replies::default();
        replies.insert(Slot::of_tag(1), record(10, 1));
        replies.insert(Slot::of_tag(2), record(10, 2));
        assert_eq!(replies.of(Xid(10)).map(|record| record.tag), Some(2));
        replies.insert(Slot::of_tag(2), record(11, 2));
        replies.forget_seen(Xid(10));
        assert_eq!((replies.of(Xid(10)), replies.of(Xid(11)).is_some()), (None, true));
        // What nothing leads to any more stays until its slot is used again: one per slot at most.
        assert_eq!(replies.len(), 2);
    }
}
