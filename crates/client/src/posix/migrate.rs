//! Moving a file's bytes to another layout while it is in use (`lfs migrate`), and exchanging those of
//! two files (`lfs swap_layouts`).
//!
//! The file is held (see [`crate::data::GroupLockedFile`]), its data copied into a file without a name that has the
//! new layout, and made durable there; then the MDT exchanges the layouts of the two in one transaction, and
//! the nameless one takes the old objects along. A call that waited for the hold finds the layout changed and
//! uses the new one. A crash of a client or server before that transaction leaves the old layout, one after
//! it the new.
//!
//! The copy runs in a task of its own: the caller may be interrupted, which ends the copy at its next piece
//! and leaves nothing.
//!
//! Cost: three RPCs to the MDT, one lock on each object, one read and one write of each piece of data,
//! four pieces of 4 MiB at once; holes are asked for and skipped. All data is copied twice, out of and
//! into the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::futures;
use sheen_types::{Errno, Extent, Fid, HashMap, Instant, Timestamp};
use tokio::sync::oneshot;

use super::inodes::merge;
use super::{Attributes, FileSystem, FileType, Mounted, NodeId, OpenFlags, Seek};
use crate::cache::{Inode, Pin};
use crate::data::{DataFile, GroupLockedFile, IoOptions, Locking, WriteAt};
use crate::mdt::MdtOpen;
use crate::types::Credentials;

/// `O_RDWR`.
const READ_WRITE: u32 = 2;
/// Bytes of one piece.
const PIECE: u64 = 4 << 20;
/// Pieces under way at once.
const PIECES: u64 = 4;
/// How often a move that goes slowly looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What moves, by file.
#[derive(Default)]
pub(crate) struct Migrations(Mutex<HashMap<Fid, Arc<Migration>>>);

/// A file on its way.
#[derive(Default)]
struct Migration {
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
}

/// How to move a file.
struct MigrateRequest {
    /// Wait for other holders of the file.
    waits: bool,
    /// Bytes in a second; 0 for no limit.
    bandwidth: u64,
    /// Where to; as the directory says if it is empty.
    layout: Bytes,
}

/// Cancels a move whose caller has gone.
struct Caller(Arc<Migration>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}

impl MigrateRequest {
    /// `block=0|1 bandwidth=BYTES direct=0|1`, a newline, and a layout as `lustre.lov` takes it. `None`, whatever is
    /// wrong: the tool that sends it is ours.
    fn parse(value: &Bytes) -> Option<Self> {
        let end = value.iter().position(|byte| *byte == b'\n')?;
        let words = std::str::from_utf8(&value[..end]).ok()?;
        let mut request = Self { waits: true, bandwidth: 0, layout: value.slice(end + 1..) };
        for word in words.split_ascii_whitespace() {
            match word.split_once('=')? {
                ("block", "0") => request.waits = false,
                ("block", "1") => request.waits = true,
                ("bandwidth", number) => request.bandwidth = number.parse().ok()?,
                // Copies bypass the caches here in any case.
                ("direct", "0" | "1") => {}
                _ => return None,
            }
        }
        Some(request)
    }
}

impl FileSystem {
    /// Moves a file as `value` says. Returns when it is done, or given up.
    ///
    /// # Errors
    /// `EINVAL` for what is no regular file or no order, `EBUSY` if it is being moved or held by another,
    /// `EINTR` if the caller is interrupted; as `open(2)` to write, and `write(2)`.
    pub(super) async fn migrate(
        &self,
        who: &Credentials,
        node: NodeId,
        value: &Bytes,
    ) -> Result<(), Errno> {
        let request = MigrateRequest::parse(value).ok_or(Errno::EINVAL)?;
        let inode = self.0.pin(node)?;
        if inode.file_type() != Some(FileType::Regular) {
            return Err(Errno::EINVAL);
        }
        let migration = Arc::new(Migration::default());
        match self.0.migrations.0.lock().entry(inode.fid) {
            std::collections::hash_map::Entry::Occupied(_) => return Err(Errno::EBUSY),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Arc::clone(&migration))
            }
        };
        let caller = Caller(Arc::clone(&migration));
        let (sender, answer) = oneshot::channel();
        let (mounted, who, fid) = (Arc::clone(&self.0), who.clone(), inode.fid);
        let task = async move {
            let moved = mounted.move_file(&who, inode, &request, &migration).await;
            mounted.migrations.0.lock().remove(&fid);
            // The caller may have been interrupted.
            let _ = sender.send(moved);
        };
        self.0.meta.world.tasks.spawn("migrate", Box::pin(task));
        // Only a task that ended with the mount gives no answer.
        let moved = answer.await.map_err(|_| Errno::EIO)?;
        drop(caller);
        moved
    }

    /// How far a file has been moved: bytes done and in all, as text.
    ///
    /// # Errors
    /// `ENODATA` if it is not being moved.
    pub(super) fn migration(&self, node: NodeId) -> Result<Bytes, Errno> {
        let inode = self.0.pin(node)?;
        let migrations = self.0.migrations.0.lock();
        let migration = migrations.get(&inode.fid).ok_or(Errno::ENODATA)?;
        let (done, total) = (&migration.done, &migration.total);
        let (done, total) = (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        Ok(format!("{done} {total}\n").into())
    }

    /// Exchanges the bytes of a file and of the one whose FID `value` is.
    ///
    /// # Errors
    /// `EINVAL` for what is no FID or no regular file; what the MDT answers.
    pub(super) async fn swap_layouts(
        &self,
        who: &Credentials,
        node: NodeId,
        value: &Bytes,
    ) -> Result<(), Errno> {
        let first = self.0.pin(node)?;
        let fid = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<Fid>().ok());
        let second = self.0.inodes.pin(fid.ok_or(Errno::EINVAL)?);
        let gid = self.0.group();
        // As for a move: what is cached of either must not be written into the other.
        let mut both = [&first, &second];
        both.sort_unstable_by_key(|inode| inode.fid);
        let mut locked = Vec::new();
        for inode in both {
            let lock = |data: Arc<dyn DataFile>| async move { data.group_lock(gid, true).await };
            locked.push(self.0.with_data(who, inode, lock).await?);
        }
        self.0.meta.swap_layouts(who, &first, &second).await?;
        for inode in both {
            self.0.moved(inode);
        }
        Ok(())
    }
}

impl Mounted {
    /// A group of locks that has no other member.
    fn group(&self) -> u64 {
        self.meta.world.random.number() | 1
    }

    /// The file's bytes lie elsewhere now. The lock on its layout was cancelled already.
    fn moved(&self, inode: &Inode) {
        let mut state = inode.state();
        state.file.layout_guard.layout_revoked();
        state.ask_osts_for_size();
    }

    async fn move_file(
        &self,
        who: &Credentials,
        inode: Pin,
        request: &MigrateRequest,
        migration: &Migration,
    ) -> Result<(), Errno> {
        // Permission is that to read and write it.
        let open = self.meta.open(who, &inode, OpenFlags(READ_WRITE)).await?;
        let moved = match self.directory_of(&inode) {
            Some(parent) => self.move_open(who, (&parent, &inode), request, migration).await,
            None => Err(Errno::ENOENT),
        };
        self.close_quietly(who, &inode, open).await;
        moved
    }

    /// A directory that the file has a name in, as far as it is known: that is where a new file of the
    /// caller's may be made.
    fn directory_of(&self, inode: &Inode) -> Option<Pin> {
        let parent = inode.state().names.seen.first().map(|seen| seen.parent)?;
        self.pin(parent).ok()
    }

    async fn move_open(
        &self,
        who: &Credentials,
        (parent, inode): (&Inode, &Inode),
        request: &MigrateRequest,
        migration: &Migration,
    ) -> Result<(), Errno> {
        let layout = Some(request.layout.clone()).filter(|layout| !layout.is_empty());
        let volatile = self.meta.open_volatile(who, parent, (inode, layout)).await?;
        let moved = self.move_into(who, (inode, &volatile.pin), request, migration).await;
        self.close_quietly(who, &volatile.pin, volatile.open).await;
        moved
    }

    /// Copies and exchanges. Readers and writers wait from the first byte copied until the layouts are
    /// exchanged.
    async fn move_into(
        &self,
        who: &Credentials,
        (inode, volatile): (&Inode, &Inode),
        request: &MigrateRequest,
        migration: &Migration,
    ) -> Result<(), Errno> {
        let gid = self.group();
        let lock =
            |data: Arc<dyn DataFile>| async move { data.group_lock(gid, request.waits).await };
        let locked = match self.with_data(who, inode, lock).await {
            Err(Errno::EAGAIN) => return Err(Errno::EBUSY),
            locked => locked?.ok_or(Errno::EINVAL)?,
        };
        // Not as `stat` does: that waits for pages which are held for calls that wait for the group locks.
        self.refresh(who, inode).await?;
        let mut attributes = inode.state().attributes_shown().ok_or(Errno::EIO)?;
        merge(&mut attributes, &locked.attributes());
        migration.total.store(attributes.size, Ordering::Relaxed);
        self.copy(&*locked, volatile, &attributes, request, migration).await?;
        if !locked.is_intact() {
            tracing::warn!(file = %inode.fid, "a server has forgotten who held a file on its way");
            return Err(Errno::EIO);
        }
        self.meta.swap_layouts(who, inode, volatile).await?;
        self.moved(inode);
        self.moved(volatile);
        Ok(())
    }

    async fn copy(
        &self,
        locked: &dyn GroupLockedFile,
        volatile: &Inode,
        attributes: &Attributes,
        request: &MigrateRequest,
        migration: &Migration,
    ) -> Result<(), Errno> {
        // What is written belongs to the file's owner, whichever user moves it.
        let owner =
            &Credentials { uid: attributes.uid, gid: attributes.gid, ..Credentials::root() };
        let size = attributes.size;
        let mut throttle = Throttle { start: self.meta.world.clock.now(), bytes: 0 };
        let mut at = 0;
        while let Some(start) = locked.next(at, Seek::Data).await?.filter(|start| *start < size) {
            let end = locked.next(start, Seek::Hole).await?.unwrap_or(size).min(size);
            let mut from = start;
            while from < end {
                if migration.is_cancelled.load(Ordering::Relaxed) {
                    return Err(Errno::EINTR);
                }
                let until = end.min(from + PIECE * PIECES);
                self.copy_pieces(locked, volatile, owner, (from, until)).await?;
                migration.done.store(until, Ordering::Relaxed);
                self.throttle_copy(&mut throttle, until - from, request.bandwidth, migration).await;
                from = until;
            }
            at = end;
        }
        self.finish_copy(volatile, owner, attributes).await
    }

    /// Copies bytes that one after the other is data, in pieces at once.
    async fn copy_pieces(
        &self,
        locked: &dyn GroupLockedFile,
        volatile: &Inode,
        owner: &Credentials,
        (from, until): (u64, u64),
    ) -> Result<(), Errno> {
        let starts = (from..until).step_by(PIECE as usize);
        let pieces = starts.map(|start| async move {
            let length = PIECE.min(until - start);
            let data: Bytes = locked.read(start, length).await?.concat().into();
            let write = |file: Arc<dyn DataFile>| {
                let data = data.clone();
                let options = IoOptions { direct: true, ..IoOptions::default() };
                async move { file.write(WriteAt::Offset(start), data, owner, options).await }
            };
            self.with_data(owner, volatile, write).await?.ok_or(Errno::EIO)
        });
        futures::all(pieces.collect()).await.into_iter().try_for_each(|copied| copied.map(|_| ()))
    }

    /// Gives the copy its size and times, and makes it durable.
    async fn finish_copy(
        &self,
        volatile: &Inode,
        owner: &Credentials,
        attributes: &Attributes,
    ) -> Result<(), Errno> {
        let Attributes { size, atime, mtime, ctime, .. } = *attributes;
        if size > 0 {
            self.prepare_truncate(owner, volatile, size).await?;
            let locking = Locking::default();
            let cut =
                |data: Arc<dyn DataFile>| async move { data.truncate(size, mtime, locking).await };
            self.with_data(owner, volatile, cut).await?.ok_or(Errno::EIO)?;
        }
        let set = |data: Arc<dyn DataFile>| async move {
            let whole = |time: Timestamp| Some(Timestamp::from_seconds(time.seconds));
            data.set_times(whole(atime), whole(mtime), ctime).await?;
            Ok(data.sync(Extent::ALL).await?)
        };
        self.with_data(owner, volatile, set).await.map(|_| ())
    }

    /// Waits until `bytes` more are due, or the caller has given the move up: readers and writers wait for
    /// the file.
    async fn throttle_copy(
        &self,
        throttle: &mut Throttle,
        bytes: u64,
        bandwidth: u64,
        migration: &Migration,
    ) {
        throttle.bytes += bytes;
        if bandwidth == 0 {
            return;
        }
        let clock = &self.meta.world.clock;
        let due =
            throttle.start + Duration::from_secs_f64(throttle.bytes as f64 / bandwidth as f64);
        while clock.now() < due && !migration.is_cancelled.load(Ordering::Relaxed) {
            clock.sleep_until(due.min(clock.now() + LOOK_EVERY)).await;
        }
    }

    async fn close_quietly(&self, who: &Credentials, inode: &Inode, open: Option<MdtOpen>) {
        let Some(open) = open else { return };
        if let Err(errno) = open.close(who, inode.fid, None).await {
            tracing::debug!(file = %inode.fid, %errno, "close after a move");
        }
    }
}

/// How fast a file moves.
struct Throttle {
    start: Instant,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_anything_else_is_refused() {
        let request =
            MigrateRequest::parse(&Bytes::from_static(b"block=0 bandwidth=77 direct=1\nEA"))
                .unwrap();
        assert_eq!(
            (request.waits, request.bandwidth, &request.layout[..]),
            (false, 77, &b"EA"[..])
        );
        assert!(MigrateRequest::parse(&Bytes::from_static(b"\n")).unwrap().layout.is_empty());
        for bad in [&b"block=1"[..], b"block=2\n", b"what=1\n", b"bandwidth=-1\n", b"x\n"] {
            assert!(MigrateRequest::parse(&Bytes::copy_from_slice(bad)).is_none());
        }
    }
}
