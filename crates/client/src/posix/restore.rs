//! Going on with what an earlier process of the mount had open ([`crate::records`]).
//!
//! The new process is a new client to the servers. In this order: it opens again, by FID, what the kernel has
//! open, while the earlier client's opens keep orphans from being removed; it has the servers forget the earlier
//! client, whose locks nothing covers any more; and it acquires the file locks that programs hold.
//!
//! What the earlier process had accepted and not flushed is lost with its memory: `fsync` and `close` of each
//! handle of such a file say so, once, as for any write-back that failed.
//!
//! Costs one RPC for each open handle and file lock, and one for each target.

use std::sync::OnceLock;
use std::time::Duration;

use sheen_io::within;
use sheen_rpc::FormerExport;
use sheen_types::futures::{self, BoxFuture};
use sheen_types::{Errno, Fid, Name, Uuid};
use tokio::sync::Notify;

use super::handles::FileDescription;
use super::{
    Credentials, Entry, FileHandle, FileLock, FileSystem, LockOwner, Lookup, Mounted, NodeId,
    OpenFlags, Opened,
};
use crate::boxed;
use crate::meta::OwnOrCachedOpen;
use crate::records::{FileLockOwnerRecord, OpenRecord, Record, Recorded};

/// Opens on the wire at once.
const AT_ONCE: usize = 64;
/// How long opens may take before the earlier client is disconnected all the same: it may hold what they wait
/// for.
const OPENS_WAIT: Duration = Duration::from_secs(5);
/// How long targets may take to disconnect it; those that take longer do so later.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// What is known of an earlier process of the mount.
#[derive(Default)]
pub(crate) struct FormerProcess {
    /// The sequences of the FIDs that it made.
    sequences: OnceLock<Vec<u64>>,
}

/// What an earlier process's records came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The inodes that the kernel knows, the root among them.
    pub nodes: Vec<NodeId>,
    /// Handles that go on.
    pub opens: usize,
    /// Handles of files that could not be opened again: each use of them is `ESTALE`.
    pub opens_lost: usize,
    /// File locks that another client has acquired meanwhile.
    pub locks_lost: usize,
    /// Files of which accepted bytes are lost.
    pub files_unflushed: usize,
}

/// Records by kind.
#[derive(Default)]
struct Sorted {
    opens: Vec<OpenRecord>,
    unflushed: Vec<Fid>,
    locks: Vec<(Fid, LockOwner, FileLock)>,
    file_lock_owners: Vec<(Fid, FileLockOwnerRecord)>,
    exports: Vec<(Uuid, FormerExport)>,
    sequences: Vec<u64>,
}

impl FileSystem {
    /// Takes over what the records of an earlier process say, before any call is answered. New handles get
    /// numbers behind `handles_end`.
    #[boxed]
    pub async fn restore(&self, records: &[Record], handles_end: u64) -> Restored {
        let mut restored = Restored::default();
        let sorted = self.sort(records, &mut restored);
        self.0.handles.begin_behind(handles_end);
        self.record_sequences(&sorted.sequences);
        let opened = Notify::new();
        let mut lost = 0;
        let opens = async {
            lost = self.open_again(&sorted.opens).await;
            opened.notify_one();
        };
        let leave = async {
            within(&*self.0.targets.world.clock, OPENS_WAIT, opened.notified()).await;
            self.disconnect_former(&sorted.exports).await;
        };
        let both: Vec<BoxFuture<'_, ()>> = vec![Box::pin(opens), Box::pin(leave)];
        futures::all(both).await;
        restored.opens_lost = lost;
        restored.opens = sorted.opens.len() - lost;
        let file_lock_owners = sorted.file_lock_owners.iter();
        file_lock_owners.for_each(|(fid, locker)| self.0.file_locks_taken.restore(*fid, locker));
        restored.locks_lost = self.lock_again(&sorted.locks).await;
        restored.files_unflushed = self.report_unflushed(sorted.unflushed);
        restored
    }

    /// Puts inodes into the table, and returns the other records.
    fn sort(&self, records: &[Record], restored: &mut Restored) -> Sorted {
        let mut sorted = Sorted::default();
        restored.nodes.push(NodeId::ROOT);
        for record in records {
            match record {
                Record::Inode { lookups: 0, .. } => {}
                Record::Inode { node, fid, lookups } => {
                    self.0.inodes.restore(*node, *fid, *lookups);
                    restored.nodes.push(*node);
                }
                Record::Open(open) => sorted.opens.push(*open),
                Record::Unflushed(fid) => sorted.unflushed.push(*fid),
                Record::FileLock { fid, owner, lock } => sorted.locks.push((*fid, *owner, *lock)),
                Record::FileLockOwner { fid, locker } => {
                    sorted.file_lock_owners.push((*fid, *locker))
                }
                Record::Export { target, export } => sorted.exports.push((target.clone(), *export)),
                Record::Sequence(sequence) => sorted.sequences.push(*sequence),
            }
        }
        sorted
    }

    /// The next process must know them, too: a call may be sent to it that two before it began.
    fn record_sequences(&self, sequences: &[u64]) {
        for mdt in self.0.meta.mdts() {
            sequences.iter().for_each(|sequence| mdt.fids.record(*sequence));
        }
        let first = self.0.former.sequences.set(sequences.to_vec()).is_ok();
        debug_assert!(first, "restored once");
    }

    /// Opens again; answers how many could not be.
    async fn open_again(&self, opens: &[OpenRecord]) -> usize {
        let mut lost = 0;
        for some in opens.chunks(AT_ONCE) {
            let calls: Vec<BoxFuture<'_, _>> =
                some.iter().map(|open| Box::pin(self.0.reopen(open)) as BoxFuture<'_, _>).collect();
            for (open, result) in some.iter().zip(futures::all(calls).await) {
                let Err(errno) = result else { continue };
                tracing::warn!(handle = open.handle, node = open.node.0, %errno,
                    "an open file could not be opened again: it is stale");
                self.0.handles.lose(FileHandle(open.handle));
                lost += 1;
            }
        }
        lost
    }

    async fn disconnect_former(&self, exports: &[(Uuid, FormerExport)]) {
        let leave = |(target, export): &(Uuid, FormerExport)| {
            let (targets, target, export) = (self.0.targets.clone(), target.clone(), *export);
            let (left, waits) = (std::sync::Arc::new(Notify::new()), self.0.targets.clone());
            let leaves = std::sync::Arc::clone(&left);
            let task = async move {
                targets.disconnect_former(&target, export).await;
                leaves.notify_one();
            };
            waits.world.tasks.spawn("leave former", Box::pin(task));
            Box::pin(async move { left.notified().await }) as BoxFuture<'_, ()>
        };
        let all = futures::all(exports.iter().map(leave).collect());
        within(&*self.0.targets.world.clock, LEAVE_WAIT, all).await;
    }

    /// Acquires file locks; answers how many other clients have now.
    async fn lock_again(&self, locks: &[(Fid, LockOwner, FileLock)]) -> usize {
        let mut lost = 0;
        for (fid, owner, lock) in locks {
            self.0.file_locks_taken.note();
            let Some(pin) = self.0.inodes.pin_known(*fid) else { continue };
            let Err(errno) = self.0.meta.lock_again(&pin, *owner, *lock).await else {
                continue;
            };
            tracing::warn!(file = %fid, pid = lock.pid, %errno, "a file lock is lost");
            pin.state().file.failures.note(Errno::EIO);
            lost += 1;
        }
        lost
    }

    /// What was accepted and not flushed is lost; answers of how many files.
    fn report_unflushed(&self, mut files: Vec<Fid>) -> usize {
        files.sort_unstable();
        files.dedup();
        for fid in &files {
            tracing::warn!(file = %fid, "written data was lost: it was not flushed when the mount's process ended");
            if let Some(pin) = self.0.inodes.pin_known(*fid) {
                pin.state().file.failures.note(Errno::EIO);
            }
        }
        files.len()
    }

    /// Records, until what is returned is dropped, that bytes of the file are not at its OSTs which the kernel
    /// takes for written.
    #[must_use]
    pub fn record_unflushed(&self, node: NodeId) -> Option<Recorded> {
        let fid = self.fid(node).ok()?;
        self.0.data.recorder().record(|| Record::Unflushed(fid))
    }

    /// Whether an earlier process of the mount has made it.
    fn was_made_by_former(&self, node: NodeId) -> bool {
        let sequences = self.0.former.sequences.get();
        let fid = self.fid(node).ok();
        fid.zip(sequences).is_some_and(|(fid, sequences)| sequences.contains(&fid.seq))
    }

    /// The entry of a name that an earlier process of the mount has made, as it seems, when it was asked for it
    /// and could not answer. `None` if it did not. Counts as a lookup. One RPC.
    ///
    /// # Errors
    /// As `stat(2)`.
    #[boxed]
    pub async fn entry_made_by_former(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
    ) -> Result<Option<Entry>, Errno> {
        let Lookup::Found(entry) = self.lookup(who, parent, name).await? else { return Ok(None) };
        if self.was_made_by_former(entry.node) {
            return Ok(Some(entry));
        }
        self.forget(entry.node, 1);
        Ok(None)
    }

    /// As [`Self::entry_made_by_former`], of a file that the earlier process has made and opened, whatever its mode
    /// says now. Two RPCs.
    ///
    /// # Errors
    /// As `open(2)`.
    #[boxed]
    pub async fn file_created_by_former(
        &self,
        who: &Credentials,
        parent: NodeId,
        name: &Name,
        flags: OpenFlags,
    ) -> Result<Option<(Entry, Opened)>, Errno> {
        let Some(entry) = self.entry_made_by_former(who, parent, name).await? else {
            return Ok(None);
        };
        let opened = self.0.open_once_more(who, entry.node, flags).await;
        if opened.is_err() {
            self.forget(entry.node, 1);
        }
        Ok(Some((entry, opened?)))
    }

    /// Whether a write that is sent once more may be at the end of the file already: it has its place there, and was
    /// sent to the OSTs before it was answered. At most a glimpse at each object.
    ///
    /// # Errors
    /// As `fstat(2)`.
    #[boxed]
    pub async fn may_have_appended(&self, handle: FileHandle, offset: u64) -> Result<bool, Errno> {
        let file = self.0.handles.get(handle)?;
        let (flags, through) = (file.flags, [OpenFlags::DIRECT, OpenFlags::SYNC, OpenFlags::DSYNC]);
        let is_through = through.iter().any(|bit| flags.has(*bit));
        if !flags.has(OpenFlags::APPEND) || !is_through {
            return Ok(false);
        }
        let stat = self.0.stat(&file.who, &file.pin).await?;
        Ok(stat.attributes.size > offset)
    }
}

impl Mounted {
    /// Opens what the kernel has open.
    async fn reopen(&self, record: &OpenRecord) -> Result<(), Errno> {
        let pin = self.pin(record.node)?;
        let flags = OpenFlags(record.flags);
        let open = self.meta.open(&Credentials::root(), &pin, flags.without_creation()).await?;
        if flags.writes() {
            pin.state().ask_osts_for_size();
        }
        let (uid, gid) = record.owner;
        let who = Credentials { uid, gid, pid: record.pid, ..Credentials::root() };
        let mut file = FileDescription::new(pin, flags, &who, open.map(OwnOrCachedOpen::Own));
        file.sends_no_flush = record.sends_no_flush;
        if record.bypasses_page_cache {
            file.bypass_page_cache();
        }
        self.handles.restore(FileHandle(record.handle), file);
        Ok(())
    }

    /// Opens what was opened for this caller before.
    async fn open_once_more(
        &self,
        who: &Credentials,
        node: NodeId,
        flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        let pin = self.pin(node)?;
        let open = self.meta.open(&Credentials::root(), &pin, flags.without_creation()).await?;
        let tally = self.count_open(&pin);
        let open = open.map(OwnOrCachedOpen::Own);
        Ok(self.insert_handle(who, pin, (flags, tally), open, false))
    }
}
