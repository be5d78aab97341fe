//! On which MDT an inode is, by the sequence of its FID, as far as this client knows (Lustre: the FLD cache of a client).
//!
//! What always holds: ranges of sequences never move, so what MDT0000 has said of one is kept for ever, and no later
//! answer changes it. Where there is one MDT nothing is looked up, but what it answers for is noted: it stays there when
//! other MDTs come. Asking MDT0000 is [`crate::mdt`]'s.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use sheen_types::{Fid, MdtIndex};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};

/// Ranges that are kept. A file system of Lustre has one for each 2^30 sequences that a server was given; beyond this
/// those that were learnt are forgotten, and asked for again.
const RANGES_MAX: usize = 4096;

/// Which MDT has which sequences. Shared by all of a mount that needs to know.
#[derive(Debug)]
pub struct MdtLocations {
    first: MdtIndex,
    has_several: AtomicBool,
    /// The sequence of the last answer, which is in a range; 0 if none is. Most answers are of the sequence of the one
    /// before, and take no lock.
    last_answered: AtomicU64,
    /// By their first sequence: the first one behind, and the MDT.
    ranges: RwLock<BTreeMap<u64, (u64, MdtIndex)>>,
}

impl Default for MdtLocations {
    fn default() -> Self {
        Self::new(MdtIndex(0))
    }
}

impl MdtLocations {
    /// With one MDT, which has all inodes and, when there are more, the root.
    #[must_use]
    pub fn new(first: MdtIndex) -> Self {
        Self {
            first,
            has_several: AtomicBool::new(false),
            last_answered: AtomicU64::new(0),
            ranges: RwLock::default(),
        }
    }

    /// Whether there is more than one MDT.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.has_several.load(Ordering::Acquire)
    }

    /// From now on there is.
    pub(crate) fn note_several(&self) {
        self.has_several.store(true, Ordering::Release);
    }

    /// The MDT of an inode; `None` if it must be asked for. No RPC.
    #[must_use]
    pub fn known(&self, fid: Fid) -> Option<MdtIndex> {
        match self.has_several() && fid.is_normal() {
            true => self.of_sequence(fid.seq),
            // The root, and what else has a sequence of its own.
            false => Some(self.first),
        }
    }

    fn of_sequence(&self, sequence: u64) -> Option<MdtIndex> {
        let ranges = self.ranges.read();
        let (_, (end, mdt)) = ranges.range(..=sequence).next_back()?;
        (sequence < *end).then_some(*mdt)
    }

    /// Takes over what MDT0000 has answered about `sequence`; `None` if that says no MDT, or a range of which another one
    /// is known to have some.
    pub(crate) fn learn(&self, sequence: u64, range: &LuSeqRange) -> Option<MdtIndex> {
        let mdt = MdtIndex(u16::try_from(range.index).ok()?);
        if range.flags != SeqRangeFlags::MDT || !range.contains(sequence) {
            return None;
        }
        let mut ranges = self.ranges.write();
        let is_apart = |start: u64, end: u64| end <= range.start || range.end <= start;
        if ranges.iter().any(|(start, (end, of))| *of != mdt && !is_apart(*start, *end)) {
            return None;
        }
        if ranges.len() >= RANGES_MAX {
            ranges.clear();
            self.last_answered.store(0, Ordering::Relaxed);
        }
        ranges.retain(|start, (end, _)| is_apart(*start, *end));
        ranges.insert(range.start, (range.end, mdt));
        Some(mdt)
    }

    /// The first MDT has answered as the one that has an inode: it has all of that sequence.
    pub(crate) fn learn_answered(&self, fid: Fid) {
        if !fid.is_normal() || self.last_answered.load(Ordering::Relaxed) == fid.seq {
            return;
        }
        if self.of_sequence(fid.seq).is_none() {
            self.note_answered(fid);
        }
        // If the ranges are cleared meanwhile, the sequence is asked for, as all of them are.
        self.last_answered.store(fid.seq, Ordering::Relaxed);
    }

    fn note_answered(&self, fid: Fid) {
        let mdt = self.first;
        let (mut start, mut end) = (fid.seq, fid.seq.saturating_add(1));
        let mut ranges = self.ranges.write();
        // Clients get one sequence after the other: what lies side by side is one range.
        if let Some((before, (last, of))) = ranges.range(..start).next_back()
            && (*last, *of) == (start, mdt)
        {
            start = *before;
        }
        if let Some((behind, of)) = ranges.get(&end).copied()
            && of == mdt
        {
            ranges.remove(&end);
            end = behind;
        }
        if ranges.len() >= RANGES_MAX {
            ranges.clear();
            self.last_answered.store(0, Ordering::Relaxed);
        }
        ranges.insert(start, (end, mdt));
    }

    /// The ranges that are known: first sequence, the first one behind, and the MDT. For operators.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64, MdtIndex)> {
        self.ranges.read().iter().map(|(start, (end, mdt))| (*start, *end, *mdt)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Fid = Fid::new(0x2_4000_0401, 7);

    fn range(start: u64, end: u64, index: u32) -> LuSeqRange {
        LuSeqRange { start, end, index, flags: SeqRangeFlags::MDT }
    }

    #[test]
    fn one_mdt_has_everything_and_of_several_each_its_ranges() {
        let locations = MdtLocations::default();
        assert_eq!(locations.known(SECOND), Some(MdtIndex(0)));
        locations.note_several();
        assert_eq!(locations.known(SECOND), None, "it must be asked for");
        assert_eq!(locations.known(Fid::ROOT), Some(MdtIndex(0)));
        let super_range = range(0x2_4000_0400, 0x2_8000_0400, 1);
        assert_eq!(locations.learn(SECOND.seq, &super_range), Some(MdtIndex(1)));
        assert_eq!(locations.known(SECOND), Some(MdtIndex(1)));
        for outside in [0x2_4000_03ff, 0x2_8000_0400] {
            assert_eq!(locations.known(Fid::new(outside, 7)), None);
        }
    }

    #[test]
    fn an_answer_that_says_nothing_of_the_sequence_is_not_kept() {
        let locations = MdtLocations::default();
        locations.note_several();
        let ost = LuSeqRange { flags: SeqRangeFlags::OST, ..range(SECOND.seq, SECOND.seq + 1, 1) };
        for wrong in [ost, range(0, SECOND.seq, 1), range(SECOND.seq, SECOND.seq + 1, 1 << 16)] {
            assert_eq!(locations.learn(SECOND.seq, &wrong), None);
        }
        assert_eq!(locations.ranges(), []);
    }

    #[test]
    fn the_first_mdt_has_the_sequences_that_it_answers_for_also_when_more_come() {
        let locations = MdtLocations::default();
        let (first, second) = (MdtIndex(0), MdtIndex(1));
        let answered = |seq| locations.learn_answered(Fid::new(seq, 1));
        [0x2_0000_0401, 0x2_0000_0403].into_iter().for_each(answered);
        locations.note_several();
        assert_eq!(locations.known(Fid::new(0x2_0000_0403, 9)), Some(first));
        assert_eq!(locations.known(Fid::new(0x2_0000_0402, 9)), None);
        assert_eq!(
            locations.learn(SECOND.seq, &range(SECOND.seq, SECOND.seq + 1, 1)),
            Some(second)
        );
        [0x2_0000_0402, 0x2_0000_0405, SECOND.seq].into_iter().for_each(answered);
        let known = [
            (0x2_0000_0401, 0x2_0000_0404, first),
            (0x2_0000_0405, 0x2_0000_0406, first),
            (SECOND.seq, SECOND.seq + 1, second),
        ];
        assert_eq!(locations.ranges(), known);
    }

    #[test]
    fn answers_about_one_sequence_wait_for_no_lock() {
        let locations = MdtLocations::default();
        locations.learn_answered(SECOND);
        let held = locations.ranges.write();
        std::thread::scope(|scope| {
            let (done, is_done) = std::sync::mpsc::channel();
            let again = &locations;
            scope.spawn(move || {
                again.learn_answered(Fid::new(SECOND.seq, 8));
                done.send(()).unwrap();
            });
            let in_time = is_done.recv_timeout(std::time::Duration::from_secs(10));
            drop(held);
            assert_eq!(in_time, Ok(()));
        });
        assert_eq!(locations.ranges(), [(SECOND.seq, SECOND.seq + 1, MdtIndex(0))]);
    }

    #[test]
    fn a_range_of_one_mdt_never_becomes_another_ones() {
        let locations = MdtLocations::default();
        locations.note_several();
        locations.learn(SECOND.seq, &range(SECOND.seq, SECOND.seq + 1, 1));
        let known = locations.ranges();
        for taken in [range(0, u64::MAX, 2), range(SECOND.seq - 1, SECOND.seq + 10, 0)] {
            assert_eq!(locations.learn(SECOND.seq + 9, &taken), None);
        }
        assert_eq!(locations.ranges(), known);
        locations.learn(SECOND.seq + 9, &range(SECOND.seq - 1, SECOND.seq + 10, 1));
        assert_eq!(locations.ranges(), [(SECOND.seq - 1, SECOND.seq + 10, MdtIndex(1))]);
    }
}
