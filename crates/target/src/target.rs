//! The target itself: what it owns, how it starts and stops, and what roles ask of it.

use std::collections::BTreeSet;
use std::fmt;
#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sheen_io::World;
use sheen_ldlm::server::Namespace;
use sheen_store::{Store, StoreError, Transaction};
use sheen_types::{Counters, Errno, Instant, ObdHandle, Transno};
use tokio::sync::Notify;

use crate::EACH_LINE;
use crate::budget::Budget;
use crate::callbacks::{ReverseChannels, Waiters};
use crate::config::{ConnectOffer, TargetConfig};
use crate::distributed::Distributed;
use crate::epoch::Epoch;
use crate::export::{Export, ExportTable};
use crate::fault::Faults;
use crate::history::History;
use crate::in_progress::{Wait, while_waiting};
use crate::jobs::Jobs;
use crate::last_rcvd::{
    ClientRecord, LastRcvd, ReplyRecord, Slot, put_epoch, put_server, remove_strays,
};
use crate::operations::{ExportEnd, Operations};
use crate::rate_limit::RateLimitedWarning;
use crate::recovery::Recovery;
use crate::servers::ServerNodes;
use crate::services::Services;
use crate::stats::Stats;
use crate::store_errno::store_errno;
use crate::undurable::Undurable;

/// Why a target does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// Its store failed, or holds records we cannot read.
    Store(StoreError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(out, "the target's store: {error}"),
        }
    }
}

impl std::error::Error for TargetError {}

impl From<StoreError> for TargetError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A target: an MDT, an OST or the MGS, as the crate's documentation says.
pub struct Target {
    me: Weak<Target>,
    pub(crate) world: World,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: TargetConfig,
    /// What clients are offered, as operators have set it.
    pub(crate) offer: Mutex<ConnectOffer>,
    pub(crate) operations: Arc<dyn Operations>,
    pub(crate) reverse: Arc<dyn ReverseChannels>,
    pub(crate) exports: ExportTable,
    pub(crate) history: Arc<History>,
    pub(crate) undurable: Undurable,
    pub(crate) distributed: Distributed,
    pub(crate) recovery: Recovery,
    pub(crate) locks: Namespace,
    pub(crate) budget: Budget,
    pub(crate) lock_waiters: Waiters,
    pub(crate) stats: Stats,
    pub(crate) counters: Counters,
    pub(crate) jobs: Jobs,
    pub(crate) services: Services,
    pub(crate) faults: Faults,
    /// How often the target has been started.
    pub(crate) instance: u32,
    pub(crate) stopping: AtomicBool,
    /// The number of the next new client.
    pub(crate) next_number: AtomicU32,
    /// Wakes the keeper of time: a deadline may have come nearer.
    pub(crate) alarm: Arc<Notify>,
    /// How often the keeper of time has looked.
    #[cfg(test)]
    pub(crate) looks: AtomicU64,
    /// Where servers of the file system are.
    pub(crate) server_nodes: Mutex<Option<Arc<dyn ServerNodes>>>,
    /// Lines about what was refused.
    pub(crate) refusals: RateLimitedWarning,
}

/// One start of a target.
#[derive(Clone, Copy)]
struct Start {
    /// How many starts there were, this one included.
    instance: u32,
    epoch: Epoch,
}

/// What the store knows of the starts before this one, which it has a record of from now on.
fn record_start(store: &dyn Store, config: &TargetConfig) -> Result<(LastRcvd, Start), StoreError> {
    let mut past = LastRcvd::load(store)?;
    let mut transaction = Transaction::new();
    let instance = past.next_instance()?;
    let epoch = match past.next_epoch() {
        Some(epoch) => epoch,
        None => {
            tracing::error!(target = config.name, last = %past.transno, clients = past.clients.len(),
                "no transaction number can follow the last one in the store, which is damaged or was \
                written by a client's false replay: numbers begin anew and all clients are evicted; \
                unmount and mount again those that are mounted now");
            past.renumber(store, instance, &mut transaction)?
        }
    };
    put_server(&mut transaction, instance);
    put_epoch(&mut transaction, epoch);
    let clients: Vec<u32> = past.clients.iter().map(|(record, _)| record.number).collect();
    remove_strays(store, &clients, &mut transaction)?;
    store.apply(transaction)?;
    Ok((past, Start { instance, epoch }))
}

/// The history that goes on behind `last` and learns from the store what is durable.
fn begin_history(world: &World, store: &dyn Store, last: Transno, epoch: Epoch) -> Arc<History> {
    let clock = Arc::clone(&world.clock);
    let history = Arc::new(History::new(last, epoch));
    let hook = Arc::clone(&history);
    store.on_commit(Box::new(move |committed| match committed {
        Ok(sequence) => hook.on_commit(sequence),
        Err(error) => hook.on_failure(clock.now(), &error),
    }));
    history
}

impl Target {
    /// Starts a target on what its store holds: known clients are awaited, or if there are none,
    /// recovery is over at once. Requests may come as soon as this returns.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub async fn start(
        world: World,
        store: Arc<dyn Store>,
        config: TargetConfig,
        operations: Arc<dyn Operations>,
        reverse: Arc<dyn ReverseChannels>,
    ) -> Result<Arc<Self>, TargetError> {
        let (past, start) = record_start(&*store, &config)?;
        let history = begin_history(&world, &*store, past.transno, start.epoch);
        let distributed = Distributed::load(&*store, &config, world.clock.now())?;
        let known = if config.replayable { past.clients } else { Vec::new() };
        let numbers = known.iter().map(|(record, _)| record.number.wrapping_add(1));
        let next_number = numbers.max().unwrap_or(0);
        let locks = Namespace::new(sheen_ldlm::server::Config {
            seed: world.random.number(),
            callback_timeout: config.timeouts.lock_callback,
        });
        let counters = Counters::new(operations.counters());
        let jobs = Jobs::new(operations.counters());
        let partners = match config.replayable && operations.redo().is_some() {
            true => distributed.partners(),
            false => BTreeSet::new(),
        };
        let recovery = Recovery::new(known.len(), past.transno, past.losses, config.timeouts);
        let target = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            recovery: recovery.awaiting(partners),
            world,
            store,
            offer: Mutex::new(config.offer.clone()),
            config,
            operations,
            reverse,
            exports: ExportTable::default(),
            history,
            undurable: Undurable::default(),
            distributed,
            locks,
            budget: Budget::default(),
            lock_waiters: Waiters::default(),
            stats: Stats::new(),
            counters,
            jobs,
            services: Services::new(),
            faults: Faults::default(),
            instance: start.instance,
            stopping: AtomicBool::new(false),
            next_number: AtomicU32::new(next_number),
            alarm: Arc::new(Notify::new()),
            #[cfg(test)]
            looks: AtomicU64::default(),
            server_nodes: Mutex::new(None),
            refusals: RateLimitedWarning::default(),
        });
        target.begin_service(known).await?;
        Ok(target)
    }

    /// Awaits the clients that were known before the start. Without any, recovery is over at once.
    async fn begin_service(
        self: &Arc<Self>,
        known: Vec<(ClientRecord, Vec<(Slot, ReplyRecord)>)>,
    ) -> Result<(), StoreError> {
        if self.recovery.is_running() {
            self.locks.recovery_started();
        }
        let awaited = known.len();
        for (record, replies) in known {
            self.restore_export(&record, replies);
        }
        self.commit_all().await?;
        self.operations.started(self).await;
        let (instance, last) = (self.instance, self.last_transno());
        match awaited {
            0 => {
                tracing::info!(target: EACH_LINE, target = self.name(), instance, %last, clients = awaited,
                "started, with no client to recover")
            }
            _ => {
                tracing::info!(target: EACH_LINE, target = self.name(), instance, %last, clients = awaited,
                awaited = self.awaited_in_words(),
                "started, will recover: waits for the clients of before the restart")
            }
        }
        if self.recovery.view(self.now()).lost_before.clients {
            tracing::warn!(target: EACH_LINE, target = self.name(),
                "an earlier recovery lost clients and did not come to its end: what it has not done is done after this one");
        }
        if !self.recovery.is_running() {
            self.history.begin_epoch();
            self.operations.recovered(self).await;
            self.forget_losses();
        }
        self.keep_time();
        self.begin_recovery_of_changes();
        Ok(())
    }

    /// Stops: clients stay recorded and are awaited when the target starts again. Everything
    /// applied is durable afterwards. A recovery that is not over stays as it is: what clients have not
    /// replayed they replay to the next start.
    ///
    /// # Errors
    /// [`Errno::EIO`] if the store failed.
    pub async fn stop(self: &Arc<Self>) -> Result<(), Errno> {
        self.stopping.store(true, Ordering::Release);
        // Before the first export goes: their departure would complete the window and end it.
        self.recovery.stop();
        self.alarm.notify_one();
        for export in self.exports() {
            self.drop_export(&export, ExportEnd::Stopping).await;
        }
        self.lock_waiters.clear();
        self.sync().await
    }

    /// The target's name, as `lustre-MDT0000`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What clients that connect are offered.
    #[must_use]
    pub fn offer(&self) -> ConnectOffer {
        self.offer.lock().clone()
    }

    /// Changes that, for clients that connect from now on, anew or again.
    pub fn change_offer(&self, change: impl FnOnce(&mut ConnectOffer)) {
        change(&mut self.offer.lock());
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Where everything of it lies.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Clock, randomness, tasks.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Whether it was never started before. A client that has seen it knows another one, whose place it has
    /// (`mkfs.lustre --replace`).
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.instance == 1
    }

    /// How often it has been started (`ocd_instance`).
    #[must_use]
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// The target's locks, for views and for hooks that look before they ask.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.locks
    }

    /// Named places where tests make requests fail.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Everything up to here is durable.
    #[must_use]
    pub fn last_committed(&self) -> Transno {
        self.history.committed()
    }

    /// The last transaction that was durable when this target started.
    #[must_use]
    pub fn durable_at_start(&self) -> Transno {
        self.history.start()
    }

    /// The newest transaction.
    #[must_use]
    pub fn last_transno(&self) -> Transno {
        self.history.last()
    }

    /// Completes when `transno` is durable; asks the store to hurry.
    ///
    /// # Errors
    /// Why it never will be: the store failed.
    pub async fn wait_until_committed(&self, transno: Transno) -> Result<(), Errno> {
        if self.history.committed() >= transno {
            return Ok(());
        }
        let durable = self.history.wait(transno);
        self.store.commit_soon();
        while_waiting(Wait::Disk, durable).await
    }

    /// Completes when all transactions so far are durable; asks the store to hurry.
    ///
    /// # Errors
    /// As [`Target::wait_until_committed`].
    pub async fn wait_until_all_committed(&self) -> Result<(), Errno> {
        let durable = self.history.wait_for_all();
        self.store.commit_soon();
        while_waiting(Wait::Disk, durable).await
    }

    /// Completes when all that was applied and written so far is durable.
    ///
    /// # Errors
    /// [`Errno::EIO`] if the store failed.
    pub async fn sync(&self) -> Result<(), Errno> {
        self.commit_all().await.map_err(store_errno)
    }

    async fn commit_all(&self) -> Result<(), StoreError> {
        let lost = || StoreError::Io("the task that commits was dropped".to_owned());
        let done = Arc::new(Mutex::new(None));
        let (store, result) = (Arc::clone(&self.store), Arc::clone(&done));
        let job = move || *result.lock() = Some(store.commit().map(drop));
        while_waiting(Wait::Disk, self.world.tasks.blocking(Box::new(job))).await;
        let committed = done.lock().take();
        committed.unwrap_or_else(|| Err(lost()))
    }

    /// The client that names itself with `handle` in its requests.
    #[must_use]
    pub(crate) fn export(&self, handle: ObdHandle) -> Option<Arc<Export>> {
        self.exports.by_handle(handle)
    }

    /// The client with this UUID.
    #[must_use]
    pub fn export_of(&self, uuid: &sheen_types::Uuid) -> Option<Arc<Export>> {
        self.exports.by_uuid(uuid)
    }

    /// All clients.
    #[must_use]
    pub fn exports(&self) -> Vec<Arc<Export>> {
        self.exports.all()
    }

    pub(crate) fn was_durable_at_start(&self, transno: Transno) -> bool {
        transno <= self.history.start()
    }

    /// This target, for tasks that outlive the caller.
    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("a target is called through its Arc")
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.clock.now()
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.lock_waiters
    }
}
