//! fsx: random operations on one file, every read compared with what was written.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::suites::{installed, written};
use sheen_workloads::{Context, Outcome, Size, ensure, process};

const LIMIT: Duration = Duration::from_secs(3600);

/// What fsx does by default, with files closed and synced in between.
const DEFAULT: &str = "
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 10
invalidate = 1
fsync = 1
fdatasync = 1
";

/// Nearly all through mappings.
const MAPPED: &str = "
[weights]
close_open = 1
read = 1
write = 1
mapread = 20
mapwrite = 20
truncate = 2
invalidate = 5
fsync = 1
fdatasync = 1
";

/// All it can do, holes and allocation among them.
const ALL: &str = "
[weights]
close_open = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
truncate = 3
invalidate = 1
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 5
sendfile = 2
posix_fadvise = 2
copy_file_range = 3
";

/// All that goes on with a file that stays open.
const DIRECT: &str = "
[weights]
close_open = 0
read = 10
write = 10
mapread = 3
mapwrite = 3
truncate = 3
invalidate = 1
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 3
copy_file_range = 3
";

/// Operations of one fsx. It leaves a mapping behind for each `mapread`, all of which the kernel goes
/// through whenever the file is cut: 200,000 operations of one process would be such work and little
/// else, and end at the kernel's limit of 65,530 mappings.
const OPERATIONS_OF_ONE: u64 = 5000;

/// Runs fsx with `weights` on a file of its own in `top`.
fn run(cluster: &Cluster, top: &Path, name: &str, weights: &str) -> Outcome {
    run_and(cluster, top, name, weights, |_, _| Ok(()))
}

/// Runs one fsx after the other with seeds that follow each other, until all operations are done.
/// `meanwhile` gets the process and the file of each.
fn run_and(
    cluster: &Cluster,
    top: &Path,
    name: &str,
    weights: &str,
    meanwhile: impl Fn(Pid, &Path) -> Outcome,
) -> Outcome {
    let file = top.join(name);
    let operations: u64 = Size::asked().of(1000, 5000, 200_000);
    let seed = std::env::var("SHEEN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let configuration = written(cluster, &format!("{name}.toml"), weights)?;
    println!("fsx {name}: {operations} operations from seed {seed}");
    for part in 0..operations.div_ceil(OPERATIONS_OF_ONE) {
        let count = OPERATIONS_OF_ONE.min(operations).to_string();
        let mut fsx = Command::new(installed("fsx")?);
        fsx.arg("-f").arg(&configuration).arg("-P").arg(cluster.logs());
        fsx.args(["-N", &count, "-S", &(seed + part).to_string()]).arg(&file);
        let log = cluster.logs().join(format!("{name}-{}", seed + part));
        let ended = process::run_and(&mut fsx, &log, LIMIT, |pid| meanwhile(pid, &file))?;
        ensure(ended.status.success(), || process::tail(&ended.output, 40))?;
    }
    Ok(())
}

/// Makes the open `file` of a process `O_DIRECT`, which fsx cannot itself: the flag belongs to what is
/// open, whichever process sets it.
fn make_direct(pid: Pid, file: &Path) -> Outcome {
    // fsx removes the name once it has the file open; the kernel says so behind it.
    let shows = |fd: &Path| fs::read_link(fd).is_ok_and(|to| to.parent() == file.parent());
    let (mut found, folder) = (None, format!("/proc/{}/fd", pid.as_raw_nonzero()));
    process::wait_until("fsx opens its file", Duration::from_secs(60), || {
        let open = fs::read_dir(&folder).into_iter().flatten().flatten();
        found = open.map(|fd| fd.path()).find(|fd| shows(fd));
        found.is_some()
    })?;
    let number = found.as_ref().and_then(|fd| fd.file_name()?.to_str()?.parse().ok());
    let number = number.ok_or("a descriptor has no number")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    let open = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).context("pidfd_getfd")?;
    let flags = fcntl_getfl(&open).context("F_GETFL")?;
    fcntl_setfl(&open, flags | OFlags::DIRECT).context("F_SETFL")
}

#[test]
fn fsx_by_default() {
    scene("fsx", 2, LIMIT, |cluster| run(cluster, &cluster.mnt(), "default", DEFAULT));
}

#[test]
fn fsx_on_mappings() {
    scene("fsx-map", 2, LIMIT, |cluster| run(cluster, &cluster.mnt(), "mapped", MAPPED));
}

#[test]
fn fsx_with_holes_and_allocation() {
    scene("fsx-all", 2, LIMIT, |cluster| run(cluster, &cluster.mnt(), "all", ALL));
}

#[test]
fn fsx_past_the_cache() {
    scene("fsx-direct", 2, LIMIT, |cluster| {
        run_and(cluster, &cluster.mnt(), "direct", DIRECT, make_direct)
    });
}

#[test]
fn fsx_on_two_mounts_at_once() {
    scene("fsx-two", 2, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| run(cluster, &first, "one", ALL));
            let two = scope.spawn(|| run(cluster, &second, "two", ALL));
            let ended = [one.join(), two.join()];
            ended.into_iter().try_for_each(|it| it.map_err(|_panic| "panicked".to_owned())?)
        })
    });
}
