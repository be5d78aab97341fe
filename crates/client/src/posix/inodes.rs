//! From nodes to inodes and back: entries, attributes, the data of a file.

use std::sync::Arc;

use sheen_types::{Errno, Name, Timestamp};

use super::{
    Attributes, Credentials, DirEntry, Entry, FileType, MayCache, Mounted, NameInvalidation,
    NodeId, StaleName, Stat,
};
use crate::cache::{Inode, LayoutState, Pin};
use crate::data::{DataAttributes, DataFile};

/// A name that the kernel asked for in the directory `asked`, in whose place `parent` may be now.
#[derive(Clone, Copy)]
pub(super) struct NamedBy<'a> {
    /// As the kernel knows the directory. It is notified of names of `parent` alone: of one that is known otherwise it keeps none.
    pub(super) asked: NodeId,
    /// The directory.
    pub(super) parent: &'a Inode,
    /// The name.
    pub(super) name: &'a Name,
}

impl Mounted {
    /// The inode of a node, needed for the length of a call.
    pub(super) fn pin(&self, node: NodeId) -> Result<Pin, Errno> {
        let known = self.inodes.pin_node(node).ok_or(Errno::ESTALE)?;
        Ok(self.inodes.current(known))
    }

    /// Whether a directory that a process may use still was removed. No RPC unless it may have been, then one.
    pub(super) async fn was_removed(&self, who: &Credentials, directory: &Inode) -> bool {
        directory.state().is_removed_directory()
            && (directory.state().directory.removed
                || matches!(self.refresh(who, directory).await, Err(Errno::ENOENT)))
    }

    /// A call for the node `asked` has changed these names of the directory. If another inode has taken the place of the
    /// one that the kernel knows as `asked`, the kernel has dentries of both, of which it has changed one: those of the
    /// successor are to be looked up again.
    pub(super) async fn expire_names_of_successor(&self, asked: NodeId, names: &[&Name]) {
        let Ok(current) = self.pin(asked) else { return };
        if current.node() == asked {
            return;
        }
        let (parent, by) = (current.node(), NameInvalidation::Expire);
        let stale = names.iter().map(|name| StaleName { parent, name: (*name).clone(), by });
        self.kernel_cache.invalidate_names(stale.collect()).await;
        self.kernel_cache.invalidate_attributes_but_size(parent).await;
    }

    /// Asks the MDT for the attributes of an inode of which none were ever known here: an earlier process of the
    /// mount knew them.
    pub(super) async fn fetch_unknown_attributes(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<(), Errno> {
        match inode.file_type() {
            Some(_) => Ok(()),
            None => self.refresh(who, inode).await,
        }
    }

    /// The entry of a name that was found. Counts as a lookup. No RPC unless the file is open.
    pub(super) async fn entry(
        &self,
        who: &Credentials,
        at: NamedBy<'_>,
        inode: &Arc<Inode>,
    ) -> Result<Entry, Errno> {
        let NamedBy { parent, name, .. } = at;
        self.meta.follow_found(who, parent, name, inode).await;
        self.fetch_unknown_attributes(who, inode).await?;
        let stat = match needs_true_size(inode) {
            true => match self.stat(who, inode).await {
                // Its data is lost. The name can still be used and removed; a program that asks for attributes is
                // refused then.
                Err(Errno::EIO) => Stat { keep: false, ..self.stat_without_rpc(inode)? },
                stat => stat?,
            },
            false => self.stat_without_rpc(inode)?,
        };
        Ok(self.looked_up(at, inode, stat))
    }

    /// The entry of an inode that is known by other means than a name. Counts as a lookup. No RPC unless the
    /// file is open.
    pub(super) async fn entry_without_name(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
    ) -> Result<Entry, Errno> {
        self.fetch_unknown_attributes(who, inode).await?;
        let Stat { attributes, keep } = match needs_true_size(inode) {
            true => self.stat(who, inode).await?,
            false => self.stat_without_rpc(inode)?,
        };
        let (node, generation, ()) = self.inodes.count_lookup(inode, |_| ());
        Ok(Entry {
            node,
            generation,
            attributes,
            keep: MayCache { entry: false, attributes: keep },
        })
    }

    /// The entry of a file that this client has just made and that was not written. Counts as a lookup. No
    /// RPC; a glimpse would bring a lock that conflicts with the first write.
    pub(super) fn entry_of_new(&self, at: NamedBy<'_>, inode: &Inode) -> Result<Entry, Errno> {
        Ok(self.looked_up(at, inode, self.stat_without_rpc(inode)?))
    }

    /// The entry of a name that is listed and may not be looked up: its number and type, and what else
    /// is known. Counts as a lookup. No RPC.
    /// `None` of what may have taken the place of a directory that the kernel knows: it is known by that one's number once it was
    /// looked up.
    pub(super) fn entry_unseen(
        &self,
        parent: &Inode,
        name: &Name,
        listed: &DirEntry,
    ) -> Option<Entry> {
        if self.inodes.may_have_moved(parent, name, listed.fid) {
            return None;
        }
        let inode = self.inodes.pin(listed.fid);
        // The kernel uses it as it uses the reply to a lookup.
        let known = self.stat_without_rpc(&inode).map(|stat| stat.attributes);
        let attributes = known.unwrap_or_else(|_| {
            let mut attributes = Attributes::blank(inode.fid);
            attributes.mode = listed.file_type.unwrap_or(FileType::Regular).mode_bits();
            attributes
        });
        let at = NamedBy { asked: parent.node(), parent, name };
        let Entry { node, generation, attributes, .. } =
            self.looked_up(at, &inode, Stat { attributes, keep: false });
        let keep = MayCache { entry: false, attributes: false };
        Some(Entry { node, generation, attributes, keep })
    }

    fn looked_up(&self, at: NamedBy<'_>, inode: &Inode, stat: Stat) -> Entry {
        let Stat { attributes, keep } = stat;
        let NamedBy { asked, parent, name } = at;
        // Under the table's lock, as the directory may take another one's number.
        let (node, generation, covered) = self
            .inodes
            .count_lookup(inode, |state| parent.node() == asked && state.keep_name(asked, name));
        let is_timed = attributes.file_type() == FileType::Directory;
        let entry = covered && self.may_keep_name(parent, name, is_timed);
        Entry { node, generation, keep: MayCache { entry, attributes: keep }, attributes }
    }

    /// Attributes from what is known; those of objects only where our own locks cover them.
    pub(super) fn stat_without_rpc(&self, inode: &Inode) -> Result<Stat, Errno> {
        let (mut attributes, covered, data, objects) = {
            let mut state = inode.state();
            let attributes = self.settings.adjusted(state.attributes_shown().ok_or(Errno::EIO)?);
            if state.size_covered() && state.file_type() != Some(FileType::Directory) {
                state.file.kernel_size.replied(attributes.size);
                return Ok(Stat { attributes, keep: self.kernel_cache.has_notifier() });
            }
            let data = state.file.data.clone();
            let objects = !matches!(state.layout(), Some(LayoutState::Empty));
            (attributes, state.attributes_covered(), data, objects)
        };
        if attributes.file_type() == FileType::Directory {
            let stripes = self.inodes.stripes_of(inode);
            let is_whole = merge_stripes(&mut attributes, &stripes);
            let keep = covered && is_whole && self.kernel_cache.has_notifier();
            return Ok(Stat { attributes, keep });
        }
        let regular = attributes.file_type() == FileType::Regular;
        let known = data.as_ref().and_then(|data| data.attributes_covered());
        match (&known, data) {
            (Some(known), _) => merge(&mut attributes, known),
            // A guess, which the kernel asks about before it uses it. It must not be less than what the
            // kernel has pages for: it would truncate them, and show zeros behind the end of the last one
            // when the size is known.
            (None, Some(data)) => attributes.size = attributes.size.max(data.last_size()),
            (None, None) => {}
        }
        inode.state().file.kernel_size.replied(attributes.size);
        let whole = !regular || !objects || known.is_some();
        Ok(Stat { attributes, keep: covered && whole && self.kernel_cache.has_notifier() })
    }

    /// Attributes of a directory that was removed, for processes that have it open. No RPC.
    pub(super) fn stat_of_removed(&self, inode: &Inode) -> Result<Stat, Errno> {
        let Stat { mut attributes, .. } = self.stat_without_rpc(inode)?;
        attributes.nlink = 0;
        Ok(Stat { attributes, keep: false })
    }

    /// Attributes as they are now, those of the MDT being known: at most a glimpse at each object's
    /// OST, and a layout.
    pub(super) async fn stat(&self, who: &Credentials, inode: &Inode) -> Result<Stat, Errno> {
        self.fetch_unknown_attributes(who, inode).await?;
        if inode.file_type() != Some(FileType::Regular) || inode.state().size_covered() {
            return self.stat_without_rpc(inode);
        }
        let ask = |data: Arc<dyn DataFile>| async move { data.attributes().await };
        let Some(known) = self.with_data(who, inode, ask).await? else {
            return self.stat_without_rpc(inode);
        };
        let (mut attributes, covered) = {
            let mut state = inode.state();
            let attributes = self.settings.adjusted(state.attributes_shown().ok_or(Errno::EIO)?);
            state.file.kernel_size.replied(known.size);
            (attributes, state.attributes_covered())
        };
        merge(&mut attributes, &known);
        let keep = covered && known.covered && self.kernel_cache.has_notifier();
        Ok(Stat { attributes, keep })
    }
}

/// A size that is not quite right is harmless while the kernel has no page of the file: it asks before it
/// uses the size. Otherwise the size would cut off the pages that it has. And a page that the kernel still
/// has, though its lock was cancelled, would show zeros up to a size that counts bytes the page lacks: that
/// is waited for.
fn needs_true_size(inode: &Inode) -> bool {
    let data = {
        let state = inode.state();
        if state.opens > 0 {
            return true;
        }
        state.file.data.clone()
    };
    data.is_some_and(|data| data.has_pending_invalidations())
}

/// Joins what is known of a directory with what is known of its stripes, if it has any: sizes and blocks are their sums, links
/// those of all their subdirectories, times the latest ones. Returns whether locks cover all of that.
fn merge_stripes(attributes: &mut Attributes, stripes: &[Pin]) -> bool {
    // One that has lost its name has lost its stripes.
    if stripes.is_empty() || attributes.nlink == 0 {
        return true;
    }
    // A directory's own two, and what leads to it from below.
    const OWN_LINKS: u32 = 2;
    (attributes.size, attributes.blocks, attributes.nlink) = (0, 0, OWN_LINKS);
    let mut is_whole = true;
    for stripe in stripes {
        let state = stripe.state();
        is_whole &= state.attributes_covered();
        let Some(known) = state.last_attributes() else { continue };
        attributes.size = attributes.size.saturating_add(known.size);
        attributes.blocks = attributes.blocks.saturating_add(known.blocks);
        attributes.nlink = attributes.nlink.saturating_add(known.nlink.saturating_sub(OWN_LINKS));
        attributes.atime = attributes.atime.max(known.atime);
        attributes.mtime = attributes.mtime.max(known.mtime);
        attributes.ctime = attributes.ctime.max(known.ctime);
    }
    is_whole
}

/// Joins what the MDT knows with what the objects know: sizes are theirs, times the later ones.
pub(super) fn merge(attributes: &mut Attributes, data: &DataAttributes) {
    attributes.size = data.size;
    attributes.blocks = data.blocks;
    for (time, other) in [
        (&mut attributes.atime, data.atime),
        (&mut attributes.mtime, data.mtime),
        (&mut attributes.ctime, data.ctime),
    ] {
        *time = Timestamp::max(*time, other);
    }
}
