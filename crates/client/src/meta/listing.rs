//! Listing a directory that lies in stripes: one stream of chunks for each stripe, merged by the hashes of names.
//!
//! A position is a hash, and how many names of it are done, over all stripes in their order: so it is good in each stripe, and
//! at the next reading, as in a directory in one piece. A merged chunk ends where the first of the streams ends; what the others
//! have beyond comes along in it for the next one. Streams that have little left are read on with the one that has
//! nothing, all at once.
//!
//! Cost: one `MDS_READPAGE` for each stripe and some thousand names of it in all stripes, as of a directory in one piece, one
//! lock for each stripe, and one request for `..` where no lock covers the directory's name; none while locks cover what is known.
//! At most [`CHUNKS_AHEAD`] chunks of each stripe are kept by a listing, beside those that locks cover.

use std::sync::Arc;

use sheen_types::futures;
use sheen_types::{Errno, Fid};
use sheen_wire::dir::PAGE_SIZE;

use super::Meta;
use super::readdir::CHUNK_BYTES;
use crate::cache::{Chunk, Inode, Pin, Position, StripeChunks};
use crate::types::Credentials;

/// Chunks of one stripe that a listing has at once: the one that it is in, and the next.
const CHUNKS_AHEAD: usize = 2;
/// Bytes of a stripe that are asked for at once, at least.
const STRIPE_BYTES_MIN: usize = 8 * PAGE_SIZE;
/// How often the layout of a directory may change under one reading.
const TRIES_MAX: u32 = 4;

impl Meta {
    /// Whether a directory is known to lie in stripes.
    pub(super) fn is_striped(&self, inode: &Inode) -> bool {
        inode.state().master_layout().is_some()
    }

    /// As [`Self::dir_chunk`], of all stripes.
    pub(super) async fn merged_chunk(
        &self,
        who: &Credentials,
        master: &Inode,
        position: Position,
        last: Option<&Arc<Chunk>>,
    ) -> Result<Arc<Chunk>, Errno> {
        let mut last = last.map(|last| last.stripes().to_vec()).unwrap_or_default();
        for _ in 0..TRIES_MAX {
            let stripes = self.cache.inodes.stripes_of(master);
            let parts = self.read_stripes(who, &stripes, position, std::mem::take(&mut last)).await;
            match parts {
                Ok(parts) => {
                    let begins = position.hash == 0;
                    let above =
                        if begins { self.directory_above(who, master).await? } else { master.fid };
                    return Ok(Arc::new(Chunk::merge(position.hash, (master.fid, above), parts)));
                }
                Err(Errno::ENOENT | Errno::ESTALE) => {}
                Err(errno) => return Err(errno),
            }
            // A stripe is gone: the directory is, or lies otherwise now.
            self.cache.inodes.forget_striping(master);
            match self.rights(who, master).await {
                Ok(()) => {}
                Err(Errno::ENOENT | Errno::ESTALE) => break,
                Err(errno) => return Err(errno),
            }
        }
        match self.is_striped(master) {
            // A stripe that its layout has was lost, and what it has is not known.
            true => Err(Errno::EIO),
            false => Ok(Arc::new(Chunk::of_removed(position.hash))),
        }
    }

    /// The chunks of each stripe at `hash`, as far as `last` has them, else read now.
    async fn read_stripes(
        &self,
        who: &Credentials,
        stripes: &[Pin],
        position: Position,
        last: Vec<StripeChunks>,
    ) -> Result<Vec<StripeChunks>, Errno> {
        let bytes = (CHUNK_BYTES / stripes.len().max(1)).next_multiple_of(PAGE_SIZE);
        let bytes = bytes.max(STRIPE_BYTES_MIN);
        let mut known = last.into_iter();
        let mut parts: Vec<StripeChunks> = stripes
            .iter()
            .map(|stripe| {
                let of_stripe = known.next().filter(|known| known.stripe == stripe.fid);
                let mut of_stripe = of_stripe.unwrap_or_else(|| StripeChunks::new(stripe.fid));
                of_stripe.drop_before(position);
                of_stripe
            })
            .collect();
        if parts.iter().all(|part| !part.chunks.is_empty()) {
            return Ok(parts);
        }
        let asked = stripes.iter().zip(&parts).map(|(stripe, part)| async move {
            match part.reads_on(position, CHUNKS_AHEAD) {
                Some(from) => self.chunk_of(who, stripe, from, bytes).await.map(Some),
                None => Ok(None),
            }
        });
        let read = futures::all(asked.collect()).await;
        for (part, read) in parts.iter_mut().zip(read) {
            part.chunks.extend(read?);
        }
        Ok(parts)
    }

    /// The directory that a directory is in. No RPC where a lock covers its name, else one.
    async fn directory_above(&self, who: &Credentials, directory: &Inode) -> Result<Fid, Errno> {
        if directory.fid == Fid::ROOT {
            return Ok(Fid::ROOT);
        }
        let named = directory.state().covered_name().map(|(parent, _)| *parent);
        match named.and_then(|parent| self.cache.inodes.by_node(parent)) {
            Some(parent) => Ok(parent.fid),
            None => self.parent(who, directory.fid).await,
        }
    }
}
