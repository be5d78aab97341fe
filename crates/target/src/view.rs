//! What operators see of a target: plain values for the parameter tree.

use std::sync::Arc;
use std::time::Duration;

use sheen_ldlm::server::Gauges;
use sheen_types::{Errno, Instant, Nid, ObdHandle, Samples, Transno, Uuid, Xid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;

use crate::export::Export;
use crate::export_state::ExportState;
use crate::in_progress::{RequestInProgress, RequestView};
use crate::jobs::JobView;
use crate::recovery::{RecoveryStatus, RecoveryView};
use crate::stats::TargetStats;
use crate::target::Target;

/// Clients that one line of the log names.
const NAMED_MAX: usize = 4;

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportView {
    /// The client's UUID.
    pub uuid: Uuid,
    /// Where.
    pub nid: Nid,
    /// What the client puts into its requests.
    pub handle: ObdHandle,
    /// How far it has got.
    pub state: ExportState,
    /// What both sides agreed on.
    pub connect_data: ObdConnectData,
    /// When its last request arrived.
    pub last_request: Instant,
    /// Its newest transaction.
    pub last_transno: Transno,
    /// Answers kept for it.
    pub reply_records: usize,
}

/// A target as a whole.
#[derive(Clone, Debug)]
pub struct TargetView {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// How often it has been started.
    pub instance: u32,
    /// Everything up to here is durable.
    pub last_committed: Transno,
    /// The newest transaction.
    pub last_transno: Transno,
    /// Its clients, in the order of their UUIDs.
    pub exports: Vec<ExportView>,
    /// The recovery window.
    pub recovery: RecoveryView,
    /// Its locks.
    pub locks: Gauges,
    /// What it counted.
    pub stats: TargetStats,
}

impl Target {
    /// Everything at once.
    #[must_use]
    pub fn view(&self) -> TargetView {
        let mut exports: Vec<ExportView> = self
            .exports()
            .iter()
            .map(|export| {
                let state = export.lock();
                ExportView {
                    uuid: export.uuid().clone(),
                    nid: state.nid,
                    handle: export.handle(),
                    state: state.state,
                    connect_data: state.connect_data.clone(),
                    last_request: state.last_request,
                    last_transno: state.last_transno,
                    reply_records: state.replies.len(),
                }
            })
            .collect();
        exports.sort_by(|a, b| a.uuid.cmp(&b.uuid));
        TargetView {
            name: self.name().to_owned(),
            uuid: self.config.uuid.clone(),
            instance: self.instance,
            last_committed: self.last_committed(),
            last_transno: self.last_transno(),
            exports,
            recovery: self.recovery.view(self.now()),
            locks: self.locks.gauges(),
            stats: self.stats(),
        }
    }

    /// Where its recovery window is.
    #[must_use]
    pub fn recovery_status(&self) -> RecoveryStatus {
        self.recovery.status()
    }

    /// The counts.
    #[must_use]
    pub(crate) fn stats(&self) -> TargetStats {
        self.stats.snapshot()
    }

    /// The clients of before the restart that are not back, in the order of their UUIDs.
    #[must_use]
    pub fn stale_clients(&self) -> Vec<Uuid> {
        let awaited = |export: &Arc<Export>| export.state() == ExportState::Awaited;
        let mut stale: Vec<Uuid> =
            self.exports().iter().filter(|it| awaited(it)).map(|it| it.uuid().clone()).collect();
        stale.sort();
        stale
    }

    /// The first of them by name, for a line of the log.
    pub(crate) fn awaited_in_words(&self) -> String {
        let clients = self.stale_clients();
        let mut names: Vec<String> =
            clients.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        if let more @ 1.. = clients.len().saturating_sub(NAMED_MAX) {
            names.push(format!("and {more} more"));
        }
        names.join(" ")
    }

    /// Clients evicted since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.stats.evictions.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Starts the counts of operations anew.
    pub fn clear_stats(&self) {
        self.stats.clear();
        self.counters.clear();
    }

    /// What the role has counted.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        self.counters.samples()
    }

    /// Whether its store takes changes: after a failure it takes none until the target is started
    /// anew.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.history.has_failed()
    }

    /// For how long it takes none, and what its store said then.
    #[must_use]
    pub fn failure(&self) -> Option<(Duration, String)> {
        let (since, why) = self.history.failure()?;
        Some((self.now().since(*since), why.clone()))
    }

    /// How long requests to `portal` took, by what they asked for.
    #[must_use]
    pub fn service_samples(&self, portal: Portal) -> Vec<Samples> {
        self.services.samples(portal)
    }

    /// What each job of the clients has asked for, in the order of their coming (`job_stats`).
    #[must_use]
    pub fn jobs(&self) -> Vec<JobView> {
        self.jobs.forget_old(self.now());
        self.jobs.view()
    }

    /// Forgets all jobs.
    pub fn clear_jobs(&self) {
        self.jobs.clear();
    }

    /// Forgets one job.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if there is none of this name.
    pub fn remove_job(&self, name: &[u8]) -> Result<(), Errno> {
        self.jobs.remove(name)
    }

    /// How long a job is remembered after its last request; zero for ever (`job_cleanup_interval`).
    #[must_use]
    pub fn job_cleanup_interval(&self) -> Duration {
        self.jobs.interval()
    }

    /// Changes it, in whole seconds, and forgets jobs that have been idle for so long already.
    pub fn set_job_cleanup_interval(&self, interval: Duration) {
        self.jobs.set_interval(interval, self.now());
    }
}

impl Target {
    /// The requests in progress, the oldest first.
    #[must_use]
    pub fn requests_in_progress(&self) -> Vec<RequestView> {
        let now = self.now();
        let mut all = Vec::new();
        for export in self.exports() {
            let state = export.lock();
            let view = |(xid, request): (&Xid, &RequestInProgress)| {
                request.view(*xid, export.uuid(), state.nid, now)
            };
            all.extend(state.in_progress.iter().map(view));
        }
        all.sort_by_key(|request| (std::cmp::Reverse(request.age), request.xid));
        all
    }
}
