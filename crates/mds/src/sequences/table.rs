//! The table of super-ranges: which target has which sequences (Lustre: `fld_index.c`).
//!
//! On MDT0000, the controller, it is the truth, and ranges are added to it here. On any other MDT it holds what the
//! controller has said, which never changes: a range stays its target's for ever.
//!
//! Cost: to find a sequence O(log n) of the ranges; to find or to make a target's own a walk over all, which only servers
//! ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use sheen_store::{Store, StoreError, Transaction, all_entries};
use sheen_types::{Errno, Fid, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};

/// Index of ranges: first sequence, big-endian, to `LuSeqRange`; and the counter.
pub(crate) const RANGES: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x200);
/// Key of how far sequences have been given out: sorts behind all ranges.
pub(crate) const NEXT_KEY: &[u8] = b"\xff\xff\xff\xff\xff\xff\xff\xffnext";
/// Sequences in a super-range (`LUSTRE_SEQ_SUPER_WIDTH`).
pub(super) const SUPER_WIDTH: u64 = 1 << 30;

/// Ranges that one target may have, so that no server fills the table: 2^36 sequences, of which a mount takes one for each
/// 2^17 inodes that it makes.
pub(super) const RANGES_OF_TARGET_MAX: usize = 64;

/// See the module's documentation.
pub(crate) struct Table {
    store: Arc<dyn Store>,
    /// The MDT whose store this is.
    index: u16,
    /// In the order of their sequences.
    ranges: RwLock<Vec<LuSeqRange>>,
    /// Another MDT has one of them.
    has_other_mdts: AtomicBool,
}

impl Table {
    /// Reads it.
    ///
    /// # Errors
    /// Those of the store; [`StoreError::Corrupt`] for a range that is none.
    pub(super) fn load(store: Arc<dyn Store>, index: u16) -> Result<Self, StoreError> {
        let mut ranges = Vec::new();
        for entry in all_entries(&*store, RANGES, &[]) {
            let entry = entry?;
            if entry.key != NEXT_KEY {
                let mut reader = Reader::new(&entry.value, ByteOrder::Little);
                let range = LuSeqRange::decode(&mut reader);
                ranges.push(range.map_err(|error| {
                    StoreError::Corrupt(format!("a range of sequences: {error}"))
                })?);
            }
        }
        let this = Self { store, index, ranges: RwLock::default(), has_other_mdts: false.into() };
        ranges.iter().for_each(|range| this.note(range));
        *this.ranges.write() = ranges;
        Ok(this)
    }

    fn note(&self, range: &LuSeqRange) {
        if is_other_mdts(range, self.index) {
            self.has_other_mdts.store(true, Ordering::Release);
        }
    }

    /// The first range of a target, if it is known here.
    pub(super) fn known(&self, index: u32, kind: SeqRangeFlags) -> Option<LuSeqRange> {
        let ranges = self.ranges.read();
        ranges.iter().find(|range| is_of(range, index, kind)).cloned()
    }

    /// The ranges of a target, in the order in which it got them.
    pub(super) fn all_of(&self, index: u32, kind: SeqRangeFlags) -> Vec<LuSeqRange> {
        let ranges = self.ranges.read();
        ranges.iter().filter(|range| is_of(range, index, kind)).cloned().collect()
    }

    /// The range that holds a sequence, if it is known here.
    pub(super) fn find(&self, sequence: u64) -> Option<LuSeqRange> {
        let ranges = self.ranges.read();
        let behind = ranges.partition_point(|range| range.start <= sequence);
        let last = behind.checked_sub(1).and_then(|at| ranges.get(at));
        last.filter(|range| range.contains(sequence)).cloned()
    }

    /// Up to `most` ranges behind the one that begins at `start`, of those that `is_wanted`.
    pub(super) fn behind(
        &self,
        start: u64,
        most: usize,
        is_wanted: impl Fn(&LuSeqRange) -> bool,
    ) -> Vec<LuSeqRange> {
        let ranges = self.ranges.read();
        let first = ranges.partition_point(|range| range.start <= start);
        let behind = ranges.iter().skip(first).filter(|range| is_wanted(range));
        behind.take(most).cloned().collect()
    }

    /// Whether another MDT has a range, as far as is known here.
    pub(super) fn knows_other_mdts(&self) -> bool {
        self.has_other_mdts.load(Ordering::Acquire)
    }

    /// Whether the inodes of a sequence are another MDT's. An MDT knows its own ranges, and MDT0000 all: another MDT's may be so
    /// new that this one has not heard of it when a change puts a name of such an inode into a directory here.
    pub(super) fn is_other_mdts(&self, sequence: u64) -> bool {
        if self.index != 0 && matches!(sequence, fid_seq::ROOT | fid_seq::DOT_LUSTRE) {
            return true;
        }
        self.knows_other_mdts()
            && match self.find(sequence) {
                Some(range) => is_other_mdts(&range, self.index),
                None => self.index != 0 && sequence >= fid_seq::NORMAL,
            }
    }

    /// The first range of a target, a new one if it has none: the controller's. With `behind`, where one of its
    /// ranges ends, the one that it got next.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if it has as many as a target may, those of the store.
    pub(super) fn allocate(
        &self,
        index: u32,
        kind: SeqRangeFlags,
        behind: Option<u64>,
    ) -> Result<LuSeqRange, StoreError> {
        let mut ranges = self.ranges.write();
        let own = ranges.iter().filter(|range| is_of(range, index, kind));
        // Where none ends there nothing is meant by it.
        let last = behind.filter(|end| own.clone().any(|range| range.end == *end));
        let found = own.clone().find(|range| last.is_none_or(|end| range.start >= end));
        if let Some(found) = found {
            return Ok(found.clone());
        }
        if own.count() >= RANGES_OF_TARGET_MAX {
            tracing::error!(
                index,
                ?kind,
                "a target asks for more ranges of FIDs than one may have"
            );
            return Err(StoreError::NoSpace);
        }
        let start = ranges.last().map_or(fid_seq::NORMAL, |range| range.end);
        let end = start.checked_add(SUPER_WIDTH).ok_or(StoreError::NoSpace)?;
        let range = LuSeqRange { start, end, index, flags: kind };
        self.put(&mut ranges, std::slice::from_ref(&range))?;
        Ok(range)
    }

    /// Takes over what the controller has said. Not durable when this returns.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for what is no range, or is part of another one's; those of the store.
    pub(super) fn learn(&self, said: &[LuSeqRange]) -> Result<(), Errno> {
        let mut ranges = self.ranges.write();
        let mut new: Vec<LuSeqRange> = Vec::new();
        for range in said.iter().filter(|range| !is_known(&ranges, range)) {
            // In the order of their sequences, as the controller says them.
            let at = new.partition_point(|other| other.start < range.start);
            let is_sane = range.start >= fid_seq::NORMAL && range.start < range.end;
            if !is_sane || !is_free(&ranges, range) || !is_free(&new, range) {
                tracing::error!(?range, "MDT0000 says of sequences what cannot be");
                return Err(Errno::EPROTO);
            }
            new.insert(at, range.clone());
        }
        self.put(&mut ranges, &new).map_err(|error| error.errno())
    }

    fn put(&self, ranges: &mut Vec<LuSeqRange>, new: &[LuSeqRange]) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let mut transaction = Transaction::new();
        for range in new {
            let mut writer = Writer::with_capacity(LuSeqRange::SIZE);
            range.encode(&mut writer);
            let key = Bytes::copy_from_slice(&range.start.to_be_bytes());
            transaction.put(RANGES, key, writer.into_bytes());
        }
        self.store.apply(transaction)?;
        ranges.extend_from_slice(new);
        ranges.sort_by_key(|range| range.start);
        new.iter().for_each(|range| self.note(range));
        Ok(())
    }
}

/// Whether `ranges`, which are in the order of their sequences, have this one.
fn is_known(ranges: &[LuSeqRange], range: &LuSeqRange) -> bool {
    let at = ranges.partition_point(|other| other.start < range.start);
    ranges.get(at) == Some(range)
}

/// Whether none of `ranges`, which are in the order of their sequences and apart, has a sequence of this one.
fn is_free(ranges: &[LuSeqRange], range: &LuSeqRange) -> bool {
    let behind = ranges.partition_point(|other| other.start < range.end);
    let last = behind.checked_sub(1).and_then(|at| ranges.get(at));
    last.is_none_or(|last| last.end <= range.start)
}

fn is_of(range: &LuSeqRange, index: u32, kind: SeqRangeFlags) -> bool {
    range.index == index && range.flags == kind
}

fn is_other_mdts(range: &LuSeqRange, index: u16) -> bool {
    range.flags == SeqRangeFlags::MDT && range.index != u32::from(index)
}

#[cfg(test)]
mod tests {
    use sheen_store_mem::{MemOptions, StoreMem};

    use super::*;

    fn table(index: u16) -> Table {
        Table::load(Arc::new(StoreMem::new(MemOptions::default())), index).expect("loaded")
    }

    #[test]
    fn a_target_that_names_the_end_of_its_range_gets_the_next_one_and_again_the_same() {
        let (table, kind) = (table(0), SeqRangeFlags::MDT);
        let first = table.allocate(3, kind, None).expect("allocated");
        let other = table.allocate(4, kind, None).expect("allocated");
        let second = table.allocate(3, kind, Some(first.end)).expect("allocated");
        assert_eq!((first.start, other.start), (fid_seq::NORMAL, first.end));
        assert_eq!(second.start, other.end);
        assert_eq!(table.allocate(3, kind, Some(first.end)), Ok(second.clone()), "asked again");
        assert_eq!(table.allocate(3, kind, None), Ok(first.clone()));
        // What ends none of its ranges takes no range.
        for end in [0, first.end - 1, other.end, u64::MAX] {
            assert_eq!(table.allocate(3, kind, Some(end)), Ok(first.clone()), "{end:#x}");
        }
        assert_eq!(table.all_of(3, kind), [first, second]);
    }

    /// A server that names the end of each range that it got had ranges without end.
    #[test]
    fn a_target_gets_so_many_ranges_and_the_same_ones_after_a_restart() {
        let store: Arc<dyn Store> = Arc::new(StoreMem::new(MemOptions::default()));
        let table = Table::load(Arc::clone(&store), 0).expect("loaded");
        let kind = SeqRangeFlags::MDT;
        let mut ends = vec![None];
        for _ in 0..RANGES_OF_TARGET_MAX {
            let behind = ends.last().copied().flatten();
            ends.push(Some(table.allocate(3, kind, behind).expect("allocated").end));
        }
        let last = ends.pop().flatten();
        assert_eq!(table.allocate(3, kind, last), Err(StoreError::NoSpace));
        let other = table.allocate(4, kind, None).expect("of another target");
        let again = Table::load(store, 0).expect("loaded");
        assert_eq!(again.allocate(3, kind, last), Err(StoreError::NoSpace));
        let had = again.all_of(3, kind);
        assert_eq!(had.len(), RANGES_OF_TARGET_MAX);
        let asked = ends.iter().map(|behind| again.allocate(3, kind, *behind).expect("had"));
        assert_eq!(asked.collect::<Vec<_>>(), had, "each that it had, by what is before it");
        assert_eq!(again.find(other.start), Some(other));
    }

    #[test]
    fn the_range_of_a_sequence_is_found_with_gaps_between_ranges() {
        let table = table(0);
        let range = |start: u64, end: u64| LuSeqRange {
            start: fid_seq::NORMAL + start,
            end: fid_seq::NORMAL + end,
            index: start as u32,
            flags: SeqRangeFlags::OST,
        };
        let said = [range(10, 20), range(40, 50), range(20, 30)];
        table.learn(&said).expect("said");
        for sequence in 0..60 {
            let found = table.find(fid_seq::NORMAL + sequence);
            let expected = said.iter().find(|it| it.contains(fid_seq::NORMAL + sequence));
            assert_eq!(found.as_ref(), expected, "{sequence}");
        }
        for wrong in [range(0, 11), range(15, 16), range(29, 41), range(30, 41), range(9, 60)] {
            assert_eq!(table.learn(&[wrong]), Err(Errno::EPROTO));
        }
        // Of two that overlap each other none is taken.
        assert_eq!(table.learn(&[range(60, 70), range(65, 75)]), Err(Errno::EPROTO));
        assert_eq!(table.learn(&[range(65, 75), range(60, 70)]), Err(Errno::EPROTO));
        table.learn(&[range(30, 40), range(0, 10)]).expect("what is between");
        let wanted = |range: &LuSeqRange| range.index != 20;
        let behind = table.behind(fid_seq::NORMAL + 10, 2, wanted);
        assert_eq!(behind, [range(30, 40), range(40, 50)]);
    }

    #[test]
    fn what_the_controller_says_is_kept_unless_it_cannot_be() {
        let store: Arc<dyn Store> = Arc::new(StoreMem::new(MemOptions::default()));
        let table = Table::load(Arc::clone(&store), 2).expect("loaded");
        let range = |start: u64, end: u64, index| LuSeqRange {
            start: fid_seq::NORMAL + start,
            end: fid_seq::NORMAL + end,
            index,
            flags: SeqRangeFlags::MDT,
        };
        assert!(!table.is_other_mdts(fid_seq::NORMAL + 10));
        table.learn(&[range(10, 20, 0), range(0, 10, 2)]).expect("said");
        table.learn(&[range(0, 10, 2)]).expect("said again");
        for wrong in [range(15, 25, 1), range(20, 20, 1), range(30, 25, 1), range(0, 10, 1)] {
            assert_eq!(table.learn(&[wrong]), Err(Errno::EPROTO));
        }
        let below = LuSeqRange { start: fid_seq::ROOT, ..range(0, 10, 0) };
        assert_eq!(table.learn(&[below]), Err(Errno::EPROTO));
        let again = Table::load(store, 2).expect("loaded");
        assert_eq!(again.behind(0, 9, |_| true), [range(0, 10, 2), range(10, 20, 0)]);
        assert!(again.is_other_mdts(fid_seq::NORMAL + 10) && again.is_other_mdts(fid_seq::ROOT));
        assert!(!again.is_other_mdts(fid_seq::NORMAL));
    }

    /// A name of such an inode that came with a change was looked for on this MDT, and so not found.
    #[test]
    fn what_an_mdt_has_not_heard_of_is_another_ones() {
        let own = |index| LuSeqRange {
            start: fid_seq::NORMAL,
            end: fid_seq::NORMAL + 10,
            index,
            flags: SeqRangeFlags::MDT,
        };
        let unknown = fid_seq::NORMAL + 30;
        let second = table(1);
        second.learn(&[own(1)]).expect("said");
        assert!(!second.is_other_mdts(unknown), "it is the only one");
        let first = LuSeqRange { start: own(1).end, end: unknown, ..own(0) };
        second.learn(&[first]).expect("said");
        assert!(second.is_other_mdts(unknown) && !second.is_other_mdts(own(1).start));
        assert!(!second.is_other_mdts(fid_seq::NORMAL - 1), "no client has those");
        let controller = table(0);
        let known = [
            controller.allocate(0, SeqRangeFlags::MDT, None).expect("allocated"),
            controller.allocate(1, SeqRangeFlags::MDT, None).expect("allocated"),
        ];
        assert!(
            !controller.is_other_mdts(known[1].end) && controller.is_other_mdts(known[1].start)
        );
    }
}
