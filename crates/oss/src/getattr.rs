//! OST_GETATTR and OST_GET_INFO: what an object and a sequence are.

use bytes::Bytes;
use sheen_brw::attributes;
use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Fid, LockMode, fid_seq};
use sheen_wire::md::Valid;
use sheen_wire::messages::{
    OstGetInfo, OstGetInfoLastFid, OstGetInfoLastFidReply, OstGetInfoLastIdReply, OstGetattr,
    OstGetattrReply,
};
use sheen_wire::ost::{ObdoFlags, OstBody};

use crate::{Ost, objects};

impl Ost {
    /// Attributes; under a lock if asked, so that what clients have in their caches counts.
    pub(crate) async fn getattr(
        &self,
        context: &Context,
        request: OstGetattr,
    ) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let object = objects::fid_of(asked.oi, self.index)?;
        let flush = asked.has_flag(ObdoFlags::FLUSH);
        let lock = match flush || asked.has_flag(ObdoFlags::SRVLOCK) {
            true => {
                let mode = if flush { LockMode::Pw } else { LockMode::Pr };
                Some(self.brw.lock_all(context, asked.oi, mode).await?)
            }
            false => None,
        };
        let data_version = self.brw.data_version(&context.target, object);
        let said = attributes::ALWAYS | attributes::OWNER | Valid::GROUP;
        let mut oa = self.brw.describe(&asked, object, said)?;
        drop(lock);
        oa.valid |= Valid::DATAVERSION | Valid::FLAGS;
        (oa.data_version, oa.flags) = (data_version, ObdoFlags::FLUSH);
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstGetattrReply { ost_body, ..OstGetattrReply::default() }))
    }

    /// The last object of the old sequence.
    pub(crate) fn info_last_id(&self) -> Result<Outcome, Errno> {
        let obd_id = Some(objects::last_id(&*self.store, fid_seq::OST_MDT0)?);
        Ok(Outcome::ok(OstGetInfoLastIdReply { obd_id, ..OstGetInfoLastIdReply::default() }))
    }

    /// The last object of the sequence that the request names.
    pub(crate) fn info_last_fid(&self, request: &OstGetInfoLastFid) -> Result<Outcome, Errno> {
        let asked: Fid = request.fid.ok_or(Errno::EPROTO)?;
        let sequence = if asked.is_idif() { fid_seq::OST_MDT0 } else { asked.seq };
        let last = objects::last_id(&*self.store, sequence)?;
        let fid = match last {
            0 => Fid { oid: 0, ..asked },
            last => objects::fid_in(sequence, last, self.index)?,
        };
        let fid = Some(fid);
        Ok(Outcome::ok(OstGetInfoLastFidReply { fid, ..OstGetInfoLastFidReply::default() }))
    }

    /// Other keys.
    pub(crate) fn info(&self, request: &OstGetInfo) -> Result<Outcome, Errno> {
        let key: &Bytes = &request.getinfo_key;
        tracing::debug!(key = %key.escape_ascii(), "asked for a value that does not exist");
        Err(Errno::EINVAL)
    }
}
