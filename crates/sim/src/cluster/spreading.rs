//! What a tool asks of the mount, past the kernel: that directories are migrated, split and merged.

use sheen_client::posix::NodeId;
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, Name};

use super::Kernel;
use crate::work::Migration;

impl Kernel {
    /// Moves one name of a directory, or begins the migration of the directory that it names.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn migrate(
        &self,
        _parent: NodeId,
        _name: &Name,
        _migration: &Migration,
    ) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    /// Ends the migration of a directory.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn end_migration(
        &self,
        _directory: NodeId,
        _migration: &Migration,
    ) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    /// Splits or merges a directory.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn restripe(
        &self,
        _parent: NodeId,
        _name: &Name,
        _wish: DirectoryWish,
    ) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
}
