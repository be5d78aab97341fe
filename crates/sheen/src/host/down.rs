//! `sheen down`: unmounts a file system of `sheen up` and stops its servers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Signal, kill_process};
use sheen_fuse::KernelMount;

use super::cluster::{Cluster, PATIENCE};
use super::liveness::{self, Health};
use super::orphans::Orphans;
use super::progress::Progress;
use super::{holders, mount, mount_source, other_mounts};
use sheen_tools::output::{Fault, shown_path};

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
    let mut left = None;
    if cluster.get("mount").is_some() {
        left = end_mount(&cluster, health, options.force)?;
    }
    let patience = if is_still { PATIENCE_FORCED } else { PATIENCE };
    if left.is_none() {
        cluster.forget_mount();
        cluster.mount().stop(patience);
    }
    if !is_still {
        await_leaving(&cluster);
    }
    if cluster.server().pid().is_some() {
        report_mounts(&cluster);
    }
    cluster.server().stop(patience);
    if let Some((nid, port)) = cluster.address() {
        mount_source::forget_of(nid, port, &cluster.sockets());
    }
    cluster.save()?;
    left.map_or(Ok(()), Err)
}

/// Says which mounts stay that `up` did not make: they wait for the servers from now on.
fn report_mounts(cluster: &Cluster) {
    for (pid, point) in other_mounts::mounted(cluster) {
        eprintln!(
            "{}: still mounted on {} (pid {pid}): what uses that mount waits until its servers run again",
            shown_path(&cluster.directory),
            shown_path(point)
        );
    }
}

/// Unmounts, and waits for the end of the process. The fault that is answered is of copies of the mount in other mount
/// namespaces, which go on; the servers are stopped nevertheless.
fn end_mount(cluster: &Cluster, health: Health, force: bool) -> Result<Option<Fault>, Fault> {
    let (daemon, kernel_mount) = (&cluster.mount(), &cluster.kernel_mount());
    let unmounted = match health {
        Health::Dead => return liveness::detach_dead(kernel_mount).map(|()| None),
        Health::Waits => Err(liveness::waits(daemon, kernel_mount.path())),
        Health::Hangs(what) => Err(liveness::hangs(daemon, kernel_mount.path(), &what)),
        Health::Alive(_) if kernel_mount.found().is_none() => {
            return end_unmounted(cluster, kernel_mount, force);
        }
        Health::Alive(_) => kernel_mount.unmount().map_err(|why| mount::stays(&why)),
    };
    match unmounted {
        Ok(()) => end_unmounted(cluster, kernel_mount, force),
        Err(_) if force => liveness::force(daemon, kernel_mount).map(|()| None),
        Err(fault) => Err(fault),
    }
}

/// Waits for the process of a mount that is not mounted here any more. It ends by itself, unless another mount
/// namespace has the mount, or programs that used it when it was unmounted; those are not taken from it but by force.
/// Any user can have a copy in a namespace: that keeps no servers.
fn end_unmounted(
    cluster: &Cluster,
    kernel_mount: &KernelMount,
    force: bool,
) -> Result<Option<Fault>, Fault> {
    let daemon = cluster.mount();
    if daemon.wait(PATIENCE_UNKEPT) {
        return Ok(None);
    }
    let Some(pid) = daemon.pid() else { return Ok(None) };
    // Where it was mounted in another namespace, it unmounts that itself.
    let _ = kill_process(pid, Signal::TERM);
    let patience = match holders::copies(&daemon, kernel_mount).is_empty() {
        _ if force => PATIENCE_FORCED,
        true => PATIENCE,
        false => PATIENCE_COPIES,
    };
    let why = format!("which runs {}", holders::keeps(cluster, kernel_mount));
    match daemon.wait_saying(patience, &why) {
        true => Ok(None),
        false if force => liveness::force(&daemon, kernel_mount).map(|()| None),
        false if holders::is_copied(cluster, kernel_mount) => {
            Ok(Some(holders::left(cluster, kernel_mount)))
        }
        false => Err(holders::elsewhere(cluster, kernel_mount)),
    }
}

/// Waits a moment for other mounts that are being unmounted: their files would stay open on servers that stop now, and
/// be waited for at the next start.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn await_leaving(cluster: &Cluster) {
    let (begin, mut progress) = (Instant::now(), Progress::new(""));
    while let Some(pid) = other_mounts::leaving(cluster).next() {
        if begin.elapsed() > PATIENCE_LEAVING {
            return;
        }
        progress.doing(&format!("waiting for a mount process, pid {pid}, that is being unmounted"));
        std::thread::sleep(LOOK);
    }
}
