//! `sheen status`: what a file system of `sheen up` is and does.

use std::path::PathBuf;

use clap::Args;
use sheen_store_disk::Config;

use super::cluster::Cluster;
use super::daemon::Daemon;
use super::liveness::{self, Health};
use sheen_tools::output::{self, Fault};

/// Show whether a file system of `up` runs, where it is mounted, and its targets
#[derive(Args)]
pub(crate) struct Status {
    /// The directory that holds it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// One line each: the file system, the mount, every target.
pub(crate) fn status(options: &Status) -> Result<(), Fault> {
    let mut cluster = Cluster::open(&options.dir)?;
    cluster.adopt()?;
    cluster.say_traced();
    let Some(fsname) = cluster.get("fsname") else { return Err(cluster.nothing()) };
    let state = |daemon: Daemon| match daemon.pid() {
        Some(pid) => format!("running, pid {}", pid.as_raw_nonzero()),
        None => "stopped".to_owned(),
    };
    output::line(format_args!("file system: {fsname}"));
    let hint = liveness::server_health(&cluster.server()).hint();
    output::line(format_args!("server:      {}{hint}", state(cluster.server())));
    output::line(format_args!("mgs:         {}", cluster.get("nid").unwrap_or("not started yet")));
    let hint = match cluster.health() {
        Health::Alive(_) if cluster.place().found().is_none() => {
            ", not mounted here: in another mount namespace, or unmounted while programs used it"
                .to_owned()
        }
        health => health.hint(),
    };
    output::line(format_args!("mount:       {}{hint}", state(cluster.mount())));
    output::line(format_args!("mounted on:  {}", cluster.get("mount").unwrap_or("nothing")));
    for path in cluster.targets() {
        let label = Config::load(&path).ok().and_then(|config| config.values.get("label").cloned());
        let label = label.unwrap_or_default();
        output::line(format_args!("target:      {label:<16} {}", path.display()));
    }
    Ok(())
}
