//! The parameter trees of our processes, and the commands that `lfs` and `lctl` give them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{PlanKind, Role};
use sheen_client::posix::FileSystem;
use sheen_control::{Command, Tree};
use sheen_node::rpc::{ImportReport, RpcNode};
use sheen_rpc::ImportState;
use sheen_target::{OperationStats, RecoveryStatus, TargetView};
use sheen_types::{Errno, Fid, Nid, TargetKind, TargetName};

use super::target::Running;
use crate::api::{self, Kind, MountInfo};
use crate::output::VERSION;

/// Bytes of a page, as the kernel counts memory.
const PAGE_BYTES: u64 = 4096;

type Commands = BTreeMap<String, Command>;

/// What every process shows.
fn add_common(tree: &Tree) {
    tree.add("version", || VERSION.to_owned());
    tree.add("health_check", || "healthy".to_owned());
    tree.add("memused", || resident_bytes().to_string());
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// Commands of every process with a node.
fn node_commands(node: &Arc<RpcNode>) -> Commands {
    let mut commands = Commands::new();
    let own = node.lnet().nid();
    commands.insert("nids".to_owned(), Box::new(move |_| Ok(format!("{own}\n"))));
    let node = Arc::clone(node);
    let handle = tokio::runtime::Handle::current();
    let ping = move |arguments: &[String]| {
        let wrong = || (Errno::EINVAL, "ping NID SECONDS".to_owned());
        let nid: Nid = arguments.first().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let seconds = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
        let answer = node.lnet().ping(nid);
        let answer = handle
            .block_on(async { tokio::time::timeout(Duration::from_secs(seconds), answer).await });
        match answer {
            Ok(Ok(nids)) => Ok(nids.iter().map(|nid| format!("12345-{nid}\n")).collect()),
            Ok(Err(_)) | Err(_) => Err((Errno::EIO, format!("no answer from {nid}"))),
        }
    };
    commands.insert("ping".to_owned(), Box::new(ping));
    commands
}

/// Lustre's stats file: a line for each kind of request.
fn stats(operations: &[OperationStats]) -> String {
    let mut text = String::new();
    for one in operations {
        let name = one.kind.format().name.to_lowercase();
        text += &format!(
            "{name:<25} {} samples [usecs] {} {} {} {}\n",
            one.count, one.time_us_min, one.time_us_max, one.time_us, one.time_us_squared
        );
    }
    text
}

fn recovery(view: &TargetView) -> String {
    let recovery = &view.recovery;
    let status = match recovery.status {
        RecoveryStatus::Inactive => "INACTIVE",
        RecoveryStatus::WaitingForClients => "WAITING_FOR_CLIENTS",
        RecoveryStatus::Recovering => "RECOVERING",
        RecoveryStatus::Complete => "COMPLETE",
    };
    let started = recovery.started.map_or(0, |started| started.seconds);
    let completed =
        recovery.connected.saturating_sub(recovery.replaying + recovery.replaying_locks);
    format!(
        "status: {status}\nrecovery_start: {started}\nrecovery_duration: {}\n\
         completed_clients: {completed}/{}\nreplayed_requests: {}\nlast_transno: {}\nVBR: DISABLED\n\
         IR: DISABLED\n",
        recovery.duration.as_secs(),
        recovery.known,
        recovery.replayed,
        view.last_transno,
    )
}

/// Adds what the targets of a server process show.
pub(super) fn add_server(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<Running>]) {
    add_common(tree);
    let counts = |kind: TargetKind| {
        let of_kind = |one: &&Arc<Running>| match &one.plan.kind {
            PlanKind::Target(name) => name.kind == kind,
            PlanKind::Mgs => false,
        };
        running.iter().filter(of_kind).cloned().collect::<Vec<_>>()
    };
    for (name, all) in [
        ("mds.MDS.mdt.stats", counts(TargetKind::Mdt)),
        ("ost.OSS.ost.stats", counts(TargetKind::Ost)),
    ] {
        tree.add(name, move || stats(&summed(&all)));
    }
    let load = Arc::clone(node);
    tree.add("ldlm.services.ldlm_canceld.req_active", move || load.service_load().0.to_string());
    for one in running {
        let root = match &one.plan.kind {
            PlanKind::Mgs => "mgs.MGS".to_owned(),
            PlanKind::Target(name) if name.kind == TargetKind::Mdt => format!("mdt.{name}"),
            PlanKind::Target(name) => format!("obdfilter.{name}"),
        };
        let show = |leaf: &str, read: fn(&Running) -> String| {
            let one = Arc::clone(one);
            tree.add(&format!("{root}.{leaf}"), move || read(&one));
        };
        show("uuid", |one| one.served.target.config().uuid.to_string());
        show("instance", |one| one.served.target.instance().to_string());
        show("num_exports", |one| one.served.target.exports().len().to_string());
        show("recovery_status", |one| recovery(&one.served.target.view()));
        show("stats", |one| stats(&one.served.target.view().stats.operations));
        show("last_committed", |one| one.served.target.last_committed().to_string());
        show("kbytestotal", |one| space(one, |space| space.total >> 10));
        show("kbytesfree", |one| space(one, |space| space.free >> 10));
        show("kbytesavail", |one| space(one, |space| space.available >> 10));
        show("filestotal", |one| space(one, |space| space.objects));
        show("filesfree", |one| space(one, |space| space.objects_free));
        if let Role::Ost(_) = one.served.role {
            show("tot_granted", |one| match &one.served.role {
                Role::Ost(ost) => ost.grant_view().total.to_string(),
                _ => String::new(),
            });
        }
        let evict = Arc::clone(one);
        let handle = tokio::runtime::Handle::current();
        tree.add_order(&format!("{root}.evict_client"), move |client| {
            match handle.block_on(evict.served.target.evict_client(client)) {
                0 => Err(Errno::ENOENT),
                _ => Ok(()),
            }
        });
        let locks = Arc::clone(one);
        let name = one.served.target.name().to_owned();
        let place = format!("ldlm.namespaces.{name}_UUID.lock_count");
        tree.add(&place, move || {
            let gauges = locks.served.target.view().locks;
            (gauges.granted.iter().sum::<u64>() + gauges.waiting.iter().sum::<u64>()).to_string()
        });
    }
}

fn space(one: &Running, read: impl Fn(&sheen_store::StoreSpace) -> u64) -> String {
    one.served
        .target
        .store()
        .space()
        .map_or_else(|error| error.to_string(), |it| read(&it).to_string())
}

/// The requests of several targets together.
fn summed(all: &[Arc<Running>]) -> Vec<OperationStats> {
    let mut sums: Vec<OperationStats> = Vec::new();
    for operation in all.iter().flat_map(|one| one.served.target.view().stats.operations) {
        match sums.iter_mut().find(|sum| sum.kind == operation.kind) {
            None => sums.push(operation),
            Some(sum) => {
                sum.count += operation.count;
                sum.errors += operation.errors;
                sum.time_us += operation.time_us;
                sum.time_us_squared += operation.time_us_squared;
                sum.time_us_min = sum.time_us_min.min(operation.time_us_min);
                sum.time_us_max = sum.time_us_max.max(operation.time_us_max);
            }
        }
    }
    sums
}

/// Commands of a server process.
pub(super) fn server_commands(node: &Arc<RpcNode>, running: &[Arc<Running>]) -> Commands {
    let mut commands = node_commands(node);
    let all = running.to_vec();
    let devices = move |_: &[String]| {
        let line = |one: &Arc<Running>| {
            let kind = match &one.plan.kind {
                PlanKind::Mgs => "mgs",
                PlanKind::Target(name) if name.kind == TargetKind::Mdt => "mdt",
                PlanKind::Target(_) => "obdfilter",
            };
            let target = &one.served.target;
            let references = target.exports().len() + 4;
            format!("UP {kind} {} {} {references}\n", target.name(), target.config().uuid)
        };
        Ok(all.iter().map(line).collect())
    };
    commands.insert("devices".to_owned(), Box::new(devices));
    commands
}

/// What a mount's commands need.
pub(super) struct MountState {
    info: MountInfo,
    node: Arc<RpcNode>,
    files: FileSystem,
    runtime: tokio::runtime::Handle,
}

impl MountState {
    /// Gathers it; call inside the runtime.
    pub(super) fn new(
        source: &str,
        fsname: &str,
        path: &Path,
        node: &Arc<RpcNode>,
        files: &FileSystem,
    ) -> Arc<Self> {
        let client = node.imports().first().map(|report| report.client.to_string());
        let uuid = client.unwrap_or_default();
        let instance: String = format!("ff{}", uuid.replace('-', "")).chars().take(16).collect();
        let info = MountInfo {
            path: path.to_string_lossy().into_owned(),
            fsname: fsname.to_owned(),
            instance,
            uuid,
            source: source.to_owned(),
        };
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self { info, node: Arc::clone(node), files: files.clone(), runtime })
    }

    fn targets(&self) -> Vec<(api::Target, ImportReport)> {
        let target = |report: ImportReport| {
            let uuid = report.target.to_string();
            let active = report.state == ImportState::Full;
            let (kind, index, device) = match uuid.parse::<TargetName>() {
                Err(_) => (Kind::Mgs, 0, format!("MGC{}", report.peer)),
                Ok(name) if name.kind == TargetKind::Mdt => {
                    (Kind::Mdt, name.index, format!("{name}-mdc-{}", self.info.instance))
                }
                Ok(name) => (Kind::Ost, name.index, format!("{name}-osc-{}", self.info.instance)),
            };
            let uuid = if kind == Kind::Mgs { String::new() } else { uuid };
            (api::Target { kind, index, uuid, device, active }, report)
        };
        let mut all: Vec<_> = self.node.imports().into_iter().map(target).collect();
        all.sort_by_key(|(target, _)| (target.kind as u8, target.index));
        all
    }

    fn statfs(&self) -> Vec<api::TargetStatfs> {
        let answers = self.runtime.block_on(self.files.statfs_targets());
        let one = |(name, answer): (String, Result<sheen_wire::md::ObdStatfs, Errno>)| {
            let name: TargetName = name.parse().ok()?;
            let kind = if name.kind == TargetKind::Mdt { Kind::Mdt } else { Kind::Ost };
            let errno = answer.as_ref().err().map_or(0, |errno| errno.0);
            let stat = answer.unwrap_or_default();
            Some(api::TargetStatfs {
                kind,
                index: name.index,
                uuid: name.uuid().to_string(),
                blocks: stat.blocks,
                bfree: stat.bfree,
                bavail: stat.bavail,
                bsize: u64::from(stat.bsize),
                files: stat.files,
                ffree: stat.ffree,
                state: stat.state.0,
                errno,
            })
        };
        answers.into_iter().filter_map(one).collect()
    }

    fn fid2path(&self, arguments: &[String]) -> Result<String, (Errno, String)> {
        let wrong = || (Errno::EINVAL, "fid2path FID [LINKNO]".to_owned());
        let fid: Fid = arguments.first().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let only: Option<u32> = arguments.get(1).and_then(|text| text.parse().ok());
        let mut text = String::new();
        for link in only.unwrap_or(0).. {
            match self.runtime.block_on(self.files.fid2path(fid, link)) {
                Ok(path) => {
                    text += &format!("{link} {}\n", String::from_utf8_lossy(&path));
                }
                // Behind the last link there is none.
                Err(_) if !text.is_empty() => break,
                Err(errno) => return Err((errno, errno.to_string())),
            }
            if only.is_some() || fid == Fid::ROOT {
                break;
            }
        }
        Ok(text)
    }
}

/// Adds what a mount process shows.
pub(super) fn add_mount(tree: &Tree, state: &Arc<MountState>) {
    add_common(tree);
    let llite = format!("llite.{}-{}", state.info.fsname, state.info.instance);
    let uuid = state.info.uuid.clone();
    tree.add(&format!("{llite}.uuid"), move || uuid.clone());
    tree.add(&format!("{llite}.fstype"), || "lustre".to_owned());
    let inodes = Arc::clone(state);
    tree.add(&format!("{llite}.inodes"), move || inodes.files.inodes_known().to_string());
    for (target, _) in state.targets() {
        let folder = match target.kind {
            Kind::Mgs => "mgc",
            Kind::Mdt => "mdc",
            Kind::Ost => "osc",
        };
        let device = target.device.clone();
        let show = |leaf: &str, read: fn(&api::Target, &ImportReport) -> String| {
            let (state, device) = (Arc::clone(state), device.clone());
            tree.add(&format!("{folder}.{device}.{leaf}"), move || {
                let found = state.targets().into_iter().find(|(target, _)| target.device == device);
                found.map_or_else(String::new, |(target, report)| read(&target, &report))
            });
        };
        show("state", state_text);
        show("import", import_text);
        show("active", |target, _| u8::from(target.active).to_string());
        show("stats", |_, report| {
            let counters = report.counters;
            format!(
                "req_sent                  {} samples [reqs]\nreq_resent                {} samples [reqs]\n\
                 req_replayed              {} samples [reqs]\nreq_timeout               {} samples [reqs]\n",
                counters.sent, counters.resent, counters.replayed, counters.timeouts
            )
        });
    }
}

fn state_text(_: &api::Target, report: &ImportReport) -> String {
    let mut text = format!("current_state: {}\nstate_history:\n", report.state);
    for change in &report.history {
        text += &format!(" - [ {}, {} ]\n", change.at.0 / 1_000_000_000, change.state);
    }
    text
}

fn import_text(target: &api::Target, report: &ImportReport) -> String {
    let counters = report.counters;
    format!(
        "import:\n    name: {}\n    target: {}\n    state: {}\n    connect_flags: {:?}\n    \
         connection:\n       current_connection: {}\n       connection_attempts: {}\n    rpcs:\n       \
         inflight: {}\n       timeouts: {}\n",
        target.device,
        report.target,
        report.state,
        report.data.flags,
        report.peer,
        counters.connects,
        counters.in_flight,
        counters.timeouts,
    )
}

/// What a command of `lfs` does with its arguments.
type MountCommand = fn(&MountState, &[String]) -> Result<String, (Errno, String)>;

/// Commands of a mount process.
pub(super) fn mount_commands(state: &Arc<MountState>) -> Commands {
    let mut commands = node_commands(&state.node);
    let mut add = |name: &str, run: MountCommand| {
        let state = Arc::clone(state);
        commands.insert(name.to_owned(), Box::new(move |arguments| run(&state, arguments)));
    };
    add(api::MOUNT_INFO, |state, _| json(&state.info));
    add(api::TARGETS, |state, _| {
        json(&state.targets().into_iter().map(|(target, _)| target).collect::<Vec<_>>())
    });
    add(api::TARGET_STATFS, |state, _| json(&state.statfs()));
    add(api::FID_TO_PATH, MountState::fid2path);
    add("devices", |state, _| {
        let line = |(target, report): (api::Target, ImportReport)| {
            let folder = match target.kind {
                Kind::Mgs => "mgc",
                Kind::Mdt => "mdc",
                Kind::Ost => "osc",
            };
            let up = if target.active { "UP" } else { "IN" };
            format!("{up} {folder} {} {} 5 {}\n", target.device, report.client, report.peer)
        };
        Ok(state.targets().into_iter().map(line).collect())
    });
    commands
}

fn json(value: &impl serde::Serialize) -> Result<String, (Errno, String)> {
    serde_json::to_string(value).map_err(|error| (Errno::EIO, error.to_string()))
}
