//! Memory that outlives the mount's process: the next one finds there what it must go on with.
//!
//! A memory file (`memfd`) that a keeper holds, mapped by the process: a page with what concerns the whole mount,
//! and then records of 64 bytes. A record's first word is written last and cleared first, each with one store: the
//! process may end between any two instructions. Where a record is free is known to the living process alone.
//!
//! The file's pages are there from the first use on: a mount that has had a million inodes at once keeps 64 MiB.
#![allow(unsafe_code, reason = "shared memory has no safe name")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sheen_client::records::{RECORD_WORDS, Record, RecordMemory, Words};
use sheen_fuse_wire::Agreement;

/// Says what it is, and in which format.
const MAGIC: u64 = 0x5348_4545_4e4b_0001;
/// Bytes before the first record.
const HEAD_BYTES: usize = 4096;
/// Records at most: a mount that has more cannot be gone on with. 64 bytes of address space each.
const PLACES_MAX: u32 = 1 << 22;
const BYTES: usize = HEAD_BYTES + PLACES_MAX as usize * RECORD_WORDS * 8;

/// The head's words.
mod head {
    pub(super) const MAGIC: usize = 0;
    /// Places that were ever used.
    pub(super) const USED: usize = 1;
    /// Not 0: a record found no room.
    pub(super) const FULL: usize = 2;
    /// Which process of the mount writes, counted from 0.
    pub(super) const PROCESS: usize = 3;
    /// What the kernel offered (`FUSE_INIT`), the minor version of its protocol, and what of it was taken.
    pub(super) const OFFERED: usize = 4;
    pub(super) const PROTOCOL: usize = 5;
    pub(super) const TAKEN: usize = 6;
    /// The minor number of the mount's device.
    pub(super) const DEVICE: usize = 7;
    /// The address (IPv4) of the client's node.
    pub(super) const ADDRESS: usize = 8;
}

/// Bits of a handle's number that count the handles of one process.
const HANDLE_BITS: u32 = 40;

/// The memory.
pub struct KeeperMemory {
    file: OwnedFd,
    /// Where it is mapped.
    start: usize,
    places: Mutex<Places>,
}

impl fmt::Debug for KeeperMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeeperMemory({:?})", self.file)
    }
}

#[derive(Default)]
struct Places {
    free: Vec<u32>,
    used: u32,
}

/// What the memory of an earlier process says.
pub struct Found {
    /// Its records.
    pub records: Vec<Record>,
    /// Handles of the next process have higher numbers.
    pub handles_end: u64,
}

impl KeeperMemory {
    /// New memory, of the first process of a mount or of the one after `former`'s.
    ///
    /// # Errors
    /// The system gives none.
    pub fn new(former: Option<&Self>) -> io::Result<Self> {
        let file = memfd_create("sheen-mount", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES as u64)?;
        let memory = Self::map(file)?;
        if let Some(former) = former {
            for word in [head::OFFERED, head::PROTOCOL, head::TAKEN, head::DEVICE, head::ADDRESS] {
                memory.store(word, former.load(word));
            }
            memory.store(head::PROCESS, former.load(head::PROCESS) + 1);
        }
        memory.store(head::MAGIC, MAGIC);
        Ok(memory)
    }

    /// The memory of an earlier process.
    ///
    /// # Errors
    /// It is none, or of another format, or did not suffice.
    pub fn of(file: OwnedFd) -> io::Result<Self> {
        if fstat(&file)?.st_size != BYTES as i64 {
            return Err(io::Error::other("not the memory of a mount"));
        }
        let memory = Self::map(file)?;
        if memory.load(head::MAGIC) != MAGIC {
            return Err(io::Error::other("the memory of another version's mount"));
        }
        match memory.load(head::FULL) {
            0 => Ok(memory),
            _ => Err(io::Error::other(format!("more than {PLACES_MAX} records"))),
        }
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; it replaces none.
        let start =
            unsafe { mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, &file, 0)? };
        Ok(Self { file, start: start.expose_provenance(), places: Mutex::default() })
    }

    fn words(&self) -> &[AtomicU64] {
        let start = std::ptr::with_exposed_provenance::<AtomicU64>(self.start);
        // SAFETY: the mapping is as long, aligned to a page, and there until this is dropped, and its file is never
        // cut: only atomics look at it, whatever other processes write.
        unsafe { std::slice::from_raw_parts(start, BYTES / 8) }
    }

    fn load(&self, word: usize) -> u64 {
        self.words()[word].load(Ordering::Acquire)
    }

    fn store(&self, word: usize, value: u64) {
        self.words()[word].store(value, Ordering::Release);
    }

    fn record(&self, place: u32) -> &[AtomicU64] {
        let first = HEAD_BYTES / 8 + place as usize * RECORD_WORDS;
        &self.words()[first..first + RECORD_WORDS]
    }

    /// What it says; for the process after the one that wrote it.
    #[must_use]
    pub fn found(&self) -> Found {
        let used = u32::try_from(self.load(head::USED)).unwrap_or(PLACES_MAX).min(PLACES_MAX);
        let words = |place| -> Words {
            let record = self.record(place);
            std::array::from_fn(|word| record[word].load(Ordering::Acquire))
        };
        let records = (0..used).map(words).filter(|words| words[0] != 0);
        let records = records.filter_map(|words| Record::of(&words)).collect();
        let handles_end = (self.load(head::PROCESS) + 1) << HANDLE_BITS;
        Found { records, handles_end }
    }

    pub(crate) fn agreement(&self) -> Agreement {
        Agreement {
            offered: self.load(head::OFFERED),
            protocol: self.load(head::PROTOCOL) as u32,
            taken: self.load(head::TAKEN),
        }
    }

    pub(crate) fn set_agreement(&self, agreement: Agreement) {
        self.store(head::OFFERED, agreement.offered);
        self.store(head::PROTOCOL, agreement.protocol.into());
        self.store(head::TAKEN, agreement.taken);
    }

    /// The minor number of the mount's device.
    pub(crate) fn device(&self) -> u64 {
        self.load(head::DEVICE)
    }

    pub(crate) fn set_device(&self, minor: u64) {
        self.store(head::DEVICE, minor);
    }

    /// The address of the client's node: servers take the good-bye of an earlier process from there alone.
    #[must_use]
    pub fn address(&self) -> std::net::Ipv4Addr {
        std::net::Ipv4Addr::from_bits(self.load(head::ADDRESS) as u32)
    }

    /// Sets the address of the client's node.
    pub fn set_address(&self, address: std::net::Ipv4Addr) {
        self.store(head::ADDRESS, address.to_bits().into());
    }
}

impl Drop for KeeperMemory {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the mapping of `map`, whole, and nothing that was borrowed of it lives any more.
        if let Err(error) = unsafe { munmap(start, BYTES) } {
            tracing::debug!(%error, "memory stays mapped");
        }
    }
}

impl AsFd for KeeperMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl RecordMemory for KeeperMemory {
    fn put(&self, words: &Words) -> Option<u32> {
        let place = {
            let mut places = self.places.lock();
            match places.free.pop() {
                Some(place) => place,
                None if places.used < PLACES_MAX => {
                    places.used += 1;
                    self.store(head::USED, places.used.into());
                    places.used - 1
                }
                None => {
                    drop(places);
                    if self.words()[head::FULL].swap(1, Ordering::AcqRel) == 0 {
                        tracing::warn!(
                            "more than {PLACES_MAX} inodes and open files: this mount ends with its process"
                        );
                    }
                    return None;
                }
            }
        };
        let record = self.record(place);
        for (word, value) in record.iter().zip(words).skip(1) {
            word.store(*value, Ordering::Relaxed);
        }
        record[0].store(words[0], Ordering::Release);
        Some(place)
    }

    fn set(&self, place: u32, word: usize, value: u64) {
        self.record(place)[word].store(value, Ordering::Release);
    }

    fn remove(&self, place: u32) {
        self.record(place)[0].store(0, Ordering::Release);
        self.places.lock().free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use sheen_client::posix::NodeId;
    use sheen_types::Fid;

    use super::*;

    fn words(kind: u64, value: u64) -> Words {
        [kind, value, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn the_next_process_finds_what_was_kept_and_nothing_else() {
        let memory = KeeperMemory::new(None).expect("memory");
        let inode = |node| [1, node, 0x2_0000_0401, node, 3, 0, 0, 0];
        let places: Vec<u32> = (1..=3).filter_map(|node| memory.put(&inode(node))).collect();
        memory.remove(places[1]);
        memory.set(places[2], 4, 9);
        let sequence = memory.put(&words(6, 77)).expect("room");
        assert_eq!(sequence, places[1], "a place is used again");
        // What a version after this one keeps.
        memory.put(&words(200, 0));
        let former = KeeperMemory::of(memory.file.try_clone().expect("cloned")).expect("the same");
        let found = former.found();
        let of = |node: u64, lookups| {
            let fid = Fid::new(0x2_0000_0401, node as u32);
            Record::Inode { node: NodeId(node), fid, lookups }
        };
        assert_eq!(found.records, [of(1, 3), Record::Sequence(77), of(3, 9)]);
        assert_eq!(found.handles_end, 1 << HANDLE_BITS);
    }

    #[test]
    fn what_was_agreed_on_holds_for_all_processes_and_their_handles_differ() {
        let first = KeeperMemory::new(None).expect("memory");
        let agreement = Agreement { offered: 7 << 40, protocol: 44, taken: 5 << 40 };
        first.set_agreement(agreement);
        first.set_device(35);
        first.set_address([127, 1, 2, 3].into());
        let second = KeeperMemory::new(Some(&first)).expect("memory");
        assert_eq!((second.agreement(), second.device()), (agreement, 35));
        assert_eq!(second.address(), std::net::Ipv4Addr::new(127, 1, 2, 3));
        assert_eq!(second.found().handles_end, 2 << HANDLE_BITS);
        assert!(second.found().records.is_empty());
    }

    #[test]
    fn what_is_no_memory_of_a_mount_is_refused() {
        let file = memfd_create("other", MemfdFlags::CLOEXEC).expect("a file");
        assert!(KeeperMemory::of(file.try_clone().expect("cloned")).is_err(), "empty");
        ftruncate(&file, BYTES as u64).expect("as long");
        assert!(KeeperMemory::of(file).is_err(), "zeros");
        let full = KeeperMemory::new(None).expect("memory");
        full.store(head::FULL, 1);
        assert!(KeeperMemory::of(full.file.try_clone().expect("cloned")).is_err());
    }
}
