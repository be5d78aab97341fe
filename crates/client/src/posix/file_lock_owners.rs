//! Through which open files locks were taken, and which of them a RELEASE has to unlock.
//!
//! The kernel names the owner of a lock of an open file description (`flock(2)`, `F_OFD_SETLK`) after the address
//! of its `struct file`. That address is free before the RELEASE is here, and is used again at once: a file that
//! was opened later can lock under the same owner while the RELEASE of the earlier one is still on its way.
//!
//! What always holds: a RELEASE leaves an owner alone that has locked through a file opened since, whose own close
//! covers all that this owner has. And no lock is asked for while a RELEASE unlocks what the same owner had, for
//! the MDT may see the two in either order. An unlock waits for no request: one that blocks may wait for it.

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
    known: Vec<KnownFileLockOwner>,
    /// Whose locks are being released.
    unlocking: Vec<LockOwner>,
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
        self.change(fid, |file| {
            file.known.retain(|it| (it.locker.handle, it.locker.owner) != (handle, owner));
        });
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
            file.unlocking.extend(&owners);
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
        if self.unlocking.contains(&locker.owner) {
            return false;
        }
        let same = (locker.handle, locker.owner);
        let known = self.known.iter_mut().find(|it| (it.locker.handle, it.locker.owner) == same);
        let Some(known) = known else {
            self.known.push(KnownFileLockOwner { recorded: record(&locker), locker });
            return true;
        };
        let before = known.locker;
        known.locker.newest = before.newest.max(locker.newest);
        known.locker.is_flock |= locker.is_flock;
        if known.locker != before {
            known.recorded = record(&known.locker);
        }
        true
    }

    fn close(
        &mut self,
        handle: FileHandle,
        flock: Option<LockOwner>,
        of_process: Vec<LockOwner>,
    ) -> (Vec<LockOwner>, Vec<Recorded>) {
        let closed = self.known.extract_if(.., |it| it.locker.handle == handle);
        let (mut own, records): (Vec<_>, Vec<_>) =
            closed.map(|it| (it.locker, it.recorded)).unzip();
        if let Some(owner) = flock.filter(|owner| own.iter().all(|it| it.owner != *owner)) {
            own.push(FileLockOwner { handle, owner, is_flock: true, newest: handle });
        }
        let is_processes = |owner: &LockOwner| {
            !own.iter().any(|it| it.owner == *owner)
                && !self.known.iter().any(|it| it.locker.owner == *owner && it.locker.is_flock)
        };
        let ended = own.iter().filter(|it| !self.locks_since(it)).map(|it| it.owner);
        let ended = ended.chain(of_process.into_iter().filter(is_processes)).collect();
        (ended, records.into_iter().flatten().collect())
    }

    /// Whether its owner has locked through a file that was opened since. (A process that did so through two files
    /// that were open at once is not meant: it loses its locks with either.)
    fn locks_since(&self, closed: &FileLockOwner) -> bool {
        let is_since = |it: &FileLockOwner| it.owner == closed.owner && it.handle > closed.newest;
        self.known.iter().any(|it| is_since(&it.locker))
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
                let at = file.unlocking.iter().position(|it| it == owner);
                at.map(|at| file.unlocking.swap_remove(at));
            }
        });
        self.file_lock_owners.unlocked.notify_waiters();
    }
}
