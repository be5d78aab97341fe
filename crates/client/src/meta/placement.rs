//! On which MDT a new directory is made for which no MDT is named (Lustre: `lmv_locate_tgt_create`).
//!
//! What decides is the default of its parent, or the root's, handed down as many levels as that says. One that names an MDT
//! decides alone. One that says any: round robin, where it says so and while the MDTs are about equally full; else an MDT by
//! chance, likelier the more is free on it; but the parent's MDT as long as that has its share, of which less is enough the
//! deeper the directory lies. Without any default it is made where its name is.
//!
//! An MDT that takes nothing new (`OS_STATFS_NOCREATE`) or does not answer gets nothing.
//!
//! How the MDTs' space and turns decide is [`balance`](super::balance)'s. How full MDTs are is asked of all of them once in
//! `qos_maxage`. The default comes with the parent's
//! attributes and is kept under its `LOOKUP` lock; where that is not held, as of a directory whose name is on another MDT, it
//! costs a `mkdir` one request more. Where a default names any MDT, one `MDS_STATFS` to each is sent once in that time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_types::futures;
use sheen_types::{Errno, Fid, Instant, MdtIndex, Name};
use sheen_wire::md::StatfsState;

use super::balance::{Chance, DirectoryBalance, FreeSpace};
use super::{Meta, mdt_statfs};
use crate::cache::{DefaultStriping, Inode};
use crate::mdt::Mdc;
use crate::types::{Credentials, NodeId};

/// How long one `mkdir` waits for that.
const SPACE_WITHIN: Duration = Duration::from_secs(1);
/// Directories above one that are counted at most.
const DEPTH_MAX: usize = 250;

/// What of a directory decides where one in it is made.
pub(super) struct DirectoryDefault {
    wish: Arc<DirectoryWish>,
    /// Whether directories are spread round robin.
    is_round_robin: bool,
    depth: usize,
}

/// Where new directories go.
pub(super) struct Placement {
    /// Whether defaults are heeded; if not, directories are made beside their names.
    is_on: AtomicBool,
    balance: Arc<DirectoryBalance>,
    space: Mutex<Option<(Instant, Arc<[FreeSpace]>)>>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { is_on: AtomicBool::new(true), balance: Arc::default(), space: Mutex::default() }
    }
}

impl Meta {
    /// The MDT for a directory that is made in `parent` without a wish, whose name's MDT is `names`, and the default that goes
    /// with the request; `None` where it is made as any other file is. No RPC where the default is known, else one for each
    /// of parent and root.
    pub(super) async fn placed_by_default(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        names: &Arc<Mdc>,
    ) -> Result<Option<(Arc<Mdc>, Arc<DirectoryWish>)>, Errno> {
        if !self.placement.is_on.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(default) = self.default_in(who, parent).await? else { return Ok(None) };
        let DirectoryDefault { wish, is_round_robin, depth } = default;
        let index = match wish.mdts.first().copied().or(wish.first) {
            Some(index) => index,
            // The names of one in stripes are spread already.
            None if self.is_striped(parent) => names.index,
            None if self.placement.balance.excludes(name.as_bytes()) => names.index,
            None => self.place_for(names, is_round_robin, depth).await,
        };
        // One that has been lost since keeps nothing from being made.
        let mdt = self.mdts.by_index(index).unwrap_or_else(|| Arc::clone(names));
        let is_one = matches!(wish.stripes, WishedStripes::Unsaid)
            || wish.stripes == WishedStripes::Count(NonZeroU32::MIN);
        Ok((mdt.index != names.index || !is_one).then_some((mdt, wish)))
    }

    /// Whether the defaults of directories are heeded, which they are at first.
    pub(crate) fn set_places_directories(&self, on: bool) {
        self.placement.is_on.store(on, Ordering::Relaxed);
    }

    /// How directories are spread (`lmv.*.qos_*`).
    pub(crate) fn directory_balance(&self) -> &Arc<DirectoryBalance> {
        &self.placement.balance
    }

    /// The MDT for a directory that may be on any, as `lfs mkdir -i -1` wishes it.
    pub(super) async fn any_mdt(&self, names: &Arc<Mdc>) -> Arc<Mdc> {
        let index = self.place_for(names, true, 0).await;
        self.mdts.by_index(index).unwrap_or_else(|| Arc::clone(names))
    }

    async fn place_for(&self, names: &Mdc, is_round_robin: bool, depth: usize) -> MdtIndex {
        let space = self.free_space().await;
        let is_there = |it: &&FreeSpace| {
            let mdt = self.mdts.by_index(it.mdt);
            mdt.is_some_and(|mdt| mdt.is_connected())
        };
        let space: Vec<FreeSpace> = space.iter().filter(is_there).copied().collect();
        let (random, now) = (self.world.random.number(), self.world.clock.now());
        let by = Chance { is_round_robin, depth, own: names.index, random, now };
        self.placement.balance.choose(&space, by)
    }

    async fn free_space(&self) -> Arc<[FreeSpace]> {
        let now = self.world.clock.now();
        if let Some((since, space)) = &*self.placement.space.lock()
            && now < *since + self.placement.balance.max_age()
        {
            return Arc::clone(space);
        }
        // Other calls go on with what was known while this one asks.
        let former = match &mut *self.placement.space.lock() {
            Some((since, space)) => {
                *since = now;
                Arc::clone(space)
            }
            None => Arc::default(),
        };
        let ask = |mdt: Arc<Mdc>| -> BoxFuture<'static, Option<FreeSpace>> {
            Box::pin(async move {
                let stat = mdt_statfs(Arc::clone(&mdt.channel), true).await;
                let stat = stat.ok().filter(|stat| !stat.state.contains(StatfsState::NOCREATE));
                stat.map(|stat| FreeSpace::of(mdt.index, &stat))
            })
        };
        let mut asked = futures::FutureSet::new(self.mdts().into_iter().map(ask).collect());
        let until = self.world.clock.sleep_until(now + SPACE_WITHIN);
        futures::race(asked.finish(), until).await;
        let space: Arc<[FreeSpace]> =
            asked.into_outputs().into_iter().flatten().flatten().collect();
        if space.is_empty() {
            return former;
        }
        *self.placement.space.lock() = Some((now, Arc::clone(&space)));
        space
    }

    /// The default that holds in a directory.
    async fn default_in(
        &self,
        who: &Credentials,
        parent: &Inode,
    ) -> Result<Option<DirectoryDefault>, Errno> {
        let (own, is_root) = (self.own_default(who, parent).await?, parent.fid == Fid::ROOT);
        if let Some(wish) = own {
            let (is_round_robin, depth) = (wish.max_inherit_rr > 0 || is_root, self.depth(parent));
            return Ok(Some(DirectoryDefault { wish, is_round_robin, depth }));
        }
        if is_root {
            return Ok(None);
        }
        let Some(root) = self.cache.inodes.by_node(NodeId::ROOT) else { return Ok(None) };
        let Some(of_root) = self.own_default(who, &root).await? else { return Ok(None) };
        let depth = self.depth(parent);
        Ok(handed_down(&of_root, depth).map(|wish| {
            let is_round_robin = wish.max_inherit_rr > 0;
            DirectoryDefault { wish: Arc::new(wish), is_round_robin, depth }
        }))
    }

    /// The default that a directory has of its own.
    async fn own_default(
        &self,
        who: &Credentials,
        directory: &Inode,
    ) -> Result<Option<Arc<DirectoryWish>>, Errno> {
        if !directory.state().directory.is_default_covered {
            self.rights(who, directory).await?;
        }
        // What was answered counts for this call, with a lock or not.
        match directory.state().directory.default.clone() {
            DefaultStriping::Some(wish) => Ok(Some(wish)),
            DefaultStriping::None | DefaultStriping::Unknown => Ok(None),
        }
    }

    /// How many directories are above one, as far as names were looked up.
    fn depth(&self, directory: &Inode) -> usize {
        let inodes = &self.cache.inodes;
        let mut above = directory.state().names.seen.first().map(|seen| seen.parent);
        let mut depth = 0;
        while let Some(node) = above
            && depth < DEPTH_MAX
        {
            depth += 1;
            if node == NodeId::ROOT {
                break;
            }
            let parent = inodes.by_node(node);
            above = parent.and_then(|it| it.state().names.seen.first().map(|seen| seen.parent));
        }
        depth
    }
}

/// A default so many levels below the directory that has it (`lmv_inherit_next`).
fn handed_down(default: &DirectoryWish, levels: usize) -> Option<DirectoryWish> {
    const END: u8 = 1;
    const NONE: u8 = 255;
    const LEVELS_MAX: u8 = 250;
    let mut wish = default.clone();
    for _ in 0..levels {
        wish.max_inherit = match wish.max_inherit {
            END | NONE => return None,
            levels if levels == 0 || levels > LEVELS_MAX => levels,
            levels => levels - 1,
        };
        if wish.max_inherit_rr <= LEVELS_MAX {
            wish.max_inherit_rr = wish.max_inherit_rr.saturating_sub(1);
        }
    }
    Some(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roots_default_holds_as_deep_as_it_says() {
        let of = |max_inherit, max_inherit_rr| DirectoryWish {
            max_inherit,
            max_inherit_rr,
            ..DirectoryWish::default()
        };
        assert_eq!(handed_down(&of(0, 3), 2), Some(of(0, 1)));
        assert_eq!(handed_down(&of(0, 3), 5), Some(of(0, 0)));
        assert_eq!(handed_down(&of(2, 0), 1), Some(of(1, 0)));
        assert_eq!((handed_down(&of(2, 0), 2), handed_down(&of(255, 0), 1)), (None, None));
        assert_eq!(handed_down(&of(1, 0), 0), Some(of(1, 0)));
    }
}
