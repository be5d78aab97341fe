//! Excluding names and inodes of this MDT for a change, and what its coordinator is answered of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheen_io::within;
use sheen_target::{
    Export, Incarnation, LockGuard, SparedLocks, StoreKey, Target, Wait, store_errno, while_waiting,
};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Uuid};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::out::{
    Exclude, ExcludeFlags, ExcludeName, Excluded, ExcludedInode, InodeState, NameNeeds, NamedInode,
};

use super::reads::wire_attributes;
use crate::directory::{self, Child};
use crate::distributed_exclusions::{Access, Entry, Key, KeyRef, NotEntered, Revoked};
use crate::exclusion::ShardSet;
use crate::{Mdt, xattrs};

/// Changes that are not complete, with their records in memory: with more, none begins.
const INCOMPLETE_MAX: usize = 65_536;
/// How often it is looked whether some are complete then.
const ROOM_LOOK: Duration = Duration::from_millis(100);
/// How long an exclusion that waits keeps back later ones which would share its inodes: what holds them ends within some requests, or its
/// coordinator is away.
const STEPS_ASIDE_AFTER: Duration = Duration::from_secs(2);
/// Names, and inodes, of one exclusion.
const NAMES_MAX: usize = 64;
/// An attribute that is longer is asked for by itself.
const XATTR_BYTES_MAX: usize = 4096;
/// All of an answer together.
const XATTRS_BYTES_MAX: usize = 24 << 10;
/// Bytes that only the parts of changes may use, at most; of a small MDT it is [`RESERVED_SHARE`] of all.
const RESERVED_BYTES: u64 = 64 << 20;
const RESERVED_SHARE: u64 = 100;
/// Those by which operations are decided.
const ANSWERED: [&str; 7] = [
    xattrs::ACL_ACCESS,
    xattrs::ACL_DEFAULT,
    xattrs::LINK,
    xattrs::LOV,
    xattrs::LMV,
    xattrs::DEFAULT_LMV,
    xattrs::FORMER,
];

/// What the names stand for at this moment.
type Children = Vec<Option<Child>>;

impl Mdt {
    /// Excludes names and inodes, all at once: until the coordinator releases them no other change touches them. Clients have
    /// given up what they kept of them, and all that a part could build on is durable, when this completes.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if a name is absent whose inode is needed, [`Errno::ESTALE`] for a name of another stripe, and for an
    /// exclusion that was released before it came, [`Errno::ENOSPC`] where parts might find no space, [`Errno::EPROTO`] for what cannot be excluded, those of the
    /// store. Then nothing is excluded.
    pub(crate) async fn exclude(
        &self,
        target: &Arc<Target>,
        coordinator: Incarnation,
        wanted: &Exclude,
    ) -> Result<Excluded, Errno> {
        may_be_excluded(wanted)?;
        self.has_space_for_parts()?;
        let _waiting = self.exclusion.distributed.wait_with(coordinator, wanted.number);
        while target.incomplete_changes() >= INCOMPLETE_MAX {
            // Its partners are slow, or away: their disks decide.
            let clock = &target.world().clock;
            while_waiting(Wait::Mdt, clock.sleep_until(clock.now() + ROOM_LOOK)).await;
        }
        let number = wanted.number;
        if !self.exclusion.distributed.has(coordinator, number) {
            self.enter(target, coordinator, wanted).await?;
        }
        match self.settle(target, coordinator, wanted).await {
            Ok(excluded) => Ok(excluded),
            Err(errno) => {
                self.release(coordinator, number);
                Err(errno)
            }
        }
    }

    /// An exclusion ends; one that is not there is no error.
    pub(crate) fn release(&self, coordinator: Incarnation, number: u64) {
        self.exclusion.distributed.release(coordinator, number);
    }

    /// The part of a change is about to be applied: from now on until the release, readers wait.
    pub(crate) fn note_applied(&self, coordinator: Incarnation, number: u64) {
        self.exclusion.distributed.note_applied(coordinator, number);
    }

    fn has_space_for_parts(&self) -> Result<(), Errno> {
        let space = self.store.recent_space().map_err(store_errno)?;
        match space.available < reserved_bytes(space.total) {
            true => Err(Errno::ENOSPC),
            false => Ok(()),
        }
    }

    /// Enters the exclusion, under the shards of what it is about.
    async fn enter(
        &self,
        target: &Target,
        coordinator: Incarnation,
        wanted: &Exclude,
    ) -> Result<(), Errno> {
        let clock = &*target.world().clock;
        let steps_aside = clock.now() + STEPS_ASIDE_AFTER;
        let renames = wanted.flags.contains(ExcludeFlags::RENAMES);
        while !self.exclusion.distributed.has(coordinator, wanted.number) {
            let children = match self.named(wanted) {
                // Another change has taken a name, and is not applied everywhere yet.
                Err(Errno::ENOENT) if !self.exclusion.distributed.are_free(|| reads_of(wanted)) => {
                    self.exclusion.distributed.until_free(|| reads_of(wanted)).await;
                    continue;
                }
                children => children?,
            };
            let entry = self.entry_of(coordinator, wanted, &children);
            let moves = match renames {
                true => Some(self.exclusion.rename_of_directory().await),
                false => None,
            };
            let guard = self.exclusion.acquire(shards_of(&entry.keys)).await;
            if self.named(wanted).as_ref() != Ok(&children) {
                continue;
            }
            let keys = entry.keys.clone();
            match self.exclusion.distributed.enter(entry) {
                Ok(()) => return Ok(()),
                Err(NotEntered::Late) => return Err(Errno::ESTALE),
                Err(NotEntered::Full) => {
                    drop((guard, moves));
                    self.exclusion.distributed.until_room().await;
                    continue;
                }
                Err(NotEntered::Busy) => {}
            }
            drop((guard, moves));
            // The same request may be under way twice, where its coordinator was evicted meanwhile: the other one has entered it.
            let exclusions = &self.exclusion.distributed;
            exclusions.keep_back(coordinator, wanted.number, &keys);
            let enterable = exclusions.until_enterable(coordinator, wanted.number, &keys);
            let left = steps_aside.since(clock.now());
            if left == Duration::ZERO || within(clock, left, enterable).await.is_none() {
                exclusions.step_aside(coordinator, wanted.number);
                exclusions.until_enterable(coordinator, wanted.number, &keys).await;
            }
        }
        Ok(())
    }

    /// What the names stand for.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if one is absent that must be there, [`Errno::ESTALE`] for one that lies in another stripe, and those of
    /// the store.
    fn named(&self, wanted: &Exclude) -> Result<Children, Errno> {
        let look = |wanted: &ExcludeName| {
            let child = match self.check_place(wanted.directory, wanted.name.as_bytes()) {
                // A stripe of before may be gone by now; that a directory is, its description says.
                Err(Errno::ENOENT) => None,
                place => place.and_then(|()| self.find(wanted.directory, &wanted.name))?,
            };
            match child {
                None if wanted.needs.contains(NameNeeds::NEEDED) => Err(Errno::ENOENT),
                child => Ok(child),
            }
        };
        wanted.names.iter().map(look).collect()
    }

    fn entry_of(&self, coordinator: Incarnation, wanted: &Exclude, children: &Children) -> Entry {
        let (mut keys, mut revoked) = (Vec::new(), Vec::new());
        if wanted.flags.contains(ExcludeFlags::RENAMES) {
            keys.push((Key::Renames, true));
        }
        for (name, child) in wanted.names.iter().zip(children) {
            let changes = name.needs.contains(NameNeeds::CHANGES);
            keys.push((Key::Name(name.directory, name.name.clone()), changes));
            if changes {
                keys.push((Key::Inode(name.directory), false));
                revoked.push(Revoked::Listing(name.directory));
            }
            let Some(child) = child else { continue };
            match self.is_remote(child.fid) {
                // What clients keep of the name is under a lock of this MDT.
                true if changes => revoked.push(Revoked::Inode(child.fid, InodeBits::LOOKUP)),
                true => {}
                false if name.needs.contains(NameNeeds::INODE) => {
                    keys.push((Key::Inode(child.fid), true));
                    revoked.push(Revoked::Inode(child.fid, name.revoked));
                }
                false => {}
            }
        }
        for inode in &wanted.inodes {
            keys.push((Key::Inode(inode.fid), true));
            revoked.push(Revoked::Inode(inode.fid, inode.revoked));
        }
        let (revoked, client) = (merged(revoked), wanted.client.clone());
        Entry { coordinator, number: wanted.number, keys, revoked, client, is_applied: false }
    }

    /// What is to be done before an exclusion is answered, and the answer.
    async fn settle(
        &self,
        target: &Arc<Target>,
        coordinator: Incarnation,
        wanted: &Exclude,
    ) -> Result<Excluded, Errno> {
        if coordinator.mdt != target.mdt_index() {
            target.note_partner(coordinator.mdt).await?;
        }
        let entry = self.exclusion.distributed.entry(coordinator, wanted.number)?;
        // They are not kept: readers go on until the part is applied.
        drop(revoke(target, &entry.revoked, &entry.client).await?);
        let dependencies = target.dependencies(&store_keys(&entry.keys));
        target.wait_until_durable(dependencies).await?;
        let children = self.named(wanted)?;
        Ok(Excluded {
            starts: target.incarnation().starts,
            time: target.logical_time(),
            inodes: self.describe_excluded(wanted, &children)?,
            names: children.into_iter().map(named_inode).collect(),
        })
    }

    fn describe_excluded(
        &self,
        wanted: &Exclude,
        children: &Children,
    ) -> Result<Vec<ExcludedInode>, Errno> {
        let named = wanted.names.iter().zip(children).flat_map(|(name, child)| {
            let child = child.filter(|_| name.needs.contains(NameNeeds::INODE));
            [Some(name.directory), child.map(|child| child.fid)]
        });
        let inodes = wanted.inodes.iter().map(|inode| inode.fid);
        let mut fids: Vec<Fid> = named.flatten().chain(inodes).collect();
        fids.retain(|fid| !self.is_remote(*fid));
        fids.sort_unstable();
        fids.dedup();
        let mut room = XATTRS_BYTES_MAX;
        fids.into_iter().map(|fid| self.describe_inode(fid, &mut room)).collect()
    }

    fn describe_inode(&self, fid: Fid, room: &mut usize) -> Result<ExcludedInode, Errno> {
        let inode = match self.inode(fid) {
            Ok(inode) => inode,
            Err(Errno::ENOENT) => return Ok(ExcludedInode { fid, ..ExcludedInode::default() }),
            Err(errno) => return Err(errno),
        };
        let mut state = InodeState::EXISTS;
        if inode.is_directory() && self.is_empty(fid)? {
            state |= InodeState::EMPTY;
        }
        if self.open_counts.is_open(fid) {
            state |= InodeState::OPEN;
        }
        let mut answered = Vec::new();
        // A file's layout decides nothing.
        for name in ANSWERED.into_iter().filter(|name| *name != xattrs::LOV || inode.is_directory())
        {
            let Some(value) = self.store.xattr(fid, name).map_err(store_errno)? else { continue };
            match room.checked_sub(value.len()).filter(|_| value.len() <= XATTR_BYTES_MAX) {
                Some(left) => {
                    *room = left;
                    answered.push((name.into(), value));
                }
                None => state |= InodeState::LEFT_OUT,
            }
        }
        let attributes = wire_attributes(&inode.attributes);
        Ok(ExcludedInode { fid, state, attributes, xattrs: answered })
    }
}

/// Bytes of an MDT of so many in all that only the parts of changes may use.
pub(crate) fn reserved_bytes(total: u64) -> u64 {
    RESERVED_BYTES.min(total / RESERVED_SHARE)
}

/// Whether all of it can be held here at all.
fn may_be_excluded(wanted: &Exclude) -> Result<(), Errno> {
    let directories = wanted.names.iter().map(|name| name.directory);
    let mut fids = directories.chain(wanted.inodes.iter().map(|inode| inode.fid));
    let is_too_much = wanted.names.len() > NAMES_MAX || wanted.inodes.len() > NAMES_MAX;
    match is_too_much || !fids.all(|fid| fid.is_of_mdt()) {
        true => Err(Errno::EPROTO),
        false => Ok(()),
    }
}

pub(super) fn named_inode(child: Option<Child>) -> NamedInode {
    let named =
        |child: Child| NamedInode { fid: child.fid, mode: child.kind.mode_bits(), padding: 0 };
    child.map(named).unwrap_or_default()
}

/// Each inode once, in their order: this MDT's own locks of one inode would wait for each other.
pub(super) fn merged(revoked: Vec<Revoked>) -> Vec<Revoked> {
    let mut inodes: BTreeMap<Fid, (bool, InodeBits)> = BTreeMap::new();
    for what in revoked {
        match what {
            Revoked::Listing(directory) => inodes.entry(directory).or_default().0 = true,
            Revoked::Inode(fid, bits) => {
                let all = &mut inodes.entry(fid).or_default().1;
                *all = *all | bits;
            }
        }
    }
    let one = |(fid, (listing, bits)): (Fid, (bool, InodeBits))| match listing {
        true if bits == InodeBits(0) => Revoked::Listing(fid),
        true => Revoked::Inode(fid, bits | InodeBits::UPDATE),
        false => Revoked::Inode(fid, bits),
    };
    inodes.into_iter().map(one).collect()
}

/// An exclusion's keys, to be compared with other exclusions.
pub(super) fn accesses_of(keys: &[(Key, bool)]) -> impl Iterator<Item = (KeyRef<'_>, Access)> {
    let how = |alone: bool| if alone { Access::Changes } else { Access::Keeps };
    keys.iter().map(move |(key, alone)| (key.borrowed(), how(*alone)))
}

/// The names of an exclusion, as the coordinator's client is shown them.
fn reads_of(wanted: &Exclude) -> impl Iterator<Item = (KeyRef<'_>, Access)> {
    let names = wanted.names.iter();
    names.map(|it| (KeyRef::Name(it.directory, it.name.as_bytes()), Access::Reads))
}

/// The shards of an exclusion's keys.
pub(super) fn shards_of(keys: &[(Key, bool)]) -> ShardSet {
    keys.iter().fold(ShardSet::new(), |shards, (key, alone)| match (key, alone) {
        (Key::Name(directory, name), true) => shards.change_name(*directory, name.as_bytes()),
        (Key::Name(directory, name), false) => shards.keep_name(*directory, name.as_bytes()),
        (Key::Inode(fid), true) => shards.change_inode(*fid),
        (Key::Inode(fid), false) => shards.keep_inode(*fid),
        (Key::Renames, _) => shards,
    })
}

/// What of the store a part would build on.
fn store_keys(keys: &[(Key, bool)]) -> Vec<StoreKey> {
    let key = |(key, alone): &(Key, bool)| match key {
        Key::Name(directory, name) => {
            vec![StoreKey::Key(*directory, directory::key(name.as_bytes()))]
        }
        // A directory that goes was found empty.
        Key::Inode(fid) if *alone => vec![StoreKey::Object(*fid), StoreKey::AllKeys(*fid)],
        Key::Inode(fid) => vec![StoreKey::Object(*fid)],
        Key::Renames => Vec::new(),
    };
    keys.iter().flat_map(key).collect()
}

/// Has clients give up what they keep. No other change takes locks of these inodes meanwhile, so the order is free.
///
/// # Errors
/// [`Errno::ESHUTDOWN`] if the target stops.
pub(super) async fn revoke(
    target: &Arc<Target>,
    revoked: &[Revoked],
    client: &Uuid,
) -> Result<Vec<LockGuard>, Errno> {
    let export = target.export_of(client);
    let corrects =
        |export: &Arc<Export>| export.connect_data().flags2.contains(ConnectFlags2::OWN_NAMES);
    let spared = export.filter(corrects).map(|export| export.spared(SparedLocks::Readers));
    let mut guards = Vec::with_capacity(revoked.len());
    for what in revoked {
        guards.push(match *what {
            Revoked::Listing(directory) => {
                let (bits, mode) = (InodeBits::UPDATE, LockMode::Cw);
                target.lock_inode_sparing(directory, bits, mode, spared).await?
            }
            Revoked::Inode(_, InodeBits(0)) => continue,
            Revoked::Inode(fid, bits) => target.lock_inode(fid, bits, LockMode::Ex).await?,
        });
    }
    Ok(guards)
}
