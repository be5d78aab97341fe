//! What a mount counts of the calls to it, as Lustre's `llite.*.stats` shows it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_types::{CounterLine, Counters, Samples};

use super::extents_stats::ExtentsStats;
use crate::types::OpenCounts;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $line:expr,)+) => {
        /// A kind of call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $name,)+
        }

        /// In the order of [`Operation`], which is Lustre's.
        static LINES: &[CounterLine] = &[$($line,)+];
    };
}

operations! {
    /// Bytes handed out by reads.
    ReadBytes = CounterLine::bytes("read_bytes"),
    /// Bytes taken by writes.
    WriteBytes = CounterLine::bytes("write_bytes"),
    /// Reads of files.
    Read = CounterLine::time("read"),
    /// Writes to files.
    Write = CounterLine::time("write"),
    /// Control calls.
    Ioctl = CounterLine { name: "ioctl", unit: sheen_types::Unit::Requests },
    /// Opens of files and directories.
    Open = CounterLine::time("open"),
    /// Their ends.
    Close = CounterLine::time("close"),
    /// Searches for data or holes.
    Seek = CounterLine::time("seek"),
    /// Waits until data is durable.
    Fsync = CounterLine::time("fsync"),
    /// Parts of directories.
    Readdir = CounterLine::time("readdir"),
    /// Changes of attributes but the size.
    Setattr = CounterLine::time("setattr"),
    /// Changes of the size.
    Truncate = CounterLine::time("truncate"),
    /// File locks.
    Flock = CounterLine::time("flock"),
    /// Attributes and look-ups of names.
    Getattr = CounterLine::time("getattr"),
    /// Space reserved or freed.
    Fallocate = CounterLine::time("fallocate"),
    /// New files that are opened.
    Create = CounterLine::time("create"),
    /// Further names.
    Link = CounterLine::time("link"),
    /// Names of files removed.
    Unlink = CounterLine::time("unlink"),
    /// Symbolic links.
    Symlink = CounterLine::time("symlink"),
    /// New directories.
    Mkdir = CounterLine::time("mkdir"),
    /// Directories removed.
    Rmdir = CounterLine::time("rmdir"),
    /// New nodes.
    Mknod = CounterLine::time("mknod"),
    /// Names moved.
    Rename = CounterLine::time("rename"),
    /// Calls of `statfs(2)`.
    Statfs = CounterLine::time("statfs"),
    /// Extended attributes set.
    Setxattr = CounterLine::time("setxattr"),
    /// Extended attributes read.
    Getxattr = CounterLine::time("getxattr"),
    /// Names of extended attributes.
    Listxattr = CounterLine::time("listxattr"),
    /// Extended attributes removed.
    Removexattr = CounterLine::time("removexattr"),
    /// How often the file was opened lately, counted at each open.
    OpenCount = CounterLine { name: "opencount", unit: sheen_types::Unit::Depth },
    /// From a close to the next open.
    OpenCloseTime = CounterLine::time("openclosetime"),
}

/// The counts of one mount. The FUSE adapter, which takes the calls, counts them; what the kernel answers
/// from its caches is not counted.
pub struct Statistics {
    counters: Counters,
    extents: ExtentsStats,
    /// Whose calls alone count: which kind of number, in the upper half, and the number.
    tracked: AtomicU64,
}

/// Whose calls alone count (`stats_track_pid` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// Those of all processes.
    All,
    /// Those of a process.
    Process(u32),
    /// Those of the children of a process.
    Parent(u32),
    /// Those of a group.
    Group(u32),
}

impl Default for Statistics {
    fn default() -> Self {
        let tracked = AtomicU64::new(0);
        Self { counters: Counters::new(LINES), extents: ExtentsStats::default(), tracked }
    }
}

impl Statistics {
    /// Sizes and places of reads and writes.
    #[must_use]
    pub fn extents(&self) -> &ExtentsStats {
        &self.extents
    }

    /// Whose calls count.
    #[must_use]
    pub fn tracked(&self) -> Tracked {
        let packed = self.tracked.load(Ordering::Relaxed);
        let number = packed as u32;
        match packed >> 32 {
            1 => Tracked::Process(number),
            2 => Tracked::Parent(number),
            3 => Tracked::Group(number),
            _ => Tracked::All,
        }
    }

    /// From now on these calls alone count.
    pub fn track(&self, whose: Tracked) {
        let (kind, number) = match whose {
            Tracked::All => (0, 0),
            Tracked::Process(number) => (1, number),
            Tracked::Parent(number) => (2, number),
            Tracked::Group(number) => (3, number),
        };
        self.tracked.store(kind << 32 | u64::from(number), Ordering::Relaxed);
    }

    /// A call took so long.
    pub fn took(&self, operation: Operation, time: Duration) {
        self.counters.add(operation as usize, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts that so many bytes were moved; of a count without a measure, any number.
    pub fn add(&self, operation: Operation, value: u64) {
        self.counters.add(operation as usize, value);
    }

    /// An inode was opened.
    pub fn opened(&self, tally: OpenCounts) {
        self.add(Operation::OpenCount, tally.count.into());
        if let Some(time) = tally.closed_for {
            self.took(Operation::OpenCloseTime, time);
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        self.counters.samples()
    }

    /// Starts anew.
    pub fn clear(&self) {
        self.counters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_line() {
        let statistics = Statistics::default();
        statistics.add(Operation::ReadBytes, 4096);
        statistics.took(Operation::Removexattr, Duration::from_micros(7));
        let samples = statistics.samples();
        let names: Vec<_> = samples.iter().map(|sample| sample.line.name).collect();
        assert_eq!(names, ["read_bytes", "removexattr"]);
        assert_eq!((samples[0].sum, samples[1].squared), (4096, 49));
        assert_eq!(statistics.tracked(), Tracked::All);
        statistics.track(Tracked::Group(77));
        assert_eq!(statistics.tracked(), Tracked::Group(77));
    }
}
