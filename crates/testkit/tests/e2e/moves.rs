//! Files that move to other layouts while they are in use.
#![allow(clippy::disallowed_methods, reason = "a mover dies in the middle of its work")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use sheen_workloads::bytes::content;

use sheen_testkit::cluster::{Cluster, kill_keeper};
use sheen_testkit::scene::{disturbed, same_after_restart, scene, seed};
use sheen_workloads::{Context, Outcome, Size, ensure, moves};

use crate::kills::LIMIT;

/// Bytes of a file whose move takes a second or two, by the limit that it is given.
const SIZE: usize = 30 << 20;

/// `lfs migrate` of the file.
fn migrate(cluster: &Cluster, options: &[&str], path: &Path) -> Outcome {
    let path = path.display().to_string();
    let command = [&["lfs", "migrate"], options, &[&path]].concat();
    let finished = cluster.run(&command)?;
    ensure(finished.status.success(), || {
        let (options, status) = (options.join(" "), finished.status);
        format!("lfs migrate {options} {path}: {status}\n{}", finished.output)
    })
}

#[test]
fn a_file_of_two_mounts_keeps_its_bytes_wherever_it_moves() {
    scene("moving", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let steps = Size::asked().of(20, 250, 3000);
        let mover = |options: &[&str], path: &Path| migrate(cluster, options, path);
        moves::run_between([&cluster.mnt(), &other], "f", seed(), steps, mover)?;
        same_after_restart(cluster)
    });
}

/// Kills the first mount while it moves the file; the other one, whose path this is, goes on with it.
fn a_mover_dies(cluster: &Cluster, after: Duration, path: &Path, options: &[&str]) -> Outcome {
    let here = cluster.mnt().join("f");
    let command = [&["lfs", "migrate", "-W", "20M"], options, &[&here.display().to_string()]];
    let mut mover = cluster.command(&command.concat());
    let mut mover = mover.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("migrate")?;
    thread::sleep(after);
    let was_at_work = mover.try_wait().context("wait")?.is_none();
    kill_keeper(cluster.keeper_pid()?, cluster.mount_pid()?)?;
    cluster.kill_mount()?;
    mover.wait().context("wait")?;
    ensure(was_at_work, || "the move ended before its mount died".to_owned())?;
    // The dead hold the file until their servers evict them.
    let bytes = fs::read(path).context("read")?;
    ensure(bytes == content(3, SIZE), || "other bytes after the mover has died".to_owned())?;
    let file = File::options().write(true).open(path).context("open")?;
    file.write_all_at(&content(3, SIZE)[..5000], 0).context("write")?;
    cluster.up()
}

#[test]
fn a_mount_that_dies_while_it_moves_a_file_leaves_it_whole_and_nothing_else() {
    scene("moving-dies", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let path = other.join("f");
        fs::write(&path, content(3, SIZE)).context("write")?;
        let deaths: [(u64, &[&str]); 3] = [
            (600, &["-E", "1M", "-L", "mdt", "-E", "-1", "-c", "1"]),
            (1100, &["-C", "5"]),
            (100, &["-c", "2", "-S", "64K"]),
        ];
        for (after, options) in deaths.into_iter().take(Size::asked().of(1, 1, 3)) {
            a_mover_dies(cluster, Duration::from_millis(after), &path, options)?;
        }
        // Servers that start again wait for the dead, and then what these had open goes: a volatile file
        // and its objects. What is left of them fsck would find.
        cluster.down()?;
        cluster.up()?;
        same_after_restart(cluster)
    });
}

#[test]
fn two_mounts_use_a_file_that_moves() {
    scene("moving-beside", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let mover = |options: &[&str], path: &Path| migrate(cluster, options, path);
        let steps = Size::asked().of(20, 250, 3000);
        let moved = moves::run_beside([&cluster.mnt(), &other], "f", seed(), steps, mover)?;
        ensure(moved > steps / 100, || format!("only {moved} moves"))?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_move_ends_when_its_caller_is_interrupted_or_killed() {
    scene("moving-interrupted", 2, LIMIT, |cluster| {
        let path = cluster.mnt().join("f");
        fs::write(&path, content(4, SIZE)).context("write")?;
        // A shell that runs tests in its background may have them ignore INT, and TERM ends whom INT ends.
        for signal in [Signal::TERM, Signal::KILL] {
            let command = ["lfs", "migrate", "-W", "1M", "-C", "4", &path.display().to_string()];
            let mut mover = cluster.command(&command);
            let mut mover = mover.stderr(Stdio::null()).spawn().context("migrate")?;
            thread::sleep(Duration::from_secs(2));
            rustix::process::kill_process(Pid::from_child(&mover), signal).context("kill")?;
            let since = Instant::now();
            let ended = mover.wait().context("wait")?;
            ensure(!ended.success(), || format!("{signal:?}: {ended}"))?;
            let count = cluster.must(&["lfs", "getstripe", "-c", &path.display().to_string()])?;
            ensure(count.trim() == "1", || format!("{count} stripes"))?;
            let bytes = fs::read(&path).context("read")?;
            ensure(bytes == content(4, SIZE), || "other bytes".to_owned())?;
            // All of it would take half a minute, and the file is held for the next 16 MiB at a time.
            ensure(since.elapsed() < Duration::from_secs(20), || format!("{signal:?} waits"))?;
        }
        same_after_restart(cluster)
    });
}

/// Old layout or new, never a mixture, whenever the servers die. Only in a long run: minutes.
#[test]
fn files_move_while_servers_die() {
    if Size::asked() != Size::Long {
        return eprintln!("only with SHEEN_TEST_LONG");
    }
    scene("moving-kill", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let seed = seed();
        disturbed(cluster, 10, Duration::from_secs(2), |top| {
            let mover = |options: &[&str], path: &Path| {
                // A server that forgets who holds the file ends the move.
                let _ = migrate(cluster, options, path);
                Ok(())
            };
            moves::run_beside([top, &other], "f", seed, 6000, mover).map(|_| ())
        })
        .map_err(|fault| format!("seed {seed}: {fault}"))?;
        same_after_restart(cluster)
    });
}
