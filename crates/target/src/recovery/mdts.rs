//! Waiting for the other MDTs of a file system, which say what this one has lost of changes over several
//! ([`crate::distributed`]): no client replays before they have, so that what it replays finds what was redone.
//!
//! There is no limit but what an operator gives up ([`Recovery::give_up_mdts`]); the time that clients have to replay begins
//! when it is over.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use sheen_types::{Instant, MdtIndex};

use super::{EndDecided, Recovery, RecoveryStatus};

/// How far this MDT has come with the other MDTs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MdtProgress {
    /// What was lost of changes over several MDTs is not redone yet.
    is_redoing: bool,
    /// No other MDT is waited for any more: an operator has given them up, or the target stops.
    is_given_up: bool,
}

impl Recovery {
    /// One that waits for these MDTs, too.
    pub(crate) fn awaiting(mut self, mdts: BTreeSet<MdtIndex>) -> Self {
        if mdts.is_empty() {
            return self;
        }
        self.mdts.change(|progress| progress.is_redoing = true);
        self.running = AtomicBool::new(true);
        let window = self.window.get_mut();
        window.status = RecoveryStatus::WaitingForClients;
        (window.awaits_mdts, window.awaited_mdts) = (true, mdts);
        self
    }

    /// The MDTs that are waited for.
    pub(crate) fn awaited_mdts(&self) -> Vec<MdtIndex> {
        self.window.lock().awaited_mdts.iter().copied().collect()
    }

    /// Nothing is waited for of this one any more.
    pub(crate) fn mdt_is_done(&self, mdt: MdtIndex) {
        self.window.lock().awaited_mdts.remove(&mdt);
    }

    /// No MDT is waited for any more.
    pub(crate) fn give_up_mdts(&self) {
        self.mdts.change(|progress| progress.is_given_up = true);
    }

    /// Completes when no MDT is waited for any more, though not all have answered.
    pub(crate) fn until_mdts_are_given_up(&self) -> impl Future<Output = ()> + Send + use<> {
        let given_up = self.mdts.until(|progress| progress.is_given_up);
        async move { _ = given_up.await }
    }

    /// What was lost is redone, and durable. What clients keep is revoked after recovery if anything was: they may not have
    /// seen it.
    pub(crate) fn note_redone(&self, anything: bool) {
        self.window.lock().is_lossy |= anything;
        self.mdts.change(|progress| progress.is_redoing = false);
    }

    /// If the window is open, and no client can have replayed a lock yet: what clients keep is revoked after it.
    pub(crate) fn becomes_lossy(&self) -> bool {
        let mut window = self.window.lock();
        let may = window.is_running() && !window.replays_locks() && !window.end_is_decided;
        window.is_lossy |= may;
        may
    }

    /// Completes when what was lost is redone, or nothing was.
    pub(crate) fn until_redone(&self) -> impl Future<Output = ()> + Send + use<> {
        let redone = self.mdts.until(|progress| !progress.is_redoing);
        async move { _ = redone.await }
    }

    /// All is done that other MDTs were needed for: clients replay.
    pub(crate) fn end_wait_for_mdts(&self, now: Instant) -> EndDecided {
        let mut window = self.window.lock();
        window.awaits_mdts = false;
        window.awaited_mdts.clear();
        if window.started.is_some() {
            window.mdts_done_at = Some(now);
            window.deadline = Some(now + self.timeouts().recovery_soft);
        }
        window.advance()
    }
}
