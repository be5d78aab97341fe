//! Calls that the kernel sends once more, because the process that had read them has ended without an answer.
//!
//! That process may have executed them or not. What changes a name cannot be executed twice, but before the kernel
//! sends such a call it has looked at the name: one that it has found and that is not there was removed by this very
//! call, and one that it has not found and that is there was made by it, if this mount has made what it names.
//! (Another client may have done the same in that moment; then this call was no later than that.)

use sheen_client::posix::{
    Credentials, Entry, FileHandle, FileSystem, Lookup, NodeId, OpenFlags, Opened, XattrMode,
};
use sheen_fuse_wire::Request;
use sheen_types::{Errno, Name};

/// The kernel's mark (`FUSE_UNIQUE_RESEND`).
const MARK: u64 = 1 << 63;

/// Whether a call is sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resent(pub(crate) bool);

impl Resent {
    pub(crate) fn of(request: &Request) -> Self {
        Self(request.unique() & MARK != 0)
    }

    /// The result of removing a name or an attribute, of which `absent` says that it is not there.
    pub(crate) fn removed(self, result: Result<(), Errno>, absent: Errno) -> Result<(), Errno> {
        match result {
            Err(errno) if self.0 && errno == absent => Ok(()),
            result => result,
        }
    }

    /// The result of a rename.
    pub(crate) async fn renamed(
        self,
        (files, who): (&FileSystem, &Credentials),
        (parent, name): (NodeId, &Name),
        (new_parent, new_name): (NodeId, &Name),
        result: Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !self.0 || !matches!(result, Err(Errno::ENOENT | Errno::EEXIST)) {
            return result;
        }
        let is_gone = !is_there(files, who, parent, name).await?;
        match is_gone && is_there(files, who, new_parent, new_name).await? {
            true => Ok(()),
            false => result,
        }
    }

    /// The result of making a directory, a symbolic link or a node.
    pub(crate) async fn made(
        self,
        (files, who): (&FileSystem, &Credentials),
        (parent, name): (NodeId, &Name),
        result: Result<Entry, Errno>,
    ) -> Result<Entry, Errno> {
        if !self.0 || !matches!(result, Err(Errno::EEXIST)) {
            return result;
        }
        files.entry_made_by_former(who, parent, name).await?.map_or(result, Ok)
    }

    /// The result of a link to `node`.
    pub(crate) async fn linked(
        self,
        (files, who): (&FileSystem, &Credentials),
        node: NodeId,
        (parent, name): (NodeId, &Name),
        result: Result<Entry, Errno>,
    ) -> Result<Entry, Errno> {
        if !self.0 || !matches!(result, Err(Errno::EEXIST)) {
            return result;
        }
        match files.lookup(who, parent, name).await? {
            Lookup::Found(entry) if entry.node == node => Ok(entry),
            Lookup::Found(entry) => {
                files.forget(entry.node, 1);
                result
            }
            Lookup::Absent { .. } => result,
        }
    }

    /// The result of a create: the file may have been made, with a mode that lets no one open it so again.
    pub(crate) async fn created(
        self,
        (files, who): (&FileSystem, &Credentials),
        (parent, name): (NodeId, &Name),
        flags: OpenFlags,
        result: Result<(Entry, Opened), Errno>,
    ) -> Result<(Entry, Opened), Errno> {
        if !self.0 || !matches!(result, Err(Errno::EEXIST | Errno::EACCES)) {
            return result;
        }
        files.file_created_by_former(who, parent, name, flags).await?.map_or(result, Ok)
    }

    /// The result of setting an extended attribute that was not there.
    pub(crate) async fn attribute_set(
        self,
        (files, who): (&FileSystem, &Credentials),
        (node, mode): (NodeId, XattrMode),
        (name, value): (&[u8], &[u8]),
        result: Result<(), Errno>,
    ) -> Result<(), Errno> {
        let is_doubtful = self.0 && mode == XattrMode::Create;
        if !is_doubtful || !matches!(result, Err(Errno::EEXIST)) {
            return result;
        }
        match files.getxattr(who, node, name).await? {
            found if found == value => Ok(()),
            _ => result,
        }
    }

    /// Whether a write may be executed: at the end of the file its bytes may be already, and no one can say.
    ///
    /// # Errors
    /// `EIO` if so.
    pub(crate) async fn may_write(
        self,
        files: &FileSystem,
        handle: FileHandle,
        offset: u64,
    ) -> Result<(), Errno> {
        if !self.0 || !files.may_have_appended(handle, offset).await? {
            return Ok(());
        }
        tracing::warn!(
            offset,
            "an append was under way when the mount's process ended, and may be in the file or not"
        );
        Err(Errno::EIO)
    }
}

async fn is_there(
    files: &FileSystem,
    who: &Credentials,
    parent: NodeId,
    name: &Name,
) -> Result<bool, Errno> {
    match files.lookup(who, parent, name).await? {
        Lookup::Found(entry) => {
            files.forget(entry.node, 1);
            Ok(true)
        }
        Lookup::Absent { .. } => Ok(false),
    }
}
