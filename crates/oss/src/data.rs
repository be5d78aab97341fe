//! What the data of an OST's objects has of its own: objects by number or FID, extent locks, owners.

use sheen_brw::{Objects, attributes};
use sheen_io::BoxFuture;
use sheen_ldlm::Policy;
use sheen_store::{AttributePatch, Attributes};
use sheen_target::Context;
use sheen_types::{Errno, Extent, Fid, ResourceName};
use sheen_wire::md::Valid;
use sheen_wire::ost::{Obdo, OstId};

use crate::{counters, objects};

/// The objects of one OST.
pub(crate) struct OstObjects {
    pub(crate) index: u16,
}

impl Objects for OstObjects {
    const READ_BYTES: usize = counters::READ_BYTES;
    const WRITTEN_BYTES: usize = counters::WRITE_BYTES;
    // No more than that, as Lustre: what the client holds a lock for it knows itself.
    const PUNCH_REPLY_VALID: Valid = Valid(Valid::ID.0 | Valid::BLOCKS.0);

    fn find(&self, oi: OstId) -> Result<Fid, Errno> {
        objects::fid_of(oi, self.index)
    }

    fn cover(&self, oi: OstId, extent: Extent) -> (ResourceName, Policy) {
        (oi.resource(), Policy::extent(extent))
    }

    fn stamp(&self, _: &Context, _: Fid, asked: &Obdo, before: &Attributes) -> AttributePatch {
        attributes::data_patch(asked, before)
    }

    /// Nothing to wait for: an OST's objects are durable before the MDT learns their ids.
    fn before_answer<'a>(&'a self, _: &'a Context, _: Fid) -> BoxFuture<'a, Result<(), Errno>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
