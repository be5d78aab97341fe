//! What each client may have of this target, as operators have set it, and how often one wanted more.

mod estimate;
mod opens;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sheen_types::{Errno, Instant, Nid};

use self::estimate::{Estimate, Usage};
use self::opens::OpensAccount;
pub use self::opens::{OpenedBy, Opener};
use crate::export::Export;
use crate::limits;
use crate::replays::FalseReplay;
use crate::target::Target;

/// What a client may have only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Exports of one client.
    Exports,
    /// Locks of all its exports.
    Locks,
    /// Open files of all its exports.
    Opens,
    /// Callbacks that it has not answered.
    Callbacks,
}

impl Limit {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Exports, Self::Locks, Self::Opens, Self::Callbacks];
}

/// The limits of each client of a target.
#[derive(Debug)]
pub struct Budget {
    limits: [AtomicUsize; Limit::ALL.len()],
    /// What a client may bring along after a restart.
    replayed: [AtomicUsize; Limit::ALL.len()],
    refused: [AtomicU64; Limit::ALL.len()],
}

impl Default for Budget {
    fn default() -> Self {
        let limits = Limit::ALL.map(|limit| match limit {
            Limit::Exports => limits::EXPORTS_PER_NID,
            Limit::Locks => limits::LOCKS_PER_CLIENT,
            Limit::Opens => limits::OPENS_PER_CLIENT,
            Limit::Callbacks => limits::CALLBACKS_PER_CLIENT,
        });
        Self {
            limits: limits.map(AtomicUsize::new),
            replayed: limits.map(|most| AtomicUsize::new(most * limits::REPLAYED_TIMES)),
            refused: Default::default(),
        }
    }
}

impl Budget {
    /// So much a client may have.
    #[must_use]
    pub fn of(&self, limit: Limit) -> usize {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// From now on a client may have so much; what it has stays.
    pub fn set(&self, limit: Limit, value: usize) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
        let replayed = value.saturating_mul(limits::REPLAYED_TIMES);
        self.replayed[limit as usize].fetch_max(replayed, Ordering::Relaxed);
    }

    /// So much a client may bring along after a restart: what it had may have been of a higher limit, and more than that
    /// by what was under way.
    fn of_replays(&self, limit: Limit) -> usize {
        self.replayed[limit as usize].load(Ordering::Relaxed)
    }

    /// Sets how much of it a client may bring along after a restart.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_of_replays(&self, limit: Limit, value: usize) {
        self.replayed[limit as usize].store(value, Ordering::Relaxed);
    }

    /// A client wanted more and was refused.
    pub(crate) fn refuse(&self, limit: Limit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    #[must_use]
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }
}

/// What is counted of one client: a node, with all of its exports.
#[derive(Debug)]
pub(crate) struct Account {
    /// Whose it is.
    pub(crate) nid: Nid,
    /// By handle, so that they are always called in the same order.
    exports: Mutex<BTreeMap<u64, Weak<Export>>>,
    locks: Estimate,
    flocks: Estimate,
    opens: OpensAccount,
    reclaimed: Mutex<Option<Instant>>,
}

impl Account {
    pub(crate) fn of(nid: Nid) -> Self {
        Self {
            nid,
            exports: Mutex::default(),
            locks: Estimate::default(),
            flocks: Estimate::default(),
            opens: OpensAccount::default(),
            reclaimed: Mutex::default(),
        }
    }

    /// Counts one more export, unless there are `most`.
    pub(crate) fn enter(&self, export: &Arc<Export>, most: usize) -> bool {
        let mut exports = self.exports.lock();
        let enters = exports.len() < most;
        if enters {
            exports.insert(export.handle().0, Arc::downgrade(export));
        }
        enters
    }

    /// One fewer; whether there is none any more.
    pub(crate) fn leave(&self, export: &Export) -> bool {
        let mut exports = self.exports.lock();
        exports.remove(&export.handle().0);
        exports.is_empty()
    }

    /// An export has come with what it holds.
    pub(crate) fn recount(&self) {
        self.locks.forget();
        self.flocks.forget();
        self.opens.forget();
    }

    fn exports(&self) -> Vec<Arc<Export>> {
        self.exports.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Requests that are refused between two counts of its locks.
    fn patience(&self) -> usize {
        self.len() / limits::EXPORTS_COUNTED
    }

    fn len(&self) -> usize {
        self.exports.lock().len()
    }
}

impl Target {
    /// What each client may have of this target.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What is counted of an export's client, if that is limited: what is in the server's own process is not.
    fn limited(&self, export: &Export) -> Option<Arc<Account>> {
        export.account().filter(|_| !self.is_own_node(export.nid()))
    }

    /// How many exports the client of this one has; `None` if that is not limited.
    pub(crate) fn exports_of_client(&self, export: &Export) -> Option<usize> {
        self.limited(export).map(|account| account.len())
    }

    /// How many exports one node may have here.
    pub(crate) fn exports_most(&self, nid: Nid) -> usize {
        if self.is_own_node(nid) { usize::MAX } else { self.budget.of(Limit::Exports) }
    }

    /// Whether a client may have one more lock. Where it nears its limit, the oldest are revoked.
    ///
    /// # Errors
    /// [`Errno::EINPROGRESS`] as Lustre has it for too many locks: the client asks again a little later.
    pub(crate) fn check_lock_budget(self: &Arc<Self>, export: &Export) -> Result<(), Errno> {
        let Some(account) = self.limited(export) else { return Ok(()) };
        let most = self.budget.of(Limit::Locks);
        let near = most / 8 * limits::LOCKS_RECLAIMED_FROM;
        let mut each = Vec::new();
        let has = account.locks.ask(near, most, account.patience(), || {
            each = self.locks_of(&account);
            each.iter().map(|(_, count)| count).sum()
        });
        if let Usage::Counted(has) | Usage::All(has) = has
            && has >= near
        {
            self.reclaim_locks(&account, &each, has);
        }
        self.refuse_over_budget(export, Limit::Locks, has, Errno::EINPROGRESS)
    }

    /// Whether a client may have one more flock. Programs hold these and nothing revokes them: a program that
    /// had all of its client's locks would stop every other program there.
    ///
    /// # Errors
    /// [`Errno::ENOLCK`] if it has too many.
    pub(crate) fn check_flock_budget(&self, export: &Export) -> Result<(), Errno> {
        let Some(account) = self.limited(export) else { return Ok(()) };
        let most = self.budget.of(Limit::Locks) / limits::FLOCKS_SHARE;
        let has = account.flocks.ask(most, most, account.patience(), || {
            let of = |export: &Arc<Export>| self.locks.flocks_of(export.handle().0);
            account.exports().iter().map(of).sum()
        });
        self.refuse_over_budget(export, Limit::Locks, has, Errno::ENOLCK)
    }

    /// A flock of a client begins to wait: it is as many as two, one that it may cut another one in two for when it is
    /// granted.
    pub(crate) fn flock_waits(&self, export: &Export) {
        if let Some(account) = export.account() {
            account.locks.note_more();
            account.flocks.note_more();
        }
    }

    /// How many locks each export of a client has.
    fn locks_of(&self, account: &Account) -> Vec<(u64, usize)> {
        let of = |export: &Arc<Export>| (export.handle().0, self.locks.count_of(export.handle().0));
        account.exports().iter().map(of).collect()
    }

    /// Whether a client that replays one more lock can have had so many.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if not: it is evicted.
    pub(crate) fn check_replayed_lock_budget(
        self: &Arc<Self>,
        export: &Arc<Export>,
    ) -> Result<(), Errno> {
        let Some(account) = self.limited(export) else { return Ok(()) };
        let most = self.budget.of_replays(Limit::Locks);
        let has = account.locks.ask(most, most, account.patience(), || {
            self.locks_of(&account).iter().map(|(_, count)| count).sum()
        });
        self.evict_over_budget(export, Limit::Locks, has)
    }

    fn evict_over_budget(
        self: &Arc<Self>,
        export: &Arc<Export>,
        limit: Limit,
        has: Usage,
    ) -> Result<(), Errno> {
        let Usage::All(_) = has else { return Ok(()) };
        self.budget.refuse(limit);
        self.fail_export(export, FalseReplay::TooMany(limit));
        Err(Errno::ENODEV)
    }

    /// A client has cancelled locks.
    pub(crate) fn locks_cancelled(&self, export: &Export, count: usize) {
        if let Some(account) = export.account() {
            account.locks.note_cancelled(count);
        }
    }

    fn refuse_over_budget(
        &self,
        export: &Export,
        limit: Limit,
        has: Usage,
        refusal: Errno,
    ) -> Result<(), Errno> {
        match has {
            Usage::All(has) => Err(self.refuse_more(export, limit, has, refusal)),
            Usage::Few | Usage::Counted(_) => Ok(()),
        }
    }

    /// Counts and logs that a client that `has` so many is refused more.
    fn refuse_more(&self, export: &Export, limit: Limit, has: usize, refusal: Errno) -> Errno {
        self.budget.refuse(limit);
        let (client, nid) = (export.uuid(), export.nid());
        tracing::warn!(target = self.name(), %client, %nid, ?limit, has, "a client has too many");
        refusal
    }

    /// Revokes the locks that a client has had for longest, of each of its exports in proportion. A client that
    /// does not cancel them is evicted.
    fn reclaim_locks(self: &Arc<Self>, account: &Account, each: &[(u64, usize)], has: usize) {
        let now = self.now();
        if each.is_empty() {
            return;
        }
        {
            let mut last = account.reclaimed.lock();
            if last.is_some_and(|last| now.since(last) < limits::LOCKS_RECLAIM_PAUSE) {
                return;
            }
            *last = Some(now);
        }
        let mut actions = Vec::new();
        for (export, count) in each {
            let share = (limits::LOCKS_RECLAIMED * count).div_ceil(has.max(1));
            self.locks.reclaim(now, *export, share, &mut actions);
        }
        self.perform(actions);
        self.lock_timer_changed();
    }
}
