//! Applying a part: from its updates to one transaction of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheen_io::logged;
use sheen_store::Transaction;
use sheen_target::{Context, Incarnation, LockGuard, PartApplied, Target, store_errno};
use sheen_types::{Errno, Fid, InodeBits, Transno, Uuid};
use sheen_wire::md::LinkEa;
use sheen_wire::out::{ObjectUpdate, SentPart, Update};

use super::exclude::{accesses_of, merged, revoke, shards_of};
use super::reads::{attributes_of, patch_of};
use crate::change_set::ChangeSet;
use crate::directory::Child;
use crate::distributed_exclusions::{Entry, Key, Revoked};
use crate::exclusion::ShardGuards;
use crate::inode::Inode;
use crate::{Mdt, links, xattrs};

/// What clients keep of an inode that a late part changes.
const NAMED: InodeBits = InodeBits::LOOKUP
    .union(InodeBits::UPDATE)
    .union(InodeBits::XATTR)
    .union(InodeBits::PERM)
    .union(InodeBits::LAYOUT)
    .union(InodeBits::OPEN);

/// Everything that a part changes is held, and clients keep nothing of it, until this is dropped.
#[must_use]
pub(crate) struct PartGuard<'a> {
    /// The exclusion under which it is applied, if there is one.
    exclusion: Option<(Incarnation, u64)>,
    _shards: ShardGuards<'a>,
    _locks: Vec<LockGuard>,
}

/// What is known so far of a part.
struct Building<'a> {
    changes: ChangeSet<'a>,
    created: BTreeSet<Fid>,
    /// Files that have given their layouts away: their objects stay when they go.
    without_layout: BTreeSet<Fid>,
    /// The lists of names that change, of each inode once.
    links: BTreeMap<Fid, LinkEa>,
}

impl Mdt {
    /// Holds what a part changes, and has clients give up what they have kept since it was excluded: nearly always nothing.
    /// `exclusion` is 0 for a part that only makes inodes, or changes nothing; and for one whose coordinator has started anew
    /// since: an exclusion of before is as good. Without any the part is late, as an operator had this MDT recover without the
    /// coordinator: what still fits is applied.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if the exclusion is not there, [`Errno::EPROTO`] for a part that is none or changes what is not
    /// excluded, [`Errno::EAGAIN`] for a late one of what another change is about.
    pub(crate) async fn prepare_part(
        &self,
        target: &Arc<Target>,
        coordinator: Incarnation,
        exclusion: u64,
        updates: &[ObjectUpdate],
    ) -> Result<PartGuard<'_>, Errno> {
        let exclusions = &self.exclusion.distributed;
        let keys = keys_of(updates)?;
        let entry = match exclusion {
            0 => exclusions.covering(coordinator.mdt, &keys),
            number => Some(exclusions.entry(coordinator, number)?),
        };
        if entry.as_ref().is_some_and(|entry| !entry.covers_all(&keys)) {
            return Err(Errno::EPROTO);
        }
        let shards = self.exclusion.acquire(shards_of(&keys)).await;
        let exclusion = entry.as_ref().map(|entry| (entry.coordinator, entry.number));
        if entry.is_none() && !exclusions.are_free(|| accesses_of(&keys)) {
            return Err(Errno::EAGAIN);
        }
        let locks = match target.applies_in_recovery() {
            true => Vec::new(),
            false => {
                let entry = entry.unwrap_or_else(|| Entry::late(coordinator, &keys));
                revoke(target, &entry.revoked, &entry.client).await?
            }
        };
        Ok(PartGuard { exclusion, _shards: shards, _locks: locks })
    }

    /// What the updates of a part come to in this store, while all of it is held.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for a part that is none, [`Errno::ENOENT`] if something of it is not there, those of the store.
    pub(crate) fn changes_of(&self, updates: &[ObjectUpdate]) -> Result<Transaction, Errno> {
        let mut building = Building {
            changes: self.change_set(),
            created: BTreeSet::new(),
            without_layout: BTreeSet::new(),
            links: BTreeMap::new(),
        };
        for update in updates {
            building.add(read(update)?)?;
        }
        Ok(building.finish())
    }

    /// Applies this MDT's part of a change that another one coordinates: once, whatever is sent again. The transaction as
    /// which it is there, 0 if it is durable.
    ///
    /// # Errors
    /// Those of [`Mdt::prepare_part`] and [`Mdt::changes_of`]; [`Errno::EPROTO`] for a record without a part of this MDT,
    /// [`Errno::ESTALE`] if the coordinator has started anew since.
    pub(super) async fn apply_part(
        &self,
        context: &Context,
        coordinator: Incarnation,
        sent: SentPart,
    ) -> Result<Transno, Errno> {
        let SentPart { exclusion, record, .. } = sent;
        let target = &context.target;
        let own = target.mdt_index();
        if record.id.coordinator != coordinator.mdt || coordinator.mdt == own {
            return Err(Errno::EPROTO);
        }
        // What it builds on, and what is said to be durable, is so from then on.
        target.until_redone().await;
        if let Some(transno) = target.part_here(record.id) {
            context.answer_replay();
            return Ok(transno);
        }
        // What this MDT had excluded it has lost.
        let exclusion = if context.replay().is_some() { 0 } else { exclusion };
        let record = Arc::new(record);
        let updates = &record.part_of(own).ok_or(Errno::EPROTO)?.updates;
        loop {
            target.note_partner(coordinator.mdt).await?;
            let prepared = self.prepare_part(target, coordinator, exclusion, updates).await?;
            let changes = self.changes_of(updates)?;
            if let Some((coordinator, number)) = prepared.exclusion {
                self.note_applied(coordinator, number);
            }
            let applied = target.transact_part(Some(context), coordinator, &record, changes);
            drop(prepared);
            self.restriper.look_if_noted();
            return match applied.map_err(store_errno)? {
                PartApplied::Now(transno) | PartApplied::Before(transno) => Ok(transno),
                PartApplied::TooLate => Err(Errno::ESTALE),
                PartApplied::NotNoted => continue,
            };
        }
    }
}

impl Entry {
    /// What a part needs that comes without an exclusion.
    pub(super) fn late(coordinator: Incarnation, keys: &[(Key, bool)]) -> Self {
        let revoked = |(key, alone): &(Key, bool)| match key {
            Key::Name(directory, _) => Some(Revoked::Listing(*directory)),
            Key::Inode(fid) => alone.then_some(Revoked::Inode(*fid, NAMED)),
            Key::Renames => None,
        };
        let revoked = merged(keys.iter().filter_map(revoked).collect());
        let (keys, client) = (keys.to_vec(), Uuid::default());
        Self { coordinator, number: 0, keys, revoked, client, is_applied: false }
    }
}

fn read(update: &ObjectUpdate) -> Result<Update, Errno> {
    let said = Update::read(update)
        .map_err(logged!(Errno::EPROTO, "an update in another MDT's record cannot be read"))?;
    match update.fid.is_of_mdt() {
        true => Ok(said),
        false => Err(Errno::EPROTO),
    }
}

/// The names and inodes that a part changes, and those that must only go on to exist, but for inodes that it makes itself: no
/// one else knows their FIDs.
///
/// # Errors
/// [`Errno::EPROTO`] for updates that are none of a part.
pub(super) fn keys_of(updates: &[ObjectUpdate]) -> Result<Vec<(Key, bool)>, Errno> {
    let said = updates.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let makes =
        |of: Fid| said.iter().any(|it| matches!(it, Update::Create { fid, .. } if *fid == of));
    // Excluded alone, so that no name in it changes: what goes, and what gets other stripes.
    let is_alone = |of: Fid, it: &Update| match it {
        Update::Destroy(fid) => *fid == of,
        Update::XattrSet(fid, name, _) => *fid == of && name.as_bytes() == xattrs::LMV.as_bytes(),
        _ => false,
    };
    let has_alone = |of: Fid| said.iter().any(|it| is_alone(of, it));
    let names = |of: Fid| {
        let is_of = |it: &Update| match it {
            Update::IndexInsert { directory, .. } | Update::IndexDelete(directory, _) => {
                *directory == of
            }
            _ => false,
        };
        said.iter().any(is_of)
    };
    let mut keys = Vec::new();
    for update in &said {
        match update {
            Update::IndexInsert { directory, name, .. } | Update::IndexDelete(directory, name) => {
                if !makes(*directory) && !has_alone(*directory) {
                    keys.push((Key::Name(*directory, name.clone()), true));
                    keys.push((Key::Inode(*directory), false));
                }
            }
            Update::Create { .. } => {}
            // The times and links of a directory in which a name changes: they come as they come.
            Update::RefAdd(fid) | Update::RefDel(fid) | Update::AttrSet(fid, _)
                if names(*fid) || makes(*fid) => {}
            Update::RefAdd(fid)
            | Update::RefDel(fid)
            | Update::AttrSet(fid, _)
            | Update::Destroy(fid)
            | Update::XattrSet(fid, ..)
            | Update::XattrDel(fid, _)
            | Update::LinkAdd(fid, ..)
            | Update::LinkDel(fid, ..) => {
                if !makes(*fid) {
                    keys.push((Key::Inode(*fid), true));
                }
            }
            _ => return Err(Errno::EPROTO),
        }
    }
    Ok(keys)
}

impl Building<'_> {
    fn add(&mut self, update: Update) -> Result<(), Errno> {
        let mdt = self.changes.mdt;
        match update {
            Update::Create { fid, attributes, .. } => {
                if mdt.is_remote(fid) {
                    return Err(Errno::EPROTO);
                }
                let attributes = attributes_of(&attributes).ok_or(Errno::EPROTO)?;
                let inode = Inode { fid, attributes, is_damaged: false };
                self.changes.create(&inode);
                self.created.insert(fid);
            }
            // While clients recover, one of them may be about to open it again.
            Update::Destroy(fid) if mdt.is_recovering() => {
                self.changes.become_orphan(&mdt.inode(fid)?);
            }
            Update::Destroy(fid) if self.without_layout.contains(&fid) => {
                self.changes.destroy_inode(fid);
            }
            Update::Destroy(fid) => self.changes.lose_last_name(&mdt.inode(fid)?)?,
            Update::RefAdd(fid) => self.changes.add_links(fid, 1),
            Update::RefDel(fid) => self.changes.add_links(fid, -1),
            Update::AttrSet(fid, said) => self.changes.patch(fid, patch_of(&said)),
            Update::XattrSet(fid, name, value) => {
                if name.to_text() == xattrs::LMV {
                    self.changes.note_layout(fid, &value)?;
                }
                self.changes.set_xattr(fid, &name.to_text(), value);
            }
            Update::XattrDel(fid, name) => {
                let name = name.to_text();
                if name == xattrs::LOV {
                    self.without_layout.insert(fid);
                }
                self.changes.remove_xattr(fid, &name);
            }
            Update::IndexInsert { directory, name, child, mode } => {
                let kind = sheen_store::FileKind::from_mode(mode).ok_or(Errno::EPROTO)?;
                self.changes.insert_name(directory, &name, Child { fid: child, kind });
            }
            Update::IndexDelete(directory, name) => self.changes.delete_name(directory, &name),
            Update::LinkAdd(fid, parent, name) => links::add(self.links_of(fid)?, parent, &name),
            Update::LinkDel(fid, parent, name) => {
                links::remove(self.links_of(fid)?, parent, &name);
            }
            _ => return Err(Errno::EPROTO),
        }
        Ok(())
    }

    fn links_of(&mut self, fid: Fid) -> Result<&mut LinkEa, Errno> {
        if !self.links.contains_key(&fid) {
            let known = match self.created.contains(&fid) {
                true => LinkEa::default(),
                false => self.changes.mdt.links(fid)?,
            };
            self.links.insert(fid, known);
        }
        self.links.get_mut(&fid).ok_or(Errno::ENOENT)
    }

    fn finish(mut self) -> Transaction {
        for (fid, links) in self.links {
            self.changes.set_xattr(fid, xattrs::LINK, links.encode());
        }
        self.changes.into_transaction()
    }
}
