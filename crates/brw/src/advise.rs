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

/// How much one advice brings into memory at most: no client is to fill it.
const WILLREAD_BYTES_MAX: u64 = 1 << 30;
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
        for advice in &request.ladvise {
            let extent = advice.extent().ok_or(Errno::EPROTO)?;
            match advice.advice {
                LuLadvise::WILLREAD => {
                    self.will_read(context, (oa.oi, object), extent, size).await?
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

    async fn will_read(
        &self,
        context: &Context,
        (oi, object): (OstId, Fid),
        extent: Extent,
        size: u64,
    ) -> Result<(), Errno> {
        let (resource, policy) = self.objects.cover(oi, extent);
        let lock = context.target.lock(resource, policy, LockMode::Pr).await?;
        let end = extent.end.saturating_add(1).min(size);
        let end = end.min(extent.start.saturating_add(WILLREAD_BYTES_MAX));
        let mut at = extent.start;
        while at < end {
            let length = STEP_BYTES.min(end - at);
            let advised = self.store.advise(object, at, length, DataAdvice::WillRead);
            advised.map_err(store_errno)?;
            at += length;
            yield_once().await;
        }
        drop(lock);
        Ok(())
    }
}

fn check(request: &OstLadvise) -> Result<(), Errno> {
    let header = &request.ladvise_hdr;
    let is_sound = request.ost_body.oa.valid.contains(Valid::ID)
        && header.magic == LadviseHdr::MAGIC
        && header.count >= 1
        && header.count as usize <= request.ladvise.len()
        && (LadviseFlags::ASYNC | LadviseFlags::UNSET).contains(header.flags);
    is_sound.then_some(()).ok_or(Errno::EPROTO)
}
