//! Does steps on the cluster as Linux's VFS would: it walks paths itself, and refuses itself what
//! it does not hand to a file system.

use std::time::Duration;

use bytes::Bytes;
use sheen_client::posix::{
    Credentials, Fallocate, FileHandle, FileSystem, FileType, LockOwner, Lookup, NewNode, NodeId,
    OpenFlags, RenameMode, SetAttributes, XattrMode,
};
use sheen_io::World;
use sheen_types::{Errno, Name};

use crate::model::{DIRECTORY_MODE, FILE_MODE};
use crate::operation::{Operation, SLOTS};

/// The attribute that operations set.
pub(crate) const ATTRIBUTE: &[u8] = b"user.model";

/// One client with what its kernel would hold.
pub(crate) struct Driver {
    pub(crate) files: FileSystem,
    pub(crate) who: Credentials,
    world: World,
    lookups: Vec<NodeId>,
    pub(crate) open: [Option<(NodeId, FileHandle)>; SLOTS],
}

/// An inode that a path names.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) node: NodeId,
    pub(crate) file_type: FileType,
}

/// Where a name is, or would be.
struct NameInDirectory {
    parent: NodeId,
    name: Name,
    found: Option<Found>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names of operations are legal")
}

impl Driver {
    pub(crate) fn new(files: FileSystem, world: World) -> Self {
        let open = [None; SLOTS];
        Self { files, who: Credentials::root(), world, lookups: Vec::new(), open }
    }

    /// Does what the operation says.
    pub(crate) async fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::MakeDirectory(path) => {
                self.make(path, NewNode::Directory, DIRECTORY_MODE).await
            }
            Operation::Symlink(path, target) => {
                let target = NewNode::Symlink(target.as_bytes().into());
                self.make(path, target, 0o777).await
            }
            Operation::Pipe(path) => {
                let pipe = NewNode::Node { file_type: FileType::Fifo, rdev: 0 };
                self.make(path, pipe, FILE_MODE).await
            }
            Operation::Create(path, new) => self.create(path, *new).await,
            Operation::Link(old, new) => self.link(old, new).await,
            Operation::Unlink(path) => {
                let place = self.place(path).await?;
                place.found.ok_or(Errno::ENOENT)?;
                self.files.unlink(&self.who, place.parent, &place.name).await
            }
            Operation::RemoveDirectory(path) => {
                let place = self.place(path).await?;
                place.found.ok_or(Errno::ENOENT)?;
                self.files.rmdir(&self.who, place.parent, &place.name).await
            }
            Operation::Rename(old, new, keep) => self.rename(old, new, *keep).await,
            Operation::Mode(path, mode) => self.set_mode(path, *mode).await,
            Operation::Attribute(path, value) => self.set_attribute(path, *value).await,
            Operation::Forget => {
                self.lookups.drain(..).for_each(|node| self.files.forget(node, 1));
                Ok(())
            }
            Operation::Wait(milliseconds) => {
                let nap = Duration::from_millis(*milliseconds);
                self.world.clock.sleep_until(self.world.clock.now() + nap).await;
                Ok(())
            }
            contents => self.change(contents).await,
        }
    }

    /// Operations on a file's bytes.
    async fn change(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::Truncate(path, size) => {
                let node = self.regular(path).await?;
                self.truncate(node, None, *size).await
            }
            Operation::Open(path, slot) => {
                self.close(*slot).await?;
                let node = self.regular(path).await?;
                let opened = self.files.open(&self.who, node, OpenFlags(2)).await?;
                self.open[*slot] = Some((node, opened.handle));
                Ok(())
            }
            Operation::WriteOpen(slot, at, length, byte) => {
                let (_, handle) = self.open[*slot].ok_or(Errno::EBADF)?;
                self.write(handle, *at, *length, *byte).await
            }
            Operation::TruncateOpen(slot, size) => {
                let (node, handle) = self.open[*slot].ok_or(Errno::EBADF)?;
                self.truncate(node, Some(handle), *size).await
            }
            Operation::Close(slot) => {
                self.open[*slot].ok_or(Errno::EBADF)?;
                self.close(*slot).await
            }
            Operation::Write(path, at, length, byte) => {
                let handle = self.open_for_change(path).await?;
                let done = self.write(handle, *at, *length, *byte).await;
                self.release(handle).await.and(done)
            }
            Operation::Punch(path, at, length) => {
                self.allocate(path, Fallocate::PunchHole, *at, *length).await
            }
            Operation::Allocate(path, at, length) => {
                self.allocate(path, Fallocate::Allocate, *at, *length).await
            }
            names => unreachable!("{names:?} changes no bytes"),
        }
    }

    /// Finds a name and counts the lookup.
    pub(crate) async fn lookup(
        &mut self,
        parent: NodeId,
        name: &Name,
    ) -> Result<Option<sheen_client::posix::Entry>, Errno> {
        match self.files.lookup(&self.who, parent, name).await? {
            Lookup::Found(entry) => {
                self.lookups.push(entry.node);
                Ok(Some(entry))
            }
            Lookup::Absent { .. } => Ok(None),
        }
    }

    async fn place(&mut self, path: &[&'static str]) -> Result<NameInDirectory, Errno> {
        let (last, parents) = path.split_last().expect("a path has a name");
        let mut parent = NodeId::ROOT;
        for text in parents {
            let entry = self.lookup(parent, &name(text)).await?.ok_or(Errno::ENOENT)?;
            if entry.attributes.file_type() != FileType::Directory {
                return Err(Errno::ENOTDIR);
            }
            parent = entry.node;
        }
        let name = name(last);
        let entry = self.lookup(parent, &name).await?;
        let found = entry.map(|it| Found { node: it.node, file_type: it.attributes.file_type() });
        Ok(NameInDirectory { parent, name, found })
    }

    async fn found(&mut self, path: &[&'static str]) -> Result<Found, Errno> {
        self.place(path).await?.found.ok_or(Errno::ENOENT)
    }

    async fn regular(&mut self, path: &[&'static str]) -> Result<NodeId, Errno> {
        let found = self.found(path).await?;
        match found.file_type {
            FileType::Regular => Ok(found.node),
            FileType::Directory => Err(Errno::EISDIR),
            FileType::Symlink => Err(Errno::ELOOP),
            _ => Err(Errno::ENXIO),
        }
    }

    async fn make(&mut self, path: &[&'static str], new: NewNode, mode: u32) -> Result<(), Errno> {
        let place = self.place(path).await?;
        // Linux answers EEXIST before it asks; the file system must say the same.
        let entry = self.files.make_node(&self.who, place.parent, &place.name, mode, new).await?;
        self.lookups.push(entry.node);
        Ok(())
    }

    async fn create(&mut self, path: &[&'static str], new: bool) -> Result<(), Errno> {
        let place = self.place(path).await?;
        if place.found.is_some() && !new {
            let node = self.regular(path).await?;
            let opened = self.files.open(&self.who, node, OpenFlags(1)).await?;
            return self.release(opened.handle).await;
        }
        let exclusive = if new { OpenFlags::EXCLUSIVE } else { 0 };
        let flags = OpenFlags(OpenFlags::CREATE | exclusive | 1);
        let made =
            self.files.open_create(&self.who, place.parent, &place.name, FILE_MODE, flags).await;
        let (entry, opened) = made?;
        self.lookups.push(entry.node);
        self.release(opened.handle).await
    }

    async fn link(&mut self, old: &[&'static str], new: &[&'static str]) -> Result<(), Errno> {
        let node = self.found(old).await?.node;
        let place = self.place(new).await?;
        if place.found.is_some() {
            return Err(Errno::EEXIST);
        }
        let entry = self.files.link(&self.who, node, place.parent, &place.name).await?;
        self.lookups.push(entry.node);
        Ok(())
    }

    async fn rename(
        &mut self,
        old: &[&'static str],
        new: &[&'static str],
        keep: bool,
    ) -> Result<(), Errno> {
        let from = self.place(old).await?;
        let to = self.place(new).await?;
        from.found.ok_or(Errno::ENOENT)?;
        // Nothing is renamed over a directory that it lies in.
        if !keep && old.len() > new.len() && old.starts_with(new) {
            return Err(Errno::ENOTEMPTY);
        }
        let mode = if keep { RenameMode::NoReplace } else { RenameMode::Replace };
        let (from, to) = ((from.parent, &from.name), (to.parent, &to.name));
        self.files.rename(&self.who, from, to, mode).await
    }

    async fn set_mode(&mut self, path: &[&'static str], mode: u32) -> Result<(), Errno> {
        let found = self.found(path).await?;
        if found.file_type == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let changes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.files.setattr(&self.who, found.node, None, changes).await.map(drop)
    }

    async fn set_attribute(
        &mut self,
        path: &[&'static str],
        value: Option<u8>,
    ) -> Result<(), Errno> {
        let found = self.found(path).await?;
        if !matches!(found.file_type, FileType::Regular | FileType::Directory) {
            return Err(Errno::EPERM);
        }
        let (who, node) = (&self.who, found.node);
        match value {
            Some(byte) => {
                let value = Bytes::from(vec![byte]);
                self.files.setxattr(who, node, ATTRIBUTE, value, XattrMode::Any).await
            }
            None => self.files.removexattr(who, node, ATTRIBUTE).await,
        }
    }

    async fn open_for_change(&mut self, path: &[&'static str]) -> Result<FileHandle, Errno> {
        let node = self.regular(path).await?;
        Ok(self.files.open(&self.who, node, OpenFlags(2)).await?.handle)
    }

    async fn write(&self, handle: FileHandle, at: u64, length: u64, byte: u8) -> Result<(), Errno> {
        let data = Bytes::from(vec![byte; length as usize]);
        let written = self.files.write(handle, at, data).await?;
        assert_eq!(u64::from(written), length, "a whole write");
        Ok(())
    }

    async fn truncate(
        &self,
        node: NodeId,
        handle: Option<FileHandle>,
        size: u64,
    ) -> Result<(), Errno> {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.files.setattr(&self.who, node, handle, changes).await.map(drop)
    }

    async fn allocate(
        &mut self,
        path: &[&'static str],
        what: Fallocate,
        at: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let handle = self.open_for_change(path).await?;
        let done = self.files.fallocate(handle, what, at, length).await;
        self.release(handle).await.and(done)
    }

    async fn close(&mut self, slot: usize) -> Result<(), Errno> {
        match self.open[slot].take() {
            Some((_, handle)) => self.release(handle).await,
            None => Ok(()),
        }
    }

    /// `close(2)`: its FLUSH, then its RELEASE.
    pub(crate) async fn release(&self, handle: FileHandle) -> Result<(), Errno> {
        let flushed = self.files.flush(handle, LockOwner(1)).await;
        self.files.release(handle, None).await.and(flushed)
    }
}
