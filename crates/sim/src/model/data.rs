//! Bytes: files in cells, each a register of the write that filled it; and logs that only grow.

use std::collections::BTreeMap;

use sheen_types::{Fid, Instant};

use super::{Register, Stale, Writer};

/// Bytes of a cell: less than a page, so that pages are shared between writers.
pub(crate) const CELL: usize = 256;

/// What a cell holds: the operation that wrote it; 0 for zeros, or nothing.
type Tag = u64;

/// The bytes of `count` cells from `first` on, written by `operation`.
pub(crate) struct Cells;

impl Cells {
    /// Makes them: each word is the operation's number and the cell's.
    pub(crate) fn fill(operation: u64, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count as usize * CELL);
        for cell in first..first + count {
            for _ in 0..CELL / 16 {
                bytes.extend(operation.to_le_bytes());
                bytes.extend(cell.to_le_bytes());
            }
        }
        bytes
    }

    /// Who wrote a whole cell, and its number then; 0 and 0 for zeros.
    ///
    /// # Errors
    /// Its bytes are of several writes.
    pub(crate) fn tag(bytes: &[u8]) -> Result<(u64, u64), Stale> {
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let first = (word(0), word(8));
        for at in (16..CELL).step_by(16) {
            if (word(at), word(at + 8)) != first {
                let here = (word(at), word(at + 8));
                return Err(Stale(format!("torn: {first:?} and at byte {at} {here:?}")));
            }
        }
        Ok(first)
    }
}

/// One file.
#[derive(Default)]
struct File {
    cells: BTreeMap<u64, Register<Tag>>,
    /// Truncations: the first cell that is removed, operation, by, begin and end.
    cuts: Vec<(u64, u64, Writer, Instant, Option<Instant>)>,
    size: Size,
}

/// How large a file can be.
#[derive(Default)]
struct Size {
    /// Ends that were asked for, in bytes; by which operation, and when it had succeeded.
    ends: Vec<(u64, u64, Option<Instant>)>,
    /// Truncates that are under way, if there was no fault since they began.
    cutting: Vec<u64>,
    /// Truncates that have succeeded and that no fault can have undone: size, begin and end.
    cuts: Vec<(u64, Instant, Instant)>,
}

impl Size {
    /// `operation` asks for bytes up to `end`.
    fn reach(&mut self, end: u64, operation: u64) {
        self.ends.push((end, operation, None));
    }

    /// It has succeeded.
    fn reached(&mut self, operation: u64, now: Instant) {
        let ends = self.ends.iter_mut().rev().filter(|(_, of, _)| *of == operation);
        ends.for_each(|(_, _, done)| *done = done.or(Some(now)));
    }

    /// `operation`, which began then, has truncated it.
    fn was_cut(&mut self, size: u64, operation: u64, (begin, end): (Instant, Instant)) {
        if let Some(at) = self.cutting.iter().position(|of| *of == operation) {
            self.cutting.swap_remove(at);
            self.cuts.push((size, begin, end));
        }
    }

    /// A fault: truncates may be undone.
    fn doubt(&mut self) {
        self.cutting.clear();
        self.cuts.clear();
    }

    /// The largest that a reader may see who begins to look at `begin`: what the latest truncate before left,
    /// and whatever may have come behind it.
    fn max(&self, begin: Instant) -> u64 {
        let largest = |since: Instant| {
            let after = self.ends.iter().filter(|(.., done)| done.is_none_or(|done| done >= since));
            after.map(|(end, ..)| *end).max().unwrap_or(0)
        };
        let before = self.cuts.iter().filter(|(.., end)| *end < begin);
        let cut = before.map(|(size, since, _)| largest(*since).max(*size)).min();
        cut.unwrap_or_else(|| largest(Instant(0)))
    }
}

impl File {
    fn cell(&mut self, cell: u64) -> &mut Register<Tag> {
        let cuts = &self.cuts;
        self.cells.entry(cell).or_insert_with(|| {
            let mut register = Register::new(0);
            for (_, operation, by, begin, end) in cuts.iter().filter(|(from, ..)| cell >= *from) {
                register.begin(Some(0), *operation, *by, *begin);
                if let Some(end) = end {
                    register.end(*operation, *end);
                }
            }
            register
        })
    }
}

/// All files by FID.
#[derive(Default)]
pub(crate) struct Files {
    files: BTreeMap<Fid, File>,
}

impl Files {
    /// `operation` begins to write cells.
    pub(crate) fn begin_write(
        &mut self,
        file: Fid,
        cells: std::ops::Range<u64>,
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        let file = self.files.entry(file).or_default();
        file.size.reach(cells.end * CELL as u64, operation);
        for cell in cells {
            file.cell(cell).begin(Some(operation), operation, by, now);
        }
    }

    /// `operation` begins to make zeros of cells.
    pub(crate) fn begin_punch(
        &mut self,
        file: Fid,
        cells: std::ops::Range<u64>,
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        let file = self.files.entry(file).or_default();
        for cell in cells {
            file.cell(cell).begin(Some(0), operation, by, now);
        }
    }

    /// It has succeeded.
    pub(crate) fn end_write(
        &mut self,
        file: Fid,
        cells: std::ops::Range<u64>,
        operation: u64,
        now: Instant,
    ) {
        let file = self.files.entry(file).or_default();
        file.size.reached(operation, now);
        cells.for_each(|cell| file.cell(cell).end(operation, now));
    }

    /// `operation` begins to set the size to `cells`.
    pub(crate) fn begin_truncate(
        &mut self,
        file: Fid,
        cells: u64,
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        let file = self.files.entry(file).or_default();
        file.size.reach(cells * CELL as u64, operation);
        file.size.cutting.push(operation);
        for (_, register) in file.cells.range_mut(cells..) {
            register.begin(Some(0), operation, by, now);
        }
        file.cuts.push((cells, operation, by, now, None));
    }

    /// It has succeeded.
    pub(crate) fn end_truncate(&mut self, file: Fid, cells: u64, operation: u64, now: Instant) {
        let file = self.files.entry(file).or_default();
        file.size.reached(operation, now);
        if let Some(cut) = file.cuts.iter_mut().find(|cut| cut.1 == operation) {
            cut.4 = Some(now);
            file.size.was_cut(cells * CELL as u64, operation, (cut.3, now));
        }
        file.cells.range_mut(cells..).for_each(|(_, register)| register.end(operation, now));
    }

    /// It was refused before anything was changed.
    pub(crate) fn refused(&mut self, file: Fid, operation: u64) {
        let file = self.files.entry(file).or_default();
        file.cuts.retain(|cut| cut.1 != operation);
        file.cells.values_mut().for_each(|register| register.refused(operation));
    }

    /// `bytes` were read where `wanted` were asked for, from cell `first` on.
    ///
    /// # Errors
    /// They cannot have been so.
    pub(crate) fn read(
        &mut self,
        fid: Fid,
        first: u64,
        wanted: u64,
        bytes: &[u8],
        begin: Instant,
        end: Instant,
    ) -> Result<(), Stale> {
        let file = self.files.entry(fid).or_default();
        if !bytes.len().is_multiple_of(CELL) {
            return Err(Stale(format!(
                "{fid}: {} bytes read, which no write ends at",
                bytes.len()
            )));
        }
        for cell in first..first + wanted {
            let at = (cell - first) as usize * CELL;
            let place = |text: String| Stale(format!("{fid} cell {cell}: {text}"));
            let (tag, number) = match bytes.get(at..at + CELL) {
                Some(bytes) => Cells::tag(bytes).map_err(|Stale(text)| place(text))?,
                None => (0, cell),
            };
            if tag != 0 && number != cell {
                return Err(place(format!("holds cell {number} of operation {tag}")));
            }
            if tag == 0 && !file.cells.contains_key(&cell) {
                continue;
            }
            let register = file.cell(cell);
            register
                .read(begin, end, Some(tag), |held| held == tag)
                .map_err(|Stale(text)| place(format!("read {tag}: {text}")))?;
        }
        Ok(())
    }

    /// A size was seen.
    ///
    /// # Errors
    /// Bytes lie beyond it, or no write went so far since it was truncated.
    pub(crate) fn saw_size(
        &mut self,
        fid: Fid,
        size: u64,
        begin: Instant,
        end: Instant,
    ) -> Result<(), Stale> {
        let file = self.files.entry(fid).or_default();
        let size_max = file.size.max(begin);
        if size > size_max {
            return Err(Stale(format!("{fid}: {size} bytes, no write went beyond {size_max}")));
        }
        for (cell, register) in file.cells.range(size.div_ceil(CELL as u64)..) {
            if !register.may_be(begin, end, |tag| tag == 0) {
                return Err(Stale(format!("{fid}: {size} bytes, but cell {cell} was written")));
            }
        }
        Ok(())
    }

    /// What `by` wrote into `file` before `begin` is durable; see [`Register::durable`].
    pub(crate) fn durable(
        &mut self,
        file: Fid,
        by: Writer,
        (begin, now): (Instant, Instant),
        own: &[u64],
    ) {
        if let Some(file) = self.files.get_mut(&file) {
            file.cells.values_mut().for_each(|register| register.durable(by, begin, now, own));
        }
    }

    /// All files that were written or truncated.
    pub(crate) fn fids(&self) -> impl Iterator<Item = Fid> {
        self.files.keys().copied()
    }

    /// Its objects are as they were then, or later: see [`Register::restore`].
    pub(crate) fn restore(&mut self, file: Fid, since: Instant) {
        if let Some(file) = self.files.get_mut(&file) {
            file.size.doubt();
            file.cells.values_mut().for_each(|register| register.restore(since));
        }
    }

    /// What was written to a file since then may be lost: see [`Register::doubt_since`].
    pub(crate) fn doubt_since(&mut self, file: Fid, since: Instant) {
        if let Some(file) = self.files.get_mut(&file) {
            if file.cuts.iter().any(|(.., begin, _)| *begin >= since) {
                file.size.doubt();
            }
            file.cells.values_mut().for_each(|register| register.doubt_since(since));
        }
    }

    /// An error of a disk: see [`Register::shake`].
    pub(crate) fn shake(&mut self) {
        for file in self.files.values_mut() {
            file.size.doubt();
            file.cells.values_mut().for_each(Register::shake);
        }
    }

    /// A crash: see [`Register::lose`].
    pub(crate) fn lose(&mut self, by: Option<Writer>) {
        for file in self.files.values_mut() {
            file.size.doubt();
            file.cells.values_mut().for_each(|register| register.lose(by));
        }
    }
}

/// One record of a log.
#[derive(Clone, Copy, Debug)]
struct Record {
    by: Writer,
    begin: Instant,
    /// When it was known to be there.
    end: Option<Instant>,
    durable: bool,
    may_be_lost: bool,
    /// An error of a disk may have lost it; who wrote it knows.
    shaken: bool,
}

impl Record {
    fn is_sure(&self) -> bool {
        !self.may_be_lost && !self.shaken
    }
}

/// Files that are only appended to, a cell at a time. A record is there once, in the order of those
/// that followed each other.
#[derive(Default)]
pub(crate) struct Log {
    files: BTreeMap<Fid, BTreeMap<u64, Record>>,
}

impl Log {
    /// `operation` begins to append a record.
    pub(crate) fn begin(&mut self, file: Fid, operation: u64, by: Writer, now: Instant) {
        let (durable, may_be_lost, shaken) = (false, false, false);
        let record = Record { by, begin: now, end: None, durable, may_be_lost, shaken };
        self.files.entry(file).or_default().insert(operation, record);
    }

    /// It has succeeded.
    pub(crate) fn end(&mut self, file: Fid, operation: u64, now: Instant) {
        if let Some(record) = self.files.entry(file).or_default().get_mut(&operation) {
            record.end = Some(now);
        }
    }

    /// The whole log was read.
    ///
    /// # Errors
    /// A record is missing, there twice, torn or out of order.
    pub(crate) fn read(&mut self, fid: Fid, bytes: &[u8], begin: Instant) -> Result<(), Stale> {
        let stale = |text: String| Stale(format!("log {fid}: {text}"));
        let records = self.files.entry(fid).or_default();
        if !bytes.len().is_multiple_of(CELL) {
            return Err(stale(format!("{} bytes", bytes.len())));
        }
        let mut found = std::collections::BTreeSet::new();
        let mut latest = Instant(0);
        for (at, cell) in bytes.chunks(CELL).enumerate() {
            let (tag, _) = Cells::tag(cell).map_err(|Stale(text)| stale(text))?;
            // There is a hole where a record was lost in a crash.
            if tag == 0 && !records.values().all(Record::is_sure) {
                continue;
            }
            let Some(record) = records.get(&tag) else {
                return Err(stale(format!("record {at} is of operation {tag}")));
            };
            if !found.insert(tag) {
                return Err(stale(format!("operation {tag} is there twice")));
            }
            if record.end.is_some_and(|end| end < latest) && record.is_sure() {
                return Err(stale(format!("operation {tag} stands behind one that came later")));
            }
            latest = latest.max(record.begin);
        }
        for (operation, record) in records.iter() {
            let must = record.end.is_some_and(|end| end < begin) && record.is_sure();
            if must && !found.contains(operation) {
                return Err(stale(format!("operation {operation} is missing: {record:?}")));
            }
        }
        Ok(())
    }

    /// What `by` appended before `begin` is durable; see [`Register::durable`].
    pub(crate) fn durable(&mut self, file: Fid, by: Writer, begin: Instant, own: &[u64]) {
        for (operation, record) in self.files.entry(file).or_default() {
            let known = record.is_sure() || (own.contains(operation) && !record.may_be_lost);
            if record.by == by && record.end.is_some_and(|end| end < begin) && known {
                (record.durable, record.shaken) = (true, false);
            }
        }
    }

    /// All logs.
    pub(crate) fn fids(&self) -> impl Iterator<Item = Fid> {
        self.files.keys().copied()
    }

    /// Its objects are older ones: any record may be lost.
    pub(crate) fn restore(&mut self, log: Fid) {
        for record in self.files.get_mut(&log).into_iter().flat_map(BTreeMap::values_mut) {
            (record.durable, record.may_be_lost) = (false, true);
        }
    }

    /// What was appended to a log since then may be lost, and its writer gets an error.
    pub(crate) fn doubt_since(&mut self, log: Fid, since: Instant) {
        for record in self.files.get_mut(&log).into_iter().flat_map(BTreeMap::values_mut) {
            record.shaken |= !record.durable && record.begin >= since;
        }
    }

    /// An error of a disk: records that were not durable may be lost, and their writers get an error.
    pub(crate) fn shake(&mut self) {
        for record in self.files.values_mut().flat_map(BTreeMap::values_mut) {
            record.shaken |= !record.durable;
        }
    }

    /// A crash: records that were not durable may be lost.
    pub(crate) fn lose(&mut self, by: Option<Writer>) {
        for record in self.files.values_mut().flat_map(BTreeMap::values_mut) {
            let concerned = by.is_none_or(|by| record.by == by);
            record.may_be_lost |= concerned && !record.durable;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(0x200000400, 1);

    fn at(second: u64) -> Instant {
        Instant(second)
    }

    #[test]
    fn cells_name_their_writer() {
        let bytes = Cells::fill(7, 3, 2);
        assert_eq!(Cells::tag(&bytes[CELL..]).unwrap(), (7, 4));
        assert!(Cells::tag(&bytes[CELL / 2..]).is_err());
    }

    #[test]
    fn a_truncation_counts_for_cells_that_come_later() {
        let mut files = Files::default();
        files.begin_write(FILE, 0..2, 1, 0, at(1));
        files.end_write(FILE, 0..2, 1, at(2));
        files.begin_truncate(FILE, 1, 2, 0, at(3));
        files.end_truncate(FILE, 1, 2, at(4));
        let one = Cells::fill(1, 0, 2);
        assert!(files.read(FILE, 0, 2, &one[..CELL], at(5), at(6)).is_ok());
        assert!(files.read(FILE, 0, 2, &one, at(5), at(6)).is_err());
        assert!(files.saw_size(FILE, 256, at(5), at(6)).is_ok());
        assert!(files.saw_size(FILE, 0, at(5), at(6)).is_err());
    }

    #[test]
    fn who_looks_after_a_cut_sees_it_and_what_was_written_since() {
        let mut files = Files::default();
        files.begin_write(FILE, 0..9, 1, 0, at(1));
        files.end_write(FILE, 0..9, 1, at(2));
        files.begin_truncate(FILE, 4, 2, 0, at(3));
        assert!(files.saw_size(FILE, 9 * 256, at(4), at(4)).is_ok());
        files.end_truncate(FILE, 4, 2, at(4));
        assert!(files.saw_size(FILE, 9 * 256, at(4), at(5)).is_ok());
        assert!(files.saw_size(FILE, 5 * 256, at(5), at(6)).is_err());
        files.begin_write(FILE, 0..6, 3, 1, at(5));
        assert!(files.saw_size(FILE, 6 * 256, at(5), at(6)).is_ok());
        assert!(files.saw_size(FILE, 9 * 256, at(5), at(6)).is_err());
        files.lose(None);
        assert!(files.saw_size(FILE, 9 * 256, at(7), at(8)).is_ok());
    }

    #[test]
    fn a_log_keeps_order_and_number() {
        let mut log = Log::default();
        for operation in 1..=2 {
            log.begin(FILE, operation, 0, at(10 * operation));
            log.end(FILE, operation, at(10 * operation + 5));
        }
        let record = |operation| Cells::fill(operation, 0, 1);
        assert!(log.read(FILE, &[record(1), record(2)].concat(), at(50)).is_ok());
        assert!(log.read(FILE, &[record(2), record(1)].concat(), at(50)).is_err());
        assert!(log.read(FILE, &[record(1), record(1)].concat(), at(50)).is_err());
        assert!(log.read(FILE, &record(1), at(50)).is_err());
    }
}
