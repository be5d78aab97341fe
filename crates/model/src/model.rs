//! The file system in memory. Inodes are numbered and never reused.

use std::collections::BTreeMap;

use sheen_types::Errno;

use crate::operation::{Operation, SLOTS, Step};

/// What an inode is, with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names and whose they are.
    Directory(BTreeMap<&'static str, usize>),
    /// Bytes.
    Regular(Vec<u8>),
    /// A target.
    Symlink(&'static str),
    /// A named pipe.
    Pipe,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Names, or for a directory its own, its own `.` and each `..` below.
    pub(crate) links: u32,
    /// The value of `user.model`.
    pub(crate) attribute: Option<u8>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    inodes: Vec<Inode>,
    open: [[Option<usize>; SLOTS]; 2],
}

/// The root's number.
pub(crate) const ROOT: usize = 0;
/// Modes that everything is made with.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// The same for what is no directory.
pub(crate) const FILE_MODE: u32 = 0o644;

/// Where a name is, or would be.
struct NameInDirectory {
    parent: usize,
    name: &'static str,
    found: Option<usize>,
}

impl Default for Model {
    fn default() -> Self {
        let root = Inode {
            kind: Kind::Directory(BTreeMap::new()),
            mode: 0o755,
            links: 2,
            attribute: None,
        };
        Self { inodes: vec![root], open: Default::default() }
    }
}

impl Model {
    /// An inode.
    pub(crate) fn inode(&self, number: usize) -> &Inode {
        &self.inodes[number]
    }

    /// What is open in a client's slot.
    pub(crate) fn opened(&self, client: usize, slot: usize) -> Option<usize> {
        self.open[client][slot]
    }

    /// Does what the step says, or answers why not.
    pub(crate) fn apply(&mut self, step: &Step) -> Result<(), Errno> {
        let client = step.client;
        match &step.operation {
            Operation::MakeDirectory(path) => {
                let parent = self.make(path, Kind::Directory(BTreeMap::new()))?;
                self.inodes[parent].links += 1;
                Ok(())
            }
            Operation::Create(path, new) => self.create(path, *new),
            Operation::Symlink(path, target) => self.make(path, Kind::Symlink(target)).map(drop),
            Operation::Pipe(path) => self.make(path, Kind::Pipe).map(drop),
            Operation::Link(old, new) => self.link(old, new),
            Operation::Unlink(path) => self.unlink(path),
            Operation::RemoveDirectory(path) => self.remove_directory(path),
            Operation::Rename(old, new, keep) => self.rename(old, new, *keep),
            Operation::Write(path, at, length, byte) => {
                let number = self.regular(path)?;
                self.write(number, *at, *length, *byte);
                Ok(())
            }
            Operation::Truncate(path, size) => {
                let number = self.regular(path)?;
                self.truncate(number, *size);
                Ok(())
            }
            Operation::Punch(path, at, length) => {
                let number = self.regular(path)?;
                let bytes = self.bytes(number);
                let end = bytes.len().min((at + length) as usize);
                if let Some(hole) = bytes.get_mut(*at as usize..end) {
                    hole.fill(0);
                }
                Ok(())
            }
            Operation::Allocate(path, at, length) => {
                let number = self.regular(path)?;
                let bytes = self.bytes(number);
                bytes.resize(bytes.len().max((at + length) as usize), 0);
                Ok(())
            }
            Operation::Mode(path, mode) => {
                let number = self.found(path)?;
                if matches!(self.inodes[number].kind, Kind::Symlink(_)) {
                    return Err(Errno::EOPNOTSUPP);
                }
                self.inodes[number].mode = *mode;
                Ok(())
            }
            Operation::Attribute(path, value) => self.set_attribute(path, *value),
            Operation::Open(path, slot) => {
                self.open[client][*slot] = None;
                self.open[client][*slot] = Some(self.regular(path)?);
                Ok(())
            }
            Operation::WriteOpen(slot, at, length, byte) => {
                let number = self.open[client][*slot].ok_or(Errno::EBADF)?;
                self.write(number, *at, *length, *byte);
                Ok(())
            }
            Operation::TruncateOpen(slot, size) => {
                let number = self.open[client][*slot].ok_or(Errno::EBADF)?;
                self.truncate(number, *size);
                Ok(())
            }
            Operation::Close(slot) => self.open[client][*slot].take().map(drop).ok_or(Errno::EBADF),
            Operation::Forget | Operation::Wait(_) => Ok(()),
        }
    }

    fn names(&self, number: usize) -> Result<&BTreeMap<&'static str, usize>, Errno> {
        match &self.inodes[number].kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn names_mut(&mut self, number: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.inodes[number].kind {
            Kind::Directory(names) => names,
            other => unreachable!("{other:?} was walked through"),
        }
    }

    fn bytes(&mut self, number: usize) -> &mut Vec<u8> {
        match &mut self.inodes[number].kind {
            Kind::Regular(bytes) => bytes,
            other => unreachable!("{other:?} was opened"),
        }
    }

    fn place(&self, path: &[&'static str]) -> Result<NameInDirectory, Errno> {
        let (name, parents) = path.split_last().expect("a path has a name");
        let mut parent = ROOT;
        for name in parents {
            parent = *self.names(parent)?.get(name).ok_or(Errno::ENOENT)?;
        }
        let found = self.names(parent)?.get(name).copied();
        Ok(NameInDirectory { parent, name, found })
    }

    fn found(&self, path: &[&'static str]) -> Result<usize, Errno> {
        self.place(path)?.found.ok_or(Errno::ENOENT)
    }

    /// What can be opened for writing. The driver follows no links and opens no pipes.
    fn regular(&self, path: &[&'static str]) -> Result<usize, Errno> {
        let number = self.found(path)?;
        match &self.inodes[number].kind {
            Kind::Regular(_) => Ok(number),
            Kind::Directory(_) => Err(Errno::EISDIR),
            Kind::Symlink(_) => Err(Errno::ELOOP),
            Kind::Pipe => Err(Errno::ENXIO),
        }
    }

    /// Makes an inode; answers its parent.
    fn make(&mut self, path: &[&'static str], kind: Kind) -> Result<usize, Errno> {
        let place = self.place(path)?;
        if place.found.is_some() {
            return Err(Errno::EEXIST);
        }
        let (mode, links) = match kind {
            Kind::Directory(_) => (DIRECTORY_MODE, 2),
            Kind::Symlink(_) => (0o777, 1),
            _ => (FILE_MODE, 1),
        };
        let number = self.inodes.len();
        self.inodes.push(Inode { kind, mode, links, attribute: None });
        self.names_mut(place.parent).insert(place.name, number);
        Ok(place.parent)
    }

    fn create(&mut self, path: &[&'static str], new: bool) -> Result<(), Errno> {
        match self.place(path)?.found {
            Some(_) if new => Err(Errno::EEXIST),
            Some(_) => self.regular(path).map(drop),
            None => self.make(path, Kind::Regular(Vec::new())).map(drop),
        }
    }

    fn link(&mut self, old: &[&'static str], new: &[&'static str]) -> Result<(), Errno> {
        let number = self.found(old)?;
        let place = self.place(new)?;
        if place.found.is_some() {
            return Err(Errno::EEXIST);
        }
        if matches!(self.inodes[number].kind, Kind::Directory(_)) {
            return Err(Errno::EPERM);
        }
        self.inodes[number].links += 1;
        self.names_mut(place.parent).insert(place.name, number);
        Ok(())
    }

    fn unlink(&mut self, path: &[&'static str]) -> Result<(), Errno> {
        let place = self.place(path)?;
        let number = place.found.ok_or(Errno::ENOENT)?;
        if matches!(self.inodes[number].kind, Kind::Directory(_)) {
            return Err(Errno::EISDIR);
        }
        self.drop_name(place.parent, place.name, number);
        Ok(())
    }

    fn remove_directory(&mut self, path: &[&'static str]) -> Result<(), Errno> {
        let place = self.place(path)?;
        let number = place.found.ok_or(Errno::ENOENT)?;
        if !self.names(number)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.drop_name(place.parent, place.name, number);
        Ok(())
    }

    /// A name goes, with the links that it is.
    fn drop_name(&mut self, parent: usize, name: &str, number: usize) {
        self.names_mut(parent).remove(name);
        match self.inodes[number].kind {
            Kind::Directory(_) => {
                self.inodes[parent].links -= 1;
                self.inodes[number].links = 0;
            }
            _ => self.inodes[number].links -= 1,
        }
    }

    fn is_within(&self, number: usize, top: usize) -> bool {
        let below =
            |names: &BTreeMap<_, usize>| names.values().any(|child| self.is_within(number, *child));
        number == top || self.names(top).is_ok_and(below)
    }

    fn rename(
        &mut self,
        old: &[&'static str],
        new: &[&'static str],
        keep: bool,
    ) -> Result<(), Errno> {
        let from = self.place(old)?;
        let to = self.place(new)?;
        let moved = from.found.ok_or(Errno::ENOENT)?;
        if keep && to.found.is_some() {
            return Err(Errno::EEXIST);
        }
        if self.is_within(to.parent, moved) {
            return Err(Errno::EINVAL);
        }
        let is_directory = self.names(moved).is_ok();
        if let Some(there) = to.found {
            if self.is_within(from.parent, there) {
                return Err(Errno::ENOTEMPTY);
            }
            if there == moved {
                return Ok(());
            }
            match (is_directory, self.names(there)) {
                (true, Err(_)) => return Err(Errno::ENOTDIR),
                (false, Ok(_)) => return Err(Errno::EISDIR),
                (true, Ok(names)) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
                _ => self.drop_name(to.parent, to.name, there),
            }
        }
        self.names_mut(from.parent).remove(from.name);
        self.names_mut(to.parent).insert(to.name, moved);
        if is_directory {
            self.inodes[from.parent].links -= 1;
            self.inodes[to.parent].links += 1;
        }
        Ok(())
    }

    fn write(&mut self, number: usize, at: u64, length: u64, byte: u8) {
        let bytes = self.bytes(number);
        let end = (at + length) as usize;
        bytes.resize(bytes.len().max(end), 0);
        bytes[at as usize..end].fill(byte);
    }

    fn truncate(&mut self, number: usize, size: u64) {
        self.bytes(number).resize(size as usize, 0);
    }

    fn set_attribute(&mut self, path: &[&'static str], value: Option<u8>) -> Result<(), Errno> {
        let number = self.found(path)?;
        let inode = &mut self.inodes[number];
        if !matches!(inode.kind, Kind::Regular(_) | Kind::Directory(_)) {
            return Err(Errno::EPERM);
        }
        if value.is_none() && inode.attribute.is_none() {
            return Err(Errno::ENODATA);
        }
        inode.attribute = value;
        Ok(())
    }
}
