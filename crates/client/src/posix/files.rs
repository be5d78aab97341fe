//! Open files: opening, data, closing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_io::job::{self, InJob};
use sheen_types::{Errno, Extent, Name, Timestamp};

use super::attributes::{has_set_id, loses_set_id};
use super::handles::FileDescription;
use super::inodes::NamedBy;
use super::{
    Credentials, Entry, Fallocate, FileHandle, FileSystem, FileType, LockOwner, Mounted, NodeId,
    OpenFlags, Opened, Seek, SetAttributes,
};
use crate::boxed;
use crate::cache::{Access, CachedOpen, Inode, Pin};
use crate::data::{CallPages, DataFile, IoOptions, Locking, Refusal, WriteAt};
use crate::mdt::CloseAttributes;
use crate::meta::{OwnOrCachedOpen, SetattrRight};
use crate::types::OpenCounts;

/// Bytes of a hole that one piece of an answer shows; holes are made of shared pieces.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl FileSystem {
    /// Opens a file, or a directory to list it ([`OpenFlags::DIRECTORY`]). Truncates if asked to. One
    /// RPC; none for a directory whose attributes locks cover, and for a file whose open is cached so.
    ///
    /// # Errors
    /// As `open(2)`.
    #[boxed]
    pub async fn open(
        &self,
        who: &Credentials,
        node: NodeId,
        flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        let pin = self.0.pin(node)?;
        // The kernel moved the name when it was renamed, and may not have been notified yet that another
        // client has replaced it since. On `ESTALE` it looks the name up.
        if std::mem::take(&mut pin.state().names.moved_here) {
            return Err(self.0.answer_stale(who));
        }
        if flags.writes() {
            // Any client that has it open, this one too, may write from now on.
            pin.state().ask_osts_for_size();
        }
        let tally = self.0.count_open(&pin);
        if self.0.may_list(&pin, who, flags) {
            return Ok(self.0.insert_handle(who, pin, (flags, tally), None, false));
        }
        if let Some(cached) = self.0.join_cached(who, &pin, flags) {
            let cached = self.0.answer_and_end_retry(who, Ok(cached))?;
            return Ok(self.0.insert_handle(who, pin, (flags, tally), Some(cached), false));
        }
        let caches = self.0.is_worth_caching(&pin, flags);
        let (meta, inode) = (&self.0.meta, &pin);
        let open = async || match caches {
            true => meta.open_to_cache(who, inode, flags).await,
            false => Ok(meta.open(who, inode, flags).await?.map(OwnOrCachedOpen::Own)),
        };
        let open = self.0.retry_with_rights(who, &[&pin], open).await;
        if matches!(open, Err(Errno::ENOENT)) && self.0.lists_nothing(&pin, who, flags) {
            return Ok(self.0.insert_handle(who, pin, (flags, tally), None, false));
        }
        let open = self.0.answer_and_end_retry(who, open)?;
        self.0.finish_open(who, pin, (flags, tally), open, false).await
    }

    /// Opens the file `name`, creating it if absent, in one RPC. Counts as one lookup.
    ///
    /// The kernel, which may not keep the attributes, asks for owner and mode of what it has just opened
    /// before the call of its own that makes the file returns. That one question about a file made here is
    /// answered from the reply to the create, without a glimpse of its objects.
    ///
    /// # Errors
    /// As `open(2)` with `O_CREAT`; `EEXIST` with [`OpenFlags::EXCLUSIVE`] if the name is there;
    /// `ESTALE` if it names no regular file, so that the caller looks again.
    #[boxed]
    pub async fn open_create(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened), Errno> {
        let asked = parent;
        let create = |parent: Arc<Inode>| async move {
            // As in Lustre: how often the file will be opened is not known yet.
            let caches = self.0.settings.open_cache.count.get() == 1
                && self.0.meta.caches_new_opens(&parent);
            let create = || self.0.meta.open_create(who, &parent, name, mode, (flags, caches));
            self.0.retry_with_rights(who, &[&parent], create).await
        };
        let (parent, mut opened) = self.0.in_directory(who, asked, create).await?;
        let node = opened.pin.node();
        let child = Arc::clone(&opened.pin);
        let tally = self.0.count_open(&child);
        // As in Lustre, the MDT answers a name that cannot be opened without asking whether it was
        // to be new.
        let Some(open) = opened.take_open(who, Access::of(flags)) else {
            return Err(match child.file_type() {
                _ if flags.has(OpenFlags::EXCLUSIVE) => Errno::EEXIST,
                Some(FileType::Directory) => Errno::EISDIR,
                _ => self.0.answer_stale(who),
            });
        };
        if child.file_type() != Some(FileType::Regular) {
            // Something else has taken the name: the kernel looks again and opens that.
            self.0.end_open(who, &child, open, None).await?;
            return Err(self.0.answer_stale(who));
        }
        let at = NamedBy { asked, parent: &parent, name };
        let entry = match opened.created {
            true => self.0.entry_of_new(at, &child),
            false => self.0.entry(who, at, &child).await,
        };
        let entry = match entry {
            Ok(entry) => {
                self.0.expire_names_of_successor(asked, &[name]).await;
                entry
            }
            Err(errno) => {
                self.0.end_open(who, &child, open, None).await?;
                return Err(errno);
            }
        };
        let created = opened.created;
        match self.0.finish_open(who, opened.pin, (flags, tally), Some(open), created).await {
            Ok(opened) => {
                child.state().just_created = created;
                // Its close ends what `just_created` allows.
                let sends_no_flush = opened.sends_no_flush && !created;
                let opened = Opened { sends_no_flush, ..opened };
                self.0.answer_and_end_retry(who, Ok((entry, opened)))
            }
            Err(errno) => {
                self.0.inodes.forget(node, 1);
                Err(errno)
            }
        }
    }

    /// Reads at most `length` bytes for pages that the kernel holds until this is answered; fewer only at the end of
    /// the file. The pieces lie one behind the other and share memory with the cache or the network.
    ///
    /// # Errors
    /// As `pread(2)`.
    #[boxed]
    pub async fn read(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Bytes>, Errno> {
        // Through any handle: a mapping's pages are read through whichever there is.
        let call_pages = Extent::of_length(offset, length.into()).map(CallPages::of);
        self.read_for(call_pages, handle, offset, length).await
    }

    /// As `read`, for a program's own memory: the kernel holds no page for it. A revocation would take the pages of
    /// other reads for this one's, and not wait for them.
    ///
    /// # Errors
    /// As `pread(2)`.
    #[boxed]
    pub async fn read_bypassing_page_cache(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Bytes>, Errno> {
        self.read_for(None, handle, offset, length).await
    }

    async fn read_for(
        &self,
        call_pages: Option<CallPages>,
        handle: FileHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Bytes>, Errno> {
        let file = self.0.handles.get(handle)?;
        if !file.flags.reads() {
            return Err(Errno::EBADF);
        }
        let range = Extent::of_length(offset, length.into());
        let options = IoOptions { call_pages, ..file.options() };
        let read =
            |data: Arc<dyn DataFile>| async move { data.read(offset, length, options).await };
        if let Some(range) = range.filter(|_| !file.bypasses_page_cache) {
            self.0.after_page_writes(&file.pin, range).await;
        }
        let pieces = match self.0.with_data_for_call(&file.who, &file.pin, call_pages, read).await?
        {
            Some(pieces) => pieces,
            None => {
                self.0.refresh(&file.who, &file.pin).await?;
                let size = file.pin.state().last_attributes().map_or(0, |known| known.size);
                zeros(size.saturating_sub(offset).min(length.into()))
            }
        };
        self.0.note_access(&file, file.data().as_deref());
        let asked = u64::from(length);
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.0.heat_up(&file, false, length);
        if !file.bypasses_page_cache {
            self.0.note_pages_used(file.pin.node(), offset, length);
            if length < asked {
                // The kernel may take this for the file's end.
                file.pin.state().file.kernel_size.replied(offset.saturating_add(length));
            }
        }
        Ok(pieces)
    }

    /// Writes `data`, at the end for a handle opened with [`OpenFlags::APPEND`]. Answers how much was
    /// written: all, but for what lies behind the last component of the layout.
    ///
    /// # Errors
    /// As `pwrite(2)`. What fails after the answer is reported by the next flush or fsync.
    #[boxed]
    pub async fn write(&self, handle: FileHandle, offset: u64, data: Bytes) -> Result<u32, Errno> {
        self.write_for(Writer::Program(Caller::Opener), handle, offset, data).await
    }

    /// As `write`, by a caller without `CAP_FSETID`, though root may have opened the file: set-id bits go.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    #[boxed]
    pub async fn write_and_take_set_id(
        &self,
        handle: FileHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<u32, Errno> {
        self.write_for(Writer::Program(Caller::WithoutSetId), handle, offset, data).await
    }

    /// As `write`, for bytes of the kernel's own pages, which a program has changed through a mapping: they have
    /// their place, whatever the handle was opened with, and the pages stay. Through which handle the kernel writes
    /// them is its own choice.
    ///
    /// # Errors
    /// As `msync(2)`.
    #[boxed]
    pub async fn write_back(
        &self,
        handle: FileHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<u32, Errno> {
        self.write_for(Writer::Mapping, handle, offset, data).await
    }

    async fn write_for(
        &self,
        writer: Writer,
        handle: FileHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<u32, Errno> {
        let file = self.0.handles.get(handle)?;
        // More than any call of the kernel has.
        let length = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let range = Extent::of_length(offset, length.into());
        let page_write = range.filter(|_| !file.bypasses_page_cache);
        let page_write = page_write.map(|range| self.0.begin_page_write(&file.pin, range));
        let call_pages = range.and_then(|range| match writer {
            Writer::Mapping => Some(CallPages::of(range)),
            Writer::Program(_) if file.bypasses_page_cache => None,
            Writer::Program(_) => CallPages::written(range),
        });
        match writer {
            Writer::Program(caller) => self.0.take_privileges(&file, caller).await?,
            Writer::Mapping => self.0.take_set_id(&file, Caller::Opener).await?,
        }
        self.0.check_writable(&file)?;
        let at = match writer {
            Writer::Program(_) if file.flags.has(OpenFlags::APPEND) => WriteAt::End(offset),
            Writer::Program(_) | Writer::Mapping => WriteAt::Offset(offset),
        };
        file.note_modified();
        let is_mapped = matches!(writer, Writer::Mapping);
        let (who, options) = (&file.who, IoOptions { call_pages, is_mapped, ..file.options() });
        let write = |it: Arc<dyn DataFile>| {
            let data = data.clone();
            async move {
                let offset = it.write(at, data, who, options).await?;
                Ok((offset, it.layout().room(offset).min(length.into()) as u32))
            }
        };
        let (offset, written) = self.0.with_data_to_write(&file, call_pages, write).await?;
        drop(page_write);
        self.0.heat_up(&file, true, written.into());
        match writer {
            // The kernel would wait for this very answer before it releases these pages.
            Writer::Program(_) if file.bypasses_page_cache => {
                self.0.drop_bypassed_pages(&file.pin, offset, written.into()).await;
            }
            Writer::Program(_) | Writer::Mapping => {
                self.0.note_pages_used(file.pin.node(), offset, written.into());
            }
        }
        Ok(written)
    }

    /// One descriptor of the open file is closed: reports errors of earlier writes, releases the owner's
    /// `fcntl(2)` locks, and makes what was written durable if operators want that.
    ///
    /// # Errors
    /// As `close(2)`.
    #[boxed]
    pub async fn flush(&self, handle: FileHandle, owner: LockOwner) -> Result<(), Errno> {
        let file = self.0.handles.get(handle)?;
        file.pin.state().just_created = false;
        self.0.unlock_all(&file, owner).await?;
        self.0.file_locks_taken.flushed(&file, handle, owner);
        if self.0.settings.sync_on_close.get() && file.modified.load(Ordering::Relaxed) {
            self.0.sync(&file).await?;
        }
        let failures_reported = (*file.failures_reported.lock()).max(file.failed_before);
        file.pin.state().file.failures.since(failures_reported)
    }

    /// The last descriptor is closed. The handle is gone, whatever the answer; `flock` is the owner
    /// whose `flock(2)` locks end with it. One RPC that is not waited for; none for a directory that was
    /// opened with none.
    ///
    /// # Errors
    /// `EBADF`, or what the MDT answered to the release of locks.
    #[boxed]
    pub async fn release(&self, handle: FileHandle, flock: Option<LockOwner>) -> Result<(), Errno> {
        self.release_after(handle, flock, &mut std::future::ready(())).await
    }

    /// As [`FileSystem::release`]; the handle is used until `last_use` returns. Locks are released before that.
    ///
    /// # Errors
    /// As [`FileSystem::release`].
    #[boxed]
    pub async fn release_after(
        &self,
        handle: FileHandle,
        flock: Option<LockOwner>,
        last_use: &mut (dyn Future<Output = ()> + Send + Unpin),
    ) -> Result<(), Errno> {
        let Ok(file) = self.0.handles.get(handle) else {
            return self.0.handles.remove(handle).map(drop);
        };
        // The kernel does not say which process closes last: it is counted for the one that opened the file.
        let job = file.job.filter(|_| job::current().is_none());
        let released = self.0.release_handle((handle, file), flock, last_use);
        match job {
            Some(job) => InJob::new(job, pin!(released)).await,
            None => released.await,
        }
    }

    /// Returns when the file (data only, or attributes too) or directory is durable on its servers. One RPC
    /// to each object's OST, and one to the MDT if it has a change of this client that it has not reported as
    /// durable.
    ///
    /// # Errors
    /// As `fsync(2)`.
    #[boxed]
    pub async fn fsync(&self, handle: FileHandle, data_only: bool) -> Result<(), Errno> {
        // Without the inode the data is lost, so there is nothing that could be left out.
        let _ = data_only;
        let file = self.0.handles.get(handle)?;
        let synced = self.0.sync(&file).await;
        // Whatever the reason, a program that gets an error knows that data may be lost.
        let reported = file.pin.state().file.failures.report(&mut file.failures_reported.lock());
        synced.and(reported)
    }

    /// Allocates or frees space. One RPC to each object's OST.
    ///
    /// # Errors
    /// As `fallocate(2)`.
    #[boxed]
    pub async fn fallocate(
        &self,
        handle: FileHandle,
        what: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let file = self.0.handles.get(handle)?;
        let range = Extent::of_length(offset, length).ok_or(Errno::EINVAL)?;
        self.0.check_writable(&file)?;
        self.0.take_privileges(&file, Caller::Opener).await?;
        file.note_modified();
        let locking = file.locking();
        let allocate =
            |it: Arc<dyn DataFile>| async move { it.fallocate(what, range, locking).await };
        self.0.with_data_to_write(&file, None, allocate).await
    }

    /// Where the next data or hole from `offset` begins.
    ///
    /// # Errors
    /// `ENXIO` behind the end.
    #[boxed]
    pub async fn seek(&self, handle: FileHandle, offset: u64, what: Seek) -> Result<u64, Errno> {
        let file = self.0.handles.get(handle)?;
        let locking = file.locking();
        let seek = |data: Arc<dyn DataFile>| async move { data.seek(offset, what, locking).await };
        if let Some(at) = self.0.with_data(&file.who, &file.pin, seek).await? {
            return Ok(at);
        }
        self.0.refresh(&file.who, &file.pin).await?;
        let size = file.pin.state().last_attributes().map_or(0, |known| known.size);
        match what {
            Seek::Hole if offset < size => Ok(offset),
            _ => Err(Errno::ENXIO),
        }
    }

    /// Makes everything durable that was changed so far, as `syncfs(2)` does: one RPC for each target beside
    /// the writes of dirty bytes. An error of such a write is reported by the next `fsync` of the file.
    ///
    /// # Errors
    /// What a target answered.
    #[boxed]
    pub async fn sync_all(&self, who: &Credentials) -> Result<(), Errno> {
        self.0.data.sync_all().await?;
        self.0.meta.sync_all(who).await
    }

    /// Flushes everything, cancels all locks, closes all handles, and disconnects from all targets.
    #[boxed]
    pub async fn unmount(&self) {
        self.0.end_all_ahead();
        for file in self.0.handles.take_all() {
            if let Err(errno) = self.0.close(&file).await {
                tracing::debug!(%errno, "close at unmount");
            }
        }
        self.0.close_all_cached().await;
        self.0.data.shut_down().await;
        self.0.closing.wait(&*self.0.targets.world.clock).await;
        self.0.targets.disconnect_all().await;
    }
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The one who has opened the file, as far as is known.
    Opener,
    /// One without `CAP_FSETID`.
    WithoutSetId,
}

/// Where the bytes that are written come from.
#[derive(Clone, Copy)]
enum Writer {
    /// Those that a program gave to `write(2)`.
    Program(Caller),
    /// Those of pages that a mapping has changed: the kernel's write-back.
    Mapping,
}

impl FileDescription {
    fn options(&self) -> IoOptions {
        IoOptions {
            is_mapped: false,
            direct: self.flags.has(OpenFlags::DIRECT),
            sync: self.flags.has(OpenFlags::DSYNC) || self.flags.has(OpenFlags::SYNC),
            call_pages: None,
            locking: self.locking(),
        }
    }

    /// The file's data, if it was ever needed.
    pub(super) fn data(&self) -> Option<Arc<dyn DataFile>> {
        self.pin.state().file.data.clone()
    }

    /// Data is about to change through this handle: its close says so, even of a change that fails,
    /// which may have reached an OST in part.
    fn note_modified(&self) {
        if !self.modified.swap(true, Ordering::Relaxed) {
            let mut state = self.pin.state();
            state.just_created = false;
            state.ask_osts_for_size();
        }
    }

    /// What this client knows of the file and its MDT does not; `Some` whenever data was changed.
    fn close_attributes(&self) -> Option<CloseAttributes> {
        if !self.modified.load(Ordering::Relaxed) {
            let accessed =
                self.pin.state().file.accessed.filter(|_| self.accessed.load(Ordering::Relaxed));
            return accessed.map(|accessed| CloseAttributes::of_access(accessed.seconds));
        }
        let known = self.data().and_then(|data| data.attributes_covered());
        let state = self.pin.state();
        let Some(attributes) = state.last_attributes() else {
            return Some(CloseAttributes { modified: true, ..CloseAttributes::default() });
        };
        let latest = |mine: Timestamp, objects: Option<Timestamp>| {
            objects.map_or(mine, |objects| mine.max(objects)).seconds
        };
        Some(CloseAttributes {
            size: known.map(|known| known.size),
            blocks: known.map_or(0, |known| known.blocks),
            atime: latest(state.accessed_since(attributes.atime), known.map(|known| known.atime)),
            mtime: latest(attributes.mtime, known.map(|known| known.mtime)),
            ctime: latest(attributes.ctime, known.map(|known| known.ctime)),
            mode: attributes.mode,
            modified: true,
        })
    }
}

impl Mounted {
    /// A handle for what was opened; `began_empty` if the file had no bytes then.
    pub(super) fn insert_handle(
        &self,
        who: &Credentials,
        pin: Pin,
        (flags, tally): (OpenFlags, OpenCounts),
        open: Option<OwnOrCachedOpen>,
        began_empty: bool,
    ) -> Opened {
        let mut file = FileDescription::new(pin, flags, who, open);
        file.began_empty = began_empty;
        if flags.bypasses_page_cache() || self.writes_bypass_page_cache(&file, began_empty) {
            file.bypass_page_cache();
        }
        let bypasses_page_cache = file.bypasses_page_cache;
        self.wait_for_handoff(&file);
        let keep_pages = self.kernel_cache.has_notifier() && self.may_keep_pages(&file);
        if !keep_pages {
            self.kernel_cache.forget_pages(file.pin.node());
        }
        let sends_no_flush = self.needs_no_flush(&file);
        file.sends_no_flush = sends_no_flush;
        Opened {
            handle: self.handles.insert(file),
            keep_pages,
            bypasses_page_cache,
            sends_no_flush,
            tally,
        }
    }

    /// Truncates if that is wanted, and returns the handle.
    async fn finish_open(
        &self,
        who: &Credentials,
        pin: Pin,
        (flags, tally): (OpenFlags, OpenCounts),
        open: Option<OwnOrCachedOpen>,
        created: bool,
    ) -> Result<Opened, Errno> {
        if flags.has(OpenFlags::TRUNCATE) && !created {
            let kill_set_id = loses_set_id(who, &pin);
            let changes = SetAttributes { size: Some(0), kill_set_id, ..SetAttributes::default() };
            let right = (SetattrRight::Open, Locking::default());
            if let Err(errno) = self.change(who, &pin, &changes, right).await {
                if let Some(open) = open {
                    self.end_open(who, &pin, open, None).await?;
                }
                return Err(errno);
            }
        }
        let began_empty = created || flags.has(OpenFlags::TRUNCATE);
        Ok(self.insert_handle(who, pin, (flags, tally), open, began_empty))
    }

    /// What a write takes from a file: set-id bits, and the capabilities of a program. The kernel asks for the latter before
    /// the first write, and then believes that there are none until it gets new attributes (`S_NOSEC`); another client may
    /// have given some since.
    async fn take_privileges(&self, file: &FileDescription, caller: Caller) -> Result<(), Errno> {
        self.take_set_id(file, caller).await?;
        self.take_capabilities(&file.who, &file.pin).await
    }

    /// Takes the set-id bits off a file that any user but the superuser writes.
    async fn take_set_id(&self, file: &FileDescription, caller: Caller) -> Result<(), Errno> {
        let forced = caller == Caller::WithoutSetId && has_set_id(&file.pin);
        if !forced && !loses_set_id(&file.who, &file.pin) {
            return Ok(());
        }
        let changes = SetAttributes { kill_set_id: true, ..SetAttributes::default() };
        self.change(&file.who, &file.pin, &changes, (SetattrRight::Mode, Locking::default())).await
    }

    /// Refuses to write through handles that are not for that.
    fn check_writable(&self, file: &FileDescription) -> Result<(), Errno> {
        match file.pin.file_type() {
            _ if !file.flags.writes() => Err(Errno::EBADF),
            Some(FileType::Regular) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// As [`Mounted::with_data_for_call`], of a file that is being written: the MDT gave it a layout at the open.
    async fn with_data_to_write<T, F>(
        &self,
        file: &FileDescription,
        call_pages: Option<CallPages>,
        call: impl Fn(Arc<dyn DataFile>) -> F,
    ) -> Result<T, Errno>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        self.with_data_for_call(&file.who, &file.pin, call_pages, call).await?.ok_or_else(|| {
            tracing::warn!(file = %file.pin.fid, "open for writing, but without a layout");
            Errno::EIO
        })
    }

    /// Makes durable what was written, and then the inode.
    ///
    /// What was written before the kernel forgot the inode, or through another layout, counts: without data at
    /// hand each object is asked once, which costs an OST_SYNC of a file that no client has changed.
    async fn sync(&self, file: &FileDescription) -> Result<(), Errno> {
        let may_have_bytes = file.data().is_some() || !file.began_empty;
        if may_have_bytes && file.pin.file_type() == Some(FileType::Regular) {
            let sync = |data: Arc<dyn DataFile>| async move { Ok(data.sync(Extent::ALL).await?) };
            self.with_data(&file.who, &file.pin, sync).await?;
        }
        if self.meta.is_durable(&file.pin) {
            return Ok(());
        }
        match self.meta.sync(&file.who, &file.pin).await {
            // A directory that is no more: that it was removed is made durable.
            Err(Errno::ENOENT) => self.meta.sync_all(&file.who).await,
            synced => synced,
        }
    }

    /// The attributes of a file that its close sends to the MDT.
    fn close_attributes_of(&self, file: &FileDescription) -> Option<CloseAttributes> {
        let mut close_attributes = file.close_attributes()?;
        if !self.settings.reports_size.get() {
            (close_attributes.size, close_attributes.blocks) = (None, 0);
        }
        Some(close_attributes)
    }

    async fn release_handle(
        &self,
        (handle, file): (FileHandle, Arc<FileDescription>),
        flock: Option<LockOwner>,
        last_use: &mut (dyn Future<Output = ()> + Send + Unpin),
    ) -> Result<(), Errno> {
        let unlocked = self.unlock_closed(handle, &file, flock).await;
        last_use.await;
        self.handles.remove(handle)?;
        self.end_ahead(handle);
        file.end_group_lock().await;
        self.close_in_background(file).await;
        unlocked
    }

    /// The kernel sends RELEASE after the close has returned: no program waits for this.
    async fn close_in_background(&self, file: Arc<FileDescription>) {
        if let Some(cached) = self.note_close(&file) {
            self.close_cached_in_background(&file, &cached).await;
        }
        let open = file.open.lock().take();
        let Some(open) = open else { return };
        let close_attributes = self.close_attributes_of(&file);
        match open {
            OwnOrCachedOpen::Own(open) => {
                let until_answered = (self.closing.begin(), Arc::clone(&file));
                open.close_in_background(&file.who, file.pin.fid, close_attributes, until_answered)
                    .await;
            }
            OwnOrCachedOpen::Cached(cached) if cached.end_use(close_attributes) => {
                self.close_cached_in_background(&file, &cached).await;
            }
            OwnOrCachedOpen::Cached(_) => {}
        }
    }

    async fn close_cached_in_background(&self, file: &Arc<FileDescription>, cached: &CachedOpen) {
        let until_answered = (self.closing.begin(), Arc::clone(file));
        let (fid, attributes) = (file.pin.fid, cached.close_attributes());
        cached.open.close_in_background(&cached.who, fid, attributes, until_answered).await;
    }

    async fn close(&self, file: &FileDescription) -> Result<(), Errno> {
        let open = file.open.lock().take();
        let Some(open) = open else { return Ok(()) };
        let close_attributes = self.close_attributes_of(file);
        self.end_open(&file.who, &file.pin, open, close_attributes).await
    }
}

/// So many zeros, without memory of their own.
fn zeros(length: u64) -> Vec<Bytes> {
    let mut left = length as usize;
    let mut pieces = Vec::with_capacity(left.div_ceil(ZEROS.len()));
    while left > 0 {
        let piece = left.min(ZEROS.len());
        pieces.push(Bytes::from_static(&ZEROS[..piece]));
        left -= piece;
    }
    pieces
}
