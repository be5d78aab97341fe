//! A mount process dies or stands still with locks and dirty bytes, while another mount wants the same
//! files.
#![allow(clippy::disallowed_methods, reason = "calls wait for each other in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use sheen_testkit::cluster::{Cluster, kill_keeper};
use sheen_testkit::scene::{same_after_restart, scene, seed};
use sheen_workloads::{Context, Outcome, Size, bytes, ensure, process, storm};

use crate::kills::LIMIT;

/// Longer than a server of `sheen up` waits for a lock that it revoked (20 s), once for the OST and
/// once for the MDT, on a busy machine.
const REVOKED_WITHIN: Duration = Duration::from_secs(120);

/// Longer than it waits for a sign of life: 75 s, looked at every 12.5 s.
const SILENT: Duration = Duration::from_secs(120);

/// What a mount holds when it falls silent.
struct Holder {
    synced: Vec<u8>,
    /// Written a moment ago and not synced.
    dirty: File,
    _locked: File,
}

impl Holder {
    fn new(top: &Path) -> Outcome<Self> {
        let synced = bytes::content(5, 300_000);
        let path = top.join("synced");
        let mut file = File::create_new(&path).context(path.display())?;
        file.write_all(&synced).and_then(|()| file.sync_all()).context("fsync")?;
        File::open(top).and_then(|top| top.sync_all()).context("fsync of the folder")?;
        let locked = File::create_new(top.join("locked")).context("locked")?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).context("flock")?;
        let mut dirty = File::create_new(top.join("dirty")).context("dirty")?;
        dirty.write_all(&bytes::content(6, 200_000)).context("write")?;
        Ok(Self { synced, dirty, _locked: locked })
    }
}

/// Through `other`: what was synced is there, can be written, and names can be made beside it.
fn other_mount_goes_on(other: &Path, synced: &[u8]) -> Outcome {
    let start = Instant::now();
    let read = fs::read(other.join("synced")).context("what the silent one synced")?;
    ensure(read == synced, || "what was synced is not there".to_owned())?;
    fs::write(other.join("beside"), b"beside").context("create beside")?;
    fs::write(other.join("synced"), b"written since").context("write")?;
    let waited = start.elapsed();
    println!("deaths: the other mount waited {} ms", waited.as_millis());
    ensure(waited < REVOKED_WITHIN, || format!("the other mount waited {} s", waited.as_secs()))
}

fn lock_is_free(path: &Path) -> bool {
    let file = OpenOptions::new().read(true).open(path);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[test]
fn a_mount_that_stood_still_is_evicted_and_goes_on_afterwards() {
    scene("stopped", 1, LIMIT, |cluster| {
        let (top, other) = (cluster.mnt(), cluster.mount_again()?);
        let holder = Holder::new(&top)?;
        let mount = cluster.mount_pid()?;
        process::stop(mount)?;
        let went_on = other_mount_goes_on(&other, &holder.synced);
        process::go_on(mount)?;
        went_on?;
        let sees = || fs::read(top.join("synced")).is_ok_and(|read| read == b"written since");
        process::wait_until("the stopped mount sees what was written", REVOKED_WITHIN, sees)?;
        // As a child does that runs another program: no program looks at what its close returns.
        drop(holder.dirty.try_clone().context("dup")?);
        // Dirty bytes were lost, which this says, or had been written before it stood still.
        match holder.dirty.sync_all() {
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {}
            Err(error) => return Err(format!("fsync after an eviction: {error}")),
            Ok(()) => {
                let read = fs::read(other.join("dirty")).context("dirty")?;
                ensure(read == bytes::content(6, 200_000), || "synced, and lost".to_owned())?;
            }
        }
        drop(holder);
        fs::write(top.join("after"), b"after").context("create after an eviction")?;
        let after = fs::read(other.join("after")).context("what it made")?;
        ensure(after == b"after", || "what it made is something else".to_owned())?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_mount_that_died_leaves_its_files_and_locks_to_other_mounts() {
    scene("died", 1, LIMIT, |cluster| {
        let (top, other) = (cluster.mnt(), cluster.mount_again()?);
        let holder = Holder::new(&top)?;
        // Not unmounted before: then it would give everything back.
        kill_keeper(cluster.keeper_pid()?, cluster.mount_pid()?)?;
        let died = Instant::now();
        cluster.kill_mount()?;
        other_mount_goes_on(&other, &holder.synced)?;
        let locked = other.join("locked");
        process::wait_until("a lock of the dead", SILENT, || lock_is_free(&locked))?;
        println!("deaths: its flock was free after {} s", died.elapsed().as_secs());
        drop(holder);
        cluster.up()?;
        same_after_restart(cluster)
    });
}

/// Kills the server while a crowd on two mounts is at work, and starts it again.
#[test]
fn a_crowd_goes_on_when_the_server_dies() {
    scene("kill-storm", 2, LIMIT, |cluster: &Cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let views: [PathBuf; 2] = [first, second];
        let length = Duration::from_secs(Size::asked().of(5, 12, 300));
        let plan = storm::Plan { seed: seed(), actors: 3, length };
        thread::scope(|scope| {
            let crowd = scope.spawn(|| storm::run(&[&views[0], &views[1]], plan));
            thread::sleep(length / 3);
            let restarted = cluster.kill_server().and_then(|()| cluster.up());
            if restarted.is_err() {
                // The crowd would wait for the dead for ever.
                cluster.end();
            }
            let crowd = crowd.join().map_err(|_panic| "the crowd panicked".to_owned())?;
            restarted.and(crowd)
        })?;
        same_after_restart(cluster)
    });
}

/// Each holds on its mount what the other waits for: the one that closes the circle gets the error.
#[test]
fn a_circle_of_waiters_over_two_mounts_is_refused() {
    scene("circle", 1, LIMIT, |cluster| {
        let (top, other) = (cluster.mnt(), cluster.mount_again()?);
        for name in ["one", "two"] {
            fs::write(top.join(name), name).context(name)?;
        }
        let open = |path: PathBuf| {
            OpenOptions::new().read(true).write(true).open(&path).context(path.display())
        };
        let (mine, wanted) = (open(top.join("one"))?, open(top.join("two"))?);
        let (theirs, closing) = (open(other.join("two"))?, open(other.join("one"))?);
        fcntl_lock(&mine, FlockOperation::NonBlockingLockExclusive).context("one")?;
        fcntl_lock(&theirs, FlockOperation::NonBlockingLockExclusive).context("two")?;
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fcntl_lock(&wanted, FlockOperation::LockExclusive));
            // Long enough for its request to be there; were it not, this one would wait for it and
            // the other be refused.
            thread::sleep(Duration::from_secs(2));
            let refused = fcntl_lock(&closing, FlockOperation::LockExclusive);
            fcntl_lock(&theirs, FlockOperation::Unlock).context("unlock")?;
            let got = waiter.join().map_err(|_panic| "the waiter panicked".to_owned())?;
            ensure(refused == Err(Errno::DEADLK), || format!("closing the circle: {refused:?}"))?;
            got.context("the other waiter")
        })
    });
}
