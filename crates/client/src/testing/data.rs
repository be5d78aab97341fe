//! Files whose bytes are in memory.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_layout::Mapping;
use sheen_ldlm::client::Config;
use sheen_rpc::Channel;
use sheen_types::{Errno, Extent, Fid, HashMap, LockMode, ResourceName, Timestamp, Uuid};
use sheen_wire::ost::OstId;

use crate::data::{
    AddedMdt, CallPages, DataAttributes, DataEvents, DataFile, DataPath, FileLayout,
    GroupLockedFile, InlineData, InodeData, IoOptions, LayoutVersion, Locking, MdtLocations,
    NewTimes, Refusal, UpdatedTimes, WaitingCall, WriteAt,
};
use crate::locks::{ClientNamespace, CoveredCache, LostLock};
use crate::posix::{Credentials, Fallocate, Seek, VersionFlush};
use crate::testing::TestWorld;
use crate::types::{Advice, LockedAhead};

/// All files.
#[derive(Default)]
pub(crate) struct FakeData {
    pub(crate) files: Mutex<HashMap<Fid, Arc<FakeFile>>>,
    pub(crate) osts: Mutex<Vec<u32>>,
    /// How often an OST is not known yet.
    pub(crate) unknown: Mutex<u32>,
    /// Objects of files that are gone.
    pub(crate) gone: Mutex<Vec<Fid>>,
    /// Pages that the kernel held for calls that had to ask for a layout.
    pub(crate) asked: Mutex<Vec<(Fid, Extent)>>,
}

/// One file.
#[derive(Default)]
pub(crate) struct FakeFile {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) covered: Mutex<bool>,
    pub(crate) done: Mutex<Vec<String>>,
    /// Writes wait for this.
    pub(crate) hold: Mutex<Option<Arc<tokio::sync::Notify>>>,
    /// What OSTs answer to all that concerns the file, if they have it not.
    pub(crate) refused: Mutex<Option<Errno>>,
    /// What the kernel holds for the last read.
    pub(crate) call_pages: Mutex<Option<CallPages>>,
    /// The kernel has pages that lack some of the bytes.
    pub(crate) has_pending_invalidations: Mutex<bool>,
}

impl FakeFile {
    fn note<T, E>(&self, what: String, value: T) -> BoxFuture<'_, Result<T, E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.done.lock().push(what);
        Box::pin(std::future::ready(Ok(value)))
    }

    fn known(&self) -> DataAttributes {
        DataAttributes {
            size: self.bytes.lock().len() as u64,
            blocks: 8,
            mtime: Timestamp::from_seconds(500),
            covered: *self.covered.lock(),
            ..DataAttributes::default()
        }
    }
}

/// Guards nothing.
pub(crate) struct CoveredNothing;

impl CoveredCache for CoveredNothing {
    fn flush_and_invalidate(
        &self,
        _locks: &Arc<ClientNamespace>,
        _lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn invalidate_evicted(
        &self,
        _locks: &Arc<ClientNamespace>,
        _lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn glimpse(&self, _resource: ResourceName) -> Option<Bytes> {
        None
    }
}

/// Notes what is brought and flushed.
#[derive(Default)]
pub(crate) struct FakeInodeData {
    pub(crate) done: Mutex<Vec<String>>,
    pub(crate) dirty: Mutex<bool>,
}

impl InodeData for FakeInodeData {
    fn insert_inline(
        &self,
        fid: Fid,
        mapping: Mapping,
        offset: u64,
        data: Bytes,
    ) -> Option<InlineData> {
        let end = mapping.extent.end;
        self.done.lock().push(format!("brought {fid} {offset}+{} of 0..={end}", data.len()));
        None
    }

    fn is_dirty(&self, _: Fid) -> bool {
        *self.dirty.lock()
    }

    fn update_times(&self, _: Fid, times: NewTimes) -> Option<UpdatedTimes> {
        let seconds = |time: Option<Timestamp>| time.map(|time| time.seconds);
        self.done.lock().push(format!(
            "times {:?} {:?}",
            seconds(times.atime),
            seconds(times.mtime)
        ));
        None
    }
}

/// The same file behind every handle.
struct Shared(Arc<FakeFile>, Arc<FileLayout>, LayoutVersion);

impl DataPath for FakeData {
    fn file(
        &self,
        fid: Fid,
        layout: Arc<FileLayout>,
        layout_version: LayoutVersion,
    ) -> Result<Arc<dyn DataFile>, Errno> {
        let mut unknown = self.unknown.lock();
        if *unknown > 0 {
            *unknown -= 1;
            return Err(Errno::ENODEV);
        }
        let mut files = self.files.lock();
        Ok(Arc::new(Shared(Arc::clone(files.entry(fid).or_default()), layout, layout_version)))
    }

    fn add_ost(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
    ) -> Arc<ClientNamespace> {
        self.osts.lock().push(index);
        ClientNamespace::new(
            name,
            TestWorld::new(1).world(),
            channel,
            config,
            Arc::new(CoveredNothing),
        )
    }

    fn connected(&self, _: u32, _: &sheen_wire::connect::ObdConnectData) {}

    fn add_mdt(
        &self,
        _index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
        inodes: Arc<dyn CoveredCache>,
    ) -> AddedMdt {
        let locks = ClientNamespace::new(name, TestWorld::new(1).world(), channel, config, inodes);
        AddedMdt { locks, data: Arc::new(FakeInodeData::default()) }
    }

    fn locate_by(&self, _: Arc<MdtLocations>) {}

    fn mdt_connected(&self, _: u32, _: &sheen_wire::connect::ObdConnectData) {}

    fn enter_waiting_call(&self, file: Fid, call_pages: CallPages) -> Option<WaitingCall<'_>> {
        self.asked.lock().push((file, call_pages.range()));
        None
    }

    fn note_gone(&self, layout: &FileLayout) {
        self.gone.lock().extend(layout.stripes().map(|stripe| stripe.object));
    }

    fn watch(&self, _events: Arc<dyn DataEvents>) {}

    fn sync_all(&self) -> BoxFuture<'static, Result<(), Errno>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn shut_down(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl DataFile for Shared {
    fn absent(&self) -> Vec<(Uuid, OstId)> {
        Vec::new()
    }

    fn read(
        &self,
        offset: u64,
        length: u32,
        options: IoOptions,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, Refusal>> {
        *self.0.call_pages.lock() = options.call_pages;
        if let Some(errno) = *self.0.refused.lock() {
            return Box::pin(std::future::ready(Err(errno.into())));
        }
        let bytes = self.0.bytes.lock();
        let start = (offset as usize).min(bytes.len());
        let end = (start + length as usize).min(bytes.len());
        let piece = Bytes::copy_from_slice(&bytes[start..end]);
        Box::pin(std::future::ready(Ok(vec![piece])))
    }

    fn write<'a>(
        &'a self,
        at: WriteAt,
        data: Bytes,
        _who: &'a Credentials,
        _options: IoOptions,
    ) -> BoxFuture<'a, Result<u64, Refusal>> {
        Box::pin(async move {
            let hold = self.0.hold.lock().clone();
            if let Some(hold) = hold {
                hold.notified().await;
            }
            let mut bytes = self.0.bytes.lock();
            let offset = match at {
                WriteAt::Offset(offset) => offset as usize,
                WriteAt::End(_) => bytes.len(),
            };
            let end = (offset + data.len()).max(bytes.len());
            bytes.resize(end, 0);
            bytes[offset..offset + data.len()].copy_from_slice(&data);
            drop(bytes);
            self.0.done.lock().push(format!("write {offset}+{}", data.len()));
            Ok(offset as u64)
        })
    }

    fn layout(&self) -> &FileLayout {
        &self.1
    }

    fn is_current(&self) -> bool {
        self.2.is_current()
    }

    fn with_version(&self, layout_version: LayoutVersion) -> Arc<dyn DataFile> {
        Arc::new(Self(Arc::clone(&self.0), Arc::clone(&self.1), layout_version))
    }

    fn group_lock(
        &self,
        _gid: u64,
        _waits: bool,
    ) -> BoxFuture<'_, Result<Arc<dyn GroupLockedFile>, Refusal>> {
        Box::pin(std::future::ready(Err(Errno::EOPNOTSUPP.into())))
    }

    fn moved_away(&self) -> BoxFuture<'_, ()> {
        self.0.done.lock().push("moved away".to_owned());
        Box::pin(std::future::ready(()))
    }

    fn bytes_max(&self) -> u64 {
        1 << 44
    }

    fn truncate(
        &self,
        size: u64,
        _time: Timestamp,
        _locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        self.0.bytes.lock().resize(size as usize, 0);
        self.0.note(format!("truncate {size}"), ())
    }

    fn flush(&self, _range: Extent) -> BoxFuture<'_, ()> {
        self.0.done.lock().push("flush".to_owned());
        Box::pin(std::future::ready(()))
    }

    fn sync(&self, _range: Extent) -> BoxFuture<'_, Result<(), Errno>> {
        self.0.note("sync".to_owned(), ())
    }

    fn attributes(&self) -> BoxFuture<'_, Result<DataAttributes, Refusal>> {
        if let Some(errno) = *self.0.refused.lock() {
            return Box::pin(std::future::ready(Err(errno.into())));
        }
        self.0.note("glimpse".to_owned(), self.0.known())
    }

    fn attributes_covered(&self) -> Option<DataAttributes> {
        Some(self.0.known()).filter(|known| known.covered)
    }

    fn last_size(&self) -> u64 {
        self.0.known().size
    }

    fn has_pending_invalidations(&self) -> bool {
        *self.0.has_pending_invalidations.lock()
    }

    fn set_times(
        &self,
        _atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        _ctime: Timestamp,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        self.0.note(format!("times {:?}", mtime.map(|time| time.seconds)), ())
    }

    fn data_version(&self, _flush: VersionFlush) -> BoxFuture<'_, Result<u64, Refusal>> {
        Box::pin(std::future::ready(Err(Errno::EOPNOTSUPP.into())))
    }

    fn fallocate(
        &self,
        what: Fallocate,
        range: Extent,
        _locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        let length = range.end - range.start + 1;
        self.0.note(format!("{what:?} {}+{length}", range.start), ())
    }

    fn advise(&self, advice: Advice, range: Extent) -> BoxFuture<'_, Result<(), Refusal>> {
        self.0.note(format!("{:?} {range}", advice.kind), ())
    }

    fn lock_ahead(
        &self,
        range: Extent,
        mode: LockMode,
        _in_background: bool,
    ) -> BoxFuture<'_, Result<LockedAhead, Refusal>> {
        self.0.note(format!("lock ahead {mode} {range}"), LockedAhead::Sent)
    }

    fn seek(
        &self,
        offset: u64,
        _what: Seek,
        _locking: Locking,
    ) -> BoxFuture<'_, Result<u64, Refusal>> {
        self.0.note("seek".to_owned(), offset)
    }

    fn idle(&self) {}

    fn close(&self, flush: bool) -> BoxFuture<'_, ()> {
        self.0.done.lock().push(format!("close {flush}"));
        Box::pin(std::future::ready(()))
    }
}
