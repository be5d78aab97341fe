//! What an operation is about, and holding it: names and inodes, all at once and in one order.
//!
//! An operation says first which names and inodes it is about ([`Wanted`]). [`Mdt::hold`] looks up what the names stand
//! for, waits until no other operation conflicts ([`crate::exclusion`]), and looks again; what it returns, [`HoldGuard`],
//! stays so until that is dropped. Behind it come the checks, the locks of clients ([`crate::locks`]) and the
//! change ([`crate::change_set`]).
//!
//! What changes over several MDTs exclude is waited for while nothing is held ([`crate::participant`]).
//!
//! What a request names by its FID lies on the MDT that the request went to. So holding inodes alone looks up nothing and
//! does not fail ([`Mdt::hold_inodes`]).
//!
//! Cost: as [`crate::exclusion`] says; two looks into the store for each name whose inode is wanted with it.

use sheen_target::Incarnation;
use sheen_types::{Errno, Fid, Name};
use tokio::sync::MutexGuard;

use crate::Mdt;
use crate::directory::Child;
use crate::distributed_exclusions::{Access, KeyRef};
use crate::exclusion::{ShardGuards, ShardSet};

/// Names of one operation, at most: those of a rename.
const NAMES_MAX: usize = 2;

/// What an operation is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// At most [`NAMES_MAX`].
    pub(crate) names: &'a [WantedName<'a>],
    /// Inodes that are changed, besides those that the names stand for.
    pub(crate) inodes: &'a [Fid],
    /// A directory moves to another one: no other such move may change the way to the root meanwhile.
    pub(crate) renames: bool,
    /// The operation has excluded all of it itself on this MDT, as it is about names of other MDTs, too.
    pub(crate) within: Option<(Incarnation, u64)>,
}

/// A name that an operation is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedName<'a> {
    directory: Fid,
    name: &'a [u8],
    /// Held alone, and its directory goes on to exist; or shared.
    is_changed: bool,
    inode: WantedChild,
}

/// Whether the inode that a name stands for is changed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedChild {
    No,
    IfThere,
    /// Without it the operation has nothing to do.
    Needed,
}

impl<'a> WantedName<'a> {
    /// A name that must not change meanwhile.
    pub(crate) fn kept(directory: Fid, name: &'a [u8]) -> Self {
        Self { directory, name, is_changed: false, inode: WantedChild::No }
    }

    /// A name that must not change meanwhile, and the inode that it stands for.
    pub(crate) fn opened(directory: Fid, name: &'a [u8]) -> Self {
        Self { inode: WantedChild::Needed, ..Self::kept(directory, name) }
    }

    /// A name that is added.
    pub(crate) fn added(directory: Fid, name: &'a [u8]) -> Self {
        Self { is_changed: true, ..Self::kept(directory, name) }
    }

    /// A name that is removed, from the inode that it stands for.
    pub(crate) fn removed(directory: Fid, name: &'a Name) -> Self {
        Self { inode: WantedChild::Needed, ..Self::added(directory, name.as_bytes()) }
    }

    /// A name that is added, or replaced: then the inode that it stood for loses it.
    pub(crate) fn replaced(directory: Fid, name: &'a Name) -> Self {
        Self { inode: WantedChild::IfThere, ..Self::added(directory, name.as_bytes()) }
    }

    /// That the name is there, or not, is shown to a client.
    fn read(&self) -> (KeyRef<'a>, Access) {
        (KeyRef::Name(self.directory, self.name), Access::Reads)
    }
}

/// What the wanted names stand for, of those whose inode is wanted with them.
type Children = [Option<Child>; NAMES_MAX];

impl<'a> Wanted<'a> {
    /// Names, and what is wanted with them.
    pub(crate) fn of_names(names: &'a [WantedName<'a>]) -> Self {
        Self { names, ..Self::default() }
    }

    fn shards(self, children: &Children) -> ShardSet {
        assert!(self.names.len() <= NAMES_MAX, "{} names", self.names.len());
        let mut shards = ShardSet::new();
        for (wanted, child) in self.names.iter().zip(children) {
            let WantedName { directory, name, .. } = *wanted;
            shards = match wanted.is_changed {
                true => shards.change_name(directory, name).keep_inode(directory),
                false => shards.keep_name(directory, name),
            };
            if let Some(child) = child {
                shards = shards.change_inode(child.fid);
            }
        }
        self.inodes.iter().fold(shards, |shards, inode| shards.change_inode(*inode))
    }

    /// What it reads, keeps and changes, to be compared with what changes over several MDTs exclude. An open reads its file.
    fn accesses(self, children: &Children) -> impl Iterator<Item = (KeyRef<'a>, Access)> {
        let named = self.names.iter().zip(children).flat_map(|(wanted, child)| {
            let WantedName { directory, name, is_changed, .. } = *wanted;
            let how = if is_changed { Access::Changes } else { Access::Reads };
            let child = child.map(|child| (KeyRef::Inode(child.fid), how));
            let parent = is_changed.then_some((KeyRef::Inode(directory), Access::Keeps));
            [Some((KeyRef::Name(directory, name), how)), parent, child].into_iter().flatten()
        });
        let inodes = self.inodes.iter().map(|inode| (KeyRef::Inode(*inode), Access::Changes));
        let renames = self.renames.then_some((KeyRef::Renames, Access::Changes));
        named.chain(inodes).chain(renames)
    }
}

/// A guard of what an operation holds: no other operation changes it until this is dropped.
#[must_use]
pub(crate) struct HoldGuard<'a> {
    guard: ShardGuards<'a>,
    _renames: Option<MutexGuard<'a, ()>>,
    children: Children,
}

impl HoldGuard<'_> {
    /// What a name stands for whose inode is held with it, by its place among the names.
    pub(crate) fn child(&self, name: usize) -> Option<Child> {
        self.children[name]
    }

    /// Whether all of `shards` is held, as far as [`ShardGuards::covers`] sees.
    pub(crate) fn covers(&self, shards: ShardSet) -> bool {
        self.guard.covers(shards)
    }
}

impl Mdt {
    /// Holds all that an operation is about. Never called by one that holds something already.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if a name is absent whose inode is needed, or those of the store.
    pub(crate) async fn hold(&self, wanted: Wanted<'_>) -> Result<HoldGuard<'_>, Errno> {
        self.hold_if_there(wanted).await?.ok_or(Errno::ENOENT)
    }

    /// As [`Mdt::hold`]; `None`, and nothing is held, if a name is absent whose inode is needed.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn hold_if_there(
        &self,
        wanted: Wanted<'_>,
    ) -> Result<Option<HoldGuard<'_>>, Errno> {
        loop {
            let renames = match wanted.renames {
                true => Some(self.exclusion.rename_of_directory().await),
                false => None,
            };
            let Some(children) = self.children(wanted)? else {
                // That a change over several MDTs has taken a name is not to be seen yet: another MDT has it still.
                let names = || wanted.names.iter().map(WantedName::read);
                if self.exclusion.distributed.are_free(names) {
                    return Ok(None);
                }
                drop(renames);
                self.exclusion.distributed.until_free(names).await;
                continue;
            };
            let guard = self.exclusion.acquire(wanted.shards(&children)).await;
            if self.children(wanted)? != Some(children) {
                continue;
            }
            if self
                .exclusion
                .distributed
                .are_free_within(wanted.within, || wanted.accesses(&children))
            {
                return Ok(Some(HoldGuard { guard, _renames: renames, children }));
            }
            drop((guard, renames));
            let exclusions = &self.exclusion.distributed;
            exclusions.until_free_within(wanted.within, || wanted.accesses(&children)).await;
        }
    }

    /// Holds inodes, to change them. Never called by an operation that holds something already.
    pub(crate) async fn hold_inodes(&self, inodes: &[Fid]) -> HoldGuard<'_> {
        self.hold_inodes_for(inodes, Access::Changes).await
    }

    /// As [`Mdt::hold_inodes`], to open them: they stay as they are, so changes over several MDTs are waited for only where
    /// they are applied.
    pub(crate) async fn hold_inodes_to_open(&self, inodes: &[Fid]) -> HoldGuard<'_> {
        self.hold_inodes_for(inodes, Access::Reads).await
    }

    async fn hold_inodes_for(&self, inodes: &[Fid], how: Access) -> HoldGuard<'_> {
        let (wanted, children) = (Wanted { inodes, ..Wanted::default() }, Children::default());
        let accesses = || inodes.iter().map(|inode| (KeyRef::Inode(*inode), how));
        loop {
            let guard = self.exclusion.acquire(wanted.shards(&children)).await;
            if self.exclusion.distributed.are_free(accesses) {
                return HoldGuard { guard, _renames: None, children };
            }
            drop(guard);
            self.exclusion.distributed.until_free(accesses).await;
        }
    }

    /// Holds names that are only kept, if no other operation conflicts now. May be called by an operation that holds
    /// something, as it waits for none.
    pub(crate) fn try_hold(&self, names: &[WantedName<'_>]) -> Option<HoldGuard<'_>> {
        let (wanted, children) = (Wanted::of_names(names), Children::default());
        let guard = self.exclusion.try_acquire(wanted.shards(&children))?;
        let is_free = self.exclusion.distributed.are_free(|| wanted.accesses(&children));
        is_free.then_some(HoldGuard { guard, _renames: None, children })
    }

    /// Looks up what the names stand for; `None` if one is absent whose inode is needed.
    fn children(&self, wanted: Wanted<'_>) -> Result<Option<Children>, Errno> {
        let mut children = Children::default();
        for (child, wanted) in children.iter_mut().zip(wanted.names) {
            if wanted.inode == WantedChild::No {
                continue;
            }
            *child = self.stands_for(wanted.directory, wanted.name)?;
            if child.is_none() && wanted.inode == WantedChild::Needed {
                return Ok(None);
            }
        }
        Ok(Some(children))
    }
}
