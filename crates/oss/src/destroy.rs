//! OST_DESTROY: removing objects whose file is gone.

use sheen_ldlm::LockFlags;
use sheen_store::{StoreError, Transaction};
use sheen_target::{Context, Outcome, ReplyRecording, store_errno};
use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::messages::{OstDestroy, OstDestroyReply};
use sheen_wire::ost::OstBody;

use crate::{Ost, objects};

/// Objects that one request may name.
const COUNT_MAX: u32 = 20_000;

impl Ost {
    /// Takes the object's data out of all caches (clients need not write it back), then removes it.
    /// An object that does not exist is as good as removed: `ENOENT` is that answer to the MDT.
    ///
    /// Answers when it is durable: the MDT then forgets that there was anything to destroy, and if
    /// both crash no record of the object would be left.
    pub(crate) async fn destroy(
        &self,
        context: &Context,
        request: OstDestroy,
    ) -> Result<Outcome, Errno> {
        let oa = request.ost_body.oa;
        let (sequence, first) = (objects::sequence_of(oa.oi)?, oa.oi.id());
        let count = oa.object_count().unwrap_or(1).clamp(1, COUNT_MAX);
        let mut change = Transaction::new();
        for id in first..first.saturating_add(u64::from(count)) {
            let object = objects::fid_in(sequence, id, self.index)?;
            // Lost and damaged data goes as well.
            match self.store.recorded_attributes(object) {
                Ok(_) => objects::destroy(&mut change, object),
                Err(StoreError::NoObject(_)) => continue,
                Err(error) => return Err(store_errno(error)),
            }
            let resource = sheen_wire::ost::OstId::of_fid(object).resource();
            let policy = sheen_ldlm::Policy::extent(Extent::ALL);
            let discard = LockFlags::AST_DISCARD_DATA;
            match context.target.lock_with_flags(resource, policy, LockMode::Pw, discard).await {
                // A group has the object as long as it likes, or is about to: what another client has written and not sent
                // yet is refused then as it comes, instead of discarded there.
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        if change.changes.is_empty() {
            // Gone, but perhaps only in memory.
            let target = &context.target;
            let now = target.transact_locally(Transaction::new()).map_err(store_errno)?;
            target.wait_until_committed(now).await?;
            return Err(Errno::ENOENT);
        }
        let done = context.target.transact(context, change, ReplyRecording::Idempotent);
        let transno = done.map_err(store_errno)?;
        let durable = context.target.wait_until_committed(transno).await;
        durable.map_err(|errno| context.fail_after_execution(errno))?;
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstDestroyReply { ost_body, ..OstDestroyReply::default() }))
    }
}
