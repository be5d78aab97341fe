//! `sheen down`: unmounts a file system of `sheen up` and stops its servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use sheen_fuse::KernelMount;

use super::cluster::{Cluster, MOUNT_DEVICE, MOUNT_OPTIONS, PATIENCE};
use super::daemon::{self, Daemon};
use super::liveness::{self, Health};
use super::orphans::Orphans;
use super::progress::Progress;
use super::{mount, mount_source};
use sheen_tools::output::Fault;

/// How long a process that makes no progress may take to end.
const PATIENCE_FORCED: Duration = Duration::from_secs(1);
/// How long a mount process takes that nothing keeps.
const PATIENCE_UNKEPT: Duration = Duration::from_secs(1);
/// How long copies of the mount in other mount namespaces are waited for, once they are named.
const PATIENCE_COPIES: Duration = Duration::from_secs(10);
/// How long mounts may take that are being unmounted.
const PATIENCE_LEAVING: Duration = Duration::from_secs(5);
/// How often we look whether they have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Unmount and stop a file system that `up` started; its data stays
#[derive(Args)]
pub(crate) struct Down {
    /// Directory of the file system
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Stop the mount and the server even if the mount is busy or they do not answer: system calls in progress fail, and
    /// data that is not synced may be lost
    #[arg(long)]
    force: bool,
}

/// Unmounts, then stops the servers. A busy mount is left as it is.
pub(crate) fn down(options: &Down) -> Result<(), Fault> {
    if let Some(orphans) = Orphans::of(&options.dir) {
        return orphans.end(options.force);
    }
    let cluster = Cluster::open(&options.dir)?;
    if cluster.fsname().is_none() {
        return Err(cluster.nothing());
    }
    let (mut cluster, _lock) = Cluster::locked(&options.dir)?;
    if cluster.is_served_elsewhere() {
        return Err(cluster.served_elsewhere());
    }
    let mut health = cluster.health();
    let of_server = liveness::server_health(&cluster.server());
    let is_still = of_server.hangs();
    match (is_still, &health) {
        (true, _) if !options.force => {
            return Err(liveness::server_hangs(&cluster.server(), &of_server));
        }
        // It would wait for the server to write back its dirty data.
        (true, Health::Alive(_)) => health = Health::Hangs(String::new()),
        _ => {}
    }
    if cluster.get("mount").is_some() {
        end_mount(&cluster.mount(), health, (&cluster.kernel_mount(), options.force))?;
        cluster.values.retain(|key, _| !["mount", MOUNT_DEVICE, MOUNT_OPTIONS].contains(&&**key));
    }
    let patience = if is_still { PATIENCE_FORCED } else { PATIENCE };
    cluster.mount().stop(patience);
    if !is_still {
        await_leaving(&cluster);
    }
    cluster.server().stop(patience);
    if let Some((nid, port)) = cluster.address() {
        mount_source::forget_of(nid, port, &cluster.sockets());
    }
    cluster.save()
}

fn end_mount(
    daemon: &Daemon,
    health: Health,
    (kernel_mount, force): (&KernelMount, bool),
) -> Result<(), Fault> {
    let unmounted = match health {
        Health::Dead => return liveness::detach_dead(kernel_mount),
        Health::Waits => Err(liveness::waits(daemon, kernel_mount.path())),
        Health::Hangs(what) => Err(liveness::hangs(daemon, kernel_mount.path(), &what)),
        Health::Alive(_) if kernel_mount.found().is_none() => {
            return end_unmounted(daemon, kernel_mount, force);
        }
        Health::Alive(_) => kernel_mount.unmount().map_err(|why| mount::stays(&why)),
    };
    match unmounted {
        Ok(()) => end_unmounted(daemon, kernel_mount, force),
        Err(_) if force => liveness::force(daemon, kernel_mount),
        Err(fault) => Err(fault),
    }
}

/// Waits for the process of a mount that is not mounted here any more. It ends by itself, unless another mount
/// namespace has the mount, or programs that used it when it was unmounted; those are not taken from it but by force.
fn end_unmounted(daemon: &Daemon, kernel_mount: &KernelMount, force: bool) -> Result<(), Fault> {
    if daemon.wait(PATIENCE_UNKEPT) {
        return Ok(());
    }
    let Some(pid) = daemon.pid() else { return Ok(()) };
    // Where it was mounted in another namespace, it unmounts that itself.
    let _ = kill_process(pid, Signal::TERM);
    let patience = match liveness::copies(daemon, kernel_mount).is_empty() {
        _ if force => PATIENCE_FORCED,
        true => PATIENCE,
        false => PATIENCE_COPIES,
    };
    let why = format!("which runs {}", liveness::keeps(daemon, kernel_mount));
    match daemon.wait_saying(patience, &why) || force {
        true => Ok(()),
        false => Err(liveness::elsewhere(daemon, kernel_mount)),
    }
}

/// Waits a moment for other mounts that are being unmounted: their files would stay open on servers that stop now, and
/// be waited for at the next start.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn await_leaving(cluster: &Cluster) {
    let (begin, mut progress) = (Instant::now(), Progress::new(""));
    let sources = sources(cluster);
    while let Some(pid) = daemon::all().find(|pid| is_leaving(*pid, &sources)) {
        if begin.elapsed() > PATIENCE_LEAVING {
            return;
        }
        progress.doing(&format!("waiting for a mount process, pid {pid}, that is being unmounted"));
        std::thread::sleep(LOOK);
    }
}

/// What mounts name that are of it: its directory, and its MGS with its name.
fn sources(cluster: &Cluster) -> Vec<String> {
    let named = cluster.address().zip(cluster.fsname());
    let named = named.map(|((nid, _), fsname)| format!("{nid}:/{fsname}"));
    [cluster.directory.to_string_lossy().into_owned()].into_iter().chain(named).collect()
}

/// Whether it is a mount process of one of `sources` that has no mount.
fn is_leaving(pid: Pid, sources: &[String]) -> bool {
    if !daemon::runs_as(pid, "mount") {
        return false;
    }
    let words = daemon::words(pid).unwrap_or_default();
    let is_of = |word: &String| {
        sources.iter().any(|source| word == source || word.starts_with(&format!("{source}/")))
    };
    let point = words.iter().rev().find(|word| !word.is_empty());
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    words.iter().skip(2).any(is_of)
        && point.is_some_and(|point| !KernelMount::new(Path::new(point), None).is_in(&table))
}
