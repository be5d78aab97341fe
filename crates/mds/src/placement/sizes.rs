//! The size of a file that was cut or extended before it had objects. Until then the MDT keeps it; with objects clients
//! ask the OSTs, so the one that holds the file's end must show it before any client learns of the objects.

use sheen_layout::stored::errno_of;
use sheen_layout::{Stripe, parse};
use sheen_rpc::{Call, CallKind};
use sheen_target::store_errno;
use sheen_types::{Errno, Extent, Fid};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstPunch;
use sheen_wire::ost::{Obdo, OstBody, OstId};

use super::{Placement, ReservedObjects};

impl Placement {
    /// Extends the object that holds the end of a file of `size` bytes, or what of it lies on the MDT.
    ///
    /// # Errors
    /// Those of the OST or the store: the file gets no objects.
    pub(crate) async fn show_size(
        &self,
        file: Fid,
        reserved: &ReservedObjects,
        size: u64,
    ) -> Result<(), Errno> {
        let layout = parse(reserved.layout()).map_err(|error| errno_of(&error))?;
        let Some(layout) = layout.filter(|_| size > 0) else { return Ok(()) };
        for (mapping, stripe) in layout.objects() {
            let ends_here = |bytes: &u64| mapping.file_size(*bytes) == size;
            let Some(bytes) = mapping.object_size(size).filter(ends_here) else { continue };
            return match stripe {
                Some(stripe) => self.extend_object(stripe, bytes).await,
                None => self.store.truncate(file, bytes).map_err(store_errno),
            };
        }
        Ok(())
    }

    async fn extend_object(&self, stripe: Stripe, bytes: u64) -> Result<(), Errno> {
        let index = u16::try_from(stripe.ost).ok();
        let ost = index.and_then(|index| self.ost(index)).ok_or(Errno::ENODEV)?;
        let valid = Valid::ID | Valid::GROUP | Valid::SIZE | Valid::BLOCKS;
        let oi = OstId::of_fid(stripe.object);
        let oa = Obdo { valid, oi, size: bytes, blocks: Extent::EOF, ..Obdo::default() };
        let request = OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() };
        let call = Call { kind: CallKind::Idempotent, ..Call::new(request) };
        ost.channel().call(call).await.map(drop).map_err(|error| error.errno())
    }
}
