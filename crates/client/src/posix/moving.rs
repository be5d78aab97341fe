//! Directories that move to other MDTs, name by name (`lfs migrate -m`), and names whose inode is lost (`lfs rm_entry`).

use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, Extent, Name};

use super::{Credentials, FileSystem, FileType, NodeId};
use crate::boxed;
use crate::cache::Inode;

impl FileSystem {
    /// Moves `name` in `parent` to where `wish` says: a directory begins to move, and in one that does each other name moves with
    /// its inode, if that is not open. With `names_only` a directory in one that moves stays where it is, but for
    /// its name. Two RPCs, and a lookup.
    ///
    /// # Errors
    /// `EALREADY` if it is where it belongs; `EPERM` for other users than root, or another wish than that by which the directory
    /// moves; `EINVAL` for the root, `ENODEV` for an MDT that there is not.
    #[boxed]
    pub async fn migrate_name(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        wish: DirectoryWish,
        names_only: bool,
    ) -> Result<(), Errno> {
        let parent = self.0.pin(parent)?;
        if let Some(child) = self.0.find(who, &parent, name).await? {
            flush_before_move(&child).await;
        }
        let migrate = || self.0.meta.migrate(who, (&parent, name), &wish, names_only);
        self.0.retry_with_rights(who, &[&parent], migrate).await
    }

    /// Ends that of the directory `name` in `parent`, once each name in it was moved. Two RPCs.
    ///
    /// # Errors
    /// `EALREADY` if it has ended; what its MDT refuses while names are left, or for another wish.
    #[boxed]
    pub async fn finish_migration(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        wish: DirectoryWish,
    ) -> Result<(), Errno> {
        let parent = self.0.pin(parent)?;
        if who.uid != 0 {
            return Err(Errno::EPERM);
        }
        let directory = self.0.find(who, &parent, name).await?.ok_or(Errno::ENOENT)?;
        if directory.file_type() != Some(FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        self.0.meta.finish_migration(who, &directory, &wish).await
    }

    /// Removes a name without a look at what it stands for. One RPC.
    ///
    /// # Errors
    /// As `unlink(2)`; `EPERM` for other users than root.
    #[boxed]
    pub async fn remove_entry(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<(), Errno> {
        let parent = self.0.pin(parent)?;
        self.0.meta.remove_entry(who, &parent, name).await
    }
}

/// Has what this client has written to a file on OSTs before the file is another inode: its objects stay the same.
/// What fails is lost to the file, as after any other write that fails, and reported for the inode of before alone.
async fn flush_before_move(file: &Inode) {
    let data = file.state().file.data.clone();
    if let Some(data) = data {
        data.flush(Extent::ALL).await;
    }
}
