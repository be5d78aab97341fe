//! A file system in memory that records every change and every sync, mounted with FUSE, and what a
//! disk might hold after power loss at any point of the record.
//!
//! The rules of loss are those of POSIX at its strictest: a file's bytes and size survive up to its
//! last `fsync`, a directory's names up to the last `fsync` of the directory. What came later may
//! survive in any part: [`Loss`] chooses.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use sheen_fuse_wire::{
    AttributeCalls, DirectoryCalls, FileAttr, FileCalls, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, LockCalls, LockOwner, NameCalls, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, SetAttributes, StatFs, WriteFlags, XattrCalls,
};
use sheen_store::suite::script::Numbers;
use sheen_types::{Errno, HashMap, PAGE_BYTES as PAGE};

const TTL: Duration = Duration::ZERO;

/// Bytes of a file in pages.
#[derive(Clone, Default)]
struct Sparse {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Sparse {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let start = (at % PAGE) as usize;
            let (now, later) = rest.split_at(rest.len().min(PAGE as usize - start));
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[start..start + now.len()].copy_from_slice(now);
            (at, rest) = (at + now.len() as u64, later);
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn resize(&mut self, size: u64) {
        drop(self.pages.split_off(&size.div_ceil(PAGE)));
        if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
            page[(size % PAGE) as usize..].fill(0);
        }
        self.size = size;
    }

    fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(offset + length);
        let byte = |at: u64| self.pages.get(&(at / PAGE)).map_or(0, |p| p[(at % PAGE) as usize]);
        (offset..end).map(byte).collect()
    }
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event<M> {
    Write {
        file: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Size {
        file: u64,
        size: u64,
    },
    Make {
        parent: u64,
        name: String,
        node: u64,
        directory: bool,
    },
    Remove {
        parent: u64,
        name: String,
    },
    Rename {
        from: (u64, String),
        to: (u64, String),
    },
    Sync {
        node: u64,
    },
    /// Something that the test wants to know the order of.
    Mark(M),
}

#[derive(Default)]
struct Node {
    children: Option<BTreeMap<String, u64>>,
    data: Sparse,
}

struct State<M> {
    nodes: HashMap<u64, Node>,
    next: u64,
    log: Vec<Event<M>>,
    broken: bool,
}

/// The file system, and its record.
pub(crate) struct Recorder<M>(Arc<Mutex<State<M>>>);

impl<M> Clone for Recorder<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Clone> Recorder<M> {
    pub(crate) fn new() -> Self {
        let root = Node { children: Some(BTreeMap::new()), ..Node::default() };
        let nodes = [(1, root)].into_iter().collect();
        Self(Arc::new(Mutex::new(State { nodes, next: 2, log: Vec::new(), broken: false })))
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.0.lock().expect("no holder panics")
    }

    pub(crate) fn mark(&self, mark: M) {
        self.state().log.push(Event::Mark(mark));
    }

    /// From now on, or no more, syncs of files fail.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.state().broken = broken;
    }

    pub(crate) fn record(&self) -> Vec<Event<M>> {
        self.state().log.clone()
    }
}

impl<M> State<M> {
    fn attr(&self, node: u64) -> Option<FileAttr> {
        let held = self.nodes.get(&node)?;
        let directory = held.children.is_some();
        let mode = if directory { 0o040_777 } else { 0o100_777 };
        Some(FileAttr {
            ino: node,
            size: held.data.size,
            blocks: held.data.pages.len() as u64 * PAGE / 512,
            mode,
            nlink: 1,
            blksize: PAGE as u32,
            ..FileAttr::default()
        })
    }

    fn child(&self, parent: u64, name: &str) -> Option<u64> {
        self.nodes.get(&parent)?.children.as_ref()?.get(name).copied()
    }

    fn children(&mut self, parent: INodeNo) -> &mut BTreeMap<String, u64> {
        let node = self.nodes.get_mut(&parent.0).expect("the kernel knows the directory");
        node.children.as_mut().expect("the kernel knows it is a directory")
    }

    fn make(&mut self, parent: INodeNo, name: &OsStr, directory: bool) -> FileAttr {
        let (node, name) = (self.next, name.to_string_lossy().into_owned());
        self.next += 1;
        let children = directory.then(BTreeMap::new);
        self.nodes.insert(node, Node { children, ..Node::default() });
        self.children(parent).insert(name.clone(), node);
        self.log.push(Event::Make { parent: parent.0, name, node, directory });
        self.attr(node).expect("made above")
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) {
        let name = name.to_string_lossy().into_owned();
        self.children(parent).remove(&name);
        self.log.push(Event::Remove { parent: parent.0, name });
    }
}

impl<M: Clone + Send + 'static> Filesystem for Recorder<M> {}

impl<M: Clone + Send + 'static> NameCalls for Recorder<M> {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        let found = state.child(parent.0, &name.to_string_lossy());
        match found.and_then(|node| state.attr(node)) {
            Some(attr) => reply.entry((TTL, TTL), INodeNo(attr.ino), &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let attr = self.state().make(parent, name, true);
        reply.entry((TTL, TTL), INodeNo(attr.ino), &attr, Generation(0));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.state().remove(parent, name);
        reply.ok();
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.state().remove(parent, name);
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let from = (parent.0, name.to_string_lossy().into_owned());
        let to = (newparent.0, newname.to_string_lossy().into_owned());
        let Some(node) = state.children(parent).remove(&from.1) else {
            return reply.error(Errno::ENOENT);
        };
        state.children(newparent).insert(to.1.clone(), node);
        state.log.push(Event::Rename { from, to });
        reply.ok();
    }
}

impl<M: Clone + Send + 'static> AttributeCalls for Recorder<M> {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attr(ino.0) {
            Some(attr) => reply.attr(TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(&self, _: &Request, ino: INodeNo, changes: SetAttributes, reply: ReplyAttr) {
        let size = changes.size;
        let mut state = self.state();
        if let (Some(size), Some(node)) = (size, state.nodes.get_mut(&ino.0)) {
            node.data.resize(size);
            state.log.push(Event::Size { file: ino.0, size });
        }
        match state.attr(ino.0) {
            Some(attr) => reply.attr(TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (all, page) = (1 << 24, PAGE as u32);
        let (blocks, bfree, bavail, files, ffree) = (all, all, all, all, all);
        let (bsize, namelen, frsize) = (page, 255, page);
        reply.statfs(&StatFs { blocks, bfree, bavail, files, ffree, bsize, namelen, frsize });
    }
}

impl<M: Clone + Send + 'static> XattrCalls for Recorder<M> {}

impl<M: Clone + Send + 'static> FileCalls for Recorder<M> {
    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: OpenFlags,
        reply: ReplyCreate,
    ) {
        let attr = self.state().make(parent, name, false);
        let node = (INodeNo(attr.ino), Generation(0));
        reply.created(TTL, node, &attr, FileHandle(0), FopenFlags::empty());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: Option<LockOwner>,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state().nodes.get(&ino.0) {
            Some(node) => reply.data(&node.data.read(offset, size.into())),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let Some(node) = state.nodes.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        node.data.write(offset, data);
        state.log.push(Event::Write { file: ino.0, offset, bytes: data.to_vec() });
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        if state.broken {
            return reply.error(Errno::EIO);
        }
        state.log.push(Event::Sync { node: ino.0 });
        reply.ok();
    }
}

impl<M: Clone + Send + 'static> DirectoryCalls for Recorder<M> {
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().log.push(Event::Sync { node: ino.0 });
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut state = self.state();
        let children = state.children(ino).clone();
        for (at, (name, node)) in children.iter().enumerate().skip(offset as usize) {
            let mode = state.attr(*node).map_or(0o100_000, |attr| attr.mode);
            if reply.add(*node, at as u64 + 1, mode, name.as_bytes()) {
                break;
            }
        }
        reply.ok();
    }
}

impl<M: Clone + Send + 'static> LockCalls for Recorder<M> {}

/// What survives of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing.
    All,
    /// Each write at random, some torn; names up to a random moment.
    Some(u64),
    /// Everything.
    None,
}

/// Writes to `target` what a disk holds after power loss behind `events`.
pub(crate) fn survivors<M>(events: &[Event<M>], loss: Loss, target: &Path) {
    let mut synced: HashMap<u64, usize> = HashMap::default();
    for (at, event) in events.iter().enumerate() {
        if let Event::Sync { node } = event {
            synced.insert(*node, at);
        }
    }
    let mut numbers = Numbers(if let Loss::Some(seed) = loss { seed } else { 0 });
    let mut chance = move |of: u64| numbers.next().expect("endless") % of;
    let names_until = match loss {
        Loss::All => 0,
        Loss::Some(_) => chance(events.len() as u64 + 1) as usize,
        Loss::None => events.len(),
    };
    let mut disk: HashMap<u64, Node> = HashMap::default();
    disk.insert(1, Node { children: Some(BTreeMap::new()), ..Node::default() });
    for (at, event) in events.iter().enumerate() {
        let kept = |node: &u64| synced.get(node).is_some_and(|synced| at < *synced);
        let named = |parent: &u64| at < names_until || kept(parent);
        match event {
            Event::Write { file, offset, bytes } => {
                let mut bytes = &bytes[..];
                if !kept(file) {
                    match loss {
                        Loss::All => continue,
                        Loss::Some(_) => match chance(4) {
                            0 => continue,
                            1 => bytes = &bytes[..(chance(bytes.len() as u64 + 1)) as usize],
                            _ => {}
                        },
                        Loss::None => {}
                    }
                }
                disk.entry(*file).or_default().data.write(*offset, bytes);
            }
            Event::Size { file, size } => {
                let lost = match loss {
                    Loss::All => true,
                    Loss::Some(_) => chance(2) == 0,
                    Loss::None => false,
                };
                if kept(file) || !lost {
                    disk.entry(*file).or_default().data.resize(*size);
                }
            }
            Event::Make { parent, name, node, directory } => {
                if *directory {
                    disk.entry(*node).or_default().children = Some(BTreeMap::new());
                }
                if named(parent) {
                    link(&mut disk, (*parent, name), Some(*node));
                }
            }
            Event::Remove { parent, name } => {
                if named(parent) {
                    link(&mut disk, (*parent, name), None);
                }
            }
            Event::Rename { from, to } => {
                if named(&from.0) || named(&to.0) {
                    let node = link(&mut disk, (from.0, &from.1), None);
                    link(&mut disk, (to.0, &to.1), node);
                }
            }
            Event::Sync { .. } | Event::Mark(_) => {}
        }
    }
    write_out(&disk, 1, target);
}

/// Sets or removes a name, and returns what it was.
fn link(disk: &mut HashMap<u64, Node>, at: (u64, &str), node: Option<u64>) -> Option<u64> {
    let children = disk.entry(at.0).or_default().children.get_or_insert_default();
    match node {
        Some(node) => children.insert(at.1.to_owned(), node),
        None => children.remove(at.1),
    }
}

fn write_out(disk: &HashMap<u64, Node>, directory: u64, target: &Path) {
    std::fs::create_dir_all(target).expect("a directory can be made");
    let children = disk.get(&directory).and_then(|node| node.children.as_ref());
    for (name, node) in children.into_iter().flatten() {
        let path = target.join(name);
        let empty = Node::default();
        let held = disk.get(node).unwrap_or(&empty);
        if held.children.is_some() {
            write_out(disk, *node, &path);
            continue;
        }
        let file = std::fs::File::create(&path).expect("a file can be made");
        file.set_len(held.data.size).expect("a file has a size");
        for (page, bytes) in &held.data.pages {
            let end = bytes.len().min((held.data.size.saturating_sub(page * PAGE)) as usize);
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes[..end], page * PAGE)
                .expect("a file can be written");
        }
    }
}
