//! Bytes that were visited.

use std::collections::BTreeMap;

use sheen_types::Extent;

/// Ranges that neither overlap nor touch: the first byte and the last.
#[derive(Debug, Default)]
pub(super) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Whether some of a range is among them.
    pub(super) fn overlaps(&self, range: Extent) -> bool {
        self.0.range(..=range.end).next_back().is_some_and(|(_, end)| *end >= range.start)
    }

    /// Adds a range; the parts of it that are new.
    pub(super) fn add(&mut self, range: Extent) -> Vec<Extent> {
        let mut new = Vec::new();
        let mut whole = range;
        let mut at = Some(range.start);
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |old| *old.0);
        let last = range.end.saturating_add(1);
        let met: Vec<(u64, u64)> = self.0.range(first..=last).map(|old| (*old.0, *old.1)).collect();
        for (start, end) in met {
            if end.saturating_add(1) < range.start {
                continue;
            }
            if let Some(from) = at.filter(|from| *from < start && start > range.start) {
                new.push(Extent { start: from, end: (start - 1).min(range.end) });
            }
            at = at.and_then(|from| end.checked_add(1).map(|next| next.max(from)));
            (whole.start, whole.end) = (whole.start.min(start), whole.end.max(end));
            self.0.remove(&start);
        }
        if let Some(start) = at.filter(|from| *from <= range.end) {
            new.push(Extent { start, end: range.end });
        }
        self.0.insert(whole.start, whole.end);
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sheen_types::Extent;

    use super::RangeSet;

    proptest! {
        #[test]
        fn each_byte_is_new_once(ranges in prop::collection::vec((0_u64..40, 0_u64..12), 1..40)) {
            let (mut covered, mut bytes) = (RangeSet::default(), BTreeSet::new());
            for (start, more) in ranges {
                let meets = (start..=start + more).any(|byte| bytes.contains(&byte));
                prop_assert_eq!(covered.overlaps(Extent { start, end: start + more }), meets);
                let new = covered.add(Extent { start, end: start + more });
                let new: Vec<u64> = new.iter().flat_map(|part| part.start..=part.end).collect();
                let expected: Vec<u64> =
                    (start..=start + more).filter(|byte| bytes.insert(*byte)).collect();
                prop_assert_eq!(new, expected);
            }
        }
    }

    #[test]
    fn the_last_byte_has_none_behind_it() {
        let mut covered = RangeSet::default();
        assert_eq!(covered.add(Extent { start: 5, end: u64::MAX }).len(), 1);
        assert_eq!(covered.add(Extent::ALL), [Extent { start: 0, end: 4 }]);
        assert_eq!(covered.add(Extent::ALL), []);
    }
}
