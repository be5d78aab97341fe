//! Group locks on a whole file: of a call that copies it elsewhere, of a group that is its alone, and of programs
//! (`LL_IOC_GROUP_LOCK`), which agree among themselves on who writes what.
//!
//! There is one on every object: what other clients, and this one, had cached is flushed and invalidated first, and
//! reads and writes of all but the group's members wait until the locks are cancelled. Calls through an open file that
//! has them name the group in [`Locking`](super::Locking), and use them in place of other locks; what they leave
//! dirty is flushed when the locks are cancelled. The copying call's reads bypass the cache.
//!
//! A group's locks keep no size: another member may move the end. Nothing is read ahead under them but by the kernel.
//!
//! Cost: an RPC for each object, one after the other in stripe order, as appends take theirs; no RPC for a lock of a
//! call under them. Each read of the copying call is one RPC for each object and bulk of it.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_layout::Place;
use sheen_ldlm::LockFlags;
use sheen_types::futures;
use sheen_types::{Errno, Extent, LockMode};

use super::DataAttributes;
use super::file::File;
use super::layout_guard::Refusal;
use super::lock_loss::LockUse;
use super::object::Object;
use super::read::zeros;
use crate::locks::{LockReference, LockRequest};
use crate::types::Seek;

/// A file that only the holder's group reads or writes until this is dropped.
pub trait GroupLockedFile: Send + Sync {
    /// Size, blocks and times. No RPC.
    fn attributes(&self) -> DataAttributes;

    /// `length` bytes from `offset`, holes as zeros, also behind the end.
    fn read(&self, offset: u64, length: u64) -> BoxFuture<'_, Result<Vec<Bytes>, Errno>>;

    /// The next data from `offset` on, or the next hole; `None` if there is none before the file ends.
    fn next(&self, offset: u64, what: Seek) -> BoxFuture<'_, Result<Option<u64>, Errno>>;

    /// Whether no lock was lost: a server that has evicted us may have granted locks to other clients.
    fn is_intact(&self) -> bool;
}

/// See the module's documentation.
struct GroupLocks {
    file: File,
    /// Of all objects, in their order.
    locks: Vec<LockReference>,
}

impl Drop for GroupLocks {
    fn drop(&mut self) {
        for lock in self.locks.drain(..) {
            lock.cancel();
        }
    }
}

/// A group lock that a call has acquired for itself, because an eviction took that of its open file.
pub(super) struct GroupLockOfCall(Option<LockReference>);

impl GroupLockOfCall {
    pub(super) fn is_alive(&self) -> bool {
        self.0.as_ref().is_some_and(LockReference::is_alive)
    }
}

impl Drop for GroupLockOfCall {
    fn drop(&mut self) {
        // Group locks are not revoked: one that is kept unused would keep all other groups out.
        if let Some(lock) = self.0.take() {
            lock.cancel();
        }
    }
}

impl Object {
    /// A group lock on all of the object.
    async fn group_lock(&self, gid: u64, waits: bool) -> Result<LockReference, Errno> {
        let policy = self.target.group_policy(gid);
        let flags = if waits { LockFlags::NONE } else { LockFlags::BLOCK_NOWAIT };
        let ask = LockRequest { resource: self.resource, policy, mode: LockMode::Group, flags };
        let lock = self.target.locks().enqueue(ask).await;
        self.note_presence(lock)
    }

    /// The group's lock, for a call through an open file that has it.
    pub(super) async fn use_group_lock(&self, gid: u64) -> Result<LockUse, Errno> {
        let policy = self.target.group_policy(gid);
        if let Some(lock) = self.target.locks().find(self.resource, policy, LockMode::Group) {
            return Ok(LockUse::Held(lock));
        }
        let lock = self.group_lock(gid, true).await?;
        Ok(LockUse::Group(GroupLockOfCall(Some(lock))))
    }
}

impl File {
    /// Locks all objects of the file for the group `gid`. Waits for the locks of another group if it `waits`.
    ///
    /// # Errors
    /// [`Refusal::Stale`], [`Refusal::NoObjects`]; `EAGAIN` if another group has the file; those of the enqueues.
    pub(super) async fn group_lock_objects(
        &self,
        gid: u64,
        waits: bool,
    ) -> Result<Arc<dyn GroupLockedFile>, Refusal> {
        // Objects that are made later would have no lock: all that there can be are made first.
        let whole = Extent { start: 0, end: self.layout.last_byte() };
        if self.layout.lacks_objects(whole) {
            return Err(Refusal::NoObjects(whole));
        }
        let mut group_locks =
            GroupLocks { file: self.clone(), locks: Vec::with_capacity(self.objects.len()) };
        for object in self.objects.iter() {
            let lock = object.group_lock(gid, waits).await?;
            group_locks.locks.push(lock);
            // What was dirty here was flushed when the group lock revoked our other locks.
            object.flush(Extent::ALL).await;
        }
        self.layout_version.check()?;
        Ok(Arc::new(group_locks))
    }
}

impl GroupLockedFile for GroupLocks {
    fn attributes(&self) -> DataAttributes {
        self.file.known(true)
    }

    fn read(&self, offset: u64, length: u64) -> BoxFuture<'_, Result<Vec<Bytes>, Errno>> {
        Box::pin(async move {
            let cut: Vec<_> = self.file.layout.pieces(offset, length).collect();
            let fetches = cut.iter().map(|piece| async move {
                let Place::Object(index) = piece.place else { return Ok(Vec::new()) };
                let object = self.file.objects.get(index).ok_or(Errno::EIO)?;
                let end = piece.object_offset + piece.length;
                object.fetch(piece.object_offset, end).await
            });
            let mut out = Vec::new();
            for (piece, fetched) in cut.iter().zip(futures::all(fetches.collect()).await) {
                let fetched = fetched?;
                let got: u64 = fetched.iter().map(|part| part.len() as u64).sum();
                out.extend(fetched);
                out.extend(zeros(piece.length - got));
            }
            Ok(out)
        })
    }

    fn next(&self, offset: u64, what: Seek) -> BoxFuture<'_, Result<Option<u64>, Errno>> {
        Box::pin(async move {
            let size = self.attributes().size;
            let seeks = self.file.starts(offset).into_iter().map(|(object, start)| async move {
                Ok((object.seek_held(start, what).await?, object, start))
            });
            let found =
                futures::all(seeks.collect()).await.into_iter().collect::<Result<_, Errno>>()?;
            Ok(self.file.nearest(offset, what, found).filter(|at| *at < size))
        })
    }

    fn is_intact(&self) -> bool {
        self.locks.iter().all(LockReference::is_alive)
    }
}
