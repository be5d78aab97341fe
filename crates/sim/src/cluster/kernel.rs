//! What the kernel does above a mount: keeps names, attributes and pages as long as it may.
//!
//! The client says with each answer what may be kept, and takes it back before a lock goes. This
//! keeps all that it is allowed to, so that whatever the client forgets to take back is read here.
//! As in the kernel, what was asked before something was taken back is not kept when the answer
//! comes, and writes to one file come one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_client::posix::{
    Attributes, Audience, Credentials, Fallocate, FileHandle, FileSystem, Invalidate, Lookup,
    NodeId, OpenFlags, Opened, SetAttributes, Stale,
};
use sheen_io::BoxFuture;
use sheen_types::{Errno, Extent, Fid, Instant, Name};

const PAGE: u64 = 4096;

#[derive(Default)]
struct State {
    entries: BTreeMap<(NodeId, Name), Option<(NodeId, Fid)>>,
    /// Names that our own calls are moving or removing: how many, and since when.
    moving: BTreeMap<(NodeId, Name), (u32, Instant)>,
    attributes: BTreeMap<NodeId, Attributes>,
    pages: BTreeMap<(NodeId, u64), Vec<u8>>,
    /// How often something of a node was taken back.
    changes: BTreeMap<NodeId, u64>,
    /// Lookups that were not taken back, and who is using the node now.
    lookups: BTreeMap<NodeId, u64>,
    pins: BTreeMap<NodeId, u32>,
    writers: BTreeMap<NodeId, Arc<tokio::sync::Mutex<()>>>,
}

impl State {
    fn changed(&mut self, node: NodeId) {
        *self.changes.entry(node).or_default() += 1;
    }

    fn changes(&self, node: NodeId) -> u64 {
        self.changes.get(&node).copied().unwrap_or(0)
    }

    fn drop_pages(&mut self, node: NodeId, extent: Extent) {
        let (first, last) = (extent.start / PAGE, extent.end / PAGE);
        let gone: Vec<_> =
            self.pages.range((node, first)..=(node, last)).map(|(key, _)| *key).collect();
        for key in gone {
            self.pages.remove(&key);
        }
    }

    fn forget_attributes(&mut self, node: NodeId) {
        self.attributes.remove(&node);
        self.changed(node);
    }

    fn forget_entry(&mut self, parent: NodeId, name: &Name) {
        self.entries.remove(&(parent, name.clone()));
        self.changed(parent);
    }
}

#[derive(Default)]
struct Cache(Mutex<State>);

impl Invalidate for Cache {
    fn entry(&self, parent: NodeId, name: &Name, _: bool) -> BoxFuture<'static, ()> {
        self.0.lock().forget_entry(parent, name);
        Box::pin(std::future::ready(()))
    }

    fn children(&self, node: NodeId, names: Vec<Name>) -> BoxFuture<'static, ()> {
        names.iter().for_each(|name| self.0.lock().forget_entry(node, name));
        Box::pin(std::future::ready(()))
    }

    fn inode(&self, node: NodeId, stale: Stale) -> BoxFuture<'static, ()> {
        let mut state = self.0.lock();
        state.forget_attributes(node);
        if let Stale::Pages(extent) = stale {
            state.drop_pages(node, extent);
        }
        drop(state);
        Box::pin(std::future::ready(()))
    }
}

/// A mount with its kernel. See the module.
pub(crate) struct Kernel {
    /// What is mounted.
    pub(crate) files: FileSystem,
    who: Credentials,
    cache: Arc<Cache>,
}

/// A file found by its name; its node stays known until this is dropped.
pub(crate) struct Found {
    /// The node.
    pub(crate) node: NodeId,
    /// The file.
    pub(crate) fid: Fid,
    cache: Arc<Cache>,
}

impl Drop for Found {
    fn drop(&mut self) {
        let mut state = self.cache.0.lock();
        if let Some(pins) = state.pins.get_mut(&self.node) {
            *pins -= 1;
            if *pins == 0 {
                state.pins.remove(&self.node);
            }
        }
    }
}

impl Kernel {
    /// The kernel above `files`.
    pub(crate) fn new(files: FileSystem) -> Self {
        let cache = Arc::new(Cache::default());
        files.watch(Arc::clone(&cache) as _, Audience::User(0));
        Self { files, who: Credentials::root(), cache }
    }

    /// On whose behalf everything is done.
    pub(crate) fn who(&self) -> &Credentials {
        &self.who
    }

    fn pin(&self, node: NodeId, fid: Fid) -> Found {
        *self.cache.0.lock().pins.entry(node).or_default() += 1;
        Found { node, fid, cache: Arc::clone(&self.cache) }
    }

    /// The root.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn root(&self) -> Result<Found, Errno> {
        Ok(self.pin(NodeId::ROOT, self.files.fid(NodeId::ROOT)?))
    }

    /// Finds a name, in what is kept or by asking.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn lookup(&self, parent: NodeId, name: &Name) -> Result<Option<Found>, Errno> {
        let changes = {
            let state = self.cache.0.lock();
            if let Some(known) = state.entries.get(&(parent, name.clone())).copied() {
                drop(state);
                return Ok(known.map(|(node, fid)| self.pin(node, fid)));
            }
            state.changes(parent)
        };
        let looked = self.files.lookup(&self.who, parent, name).await?;
        let (known, keep) = match &looked {
            Lookup::Found(entry) => (Some((entry.node, entry.attributes.fid)), entry.keep.entry),
            Lookup::Absent { keep } => (None, *keep),
        };
        let mut state = self.cache.0.lock();
        if let Some((node, _)) = known {
            *state.lookups.entry(node).or_default() += 1;
        }
        if keep && state.changes(parent) == changes {
            state.entries.insert((parent, name.clone()), known);
        }
        drop(state);
        Ok(known.map(|(node, fid)| self.pin(node, fid)))
    }

    /// A call begins to move a name, or to remove it.
    pub(crate) fn moves(&self, parent: NodeId, name: &Name, now: Instant) {
        let mut state = self.cache.0.lock();
        state.moving.entry((parent, name.clone())).or_insert((0, now)).0 += 1;
    }

    /// It has ended.
    pub(crate) fn moved(&self, parent: NodeId, name: &Name) {
        let mut state = self.cache.0.lock();
        if let Some((calls, _)) = state.moving.get_mut(&(parent, name.clone())) {
            *calls -= 1;
        }
        state.moving.retain(|_, (calls, _)| *calls > 0);
        drop(state);
        self.renamed(parent, name);
    }

    /// Since when a name that is kept may be an old one: nobody can take it from the kernel while a call of
    /// its own has the directory.
    pub(crate) fn is_old_since(&self, parent: NodeId, name: &Name) -> Option<Instant> {
        let (state, key) = (self.cache.0.lock(), (parent, name.clone()));
        state.entries.get(&key).and_then(|_| state.moving.get(&key)).map(|(_, since)| *since)
    }

    /// A call has found `node` or made it: counts as one lookup.
    pub(crate) fn found(&self, node: NodeId, fid: Fid) -> Found {
        *self.cache.0.lock().lookups.entry(node).or_default() += 1;
        self.pin(node, fid)
    }

    /// A name is being changed by ourselves.
    pub(crate) fn renamed(&self, parent: NodeId, name: &Name) {
        let mut state = self.cache.0.lock();
        state.forget_entry(parent, name);
        state.forget_attributes(parent);
    }

    /// Attributes of a file are being changed by ourselves.
    pub(crate) fn touched(&self, node: NodeId) {
        self.cache.0.lock().forget_attributes(node);
    }

    /// Attributes, kept or asked for.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub(crate) async fn getattr(&self, node: NodeId) -> Result<Attributes, Errno> {
        let changes = {
            let state = self.cache.0.lock();
            if let Some(known) = state.attributes.get(&node) {
                return Ok(known.clone());
            }
            state.changes(node)
        };
        let stat = self.files.getattr(&self.who, node).await?;
        let mut state = self.cache.0.lock();
        if stat.keep && state.changes(node) == changes {
            state.attributes.insert(node, stat.attributes.clone());
        }
        Ok(stat.attributes)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn setattr(
        &self,
        node: NodeId,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> Result<(), Errno> {
        let lock = self.writers(node);
        let _turn = lock.lock().await;
        let size = changes.size;
        self.touched(node);
        let done = self.files.setattr(&self.who, node, handle, changes).await;
        self.touched(node);
        if let (Ok(_), Some(size)) = (&done, size) {
            self.cut(node, size);
        }
        done.map(|_| ())
    }

    fn cut(&self, node: NodeId, size: u64) {
        let mut state = self.cache.0.lock();
        state.changed(node);
        state.drop_pages(node, Extent { start: size, end: u64::MAX });
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(crate) async fn open(&self, node: NodeId, flags: u32) -> Result<Opened, Errno> {
        let flags = OpenFlags(flags);
        let cuts = flags.has(OpenFlags::TRUNCATE);
        let lock = self.writers(node);
        let _turn = if cuts { Some(lock.lock().await) } else { None };
        let opened = self.files.open(&self.who, node, flags).await?;
        let opened = self.files.hand_over(opened, |bytes| {
            self.store(node, bytes);
            true
        });
        if cuts {
            self.touched(node);
            self.cut(node, 0);
        } else if !opened.keep_pages {
            self.cut(node, 0);
        }
        Ok(opened)
    }

    /// Takes bytes from the file's beginning on into its pages, with zeros behind them in the last.
    fn store(&self, node: NodeId, bytes: &[u8]) {
        let mut state = self.cache.0.lock();
        for (page, part) in (0..).zip(bytes.chunks(PAGE as usize)) {
            let mut whole = part.to_vec();
            whole.resize(PAGE as usize, 0);
            state.pages.insert((node, page), whole);
        }
    }

    /// Reads as `pread(2)`: from the pages, and asks for those that are not there.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn read(
        &self,
        node: NodeId,
        opened: Opened,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, Errno> {
        if opened.direct {
            let pieces = self.files.read(opened.handle, offset, length as u32).await?;
            return Ok(pieces.concat());
        }
        let size = self.getattr(node).await?.size;
        let end = size.min(offset + length);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let bytes = self.page(node, opened.handle, page).await?;
            let (from, to) = (at % PAGE, (end - page * PAGE).min(PAGE));
            out.extend_from_slice(&bytes[from as usize..to as usize]);
            at = page * PAGE + to;
        }
        Ok(out)
    }

    async fn page(&self, node: NodeId, handle: FileHandle, page: u64) -> Result<Vec<u8>, Errno> {
        let changes = {
            let state = self.cache.0.lock();
            if let Some(bytes) = state.pages.get(&(node, page)) {
                return Ok(bytes.clone());
            }
            state.changes(node)
        };
        let pieces = self.files.read(handle, page * PAGE, PAGE as u32).await?;
        let mut bytes = pieces.concat();
        bytes.resize(PAGE as usize, 0);
        let mut state = self.cache.0.lock();
        if state.changes(node) == changes {
            state.pages.insert((node, page), bytes.clone());
        }
        Ok(bytes)
    }

    /// Writes all of `bytes`, through the pages.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn write(
        &self,
        node: NodeId,
        opened: Opened,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Errno> {
        let lock = self.writers(node);
        let _turn = lock.lock().await;
        let changes = self.cache.0.lock().changes(node);
        let data = Bytes::from(bytes);
        let written = self.files.write(opened.handle, offset, data.clone()).await;
        let mut state = self.cache.0.lock();
        let end = offset + data.len() as u64;
        let same = state.changes(node) == changes;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            if !same || opened.direct || written.is_err() {
                state.pages.remove(&(node, page));
            } else if let Some(held) = state.pages.get_mut(&(node, page)) {
                let base = page * PAGE;
                let (from, to) = (offset.max(base), end.min(base + PAGE));
                held[(from - base) as usize..(to - base) as usize]
                    .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            }
        }
        if opened.direct {
            // What was appended went where only the servers know.
            state.drop_pages(node, Extent::ALL);
        }
        state.forget_attributes(node);
        drop(state);
        written.map(|_| ())
    }

    /// The same node, for another user.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn again(&self, found: &Found) -> Result<Found, Errno> {
        Ok(self.pin(found.node, self.files.fid(found.node)?))
    }

    /// `fallocate(2)`; the pages there are dropped.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn punch(
        &self,
        node: NodeId,
        opened: Opened,
        what: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let lock = self.writers(node);
        let _turn = lock.lock().await;
        let done = self.files.fallocate(opened.handle, what, offset, length).await;
        self.punched(node);
        done
    }

    /// Bytes became zeros behind the kernel's back, or may have.
    pub(crate) fn punched(&self, node: NodeId) {
        self.touched(node);
        self.cut(node, 0);
    }

    fn writers(&self, node: NodeId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.cache.0.lock().writers.entry(node).or_default())
    }

    /// Forgets nodes that nobody uses, as under memory pressure.
    pub(crate) fn shrink(&self) {
        let mut state = self.cache.0.lock();
        let state = &mut *state;
        state.entries.clear();
        let unused = |node: &&NodeId| !state.pins.contains_key(node);
        let nodes: Vec<NodeId> = state.lookups.keys().filter(unused).copied().collect();
        for node in nodes {
            state.changed(node);
            state.drop_pages(node, Extent::ALL);
            state.attributes.remove(&node);
            state.writers.remove(&node);
            if let Some(lookups) = state.lookups.remove(&node) {
                self.files.forget(node, lookups);
            }
        }
    }
}
