//! Listing directories.

use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_types::futures;
use sheen_types::{Errno, Name};

use super::ahead::{IfFailed, SIZES_PATIENCE};
use super::handles::FileDescription;
use super::inodes::NamedBy;
use super::names::KnownName;
use super::{
    Credentials, DirCookie, DirEntry, DirEntryPlus, FileHandle, FileSystem, FileType, ListingRoom,
    May, Mounted, NodeId, OpenFlags,
};
use crate::boxed;
use crate::cache::{Inode, Pin, Position, inode_number};
use crate::meta::BatchedName;

/// Names that a listing begins with for a process that is not known to look at what it lists: the kernel asks for
/// their attributes, of which no program may have use.
const NAMES_AT_FIRST: usize = 16;

impl FileSystem {
    /// Names of an open directory from `from` on, at least one and at most `limit`; none at the end.
    /// One RPC for some thousand names, none while a lock covers them.
    ///
    /// # Errors
    /// As `getdents(2)`.
    #[boxed]
    pub async fn readdir(
        &self,
        handle: FileHandle,
        from: DirCookie,
        limit: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let file = self.0.handles.get(handle)?;
        if file.pin.file_type() != Some(FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        self.0.names(&file, from, limit).await
    }

    /// As [`FileSystem::readdir`], and looks each name but `.` and `..` up that there is room for. A name that was
    /// removed in the meantime is left out; of one that may not be looked up nothing may be kept. Names that
    /// the caller has no room for in the end must be forgotten like any lookup. One RPC for each 64 names that no
    /// lock covers (`statahead_batch_max`), all at once, or for each name where the MDT takes no batches; and one to the
    /// OST of each object whose size no lock covers. Ends early in front of a name whose OST does not answer. A process that
    /// is not known to look at what it lists gets few names at first, without a look at those.
    ///
    /// # Errors
    /// As `getdents(2)`.
    #[boxed]
    pub async fn readdir_plus(
        &self,
        who: &Credentials,
        handle: FileHandle,
        from: DirCookie,
        room: ListingRoom,
    ) -> Result<Vec<DirEntryPlus>, Errno> {
        let file = self.0.handles.get(handle)?;
        let directory = &*self.0.meta.current(self.0.inodes.pin(file.pin.fid));
        // The kernel asks for attributes of further names only if a program has looked at some of the first.
        let looks = from.0 != 0 || self.0.ahead.trusts(who.pid);
        if from.0 != 0 {
            self.0.ahead.trust(who.pid);
        }
        let mut from = from;
        loop {
            let mut names = self.readdir(handle, from, room.names_max()).await?;
            room.cut(&mut names);
            let Some(last) = names.last() else { return Ok(Vec::new()) };
            if !looks && self.0.asks_at_first(directory, &names) {
                names.truncate(NAMES_AT_FIRST);
                self.0.ahead.listed(who.pid, handle, directory.node());
                return Ok(names.into_iter().map(DirEntryPlus::name_only).collect());
            }
            from = last.next;
            let whole = self.0.with_entries(who, (file.pin.node(), directory), names).await;
            if self.0.settings.ahead.max.get() > 0 && looks {
                let position = file.stream.lock().position(from)?;
                self.note_listed(who, directory, handle, position);
            }
            // No name at all would mean the end.
            if !whole.is_empty() {
                return Ok(whole);
            }
        }
    }
}

impl DirEntryPlus {
    /// A name of which the kernel is not to keep anything.
    fn name_only(entry: DirEntry) -> Self {
        Self { entry, found: None }
    }
}

impl Mounted {
    /// Whether a directory may be listed without asking its MDT: locks cover what decides, and it
    /// decides so. A refusal is left to the MDT.
    pub(super) fn may_list(&self, inode: &Inode, who: &Credentials, flags: OpenFlags) -> bool {
        let state = inode.state();
        state.file_type() == Some(FileType::Directory)
            && !flags.writes()
            && state.rights_covered()
            && state.permits(&self.judged(who), May::READ) == Some(true)
    }

    /// Whether it is a directory that is no more and may be opened to list nothing, as its last user may.
    pub(super) fn lists_nothing(&self, inode: &Inode, who: &Credentials, flags: OpenFlags) -> bool {
        let state = inode.state();
        let may = state.permits(&self.judged(who), May::READ) == Some(true);
        may && !flags.writes() && state.is_removed_directory()
    }

    async fn names(
        &self,
        file: &FileDescription,
        from: DirCookie,
        limit: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let mut position = file.stream.lock().position(from)?;
        let mut names = Vec::new();
        while names.len() < limit {
            let last = file.stream.lock().last.clone();
            let directory = self.meta.current(self.inodes.pin(file.pin.fid));
            let chunk = self.meta.dir_chunk(&file.who, &directory, position, last.as_ref()).await?;
            let Some(chunk) = chunk else { break };
            let mut stream = file.stream.lock();
            let before = names.len();
            for (entry, next) in chunk.from(position).take(limit - before) {
                position = next;
                names.push(DirEntry {
                    name: entry.name[..].into(),
                    ino: inode_number(entry.fid),
                    fid: entry.fid,
                    file_type: entry.kind.and_then(|kind| FileType::from_mode(kind.into())),
                    next: stream.cookie(next),
                });
            }
            if names.len() == before {
                position = chunk.next_chunk();
            }
            stream.last = (position != Position::END).then_some(chunk);
            // Without a word to the server there is more only if the caller comes again.
            if !names.is_empty() {
                break;
            }
        }
        Ok(names)
    }

    /// Listed names with what they stand for, but for those that are gone; if nothing is to be asked ahead, what is
    /// known without. The kernel knows the directory as `node`.
    async fn with_entries(
        &self,
        who: &Credentials,
        (node, directory): (NodeId, &Arc<Inode>),
        names: Vec<DirEntry>,
    ) -> Vec<DirEntryPlus> {
        let mut whole = Vec::with_capacity(names.len());
        if self.settings.ahead.max.get() == 0 {
            whole.extend(names.into_iter().map(|entry| self.unseen(directory, entry)));
            return whole;
        }
        let listed = self.look_up_listed(who, directory, &names).await;
        let clock = &self.meta.world.clock;
        let until = clock.now() + SIZES_PATIENCE;
        self.ask_sizes(who, listed.iter().filter_map(Listed::pin), until).await;
        let finish = names.into_iter().zip(listed).map(|(entry, listed)| -> BoxFuture<'_, _> {
            Box::pin(self.finish_listed(who, (node, directory), entry, listed))
        });
        let mut several = futures::FutureSet::new(finish.collect());
        futures::race(several.finish(), clock.sleep_until(until)).await;
        let may_end = several.outputs().iter().map_while(Option::as_ref).any(Option::is_some);
        if !may_end {
            several.finish().await;
        }
        self.add_listed(&mut whole, several.into_outputs());
        whole
    }

    /// Whether a listing that begins with these names would ask the MDT for some of them.
    fn asks_at_first(&self, directory: &Arc<Inode>, names: &[DirEntry]) -> bool {
        let is_unknown = |entry: &DirEntry| {
            let Ok(name) = Name::new(&entry.name) else { return false };
            matches!(
                self.known_name(directory, &name),
                Ok(KnownName::Unknown(..) | KnownName::Named(_))
            )
        };
        self.settings.ahead.max.get() > 0 && names.iter().any(is_unknown)
    }

    /// Adds what was looked up to a listing, up to the first that is not known yet.
    fn add_listed(
        &self,
        whole: &mut Vec<DirEntryPlus>,
        looked_up: Vec<Option<Option<DirEntryPlus>>>,
    ) {
        let mut is_whole = true;
        for done in looked_up {
            match done {
                None => is_whole = false,
                Some(listed) if is_whole => whole.extend(listed),
                // It has been counted as looked up, and is not in the reply.
                Some(listed) => {
                    if let Some(found) = listed.and_then(|listed| listed.found) {
                        self.inodes.forget(found.node, 1);
                    }
                }
            }
        }
    }

    /// A listed name without a look at what it stands for.
    fn unseen(&self, parent: &Arc<Inode>, entry: DirEntry) -> DirEntryPlus {
        // Only `.` and `..` are no names to be looked up.
        let name = Name::new(&entry.name).ok();
        let found = name.and_then(|name| self.entry_unseen(parent, &name, &entry));
        DirEntryPlus { entry, found }
    }

    /// What listed names stand for.
    async fn look_up_listed(
        &self,
        who: &Credentials,
        directory: &Arc<Inode>,
        names: &[DirEntry],
    ) -> Vec<Listed> {
        let mut asked_ahead = Vec::new();
        let mut asked = Vec::with_capacity(names.len());
        for entry in names {
            // Only `.` and `..` are no names to be looked up.
            let Ok(name) = Name::new(&entry.name) else { continue };
            asked_ahead.extend(self.take_ahead(directory, &name).await);
            asked.push(BatchedName { name, fid: Some(entry.fid) });
        }
        let found = self.find_all(who, directory, asked, IfFailed::AskAlone).await;
        let mut found = found.into_iter();
        drop(asked_ahead);
        let listed = |entry: &DirEntry| match Name::new(&entry.name).ok().and_then(|_| found.next())
        {
            None => Listed::Dots,
            Some(Ok(Some(child))) => Listed::Found(child),
            Some(Ok(None)) => Listed::Gone,
            Some(Err(_)) => Listed::Unseen,
        };
        names.iter().map(listed).collect()
    }

    /// A listed name with what it stands for; nothing if it is gone.
    async fn finish_listed(
        &self,
        who: &Credentials,
        (node, parent): (NodeId, &Arc<Inode>),
        entry: DirEntry,
        listed: Listed,
    ) -> Option<DirEntryPlus> {
        let child = match listed {
            Listed::Gone => return None,
            // The kernel does not look them up.
            Listed::Dots => return Some(DirEntryPlus { entry, found: None }),
            Listed::Unseen => return Some(self.unseen(parent, entry)),
            Listed::Found(child) => child,
        };
        let Ok(name) = Name::new(&entry.name) else {
            return Some(DirEntryPlus { entry, found: None });
        };
        let at = NamedBy { asked: node, parent, name: &name };
        let found = self.entry(who, at, &child).await;
        let found = found.ok().or_else(|| self.entry_unseen(parent, &name, &entry));
        Some(DirEntryPlus { entry, found })
    }
}

/// What a listed name stands for.
enum Listed {
    /// `.` or `..`.
    Dots,
    /// It was removed.
    Gone,
    /// It could not be looked up.
    Unseen,
    Found(Pin),
}

impl Listed {
    fn pin(&self) -> Option<&Pin> {
        match self {
            Self::Found(pin) => Some(pin),
            Self::Dots | Self::Gone | Self::Unseen => None,
        }
    }
}
