//! A test on a whole file system, with an end: a call that hangs on a mount would hang for ever.
#![allow(clippy::disallowed_methods, reason = "the body runs beside its watchdog")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use sheen_workloads::{Outcome, ensure, tree};

use crate::cluster::Cluster;

/// How long the server stays dead.
const DEAD_FOR: Duration = Duration::from_millis(500);

/// Runs `body` on a fresh file system with `osts` OSTs.
///
/// # Panics
///
/// With what went wrong and the last lines of all logs, when the body fails or does not end within
/// `limit`; the file system is ended before.
pub fn scene(
    name: &str,
    osts: u32,
    limit: Duration,
    body: impl FnOnce(&Cluster) -> Outcome + Send + 'static,
) {
    play(
        &Arc::new(Cluster::start_with(name, osts, &[]).unwrap_or_else(|e| panic!("{e}"))),
        limit,
        body,
    );
}

/// As [`scene`], in a working directory in stripes (`Cluster::start_striped`).
///
/// # Panics
///
/// As [`scene`].
pub fn striped_scene(
    name: &str,
    striping: &str,
    limit: Duration,
    body: impl FnOnce(&Cluster) -> Outcome + Send + 'static,
) {
    let cluster = Cluster::start_striped(name, 2, striping).unwrap_or_else(|e| panic!("{e}"));
    play(&Arc::new(cluster), limit, body);
}

/// Runs `body` on `cluster`, as [`scene`] does.
///
/// # Panics
///
/// As [`scene`].
pub fn play(
    cluster: &Arc<Cluster>,
    limit: Duration,
    body: impl FnOnce(&Cluster) -> Outcome + Send + 'static,
) {
    let (sender, receiver) = channel();
    let (stage, begun) = (Arc::clone(cluster), Instant::now());
    // Under the name of the test, for what is said of it by its thread.
    let name = thread::current().name().unwrap_or("scene").to_owned();
    let run = move || {
        let outcome = body(&stage);
        drop(stage);
        // The receiver is gone after the limit.
        let _ = sender.send(outcome);
    };
    let actor = thread::Builder::new().name(name.clone()).spawn(run).expect("a thread");
    let limit = asked_limit().unwrap_or(limit);
    let fault = match receiver.recv_timeout(limit) {
        Ok(Ok(())) => None,
        Ok(Err(fault)) => Some(fault),
        Err(RecvTimeoutError::Timeout) => Some(format!("not done within {} s", limit.as_secs())),
        Err(RecvTimeoutError::Disconnected) => Some("panicked".to_owned()),
    };
    if let Some(fault) = fault {
        let report = cluster.report();
        cluster.end();
        panic!("{fault}\n{report}");
    }
    actor.join().expect("it has answered");
    note_duration(&name, begun.elapsed());
}

/// A line of the list of `SHEEN_TEST_DURATIONS`, if there is one: milliseconds and the test.
fn note_duration(name: &str, took: Duration) {
    let Some(list) = std::env::var_os("SHEEN_TEST_DURATIONS") else { return };
    let line = format!("{} {name}\n", took.as_millis());
    let added = File::options().append(true).create(true).open(&list);
    if let Err(error) = added.and_then(|mut list| list.write_all(line.as_bytes())) {
        eprintln!("{}: {error}", list.display());
    }
}

/// `SHEEN_TEST_LIMIT`, in seconds: a shorter end for a round that only looks what hangs.
fn asked_limit() -> Option<Duration> {
    std::env::var("SHEEN_TEST_LIMIT").ok()?.parse().ok().map(Duration::from_secs)
}

/// Everything on the mount is the same after `down` and `up`, and consistent before and after.
pub fn same_after_restart(cluster: &Cluster) -> Outcome {
    let before = tree::read(&cluster.mnt())?;
    tree::must_be_consistent(&before)?;
    cluster.down()?;
    cluster.fsck()?;
    cluster.up()?;
    let after = tree::read(&cluster.mnt())?;
    tree::must_equal(&before, &after)
}

/// Runs `work` on the mount while the server is killed and started again up to `kills` times, the
/// first time after `first` and then as often as that passes; the work must not notice.
pub fn disturbed(
    cluster: &Cluster,
    kills: u32,
    first: Duration,
    work: impl FnOnce(&Path) -> Outcome + Send,
) -> Outcome {
    let mnt = cluster.mnt();
    let mount = cluster.mount_pid()?;
    let mut killed = 0;
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&mnt));
        while killed < kills {
            thread::sleep(first);
            if worker.is_finished() {
                break;
            }
            if let Err(error) = kill_and_restart(cluster) {
                // The worker would wait for the dead for ever.
                cluster.end();
                return Err(error);
            }
            killed += 1;
        }
        worker.join().map_err(|_panic| "the work panicked".to_owned())?
    })?;
    ensure(killed > 0, || "the work ended before the server was killed".to_owned())?;
    ensure(cluster.mount_pid()? == mount, || "the mount is another process now".to_owned())
}

fn kill_and_restart(cluster: &Cluster) -> Outcome {
    cluster.kill_server()?;
    thread::sleep(DEAD_FOR);
    cluster.up()
}

/// `SHEEN_SEED`, to repeat a run, or one that no other run had.
pub fn seed() -> u64 {
    let asked = std::env::var("SHEEN_SEED").ok().and_then(|text| text.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    asked.unwrap_or_else(|| now.map_or(1, |since| since.as_millis() as u64))
}

/// For a shell in a mount namespace of its own: unmounts there what is mounted by FUSE, but what is at `point`. A mount
/// of another test would be kept by its copy, and its end wait for this namespace's.
#[must_use]
pub fn without_other_mounts(point: &str) -> String {
    format!(
        "mounts=$(cat /proc/self/mounts); printf '%s\\n' \"$mounts\" | while read -r source at kind rest; do \
         case $kind in fuse|fuse.*) [ \"$at\" = {point} ] || umount -l \"$at\";; esac; done"
    )
}
