//! fsx: random operations on one file, every read compared with what was written.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::Outcome;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::workload::Size;

use crate::{installed, judged, written};

const LIMIT: Duration = Duration::from_secs(3600);

/// What fsx does unless told otherwise, with files closed and synced in between.
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

/// Operations of one fsx. It leaves a mapping behind for each `mapread`, all of which the kernel goes
/// through whenever the file is cut: 200,000 operations of one process would be such work and little
/// else, and end at the kernel's limit of 65,530 mappings.
const OPERATIONS_OF_ONE: u64 = 5000;

/// Runs fsx with `weights` on a file of its own in `top`, one after the other with seeds that follow
/// each other, until all operations are done.
fn run(cluster: &Cluster, top: &Path, name: &str, weights: &str) -> Outcome {
    let operations: u64 = Size::asked().of(1000, 5000, 200_000);
    let seed = std::env::var("SHEEN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let configuration = written(cluster, &format!("{name}.toml"), weights)?;
    println!("fsx {name}: {operations} operations from seed {seed}");
    for part in 0..operations.div_ceil(OPERATIONS_OF_ONE) {
        let count = OPERATIONS_OF_ONE.min(operations).to_string();
        let mut fsx = Command::new(installed("fsx")?);
        fsx.arg("-f").arg(&configuration).arg("-P").arg(cluster.logs());
        fsx.args(["-N", &count, "-S", &(seed + part).to_string()]).arg(top.join(name));
        judged(cluster, &format!("{name}-{}", seed + part), &mut fsx, LIMIT)?;
    }
    Ok(())
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
