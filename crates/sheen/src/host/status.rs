//! `sheen status`: what a file system of `sheen up` is and does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::process::Pid;
use sheen_control::{Client, ControlReply, ControlRequest};
use sheen_store_disk::Config;

use super::cluster::Cluster;
use super::liveness::{self, Health};
use super::orphans::Orphans;
use super::{holders, keeper};
use sheen_tools::lfs;
use sheen_tools::output::{self, Fault, shown_path};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show whether a file system of `up` is running, where it is mounted, its clients, and the space and health of its
/// targets
#[derive(Args)]
pub(crate) struct Status {
    /// Directory of the file system
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// One line each: the file system, the mount, every target.
pub(crate) fn status(options: &Status) -> Result<(), Fault> {
    if let Some(orphans) = Orphans::of(&options.dir) {
        return Err(orphans.fault());
    }
    let mut cluster = Cluster::open(&options.dir)?;
    cluster.adopt()?;
    cluster.say_traced();
    let Some(fsname) = cluster.fsname() else { return Err(cluster.nothing()) };
    let health = liveness::server_health(&cluster.server());
    // One that does not answer is waited for once.
    let shown = if health.hangs() { Shown::default() } else { Shown::of(&cluster) };
    output::line(format_args!("file system: {fsname}"));
    output::line(format_args!("server:      {}", server(&cluster, &health)));
    output::line(format_args!("mgs:         {}", cluster.get("nid").unwrap_or("not started yet")));
    let (state, point) = mount(&cluster);
    output::line(format_args!("mount:       {state}"));
    output::line(format_args!("mounted on:  {point}"));
    if let Some(clients) = shown.clients(fsname) {
        output::line(format_args!("clients:     {clients}"));
    }
    for path in cluster.targets() {
        let label = label(&path).unwrap_or_default();
        let state = shown.target(&label);
        output::line(format_args!("target:      {label:<16} {}{state}", shown_path(&path)));
    }
    for name in cluster.lost().unwrap_or_default() {
        let path = cluster.directory.join(&name);
        output::line(format_args!("target:      {:<16} {}, LOST", "", shown_path(&path)));
    }
    Ok(())
}

fn running(pid: Option<Pid>) -> String {
    pid.map_or("stopped".to_owned(), |pid| format!("running, pid {pid}"))
}

/// The process that serves the mount, and its keeper.
fn kept(keeper: Option<Pid>) -> String {
    let served = keeper.map(keeper::served_by);
    let state = running(served);
    match keeper.filter(|keeper| Some(*keeper) != served) {
        Some(keeper) => format!("{state}, kept by pid {keeper}"),
        None => state,
    }
}

fn server(cluster: &Cluster, health: &Health) -> String {
    if cluster.is_served_elsewhere() {
        return "running in another PID namespace".to_owned();
    }
    format!("{}{}", running(cluster.server().pid()), health.hint())
}

/// The state of the mount, and where it is mounted.
fn mount(cluster: &Cluster) -> (String, String) {
    let (daemon, kernel_mount) = (cluster.mount(), cluster.kernel_mount());
    let (health, found) = (cluster.health(), kernel_mount.found());
    let state = kept(daemon.pid());
    let known = cluster.get("mount");
    let point = found.map_or("nothing".to_owned(), shown_path);
    match (health, known) {
        (Health::Alive(_), None) => (format!("{state}, begins"), point),
        (Health::Alive(_), Some(known)) if point == "nothing" => {
            let keeps = holders::keeps(cluster, &kernel_mount);
            (format!("{state}, not mounted here on {known}: it runs {keeps}"), point)
        }
        (Health::Alive(late), Some(known)) if !kernel_mount.is_seen_at(kernel_mount.path()) => {
            let hint = Health::Alive(late).hint();
            (format!("{state}{hint}, not seen on {known}"), point)
        }
        (Health::Dead, Some(_)) if point != "nothing" => {
            match liveness::is_answering(&kernel_mount) {
                true => ("running in another PID namespace".to_owned(), point),
                false => (
                    format!(
                        "{state}, but left at its mount point: `sheen up` or `sheen down` detaches it"
                    ),
                    point,
                ),
            }
        }
        (Health::Waits, _) => (format!("{state}, {}", waits(cluster)), point),
        (health, _) => (format!("{state}{}", health.hint()), point),
    }
}

/// Reports OSTs that hold the objects of another MDT than this file system has now.
pub(super) fn report_refusals(cluster: &Cluster) {
    let shown = Shown::of(cluster);
    for label in cluster.targets().iter().filter_map(|path| label(path)) {
        let refusal = shown.refusal(&label);
        if !refusal.is_empty() {
            output::line(format_args!(
                "{label}{refusal}; `lctl get_param obdfilter.*.mdt_identity`"
            ));
        }
    }
}

fn label(target: &Path) -> Option<String> {
    Config::load(target).ok()?.values.get("label").cloned()
}

/// What a mount waits for that has not found its servers.
fn waits(cluster: &Cluster) -> &'static str {
    match cluster.server().pid() {
        None => "waits for the servers, which are stopped: `sheen up` starts them",
        Some(_) => "waits until the servers let it in, which recover first",
    }
}

/// What the server shows of its targets.
#[derive(Default)]
struct Shown(BTreeMap<String, String>);

impl Shown {
    /// Empty if no server answers.
    fn of(cluster: &Cluster) -> Self {
        let Some(pid) = cluster.server().pid() else { return Self::default() };
        let path = super::sockets().join(format!("server-{pid}.sock"));
        let Ok(mut client) = Client::connect_within(&path, PATIENCE) else {
            return Self::default();
        };
        let mut all = BTreeMap::new();
        for leaf in [
            "num_exports",
            "kbytestotal",
            "kbytesavail",
            "recovery_status",
            "state",
            "mdt_identity",
        ] {
            let question = ControlRequest::Get { pattern: format!("*.*.{leaf}") };
            let Ok(ControlReply::Shown(shown)) = client.ask(&question) else { break };
            all.extend(shown.into_iter().map(|it| (it.name, it.value)));
        }
        for pattern in ["health_check", "mdt.*.exports.*.uuid"] {
            let question = ControlRequest::Get { pattern: pattern.to_owned() };
            if let Ok(ControlReply::Shown(shown)) = client.ask(&question) {
                all.extend(shown.into_iter().map(|it| (it.name, it.value)));
            }
        }
        Self(all)
    }

    /// That an OST holds the objects of another MDT, as it follows its name.
    fn refusal(&self, label: &str) -> String {
        let known = self.value(&format!("obdfilter.{label}.mdt_identity")).unwrap_or_default();
        let refused = known.lines().find_map(|line| line.strip_prefix("refused "));
        refused.map_or_else(String::new, |mdt| {
            format!(", REFUSES {mdt}: it holds the objects of another MDT")
        })
    }

    /// The MDTs that an MDT waits for in its recovery.
    fn awaited(&self, label: &str) -> Option<&str> {
        let recovery = self.value(&format!("mdt.{label}.recovery_status"))?;
        recovery.lines().find_map(|line| line.strip_prefix("non-ready MDTs:"))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// How many clients MDT0000 has, with which each mount begins; other MDTs are connected to it, too.
    fn clients(&self, fsname: &str) -> Option<usize> {
        let exports = format!("mdt.{fsname}-MDT0000.exports.");
        // It answers at all.
        self.value(&format!("mdt.{fsname}-MDT0000.num_exports"))?;
        let nodes = self.0.iter().filter(|(name, _)| name.starts_with(&exports));
        Some(nodes.flat_map(|(_, uuids)| uuids.lines()).filter(|uuid| !is_of_mdt(uuid)).count())
    }

    /// The connections of MDTs to a target that are not as they should be, as they follow its name.
    fn connections(&self, label: &str) -> String {
        let ends = [format!("osp.{label}-osc-"), format!("osp.{label}-osp-")];
        let mut text = String::new();
        for (name, state) in &self.0 {
            let from = ends.iter().find_map(|end| name.strip_prefix(end.as_str()));
            let Some(mdt) = from.and_then(|from| from.strip_suffix(".state")) else { continue };
            match state.lines().find_map(state_of) {
                Some("FULL") | None => {}
                Some(state) => text += &format!(", {mdt}'s connection is {state}"),
            }
        }
        text
    }

    /// Space and state of a target, as they follow its path.
    fn target(&self, label: &str) -> String {
        let osd = |leaf: &str| {
            self.value(&format!("osd-sheen.{label}.{leaf}"))?.trim().parse::<u64>().ok()
        };
        let mut text = String::new();
        if let Some((total, available)) = osd("kbytestotal").zip(osd("kbytesavail")) {
            let [total, available] = [total, available].map(size);
            text += &format!(", {available} of {total} available");
        }
        let recovery = ["mdt", "obdfilter"]
            .iter()
            .find_map(|kind| self.value(&format!("{kind}.{label}.recovery_status")));
        if let Some(recovery) = recovery.filter(|text| text.contains("status: RECOVERING")) {
            let value = |key: &str| {
                let line = recovery.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_default().trim().to_owned()
            };
            let (clients, left) = (value("connected_clients:"), value("time_remaining:"));
            text +=
                &format!(", RECOVERING: {clients} clients have reconnected, at most {left} s left");
        }
        if let Some(mdts) = self.awaited(label) {
            text += &format!(", WAITING for MDTs{mdts}, which have not recovered");
        }
        text += &self.connections(label);
        text += &self.refusal(label);
        let unhealthy = format!("device {label} reported unhealthy");
        if self.value("health_check").is_some_and(|text| text.lines().any(|it| it == unhealthy)) {
            text += ", NOT HEALTHY";
        }
        text
    }
}

/// Whether an export is another MDT's, by its UUID.
fn is_of_mdt(uuid: &str) -> bool {
    uuid.ends_with("-mdtlov_UUID")
}

fn state_of(line: &str) -> Option<&str> {
    line.strip_prefix("current_state:").map(str::trim)
}

/// KiB as people read them.
fn size(kib: u64) -> String {
    lfs::human(kib << 10, 1 << 10).trim().to_owned()
}
