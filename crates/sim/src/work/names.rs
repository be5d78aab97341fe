//! Names: making, moving, removing, listing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use sheen_client::posix::{DirCookie, Entry, ListingRoom, NewNode, OpenFlags, Opened, RenameMode};
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::lmv::LmvHash;

use super::{NameInDirectory, Process, is_answer, text};
use crate::cluster::Found;
use crate::model::Seen;

/// Names that one listing step asks for.
const LIST_STEP: usize = 5;

impl Process {
    /// A change of names begins: its number.
    pub(super) fn begins(&self, text: String, names: &[&NameInDirectory]) -> u64 {
        let names = names.iter().map(|place| place.path.clone()).collect();
        self.sim.begin_change(self.client, text, names)
    }

    /// What an answer names, known from now on.
    fn found(&self, entry: &Entry) -> Found {
        let mut found = self.kernel.found(entry);
        found.fid = self.sim.identity(found.fid);
        found
    }

    /// Ends a change of one name: `Ok`, refused, or unknown.
    fn name_ended<T>(&self, place: &NameInDirectory, operation: u64, outcome: &Result<T, Errno>) {
        self.name_ended_at(place, operation, outcome, false);
    }

    /// Records the end of an operation on a name whose answer wants a size, which may be lost.
    fn name_ended_at<T>(
        &self,
        place: &NameInDirectory,
        operation: u64,
        outcome: &Result<T, Errno>,
        sizeless: bool,
    ) {
        let now = self.now();
        self.model(|model| match outcome {
            Ok(_) => model.names.end(place.key(), operation, now),
            Err(errno) if is_answer(*errno) => model.names.refused(place.key(), operation),
            Err(_) => {}
        });
        self.kernel.renamed(place.parent.node, &place.name);
        self.ended_at(operation, outcome, sizeless);
    }

    /// `O_CREAT | O_EXCL`.
    pub(super) async fn create(&self) {
        let Some(place) = self.file_place().await else { return };
        if let Some((found, handle)) = self.create_at(&place, OpenFlags::EXCLUSIVE).await {
            self.close(&found, handle).await;
        }
    }

    /// Makes a file, or opens the one that is there. With `EXCLUSIVE` it must be new.
    pub(super) async fn create_at(
        &self,
        place: &NameInDirectory,
        flags: u32,
    ) -> Option<(Found, Opened)> {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("create {}", place.path));
        self.model(|model| {
            model.names.begin_set(place.key(), None, operation, self.client, begin);
        });
        self.kernel.moves(place.parent.node, &place.name, begin);
        let flags = OpenFlags(2 | OpenFlags::CREATE | flags);
        let is_new = flags.has(OpenFlags::EXCLUSIVE);
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let made = files.open_create(who, place.parent.node, &place.name, 0o644, flags).await;
        let end = self.now();
        let fid = made.as_ref().map(|(entry, _)| self.sim.identity(entry.attributes.fid));
        let fid = fid.unwrap_or_default();
        let judged = self.model(|model| match &made {
            Ok(_) if is_new => {
                model.names.made(place.key(), fid, operation, end);
                Ok(())
            }
            Ok(_) => model.names.opened(place.key(), fid, operation, begin, end),
            Err(Errno::EEXIST) => {
                model.names.refused(place.key(), operation);
                model.names.saw(place.key(), begin, end, Seen::There)
            }
            Err(errno) => {
                if is_answer(*errno) || *errno == Errno::ENOSPC {
                    model.names.refused(place.key(), operation);
                }
                Ok(())
            }
        });
        self.sim.judge(self.client, operation, judged);
        self.kernel.moved(place.parent.node, &place.name);
        match &made {
            Err(Errno::EIO) if self.may_name_sizeless(place, begin) => {
                self.sim.end(operation, "its size is lost");
            }
            made => self.ended_with(operation, made, fid),
        }
        let (entry, opened) = made.ok()?;
        if !opened.keep_pages {
            self.kernel.punched(entry.node);
        }
        Some((self.found(&entry), opened))
    }

    /// Removes a name.
    pub(super) async fn unlink(&self) {
        if let Some(place) = self.file_place().await {
            self.unlink_at(&place).await;
        }
    }

    /// Removes this name.
    pub(super) async fn unlink_at(&self, place: &NameInDirectory) {
        let begin = self.now();
        let operation = self.begins(format!("unlink {}", place.path), &[place]);
        self.model(|model| {
            model.names.begin_remove(place.key(), operation, self.client, begin);
        });
        self.kernel.moves(place.parent.node, &place.name, begin);
        let done =
            self.kernel.files.unlink(self.kernel.who(), place.parent.node, &place.name).await;
        self.kernel.moved(place.parent.node, &place.name);
        if done == Err(Errno::ENOENT) {
            let end = self.now();
            let judged = self.model(|model| {
                model.names.refused(place.key(), operation);
                model.names.saw(place.key(), begin, end, Seen::Absent)
            });
            self.sim.judge(self.client, operation, judged);
        }
        self.name_ended(place, operation, &done);
    }

    /// Moves a name over another.
    pub(super) async fn rename(&self) {
        let directories = self.one_in(4);
        let pair = match directories {
            true => (self.directory_place().await, self.directory_place().await),
            false => (self.file_place().await, self.file_place().await),
        };
        let (Some(from), Some(to)) = pair else { return };
        if from.key() == to.key() {
            return;
        }
        let begin = self.now();
        let text = format!("rename {} to {}", from.path, to.path);
        let operation = self.begins(text, &[&from, &to]);
        // With one MDT a move is one transaction.
        let are_several = self.sim.options.mdts > 1;
        self.model(|model| match are_several {
            true => model.names.begin_move((from.key(), to.key()), operation, self.client, begin),
            false => {
                model.names.begin_remove(from.key(), operation, self.client, begin);
                model.names.begin_set(to.key(), None, operation, self.client, begin);
            }
        });
        for place in [&from, &to] {
            self.kernel.moves(place.parent.node, &place.name, begin);
        }
        let done = self
            .kernel
            .files
            .rename(
                self.kernel.who(),
                (from.parent.node, &from.name),
                (to.parent.node, &to.name),
                RenameMode::Replace,
            )
            .await;
        let now = self.now();
        // Two names of one file: POSIX leaves both. Only the servers know whether that was so.
        let links = !directories;
        self.model(|model| match &done {
            Ok(()) if links => {
                model.names.end_or_nothing(from.key(), operation, now);
                model.names.end_or_nothing(to.key(), operation, now);
            }
            Ok(()) => {
                model.names.end(from.key(), operation, now);
                model.names.end(to.key(), operation, now);
            }
            Err(errno) if is_answer(*errno) => {
                model.names.refused(from.key(), operation);
                model.names.refused(to.key(), operation);
            }
            Err(_) => {}
        });
        for place in [&from, &to] {
            self.kernel.moved(place.parent.node, &place.name);
        }
        self.ended(operation, &done);
    }

    /// Gives a file a second name.
    pub(super) async fn link(&self) {
        let Some(from) = self.file_place().await else { return };
        let Some(to) = self.file_place().await else { return };
        let Ok(Some(file)) = self.look_up(&from).await else { return };
        let begin = self.now();
        let operation = self.begins(format!("link {} to {}", from.path, to.path), &[&from, &to]);
        self.model(|model| {
            model.names.begin_set(to.key(), Some(file.fid), operation, self.client, begin);
        });
        self.kernel.moves(to.parent.node, &to.name, begin);
        let made =
            self.kernel.files.link(self.kernel.who(), file.node, to.parent.node, &to.name).await;
        self.kernel.moved(to.parent.node, &to.name);
        if let Ok(entry) = &made {
            drop(self.found(entry));
        }
        self.kernel.touched(file.node);
        let sizeless = self.sim.is_size_lost(file.fid, begin);
        self.name_ended_at(&to, operation, &made, sizeless);
    }

    /// `mkdir`.
    pub(super) async fn make_directory(&self) {
        let Some(place) = self.directory_place().await else { return };
        self.make_directory_at(&place).await;
        // Before MDTs split it by themselves.
        if self.sim.changes_fids()
            && let Ok(Some(found)) = self.look_up(&place).await
        {
            self.tag(&found).await;
        }
    }

    async fn make_directory_at(&self, place: &NameInDirectory) {
        let mdts = u64::from(self.sim.options.mdts);
        // By the default of its parent, if that has one.
        if mdts == 1 || self.one_in(4) {
            self.make_at(place, "mkdir", NewNode::Directory).await;
            return;
        }
        let mdt = MdtIndex(self.random().below(mdts) as u16);
        if self.one_in(2) {
            let wish = self.striping(mdt);
            let what = format!("mkdir striped {:?} from {}", wish.stripes, mdt.0);
            self.make_at(place, &what, NewNode::WishedDirectory(wish)).await;
            return;
        }
        let what = format!("mkdir -i {}", mdt.0);
        self.make_at(place, &what, NewNode::DirectoryOn(mdt)).await;
    }

    /// Stripes over MDTs, of which there may be fewer, or several on each.
    pub(super) fn striping(&self, first: MdtIndex) -> DirectoryWish {
        let count = |least: u32, most: u32| {
            NonZeroU32::MIN.saturating_add(least - 1 + self.random().below(most.into()) as u32)
        };
        let stripes = match self.one_in(3) {
            true => WishedStripes::OnEachMdt(count(1, 2)),
            false => WishedStripes::Count(count(2, 2)),
        };
        let hash = LmvHash(self.random().below(5) as u32);
        DirectoryWish { stripes, first: Some(first), hash, ..DirectoryWish::default() }
    }

    /// Makes something that is no file; its FID.
    pub(super) async fn make_at(
        &self,
        place: &NameInDirectory,
        what: &str,
        new: NewNode,
    ) -> Option<Fid> {
        let begin = self.now();
        let operation = self.begins(format!("{what} {}", place.path), &[place]);
        self.model(|model| {
            model.names.begin_set(place.key(), None, operation, self.client, begin);
        });
        self.kernel.moves(place.parent.node, &place.name, begin);
        let (files, who) = (&self.kernel.files, self.kernel.who());
        let made = files.make_node(who, place.parent.node, &place.name, 0o755, new).await;
        self.kernel.moved(place.parent.node, &place.name);
        let end = self.now();
        let fid = made.as_ref().map(|entry| self.sim.identity(entry.attributes.fid));
        let judged = self.model(|model| match &made {
            Ok(_) => {
                model.names.made(place.key(), fid.unwrap_or_default(), operation, end);
                Ok(())
            }
            Err(Errno::EEXIST) => {
                model.names.refused(place.key(), operation);
                model.names.saw(place.key(), begin, end, Seen::There)
            }
            Err(_) => Ok(()),
        });
        self.sim.judge(self.client, operation, judged);
        if let Ok(entry) = &made {
            drop(self.found(entry));
        }
        self.name_ended(place, operation, &made);
        fid.ok()
    }

    /// `rmdir`.
    pub(super) async fn remove_directory(&self) {
        let Some(place) = self.directory_place().await else { return };
        let begin = self.now();
        let operation = self.begins(format!("rmdir {}", place.path), &[&place]);
        self.model(|model| {
            model.names.begin_remove(place.key(), operation, self.client, begin);
        });
        self.kernel.moves(place.parent.node, &place.name, begin);
        let done = self.kernel.files.rmdir(self.kernel.who(), place.parent.node, &place.name).await;
        self.kernel.moved(place.parent.node, &place.name);
        self.name_ended(&place, operation, &done);
    }

    /// Reads a directory from its beginning to its end.
    pub(super) async fn list(&self) {
        if let Some((directory, path)) = self.directory().await {
            self.list_directory(&directory, &path).await;
        }
    }

    /// Lists `directory`; the names with what they name.
    pub(super) async fn list_directory(
        &self,
        directory: &Found,
        path: &str,
    ) -> Option<BTreeMap<String, Fid>> {
        let begin = self.now();
        let operation = self.sim.begin(self.client, format!("list /{path}"));
        let listed = self.names_of(directory).await;
        if let Ok(names) = &listed
            && self.is_trusted()
        {
            let end = self.now();
            self.model(|model| {
                for (name, fid) in names {
                    let key = (directory.fid, name.as_str());
                    let judged = model.names.saw(key, begin, end, Seen::Is(*fid));
                    self.sim.judge(self.client, operation, judged);
                }
                for name in model.names.of(directory.fid) {
                    if !names.contains_key(&name) {
                        let key = (directory.fid, name.as_str());
                        let judged = model.names.saw(key, begin, end, Seen::Absent);
                        self.sim.judge(self.client, operation, judged);
                    }
                }
            });
        }
        self.ended(operation, &listed);
        listed.ok()
    }

    async fn names_of(&self, directory: &Found) -> Result<BTreeMap<String, Fid>, Errno> {
        let opened = self.kernel.open(directory.node, OpenFlags::DIRECTORY).await?;
        let mut names = BTreeMap::new();
        let mut at = DirCookie::default();
        let with_attributes = self.one_in(2);
        let outcome = loop {
            let (handle, room) = (opened.handle, ListingRoom::for_names(LIST_STEP));
            let some = match with_attributes {
                true => {
                    let kernel = &self.kernel;
                    kernel.list_with_attributes(directory.node, handle, at, room).await
                }
                false => self.kernel.files.readdir(handle, at, LIST_STEP).await,
            };
            match some {
                Ok(some) if some.is_empty() => break Ok(()),
                Ok(some) => {
                    for entry in some {
                        at = entry.next;
                        let Ok(name) = sheen_types::Name::new(&entry.name) else { continue };
                        let name = text(&name).to_owned();
                        if names.insert(name.clone(), self.sim.identity(entry.fid)).is_some() {
                            self.sim.fail(format_args!("{}: {name} is there twice", directory.fid));
                        }
                    }
                }
                Err(errno) => break Err(errno),
            }
        };
        let closed = self.kernel.files.release(opened.handle, None).await;
        outcome.and(closed).map(|()| names)
    }
}
