//! What the next process of a mount needs of this one, should this one end while files are open.
//!
//! A [`RecordMemory`] is memory that outlives the process (Lustre has nothing like it: its client ends with the kernel).
//! A [`Record`] is in it from before the kernel or a server relies on what it says until after that has ended, so
//! that at any moment, also in the middle of a call, the next process finds all that it must go on with; it may
//! find too much: a node of which the kernel was not notified, an open whose answer was never sent.
//!
//! Cost of a record: one short lock and 64 bytes when it comes and one when it goes; a store for each change of
//! its number of lookups. No system call. Nothing at all without a keeper process.

use std::fmt;
use std::sync::Arc;

use sheen_rpc::FormerExport;
use sheen_types::{Fid, ObdHandle, Uuid};

use crate::types::{FileLock, FileLockMode, LockOwner, NodeId};

/// Words of a record. The first is never 0.
pub const RECORD_WORDS: usize = 8;
/// A record as it lies there.
pub type Words = [u64; RECORD_WORDS];

/// Words that the name of a target takes: 40 bytes, as on the wire.
const NAME_WORDS: usize = 5;
/// Where an inode's record has its lookups.
const LOOKUPS: usize = 4;

/// Memory that outlives the process.
pub trait RecordMemory: Send + Sync {
    /// Takes a record; answers its place. `None` if there is no room: the memory is of no use from then on, and
    /// says so to its reader.
    fn put(&self, words: &Words) -> Option<u32>;
    /// Changes one word of the record at a place, at once.
    fn set(&self, place: u32, word: usize, value: u64);
    /// Drops the record at a place.
    fn remove(&self, place: u32);
}

/// One thing that the next process needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The kernel knows this inode by its number.
    Inode {
        /// The number.
        node: NodeId,
        /// The inode.
        fid: Fid,
        /// Lookups that the kernel has not forgotten.
        lookups: u64,
    },
    /// It has this open.
    Open(OpenRecord),
    /// Bytes of this file were accepted and are not at its OSTs, or were lost and no program knows.
    Unflushed(Fid),
    /// A program holds this file lock.
    FileLock {
        /// The file.
        fid: Fid,
        /// Who.
        owner: LockOwner,
        /// Which bytes, and how.
        lock: FileLock,
    },
    /// Locks of a file were taken through this open handle: its last close ends them.
    FileLockOwner {
        /// The file.
        fid: Fid,
        /// Through what.
        locker: FileLockOwnerRecord,
    },
    /// A target knows the client by this.
    Export {
        /// The target.
        target: Uuid,
        /// What it calls the client.
        export: FormerExport,
    },
    /// New files got their FIDs from this sequence.
    Sequence(u64),
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The kernel's number for it.
    pub handle: u64,
    /// Of which inode.
    pub node: NodeId,
    /// The flags of `open(2)`.
    pub flags: u32,
    /// User and group that opened it.
    pub owner: (u32, u32),
    /// The process that did.
    pub pid: u32,
    /// Whether the kernel reports none of its closes but the last.
    pub sends_no_flush: bool,
    /// Whether it bypasses the kernel's pages.
    pub bypasses_page_cache: bool,
}

/// Who has taken locks through an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLockOwnerRecord {
    /// The kernel's number for the open file.
    pub handle: u64,
    /// Who.
    pub owner: LockOwner,
    /// Whether by `flock(2)`.
    pub is_flock: bool,
    /// The newest open file of the mount when it last did so.
    pub newest: u64,
}

/// The first word's lowest byte.
mod kind {
    pub(super) const INODE: u64 = 1;
    pub(super) const OPEN: u64 = 2;
    pub(super) const UNFLUSHED: u64 = 3;
    pub(super) const FILE_LOCK: u64 = 4;
    pub(super) const EXPORT: u64 = 5;
    pub(super) const SEQUENCE: u64 = 6;
    pub(super) const LOCKER: u64 = 7;
}

impl Record {
    fn to_words(&self) -> Words {
        let of_fid = |fid: &Fid| (fid.seq, pair(fid.oid, fid.ver));
        match self {
            Self::Inode { node, fid, lookups } => {
                let (seq, object) = of_fid(fid);
                [kind::INODE, node.0, seq, object, *lookups, 0, 0, 0]
            }
            Self::Open(open) => open.to_words(),
            Self::Unflushed(fid) => {
                let (seq, object) = of_fid(fid);
                [kind::UNFLUSHED, seq, object, 0, 0, 0, 0, 0]
            }
            Self::FileLock { fid, owner, lock } => {
                let (seq, object) = of_fid(fid);
                let mode = match lock.mode {
                    FileLockMode::Read => 1,
                    FileLockMode::Write => 2,
                    FileLockMode::Unlock => 0,
                };
                let first = kind::FILE_LOCK | mode << 8 | u64::from(lock.is_flock) << 16;
                [
                    first,
                    seq,
                    object,
                    owner.0,
                    lock.start,
                    lock.end,
                    lock.pid.into(),
                    lock.uid.into(),
                ]
            }
            Self::FileLockOwner { fid, locker } => {
                let (seq, object) = of_fid(fid);
                let first = kind::LOCKER | u64::from(locker.is_flock) << 8;
                [first, seq, object, locker.handle, locker.owner.0, locker.newest, 0, 0]
            }
            Self::Export { target, export } => {
                let mut words = [0; RECORD_WORDS];
                words[0] = kind::EXPORT | u64::from(export.connection) << 32;
                words[1] = export.handle.0;
                let mut bytes = [0; NAME_WORDS * 8];
                let name = target.as_str().as_bytes();
                bytes[..name.len()].copy_from_slice(name);
                let (name, _) = bytes.as_chunks::<8>();
                for (word, chunk) in words[2..].iter_mut().zip(name) {
                    *word = u64::from_le_bytes(*chunk);
                }
                words
            }
            Self::Sequence(seq) => [kind::SEQUENCE, *seq, 0, 0, 0, 0, 0, 0],
        }
    }

    /// What is recorded so; `None` for what a later version may record.
    #[must_use]
    pub fn of(words: &Words) -> Option<Self> {
        let [first, one, two, three, four, five, six, seven] = *words;
        let fid = |seq, object: u64| Fid { seq, oid: object as u32, ver: high(object) };
        Some(match first & 0xff {
            kind::INODE => Self::Inode { node: NodeId(one), fid: fid(two, three), lookups: four },
            kind::OPEN => Self::Open(OpenRecord::of(words)),
            kind::UNFLUSHED => Self::Unflushed(fid(one, two)),
            kind::FILE_LOCK => {
                let mode = match first >> 8 & 0xff {
                    1 => FileLockMode::Read,
                    2 => FileLockMode::Write,
                    _ => return None,
                };
                let is_flock = first >> 16 & 1 != 0;
                // An earlier version left the user out: these count as root's.
                let (pid, uid) = (six as u32, seven as u32);
                let lock = FileLock { start: four, end: five, mode, pid, uid, is_flock };
                Self::FileLock { fid: fid(one, two), owner: LockOwner(three), lock }
            }
            kind::EXPORT => {
                let bytes: Vec<u8> = words[2..2 + NAME_WORDS]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .take_while(|byte| *byte != 0)
                    .collect();
                let target = Uuid::new(String::from_utf8_lossy(&bytes));
                let export = FormerExport { handle: ObdHandle(one), connection: high(first) };
                Self::Export { target, export }
            }
            kind::SEQUENCE => Self::Sequence(one),
            kind::LOCKER => {
                let (is_flock, owner) = (first >> 8 & 1 != 0, LockOwner(four));
                let locker = FileLockOwnerRecord { handle: three, owner, is_flock, newest: five };
                Self::FileLockOwner { fid: fid(one, two), locker }
            }
            _ => return None,
        })
    }
}

impl OpenRecord {
    fn to_words(self) -> Words {
        let first = kind::OPEN
            | u64::from(self.sends_no_flush) << 8
            | u64::from(self.bypasses_page_cache) << 9
            | u64::from(self.flags) << 32;
        let owner = pair(self.owner.0, self.owner.1);
        [first, self.handle, self.node.0, owner, self.pid.into(), 0, 0, 0]
    }

    fn of(words: &Words) -> Self {
        let [first, handle, node, owner, pid, ..] = *words;
        Self {
            handle,
            node: NodeId(node),
            flags: high(first),
            owner: (owner as u32, high(owner)),
            pid: pid as u32,
            sends_no_flush: first >> 8 & 1 != 0,
            bypasses_page_cache: first >> 9 & 1 != 0,
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Where records go, if anywhere.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<dyn RecordMemory>>);

impl fmt::Debug for Recorder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Recorder({})", if self.0.is_some() { "on" } else { "off" })
    }
}

impl Recorder {
    /// Into this memory.
    #[must_use]
    pub fn new(memory: Arc<dyn RecordMemory>) -> Self {
        Self(Some(memory))
    }

    /// Whether records go anywhere.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records it until what is returned is dropped.
    pub(crate) fn record(&self, record: impl FnOnce() -> Record) -> Option<Recorded> {
        let memory = self.0.as_ref()?;
        let place = memory.put(&record().to_words())?;
        Some(Recorded { memory: Arc::clone(memory), place })
    }
}

/// A record that is in the memory: dropped with this, when it need not be there any more.
pub struct Recorded {
    memory: Arc<dyn RecordMemory>,
    place: u32,
}

impl Recorded {
    /// An inode's lookups are so many now.
    pub(crate) fn set_lookups(&self, lookups: u64) {
        self.memory.set(self.place, LOOKUPS, lookups);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.memory.remove(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read_as_it_was() {
        let fid = Fid { seq: 0x2_0000_0401, oid: 7, ver: 3 };
        let lock = FileLock {
            start: 5,
            end: i64::MAX as u64,
            mode: FileLockMode::Write,
            pid: 77,
            uid: 1000,
            is_flock: true,
        };
        let open = OpenRecord {
            handle: 1 << 40 | 9,
            node: NodeId(12),
            flags: 0o102_002,
            owner: (1000, 1001),
            pid: 4242,
            sends_no_flush: true,
            bypasses_page_cache: false,
        };
        let export = FormerExport { handle: ObdHandle(u64::MAX - 1), connection: 3 };
        let locker = FileLockOwnerRecord {
            handle: 7,
            owner: LockOwner(u64::MAX),
            is_flock: true,
            newest: 1 << 41,
        };
        let long = "x".repeat(39);
        for record in [
            Record::Inode { node: NodeId(99), fid, lookups: 4 },
            Record::Open(open),
            Record::Open(OpenRecord { sends_no_flush: false, bypasses_page_cache: true, ..open }),
            Record::Unflushed(fid),
            Record::FileLock { fid, owner: LockOwner(u64::MAX), lock },
            Record::FileLock {
                fid,
                owner: LockOwner(1),
                lock: FileLock { mode: FileLockMode::Read, is_flock: false, ..lock },
            },
            Record::Export { target: Uuid::new("sheen-OST0000_UUID"), export },
            Record::Export { target: Uuid::new(long), export },
            Record::Sequence(0x2_0000_0402),
            Record::FileLockOwner { fid, locker },
            Record::FileLockOwner {
                fid,
                locker: FileLockOwnerRecord { is_flock: false, ..locker },
            },
        ] {
            assert_eq!(Record::of(&record.to_words()), Some(record));
        }
        assert_eq!(Record::of(&[255, 0, 0, 0, 0, 0, 0, 0]), None);
        let mut words = Record::Inode { node: NodeId(99), fid, lookups: 4 }.to_words();
        words[LOOKUPS] = 6;
        assert_eq!(Record::of(&words), Some(Record::Inode { node: NodeId(99), fid, lookups: 6 }));
    }
}
