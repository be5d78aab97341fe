//! Sizes and places of reads and writes, by process, as Lustre's `extents_stats`, `extents_stats_per_process`
//! and `offset_stats` show them. Off by default; if on, one lock for each read and write.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Classes of sizes: up to 4 KiB, 8 KiB and so on (`LL_HIST_MAX`).
pub const SIZES: usize = 28;
/// Bits of the first class's size (`LL_HIST_START`).
const FIRST_BITS: u32 = 12;
/// Processes remembered (`LL_PROCESS_HIST_MAX`).
const PROCESSES_MAX: usize = 10;
/// Ranges remembered (`LL_OFFSET_HIST_MAX`).
const RANGES_MAX: usize = 100;

/// Calls by the class of their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Reads.
    pub reads: [u64; SIZES],
    /// Writes.
    pub writes: [u64; SIZES],
}

impl Sizes {
    fn add(&mut self, is_write: bool, length: u64) {
        let bits = u64::BITS - length.leading_zeros();
        let class = (bits.saturating_sub(FIRST_BITS) as usize).min(SIZES - 1);
        let counts = if is_write { &mut self.writes } else { &mut self.reads };
        counts[class] += 1;
    }
}

/// Calls of one process on one file that went on where the one before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Whether it is written.
    pub is_write: bool,
    /// The process.
    pub pid: u32,
    file: u64,
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// Bytes of the smallest call.
    pub smallest: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// How far behind the range before it begins.
    pub offset: i64,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Of all processes.
    pub all: Sizes,
    /// Of the last few, by process.
    pub processes: Vec<(u32, Sizes)>,
    /// Ranges that have ended, then those that go on.
    pub ended: Vec<Range>,
    /// By process.
    pub current: Vec<Range>,
}

/// Counts, when it is on.
#[derive(Default)]
pub struct ExtentsStats {
    is_on: AtomicBool,
    counted: Mutex<Counted>,
}

impl ExtentsStats {
    /// A read or write of `length` bytes at `offset`, by a process on an open file.
    pub fn moved(&self, pid: u32, file: u64, is_write: bool, (offset, length): (u64, u64)) {
        if !self.is_on.load(Ordering::Relaxed) || length == 0 {
            return;
        }
        let mut counted = self.counted.lock();
        counted.all.add(is_write, length);
        counted.of_process(pid).add(is_write, length);
        let (end, smallest, largest) = (offset.saturating_add(length), length, length);
        let new = Range { is_write, pid, file, start: offset, end, smallest, largest, offset: 0 };
        counted.follow(new);
    }

    /// What was counted; `None` while it is off.
    #[must_use]
    pub fn counted(&self) -> Option<Counted> {
        self.is_on.load(Ordering::Relaxed).then(|| self.counted.lock().clone())
    }

    /// Turns it on or off, and begins anew.
    pub fn set(&self, on: bool) {
        *self.counted.lock() = Counted::default();
        self.is_on.store(on, Ordering::Relaxed);
    }
}

impl Counted {
    fn of_process(&mut self, pid: u32) -> &mut Sizes {
        let index = self.processes.iter().position(|(known, _)| *known == pid);
        let index = index.unwrap_or_else(|| {
            if self.processes.len() == PROCESSES_MAX {
                self.processes.remove(0);
            }
            self.processes.push((pid, Sizes::default()));
            self.processes.len() - 1
        });
        &mut self.processes[index].1
    }

    fn follow(&mut self, new: Range) {
        let known = self.current.iter_mut().find(|range| range.pid == new.pid);
        let Some(range) = known else {
            if self.current.len() == PROCESSES_MAX {
                self.current.remove(0);
            }
            self.current.push(new);
            return;
        };
        if range.file != new.file {
            *range = new;
        } else if range.end != new.start {
            let offset = new.start.wrapping_sub(range.end).cast_signed();
            let ended = std::mem::replace(range, Range { offset, ..new });
            if self.ended.len() == RANGES_MAX {
                self.ended.remove(0);
            }
            self.ended.push(ended);
        } else {
            range.end = new.end;
            range.smallest = range.smallest.min(new.smallest);
            range.largest = range.largest.max(new.largest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ranges_are_counted_by_process() {
        let extents = ExtentsStats::default();
        extents.moved(1, 7, false, (0, 4096));
        assert!(extents.counted().is_none());
        extents.set(true);
        extents.moved(1, 7, true, (0, 4095));
        extents.moved(1, 7, true, (4095, 1 << 20));
        extents.moved(1, 7, false, (100, 8192));
        extents.moved(2, 8, false, (0, 4096));
        let counted = extents.counted().expect("on");
        assert_eq!((counted.all.writes[0], counted.all.writes[9]), (1, 1));
        assert_eq!((counted.all.reads[1], counted.all.reads[2]), (1, 1));
        assert_eq!(counted.processes.len(), 2);
        let ended = counted.ended[0];
        assert_eq!((ended.is_write, ended.start, ended.end), (true, 0, 4095 + (1 << 20)));
        assert_eq!((ended.smallest, ended.largest, ended.offset), (4095, 1 << 20, 0));
        assert_eq!(counted.current[0].offset, 100 - 4095 - (1 << 20));
        extents.set(true);
        assert!(extents.counted().is_some_and(|counted| counted.processes.is_empty()));
    }
}
