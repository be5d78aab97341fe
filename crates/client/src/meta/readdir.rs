//! Directory pages: one `MDS_READPAGE` for some thousand names, and one lock for the directory; none while a
//! lock covers what is known.

use std::sync::Arc;

use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Bulk, Call};
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::dir::{DirAttrs, PAGE_SIZE};
use sheen_wire::md::Valid;
use sheen_wire::messages::MdsReadpage;

use super::Meta;
use crate::cache::{Chunk, DirPages, Inode, NamePlace, Pin, Position};
use crate::call;
use crate::locks::{LockReference, LockRequest};
use crate::mdt::NO_GROUP;
use crate::types::Credentials;

/// How often a directory may move while a stretch of it is read. An MDT that lies could lead from one to the other without an end.
const MOVES_MAX: u32 = 16;

/// Bytes asked for at once: 64 pages, some 6,000 short names.
pub(super) const CHUNK_BYTES: usize = 64 * PAGE_SIZE;

impl Meta {
    /// The chunk with the names at `position`; `None` at the end of the directory. `last` is the
    /// chunk that the caller read last, which need not be asked for again.
    pub(crate) async fn dir_chunk(
        &self,
        who: &Credentials,
        inode: &Inode,
        position: Position,
        last: Option<&Arc<Chunk>>,
    ) -> Result<Option<Arc<Chunk>>, Errno> {
        if position == Position::END {
            // What is there was listed.
            return match self.stripes_lacking(inode) {
                0 => Ok(None),
                stripes => {
                    tracing::warn!(directory = %inode.fid, stripes, "a listing lacks the names of stripes that are lost");
                    Err(Errno::EIO)
                }
            };
        }
        if let Some(last) = last.filter(|last| last.holds(position)) {
            return Ok(Some(Arc::clone(last)));
        }
        let mut moved: Option<Pin> = None;
        for _ in 0..MOVES_MAX {
            let directory = moved.as_deref().map_or(inode, |moved| moved);
            let last = last.filter(|_| moved.is_none());
            let chunk = self.chunk_at(who, directory, position, last).await;
            if !matches!(chunk, Err(Errno::ENOENT | Errno::ESTALE)) {
                return chunk.map(Some);
            }
            // It is gone, or was moved: names go on behind the same hash.
            let may_have_moved = self.follow_moved(who, directory).await;
            match self.moved(directory) {
                Some(moved_to) => moved = Some(moved_to),
                // Not its end: what is left of it was not listed.
                None if may_have_moved || directory.state().is_stripe_of_unknown() => break,
                None => return Ok(Some(Arc::new(Chunk::of_removed(position.hash)))),
            }
        }
        Err(Errno::ESTALE)
    }

    async fn chunk_at(
        &self,
        who: &Credentials,
        inode: &Inode,
        position: Position,
        last: Option<&Arc<Chunk>>,
    ) -> Result<Arc<Chunk>, Errno> {
        self.fetch_striping(who, inode).await?;
        if self.is_striped(inode) {
            self.merged_chunk(who, inode, position, last).await
        } else if inode.state().is_stripe_of_unknown() {
            Err(Errno::ESTALE)
        } else {
            self.whole_chunk(who, inode, position.hash).await
        }
    }

    /// The chunk of a directory in one piece.
    ///
    /// # Errors
    /// `ESTALE` if it may be a stripe of another one by now, and has not all names any more.
    async fn whole_chunk(
        &self,
        who: &Credentials,
        inode: &Inode,
        hash: u64,
    ) -> Result<Arc<Chunk>, Errno> {
        let chunk = self.chunk_of(who, inode, hash, CHUNK_BYTES).await?;
        if !self.mdts.has_several() || NamePlace::whole(inode).still_counts() {
            return Ok(chunk);
        }
        self.rights(who, inode).await?;
        if self.is_gone(inode) {
            return Err(Errno::ESTALE);
        }
        let state = inode.state();
        let is_whole = state.master_layout().is_none() && !state.is_stripe_of_unknown();
        if is_whole && state.moved_to().is_none() { Ok(chunk) } else { Err(Errno::ESTALE) }
    }

    /// The chunk of a stripe, or of a directory in one piece, with the names from `hash` on; `ENOENT` or `ESTALE` if that is
    /// gone. One RPC, and one for a lock; none while a lock covers what is known.
    pub(super) async fn chunk_of(
        &self,
        who: &Credentials,
        inode: &Inode,
        hash: u64,
        bytes: usize,
    ) -> Result<Arc<Chunk>, Errno> {
        let position = Position { hash, done: 0 };
        let pages = self.covered_pages(inode);
        if let Some(chunk) = pages.as_ref().and_then(|pages| pages.find(position)) {
            return Ok(chunk);
        }
        let held = match pages {
            Some(_) => None,
            None => self.lock_names(inode).await?,
        };
        let learns = self.keeps_own_names(inode);
        let (asked, reading) = {
            let mut state = inode.state();
            let hasher = learns.then_some(&self.cache.hasher);
            let reading = hasher.and_then(|hasher| state.begin_reading(hasher, hash));
            (state.epoch(), reading)
        };
        // Not in use while the MDT is asked: that may wait for a change over several MDTs, which another MDT may keep waiting
        // until this client cancels a lock there. Where it is lost meanwhile the pages are shown, and not kept.
        drop(held);
        let chunk = Arc::new(self.readpage(who, inode, hash, bytes).await?);
        if let Some(reading) = reading {
            self.note_names(inode, &reading, &chunk);
        }
        if inode.state().unbroken_since(&asked)
            && let Some(pages) = self.covered_pages(inode)
        {
            pages.keep(&chunk);
        }
        Ok(chunk)
    }

    /// The directory's chunks if a lock covers them.
    fn covered_pages(&self, inode: &Inode) -> Option<Arc<DirPages>> {
        inode.state().dir_pages().cloned()
    }

    /// Enqueues the lock under which pages are kept; `None` if the directory is gone.
    pub(super) async fn lock_names(&self, inode: &Inode) -> Result<Option<LockReference>, Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let ask = LockRequest {
            resource: inode.resource(),
            policy: Policy::bits(InodeBits::UPDATE),
            mode: LockMode::Pr,
            flags: LockFlags::NONE,
        };
        match mdt.locks.enqueue(ask).await {
            Ok(held) => {
                // It covers pages from now on, but not attributes that came before it.
                inode.state().cover(&held);
                Ok(Some(held))
            }
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Reads names from `hash` on, so many bytes. One RPC.
    pub(super) async fn readpage(
        &self,
        who: &Credentials,
        inode: &Inode,
        hash: u64,
        bytes: usize,
    ) -> Result<Chunk, Errno> {
        let mdt = self.mdt(inode.fid).await?;
        let mut mdt_body = who.body(inode.fid, Valid::NONE, NO_GROUP);
        mdt_body.size = hash;
        mdt_body.nlink = bytes as u32;
        mdt_body.mode = (DirAttrs::FID | DirAttrs::TYPE).0;
        let request = MdsReadpage { mdt_body, ..MdsReadpage::default() };
        let call = who.sign(Call::new(request).with_bulk(Bulk::Sink(bytes)));
        match call::call::<MdsReadpage>(&*mdt.channel, call).await {
            Ok(answer) => Chunk::decode(hash, &answer.bulk).map_err(|bad| {
                let mdt = mdt.channel.target_uuid();
                tracing::warn!(%mdt, directory = %inode.fid, hash, %bad, "an MDT has sent pages that cannot be used");
                bad.errno()
            }),
            Err(errno) => Err(errno),
        }
    }
}
