//! Bytes of clients on their way into objects, against evictions and reconnects.
//!
//! Bytes lie outside of transactions, and a request may have waited for its bulk long enough that its client was
//! evicted, or has connected anew and sent it again. What always holds: while a client's bytes are applied, its export
//! lives and the request's connection is the newest. [`Context::begin_apply`] looks at both under the export's lock
//! and counts itself there; an eviction, and a reconnect, first change what it looks at and then wait until what was
//! counted is done ([`Target::wait_until_bytes_applied`]), before the client's locks are granted to other clients, or its connect is
//! answered. (Lustre: `exp_failed` and `conn_cnt`, looked at after the bulk.)

use sheen_types::Errno;

use crate::connect::LOOKS_AGAIN_AFTER;
use crate::context::Context;
use crate::export::Export;
use crate::export_state::ExportState;
use crate::target::Target;

/// A client's bytes are being applied. Never held across an await: evictions wait for it.
#[must_use]
pub struct ApplyGuard<'a>(&'a Export);

impl Drop for ApplyGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().applying -= 1;
    }
}

impl Export {
    /// For a request of the connection `conn_cnt`; `None` if the client is gone, or has a newer one.
    pub(crate) fn begin_apply(&self, conn_cnt: u32) -> Option<ApplyGuard<'_>> {
        let mut state = self.lock();
        if state.state == ExportState::Gone || conn_cnt < state.conn_cnt {
            return None;
        }
        state.applying += 1;
        drop(state);
        Some(ApplyGuard(self))
    }
}

impl Context {
    /// To be asked immediately before bytes reach an object, or are cut off it, and kept until that is done.
    ///
    /// # Errors
    /// If the client was evicted, or has connected anew: the request is dropped.
    pub fn begin_apply(&self) -> Result<ApplyGuard<'_>, Errno> {
        let begun = self.export.begin_apply(self.body.conn_cnt);
        begun.ok_or_else(|| {
            tracing::info!(target = self.target.name(), client = %self.export.uuid(), xid = %self.xid,
                "dropped bytes that came after their client's eviction or reconnect");
            self.leave_unanswered(Errno::ENOTCONN)
        })
    }
}

impl Target {
    /// Waits until none of the client's bytes are being applied. For an export that is gone, or has a new connection,
    /// so that no more are begun.
    pub(crate) async fn wait_until_bytes_applied(&self, export: &Export) {
        while export.lock().applying > 0 {
            self.world.clock.sleep_until(self.now() + LOOKS_AGAIN_AFTER).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use sheen_ldlm::Policy;
    use sheen_types::{Fid, InodeBits, LockMode, ResourceName};

    use super::*;
    use crate::testing::{TestClient, TestTarget, TestWorld};
    use crate::tests::{inode_lock, manual_store, start};

    const TIME: Duration = Duration::from_secs(1);

    /// A connected client, and its export.
    async fn connected(node: &TestTarget) -> (TestClient, Arc<Export>) {
        let client = node.connect("one").await;
        let export = node.target.export(client.handle()).expect("it is connected");
        (client, export)
    }

    #[test]
    fn an_eviction_frees_no_lock_while_bytes_of_its_client_are_applied() {
        let world = TestWorld::new(5);
        world.clone().run(async move {
            let (node, _) = start(&world, &manual_store()).await;
            let (client, export) = connected(&node).await;
            assert_eq!(client.call(inode_lock(LockMode::Ex, 7)).await.errno(), None);
            let is_free = || {
                let resource = ResourceName::of_fid(Fid::new(0x2_0000_0401, 2));
                let policy = Policy::bits(InodeBits::LOOKUP);
                node.target.try_lock(resource, policy, LockMode::Pr).is_some()
            };
            let applying = export.begin_apply(1).expect("it is there");
            node.target.evict_soon(&export);
            world.sleep(TIME).await;
            assert!(!is_free(), "its bytes are on their way");
            assert!(export.begin_apply(1).is_none(), "no more of them follow");
            drop(applying);
            world.sleep(TIME).await;
            assert!(is_free());
        });
    }

    #[test]
    fn a_reconnect_is_answered_when_no_bytes_of_before_are_applied_any_more() {
        let world = TestWorld::new(6);
        world.clone().run(async move {
            let (node, _) = start(&world, &manual_store()).await;
            let (client, export) = connected(&node).await;
            let applying = export.begin_apply(1).expect("it is there");
            let is_answered = Arc::new(AtomicBool::new(false));
            let answered = Arc::clone(&is_answered);
            let connect = async move {
                client.connect().await.expect("it is taken");
                answered.store(true, Ordering::Release);
            };
            world.world().tasks.spawn("connect", Box::pin(connect));
            world.sleep(TIME).await;
            assert!(!is_answered.load(Ordering::Acquire), "its bytes are on their way");
            assert!(export.begin_apply(1).is_none(), "no more of them follow");
            drop(applying);
            world.sleep(TIME).await;
            assert!(is_answered.load(Ordering::Acquire));
            assert!(export.begin_apply(2).is_some());
        });
    }
}
