//! Attributes that are asked for before a program asks.
//!
//! What is asked ahead is taken over as a lookup's answer is, under the same locks; nothing is shown that a lock does not
//! cover. Sizes come from OSTs with locks of their own ([`Mounted::ask_sizes`], Lustre's AGL), unless the MDT vouches for
//! them.
//!
//! Costs of a cold file of a listing, counted: 1/64 RPC to the MDT, and a glimpse where its size is not vouched for;
//! without batches one RPC and the glimpse.

mod settings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_types::futures;
use sheen_types::{Errno, Instant};

pub use settings::{AheadCounts, AheadSettings};

use super::{Credentials, FileType, Mounted};
use crate::cache::{Inode, LayoutState, Pin};
use crate::data::DataFile;
use crate::meta::BatchedName;

/// Lookups under way at once of names that go one by one.
const LOOKUPS_AT_ONCE: usize = 16;
/// Sizes that one call asks for at once.
const SIZES_AT_ONCE: usize = 256;

impl Mounted {
    /// What names stand for that the cache does not know: in batches, all at once, where the MDT takes those; else one
    /// by one, several at once.
    pub(super) async fn find_all(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        names: Vec<BatchedName>,
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
        let failed = |(place, found): (usize, &Result<_, Errno>)| found.is_err().then_some(place);
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
        let takes = self.meta.mdt(directory.fid).is_ok_and(|mdt| mdt.takes_batches());
        if takes { self.settings.ahead().batch_max() } else { 0 }
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
        if !self.settings.ahead().asks_sizes() {
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
