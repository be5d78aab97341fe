//! What the kernel does above a mount: keeps names, attributes and pages as long as it may.
//!
//! The client says with each answer what may be kept, and invalidates it before a lock is cancelled. This
//! keeps all that it is allowed to, so that whatever the client forgets to invalidate is read here. As in the
//! kernel, names and attributes that were asked for before an invalidation are not kept when the answer
//! arrives, a read uses the size that was kept all the same, and writes to one file come one after the other.
//! A page has one owner from when a read asks for it until it is answered, or a write that has a part of one
//! that is not there: other calls wait for it, and an invalidation of pages blocks there, and goes on with
//! those behind it afterwards. A write's bytes are in the pages before it is sent; those that have no owner
//! may be dropped and read again while it is on its way, and are not removed again. An invalidation takes
//! effect a while later: the machine has other things to do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::{Range, RangeInclusive};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sheen_client::posix::{
    Attributes, Audience, Credentials, DirCookie, DirEntry, DirEntryPlus, Entry, Fallocate,
    FileHandle, FileSystem, Invalidated, KernelNotifier, ListingRoom, Lookup, NodeId, OpenFlags,
    Opened, SetAttributes, SizeRaise, Stale, StaleName,
};
use sheen_io::{BoxFuture, World, within};
use sheen_types::{Errno, Extent, Fid, Instant, Name, PAGE_BYTES as PAGE};
use tokio::sync::{Notify, oneshot};

#[derive(Default)]
struct CacheState {
    entries: BTreeMap<(NodeId, Name), Option<(NodeId, Fid)>>,
    /// Names that our own calls are making, moving or removing: how many, and since when.
    moving: BTreeMap<(NodeId, Name), (u32, Instant)>,
    attributes: BTreeMap<NodeId, Attributes>,
    pages: BTreeMap<(NodeId, u64), Vec<u8>>,
    /// Pages that a read is to fill, or that a write has in part: they can be neither read nor dropped until
    /// it is answered.
    locked: BTreeSet<(NodeId, u64)>,
    /// The size that reads use.
    sizes: BTreeMap<NodeId, u64>,
    /// How often the size of a node was learnt or changed, or something of it invalidated: what was asked
    /// before that is ignored.
    versions: BTreeMap<NodeId, u64>,
    /// How often something of a node was invalidated.
    changes: BTreeMap<NodeId, u64>,
    /// How often calls of this kernel have dropped pages of a node.
    cuts: BTreeMap<NodeId, u64>,
    /// Lookups that were not forgotten, and who is using the node now.
    lookups: BTreeMap<NodeId, u64>,
    pins: BTreeMap<NodeId, u32>,
    writers: BTreeMap<NodeId, Arc<tokio::sync::Mutex<()>>>,
}

impl CacheState {
    fn changed(&mut self, node: NodeId) {
        *self.changes.entry(node).or_default() += 1;
    }

    fn changes(&self, node: NodeId) -> u64 {
        self.changes.get(&node).copied().unwrap_or(0)
    }

    fn cut(&mut self, node: NodeId) {
        *self.cuts.entry(node).or_default() += 1;
    }

    fn cuts(&self, node: NodeId) -> u64 {
        self.cuts.get(&node).copied().unwrap_or(0)
    }

    fn first_locked(&self, node: NodeId, pages: RangeInclusive<u64>) -> Option<u64> {
        let range = (node, *pages.start())..=(node, *pages.end());
        self.locked.range(range).next().map(|(_, page)| *page)
    }

    fn version(&self, node: NodeId) -> u64 {
        self.versions.get(&node).copied().unwrap_or(0)
    }

    /// An answer, or a call of our own, says what size a file has.
    fn hear_size(&mut self, node: NodeId, size: u64) {
        *self.versions.entry(node).or_default() += 1;
        let before = self.sizes.insert(node, size);
        if before.is_some_and(|before| before != size) {
            self.truncate_pages(node, size);
        }
    }

    /// The same of the answer to what was asked at `version`; whether it was taken.
    fn hear_answer(&mut self, node: NodeId, size: u64, version: u64) -> bool {
        let is_taken = self.version(node) == version || !self.sizes.contains_key(&node);
        if is_taken {
            self.hear_size(node, size);
        }
        is_taken
    }

    /// An answer that names an inode takes the place of the attributes that were kept, and says for how long it
    /// holds: attributes that it does not let be kept are asked for again (`fuse_change_attributes`).
    fn hear_attributes(&mut self, entry: &Entry) {
        match entry.keep.attributes {
            true => self.attributes.insert(entry.node, entry.attributes.clone()),
            false => self.attributes.remove(&entry.node),
        };
    }

    fn size(&self, node: NodeId) -> u64 {
        self.sizes.get(&node).copied().unwrap_or(0)
    }

    fn grow(&mut self, node: NodeId, end: u64) {
        *self.versions.entry(node).or_default() += 1;
        let size = self.sizes.entry(node).or_default();
        *size = end.max(*size);
    }

    /// Drops the pages behind the end, and the bytes behind it in the last page.
    fn truncate_pages(&mut self, node: NodeId, size: u64) {
        self.pages.retain(|(of, page), _| *of != node || page * PAGE < size);
        if let Some(last) = self.pages.get_mut(&(node, size / PAGE)) {
            last[(size % PAGE) as usize..].fill(0);
        }
    }

    fn drop_pages(&mut self, node: NodeId, extent: Extent) {
        self.drop_range(node, extent.start / PAGE..extent.end / PAGE + 1);
    }

    fn drop_range(&mut self, node: NodeId, pages: Range<u64>) {
        let gone: Vec<_> =
            self.pages.range((node, pages.start)..(node, pages.end)).map(|(key, _)| *key).collect();
        for key in gone {
            self.pages.remove(&key);
        }
    }

    fn forget_attributes(&mut self, node: NodeId) {
        self.attributes.remove(&node);
        *self.versions.entry(node).or_default() += 1;
        self.changed(node);
    }

    fn forget_entry(&mut self, parent: NodeId, name: &Name) {
        self.entries.remove(&(parent, name.clone()));
        self.changed(parent);
    }
}

struct Cache {
    state: Mutex<CacheState>,
    world: World,
    /// A page has no owner any more.
    unlocked: Notify,
}

/// How late an invalidation takes effect: mostly at once, and sometimes late, by less than this.
const LATE_MS: u64 = 40;

impl Cache {
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock()
    }

    /// The machine has other things to do first.
    async fn late(&self) {
        let random = self.world.random.number();
        if random.is_multiple_of(4) {
            let pause = Duration::from_millis(random / 4 % LATE_MS);
            self.world.clock.sleep_until(self.world.clock.now() + pause).await;
        }
    }

    /// Waits until none of these pages has an owner, and has the state as it is then.
    async fn unlocked(
        &self,
        node: NodeId,
        pages: RangeInclusive<u64>,
    ) -> MutexGuard<'_, CacheState> {
        loop {
            let mut unlocked = pin!(self.unlocked.notified());
            unlocked.as_mut().enable();
            {
                let state = self.lock();
                if state.first_locked(node, pages.clone()).is_none() {
                    return state;
                }
            }
            unlocked.await;
        }
    }

    /// Drops these pages, one after the other, each when it has no owner; says so before it waits.
    async fn invalidate(
        &self,
        node: NodeId,
        extent: Extent,
        mut blocked: Option<oneshot::Sender<()>>,
    ) {
        let (mut first, last) = (extent.start / PAGE, extent.end / PAGE);
        loop {
            let held = {
                let mut state = self.lock();
                let held = state.first_locked(node, first..=last);
                let end = held.map_or(last + 1, |page| page);
                state.drop_range(node, first..end);
                held
            };
            let Some(page) = held else { return };
            if let Some(blocked) = blocked.take() {
                let (Ok(()) | Err(())) = blocked.send(());
            }
            drop(self.unlocked(node, page..=page).await);
            first = page;
        }
    }
}

/// Pages with an owner, until this is dropped.
struct Locked {
    cache: Arc<Cache>,
    node: NodeId,
    pages: Vec<u64>,
}

impl Locked {
    fn insert(&mut self, state: &mut CacheState, page: u64) {
        state.locked.insert((self.node, page));
        self.pages.push(page);
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        for page in &self.pages {
            state.locked.remove(&(self.node, *page));
        }
        drop(state);
        self.cache.unlocked.notify_waiters();
    }
}

/// How long a lock may be kept for a page under IO, as on a real mount.
const PAGES_WAIT: Duration = Duration::from_secs(2);

impl KernelNotifier for Watch {
    fn invalidate_name(&self, stale: &StaleName) -> BoxFuture<'static, ()> {
        self.0.lock().forget_entry(stale.parent, &stale.name);
        Box::pin(std::future::ready(()))
    }

    /// Names are always dropped in time.
    fn prune(&self, _: Vec<NodeId>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn expire_names(
        &self,
        node: NodeId,
        names: Vec<Name>,
        _: Vec<NodeId>,
    ) -> BoxFuture<'static, bool> {
        names.iter().for_each(|name| self.0.lock().forget_entry(node, name));
        Box::pin(std::future::ready(true))
    }

    fn raise_size(&self, raise: SizeRaise) -> BoxFuture<'static, ()> {
        let cache = Arc::clone(&self.0);
        Box::pin(async move {
            cache.late().await;
            let (node, size) = (raise.node(), raise.size());
            let mut state = cache.lock();
            if size > state.size(node) {
                state.grow(node, size);
            }
            drop(state);
            raise.done();
        })
    }

    fn invalidate_inode(&self, node: NodeId, stale: Stale) -> BoxFuture<'static, Invalidated> {
        let cache = Arc::clone(&self.0);
        let (done, is_done) = oneshot::channel();
        let (blocked, mut is_blocked) = oneshot::channel();
        let notification = async move {
            cache.late().await;
            cache.lock().forget_attributes(node);
            if let Stale::Pages(extent) = stale {
                cache.invalidate(node, extent, Some(blocked)).await;
            }
            let (Ok(()) | Err(())) = done.send(());
        };
        self.0.world.tasks.spawn("notification", Box::pin(notification));
        let clock = Arc::clone(&self.0.world.clock);
        Box::pin(async move {
            let mut is_done = Box::pin(is_done);
            let is_blocked = poll_fn(|context| match is_done.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(false),
                // It ends before the other does, without an answer.
                Poll::Pending => match pin!(&mut is_blocked).poll(context) {
                    Poll::Ready(Ok(())) => Poll::Ready(true),
                    Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
                },
            });
            if !is_blocked.await {
                return Invalidated::Done;
            }
            Invalidated::Blocked(Box::pin(async move {
                within(&*clock, PAGES_WAIT, is_done).await.is_some()
            }))
        })
    }
}

/// Notifies a cache.
struct Watch(Arc<Cache>);

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
    /// The file, as the model knows it ([`crate::run::Sim::identity`]).
    pub(crate) fid: Fid,
    cache: Arc<Cache>,
}

impl Drop for Found {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
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
    pub(crate) fn new(files: FileSystem, world: World) -> Self {
        let (state, unlocked) = (Mutex::default(), Notify::new());
        let cache = Arc::new(Cache { state, world, unlocked });
        files.attach_notifier(Arc::new(Watch(Arc::clone(&cache))), Audience::User(0));
        Self { files, who: Credentials::root(), cache }
    }

    /// On whose behalf everything is done.
    pub(crate) fn who(&self) -> &Credentials {
        &self.who
    }

    fn pin(&self, node: NodeId, fid: Fid) -> Found {
        *self.cache.lock().pins.entry(node).or_default() += 1;
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
            let state = self.cache.lock();
            if let Some(known) = state.entries.get(&(parent, name.clone())).copied() {
                drop(state);
                return Ok(known.map(|(node, fid)| self.pin(node, fid)));
            }
            (state.changes(parent), state.versions.clone())
        };
        let (changes, versions) = changes;
        let looked = self.files.lookup(&self.who, parent, name).await?;
        let (known, keep) = match &looked {
            Lookup::Found(entry) => (Some((entry.node, entry.attributes.fid)), entry.keep.entry),
            Lookup::Absent { keep } => (None, *keep),
        };
        let mut state = self.cache.lock();
        if let Lookup::Found(entry) = &looked {
            *state.lookups.entry(entry.node).or_default() += 1;
            let asked_at = versions.get(&entry.node).copied().unwrap_or(0);
            if state.hear_answer(entry.node, entry.attributes.size, asked_at) {
                state.hear_attributes(entry);
            }
        }
        if keep && state.changes(parent) == changes {
            state.entries.insert((parent, name.clone()), known);
        }
        drop(state);
        Ok(known.map(|(node, fid)| self.pin(node, fid)))
    }

    /// Names of an open directory from `at` on, with what they stand for, which is kept as what lookups find
    /// (readdirplus).
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) async fn list_with_attributes(
        &self,
        parent: NodeId,
        handle: FileHandle,
        at: DirCookie,
        room: ListingRoom,
    ) -> Result<Vec<DirEntry>, Errno> {
        let (changes, versions) = {
            let state = self.cache.lock();
            (state.changes(parent), state.versions.clone())
        };
        let listed = self.files.readdir_plus(&self.who, handle, at, room).await?;
        let mut state = self.cache.lock();
        let is_unchanged = state.changes(parent) == changes;
        for DirEntryPlus { entry, found } in &listed {
            let (Some(found), Ok(name)) = (found, Name::new(&entry.name)) else { continue };
            *state.lookups.entry(found.node).or_default() += 1;
            let asked_at = versions.get(&found.node).copied().unwrap_or(0);
            if state.hear_answer(found.node, found.attributes.size, asked_at) {
                state.hear_attributes(found);
            }
            if found.keep.entry && is_unchanged {
                let known = Some((found.node, found.attributes.fid));
                state.entries.insert((parent, name), known);
            }
        }
        Ok(listed.into_iter().map(|listed| listed.entry).collect())
    }

    /// A call begins to make a name, to move it, or to remove it.
    pub(crate) fn moves(&self, parent: NodeId, name: &Name, now: Instant) {
        let mut state = self.cache.lock();
        state.moving.entry((parent, name.clone())).or_insert((0, now)).0 += 1;
    }

    /// It has ended.
    pub(crate) fn moved(&self, parent: NodeId, name: &Name) {
        let mut state = self.cache.lock();
        if let Some((calls, _)) = state.moving.get_mut(&(parent, name.clone())) {
            *calls -= 1;
        }
        state.moving.retain(|_, (calls, _)| *calls > 0);
        drop(state);
        self.renamed(parent, name);
    }

    /// Since when a name that is kept may be an old one: it cannot be invalidated while a call of the kernel
    /// holds the directory.
    pub(crate) fn is_old_since(&self, parent: NodeId, name: &Name) -> Option<Instant> {
        let (state, key) = (self.cache.lock(), (parent, name.clone()));
        state.entries.get(&key).and_then(|_| state.moving.get(&key)).map(|(_, since)| *since)
    }

    /// A call has found a node or made it: counts as one lookup, and its attributes are kept.
    pub(crate) fn found(&self, entry: &Entry) -> Found {
        let mut state = self.cache.lock();
        *state.lookups.entry(entry.node).or_default() += 1;
        state.hear_size(entry.node, entry.attributes.size);
        state.hear_attributes(entry);
        drop(state);
        self.pin(entry.node, entry.attributes.fid)
    }

    /// A name is being changed by ourselves.
    pub(crate) fn renamed(&self, parent: NodeId, name: &Name) {
        let mut state = self.cache.lock();
        state.forget_entry(parent, name);
        state.forget_attributes(parent);
    }

    /// Attributes of a file are being changed by ourselves.
    pub(crate) fn touched(&self, node: NodeId) {
        self.cache.lock().forget_attributes(node);
    }

    /// Attributes, kept or asked for.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub(crate) async fn getattr(&self, node: NodeId) -> Result<Attributes, Errno> {
        let changes = {
            let state = self.cache.lock();
            if let Some(known) = state.attributes.get(&node) {
                return Ok(known.clone());
            }
            (state.changes(node), state.version(node))
        };
        let (changes, version) = changes;
        let stat = self.files.getattr(&self.who, node).await?;
        let mut state = self.cache.lock();
        if stat.keep && state.changes(node) == changes && state.version(node) == version {
            state.attributes.insert(node, stat.attributes.clone());
        }
        state.hear_answer(node, stat.attributes.size, version);
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
        if let Ok(stat) = &done {
            self.cache.lock().hear_size(node, stat.attributes.size);
        }
        done.map(|_| ())
    }

    fn cut(&self, node: NodeId, size: u64) {
        let mut state = self.cache.lock();
        state.changed(node);
        state.cut(node);
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
        let opened = self.files.hand_off_pages(opened, |bytes| {
            self.store(node, bytes);
            true
        });
        if cuts {
            self.touched(node);
            self.cut(node, 0);
            self.cache.lock().hear_size(node, 0);
        } else if !opened.keep_pages {
            self.cut(node, 0);
        }
        Ok(opened)
    }

    /// Takes bytes from the file's beginning on into its pages, with zeros behind them in the last.
    fn store(&self, node: NodeId, bytes: &[u8]) {
        let mut state = self.cache.lock();
        for (page, part) in (0..).zip(bytes.chunks(PAGE as usize)) {
            let mut whole = part.to_vec();
            whole.resize(PAGE as usize, 0);
            state.pages.insert((node, page), whole);
        }
        if bytes.len() as u64 > state.size(node) {
            state.grow(node, bytes.len() as u64);
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
        if opened.bypasses_page_cache {
            let pieces =
                self.files.read_bypassing_page_cache(opened.handle, offset, length as u32).await?;
            return Ok(pieces.concat());
        }
        if offset + length > self.cache.lock().size(node) {
            self.getattr(node).await?;
        }
        let mut out = Vec::new();
        let mut at = offset;
        while at < self.cache.lock().size(node).min(offset + length) {
            let page = at / PAGE;
            let bytes = self.page(node, opened.handle, page).await?;
            let end = self.cache.lock().size(node).min(offset + length);
            if end <= at {
                break;
            }
            let (from, to) = (at % PAGE, (end - page * PAGE).min(PAGE));
            out.extend_from_slice(&bytes[from as usize..to as usize]);
            at = page * PAGE + to;
        }
        Ok(out)
    }

    async fn page(&self, node: NodeId, handle: FileHandle, page: u64) -> Result<Vec<u8>, Errno> {
        let mut owner = self.owner(node);
        let (cuts, version) = {
            let mut state = self.cache.unlocked(node, page..=page).await;
            if let Some(bytes) = state.pages.get(&(node, page)) {
                return Ok(bytes.clone());
            }
            owner.insert(&mut state, page);
            (state.cuts(node), state.version(node))
        };
        let pieces = self.files.read(handle, page * PAGE, PAGE as u32).await?;
        let mut bytes = pieces.concat();
        let end = page * PAGE + bytes.len() as u64;
        let is_short = (bytes.len() as u64) < PAGE;
        bytes.resize(PAGE as usize, 0);
        let mut state = self.cache.lock();
        if is_short && state.version(node) == version && end < state.size(node) {
            state.hear_size(node, end);
        }
        if state.cuts(node) == cuts {
            state.pages.insert((node, page), bytes.clone());
        }
        drop(state);
        drop(owner);
        Ok(bytes)
    }

    fn owner(&self, node: NodeId) -> Locked {
        Locked { cache: Arc::clone(&self.cache), node, pages: Vec::new() }
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
        let data = Bytes::from(bytes);
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let mut owner = self.owner(node);
            let part = data.slice((at - offset) as usize..);
            let part = match opened.bypasses_page_cache {
                true => part,
                false => part.slice(..self.copy_in(&mut owner, at, &part).await),
            };
            let begin = at;
            at += part.len() as u64;
            let written = self.files.write(opened.handle, begin, part).await;
            let mut state = self.cache.lock();
            if opened.bypasses_page_cache {
                // What was appended went where only the servers know.
                state.cut(node);
                state.drop_pages(node, Extent::ALL);
            } else if written.is_err() {
                state.drop_pages(node, Extent { start: begin, end: at - 1 });
            }
            if written.is_ok() {
                state.grow(node, at);
            }
            state.attributes.remove(&node);
            state.changed(node);
            drop(state);
            drop(owner);
            written?;
        }
        Ok(())
    }

    /// Puts a write's bytes into the pages, and says how many go out at once. A page that is not there and is
    /// written in part cannot be read until that is answered: nothing behind it goes out with it.
    async fn copy_in(&self, owner: &mut Locked, offset: u64, data: &Bytes) -> usize {
        let (node, end) = (owner.node, offset + data.len() as u64);
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let base = page * PAGE;
            let (from, to) = (offset.max(base), end.min(base + PAGE));
            let bytes = &data[(from - offset) as usize..(to - offset) as usize];
            let mut state = self.cache.unlocked(node, page..=page).await;
            if to - from == PAGE {
                state.pages.insert((node, page), vec![0; PAGE as usize]);
            }
            match state.pages.get_mut(&(node, page)) {
                Some(held) => {
                    held[(from - base) as usize..(to - base) as usize].copy_from_slice(bytes);
                }
                None => {
                    owner.insert(&mut state, page);
                    return (to - offset) as usize;
                }
            }
        }
        data.len()
    }

    /// The same node, for another user.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn again(&self, found: &Found) -> Result<Found, Errno> {
        self.files.fid(found.node)?;
        Ok(self.pin(found.node, found.fid))
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
        Arc::clone(self.cache.lock().writers.entry(node).or_default())
    }

    /// Forgets nodes that are not in use, as under memory pressure.
    pub(crate) fn shrink(&self) {
        let mut state = self.cache.lock();
        let state = &mut *state;
        state.entries.clear();
        let unused = |node: &&NodeId| !state.pins.contains_key(node);
        let nodes: Vec<NodeId> = state.lookups.keys().filter(unused).copied().collect();
        for node in nodes {
            state.changed(node);
            state.cut(node);
            state.drop_pages(node, Extent::ALL);
            state.attributes.remove(&node);
            state.sizes.remove(&node);
            state.writers.remove(&node);
            if let Some(lookups) = state.lookups.remove(&node) {
                self.files.forget(node, lookups);
            }
        }
    }
}
