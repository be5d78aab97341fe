//! Through which open files locks were taken, and which of them a RELEASE has to unlock.
//!
//! The kernel names the owner of a lock of an open file description (`flock(2)`, `F_OFD_SETLK`) after the address
//! of its `struct file`. That address is free before the RELEASE is here, and is used again at once: a file that
//! was opened later can lock under the same owner while the RELEASE of the earlier one is still on its way.
//!
//! What always holds: a RELEASE leaves an owner alone that has locked through a file opened since, whose own close
//! covers all that this owner has. And no lock is asked for while a RELEASE unlocks what the same owner had, for
//! the MDT may see the two in either order. An unlock waits for no request: one that blocks may wait for it.
//!
//! A lock and a RELEASE cost O(log n) of the owners on the file, and a RELEASE what was locked through its open file; but of a
//! file that was opened before any lock was taken on the mount, it looks at all that are on the file.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sheen_types::{Fid, HashMap};
use tokio::sync::Notify;

use super::{FileHandle, LockOwner};
use crate::records::{FileLockOwnerRecord, Record, Recorded, Recorder};

/// The owners of file locks that were taken through open files, of all files.
#[derive(Default)]
pub(super) struct FileLockOwners {
    files: Mutex<HashMap<Fid, OwnersOfFile>>,
    /// For the mount's next process, which gets the RELEASE of what is open now.
    recorder: Recorder,
    /// An unlock has ended.
    unlocked: Notify,
}

/// The owners of locks on one file.
#[derive(Default)]
struct OwnersOfFile {
    /// Who took locks, and has closed nothing since.
    known: BTreeMap<(FileHandle, LockOwner), KnownFileLockOwner>,
    /// Who took locks, by owner, with whether it is one of `flock(2)`.
    by_owner: BTreeMap<(LockOwner, FileHandle), bool>,
    /// Whose locks are being released, by how many RELEASEs.
    unlocking: BTreeMap<LockOwner, usize>,
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

/// An owner that took a lock, and its record.
struct KnownFileLockOwner {
    locker: FileLockOwner,
    recorded: Option<Recorded>,
}

/// An owner that took a lock through an open file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileLockOwner {
    pub(super) handle: FileHandle,
    pub(super) owner: LockOwner,
    /// By `flock(2)`: the owner is no process.
    pub(super) is_flock: bool,
    /// The newest open file of the mount when it last did so.
    pub(super) newest: FileHandle,
}

/// While it lives, its owners are asked for no locks on the file.
pub(super) struct Unlocking<'a> {
    file_lock_owners: &'a FileLockOwners,
    fid: Fid,
    pub(super) owners: Vec<LockOwner>,
    /// Until all is unlocked: the next process of the mount may have to do it.
    _records: Vec<Recorded>,
}

impl FileLockOwners {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, ..Self::default() }
    }

    /// Notes what an earlier process of the mount has noted.
    pub(super) fn restore(&self, fid: Fid, record: &FileLockOwnerRecord) {
        let FileLockOwnerRecord { handle, owner, is_flock, newest } = *record;
        let (handle, newest) = (FileHandle(handle), FileHandle(newest));
        let locker = FileLockOwner { handle, owner, is_flock, newest };
        // Nothing is being unlocked yet.
        self.note_now(fid, locker);
    }

    /// Whether it can be noted now.
    fn note_now(&self, fid: Fid, locker: FileLockOwner) -> bool {
        let record = |locker: &FileLockOwner| self.recorder.record(|| locker.record(fid));
        self.files.lock().entry(fid).or_default().note(locker, record)
    }

    /// A lock is going to be asked for. Waits for an unlock of the same owner's.
    pub(super) async fn note(&self, fid: Fid, locker: FileLockOwner) {
        loop {
            let unlocked = self.unlocked.notified();
            if self.note_now(fid, locker) {
                return;
            }
            unlocked.await;
        }
    }

    /// What `owner` had has been released.
    pub(super) fn forget(&self, fid: Fid, handle: FileHandle, owner: LockOwner) {
        self.change(fid, |file| drop(file.remove(handle, owner)));
    }

    /// The file of `handle` was closed: whose locks end with that. `flock` is its owner of `flock(2)` locks, and
    /// `of_process` are owners whose process has closed it.
    pub(super) fn close(
        &self,
        fid: Fid,
        handle: FileHandle,
        flock: Option<LockOwner>,
        of_process: Vec<LockOwner>,
    ) -> Unlocking<'_> {
        let mut files = self.files.lock();
        let (mut owners, mut records) = (Vec::new(), Vec::new());
        if flock.is_some() || !of_process.is_empty() || files.contains_key(&fid) {
            let file = files.entry(fid).or_default();
            (owners, records) = file.close(handle, flock, of_process);
            owners.iter().for_each(|owner| *file.unlocking.entry(*owner).or_default() += 1);
        }
        drop(files);
        Unlocking { file_lock_owners: self, fid, owners, _records: records }
    }

    /// Does nothing to a file of which no owner is known.
    fn change(&self, fid: Fid, change: impl FnOnce(&mut OwnersOfFile)) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&fid) else { return };
        change(file);
        if file.known.is_empty() && file.unlocking.is_empty() {
            files.remove(&fid);
        }
    }
}

impl OwnersOfFile {
    /// Whether it can be noted now.
    fn note(
        &mut self,
        locker: FileLockOwner,
        record: impl FnOnce(&FileLockOwner) -> Option<Recorded>,
    ) -> bool {
        if self.unlocking.contains_key(&locker.owner) {
            return false;
        }
        let FileLockOwner { handle, owner, is_flock, .. } = locker;
        *self.by_owner.entry((owner, handle)).or_default() |= is_flock;
        let Some(known) = self.known.get_mut(&(handle, owner)) else {
            let known = KnownFileLockOwner { recorded: record(&locker), locker };
            self.known.insert((handle, owner), known);
            return true;
        };
        let before = known.locker;
        known.locker.newest = before.newest.max(locker.newest);
        known.locker.is_flock |= is_flock;
        if known.locker != before {
            known.recorded = record(&known.locker);
        }
        true
    }

    fn remove(&mut self, handle: FileHandle, owner: LockOwner) -> Option<KnownFileLockOwner> {
        self.by_owner.remove(&(owner, handle));
        self.known.remove(&(handle, owner))
    }

    /// Removes all that locked through this open file.
    fn remove_all(&mut self, handle: FileHandle) -> Vec<KnownFileLockOwner> {
        let through = (handle, LockOwner(0))..=(handle, LockOwner(u64::MAX));
        let owners: Vec<_> = self.known.range(through).map(|((_, owner), _)| *owner).collect();
        self.look_at(owners.len());
        owners.into_iter().filter_map(|owner| self.remove(handle, owner)).collect()
    }

    fn close(
        &mut self,
        handle: FileHandle,
        flock: Option<LockOwner>,
        of_process: Vec<LockOwner>,
    ) -> (Vec<LockOwner>, Vec<Recorded>) {
        let closed = self.remove_all(handle).into_iter();
        let (mut own, records): (Vec<_>, Vec<_>) =
            closed.map(|it| (it.locker, it.recorded)).unzip();
        if let Some(owner) = flock.filter(|owner| own.iter().all(|it| it.owner != *owner)) {
            own.push(FileLockOwner { handle, owner, is_flock: true, newest: handle });
        }
        let of_handle: BTreeSet<LockOwner> = own.iter().map(|it| it.owner).collect();
        let is_processes = |owner: &LockOwner| {
            !of_handle.contains(owner) && !self.files_of(*owner, FileHandle(0)).any(|flock| flock)
        };
        let ended = own.iter().filter(|it| !self.locks_since(it)).map(|it| it.owner);
        let ended = ended.chain(of_process.into_iter().filter(is_processes)).collect();
        (ended, records.into_iter().flatten().collect())
    }

    /// The open files from `first` on through which an owner has locked: of each whether by `flock(2)`.
    fn files_of(&self, owner: LockOwner, first: FileHandle) -> impl Iterator<Item = bool> + '_ {
        let files = self.by_owner.range((owner, first)..=(owner, FileHandle(u64::MAX)));
        files.inspect(|_| self.look_at(1)).map(|(_, is_flock)| *is_flock)
    }

    /// Counts entries that are looked at, for the test of what that costs.
    fn look_at(&self, count: usize) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + count);
        #[cfg(not(test))]
        let _ = count;
    }

    /// Whether its owner has locked through a file that was opened since. (A process that did so through two files
    /// that were open at once is not meant: it loses its locks with either.)
    fn locks_since(&self, closed: &FileLockOwner) -> bool {
        let next = closed.newest.0.checked_add(1).map(FileHandle);
        next.is_some_and(|next| self.files_of(closed.owner, next).next().is_some())
    }
}

impl FileLockOwner {
    fn record(&self, fid: Fid) -> Record {
        let Self { handle, owner, is_flock, newest } = *self;
        let locker = FileLockOwnerRecord { handle: handle.0, owner, is_flock, newest: newest.0 };
        Record::FileLockOwner { fid, locker }
    }
}

impl Drop for Unlocking<'_> {
    fn drop(&mut self) {
        self.file_lock_owners.change(self.fid, |file| {
            for owner in &self.owners {
                let Some(count) = file.unlocking.get_mut(owner) else { continue };
                *count -= 1;
                if *count == 0 {
                    file.unlocking.remove(owner);
                }
            }
        });
        self.file_lock_owners.unlocked.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(0x2_0000_0400, 9);

    /// What a RELEASE looks at of a file through which so many handles have locked, each for an owner of its own and for
    /// one of a process that has them all.
    fn looked_at(count: u64) -> usize {
        let all = FileLockOwners::default();
        let process = LockOwner(u64::MAX);
        for number in 1..=count {
            for owner in [LockOwner(number), process] {
                let newest = FileHandle(count);
                let locker =
                    FileLockOwner { handle: FileHandle(number), owner, is_flock: false, newest };
                assert!(all.note_now(FILE, locker));
            }
        }
        let before = all.files.lock()[&FILE].looked_at.replace(0);
        assert_eq!(before, 0, "to note one costs no walk");
        let unlocking = all.close(FILE, FileHandle(count / 2), None, vec![process]);
        assert_eq!(unlocking.owners, [LockOwner(count / 2), process]);
        all.files.lock()[&FILE].looked_at.get()
    }

    /// Each looked at all through which any owner had locked, with the owners of all files of the mount locked out.
    #[test]
    fn a_release_looks_at_what_was_locked_through_its_file() {
        assert!(looked_at(10) > 0);
        assert_eq!(looked_at(10), looked_at(1_000));
    }

    /// Two RELEASEs of one owner may be under way at once.
    #[test]
    fn an_owner_is_free_again_when_all_its_unlocks_have_ended() {
        let all = FileLockOwners::default();
        let owner = LockOwner(7);
        let lock = |handle| {
            let (handle, newest) = (FileHandle(handle), FileHandle(9));
            all.note_now(FILE, FileLockOwner { handle, owner, is_flock: false, newest })
        };
        assert!(lock(1) && lock(2));
        let first = all.close(FILE, FileHandle(1), None, Vec::new());
        let second = all.close(FILE, FileHandle(2), None, Vec::new());
        assert_eq!((&first.owners[..], &second.owners[..]), (&[owner][..], &[owner][..]));
        drop(first);
        assert!(!lock(3));
        drop(second);
        assert!(lock(3));
    }
}
