//! The runs of a mount, and what is known of processes that list directories: whether they look at what they list.
//!
//! The kernel asks for the first names of a directory with their attributes whether or not a program wants those
//! (readdirplus). A process that is not known to want them gets few names, and without; the first of them that it looks
//! up shows that it does. Then it is known for [`LISTINGS_TRUSTED`] listings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sheen_types::{Instant, Name};

use super::numbers::{NumberedName, Patterns, Thresholds};
use super::run::{AheadName, Run};
use crate::posix::{FileHandle, FileType, NodeId};

/// Listings that are remembered at once, of a mount: the oldest are forgotten.
const LISTINGS_MAX: usize = 64;
/// Processes that are known to look at what they list.
const LISTERS_MAX: usize = 64;
/// So many of its listings bring attributes before a process has to look at a name again.
const LISTINGS_TRUSTED: u32 = 16;
/// Directories that a process looks up in a listing before it counts as one that looks at what it lists: one that walks a
/// tree looks at directories in any case.
const DIRECTORIES_LOOKED_AT: u32 = 3;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct StatAhead {
    state: Mutex<State>,
    /// Listings and runs: most lookups need not look further.
    count: AtomicUsize,
}

#[derive(Default)]
struct State {
    listings: Vec<Listing>,
    listers: Vec<(u32, u32)>,
    runs: Vec<Arc<Run>>,
    patterns: Patterns,
}

/// A directory that was listed without a look at what its names stand for.
struct Listing {
    pid: u32,
    handle: FileHandle,
    directory: NodeId,
    directories_looked_at: u32,
}

/// What a lookup shows.
pub(super) enum Shown {
    Nothing,
    /// That the process looks at what this handle has listed.
    Lister(FileHandle),
    /// That names are looked up in the order of their numbers.
    Numbers(NumberedName),
}

impl StatAhead {
    /// Whether there is nothing that a lookup could be a part of.
    pub(super) fn is_idle(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether a process that begins to list is known to look at what it lists.
    pub(in crate::posix) fn trusts(&self, pid: u32) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.listers.iter().position(|(known, _)| *known == pid) else {
            return false;
        };
        state.listers[at].1 -= 1;
        if state.listers[at].1 == 0 {
            state.listers.remove(at);
        }
        true
    }

    /// A process looks at what it lists.
    pub(in crate::posix) fn trust(&self, pid: u32) {
        let mut state = self.state.lock();
        state.listers.retain(|(known, _)| *known != pid);
        if state.listers.len() >= LISTERS_MAX {
            state.listers.remove(0);
        }
        state.listers.push((pid, LISTINGS_TRUSTED));
    }

    /// Names of a directory were listed without a look at what they stand for.
    pub(in crate::posix) fn listed(&self, pid: u32, handle: FileHandle, directory: NodeId) {
        self.change(|state| {
            state.listings.retain(|listing| listing.handle != handle);
            if state.listings.len() >= LISTINGS_MAX {
                state.listings.remove(0);
            }
            let listing = Listing { pid, handle, directory, directories_looked_at: 0 };
            state.listings.push(listing);
        });
    }

    /// A process has looked a name up, which is there and of this type, and was not asked for ahead.
    pub(super) fn looked_up(
        &self,
        now: Instant,
        pid: u32,
        (directory, name): (NodeId, &Name),
        file_type: Option<FileType>,
        thresholds: Option<Thresholds>,
    ) -> Shown {
        self.change(|state| {
            if let Some(run) = state.runs.iter().find(|run| run.is_of(directory, pid)) {
                run.note_missed(now);
                return Shown::Nothing;
            }
            let is_it = |it: &Listing| it.directory == directory && it.pid == pid;
            if let Some(at) = state.listings.iter().position(is_it) {
                let listing = &mut state.listings[at];
                listing.directories_looked_at += u32::from(file_type == Some(FileType::Directory));
                let is_enough = listing.directories_looked_at >= DIRECTORIES_LOOKED_AT;
                if file_type == Some(FileType::Directory) && !is_enough {
                    return Shown::Nothing;
                }
                return Shown::Lister(state.listings.remove(at).handle);
            }
            let numbered = thresholds.and_then(|thresholds| {
                let name = NumberedName::parse(name)?;
                state.patterns.note(directory, &name, thresholds).then_some(name)
            });
            numbered.map_or(Shown::Nothing, Shown::Numbers)
        })
    }

    /// Begins a run, unless there are so many. Another one of this process in the directory ends.
    pub(super) fn begin(&self, run: &Arc<Run>, runs_max: usize) -> bool {
        self.change(|state| {
            let former = state.runs.iter().filter(|former| former.is_of(run.directory, run.pid));
            former.for_each(|former| former.stop());
            if state.runs.len() >= runs_max {
                return false;
            }
            state.runs.push(Arc::clone(run));
            true
        })
    }

    /// The run that goes ahead of a listing.
    pub(super) fn run_of(&self, handle: FileHandle) -> Option<Arc<Run>> {
        let state = self.state.lock();
        state.runs.iter().find(|run| run.handle == Some(handle) && !run.is_over()).cloned()
    }

    /// A run is over.
    pub(super) fn remove(&self, run: &Arc<Run>) {
        self.change(|state| state.runs.retain(|known| !Arc::ptr_eq(known, run)));
    }

    /// The name, if it was asked for ahead, with the run that did.
    pub(super) fn take(&self, directory: NodeId, name: &Name) -> Option<(Arc<Run>, AheadName)> {
        if self.is_idle() {
            return None;
        }
        let state = self.state.lock();
        let mut runs = state.runs.iter().filter(|run| run.directory == directory);
        runs.find_map(|run| Some((Arc::clone(run), run.take(name)?)))
    }

    /// A handle is closed: its run ends. That it listed is remembered, since programs list a directory first and look
    /// at its names then.
    pub(super) fn closed(&self, handle: FileHandle) -> Option<Arc<Run>> {
        if self.is_idle() { None } else { self.run_of(handle) }
    }

    /// All runs.
    pub(super) fn runs(&self) -> Vec<Arc<Run>> {
        self.state.lock().runs.clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let value = change(&mut state);
        self.count.store(state.listings.len() + state.runs.len(), Ordering::Release);
        value
    }
}
