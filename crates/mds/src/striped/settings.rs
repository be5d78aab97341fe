//! What operators may set about striped directories (`lod.*`, `mdt.*.enable_striped_dir`). It is not kept: an MDT that
//! starts has Lustre's.

use sheen_types::Errno;
use sheen_types::limits::{DIRECTORY_STRIPES_MAX, DIRECTORY_STRIPES_PER_MDT_MAX};
use sheen_wire::lmv::LmvHash;

use crate::Mdt;

/// The settings, with the checks of Lustre's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectorySettings {
    /// Whether directories get several stripes (`enable_striped_dir`).
    pub is_enabled: bool,
    /// Whether directories move to other MDTs (`enable_dir_migration`).
    pub migrates: bool,
    hash: LmvHash,
    max_stripes: u32,
    max_stripes_per_mdt: u32,
}

impl Default for DirectorySettings {
    fn default() -> Self {
        Self {
            is_enabled: true,
            migrates: true,
            hash: LmvHash::FNV_1A_64,
            max_stripes: 0,
            max_stripes_per_mdt: DIRECTORY_STRIPES_PER_MDT_MAX,
        }
    }
}

impl DirectorySettings {
    /// `mdt_hash`: how names choose a stripe where that was not said (`LMV_HASH_TYPE_DEFAULT`).
    #[must_use]
    pub fn hash(&self) -> LmvHash {
        self.hash
    }

    /// Sets `mdt_hash`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for one that is unknown.
    pub fn set_hash(&mut self, hash: LmvHash) -> Result<(), Errno> {
        match hash.is_known() && hash == hash.without_flags() {
            true => {
                self.hash = hash;
                Ok(())
            }
            false => Err(Errno::EINVAL),
        }
    }

    /// `max_mdt_stripecount`: the most stripes of a directory that is to have some on each MDT; 0 for no limit.
    #[must_use]
    pub fn max_mdt_stripecount(&self) -> u32 {
        self.max_stripes
    }

    /// Sets `max_mdt_stripecount`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for more than 2000.
    pub fn set_max_mdt_stripecount(&mut self, count: u64) -> Result<(), Errno> {
        self.max_stripes = within(count, 0, DIRECTORY_STRIPES_MAX)?;
        Ok(())
    }

    /// `max_stripes_per_mdt`: the most stripes of one directory on one MDT.
    #[must_use]
    pub fn max_stripes_per_mdt(&self) -> u32 {
        self.max_stripes_per_mdt
    }

    /// Sets `max_stripes_per_mdt`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for 0 and for more than 5.
    pub fn set_max_stripes_per_mdt(&mut self, count: u64) -> Result<(), Errno> {
        self.max_stripes_per_mdt = within(count, 1, DIRECTORY_STRIPES_PER_MDT_MAX)?;
        Ok(())
    }
}

fn within(count: u64, least: u32, most: u32) -> Result<u32, Errno> {
    let count = u32::try_from(count).map_err(|_| Errno::ERANGE)?;
    if (least..=most).contains(&count) { Ok(count) } else { Err(Errno::ERANGE) }
}

impl Mdt {
    /// What operators have set about striped directories.
    #[must_use]
    pub fn directory_settings(&self) -> DirectorySettings {
        *self.directory_settings.lock()
    }

    /// Changes it, for directories that are made from now on; the result of `change`.
    pub fn change_directory_settings<T>(
        &self,
        change: impl FnOnce(&mut DirectorySettings) -> T,
    ) -> T {
        change(&mut self.directory_settings.lock())
    }

    /// Whether directories get several stripes.
    #[must_use]
    pub fn makes_striped_directories(&self) -> bool {
        self.directory_settings().is_enabled
    }

    /// Whether directories move to other MDTs when they are asked to.
    #[must_use]
    pub fn migrates_directories(&self) -> bool {
        self.directory_settings().migrates
    }

    /// Sets whether they do (`enable_dir_migration`). They do at the start.
    pub fn migrate_directories(&self, migrate: bool) {
        self.change_directory_settings(|settings| settings.migrates = migrate);
    }

    /// Sets whether they do (`enable_striped_dir`). They do at the start.
    pub fn make_striped_directories(&self, make: bool) {
        self.change_directory_settings(|settings| settings.is_enabled = make);
    }
}
