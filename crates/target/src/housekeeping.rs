//! The keeper of time: lock deadlines, the recovery window, silent clients, what takes long.
//!
//! One task per target sleeps until the nearest deadline or until another task has set a nearer
//! one.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use sheen_io::BoxFuture;
use sheen_ldlm::{LockKind, Policy};
use sheen_types::futures::race;
use sheen_types::{InodeBits, Instant, LockMode};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::ptlrpc::MsgFlags;

use crate::EACH_LINE;
use crate::export::{Export, ExportState};
use crate::limits::LATE_LOOK_PAUSE;
use crate::recovery::{Expired, RecoveryEnded};
use crate::target::Target;

/// How many times silent clients are looked for within the time they may be silent.
const LOOKS_PER_SILENCE: u32 = 6;
/// A client that misses so many pings in a row is dead (`PING_EVICT_TIMEOUT`).
const PINGS_MISSED_MAX: u32 = 6;

impl Target {
    pub(crate) fn keep_time(self: &Arc<Self>) {
        let target = Arc::downgrade(self);
        self.world.tasks.spawn("target_time", Box::pin(keep_time(target)));
    }

    /// A lock deadline may have come nearer.
    pub(crate) fn lock_timer_changed(&self) {
        self.alarm.notify_one();
    }

    /// A client connects: the recovery window has a limit from now on.
    pub(crate) fn start_recovery_clock(&self) {
        let now = self.now();
        if let Some(deadline) = self.recovery.start_clock(now, self.world.clock.wall()) {
            tracing::info!(target: EACH_LINE, target = self.name(), clients = self.recovery.view(now).known,
                seconds = deadline.since(now).as_secs(),
                "recovery begins: waits this long for the clients of before the restart to reconnect and replay");
            self.alarm.notify_one();
        }
    }

    /// A client says how far it has replayed.
    pub(crate) fn note_progress(self: &Arc<Self>, export: &Export, flags: MsgFlags) {
        let wanted = if flags.contains(MsgFlags::LOCK_REPLAY_DONE) {
            ExportState::Recovered
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
                (ExportState::Replaying, _) | (ExportState::ReplayingLocks, ExportState::Recovered)
            );
            if !forward || from == wanted {
                return;
            }
            state.state = wanted;
            from
        };
        self.recovery_step(self.recovery.moved(export.handle().0, from, wanted));
    }

    /// Acts upon what the recovery window decided.
    pub(crate) fn recovery_step(&self, ended: RecoveryEnded) {
        if ended.0 {
            let target = self.arc();
            let task = Box::pin(async move { target.end_recovery().await });
            self.world.tasks.spawn("target_recovery", task);
        }
    }

    async fn end_recovery(self: &Arc<Self>) {
        self.history.begin_epoch();
        let now = self.now();
        for export in self.exports() {
            let mut state = export.lock();
            if matches!(state.state, ExportState::Recovered | ExportState::ReplayingLocks) {
                state.state = ExportState::Full;
            }
            // A client that waited for an answer could not ping.
            state.last_request = now;
        }
        let mut actions = Vec::new();
        self.locks.recovery_done(self.now(), &mut actions);
        self.recovery.finish(self.now());
        self.carry_out(actions);
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
            self.revoke_names().await;
            self.recovery.settled();
        }
        self.operations.recovered(self).await;
    }

    /// Revokes all locks under which clients keep names and attributes: what they saw may be of a
    /// change that a lost client made and that is not replayed. A name whose file is gone would stay
    /// with the lock on that file, and another client could make it anew meanwhile.
    async fn revoke_names(self: &Arc<Self>) {
        // Layouts stay: a client that writes under one may wait for an OST.
        let kept = InodeBits::LOOKUP
            .union(InodeBits::UPDATE)
            .union(InodeBits::PERM)
            .union(InodeBits::XATTR);
        let mut asked: Vec<BoxFuture<'_, _>> = Vec::new();
        for (resource, kind) in self.locks.resources() {
            if kind != LockKind::InodeBits {
                continue;
            }
            let mut lock: BoxFuture<'_, _> =
                Box::pin(self.lock(resource, Policy::bits(kept), LockMode::Ex));
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
            self.give_up(&Expired::Unfinished).await;
        }
    }

    /// Never waits: an eviction may have to wait for a lock whose deadline is kept here.
    fn check_deadlines(self: &Arc<Self>) {
        let mut actions = Vec::new();
        self.locks.poll(self.now(), &mut actions);
        self.carry_out(actions);
        if let Some(expired) = self.recovery.expire(self.now()) {
            tracing::warn!(target: EACH_LINE, target = self.name(), "recovery timed out, evicting stale clients");
            let target = Arc::clone(self);
            let task = async move { target.give_up(&expired).await };
            self.world.tasks.spawn("target_recovery", Box::pin(task));
        }
        if !self.recovery.is_running() {
            self.evict_silent_clients();
        }
        self.report_late();
    }

    /// Evicts the clients that hold recovery up.
    async fn give_up(self: &Arc<Self>, expired: &Expired) {
        for export in self.exports() {
            let state = export.state();
            if expired.gives_up(export.handle().0, state) {
                tracing::warn!(target = self.name(), client = %export.uuid(), nid = %export.nid(), ?state,
                    "client did not finish recovery in time, evicting it");
                self.evict(&export).await;
            }
        }
        self.recovery_step(self.recovery.resume());
    }

    /// Clients ping when they have nothing else to send; one that does not is dead. Servers are
    /// never given up: they come back.
    fn evict_silent_clients(self: &Arc<Self>) {
        let now = self.now();
        for export in self.exports() {
            let (last, is_busy) = {
                let state = export.lock();
                // One that is being evicted already may have to wait for a disk.
                if state.state == ExportState::Gone {
                    continue;
                }
                (state.last_request, state.is_connecting || !state.in_progress.is_empty())
            };
            let is_server = export.has(ConnectFlags::MDS) || export.has(ConnectFlags::MDS_MDS);
            if now.since(last) > self.silence_max() && !is_server && !is_busy {
                tracing::warn!(target = self.name(), client = %export.uuid(), nid = %export.nid(),
                    seconds = now.since(last).as_secs(), "client is silent, evicting it");
                self.evict_soon(&export);
            }
        }
    }

    /// How long a client may be silent.
    fn silence_max(&self) -> Duration {
        Duration::from_millis(self.silence_ms_max.load(Ordering::Relaxed))
    }

    /// Clients are expected to ping each `interval`: one that misses six pings in a row is evicted
    /// from now on (`lctl set_param ping_interval`).
    pub fn expect_pings(&self, interval: Duration) {
        let silence = (interval * PINGS_MISSED_MAX).as_millis();
        self.silence_ms_max.store(silence as u64, Ordering::Relaxed);
        self.alarm.notify_one();
    }

    /// The base of what recovery waits for (`lctl set_param timeout`). How long it waits in all is said
    /// by itself.
    pub fn set_base_timeout(&self, base: Duration) {
        self.recovery.change_timeouts(|timeouts| timeouts.base = base);
    }

    /// How long a client may take to cancel a revoked lock.
    #[must_use]
    pub fn lock_callback_timeout(&self) -> Duration {
        self.recovery.timeouts().lock_callback
    }

    /// Changes that, for locks that are revoked from now on (`lctl set_param ldlm_timeout`).
    pub fn set_lock_callback_timeout(&self, time: Duration) {
        self.recovery.change_timeouts(|timeouts| timeouts.lock_callback = time);
        self.locks.set_callback_timeout(time);
    }

    /// How long recovery waits for clients from the first connect on, and how long in all.
    #[must_use]
    pub fn recovery_times(&self) -> (Duration, Duration) {
        let timeouts = self.recovery.timeouts();
        (timeouts.recovery_soft, timeouts.recovery_hard)
    }

    /// Changes the first of them (`recovery_time_soft`): of a recovery whose clock does not run yet.
    pub fn set_recovery_soft(&self, time: Duration) {
        self.recovery.change_timeouts(|timeouts| timeouts.recovery_soft = time);
    }

    /// Changes the other (`recovery_time_hard`).
    pub fn set_recovery_hard(&self, time: Duration) {
        self.recovery.change_timeouts(|timeouts| timeouts.recovery_hard = time);
    }

    fn next_deadline(&self) -> Instant {
        let look = self.now() + LATE_LOOK_PAUSE.min(self.silence_max() / LOOKS_PER_SILENCE);
        let deadlines = [self.locks.next_deadline(), self.recovery.deadline()];
        deadlines.into_iter().flatten().fold(look, Instant::min)
    }
}

async fn keep_time(target: Weak<Target>) {
    loop {
        let Some(strong) = target.upgrade() else { return };
        if strong.stopping.load(Ordering::Acquire) {
            return;
        }
        strong.check_deadlines();
        let sleep = strong.world.clock.sleep_until(strong.next_deadline());
        let alarm = Arc::clone(&strong.alarm);
        // A target of which there is no other reference ends with its last task.
        drop(strong);
        race(sleep, alarm.notified()).await;
    }
}
