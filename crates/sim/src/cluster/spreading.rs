//! What a tool asks of the mount, past the kernel: that directories are migrated, split and merged.

use sheen_client::posix::NodeId;
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, Name};

use super::Kernel;
use crate::work::Migration;

/// What a directory would be made with, if it were not there.
const MODE: u32 = 0o755;

impl Kernel {
    /// Moves one name of a directory, or begins the migration of the directory that it names.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn migrate(
        &self,
        parent: NodeId,
        name: &Name,
        migration: &Migration,
    ) -> Result<(), Errno> {
        let Migration { wish, names_alone } = migration;
        self.files.migrate_name(self.who(), parent, name, wish.clone(), *names_alone).await
    }

    /// Ends the migration of the directory that a name stands for.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn end_migration(
        &self,
        parent: NodeId,
        name: &Name,
        migration: &Migration,
    ) -> Result<(), Errno> {
        self.files.finish_migration(self.who(), parent, name, migration.wish.clone()).await
    }

    /// Splits or merges a directory.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn restripe(
        &self,
        parent: NodeId,
        name: &Name,
        wish: DirectoryWish,
    ) -> Result<(), Errno> {
        self.files.restripe_directory(self.who(), parent, name, MODE, wish).await
    }
}
