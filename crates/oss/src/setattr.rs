//! OST_SETATTR: owner, mode and times of an object.

use sheen_brw::attributes;
use sheen_store::Transaction;
use sheen_target::{Context, Outcome, ReplyRecording, store_errno};
use sheen_types::Errno;
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstSetattr, OstSetattrReply};
use sheen_wire::ost::OstBody;

use crate::{Ost, objects};

impl Ost {
    /// Sets what the request names, as one transaction. Executing it twice does no harm. Clients set
    /// times; whose the object is, the MDT says.
    pub(crate) async fn setattr(
        &self,
        context: &Context,
        request: OstSetattr,
    ) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let object = objects::fid_of(asked.oi, self.index)?;
        let now = self.store.attributes(object).map_err(store_errno)?;
        let owner = attributes::OWNER | Valid::MODE;
        if asked.valid.intersects(owner) && !context.export.is_server() {
            return Err(Errno::EPERM);
        }
        let mut patch = attributes::patch(&asked);
        if patch.uid.is_some() || patch.gid.is_some() {
            // It has an owner now: the first writer does not become it any more.
            let permissions = patch.permissions.unwrap_or(now.permissions);
            patch.permissions = Some(permissions & !0o7000);
        }
        let mut change = Transaction::new();
        change.patch(object, patch);
        let done = context.target.transact(context, change, ReplyRecording::Idempotent);
        done.map_err(store_errno)?;
        let said = attributes::ALWAYS | attributes::OWNER | Valid::GROUP;
        let said = self.brw.describe(&asked, object, said);
        let oa = said.map_err(|errno| context.fail_after_execution(errno))?;
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstSetattrReply { ost_body, ..OstSetattrReply::default() }))
    }
}
