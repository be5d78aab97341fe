//! Striped directories, put in order: a master has its stripes, each of them says so, and each name lies in the stripe that it
//! hashes to.
//!
//! A layout that a master has lost comes back from its stripes, if all of them are known; else they become plain directories in
//! it. So does a stripe that no master has. A stripe that its master lists and that is lost is made again, empty, under its own
//! FID, and reported: without it no name that hashes there could be made, found or removed, nor the directory be removed, and the names that
//! were in it come back to it from the inodes that know them. What stays as it is: a stripe that the layout itself has lost, or that is
//! another directory's, or of another type, or in the wrong store, and names that belong there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sheen_layout::directory::{DirectoryLayout, Holder, parse_stripe_name, stripe_name};
use sheen_store::{AttributePatch, FileKind, StoreError, all_entries};
use sheen_types::{Fid, HashSet, MdtIndex};

use super::{LostName, Rebuild, WhyLost};
use crate::check::{SHARED_XATTRS, agree, layout_of, other_stripe, rights};
use crate::directory::{self, Child, parse_key, parse_value};
use crate::orphans::fid_key;
use crate::restripe::{self, RESTRIPING};
use crate::xattrs;

/// What is known of striped directories.
#[derive(Default)]
pub(super) struct Striped {
    masters: BTreeMap<Fid, DirectoryLayout>,
    /// Of each stripe its master, and its number there.
    numbers: BTreeMap<Fid, (Fid, u32)>,
}

impl Striped {
    /// Whether names lie in a directory's stripes, and not in itself.
    pub(super) fn is_master(&self, directory: Fid) -> bool {
        self.masters.contains_key(&directory)
    }

    /// The directory that programs see: of a stripe its master.
    pub(super) fn seen(&self, directory: Fid) -> Fid {
        self.numbers.get(&directory).map_or(directory, |(master, _)| *master)
    }
}

/// Where a name may lie.
enum Home {
    /// In the directory that it is about.
    There,
    /// In another stripe.
    In(Fid),
    /// In a stripe that is not there.
    Nowhere,
}

/// What the inodes say of themselves.
#[derive(Default)]
struct Said {
    stripes: BTreeMap<Fid, DirectoryLayout>,
    unreadable: Vec<Fid>,
}

impl Rebuild<'_> {
    /// Settles which directories have stripes and which are some, and makes them say the same.
    pub(super) fn settle_stripes(&mut self, orphans: &HashSet<Fid>) -> Result<(), StoreError> {
        let said = self.said_layouts(orphans)?;
        self.restore_masters(&said)?;
        let masters: Vec<Fid> = self.striped.masters.keys().copied().collect();
        for master in masters {
            let layout = self.striped.masters[&master].clone();
            let Holder::Master { stripes, .. } = layout.holder() else { continue };
            for (number, stripe) in (0..).zip(stripes) {
                self.settle_stripe(*stripe, (master, &layout), number, &said)?;
            }
        }
        let left = said.stripes.into_keys().chain(said.unreadable);
        for directory in left {
            let is_striped = self.striped.numbers.contains_key(&directory);
            if is_striped || self.striped.is_master(directory) {
                continue;
            }
            let at = self.at(directory);
            self.apply(at, |change| {
                change.remove_xattr(directory, xattrs::LMV);
            })?;
            self.done[at].corrected += 1;
        }
        self.note_restriping()
    }

    /// The index of what is split or merged has all that says so of itself, and nothing else.
    fn note_restriping(&mut self) -> Result<(), StoreError> {
        let mut wanted: BTreeSet<Fid> = BTreeSet::new();
        let striped = self.striped.masters.keys().chain(self.striped.numbers.keys());
        for fid in striped.copied() {
            if let Some(Ok(layout)) = layout_of(self.store(fid), fid)?
                && layout.is_restriping()
            {
                wanted.insert(fid);
            }
        }
        for at in 0..self.all.len() {
            let noted: BTreeSet<Fid> = restripe::list(self.mdts.store(at))?.into_iter().collect();
            let here: BTreeSet<Fid> =
                wanted.iter().copied().filter(|fid| self.at(*fid) == at).collect();
            for fid in here.symmetric_difference(&noted) {
                self.apply(at, |change| {
                    match noted.contains(fid) {
                        true => change.delete(RESTRIPING, fid_key(*fid)),
                        false => change.insert(RESTRIPING, fid_key(*fid), Bytes::new()),
                    };
                })?;
                self.done[at].corrected += 1;
            }
        }
        Ok(())
    }

    fn said_layouts(&mut self, orphans: &HashSet<Fid>) -> Result<Said, StoreError> {
        let mut said = Said::default();
        for (fid, inode) in &self.inodes {
            if inode.kind != FileKind::Directory || orphans.contains(fid) {
                continue;
            }
            match layout_of(self.store(*fid), *fid)? {
                None => {}
                Some(Err(_)) => said.unreadable.push(*fid),
                Some(Ok(layout)) => match layout.holder() {
                    Holder::Master { .. } => _ = self.striped.masters.insert(*fid, layout),
                    Holder::Stripe { .. } => _ = said.stripes.insert(*fid, layout),
                },
            }
        }
        Ok(said)
    }

    /// Gives masters the layout back that they have lost, or that was lost with them.
    fn restore_masters(&mut self, said: &Said) -> Result<(), StoreError> {
        let mut claims: BTreeMap<Fid, BTreeMap<u32, Fid>> = BTreeMap::new();
        for (stripe, layout) in &said.stripes {
            let Holder::Stripe { number } = layout.holder() else { continue };
            let of = self.links(*stripe)?.entries.into_iter().find(|entry| {
                entry.parent.is_of_mdt()
                    && parse_stripe_name(&entry.name) == Some((*stripe, *number))
            });
            let of = of.map(|entry| entry.parent).filter(|it| !self.striped.is_master(*it));
            if let Some(master) = of {
                claims.entry(master).or_default().entry(*number).or_insert(*stripe);
            }
        }
        for (master, known) in claims {
            let Some(first) = known.values().next().copied() else { continue };
            let Some(layout) = self.restored_layout(master, known, said)? else { continue };
            let was_there = self.kind(master).is_some();
            self.directory(master)?;
            if self.kind(master) != Some(FileKind::Directory) {
                continue;
            }
            if !was_there {
                self.share_rights(first, master)?;
            }
            self.set_layout(master, &layout)?;
            self.striped.masters.insert(master, layout);
        }
        Ok(())
    }

    /// The layout of a master, if all its stripes are known: from what they say, and from its own names.
    fn restored_layout(
        &self,
        master: Fid,
        mut known: BTreeMap<u32, Fid>,
        said: &Said,
    ) -> Result<Option<DirectoryLayout>, StoreError> {
        for entry in all_entries(self.store(master), master, &[]) {
            let entry = entry?;
            let named = parse_key(&entry.key).and_then(|(_, name)| parse_stripe_name(&name));
            if let Some((stripe, number)) = named {
                known.entry(number).or_insert(stripe);
            }
        }
        let Some(one) = known.values().find_map(|stripe| said.stripes.get(stripe)) else {
            return Ok(None);
        };
        let are_of_one = known.iter().all(|(number, stripe)| {
            said.stripes.get(stripe).is_none_or(|it| agree(one, *number, it))
        });
        let stripes: Vec<Fid> = known.values().copied().collect();
        let are_all = (0..one.stripe_count().get()).eq(known.keys().copied());
        if !are_of_one || !are_all {
            return Ok(None);
        }
        let first = stripes.first().map_or(MdtIndex(0), |stripe| self.all[self.at(*stripe)].mdt);
        Ok(one.of_master(first, stripes).ok())
    }

    /// Has a stripe of a master say that it is one; makes it again if it is lost.
    fn settle_stripe(
        &mut self,
        stripe: Fid,
        (master, layout): (Fid, &DirectoryLayout),
        number: u32,
        said: &Said,
    ) -> Result<(), StoreError> {
        let own = said.stripes.get(&stripe);
        let agrees = own.is_some_and(|own| agree(layout, number, own));
        let links = self.inodes.get(&stripe).map(|_| self.links(stripe)).transpose()?;
        let parent = links.and_then(|links| links.entries.first().map(|entry| entry.parent));
        let is_anothers = parent.is_some_and(|parent| parent != master) && !agrees;
        let is_taken = self.striped.numbers.contains_key(&stripe) || self.striped.is_master(stripe);
        if !stripe.is_normal() || is_taken || is_anothers {
            return Ok(());
        }
        if self.kind(stripe).is_none() {
            self.make_stripe(stripe)?;
        }
        if self.kind(stripe) != Some(FileKind::Directory) {
            return Ok(());
        }
        self.share_rights(master, stripe)?;
        if let Some(right) = layout.of_stripe(number).filter(|_| !agrees) {
            self.set_layout(stripe, &right)?;
        }
        self.striped.numbers.insert(stripe, (master, number));
        Ok(())
    }

    fn make_stripe(&mut self, stripe: Fid) -> Result<(), StoreError> {
        let at = self.at(stripe);
        let made = self.done[at].directories.len();
        self.directory(stripe)?;
        let again = self.done[at].directories.split_off(made);
        self.done[at].stripes.extend(again);
        Ok(())
    }

    fn set_layout(&mut self, directory: Fid, layout: &DirectoryLayout) -> Result<(), StoreError> {
        let at = self.at(directory);
        self.apply(at, |change| {
            change.set_xattr(directory, xattrs::LMV, layout.to_ea().encode());
        })?;
        self.done[at].corrected += 1;
        Ok(())
    }

    /// Gives a directory owner, mode and access lists of another one.
    fn share_rights(&mut self, from: Fid, to: Fid) -> Result<(), StoreError> {
        let wanted = rights(&self.store(from).recorded_attributes(from)?);
        let mut is_same = rights(&self.store(to).recorded_attributes(to)?) == wanted;
        let mut lists: Vec<(&str, Option<Bytes>)> = Vec::new();
        for name in SHARED_XATTRS {
            let wanted = self.store(from).xattr(from, name)?;
            if self.store(to).xattr(to, name)? != wanted {
                is_same = false;
                lists.push((name, wanted));
            }
        }
        if is_same {
            return Ok(());
        }
        let at = self.at(to);
        let (uid, gid, permissions) = (Some(wanted.0), Some(wanted.1), Some(wanted.2));
        self.apply(at, |change| {
            change.patch(to, AttributePatch { uid, gid, permissions, ..AttributePatch::default() });
            for (name, value) in lists {
                match value {
                    Some(value) => change.set_xattr(to, name, value),
                    None => change.remove_xattr(to, name),
                };
            }
        })?;
        self.done[at].corrected += 1;
        Ok(())
    }

    /// Gives each stripe the one name that it has, and puts all other names into the stripe that they hash to.
    pub(super) fn names_in_stripes(&mut self) -> Result<(), StoreError> {
        let stripes: Vec<_> = self.striped.numbers.iter().map(|(it, of)| (*it, *of)).collect();
        for (stripe, (master, number)) in stripes {
            self.name_stripe(stripe, master, number)?;
        }
        let mut named: Vec<(Fid, Fid, Bytes)> = Vec::new();
        for (fid, inode) in &self.inodes {
            let names = inode.names.iter().filter(|_| !self.striped.numbers.contains_key(fid));
            named.extend(names.map(|(parent, name)| (*fid, *parent, name.clone())));
        }
        named.sort_unstable();
        for (fid, parent, name) in named {
            if let Home::In(stripe) = self.home_of_name(parent, &name) {
                self.move_name(fid, (parent, name), stripe)?;
            }
        }
        Ok(())
    }

    fn name_stripe(&mut self, stripe: Fid, master: Fid, number: u32) -> Result<(), StoreError> {
        let name = Bytes::from(stripe_name(stripe, number));
        let right = (master, name.clone());
        let inode = self.inodes.get_mut(&stripe);
        let names = inode.map(|inode| std::mem::take(&mut inode.names)).unwrap_or_default();
        for (parent, name) in names.iter().filter(|it| **it != right) {
            self.delete_name(stripe, (*parent, name))?;
        }
        if names.contains(&right) {
            let inode = self.inodes.get_mut(&stripe);
            inode.into_iter().for_each(|inode| inode.names.push(right.clone()));
            return Ok(());
        }
        if let Some(other) = self.standing_for(master, &name)? {
            // Only a stripe can be called so, and it is this one.
            self.delete_name(other, (master, &name))?;
            let inode = self.inodes.get_mut(&other);
            inode.into_iter().for_each(|inode| inode.names.retain(|it| *it != right));
        }
        self.put_name(master, name, stripe).map(drop)
    }

    /// Where a name belongs that lies, or is recorded, in a directory.
    fn home_of_name(&self, directory: Fid, name: &[u8]) -> Home {
        let (master, number) = match self.striped.numbers.get(&directory) {
            Some((master, number)) => (*master, Some(*number)),
            None => (directory, None),
        };
        let Some(layout) = self.striped.masters.get(&master) else { return Home::There };
        let belongs = match number {
            // It is there already: it was moved, and not taken away here.
            Some(number) if self.is_in_both(layout, number, name) => {
                layout.places(name).map(|places| Some(places.now))
            }
            Some(number) => other_stripe(layout, number, name),
            None => layout.places(name).map(|places| Some(places.now)),
        };
        let Ok(Some(number)) = belongs else {
            return if number.is_some() { Home::There } else { Home::Nowhere };
        };
        let Holder::Master { stripes, .. } = layout.holder() else { return Home::Nowhere };
        let stripe = stripes.get(number as usize).copied();
        let is_it = |it: &Fid| self.striped.numbers.get(it) == Some(&(master, number));
        stripe.filter(is_it).map_or(Home::Nowhere, Home::In)
    }

    /// Whether a name that may still be in this stripe, as its directory changes, is where it belongs from now on, too. What cannot be
    /// read is reported by who changes it.
    fn is_in_both(&self, layout: &DirectoryLayout, number: u32, name: &[u8]) -> bool {
        let Holder::Master { stripes, .. } = layout.holder() else { return false };
        let Ok(places) = layout.places(name) else { return false };
        let now = stripes.get(places.now as usize).filter(|_| places.before == Some(number));
        let name = Bytes::copy_from_slice(name);
        now.is_some_and(|now| self.standing_for(*now, &name).is_ok_and(|it| it.is_some()))
    }

    /// Where a name that an inode records is to be put back; `None` if it cannot be.
    pub(super) fn place_of_name(&self, directory: Fid, name: &[u8]) -> Option<Fid> {
        match self.home_of_name(directory, name) {
            Home::There => Some(directory),
            Home::In(stripe) => Some(stripe),
            Home::Nowhere => None,
        }
    }

    /// First where it belongs: what ends in between leaves it in both, and the next run takes one away. Where the name is
    /// another inode's there, this inode loses it.
    fn move_name(
        &mut self,
        fid: Fid,
        (parent, name): (Fid, Bytes),
        stripe: Fid,
    ) -> Result<(), StoreError> {
        let Some(inode) = self.inodes.get_mut(&fid) else { return Ok(()) };
        let kind = inode.kind;
        inode.names.retain(|it| *it != (parent, name.clone()));
        let at = self.at(stripe);
        match self.standing_for(stripe, &name)? {
            Some(other) if other == fid => self.done[at].corrected += 1,
            Some(_) => {
                let text = String::from_utf8_lossy(&name).into_owned();
                let is_last = self.inodes.get(&fid).is_none_or(|inode| inode.names.is_empty());
                if !is_last {
                    let (fid, why) = (Some(fid), WhyLost::Taken);
                    self.done[at].lost.push(LostName { parent, name: text, fid, why });
                }
            }
            None => {
                let value = directory::value(Child { fid, kind });
                self.apply(at, |change| {
                    change.insert(stripe, directory::key(&name), value);
                })?;
                let inode = self.inodes.get_mut(&fid);
                inode.into_iter().for_each(|inode| inode.names.push((stripe, name.clone())));
                self.done[at].moved += 1;
            }
        }
        self.delete_name(fid, (parent, &name))
    }

    fn delete_name(&self, child: Fid, (parent, name): (Fid, &Bytes)) -> Result<(), StoreError> {
        let at = self.at_name(parent, child);
        self.apply(at, |change| {
            change.delete(parent, directory::key(name));
        })?;
        Ok(())
    }

    fn standing_for(&self, directory: Fid, name: &Bytes) -> Result<Option<Fid>, StoreError> {
        let value = self.store(directory).lookup(directory, &directory::key(name))?;
        Ok(value.and_then(|value| parse_value(&value)).map(|child| child.fid))
    }
}
