//! What operators may set about splitting and merging directories (`mdt.*.enable_dir_restripe` and those beside it). It is not kept: an
//! MDT that starts has Lustre's.

use sheen_types::Errno;
use sheen_types::limits::DIRECTORY_STRIPES_MAX;

use crate::Mdt;

/// `DIR_SPLIT_COUNT_DEFAULT`.
const SPLIT_COUNT: u64 = 50_000;
/// `DIR_SPLIT_DELTA_DEFAULT`.
const SPLIT_DELTA: u32 = 4;

/// The settings, with the checks of Lustre's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestripeSettings {
    /// Whether a wish for a directory that is there splits or merges it (`enable_dir_restripe`).
    pub is_enabled: bool,
    /// Whether a directory that has many names is split by itself (`enable_dir_auto_split`).
    pub splits_automatically: bool,
    split_count: u64,
    split_delta: u32,
}

impl Default for RestripeSettings {
    fn default() -> Self {
        Self {
            is_enabled: false,
            splits_automatically: false,
            split_count: SPLIT_COUNT,
            split_delta: SPLIT_DELTA,
        }
    }
}

impl RestripeSettings {
    /// `dir_split_count`: names in a directory, or in a stripe, from which on it is split by itself.
    #[must_use]
    pub fn split_count(&self) -> u64 {
        self.split_count
    }

    /// Sets `dir_split_count`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for 0.
    pub fn set_split_count(&mut self, count: u64) -> Result<(), Errno> {
        if count == 0 {
            return Err(Errno::ERANGE);
        }
        self.split_count = count;
        Ok(())
    }

    /// `dir_split_delta`: stripes that such a split adds, if there are so many MDTs.
    #[must_use]
    pub fn split_delta(&self) -> u32 {
        self.split_delta
    }

    /// Sets `dir_split_delta`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for 0 and for more than 2000.
    pub fn set_split_delta(&mut self, stripes: u64) -> Result<(), Errno> {
        let stripes = u32::try_from(stripes).map_err(|_| Errno::ERANGE)?;
        if !(1..=DIRECTORY_STRIPES_MAX).contains(&stripes) {
            return Err(Errno::ERANGE);
        }
        self.split_delta = stripes;
        Ok(())
    }
}

impl Mdt {
    /// What operators have set about splitting and merging directories.
    #[must_use]
    pub fn restripe_settings(&self) -> RestripeSettings {
        *self.restriper.settings.lock()
    }

    /// Changes it; the result of `change`.
    pub fn change_restripe_settings<T>(
        &self,
        change: impl FnOnce(&mut RestripeSettings) -> T,
    ) -> T {
        let mut settings = self.restriper.settings.lock();
        let changed = change(&mut settings);
        self.restriper.note_settings(&settings);
        changed
    }

    /// Whether a wish for a directory that is there splits or merges it.
    #[must_use]
    pub fn restripes_directories(&self) -> bool {
        self.restripe_settings().is_enabled
    }

    /// Sets whether it does (`enable_dir_restripe`). It does not at the start.
    pub fn restripe_directories(&self, restripe: bool) {
        self.change_restripe_settings(|settings| settings.is_enabled = restripe);
    }

    /// Whether directories with many names are split by themselves.
    #[must_use]
    pub fn splits_directories(&self) -> bool {
        self.restripe_settings().splits_automatically
    }

    /// Sets whether they are (`enable_dir_auto_split`). They are not at the start.
    pub fn split_directories(&self, split: bool) {
        self.change_restripe_settings(|settings| settings.splits_automatically = split);
    }

    /// Whether a split or merge leaves inodes where they are (`dir_restripe_nsonly`): always.
    #[must_use]
    pub fn restripes_names_only(&self) -> bool {
        true
    }
}
