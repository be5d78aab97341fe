//! How often each inode is open, by whichever client: it keeps an unlinked file alive, and an
//! executed one from being written.

use parking_lot::Mutex;
use sheen_types::{Errno, Fid, HashMap};
use sheen_wire::md::MdsOpenFlags;

const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Opens {
    count: u32,
    writers: u32,
    /// Opens for execution: they deny writing.
    executors: u32,
    /// Opens that hold a lease, at most one.
    leases: u32,
    /// All writers since the file was made were seen, and none has written (see
    /// [`crate::known_empty`]).
    is_unwritten: bool,
    /// All writers since the file was made were seen, and those that are gone have closed it (see
    /// [`crate::vouched_sizes`]).
    has_known_writers: bool,
}

/// What a close leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AfterClose {
    /// Opens.
    pub(crate) opens: u32,
    /// The last writer has gone, and no client has ever written.
    pub(crate) is_known_empty: bool,
    /// The last writer has gone, and all that the file ever had have closed it.
    pub(crate) is_closed: bool,
}

/// See the module's documentation. Counts of one inode change under its exclusion lock, but for
/// [`OpenCounts::close_without_hold`].
pub(crate) struct OpenCounts {
    shards: Box<[Mutex<HashMap<Fid, Opens>>]>,
}

impl Default for OpenCounts {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl OpenCounts {
    /// Counts an open.
    ///
    /// # Errors
    /// [`Errno::ETXTBSY`] for writing what is executed, or executing what is written.
    pub(crate) fn open(&self, fid: Fid, flags: MdsOpenFlags) -> Result<(), Errno> {
        let mut shard = self.shard(fid).lock();
        let opens = shard.get(&fid).copied().unwrap_or_default();
        let (writes, executes) = intents(flags);
        if (writes && opens.executors > 0) || (executes && opens.writers > 0) {
            return Err(Errno::ETXTBSY);
        }
        let opens = Opens {
            count: opens.count + 1,
            writers: opens.writers + u32::from(writes),
            executors: opens.executors + u32::from(executes),
            leases: opens.leases + u32::from(flags.contains(MdsOpenFlags::LEASE)),
            ..opens
        };
        shard.insert(fid, opens);
        Ok(())
    }

    /// No client but those that have it open has ever been able to write the file.
    pub(crate) fn note_unwritten(&self, fid: Fid) {
        if let Some(opens) = self.shard(fid).lock().get_mut(&fid) {
            opens.is_unwritten = true;
        }
    }

    /// The file was written or cut, or may have been.
    pub(crate) fn note_written(&self, fid: Fid) {
        if let Some(opens) = self.shard(fid).lock().get_mut(&fid) {
            opens.is_unwritten = false;
        }
    }

    /// No client but those that have it open for writing, or have closed it, has ever been able to write the file.
    pub(crate) fn note_known_writers(&self, fid: Fid) {
        if let Some(opens) = self.shard(fid).lock().get_mut(&fid) {
            opens.has_known_writers = true;
        }
    }

    /// Whether it is open for writing, and [`Self::note_known_writers`] is true of it.
    pub(crate) fn has_known_writers(&self, fid: Fid) -> bool {
        self.shard(fid).lock().get(&fid).is_some_and(|opens| opens.has_known_writers)
    }

    /// Forgets that the writers of a file are known: a client that has not got it open may write it, or cut it, or is
    /// lost.
    pub(crate) fn forget_known_writers_of(&self, fid: Fid) {
        if let Some(opens) = self.shard(fid).lock().get_mut(&fid) {
            opens.has_known_writers = false;
        }
    }

    /// Forgets of all files that their writers are known: a client was lost, and no one knows what it had open.
    pub(crate) fn forget_known_writers(&self) {
        for shard in &self.shards {
            shard.lock().values_mut().for_each(|opens| opens.has_known_writers = false);
        }
    }

    /// Counts a close while another operation holds the inode. It is then never reported that nothing
    /// was written.
    pub(crate) fn close_without_hold(&self, fid: Fid, flags: MdsOpenFlags) {
        if flags.contains(MdsOpenFlags::WRITE) {
            self.note_written(fid);
        }
        self.close(fid, flags);
    }

    /// Whether the file cannot be opened with these flags, because it is executed, or written (`ETXTBSY`).
    pub(crate) fn refuses_open(&self, fid: Fid, flags: MdsOpenFlags) -> bool {
        let (writes, executes) = intents(flags);
        let is_denied =
            |opens: &Opens| (writes && opens.executors > 0) || (executes && opens.writers > 0);
        self.shard(fid).lock().get(&fid).is_some_and(is_denied)
    }

    /// Counts a close; what remains.
    pub(crate) fn close(&self, fid: Fid, flags: MdsOpenFlags) -> AfterClose {
        let mut shard = self.shard(fid).lock();
        let Some(opens) = shard.get_mut(&fid) else { return AfterClose::default() };
        let (writes, executes) = intents(flags);
        opens.count = opens.count.saturating_sub(1);
        opens.writers = opens.writers.saturating_sub(u32::from(writes));
        opens.executors = opens.executors.saturating_sub(u32::from(executes));
        let is_lease = flags.contains(MdsOpenFlags::LEASE);
        opens.leases = opens.leases.saturating_sub(u32::from(is_lease));
        let is_known_empty = opens.writers == 0 && std::mem::take(&mut opens.is_unwritten);
        let has_closed = writes && opens.writers == 0;
        let is_closed = has_closed && std::mem::take(&mut opens.has_known_writers);
        let left = opens.count;
        if left == 0 {
            shard.remove(&fid);
        }
        AfterClose { opens: left, is_known_empty, is_closed }
    }

    /// Whether the next close of the file is the last.
    pub(crate) fn is_open_once(&self, fid: Fid) -> bool {
        self.shard(fid).lock().get(&fid).is_some_and(|opens| opens.count == 1)
    }

    /// Whether an open of the file is its client's alone, as long as no other takes its lock away.
    pub(crate) fn is_leased(&self, fid: Fid) -> bool {
        self.shard(fid).lock().get(&fid).is_some_and(|opens| opens.leases > 0)
    }

    /// Whether the file is open for writing other than by `own` opens for writing.
    pub(crate) fn is_written_besides(&self, fid: Fid, own: u32) -> bool {
        self.shard(fid).lock().get(&fid).is_some_and(|opens| opens.writers > own)
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.shard(fid).lock().contains_key(&fid)
    }

    /// Whether the file is being executed, so that it must not be cut.
    pub(crate) fn is_executed(&self, fid: Fid) -> bool {
        self.shard(fid).lock().get(&fid).is_some_and(|opens| opens.executors > 0)
    }

    pub(crate) fn count(&self) -> u64 {
        let of = |shard: &Mutex<HashMap<Fid, Opens>>| {
            shard.lock().values().map(|opens| u64::from(opens.count)).sum::<u64>()
        };
        self.shards.iter().map(of).sum()
    }

    fn shard(&self, fid: Fid) -> &Mutex<HashMap<Fid, Opens>> {
        let number = fid.seq.wrapping_add(u64::from(fid.oid));
        &self.shards[(number % SHARDS as u64) as usize]
    }
}

fn intents(flags: MdsOpenFlags) -> (bool, bool) {
    let writes = flags.contains(MdsOpenFlags::WRITE);
    (writes, !writes && flags.contains(MdsOpenFlags::EXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_and_executing_exclude_each_other() {
        let files = OpenCounts::default();
        let fid = Fid::new(5, 5);
        files.open(fid, MdsOpenFlags::EXEC).unwrap();
        assert_eq!(files.open(fid, MdsOpenFlags::WRITE), Err(Errno::ETXTBSY));
        files.open(fid, MdsOpenFlags::READ).unwrap();
        assert_eq!(files.close(fid, MdsOpenFlags::EXEC).opens, 1);
        files.open(fid, MdsOpenFlags::WRITE).unwrap();
        assert_eq!(files.open(fid, MdsOpenFlags::EXEC), Err(Errno::ETXTBSY));
        assert_eq!(files.close(fid, MdsOpenFlags::READ).opens, 1);
        assert_eq!(files.close(fid, MdsOpenFlags::WRITE).opens, 0);
        assert!(!files.is_open(fid));
    }

    #[test]
    fn a_file_is_known_empty_when_the_last_of_its_writers_leaves_it_unwritten() {
        let files = OpenCounts::default();
        let (fid, write) = (Fid::new(5, 5), MdsOpenFlags::WRITE);
        let open = |flags| files.open(fid, flags).unwrap();
        open(write);
        files.note_unwritten(fid);
        open(write);
        open(MdsOpenFlags::READ);
        assert_eq!(files.close(fid, write), AfterClose { opens: 2, ..AfterClose::default() });
        assert_eq!(
            files.close(fid, write),
            AfterClose { opens: 1, is_known_empty: true, is_closed: false }
        );
        assert_eq!(files.close(fid, MdsOpenFlags::READ), AfterClose::default(), "said once");
        open(write);
        assert_eq!(
            files.close(fid, write),
            AfterClose::default(),
            "it is unknown who wrote before"
        );
        open(write);
        files.note_unwritten(fid);
        files.note_written(fid);
        assert_eq!(files.close(fid, write), AfterClose::default());
    }
    #[test]
    fn a_file_is_closed_when_the_last_of_its_known_writers_closes_it() {
        let files = OpenCounts::default();
        let (fid, write) = (Fid::new(5, 5), MdsOpenFlags::WRITE);
        let open = |flags| files.open(fid, flags).unwrap();
        open(MdsOpenFlags::READ);
        open(write);
        files.note_known_writers(fid);
        open(write);
        assert!(!files.close(fid, write).is_closed);
        assert!(files.close(fid, write).is_closed);
        assert!(!files.close(fid, MdsOpenFlags::READ).is_closed);
        open(write);
        assert!(!files.close(fid, write).is_closed, "no one has said who wrote before");
        for doubt in [OpenCounts::forget_known_writers_of, |files: &OpenCounts, _| {
            files.forget_known_writers()
        }] {
            open(write);
            files.note_known_writers(fid);
            doubt(&files, fid);
            assert!(!files.close(fid, write).is_closed);
        }
    }
}
