//! What the target does about recovery: starts its clock, evicts those that hold it up, and ends it.
//!
//! The steps of the end, which [`Recovery`](super::Recovery) decides and `end_recovery` takes: what other MDTs have not finished
//! of changes with this one is hidden ([`Redo::hide_unfinished`](crate::Redo::hide_unfinished)), a new epoch of
//! transaction numbers begins, all exports are `FULL`, the namespace grants what waited, requests without an answer go
//! on. Where a client was lost with what it had to replay, what other clients keep of it is revoked; until then no
//! request goes on that would show how it is now. Last the role cleans up ([`Operations::recovered`]).
//!
//! [`Operations::recovered`]: crate::Operations::recovered

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use sheen_io::BoxFuture;
use sheen_ldlm::{LockKind, Policy};
use sheen_types::{InodeBits, LockMode, Uuid};
use sheen_wire::ptlrpc::MsgFlags;

use super::EndDecided;
use super::expired::Expired;
use crate::EACH_LINE;
use crate::export::Export;
use crate::export_state::ExportState;
use crate::last_rcvd::RecoveryLosses;
use crate::servers::is_mdt;
use crate::target::Target;

impl Target {
    /// A client connects: the recovery window has a limit from now on.
    pub(crate) fn start_recovery_clock(&self) {
        let now = self.now();
        if let Some(deadline) = self.recovery.start_clock(now, self.world.clock.wall()) {
            tracing::info!(target: EACH_LINE, target = self.name(), clients = self.recovery.view(now).known,
                seconds = deadline.since(now).as_secs(), awaited = self.awaited_in_words(),
                "recovery begins: waits this long for the clients of before the restart to reconnect and replay");
            self.alarm.notify_one();
        }
    }

    /// A client says how far it has replayed.
    pub(crate) fn note_progress(self: &Arc<Self>, export: &Export, flags: MsgFlags) {
        let wanted = if flags.contains(MsgFlags::LOCK_REPLAY_DONE) {
            ExportState::ReplayedAll
        } else if flags.contains(MsgFlags::REQ_REPLAY_DONE) {
            ExportState::ReplayingLocks
        } else {
            return;
        };
        let from = {
            let mut state = export.lock();
            let from = state.state;
            let forward = matches!(
                (from, wanted),
                (ExportState::Replaying, _)
                    | (ExportState::ReplayingLocks, ExportState::ReplayedAll)
            );
            if !forward || from == wanted {
                return;
            }
            state.state = wanted;
            from
        };
        self.end_recovery_if(self.recovery.client_moved(export.handle(), from, wanted));
    }

    /// Ends recovery, by a task of its own, if the window has decided so.
    pub(crate) fn end_recovery_if(&self, ended: EndDecided) {
        if ended.0 {
            let target = self.arc();
            let task = Box::pin(async move { target.end_recovery().await });
            self.world.tasks.spawn("target_recovery", task);
        }
    }

    async fn end_recovery(self: &Arc<Self>) {
        if self.recovery.is_stopped() {
            // Decided and not begun: the next start awaits the clients, which have nothing more to replay.
            return;
        }
        if let Some(redo) = self.operations.redo() {
            redo.hide_unfinished(self);
        }
        self.history.begin_epoch();
        let now = self.now();
        for export in self.exports() {
            let mut state = export.lock();
            if matches!(state.state, ExportState::ReplayedAll | ExportState::ReplayingLocks) {
                state.state = ExportState::Full;
            }
            // A client that waited for an answer could not ping.
            state.last_request = now;
        }
        let mut actions = Vec::new();
        self.locks.recovery_done(self.now(), &mut actions);
        self.recovery.finish(self.now());
        self.perform(actions);
        let view = self.recovery.view(self.now());
        tracing::info!(
            target: EACH_LINE,
            target = self.name(),
            clients = view.known,
            recovered = view.connected,
            evicted = view.evicted,
            replayed = view.replayed,
            seconds = view.duration.as_secs(),
            "recovery over"
        );
        if self.recovery.is_lossy() {
            self.revoke_metadata_locks().await;
            if self.recovery.is_stopped() {
                // The locks are not revoked, only waited for no more.
                return;
            }
            self.recovery.end_revocation();
        }
        self.operations.recovered(self).await;
        self.forget_losses();
    }

    /// All is done about what this recovery, and those before it, have lost.
    pub(crate) fn forget_losses(&self) {
        let forgotten = RecoveryLosses::forget(&*self.store).and_then(|transaction| {
            match transaction.changes.is_empty() {
                true => Ok(()),
                false => self.store.apply(transaction).map(drop),
            }
        });
        if let Err(error) = forgotten {
            // It is done again after the next start.
            tracing::warn!(target = self.name(), %error, "cannot forget that recovery has lost clients");
        }
    }

    /// Revokes all locks under which clients keep names and attributes: what they saw may be of a
    /// change that a lost client made and that is not replayed. A name whose file is gone would stay
    /// with the lock on that file, and another client could make it anew meanwhile.
    async fn revoke_metadata_locks(self: &Arc<Self>) {
        // All but `LAYOUT`: a client that writes under one may wait for an OST.
        let revoked = InodeBits::LOOKUP
            .union(InodeBits::UPDATE)
            .union(InodeBits::PERM)
            .union(InodeBits::XATTR);
        let mut asked: Vec<BoxFuture<'_, _>> = Vec::new();
        for (resource, kind) in self.locks.resources() {
            if kind != LockKind::InodeBits {
                continue;
            }
            let mut lock: BoxFuture<'_, _> =
                Box::pin(self.lock(resource, Policy::bits(revoked), LockMode::Ex));
            // All callbacks are sent before the first is waited for.
            let is_free =
                poll_fn(|context| Poll::Ready(lock.as_mut().poll(context).is_ready())).await;
            if !is_free {
                asked.push(lock);
            }
        }
        tracing::info!(target = self.name(), files = asked.len(), "revoking what clients keep");
        for lock in asked {
            // It ends at once when the target stops.
            drop(lock.await);
        }
    }

    /// Ends recovery now: clients that have not finished are evicted (`abort_recovery`).
    pub async fn abort_recovery(self: &Arc<Self>) {
        if self.recovery.abort(self.now()) {
            tracing::warn!(target: EACH_LINE, target = self.name(),
                "an operator ends recovery, evicting the clients that have not finished (abort_recovery)");
            self.give_up(&Expired::Unfinished, |_| true).await;
        }
    }

    /// Gives up the MDTs that have not finished recovery: no other client is evicted (`abort_recovery_mdt`).
    pub async fn abort_recovery_of_mdts(self: &Arc<Self>) {
        if self.recovery.is_running() {
            tracing::warn!(target: EACH_LINE, target = self.name(),
                "an operator gives up the MDTs that have not finished recovery (abort_recovery_mdt)");
            self.recovery.give_up_mdts();
            self.give_up(&Expired::Unfinished, is_mdt).await;
        }
    }

    /// Never waits: the evictions are a task of their own.
    pub(crate) fn check_recovery_deadline(self: &Arc<Self>) {
        if let Some(expired) = self.recovery.expire(self.now()) {
            tracing::warn!(target: EACH_LINE, target = self.name(), "recovery timed out, evicting stale clients");
            let target = Arc::clone(self);
            let task = async move { target.give_up(&expired, |_| true).await };
            self.world.tasks.spawn("target_recovery", Box::pin(task));
        }
    }

    /// Evicts the clients that hold recovery up, of those that are `meant`.
    async fn give_up(self: &Arc<Self>, expired: &Expired, meant: fn(&Uuid) -> bool) {
        for export in self.exports() {
            let state = export.state();
            if meant(export.uuid()) && expired.gives_up(export.handle(), state) {
                if self.recovery.is_stopped() {
                    return;
                }
                tracing::warn!(target: EACH_LINE, target = self.name(), client = %export.uuid(), nid = %export.nid(), ?state,
                    "client did not finish recovery in time, evicting it");
                self.evict(&export).await;
            }
        }
        self.end_recovery_if(self.recovery.resume());
    }
}
