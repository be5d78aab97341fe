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

#[derive(Default)]
struct Files {
    open: HashMap<OpenHandle, OpenFile>,
    /// The client has left: whoever still executes a request of its must not add to them.
    ended: bool,
}

/// A client's open files.
#[derive(Default)]
pub(crate) struct OpenTable {
    files: Mutex<Files>,
}

impl OpenTable {
    /// Adds an open file.
    ///
    /// # Errors
    /// The file again, if the client has left: nobody else would close it.
    pub(crate) fn insert(&self, handle: OpenHandle, file: OpenFile) -> Result<(), OpenFile> {
        let mut files = self.files.lock();
        if files.ended {
            return Err(file);
        }
        files.open.insert(handle, file);
        Ok(())
    }

    /// By its handle, or by the handle it had before a restart.
    pub(crate) fn remove(&self, handle: OpenHandle) -> Option<OpenFile> {
        let files = &mut self.files.lock().open;
        if let Some(file) = files.remove(&handle) {
            return Some(file);
        }
        let current = files.iter().find(|(_, file)| file.old == handle && handle.0 != 0);
        let current = current.map(|(current, _)| *current)?;
        files.remove(&current)
    }

    pub(crate) fn contains(&self, handle: OpenHandle) -> bool {
        let files = &self.files.lock().open;
        files.contains_key(&handle) || files.values().any(|file| file.old == handle)
    }

    /// What the request `xid` opened.
    pub(crate) fn opened_by(&self, xid: Xid) -> Option<(OpenHandle, OpenFile)> {
        let files = &self.files.lock().open;
        let found = files.iter().find(|(_, file)| file.xid == xid);
        found.map(|(handle, file)| (*handle, file.clone()))
    }

    /// Which files they are.
    pub(crate) fn fids(&self) -> Vec<Fid> {
        self.files.lock().open.values().map(|file| file.fid).collect()
    }

    /// All of them, once and for all.
    pub(crate) fn end(&self) -> Vec<OpenFile> {
        let mut files = self.files.lock();
        files.ended = true;
        std::mem::take(&mut files.open).into_values().collect()
    }
}
