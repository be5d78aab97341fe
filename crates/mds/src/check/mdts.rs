//! Which MDT has what, as their stores say: the tables of sequences, and the records of changes over several MDTs.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use sheen_store::{Store, StoreError, all_entries};
use sheen_target::ChangesAtRest;
use sheen_types::{ChangeId, Fid, MdtIndex, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};

use crate::sequences::{NEXT_KEY, RANGES};

/// An MDT that does not run.
#[derive(Clone, Copy)]
pub struct MdtAtRest<'a> {
    /// Its number.
    pub mdt: MdtIndex,
    /// Its store.
    pub store: &'a dyn Store,
    /// All objects in it, if they are known.
    pub objects: &'a [Fid],
    /// All indexes that have keys, if they are known.
    pub indexes: &'a [Fid],
}

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the store with this place among those that are checked.
    Here(usize),
    /// On an MDT whose store is not among them.
    Missing,
}

/// An error of the store of one of several MDTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedStore {
    /// Whose.
    pub mdt: MdtIndex,
    /// What has failed.
    pub error: StoreError,
}

impl fmt::Display for FailedStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MDT{:04x}: {}", self.mdt.0, self.error)
    }
}

/// For who has one store, or has named it.
impl From<FailedStore> for StoreError {
    fn from(failed: FailedStore) -> Self {
        failed.error
    }
}

/// Which store is read: the one that an error is of.
#[derive(Debug, Default)]
pub(crate) struct Reading(Cell<MdtIndex>);

impl Reading {
    pub(crate) fn mdt(&self) -> MdtIndex {
        self.0.get()
    }

    pub(crate) fn note(&self, mdt: MdtIndex) {
        self.0.set(mdt);
    }
}

/// A fault that is not one of a name: the MDT that shows it, what is to be named by it, and what is wrong.
pub(crate) type Said = (MdtIndex, Fid, String);

/// All that are checked.
pub(crate) struct Mdts<'a> {
    pub(super) all: &'a [MdtAtRest<'a>],
    reading: &'a Reading,
    /// Of each its table of sequences.
    tables: Vec<Vec<LuSeqRange>>,
    /// The ranges of MDTs that any of them knows, in the order of their sequences.
    ranges: Vec<LuSeqRange>,
    /// Entries of tables that cannot be read.
    unreadable: Vec<Said>,
}

impl<'a> Mdts<'a> {
    /// Reads their tables; what is wrong with those.
    ///
    /// # Errors
    /// Those of the stores.
    pub(crate) fn load(
        all: &'a [MdtAtRest<'a>],
        reading: &'a Reading,
    ) -> Result<(Self, Vec<Said>), StoreError> {
        let (mut tables, mut faults, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        for mdt in all {
            reading.note(mdt.mdt);
            let table = table_of(mdt, &mut unreadable)?;
            overlaps(mdt.mdt, &table, &mut faults);
            tables.push(table);
        }
        let of_mdts = tables.iter().flatten().filter(|it| it.flags == SeqRangeFlags::MDT);
        let mut ranges: Vec<LuSeqRange> = of_mdts.cloned().collect();
        ranges.sort_by_key(|range| (range.start, range.end, range.index));
        ranges.dedup();
        faults.extend(unreadable.iter().cloned());
        let mdts = Self { all, reading, tables, ranges, unreadable };
        mdts.differ_from_controller(&mut faults);
        Ok((mdts, faults))
    }

    /// Some of which nothing is known of other MDTs.
    pub(crate) fn unknown(all: &'a [MdtAtRest<'a>], reading: &'a Reading) -> Self {
        let (tables, ranges, unreadable) = Default::default();
        Self { all, reading, tables, ranges, unreadable }
    }

    /// The store at a place, to be read now.
    pub(crate) fn store(&self, at: usize) -> &'a dyn Store {
        self.reading.note(self.all[at].mdt);
        self.all[at].store
    }

    /// Whether the store of an MDT that any of them knows is not among them.
    pub(super) fn are_some_missing(&self) -> bool {
        !self.missing().is_empty()
    }

    /// The numbers of MDTs that any of them knows, and of MDT0000, whose stores are not among them. A table that is
    /// damaged may have numbers that no MDT has.
    pub(crate) fn missing(&self) -> BTreeSet<u32> {
        let known = self.ranges.iter().map(|range| range.index).chain([0]);
        known.filter(|index| self.of(*index).is_none()).collect()
    }

    fn of(&self, index: u32) -> Option<usize> {
        self.all.iter().position(|it| u32::from(it.mdt.0) == index)
    }

    fn range_of(&self, sequence: u64) -> Option<&LuSeqRange> {
        self.ranges.iter().find(|range| range.contains(sequence))
    }

    /// Where an inode lies. What is in no known range is looked for.
    pub(crate) fn home(&self, fid: Fid) -> Home {
        let index = match fid.seq {
            fid_seq::ROOT | fid_seq::DOT_LUSTRE => Some(0),
            sequence => self.range_of(sequence).map(|range| range.index),
        };
        let here = match index {
            Some(index) => self.of(index),
            None => {
                let has = |it: &MdtAtRest| it.store.recorded_attributes(fid).is_ok();
                self.all.iter().position(has).or(Some(0))
            }
        };
        here.filter(|at| *at < self.all.len()).map_or(Home::Missing, Home::Here)
    }

    /// Why an inode of one of them may not have the FID that it has.
    pub(crate) fn misplaced(&self, at: usize, fid: Fid) -> Option<String> {
        let own = u32::from(self.all[at].mdt.0);
        let has_own = |range: &LuSeqRange| range.flags == SeqRangeFlags::MDT && range.index == own;
        // What is salvaged may have lost its table; then nothing can be said.
        if !fid.is_normal() || !self.tables[at].iter().any(has_own) {
            return None;
        }
        match self.range_of(fid.seq) {
            Some(range) if range.index == own => None,
            Some(range) => Some(format!("its sequence is one of MDT{:04x}", range.index)),
            None => Some("its sequence is in no range of any MDT".to_owned()),
        }
    }

    /// Each other MDT has its ranges from MDT0000. Where that only lacks one, its own table has lost it.
    fn differ_from_controller(&self, faults: &mut Vec<Said>) {
        let Some(first) = self.of(0) else { return };
        for (at, mdt) in self.all.iter().enumerate().filter(|(at, _)| *at != first) {
            let known = &self.tables[first];
            for range in self.tables[at].iter().filter(|range| !known.contains(range)) {
                let (whose, text) = match known.iter().any(|it| are_at_odds(it, range)) {
                    true => (mdt.mdt, format!("{}: MDT0000 does not have that", shown(range))),
                    false => {
                        let text = format!("its table lacks {}", shown(range));
                        (MdtIndex(0), format!("{text}, which MDT{:04x} has", mdt.mdt.0))
                    }
                };
                faults.push((whose, first_of(range), text));
            }
        }
    }

    /// Why it is uncertain on which MDT some inode lies, and whose table is to blame: what cannot be read may be any range, and
    /// of sequences of an MDT another target may not have a part. Of two tables MDT0000's is the right one.
    pub(crate) fn uncertainty(&self) -> Option<(MdtIndex, String)> {
        if let Some((mdt, _, what)) = self.unreadable.first() {
            return Some((*mdt, what.clone()));
        }
        let known = self.tables.iter().zip(self.all);
        let known = known.flat_map(|(table, mdt)| table.iter().map(|range| (range, mdt.mdt)));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(range, mdt)| (range.start, range.end, *mdt));
        let mut widest: Option<(&LuSeqRange, MdtIndex)> = None;
        for next in known {
            if let Some(before) = widest.filter(|before| are_at_odds(before.0, next.0)) {
                let whose = before.1.max(next.1);
                return Some((whose, format!("{} and {} overlap", shown(before.0), shown(next.0))));
            }
            widest = widest.filter(|before| before.0.end >= next.0.end).or(Some(next));
        }
        None
    }

    /// The changes over several MDTs that are not complete; what is wrong with those. One of which all participants have their
    /// parts is complete, as is one that any of them notes as such: its records are only not removed yet.
    ///
    /// # Errors
    /// Those of the stores.
    pub(super) fn changes(&self) -> Result<(BTreeSet<ChangeId>, Vec<Said>), StoreError> {
        let (mut incomplete, mut faults, mut known) = (BTreeSet::new(), Vec::new(), Vec::new());
        for mdt in self.all {
            self.reading.note(mdt.mdt);
            let changes = ChangesAtRest::load(mdt.store)?;
            for id in changes.unreadable() {
                incomplete.insert(*id);
                let text = format!("the record of change {id} over several MDTs cannot be read");
                faults.push((mdt.mdt, Fid::ZERO, text));
            }
            known.push(changes);
        }
        let mut seen = BTreeSet::new();
        for record in known.iter().flat_map(ChangesAtRest::records) {
            let is_noted = known.iter().any(|it| it.notes_as_complete(record.id));
            for part in &record.parts {
                let Some(at) = self.of(part.mdt.0.into()) else {
                    // Its MDT may have it, or never have got it.
                    incomplete.extend((!is_noted).then_some(record.id));
                    continue;
                };
                if known[at].has(record.id) {
                    continue;
                }
                incomplete.insert(record.id);
                if seen.insert((record.id, part.mdt)) {
                    let fid = part.updates.first().map_or(Fid::ZERO, |update| update.fid);
                    let text =
                        format!("its part of change {} over several MDTs is missing", record.id);
                    faults.push((part.mdt, fid, text));
                }
            }
        }
        Ok((incomplete, faults))
    }
}

pub(super) fn table_of(
    mdt: &MdtAtRest,
    faults: &mut Vec<Said>,
) -> Result<Vec<LuSeqRange>, StoreError> {
    let mut table = Vec::new();
    for entry in all_entries(mdt.store, RANGES, &[]) {
        let entry = entry?;
        if entry.key == NEXT_KEY {
            continue;
        }
        match LuSeqRange::decode(&mut Reader::new(&entry.value, ByteOrder::Little)) {
            Ok(range) => table.push(range),
            Err(error) => {
                let text = format!("an entry of its table of sequences cannot be read: {error}");
                faults.push((mdt.mdt, RANGES, text));
            }
        }
    }
    table.sort_by_key(|range| range.start);
    Ok(table)
}

fn overlaps(mdt: MdtIndex, table: &[LuSeqRange], faults: &mut Vec<Said>) {
    for pair in table.windows(2) {
        let [one, other] = pair else { continue };
        if other.start < one.end {
            let text = format!("{} and {} overlap", shown(one), shown(other));
            faults.push((mdt, first_of(other), text));
        }
    }
}

/// Whether two ranges have sequences in common that are an MDT's and another target's.
fn are_at_odds(one: &LuSeqRange, other: &LuSeqRange) -> bool {
    let is_of_mdt = |range: &LuSeqRange| range.flags == SeqRangeFlags::MDT;
    let is_same = (one.flags, one.index) == (other.flags, other.index);
    let meet = one.start < other.end && other.start < one.end;
    meet && !is_same && (is_of_mdt(one) || is_of_mdt(other))
}

fn first_of(range: &LuSeqRange) -> Fid {
    Fid::new(range.start, 0)
}

fn shown(range: &LuSeqRange) -> String {
    let kind = if range.flags == SeqRangeFlags::OST { "OST" } else { "MDT" };
    let LuSeqRange { start, end, index, .. } = range;
    format!("the sequences {start:#x} to {end:#x} of {kind}{index:04x}")
}
