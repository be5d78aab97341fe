//! What the MDT keeps for each client: its open files.

use parking_lot::Mutex;
use sheen_target::budget::OpenedBy;
use sheen_types::{Fid, HashMap, Xid};
use sheen_wire::md::{MdsOpenFlags, OpenHandle};

/// One open of one file (Lustre's `mdt_file_data`).
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    pub(crate) flags: MdsOpenFlags,
    /// The request that opened it: by it a repeated open finds its handle.
    pub(crate) xid: Xid,
    /// The handle that an open had before the target restarted.
    pub(crate) old: OpenHandle,
    /// The user for whom it was opened, by the uid as which the MDT took it.
    pub(crate) user: u32,
}

#[derive(Default)]
struct Files {
    open: HashMap<OpenHandle, OpenFile>,
    /// The current handle of an open that had another before a restart.
    by_old: HashMap<OpenHandle, OpenHandle>,
    by_xid: HashMap<Xid, OpenHandle>,
    /// How many each user has.
    of_user: HashMap<u32, u32>,
    /// The client has left: a request of its that is still executed must not add to them.
    ended: bool,
}

impl Files {
    fn take(&mut self, handle: OpenHandle) -> Option<OpenFile> {
        let file = self.open.remove(&handle)?;
        if self.by_old.get(&file.old) == Some(&handle) {
            self.by_old.remove(&file.old);
        }
        if self.by_xid.get(&file.xid) == Some(&handle) {
            self.by_xid.remove(&file.xid);
        }
        if let Some(count) = self.of_user.get_mut(&file.user) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&file.user);
            }
        }
        Some(file)
    }

    fn count_of_user(&self, user: u32) -> usize {
        self.of_user.get(&user).map_or(0, |count| *count as usize)
    }
}

/// A client's open files. Each is found at once by its handle, by the one it had before, and by the request
/// that opened it: a client may have many, and ask for what it does not have.
#[derive(Default)]
pub(crate) struct OpenTable {
    files: Mutex<Files>,
}

impl OpenTable {
    /// Adds an open file.
    ///
    /// # Errors
    /// The file again, if the client has left: it must be closed here.
    pub(crate) fn insert(&self, handle: OpenHandle, file: OpenFile) -> Result<(), OpenFile> {
        let mut files = self.files.lock();
        if files.ended {
            return Err(file);
        }
        if file.old.0 != 0 {
            files.by_old.insert(file.old, handle);
        }
        files.by_xid.insert(file.xid, handle);
        *files.of_user.entry(file.user).or_default() += 1;
        files.open.insert(handle, file);
        Ok(())
    }

    /// How many they are.
    pub(crate) fn count(&self, whose: OpenedBy) -> usize {
        let files = self.files.lock();
        match whose {
            OpenedBy::Client => files.open.len(),
            OpenedBy::Users => files.open.len() - files.count_of_user(0),
            OpenedBy::User(user) => files.count_of_user(user),
        }
    }

    /// By its handle, or by the handle it had before a restart.
    pub(crate) fn remove(&self, handle: OpenHandle) -> Option<OpenFile> {
        let mut files = self.files.lock();
        files.take(handle).or_else(|| {
            let current = files.by_old.get(&handle).copied()?;
            files.take(current)
        })
    }

    /// By its handle, or by the handle it had before a restart.
    pub(crate) fn get(&self, handle: OpenHandle) -> Option<OpenFile> {
        let files = self.files.lock();
        let current = files.by_old.get(&handle);
        files.open.get(&handle).or_else(|| files.open.get(current?)).cloned()
    }

    pub(crate) fn contains(&self, handle: OpenHandle) -> bool {
        let files = self.files.lock();
        files.open.contains_key(&handle) || files.by_old.contains_key(&handle)
    }

    /// What the request `xid` opened.
    pub(crate) fn opened_by(&self, xid: Xid) -> Option<(OpenHandle, OpenFile)> {
        let files = self.files.lock();
        let handle = files.by_xid.get(&xid)?;
        files.open.get(handle).map(|file| (*handle, file.clone()))
    }

    /// Whether the client has the file open for writing.
    pub(crate) fn is_writing(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files.open.values().any(|file| file.fid == fid && file.flags.contains(MdsOpenFlags::WRITE))
    }

    /// Which files they are.
    pub(crate) fn fids(&self) -> Vec<Fid> {
        self.files.lock().open.values().map(|file| file.fid).collect()
    }

    /// Takes all files out, once and for all.
    pub(crate) fn end(&self) -> Vec<OpenFile> {
        let mut files = self.files.lock();
        files.ended = true;
        (files.by_old, files.by_xid) = (HashMap::default(), HashMap::default());
        files.of_user = HashMap::default();
        std::mem::take(&mut files.open).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(xid: u64, old: u64) -> OpenFile {
        let flags = MdsOpenFlags::READ;
        OpenFile { fid: Fid::new(5, 5), flags, xid: Xid(xid), old: OpenHandle(old), user: 0 }
    }

    fn count(table: &OpenTable) -> usize {
        table.count(OpenedBy::Client)
    }

    #[test]
    fn an_open_file_is_found_by_each_of_its_names_and_then_by_none() {
        let table = OpenTable::default();
        table.insert(OpenHandle(1), file(10, 0)).unwrap();
        table.insert(OpenHandle(2), file(20, 7)).unwrap();
        assert_eq!(table.opened_by(Xid(20)).map(|(handle, _)| handle), Some(OpenHandle(2)));
        assert!(table.contains(OpenHandle(7)) && !table.contains(OpenHandle(0)));
        assert_eq!(table.remove(OpenHandle(0)).map(|file| file.xid), None);
        assert_eq!(table.remove(OpenHandle(7)).map(|file| file.xid), Some(Xid(20)));
        assert!(!table.contains(OpenHandle(7)) && table.opened_by(Xid(20)).is_none());
        assert_eq!((count(&table), table.end().len(), count(&table)), (1, 1, 0));
        assert!(table.insert(OpenHandle(3), file(30, 0)).is_err(), "the client has left");
    }

    #[test]
    fn open_files_are_counted_by_their_users() {
        let table = OpenTable::default();
        let mut handle = 0;
        for (user, files) in [(0, 3), (7, 2), (8, 1)] {
            for _ in 0..files {
                handle += 1;
                table.insert(OpenHandle(handle), OpenFile { user, ..file(handle, 0) }).unwrap();
            }
        }
        let counts = || {
            let whose = [OpenedBy::Client, OpenedBy::Users, OpenedBy::User(7), OpenedBy::User(9)];
            whose.map(|whose| table.count(whose))
        };
        assert_eq!(counts(), [6, 3, 2, 0]);
        for handle in [1, 4, 5, 5] {
            table.remove(OpenHandle(handle));
        }
        assert_eq!(counts(), [3, 1, 0, 0]);
        table.end();
        assert_eq!(counts(), [0; 4]);
    }
}
