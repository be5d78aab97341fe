//! OST_LADVISE: what a client says of the bytes that it, or another one, is going to read.
//!
//! Bytes that will be read are brought into this machine's memory, once clients have written back what they have of
//! them; bytes that are not needed leave it. Neither changes what any client reads.

use sheen_io::yield_once;
use sheen_store::DataAdvice;
use sheen_target::{Context, Outcome, store_errno};
use sheen_types::{Errno, Extent, Fid, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstLadvise, OstLadviseReply};
use sheen_wire::ost::{LadviseFlags, LadviseHdr, LuLadvise, OstBody, OstId};

use crate::{Brw, Objects};

/// How much one request brings into memory at most: no client is to fill it.
const WILLREAD_BYTES_MAX: u64 = 1 << 30;
/// `LAH_COUNT_MAX`: so many are refused.
const COUNT_MAX: u32 = 1024;
/// After which other requests have their turn.
const STEP_BYTES: u64 = 1 << 20;

impl<O: Objects> Brw<O> {
    /// Takes advice, one after the other up to the first that is refused.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for what no client of Lustre sends, [`Errno::EOPNOTSUPP`] for advice that is not known,
    /// [`Errno::ENOENT`] for no object.
    pub async fn advise(&self, context: &Context, request: OstLadvise) -> Result<Outcome, Errno> {
        check(&request)?;
        let oa = request.ost_body.oa;
        let object = self.objects.find(oa.oi)?;
        let size = self.store.attributes(object).map_err(store_errno)?.size;
        let mut room = WILLREAD_BYTES_MAX;
        for advice in request.ladvise.iter().take(request.ladvise_hdr.count as usize) {
            let extent = advice.extent().ok_or(Errno::EPROTO)?;
            match advice.advice {
                LuLadvise::WILLREAD => {
                    let bytes = room.min(size.saturating_sub(extent.start));
                    room -= self.will_read(context, (oa.oi, object), extent, bytes).await?;
                }
                LuLadvise::DONTNEED => {
                    let length = extent.end - extent.start + 1;
                    let advised =
                        self.store.advise(object, extent.start, length, DataAdvice::DontNeed);
                    advised.map_err(store_errno)?;
                }
                _ => return Err(Errno::EOPNOTSUPP),
            }
        }
        Ok(Outcome::ok(OstLadviseReply { ost_body: Some(OstBody { oa }), ..Default::default() }))
    }

    /// Answers how many bytes the store was advised to read, `room` at most.
    async fn will_read(
        &self,
        context: &Context,
        (oi, object): (OstId, Fid),
        extent: Extent,
        room: u64,
    ) -> Result<u64, Errno> {
        let (resource, policy) = self.objects.cover(oi, extent);
        let lock = match context.target.lock(resource, policy, LockMode::Pr).await {
            // A group writes it, and what was read ahead would not be what its members read.
            Err(Errno::EAGAIN) => return Ok(0),
            lock => lock?,
        };
        let length = extent.end.saturating_add(1).saturating_sub(extent.start).min(room);
        let mut done = 0;
        while done < length {
            let (at, step) = (extent.start + done, STEP_BYTES.min(length - done));
            let advised = self.store.advise(object, at, step, DataAdvice::WillRead);
            advised.map_err(store_errno)?;
            done += step;
            yield_once().await;
        }
        drop(lock);
        Ok(length)
    }
}

fn check(request: &OstLadvise) -> Result<(), Errno> {
    let header = &request.ladvise_hdr;
    let is_sound = request.ost_body.oa.valid.contains(Valid::ID)
        && header.magic == LadviseHdr::MAGIC
        && (1..COUNT_MAX).contains(&header.count)
        && header.count as usize <= request.ladvise.len()
        && (LadviseFlags::ASYNC | LadviseFlags::UNSET).contains(header.flags);
    is_sound.then_some(()).ok_or(Errno::EPROTO)
}
