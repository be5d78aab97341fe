//! Splitting and merging directories in the background (Lustre: `mdt_restripe.c`).
//!
//! A split or merge begins and ends with a change of the directory as a whole (`coordinator::restripe`). In between each MDT goes
//! through its own stripes and moves the names that belong to other stripes ([`task`]); inodes stay where they are. A stripe that is
//! through says so in its layout, and when all do, the MDT of the master ends it.
//!
//! What always holds: an inode is in the index [`RESTRIPING`] while its layout says that names are being moved by a split or
//! merge, and is put there in the same transaction; so a start finds what is to be done without a walk. All else that is kept here is
//! lost with a restart, and costs only that a stripe is gone through from its beginning.
//!
//! Cost for a directory that is not being changed: none; where directories are split by themselves ([`auto_split`]), a counter for each
//! name that is made.

mod auto_split;
mod settings;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::directory::DirectoryLayout;
use sheen_store::{Store, StoreError, all_entries};
use sheen_types::{Fid, fid_seq};
use sheen_wire::lmv::LmvEa;
use tokio::sync::Notify;

use crate::change_set::ChangeSet;
use crate::orphans::{fid_key, parse_fid_key};

use self::auto_split::NamesMade;
pub use self::settings::RestripeSettings;

/// Index of directories and stripes whose layout says that names are being moved by a split or merge: FID, big-endian, to nothing.
pub(crate) const RESTRIPING: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x208);

/// What the restriper of an MDT keeps.
#[derive(Default)]
pub(crate) struct Restriper {
    settings: Mutex<RestripeSettings>,
    /// There is something to be looked at.
    pub(crate) changed: Arc<Notify>,
    /// An inode came into the index, or is about to.
    is_noted: AtomicBool,
    /// The task was started.
    is_started: AtomicBool,
    /// Whether directories are split by themselves: of the settings, looked at for each name that is made.
    splits: AtomicBool,
    made: NamesMade,
}

impl Restriper {
    fn note_settings(&self, settings: &RestripeSettings) {
        self.splits.store(settings.splits_automatically, Ordering::Relaxed);
    }

    /// A change was applied: if an inode came into the index with it, the task looks.
    pub(crate) fn look_if_noted(&self) {
        if self.is_noted.load(Ordering::Acquire) && self.is_noted.swap(false, Ordering::AcqRel) {
            self.changed.notify_one();
        }
    }
}

/// All inodes in the index.
///
/// # Errors
/// Those of the store.
pub(crate) fn list(store: &dyn Store) -> Result<Vec<Fid>, StoreError> {
    let fids = all_entries(store, RESTRIPING, &[]).map(|entry| Ok(parse_fid_key(&entry?.key)));
    fids.filter_map(Result::transpose).collect()
}

/// Whether a `trusted.lmv` says that names are being moved by a split or merge. What cannot be read says nothing.
pub(crate) fn says_restriping(layout: &Bytes) -> bool {
    let layout = LmvEa::decode(layout).ok().and_then(|ea| DirectoryLayout::from_ea(&ea).ok());
    layout.is_some_and(|layout| layout.is_restriping())
}

impl ChangeSet<'_> {
    /// The layout of a directory, or of a stripe, is set: the index says the same.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn note_layout(
        &mut self,
        directory: Fid,
        layout: &Bytes,
    ) -> Result<(), sheen_types::Errno> {
        let is_noted = self.mdt.store.lookup(RESTRIPING, &fid_key(directory));
        let is_noted = is_noted.map_err(sheen_target::store_errno)?.is_some();
        match says_restriping(layout) {
            true if !is_noted => {
                self.insert_own(RESTRIPING, fid_key(directory));
                self.mdt.restriper.is_noted.store(true, Ordering::Release);
            }
            false if is_noted => self.delete_own(RESTRIPING, fid_key(directory)),
            _ => {}
        }
        Ok(())
    }

    /// A directory that is gone, or changes no more, leaves the index.
    pub(crate) fn forget_restriping(&mut self, directory: Fid) {
        self.delete_own(RESTRIPING, fid_key(directory));
    }
}
