//! The facade: what FUSE and native benchmarks call.
//!
//! Every call takes the caller's [`Credentials`] and answers a POSIX `Errno`. An inode is known by its
//! [`NodeId`] from the lookup that found it until as many lookups have been forgotten; an open file by its
//! [`FileHandle`] until released. Answers say what the kernel may keep ([`MayCache`]): exactly what a held lock covers;
//! [`KernelNotifier`] is notified when that lock is revoked.
//!
//! A call may be dropped at any await (an interrupted system call): a change that has been sent happens or
//! not, a lock request is withdrawn. An open that has been sent may stay open on the MDT until the mount ends: FUSE
//! lets an interrupted one go on and releases what it opened.
//!
//! Costs, in RPCs: the module of each operation in `crate::meta` says; at most one for each
//! metadata operation, none where a lock covers the answer; one more for a name of an inode of another MDT.

mod access_times;
mod advice;
mod ahead;
mod attributes;
mod closing;
mod data_calls;
mod data_version;
mod directory;
#[cfg(test)]
mod dom_tests;
mod exported;
mod extents_stats;
mod file_lock_owners;
mod file_locks;
#[cfg(test)]
mod file_locks_tests;
mod files;
mod flags;
mod group_lock;
mod handles;
mod heat;
mod hybrid;
#[cfg(test)]
mod hybrid_tests;
mod inodes;
#[cfg(test)]
mod kernel_tests;
mod migrate;
mod moved_directories;
mod moving;
mod names;
mod open_cache;
#[cfg(test)]
mod open_cache_tests;
#[cfg(test)]
mod own_attributes_tests;
#[cfg(test)]
mod own_names_tests;
mod page_handoff;
mod page_limit;
mod page_writes;
mod permission;
mod restore;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod rights_tests;
mod settings;
#[cfg(test)]
mod settings_tests;
#[cfg(test)]
mod several_mdts_tests;
mod stale_retry;
mod statistics;
#[cfg(test)]
mod striped_tests;
#[cfg(test)]
mod sync_tests;
#[cfg(test)]
mod tests;
mod types;
#[cfg(test)]
mod xattr_tests;
mod xattrs;

use std::sync::Arc;
use std::time::Duration;

pub use sheen_types::access::{Audience, May};

use parking_lot::RwLock;

use crate::cache::{InodeTable, KernelCache};
use crate::data::DataPath;
use crate::locks::ClientNamespace;
use crate::meta::Meta;
use crate::targets::Targets;

pub use crate::cache::{KernelNotifier, NAME_TIMEOUT, PagesKept, SizeRaise};
pub use crate::meta::balance::{BalanceSettings, DirectoryBalance};
pub use crate::types::{
    Attributes, Credentials, Fallocate, FileLock, FileLockMode, FileType, Invalidated, LockOwner,
    NameInvalidation, NodeId, OpenCounts, OpenFlags, Seek, SetAttributes, SetTime, Stale,
    StaleName, TYPE_MASK, VersionFlush, XattrMode,
};
pub(crate) use ahead::StatAhead;
pub use ahead::{AheadCounts, AheadSettings};
pub(crate) use closing::PendingCloses;
pub use extents_stats::{Counted as ExtentsCounted, ExtentsStats, Range, SIZES, Sizes};
pub(crate) use file_locks::FileLocksTaken;
pub(crate) use handles::Handles;
pub(crate) use migrate::Migrations;
pub(crate) use page_handoff::PageHandoff;
pub(crate) use restore::FormerProcess;
pub use restore::Restored;
pub use settings::{HeatSettings, OpenCacheSettings, Settings};
pub(crate) use stale_retry::StaleRetry;
pub use statistics::{Operation, Statistics, Tracked};
pub use types::{
    AccessTimes, DirCookie, DirEntry, DirEntryPlus, Entry, FileHandle, FsStat, ListingRoom, Lookup,
    MayCache, NewNode, Opened, RenameMode, Stat,
};

/// A mounted file system. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct FileSystem(Arc<Mounted>);

/// What a mount consists of.
pub(crate) struct Mounted {
    pub(crate) meta: Meta,
    pub(crate) data: Arc<dyn DataPath>,
    pub(crate) targets: Arc<Targets>,
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) kernel_cache: Arc<KernelCache>,
    pub(crate) handles: Handles,
    pub(crate) stale_retry: StaleRetry,
    pub(crate) migrations: Migrations,
    pub(crate) statistics: Statistics,
    pub(crate) settings: Settings,
    pub(crate) ahead: StatAhead,
    /// User and group as which root is checked; `None` for root itself.
    pub(crate) squash: RwLock<Option<(u32, u32)>>,
    pub(crate) access_times: RwLock<AccessTimes>,
    pub(crate) page_handoff: PageHandoff,
    pub(crate) file_locks_taken: FileLocksTaken,
    pub(crate) closing: PendingCloses,
    pub(crate) former: FormerProcess,
}

impl FileSystem {
    /// A lock that every call takes and that cannot be had within `limit`: a call would be stuck with it.
    /// Waits in the thread, twice at most.
    #[must_use]
    pub fn stuck_lock(&self, limit: Duration) -> Option<&'static str> {
        match (self.0.inodes.is_responsive(limit), self.0.handles.is_responsive(limit)) {
            (false, _) => Some("the table of inodes"),
            (true, false) => Some("the table of open files"),
            (true, true) => None,
        }
    }

    /// Joins the parts; [`crate::config::mount`] makes them.
    pub(crate) fn new(mounted: Mounted) -> Self {
        Self(Arc::new(mounted))
    }

    /// Who is notified when what was answered with [`MayCache`] goes stale. Until there is a notifier, nothing may
    /// be kept and every answer says so. `audience` is who uses what is kept.
    pub fn attach_notifier(&self, notifier: Arc<dyn KernelNotifier>, audience: Audience) {
        self.0.kernel_cache.attach_notifier(notifier, audience);
    }

    /// The locks of each target: `MGS`, `FSNAME-MDT0000` and so on; for operators.
    #[must_use]
    pub fn lock_namespaces(&self) -> Vec<Arc<ClientNamespace>> {
        self.0.targets.lock_namespaces()
    }

    /// What was counted of the calls to it.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    /// What operators set.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Whether extended attributes are kept under their locks (`xattr_cache`).
    #[must_use]
    pub fn caches_xattrs(&self) -> bool {
        self.0.meta.caches_xattrs()
    }

    /// Turns the caching of extended attributes on or off (`xattr_cache`).
    pub fn set_caches_xattrs(&self, on: bool) {
        self.0.meta.set_caches_xattrs(on);
    }

    /// Whether new directories go where the default of their parent or of the root says, as they do at first; if not, they are
    /// made beside their names, with whatever stripes their MDT gives them.
    pub fn set_places_directories(&self, on: bool) {
        self.0.meta.set_places_directories(on);
    }

    /// How new directories for which no MDT is named are spread over MDTs (`lmv.*.qos_*`).
    #[must_use]
    pub fn directory_balance(&self) -> &Arc<DirectoryBalance> {
        self.0.meta.directory_balance()
    }

    /// Bytes of answers that are meant for layouts (`default_easize`), and for data that comes with an open
    /// (`dom_min_repsize`).
    #[must_use]
    pub fn reply_rooms(&self) -> (usize, usize) {
        (self.0.meta.layout_room(), self.0.meta.inline_room())
    }

    /// Sets the bytes of an answer that are meant for a layout (`default_easize`).
    pub fn set_layout_room(&self, bytes: usize) {
        self.0.meta.set_layout_room(bytes);
    }

    /// Sets the bytes of an answer to an open that are meant for data (`dom_min_repsize`).
    pub fn set_inline_room(&self, bytes: usize) {
        self.0.meta.set_inline_room(bytes);
    }

    /// How many inodes are known, for operators.
    #[must_use]
    pub fn inodes_known(&self) -> usize {
        self.0.inodes.len()
    }
}
