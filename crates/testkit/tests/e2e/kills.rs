//! kill -9 of the server while real work goes on: the work does not notice, nothing is lost.
#![allow(clippy::disallowed_methods, reason = "work and death run side by side")]

use std::path::Path;
use std::time::Duration;

use sheen_testkit::scene::{disturbed, same_after_restart, scene};
use sheen_workloads::ledger::Ledger;
use sheen_workloads::{
    Context, Outcome, Size, big, clone, ensure, many, pair, plant, process, project,
};

use crate::sqlite;

pub(crate) const LIMIT: Duration = Duration::from_secs(1800);

/// Kills the server during `work`, which must end well, and compares over a restart.
fn killed_during(
    name: &str,
    first: Duration,
    work: impl FnOnce(&Path) -> Outcome + Send + 'static,
) {
    scene(name, 2, LIMIT, move |cluster| {
        disturbed(cluster, Size::asked().of(1, 3, 10), first, work)?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_build_goes_on() {
    killed_during("kill-project", Duration::from_secs(5), project::run);
}

#[test]
fn a_clone_goes_on() {
    killed_during("kill-clone", Duration::from_millis(300), |top| {
        plant::run(top)?;
        clone::run(top)
    });
}

#[test]
fn databases_go_on() {
    killed_during("kill-sqlite", Duration::from_secs(2), |top| {
        let count = sqlite::transactions(Size::asked()) / 2;
        sqlite::run(top, count)?;
        sqlite::check_all(top, count)
    });
}

#[test]
fn many_files_go_on() {
    killed_during("kill-many", Duration::from_secs(1), |top| {
        plant::run(top)?;
        many::run(top, many::count(Size::asked()) / 5)
    });
}

#[test]
fn a_big_file_goes_on() {
    killed_during("kill-big", Duration::from_millis(500), |top| {
        big::run(top, big::length(Size::asked()))
    });
}

const PROBE: &str = env!("CARGO_BIN_EXE_sheen-probe");

#[test]
fn two_mounts_go_on() {
    scene("kill-pair", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        disturbed(cluster, Size::asked().of(1, 2, 10), Duration::from_secs(1), |top| {
            pair::run(top, &other, PROBE.as_ref(), Size::asked())
        })?;
        same_after_restart(cluster)
    });
}

/// The client's replay cannot help here: it dies with the server.
#[test]
fn what_was_synced_survives_the_death_of_all() {
    scene("kill-all", 2, LIMIT, |cluster| {
        for round in 0..Size::asked().of(1, 3, 20) {
            let top = cluster.mnt().join(format!("round-{round}"));
            std::fs::create_dir(&top).context("mkdir")?;
            std::fs::File::open(cluster.mnt()).and_then(|top| top.sync_all()).context("fsync")?;
            let ledger = Ledger::default();
            std::thread::scope(|scope| {
                // Ends with an error, when its mount dies.
                let writer = scope.spawn(|| ledger.run(&top));
                let busy = || ledger.durable() > 30 || writer.is_finished();
                let waited = process::wait_until("30 records", Duration::from_secs(60), busy);
                let killed = cluster.kill_server().and_then(|()| cluster.kill_mount());
                ledger.stop();
                waited.and(killed)
            })?;
            ensure(ledger.durable() > 30, || format!("only {} records", ledger.durable()))?;
            cluster.up()?;
            ledger.verify(&top)?;
        }
        same_after_restart(cluster)
    });
}
