//! Bytes of an object that are held in memory, by where they belong.
//!
//! A map of runs that do not overlap. The bytes are shared with the caller that inserts or takes them;
//! nothing here copies.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes of a block: what an OST needs for any byte in it, and in which grant is counted.
pub(super) const BLOCK: u64 = 4096;

/// `start..end` widened to whole blocks. An OST of Lustre reads, changes and writes the pages of a write of
/// half ones, and two such writes of a page at once lose bytes of each other: a client has one under way at most.
pub(super) fn widened(start: u64, end: u64) -> (u64, u64) {
    (start / BLOCK * BLOCK, end.div_ceil(BLOCK).saturating_mul(BLOCK))
}

/// Runs of bytes by offset.
#[derive(Debug, Default)]
pub(super) struct Extents {
    runs: BTreeMap<u64, Bytes>,
    bytes: u64,
}

/// A run taken out.
pub(super) type Run = (u64, Bytes);

impl Extents {
    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The end of the last run; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(start, run)| start + run.len() as u64)
    }

    /// How many blocks that overlap `start..end` hold some byte.
    fn blocks_in(&self, start: u64, end: u64) -> u64 {
        let (first, last) = widened(start, end);
        let (mut blocks, mut counted) = (0, 0);
        self.each(first, last, |at, run| {
            let from = (at.max(first) / BLOCK).max(counted);
            counted = (at + run.len() as u64).min(last).div_ceil(BLOCK);
            blocks += counted.saturating_sub(from);
        });
        blocks
    }

    /// What inserting `length` bytes at `offset` would cost more: bytes of the blocks there that hold
    /// nothing yet.
    pub(super) fn cost_of(&self, offset: u64, length: u64) -> u64 {
        let end = offset + length;
        let all = end.div_ceil(BLOCK) - offset / BLOCK;
        (all - self.blocks_in(offset, end)) * BLOCK
    }

    /// Bytes of all blocks that hold some byte.
    pub(super) fn cost(&self) -> u64 {
        self.blocks_in(0, self.end()) * BLOCK
    }

    /// As [`Extents::remove`]; answers the bytes of the blocks that hold nothing any more.
    pub(super) fn release(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let end = end.min(self.end().max(start));
        let before = self.blocks_in(start, end);
        self.remove(start, end);
        (before - self.blocks_in(start, end)) * BLOCK
    }

    /// Puts `data` at `offset` in place of what was there; answers how many bytes it replaced.
    pub(super) fn insert(&mut self, offset: u64, data: Bytes) -> u64 {
        let replaced = self.remove(offset, offset + data.len() as u64);
        self.bytes += data.len() as u64;
        self.runs.insert(offset, data);
        replaced
    }

    /// Drops the bytes `start..end`; answers how many there were.
    pub(super) fn remove(&mut self, start: u64, end: u64) -> u64 {
        let mut removed = 0;
        while let Some((at, run)) = self.first_over(start, end) {
            self.runs.remove(&at);
            let run_end = at + run.len() as u64;
            let (cut_start, cut_end) = (start.max(at), end.min(run_end));
            if at < cut_start {
                self.runs.insert(at, run.slice(..(cut_start - at) as usize));
            }
            if cut_end < run_end {
                self.runs.insert(cut_end, run.slice((cut_end - at) as usize..));
            }
            removed += cut_end - cut_start;
        }
        self.bytes -= removed;
        removed
    }

    /// Whether any byte of `start..end` is here.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.first_over(start, end).is_some()
    }

    /// Calls `take` with each run in `start..end`, clipped to it, in order.
    pub(super) fn over(&self, start: u64, end: u64, mut take: impl FnMut(u64, Bytes)) {
        self.each(start, end, |at, run| {
            let run_end = at + run.len() as u64;
            let (cut_start, cut_end) = (start.max(at), end.min(run_end));
            take(cut_start, run.slice((cut_start - at) as usize..(cut_end - at) as usize));
        });
    }

    /// Calls `see` with each run that overlaps `start..end`, whole, in order.
    fn each(&self, start: u64, end: u64, mut see: impl FnMut(u64, &Bytes)) {
        if start >= end {
            return;
        }
        let before = self.runs.range(..start).next_back();
        let before = before.filter(|(at, run)| *at + run.len() as u64 > start);
        for (at, run) in before.into_iter().chain(self.runs.range(start..end)) {
            see(*at, run);
        }
    }

    /// Takes the first runs in `range` out: at most `bytes`, in at most `groups` groups of runs
    /// that touch, and none for which `skip` says so. Answers the bytes of the blocks that hold
    /// nothing any more, too.
    ///
    /// With `needs_whole_pages` two groups never share a block: an OST of Lustre locks a page for each piece of a write that
    /// lies in it, and would wait for itself. Where `bytes` are less than there are, what is taken ends with a
    /// block if it can, so that the rest need not wait for it.
    pub(super) fn take(
        &mut self,
        range: (u64, u64),
        bytes: u64,
        groups: usize,
        needs_whole_pages: bool,
        skip: impl Fn(u64, u64) -> bool,
    ) -> (Vec<Run>, u64) {
        let mut taken: Vec<Run> = Vec::new();
        let (mut left, mut groups_left, mut last_end) = (bytes, groups, None);
        self.over(range.0, range.1, |at, run| {
            let touches = last_end == Some(at);
            let shares_block = last_end.is_some_and(|end| (end - 1) / BLOCK == at / BLOCK);
            if needs_whole_pages && shares_block && !touches {
                return;
            }
            if left == 0 || (!touches && groups_left == 0) || skip(at, at + run.len() as u64) {
                return;
            }
            let run = run.slice(..run.len().min(left as usize));
            left -= run.len() as u64;
            groups_left -= usize::from(!touches);
            last_end = Some(at + run.len() as u64);
            taken.push((at, run));
        });
        let is_cut = |end: &u64| needs_whole_pages && left == 0 && self.overlaps(*end, end + 1);
        if let Some(end) = last_end.filter(is_cut) {
            end_at(&mut taken, end / BLOCK * BLOCK);
        }
        let released = taken.iter().map(|(at, run)| self.release(*at, at + run.len() as u64)).sum();
        (taken, released)
    }

    fn first_over(&self, start: u64, end: u64) -> Option<Run> {
        if start >= end {
            return None;
        }
        let before = self.runs.range(..start).next_back();
        let before = before.filter(|(at, run)| *at + run.len() as u64 > start);
        let found = before.or_else(|| self.runs.range(start..end).next());
        found.map(|(at, run)| (*at, run.clone()))
    }
}

/// Cuts off what lies behind `end`, unless nothing is left then.
fn end_at(taken: &mut Vec<Run>, end: u64) {
    if taken.first().is_none_or(|(at, _)| *at >= end) {
        return;
    }
    taken.retain_mut(|(at, run)| {
        run.truncate(usize::try_from(end.saturating_sub(*at)).unwrap_or(usize::MAX));
        !run.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn shown(extents: &Extents) -> Vec<(u64, String)> {
        let mut runs = Vec::new();
        extents.over(0, u64::MAX, |at, run| {
            runs.push((at, String::from_utf8_lossy(&run).into_owned()));
        });
        runs
    }

    #[test]
    fn a_write_replaces_what_it_covers() {
        let mut extents = Extents::default();
        assert_eq!(extents.insert(0, bytes("aaaaaa")), 0);
        assert_eq!(extents.insert(2, bytes("bb")), 2);
        let expected = [(0, "aa".into()), (2, "bb".into()), (4, "aa".into())];
        assert_eq!(shown(&extents), expected);
        assert_eq!((extents.bytes(), extents.end()), (6, 6));
        assert_eq!(extents.remove(1, 5), 4);
        assert_eq!(shown(&extents), [(0, "a".into()), (5, "a".into())]);
    }

    #[test]
    fn taking_keeps_to_the_limits() {
        let mut extents = Extents::default();
        extents.insert(0, bytes("aaaa"));
        extents.insert(4, bytes("bbbb"));
        extents.insert(100, bytes("cccc"));
        let taken = extents.take((0, u64::MAX), 6, 1, true, |_, _| false);
        assert_eq!(taken, (vec![(0, bytes("aaaa")), (4, bytes("bb"))], 0), "a block is left half");
        assert_eq!(shown(&extents), [(6, "bb".into()), (100, "cccc".into())]);
        let taken = extents.take((0, u64::MAX), 100, 8, true, |start, _| start == 6);
        assert_eq!(taken.0, [(100, bytes("cccc"))]);
    }

    #[test]
    fn runs_of_one_block_that_do_not_touch_are_not_taken_together() {
        let mut extents = Extents::default();
        extents.insert(10, bytes("a"));
        extents.insert(11, bytes("b"));
        extents.insert(20, bytes("c"));
        extents.insert(BLOCK - 1, bytes("dd"));
        extents.insert(2 * BLOCK, bytes("e"));
        let take =
            |extents: &mut Extents| extents.take((0, u64::MAX), 100, 8, true, |_, _| false).0;
        let starts = |runs: Vec<Run>| runs.into_iter().map(|(at, _)| at).collect::<Vec<u64>>();
        assert_eq!(starts(take(&mut extents)), [10, 11, 2 * BLOCK]);
        assert_eq!(starts(take(&mut extents)), [20]);
        assert_eq!(starts(take(&mut extents)), [BLOCK - 1]);
        assert!(extents.is_empty());
    }

    #[test]
    fn where_pages_do_not_count_all_runs_go_together() {
        let mut extents = Extents::default();
        for number in 0..12 {
            extents.insert(100 + number * 1000, vec![1; 500].into());
        }
        let taken = extents.take((0, u64::MAX), 2900, 8, false, |_, _| false).0;
        let lengths: Vec<usize> = taken.iter().map(|(_, run)| run.len()).collect();
        assert_eq!(lengths, [500, 500, 500, 500, 500, 400]);
    }

    #[test]
    fn what_is_taken_of_more_ends_with_a_block() {
        let mut extents = Extents::default();
        for number in 0..12 {
            extents.insert(100 + number * 1000, vec![1; 1000].into());
        }
        let taken = extents.take((0, u64::MAX), 2 * BLOCK, 8, true, |_, _| false).0;
        let end = taken.last().map(|(at, run)| at + run.len() as u64);
        assert_eq!((taken[0].0, end), (100, Some(2 * BLOCK)));
        assert_eq!(extents.bytes(), 12_100 - 2 * BLOCK);
        let rest = extents.take((0, u64::MAX), 2 * BLOCK, 8, true, |_, _| false).0;
        assert_eq!(rest[0].0, 2 * BLOCK, "and what is taken of all is all");
        assert!(extents.is_empty());
    }

    #[test]
    fn a_block_counts_once_however_many_runs_it_holds() {
        let mut extents = Extents::default();
        assert_eq!(extents.cost_of(10, 1), BLOCK);
        extents.insert(10, bytes("a"));
        assert_eq!((extents.cost_of(20, 4), extents.cost_of(4095, 2)), (0, BLOCK));
        extents.insert(4095, bytes("bb"));
        extents.insert(3 * BLOCK, bytes("c"));
        assert_eq!(extents.cost(), 3 * BLOCK);
        assert_eq!(extents.release(0, 4095), 0, "the first block holds a byte still");
        assert_eq!(extents.release(4095, 4096), BLOCK);
        assert_eq!(extents.release(0, u64::MAX), 2 * BLOCK);
        assert_eq!((extents.cost(), extents.bytes()), (0, 0));
    }

    fn step() -> impl Strategy<Value = (u64, usize, bool)> {
        (0..64_u64, 1..16_usize, any::<bool>())
    }

    proptest! {
        #[test]
        fn cost_is_conserved(
            steps in proptest::collection::vec((0..5 * BLOCK, 1..3 * BLOCK, 0..3_u8), 1..40)
        ) {
            let (mut extents, mut charged) = (Extents::default(), 0);
            for (at, length, what) in steps {
                match what {
                    0 => {
                        charged += extents.cost_of(at, length);
                        extents.insert(at, vec![1; length as usize].into());
                    }
                    1 => charged -= extents.release(at, at + length),
                    _ => {
                        let (taken, released) = extents.take((at, u64::MAX), length, 2, true, |_, _| false);
                        charged -= released;
                        for pair in taken.windows(2) {
                            let (end, next) = (pair[0].0 + pair[0].1.len() as u64, pair[1].0);
                            prop_assert!(end == next || (end - 1) / BLOCK < next / BLOCK);
                        }
                    }
                }
                prop_assert_eq!(extents.cost(), charged);
            }
        }

        #[test]
        fn equals_an_array(steps in proptest::collection::vec(step(), 1..64)) {
            let mut extents = Extents::default();
            let mut model = vec![None; 96];
            for (number, (at, length, is_insert)) in steps.into_iter().enumerate() {
                let place = at as usize..at as usize + length;
                let held = model[place.clone()].iter().flatten().count() as u64;
                let fill = is_insert.then_some(number as u8);
                let gone = match is_insert {
                    true => extents.insert(at, vec![number as u8; length].into()),
                    false => extents.remove(at, at + length as u64),
                };
                prop_assert_eq!(gone, held);
                model[place].fill(fill);
            }
            let mut seen = vec![None; 96];
            extents.over(0, 96, |at, run| {
                for (index, byte) in run.iter().enumerate() {
                    seen[at as usize + index] = Some(*byte);
                }
            });
            prop_assert_eq!(extents.bytes(), model.iter().flatten().count() as u64);
            prop_assert_eq!(seen, model);
        }
    }
}
