//! Which operations of this server exclude each other.
//!
//! An operation says up front which names and inodes it changes or relies on ([`crate::hold`]); it waits until no
//! other operation conflicts. A name that is changed and an inode that is changed are held alone; a
//! directory in which a name changes, and a name that is looked up, are shared.
//!
//! All are shards of one table, taken in the order of their numbers: so no cycle of waits arises. A
//! collision of two keys only makes operations wait that need not; the key of the process's tables decides
//! which collide, so that no client can choose a name or FID which stops that of another client. Cost: two
//! or three uncontended async locks and one small allocation per operation.

use std::hash::BuildHasher;

use sheen_target::{Wait, while_waiting};
use sheen_types::{Fid, Keyed};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::participant::RemoteExclusions;

/// Enough that operations seldom collide.
const SHARDS: usize = 4096;

/// The exclusions of one MDT: names and inodes that operations hold.
pub(crate) struct ExclusionTable {
    shards: Box<[RwLock<()>]>,
    /// Held by a rename that moves a directory to another one: while it walks up to see that it
    /// makes no circle, no other such rename may change the way.
    renames: tokio::sync::Mutex<()>,
    /// What changes over several MDTs exclude: looked at under shards.
    pub(crate) remote: RemoteExclusions,
}

/// What an operation needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    shards: Vec<(usize, bool)>,
}

impl Needs {
    pub(crate) fn new() -> Self {
        Self { shards: Vec::with_capacity(4) }
    }

    /// A name that is added, removed or replaced.
    pub(crate) fn change_name(mut self, directory: Fid, name: &[u8]) -> Self {
        self.shards.push((shard(&(directory, name)), true));
        self
    }

    /// A name that must not change meanwhile.
    pub(crate) fn keep_name(mut self, directory: Fid, name: &[u8]) -> Self {
        self.shards.push((shard(&(directory, name)), false));
        self
    }

    /// An inode that is changed as a whole: attributes, link count, whether it exists.
    pub(crate) fn change_inode(mut self, inode: Fid) -> Self {
        self.shards.push((shard(&inode), true));
        self
    }

    /// An inode that must go on to exist: the directory of a name.
    pub(crate) fn keep_inode(mut self, inode: Fid) -> Self {
        self.shards.push((shard(&inode), false));
        self
    }

    /// In order, each shard once, the stronger need winning.
    fn sorted(mut self) -> Vec<(usize, bool)> {
        self.shards.sort_unstable_by_key(|(shard, alone)| (*shard, !*alone));
        self.shards.dedup_by_key(|(shard, _)| *shard);
        self.shards
    }
}

/// What an operation holds, until dropped.
#[must_use]
pub(crate) struct ExclusionGuard<'a> {
    guards: Vec<(usize, ShardGuard<'a>)>,
}

enum ShardGuard<'a> {
    Alone { _guard: RwLockWriteGuard<'a, ()> },
    Shared { _guard: RwLockReadGuard<'a, ()> },
}

impl ExclusionGuard<'_> {
    /// Whether all of `needs` is held, as far as shards show: a collision of two keys hides that one is not.
    pub(crate) fn covers(&self, needs: Needs) -> bool {
        needs.sorted().into_iter().all(|(shard, alone)| {
            self.guards.iter().any(|(held, guard)| {
                *held == shard && (!alone || matches!(guard, ShardGuard::Alone { .. }))
            })
        })
    }
}

impl ExclusionTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::new(())).collect(),
            renames: tokio::sync::Mutex::new(()),
            remote: RemoteExclusions::default(),
        }
    }

    /// Waits until all of `needs` is free. Never called while holding the result of another call.
    pub(crate) async fn acquire(&self, needs: Needs) -> ExclusionGuard<'_> {
        let shards = needs.sorted();
        let mut guards = Vec::with_capacity(shards.len());
        for (shard, alone) in shards {
            let lock = &self.shards[shard];
            let guard = match alone {
                true => ShardGuard::Alone {
                    _guard: match lock.try_write() {
                        Ok(guard) => guard,
                        Err(_) => while_waiting(Wait::Operation, lock.write()).await,
                    },
                },
                false => ShardGuard::Shared {
                    _guard: match lock.try_read() {
                        Ok(guard) => guard,
                        Err(_) => while_waiting(Wait::Operation, lock.read()).await,
                    },
                },
            };
            guards.push((shard, guard));
        }
        ExclusionGuard { guards }
    }

    /// All of `needs` if it is free now. May be called while holding the result of another call, as it waits for
    /// none.
    pub(crate) fn try_acquire(&self, needs: Needs) -> Option<ExclusionGuard<'_>> {
        let hold = |(shard, alone): (usize, bool)| {
            let lock: &RwLock<()> = &self.shards[shard];
            let guard = match alone {
                true => ShardGuard::Alone { _guard: lock.try_write().ok()? },
                false => ShardGuard::Shared { _guard: lock.try_read().ok()? },
            };
            Some((shard, guard))
        };
        let guards = needs.sorted().into_iter().map(hold).collect::<Option<Vec<_>>>()?;
        Some(ExclusionGuard { guards })
    }

    /// The lock that renames of directories across directories acquire before anything else.
    pub(crate) async fn rename_of_directory(&self) -> tokio::sync::MutexGuard<'_, ()> {
        while_waiting(Wait::Operation, self.renames.lock()).await
    }
}

fn shard(key: &impl std::hash::Hash) -> usize {
    shard_under(&Keyed::default(), key)
}

fn shard_under(hasher: &impl BuildHasher, key: &impl std::hash::Hash) -> usize {
    let hash = hasher.hash_one(key);
    (hash ^ hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use sheen_types::{Fid, FoldHasher};

    use super::{Needs, shard_under};

    struct FixedKey(u64);

    impl BuildHasher for FixedKey {
        type Hasher = FoldHasher;

        fn build_hasher(&self) -> FoldHasher {
            FoldHasher::new(self.0)
        }
    }

    #[test]
    fn what_meets_under_one_key_does_not_under_another() {
        let fids = (1..1_000_000).map(|oid| Fid::new(0x2_0000_0400, oid));
        let victim = shard_under(&FixedKey(0), &Fid::ROOT);
        let chosen: Vec<Fid> =
            fids.filter(|fid| shard_under(&FixedKey(0), fid) == victim).collect();
        assert!(chosen.len() > 100, "{}", chosen.len());
        for key in [0x1234_5678_9abc_def0, 0xfedc_ba98_7654_3211] {
            let victim = shard_under(&FixedKey(key), &Fid::ROOT);
            let met =
                chosen.iter().filter(|fid| shard_under(&FixedKey(key), fid) == victim).count();
            assert!(met < 10, "{met} of {} meet again", chosen.len());
        }
    }

    #[test]
    fn each_shard_once_and_the_stronger_need_wins() {
        let needs = Needs::new().keep_inode(Fid::ROOT).change_inode(Fid::ROOT);
        let needs = needs.keep_name(Fid::ROOT, b"a").sorted();
        assert_eq!(needs.iter().filter(|(_, alone)| *alone).count(), 1);
        assert!(needs.len() <= 2 && needs.is_sorted());
    }
}
