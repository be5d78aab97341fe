//! `sheen down`: unmounts a file system of `sheen up` and stops its servers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sheen_fuse::Place;

use super::cluster::{Cluster, MOUNT_DEVICE, PATIENCE};
use super::daemon::Daemon;
use super::liveness::{self, Health};
use super::{mount, mount_source};
use sheen_tools::output::Fault;

/// How long a process that makes no progress may take to end.
const PATIENCE_FORCED: Duration = Duration::from_secs(1);

/// Unmount and stop a file system that `up` started; its data stays
#[derive(Args)]
pub(crate) struct Down {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Stop the mount and the server even if programs use it or they do not answer: calls fail, and data that
    /// programs have not synced may be lost
    #[arg(long)]
    force: bool,
}

/// Unmounts, then stops the servers. A busy mount is left as it is.
pub(crate) fn down(options: &Down) -> Result<(), Fault> {
    let cluster = Cluster::open(&options.dir)?;
    if cluster.get("fsname").is_none() {
        return Err(cluster.nothing());
    }
    let (mut cluster, _lock) = Cluster::locked(&options.dir)?;
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
        end_mount(&cluster.mount(), health, (&cluster.place(), options.force))?;
        cluster.values.retain(|key, _| key != "mount" && key != MOUNT_DEVICE);
    }
    let patience = if is_still { PATIENCE_FORCED } else { PATIENCE };
    cluster.mount().stop(patience);
    cluster.server().stop(patience);
    if let Some((nid, port)) = cluster.address() {
        mount_source::forget_of(nid, port, &cluster.sockets());
    }
    cluster.save()
}

fn end_mount(daemon: &Daemon, health: Health, (place, force): (&Place, bool)) -> Result<(), Fault> {
    let unmounted = match health {
        Health::Dead => return liveness::detach_dead(place),
        Health::Hangs(what) => Err(liveness::hangs(daemon, place.path(), &what)),
        // Its process ends it where it is, unless programs use it.
        Health::Alive(_) if place.found().is_none() => match daemon.ends(PATIENCE) {
            true => Ok(()),
            false if force => return Ok(()),
            false => Err(liveness::elsewhere(daemon, place.path())),
        },
        Health::Alive(_) => place.unmount().map_err(|why| mount::stays(&why)),
    };
    match unmounted {
        Ok(()) => {
            daemon.wait(PATIENCE);
            Ok(())
        }
        Err(_) if force => liveness::force(daemon, place),
        Err(fault) => Err(fault),
    }
}
