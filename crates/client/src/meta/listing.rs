//! Listing a directory that lies in stripes: one stream of chunks for each stripe, merged by the hashes of names.
//!
//! A position is a hash, and how many names of it are done, over all stripes in their order: so it is good in each stripe, and
//! at the next reading, as in a directory in one piece. A merged chunk ends where the first of the streams ends; what the other streams
//! have beyond comes along in it for the next one. Streams that have little left are read on with the one that has
//! nothing, all at once.
//!
//! Cost: one `MDS_READPAGE` for each stripe and some thousand names of it in all stripes, as of a directory in one piece, and one
//! lock for each stripe; none while locks cover what is known.
//! At most [`CHUNKS_AHEAD`] chunks of each stripe are kept by a listing, beside those that locks cover.
//!
//! While names are being moved each stretch of hashes is read twice, the second time once all stripes have answered the first, and
//! nothing is read ahead: a name moves once, so it was in its stripe of before at the first reading, or is in the other one
//! at the second. A stretch that was read while the layout began to change is read again.

use std::sync::Arc;

use sheen_layout::directory::{DirectoryLayout, Holder};
use sheen_types::futures;
use sheen_types::{Errno, Fid};
use sheen_wire::dir::PAGE_SIZE;

use super::Meta;
use super::readdir::CHUNK_BYTES;
use crate::cache::{Chunk, Inode, Pin, Position, StripeChunks};
use crate::types::Credentials;

/// Chunks of one stripe that a listing has at once: the one that it is in, and the next.
const CHUNKS_AHEAD: usize = 2;
/// Bytes of a stripe that are asked for at once, at least: a directory of many stripes is kept in as many bytes as any.
const STRIPE_BYTES_MIN: usize = 2 * PAGE_SIZE;
/// How often the layout of a directory may change under one reading, or what MDTs say of it not agree yet.
const TRIES_MAX: u32 = 12;

impl Meta {
    /// Whether a directory is known to lie in stripes.
    pub(super) fn is_striped(&self, inode: &Inode) -> bool {
        inode.state().master_layout().is_some()
    }

    /// How many stripes a directory lacks, with the names in them: its layout says no more where they were.
    pub(super) fn stripes_lacking(&self, inode: &Inode) -> usize {
        let state = inode.state();
        let Some((layout, _)) = state.master_layout() else { return 0 };
        let Holder::Master { stripes, .. } = layout.holder() else { return 0 };
        stripes.iter().filter(|stripe| !stripe.is_of_mdt()).count()
    }

    /// What a call on a directory is answered whose MDT does not have this stripe, though the directory's layout does.
    pub(super) fn answer_lost_stripe(&self, directory: &Inode, stripe: Fid) -> Errno {
        let mdt = self.known_mdt(stripe).map(|mdt| mdt.channel.target_uuid().to_string());
        let mdt = mdt.as_deref().unwrap_or("its MDT");
        tracing::warn!(directory = %directory.fid, %stripe, %mdt, "a stripe of a directory is lost: its MDT does not have it");
        Errno::EIO
    }

    /// Whether a directory has lost its name, and its stripes with it.
    pub(super) fn is_gone(&self, master: &Inode) -> bool {
        let state = master.state();
        let has_no_links = state.last_attributes().is_some_and(|known| known.nlink == 0);
        state.directory.removed || has_no_links
    }

    /// As [`Self::dir_chunk`], of all stripes; `ENOENT` or `ESTALE` if the directory itself is gone, or was moved.
    pub(super) async fn merged_chunk(
        &self,
        who: &Credentials,
        master: &Inode,
        position: Position,
        last: Option<&Arc<Chunk>>,
    ) -> Result<Arc<Chunk>, Errno> {
        let mut last = last.map(|last| last.stripes().to_vec()).unwrap_or_default();
        let (mut unsure, mut refused) = (None, master.fid);
        for tried in 0..TRIES_MAX {
            self.pause_between(tried).await;
            let layout = master.state().master_layout().map(|(layout, _)| Arc::clone(layout));
            let Some(layout) = layout else {
                return self.chunk_of(who, master, position.hash, CHUNK_BYTES).await;
            };
            let stripes = self.cache.inodes.stripes_of(master);
            let ends = (master.fid, self.directory_above(master));
            let last = std::mem::take(&mut last);
            let merged = match layout.change() {
                None => {
                    let parts = self.read_stripes(who, &stripes, position, last).await;
                    parts.map(|parts| Chunk::merge(position.hash, ends, parts))
                }
                Some(_) => self.read_twice(who, &stripes, position, ends).await,
            };
            match merged {
                Ok(merged) if self.is_laid_out(master, &layout) => return Ok(Arc::new(merged)),
                Ok(merged) => unsure = Some(merged),
                Err((Errno::ENOENT | Errno::ESTALE, stripe)) => refused = stripe,
                Err((errno, _)) => return Err(errno),
            }
            // A stripe is gone: the directory is, or lies otherwise now.
            self.cache.inodes.doubt_striping(master);
            match self.rights(who, master).await {
                // Its MDT has it for those that have it open. It may have been moved.
                Ok(()) if self.is_gone(master) => return Err(Errno::ESTALE),
                Ok(()) => {}
                // It may have been moved.
                Err(errno) => return Err(errno),
            }
        }
        // A stripe that its layout has was lost, and what it has is not known; or no lock covers the layout.
        unsure.map(Arc::new).ok_or_else(|| self.answer_lost_stripe(master, refused))
    }

    /// Whether that is how a directory lies, as a lock covers it.
    fn is_laid_out(&self, master: &Inode, layout: &DirectoryLayout) -> bool {
        let state = master.state();
        state.master_layout().is_some_and(|(known, is_covered)| is_covered && **known == *layout)
    }

    /// What all stripes have from a position on, while names are being moved between them; else as [`Self::read_stripes`].
    async fn read_twice(
        &self,
        who: &Credentials,
        stripes: &[Pin],
        position: Position,
        ends: (Fid, Fid),
    ) -> Result<Chunk, (Errno, Fid)> {
        let first = self.read_stripes(who, stripes, position, Vec::new()).await?;
        let mut parts = self.read_stripes(who, stripes, position, Vec::new()).await?;
        // What was seen last of a name stays.
        parts.extend(first);
        Ok(Chunk::merge_moving(position.hash, ends, parts))
    }

    /// The chunks of each stripe at `position`, as far as `last` has them, else read now; or why a stripe cannot be read,
    /// and which.
    async fn read_stripes(
        &self,
        who: &Credentials,
        stripes: &[Pin],
        position: Position,
        last: Vec<StripeChunks>,
    ) -> Result<Vec<StripeChunks>, (Errno, Fid)> {
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
            part.chunks.extend(read.map_err(|errno| (errno, part.stripe))?);
        }
        Ok(parts)
    }

    /// The directory that a directory is in, as far as names were looked up; itself if none was. No RPC: what `..` is listed as
    /// is worth no request, which a program that may list the directory need not have the right to.
    fn directory_above(&self, directory: &Inode) -> Fid {
        let above = directory.state().names.seen.first().map(|seen| seen.parent);
        let above = above.and_then(|parent| self.cache.inodes.by_node(parent));
        above.map_or(directory.fid, |above| above.fid)
    }
}
