//! Splitting directories that have many names (Lustre: `mdt_auto_split`, `enable_dir_auto_split`).
//!
//! How many names a directory has is not kept. Each [`LOOK`] names that are made in one it is estimated: names lie in the order of their
//! hashes, which are spread evenly, so the first few of them say by the last one's hash how dense all are. That is exact for fewer names than are
//! looked at, and to some per cent for more.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::{logged, within};
use sheen_layout::directory::{DirectoryWish, Holder, WishedStripes};
use sheen_store::{Store, StoreError};
use sheen_target::Target;
use sheen_types::{Errno, Fid, HashMap, Name};
use sheen_wire::lmv::LmvHash;

use crate::Mdt;
use crate::coordinator::{Initiator, Restripe};
use crate::directory::{HASH_FIRST, HASH_LIMIT, parse_key};
use crate::striped::{layout_in, master_in};

/// Names that are looked at for an estimate.
const SAMPLE: usize = 256;
/// Names that are made in a directory between two estimates, at most; of few that make a split a share.
const LOOK: u64 = 256;
const LOOK_SHARE: u64 = 4;
/// How long the begin of a split may take: an MDT may go away meanwhile, and there is more to do.
const SPLIT_MAX: Duration = Duration::from_secs(10);
/// Directories whose names are counted.
const DIRECTORIES_MAX: usize = 4096;

/// Names that were made since the last estimate, by directory, and the directories that have too many.
#[derive(Default)]
pub(super) struct NamesMade(Mutex<State>);

#[derive(Default)]
struct State {
    made: HashMap<Fid, u64>,
    many: BTreeSet<Fid>,
}

/// How many names a directory has, about.
fn estimate(store: &dyn Store, directory: Fid) -> Result<u64, StoreError> {
    let entries = store.scan(directory, &[], SAMPLE)?;
    let there = entries.len() as u64;
    let last = entries.last().and_then(|entry| parse_key(&entry.key));
    match last {
        Some((hash, _)) if entries.len() == SAMPLE => {
            let span = hash.saturating_sub(HASH_FIRST).max(1);
            let all = u128::from(there) * u128::from(HASH_LIMIT - HASH_FIRST) / u128::from(span);
            Ok(u64::try_from(all).unwrap_or(u64::MAX))
        }
        _ => Ok(there),
    }
}

impl Mdt {
    /// A name is made in a directory here.
    pub(crate) fn count_name(&self, directory: Fid) {
        if !self.restriper.splits.load(Ordering::Relaxed) {
            return;
        }
        let count = self.restripe_settings().split_count();
        let look = (count / LOOK_SHARE).clamp(1, LOOK);
        {
            let mut state = self.restriper.made.0.lock();
            if state.made.len() >= DIRECTORIES_MAX {
                // It is only counted anew.
                state.made.clear();
            }
            let made = state.made.entry(directory).or_default();
            *made += 1;
            if *made < look {
                return;
            }
            state.made.remove(&directory);
        }
        // An error of the store is seen by who makes the name.
        if estimate(&*self.store, directory).is_ok_and(|names| names > count) {
            self.restriper.made.0.lock().many.insert(directory);
            self.restriper.changed.notify_one();
        }
    }

    /// Begins to split what has too many names.
    pub(super) async fn split_those_with_many_names(&self, target: &Arc<Target>) {
        let many = std::mem::take(&mut self.restriper.made.0.lock().many);
        for directory in many {
            let clock = &*target.world().clock;
            let split = within(clock, SPLIT_MAX, self.split_by_itself(target, directory)).await;
            match split.unwrap_or(Err(Errno::ETIMEDOUT)) {
                Ok(()) => {}
                // It is split, or being changed, or as wide as it can be.
                Err(Errno::EALREADY | Errno::EBUSY | Errno::ENOENT | Errno::ESTALE) => {}
                Err(errno) => {
                    tracing::warn!(target = target.name(), %directory, %errno, "a directory with many names is not split");
                }
            }
        }
    }

    async fn split_by_itself(&self, target: &Arc<Target>, directory: Fid) -> Result<(), Errno> {
        let settings = self.restripe_settings();
        if !settings.splits_automatically || !self.makes_striped_directories() {
            return Ok(());
        }
        let (directory, stripes) = match layout_in(&*self.store, directory)? {
            None => (directory, 0),
            Some(layout) if layout.change().is_some() || layout.is_through() => {
                return Err(Errno::EBUSY);
            }
            // An operator has said how many stripes it has.
            Some(layout) if layout.hash().0 & LmvHash::FIXED != 0 => return Err(Errno::EALREADY),
            Some(layout) if matches!(layout.holder(), Holder::Stripe { .. }) => {
                let master = master_in(&*self.store, directory)?.ok_or(Errno::ESTALE)?;
                (master, layout.stripe_count().get())
            }
            Some(_) => return Err(Errno::ESTALE),
        };
        // The first stripe lies beside the master, and sees to it.
        if directory == Fid::ROOT || self.mdt_of(target, directory).await?.0 != self.index {
            return Ok(());
        }
        let mdts = u32::try_from(self.sequences.other_mdts().len()).unwrap_or(u32::MAX);
        // One stripe is what a directory without stripes is.
        let wanted = stripes.saturating_add(settings.split_delta()).max(2);
        let wanted = NonZeroU32::new(wanted.min(mdts.saturating_add(1)));
        let count = wanted.filter(|count| count.get() > stripes.max(1));
        let count = count.ok_or(Errno::EALREADY)?;
        let wish =
            DirectoryWish { stripes: WishedStripes::Count(count), ..DirectoryWish::default() };
        let links = self.links(directory)?;
        let link = links.entries.first().ok_or(Errno::ENOENT)?;
        let name = Name::new(&link.name).map_err(logged!(
            Errno::EINVAL,
            "the list of a directory's names has what is no name"
        ))?;
        // What waits for one that is away stops all else that this MDT moves.
        let layout = layout_in(&*self.store, directory)?;
        let all = layout.as_ref().map(crate::striped::stripes).unwrap_or_default();
        for fid in all.into_iter().chain([link.parent]).filter(|fid| fid.is_of_mdt()) {
            if !self.is_there(self.mdt_of(target, fid).await?) {
                return Err(Errno::EAGAIN);
            }
        }
        let new_master = match stripes {
            0 => {
                let own = sheen_types::MdtIndex(self.index);
                self.new_fids(target, &[own]).await?.first().copied().ok_or(Errno::EAGAIN)?
            }
            _ => Fid::ZERO,
        };
        let now = target.world().clock.wall();
        let (parent, name, wish) = (link.parent, &name, &wish);
        let wanted = Restripe { parent, name, directory, new_master, wish, now, caller: None };
        self.restripe(Initiator::Mdt(target), &wanted).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use sheen_store::Transaction;
    use sheen_store_mem::StoreMem;

    use super::*;
    use crate::directory::{Child, key, value};

    #[test]
    fn how_many_names_there_are_is_estimated_from_a_few() {
        let store = StoreMem::default();
        let directory = Fid::new(0x2_0000_0400, 7);
        let child = Child { fid: directory, kind: sheen_store::FileKind::Regular };
        for count in 0..20_000 {
            if count == 200 {
                assert_eq!(estimate(&store, directory), Ok(200));
            }
            let mut transaction = Transaction::new();
            transaction.put(directory, key(format!("file{count}").as_bytes()), value(child));
            store.apply(transaction).unwrap();
        }
        let about = estimate(&store, directory).unwrap();
        assert!((16_000..24_000).contains(&about), "{about}");
    }
}
