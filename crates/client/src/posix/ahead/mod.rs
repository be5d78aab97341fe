//! Attributes that are asked for before a program asks (Lustre's stat-ahead).
//!
//! What is asked ahead is taken over as a lookup's answer is, under the same locks; nothing is shown that a lock does not
//! cover. A *run* ([`run`]) asks for names that are expected to be looked up next: those of a listing in its order,
//! or those that count on ([`numbers`]); [`table`] has the runs, and decides when one is worth while; [`going`] keeps
//! them ahead. Sizes come from OSTs with locks of their own ([`Mounted::ask_sizes`], Lustre's AGL), unless the MDT
//! vouches for them.
//!
//! Costs of a cold file of a long listing, counted: 1/64 RPC to the MDT, and a glimpse where its size is not vouched for;
//! without batches one RPC and the glimpse. Of a name in the order of its numbers the same. A lookup that has nothing to
//! do with a run reads one atomic.

mod going;
mod names_ahead;
mod numbers;
mod run;
#[cfg(test)]
mod run_tests;
mod settings;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use std::time::Duration;

use sheen_io::BoxFuture;
use sheen_types::futures;
use sheen_types::{Errno, Instant};

pub use settings::{AheadCounts, AheadSettings};
pub(crate) use table::StatAhead;

use super::names::KnownName;
use super::{Credentials, FileType, Mounted};
use crate::cache::{Inode, LayoutState, Pin};
use crate::data::DataFile;
use crate::meta::BatchedName;

/// Lookups under way at once of names that go one by one.
const LOOKUPS_AT_ONCE: usize = 16;
/// How long a reply waits for sizes, which only OSTs know: a listing ends in front of a file that is open here and whose
/// size has not come by then, and the kernel asks for names alone.
pub(super) const SIZES_PATIENCE: Duration = Duration::from_millis(500);
/// Sizes that one call asks for at once.
const SIZES_AT_ONCE: usize = 256;

/// What becomes of a name that a batch has failed to look up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfFailed {
    /// It is looked up alone.
    AskAlone,
    /// Nothing: a program that wants it asks.
    LeaveOpen,
}

impl Mounted {
    /// What names stand for. Those that the cache does not know are asked for in batches, all at once, where the MDT takes
    /// those; else one by one, several at once. A name that a batch fails for is
    /// treated as `if_failed` says.
    pub(super) async fn find_all(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        names: Vec<BatchedName>,
        if_failed: IfFailed,
    ) -> Vec<Result<Option<Pin>, Errno>> {
        let mut may_search = None;
        let mut found = Vec::with_capacity(names.len());
        let (mut places, mut unknown, mut pinned) = (Vec::new(), Vec::new(), Vec::new());
        for (place, name) in names.into_iter().enumerate() {
            let known = match self.known_name(directory, &name.name) {
                Ok(KnownName::Absent) => Some(Ok(None)),
                Ok(KnownName::Covered(child)) => Some(Ok(Some(child))),
                Err(errno) => Some(Err(errno)),
                Ok(KnownName::Named(child)) => {
                    pinned.push(child);
                    None
                }
                Ok(KnownName::Unknown(_, child)) => {
                    pinned.extend(child);
                    None
                }
            };
            let Some(known) = known else {
                places.push(place);
                unknown.push(name);
                found.push(Ok(None));
                continue;
            };
            if may_search.is_none() {
                may_search = Some(self.may_search(who, directory).await);
            }
            found.push(may_search.unwrap_or(Ok(())).and(known));
        }
        let answers = self.ask_all(who, directory, unknown, if_failed).await;
        for (place, answer) in places.into_iter().zip(answers) {
            found[place] = answer;
        }
        drop(pinned);
        found
    }

    async fn ask_all(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        names: Vec<BatchedName>,
        if_failed: IfFailed,
    ) -> Vec<Result<Option<Pin>, Errno>> {
        let batch = self.batch_max(directory);
        if batch < 2 || names.len() < 2 {
            return self.find_each(who, directory, &names).await;
        }
        let asked = names.chunks(batch).map(|some| -> BoxFuture<'_, _> {
            Box::pin(self.meta.lookup_batch(who, directory, some))
        });
        let asked = futures::all_pinned(asked.collect()).await;
        let mut found: Vec<_> = asked.into_iter().flatten().collect();
        if if_failed == IfFailed::LeaveOpen {
            return found;
        }
        // One whose MDT is away is shown as it is listed.
        let failed = |(place, found): (usize, &Result<_, Errno>)| {
            let is_failed = matches!(found, Err(errno) if *errno != Errno::ENOTCONN);
            is_failed.then_some(place)
        };
        let failed: Vec<usize> = found.iter().enumerate().filter_map(failed).collect();
        // A batch waits for no lock, and has room for one group: these are asked as any lookup is.
        let again: Vec<_> = failed.iter().map(|place| names[*place].clone()).collect();
        let answers = self.find_each(who, directory, &again).await;
        for (place, answer) in failed.into_iter().zip(answers) {
            found[place] = answer;
        }
        found
    }

    /// Names that a batch to the MDT of a directory may have; 0 if it takes none.
    fn batch_max(&self, directory: &Inode) -> usize {
        let takes = self.meta.known_mdt(directory.fid).is_some_and(|mdt| mdt.takes_batches());
        if takes { self.settings.ahead.batch_max.get() } else { 0 }
    }

    async fn find_each(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        names: &[BatchedName],
    ) -> Vec<Result<Option<Pin>, Errno>> {
        let mut found = Vec::with_capacity(names.len());
        for some in names.chunks(LOOKUPS_AT_ONCE) {
            let lookups = some.iter().map(|name| -> BoxFuture<'_, _> {
                Box::pin(self.find(who, directory, &name.name))
            });
            found.extend(futures::all_pinned(lookups.collect()).await);
        }
        found
    }

    /// Asks OSTs for the sizes of those files whose size no lock covers, many at once. Returns when they are known, or at
    /// `until`; a size that came by then is under its lock.
    pub(super) async fn ask_sizes(
        &self,
        who: &Credentials,
        inodes: impl Iterator<Item = &Pin>,
        until: Instant,
    ) {
        if !self.settings.ahead.asks_sizes.get() {
            return;
        }
        let lacking: Vec<&Pin> = inodes.filter(|inode| lacks_size(inode)).collect();
        let ask_all = async {
            for some in lacking.chunks(SIZES_AT_ONCE) {
                let asked = some.iter().map(|inode| -> BoxFuture<'_, _> {
                    let ask = |data: Arc<dyn DataFile>| async move { data.attributes().await };
                    Box::pin(self.with_data(who, inode, ask))
                });
                // A size that did not come is asked for again when a program wants it, which gets the error.
                drop(futures::all_pinned(asked.collect()).await);
            }
        };
        if !lacking.is_empty() {
            futures::race(ask_all, self.meta.world.clock.sleep_until(until)).await;
        }
    }
}

/// Whether the size of an inode is to be asked of its OSTs: it has objects, by a layout that a lock covers.
fn lacks_size(inode: &Inode) -> bool {
    let data = {
        let state = inode.state();
        let has_objects = matches!(state.layout(), Some(LayoutState::Placed(_)));
        let is_file = state.file_type() == Some(FileType::Regular);
        if !is_file || !has_objects || state.size_covered() {
            return false;
        }
        state.file.data.clone()
    };
    data.is_none_or(|data| data.attributes_covered().is_none())
}
