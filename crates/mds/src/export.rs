//! What the MDT keeps for each client: its open files.

use parking_lot::Mutex;
use sheen_types::{Fid, HashMap, Xid};
use sheen_wire::md::{OpenFlags, OpenHandle};

/// One open of one file (Lustre's `mdt_file_data`).
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    pub(crate) flags: OpenFlags,
    /// The request that opened it: by it a repeated open finds its handle.
    pub(crate) xid: Xid,
    /// The handle that an open had before the target restarted.
    pub(crate) old: OpenHandle,
}

/// A client's open files.
#[derive(Default)]
pub(crate) struct OpenTable {
    files: Mutex<HashMap<OpenHandle, OpenFile>>,
}

impl OpenTable {
    pub(crate) fn insert(&self, handle: OpenHandle, file: OpenFile) {
        self.files.lock().insert(handle, file);
    }

    /// By its handle, or by the handle it had before a restart.
    pub(crate) fn remove(&self, handle: OpenHandle) -> Option<OpenFile> {
        let mut files = self.files.lock();
        if let Some(file) = files.remove(&handle) {
            return Some(file);
        }
        let current = files.iter().find(|(_, file)| file.old == handle && handle.0 != 0);
        let current = current.map(|(current, _)| *current)?;
        files.remove(&current)
    }

    pub(crate) fn contains(&self, handle: OpenHandle) -> bool {
        let files = self.files.lock();
        files.contains_key(&handle) || files.values().any(|file| file.old == handle)
    }

    /// What the request `xid` opened.
    pub(crate) fn opened_by(&self, xid: Xid) -> Option<(OpenHandle, OpenFile)> {
        let files = self.files.lock();
        let found = files.iter().find(|(_, file)| file.xid == xid);
        found.map(|(handle, file)| (*handle, file.clone()))
    }

    pub(crate) fn take_all(&self) -> Vec<OpenFile> {
        std::mem::take(&mut *self.files.lock()).into_values().collect()
    }
}
