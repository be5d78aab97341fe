//! The keeper of time: lock deadlines, the recovery window's deadline, silent clients, what takes long.
//!
//! One task per target sleeps until the nearest deadline or until another task has set a nearer
//! one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_types::Instant;
use sheen_types::futures::race;
use sheen_wire::connect::ConnectFlags;

use crate::EACH_LINE;
use crate::config::Timeouts;
use crate::export_state::ExportState;
use crate::limits::LATE_LOOK_PAUSE;
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

    /// Never waits: an eviction may have to wait for a lock whose deadline is kept here.
    fn check_deadlines(self: &Arc<Self>) {
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut actions = Vec::new();
        self.locks.poll(self.now(), &mut actions);
        self.perform(actions);
        self.check_recovery_deadline();
        if !self.recovery.is_running() {
            self.evict_silent_clients();
        }
        self.log_slow();
    }

    /// Clients ping when they have nothing else to send; one that does not is dead. Servers are
    /// never given up: they come back.
    fn evict_silent_clients(self: &Arc<Self>) {
        let (now, silence_max) = (self.now(), self.timeouts().ping_evict);
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
            if now.since(last) > silence_max && !is_server && !is_busy {
                tracing::warn!(target: EACH_LINE, target = self.name(), client = %export.uuid(), nid = %export.nid(),
                    seconds = now.since(last).as_secs(), "client is silent, evicting it");
                self.evict_soon(&export);
            }
        }
    }

    /// Clients are expected to ping each `interval`: one that misses six pings in a row is evicted
    /// from now on (`lctl set_param ping_interval`).
    pub fn expect_pings(&self, interval: Duration) {
        self.change_timeouts(|timeouts| timeouts.ping_evict = interval * PINGS_MISSED_MAX);
        self.alarm.notify_one();
    }

    /// What it waits for and how long, as operators have set it.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.recovery.timeouts()
    }

    /// Changes that (`timeout`, `ldlm_timeout`, `recovery_time_soft`, `recovery_time_hard`): for locks that are revoked
    /// from now on, and for a recovery whose clock does not run yet.
    pub fn change_timeouts(&self, change: impl FnOnce(&mut Timeouts)) {
        self.recovery.change_timeouts(change);
        self.locks.set_callback_timeout(self.timeouts().lock_callback);
    }

    fn next_deadline(&self) -> Instant {
        let look = self.now() + LATE_LOOK_PAUSE.min(self.timeouts().ping_evict / LOOKS_PER_SILENCE);
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
