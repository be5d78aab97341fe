//! File data: objects on OSTs, their dirty and read-ahead bytes, grants.
//!
//! This file is the narrow face between the rest of the client and the data path. The facade keeps one
//! [`DataFile`] per inode and layout; all reads, writes and size questions of that file go through it. Locks
//! on objects are the data path's own business: it enqueues extent locks in each OST's namespace, keeps these
//! bytes, and lets the kernel keep pages, exactly as long as a lock covers them, and notifies [`DataEvents`] before it
//! cancels one.
//!
//! Costs, counted at both ends (one caller, a lock that is cached):
//!
//! | direct call | RPCs | system calls here | at the OST |
//! |---|---|---|---|
//! | read of 4 KiB, inside the reply | 1 | 5: FUSE 2, `writev`, wait, `recv` | 4: wait, `recv`, `pread`, `writev` |
//! | write of 4 KiB over data, inside the request | 1 | 5 | 4: these with `pwritev` |
//! | read of 1 MiB | 1, one bulk | 11: `recv` 5, waits 3 | 5: `writev` 2 |
//!
//! Allocations of the read: 29 here, 20 at the OST; of the write 25 and 28. Data is copied once by
//! each system call, that of a write once more, out of FUSE's buffer. 5,000 reads of 4 KiB at random
//! places through the kernel's cache are 5,000 RPCs: none is read ahead of them.

mod advice;
mod ahead;
mod counts;
mod data_target;
mod data_targets;
mod extents;
mod file;
mod flush_queue;
mod glimpse;
mod gone;
mod grant;
mod group_lock;
mod layout_guard;
mod lock_loss;
mod mapped;
mod mdt;
mod mdt_locations;
mod negotiated_limits;
mod object;
mod object_calls;
mod page_invalidation;
mod pieces;
mod read;
#[cfg(test)]
mod tests;
mod waiting_calls;
mod write;
mod writes_during_reads;
mod writes_through;

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::client::Config;
use sheen_rpc::Channel;
use sheen_types::{Errno, Extent, Fid, LockMode, Timestamp, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::ost::OstId;

use crate::locks::{ClientNamespace, CoveredCache};
use crate::records::Recorder;
use crate::types::{
    Advice, Credentials, Fallocate, Invalidated, LockedAhead, Seek, Stale, VersionFlush,
};

pub use ahead::Limits as ReadAheadLimits;
pub use counts::{Direction, IoCounts};
pub use data_target::DataTarget;
pub use data_targets::DataTargets;
pub use group_lock::GroupLockedFile;
pub use layout_guard::{LayoutGuard, LayoutVersion, Refusal};
pub(crate) use mdt::InlineView;
pub use mdt::{AddedMdt, InlineData, InodeData, NewTimes, UpdatedTimes};
pub use mdt_locations::MdtLocations;
pub use negotiated_limits::DataTargetSettings;
pub use waiting_calls::{CallPages, WaitingCall};

/// What objects know about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataAttributes {
    /// Bytes of the file.
    pub size: u64,
    /// Blocks of 512 bytes in all objects.
    pub blocks: u64,
    /// Latest of all objects.
    pub atime: Timestamp,
    /// Latest of all objects.
    pub mtime: Timestamp,
    /// Latest of all objects.
    pub ctime: Timestamp,
    /// Whether locks that we hold keep other clients from changing any of this.
    pub covered: bool,
}

/// Data whose checksum was wrong on one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled {
    /// The file.
    pub file: Fid,
    /// Which bytes of the object, the last one included.
    pub extent: Extent,
    /// The checksum as we have it, and as the server has; 0 if that is not known.
    pub sums: (u32, u32),
    /// The bytes as we have them.
    pub data: Vec<Bytes>,
}

/// Dumps garbled data, for inspection. Called during IO: it must not wait.
pub type DumpGarbled = Box<dyn Fn(Garbled) + Send + Sync>;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// At this byte.
    Offset(u64),
    /// Where the file ends, wherever other clients have moved that. The caller thinks that it is here.
    End(u64),
}

/// How a call treats the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoOptions {
    /// `O_DIRECT`: straight to and from the OST.
    pub direct: bool,
    /// `O_SYNC`, `O_DSYNC`: returns when durable.
    pub sync: bool,
    /// What the kernel may hold until the call is answered.
    pub call_pages: Option<CallPages>,
    /// A write of whole pages, of which a program has changed a part through a mapping.
    pub is_mapped: bool,
    /// The locks that the call takes.
    pub locking: Locking,
}

/// Which locks a call on a file's bytes takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locking {
    /// Extent locks are granted as they are asked for and no wider (`LU_LADVISE_LOCKNOEXPAND`).
    pub is_exact: bool,
    /// The group whose lock the open file has; 0 for none.
    pub group: u64,
}

/// Makes [`DataFile`]s. One per mount.
pub trait DataPath: Send + Sync {
    /// The data of the file `fid`, laid out as `layout` says, which was `layout_version` under its lock.
    ///
    /// # Errors
    /// `EINVAL`, `EOPNOTSUPP` for a layout this client cannot read; `ENODEV` for an OST that the
    /// configuration does not know, yet; `EAGAIN` if the layout has changed meanwhile.
    fn file(
        &self,
        fid: Fid,
        layout: Arc<FileLayout>,
        layout_version: LayoutVersion,
    ) -> Result<Arc<dyn DataFile>, Errno>;

    /// Adds an OST, or says where one that was added is now. Answers what keeps its locks.
    fn add_ost(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
    ) -> Arc<ClientNamespace>;

    /// OST number `index` is connected, for the first time or anew: `data` says how much grant it has given
    /// us.
    fn connected(&self, index: u32, data: &ObdConnectData);

    /// Adds an MDT: files may have data on it. `inodes` keeps what else its locks cover.
    fn add_mdt(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
        inodes: Arc<dyn CoveredCache>,
    ) -> AddedMdt;

    /// On which MDT data lies that lies on one. Before the first is added.
    fn locate_by(&self, locations: Arc<MdtLocations>);

    /// MDT number `index` is connected, as [`DataPath::connected`] of an OST.
    fn mdt_connected(&self, index: u32, data: &ObdConnectData);

    /// Until this is dropped a call waits for a file's layout, and the kernel holds these pages for it: a
    /// revocation does not wait for them.
    fn enter_waiting_call(&self, file: Fid, call_pages: CallPages) -> Option<WaitingCall<'_>>;

    /// This client has removed a file's last name and does not have it open: its object locks may be
    /// cancelled soon, together with those of other such files.
    fn note_gone(&self, layout: &FileLayout);

    /// Returns grant that was unused for too long.
    fn return_grant(&self) {}

    /// Where the mount records what its next process needs.
    fn recorder(&self) -> Recorder {
        Recorder::default()
    }

    /// Who is notified before object locks are cancelled.
    fn watch(&self, events: Arc<dyn DataEvents>);

    /// Flushes every file, and returns when all that any OST has is durable there. One RPC
    /// for each OST beside the writes. Failed writes are reported to [`DataEvents::failed`].
    fn sync_all(&self) -> BoxFuture<'static, Result<(), Errno>>;

    /// Flushes every file and cancels all object locks (unmount).
    fn shut_down(&self) -> BoxFuture<'static, ()>;
}

/// The layout of a file as the data path needs it.
pub use sheen_layout::Layout as FileLayout;

/// The data of one file, by one layout. Dropped when the inode is forgotten, after
/// [`DataFile::close`]. What answers [`Refusal::Stale`] has done nothing.
pub trait DataFile: Send + Sync {
    /// Reads up to `length` bytes from `offset`, less only at the end of the file, with holes as
    /// zeros. The pieces share memory with the cache.
    fn read(
        &self,
        offset: u64,
        length: u32,
        options: IoOptions,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, Refusal>>;

    /// Accepts `data`: into the cache within grants, or through to the servers. Answers the offset it
    /// went to. What lies behind the last component of the layout is left out, as on Lustre, and
    /// `ENODATA` is the answer if that is all. `who` owns the blocks (quota) and is checked against
    /// nothing else.
    fn write<'a>(
        &'a self,
        at: WriteAt,
        data: Bytes,
        who: &'a Credentials,
        options: IoOptions,
    ) -> BoxFuture<'a, Result<u64, Refusal>>;

    /// The layout, as it was seen.
    fn layout(&self) -> &FileLayout;

    /// The objects that their targets said last they do not have.
    fn absent(&self) -> Vec<(Uuid, OstId)>;

    /// Whether the lock on the layout was held ever since it was read.
    fn is_current(&self) -> bool;

    /// This data, by a layout that was read once more and is the same.
    fn with_version(&self, layout_version: LayoutVersion) -> Arc<dyn DataFile>;

    /// The largest size that the file can have: what its OSTs can hold in one object each. Beyond it writes
    /// and allocations answer `EFBIG`; so should truncates, before they are sent to the MDT.
    fn bytes_max(&self) -> u64;

    /// Truncates or extends to `size` on the OSTs. The MDT has the size already. `mtime` and `ctime` are the
    /// times of the change.
    fn truncate(
        &self,
        size: u64,
        time: Timestamp,
        locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Sends all dirty bytes that overlap `range` and waits for the OSTs' answers; durable only after
    /// [`DataFile::sync`]. What fails is reported to [`DataEvents::failed`].
    fn flush(&self, range: Extent) -> BoxFuture<'_, ()>;

    /// Flushes `range`, and returns when what could be written of it is durable on the OSTs.
    fn sync(&self, range: Extent) -> BoxFuture<'_, Result<(), Errno>>;

    /// Size, blocks and times: from our own locks where they cover, else by glimpse. No RPC if
    /// locks cover everything.
    fn attributes(&self) -> BoxFuture<'_, Result<DataAttributes, Refusal>>;

    /// As [`DataFile::attributes`] if that needs no RPC.
    fn attributes_covered(&self) -> Option<DataAttributes>;

    /// The size as it was last known, whether or not a lock covers it. No RPC.
    fn last_size(&self) -> u64;

    /// Whether the kernel may still have pages that lack what that size counts.
    fn has_pending_invalidations(&self) -> bool;

    /// Sets the objects' times (utimes on a file with objects): the MDT knows already.
    fn set_times(
        &self,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        ctime: Timestamp,
    ) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Allocates or punches `range`.
    fn fallocate(
        &self,
        what: Fallocate,
        range: Extent,
        locking: Locking,
    ) -> BoxFuture<'_, Result<(), Refusal>>;

    /// The next data or hole from `offset`; `ENXIO` behind the end.
    fn seek(
        &self,
        offset: u64,
        what: Seek,
        locking: Locking,
    ) -> BoxFuture<'_, Result<u64, Refusal>>;

    /// The version of the data: it differs after a change, and may without one. One RPC for each object.
    fn data_version(&self, flush: VersionFlush) -> BoxFuture<'_, Result<u64, Refusal>>;

    /// No program has the file open any more: cached data may stay while locks cover it, but for what was read ahead.
    fn idle(&self);

    /// The file has no name and no opener any more, or its layout changed: its bytes are dropped (flushed first
    /// if `flush`), object locks cancelled.
    fn close(&self, flush: bool) -> BoxFuture<'_, ()>;

    /// Group locks that keep all readers and writers but those of the group `gid` from the file until they are
    /// dropped. Unless it `waits`, `EAGAIN` if another group holds the file.
    fn group_lock(
        &self,
        gid: u64,
        waits: bool,
    ) -> BoxFuture<'_, Result<Arc<dyn GroupLockedFile>, Refusal>>;

    /// Advises the OSTs about the bytes of `range`. One RPC for each object; they are not waited for if the advice
    /// is given in the background. An MDT takes no advice about the bytes that it has.
    fn advise(&self, advice: Advice, range: Extent) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Acquires locks on `range` that are kept unused, exactly so wide. In the background, none is waited for, and
    /// one that conflicts with another client's is refused.
    fn lock_ahead(
        &self,
        range: Extent,
        mode: LockMode,
        in_background: bool,
    ) -> BoxFuture<'_, Result<LockedAhead, Refusal>>;

    /// The file's bytes lie elsewhere now: flushes it, and has the kernel drop its pages.
    fn moved_away(&self) -> BoxFuture<'_, ()>;
}

/// What the data path notifies the rest of the client of before it cancels an object lock.
pub trait DataEvents: Send + Sync {
    /// Size and times of the file are no longer covered, nor are these bytes: the kernel must drop its pages
    /// of them, and the size must not be used. The lock is cancelled when that is done, or is blocked on a
    /// page of a call that itself waits ([`CallPages`]).
    fn invalidate(&self, fid: Fid, stale: Stale) -> BoxFuture<'static, Invalidated>;

    /// Bytes that a write has reported as accepted are lost. Called before a flush that waits for them
    /// returns.
    fn failed(&self, fid: Fid, errno: Errno);
}
