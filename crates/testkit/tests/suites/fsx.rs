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

/// Runs fsx with `weights` on a file of its own in `top`.
fn run(cluster: &Cluster, top: &Path, name: &str, weights: &str) -> Outcome {
    let operations = Size::asked().of(1000, 5000, 200_000).to_string();
    let seed = std::env::var("SHEEN_SEED").unwrap_or_else(|_| "1".to_owned());
    let configuration = written(cluster, &format!("{name}.toml"), weights)?;
    let mut fsx = Command::new(installed("fsx")?);
    fsx.arg("-f").arg(configuration).arg("-P").arg(cluster.logs());
    fsx.args(["-N", &operations, "-S", &seed]).arg(top.join(name));
    println!("fsx {name}: {operations} operations, seed {seed}");
    judged(cluster, name, &mut fsx, LIMIT).map(|_| ())
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
