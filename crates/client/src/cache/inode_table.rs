//! The table of inodes, by FID and by the facade's number.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sheen_types::{Fid, HashMap, MdtIndex, Name};

use super::limits::{MOVED_NUMBERS_MAX, UNNAMED_MAX};
use super::{Inode, InodeState, NamePlace, fid_of_number, generation_of, inode_number};
use crate::data::MdtLocations;
use crate::records::Recorder;
use crate::types::{Dentry, FileType, NodeId};

/// All inodes that are in use.
pub(crate) struct InodeTable {
    maps: RwLock<Maps>,
    recorder: Recorder,
    locations: Arc<MdtLocations>,
}

#[derive(Default)]
struct Maps {
    by_fid: HashMap<Fid, Arc<Inode>>,
    /// Of a directory that another inode has taken the place of, with its number: that one.
    by_node: HashMap<NodeId, Arc<Inode>>,
    /// Directories that the kernel knows, by the names that they had when those were last seen and led elsewhere later.
    unnamed: HashMap<Dentry, Fid>,
    numbers: MovedNumbers,
}

/// The numbers of directories that have moved, which are not those of their FIDs.
#[derive(Default)]
struct MovedNumbers {
    by_node: HashMap<NodeId, Fid>,
    by_fid: HashMap<Fid, NodeId>,
}

/// A reference on an inode that is not a lookup: an open handle, a call. Dropping it releases the inode.
pub(crate) struct Pin {
    inodes: Arc<InodeTable>,
    inode: Arc<Inode>,
}

impl InodeTable {
    /// A table with the root directory in it, which never leaves.
    #[cfg(test)]
    pub(crate) fn new(root: Fid) -> Arc<Self> {
        Self::recording(root, Recorder::default(), Arc::default())
    }

    /// As [`Self::new`]; what the mount's next process needs of inodes that are found later is recorded. `locations`
    /// is where they lie.
    pub(crate) fn recording(
        root: Fid,
        recorder: Recorder,
        locations: Arc<MdtLocations>,
    ) -> Arc<Self> {
        // The next process finds the root by itself.
        let inode = Arc::new(Inode::new(root, NodeId::ROOT, &Recorder::default()));
        inode.state().lookups = 1;
        let mut maps = Maps::default();
        maps.by_fid.insert(root, Arc::clone(&inode));
        maps.by_node.insert(NodeId::ROOT, inode);
        Arc::new(Self { maps: RwLock::new(maps), recorder, locations })
    }

    /// Puts an inode into the table under the number that the kernel knows it by. Before anything else is in it.
    pub(crate) fn restore(&self, node: NodeId, fid: Fid, lookups: u64) {
        let mut maps = self.maps.write();
        if maps.by_fid.contains_key(&fid) || maps.by_node.contains_key(&node) {
            return;
        }
        if node.0 != inode_number(fid) && fid_of_number(node.0).is_some() {
            maps.numbers.note(node, fid);
        }
        let inode = maps.insert(fid, node, &self.recorder);
        inode.count_lookups(&mut inode.state(), lookups);
    }

    /// Counts a lookup of an inode, or of what has taken its place and number meanwhile. Answers the number, and the generation that
    /// goes with it. What `answered` notes is noted with it.
    pub(crate) fn count_lookup<T>(
        &self,
        inode: &Inode,
        answered: impl FnOnce(&mut InodeState) -> T,
    ) -> (NodeId, u64, T) {
        let maps = self.maps.read();
        let node = inode.node();
        let known = maps.by_node.get(&node).filter(|known| known.fid != inode.fid);
        let current = known.map_or(inode, |known| known);
        let mut state = current.state();
        current.count_lookups(&mut state, 1);
        (node, generation_of(node, current.fid), answered(&mut state))
    }

    /// What was known by this number when it was forgotten: a directory that had moved.
    pub(crate) fn fid_of_moved(&self, node: NodeId) -> Option<Fid> {
        self.maps.read().numbers.by_node.get(&node).copied()
    }

    /// Whether the table's lock can be had within `limit`; waits in the thread.
    pub(crate) fn is_responsive(&self, limit: Duration) -> bool {
        self.maps.try_write_for(limit).is_some()
    }

    /// The inode that the facade calls `node`.
    pub(crate) fn by_node(&self, node: NodeId) -> Option<Arc<Inode>> {
        self.maps.read().by_node.get(&node).cloned()
    }

    /// The inode of a FID, if it is here.
    pub(crate) fn by_fid(&self, fid: Fid) -> Option<Arc<Inode>> {
        self.maps.read().by_fid.get(&fid).cloned()
    }

    /// Which of these are files, and not directories.
    pub(crate) fn files_of(&self, fids: impl IntoIterator<Item = Fid>) -> Vec<NodeId> {
        let inodes = fids.into_iter().filter_map(|fid| self.by_fid(fid));
        let files = inodes.filter(|inode| inode.file_type() != Some(FileType::Directory));
        files.map(|inode| inode.node()).collect()
    }

    /// The inode of a FID, if it is in the table, pinned: an invalidation must pin it until the kernel has
    /// processed the notification. An inode that was dropped and made anew in between would not know that the
    /// kernel may drop replies.
    pub(crate) fn pin_known(self: &Arc<Self>, fid: Fid) -> Option<Pin> {
        self.pin_if(|maps| maps.by_fid.get(&fid))
    }

    /// As [`Self::pin`], of the inode that the facade calls `node`.
    pub(crate) fn pin_node(self: &Arc<Self>, node: NodeId) -> Option<Pin> {
        self.pin_if(|maps| maps.by_node.get(&node))
    }

    /// Under the table's lock, without which the inode could be removed before the pin is counted.
    fn pin_if(self: &Arc<Self>, find: impl Fn(&Maps) -> Option<&Arc<Inode>>) -> Option<Pin> {
        let maps = self.maps.read();
        let inode = find(&maps)?;
        inode.state().pins += 1;
        Some(Pin { inodes: Arc::clone(self), inode: Arc::clone(inode) })
    }

    /// How many inodes there are.
    pub(crate) fn len(&self) -> usize {
        self.maps.read().by_fid.len()
    }

    /// The inode of a FID, made if need be, pinned.
    pub(crate) fn pin(self: &Arc<Self>, fid: Fid) -> Pin {
        if let Some(pin) = self.pin_known(fid) {
            return pin;
        }
        let mut maps = self.maps.write();
        let inode = match maps.by_fid.get(&fid) {
            Some(inode) => Arc::clone(inode),
            None => {
                let node = maps.free_node(fid);
                maps.insert(fid, node, &self.recorder)
            }
        };
        inode.state().pins += 1;
        Pin { inodes: Arc::clone(self), inode }
    }

    /// The kernel forgets lookups of a node.
    pub(crate) fn forget(&self, node: NodeId, lookups: u64) {
        // Under the table's lock, without which another inode could take the number over in between.
        let (inode, idle) = {
            let maps = self.maps.read();
            let Some(inode) = maps.by_node.get(&node).cloned() else { return };
            let mut state = inode.state();
            state.lookups = state.lookups.saturating_sub(lookups);
            if node == NodeId::ROOT {
                state.lookups = state.lookups.max(1);
            }
            Inode::keep_lookups(&state);
            let idle = state.is_idle();
            drop(state);
            (inode, idle)
        };
        if idle {
            self.remove_idle(&inode);
        }
    }

    /// Forgets the name by which a child was known, in both directions: a call of the kernel's changes it.
    pub(crate) fn forget_name(&self, parent: &Inode, name: &Name) {
        if let Some(child) = self.take_child(parent, name) {
            child.state().note_name_removed(parent.node(), name);
        }
    }

    /// As [`InodeTable::forget_name`], by a reply.
    pub(crate) fn note_name_absent(&self, parent: &Inode, name: &Name) {
        let Some(child) = self.take_child(parent, name) else { return };
        let node = parent.node();
        let may_have_moved = {
            let mut state = child.state();
            state.note_name_absent(node, name);
            state.may_have_moved_from(node, name)
        };
        if may_have_moved && self.locations.has_several() {
            self.maps.write().note_unnamed(Dentry::new(node, name), child.fid);
        }
    }

    /// The directory that had a name when that was last seen, before it led to the inode `now`: that may have taken its place.
    pub(crate) fn unnamed(self: &Arc<Self>, parent: &Inode, name: &Name, now: Fid) -> Option<Pin> {
        let named = Dentry::new(parent.node(), name);
        let fid = {
            let maps = self.maps.read();
            if maps.unnamed.is_empty() {
                return None;
            }
            *maps.unnamed.get(&named)?
        };
        let former = self.pin_known(fid).filter(|former| {
            former.fid != now && former.state().may_have_moved_from(named.parent, name)
        });
        if former.is_none() {
            self.maps.write().unnamed.remove(&named);
        }
        former
    }

    /// Whether `now`, to which a name leads, may be what has taken the place of a directory that the kernel knows by that name,
    /// and does not know itself.
    pub(crate) fn may_have_moved(&self, parent: &Inode, name: &Name, now: Fid) -> bool {
        if !self.locations.has_several()
            || self.by_fid(now).is_some_and(|it| it.state().lookups > 0)
        {
            return false;
        }
        let node = parent.node();
        let known = parent.state().directory.children.get(name).copied();
        let unnamed = || self.maps.read().unnamed.get(&Dentry::new(node, name)).copied();
        let former = known.or_else(unnamed).filter(|former| *former != now);
        former
            .and_then(|former| self.by_fid(former))
            .is_some_and(|former| former.state().may_have_moved_from(node, name))
    }

    /// What a name leads to is not the directory that it led to before.
    pub(crate) fn forget_unnamed(&self, parent: &Inode, name: &Name) {
        self.maps.write().unnamed.remove(&Dentry::new(parent.node(), name));
    }

    /// Has `master`, of which the kernel knows nothing, known by the number of `former`, whose place it has taken. Returns whether
    /// it is now: not if the kernel knows `master` by its own number already.
    pub(super) fn take_number(&self, former: &Arc<Inode>, master: &Arc<Inode>) -> bool {
        let mut maps = self.maps.write();
        let (node, own) = (former.node(), master.node());
        let is = |maps: &Maps, node, inode: &Arc<Inode>| {
            maps.by_node.get(&node).is_some_and(|it| Arc::ptr_eq(it, inode))
        };
        let is_known = is(&maps, node, former) && is(&maps, own, master);
        // By its number it is known of which generation the directory is, after a change of the process, too.
        if !is_known || fid_of_number(node.0).is_none() || node == NodeId::ROOT {
            return false;
        }
        let (mut state, mut taken) = (former.state(), master.state());
        if state.lookups == 0 || taken.lookups > 0 {
            return false;
        }
        let hidden = std::mem::take(&mut taken.directory.children);
        taken.follow(&mut state);
        let named = taken.directory.last_name.as_deref().cloned();
        master.take_over(&mut taken, (former, &mut state), &self.recorder);
        drop((state, taken));
        maps.by_node.remove(&own);
        maps.by_node.insert(node, Arc::clone(master));
        maps.numbers.note(node, master.fid);
        if let Some(named) = named.filter(|named| maps.unnamed.get(named) == Some(&former.fid)) {
            maps.unnamed.remove(&named);
        }
        let hidden: Vec<_> = hidden
            .into_iter()
            .filter_map(|(name, fid)| Some((name, Arc::clone(maps.by_fid.get(&fid)?))))
            .collect();
        drop(maps);
        // The kernel has none of these by the number that is gone.
        for (name, child) in hidden {
            child.state().note_name_absent(own, &name);
        }
        true
    }

    /// The last handle was closed of a directory that may have moved: what has taken its place is not open by that any more.
    pub(crate) fn note_closed(&self, former: &Inode) {
        // As in `take_number`: what is known by the number has the count.
        let maps = self.maps.read();
        let current = {
            let mut state = former.state();
            let is_counted =
                state.opens == 0 && std::mem::take(&mut state.directory.is_counted_open);
            maps.by_node.get(&former.node()).filter(|_| is_counted)
        };
        if let Some(current) = current {
            let mut state = current.state();
            state.directory.former_opens = state.directory.former_opens.saturating_sub(1);
        }
    }

    fn take_child(&self, parent: &Inode, name: &Name) -> Option<Arc<Inode>> {
        let fid = parent.state().directory.children.remove(name)?;
        self.by_fid(fid)
    }

    /// On which MDT an inode is, if that is known.
    pub(super) fn mdt_of(&self, fid: Fid) -> Option<MdtIndex> {
        self.locations.known(fid)
    }

    /// Notes that `name` at `place` is `child`. The name is covered by a lock of the MDT of what has the name.
    pub(crate) fn remember_name(&self, place: &NamePlace<'_>, name: &Name, child: &Arc<Inode>) {
        let (parent, mdt) = (place.directory, self.mdt_of(place.holder().fid));
        let is_remote = self.locations.has_several() && self.mdt_of(child.fid) != mdt;
        let remote = mdt.filter(|_| is_remote);
        place.holder().state().forget_absent(name);
        {
            let state = parent.state();
            if state.directory.children.get(name) == Some(&child.fid) {
                drop(state);
                return child.state().note_seen_name(parent.node(), name, remote);
            }
        }
        self.note_name_absent(parent, name);
        parent.state().directory.children.insert(name.clone(), child.fid);
        child.state().note_seen_name(parent.node(), name, remote);
    }

    /// A reference on an inode was released.
    pub(crate) fn release(&self, inode: &Arc<Inode>) {
        let idle = inode.state().is_idle();
        if idle {
            self.remove_idle(inode);
        }
    }

    /// All inodes.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.maps.read().by_fid.values().cloned().collect()
    }

    fn remove_idle(&self, inode: &Arc<Inode>) {
        let (names, striping) = {
            let mut maps = self.maps.write();
            // It may have been removed already, and the table may have a new inode of that FID: releasing the
            // former one, as a revocation does late, must not remove the current one, which locks look up
            // here.
            let is_here = |it: &Arc<Inode>| Arc::ptr_eq(it, inode);
            let mut state = inode.state();
            if !state.is_idle() || !maps.by_fid.get(&inode.fid).is_some_and(is_here) {
                return;
            }
            maps.by_fid.remove(&inode.fid);
            if maps.by_node.get(&inode.node()).is_some_and(is_here) {
                maps.by_node.remove(&inode.node());
            }
            if let Some(named) = state.directory.last_name.as_deref()
                && maps.unnamed.get(named) == Some(&inode.fid)
            {
                maps.unnamed.remove(named);
            }
            if let Some(data) = state.file.data.take() {
                data.idle();
            }
            let striping = std::mem::take(&mut state.directory.striping);
            (std::mem::take(&mut state.names.seen), striping)
        };
        self.release_stripes(striping);
        for Dentry { parent, name } in names {
            if let Some(parent) = self.by_node(parent) {
                let mut state = parent.state();
                state.directory.children.remove(&name);
                state.forget_kept_child(&name);
            }
        }
    }
}

impl Maps {
    fn insert(&mut self, fid: Fid, node: NodeId, recorder: &Recorder) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(fid, node, recorder));
        self.by_fid.insert(fid, Arc::clone(&inode));
        self.by_node.insert(node, Arc::clone(&inode));
        inode
    }

    fn note_unnamed(&mut self, named: Dentry, fid: Fid) {
        if self.unnamed.len() >= UNNAMED_MAX {
            let by_fid = &self.by_fid;
            let is_so = |Dentry { parent, name }: &Dentry, fid: &Fid| {
                by_fid.get(fid).is_some_and(|it| it.state().may_have_moved_from(*parent, name))
            };
            self.unnamed.retain(|named, fid| is_so(named, fid));
            if self.unnamed.len() >= UNNAMED_MAX / 2 {
                self.unnamed.clear();
            }
        }
        self.unnamed.insert(named, fid);
    }

    /// The inode number, or where two FIDs have the same the next free number above all of them.
    fn free_node(&self, fid: Fid) -> NodeId {
        let moved = self.numbers.by_fid.get(&fid).copied();
        let mut node = moved.unwrap_or(NodeId(inode_number(fid)));
        while node.0 <= NodeId::ROOT.0
            || node.0 >= NodeId::UNUSED_BITS
            || self.by_node.contains_key(&node)
        {
            node = NodeId((node.0 & ((1 << 62) - 1) | 1 << 63) + 1);
        }
        node
    }
}

impl MovedNumbers {
    /// The directory is known by this number, as the one was whose place it has taken. Beyond [`MOVED_NUMBERS_MAX`] one that
    /// the kernel has forgotten has the number of its FID again.
    fn note(&mut self, node: NodeId, fid: Fid) {
        if let Some(former) = self.by_node.get(&node) {
            self.by_fid.remove(former);
        } else if self.by_node.len() >= MOVED_NUMBERS_MAX {
            return;
        }
        self.by_node.insert(node, fid);
        self.by_fid.insert(fid, node);
    }
}

impl Pin {
    /// As [`InodeTable::note_closed`].
    pub(crate) fn note_closed(&self) {
        self.inodes.note_closed(&self.inode);
    }

    /// The inode stays pinned until its pins are counted down by hand.
    pub(super) fn keep_pinned(self) {
        self.inode.state().pins += 1;
    }
}

impl std::ops::Deref for Pin {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let idle = {
            let mut state = self.inode.state();
            state.pins -= 1;
            state.is_idle()
        };
        if idle {
            self.inodes.remove_idle(&self.inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_lives_as_long_as_it_is_in_use() {
        let inodes = InodeTable::new(Fid::ROOT);
        let fid = Fid::new(0x2_0000_0401, 7);
        let pin = inodes.pin(fid);
        let node = pin.node();
        pin.state().lookups += 2;
        drop(pin);
        inodes.forget(node, 1);
        assert!(inodes.by_node(node).is_some());
        inodes.forget(node, 1);
        assert!(inodes.by_node(node).is_none());
        assert_eq!(inodes.len(), 1);
        inodes.forget(NodeId::ROOT, 9);
        assert!(inodes.by_node(NodeId::ROOT).is_some());
    }

    #[test]
    fn releasing_an_inode_late_does_not_remove_the_one_in_its_place() {
        let inodes = InodeTable::new(Fid::ROOT);
        let fid = Fid::new(0x2_0000_0401, 7);
        let former = Arc::clone(&*inodes.pin(fid));
        assert!(inodes.by_fid(fid).is_none(), "it is not in use");
        let present = inodes.pin(fid);
        inodes.release(&former);
        assert!(inodes.by_fid(fid).is_some_and(|found| Arc::ptr_eq(&found, &present)));
        assert!(inodes.by_node(present.node()).is_some());
    }

    #[test]
    fn fids_with_the_same_number_have_nodes_of_their_own() {
        let inodes = InodeTable::new(Fid::ROOT);
        // The sequence's high part is folded onto bits that object numbers may have too.
        let one = inodes.pin(Fid::new(1 << 40 | 0x2_0000_0401, 1));
        let other = inodes.pin(Fid::new(0x2_0000_0401, 1 + (1 << 16)));
        assert_eq!(inode_number(one.fid), inode_number(other.fid));
        assert_ne!(one.node(), other.node());
    }

    #[test]
    fn names_go_with_the_child() {
        let inodes = InodeTable::new(Fid::ROOT);
        let root = inodes.by_node(NodeId::ROOT).unwrap();
        let name = Name::new(b"x").unwrap();
        let child = inodes.pin(Fid::new(0x2_0000_0401, 7));
        root.state().directory.children.insert(name.clone(), child.fid);
        child.state().names.seen.push(Dentry { parent: NodeId::ROOT, name });
        drop(child);
        assert!(root.state().directory.children.is_empty());
    }
}
