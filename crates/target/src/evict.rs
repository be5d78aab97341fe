//! How a client goes: evicted, disconnected, or with the target.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sheen_store::StoreError;
use sheen_types::Nid;

use crate::export::Export;
use crate::export_state::ExportState;
use crate::last_rcvd::{Slot, remove_client};
use crate::operations::ExportEnd;
use crate::target::Target;

/// How long after a failure it is tried again to forget a client.
const FORGETS_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Target {
    /// Evicts a client: its locks, open handles and records are gone, and it finds out with its
    /// next request. Other clients get its locks when no restart of ours can bring it back with
    /// them. A target that stops evicts no client: the next start finds out which are dead.
    pub(crate) async fn evict(self: &Arc<Self>, export: &Arc<Export>) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let is_awaited = export.state() == ExportState::Awaited;
        self.drop_export(export, if is_awaited { ExportEnd::Stale } else { ExportEnd::Evicted })
            .await;
    }

    /// As `Target::evict`, for callers that it may have to wait for.
    pub fn evict_soon(self: &Arc<Self>, export: &Arc<Export>) {
        let (target, export) = (Arc::clone(self), Arc::clone(export));
        let task = async move { target.evict(&export).await };
        self.world.tasks.spawn("target_evict", Box::pin(task));
    }

    /// Evicts all clients with this UUID or at this NID (`evict_client`). Returns how many there
    /// were.
    pub async fn evict_client(self: &Arc<Self>, name: &str) -> usize {
        let nid = name.strip_prefix("nid:").unwrap_or(name).parse::<Nid>().ok();
        let uuid = name.strip_prefix("uuid:").unwrap_or(name);
        let mut count = 0;
        for export in self.exports() {
            if export.uuid().as_str() == uuid || Some(export.nid()) == nid {
                tracing::warn!(target = self.name(), client = %export.uuid(), nid = %export.nid(),
                    "an operator evicts a client (evict_client)");
                self.evict(&export).await;
                count += 1;
            }
        }
        count
    }

    /// Ends an export. Does nothing if it has ended.
    pub(crate) async fn drop_export(self: &Arc<Self>, export: &Arc<Export>, why: ExportEnd) {
        let (was, slots) = {
            let mut state = export.lock();
            let was = std::mem::replace(&mut state.state, ExportState::Gone);
            if was == ExportState::Gone {
                return;
            }
            state.reverse = None;
            (was, state.replies.stored())
        };
        let is_evicted = matches!(why, ExportEnd::Evicted | ExportEnd::Stale);
        if is_evicted && !self.forget_for_good(export, was, &slots).await {
            return;
        }
        if why == ExportEnd::Disconnected {
            // Before the client may come back by its name: its new record would be taken for the old one.
            if let Err(error) = self.forget(export, was, &slots) {
                tracing::error!(target = self.name(), client = %export.uuid(), %error,
                    "cannot forget a client");
            }
            tracing::info!(target = self.name(), client = %export.uuid(), nid = %export.nid(), "client disconnected");
        }
        self.stats.evictions.fetch_add(u64::from(is_evicted), Ordering::Relaxed);
        self.exports.remove(export);
        self.uncharge_export(export);
        self.wait_until_bytes_applied(export).await;
        self.drop_locks(export);
        export.callbacks().clear();
        self.operations.end_export(self, export, why).await;
        self.end_recovery_if(self.recovery.client_lost(export.handle(), was));
    }

    /// Takes the client out of those that are awaited after a restart. Until it is durable the export
    /// keeps its locks and its name: if the record came back, the client would replay locks that
    /// other clients have had since, and be believed. False if the target stops first.
    async fn forget_for_good(&self, export: &Export, was: ExportState, slots: &[Slot]) -> bool {
        let (mut is_reported, mut is_removed) = (false, false);
        loop {
            let forgotten = self.forget_durably(export, was, slots, &mut is_removed).await;
            let Err(error) = forgotten else { return true };
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            if !std::mem::replace(&mut is_reported, true) {
                tracing::error!(target = self.name(), client = %export.uuid(), error,
                    "cannot forget an evicted client: it keeps its locks until the disk works");
            }
            self.world.clock.sleep_until(self.now() + FORGETS_AGAIN_AFTER).await;
        }
    }

    /// One try of [`Self::forget_for_good`]. What an earlier one has removed, and a commit has not, is not found any
    /// more and may come back: once something `is_removed` it is the commit that counts.
    async fn forget_durably(
        &self,
        export: &Export,
        was: ExportState,
        slots: &[Slot],
        is_removed: &mut bool,
    ) -> Result<(), String> {
        let removed = self.forget(export, was, slots);
        *is_removed |= removed.map_err(|error| error.to_string())?;
        match *is_removed {
            true => self.sync().await.map_err(|errno| errno.to_string()),
            false => Ok(()),
        }
    }

    /// The client, which `was` in this state, is not awaited after a restart any more; whether it would have been.
    fn forget(
        &self,
        export: &Export,
        was: ExportState,
        slots: &[Slot],
    ) -> Result<bool, StoreError> {
        if !self.config.replayable {
            return Ok(false);
        }
        let (uuid, slots) = (export.uuid(), slots.iter().copied());
        let mut transaction = remove_client(&*self.store, uuid, export.number(), slots)?;
        if transaction.changes.is_empty() {
            return Ok(false);
        }
        self.recovery.losses_with(was).put(&mut transaction);
        self.store.apply(transaction).map(|_| true)
    }
}
