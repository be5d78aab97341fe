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

use crate::distributed_exclusions::DistributedExclusions;

/// Enough that operations seldom collide.
const SHARDS: usize = 4096;

/// The exclusions of one MDT: names and inodes that operations hold.
pub(crate) struct ExclusionTable {
    shards: Box<[RwLock<()>]>,
    /// Held by a rename that moves a directory to another one: while it walks up to see that it
    /// makes no circle, no other such rename may change the way.
    renames: tokio::sync::Mutex<()>,
    /// What changes over several MDTs exclude: looked at under shards.
    pub(crate) distributed: DistributedExclusions,
}

/// One shard that an operation wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedShard {
    number: usize,
    /// Whether it is held alone, or shared.
    is_alone: bool,
}

/// The shards of the names and inodes that an operation is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSet {
    shards: Vec<WantedShard>,
}

impl ShardSet {
    pub(crate) fn new() -> Self {
        Self { shards: Vec::with_capacity(4) }
    }

    /// A name that is added, removed or replaced.
    pub(crate) fn change_name(self, directory: Fid, name: &[u8]) -> Self {
        self.with(shard(&(directory, name)), true)
    }

    /// A name that must not change meanwhile.
    pub(crate) fn keep_name(self, directory: Fid, name: &[u8]) -> Self {
        self.with(shard(&(directory, name)), false)
    }

    /// An inode that is changed as a whole: attributes, link count, whether it exists.
    pub(crate) fn change_inode(self, inode: Fid) -> Self {
        self.with(shard(&inode), true)
    }

    /// An inode that must go on to exist: the directory of a name.
    pub(crate) fn keep_inode(self, inode: Fid) -> Self {
        self.with(shard(&inode), false)
    }

    fn with(mut self, number: usize, is_alone: bool) -> Self {
        self.shards.push(WantedShard { number, is_alone });
        self
    }

    /// In order, each shard once, alone if any name or inode wants it so.
    fn sorted(mut self) -> Vec<WantedShard> {
        self.shards.sort_unstable_by_key(|wanted| (wanted.number, !wanted.is_alone));
        self.shards.dedup_by_key(|wanted| wanted.number);
        self.shards
    }
}

/// The shards that an operation holds, until dropped.
#[must_use]
pub(crate) struct ShardGuards<'a> {
    guards: Vec<(usize, ShardGuard<'a>)>,
}

enum ShardGuard<'a> {
    Alone { _guard: RwLockWriteGuard<'a, ()> },
    Shared { _guard: RwLockReadGuard<'a, ()> },
}

impl ShardGuards<'_> {
    /// Whether all of `wanted` is held, as far as shards show: a collision of two keys hides that one is not.
    pub(crate) fn covers(&self, wanted: ShardSet) -> bool {
        wanted.sorted().into_iter().all(|wanted| {
            self.guards.iter().any(|(held, guard)| {
                *held == wanted.number
                    && (!wanted.is_alone || matches!(guard, ShardGuard::Alone { .. }))
            })
        })
    }
}

impl ExclusionTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::new(())).collect(),
            renames: tokio::sync::Mutex::new(()),
            distributed: DistributedExclusions::default(),
        }
    }

    /// Waits until all of `wanted` is free. Never called while holding the result of another call.
    pub(crate) async fn acquire(&self, wanted: ShardSet) -> ShardGuards<'_> {
        let shards = wanted.sorted();
        let mut guards = Vec::with_capacity(shards.len());
        for wanted in shards {
            let lock = &self.shards[wanted.number];
            let guard = match wanted.is_alone {
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
            guards.push((wanted.number, guard));
        }
        ShardGuards { guards }
    }

    /// All of `wanted` if it is free now. May be called while holding the result of another call, as it waits for
    /// none.
    pub(crate) fn try_acquire(&self, wanted: ShardSet) -> Option<ShardGuards<'_>> {
        let hold = |wanted: WantedShard| {
            let lock: &RwLock<()> = &self.shards[wanted.number];
            let guard = match wanted.is_alone {
                true => ShardGuard::Alone { _guard: lock.try_write().ok()? },
                false => ShardGuard::Shared { _guard: lock.try_read().ok()? },
            };
            Some((wanted.number, guard))
        };
        let guards = wanted.sorted().into_iter().map(hold).collect::<Option<Vec<_>>>()?;
        Some(ShardGuards { guards })
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

    use super::{ShardSet, shard_under};

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
    fn each_shard_is_wanted_once_and_alone_if_any_key_wants_it_so() {
        let wanted = ShardSet::new().keep_inode(Fid::ROOT).change_inode(Fid::ROOT);
        let wanted = wanted.keep_name(Fid::ROOT, b"a").sorted();
        assert_eq!(wanted.iter().filter(|it| it.is_alone).count(), 1);
        assert!(wanted.len() <= 2 && wanted.is_sorted());
    }
}
