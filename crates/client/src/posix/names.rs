//! Names: looking them up, making, moving and removing them.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, Fid, Name};

use super::inodes::NamedBy;
use super::stale_retry::TRIES;
use super::{
    Credentials, Entry, FileSystem, FileType, Lookup, Mounted, NAME_TIMEOUT, NewNode, NodeId,
    RenameMode,
};
use crate::boxed;
use crate::cache::{Inode, LayoutState, NAME_TIMEOUT_SLACK, Pin};
use crate::data::FileLayout;
use crate::meta::{CreateRequest, LookupDepth, Removes};

impl FileSystem {
    /// Finds `name` in `parent`. A name found counts as one lookup of its node. No RPC if locks cover
    /// the name and its inode, else one.
    ///
    /// # Errors
    /// As `stat(2)`, but a name that is not there is no error.
    #[boxed]
    pub async fn lookup(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<Lookup, Errno> {
        let asked = parent;
        let parent = self.0.pin(asked)?;
        let found = match self.0.stale_retry.tries_again(who) {
            true => self.0.find_and_retain(who, &parent, name).await,
            false => self.find_ahead(who, &parent, name).await,
        };
        if self.0.was_moved(who, (asked, &parent), &found).await {
            return self.lookup(who, asked, name).await;
        }
        let found = match found {
            // Removed while it is open: it has no names. One whose names are being moved only says so, too.
            Err(Errno::ESTALE) if self.0.was_removed(who, &parent).await => None,
            found => found?,
        };
        match found {
            Some(child) => {
                let at = NamedBy { asked, parent: &parent, name };
                Ok(Lookup::Found(self.0.entry(who, at, &child).await?))
            }
            None => {
                let is_absent = || {
                    parent.node() == asked
                        && self.0.meta.is_absent(&parent, name)
                        && is_listed(&parent, name)
                };
                // Again once it is noted until when the kernel keeps it: what is lost from then on waits for that.
                let keep = is_absent() && self.0.may_keep_name(&parent, name, true) && is_absent();
                Ok(Lookup::Absent { keep })
            }
        }
    }

    /// The node that `name` was last seen to be, valid or not. No RPC.
    pub fn known_child(&self, parent: NodeId, name: &Name) -> Option<NodeId> {
        let parent = self.0.inodes.by_node(parent)?;
        let fid = parent.state().directory.children.get(name).copied()?;
        self.0.inodes.by_fid(fid).map(|child| child.node())
    }

    /// The kernel forgets `lookups` lookups of `node`.
    pub fn forget(&self, node: NodeId, lookups: u64) {
        self.0.inodes.forget(node, lookups);
        self.0.kernel_cache.forget_pages(node);
    }

    /// Makes a directory, symbolic link, device, pipe, socket or closed regular file. Counts as one
    /// lookup. `mode` has permission bits only; the umask of `who` is applied. One RPC.
    ///
    /// # Errors
    /// As `mkdir(2)`, `symlink(2)`, `mknod(2)`; `ENODEV` for a directory on an MDT that there is not.
    #[boxed]
    pub async fn make_node(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        new: NewNode,
    ) -> Result<Entry, Errno> {
        let asked = parent;
        let permissions = mode & 0o7777;
        let directory = FileType::Directory.mode_bits() | permissions;
        let (rdev, target, wish) = (0, None, None);
        let plain = CreateRequest { mode: directory, rdev, target, wish, restripes: false };
        let new = match new {
            NewNode::Directory => plain,
            NewNode::DirectoryOn(mdt) => {
                let wish = DirectoryWish { first: Some(mdt), ..DirectoryWish::default() };
                CreateRequest { wish: Some(wish), ..plain }
            }
            NewNode::WishedDirectory(wish) => CreateRequest { wish: Some(wish), ..plain },
            NewNode::RestripedDirectory(wish) => {
                CreateRequest { wish: Some(wish), restripes: true, ..plain }
            }
            NewNode::Symlink(target) if target.is_empty() => return Err(Errno::ENOENT),
            NewNode::Symlink(target) => {
                let mode = FileType::Symlink.mode_bits() | 0o777;
                CreateRequest { mode, target: Some(Bytes::from(target)), ..plain }
            }
            NewNode::Node { file_type, rdev } => {
                CreateRequest { mode: file_type.mode_bits() | permissions, rdev, ..plain }
            }
        };
        let new = &new;
        let create = |parent: Arc<Inode>| async move {
            let create = || self.0.meta.create(who, &parent, name, new);
            self.0.retry_with_rights(who, &[&parent], create).await
        };
        let (parent, child) = self.0.in_directory(who, asked, create).await?;
        let made = self.0.entry(who, NamedBy { asked, parent: &parent, name }, &child).await?;
        self.0.expire_names_of_successor(asked, &[name]).await;
        Ok(made)
    }

    /// Makes a directory as it is wished for a caller of whom the kernel does not know that it makes one: it is notified of the
    /// name. No lookup counts. One RPC.
    ///
    /// # Errors
    /// As [`FileSystem::make_node`].
    #[boxed]
    pub async fn make_wished_directory(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        wish: DirectoryWish,
    ) -> Result<(), Errno> {
        self.make_unseen(who, (parent, name), mode, NewNode::WishedDirectory(wish)).await
    }

    /// As [`FileSystem::make_wished_directory`]; a directory that is there is split, or merged, to so many stripes as are wished. Its MDT moves its names after
    /// this call. Up to three RPCs.
    ///
    /// # Errors
    /// As [`FileSystem::make_node`]; `EBUSY` of one that is being moved, split or merged.
    #[boxed]
    pub async fn restripe_directory(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        wish: DirectoryWish,
    ) -> Result<(), Errno> {
        self.make_unseen(who, (parent, name), mode, NewNode::RestripedDirectory(wish)).await
    }

    async fn make_unseen(
        &self,
        who: &Credentials,
        (parent, name): (NodeId, &Name),
        mode: u32,
        new: NewNode,
    ) -> Result<(), Errno> {
        let made = self.make_node(who, parent, name, mode, new).await?;
        // The kernel does not hear of it. Before what waits: the caller may be killed meanwhile.
        self.forget(made.node, 1);
        // Of one that was split the name stays: programs work in it.
        let is_expired = self.0.kernel_cache.expire_names(parent, vec![name.clone()], Vec::new());
        if !is_expired.await {
            // Calls of other programs hold the directory: the kernel uses that the name was absent until its time is over.
            let clock = &self.0.meta.world.clock;
            clock.sleep_until(clock.now() + NAME_TIMEOUT + NAME_TIMEOUT_SLACK).await;
        }
        self.0.kernel_cache.invalidate_attributes_but_size(parent).await;
        Ok(())
    }

    /// The target of a symbolic link. One RPC for each link, once.
    ///
    /// # Errors
    /// As `readlink(2)`.
    #[boxed]
    pub async fn readlink(&self, who: &Credentials, node: NodeId) -> Result<Bytes, Errno> {
        let inode = self.0.pin(node)?;
        match inode.file_type() {
            Some(FileType::Symlink) | None => {
                self.0.stale_if_absent(who, self.0.meta.readlink(who, &inode).await)
            }
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// Gives `node` another name. Counts as one lookup. One RPC.
    ///
    /// # Errors
    /// As `link(2)`.
    #[boxed]
    pub async fn link(
        &self,
        who: &Credentials,
        node: NodeId,
        parent: NodeId,
        name: &Name,
    ) -> Result<Entry, Errno> {
        let asked = parent;
        let inode = self.0.pin(node)?;
        let mut linked = self.0.link(who, &inode, (asked, name)).await;
        if let Some(found_as) = self.0.stale_retry.found_as(who, node) {
            // Its name is replaced again and again: the kernel takes any inode of the same type.
            let directory = self.0.pin(found_as.parent)?;
            for _ in 0..TRIES {
                if linked != Err(Errno::ENOENT) {
                    break;
                }
                let found =
                    self.0.meta.lookup(who, &directory, &found_as.name, LookupDepth::Name).await?;
                let Some(found) = found else {
                    // There is no third try: this is the answer.
                    self.0.end_retry(who.pid);
                    return Err(Errno::ENOENT);
                };
                linked = match found.file_type() {
                    Some(FileType::Directory) => Err(Errno::EPERM),
                    kind if kind == inode.file_type() => {
                        self.0.link(who, &found, (asked, name)).await
                    }
                    _ => break,
                };
            }
        }
        self.0.expire_names_of_successor(asked, &[name]).await;
        self.0.answer_and_end_retry(who, linked)
    }

    /// Removes a name of anything but a directory. One RPC.
    ///
    /// # Errors
    /// As `unlink(2)`.
    #[boxed]
    pub async fn unlink(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<(), Errno> {
        let layout = self.0.layout_of(&*self.0.pin(parent)?, name);
        let is_gone = self.0.remove_name(who, (parent, name), Removes::File).await?;
        self.0.note_gone(layout.filter(|_| is_gone));
        Ok(())
    }

    /// Removes an empty directory. One RPC.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    #[boxed]
    pub async fn rmdir(&self, who: &Credentials, parent: NodeId, name: &Name) -> Result<(), Errno> {
        self.0.remove_name(who, (parent, name), Removes::Directory).await.map(drop)
    }

    /// Moves a name. One RPC; with [`RenameMode::NoReplace`] a lookup of the new name before it.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    #[boxed]
    pub async fn rename(
        &self,
        who: &Credentials,
        from: (NodeId, &Name),
        to: (NodeId, &Name),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        match mode {
            RenameMode::Exchange => return Err(Errno::EINVAL),
            RenameMode::NoReplace => {
                // As Lustre's client does it: the kernel looks before it asks.
                let find =
                    |parent: Arc<Inode>| async move { self.0.find(who, &parent, to.1).await };
                if self.0.in_directory(who, to.0, find).await?.1.is_some() {
                    return Err(Errno::EEXIST);
                }
            }
            RenameMode::Replace => {}
        }
        let replaced = self.0.layout_of(&*self.0.pin(to.0)?, to.1);
        let rename = |from_parent: Arc<Inode>, to_parent: Arc<Inode>| async move {
            let moved = self.0.meta.known_child(&from_parent, from.1);
            let moved = moved.as_deref();
            let names = ((&*from_parent, from.1), (&*to_parent, to.1));
            let rename = || self.0.meta.rename(who, names.0, names.1, moved);
            let mut judged: Vec<&Inode> = vec![&from_parent, &to_parent];
            judged.extend(moved.filter(|it| it.file_type() == Some(FileType::Directory)));
            self.0.retry_with_rights(who, &judged, rename).await
        };
        let (_, is_gone) = self.0.in_two_directories(who, (from.0, to.0), rename).await?;
        self.0.expire_names_of_successor(from.0, &[from.1]).await;
        self.0.expire_names_of_successor(to.0, &[to.1]).await;
        self.0.note_gone(replaced.filter(|_| is_gone));
        Ok(())
    }
}

/// What the cache knows of a name.
pub(super) enum KnownName {
    /// It is not there.
    Absent,
    /// A lock covers it, and what is wanted of its inode.
    Covered(Pin),
    /// A lock covers it, but not its inode's attributes.
    Named(Pin),
    /// The MDT is to be asked for so much. What the name stood for last is pinned meanwhile: what is dirty of it belongs
    /// to this inode, which a close that is answered now may be the last to use.
    Unknown(LookupDepth, Option<Pin>),
}

/// Whether a name that is there is listed by its directory: neither `.lustre` is nor what is called by its FID there.
fn is_listed(parent: &Inode, name: &Name) -> bool {
    match parent.fid {
        Fid::ROOT => name.as_bytes() != b".lustre",
        fid => fid != Fid::DOT_LUSTRE_FID,
    }
}

impl Mounted {
    /// Where the data of the file `name` is, if that is known and the file is not open here. To be asked
    /// before the name is removed, because the lock that covers the layout is revoked with it.
    fn layout_of(&self, parent: &Inode, name: &Name) -> Option<Arc<FileLayout>> {
        let fid = parent.state().directory.children.get(name).copied()?;
        let child = self.inodes.by_fid(fid)?;
        let state = child.state();
        match state.layout() {
            Some(LayoutState::Placed(layout)) if state.opens == 0 => Some(Arc::clone(layout)),
            _ => None,
        }
    }

    /// A file has lost its last name.
    fn note_gone(&self, layout: Option<Arc<FileLayout>>) {
        if let Some(layout) = layout {
            self.data.note_gone(&layout);
        }
    }

    /// Removes a name of what the kernel knows as this directory. Answers whether it was the last one.
    async fn remove_name(
        &self,
        who: &Credentials,
        (asked, name): (NodeId, &Name),
        removes: Removes,
    ) -> Result<bool, Errno> {
        let unlink = |parent: Arc<Inode>| async move {
            let unlink = || self.meta.unlink(who, &parent, name, removes);
            self.retry_with_rights(who, &[&parent], unlink).await
        };
        let (_, is_gone) = self.in_directory(who, asked, unlink).await?;
        self.expire_names_of_successor(asked, &[name]).await;
        Ok(is_gone)
    }

    async fn link(
        &self,
        who: &Credentials,
        inode: &Pin,
        (asked, name): (NodeId, &Name),
    ) -> Result<Entry, Errno> {
        if inode.file_type() == Some(FileType::Directory) {
            return Err(Errno::EPERM);
        }
        let link = |parent: Arc<Inode>| async move {
            let link = || self.meta.link(who, inode, &parent, name);
            self.retry_with_rights(who, &[&parent], link).await
        };
        let (parent, ()) = self.in_directory(who, asked, link).await?;
        {
            // No lock covers the attributes now; until they are asked for again this is the best guess.
            let mut state = inode.state();
            if let Some(attributes) = state.guessed_attributes() {
                attributes.nlink += 1;
                attributes.ctime = self.meta.world.clock.wall();
            }
        }
        self.entry(who, NamedBy { asked, parent: &parent, name }, inode).await
    }

    /// The inode of a name, from what is known if locks cover that, else by one RPC.
    pub(super) async fn find(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: &Name,
    ) -> Result<Option<Pin>, Errno> {
        let known = self.known_name(parent, name)?;
        self.find_known(who, parent, name, known).await
    }

    /// As `find`, with what the cache knows of the name.
    pub(super) async fn find_known(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: &Name,
        known: KnownName,
    ) -> Result<Option<Pin>, Errno> {
        let (depth, _pinned) = match known {
            KnownName::Absent => {
                self.may_search(who, parent).await?;
                return Ok(None);
            }
            KnownName::Covered(child) => {
                self.may_search(who, parent).await?;
                return Ok(Some(child));
            }
            KnownName::Named(child) => {
                self.may_search(who, parent).await?;
                self.meta.getattr(who, &child).await?;
                return Ok(Some(child));
            }
            KnownName::Unknown(depth, pinned) => (depth, pinned),
        };
        self.refuse_search(who, parent)?;
        let look_up = || self.meta.lookup(who, parent, name, depth);
        let found = self.retry_with_rights(who, &[parent], look_up).await;
        if matches!(found, Err(Errno::EACCES)) {
            // So that the next ones are refused without an RPC, however many come: the kernel, which is to forget what
            // it keeps of the directory, waits for each.
            self.fetch_rights(who, parent).await?;
        }
        found
    }

    /// What the cache knows of a name. No RPC; whether the caller may search the directory is not looked at.
    pub(super) fn known_name(&self, parent: &Arc<Inode>, name: &Name) -> Result<KnownName, Errno> {
        let place = match self.meta.known_place(parent, name) {
            // Its hash is unknown: all stripes are asked.
            Err(Errno::EBADF) => None,
            place => place?,
        };
        if let Some(place) = place.filter(|_| is_listed(parent, name))
            && (self.meta.is_absent_at(&place, name) || self.meta.knows_absent(&place, name))
        {
            return Ok(KnownName::Absent);
        }
        let hint = parent.state().directory.children.get(name).copied();
        let Some(fid) = hint else {
            return Ok(KnownName::Unknown(LookupDepth::Attributes, None));
        };
        let child = self.inodes.pin(fid);
        let (names, whole, (directory, has_rights), changed) = {
            let state = child.state();
            let directory = state.file_type() == Some(FileType::Directory);
            let names = state.is_named(parent.node(), name);
            // Where our own changes leave the lock, only other clients' changes revoke it.
            let keeps = self.meta.keeps_own_names(&child);
            let changes =
                state.directory.changed_here && (!keeps || state.directory.is_contended());
            (names, state.attributes_covered(), (directory, state.rights_locked()), changes)
        };
        // The permission bits of a directory are covered with its name, unless that is with another MDT; its size and
        // times are not needed until they are asked for.
        Ok(match (names, whole || directory && has_rights) {
            (true, true) => KnownName::Covered(child),
            (true, false) => KnownName::Named(child),
            (false, _) if directory && changed => {
                KnownName::Unknown(LookupDepth::Name, Some(child))
            }
            (false, _) => KnownName::Unknown(LookupDepth::Attributes, Some(child)),
        })
    }
}
