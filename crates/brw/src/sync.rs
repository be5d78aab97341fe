//! OST_SYNC: making an object durable.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_target::{Context, Outcome, Wait, store_errno, while_waiting};
use sheen_types::{Errno, Fid};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstSync, OstSyncReply};
use sheen_wire::ost::{Obdo, OstBody};

use crate::{Brw, Objects, attributes};

impl<O: Objects> Brw<O> {
    /// Returns when the object (or for id 0 everything) is durable.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sync(&self, context: &Context, request: OstSync) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let oa = if asked.oi.id() == 0 {
            context.target.sync().await?;
            Obdo { ..asked }
        } else {
            let object = self.objects.find(asked.oi)?;
            self.make_durable(context, object).await?;
            self.describe(&asked, object, attributes::ALWAYS | Valid::GROUP)?
        };
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstSyncReply { ost_body, ..OstSyncReply::default() }))
    }

    /// Waits for the disk where that delays no one else.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn make_durable(&self, context: &Context, object: Fid) -> Result<(), Errno> {
        let outcome = Arc::new(Mutex::new(Err(Errno::EIO)));
        let (store, result) = (Arc::clone(&self.store), Arc::clone(&outcome));
        let job = move || *result.lock() = store.sync_data(object).map_err(store_errno);
        while_waiting(Wait::Disk, context.target.world().tasks.blocking(Box::new(job))).await;
        *outcome.lock()
    }
}
